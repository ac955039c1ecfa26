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
end)
