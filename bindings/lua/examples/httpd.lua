-- An HTTP server: lua5.4 httpd.lua [PORT]. Each connection is a goroutine, so requests are served on all processors.
local gosched = require "gosched"

local pages = {
  ["/"] = function() return "Hello from Lua\n" end,
  -- Something to compute: how many primes there are below n.
  ["/primes"] = function(query)
    local n, count = math.min(tonumber(query:match("n=(%d+)")) or 1000, 1e6), 0
    for i = 2, n - 1 do
      local prime = true
      for d = 2, math.floor(math.sqrt(i)) do
        if i % d == 0 then prime = false break end
      end
      if prime then count = count + 1 end
    end
    return count .. "\n"
  end,
  ["/fail"] = function() error("this page fails") end,
}

local function answer(conn, status, body, keep)
  return conn:write(("HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: %s\r\n\r\n%s")
    :format(status, #body, keep and "keep-alive" or "close", body), 10)
end

-- Reads the head of a request: the method, the path, the query, whether the connection stays.
local function request(conn)
  local line = conn:read("l", 30)
  if not line then return nil end -- the end, or nothing for 30 s
  local method, path, query, version = line:match("^(%u+) ([^ ?]+)%??([^ ]*) HTTP/1%.([01])\r?$")
  local keep = version == "1"
  for header in conn:lines("l", 30) do
    if header == "" or header == "\r" then break end
    local value = header:lower():match("^connection:%s*(%S+)")
    if value then keep = value == "keep-alive" end
  end
  return method or "?", path, query, keep
end

local function serve(conn)
  local conn <close> = conn
  for method, path, query, keep in request, conn do
    local page = pages[path]
    local status, body = "200 OK", nil
    if method ~= "GET" then status, body, keep = "405 Method Not Allowed", "only GET\n", false
    elseif not page then status, body = "404 Not Found", "no such page\n"
    else
      local ok, result = pcall(page, query)
      if ok then body = result else status, body = "500 Internal Server Error", "the page has failed\n" end
    end
    if not answer(conn, status, body, keep) or not keep then return end
  end
end

local listener = assert(gosched.tcp.listen(nil, tonumber(arg[1]) or 8080))
local _, port = listener:address()
print(("listening on port %d, on %d processors"):format(port, gosched.procs()))
io.stdout:flush()
while true do
  local conn, err = listener:accept()
  if conn then
    gosched.go({ name = "connection" }, serve, conn)
  else -- no file is left: those who connect wait until others have gone
    io.stderr:write("httpd: ", err, "\n")
    gosched.sleep(0.02)
  end
end
