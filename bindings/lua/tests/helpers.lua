-- What the tests share. Each file of tests is a program: lua5.4 test_x.lua [options of luaunit].
local helpers = { lu = require "luaunit", gs = require "gosched" }
local lu, gs = helpers.lu, helpers.gs

-- Seconds after which what should have happened long ago counts as a hang.
helpers.LONG = 60

-- Runs f(...) in a goroutine; its error is the test's.
function helpers.go(f, ...)
  local g = gs.go(f, ...)
  local results = table.pack(g:join(helpers.LONG))
  if not results[1] then
    error(tostring(results[3] or results[2]), 0)
  end
  return table.unpack(results, 2, results.n)
end

-- f(...) raises an error whose text has `text` in it.
function helpers.fails(text, f, ...)
  local ok, err = pcall(f, ...)
  lu.assertFalse(ok, "no error; wanted: " .. text)
  lu.assertStrContains(tostring(err), text)
end

-- Writes a file and gives its path, which is removed in the end.
local made = {}
function helpers.file(text, suffix)
  local path = os.tmpname()
  made[#made + 1] = path
  if suffix then
    path = path .. suffix
    made[#made + 1] = path
  end
  local f = assert(io.open(path, "w"))
  f:write(text)
  f:close()
  return path
end

-- f() while `require` also finds modules of these texts by these names, here and in goroutines that are started meanwhile.
function helpers.with_modules(texts, f)
  local old = package.path
  for name, text in pairs(texts) do
    local path = helpers.file(text, ".lua")
    package.path = package.path .. ";" .. path .. "?" -- found by its name only
    local real = path .. name
    assert(os.rename(path, real))
    made[#made + 1] = real
  end
  local ok, err = xpcall(f, debug.traceback)
  package.path = old
  for name in pairs(texts) do package.loaded[name] = nil end
  if not ok then error(err, 0) end
end

-- Runs Lua on a program text; gives what exec gives.
function helpers.lua(text, options)
  return assert(gs.exec({ "lua5.4", helpers.file(text) }, options or { timeout = helpers.LONG }))
end

function helpers.main()
  local code = lu.LuaUnit.run()
  for _, path in ipairs(made) do os.remove(path) end
  os.exit(code == 0, true)
end

return helpers
