-- lua5.4 stress.lua SEED ROUNDS: random operations of many goroutines at once. What each of them sends, and how often a
-- mutex was taken, is counted and must agree in the end.
local gs = require "gosched"
local seed, rounds = tonumber(arg[1]) or 1, tonumber(arg[2]) or 300
math.randomseed(seed)

local N = 12
local channels, mutex = {}, gs.mutex()
for i = 1, 4 do channels[i] = gs.chan(math.random(0, 3)) end
local counts = gs.chan(N)

local function random_value(depth)
  local k = math.random(6)
  if k == 1 then return math.random(1e6) end
  if k == 2 then return ("s"):rep(math.random(0, 60)) end
  if k == 3 then return math.random(2) == 1 end
  if k == 4 then return gs.chan(1) end
  if k == 5 or depth > 3 then return function() return k end end
  local t = {}
  for i = 1, math.random(5) do t[i] = random_value(depth + 1) end
  t.self = t
  return t
end

local function worker(id, seed)
  math.randomseed(seed)
  local sent, received, children = 0, 0, {}
  for _ = 1, rounds do
    local ch, k = channels[math.random(#channels)], math.random(11)
    if k <= 3 then
      if ch:send({ from = id, value = random_value(0) }, math.random() / 500) then sent = sent + 1 end
    elseif k <= 6 then
      local v = ch:recv(math.random() / 500)
      if v then assert(v.from) received = received + 1 end
    elseif k == 7 then
      local i, v = gs.select { ch, { channels[math.random(#channels)], { from = id } }, timeout = math.random() / 500 }
      if i == 1 then assert(v.from) received = received + 1 elseif i == 2 then sent = sent + 1 end
    elseif k == 8 then
      local held <close> = mutex:hold()
      if math.random(4) == 1 then gs.yield() end
    elseif k == 9 then
      children[#children + 1] = gs.go(function(what)
        if what == 1 then error { what } end
        if what == 2 then gs.chan():recv() end
        if what == 3 then while true do end end
        return { what }
      end, math.random(8))
      if #children > 3 then
        local g = table.remove(children, 1)
        g:cancel()
        g:join()
      end
    elseif k == 10 then
      collectgarbage(math.random(10) == 1 and "collect" or "step")
    else
      gs.sleep(math.random() / 2000)
    end
  end
  for _, g in ipairs(children) do g:cancel() g:join() end
  counts:send { sent, received }
end

local all = gs.waitgroup()
local handles = {}
for id = 1, N do handles[id] = all:go({ name = "worker " .. id }, worker, id, seed * 1000 + id) end
all:wait()
for id = 1, N do
  local ok, _, traceback = handles[id]:join()
  assert(ok, traceback)
end
local sent, received = 0, 0
for _ = 1, N do
  local c = counts:recv()
  sent, received = sent + c[1], received + c[2]
end
for i = 1, #channels do
  while channels[i]:recv(0) do received = received + 1 end
end
assert(sent == received, sent .. " sent, " .. received .. " received")
assert(mutex:trylock())
