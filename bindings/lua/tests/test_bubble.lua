-- gosched.test: runs by seeds.
local h = require "helpers"
local lu, gs = h.lu, h.gs
local test = gs.test

-- The failure of test.run or test.explore with these arguments.
local function failure(f, ...)
  local ok, e = pcall(f, ...)
  lu.assertFalse(ok, "the run is good")
  lu.assertEquals(type(e), "table", tostring(e))
  return e
end

local function read(path)
  local f <close> = assert(io.open(path))
  return f:read("a")
end

-- The bytes of memory that the process has.
local function memory()
  return tonumber(read("/proc/self/statm"):match("%d+ (%d+)")) * 4096
end

-- Two goroutines take from an account; the check and the withdrawal are apart.
local function transfer()
  local account, both = gs.chan(1), gs.waitgroup()
  account:send(100)
  for _ = 1, 2 do
    both:go(function()
      local balance = account:recv()
      account:send(balance)
      if balance >= 100 then account:send(account:recv() - 100) end
    end)
  end
  both:wait()
  local balance = account:recv()
  assert(balance >= 0, "the balance is " .. balance)
end

-- The same, under a mutex.
local function good_transfer()
  local account, both, mutex = gs.chan(1), gs.waitgroup(), gs.mutex()
  account:send(100)
  for _ = 1, 2 do
    both:go(function()
      local held <close> = mutex:hold()
      local balance = account:recv()
      account:send(balance)
      if balance >= 100 then account:send(account:recv() - 100) end
    end)
  end
  both:wait()
  assert(account:recv() == 0)
end

-- The order in which four goroutines come.
local function order()
  local done, all = gs.chan(12), gs.waitgroup()
  for _, name in ipairs { "a", "b", "c", "d" } do
    all:go(function() for _ = 1, 3 do done:send(name) end end)
  end
  all:wait()
  local names = {}
  for i = 1, 12 do names[i] = done:recv() end
  return table.concat(names)
end

TestRun = {}

function TestRun.test_gives_the_results()
  lu.assertEquals({ test.run(function(...) return "x", ... end, 1, { 2 }) }, { "x", 1, { 2 } })
  lu.assertEquals(select("#", test.run(function() end)), 0)
  lu.assertEquals(select("#", test.run(function() return nil, nil end)), 2)
  lu.assertEquals({ test.run({ seed = 17 }, function() return test.seed() end) }, { 17 })
  lu.assertEquals(test.run(function() return test.seed() end), 1)
  lu.assertNil(test.seed())
  lu.assertEquals(require "gosched.test", test)
end

function TestRun.test_is_a_module_of_its_own()
  local r = h.lua [[local test = require "gosched.test" print(test.run(function() return test.seed() end)) os.exit(true, true)]]
  lu.assertEquals(r.out .. r.err, "1\n")
end

function TestRun.test_from_a_goroutine()
  lu.assertEquals(h.go(function() return gs.test.run(function() return gs.count() end) end), 1)
end

function TestRun.test_several_at_the_same_time()
  local all = {}
  for i = 1, 8 do
    all[i] = gs.go(function() return test.explore({ seed = i * 1000 }, 100, good_transfer) end)
  end
  for i = 1, 8 do lu.assertEquals({ all[i]:join(h.LONG) }, { true, 100 }) end
end

function TestRun.test_not_within_a_run()
  h.fails("a run can't be made within a run", function() test.run(function() gs.test.run(print) end) end)
end

function TestRun.test_the_seed_decides()
  local seen, n = {}, 0
  for seed = 1, 50 do
    local first = test.run({ seed = seed }, order)
    lu.assertEquals(test.run({ seed = seed }, order), first)
    if not seen[first] then seen[first], n = true, n + 1 end
  end
  lu.assertTrue(n > 25, n)
end

function TestRun.test_10000_seeds()
  lu.assertEquals(test.explore(10000, good_transfer), 10000)
end

function TestRun.test_the_schedules()
  for _, schedule in ipairs { "random", "pct", "round_robin" } do
    lu.assertEquals(test.explore({ schedule = schedule, depth = 4 }, 100, good_transfer), 100)
  end
  lu.assertEquals(failure(test.explore, { schedule = "pct", depth = 2 }, 1000, transfer).kind, "error")
end

-- Each run has Lua anew.
function TestRun.test_nothing_is_kept()
  h.with_modules({ counts = "local n = 0 return function() n = n + 1 return n end" }, function()
    local name = package.path:match("/([^/]+counts)$") or "counts"
    lu.assertEquals(test.explore(20, function()
      assert(not kept)
      kept = true
      string.kept = (string.kept or 0) + 1
      assert(string.kept == 1)
      assert(require "counts"() == 1)
      assert(select(2, gs.go(function() return require "counts"() end):join()) == 1)
    end), 20)
  end)
end

function TestRun.test_pairs_and_random_are_by_the_seed()
  local function look()
    local t, keys = { 3, 2, 1, [1.5] = 1, [true] = 1, [false] = 1 }, {}
    for i = 1, 20 do t["key" .. i * 7919 % 101] = i end
    for key, value in pairs(t) do
      keys[#keys + 1] = tostring(key) .. "=" .. tostring(value)
      if key == "key1" then t.key99 = nil end
    end
    return table.concat(keys, " "), math.random(1 << 40), select(2, gs.go(function() return math.random(1 << 40) end):join())
  end
  local first = { test.run({ seed = 3 }, look) }
  lu.assertStrMatches(first[1], "1=3 1.5=1 2=2 3=1 key.*false=1 true=1")
  for _ = 1, 20 do lu.assertEquals({ test.run({ seed = 3 }, look) }, first) end
  lu.assertNotEquals(select(2, test.run({ seed = 4 }, look)), first[2])
  lu.assertNotEquals(first[3], first[2])
  lu.assertEquals(test.run(function()
    local t, n = setmetatable({}, { __pairs = function() return function(_, i) if i < 3 then return i + 1 end end, nil, 0 end }), 0
    for i in pairs(t) do n = n + i end
    return n
  end), 6)
  h.fails("bad argument #1", test.run, function() pairs() end)
  lu.assertEquals(test.run(function() local n = 0 for k in pairs { [print] = 1, [{}] = 2, 5 } do n = n + 1 end return n end), 3)
end

function TestRun.test_objects_from_outside()
  local results = gs.chan(10)
  test.run(function() results:send("in") end)
  lu.assertEquals(results:recv(0), "in")
  local inner = test.run(function() local ch = gs.chan(1) ch:send("out") return ch end)
  lu.assertEquals(inner:recv(0), "out")
  local late = test.run(function() return gs.after(100) end)
  lu.assertEquals({ late:recv(0) }, { nil, "timeout" })
  local ended = test.run(function() local g = gs.go(function() return 5 end) g:join() return g end)
  lu.assertEquals({ ended:join() }, { true, 5 })
end

function TestRun.test_a_partner_outside_disturbs()
  local ch = gs.chan()
  local waits = gs.go(function() return ch:recv() end)
  gs.sleep(0.01)
  local e = failure(test.run, { max_steps = 10000 }, function()
    ch:send(1)
    while true do gs.yield() end
  end)
  lu.assertEquals(e.kind, "disturbed")
  lu.assertStrContains(e.message, "which is not in the bubble")
  lu.assertTrue(waits:join(h.LONG))
end

function TestRun.test_finalizers_run_in_the_run()
  lu.assertEquals(test.explore(50, function()
    local ch = gs.chan(1)
    gs.go(function()
      _G.kept = setmetatable({}, { __gc = function() ch:send("collected") end })
    end)
    assert(ch:recv() == "collected")
  end), 50)
end

function TestRun.test_coroutines()
  lu.assertEquals(test.explore(50, function()
    local ch = gs.chan()
    gs.go(function() for i = 1, 3 do ch:send(i) end ch:close() end)
    local next_one = coroutine.wrap(function() for i in ch do coroutine.yield(i) end end)
    assert(next_one() + next_one() + next_one() == 6)
  end), 50)
end

-- ---- Time ----

TestTime = {}

function TestTime.test_an_hour()
  local began = gs.now()
  lu.assertEquals({ test.run(function()
    local now = gs.now()
    gs.sleep(3600)
    return now, gs.now()
  end) }, { 1, 3601 })
  lu.assertTrue(gs.now() - began < 3600)
end

function TestTime.test_timers_and_deadlines()
  test.run(function()
    assert(gs.after(5):recv() == 6)
    local ticks = gs.every(0.25)
    for i = 1, 40 do assert(ticks:recv() == 6 + i * 0.25) end
    ticks:close()
    assert(gs.now() == 16)
    local ch, mutex = gs.chan(), gs.mutex()
    assert(select(2, ch:recv(100)) == "timeout" and gs.now() == 116)
    assert(select(2, gs.select { ch, timeout = 4 }) == "timeout" and gs.now() == 120)
    mutex:lock()
    assert(select(2, mutex:lock(0.5)) == "timeout" and gs.now() == 120.5)
    gs.after(1e6)
  end)
end

-- ---- Failures ----

TestFailures = {}

function TestFailures.test_an_error_of_the_function()
  local e = failure(test.run, { seed = 5 }, function() error("no") end)
  lu.assertEquals(e.kind, "error")
  lu.assertEquals(e.seed, 5)
  lu.assertNil(e.replay)
  lu.assertEquals(e.goroutine, 1)
  lu.assertStrMatches(e.message, ".*test_bubble.lua:%d+: no")
  lu.assertEquals(e.error, e.message)
  lu.assertStrContains(e.traceback, "stack traceback:")
  lu.assertStrContains(e.report, "GOSCHED_TEST=seed=5")
  lu.assertEquals(tostring(e), e.report)
end

function TestFailures.test_an_error_that_is_a_table()
  local e = failure(test.run, function() error(setmetatable({ code = 7 }, { __tostring = function(t) return "code " .. t.code end })) end)
  lu.assertEquals(e.error.code, 7)
  lu.assertEquals(tostring(e.error), "code 7")
  lu.assertEquals(e.message, "code 7")
end

function TestFailures.test_an_error_for_which_nobody_asks()
  for _, wait in ipairs { 0, 10 } do
    local e = failure(test.explore, 10, function()
      gs.go(function() error("lost") end)
      if wait > 0 then gs.sleep(wait) end
    end)
    lu.assertEquals(e.kind, "error")
    lu.assertStrContains(e.message, "lost")
    lu.assertEquals(e.goroutine, 2)
  end
  local e = failure(test.run, function()
    local g = gs.go(function() error("kept") end)
    gs.sleep(10)
    assert(g:status() == "failed")
  end)
  lu.assertStrContains(e.message, "kept")
end

function TestFailures.test_an_error_for_which_join_asks()
  lu.assertEquals(test.explore(100, function()
    local g = gs.go(function() error("asked", 0) end)
    gs.sleep(math.random(0, 2))
    local ok, err = g:join()
    assert(not ok and err == "asked")
  end), 100)
end

function TestFailures.test_a_cancelled_goroutine_is_no_failure()
  lu.assertEquals(test.explore(100, function()
    local g = gs.go(function() gs.sleep(100) end)
    gs.yield()
    g:cancel()
  end), 100)
end

local function wait_in_vain(ch)
  return (ch:recv())
end

function TestFailures.test_a_deadlock()
  local e = failure(test.run, function()
    local ch = gs.chan()
    gs.go({ name = "the waiter" }, function() return (wait_in_vain(ch)) end)
    gs.mutex():hold()
    ch:recv()
  end)
  lu.assertEquals(e.kind, "deadlock")
  lu.assertEquals(e.message, "all goroutines are asleep - deadlock!")
  lu.assertStrContains(e.report, "goroutine 2 \"the waiter\" waits to receive from a channel")
  lu.assertStrMatches(e.report, ".*wait_in_vain %(.*test_bubble.lua:%d+%).*")
  lu.assertNil(e.error)
  for _, wait in ipairs {
    function() gs.waitgroup():wait() end,
    function() local wg = gs.waitgroup() wg:add(1) wg:wait() end,
    function() local m = gs.mutex() m:lock() m:lock() end,
    function() local m = gs.mutex() m:lock() m:hold() end,
    function() gs.select { gs.chan(), { gs.chan(), 1 }, false } end,
    function() gs.go(function() gs.chan():recv() end):join() end,
    function() gs.udp.bind("127.0.0.1", 9):recv() end,
    function() gs.tcp.listen("127.0.0.1", 9):accept() end,
    function() coroutine.wrap(function() gs.chan():recv() end)() end,
  } do
    local ok, e = pcall(test.run, wait)
    if not ok then lu.assertEquals(e.kind, "deadlock", tostring(e)) end
  end
end

-- The error that nobody asked for is the cause.
function TestFailures.test_a_deadlock_after_an_error()
  local e = failure(test.run, function()
    local ch = gs.chan()
    local g = gs.go(function() error("before it sends") ch:send(1) end)
    ch:recv()
    g:join()
  end)
  lu.assertEquals(e.kind, "deadlock")
  lu.assertStrContains(e.error, "before it sends")
  lu.assertStrContains(tostring(e), "goroutine 2 has failed: ")
end

function TestFailures.test_too_many_steps()
  local e = failure(test.run, { max_steps = 100 }, function() while true do gs.yield() end end)
  lu.assertEquals(e.kind, "steps")
end

function TestFailures.test_fail()
  local function f()
    gs.go(function()
      pcall(test.fail, "as it must")
      error("goes on")
    end)
    gs.sleep(10)
    error("goes on")
  end
  for _, e in ipairs { failure(test.run, f), failure(test.explore, 10, f) } do
    lu.assertEquals(e.kind, "failed")
    lu.assertStrContains(e.message, "as it must")
    lu.assertStrContains(e.report, "as it must")
    lu.assertNil(e.error)
  end
  h.fails("outside", test.fail, "outside")
end

function TestFailures.test_the_check()
  local function f(watch)
    local a, b = gs.chan(10), gs.chan(10)
    if watch then test.check(function() return #a + #b <= 4 end) end
    for _ = 1, 3 do gs.go(function() a:send(1) b:send(1) a:recv() b:recv() end) end
  end
  lu.assertEquals(test.explore(50, f), 50)
  local e = failure(test.explore, 1000, f, true)
  lu.assertEquals(e.kind, "failed")
  lu.assertEquals(e.message, "the check returned false")
  lu.assertStrContains(e.report, "the check returned false")
  lu.assertEquals(failure(test.replay, e.replay, f, true).message, e.message)

  e = failure(test.run, function()
    local ch = gs.chan(1)
    test.check(function() assert(#ch == 0, "not empty") end)
    ch:send(1)
    gs.yield()
  end)
  lu.assertStrContains(e.message, "not empty")
  -- From outside: it begins with each run.
  local outer = gs.chan(5)
  e = failure(test.run, { check = function() return #outer == 0 end }, function() outer:send(1) gs.yield() end)
  lu.assertEquals(e.message, "the check returned false")
  lu.assertEquals(#outer, 1)
  -- It may not wait, and its own garbage does no harm.
  for _, call in ipairs {
    function(ch) ch:recv(0) end, function(ch) ch:send(1) end, function() gs.sleep(0) end, function() gs.mutex():trylock() end,
    function() gs.mutex():lock(0) end, function() gs.go(print) end, function() gs.chan() end,
  } do
    e = failure(test.run, function()
      local ch = gs.chan(1)
      test.check(function() call(ch) end)
      gs.yield()
    end)
    lu.assertStrContains(e.message, "a check must not wait")
  end
  lu.assertEquals(test.explore(20, function()
    local ch, sent = gs.chan(200), gs.chan(200)
    test.check(function() local t = {} for i = 1, 100 do t[i] = ("x"):rep(i) end return #ch <= 200 end)
    for i = 1, 50 do sent:send(gs.chan()) end
  end), 20)
  h.fails("a check belongs into a run", test.check, print)
end

-- ---- Exploring ----

TestExplore = {}

function TestExplore.test_finds_the_shortest_schedule()
  local e = failure(test.explore, 1000, transfer)
  lu.assertEquals(e.kind, "error")
  lu.assertStrContains(e.message, "the balance is -100")
  lu.assertStrContains(e.report, "has 1 choice")
  lu.assertStrMatches(e.report, ".*goroutine 2 .*in send, in function <test_bubble.lua:%d+>.*gives way to goroutine 3.*")
  lu.assertNil(e.report:find("fails; now for", 1, true))
  -- Nothing besides the seed had a say.
  lu.assertNil(e.report:find("clock", 1, true), e.report)
  for _ = 1, 100 do
    local again = failure(test.replay, e.replay, transfer)
    lu.assertEquals({ again.kind, again.message }, { e.kind, e.message })
  end
  lu.assertEquals(failure(test.run, { replay = e.replay }, transfer).replay, e.replay)
  lu.assertEquals(failure(test.explore, { replay = e.replay }, 1, transfer).message, e.message)
  test.run({ replay = "" }, transfer)
end

-- Each run that a seed has given is given by its schedule too.
function TestExplore.test_each_seed_can_be_replayed()
  for seed = 1, 60 do
    local e = failure(test.explore, { seed = seed }, 1, function()
      local all, cut = gs.waitgroup(), gs.chan(9)
      for i = 1, 3 do all:go(function() cut:send(i) gs.yield() cut:send(i) end) end
      all:wait()
      error("always")
    end)
    lu.assertStrContains(e.message, "always")
  end
end

function TestExplore.test_the_environment()
  local program = [[
    local gs = require "gosched"
    local function f()
      local ch = gs.chan(2)
      local a = gs.go(function() ch:send("a") end)
      local b = gs.go(function() ch:send("b") end)
      a:join() b:join()
      assert(ch:recv() == "a", "b is first")
    end
    local ok, e = pcall(gs.test.explore, 100, f)
    print(ok, ok or e.replay, ok or e.seed, ok or e.message:match("b is first"))
    ok, e = pcall(gs.test.run, f)
    print(ok, ok or e.message:match("b is first"))
    os.exit(true, true)
  ]]
  local function said(text)
    local r = h.lua(program, { env = { GOSCHED_TEST = text }, timeout = h.LONG })
    lu.assertEquals(r.code, 0, r.err)
    return r.out
  end
  local replay = said(false):match("^false\t(%S+)\t%d+\tb is first\n")
  lu.assertNotNil(replay, said(false))
  lu.assertEquals(said("replay=" .. replay), "false\t" .. replay .. "\t1\tb is first\nfalse\tb is first\n")
  lu.assertEquals(said("replay="), "true\ttrue\ttrue\ttrue\ntrue\ttrue\n")
  lu.assertEquals(said("seed=9"), said("seed=9"))
  lu.assertStrContains(h.lua("require 'gosched'.test.run(print)", { env = { GOSCHED_TEST = "sed=1" } }).err,
    "GOSCHED_TEST is neither seed=NUMBER nor replay=SCHEDULE")
end

function TestExplore.test_strict()
  lu.assertEquals(test.explore({ strict = true }, 20, good_transfer), 20)
  local e = failure(test.run, { strict = true }, function() return os.time() end)
  lu.assertEquals(e.kind, "disturbed")
  lu.assertStrContains(e.report, "reads the system's clock")
end

function TestExplore.test_the_log()
  local path = os.tmpname()
  local function log(seed)
    test.run({ seed = seed, log = path, net = { jitter = 0.001 } }, function()
      local all, ch = gs.waitgroup(), gs.chan()
      local u = gs.udp.bind("127.0.0.1", 0)
      local _, port = u:address()
      for i = 1, 3 do
        all:go(function()
          ch:send(i)
          local own = gs.udp.connect("127.0.0.1", port)
          own:send("x" .. i)
        end)
      end
      for _ = 1, 3 do ch:recv() gs.sleep(0.1) end
      for _ = 1, 3 do u:recv() end
      all:wait()
    end)
    return read(path)
  end
  local first = log(5)
  lu.assertStrContains(first, " goroutine 1 spawns goroutine 2")
  for _ = 1, 5 do lu.assertEquals(log(5), first) end
  lu.assertNotEquals(log(6), first)
  os.remove(path)
  -- In two processes.
  local program = [[
    local gs = require "gosched"
    local path = os.tmpname()
    gs.test.run({ seed = 8, log = path }, function()
      local t, ch = { one = 1, two = 2, three = 3, four = 4 }, gs.chan()
      for name in pairs(t) do gs.go(function() gs.sleep(math.random(10)) ch:send(name) end) end
      for _ = 1, 4 do ch:recv() end
    end)
    for line in io.lines(path) do print(line) end
    os.remove(path)
    os.exit(true, true)
  ]]
  local r = h.lua(program)
  lu.assertStrContains(r.out, "ends\n")
  lu.assertEquals(h.lua(program).out, r.out)
  h.fails("no run: /no/such/log: No such file or directory", test.run, { log = "/no/such/log" }, print)
end

-- Four goroutines that do what comes.
local function random_program()
  local chans, mutexes, all, ops = {}, { gs.mutex(), gs.mutex() }, gs.waitgroup(), nil
  for i = 1, 4 do chans[i] = gs.chan(i - 1) end
  ops = {
    function() chans[math.random(4)]:send(math.random(100), math.random(0, 2)) end,
    function() chans[math.random(4)]:send({ ("x"):rep(math.random(1, 5000)) }, math.random(0, 2)) end,
    function() chans[math.random(4)]:recv(math.random(0, 2)) end,
    function() gs.select { chans[math.random(4)], { chans[math.random(4)], "s" }, timeout = math.random() } end,
    function() local held <close> = mutexes[math.random(2)]:hold() gs.sleep(math.random()) end,
    function() if mutexes[1]:trylock() then gs.yield() mutexes[1]:unlock() end end,
    function() gs.go(function() gs.sleep(math.random()) end):join(math.random()) end,
    function() local g = gs.go(function() gs.sleep(1) end) gs.yield() g:cancel() end,
    function() gs.after(math.random()):recv() end,
    function() local ticks = gs.every(0.1) ticks:recv() ticks:close() end,
    function() coroutine.wrap(function() coroutine.yield(chans[1]:recv(0.1)) end)() end,
    function() collectgarbage() end,
    function()
      local listener = assert(gs.tcp.listen("127.0.0.1", 0))
      local server = gs.go(function() local conn = listener:accept(5) if conn then conn:write(("y"):rep(20000), 5) end end)
      local conn = gs.tcp.connect("127.0.0.1", select(2, listener:address()), 5)
      if conn then conn:read(20000, 5) end
      listener:close()
      server:join()
    end,
  }
  for _ = 1, 4 do all:go(function() for _ = 1, 8 do ops[math.random(#ops)]() end end) end
  all:wait()
end

function TestExplore.test_random_programs_come_again()
  local path = os.tmpname()
  local net = { jitter = 0.1, loss = 0.05, reset = 0.02, cut = 0.01, refuse = 0.02, short_io = 0.1 }
  for seed = 1, 60 do
    local logs = {}
    for i = 1, 2 do
      test.run({ seed = seed, schedule = ({ "random", "pct", "round_robin" })[seed % 3 + 1], log = path, net = net }, random_program)
      logs[i] = read(path)
    end
    lu.assertTrue(logs[1] == logs[2], seed)
  end
  os.remove(path)
end

-- ---- The network, and other faults ----

TestFaults = {}

-- One request and its answer; the results: what went wrong.
local function ask()
  local listener = assert(gs.tcp.listen("127.0.0.1", 0))
  local _, port = listener:address()
  local server = gs.go(function()
    for conn in function() return listener:accept() end do
      gs.go(function(conn)
        local conn <close> = conn
        for line in function() return (conn:read("l", 300)) end do
          if not conn:write(line:upper() .. "\n", 300) then return end
        end
      end, conn)
    end
  end)
  local client, err = gs.tcp.connect("127.0.0.1", port, 10)
  local got
  if client then
    local host, peer = client:peer()
    assert(host == "127.0.0.1" and peer == port)
    _, err = client:write("hello\n", 10)
    if not err then got, err = client:read("l", 60) end
    client:close()
  end
  listener:close()
  assert(server:join())
  return got, err
end

function TestFaults.test_a_good_network()
  lu.assertEquals(test.explore(300, function() assert(ask() == "HELLO") end), 300)
  lu.assertEquals(test.explore({ net = { delay = 0.2, jitter = 1, short_io = 0.5, loss = 0.1 } }, 300,
    function() assert(ask() == "HELLO") end), 300)
end

function TestFaults.test_a_bad_network()
  local seen = {}
  for seed = 1, 300 do
    local got, err = test.run({ seed = seed, net = { cut = 0.1, reset = 0.1, refuse = 0.1 } }, ask)
    lu.assertTrue(got == "HELLO" or got == nil)
    seen[err or got or "end"] = true
  end
  for _, what in ipairs { "HELLO", "timeout", "Connection refused", "Connection reset by peer" } do
    lu.assertTrue(seen[what], what)
  end
  local function f() assert(ask() == "HELLO", "no answer") end
  local e = failure(test.explore, { net = { reset = 0.02 } }, 1000, f)
  lu.assertStrContains(e.report, "the connection is reset")
  lu.assertEquals(failure(test.replay, { net = { reset = 0.02 } }, e.replay, f).message, e.message)
end

function TestFaults.test_datagrams()
  local function count()
    local u = assert(gs.udp.bind("127.0.0.1", 0))
    local host, port = u:address()
    local v = assert(gs.udp.bind("127.0.0.1", 0))
    for i = 1, 20 do assert(v:sendto("datagram " .. i, host, port)) end
    local n = 0
    while true do
      local text, from, from_port = u:recvfrom(nil, 1)
      if not text then break end
      assert(from == "127.0.0.1" and from_port == select(2, v:address()))
      n = n + 1
    end
    local waits = gs.go(function() return u:recv() end)
    gs.sleep(1)
    u:close()
    local _, got, err = waits:join()
    assert(got == nil and err == "closed")
    return n
  end
  lu.assertEquals(test.run(count), 20)
  lu.assertTrue(test.run({ net = { loss = 0.5 } }, count) < 20)
  lu.assertTrue(test.run({ net = { duplicate = 0.5 } }, count) > 20)
end

function TestFaults.test_unix_sockets_and_shutdown()
  lu.assertEquals(test.explore(200, function()
    local listener = assert(gs.unix.listen("/run/not a real path"))
    local server = gs.go(function()
      local conn <close> = listener:accept()
      conn:write((conn:read("a"):reverse()))
    end)
    local conn <close> = assert(gs.unix.connect("/run/not a real path"))
    assert(conn:write("abc"))
    assert(conn:shutdown("write"))
    assert(not conn:write("more"))
    assert(conn:read("a") == "cba")
    assert(server:join())
  end), 200)
  lu.assertNil(io.open("/run/not a real path"))
end

-- Closing ends the waits of others, and none of them meets the next socket with this number.
function TestFaults.test_close_while_others_wait()
  lu.assertEquals(test.explore(500, function()
    local a = gs.tcp.listen("127.0.0.1", 1)
    local waits = gs.go(function() return a:accept() end)
    local conn = gs.tcp.connect("127.0.0.1", 1)
    local reads = gs.go(function() return conn:read("l") end)
    local closes = gs.go(function() conn:close() a:close() end)
    local b = gs.tcp.listen("127.0.0.1", 2)
    local other = gs.tcp.connect("127.0.0.1", 2)
    local mine = b:accept()
    mine:write("mine\n")
    local ok, got = reads:join()
    assert(ok and got == nil)
    assert(waits:join() and closes:join())
    assert(other:read("l") == "mine")
  end), 500)
end

function TestFaults.test_sockets_that_are_left_are_closed()
  local listener, port = test.run(function()
    local listener = gs.tcp.listen("127.0.0.1", 0)
    return listener, select(2, listener:address())
  end)
  lu.assertEquals(port, 32768)
  lu.assertEquals({ listener:accept(0) }, { nil, "closed" })
  lu.assertTrue(listener:close())
  local before = gs.exec { "ls", "/proc/" .. read("/proc/self/stat"):match("%d+") .. "/fd" }.out
  for _ = 1, 50 do
    pcall(test.run, function()
      local kept, file = gs.tcp.listen("127.0.0.1", 0), gs.open("/dev/null")
      gs.chan():recv()
    end)
  end
  local _, n = gs.exec { "ls", "/proc/" .. read("/proc/self/stat"):match("%d+") .. "/fd" }.out:gsub("\n", "")
  lu.assertTrue(n < select(2, before:gsub("\n", "")) + 20, n)
  -- A file of the kernel may be used on.
  local file = test.run(function() return gs.open("/proc/self/stat") end)
  lu.assertNotNil(file:read())
end

function TestFaults.test_cancels()
  local function f()
    local ends = gs.chan(3)
    for _ = 1, 3 do
      gs.go(function()
        local ok, err = pcall(function() for _ = 1, 5 do gs.sleep(1) end end)
        ends:send(ok or err)
      end)
    end
    local n = 0
    for _ = 1, 3 do n = n + (ends:recv(100) == "cancelled" and 1 or 0) end
    return n
  end
  lu.assertEquals(test.run(f), 0)
  local n = 0
  for seed = 1, 50 do n = n + test.run({ seed = seed, cancel = 0.05 }, f) end
  lu.assertTrue(n > 5, n)
end

function TestFaults.test_no_memory()
  local function f()
    local n = 0
    for _ = 1, 20 do
      local ok, err = pcall(gs.chan, 100)
      n = n + (ok and 0 or 1)
    end
    return n
  end
  lu.assertEquals(test.run(f), 0)
  lu.assertTrue(test.run({ no_memory = 0.3 }, f) > 0)
end

-- ---- What is left ----

TestLeft = {}

function TestLeft.test_good_runs_leave_nothing()
  test.explore(200, good_transfer)
  collectgarbage()
  local before = memory()
  lu.assertEquals(test.explore(3000, function()
    local ch = gs.chan(1)
    test.check(function() return #ch <= 1 end)
    ch:send(("x"):rep(10000))
    gs.go(function() return #ch:recv() end):join()
  end), 3000)
  lu.assertTrue(memory() - before < 8 << 20, memory() - before)
  lu.assertEquals(gs.count(), 1)
end

function TestLeft.test_given_up_goroutines_leave_little()
  local function left()
    local ch = gs.chan()
    local small, large, huge = {}, ("x"):rep(200000), ("y"):rep(3 << 20)
    for i = 1, 1000 do small[i] = { i } end
    for _ = 1, 3 do gs.go(function(t) local u = t ch:recv() return u end, small) end
    local mutex <close> = gs.mutex():hold()
    ch:recv()
    return small, large, huge
  end
  for i = 1, 5 do pcall(test.run, left) end
  collectgarbage()
  local before = memory()
  for i = 1, 200 do lu.assertEquals(failure(test.run, left).kind, "deadlock") end
  -- The stacks stay, some pages each.
  lu.assertTrue(memory() - before < 200 * 4 * (32 << 10), memory() - before)
  lu.assertEquals(gs.count(), 1)
end

-- What it waited for may be used on, and lets others go first.
function TestLeft.test_an_object_from_outside_with_a_waiter_that_was_given_up()
  local ch, mutex = gs.chan(1), gs.mutex()
  for _ = 1, 10 do
    lu.assertEquals(failure(test.run, function() gs.go(function() ch:recv() end) gs.chan():recv() end).kind, "deadlock")
    collectgarbage()
  end
  lu.assertNotNil(gs.dump())
  mutex:lock()
  lu.assertEquals(failure(test.run, function() mutex:lock() end).kind, "deadlock")
  mutex:unlock()
end

function TestLeft.test_a_cancel_ends_it()
  for _, f in ipairs { function() while true do gs.yield() end end, function() while true do end end,
                       function() while true do pcall(function() while true do end end) end end } do
    local g = gs.go(function() gs.test.run({ max_steps = 1 << 60 }, f) end)
    gs.sleep(0.05)
    lu.assertEquals(g:status(), "running")
    g:cancel()
    local ok, err = g:join(h.LONG)
    lu.assertEquals({ ok, err }, { false, "cancelled" })
  end
end

function TestLeft.test_the_program_may_end_meanwhile()
  local r = h.lua [[
    local gs = require "gosched"
    gs.go(function() gs.test.explore(1 << 40, function() gs.go(function() gs.yield() end):join() end) end)
    gs.sleep(0.05)
    print "end"
  ]]
  lu.assertEquals({ r.out, r.code }, { "end\n", 0 })
end

-- ---- Arguments ----

TestArguments = {}

function TestArguments.test_wrong_ones()
  h.fails("function to test expected, got no value", test.run)
  h.fails("function to test expected, got nil", test.run, nil)
  h.fails("function to test expected, got no value", test.run, {})
  h.fails("function to test expected, got number", test.run, 5)
  h.fails("function to test expected, got no value", test.explore, 5)
  h.fails("the number of runs is negative", test.explore, -1, print)
  h.fails("number has no integer representation", test.explore, 1.5, print)
  h.fails("schedule expected, got function", test.replay, print)
  h.fails("unknown option 'sed'", test.replay, { sed = 1 }, "", print)
  h.fails("a coroutine can't be copied", test.run, print, coroutine.create(print))
  for text, options in pairs {
    ["option 'seed': an integer above 0 expected, got 0"] = { seed = 0 },
    ["option 'seed': an integer above 0 expected, got x"] = { seed = "x" },
    ["option 'schedule': 'random', 'pct' or 'round_robin' expected, got fair"] = { schedule = "fair" },
    ["option 'depth': an integer above 0 expected, got 0"] = { depth = 0 },
    ["option 'max_steps': an integer above 0 expected, got 1.5"] = { max_steps = 1.5 },
    ["option 'check': a function expected, got true"] = { check = true },
    ["option 'replay': a string expected, got 1"] = { replay = 1 },
    ["option 'log': a string expected, got false"] = { log = false },
    ["option 'strict': a boolean expected, got 1"] = { strict = 1 },
    ["option 'cancel': a chance from 0 to 1 expected, got 2"] = { cancel = 2 },
    ["option 'no_memory': a chance from 0 to 1 expected, got -1"] = { no_memory = -1 },
    ["option 'net': a table expected, got 5"] = { net = 5 },
    ["option 'delay': a number of seconds expected, got -1"] = { net = { delay = -1 } },
    ["option 'jitter': a number of seconds expected, got x"] = { net = { jitter = "x" } },
    ["option 'loss': a chance from 0 to 1 expected, got x"] = { net = { loss = "x" } },
    ["unknown option 'speed' of net"] = { net = { speed = 1 } },
    ["unknown option 'sed'"] = { sed = 1 },
    ["unknown option '1'"] = { 1 },
    ["the schedule to replay is none"] = { replay = "1.2" },
  } do
    h.fails(text, test.run, options, print)
    h.fails(text, test.explore, options, 5, print)
  end
  lu.assertEquals(test.explore(0, error), 0)
  lu.assertEquals(test.explore(function() end), 1000)
end

h.main()
