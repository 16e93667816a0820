-- Depth, memory, many goroutines.
local h = require "helpers"
local lu, gs = h.lu, h.gs

TestDepth = {}

-- Each as deep as Lua allows (LUAI_MAXCCALLS, 200 nested calls of C functions), and one further: an error, no crash.
function TestDepth.test_functions_in_c()
  local ways = {
    gsub = function(again) return (("x"):gsub("x", function() again() end)) end,
    sort = function(again) table.sort({ 1, 2 }, function() again() return false end) end,
    pcall = function(again) assert(pcall(again)) end,
    tostring = function(again) tostring(setmetatable({}, { __tostring = function() again() return "" end })) end,
    format = function(again) ("%s %99.99f"):format(setmetatable({}, { __tostring = function() again() return "" end }), 1) end,
    concat = function(again) return setmetatable({}, { __concat = function() again() return "" end }) .. ("y"):rep(5000) end,
    load = function(again) assert(load(function() again() end)) end,
    wrap = function(again) coroutine.wrap(again)() end,
    close = function(again) do local x <close> = setmetatable({}, { __close = again }) end end,
    require = function(again) package.preload.deep = function() package.loaded.deep = nil again() end require "deep" package.loaded.deep = nil end,
  }
  for name, way in pairs(ways) do
    local depth, err = h.go(function()
      local depth = 0
      local function again()
        depth = depth + 1
        if depth < 100000 then way(again) end
      end
      local ok, err = pcall(again)
      return depth, tostring(err)
    end)
    lu.assertTrue(depth >= 150, name .. " " .. depth)
    lu.assertNotNil(err:find("overflow"), name .. " " .. err)
  end
end

function TestDepth.test_in_lua_the_parser_and_patterns()
  h.go(function()
    local function down(n) return n == 0 and 0 or 1 + down(n - 1) end
    assert(down(150000) == 150000)
    assert(not pcall(function() local function f() return 1 + f() end f() end))
    assert(load("return " .. ("("):rep(180) .. "1" .. (")"):rep(180))() == 1)
    local f, err = load("return " .. ("("):rep(10000) .. "1" .. (")"):rep(10000))
    assert(not f and err:find("overflow"))
    assert(load("return " .. ("{"):rep(180) .. ("}"):rep(180)))
    assert(load(("do "):rep(180) .. ("end "):rep(180)))
    assert(not load(("a="):rep(1) .. ("-"):rep(100000) .. "1"))
    local ok, perr = pcall(string.find, ("a"):rep(300000), ("a?"):rep(250) .. "b")
    assert(not ok and perr:find("too complex"), perr)
    assert(("x"):rep(1000000):find("^(x-)$"))
    assert(#table.concat({ ("y"):rep(1000000), ("z"):rep(1000000) }) == 2000000)
  end)
end

function TestDepth.test_small_stacks_can_be_asked_for()
  -- Lua's own limit comes before the end of the smallest stack.
  local function nest() return (string.gsub("a", "a", nest)) end
  local fine, overflow = gs.go({ stack = 1 }, nest):join()
  lu.assertFalse(fine)
  lu.assertStrContains(tostring(overflow), "C stack overflow")
  local ok, n = gs.go({ stack = 64 * 1024 }, function() local t = {} for i = 1, 100 do t[i] = i end return #t end):join()
  lu.assertEquals({ ok, n }, { true, 100 })
end

function TestDepth.test_clones_within_clones()
  -- In a process of its own: a stack that is too small ends the whole program.
  local r = h.lua([[
local gs = require "gosched"
local function nested(levels)
  local gs = require "gosched"
  local C = {}
  gs.clone(C, function(o) return { o.next } end, function(v) return { next = v[1] } end)
  local o
  for _ = 1, levels do o = setmetatable({ next = o }, C) end
  local ch = gs.chan(1)
  local ok, err = pcall(ch.send, ch, o)
  if not ok then return tostring(err) end
  local n, back = 0, ch:recv()
  while back do n = n + 1 back = back.next end
  return n
end
for _, levels in ipairs { 1, 50, 150, 180, 300, 1000 } do print(select(2, gs.go({ stack = 1 }, nested, levels):join())) end
]])
  lu.assertEquals({ r.code, r.err }, { 0, "" })
  lu.assertStrMatches(r.out, "1\n50\n150\n180\n[^\n]*overflow[^\n]*\n[^\n]*overflow[^\n]*\n")
end

-- A channel in a channel in a channel, and a result in a result: the last reference to the outermost frees all of them.
function TestDepth.test_chains_of_channels_and_of_handles()
  -- In a process of its own: a stack that is too small ends the whole program.
  local r = h.lua([[
local gs = require "gosched"
local function chain(n)
  local gs = require "gosched"
  local ch = gs.chan(1)
  for i = 1, n do
    local next = gs.chan(1)
    next:send(i % 2 == 0 and ch or { ch })
    ch = next
  end
  collectgarbage()
  ch = nil
  collectgarbage()
  return "freed"
end
print(chain(300000))
print(gs.go(chain, 300000):join())
local g = gs.go(type, 1)
for _ = 1, 20000 do
  local next = gs.go(function(g) g:join() return g end, g)
  next:join()
  g = next
end
collectgarbage()
g = nil
collectgarbage()
print "all"]])
  lu.assertEquals({ r.code, r.out, r.err }, { 0, "freed\ntrue\tfreed\nall\n", "" })
end

-- A program in a process of its own, which calls rss() twice: gives the KiB of memory that it had then.
local function two_sizes(text)
  local r = h.lua([[
local gs = require "gosched"
local function rss()
  collectgarbage()
  collectgarbage()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("VmRSS:%s*(%d+)")
    if kb then print(kb) end
  end
end
]] .. text, { timeout = 4 * h.LONG })
  lu.assertEquals({ r.code, r.err }, { 0, "" })
  local before, after = r.out:match("^(%d+)\n(%d+)\n$")
  print(("KiB of memory: %d, then %d"):format(before, after))
  return tonumber(before), tonumber(after)
end

-- They may differ by `most` KiB.
local function flat(text, most)
  local before, after = two_sizes(text)
  lu.assertTrue(after < before + most)
end

TestMemory = {}

function TestMemory.test_100000_goroutines_leave_it_flat()
  -- A leak of 164 bytes a goroutine would be found.
  flat([[
local ch, wg = gs.chan(100), gs.waitgroup()
local function work(i, ch)
  local t = { name = "goroutine " .. i, list = {} }
  for k = 1, 20 do t.list[k] = { k } end
  if i % 3 == 0 then ch:send(t) end
  if i % 100 == 0 then pcall(error, t) end
  return t
end
local function many(n)
  for i = 1, n do
    wg:go(work, i, ch)
    while ch:recv(0) do end
    if i % 200 == 0 then wg:wait() end
  end
end
many(20000) rss() many(100000) rss()]], 16 * 1024)
end

function TestMemory.test_errors_cancels_and_dropped_channels_leave_it_flat()
  flat([[
local function fails(i)
  local ch = gs.chan(4)
  ch:send { i, ("x"):rep(1000), ch2 = gs.chan() }
  if i % 2 == 0 then error({ "err", i }) end
  gs.chan():recv()
end
local function many(n)
  for i = 1, n do
    local g = gs.go(fails, i)
    if i % 2 == 1 then g:cancel() end
    assert(not g:join())
  end
end
many(2000) rss() many(8000) rss()]], 8 * 1024)
end

-- Lua collects only when its heap has doubled: here after 100,000 handles, whose goroutines and channels take 100 MiB.
function TestMemory.test_handles_count_with_what_they_hold_outside_of_lua()
  flat([[
local live = {}
for i = 1, 200000 do live[i] = { i } end
local function peak()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("VmHWM:%s*(%d+)")
    if kb then print(kb) end
  end
end
collectgarbage() peak()
for i = 1, 100000 do gs.go(type, i):join() gs.chan(8) end
peak()]], 64 * 1024)
end

-- One goroutine waits until errors are to be printed, for all goroutines that have failed.
function TestMemory.test_failed_goroutines_that_were_not_joined_are_no_goroutines()
  local r = h.lua([[
local gs = require "gosched"
local wg = gs.waitgroup()
for i = 1, 1000 do wg:go(error, "nothing") end
wg:wait()
repeat gs.sleep(0.001) until select(2, gs.dump():gsub("goroutine %d+ %[", "")) < 20
print(true)
gs.sleep(1.5)]], { timeout = 4 * h.LONG })
  lu.assertEquals({ r.code, r.out }, { 0, "true\n" })
  lu.assertEquals(select(2, r.err:gsub(" failed: ", "")), 1000)
end

function TestMemory.test_a_large_heap_is_given_back()
  flat([[
local function large() local t = {} for i = 1, 300000 do t[i] = { i } end end
for _ = 1, 5 do gs.go(large):join() end rss() for _ = 1, 20 do gs.go(large):join() end rss()]], 200 * 1024) -- 20 heaps would take 400 MiB
end

-- The states of many at once move between threads, and most are closed at the end of each round.
function TestMemory.test_rounds_of_many_goroutines_leave_it_flat()
  flat([[
local function work(ready, go)
  local t = {}
  for i = 1, math.random(1500) do t[i] = { i } end
  ready:send(true)
  go:recv()
  return #t
end
local function rounds(n)
  for _ = 1, n do
    local ready, go, all = gs.chan(), gs.chan(), {}
    for i = 1, 1000 do all[i] = gs.go(work, ready, go) end
    for i = 1, 1000 do ready:recv() end
    go:close()
    for i = 1, 1000 do assert(all[i]:join()) end
  end
end
rounds(3) rss() rounds(30) rss()]], 32 * 1024)
end

function TestMemory.test_most_of_a_peak_is_given_back()
  local peak, after = two_sizes([[
local ready, go, all = gs.chan(), gs.chan(), {}
for i = 1, 3000 do
  all[i] = gs.go(function()
    local t = {}
    for i = 1, 1000 do t[i] = { i } end
    ready:send(true)
    go:recv()
  end)
end
for _ = 1, 3000 do ready:recv() end
rss()
go:close()
for i = 1, 3000 do assert(all[i]:join()) end
all = nil
rss()]])
  lu.assertTrue(after < peak / 4)
end

-- Strings, tables and userdata that grow and shrink keep what is in them, whatever their sizes are.
function TestMemory.test_blocks_of_all_sizes()
  local function work(seed)
    math.randomseed(seed)
    local sizes = { 0, 1, 15, 16, 17, 100, 488, 489, 500, 1000, 1001, 15000, 16000, 17000, 62000, 63000, 64000, 65000, 66000,
      130000, 1000000, 2000000, 2031000, 2032000, 2033000, 2100000, 5000000 }
    local strings, tables = {}, {}
    for round = 1, 400 do
      local i = math.random(60)
      if strings[i] then
        local s, byte, n = table.unpack(strings[i])
        assert(#s == n and (n == 0 or (s:byte(1) == byte and s:byte(n) == byte and s:byte(n // 2 + 1) == byte)))
      end
      local n = sizes[math.random(round % 4 == 0 and #sizes or 16)] + math.random(0, 24)
      local byte = math.random(0, 255)
      strings[i] = { string.char(byte):rep(n), byte, n }
      local k = math.random(10)
      local t = tables[k]
      if t then
        for j = 1, t.n do assert(t[j] == t.first + j and t["k" .. j] == -j) end
      end
      t = { n = 1 << math.random(0, round % 8 == 0 and 14 or 9), first = round }
      for j = 1, t.n do t[j] = t.first + j t["k" .. j] = -j end
      tables[k] = t
    end
    local many = {} -- of one size, given back in another order
    for i = 1, 20000 do many[i] = { i } end
    for i = 1, 20000 do
      local k = math.random(20000)
      many[i], many[k] = many[k], many[i]
    end
    for i = 1, 20000, 2 do many[i] = nil end
    collectgarbage()
    local sum = 0
    for i = 2, 20000, 2 do sum = sum + many[i][1] end
    local seen = {}
    for i = 2, 20000, 2 do assert(not seen[many[i][1]]) seen[many[i][1]] = true end
    return "as it was"
  end
  local all = {}
  for i = 1, 6 do all[i] = gs.go(work, i) end
  for i = 1, 6 do
    local ok, said, where = all[i]:join()
    lu.assertEquals(said, "as it was", where)
    lu.assertTrue(ok)
  end
end

-- A goroutine for which there is not enough memory gets an error, and others go on.
function TestMemory.test_the_end_of_memory_is_an_error()
  local path = h.file([[
local gs = require "gosched"
local function too_much(way)
  local t, n = {}, 0
  local ok, err = pcall(function()
    while true do
      n = n + 1
      t[n] = way == 1 and { n } or (way == 2 and ("x"):rep(20000 + n) or ("x"):rep(300000 + n))
    end
  end)
  t = nil
  collectgarbage()
  return tostring(err), #("y"):rep(1000000)
end
for way = 1, 3 do print(gs.go(too_much, way):join()) end
local g = gs.go(function() local t = {} while true do t[#t + 1] = { t } end end)
print(g:join())
print(gs.go(function() local t = {} for i = 1, 1000 do t[i] = { i } end return #t end):join())]])
  local r = assert(gs.exec({ "sh", "-c", "ulimit -v 1000000; exec lua5.4 " .. path }, { timeout = 4 * h.LONG }))
  lu.assertEquals(r.err, "")
  local lines = {}
  for line in r.out:gmatch("[^\n]+") do lines[#lines + 1] = line end
  for way = 1, 3 do lu.assertStrMatches(lines[way], "true\t.*not enough memory\t1000000") end
  lu.assertStrMatches(lines[4], "false\tnot enough memory\t.*")
  lu.assertEquals({ lines[#lines], r.code }, { "true\t1000", 0 })
end

function TestMemory.test_many_at_once()
  local n = tonumber(os.getenv("MANY")) or 2000
  local ch, wg = gs.chan(), gs.waitgroup()
  for i = 1, n do wg:go(function() ch:recv() end) end
  gs.sleep(0.05)
  lu.assertTrue(gs.count() > n)
  for i = 1, n do ch:send(i) end
  lu.assertTrue(wg:wait(h.LONG))
end

h.main()
