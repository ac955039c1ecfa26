-- More than the machine has: refused with a text, never begun.
local device = require "spec.support.device"
local ty = require "tycho"

describe("memory", function()
  setup(device.leave)
  teardown(device.come_back)
  it("beyond the device's is refused", function()
    for _, make in ipairs{ty.nd.zeros, ty.nd.ones, ty.nd.empty} do
      local e = assert.raises("memory", make, {2 ^ 20, 2 ^ 21})
      assert.is_truthy(tostring(e):find("cpu%(0%) with %d+ bytes: 8796093022208 bytes wanted"))
    end
    local x = ty.sym.Variable("x")
    assert.raises("memory", function()
      return ty.sym.broadcast_add{x, ty.sym.Reshape{x, shape = {1, -1}}}
        :simple_bind{ctx = ty.cpu(), x = {2 ^ 21, 1}}
    end)
    assert.equal(3, ty.nd.ones(3):sum():asscalar())
  end)

  it("of images with too much padding is refused", function()
    local x = ty.nd.ones{1, 1, 4, 4}
    for _, padding in ipairs{2 ^ 30, 2 ^ 31 - 1} do
      local e = assert.raises("shape", ty.nd.Correlation,
        {data1 = x, data2 = x, pad_size = padding})
      assert.is_truthy(tostring(e):find("%(1, %d+, %d+, 1%) is too large"))
    end
    assert.raises("memory", ty.nd.Correlation, {data1 = x, data2 = x, pad_size = 2 ^ 17})
  end)
end)
