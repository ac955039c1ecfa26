-- Arithmetic on 8-bit integers on a GPU: the CPU's integers and ranges, bit for bit.

local devices = require "spec.support.devices_agree"

local LEVELS = devices.SCRIPT .. [[
local contrib = ty.nd.contrib

-- Returns 8-bit integers and the two ends of their range.
local function levels(shape, ctx, dtype, most)
  local x = pattern(shape, here, "float64") * 70
  x = dtype == "uint8" and ty.nd.abs(x) * 2 or x
  local low = dtype == "uint8" and 0 or -most
  return {q = x:astype(dtype):as_in_context(ctx), low = ty.nd.array({low}, ctx),
    high = ty.nd.array({most}, ctx)}
end

local function layer(name, list, options)
  local call, n = {}, #list
  for k, v in pairs(options) do
    call[k] = v
  end
  for i, a in ipairs(list) do
    call[i], call[n + 2 * i - 1], call[n + 2 * i] = a.q, a.low, a.high
  end
  return all(contrib[name](call))
end

local WINDOWS = {
  {pool_type = "max", kernel = {3, 2}, stride = {2, 2}, pad = {1, 1}},
  {pool_type = "avg", kernel = {3, 2}, pad = {1, 1}, pooling_convention = "full"},
  {pool_type = "avg", kernel = {2, 2}, pad = {1, 1}, count_include_pad = false},
  {pool_type = "sum", kernel = {1, 2}},
  {pool_type = "lp", kernel = {2, 2}, p_value = 2},
  {pool_type = "lp", kernel = {2, 2}, p_value = 3},
  {pool_type = "avg", global_pool = true},
}

for _, dtype in ipairs{"int8", "uint8"} do
  for _, bias in ipairs{0.03, 1e9, 0, false} do
    compare(("connected %s %s"):format(dtype, bias), function(ctx)
      local list = {levels({3, 5, 7}, ctx, dtype, 2), levels({4, 35}, ctx, "int8", 0.5)}
      list[3] = bias and levels({4}, ctx, "int8", bias) or nil
      return layer("quantized_fully_connected", list, {num_hidden = 4, no_bias = not bias})
    end)
  end
  compare("connected, the last axis alone " .. dtype, function(ctx)
    return layer("quantized_fully_connected", {levels({3, 5, 7}, ctx, dtype, 2),
      levels({4, 7}, ctx, "int8", 0.5)}, {num_hidden = 4, no_bias = true, flatten = false})
  end)
  compare("connected, sums beyond 32 bits " .. dtype, function(ctx)
    local function greatest(shape, type, v)
      return {q = ty.nd.full(shape, v, {ctx = ctx, dtype = type}), low = ty.nd.array({-1}, ctx),
        high = ty.nd.array({1}, ctx)}
    end
    local x = greatest({1, 70000}, dtype, dtype == "uint8" and 255 or 127)
    return layer("quantized_fully_connected", {x, greatest({1, 70000}, "int8", 127)},
      {num_hidden = 1, no_bias = true})
  end)
  compare("convolved, 1 axis " .. dtype, function(ctx)
    return layer("quantized_conv", {levels({2, 3, 11}, ctx, dtype, 2),
      levels({5, 3, 4}, ctx, "int8", 0.5), levels({5}, ctx, "int8", 0.01)},
      {kernel = {4}, num_filter = 5, pad = {2}, dilate = {2}})
  end)
  compare("convolved, 2 axes " .. dtype, function(ctx)
    return layer("quantized_conv", {levels({2, 4, 5, 6}, ctx, dtype, 2),
      levels({6, 2, 3, 2}, ctx, "int8", 0.5)}, {kernel = {3, 2}, num_filter = 6, num_group = 2,
      pad = {1, 0}, stride = {2, 1}, no_bias = true})
  end)
  compare("convolved, 3 axes " .. dtype, function(ctx)
    return layer("quantized_conv", {levels({1, 2, 3, 4, 5}, ctx, dtype, 2),
      levels({3, 2, 2, 2, 3}, ctx, "int8", 0), levels({3}, ctx, "int8", 1)},
      {kernel = {2, 2, 3}, num_filter = 3})
  end)
  for i = 1, dtype == "int8" and #WINDOWS or 2 do
    compare(("pooled %d %s"):format(i, dtype), function(ctx)
      return layer("quantized_pooling", {levels({2, 3, 5, 7}, ctx, dtype, 2)}, WINDOWS[i])
    end)
  end
  for _, dim in ipairs{0, 1, -1} do
    compare(("concatenated %d %s"):format(dim, dtype), function(ctx)
      local list = {}
      for i, most in ipairs{1, 4, 0.3} do
        local shape = {2, 3, 2}
        shape[dim < 0 and 3 or dim + 1] = i
        list[i] = levels(shape, ctx, dtype, most)
      end
      return layer("quantized_concat", list, {num_args = 3, dim = dim})
    end)
  end
  for _, name in ipairs{"quantized_elemwise_add", "quantized_elemwise_mul"} do
    for _, options in ipairs{{}, {min_calib_range = -0.7, max_calib_range = 3}} do
      compare(("%s %s %s"):format(name, dtype, options.max_calib_range), function(ctx)
        return layer(name, {levels({7, 5}, ctx, dtype, 1.3), levels({7, 5}, ctx, "int8", 0.2)},
          options)
      end)
    end
  end
  compare("product as numbers " .. dtype, function(ctx)
    return layer("quantized_elemwise_mul", {levels({7}, ctx, "int8", 1.3),
      levels({7}, ctx, dtype, 0.2)}, {enable_float_output = true})
  end)
  for _, axis in ipairs{1, -1} do
    compare(("normalised %d %s"):format(axis, dtype), function(ctx)
      local x, channels = levels({2, 3, 4}, ctx, dtype, 4), axis == 1 and 3 or 4
      local p = pattern({4, channels}, ctx, "float32")
      local function row(i) return ty.nd.slice_axis{p, axis = 0, begin = i, ["end"] = i + 1}:reshape{-1} end
      return all(contrib.quantized_batch_norm{x.q, row(0), row(1), row(2), row(3) * row(3), x.low,
        x.high, fix_gamma = axis == 1, axis = axis, min_calib_range = -2.5, max_calib_range = 2})
    end)
  end
  compare("rows of a table " .. dtype, function(ctx)
    local w = levels({5, 3}, ctx, "int8", 1)
    local index = ty.nd.array{{0, 4, 7, -1, 0 / 0, 2.9}, ctx = here}:astype(
      dtype == "int8" and "float32" or "float64"):as_in_context(ctx)
    return all(contrib.quantized_embedding{index, w.q, w.low, w.high, input_dim = 5,
      output_dim = 3})
  end)
end
for _, name in ipairs{"quantize", "dequantize"} do
  compare(name .. " of booleans", function(ctx)
    local x = ty.nd.array{{0, 1, 1}, ctx = here}:reshape{-1}:astype("bool"):as_in_context(ctx)
    local y = contrib[name]{x, ty.nd.array({0}, ctx), ty.nd.array({2}, ctx)}
    return all(name == "quantize" and y or {y})
  end)
end
for _, dtype in ipairs{"float32", "int64"} do
  for _, bins in ipairs{{81, 15}, {300, 32}, {7, 7}, {1, 1}} do
    compare(("histogram of %d %s"):format(bins[1], dtype), function(ctx)
      local counts = ty.nd.floor(pattern({bins[1]}, here, "float64") * 40 - 10)
      return all(contrib.calibrate_entropy{ty.nd.relu(counts):astype(dtype):as_in_context(ctx),
        pattern({bins[1] + 1}, ctx, "float32"), num_quantized_bins = bins[2]})
    end)
  end
end
compare("histogram of nothing", function(ctx)
  return all(contrib.calibrate_entropy{ty.nd.zeros({9}, {ctx = ctx}), pattern({10}, ctx, "float32"),
    num_quantized_bins = 3})[1]
end)
print(select(2, pcall(function()
  local one = ty.nd.ones({1}, {ctx = there})
  return contrib.quantized_pooling{ty.nd.zeros({1, 1, 4}, {ctx = there}), one, one,
    kernel = {2}}[1]:totable()
end)))
]]

describe("8-bit integers on a GPU", function()
  it("are the CPU's", function()
    local text = devices.agree(pending, LEVELS, 60)
    if text then
      assert.matches("data is neither uint8 nor int8", text, 1, true)
    end
  end)

  it("stay there, all operators of them", function()
    local stand_in = require "spec.support.stand_in"
    if not stand_in.exists() then
      pending("no build/cudasim: make cudasim")
      return
    end
    assert.equal("quantized_flatten gpu\nquantized_act gpu\n", (stand_in.run([[
      local ty = require "tycho"
      local V = ty.sym.Variable
      for name, options in ("quantized_flatten ,quantized_act relu,"):gmatch("(%S+) (%a*),") do
        local exe = ty.sym.contrib[name]{V("q"), V("low"), V("high"),
          act_type = options ~= "" and options or nil}:simple_bind{ctx = ty.gpu(0),
          shapes = {q = {2, 3}, low = {1}, high = {1}}, type_dict = {q = "int8"}, grad_req = "null"}
        exe:forward(false)
        print(name .. (exe:program():find("on the host", 1, true) and " host" or " gpu"))
      end
    ]])))
  end)
end)
