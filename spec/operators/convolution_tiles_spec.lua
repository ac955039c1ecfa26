-- Convolutions between others, whose channels stay in blocks, in "medium": values and gradients
-- against float64 on the same operands, which bfloat16 has exactly.

local device = require "spec.support.device"
local ty = require "tycho"
local S = ty.sym

-- Returns whether this processor has AMX, and nothing holds it back.
local function has_tiles()
  local f = io.open "/proc/cpuinfo"
  local text = f and f:read "*a" or ""
  if f then f:close() end
  local off = os.getenv "TYCHO_DISABLE" or ""
  return text:find " amx_bf16" ~= nil and text:find " avx512_bf16" ~= nil
    and not os.getenv "TYCHO_CPU" and not off:find "amx" and not off:find "gemm"
    and (os.getenv "TYCHO_BLOCKS" or "1") ~= "0"
end

-- Returns numbers of a float64 array that bfloat16 has exactly.
local function draw(shape)
  local x = ty.nd.random.uniform{ low = -1, high = 1, shape = shape }
  return x:astype "bfloat16":astype "float64"
end

-- Returns a convolution that changes nothing: its weight is the identity.
local function identity(x, n, name)
  return S.Convolution{ x, kernel = { 1, 1 }, num_filter = n, no_bias = true, name = name }
end

local function identity_weight(n) return ty.nd.eye(n):reshape{ n, n, 1, 1 } end

-- Returns the convolution of a case alone.
local function convolution(x, case)
  local options = { x, name = "conv" }
  for key, v in pairs(case[2]) do options[key] = v end
  return S.Convolution(options)
end

local function bind(symbol, arrays, dtype, precision)
  local args, grads = {}, {}
  for name, x in pairs(arrays) do
    args[name] = x:astype(dtype)
    grads[name] = ty.nd.zeros(x.shape, { dtype = dtype })
  end
  return symbol:bind{ ctx = ty.cpu(), args = args, args_grad = grads, precision = precision }
end

-- Runs forward and backward; returns the output and the gradients by name.
local function run(symbol, arrays, head, dtype, precision)
  local exe = bind(symbol, arrays, dtype, precision)
  exe:forward{ is_train = true }
  exe:backward{ head:astype(dtype) }
  local results = { output = exe.outputs[1]:astype "float64" }
  for name, g in pairs(exe.grad_dict) do results[name] = g:astype "float64" end
  return results, exe
end

local function magnitudes(arrays)
  local all = {}
  for name, x in pairs(arrays) do all[name] = x:abs() end
  return all
end

-- Asserts that x is `exact` but for sums in float32 of terms whose magnitudes add up to `most`, and
-- for as many roundings of the result to bfloat16.
local function near(x, exact, most, roundings, name)
  local bound = most * 4e-6 + exact:abs() * (roundings * 2 ^ -8) + 1e-12
  local over = ((x - exact):abs() - bound):max():asscalar()
  assert.is_true(over <= 0, ("%s is %g over its bound"):format(name, over))
end

-- name -> the shape of the data, the convolution, whether tiles compute it
local CASES = {
  ["1 x 1"] = { { 3, 48, 9, 7 }, { kernel = { 1, 1 }, num_filter = 80 }, true },
  ["1 x 1 of one image"] = { { 1, 96, 14, 14 }, { kernel = { 1, 1 }, num_filter = 32 }, true },
  ["1 x 1, stride 2"] = { { 4, 64, 13, 8 }, { kernel = { 1, 1 }, stride = { 2, 2 },
    num_filter = 32, no_bias = true }, true },
  ["3 x 3"] = { { 9, 32, 8, 8 }, { kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = 48 }, true },
  ["3 x 3 of one image"] = { { 1, 32, 20, 17 }, { kernel = { 3, 3 }, pad = { 1, 1 },
    num_filter = 32 }, true },
  ["3 x 3, stride 2"] = { { 8, 32, 11, 9 }, { kernel = { 3, 3 }, pad = { 1, 1 },
    stride = { 2, 2 }, num_filter = 32 }, true },
  ["odd window, gaps"] = { { 2, 64, 19, 23 }, { kernel = { 4, 3 }, dilate = { 2, 3 },
    stride = { 1, 3 }, pad = { 3, 2 }, num_filter = 32 }, true },
  ["wide borders"] = { { 3, 32, 7, 9 }, { kernel = { 2, 2 }, pad = { 4, 3 }, num_filter = 32 },
    true },
  ["one axis"] = { { 4, 32, 1, 90 }, { kernel = { 1, 5 }, pad = { 0, 2 }, num_filter = 32 }, true },
  ["groups"] = { { 8, 64, 9, 9 }, { kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = 64,
    num_group = 2 }, false },
}

describe("convolution on tiles", function()
  setup(device.leave)
  teardown(device.come_back)

  for name, case in pairs(CASES) do
    local channels, filters = case[1][2], case[2].num_filter
    it("has the values and gradients of float64: " .. name, function()
      ty.random.seed(11)
      local alone = convolution(S.Variable "data", case)
      local between = identity(convolution(identity(S.Variable "data", channels, "before"), case),
        filters, "after")
      local shapes, outputs = alone:infer_shape{ data = case[1] }
      local arrays = {}
      for i, argument in ipairs(alone:list_arguments()) do arrays[argument] = draw(shapes[i]) end
      local head = draw(outputs[1])
      local exact = run(alone, arrays, head, "float64")
      local most = run(alone, magnitudes(arrays), head:abs(), "float64")
      arrays.before_weight = identity_weight(channels)
      arrays.after_weight = identity_weight(filters)
      local rounded, exe = run(between, arrays, head, "float32", "medium")
      near(rounded.output, exact.output, most.output, 1, "output")
      near(rounded.data, exact.data, most.data, 1, "data")
      near(rounded.conv_weight, exact.conv_weight, most.conv_weight, 0, "weight")
      if rounded.conv_bias then
        near(rounded.conv_bias, exact.conv_bias, most.conv_bias, 0, "bias")
      end
      local _, steps = exe:program():gsub("  tiles +cpu[^\n]*%[conv[%]_]", "")
      assert.equal(case[3] and has_tiles() and 2 or 0, steps)
    end)
  end

  it("adds a gradient to what is there", function()
    ty.random.seed(3)
    local y = identity(convolution(identity(S.Variable "data", 32, "before"),
      CASES["3 x 3"]), 48, "after")
    local arrays = { data = draw{ 2, 32, 8, 8 }, before_weight = identity_weight(32),
      after_weight = identity_weight(48), conv_weight = draw{ 48, 32, 3, 3 },
      conv_bias = draw{ 48 } }
    local head = draw{ 2, 48, 8, 8 }
    local once = run(y, arrays, head, "float32", "medium")
    local args, grads = {}, {}
    for name, x in pairs(arrays) do
      args[name] = x:astype "float32"
      grads[name] = ty.nd.ones(x.shape)
    end
    local exe = y:bind{ ctx = ty.cpu(), args = args, args_grad = grads, grad_req = "add",
      precision = "medium" }
    exe:forward{ is_train = true }
    exe:backward{ head:astype "float32" }
    for name, g in pairs(once) do
      if name ~= "output" then
        local d = (exe.grad_dict[name]:astype "float64" - g - 1):abs():max():asscalar()
        assert.is_true(d <= 1e-5 * (1 + g:abs():max():asscalar()), name .. " is off by " .. d)
      end
    end
  end)

  -- name -> the end of a convolution with a kept weight, of two runs
  for name, finish in pairs{
    ["relu"] = function(x) return S.relu(x) end,
    ["tanh"] = function(x) return S.tanh(x) end,
    ["scale, sum and relu"] = function(x, data)
      return S.relu(S.BatchNorm{ x, fix_gamma = false, name = "bn" } + data)
    end,
  } do
    it("ends with " .. name, function()
      local data = identity(S.Variable "data", 32, "before")
      local x = S.Convolution{ data, kernel = { 3, 3 }, pad = { 1, 1 }, num_filter = 32,
        name = "conv" }
      local y = identity(finish(x, data), 32, "after")
      local outputs = {}
      for i, precision in ipairs{ "highest", "medium" } do
        local exe = y:simple_bind{ ctx = ty.cpu(), data = { 2, 32, 10, 10 }, grad_req = "null",
          precision = precision }
        ty.random.seed(2)
        exe.arg_dict.data[":"] = draw(exe.arg_dict.data.shape)
        exe.arg_dict.conv_weight[":"] = draw(exe.arg_dict.conv_weight.shape) * (1 / 64)
        exe.arg_dict.conv_bias[":"] = draw{ 32 }
        for _, which in ipairs{ "before_weight", "after_weight" } do
          exe.arg_dict[which][":"] = identity_weight(32)
        end
        if exe.arg_dict.bn_gamma then
          exe.arg_dict.bn_gamma[":"] = draw{ 32 }
          exe.arg_dict.bn_beta[":"] = draw{ 32 }
          exe.aux_dict.bn_moving_mean[":"] = draw{ 32 }
          exe.aux_dict.bn_moving_var[":"] = draw{ 32 }:abs() + 0.5
        end
        for _ = 1, 2 do exe:forward{ is_train = false } end
        outputs[i] = exe.outputs[1]:astype "float64"
      end
      local d = (outputs[1] - outputs[2]):abs():max():asscalar()
      assert.is_true(d <= 2 ^ -8 * outputs[1]:abs():max():asscalar(), "off by " .. d)
    end)
  end
end)
