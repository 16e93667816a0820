-- A scheduler as programs in Lua have it: coroutines in one state, a queue, channels without a buffer.
local scheduler = {}
local queue, first, last = {}, 1, 0

local function ready(co)
  last = last + 1
  queue[last] = co
end

function scheduler.go(f, ...)
  local handle = { args = table.pack(...) }
  handle.co = coroutine.create(function()
    handle.result = f(table.unpack(handle.args, 1, handle.args.n))
    handle.done = true
    if handle.waiter then ready(handle.waiter) end
  end)
  ready(handle.co)
  return handle
end

function scheduler.join(handle)
  if not handle.done then
    handle.waiter = coroutine.running()
    coroutine.yield()
  end
  return handle.result
end

local Chan = {}
Chan.__index = Chan

function scheduler.chan() return setmetatable({ senders = {}, from = 1, to = 0 }, Chan) end

function Chan:send(v)
  if self.receiver then
    self.value = v
    ready(self.receiver)
    self.receiver = nil
    return
  end
  self.to = self.to + 1
  self.senders[self.to] = { coroutine.running(), v }
  coroutine.yield()
end

function Chan:recv()
  local sender = self.senders[self.from]
  if sender then
    self.senders[self.from] = nil
    self.from = self.from + 1
    ready(sender[1])
    return sender[2]
  end
  self.receiver = coroutine.running()
  coroutine.yield()
  return self.value
end

function scheduler.run(main)
  scheduler.go(main)
  while first <= last do
    local co = queue[first]
    queue[first] = nil
    first = first + 1
    assert(coroutine.resume(co))
  end
end

return scheduler
