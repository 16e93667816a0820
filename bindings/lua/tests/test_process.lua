-- Whole programs: how they end, Ctrl-C, deadlocks, the REPL, luac.
local h = require "helpers"
local lu, gs = h.lu, h.gs

local head = 'local gs = require "gosched"\n'

local function run(text)
  return h.lua(head .. text)
end

-- In a program: sends SIGINT to it as soon as goroutine 1 waits so.
local interrupt = [[
gs.go(function(why)
  local gs = require "gosched"
  repeat gs.sleep(0.005) until gs.dump():find("goroutine 1 [" .. why, 1, true)
  os.execute("kill -INT $PPID")
end, WHY)
]]

TestEnd = {}

function TestEnd.test_of_main_ends_the_program()
  local r = run [[
    for _ = 1, 50 do gs.go(function() gs.chan():recv() end) end
    gs.go(function() while true do end end)
    gs.go(function() gs.sleep(1e6) end)
    gs.go(function() io.popen("sleep 0.2"):read("a") end)
    gs.go(function() gs.tcp.listen("127.0.0.1", 0):accept() end)
    gs.sleep(0.01)
    print("end")]]
  lu.assertEquals(r, { code = 0, out = "end\n", err = "" })
end

function TestEnd.test_at_once()
  for _ = 1, 20 do
    lu.assertEquals(run 'gs.go(function() while true do gs.yield() end end)', { code = 0, out = "", err = "" })
  end
end

function TestEnd.test_os_exit()
  local parked = "gs.go(function() gs.chan():recv() end) gs.go(function() while true do end end) gs.sleep(0.001) "
  lu.assertEquals(run(parked .. "os.exit(3)").code, 3)
  lu.assertEquals(run(parked .. "os.exit(4, true)").code, 4)
  lu.assertEquals(run(parked .. "gs.go(function() io.write('x') os.exit(5) end) gs.sleep(60)"), { code = 5, out = "x", err = "" })
  lu.assertEquals(run(parked .. "gs.go(function() os.exit(6, true) end) gs.sleep(60)").code, 6)
end

function TestEnd.test_an_error_in_main()
  local r = run "gs.go(function() gs.chan():recv() end) error('main fails')"
  lu.assertEquals(r.code, 1)
  lu.assertStrContains(r.err, "main fails")
end

function TestEnd.test_finalizers_and_variables_at_the_end()
  local r = run [[
    local ch <close> = setmetatable({}, { __close = function() gs.sleep(0.001) print("closed") end })
    kept = setmetatable({}, { __gc = function() gs.yield() print(gs.go(function() return "in gc" end):join()) end })
    gs.go(function() gs.chan():recv() end)]]
  lu.assertEquals(r, { code = 0, out = "closed\ntrue\tin gc\n", err = "" })
end

function TestEnd.test_after_the_state_is_closed_and_opened_again()
  -- A program that closes its state by os.exit(..., true) in a chunk that requires gosched more than once.
  local r = run 'package.loaded.gosched = nil local again = require "gosched" print(again.go(function() return 1 end):join())'
  lu.assertEquals(r, { code = 0, out = "true\t1\n", err = "" })
end

TestErrors = {}

-- In a program: main waits until it is the only goroutine.
local until_alone = " repeat gs.sleep(0.001) until gs.count() == 1 "

function TestErrors.test_a_failure_that_is_never_joined_is_reported()
  local r = run("gs.go({name = 'worker'}, function() error('unseen') end)" .. until_alone)
  lu.assertEquals(r.code, 0)
  lu.assertStrMatches(r.err, "gosched: goroutine %d+ %(worker%) failed: [^\n]+: unseen\nstack traceback:\n.*")
  -- Also before the end, and by os.exit.
  local err = h.file("")
  local waits = head .. ("gs.go(function() error('unseen') end) repeat gs.sleep(0.01) local f <close> = io.open(%q) " ..
    "until f:read('a'):find('unseen') os.exit(7)"):format(err)
  lu.assertEquals(gs.exec({ "sh", "-c", "lua5.4 " .. h.file(waits) .. " 2>" .. err }, { timeout = h.LONG }).code, 7)
  r = run("gs.go(function() error('unseen') end)" .. until_alone .. "os.exit(0)")
  lu.assertStrContains(r.err, "unseen")
end

function TestErrors.test_what_is_joined_is_not()
  local r = run("local g = gs.go(function() error('seen') end)" .. until_alone .. "print(g:join())")
  lu.assertEquals({ r.code, r.err }, { 0, "" })
  lu.assertStrContains(r.out, "seen")
end

TestDeadlock = {}

function TestDeadlock.test_is_an_error_of_main()
  for _, wait in ipairs { "gs.chan():recv()", "gs.chan():send(1)", "gs.select{gs.chan()}", "gs.select{}",
    "local m = gs.mutex() m:lock() m:lock()", "local w = gs.waitgroup() w:add(1) w:wait()",
    "gs.go(function() gs.chan():recv() end):join()", "for _ in gs.chan() do end" } do
    local r = run(wait)
    lu.assertEquals({ wait, r.code }, { wait, 1 })
    lu.assertStrContains(r.err, "all goroutines are asleep - deadlock!")
    lu.assertStrContains(r.err, "stack traceback:")
  end
end

function TestDeadlock.test_is_noticed_after_main_has_begun_to_wait()
  for _, before in ipairs {
    "gs.go(function() gs.sleep(0.05) end)", -- the last goroutine that is awake ends
    "gs.after(0.05)", -- the last timer fires
    "local t = gs.every(60) gs.go(function(t) gs.sleep(0.05) t:close() end, t)",
  } do
    local r = run(before .. " gs.chan():recv()")
    lu.assertEquals({ before, r.code }, { before, 1 })
    lu.assertStrContains(r.err, "all goroutines are asleep - deadlock!")
  end
end

function TestDeadlock.test_says_who_waits_and_can_be_caught()
  local r = run [[
    local ch = gs.chan()
    gs.go({ name = "stuck" }, function() ch:recv() end)
    local ok, err = pcall(function() gs.chan():recv() end)
    print(ok, err)
    ch:send("on")
    print(gs.go(function() return "fine" end):join())]]
  lu.assertEquals({ r.code, r.err }, { 0, "" })
  lu.assertStrMatches(r.out, "false\t[^\n]*:4: all goroutines are asleep %- deadlock!\n.*\n")
  lu.assertStrContains(r.out, "{name: stuck}")
  lu.assertStrContains(r.out, "true\tfine\n")
end

function TestDeadlock.test_is_none_while_something_can_happen()
  local r = run [[
    local ch = gs.chan()
    gs.go(function() gs.sleep(0.15) ch:send("slept") end)
    print(ch:recv())
    gs.go(function() gs.after(0.15):recv() ch:send("timer") end)
    print(ch:recv())
    local after = gs.after(0.15)
    print(gs.select { gs.chan(), after })
    gs.go(function() local n = 0 for _ in gs.every(0.05) do n = n + 1 if n == 3 then break end end ch:send("ticks") end)
    print(ch:recv())
    gs.go(function() io.popen("sleep 0.15"):read("a") ch:send("popen") end)
    print(ch:recv())
    gs.go(function() local t = os.clock() while os.clock() - t < 0.1 do end ch:send("computed") end)
    print(ch:recv())]]
  lu.assertEquals({ r.code, r.err }, { 0, "" })
  lu.assertStrMatches(r.out, "slept\ntimer\n2\t[%d.]+\nticks\npopen\ncomputed\n")
end

TestInterrupt = {}

function TestInterrupt.test_ends_a_script_that_waits()
  for why, wait in pairs { ["chan receive"] = "gs.chan():recv()", sleep = "gs.sleep(1e6)", select = "gs.select{gs.chan(), timeout=1e6}",
    ["IO wait"] = "gs.tcp.listen('127.0.0.1', 0):accept()" } do
    local r = run("gs.go(function() gs.sleep(1e6) end)" .. interrupt:gsub("WHY", ("%q"):format(why)) .. wait)
    lu.assertEquals({ why, r.code }, { why, 1 })
    lu.assertStrContains(r.err, "interrupted!")
    lu.assertStrContains(r.err, "stack traceback:")
  end
end

function TestInterrupt.test_is_an_error_that_can_be_caught()
  local r = run(interrupt:gsub("WHY", "'sleep'") .. [[
    local ok, err = pcall(function() gs.sleep(1e6) end)
    print(ok, err:match("interrupted!"), gs.go(function() return "goes on" end):join())]])
  lu.assertEquals(r, { code = 0, out = "false\tinterrupted!\ttrue\tgoes on\n", err = "" })
end

function TestInterrupt.test_ends_a_loop()
  local r = run "gs.go(function() gs.sleep(0.01) os.execute('kill -INT $PPID') end) while true do end"
  lu.assertEquals(r.code, 1)
  lu.assertStrContains(r.err, "interrupted!")
end

TestRepl = {}

-- What `lua5.4 -i -lgosched` says to these lines.
local function repl(lines)
  local r = assert(gs.exec({ "lua5.4", "-i", "-lgosched" }, { stdin = table.concat(lines, "\n") .. "\n", timeout = h.LONG }))
  lu.assertEquals(r.code, 0)
  return r.out, r.err
end

function TestRepl.test_goroutines_beside_the_prompt()
  local out, err = repl {
    "ch = gosched.chan()",
    "g = gosched.go(function(ch) for i = 1, 3 do ch:send(i) end end, ch)",
    "ch:recv(), ch:recv(), ch:recv()",
    "g:join()",
    "gosched.go(function() error('boom') end):join()",
    "gosched.chan():recv()",
    "'after the deadlock'",
  }
  lu.assertStrContains(out, "1\t2\t3")
  lu.assertStrContains(out, "true")
  lu.assertStrContains(out, "boom")
  lu.assertStrContains(err, "deadlock!")
  lu.assertStrContains(out, "after the deadlock")
end

function TestRepl.test_interrupt_gives_the_prompt_back()
  local lines = { "gs = gosched" }
  for _ = 1, 3 do
    lines[#lines + 1] = interrupt:gsub("WHY", "'chan receive'"):gsub("\n", " ")
    lines[#lines + 1] = "gs.chan():recv()"
  end
  lines[#lines + 1] = "'still here'"
  local out, err = repl(lines)
  local _, n = err:gsub("interrupted!", "")
  lu.assertEquals(n, 3)
  lu.assertStrContains(out, "still here")
end

TestTools = {}

function TestTools.test_luac()
  local source = h.file(head .. "local up = {1, 2} print(gs.go(function(x) return x + #up end, 40):join())")
  local out = h.file("", ".luac")
  for _, strip in ipairs { "-l", "-s" } do
    lu.assertEquals(gs.exec({ "luac5.4", strip, "-o", out, source }).code, 0)
    lu.assertEquals(gs.exec({ "lua5.4", out }), { code = 0, out = "true\t42\n", err = "" })
  end
end

function TestTools.test_option_l_and_e()
  lu.assertEquals(gs.exec({ "lua5.4", "-lgosched", "-e", "print(gosched.go(function() return 1 end):join())" }).out, "true\t1\n")
end

function TestTools.test_warnings_are_on_only_for_the_goroutine_that_wants_them()
  local r = gs.exec({ "lua5.4", "-lgosched", "-e", [[
    for i = 1, 3 do
      gosched.go(function() warn("@on") warn("on ", i) end):join()
      gosched.go(function() warn("off ", i) end):join()
    end]] })
  lu.assertEquals(r.err, "Lua warning: on 1\nLua warning: on 2\nLua warning: on 3\n")
end

function TestTools.test_main_in_a_coroutine()
  local r = run [[
    local ch = gs.chan()
    local co = coroutine.wrap(function()
      gs.go(function() ch:send("x") end)
      coroutine.yield(ch:recv())
      pcall(function() gs.chan():recv() end)
      return "end"
    end)
    print(co(), co())]]
  lu.assertEquals(r, { code = 0, out = "x\tend\n", err = "" })
end

function TestTools.test_popen_from_everywhere()
  local r = run [[
    local wg, ok = gs.waitgroup(), gs.chan(100)
    for i = 1, 20 do
      wg:go(function() local p = io.popen("echo " .. i) assert(p:read("n") == i) assert(p:close()) ok:send(1) end)
      local p = io.popen("echo main") assert(p:read() == "main") assert(p:close())
    end
    wg:wait()
    print(#ok)]]
  lu.assertEquals(r, { code = 0, out = "20\n", err = "" })
end

function TestTools.test_reading_standard_input_holds_up_no_other_goroutine()
  local path = h.file(head .. [[
    local ch = gs.chan()
    gs.go(function() for _ = 1, 10 do gs.sleep(0.001) end ch:send("others ran") end)
    gs.go(function() ch:send(io.read()) end)
    print(ch:recv()) io.stdout:flush() print(ch:recv())]])
  local r = gs.exec({ "sh", "-c", "(sleep 0.3; echo typed) | lua5.4 " .. path }, { timeout = h.LONG })
  lu.assertEquals(r, { code = 0, out = "others ran\ntyped\n", err = "" })
end

h.main()
