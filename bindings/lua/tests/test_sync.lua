local h = require "helpers"
local lu, gs = h.lu, h.gs

TestMutex = {}

function TestMutex.test_only_one_has_it()
  local m, path, wg = gs.mutex(), h.file("0"), gs.waitgroup()
  for _ = 1, 8 do
    wg:go(function()
      for _ = 1, 25 do
        local held <close> = m:hold()
        local f = assert(io.open(path))
        local n = f:read("n")
        f:close()
        gs.yield()
        f = assert(io.open(path, "w"))
        f:write(n + 1)
        f:close()
      end
    end)
  end
  wg:wait()
  lu.assertEquals(io.open(path):read("n"), 200)
end

function TestMutex.test_lock_unlock()
  local m = gs.mutex()
  lu.assertTrue(m:lock())
  lu.assertFalse(m:trylock())
  lu.assertEquals({ m:lock(0) }, { nil, "timeout" })
  lu.assertEquals({ m:lock(0.002) }, { nil, "timeout" })
  lu.assertEquals({ m:hold(0.002) }, { nil, "timeout" })
  -- Any goroutine may unlock it.
  h.go(function() m:unlock() end)
  lu.assertTrue(m:trylock())
  m:unlock()
  h.fails("unlock of a mutex that isn't locked", m.unlock, m)
  h.fails("gosched.mutex expected", m.lock, gs.chan())
end

function TestMutex.test_hold_is_given_back_by_errors()
  local m = gs.mutex()
  local ok = pcall(function()
    local held <close> = m:hold()
    lu.assertFalse(m:trylock())
    error("x")
  end)
  lu.assertFalse(ok)
  lu.assertTrue(m:trylock())
  m:unlock()
  h.fails("gosched.hold) that has no gosched.clone", function()
    local held <close> = m:hold()
    gs.go(function() return held end)
  end)
  lu.assertTrue(m:trylock())
end

-- A cancel ends a loop between two instructions, but not between the call of hold and the beginning of the variable.
function TestMutex.test_hold_is_given_back_by_a_cancelled_loop()
  for _ = 1, 30 do
    local m, started = gs.mutex(), gs.chan()
    local g = gs.go(function()
      started:send(true)
      while true do
        local held <close> = m:hold()
      end
    end)
    started:recv()
    g:cancel()
    local ok, err = g:join(h.LONG)
    lu.assertEquals({ ok, err }, { false, "cancelled" })
    lu.assertTrue(m:trylock())
  end
end

TestWaitGroup = {}

function TestWaitGroup.test_counts()
  local wg, ch = gs.waitgroup(), gs.chan()
  lu.assertTrue(wg:wait())
  wg:add(2)
  lu.assertEquals({ wg:wait(0) }, { nil, "timeout" })
  lu.assertEquals({ wg:wait(0.002) }, { nil, "timeout" })
  gs.go(function() ch:recv() wg:done() wg:done() end)
  ch:send(1)
  lu.assertTrue(wg:wait())
  h.fails("negative", wg.done, wg)
  h.fails("negative", wg.add, wg, -5)
  wg:add()
  wg:done()
end

function TestWaitGroup.test_go_counts_down_also_after_an_error()
  local wg = gs.waitgroup()
  local g = wg:go(function() error("x") end)
  local k = wg:go({ name = "named" }, function(a) return a end, 7)
  lu.assertTrue(wg:wait(h.LONG))
  lu.assertFalse((g:join()))
  lu.assertEquals({ k:join() }, { true, 7 })
  -- Nothing is counted when nothing is started.
  h.fails("coroutine", wg.go, wg, print, coroutine.create(print))
  lu.assertTrue(wg:wait(0.001))
end

h.main()
