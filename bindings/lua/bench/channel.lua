-- channel.lua WHAT N: N numbers go to another and come back over channels without a buffer; prints the seconds.
local what, n = arg[1], tonumber(arg[2])

local function echo(there, back)
  while true do
    local v = there:recv()
    if not v then return end
    back:send(v)
  end
end

local function main(there, back)
  local sum = 0
  for i = 1, n do
    there:send(i)
    sum = sum + back:recv()
  end
  there:send(false)
  assert(sum == n * (n + 1) / 2)
end

local run = {
  goroutines = function()
    local gosched = require "gosched"
    local there, back = gosched.chan(), gosched.chan()
    gosched.go(echo, there, back)
    assert(gosched.go(main, there, back):join())
  end,
  coroutines = function()
    local scheduler = dofile((arg[0]:gsub("[^/]*$", "scheduler.lua")))
    scheduler.run(function()
      local there, back = scheduler.chan(), scheduler.chan()
      scheduler.go(echo, there, back)
      main(there, back)
    end)
  end,
}

local function now()
  local f <close> = assert(io.open("/proc/uptime"))
  return f:read("n")
end
local before = now()
run[what]()
print(now() - before)
