-- Other Luas get an error that says what is missing, whichever name is required first.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

-- Returns the names that users require: files of runtime/lua/tycho and its folders.
local function names()
  local list = {}
  for path in shell.run("cd runtime/lua && ls tycho/*.lua tycho/*/init.lua"):gmatch("[^\n]+") do
    list[#list + 1] = path:gsub("/init%.lua$", ""):gsub("%.lua$", ""):gsub("/", ".")
  end
  return list
end

describe("Lua", function()
  local function refused(setup, want)
    folder.with(function(path)
      folder.write(path .. "/x.lua", ([[
        %s
        for _, name in ipairs{ "%s" } do
          local ok, e = pcall(require, name)
          print(name, ok, e)
        end]]):format(setup, table.concat(names(), '", "')))
      local count = 0
      for line in shell.tycho(path .. "/x.lua"):gmatch("[^\n]+") do
        assert.is_truthy(line:find("\tfalse\tTycho needs LuaJIT 2.1 with its FFI, and this is "
          .. want, 1, true), line)
        count = count + 1
      end
      assert.equal(#names(), count)
    end)
  end

  it("without LuaJIT, an older one, and one without its FFI are refused by name", function()
    refused("jit = nil", "Lua 5.1: run the script with build/tycho or with luajit")
    refused("jit = { version_num = 20003, version = 'LuaJIT 2.0.3' }", "LuaJIT 2.0.3: ")
    refused("package.preload.ffi, package.loaded.ffi = nil", jit.version .. " without it: ")
  end)

  for _, version in ipairs{ "5.1", "5.2", "5.3", "5.4" } do
    it(version .. " is refused by name", function()
      local program = "lua" .. version
      if select(2, shell.run("command -v " .. program)) ~= 0 then
        pending("there is no " .. program)
        return
      end
      for _, name in ipairs(names()) do
        local output, status = shell.run(("LUA_INIT= LUA_PATH='runtime/lua/?.lua;\z
          runtime/lua/?/init.lua' %s -e 'require \"%s\"'"):format(program, name))
        assert.equal(1, status)
        assert.is_truthy(output:find("this is Lua " .. version .. ": run the script with", 1, true),
          output)
      end
    end)
  end
end)
