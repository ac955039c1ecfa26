-- Allocations that fail (native/base/gate.h), where `make torture` has been built.

local shell = require "spec.support.shell"

local FOLDER = "build/torture"

describe("an allocation that fails", function()
  local built = io.open(FOLDER .. "/tycho")
  if not built then
    it("any of them", function() pending("there is no " .. FOLDER .. ": make torture") end)
    return
  end
  built:close()

  it("is told as one of memory, and the next try gives the same bits", function()
    local output, status = shell.run(("%s/tycho spec/torture/allocations.lua $PWD/%s/libtycho.so")
      :format(FOLDER, FOLDER))
    assert.equal(0, status, output)
  end)
end)
