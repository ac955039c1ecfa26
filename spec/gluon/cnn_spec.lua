-- Deformable convolutions: those of usual windows while offsets are 0, gradients, names, mistakes.

local ty = require "tycho"
local support = require "spec.support.gluon"

local cnn, nd, nn = ty.gluon.contrib.cnn, ty.nd, ty.gluon.nn
local form = support.form


describe("a deformable convolution", function()
  for _, name in ipairs{ "DeformableConvolution", "ModulatedDeformableConvolution" } do
    it("begins as a convolution: " .. name, function()
      local net = cnn[name]{ 4, 3, padding = 1, weight_initializer = ty.init.One() }
      net:initialize()
      local x = form({ 1, 2, 5, 5 }, "float32")
      local plain = nn.Conv2D{ 4, 3, padding = 1, weight_initializer = ty.init.One() }
      plain:initialize()
      assert.near(plain(x), net(x), 1e-4)
      net:hybridize()
      assert.near(plain(x), net(x), 1e-4)
    end)

    it("has right gradients: " .. name, function()
      local net = cnn[name]{ 2, { 2, 3 }, num_deformable_group = 2, activation = "tanh" }
      net:initialize()
      net:cast("float64")
      local x = form{ 1, 2, 4, 4 }
      net(x)
      for i, p in ipairs(net:collect_params():values()) do
        p:set_data(form(p.shape, "float64", i) * 0.3)
      end
      ty.test_utils.check_gradient{ function(v) return net(v) end, x, rtol = 1e-3 }
    end)
  end

  it("has names and a text as the reference", function()
    ty.name.NameManager():with(function()
      local net = cnn.DeformableConvolution{ 4, 3, in_channels = 2, use_bias = false }
      assert.equal("deformable_conv0_", net.prefix)
      assert.same({ "deformable_conv0_offset_weight", "deformable_conv0_offset_bias",
        "deformable_conv0_deformable_conv_weight" }, net:collect_params():keys())
      assert.same({ 18, 2, 3, 3 }, net.offset_weight.shape)
      assert.equal("DeformableConvolution(2 -> 4, kernel_size=(3, 3), stride=(1, 1), bias=False)",
        tostring(net))
      assert.same({ 27 }, cnn.ModulatedDeformableConvolution(4, 3).offset_bias.shape)
    end)
  end)

  it("refuses what it cannot do", function()
    assert.raises("value", cnn.DeformableConvolution, { 4, 3, layout = "NHWC" })
    assert.raises("value", cnn.DeformableConvolution, { 4, { 1, 2, 3 } })
    assert.raises("value", cnn.DeformableConvolution, { 3, 3, groups = 2 })
    assert.raises("name", function() return cnn.Deformable end)
    local net = cnn.DeformableConvolution{ 4, 3, in_channels = 2 }
    net:initialize()
    assert.raises("shape", net, nd.ones{ 1, 3, 5, 5 })
  end)
end)
