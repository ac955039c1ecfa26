-- The memory of long sequences and of networks in bfloat16: networks of the benchmark.

local ty = require "tycho"

describe("a plan", function()
  local path = package.path
  package.path = "scripts/dev/bench/?.lua;" .. path
  local narrow, nets = require "narrow", require "nets"
  package.path = path
  local MIB = 2 ^ 20

  -- Returns the planned MiB of a training whose updates are part of backward.
  local function planned(symbol, shapes, optimizer)
    local params = {}
    for _, name in ipairs(symbol:list_arguments()) do
      if not shapes[name] then params[#params + 1] = name end
    end
    local fused = ty.optimizer.FusedOptimizer{ symbol = symbol, params = params,
      optimizer = optimizer }
    local exe = fused.symbol:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = "null" }
    return exe:memory().planned / MIB
  end

  it("of a causal model's training at length 1024 takes at most 90 MiB", function()
    local size = { layers = 4, width = 256, heads = 8, inner = 1024, words = 2000 }
    local most = planned(narrow.causal(size, 1024), { data = { 1, 1024 }, label = { 1, 1024 } },
      ty.optimizer.Adam{})
    assert.is_true(most <= 90, ("%.1f MiB"):format(most))
  end)

  -- Returns the planned MiB of an inference.
  local function inferred(symbol, shapes)
    local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = "null" }
    return exe:memory().planned / MIB
  end

  it("of a convolution in bfloat16 has no whole arrays in float32", function()
    local S = ty.sym
    local net = S.Convolution{ S.Variable "x", kernel = { 1, 1 }, num_filter = 64, name = "c" }
    net = S.relu(S.BatchNorm{ net, name = "n" })
    local shapes = { x = { 32, 64, 112, 112 } }
    local half = inferred(ty.amp.convert(net, { target = "bfloat16" }), shapes)
    local array = 32 * 64 * 112 * 112 * 2 / MIB
    -- data and result in bfloat16, and a block of images; whole arrays would be four more
    assert.is_true(half <= 3 * array, ("%.1f MiB, an array of %.1f"):format(half, array))
  end)

  it("of ResNet-50's inference in bfloat16 takes at most 0.6 of float32's #slow", function()
    local symbol, shape = nets.network("resnet50", true)
    local shapes = { data = { 32, unpack(shape) } }
    local wide = inferred(symbol, shapes)
    local half = inferred(ty.amp.convert(symbol, { target = "bfloat16" }), shapes)
    print(("ResNet-50, inference, batch 32: %.0f MiB, bfloat16 %.0f MiB"):format(wide, half))
    assert.is_true(half <= 0.6 * wide)
  end)

  it("of ResNet-50's training in bfloat16 takes at most 0.6 of float32's #slow", function()
    local symbol, shape = nets.network "resnet50"
    local shapes = { data = { 32, unpack(shape) }, label = { 32 } }
    local sgd = ty.optimizer.SGD{ momentum = 0.9 }
    local wide = planned(symbol, shapes, sgd)
    local half = planned(ty.amp.convert(symbol, { target = "bfloat16" }), shapes, sgd)
    print(("ResNet-50, batch 32: %.0f MiB, bfloat16 %.0f MiB"):format(wide, half))
    assert.is_true(half <= 0.6 * wide)
  end)
end)
