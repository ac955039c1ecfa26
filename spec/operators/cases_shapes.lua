--- Lines for spec/operators/inference_spec.lua beside those of the other tables: operators that are
-- in none of them, and parameters that change what ports there are, or what is known of them.
--
-- A line is {operator, shapes, parameters, types, fixed}: types of inputs by name or number, the
-- others are float32; which are indices, as in spec/operators/cases.lua.

local lines = {}

local function add(name, shapes, params, types, fixed)
  lines[#lines + 1] = {name, shapes, params or {}, types = types or {}, fixed = fixed or {}}
end

local function all(dtype, ...)
  local t = {}
  for _, key in ipairs{...} do t[key] = dtype end
  return t
end

-- -- outputs that a parameter shows -----------------------------------------------------------------

local N = {data = {2, 3, 4}}
local function norm(k) return {data = N.data, gamma = {k}, beta = {k}} end
add("BatchNorm", norm(3), {output_mean_var = true})
add("BatchNorm", norm(4), {output_mean_var = true, axis = -1})
add("BatchNorm", norm(3), {output_mean_var = true}, {data = "float16"})
add("LayerNorm", norm(4), {output_mean_var = true})
add("LayerNorm", norm(2), {output_mean_var = true, axis = 0})
add("GroupNorm", {data = {2, 4, 3}, gamma = {2}, beta = {2}}, {output_mean_var = true, num_groups = 2})
for mode, gates in pairs{gru = 3, lstm = 4, rnn_relu = 1} do
  for directions = 1, 2 do
    local cell = mode == "lstm" and {directions, 2, 5} or nil
    add("RNN", {data = {3, 2, 4}, parameters = {directions * gates * 5 * (4 + 5 + 2)},
        state = {directions, 2, 5}, state_cell = cell},
      {mode = mode, state_size = 5, num_layers = 1, bidirectional = directions == 2,
        state_outputs = true})
  end
end
add("RNN", {data = {3, 2, 4}, parameters = {4 * 5 * (4 + 3 + 2) + 3 * 5}, state = {1, 2, 3},
    state_cell = {1, 2, 5}},
  {mode = "lstm", state_size = 5, num_layers = 1, projection_size = 3, state_outputs = true})
for _, kind in ipairs{"value", "indices", "mask", "both"} do
  add("topk", N, {ret_typ = kind, k = 2})
  add("topk", N, {ret_typ = kind, k = 2, axis = 0, dtype = "int32"})
  if kind ~= "mask" then add("topk", N, {ret_typ = kind, k = 2, axis = "None"}) end
end
add("sort", N, {axis = 0})
add("argsort", N, {dtype = "int64"})
add("moments", N, {axes = {0, 2}})
add("moments", N, {axes = {1}, keepdims = true})
add("_sample_multinomial", {data = {3, 4}}, {get_prob = true})
add("_sample_multinomial", {data = {4}}, {get_prob = true, shape = {2, 3}})
add("_sample_multinomial", {data = {3, 4}}, {shape = {2}, dtype = "float64"})

-- -- pieces -----------------------------------------------------------------------------------------

add("SliceChannel", {data = {2, 3, 4}}, {num_outputs = 3, squeeze_axis = true})
add("SliceChannel", {data = {2, 3, 4}}, {num_outputs = 2, axis = -1})
add("SliceChannel", {data = {3}}, {num_outputs = 3, axis = 0, squeeze_axis = true})
add("_split_v2", {data = {6, 4}}, {indices = {0, 2, 5}, axis = 0})
add("_split_v2", {data = {6, 4}}, {indices = {1}, axis = 0, sections = 3})
add("_split_v2", {data = {6, 2}}, {indices = {0, 1}, axis = 1, squeeze_axis = true})
add("Concat", {{2, 3}, {4, 3}}, {dim = 0})
add("Concat", {{2, 3}, {2, 4}}, {dim = -1})
add("_rnn_param_concat", {{2}, {3}}, {dim = 0})
add("stack", {{2, 3}, {2, 3}}, {axis = -1})
add("Crop", {{1, 2, 5, 6}, {1, 2, 3, 4}}, {num_args = 2, offset = {1, 1}})
add("Crop", {{1, 2, 5, 6}}, {num_args = 1, h_w = {3, 4}, center_crop = true})
add("slice_like", {data = {4, 5}, shape_like = {2, 3}}, {axes = {0, -1}})
add("slice_like", {data = {4, 5}, shape_like = {2, 7}}, {axes = {0}})
add("broadcast_like", {lhs = {1, 5}, rhs = {2, 3}}, {lhs_axes = {0}, rhs_axes = {1}})
add("Reshape", {data = {2, 3, 4}}, {shape = {-2}})
add("Reshape", {data = {2, 3, 4}}, {shape = {0, -3}})
add("Reshape", {data = {6, 4}}, {shape = {-4, 2, -1, -2}})
add("Reshape", {data = {2, 3, 4}}, {shape = {-1, 0}, reverse = true})
add("Reshape", {data = {2, 12}}, {shape = {2, 3, 4}})
add("Reshape", {data = {2, 3, 4}}, {target_shape = {0, 12}, keep_highest = true})
add("Reshape", {data = {2, 3, 4}}, {target_shape = {4, 0}})
add("reshape_like", {lhs = {2, 6}, rhs = {3, 4}}, {})
add("reshape_like", {lhs = {30, 7}, rhs = {15, 2, 4}},
  {lhs_begin = 0, lhs_end = 1, rhs_begin = 0, rhs_end = 2})
add("expand_dims", {data = {2, 3}}, {axis = -1})
add("squeeze", {data = {1, 3, 1}}, {})
add("squeeze", {data = {1, 3, 1}}, {axis = {0, -1}})
add("transpose", {data = {2, 3, 4}}, {axes = {1, -1, 0}})
add("Flatten", {data = {2, 3, 4}})
add("Pad", {data = {1, 2, 3, 3, 3}}, {mode = "edge", pad_width = {0, 0, 0, 0, 1, 1, 0, 1, 2, 0}})
add("diag", {data = {3, 4}}, {k = -1})
add("diag", {data = {3}}, {k = 1})
add("diag", {data = {2, 3, 4}}, {axis1 = -1, axis2 = 0})
add("shape_array", N)
add("size_array", N)
add("argmax", N, {axis = 1, keepdims = true})
add("argmax", N)
add("argmax_channel", {data = {2, 3}})
add("cumsum", {a = {2, 3}}, {})
add("cumsum", {a = {2, 3}}, {axis = 0, dtype = "float64"})
add("sum", N, {axis = {0, 2}, exclude = true})
add("norm", N, {axis = {0, -1}, keepdims = true})

-- -- indices ----------------------------------------------------------------------------------------

add("take", {a = {4, 3}, indices = {2, 2}}, {axis = -1, mode = "wrap"}, {indices = "int32"})
add("pick", {data = {2, 3}, index = {2}}, {keepdims = true})
add("one_hot", {indices = {2, 3}}, {depth = 4, dtype = "int32"})
add("gather_nd", {data = {3, 4, 5}, indices = {2, 6}})
add("scatter_nd", {data = {6, 5}, indices = {2, 6}}, {shape = {3, 4, 5}})
add("_scatter_set_nd", {lhs = {3, 4, 5}, rhs = {6, 5}, indices = {2, 6}}, {shape = {3, 4, 5}})
add("where", {condition = {3}, x = {3, 2}, y = {3, 2}})
add("_contrib_index_copy", {old_tensor = {4, 3}, index_vector = {2}, new_tensor = {2, 3}})
add("_sparse_retain", {data = {4, 3}, indices = {2}})
add("SequenceMask", {data = {4, 2, 3}}, {})
add("SequenceLast", {data = {2, 4, 3}}, {axis = 1})
add("SequenceReverse", {data = {4, 2}, sequence_length = {2}}, {use_sequence_length = true})
add("softmax", {data = {2, 3}, length = {2}}, {use_length = true}, {length = "int32"})
add("softmax", {data = {2, 3}}, {dtype = "float64"})
add("_ravel_multi_index", {data = {2, 5}}, {shape = {3, 4}})
add("_unravel_index", {data = {5}}, {shape = {3, 4}})

add("_contrib_boolean_mask", {data = {3, 2}, index = {3}})

-- -- what loops and choices are made of --------------------------------------------------------------

local GUARD = {guard = "bool"}
add("_guard", {condition = {1}})
add("_guard", {condition = {2}, outer = {1}}, {nested = true}, {outer = "bool"})
add("_gate", {data = {2, 3}, guard = {1}}, {}, GUARD)
add("_select", {guard = {1}, first = {2, 3}, second = {2, 3}}, {}, GUARD)

-- -- steps of weights -------------------------------------------------------------------------------

local W = {2, 3}
add("sgd_update", {weight = W, grad = W}, {lr = 1})
add("signsgd_update", {weight = W, grad = W}, {lr = 1})
add("lamb_update_phase2", {weight = W, g = W, r1 = {1}, r2 = {1}}, {lr = 1})
add("multi_sgd_update", {W, W, {4}, {4}}, {num_weights = 2, lrs = {1, 1}, wds = {0, 0}})
add("preloaded_multi_sgd_update", {W, W, {4}, {4}, {2}, {2}}, {num_weights = 2})
add("multi_lars", {lrs = {3}, weights_sum_sq = {3}, grads_sum_sq = {3}, wds = {3}}, {eta = 1, eps = 1})
add("_contrib_allclose", {a = W, b = W})
add("all_finite", {data = W})
add("multi_all_finite", {W, {4}}, {num_arrays = 2})

-- -- levels -----------------------------------------------------------------------------------------

local ONE = {1}
local function ranged(more)
  more.min_data, more.max_data = ONE, ONE
  return more
end
local BYTES = {data = "int8"}
add("_contrib_quantize", {data = W, min_range = ONE, max_range = ONE})
add("_contrib_quantize", {data = W, min_range = ONE, max_range = ONE}, {out_type = "int8"})
add("_contrib_quantize_v2", {data = W}, {out_type = "uint8"})
add("_contrib_quantize_asym", {data = W})
add("_contrib_quantized_rnn", {data = {4, 2, 3}, parameters = {144}, state = {1, 2, 4},
  state_cell = {1, 2, 4}, min_data = ONE, max_data = ONE}, {state_size = 4, num_layers = 1,
  mode = "lstm"}, {data = "uint8"})
add("_contrib_quantized_rnn", {data = {4, 2, 3}, parameters = {240}, state = {4, 2, 2},
  state_cell = {4, 2, 2}, min_data = ONE, max_data = ONE}, {state_size = 2, num_layers = 2,
  mode = "lstm", bidirectional = true, state_outputs = true}, {data = "uint8"})
add("_contrib_dequantize", {data = W, min_range = ONE, max_range = ONE}, {}, BYTES)
add("_contrib_requantize", {data = W, min_range = ONE, max_range = ONE}, {}, {data = "int32"})
add("_contrib_quantized_act", ranged{data = W}, {act_type = "relu"}, BYTES)
add("_contrib_quantized_flatten", ranged{data = {2, 3, 4}}, {}, BYTES)
add("_contrib_quantized_pooling", ranged{data = {1, 2, 4, 4}}, {kernel = {2, 2}}, BYTES)
for _, name in ipairs{"_contrib_quantized_elemwise_add", "_contrib_quantized_elemwise_mul"} do
  add(name, {lhs = W, rhs = W, lhs_min = ONE, lhs_max = ONE, rhs_min = ONE, rhs_max = ONE}, {},
    all("int8", "lhs", "rhs"))
end
add("_contrib_quantized_elemwise_mul",
  {lhs = W, rhs = W, lhs_min = ONE, lhs_max = ONE, rhs_min = ONE, rhs_max = ONE},
  {enable_float_output = true}, all("int8", "lhs", "rhs"))
add("_contrib_quantized_concat", {{2, 3}, {2, 4}, ONE, ONE, ONE, ONE}, {num_args = 2},
  all("int8", 1, 2))
add("_contrib_quantized_embedding", {data = {2, 2}, weight = {5, 3}, min_weight = ONE,
  max_weight = ONE}, {input_dim = 5, output_dim = 3}, {weight = "int8"})
add("_contrib_quantized_fully_connected",
  {data = {2, 3}, weight = {4, 3}, min_data = ONE, max_data = ONE, min_weight = ONE,
    max_weight = ONE}, {num_hidden = 4, no_bias = true}, all("int8", "data", "weight"))
add("_contrib_quantized_fully_connected",
  {data = {2, 3}, weight = {4, 3}, bias = {4}, min_data = ONE, max_data = ONE, min_weight = ONE,
    max_weight = ONE, min_bias = ONE, max_bias = ONE}, {num_hidden = 4},
  all("int8", "data", "weight", "bias"))
add("_contrib_quantized_conv",
  {data = {1, 2, 4, 4}, weight = {3, 2, 2, 2}, min_data = ONE, max_data = ONE, min_weight = ONE,
    max_weight = ONE}, {num_filter = 3, kernel = {2, 2}, no_bias = true},
  all("int8", "data", "weight"))
add("_contrib_calibrate_entropy", {hist = {301}, hist_edges = {302}}, {})

-- -- layers -----------------------------------------------------------------------------------------

add("_contrib_linear_cross_entropy", {data = {2, 3}, weight = {5, 3}, bias = {5}, label = {2}},
  {num_hidden = 5})
add("_contrib_linear_cross_entropy", {data = {2, 3}, weight = {5, 3}, label = {2}},
  {num_hidden = 5, no_bias = true})
add("Convolution", {data = {2, 4, 5}, weight = {3, 4, 2}},
  {kernel = {2}, num_filter = 3, layout = "NCW", no_bias = true})
add("Convolution", {data = {2, 5, 6, 4}, weight = {3, 2, 2, 4}, bias = {3}},
  {kernel = {2, 2}, num_filter = 3, layout = "NHWC"})
add("Deconvolution", {data = {2, 4, 3, 3}, weight = {4, 3, 2, 2}},
  {kernel = {2, 2}, num_filter = 6, num_group = 2, stride = {2, 2}})
add("Deconvolution", {data = {2, 4, 3}, weight = {4, 3, 3}},
  {kernel = {3}, num_filter = 3, target_shape = {7}, stride = {2}})
add("Deconvolution", {data = {2, 3, 3, 4}, weight = {4, 2, 2, 3}},
  {kernel = {2, 2}, num_filter = 3, layout = "NHWC"})
add("Pooling", {data = {1, 2, 5, 5}}, {kernel = {2, 2}, stride = {2, 2}})
add("Pooling", {data = {1, 2, 5, 5}}, {global_pool = true})
add("Pooling", {data = {1, 5, 5, 2}}, {kernel = {2, 2}, layout = "NHWC"})
add("FullyConnected", {data = {2, 3, 4}, weight = {5, 12}}, {num_hidden = 5, no_bias = true})
add("Dropout", {data = {2, 3}}, {axes = {1}})
add("UpSampling", {{1, 2, 2, 2}, {1, 3, 1, 1}}, {scale = 2, sample_type = "nearest", num_args = 2})
add("UpSampling", {{1, 2, 2, 2}, {1, 2, 1, 1}},
  {scale = 2, sample_type = "nearest", num_args = 2, multi_input_mode = "sum"})
add("UpSampling", {{1, 2, 2, 2}, {2, 1, 4, 4}},
  {scale = 2, sample_type = "bilinear", num_filter = 2})
add("SoftmaxOutput", {data = {2, 3, 4}, label = {2, 4}}, {multi_output = true})
add("SoftmaxOutput", {data = {2, 3, 4}, label = {2, 3}}, {preserve_shape = true})
add("GridGenerator", {data = {2, 6}}, {transform_type = "affine", target_shape = {3, 4}})
add("GridGenerator", {data = {2, 2, 3, 4}}, {transform_type = "warp"})
add("_linalg_gemm", {A = {2, 3, 4}, B = {2, 4, 5}, C = {2, 3, 5}}, {axis = -2})
add("_linalg_gemm2", {A = {3, 2, 4}, B = {4, 2, 5}}, {axis = 0})
add("_linalg_inverse", {A = {2, 3, 3}})
add("_linalg_det", {A = {2, 3, 3}})
add("_linalg_slogdet", {A = {3, 3}})
add("_linalg_syevd", {A = {2, 3, 3}})
add("_linalg_gelqf", {A = {2, 3}})
add("_linalg_potrf", {A = {2, 3, 3}})
add("_linalg_potri", {A = {3, 3}})
add("_linalg_makediag", {A = {2, 3}}, {offset = -1})
add("_linalg_maketrian", {A = {2, 6}}, {})
add("_linalg_extractdiag", {A = {2, 3, 3}}, {offset = 1})
add("_linalg_syrk", {A = {2, 3, 4}}, {transpose = true})
add("dot", {lhs = {2, 3}, rhs = {3}}, {})
add("dot", {lhs = {3}, rhs = {3}}, {})

return lines
