-- The memory of long sequences and of networks in bfloat16: networks of the benchmark.

local ty = require "tycho"

describe("a plan", function()
  local path = package.path
  package.path = "scripts/dev/bench/?.lua;" .. path
  local narrow, nets = require "narrow", require "nets"
  package.path = path
  local MIB = 2 ^ 20

  -- Planned MiB of a training whose updates are part of backward.
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
