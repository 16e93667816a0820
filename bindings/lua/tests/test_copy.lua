local h = require "helpers"
local lu, gs = h.lu, h.gs

-- Out of a channel: here, and after a goroutine has had it.
local function through(v)
  local ch = gs.chan(1)
  ch:send(v)
  return ch:recv()
end
local function around(v)
  return h.go(function(x) return x end, v)
end

TestCopy = {}

function TestCopy.test_plain_values()
  local values = { true, false, 0, -1, math.maxinteger, math.mininteger, 0.5, -0.0, math.huge, -math.huge, "", "a",
    ("x"):rep(14), ("x"):rep(15), ("x"):rep(100000), "a\0b", "\255\254" }
  for _, v in ipairs(values) do
    for _, f in ipairs { through, around } do
      local r = f(v)
      lu.assertTrue(rawequal(r, v))
      lu.assertEquals(math.type(r), math.type(v))
    end
  end
  local nan = through(0 / 0)
  lu.assertTrue(nan ~= nan)
end

function TestCopy.test_tables()
  local t = { 1, 2, 3, nil, 5, x = { y = { z = "deep" } }, [2.5] = "float", [true] = false, [-1] = "negative" }
  lu.assertEquals(through(t), t)
  lu.assertEquals(around(t), t)
  lu.assertEquals(around({}), {})
end

function TestCopy.test_cycles_and_shared_references()
  local shared = { "s" }
  local t = { shared, shared, list = { shared } }
  t.self = t
  t[t] = "key"
  shared.up = t
  for _, f in ipairs { through, around } do
    local r = f(t)
    lu.assertTrue(r.self == r and r[r] == "key" and r[1] == r[2] and r[1] == r.list[1] and r[1].up == r)
    lu.assertFalse(r == t)
  end
  -- Also between arguments.
  lu.assertTrue(h.go(function(a, b) return a == b and a.self == b end, t, t))
end

function TestCopy.test_deep_and_wide()
  local head = {}
  local at = head
  for i = 1, 200000 do at.next = { i } at = at.next end
  local n, r = 0, through(head)
  while r.next do r = r.next n = n + 1 end
  lu.assertEquals(n, 200000)
  local wide = {}
  for i = 1, 10000 do wide[i] = { i, "v" .. i } end
  lu.assertEquals(around(wide), wide)
end

function TestCopy.test_metatables()
  local Point = {}
  Point.__index = Point
  function Point.__add(a, b) return setmetatable({ x = a.x + b.x }, Point) end
  function Point:double() return self + self end
  local p = setmetatable({ x = 2 }, Point)
  lu.assertEquals(h.go(function(a, b) return getmetatable(a) == getmetatable(b) and (a:double() + b).x end, p, p), 6)
  -- Finalizers too.
  h.go(function(t) t = nil collectgarbage() end, setmetatable({}, { __gc = function() end }))
  lu.assertEquals(h.go(function(t) return t.anything end, setmetatable({}, { __index = function(_, k) return k .. "!" end })), "anything!")
end

function TestCopy.test_functions()
  local function add(a, b) return a + b end
  lu.assertEquals(through(add)(2, 3), 5)
  local count = 10
  local function counter() count = count + 1 return count end
  local copy = through(counter)
  lu.assertEquals({ copy(), copy(), counter() }, { 11, 12, 11 })
  -- Recursion, and each other.
  local function fact(n) return n <= 1 and 1 or n * fact(n - 1) end
  lu.assertEquals(h.go(fact, 10), 3628800)
  local even, odd
  function even(n) return n == 0 or odd(n - 1) end
  function odd(n) return n ~= 0 and even(n - 1) end
  lu.assertTrue(h.go(function() return even(100) and odd(7) end))
end

function TestCopy.test_functions_share_upvalues_as_before()
  local n = 0
  local pair = { up = function() n = n + 1 end, get = function() return n end }
  local r = through(pair)
  r.up() r.up()
  lu.assertEquals({ r.get(), n }, { 2, 0 })
end

function TestCopy.test_env()
  local f = load("x = (x or 0) + 1 return x, _ENV")
  lu.assertEquals((h.go(function() return f() == 1 and f() == 2 and select(2, f()) == _G end)), true)
  lu.assertNil(x)
  -- An environment of its own is copied.
  local own = load("y = (y or 0) + 1 return y", "own", "t", { y = 5 })
  lu.assertEquals(h.go(own), 6)
end

function TestCopy.test_known_functions_and_modules()
  local insert, format, out, lib = table.insert, string.format, io.stdout, string
  local helpers_module = h
  lu.assertTrue(h.go(function()
    local t = {}
    insert(t, format("%d", 5))
    return t[1] == "5" and out == io.stdout and lib == string and insert == table.insert
      and helpers_module == require "helpers" and helpers_module.gs == require "gosched"
  end))
  lu.assertTrue(h.go(function(p) return p == print end, print))
  lu.assertTrue(through(math) == math)
end

function TestCopy.test_modules_loaded_later_and_paths()
  local dir = os.tmpname()
  os.remove(dir)
  assert(os.execute("mkdir " .. dir))
  local f = assert(io.open(dir .. "/latecomer.lua", "w"))
  f:write("local M = {} M.Class = {} M.Class.__index = M.Class function M.Class:hello() return 'hello ' .. self.name end\n" ..
    "function M.new(name) return setmetatable({name = name}, M.Class) end return M")
  f:close()
  local old = package.path
  package.path = dir .. "/?.lua;" .. package.path
  local late = require "latecomer"
  local obj = late.new("x")
  -- The module is the goroutine's own, and the class is that of its module.
  local ok, err = pcall(h.go, function(o)
    local m = require "latecomer"
    assert(m == late)
    assert(getmetatable(o) == m.Class)
    return o:hello()
  end, obj)
  package.path = old
  os.execute("rm -r " .. dir)
  package.loaded.latecomer = nil
  lu.assertTrue(ok, err)
  lu.assertEquals(err, "hello x")
end

function TestCopy.test_stripped_bytecode_and_luac()
  local f = load(string.dump(function(a) return a * 2 end, true))
  lu.assertEquals(h.go(f, 21), 42)
end

function TestCopy.test_what_cannot_be_copied()
  local ch = gs.chan(10)
  local co = coroutine.create(print)
  local file = io.tmpfile()
  h.fails("a coroutine can't be copied to another goroutine (value)", ch.send, ch, co)
  h.fails("(value.list[2].co)", ch.send, ch, { list = { 1, { co = co } } })
  h.fails("(value, as a key)", ch.send, ch, { [co] = 1 })
  h.fails("(value, in its metatable.x)", ch.send, ch, setmetatable({}, { x = co }))
  h.fails("a userdata (FILE*) that has no gosched.clone can't be copied to another goroutine (value.f)", ch.send, ch, { f = file })
  h.fails("a function in C that is in no module", ch.send, ch, coroutine.wrap(print))
  h.fails("(function, in upvalue 'co' of the function at ", gs.go, function() return co end)
  h.fails("(argument 2.x)", gs.go, print, 1, { x = co })
  local inner = function() return file end
  h.fails("in upvalue 'inner' of the function at", gs.go, function() return inner() end)
  h.fails("test_copy.lua:", function() ch:send(co) end) -- says where
  local deep = { co }
  for _ = 1, 50 do deep = { deep } end
  h.fails(" ...", ch.send, ch, deep)
  -- Nothing was sent, and all works as before.
  lu.assertEquals(#ch, 0)
  ch:send({ ok = true })
  lu.assertEquals(ch:recv(), { ok = true })
  file:close()
end

function TestCopy.test_clones_of_tables_and_userdata()
  local Vec = { __name = "Vec" }
  local opened = 0
  local function make(x) opened = opened + 1 return setmetatable({ x = x, secret = coroutine.create(print) }, Vec) end
  gs.clone(Vec, function(v) return { saved = v.x } end, function(s) return { loaded = s.saved } end)
  local v = make(5)
  local r = through({ v, v })
  lu.assertEquals(r[1], { loaded = 5 })
  lu.assertTrue(r[1] == r[2])
  -- Userdata, by their metatable.
  local path = h.file("line one\nline two\n")
  local FILE = getmetatable(io.stdout)
  gs.clone(FILE, function(f) return { at = f:seek(), path = path } end, function(s)
    local f = assert(io.open(s.path))
    f:seek("set", s.at)
    return f
  end)
  local f = assert(io.open(path))
  f:read()
  lu.assertEquals(h.go(function(x) local line = x:read() x:close() return line end, f), "line two")
  f:close()
  gs.clone(FILE)
  -- Errors in these functions come out, and nothing is lost.
  gs.clone(Vec, function() error("can't save") end, function() end)
  h.fails("can't save", through, v)
  gs.clone(Vec, function() return 1 end, function() error("can't load") end)
  h.fails("can't load", through, { 1, v })
  gs.clone(Vec, function() return coroutine.create(print) end, function() end)
  h.fails("what a clone function has given", through, v)
  h.fails("table expected", gs.clone, 1, print, print)
  h.fails("function expected", gs.clone, Vec, 1, print)
end

function TestCopy.test_random_values()
  math.randomseed(tonumber(os.getenv("SEED")) or 42)
  for _ = 1, 60 do
    local tables = {}
    for i = 1, math.random(30) do tables[i] = {} end
    local function pick()
      local k = math.random(7)
      if k == 1 then return math.random(1000) end
      if k == 2 then return math.random() end
      if k == 3 then return ("s"):rep(math.random(0, 40)) end
      if k == 4 then return math.random(2) == 1 end
      return tables[math.random(#tables)]
    end
    for _ = 1, #tables * 4 do tables[math.random(#tables)][pick()] = pick() end
    -- The same shape: walk both at once.
    local function same(a, b, seen)
      if type(a) ~= "table" then return rawequal(a, b) end
      if seen[a] then return seen[a] == b end
      seen[a] = b
      local n, m = 0, 0
      for k, v in pairs(a) do
        n = n + 1
        if type(k) ~= "table" and not same(v, b[k], seen) then return false end
      end
      for k in pairs(b) do m = m + 1 if type(k) == "table" and a[k] ~= nil then return false end end
      return n == m
    end
    lu.assertTrue(same(tables[1], through(tables[1]), {}))
    lu.assertTrue(same(tables[1], around(tables[1]), {}))
  end
end

h.main()
