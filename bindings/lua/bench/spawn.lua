-- spawn.lua WHAT N: starts N of them one after the other and waits for the end of each; prints the seconds.
local what, n = arg[1], tonumber(arg[2])
local work = function(x) return x + 1 end

local run = {
  goroutines = function()
    local gosched = require "gosched"
    local go = gosched.go
    -- A thousand at a time.
    local sum = 0
    for _ = 1, n / 1000 do
      local all = {}
      for i = 1, 1000 do all[i] = go(work, i) end
      for i = 1, 1000 do local ok, x = all[i]:join() sum = sum + x end
    end
    return sum
  end,
  coroutines = function()
    local scheduler = dofile((arg[0]:gsub("[^/]*$", "scheduler.lua")))
    local sum = 0
    scheduler.run(function()
      for _ = 1, n / 1000 do
        local all = {}
        for i = 1, 1000 do all[i] = scheduler.go(work, i) end
        for i = 1, 1000 do sum = sum + scheduler.join(all[i]) end
      end
    end)
    return sum
  end,
  cqueues = function()
    local cqueues = require "cqueues"
    local queue, sum = cqueues.new(), 0
    for _ = 1, n / 1000 do
      for i = 1, 1000 do queue:wrap(function() sum = sum + work(i) end) end
      assert(queue:loop())
    end
    return sum
  end,
}

run[what]() -- warm
local now = function()
  local f <close> = assert(io.open("/proc/uptime"))
  return f:read("n")
end

local before = now()
assert(run[what]() == n / 1000 * (1000 * 1001 / 2 + 1000))
print(now() - before)
