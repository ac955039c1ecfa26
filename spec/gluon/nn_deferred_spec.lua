-- Layers whose parameters get their sizes at the first call.

local ty = require "tycho"

local nn = ty.gluon.nn

describe("a parameter of unknown size", function()
  it("is inferred after a call that came before initialize", function()
    local net = nn.Dense(3)
    assert.raises("state", net, ty.nd.ones{ 2, 4 })
    net:initialize()
    assert.shape({ 2, 3 }, net(ty.nd.ones{ 2, 4 }))
    assert.same({ 3, 4 }, net.weight.shape)
  end)

  it("is inferred where forward does not use all of its inputs", function()
    local Net = ty.gluon.HybridBlock:extend("Net")
    function Net:init()
      self.body = nn.Dense(3)
    end
    function Net:forward(x, mask, options)
      return self.body(options and options[1] or x), mask and x
    end
    local x = ty.nd.ones{ 2, 4 }
    for _, hybridized in ipairs{ false, true } do
      for _, args in ipairs{ { x, ty.nd.ones(2) }, { ty.nd.ones(7), nil, { x, ty.nd.ones(5) } } } do
        local net = Net()
        net:initialize()
        if hybridized then
          net:hybridize()
        end
        assert.shape({ 2, 3 }, (net(unpack(args, 1, 3))))
        assert.same({ 3, 4 }, net.body.weight.shape)
      end
      local net = Net()
      net:initialize()
      net:infer_shape(x, ty.nd.ones(2))
      net:infer_type(x:astype("float64"), ty.nd.ones(2))
      assert.equal("float64", net.body.weight.dtype)
    end
  end)
end)
