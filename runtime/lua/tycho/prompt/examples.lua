--- Arguments for examples of operators for which the rules of `prompt.operator` do not suffice.
--
-- A row maps an input to a shape ("1 3 8 8"), a shape with an element type ("2 3 int8"), or an
-- array as a Lua expression; and a parameter to a value as a Lua expression. `inputs` is a list of
-- inputs without names, for operators that take any number. `sym`, `nd`: a whole example; false:
-- there is none.
--
-- @module tycho.prompt.examples

local IMAGE, PIXELS = "1 3 8 8", "8 8 3"                 -- batch, channels, height, width; h, w, c
local ROIS = "ty.nd.array{{0, 0, 0, 4, 4}}"              -- image, x1, y1, x2, y2
local AXES = "ty.nd.array{{0, 1}, {2, 0}}"               -- rows of coordinates: (0, 2), (1, 0)
local BYTES, TRUTH = "2 3 int8", "ty.nd.ones({1}, {dtype = \"bool\"})"
local LOW, HIGH = "ty.nd.array{-1}", "ty.nd.array{1}"    -- limits of quantized numbers

local CONVOLUTION = { data = IMAGE }
local POOLING = { data = IMAGE, kernel = "{2, 2}", stride = "{2, 2}" }
local PROPOSAL = { cls_prob = "1 24 4 4", bbox_pred = "1 48 4 4",
  im_info = "ty.nd.array{{64, 64, 1}}" }
local MATRIX, SHAPE = { A = "ty.nd.eye(3)" }, { shape = "{2, 3}" }
local QUANTIZED = { data = BYTES, min_data = LOW, max_data = HIGH, min_range = LOW,
  max_range = HIGH }
local QUANTIZED_PAIR = { lhs = BYTES, rhs = BYTES, lhs_min = LOW, lhs_max = HIGH, rhs_min = LOW,
  rhs_max = HIGH }
local W, H = "2 3", "2 3 float16"                        -- weights; weights with float32 copies

local examples = {
  -- layers
  BilinearSampler = { data = IMAGE, grid = "1 2 4 4" }, CTCLoss = { data = "5 2 4", label = "2 3" },
  Convolution = CONVOLUTION, Convolution_v1 = CONVOLUTION, Deconvolution = CONVOLUTION,
  Correlation = { data1 = IMAGE, data2 = IMAGE }, Crop = { inputs = { IMAGE, "1 3 4 4" } },
  GridGenerator = { data = "1 6", target_shape = "{4, 4}" }, InstanceNorm = { data = "2 4 8" },
  GroupNorm = { data = "2 4 8", num_groups = "2" }, LRN = { data = "1 8 4 4" },
  Pad = { data = IMAGE, pad_width = "{0, 0, 0, 0, 1, 1, 1, 1}" }, Pooling = POOLING,
  Pooling_v1 = POOLING,
  RNN = { data = "5 2 3", state_size = "4", num_layers = "1", mode = "\"lstm\"" },
  ROIPooling = { data = IMAGE, rois = ROIS, pooled_size = "{2, 2}", spatial_scale = "1" },
  Reshape = { shape = "{3, 2}" },
  SpatialTransformer = { data = IMAGE, loc = "1 6", target_shape = "{4, 4}" },
  UpSampling = { inputs = { IMAGE }, scale = "2", sample_type = "\"nearest\"" },
  Custom = { sym = false, nd = [[
local Double, Prop = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
function Double:forward(is_train, req, x, y) self:assign(y[1], req[1], x[1] * 2) end
function Prop:create_operator() return Double() end
ty.operator.register("double", Prop)
ty.nd.Custom{ty.nd.ones{2, 3}, op_type = "double"}]] },

  -- contrib
  _contrib_take_along_axis = { indices = "ty.nd.array{{0, 1, 1}}" },
  _contrib_scatter_along_axis = { indices = "ty.nd.array{{0, 1, 1}}", updates = "1 3" },
  _contrib_scatter_nd = { indices = "ty.nd.array{{1, 0}}", updates = "2 3" },
  _contrib_int8_convolution = { data = IMAGE, weight = "8 3 3 3 int8", scale = "8", bias = "8" },
  _contrib_integer_dot = { lhs = BYTES, rhs = "3 4 int8" },
  _contrib_int8_fully_connected = { data = "2 3", weight = "4 3 int8", scale = "4", bias = "4" },
  _contrib_AdaptiveAvgPooling2D = { data = IMAGE, output_size = "{2, 2}" },
  _contrib_BilinearResize2D = { data = IMAGE, height = "4", width = "4" },
  _contrib_DeformableConvolution = { data = IMAGE, offset = "1 18 6 6" },
  _contrib_ModulatedDeformableConvolution = { data = IMAGE, offset = "1 18 6 6", mask = "1 9 6 6" },
  _contrib_DeformablePSROIPooling = { data = "1 8 8 8", rois = ROIS, trans = "1 2 2 2",
    spatial_scale = "1", output_dim = "2", group_size = "2", pooled_size = "2" },
  _contrib_PSROIPooling = { data = "1 8 8 8", rois = ROIS, spatial_scale = "1", output_dim = "2",
    pooled_size = "2" },
  _contrib_ROIAlign = { data = IMAGE, rois = ROIS, pooled_size = "{2, 2}", spatial_scale = "1" },
  _contrib_RROIAlign = { data = IMAGE, rois = "ty.nd.array{{0, 4, 4, 4, 4, 30}}",
    pooled_size = "{2, 2}", spatial_scale = "1" },
  _contrib_MultiBoxDetection = { cls_prob = "1 3 4", loc_pred = "1 16", anchor = "1 4 4" },
  _contrib_MultiBoxPrior = CONVOLUTION,
  _contrib_MultiBoxTarget = { anchor = "1 4 4", label = "1 2 5", cls_pred = "1 3 4" },
  _contrib_MultiProposal = PROPOSAL, _contrib_Proposal = PROPOSAL,
  _contrib_boolean_mask = {
    nd = "ty.nd.contrib.boolean_mask{ty.nd.ones{3, 2}, ty.nd.array{1, 0, 1}}" },
  _contrib_box_decode = { data = "1 2 4", anchors = "1 2 4" },
  _contrib_box_encode = { samples = "1 2", matches = "1 2", anchors = "1 2 4", refs = "1 3 4",
    means = "4", stds = "4" },
  _contrib_box_iou = { lhs = "2 4", rhs = "3 4" }, _contrib_box_nms = { data = "2 6" },
  _contrib_calibrate_entropy = { hist = "501", hist_edges = "ty.nd.arange(0, 502)" },
  _contrib_count_sketch = { h = "ty.nd.array{{0, 1, 0}}", s = "1 3", out_dim = "2" },
  _contrib_group_adagrad_update = { history = "2 1" },
  _contrib_hawkesll = { lda = "1 2", alpha = "2", beta = "2", state = "1 2", lags = "1 3",
    marks = "ty.nd.zeros({1, 3}, {dtype = \"int32\"})", valid_length = "ty.nd.array{3}",
    max_time = "ty.nd.array{10}" },
  _contrib_ifft = { data = "2 6" },
  _contrib_index_copy = { index_vector = "ty.nd.array{1}", new_tensor = "1 3" },
  _contrib_attention = { query = "2 3 8", key = "2 4 8", value = "2 4 8", heads = "2" },
  _contrib_cache_append = { key = "1 2 8", value = "1 2 8", length = "ty.nd.array{1}",
    key_cache = "1 5 8", value_cache = "1 5 8" },
  _contrib_rotary_embedding = { data = "2 3 8", heads = "2" },
  _contrib_interleaved_matmul_encdec_qk = { queries = "5 2 4", keys_values = "6 2 8" },
  _contrib_interleaved_matmul_encdec_valatt = { keys_values = "6 2 8", attention = "4 5 6" },
  _contrib_interleaved_matmul_selfatt_qk = { queries_keys_values = "5 2 12" },
  _contrib_interleaved_matmul_selfatt_valatt = { queries_keys_values = "5 2 12",
    attention = "4 5 5" },
  _contrib_dequantize = QUANTIZED, _contrib_quantize = { min_range = LOW, max_range = HIGH },
  _contrib_quantized_act = QUANTIZED, _contrib_quantized_flatten = QUANTIZED,
  _contrib_quantized_batch_norm = { data = IMAGE .. " int8", min_data = LOW, max_data = HIGH,
    min_calib_range = "-1", max_calib_range = "1" },
  _contrib_quantized_concat = { nd = [[
local x, low, high = ty.nd.ones({2, 3}, {dtype = "int8"}), ty.nd.array{-1}, ty.nd.array{1}
ty.nd.contrib.quantized_concat{x, x, low, low, high, high, num_args = 2}]], sym = [[
local x, y = ty.sym.Variable("x"), ty.sym.Variable("y")
local low, high = ty.sym.Variable("low"), ty.sym.Variable("high")
ty.sym.contrib.quantized_concat{x, y, low, low, high, high, num_args = 2}]] },
  _contrib_quantized_conv = { data = IMAGE .. " int8" },
  _contrib_quantized_elemwise_add = QUANTIZED_PAIR,
  _contrib_quantized_elemwise_mul = QUANTIZED_PAIR,
  _contrib_quantized_embedding = { min_weight = LOW, max_weight = HIGH },
  _contrib_quantized_fully_connected = { data = BYTES },
  _contrib_quantized_pooling = { data = IMAGE .. " int8", min_data = LOW, max_data = HIGH,
    kernel = "{2, 2}", stride = "{2, 2}" },
  _contrib_quantized_rnn = { data = "5 2 3 uint8", state_size = "4", num_layers = "1",
    mode = "\"lstm\"", min_data = "ty.nd.array{64}", max_data = "ty.nd.array{128}" },
  _contrib_requantize = { data = "2 3 int32", min_range = LOW, max_range = HIGH },
  _contrib_SyncBatchNorm = { key = "\"bn1\"" },

  -- images
  _cvcopyMakeBorder = { src = PIXELS .. " uint8", top = "1", bot = "1", left = "1", right = "1" },
  _cvimresize = { src = PIXELS .. " uint8" },
  _cvimread = { nd = [[
ty.image.imwrite("pixels.png", ty.nd.ones({8, 8, 3}, {dtype = "uint8"}))
ty.nd._cvimread{filename = "pixels.png"}]] },
  _cvimdecode = { sym = false, nd = [[
local bytes = ty.image.imencode(ty.nd.ones({8, 8, 3}, {dtype = "uint8"}))
ty.nd._cvimdecode{buf = ty.nd.from_string(bytes, #bytes, {dtype = "uint8"})}]] },
  _image_adjust_lighting = { data = PIXELS, alpha = "{0.1, 0.1, 0.1}" },
  _image_crop = { data = PIXELS, x = "2", y = "2", width = "4", height = "4" },
  _image_normalize = { data = "3 8 8", mean = "{0.5, 0.5, 0.5}", std = "{0.2, 0.2, 0.2}" },
  _image_random_color_jitter = { data = PIXELS, brightness = "0.1", contrast = "0.1",
    saturation = "0.1", hue = "0.1" },
  _image_resize = { data = PIXELS, size = "{4, 4}" },
  _image_to_tensor = { data = PIXELS .. " uint8" },

  -- linear algebra
  _linalg_gemm = { B = "3 4", C = "2 4" }, _linalg_gemm2 = { B = "3 4" },
  _linalg_trmm = { A = "3 3", B = "3 2" }, _linalg_trsm = { A = "ty.nd.eye(3)", B = "3 2" },
  batch_dot = { lhs = "2 3 4", rhs = "2 4 5" }, dot = { rhs = "3 2" },

  -- arrays
  _arange = { stop = "5" }, _histogram = { bin_cnt = "4", range = "{0, 1}" },
  _onehot_encode = { lhs = "ty.nd.array{0, 2}", rhs = "2 3" },
  _ravel_multi_index = { data = "ty.nd.array{{0, 1}, {1, 2}}", shape = "{2, 3}" },
  _sample_unique_zipfian = { range_max = "1000", shape = "{2, 5}" },
  _scatter_set_nd = { rhs = "2", indices = AXES }, _scale_gradient = { scale = "1" },
  _set_value = { nd = "ty.nd._set_value{src = 1, out = ty.nd.zeros{2, 3}}" },
  _slice_assign = { rhs = "2 2" }, _sparse_retain = { indices = "ty.nd.array{0}" },
  _split_v2 = { indices = "{0, 1}", axis = "1" },
  _unravel_index = { data = "ty.nd.array{1, 5}", shape = "{2, 3}" }, batch_take = { indices = "2" },
  broadcast_axis = { data = "1 3", axis = "0", size = "2" },
  broadcast_to = { data = "1 3", shape = "{2, 3}" },
  col2im = { data = "1 27 36", output_size = "{8, 8}" }, depth_to_space = { data = "1 4 2 3" },
  fill_element_0index = { mhs = "2", rhs = "2" }, im2col = CONVOLUTION, moments = { axes = "{0}" },
  pick = { index = "2" }, reshape = { shape = "{3, 2}" },
  scatter_nd = { data = "2", indices = AXES },
  reset_arrays = { sym = false,
    nd = "ty.nd.reset_arrays{ty.nd.ones{2, 3}, ty.nd.ones(4), num_arrays = 2}" },
  slice_axis = { begin = "0", ["end"] = "2" }, space_to_depth = { data = "1 1 4 6" },
  topk = { k = "2" },

  -- control flow, whose bodies are Lua functions
  _cond = { sym = [[
local x = ty.sym.Variable("x")
ty.sym.contrib.cond(ty.sym.sum{x}, function() return x * 2 end, function() return x * 3 end)]],
    nd = [[
local x = ty.nd.ones{2, 3}
ty.nd.contrib.cond(x:sum(), function() return x * 2 end, function() return x * 3 end)]] },
  _foreach = { sym = [[
local rows, start = ty.sym.Variable("rows"), ty.sym.Variable("start")
ty.sym.contrib.foreach(function(row, sum) return row * 2, sum + row end, rows, start)]], nd = [[
local rows, start = ty.nd.ones{2, 3}, ty.nd.zeros(3)
ty.nd.contrib.foreach(function(row, sum) return row * 2, sum + row end, rows, start)]] },
  _while_loop = { sym = [[
ty.sym.contrib.while_loop{function(x) return ty.sym.sum{x} end,
  function(x) return x, x - 1 end, ty.sym.Variable("x"), max_iterations = 5}]], nd = [[
ty.nd.contrib.while_loop{function(x) return x:sum() end, function(x) return x, x - 1 end,
  ty.nd.ones(1), max_iterations = 5}]] },
  _gate = { guard = TRUTH }, _select = { guard = TRUTH },
  _learn = { sym = false, nd = false }, _NoGradient = { sym = "ty.sym._NoGradient{}", nd = false },

  -- updates of several weights
  multi_sgd_update = { inputs = { W, W } }, multi_sgd_mom_update = { inputs = { W, W, W } },
  multi_mp_sgd_update = { inputs = { H, H, W } },
  multi_mp_sgd_mom_update = { inputs = { H, H, W, W } },
  preloaded_multi_sgd_update = { inputs = { W, W, "1", "1" } },
  preloaded_multi_sgd_mom_update = { inputs = { W, W, W, "1", "1" } },
  preloaded_multi_mp_sgd_update = { inputs = { H, H, W, "1", "1" } },
  preloaded_multi_mp_sgd_mom_update = { inputs = { H, H, W, W, "1", "1" } },
  _multi_adamw_update = { inputs = { W, W, W, W, "1" } },
  _multi_mp_adamw_update = { inputs = { H, H, W, W, W, "1" } },
  _multi_lamb_update = { inputs = { W, W, W, W } },
  _multi_mp_lamb_update = { inputs = { H, H, W, W, W } },
  _multi_update = { inputs = { W, W }, rule = "\"sgd_update\"" },
  _adamw_update = { rescale_grad = "1" },
  _mp_adamw_update = { weight = H, grad = H, rescale_grad = "1" },
  lamb_update_phase2 = { r1 = "1", r2 = "1" },
  mp_lamb_update_phase1 = { weight = H, grad = H },
  mp_lamb_update_phase2 = { weight = H, r1 = "1", r2 = "1" },
  mp_nag_mom_update = { weight = H, grad = H }, mp_sgd_mom_update = { weight = H, grad = H },
  mp_sgd_update = { weight = H, grad = H },
}

for name in ([[flip_left_right flip_top_bottom random_brightness random_contrast
    random_flip_left_right random_flip_top_bottom random_hue random_lighting random_saturation]])
    :gmatch("%S+") do
  examples["_image_" .. name] = { data = PIXELS }
end
for name in ("det extractdiag extracttrian inverse potrf potri slogdet sumlogdiag syevd")
    :gmatch("%S+") do
  examples["_linalg_" .. name] = MATRIX
end
for name in ([[full ones zeros zeros_without_dtype random_exponential random_gamma
    random_generalized_negative_binomial random_negative_binomial random_normal random_poisson
    random_randint random_uniform]]):gmatch("%S+") do
  examples["_" .. name] = SHAPE
end

return examples
