-- Networks by name: all of the reference's, their parameters, outputs, files of weights, mistakes.

local ty = require "tycho"
local device = require "spec.support.device"

local C = require("tycho.core.ffi").C
local vision, nd = ty.gluon.model_zoo.vision, ty.nd

-- name -> number of parameters, elements of all together, with 1000 classes
local NETWORKS = {
  ["resnet18_v1"] = { 102, 11699112 }, ["resnet34_v1"] = { 182, 21814696 },
  ["resnet50_v1"] = { 299, 25629032 }, ["resnet101_v1"] = { 588, 44695144 },
  ["resnet152_v1"] = { 877, 60404072 }, ["resnet18_v2"] = { 98, 11695796 },
  ["resnet34_v2"] = { 178, 21811380 }, ["resnet50_v2"] = { 259, 25595060 },
  ["resnet101_v2"] = { 514, 44639412 }, ["resnet152_v2"] = { 769, 60329140 },
  ["vgg11"] = { 22, 132863336 }, ["vgg13"] = { 26, 133047848 }, ["vgg16"] = { 32, 138357544 },
  ["vgg19"] = { 38, 143667240 }, ["vgg11_bn"] = { 54, 132874344 },
  ["vgg13_bn"] = { 66, 133059624 }, ["vgg16_bn"] = { 84, 138374440 },
  ["vgg19_bn"] = { 102, 143689256 }, ["alexnet"] = { 16, 61100840 },
  ["densenet121"] = { 606, 8062504 }, ["densenet161"] = { 806, 28900936 },
  ["densenet169"] = { 846, 14307880 }, ["densenet201"] = { 1006, 20242984 },
  ["squeezenet1.0"] = { 52, 1248424 }, ["squeezenet1.1"] = { 52, 1235496 },
  ["inceptionv3"] = { 472, 23869000 }, ["mobilenet1.0"] = { 137, 4253864 },
  ["mobilenet0.75"] = { 137, 2601976 }, ["mobilenet0.5"] = { 137, 1342536 },
  ["mobilenet0.25"] = { 137, 475544 }, ["mobilenetv2_1.0"] = { 266, 3539136 },
  ["mobilenetv2_0.75"] = { 266, 2653864 }, ["mobilenetv2_0.5"] = { 266, 1983104 },
  ["mobilenetv2_0.25"] = { 266, 1526856 },
}

-- Returns the number of parameters and of elements, with shapes inferred from a picture.
local function sizes(net, size)
  net:infer_shape(nd.zeros{ 1, 3, size, size })
  local n, elements = 0, 0
  for _, p in ipairs(net:collect_params():values()) do
    local count = 1
    for _, d in ipairs(p.shape) do count = count * d end
    n, elements = n + 1, elements + count
  end
  return n, elements
end

describe("get_model", function()
  it("adds shortcuts in the reference's order, which is that of the arguments", function()
    local function first_of_stage(name)
      local net = vision.get_model(name, { prefix = "net_" })
      for _, argument in ipairs(net(ty.sym.Variable("data")):list_arguments()) do
        if argument:match("^net_stage2_") then return argument end
      end
    end
    assert.equal("net_stage2_conv2_weight", first_of_stage("resnet18_v1"))
    assert.equal("net_stage2_conv0_weight", first_of_stage("resnet50_v1"))
  end)

  it("knows 34 networks", function()
    local n = 0
    for name in pairs(NETWORKS) do
      n = n + 1
      assert.is_true(ty.is_a(vision.get_model(name:upper()), ty.gluon.HybridBlock))
    end
    assert.equal(34, n)
  end)

  for name, want in pairs(NETWORKS) do
    local few = want[2] < 5e6
    it(("makes %s with the reference's parameters%s"):format(name, few and "" or " #slow"),
      function()
        local n, elements = sizes(vision.get_model(name), name == "inceptionv3" and 299 or 224)
        assert.equal(want[1], n)
        assert.equal(want[2], elements)
      end)
  end

  it("refuses unknown names and options", function()
    local e = assert.raises("name", vision.get_model, "resnet19_v1")
    assert.truthy(e.candidates[1]:find("resnet1", 1, true))
    assert.raises("name", vision.get_model, { "alexnet", clases = 10 })
    assert.raises("name", vision.get_model, { "alexnet", thumbnail = true })
    assert.raises("name", function() return vision.resnet19_v1() end)
    assert.raises("value", vision.get_resnet, 1, 19)
    assert.raises("value", vision.get_resnet, 3, 18)
    assert.raises("value", vision.get_vgg, 12)
    assert.raises("value", vision.get_densenet, 100)
    assert.raises("value", vision.get_squeezenet, "2.0")
    assert.raises("value", vision.get_mobilenet, -1)
    assert.raises("value", vision.ResNetV1, vision.BasicBlockV1, { 1, 1 }, { 8, 8 })
  end)
end)


describe("a network", function()
  --      function               options                                  side of the picture
  local SMALL = {
    { "resnet18_v1", { thumbnail = true, classes = 3 }, 16 },
    { "resnet18_v2", { thumbnail = true, classes = 3 }, 16 },
    { "resnet50_v1", { thumbnail = true, classes = 3 }, 8 },
    { "resnet50_v2", { thumbnail = true, classes = 3 }, 8 },
    { "squeezenet1_1", { classes = 3 }, 224 },
    { "mobilenet0_25", { classes = 3 }, 32 },
    { "mobilenet_v2_0_25", { classes = 3 }, 32 },
  }
  for _, case in ipairs(SMALL) do
    it(("gives the same hybridized and not: %s #slow"):format(case[1]), function()
      local net = vision[case[1]](case[2])
      net:initialize{ init = ty.init.Xavier() }
      local x = nd.random.uniform{ shape = { 2, 3, case[3], case[3] } }
      local y = net(x)
      assert.shape({ 2, 3 }, y)
      net:hybridize()
      assert.near(y, net(x), 1e-4)
    end)
  end

  -- In float64: a float32 gradient may differ as a whole where the input of a relu is within
  -- rounding of 0 (0.16 of the largest element for one of three seeds; noise of 2e-7 in the
  -- picture does the same to the float64 gradient).
  it("has the same gradients call by call, as one program, and hybridized", function()
    local net = vision.resnet18_v1{ thumbnail = true, classes = 3 }
    net:initialize{ init = ty.init.Xavier() }
    local x, label = nd.random.uniform{ shape = { 2, 3, 16, 16 } }, nd.array{ 0, 2 }
    net(x)
    net:cast "float64"
    x, label = x:astype "float64", label:astype "float64"
    local loss = ty.gluon.loss.SoftmaxCELoss()
    local function gradients(lazy, hybrid)
      local before = C.ty_lazy_enable(lazy and 1 or 0)
      net:hybridize(hybrid)
      ty.autograd.record(function() return loss(net(x), label) end):backward()
      C.ty_lazy_enable(before)
      local list = {}
      for _, p in net:collect_params():items() do
        list[#list + 1] = p.grad_req ~= "null" and p:grad():copy() or nil
      end
      return list
    end
    local want = gradients(false, false)
    for _, got in ipairs{ gradients(true, false), gradients(true, true), gradients(false, true) } do
      for i, g in ipairs(want) do
        assert.near(g, got[i], 1e-12 * g:abs():max():asscalar())
      end
    end
  end)

  it("has the reference's names", function()
    ty.name.NameManager():with(function()
      local net = vision.resnet18_v1{ classes = 5 }
      assert.equal("resnetv10_", net.prefix)
      assert.equal("resnetv10_dense0_", net.output.prefix)
      local keys = net:collect_params():keys()
      assert.equal("resnetv10_conv0_weight", keys[1])
      assert.is_true(net:collect_params():contains("resnetv10_stage4_conv4_weight"))
      assert.equal("mine_", vision.alexnet{ prefix = "mine_" }.prefix)
      assert.equal("mobilenetv20_output_pred_",
        vision.mobilenet_v2_0_25().output[1].prefix)
      assert.is_true(vision.inception_v3():collect_params():contains(
        "inception30_E2_conv8_weight"))
    end)
  end)

  it("has fields features and output", function()
    for _, name in ipairs{ "alexnet", "vgg11", "densenet121", "squeezenet1_0", "mobilenet0_25" } do
      local net = vision[name]{ classes = 2 }
      assert.is_true(ty.is_a(net.features, ty.gluon.HybridBlock))
      assert.is_true(ty.is_a(net.output, ty.gluon.HybridBlock))
    end
  end)
end)


describe("pretrained", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  local folder

  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir -p " .. folder)
  end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  it("reads weights from a local file, with and without a hash in its name", function()
    local net = vision.mobilenet0_25{ classes = 4 }
    net:initialize()
    net(nd.zeros{ 1, 3, 32, 32 })
    for _, name in ipairs{ "mobilenet0.25.params", "mobilenet0.25-0123abcd.params" } do
      net:save_parameters(folder .. "/" .. name)
      local other = vision.get_model("mobilenet0.25",
        { classes = 4, pretrained = true, root = folder })
      local x = nd.ones{ 1, 3, 32, 32 }
      assert.near(net(x), other(x), 1e-6)
      os.remove(folder .. "/" .. name)
    end
  end)

  it("names the file that is missing", function()
    local e = assert.raises("io", vision.resnet18_v1, { pretrained = true, root = folder })
    assert.truthy(tostring(e):find("resnet18_v1", 1, true))
    assert.raises("io", vision.get_model,
      { "vgg11_bn", pretrained = true, root = folder .. "/none" })
  end)
end)
