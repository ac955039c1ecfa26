-- All specs, the recorded cases among them, as gpu(0) on the stand-in: 13 minutes of two cores.

local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

describe("#slow all specs", function()
  it("pass as gpu(0)", function()
    if not stand_in.exists() then
      pending("no build/cudasim: make cudasim")
      return
    end
    local text, status = shell.run("make test-gpu GPU_SPECS=spec")
    assert.equal(0, status, text)
    local passed = text:match("\n(%d+) passed, 0 failed, %d+ skipped\n$")
    assert.is_truthy(passed and tonumber(passed) > 1000, text)
  end)
end)
