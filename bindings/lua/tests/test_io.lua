local h = require "helpers"
local lu, gs = h.lu, h.gs

local function server(serve)
  local l = assert(gs.tcp.listen("127.0.0.1", 0))
  local _, port = l:address()
  local g = gs.go(function()
    while true do
      local c, err = l:accept()
      if not c then return err end
      gs.go(serve, c)
    end
  end)
  return port, function()
    l:close()
    lu.assertEquals({ g:join(h.LONG) }, { true, "closed" })
  end
end

TestTcp = {}

function TestTcp.test_lines_bytes_all()
  local port, stop = server(function(c)
    for line in c:lines() do c:write(line:upper() .. "\n") end
    c:close()
  end)
  local c <close> = assert(gs.tcp.connect("127.0.0.1", port))
  c:write("one\ntwo\n\nthree\nfour")
  lu.assertEquals({ c:read(), c:read("L"), c:read("l"), c:read(3), c:read(1) }, { "ONE", "TWO\n", "", "THR", "E" })
  lu.assertEquals(c:recv(), "E\n")
  lu.assertEquals({ c:read("l", 0.005) }, { nil, "timeout" })
  lu.assertEquals(c:read(0), "")
  c:shutdown()
  lu.assertEquals(c:read("a"), "FOUR\n")
  lu.assertEquals(c:read("a"), "")
  lu.assertEquals({ c:read() }, { nil })
  lu.assertEquals({ c:recv() }, { nil })
  stop()
end

function TestTcp.test_what_was_read_before_a_timeout_is_not_lost()
  local step = gs.chan()
  local port, stop = server(function(c)
    c:write("half ")
    step:recv()
    c:write("line\n")
    c:close()
  end)
  local c <close> = assert(gs.tcp.connect("localhost", port))
  lu.assertEquals({ c:read("l", 0.01) }, { nil, "timeout" })
  lu.assertEquals({ c:read(100, 0.01) }, { nil, "timeout" })
  step:send(1)
  lu.assertEquals(c:read("l"), "half line")
  stop()
end

function TestTcp.test_large()
  local text = ("0123456789"):rep(500000)
  local port, stop = server(function(c) c:write(c:read(5000000)) c:close() end)
  local c <close> = assert(gs.tcp.connect("127.0.0.1", port))
  local w = gs.go(function() assert(c:write(text)) end) -- shared: one goroutine writes, one reads
  lu.assertTrue(c:read("a") == text)
  lu.assertTrue((w:join()))
  stop()
end

function TestTcp.test_many_connections()
  local port, stop = server(function(c) local s = c:read() c:write(s .. "!\n") c:close() end)
  local wg, ok = gs.waitgroup(), gs.chan(100)
  for i = 1, 100 do
    wg:go(function()
      local c <close> = assert(gs.tcp.connect("127.0.0.1", port))
      c:write(i .. "\n")
      assert(c:read() == i .. "!")
      ok:send(true)
    end)
  end
  wg:wait()
  lu.assertEquals(#ok, 100)
  stop()
end

function TestTcp.test_close_ends_waits()
  local port, stop = server(function(c) c:read() c:close() end)
  local c = assert(gs.tcp.connect("127.0.0.1", port))
  local g = gs.go(function() return c:read() end)
  local other = gs.go(function() return c:recv() end)
  gs.sleep(0.005)
  c:close()
  lu.assertEquals({ g:join(h.LONG) }, { true, nil, "closed" })
  lu.assertEquals({ other:join(h.LONG) }, { true, nil, "closed" })
  lu.assertEquals({ c:read() }, { nil, "closed" })
  lu.assertEquals({ c:write("x") }, { nil, "closed" })
  lu.assertTrue(c:close())
  lu.assertStrContains(tostring(c), "connection (closed)")
  stop()
end

function TestTcp.test_the_peer_goes_away()
  local port, stop = server(function(c) c:write("partial") c:close() end)
  local c <close> = assert(gs.tcp.connect("127.0.0.1", port))
  lu.assertEquals(c:read("l"), "partial")
  lu.assertEquals({ c:read("l") }, { nil })
  -- Writes fail sooner or later, without SIGPIPE.
  local ok, err, code
  repeat ok, err, code = c:write(("x"):rep(100000)) until not ok
  lu.assertTrue(err == "Broken pipe" or err == "Connection reset by peer", err)
  lu.assertTrue(code > 0)
  stop()
end

function TestTcp.test_errors()
  local l = assert(gs.tcp.listen("127.0.0.1", 0))
  local host, port = l:address()
  lu.assertEquals(host, "127.0.0.1")
  lu.assertEquals({ l:accept(0.002) }, { nil, "timeout" })
  lu.assertEquals({ gs.tcp.listen("127.0.0.1", port) }, { nil, "Address already in use", 98 })
  l:close()
  lu.assertEquals({ l:accept() }, { nil, "closed" })
  lu.assertEquals({ gs.tcp.connect("127.0.0.1", port) }, { nil, "Connection refused", 111 })
  lu.assertNil((gs.tcp.connect("no such host", 1)))
  h.fails("port", gs.tcp.connect, "127.0.0.1", 70000)
  h.fails("number expected", gs.tcp.connect, "127.0.0.1", "http")
  h.fails("string expected", gs.tcp.connect, nil, 1)
  h.fails("connection expected", l.shutdown, l)
  h.fails("file or connection expected, got a listener", l.read, l)
  h.fails("listener expected, got a UDP socket", l.accept, gs.udp.bind("127.0.0.1", 0))
  h.fails("'l', 'L', 'a' or a number", function()
    local f <close> = gs.open("/dev/null")
    f:read("x")
  end)
end

function TestTcp.test_addresses()
  local port, stop = server(function(c) c:write(select(2, c:peer()) .. "\n") c:close() end)
  local c <close> = assert(gs.tcp.connect("127.0.0.1", port))
  local _, own = c:address()
  lu.assertEquals({ c:peer() }, { "127.0.0.1", port })
  lu.assertEquals(c:read("l"), tostring(own))
  stop()
end

function TestTcp.test_unclosed_connections_end_with_their_goroutine()
  local ends = gs.chan()
  local port, stop = server(function(c) ends:send(c:read("l", h.LONG) or "end") c:close() end)
  h.go(function() gs.tcp.connect("127.0.0.1", port):write("x\n") end)
  lu.assertEquals({ ends:recv(h.LONG) }, { "x" })
  h.go(function() gs.tcp.connect("127.0.0.1", port) end)
  lu.assertEquals({ ends:recv(h.LONG) }, { "end" })
  stop()
end

TestUnix = {}

function TestUnix.test_path_and_abstract()
  local path = os.tmpname()
  os.remove(path)
  for _, name in ipairs { path, "@gosched-lua-" .. path } do
    local l = assert(gs.unix.listen(name))
    gs.go(function() local c = l:accept() c:write("hi\n") c:close() end)
    local c <close> = assert(gs.unix.connect(name))
    lu.assertEquals(c:read(), "hi")
    l:close()
  end
  os.remove(path)
  lu.assertEquals({ gs.unix.connect(path) }, { nil, "No such file or directory", 2 })
end

TestUdp = {}

function TestUdp.test_datagrams()
  local a, b = assert(gs.udp.bind("127.0.0.1", 0)), assert(gs.udp.bind(nil, 0))
  local _, port = a:address()
  lu.assertEquals({ a:recvfrom(100, 0.002) }, { nil, "timeout" })
  lu.assertTrue(b:sendto("one", "127.0.0.1", port))
  lu.assertTrue(b:sendto("", "localhost", port))
  local text, host, from = a:recvfrom(nil, h.LONG)
  lu.assertEquals({ text, host }, { "one", "127.0.0.1" })
  lu.assertEquals((a:recvfrom(nil, h.LONG)), "")
  a:sendto("back", host, from)
  lu.assertEquals((b:recvfrom(nil, h.LONG)), "back")
  local c = assert(gs.udp.connect("127.0.0.1", port))
  c:send("connected")
  lu.assertEquals((a:recvfrom(nil, h.LONG)), "connected")
  local g = gs.go(function() return a:recvfrom() end)
  gs.sleep(0.005)
  a:close()
  lu.assertEquals({ g:join(h.LONG) }, { true, nil, "closed" })
  lu.assertEquals({ b:sendto(("x"):rep(70000), "127.0.0.1", port) }, { nil, "Message too long", 90 })
end

function TestUdp.test_addresses_of_another_family()
  local u = assert(gs.udp.bind("127.0.0.1", 0))
  lu.assertEquals({ u:sendto("x", "::1", 5) }, { nil, "::1 is no address for this socket, which is one of IPv4" })
  local _, err = u:sendto("x", "nohost.invalid", 5)
  lu.assertNil(err:find("socket", 1, true))
  u:close()
  lu.assertEquals({ u:sendto("x", "::1", 5) }, { nil, "closed" })
end

function TestUdp.test_most()
  local a = assert(gs.udp.bind("127.0.0.1", 0))
  local _, port = a:address()
  local c = assert(gs.udp.connect("127.0.0.1", port))
  local _, own = c:address()
  local large = ("x"):rep(65507)
  -- What doesn't fit is cut off; the next call gets the next datagram.
  for _, text in ipairs { "hello world", "hello world", large, large } do c:send(text) end
  lu.assertEquals({ a:recvfrom(5, h.LONG) }, { "hello", "127.0.0.1", own })
  lu.assertEquals({ a:recv(7, h.LONG) }, { "hello w" })
  lu.assertTrue(a:recvfrom() == large)
  lu.assertTrue(a:recv(1 << 40) == large)
  lu.assertEquals({ a:recvfrom(1, 0.01) }, { nil, "timeout" })
  a:sendto("back", "127.0.0.1", own)
  lu.assertEquals({ c:recv(512, h.LONG) }, { "back" })
  lu.assertEquals({ c:recv(nil, 0.01) }, { nil, "timeout" })
  h.fails("above 0", a.recvfrom, a, 0)
  h.fails("integer", a.recvfrom, a, 0.5)
  h.fails("UDP socket expected", a.recvfrom, gs.open("/dev/null"), 5)
  local g = gs.go(function() return c:recv() end)
  gs.sleep(0.005)
  c:close()
  lu.assertEquals({ g:join(h.LONG) }, { true, nil, "closed" })
  lu.assertEquals({ c:recv(1) }, { nil, "closed" })
end

TestFile = {}

function TestFile.test_reading_and_writing()
  local path = h.file("")
  local f = assert(gs.open(path, "w+"))
  lu.assertTrue(f:write("first\nsecond\n") == f)
  lu.assertEquals({ f:seek(), f:seek("set", 2), f:read(), f:seek("end") }, { 13, 2, "rst", 13 })
  f:seek("set")
  local lines = {}
  for l in f:lines("L") do lines[#lines + 1] = l end
  lu.assertEquals(lines, { "first\n", "second\n" })
  -- Writing goes on where reading has stopped.
  f:seek("set")
  lu.assertEquals(f:read(), "first")
  f:write("SEC")
  lu.assertEquals(f:read(0), "")
  lu.assertEquals(f:read("a"), "ond\n")
  lu.assertEquals({ f:read(0) }, { nil })
  lu.assertTrue(f:sync())
  lu.assertTrue(f:close())
  lu.assertEquals(io.open(path):read("a"), "first\nSECond\n")
  f = assert(gs.open(path, "a"))
  f:write("appended")
  f:close()
  lu.assertEquals(io.open(path):read("a"), "first\nSECond\nappended")
  lu.assertEquals({ gs.open(path .. "/x") }, { nil, path .. "/x: Not a directory", 20 })
  h.fails("invalid mode", gs.open, path, "q")
  h.fails("file expected", f.seek, gs.udp.bind("127.0.0.1", 0))
end

function TestFile.test_lua_own_files_in_goroutines()
  local path = h.file("text\n")
  lu.assertEquals(h.go(function() for l in io.lines(path) do return l end end), "text")
  -- A blocking read holds no P: others run meanwhile.
  local p = gs.go(function() return io.popen("sleep 0.05; echo done"):read() end)
  lu.assertEquals(h.go(function() return 1 end), 1)
  lu.assertEquals({ p:join() }, { true, "done" })
end

TestClosed = {}

function TestClosed.test_every_operation()
  local l = assert(gs.tcp.listen("127.0.0.1", 0))
  local _, port = l:address()
  local c, u = assert(gs.tcp.connect("127.0.0.1", port)), assert(gs.udp.bind("127.0.0.1", 0))
  local f = assert(gs.open("/dev/null", "r+"))
  h.go(function() l:close() c:close() u:close() f:close() end)
  local operations = {
    { c, "read" }, { c, "recv" }, { c, "write", "x" }, { c, "shutdown" }, { c, "peer" }, { c, "address" }, { l, "accept" },
    { l, "address" }, { u, "sendto", "x", "127.0.0.1", port }, { u, "send", "x" }, { u, "recvfrom" }, { u, "recv" },
    { u, "address" }, { u, "peer" }, { f, "read" }, { f, "recv" }, { f, "write", "x" }, { f, "seek" }, { f, "sync" },
  }
  for i, o in ipairs(operations) do
    lu.assertEquals({ i, o[1][o[2]](o[1], table.unpack(o, 3)) }, { i, nil, "closed" })
  end
  lu.assertNil(c:lines()())
end

TestExec = {}

function TestExec.test_output_and_status()
  local r = assert(gs.exec({ "sh", "-c", "cat; echo err >&2; exit 3" }, { stdin = "in" }))
  lu.assertEquals(r, { code = 3, out = "in", err = "err\n" })
  lu.assertEquals(gs.exec({ "sh", "-c", "kill -TERM $$" }), { signal = 15, out = "", err = "" })
  lu.assertEquals(gs.exec({ "pwd" }, { cwd = "/" }).out, "/\n")
  lu.assertEquals(gs.exec({ "sh", "-c", "echo $A$HOME" }, { env = { A = "a", HOME = false } }).out, "a\n")
  local big = ("x"):rep(1000000)
  lu.assertTrue(gs.exec({ "cat" }, { stdin = big }).out == big)
  -- A process that doesn't read what it is given.
  lu.assertEquals(gs.exec({ "true" }, { stdin = big }).code, 0)
end

function TestExec.test_errors()
  lu.assertEquals({ gs.exec { "no such program" } }, { nil, "No such file or directory", 2 })
  lu.assertEquals({ gs.exec({ "sleep", "100" }, { timeout = 0.01 }) }, { nil, "timeout" })
  lu.assertEquals({ gs.exec({ "sh", "-c", "sleep 100 & sleep 100" }, { timeout = 0.01 }) }, { nil, "timeout" })
  h.fails("table expected", gs.exec, "ls")
  h.fails("names no program", gs.exec, {})
  h.fails("string expected at 2, got table", gs.exec, { "ls", {} })
  h.fails("zero byte", gs.exec, { "ls", "a\0b" })
  h.fails("unknown option 'stdn'", gs.exec, { "ls" }, { stdn = "" })
  h.fails("'env' has no name 'A=B'", gs.exec, { "env" }, { env = { ["A=B"] = "1" } })
  h.fails("'env' has no name ''", gs.exec, { "env" }, { env = { [""] = "1" } })
  h.fails("'NAME' of 'env' has a zero byte", gs.exec, { "env" }, { env = { NAME = "a\0b" } })
  h.fails("'NAME' of 'env' has a zero byte", gs.exec, { "env" }, { env = { ["NAME\0b"] = false } })
  h.fails("'env' is a table of names and strings", gs.exec, { "env" }, { env = { NAME = true } })
  h.fails("'cwd' has a zero byte", gs.exec, { "env" }, { cwd = "/\0b" })
  h.fails("'timeout'", gs.exec, { "ls" }, { timeout = "1" })
  h.fails("'env'", gs.exec, { "ls" }, { env = { 1 } })
end

function TestExec.test_children_of_goroutines_can_be_interrupted()
  -- The library's threads block all signals; what they start doesn't.
  local show = "grep SigBlk /proc/self/status"
  local want = gs.exec({ "sh", "-c", show }).out
  lu.assertStrContains(want, "0000000000000000")
  lu.assertEquals(h.go(function() return io.popen(show):read("a") end), want)
  lu.assertEquals(h.go(function() return gs.exec({ "sh", "-c", show }).out end), want)
  lu.assertEquals({ h.go(function() return os.execute("exit 3") end) }, { nil, "exit", 3 })
  lu.assertEquals({ h.go(function() return os.execute("kill -9 $$") end) }, { nil, "signal", 9 })
  lu.assertTrue(h.go(function() return os.execute() end))
  lu.assertEquals({ h.go(function() local p = io.popen("cat >/dev/null; exit 4", "w") p:write("x") return p:close() end) },
    { nil, "exit", 4 })
  h.fails("invalid mode", h.go, function() io.popen("ls", "rw") end)
end

h.main()
