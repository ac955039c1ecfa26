-- Calls that fail behind the doors of native/base (gate.h), where `make torture` has been built.

local shell = require "spec.support.shell"

local FOLDER = "build/torture"

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

describe("what fails behind a door", function()
  local built = io.open(FOLDER .. "/tycho")
  if not built then
    it("any of it", function() pending("there is no " .. FOLDER .. ": make torture") end)
    return
  end
  built:close()

  it("is reported as what it is, and the next try gives the same bits", function()
    local output, status = shell.run(("%s/tycho spec/torture/faults.lua $PWD/%s/libtycho.so 2")
      :format(FOLDER, FOLDER))
    assert.equal(0, status, output)
  end)
end)
