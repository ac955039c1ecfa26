-- Operators that take half types row by row: the numbers are those of float32, rounded at the end,
-- whatever the rows are cut into.
local device = require "spec.support.device"
local ty = require "tycho"
require "spec.helper"

local nd, sym = ty.nd, ty.sym
local V = sym.Variable

-- name, network, shapes by variable, variables that stay float32, whether it sums in another order
local CASES = {
  { "softmax", sym.softmax{ V "x" }, { x = { 70, 900 } } },
  { "softmax over axis 1 of 3", sym.softmax{ V "x", axis = 1 }, { x = { 40, 30, 50 } } },
  { "softmax over the last axis of 3", sym.softmax{ V "x", axis = 2 }, { x = { 9, 31, 300 } } },
  { "softmin with a temperature", sym.softmin{ V "x", temperature = 2 }, { x = { 70, 900 } } },
  { "softmax with lengths", sym.softmax{ V "x", V "n", use_length = true, axis = -1 },
    { x = { 30, 9, 200 }, n = { 30, 9 } } },
  { "softmax into float32", sym.softmax{ V "x", dtype = "float32" }, { x = { 70, 900 } } },
  { "log_softmax", sym.log_softmax{ V "x" }, { x = { 70, 900 } } },
  { "LayerNorm with mean and deviation",
    sym.LayerNorm{ V "x", V "g", V "b", axis = -1, output_mean_var = true },
    { x = { 9, 31, 300 }, g = { 300 }, b = { 300 } } },
  { "LayerNorm, as many rows as columns", sym.LayerNorm{ V "x", V "g", V "b" },
    { x = { 300, 300 }, g = { 300 }, b = { 300 } } },
  { "LayerNorm over axis 1", sym.LayerNorm{ V "x", V "g", V "b", axis = 1 },
    { x = { 40, 30, 50 }, g = { 30 }, b = { 30 } } },
  { "RMSNorm", sym.contrib.RMSNorm{ V "x", V "g" }, { x = { 70, 900 }, g = { 900 } } },
  { "InstanceNorm", sym.InstanceNorm{ V "x", V "g", V "b" },
    { x = { 12, 6, 20, 30 }, g = { 6 }, b = { 6 } } },
  { "GroupNorm", sym.GroupNorm{ V "x", V "g", V "b", num_groups = 3 },
    { x = { 12, 6, 20, 30 }, g = { 3 }, b = { 3 } } },
  { "BatchNorm", sym.BatchNorm{ V "x", V "g", V "b", V "m", V "v", fix_gamma = false },
    { x = { 5, 6, 30, 40 }, g = { 6 }, b = { 6 }, m = { 6 }, v = { 6 } }, "g b m v" },
  { "BatchNorm of long pieces", sym.BatchNorm{ V "x", V "g", V "b", V "m", V "v" },
    { x = { 2, 3, 2500 }, g = { 3 }, b = { 3 }, m = { 3 }, v = { 3 } }, "g b m v" },
  { "BatchNorm and relu", sym.relu{ sym.BatchNorm{ V "x", V "g", V "b", V "m", V "v",
    fix_gamma = false } },
    { x = { 5, 6, 30, 40 }, g = { 6 }, b = { 6 }, m = { 6 }, v = { 6 } }, "g b m v" },
  { "BatchNorm over the last axis and relu", sym.relu{ sym.BatchNorm{ V "x", V "g", V "b", V "m",
    V "v", axis = -1, fix_gamma = false } },
    { x = { 40, 70 }, g = { 70 }, b = { 70 }, m = { 70 }, v = { 70 } }, "g b m v" },
  { "BatchNormWithReLU", sym.contrib.BatchNormWithReLU{ V "x", V "g", V "b", V "m", V "v",
    fix_gamma = false },
    { x = { 5, 6, 30, 40 }, g = { 6 }, b = { 6 }, m = { 6 }, v = { 6 } }, "g b m v" },
  { "BatchNormWithReLU over the last axis", sym.contrib.BatchNormWithReLU{ V "x", V "g", V "b",
    V "m", V "v", axis = -1 },
    { x = { 40, 70 }, g = { 70 }, b = { 70 }, m = { 70 }, v = { 70 } }, "g b m v" },
  { "BatchNorm by fixed statistics", sym.BatchNorm{ V "x", V "g", V "b", V "m", V "v",
    fix_gamma = false, use_global_stats = true },
    { x = { 5, 6, 30, 40 }, g = { 6 }, b = { 6 }, m = { 6 }, v = { 6 } }, "g b m v" },
  { "Convolution 1 x 1 of several blocks of images", sym.Convolution{ V "x", V "w", V "c",
    kernel = { 1, 1 }, num_filter = 32 },
    { x = { 12, 32, 96, 96 }, w = { 32, 32, 1, 1 }, c = { 32 } }, nil, true },
  { "Convolution 7 x 7 of several blocks of images", sym.Convolution{ V "x", V "w",
    no_bias = true, kernel = { 7, 7 }, stride = { 2, 2 }, pad = { 3, 3 }, num_filter = 24 },
    { x = { 12, 3, 220, 220 }, w = { 24, 3, 7, 7 } }, nil, true },
  { "Convolution 3 x 3 of several blocks of images", sym.Convolution{ V "x", V "w", V "c",
    kernel = { 3, 3 }, num_filter = 32, pad = { 1, 1 } },
    { x = { 12, 32, 96, 96 }, w = { 32, 32, 3, 3 }, c = { 32 } }, nil, true },
  { "Convolution 3 x 3 with stride 2 of several blocks of images", sym.Convolution{ V "x", V "w",
    no_bias = true, kernel = { 3, 3 }, stride = { 2, 2 }, num_filter = 48 },
    { x = { 12, 48, 97, 97 }, w = { 48, 48, 3, 3 } }, nil, true },
  { "max pooling", sym.Pooling{ V "x", kernel = { 3, 2 }, stride = { 2, 1 }, pad = { 1, 0 },
    pool_type = "max" }, { x = { 5, 9, 30, 40 } } },
  { "average pooling, channels last", sym.Pooling{ V "x", kernel = { 3, 3 }, pool_type = "avg",
    layout = "NHWC" }, { x = { 11, 20, 20, 9 } } },
  { "mean over the last axes", sym.mean{ V "x", axis = { 2, 3 } }, { x = { 9, 8, 30, 40 } } },
  { "sum over the last axis, kept", sym.sum{ V "x", axis = { -1 }, keepdims = true },
    { x = { 70, 900 } } },
  { "max over all axes but two", sym.max{ V "x", axis = { 0, 1 }, exclude = true },
    { x = { 9, 8, 30, 40 } } },
  { "mean over the first axis", sym.mean{ V "x", axis = { 0 } }, { x = { 70, 900 } } },
}

local STEP = { bfloat16 = 2 ^ -7, float16 = 2 ^ -10 }      -- from 1 to the next number
local SUM_ERROR = 2 ^ -22                                  -- of float32's sums, of the largest one

local function fill(name, shape)
  if name == "n" then
    return nd.random.randint(0, 201, { shape = shape })
  elseif name == "v" then
    return nd.random.uniform{ 0.5, 2, shape = shape }
  end
  return nd.random.normal{ 0.3, 2, shape = shape }
end

describe("rows of half types", function()
  for _, dtype in ipairs{ "bfloat16", "float16" } do
    for _, case in ipairs(CASES) do
      local name, net, shapes, single, sums = unpack(case, 1, 5)
      it(("%s, %s"):format(name, dtype), function()
        ty.random.seed(9)
        local half, whole, grads, wide = {}, {}, {}, {}
        for key, shape in pairs(shapes) do
          local x = fill(key, shape)
          local is_real = key ~= "n" and not (single and single:find(key))
          half[key] = is_real and x:astype(dtype) or x
          whole[key] = is_real and half[key]:astype "float32" or x:copy()
          grads[key] = nd.zeros(shape, { dtype = half[key].dtype })
          wide[key] = nd.zeros(shape, { dtype = whole[key].dtype })
        end
        local wanted = single and { "x", "g", "b" } or { "x" }
        local function bound(values, gradients)
          local args, aux, args_grad, req = {}, {}, {}, {}
          for _, key in ipairs(net:list_arguments()) do
            args[key], req[key] = values[key], "null"
          end
          for _, key in ipairs(net:list_auxiliary_states()) do aux[key] = values[key] end
          for _, key in ipairs(wanted) do args_grad[key], req[key] = gradients[key], "write" end
          return net:bind{ ctx = ty.cpu(), args = args, args_grad = args_grad, grad_req = req,
            aux_states = aux }
        end
        local a, b = bound(half, grads), bound(whole, wide)
        a:forward{ is_train = true }
        b:forward{ is_train = true }
        for i, y in ipairs(a.outputs) do
          local want = b.outputs[i]:astype(y.dtype)
          local wide_y, wide_want = y:astype "float32", want:astype "float32"
          -- sums in another order: a number may be rounded to the next one, and one that is the
          -- difference of large ones is as far off as they are
          local most = wide_want:abs():max():asscalar()
          -- a GPU sums half types in float32, and float32 in float64
          local rounds = single or sums or device.is_gpu
          local apart = rounds and (wide_want:abs() + 1e-3) * STEP[dtype] or 0
          if sums then apart = apart + SUM_ERROR * most end
          local off = ((wide_y - wide_want):abs() - apart):max():asscalar()
          assert.is_true(off <= 0, ("output %d %g off"):format(i, off))
        end
        local g = nd.random.normal{ shape = a.outputs[1].shape }:astype(a.outputs[1].dtype)
        a:backward{ g }
        b:backward{ g:astype "float32" }
        for _, key in ipairs(wanted) do
          local want = wide[key]:astype(grads[key].dtype):astype "float32"
          local off = (grads[key]:astype "float32" - want):abs():max():asscalar()
          local most = want:abs():max():asscalar()
          -- a gradient reads outputs that are rounded here
          assert.is_true(off <= 0.02 * most, ("gradient of %s %g off of %g"):format(key, off, most))
        end
        for _, key in ipairs(net:list_auxiliary_states()) do
          local off = (a.aux_dict[key] - b.aux_dict[key]):abs():max():asscalar()
          assert.is_true(off <= 1e-6, ("%s %g off"):format(key, off))
        end
      end)
    end
  end

  it("are added to what an array holds", function()
    ty.random.seed(10)
    local x = nd.random.normal{ shape = { 70, 900 } }:astype "bfloat16"
    local g = nd.ones({ 70, 900 }, { dtype = "bfloat16" })
    local exe = sym.sum{ V "x", axis = { 1 } }:bind{ ctx = ty.cpu(), args = { x = x },
      args_grad = { x = g }, grad_req = "add" }
    exe:forward{ is_train = true }
    exe:backward{ nd.ones({ 70 }, { dtype = "bfloat16" }) * 3 }
    assert.equal(4, g:astype("float32"):min():asscalar())
    assert.equal(4, g:astype("float32"):max():asscalar())
  end)
end)
