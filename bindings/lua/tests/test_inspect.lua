local h = require "helpers"
local lu, gs = h.lu, h.gs

TestInspect = {}

local function read(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read("a")
end

local function make_events()
  local all = gs.waitgroup()
  for i = 1, 20 do
    all:go(function() gs.sleep(i / 10000) gs.yield() end)
  end
  all:wait()
end

local function has_trace(path)
  local text = read(path)
  lu.assertStrMatches(text:sub(1, 11), "go 1%.%d%d tra")
  lu.assertTrue(#text > 100)
end

function TestInspect.test_a_trace_ends_by_stop()
  local path = h.file("old")
  local trace = assert(gs.trace(path))
  make_events()
  lu.assertTrue(trace:stop())
  has_trace(path)
  local ok, err, number = trace:stop()
  lu.assertEquals({ ok, err, number }, { nil, "Invalid argument", 22 })
end

function TestInspect.test_a_second_trace_leaves_the_file_of_the_first_alone()
  local path = h.file("old")
  local trace = assert(gs.trace(path))
  make_events()
  local second, err = gs.trace(path)
  lu.assertNil(second)
  lu.assertStrContains(err, "busy")
  lu.assertTrue(trace:stop())
  has_trace(path)
end

function TestInspect.test_a_trace_ends_with_its_variable()
  local path = h.file("old")
  do
    local trace <close> = assert(gs.trace(path))
    make_events()
  end
  has_trace(path)
  assert(gs.trace(path)):stop()
end

function TestInspect.test_a_trace_ends_with_the_goroutine_that_has_dropped_it()
  local path = h.file("old")
  h.go(function(path)
    assert(require "gosched".trace(path))
  end, path)
  has_trace(path)
  assert(gs.trace(path)):stop()
end

function TestInspect.test_a_trace_has_the_frames_of_lua()
  local path = h.file("old")
  local function waits_in_lua() gs.sleep(0.001) end
  do
    local trace <close> = assert(gs.trace(path))
    gs.go(function() waits_in_lua() end):join()
    coroutine.wrap(function() waits_in_lua() end)()
  end
  local text = read(path)
  for _, part in ipairs { "waits_in_lua", "sleep", "test_inspect.lua", "[C]", "function <test_inspect.lua:" } do
    lu.assertStrContains(text, part)
  end
end

function TestInspect.test_there_is_one_trace()
  local path = h.file("old")
  local trace <close> = assert(gs.trace(path))
  local ok, err, number = gs.trace("/dev/null")
  lu.assertEquals({ ok, err, number }, { nil, "/dev/null: Device or resource busy", 16 })
end

function TestInspect.test_a_trace_that_cant_be_written()
  local ok, err, number = gs.trace("/there/is/nothing")
  lu.assertEquals({ ok, err, number }, { nil, "/there/is/nothing: No such file or directory", 2 })
  local trace = assert(gs.trace("/dev/full"))
  make_events()
  ok, err, number = trace:stop()
  lu.assertEquals({ ok, err, number }, { nil, "No space left on device", 28 })
  h.fails("string expected", gs.trace)
end

function TestInspect.test_the_flight_recorder_writes_as_often_as_it_is_asked()
  local one, two = h.file("old"), h.file("old")
  local flight <close> = assert(gs.flight(10))
  make_events()
  lu.assertTrue(flight:write(one))
  make_events()
  lu.assertTrue(flight:write(two))
  has_trace(one)
  has_trace(two)
  local ok, err, number = flight:write("/there/is/nothing")
  lu.assertEquals({ ok, err, number }, { nil, "/there/is/nothing: No such file or directory", 2 })
  ok, err, number = gs.flight(1)
  lu.assertEquals({ ok, err, number }, { nil, "Device or resource busy", 16 })
  lu.assertTrue(flight:stop())
  ok, err, number = flight:write(one)
  lu.assertEquals({ ok, err, number }, { nil, "Invalid argument", 22 })
  lu.assertNil(flight:stop())
  lu.assertNil(gs.flight(0))
  h.fails("number expected", gs.flight)
end

function TestInspect.test_a_dump_has_all_goroutines()
  local never, all = gs.chan(), gs.waitgroup()
  for _ = 1, 300 do
    all:go(function() never:recv() end)
  end
  local function waiting()
    return select(2, gs.dump():gsub("goroutine %d+ %[chan receive", ""))
  end
  while waiting() < 300 do gs.sleep(0.001) end
  never:close()
  all:wait()
  lu.assertEquals(waiting(), 0)
end

function TestInspect.test_a_dump_has_the_frames_of_lua()
  local never = gs.chan()
  local g = gs.go(function()
    local function waits_in_lua() never:recv() end
    waits_in_lua()
  end)
  while not gs.dump():find("waits_in_lua()", 1, true) do gs.sleep(0.001) end
  local text = gs.dump()
  never:close()
  g:join()
  local at = debug.getinfo(1, "S").linedefined
  lu.assertStrContains(text, ("waits_in_lua()\n\ttest_inspect.lua:%d\n"):format(at + 3))
  lu.assertStrContains(text, "dump()\n\t[C]") -- of the main program
end

function TestInspect.test_a_search_for_leaks()
  lu.assertIsString(gs.leaks())
end

function TestInspect.test_the_metrics_are_open_metrics_text()
  local text = gs.metrics()
  lu.assertStrContains(text, "\ngo_sched_gomaxprocs_threads ")
  lu.assertEquals(text:sub(-6), "# EOF\n")
end

h.main()
