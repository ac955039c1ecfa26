-- Calls that fail in the gates of native/base (gate.h), where `make torture` has been built.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

local FOLDER = "build/torture"
local LIBRARY = "$PWD/" .. FOLDER .. "/libtycho.so"
local RUN = "TYCHO_LIB=" .. LIBRARY .. " " .. FOLDER .. "/tycho "

describe("the doors of a release build", function()
  it("have no code that lets calls fail", function()
    local names, status = shell.run("nm build/libtycho.so build/tycho")
    if status ~= 0 then
      pending("there is no release build, or no nm")
      return
    end
    for _, name in ipairs{ "gate_fault", "gate_stream", "ty_torture", "__wrap_fopen" } do
      assert.is_nil(names:find(name, 1, true), name)
    end
  end)
end)

describe("what fails on request", function()
  local built = io.open(FOLDER .. "/tycho")
  if not built then
    it("any of it", function() pending("there is no " .. FOLDER .. ": make torture") end)
    return
  end
  built:close()

  it("is reported as what it is, and the next try gives the same bits", function()
    local output, status = shell.run(RUN .. "spec/torture/faults.lua " .. LIBRARY .. " 2")
    assert.equal(0, status, output)
  end)

  -- LuaJIT's functions in assembler write the message over a value of an outer function
  it("reaches pcall as its message, whatever made the text that there is no memory for", function()
    local text = [[local ffi = require "ffi"
      ffi.cdef "int64_t ty_torture(int gate, int64_t at, int lasting, int fault);"
      local C, text = ffi.load(arg[1]), ("abcdefgh"):rep(5)
      jit.off()
      jit.flush()
      collectgarbage("stop")
      local ways = {
        function(i) return text:sub(i, i + 20) end,
        function(i) return ("x" .. i):upper() end,
        function(i) return ("X" .. i):lower() end,
        function(i) return ("xy" .. i):reverse() end,
        function(i) return tostring(i * 1.7) end,
      }
      local function call(depth, ...)
        if depth == 0 then return pcall(...) end
        local ok, e = call(depth - 1, ...)
        return ok, e
      end
      local function try(way, depth, at)
        local kept = "kept"
        C.ty_torture(2, at, 0, 12)
        local ok, e = call(depth, ways[way], 3 + at)
        C.ty_torture(2, 0, 0, 0)
        assert(ok or e == "not enough memory", ("way %d: %s"):format(way, tostring(e)))
        assert(kept == "kept")
        return not ok
      end
      call(100, ways[1], 1)
      for way = 1, #ways do
        for depth = 0, 20, 4 do
          assert(try(way, depth, 2) or try(way, depth, 3))
        end
      end]]
    folder.with(function(path)
      folder.write(path .. "/texts.lua", text)
      local output, status = shell.run(("%s%s/texts.lua %s"):format(RUN, path, LIBRARY))
      assert.equal(0, status, output)
    end)
  end)

  -- names of ports are written to a buffer that stays
  it("does not spoil what is kept for later calls", function()
    local text = [[local ffi, ty = require "ffi", require "tycho"
      ffi.cdef "int64_t ty_torture(int gate, int64_t at, int lasting, int fault);"
      local C, list = ffi.load(arg[1]), {}
      for i = 1, 40 do list[i] = ty.sym.Variable("x" .. i) end
      local function outputs()
        return #ty.sym.amp_multicast{ num_outputs = 40, unpack(list) }:list_outputs()
      end
      C.ty_torture(0, tonumber(arg[2]), 0, 12)
      local _, e = pcall(outputs)
      C.ty_torture(0, 0, 0, 0)
      assert(e == 40 or e.code == "memory", tostring(e))
      assert(outputs() == 40)]]
    folder.with(function(path)
      local script = path .. "/first.lua"
      folder.write(script, text)
      for at = 1, 24 do
        local output, status = shell.run(("%s%s %s %d"):format(RUN, script, LIBRARY, at))
        assert.equal(0, status, output)
      end
    end)
  end)
end)
