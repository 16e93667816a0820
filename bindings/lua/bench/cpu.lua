-- cpu.lua WHAT N: primes below N, in 64 parts; prints the seconds.
local what, n = arg[1], tonumber(arg[2])

local function primes(from, to)
  local count = 0
  for i = math.max(from, 2), to - 1 do
    local prime = true
    for d = 2, math.floor(math.sqrt(i)) do
      if i % d == 0 then prime = false break end
    end
    if prime then count = count + 1 end
  end
  return count
end

local function now()
  local f <close> = assert(io.open("/proc/uptime"))
  return f:read("n")
end
local before, count, parts = now(), 0, {}
if what == "goroutines" then
  local gosched = require "gosched"
  for i = 1, 64 do parts[i] = gosched.go(primes, n * (i - 1) // 64, n * i // 64) end
  for i = 1, 64 do count = count + select(2, assert(parts[i]:join())) end
else
  for i = 1, 64 do count = count + primes(n * (i - 1) // 64, n * i // 64) end
end
assert(n ~= 1000000 or count == 78498)
print(now() - before)
