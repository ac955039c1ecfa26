-- Segments: what is handed to a device's queue at once; buckets of gradients cut backward, and on a
-- CPU forward where it first reads weights of a bucket.

local ty = require "tycho"
local sym = ty.sym

local LAYERS = 4

local function bound()
  local x = sym.Variable("data")
  for i = 1, LAYERS do
    x = sym.FullyConnected{ x, num_hidden = 5, name = "fc" .. i }
    x = sym.Activation{ x, act_type = "tanh" }
  end
  return sym.sum{ x }:simple_bind{ ctx = ty.cpu(0), data = { 2, 5 }, grad_req = "write" }
end

local function fill(exe)
  ty.random.seed(3)
  local names = {}
  for name in pairs(exe.arg_dict) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local x = exe.arg_dict[name]
    ty.nd.random.uniform{ -1, 1, shape = x.shape, out = x }
  end
end

local function gradients(exe)
  fill(exe)
  exe:forward(true)
  exe:backward{ ty.nd.ones{ 1 } }
  local list = {}
  for name, x in pairs(exe.grad_dict) do
    list[name] = x:totable()
  end
  return list
end

describe("segments", function()
  it("are one for forward and one for backward by default", function()
    assert.equal(2, bound():stats().segments)
  end)

  it("end where a bucket of gradients is complete", function()
    local exe = bound()
    exe:_cut_backward{ fc4_weight = 0, fc4_bias = 0, fc3_weight = 1, fc3_bias = 1, fc2_weight = 2,
      fc2_bias = 2 }
    local on_cpu = exe.arg_dict.fc1_weight.context.device_type == "cpu"
    local forward = on_cpu and 4 or 1                    -- fc1's weights belong to no bucket
    assert.equal(forward + 4, exe:stats().segments)      -- the rest of backward is the fourth
  end)

  it("do not end once more after the last step", function()
    local exe = bound()
    local all = {}
    for name in pairs(exe.grad_dict) do
      all[name] = 0
    end
    exe:_cut_backward(all)
    assert.equal(2, exe:stats().segments)                -- nor before the first one
  end)

  it("make the gradients that they made before, whenever they are cut", function()
    local exe = bound()
    local want = gradients(exe)
    exe:_cut_backward{ fc4_weight = 0, fc3_weight = 1, fc2_weight = 2 }
    assert.same(want, gradients(exe))
    exe:_cut_backward{ fc1_weight = 0, fc3_weight = 1 }
    assert.same(want, gradients(exe))
    exe:_cut_backward{}
    assert.equal(2, exe:stats().segments)
    assert.same(want, gradients(exe))
  end)
end)
