-- Lua libraries that others wrote, in goroutines.
local h = require "helpers"
local lu, gs = h.lu, h.gs

-- f in n goroutines at once.
local function all_at_once(n, f)
  local all = {}
  for i = 1, n do all[i] = gs.go(f, i) end
  for i = 1, n do
    local ok, _, traceback = all[i]:join(h.LONG)
    lu.assertTrue(ok, traceback)
  end
end

TestLibs = {}

function TestLibs.test_cjson()
  local json = require "cjson"
  all_at_once(20, function(i)
    for k = 1, 50 do
      local t = json.decode(json.encode { i = i, list = { k, "text", json.null } })
      assert(t.i == i and t.list[1] == k and t.list[3] == json.null)
    end
    assert(not pcall(json.decode, "{"))
  end)
  local ch = gs.chan(1)
  ch:send { json.null } -- a light userdata
  lu.assertTrue(ch:recv()[1] == json.null)
  local encode = json.encode
  lu.assertEquals(h.go(function() return encode { 1 } end), "[1]")
end

function TestLibs.test_lpeg()
  all_at_once(20, function(i)
    local lpeg = require "lpeg"
    local P, R, S, C, Ct, V = lpeg.P, lpeg.R, lpeg.S, lpeg.C, lpeg.Ct, lpeg.V
    local ws = S " \t" ^ 0
    local expr = P { "sum",
      sum = Ct(V "product" * (C(S "+-") * ws * V "product") ^ 0),
      product = Ct(V "value" * (C(S "*/") * ws * V "value") ^ 0),
      value = (C(R "09" ^ 1) + P "(" * ws * V "sum" * P ")") * ws }
    assert(expr:match("1 + 2*(3 - " .. i .. ")"))
    -- Captures that run Lua, and wait, in the middle of a match; nested as deep as it goes.
    local function nest(n)
      return lpeg.Cmt(P "x", function(_, at) if n > 0 then require "gosched".yield() nest(n - 1):match("x") end return at end)
    end
    assert(nest(40):match("x") == 2)
    assert(lpeg.match(Ct(C(P(1)) ^ 0), ("y"):rep(5000))[5000] == "y")
  end)
  -- LPeg takes some 12 KiB of stack for each match within a match: as deep as Lua allows needs a larger stack.
  local ok, err = gs.go({ stack = 4 << 20 }, function()
    local lpeg = require "lpeg"
    local function nest(n)
      return lpeg.Cmt(lpeg.P "x", function(_, at) if n > 0 then nest(n - 1):match("x") end return at end)
    end
    nest(1000):match("x")
  end):join()
  lu.assertFalse(ok)
  lu.assertStrContains(err, "overflow")
end

function TestLibs.test_socket()
  local l = assert(gs.tcp.listen("127.0.0.1", 0))
  local _, port = l:address()
  gs.go(function()
    while true do
      local c = l:accept()
      if not c then return end
      gs.go(function(c) local s = c:read() c:write("echo " .. tostring(s) .. "\n") c:close() end, c)
    end
  end)
  -- They block their threads; others get the processors.
  all_at_once(30, function(i)
    local socket = require "socket"
    local c = assert(socket.connect("127.0.0.1", port))
    c:settimeout(50)
    assert(c:send(i .. "\n"))
    assert(c:receive() == "echo " .. i)
    socket.sleep(0.01)
    c:close()
    assert(socket.gettime() > 0)
  end)
  l:close()
end

function TestLibs.test_penlight()
  all_at_once(10, function(i)
    local List, pretty, stringx = require "pl.List", require "pl.pretty", require "pl.stringx"
    local l = List { 3, 1, 2 }:sort()
    assert(tostring(l) == "{1,2,3}")
    assert(stringx.strip("  x ") == "x")
    local t = { i = i, { "a" } }
    assert(require "pl.tablex".deepcompare(pretty.read(pretty.write(t)), t))
    assert(require "pl.template".substitute("$(x)!", { x = i }) == i .. "!")
  end)
  -- An object of a module's class arrives as an object of the receiver's class.
  local List = require "pl.List"
  lu.assertTrue(h.go(function(l) return require "pl.List":class_of(l) and l:append(4):len() == 4 end, List { 1, 2, 3 }))
end

function TestLibs.test_penlight_in_the_globals()
  for _ = 1, 3 do
    all_at_once(10, function()
      require "pl"
      assert(stringx.strip("  x ") == "x" and List { 1 }:len() == 1)
    end)
  end
  -- In a process of its own, as states stay strict.
  local r = h.lua([[
local gs = require "gosched"
for _ = 1, 3 do
  print(gs.go(function()
    require "pl.strict"
    return pcall(function() return undefined end), pcall(load "declared = 1")
  end):join())
end
]])
  lu.assertEquals({ r.out, r.err }, { ("true\tfalse\ttrue\n"):rep(3), "" })
end

function TestLibs.test_luaunit_in_a_goroutine()
  local ok, n = gs.go(function()
    local luaunit = require "luaunit"
    luaunit.assertEquals({ 1, { 2 } }, { 1, { 2 } })
    return select(2, pcall(luaunit.assertEquals, 1, 2)) ~= nil
  end):join()
  lu.assertTrue(ok and n)
end

h.main()
