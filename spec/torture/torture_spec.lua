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
