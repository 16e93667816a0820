local h = require "helpers"
local lu, gs = h.lu, h.gs

TestGoroutine = {}

function TestGoroutine.test_results_come_by_join()
  local ok, a, b, c, d = gs.go(function(...) return select("#", ...), ... end, 1, nil, "x"):join()
  lu.assertEquals({ ok, a, b, c, d }, { true, 3, 1, nil, "x" })
  lu.assertEquals(table.pack(gs.go(function() end):join()), { true, n = 1 })
end

function TestGoroutine.test_join_again_gives_the_same()
  local g = gs.go(function() return { 1 } end)
  local _, one = g:join()
  local _, two = g:join()
  lu.assertEquals(one, two)
  lu.assertFalse(rawequal(one, two)) -- copies
end

function TestGoroutine.test_an_error_ends_one_goroutine_only()
  local ch = gs.chan()
  local good = gs.go(function() return ch:recv() end)
  local bad = gs.go(function()
    local function inner() error("boom") end
    inner()
  end)
  local ok, err, traceback = bad:join()
  lu.assertFalse(ok)
  lu.assertStrMatches(err, ".*test_goroutine.lua:%d+: boom")
  lu.assertStrContains(traceback, "in local 'inner'")
  lu.assertStrContains(traceback, "stack traceback:")
  lu.assertEquals(bad:status(), "failed")
  ch:send("still here")
  lu.assertEquals({ good:join() }, { true, "still here" })
  lu.assertEquals(good:status(), "done")
end

function TestGoroutine.test_the_traceback_is_that_of_the_error()
  local function fails(how)
    local x <close> = setmetatable({}, { __close = function() how() end })
    local function before() error("first") end
    before()
  end
  local ok, err, traceback = gs.go(fails, function() error("in close") end):join()
  lu.assertFalse(ok)
  lu.assertStrMatches(err, ".*: in close")
  lu.assertEquals(traceback:sub(1, #err + 1), err .. "\n")
  lu.assertNil(traceback:find("first", 1, true))
  -- An error whose text can't be had.
  ok, err, traceback = gs.go(fails, function() error(setmetatable({}, { __tostring = error })) end):join()
  lu.assertEquals({ ok, traceback:sub(1, #err) }, { false, err })
  -- Errors that the clean-up catches are no error of the goroutine.
  ok, err, traceback = gs.go(fails, function() pcall(error, "caught") end):join()
  lu.assertStrMatches(err, ".*: first")
  lu.assertEquals(traceback:sub(1, #err + 1), err .. "\n")
  lu.assertStrContains(traceback, "in local 'before'")
end

function TestGoroutine.test_errors_may_be_any_value()
  local ok, err = gs.go(function() error({ code = 7 }) end):join()
  lu.assertFalse(ok)
  lu.assertEquals(err, { code = 7 })
  ok, err = gs.go(function() error() end):join()
  lu.assertFalse(ok)
  lu.assertNil(err)
  -- An error value that can't be copied comes as its text.
  ok, err = gs.go(function() error(setmetatable({ co = coroutine.create(print) }, { __tostring = function() return "odd" end })) end):join()
  lu.assertFalse(ok)
  lu.assertEquals(err, "odd")
end

function TestGoroutine.test_a_result_that_cannot_be_copied_is_an_error()
  local ok, err = gs.go(function() return 1, coroutine.create(print) end):join()
  lu.assertFalse(ok)
  lu.assertStrContains(err, "a coroutine can't be copied to another goroutine (result 2)")
end

function TestGoroutine.test_bad_arguments()
  h.fails("function expected", gs.go)
  h.fails("function expected", gs.go, 1)
  h.fails("unknown option 'nme'", gs.go, { nme = "x" }, print)
  h.fails("option 'stack'", gs.go, { stack = "big" }, print)
  h.fails("option 'priority'", gs.go, { priority = "urgent" }, print)
  h.fails("number expected", gs.sleep)
  h.fails("nan", gs.sleep, 0 / 0)
  h.fails("select: 'timeout' is a number of seconds, got nan", gs.select, { gs.chan(), timeout = 0 / 0 })
  h.fails("select: 'timeout' is a number of seconds, got table", gs.select, { gs.chan(), timeout = {} })
  h.fails("exec: 'timeout' is a number of seconds, got nan", gs.exec, { "true" }, { timeout = 0 / 0 })
  h.fails("gosched.goroutine expected", gs.go(function() end).join, 5)
end

function TestGoroutine.test_options()
  local g = gs.go({ name = "worker", stack = 1 << 16, priority = "low" }, function(x) return x end, 5)
  lu.assertEquals(g:name(), "worker")
  lu.assertEquals({ g:join() }, { true, 5 })
  lu.assertStrContains(tostring(g), "goroutine (worker)")
  -- A name that goes while the arguments are copied.
  local Dropper, options = {}, nil
  gs.clone(Dropper, function()
    options.name = nil
    collectgarbage()
    local others = {}
    for i = 1, 100 do others[i] = ("y"):rep(99) .. i end
    return others
  end, function() end)
  for i = 1, 20 do
    options = { name = ("x"):rep(99) .. i }
    lu.assertEquals(gs.go(options, function() end, setmetatable({}, Dropper)):name(), ("x"):rep(99) .. i)
  end
  -- Without a name: where its function is.
  lu.assertStrMatches(gs.go(function() end):name(), ".*test_goroutine.lua:%d+")
end

function TestGoroutine.test_join_with_a_timeout()
  local ch = gs.chan()
  local g = gs.go(function() ch:recv() return "done" end)
  lu.assertEquals({ g:join(0) }, { nil, "timeout" })
  lu.assertEquals({ g:join(0.01) }, { nil, "timeout" })
  lu.assertEquals(g:status(), "running")
  ch:send(1)
  lu.assertEquals({ g:join(h.LONG) }, { true, "done" })
end

function TestGoroutine.test_cancel_ends_every_kind_of_wait()
  local waits = {
    function() gs.chan():recv() end,
    function() gs.chan():send(1) end,
    function() gs.select { gs.chan() } end,
    function() gs.select {} end,
    function() gs.sleep(1e9) end,
    function() local m = gs.mutex() m:lock() m:lock() end,
    function() local w = gs.waitgroup() w:add(1) w:wait() end,
    function() gs.tcp.listen("127.0.0.1", 0):accept() end,
    function() gs.udp.bind("127.0.0.1", 0):recvfrom() end,
    function() gs.go(function() gs.sleep(0.5) end):join() end,
    function() for _ in gs.chan() do end end,
    function() gs.exec { "sleep", "100" } end,
    -- A cancelled os.execute ends the shell only: the sleeper must not hold the pipes of who runs this test.
    function() os.execute("exec sleep 100 >/dev/null 2>&1") end,
    function() while true do end end,
    function() while true do gs.yield() end end,
  }
  for i, f in ipairs(waits) do
    local started = gs.chan(1)
    local g = gs.go(function() started:send(true) f() end)
    started:recv()
    gs.sleep(0.002)
    g:cancel()
    local ok, err = g:join(h.LONG)
    lu.assertEquals({ i, ok, err }, { i, false, "cancelled" })
  end
end

function TestGoroutine.test_cancel_ends_loops_in_coroutines()
  for i, loop in ipairs {
    function() coroutine.wrap(function() while true do end end)() end,
    function() assert(coroutine.resume(coroutine.create(function() while true do end end))) end,
    function()
      local step = coroutine.wrap(function() while true do coroutine.yield() end end)
      while true do step() end
    end,
    function() coroutine.wrap(function() coroutine.wrap(function() gs.yield() while true do end end)() end)() end,
    function()
      local co = coroutine.create(function()
        local x <close> = setmetatable({}, { __close = function() while true do end end })
        coroutine.yield()
      end)
      coroutine.resume(co)
      error(select(2, coroutine.close(co)))
    end,
    function()
      coroutine.wrap(function()
        local x <close> = setmetatable({}, { __close = function() while true do end end })
        error("x")
      end)()
    end,
  } do
    local started = gs.chan(1)
    local g = gs.go(function() started:send(true) loop() end)
    started:recv()
    g:cancel()
    local ok, err = g:join(h.LONG)
    lu.assertEquals({ i, ok }, { i, false })
    lu.assertStrContains(err, "cancelled")
  end
end

-- What coroutines do at their edges, as text. In goroutines resume, wrap and close are this module's.
local function coroutines()
  local out = {}
  local function say(...)
    local t = table.pack(...)
    for i = 1, t.n do t[i] = tostring(t[i]):gsub("0x%x+", "address") end
    out[#out + 1] = table.concat(t, " ")
  end
  say(pcall(coroutine.wrap))
  say(pcall(coroutine.wrap, 3))
  say(pcall(coroutine.resume, 3) == false)
  local co = coroutine.create(function(a, b)
    local c = coroutine.yield(a + b)
    local d, e = coroutine.yield(c * 2)
    return d, e, "end"
  end)
  say(coroutine.resume(co, 1, 2))
  say(coroutine.resume(co, 10))
  say(coroutine.resume(co, "x"))
  say(coroutine.resume(co))
  local w = coroutine.wrap(function() error("oops") end)
  say(pcall(w))
  say(pcall(w))
  say(pcall(coroutine.wrap(function() error({}) end)))
  say(pcall(coroutine.wrap(function()
    local x <close> = setmetatable({}, { __close = function(_, e) say("closed", e) end })
    error("while open", 0)
  end)))
  local inner
  inner = coroutine.create(function() return coroutine.resume(inner) end)
  say(coroutine.resume(inner))
  say(coroutine.resume((coroutine.running())))
  co = coroutine.wrap(function() return pcall(function() coroutine.yield(1) error("after") end) end)
  say(co())
  say(co())
  local function nest(n) return n == 0 and "bottom" or coroutine.wrap(nest)(n - 1) end
  say(pcall(nest, 50))
  say((select(2, pcall(nest, 1000)):match("C stack overflow")))
  say(select("#", coroutine.wrap(function() return table.unpack({}, 1, 200) end)()))
  say(pcall(coroutine.resume, coroutine.create(function(...) return select("#", ...) end), table.unpack({}, 1, 5000)))
  say(coroutine.isyieldable(), coroutine.wrap(function() return coroutine.isyieldable() end)())
  co = coroutine.create(function()
    local x <close> = setmetatable({}, { __close = function() say("closed") end })
    coroutine.yield()
  end)
  coroutine.resume(co)
  say(coroutine.close(co))
  say(coroutine.close(co))
  say(coroutine.close(coroutine.create(print)))
  say(pcall(coroutine.close, 3))
  say(pcall(coroutine.close, (coroutine.running())))
  co = coroutine.create(function() return pcall(coroutine.wrap(function() return coroutine.close(co) end)) end)
  say(coroutine.resume(co))
  co = coroutine.create(function() error("oops", 0) end)
  coroutine.resume(co)
  say(coroutine.close(co))
  say(coroutine.close(co))
  co = coroutine.create(function()
    local x <close> = setmetatable({}, { __close = function() error("in close", 0) end })
    coroutine.yield()
  end)
  coroutine.resume(co)
  say(coroutine.close(co))
  for k, v in coroutine.wrap(function() for k, v in ipairs { 5, 6 } do coroutine.yield(k, v) end end) do say(k, v) end
  say(coroutine.resume(coroutine.create(function() error(debug.traceback()) end)))
  return table.concat(out, "\n")
end

function TestGoroutine.test_coroutines_are_as_in_main()
  lu.assertEquals({ gs.go(coroutines):join() }, { true, coroutines() })
end

function TestGoroutine.test_cancel_is_an_error_once()
  local ch, started = gs.chan(), gs.chan(1)
  local g = gs.go(function()
    started:send(true)
    local ok, err = pcall(ch.recv, ch)
    -- Clean-up can wait again.
    gs.sleep(0.001)
    started:send(true)
    return ok, err, ch:recv()
  end)
  started:recv()
  g:cancel()
  started:recv() -- else the first recv may find the value there, which comes before the cancel
  ch:send("later")
  lu.assertEquals({ g:join() }, { true, false, "cancelled", "later" })
  g:cancel() -- it has ended: nothing
end

-- Lua makes no more than a warning of an error in a finalizer.
function TestGoroutine.test_cancel_is_not_lost_in_a_finalizer()
  local ready, never = gs.chan(), gs.chan()
  local g = gs.go(function()
    setmetatable({}, { __gc = function() ready:send(true) never:recv() end })
    collectgarbage()
    never:recv(h.LONG)
  end)
  ready:recv()
  g:cancel()
  local ok, err = g:join(h.LONG)
  lu.assertEquals({ ok, err }, { false, "cancelled" })
end

function TestGoroutine.test_cancel_closes_variables()
  local ch, started = gs.chan(2), gs.chan(1)
  local g = gs.go(function()
    local x <close> = setmetatable({}, { __close = function(_, err) ch:send(tostring(err)) end })
    started:send(true)
    gs.chan():recv()
  end)
  started:recv()
  g:cancel()
  lu.assertFalse((g:join()))
  lu.assertEquals(ch:recv(), "cancelled")
end

function TestGoroutine.test_runaway_loops_let_others_run()
  -- More of them than there are P's.
  local stop = {}
  local gs_chan = {}
  for i = 1, 12 do
    gs_chan[i] = gs.go(function() local n = 0 while true do n = n + 1 end end)
  end
  -- These run all the same, in goroutines and here.
  lu.assertEquals(h.go(function() return 42 end), 42)
  for _ = 1, 3 do gs.sleep(0.001) end
  for i = 1, 12 do gs_chan[i]:cancel() end
  for i = 1, 12 do stop[i] = { gs_chan[i]:join(h.LONG) } end
  for i = 1, 12 do lu.assertEquals({ stop[i][1], stop[i][2] }, { false, "cancelled" }) end
end

function TestGoroutine.test_runaway_coroutines_and_functions_in_c_let_others_run()
  local all = {
    gs.go(function() coroutine.wrap(function() for _ = 1, 2e7 do end end)() end),
    gs.go(function() ("a"):rep(24):find(("a?"):rep(24) .. ("a"):rep(24)) end),
    gs.go(function() local t = {} for i = 1, 100000 do t[i] = -i end table.sort(t) end),
  }
  lu.assertEquals(h.go(function() return 42 end), 42)
  lu.assertTrue((all[1]:join(h.LONG)))
  lu.assertTrue((all[2]:join(h.LONG)))
  lu.assertTrue((all[3]:join(h.LONG)))
end

function TestGoroutine.test_hooks_of_the_program_stay()
  local count = h.go(function()
    local n = 0
    debug.sethook(function() n = n + 1 end, "", 100)
    for _ = 1, 1e7 do end
    local hook = debug.gethook()
    debug.sethook()
    return hook and n
  end)
  lu.assertTrue(count > 1e4)
end

function TestGoroutine.test_each_has_globals_of_its_own()
  leaked = "main's"
  lu.assertNil(h.go(function() return leaked end))
  for _ = 1, 50 do
    lu.assertNil(h.go(function() local was = mine mine = 1 _G.other = 2 return was end))
    lu.assertNil(h.go(function() return rawget(_G, "other") end))
  end
  lu.assertNil(mine)
  lu.assertTrue(h.go(function() return _G == _ENV and _G._G == _G and package.loaded._G == _G and print == _G.print end))
  lu.assertTrue(h.go(function() x = 1 return load("return x == 1")() end))
  -- A standard function that a goroutine replaces is there for the next one.
  for _ = 1, 10 do lu.assertEquals(h.go(function() local t = type(print) print = nil return t end), "function") end
  leaked = nil
end

function TestGoroutine.test_modules_see_the_globals_of_their_goroutine()
  h.with_modules({
    oldstyle = "function hello() return 'hello' end  return { get = function() return CONFIG end, set = function(v) OTHER = v end }",
    replaces = "local was = type\n function type(v) return 'a ' .. was(v) end  warn = nil",
    outer = "require 'oldstyle'  above = hello() .. ' from outer'",
    fails = "broken = 1 require 'inner' error('no')",
    inner = "defined_by_inner = 1",
  }, function()
    for _ = 1, 3 do
      local all = {}
      for i = 1, 20 do
        all[i] = gs.go(function(i)
          local before = { CONFIG, OTHER, own }
          CONFIG, own = i, i
          local m = require "oldstyle"
          m.set(-i)
          gs.yield()
          -- What the module defines, and what it reads and writes, are globals of this goroutine.
          return #before, m.get(), OTHER, hello(), _G.hello == hello, rawget(_G, "own")
        end, i)
      end
      for i = 1, 20 do lu.assertEquals({ all[i]:join() }, { true, 0, i, -i, "hello", true, i }) end
      lu.assertEquals(h.go(function() require "outer" above = above .. "!" return above end), "hello from outer!")
      -- What a module changes stays changed, and what a goroutine does to that doesn't.
      lu.assertEquals({ h.go(function()
        require "replaces"
        local kind, gone = type(1), warn == nil
        type, warn = nil, 1
        return kind, gone
      end) }, { "a number", true })
      -- A module that fails leaves nothing; a module that it has loaded stays loaded.
      lu.assertEquals({ h.go(function()
        local before, ok = broken, pcall(require, "fails")
        require "inner"
        return before, ok, defined_by_inner
      end) }, { nil, false, 1 })
    end
  end)
end

function TestGoroutine.test_modules_of_preload_and_loaded()
  local preload, settings = package.preload, { 1 }
  preload.bundled = function(...) return { settings = settings, args = { ... }, f = function() return "bundled" end } end
  preload.user = function() return { inner = require "bundled" } end
  preload.in_c = string.upper
  preload.bad = function() return settings.co end
  preload.fails = function() error("it fails", 0) end
  local b = require "bundled"
  for _ = 1, 20 do
    lu.assertEquals(h.go(function() return require("bundled").args end), { "bundled", ":preload:" })
  end
  lu.assertEquals({ h.go(function() return b.f(), b.settings, require("user").inner == b, (require "in_c") end) },
    { "bundled", { 1 }, true, "IN_C" })
  h.fails("it fails", h.go, function() require "fails" end)
  -- Goroutines of goroutines, which may add some.
  lu.assertEquals({ h.go(function()
    package.preload.own = function() return "own" end
    local g = gs.go(function() return require "own", require("user").inner.f() end)
    local results = { g:join() }
    package.preload.own = nil
    return table.unpack(results)
  end) }, { true, "own", "bundled" })
  -- What changes, and what goes.
  settings.co = coroutine.create(print)
  preload.fails = nil
  preload.late = function() return "late" end
  h.fails("can't be copied to another goroutine (package.preload['bad'], in upvalue 'settings'", h.go, function() require "bad" end)
  h.fails("no field package.preload['fails']", h.go, function() require "fails" end)
  lu.assertEquals(h.go(function() return require "late" end), "late")
  for _, name in ipairs { "bundled", "user", "in_c", "bad", "late" } do preload[name], package.loaded[name] = nil, nil end
  h.fails("no field package.preload['bad']", h.go, function() require "bad" end)
  -- By hand, after it was looked for: the error says what to do.
  lu.assertFalse((pcall(require, "config")))
  package.loaded.config = { port = 1 }
  local config = require "config"
  h.fails("give package.preload['config'] a function", h.go, function() return config.port end)
  preload.config = function() return { port = 2 } end
  lu.assertEquals(h.go(function() return config.port end), 2)
  preload.config, package.loaded.config = nil, nil
end

function TestGoroutine.test_require_is_as_in_main()
  local function tries()
    local out = {}
    for _, name in ipairs { "no.such.module", "string", 5 } do
      out[#out + 1] = table.pack(pcall(require, name))
      out[#out][2] = tostring(out[#out][2]):gsub("0x%x+", "address")
    end
    local where = select(2, pcall(function() require "no.such.module" end))
    package.preload.here = function(...) return select("#", ...) .. (...) .. select(2, ...) end
    local searchers, no_function = package.searchers, pcall(require)
    package.searchers = nil
    local no_searchers = select(2, pcall(require, "x"))
    package.searchers = searchers
    local results = table.pack(require "here")
    package.loaded.here, package.preload.here = nil, nil
    return out, where, results, no_function, no_searchers, (select("#", require "string"))
  end
  lu.assertEquals({ h.go(tries) }, { tries() })
end

function TestGoroutine.test_nothing_is_left_for_the_next_goroutine()
  local path = h.file("")
  for _ = 1, 10 do
    h.go(function()
      io.output(path)
      io.write("to the file\n")
      io.input(path)
      setmetatable(_G, { __index = function() return "left" end })
      for _, v in pairs { 1, true, print, coroutine.create(print), "" } do debug.setmetatable(v, { __index = { left = 1 } }) end
      debug.setmetatable(nil, { __index = { left = 1 } })
      package.loaded._G = nil
      collectgarbage("incremental", 900, 300, 10)
    end)
    lu.assertEquals({ h.go(function()
      local found = {}
      for _, v in pairs { 1, true, print, coroutine.create(print), _G } do
        found[#found + 1] = debug.getmetatable(v) and "a metatable"
      end
      return #found, undefined, debug.getmetatable(nil), ("x"):upper(), package.loaded._G == _G, io.output() == io.stdout,
        io.input() == io.stdin
    end) }, { 0, nil, nil, "X", true, true, true })
  end
  lu.assertEquals({ h.go(function()
    return collectgarbage("isrunning"), collectgarbage("setpause"), collectgarbage("setstepmul"), collectgarbage("incremental")
  end) }, { true, 200, 100, "incremental" })
  -- What is in a metatable of a basic type, of which all values of the type have the same.
  for _ = 1, 10 do
    h.go(function()
      local meta = getmetatable("")
      meta.__index, meta.__mul, meta.__add = function(s, i) return s:sub(i, i) end, string.rep, nil
      meta.__concat = error
    end)
    lu.assertEquals({ h.go(function()
      return ("x"):upper(), "2" * "3", "2" + "3", getmetatable("").__concat, getmetatable("").__index == string
    end) }, { "X", 6, 5, nil, true })
  end
  -- Many globals, and none of them.
  for _ = 1, 10 do
    h.go(function() for i = 1, 5000 do _G["left" .. i] = i end end)
    lu.assertNil(h.go(function() return left1 or left5000 end))
    h.go(function() local all = _G for k in pairs(all) do all[k] = nil end end)
    lu.assertEquals(h.go(function() return tostring(#table.pack(1, 2)) end), "2")
  end
end

function TestGoroutine.test_what_modules_do_to_metatables_stays()
  package.preload.strings_that_repeat = function()
    getmetatable("").__call, getmetatable("").__unm = string.rep, nil
    return true
  end
  for _ = 1, 10 do
    h.go(function()
      require "strings_that_repeat"
      getmetatable("").__call, getmetatable("").__unm = error, error
    end)
    lu.assertEquals({ h.go(function()
      require "strings_that_repeat"
      return ("x")(3), getmetatable("").__unm
    end) }, { "xxx" })
    -- Not in a metatable that only this goroutine has set.
    h.go(function()
      debug.setmetatable(print, {})
      package.preload.changes_functions = function() debug.getmetatable(print).__index = {} return true end
      require "changes_functions"
    end)
    lu.assertNil(h.go(function() return debug.getmetatable(print) end))
  end
  package.preload.strings_that_repeat = nil
end

function TestGoroutine.test_goroutines_start_goroutines()
  local function fib(n)
    local gs = require "gosched"
    if n < 2 then return n end
    local a, b = gs.go(fib, n - 1), gs.go(fib, n - 2)
    local _, x = a:join()
    local _, y = b:join()
    return x + y
  end
  lu.assertEquals(h.go(fib, 11), 89)
end

function TestGoroutine.test_ids_count_procs()
  local a, b = h.go(gs.id), h.go(gs.id)
  lu.assertTrue(a ~= b and a > 0)
  lu.assertTrue(gs.id() > 0)
  local ch = gs.chan()
  local before = gs.count()
  local g = gs.go(function() ch:recv() end)
  lu.assertEquals(gs.count(), before + 1)
  ch:send(1)
  g:join()
  local n = gs.procs()
  lu.assertTrue(n >= 1)
  lu.assertEquals(gs.procs(3), n)
  lu.assertEquals(gs.procs(n), 3)
  h.fails("1 to 1024", gs.procs, 0)
  h.fails("1 to 1024", gs.procs, 5000)
  lu.assertStrContains(gs.dump(), "goroutine")
end

function TestGoroutine.test_sleep_and_now()
  local before = gs.now()
  gs.sleep(0.02)
  lu.assertTrue(gs.now() - before >= 0.02)
  gs.sleep(0)
  gs.sleep(-1)
end

function TestGoroutine.test_to_be_closed_variables_and_coroutines()
  local log = h.go(function()
    local log = {}
    local function closer(name)
      return setmetatable({}, { __close = function() gs.yield() log[#log + 1] = name end })
    end
    do
      local a <close> = closer("a")
      local b <close> = closer("b")
      gs.sleep(0.001)
    end
    local co = coroutine.wrap(function()
      for i = 1, 3 do
        gs.sleep(0.001) -- waits in a coroutine
        coroutine.yield(i)
      end
    end)
    log[#log + 1] = co() + co() + co()
    pcall(function()
      local c <close> = closer("c")
      error("x")
    end)
    return log
  end)
  lu.assertEquals(log, { "b", "a", 6, "c" })
end

function TestGoroutine.test_collectgarbage()
  h.go(function()
    local closed = 0
    for _ = 1, 100 do
      setmetatable({}, { __gc = function() closed = closed + 1 gs.yield() end })
    end
    collectgarbage()
    collectgarbage("generational")
    collectgarbage("incremental")
    assert(closed == 100, closed)
  end)
  -- A goroutine that stops the collector leaves it running for the next one.
  for _ = 1, 20 do h.go(function() collectgarbage("stop") end) end
  for _ = 1, 20 do lu.assertTrue(h.go(function() return collectgarbage("isrunning") end)) end
end

-- Numbers that a goroutine has fixed by a seed don't come again in later goroutines.
function TestGoroutine.test_a_seed_of_random_numbers_is_for_one_goroutine()
  local seen = {}
  for _ = 1, 20 do
    lu.assertEquals(h.go(function() math.randomseed(7) local n = math.random(0) math.randomseed(7) return n == math.random(0) end), true)
    local n = h.go(function() return math.random(0) end)
    lu.assertNil(seen[n])
    seen[n] = true
  end
end

function TestGoroutine.test_finalizers_run_at_the_end_of_the_goroutine()
  local path, ch = h.file(""), gs.chan(10)
  local function content()
    local f <close> = assert(io.open(path))
    return f:read("a")
  end
  for i = 1, 5 do
    h.go(function() io.open(path, "w"):write("open ", i) end)
    lu.assertEquals(content(), "open " .. i)
    h.go(function() io.output(path) io.write("default ", i) end)
    lu.assertEquals(content(), "default " .. i)
    h.go(function() setmetatable({}, { __gc = function() ch:send(i) end }) end)
    lu.assertEquals({ ch:recv(0) }, { i })
    -- Also of values that were received, and of globals; what finalizers do to globals is undone.
    local v = setmetatable({}, { __gc = function() left = 1 ch:send(-i) end })
    h.go(function(v) kept = v end, v)
    setmetatable(v, nil)
    lu.assertEquals({ ch:recv(0), #ch }, { -i, 0 })
    lu.assertNil(h.go(function() return kept or left end))
  end
  -- setmetatable is as in main else.
  local function errors()
    local t = setmetatable({}, { __metatable = "locked" })
    return select(2, pcall(setmetatable, t, {})), select(2, pcall(setmetatable, 1, {})), select(2, pcall(setmetatable, {}, 1)),
      getmetatable(t), getmetatable(setmetatable(setmetatable({}, {}), nil))
  end
  lu.assertEquals({ h.go(errors) }, { errors() })
end

function TestGoroutine.test_states_and_handles_are_freed()
  -- Handles, and channels with values in them, that are dropped.
  for _ = 1, 200 do
    local ch = gs.chan(10)
    ch:send({ ch2 = gs.chan(1), text = ("x"):rep(100) })
    ch:send(ch)
    gs.go(function() return ch end)
  end
  collectgarbage()
  collectgarbage()
end

h.main()
