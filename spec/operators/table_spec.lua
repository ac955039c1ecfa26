-- Every operator has a line in a table of cases, or is here with the spec that has its cases,
-- the reason, and the word by which that spec calls it, where it is another; and its values are
-- compared with numbers found otherwise.
local ty = require "tycho"
local pointwise = require "spec.operators.cases_pointwise"
local vectors = require "spec.support.vectors"
require "spec.helper"

-- what the lines of each table are checked for
local TABLES = {
  ["spec.operators.cases"] = "gradient against differences, write, add and null, fused, plain, \z
    recomputed, half types, ends, NaN",
  ["spec.operators.cases_values"] =
  "values, gradient, write, add and null, planned, shared, unplanned, half types, ends",
  ["spec.operators.cases_updates"] = "one step in each type, NaN",
  ["spec.operators.cases_samplers"] =
  "moments, Kolmogorov-Smirnov or chi-square, seeds and threads",
}

local ELSEWHERE = {
  Custom = {"executor/custom_operator_spec",
    "its inputs, outputs and gradients are whatever a Lua class says"},
  _foreach = {"symbol/control_spec", "it has a body"},
  _while_loop = {"symbol/control_spec", "it has bodies"},
  _cond = {"symbol/control_spec", "it has bodies"},
  _guard = {"symbol/control_spec", "only loops and choices make it", "while_loop"},
  _contrib_linear_cross_entropy = {
    "operators/linear_cross_entropy_spec", "its gradient takes no head gradient"},
  _contrib_stochastic_round = {"optimizer/narrow_states_spec", "it draws which way it rounds"},
  _contrib_cache_append = {"operators/cache_append_spec", "it writes into its inputs"},
  _moving_average = {"gluon/sync_spec", "changes an input in place", "running_mean"},
  _learn = {"module/fused_optimizer_spec", "its gradient is a step on its inputs", "Learner"},
  _scale_gradient = {"module/loss_scale_spec", "its gradient is no derivative", "make_symbol"},
  _gate = {"symbol/control_spec", "only loops and choices make it", "cond"},
  _select = {"symbol/control_spec", "only loops and choices make it", "cond"},
  _contrib_boolean_mask = {"operators/boolean_mask_spec",
    "its output has as many rows as the data say"},
  _cvimdecode = {"image/image_spec", "it takes a file's bytes"},
  _cvimread = {"image/image_spec", "it takes a file's name"},
}

local QUANTIZED = [[
  quantize quantize_v2 dequantize requantize calibrate_entropy quantized_act
  quantized_batch_norm quantized_concat quantized_conv quantized_elemwise_add
  quantized_elemwise_mul quantized_embedding quantized_flatten quantized_fully_connected
  quantized_pooling
]]
for name in QUANTIZED:gmatch("%S+") do
  ELSEWHERE["_contrib_" .. name] = {"operators/quantize_spec", "its arrays are integers and ranges"}
end
for _, name in ipairs{"int8_fully_connected", "int8_convolution", "integer_dot"} do
  ELSEWHERE["_contrib_" .. name] = {"operators/int8_spec", "its weight is of 8-bit integers"}
end
for _, name in ipairs{"quantize_asym", "quantized_rnn"} do
  ELSEWHERE["_contrib_" .. name] = {"operators/quantized_rnn_spec", "it has 8-bit integers"}
end

-- A gradient that agrees with differences may be that of another function: where the values of
-- operators are compared with numbers found otherwise, if their lines do not give them.
-- "vectors/operators" is what the reference engine was recorded doing.
local VALUES = {
  ["operators/attention_spec"] = "_contrib_attention",
  ["operators/transformer_spec"] = "_contrib_RMSNorm _contrib_rotary_embedding _contrib_swiglu",
  ["operators/contrib_math_spec"] = [[
    _contrib_BilinearResize2D _contrib_DeformableConvolution
    _contrib_ModulatedDeformableConvolution _contrib_count_sketch _contrib_div_sqrt_dim
    _contrib_fft _contrib_hawkesll _contrib_ifft _contrib_interleaved_matmul_encdec_qk
    _contrib_interleaved_matmul_encdec_valatt _contrib_interleaved_matmul_selfatt_qk
    _contrib_interleaved_matmul_selfatt_valatt _square_sum
  ]],
  ["operators/detection_spec"] = [[
    _contrib_DeformablePSROIPooling _contrib_PSROIPooling _contrib_ROIAlign _contrib_box_nms
  ]],
  ["operators/linalg_spec"] = [[
    _linalg_det _linalg_extractdiag _linalg_extracttrian _linalg_gelqf _linalg_inverse
    _linalg_makediag _linalg_maketrian _linalg_potrf _linalg_potri _linalg_slogdet
    _linalg_sumlogdiag _linalg_syevd _linalg_trmm _linalg_trsm
  ]],
  ["operators/reduce_spec"] = "max sum",
  ["vectors/operators"] = [[
    BatchNorm BatchNorm_v1 BilinearSampler CTCLoss Cast Concat Convolution Convolution_v1
    Correlation Crop Deconvolution Embedding Flatten FullyConnected GridGenerator GroupNorm
    InstanceNorm L2Normalization LRN LayerNorm LeakyReLU Pad Pooling Pooling_v1 RNN ROIPooling
    Reshape SequenceLast SequenceMask SequenceReverse SliceChannel SoftmaxActivation
    SpatialTransformer SwapAxis UpSampling _contrib_AdaptiveAvgPooling2D _contrib_SyncBatchNorm
    _contrib_index_copy _image_crop _image_flip_left_right _image_flip_top_bottom
    _image_normalize _linalg_gemm _linalg_gemm2 _linalg_syrk cumsum _random_pdf_dirichlet
    _random_pdf_exponential _random_pdf_gamma _random_pdf_generalized_negative_binomial
    _random_pdf_negative_binomial _random_pdf_normal _random_pdf_poisson _rnn_param_concat
    _split_v2 amp_cast amp_multicast batch_dot broadcast_axis broadcast_like broadcast_to col2im
    depth_to_space diag dot expand_dims gather_nd im2col log_softmax mean min moments nanprod
    nansum norm pick prod repeat reshape_like reverse scatter_nd slice slice_axis slice_like
    softmax softmax_cross_entropy softmin sort space_to_depth squeeze stack take tile topk
    transpose where
  ]],
}

local function own_name(name) return ty.op.info(name).name end

-- Returns the set of operators that have lines.
local function with_lines()
  local found = {}
  for name in pairs(TABLES) do
    for _, line in ipairs(require(name)) do
      found[own_name(line[1])] = true
    end
  end
  return found
end

-- Returns the operators whose lines give their values, or name the spec that does.
local function with_values()
  local found = {}
  local function mark(name, where) found[own_name(name)] = where or true end
  for _, kind in ipairs{"unary", "binary", "scalar"} do
    for name in pairs(pointwise[kind]) do mark(name) end
  end
  for _, line in ipairs(require "spec.operators.cases") do
    if line.want then mark(line[1]) end
  end
  for _, line in ipairs(require "spec.operators.cases_values") do
    if line.want or line.options.values then mark(line[1], line.options.values) end
  end
  for _, name in ipairs{"spec.operators.cases_updates", "spec.operators.cases_samplers"} do
    for _, line in ipairs(require(name)) do mark(line[1]) end
  end
  return found
end

local function builtin()
  local names = {}
  for _, name in ipairs(ty.op.list()) do
    if not ty.op.info(name).added then names[#names + 1] = name end
  end
  return names
end

-- Returns the name by which specs call an operator: its last part.
local function plain(name)
  for _, prefix in ipairs{"_contrib_", "_linalg_", "_image_", "_cv", "_"} do
    if name:sub(1, #prefix) == prefix then return name:sub(#prefix + 1) end
  end
  return name
end

local function has_word(where, word)
  local file = assert(io.open("spec/" .. where .. ".lua"))
  local text = file:read("*a")
  file:close()
  assert.is_truthy(text:find(word, 1, true), where .. " does not speak of " .. word)
end

describe("the tables of cases", function()
  it("have a line for every operator", function()
    local lines, missing = with_lines(), {}
    for _, name in ipairs(builtin()) do
      if not lines[name] and not ELSEWHERE[name] then missing[#missing + 1] = name end
    end
    assert.equal("", table.concat(missing, " "), "operators without a line in the tables of "
      .. "spec/operators (ARCHITECTURE.md, To add an operator)")
  end)

  it("leave out only what cannot have one, and whose spec is there", function()
    local lines = with_lines()
    for name, where in pairs(ELSEWHERE) do
      assert.is_nil(lines[name], name .. " has a line")
      has_word(where[1], where[3] or plain(name))
    end
  end)

  it("know the values of every operator, or where they are checked", function()
    local known, missing = with_values(), {}
    for name, where in pairs(known) do
      if where ~= true then has_word(where, plain(name)) end
    end
    for where, names in pairs(VALUES) do
      for name in names:gmatch("%S+") do
        assert.is_nil(known[own_name(name)], name .. " is listed, and checked elsewhere")
        known[own_name(name)] = where
        if where ~= "vectors/operators" then has_word(where, plain(name)) end
      end
    end
    for _, name in ipairs(builtin()) do
      if not known[name] and not ELSEWHERE[name] then missing[#missing + 1] = name end
    end
    assert.equal("", table.concat(missing, " "), "operators whose values nothing compares: a "
      .. "formula in cases_pointwise.lua, a want in cases.lua or cases_values.lua")
  end)

  it("name recorded cases that are there", function()
    if not vectors.exists() then return pending("no recorded cases") end
    for name in VALUES["vectors/operators"]:gmatch("%S+") do
      local outputs = 0
      for _, case in ipairs(vectors.json("operators/" .. name .. ".json").cases) do
        if not case.error then outputs = outputs + case.outputs end
      end
      assert.is_true(outputs > 0, name)
    end
  end)
end)
