local h = require "helpers"
local lu, gs = h.lu, h.gs

TestChan = {}

function TestChan.test_unbuffered()
  local ch = gs.chan()
  local g = gs.go(function() for i = 1, 3 do ch:send(i) end ch:close() return #ch, ch:cap() end)
  lu.assertEquals({ ch:recv(), ch:recv(), ch:recv() }, { 1, 2, 3 })
  lu.assertEquals({ ch:recv() }, { nil, "closed" })
  lu.assertEquals({ g:join() }, { true, 0, 0 })
end

function TestChan.test_buffered()
  local ch = gs.chan(2)
  lu.assertTrue(ch:send("a"))
  lu.assertTrue(ch:send("b", 0))
  lu.assertEquals({ #ch, ch:cap() }, { 2, 2 })
  lu.assertEquals({ ch:send("c", 0) }, { nil, "timeout" })
  lu.assertEquals({ ch:send("c", 0.005) }, { nil, "timeout" })
  ch:close()
  lu.assertEquals({ ch:recv() }, { "a" })
  lu.assertEquals({ ch:recv() }, { "b" })
  lu.assertEquals({ ch:recv() }, { nil, "closed" })
  lu.assertEquals({ ch:recv(1) }, { nil, "closed" })
end

function TestChan.test_iteration()
  local ch, out = gs.chan(3), {}
  gs.go(function() for i = 1, 100 do ch:send(i) end ch:send(false) ch:close() end)
  for v in ch do out[#out + 1] = v end
  lu.assertEquals(#out, 101)
  lu.assertEquals(out[100], 100)
  lu.assertEquals(out[101], false)
end

function TestChan.test_misuse()
  local ch = gs.chan()
  ch:close()
  h.fails("send on a closed channel", ch.send, ch, 1)
  h.fails("close of a closed channel", ch.close, ch)
  h.fails("nil can't be sent", gs.chan(1).send, gs.chan(1), nil)
  h.fails("nil can't be sent", gs.chan(1).send, gs.chan(1))
  h.fails("capacity", gs.chan, -1)
  h.fails("capacity", gs.chan, 1 << 40)
  h.fails("number expected", gs.chan, "x")
  h.fails("gosched.chan expected", ch.recv, nil)
  h.fails("gosched.chan expected", ch.send, {}, 1)
  h.fails("gosched.chan expected", ch.recv, gs.mutex())
  h.fails("number expected", ch.recv, ch, "soon")
  h.fails("attempt to index a nil value", function() local c c:recv() end)
  h.fails("a nil value", function() local c for _ in c do end end)
  -- A goroutine that waits to send when the channel is closed.
  local full = gs.chan()
  local g = gs.go(function() full:send(1) end)
  gs.sleep(0.002)
  full:close()
  local ok, err = g:join()
  lu.assertFalse(ok)
  lu.assertStrMatches(err, ".*test_chan.lua:%d+: send on a closed channel")
end

function TestChan.test_what_is_sent_is_a_copy()
  local ch = gs.chan(1)
  local t = { 1, { 2 } }
  ch:send(t)
  t[2][1] = "changed"
  local r = ch:recv()
  lu.assertEquals(r, { 1, { 2 } })
end

function TestChan.test_channels_over_channels_are_the_same()
  local ch, reply = gs.chan(1), gs.chan(1)
  ch:send({ reply = reply, list = { reply } })
  local r = ch:recv()
  lu.assertTrue(rawequal(r.reply, reply))
  lu.assertTrue(rawequal(r.list[1], reply))
  lu.assertTrue(h.go(function(a, b) return a == b and ch == ch end, reply, reply))
  local by = { [reply] = "found" }
  lu.assertEquals(by[r.reply], "found")
end

function TestChan.test_many_to_many()
  local ch, sums = gs.chan(4), gs.chan()
  local n, each = 8, 500
  local senders = gs.waitgroup()
  for s = 1, n do
    senders:go(function() for i = 1, each do ch:send(s * each + i) end end)
  end
  for _ = 1, n do
    gs.go(function()
      local sum = 0
      for v in ch do sum = sum + v end
      sums:send(sum)
    end)
  end
  senders:wait()
  ch:close()
  local total, want = 0, 0
  for _ = 1, n do total = total + sums:recv() end
  for s = 1, n do for i = 1, each do want = want + s * each + i end end
  lu.assertEquals(total, want)
end

function TestChan.test_select()
  local a, b = gs.chan(1), gs.chan(1)
  lu.assertEquals({ gs.select { a, b, default = true } }, { nil, "timeout" })
  lu.assertEquals({ gs.select { a, timeout = 0.002 } }, { nil, "timeout" })
  b:send("x")
  lu.assertEquals({ gs.select { a, b } }, { 2, "x" })
  lu.assertEquals({ gs.select { a, { b, { "deep" } } } }, { 2, true })
  lu.assertEquals({ gs.select { a, b } }, { 2, { "deep" } })
  a:close()
  lu.assertEquals({ gs.select { a, b } }, { 1, nil, "closed" })
  h.fails("send on a closed channel", gs.select, { { a, 1 } })
  -- false: a case that is never ready.
  lu.assertEquals({ gs.select { false, a } }, { 2, nil, "closed" })
  lu.assertEquals({ gs.select { false, timeout = 0 } }, { nil, "timeout" })
end

function TestChan.test_select_misuse()
  local ch = gs.chan()
  h.fails("table expected", gs.select)
  h.fails("bad case 1 of select (channel, {channel, value} or false expected, got number)", gs.select, { 5 })
  h.fails("bad case 2 of select (it has no channel)", gs.select, { ch, {} })
  h.fails("bad case 1 of select (channel expected, got string)", gs.select, { { "x", 1 } })
  h.fails("nil can't be sent", gs.select, { { ch } })
  h.fails("'timeout' is a number", gs.select, { ch, timeout = "x" })
  h.fails("a coroutine can't be copied to another goroutine (case 2 of select)", gs.select,
    { { ch, { "kept until the error" } }, { ch, coroutine.create(print) } })
  h.fails("only its timer sends", gs.select, { { gs.after(1), 1 } })
  h.fails("unknown option 'timout'", gs.select, { gs.chan(), timout = 1 })
  h.fails("unknown option '3'", gs.select, { gs.chan(), [3] = gs.chan(), default = true })
end

function TestChan.test_select_keeps_its_channels()
  -- A function of gosched.clone, which runs while select reads its cases, drops the only references to their channels.
  local Dropper, cases = {}, nil
  gs.clone(Dropper, function()
    cases[1] = nil
    cases[2][1] = nil
    collectgarbage()
    collectgarbage()
    local others = {}
    for i = 1, 50 do
      others[i] = gs.chan(1)
      others[i]:send("another channel's")
    end
    return 1
  end, function(v) return v end)
  for _ = 1, 50 do
    cases = { gs.chan(1), { gs.chan(), setmetatable({}, Dropper) }, timeout = 0 }
    lu.assertEquals({ gs.select(cases) }, { nil, "timeout" })
    cases = { gs.chan(1), { gs.chan(), setmetatable({}, Dropper) }, timeout = 0 }
    cases[1]:send("its own")
    lu.assertEquals({ gs.select(cases) }, { 1, "its own" })
  end
  -- What is added to the list meanwhile is no case of this select, and what is taken away before its turn is an error.
  cases = setmetatable({ gs.chan(1), gs.chan(1) }, { __index = function(t, key)
    for i = 3, 50 do t[i] = gs.chan(1) end
    return key == "timeout" and 0 or nil
  end })
  lu.assertEquals({ gs.select(cases) }, { nil, "timeout" })
  lu.assertEquals(#cases, 50)
  gs.clone(Dropper, function() cases[2] = nil return 1 end, function(v) return v end)
  cases = { { gs.chan(), setmetatable({}, Dropper) }, gs.chan(1), timeout = 0 }
  h.fails("bad case 2 of select (channel, {channel, value} or false expected, got nil)", gs.select, cases)
end

function TestChan.test_select_with_many_cases()
  local all = {}
  for i = 1, 100 do all[i] = gs.chan(1) end
  for _ = 1, 20 do
    local i = math.random(100)
    all[i]:send({ i })
    lu.assertEquals({ gs.select(all) }, { i, { i } })
  end
  local sends = {}
  for i = 1, 50 do sends[i] = { all[i], { "v" .. i } } end
  local i = gs.select(sends)
  lu.assertEquals(all[i]:recv(), { "v" .. i })
end

function TestChan.test_select_chooses_at_random()
  local a, b, count = gs.chan(1000), gs.chan(1000), { 0, 0 }
  for _ = 1, 1000 do a:send(1) b:send(1) end
  for _ = 1, 1000 do local i = gs.select { a, b } count[i] = count[i] + 1 end
  lu.assertTrue(count[1] > 200 and count[2] > 200)
end

function TestChan.test_timers()
  local before = gs.now()
  local at = gs.after(0.01):recv()
  lu.assertTrue(at >= before + 0.01 and at <= gs.now())
  local ticks, n = gs.every(0.002), 0
  for t in ticks do
    lu.assertTrue(t > before)
    n = n + 1
    if n == 3 then break end
  end
  ticks:close()
  ticks:recv() -- one may be in it still
  lu.assertEquals({ ticks:recv() }, { nil, "closed" })
  lu.assertEquals((gs.select { gs.chan(), gs.after(0.001) }), 2)
  h.fails("only its timer sends", gs.after(1).send, gs.after(1), 1)
  h.fails("can't be closed", gs.after(1).close, gs.after(1))
  h.fails("above 0", gs.every, 0)
  -- They can be passed on.
  lu.assertTrue(h.go(function(t) return t:recv() > 0 end, gs.after(0.001)))
end

function TestChan.test_values_left_in_a_channel_are_dropped_with_it()
  for _ = 1, 100 do
    local ch = gs.chan(10)
    for i = 1, 10 do ch:send({ i, gs.chan(), ("long"):rep(100) }) end
  end
  collectgarbage()
end

h.main()
