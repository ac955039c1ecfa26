-- Calls that must be refused, one a line, with all that is said of them: shapes that do not fit,
-- sizes that nothing holds, parameters that contradict each other.
local ty = require "tycho"
require "spec.helper"

local sym = ty.sym
local V = sym.Variable

local LINES = {}

-- Adds a line: the operator on inputs of these shapes is refused with this message.
local function refused(operator, code, shapes, params, text)
  LINES[#LINES + 1] = {operator, code, shapes, params, text}
end

-- 17 ones, and 16
local many = {}
for i = 1, 17 do many[i] = 1 end
local sixteen = {unpack(many, 1, 16)}

refused("topk", "value", {{300}}, {dtype = "uint8"},
  "parameter dtype: uint8 cannot count 300 elements")
refused("topk", "value", {{4}}, {axis = -2},
  "axis -2 of an array of 1 dimensions; expected -1 to 0")
refused("topk", "value", {{4}}, {axis = 1}, "axis 1 of an array of 1 dimensions; expected -1 to 0")
refused("argsort", "value", {{3000}}, {dtype = "float16", axis = "None"},
  "parameter dtype: float16 cannot count 3000 elements")
refused("argsort", "value", {{2, 2^25}}, {},
  "parameter dtype: float32 cannot count 33554432 elements")
refused("_linalg_extractdiag", "shape", {{2, 2}}, {offset = 2},
  "A: matrices of side 2 have no diagonal at offset 2")
refused("_linalg_makediag", "shape", {{50000000}}, {},
  "A: a matrix of side 50000000; at most 33554431")
refused("_linalg_maketrian", "shape", {{2^40}}, {},
  "A: 1099511627776 numbers do not fill a triangle: expected 1, 3, 6, 10 ...")
refused("_linalg_maketrian", "shape", {{4}}, {},
  "A: 4 numbers do not fill a triangle: expected 1, 3, 6, 10 ...")
refused("_linalg_syevd", "shape", {{32001, 32001}}, {},
  "A: matrices of 32001 rows; LAPACK finds the eigenvalues of at most 32000")
refused("_linalg_gelqf", "shape", {{4, 3}}, {},
  "A: expected at most as many rows as columns, got 4 and 3")
refused("_linalg_potrf", "shape", {{2^26, 2^26}}, {},
  "A: a matrix of 67108864 rows or columns; at most 33554431")
refused("_linalg_trsm", "shape", {{2^26, 2^26}, {2^26, 2}}, {},
  "A: a matrix of 67108864 rows or columns; at most 33554431")
refused("Deconvolution", "value", {}, {kernel = {2, 2}, num_filter = 1, target_shape = {-1, 2}},
  "parameter target_shape: expected entries from 0 on, got -1")
refused("Deconvolution", "value", {}, {kernel = {2, 2}, num_filter = 1, target_shape = {2}},
  "parameter target_shape: expected as many entries as kernel has, got 1")
refused("Deconvolution", "value", {}, {kernel = {2, 2}, num_filter = 1, adj = {0, 1}},
  "parameter adj: expected entries smaller than stride, got 1")
refused("Deconvolution", "value", {}, {kernel = {2, 2}, num_filter = 1, adj = {0, -1}},
  "parameter adj: expected entries smaller than stride, got -1")
refused("Deconvolution", "value", {}, {kernel = {2, 2}, num_filter = 1, adj = {0}},
  "parameter adj: expected as many entries as kernel has, got 1")
refused("Deconvolution", "shape", {{1, 3, 2, 2}}, {kernel = {2, 2}, num_filter = 2, num_group = 2},
  "data: 3 channels cannot be divided into 2 groups")
refused("Deconvolution", "shape", {{1, 3, 2, 2}},
  {kernel = {2, 2}, num_filter = 2, target_shape = {9, 2}},
  "output: target_shape wants 9 elements on axis 2, but only 3 exist")
refused("Deconvolution", "shape", {{1, 3, 2, 2}}, {kernel = {2, 2}, num_filter = 2, pad = {2, 0}},
  "output: axis 2 would have -1 elements")
refused("Embedding", "shape", {sixteen}, {input_dim = 2, output_dim = 2},
  "data: 16 dimensions; at most 15 are possible")
refused("_contrib_quantized_embedding", "shape", {sixteen}, {input_dim = 2, output_dim = 2},
  "data: 16 dimensions; at most 15 are possible")
refused("broadcast_to", "value", {{1}}, {shape = many},
  "parameter shape: expected at most 16 numbers, got '17'")
refused("_zeros", "value", {}, {shape = many},
  "parameter shape: expected at most 16 numbers, got '17'")
refused("Reshape", "shape", {{1}}, {shape = many}, "shape: more than 16 dims")
refused("Reshape", "shape", {sixteen}, {shape = {1, -2, 1}}, "shape: more than 16 dims")
refused("Reshape", "shape", {sixteen}, {shape = {-4, 1, 1, -2, 1}}, "shape: more than 16 dims")
refused("Reshape", "shape", {{4}}, {shape = {1, -4, 2, 2}},
  "data: shape: code -4 needs a dim, but all 1 are used")
refused("Reshape", "value", {{4}}, {shape = {-4, 0, 2}},
  "shape: -4 expects two positive dims, one of them may be -1, got 0 and 2")
refused("Reshape", "value", {{4}}, {shape = {-4, 2, 0}},
  "shape: -4 expects two positive dims, one of them may be -1, got 2 and 0")
refused("Reshape", "value", {{4}}, {shape = {-4, -1, -1}},
  "shape: -4 expects two positive dims, one of them may be -1, got -1 and -1")
refused("Reshape", "value", {{4}}, {shape = {-4, -2, 2}},
  "shape: -4 expects two positive dims, one of them may be -1, got -2 and 2")
refused("Reshape", "value", {{4}}, {shape = {-4, 2, -3}},
  "shape: -4 expects two positive dims, one of them may be -1, got 2 and -3")
refused("Reshape", "shape", {{4}}, {shape = {-4, 3, 2}},
  "data: shape: -4 cannot split 4 into 3 and 2")
refused("Reshape", "value", {{4}}, {shape = {-4, 2}}, "shape: -4 needs two dims after it")
refused("Reshape", "shape", {{4}}, {shape = {-3}},
  "data: shape: code -3 needs a dim, but all 1 are used")
refused("Reshape", "shape", {{4}}, {shape = {1, -3}},
  "data: shape: code -3 needs a dim, but all 1 are used")
refused("Reshape", "value", {{4}}, {shape = {-5}}, "shape: expected dims or codes 0 to -4, got -5")
refused("Reshape", "value", {{4}}, {shape = {-1, -1}}, "shape: only one -1 is possible")
refused("Reshape", "value", {{4}}, {target_shape = many},
  "parameter target_shape: expected at most 16 numbers, got '17'")
refused("reshape_like", "value", {{2, 3}, {6}}, {lhs_begin = -3, lhs_end = 1},
  "lhs: dims -1 to 1 of 2 cannot be replaced")
refused("reshape_like", "value", {{2, 3}, {6}}, {lhs_begin = 0, lhs_end = 3},
  "lhs: dims 0 to 3 of 2 cannot be replaced")
refused("reshape_like", "value", {{2, 3}, {6}}, {lhs_begin = 2, lhs_end = 1},
  "lhs: dims 2 to 1 of 2 cannot be replaced")
refused("reshape_like", "value", {{2, 3}, {6}}, {lhs_begin = 2, lhs_end = 2},
  "lhs: dims 2 to 2 of 2 cannot be replaced")
refused("reshape_like", "value", {{2, 3}, {6}}, {rhs_begin = 1},
  "rhs: dims 1 to 1 of 1 cannot be replaced")
refused("reshape_like", "value", {{2, 3}, {6}}, {rhs_begin = 0, rhs_end = -2},
  "rhs: dims 0 to -1 of 1 cannot be replaced")
refused("broadcast_like", "value", {{1, 3}, {2}}, {lhs_axes = {0}},
  "lhs_axes and rhs_axes must list equally many axes, at least one")
refused("broadcast_like", "value", {{1, 3}, {2}}, {lhs_axes = {0}, rhs_axes = {0, 0}},
  "lhs_axes and rhs_axes must list equally many axes, at least one")
refused("broadcast_like", "value", {{1, 3}, {2}}, {lhs_axes = {}, rhs_axes = {}},
  "lhs_axes and rhs_axes must list equally many axes, at least one")
refused("broadcast_like", "value", {{1, 3}, {2}}, {lhs_axes = {0}, rhs_axes = {1}},
  "axis 1 of an array of 1 dimensions; expected -1 to 0")
refused("broadcast_like", "value", {{1, 3}, {2}}, {lhs_axes = {2}, rhs_axes = {0}},
  "axis 2 of an array of 2 dimensions; expected -2 to 1")
refused("broadcast_like", "shape", {{1, 3}, {2}}, {},
  "rhs: it has 1 dimensions, lhs has 2; list the axes")
refused("_contrib_box_iou", "shape", {{1,1,1,1,1,1,1,1,1,2,4}, {1,1,1,1,1,1,1,1,2,4}}, {},
  "the result would have 19 dimensions; at most 16")
refused("_contrib_box_iou", "shape", {{4}, {2, 4}}, {},
  "lhs: expected (..., boxes, 4), got 1 dimension")
refused("_contrib_DeformableConvolution", "shape", {{1, 1, 65536, 65536}},
  {kernel = {65536, 65536}, num_filter = 1},
  "data: a window of 4294967296 taps for 1 groups is too large")
refused("_contrib_MultiBoxTarget", "shape", {{1, 2, 4}, {1, 2, 5}, {1, 1, 2}}, {},
  "cls_pred: expected the background and at least one class")
refused("_contrib_MultiBoxTarget", "shape", {{1, 2, 4}, {1, 2, 4}, {1, 2, 2}}, {},
  "label: expected class and four corners per object, got 4 numbers")
refused("_contrib_DeformablePSROIPooling", "shape", {{1, 4, 4, 4}, {1, 5}, {1, 3, 2, 2}},
  {spatial_scale = 1, output_dim = 1, group_size = 2, pooled_size = 2},
  "trans: 3 channels; expected two for each class, whose number divides output_dim 1")
refused("_contrib_DeformablePSROIPooling", "shape", {{1, 12, 4, 4}, {1, 5}, {1, 4, 2, 2}},
  {spatial_scale = 1, output_dim = 3, group_size = 2, pooled_size = 2},
  "trans: 4 channels; expected two for each class, whose number divides output_dim 3")
refused("Correlation", "shape", {{1, 1, 2, 2}, {1, 1, 2, 2}}, {kernel_size = 3},
  "data1: 2 x 2 pixels with padding are too few for displacement 1 and kernel 3")
refused("Correlation", "shape", {{1, 1, 9, 2}, {1, 1, 9, 2}}, {kernel_size = 3},
  "data1: 9 x 2 pixels with padding are too few for displacement 1 and kernel 3")
refused("Pad", "value", {{1, 1, 2}}, {mode = "edge", pad_width = {0, 0, 0, 0, 1, 1}},
  "pad_width: expected 8 or 10 entries, got 6")
refused("Pad", "value", {{1, 1, 2, 2}}, {mode = "edge", pad_width = {0, 0, 0, 0, 1, 1, 1, 1, 1}},
  "pad_width: expected 8 or 10 entries, got 9")
refused("Crop", "shape", {{1, 1, 2, 2}}, {num_args = 1, h_w = {3, 1}},
  "arg0: a window of 3 from 0 does not fit in 2 on axis 2")
refused("Crop", "shape", {{1, 1, 2, 2}}, {num_args = 1, h_w = {1, 1}, offset = {0, 2}},
  "arg0: a window of 1 from 2 does not fit in 2 on axis 3")
refused("Crop", "shape", {{1, 1, 2, 2}}, {num_args = 1, h_w = {1, 1}, offset = {-1, 0}},
  "arg0: a window of 1 from -1 does not fit in 2 on axis 2")
refused("_image_resize", "value", {{4, 4, 3}}, {size = {2^21}}, "size: expected at most 1048576")
refused("_sample_unique_zipfian", "value", {}, {range_max = 10, shape = {2}},
  "shape: expected two positive dims")
refused("_sample_unique_zipfian", "value", {}, {range_max = 10, shape = {0, 2}},
  "shape: expected two positive dims")
refused("_sample_unique_zipfian", "value", {}, {range_max = 10, shape = {2, 0}},
  "shape: expected two positive dims")
refused("_sample_unique_zipfian", "value", {}, {range_max = 10, shape = {2, 11}},
  "11 different numbers below 10 do not exist")
refused("_sample_normal", "shape", {{2, 2}, {2, 2}}, {shape = {unpack(many, 1, 15)}},
  "output: 17 dimensions; at most 16 are possible")
refused("_random_normal", "value", {}, {shape = many},
  "parameter shape: expected at most 16 numbers, got '17'")
refused("_sample_multinomial", "value", {{2, 2}}, {shape = many},
  "parameter shape: expected at most 16 numbers, got '17'")
refused("im2col", "shape", {{1, 1, 4, 4}}, {kernel = {5, 1}},
  "data: the window does not fit into axis 2 of 4 elements with its padding")
refused("col2im", "shape", {{1, 5, 4}}, {kernel = {2, 2}, output_size = {3, 3}},
  "data: 5 rows are not a multiple of the window's 4 elements")
refused("col2im", "shape", {{1, 4, 5}}, {kernel = {2, 2}, output_size = {3, 3}},
  "shape of data is (1, 4, 5), but (?, ?, 4) is needed here")
refused("_ravel_multi_index", "shape", {{3, 2}}, {shape = {2, 2}},
  "shape of data is (3, 2), but (2, ?) is needed here")
refused("one_hot", "shape", {sixteen}, {depth = 2},
  "output: 17 dimensions; at most 16 are possible")
refused("stack", "shape", {sixteen, sixteen}, {axis = 0},
  "output: 17 dimensions; at most 16 are possible")
refused("expand_dims", "shape", {sixteen}, {axis = 0},
  "output: 17 dimensions; at most 16 are possible")
refused("take", "shape", {sixteen, {1, 1, 1}}, {axis = 0},
  "output: 18 dimensions; at most 16 are possible")
refused("gather_nd", "shape", {{2, 2}, {3, 1}}, {},
  "indices: 3 coordinates for an array of 2 dimensions")
refused("scatter_nd", "shape", {{1}, {3, 1}}, {shape = {2, 2}},
  "indices: 3 coordinates for an array of 2 dimensions")
refused("dot", "shape", {sixteen, {1, 1, 1}}, {}, "output: 17 dimensions; at most 16 are possible")
refused("diag", "value", {{2, 2}}, {k = 2}, "data: diagonal 2 is outside a matrix of 2 x 2")
refused("diag", "value", {{2, 2}}, {k = -2}, "data: diagonal -2 is outside a matrix of 2 x 2")
refused("diag", "value", {{2, 2, 2}}, {axis1 = 1, axis2 = -2},
  "axis1 and axis2 are the same axis 1")
refused("_contrib_calibrate_entropy", "shape", {{3}, {4}}, {},
  "hist: 3 bins are fewer than num_quantized_bins")
refused("_contrib_calibrate_entropy", "shape", {{300}, {4}}, {},
  "shape of hist_edges is (4,), but (301,) is needed here")
refused("_cvimdecode", "shape", {{2, 2}}, {},
  "buf: expected the bytes of a file, one dimension, got 2")
refused("UpSampling", "shape", {{1, 1, 2, 2}, {1, 1, 3, 3}},
  {scale = 2, sample_type = "nearest", num_args = 2},
  "arg1: its size 3 does not divide the output's 4 on axis 2")
refused("softmax", "shape", {{2, 3}, {3}}, {use_length = true},
  "shape of length is (3,), but (2,) is needed here")
refused("khatri_rao", "shape", {{2, 3}, {2, 4}}, {},
  "shape of arg0 is (2, 3), but (?, 4) is needed here")
refused("LRN", "shape", {{1, 2, 3}}, {nsize = 1},
  "data: expected (batch, channels, height, width), got 3 dimensions")
refused("GroupNorm", "shape", {{1, 3, 3}}, {num_groups = 2},
  "data: 3 channels cannot be split into 2 groups")
refused("SliceChannel", "shape", {{2, 3}}, {num_outputs = 2},
  "data: axis 1 has size 3, which 2 pieces do not divide")
refused("SliceChannel", "value", {{2, 3}}, {num_outputs = 3, axis = 2},
  "axis 2 of an array of 2 dimensions; expected -2 to 1")
refused("_split_v2", "shape", {{3}}, {indices = {0, 4}, axis = 0},
  "data: axis 0 has size 3: piece 0 would be empty or outside")
refused("_split_v2", "shape", {{3}}, {indices = {2, 1}, axis = 0},
  "data: axis 0 has size 3: piece 0 would be empty or outside")
refused("_split_v2", "shape", {{4}}, {indices = {0}, axis = 0, sections = 5},
  "data: axis 0 has size 4: piece 4 would be empty or outside")
refused("_split_v2", "shape", {{4}}, {indices = {0, 2}, axis = 0, squeeze_axis = true},
  "data: squeeze_axis needs pieces of size 1, piece 0 has 2")
refused("RNN", "shape", {{2, 2}}, {mode = "gru", state_size = 2, num_layers = 1},
  "data: expected (time, batch, input), got 2 dimensions")

refused("_adamw_update", "shape", {{2, 3}, {2, 3}, {2, 3}, {2, 3}, {3}}, {lr = 0.1, eta = 1},
  "shape of rescale_grad is (3,), but (1,) is needed here")
refused("_mp_adamw_update", "shape", {{3}, {3}, {3}, {3}, {3}, {1, 1}}, {lr = 0.1, eta = 1},
  "shape of rescale_grad is (1, 1), but (1,) is needed here")
refused("_multi_adamw_update", "shape", {{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2, 1}},
  {num_weights = 1, lrs = {0.1}, wds = {0}, etas = {1}},
  "shape of rescale_grad is (2, 1), but (1, 1) is needed here")
refused("lamb_update_phase2", "shape", {{2, 3}, {2, 3}, {1}, {3}}, {lr = 0.1},
  "shape of r2 is (3,), but (1,) is needed here")

-- None in a list: bounds alone have it
local function refused_list(operator, params, name, text)
  refused(operator, "value", {}, params,
    ("parameter %s: expected a list of ints, got '%s'"):format(name, text))
end
refused_list("Reshape", {shape = "(None, 2)"}, "shape", "(None, 2)")
refused_list("reverse", {axis = "None"}, "axis", "None")
refused_list("transpose", {axes = "(1, None)"}, "axes", "(1, None)")
refused("sum", "value", {}, {axis = "(None, 0)"},
  "parameter axis: expected a list of ints or None, got '(None, 0)'")
refused("slice", "shape", {{4, 5}}, {begin = {ty.null, 5}, end_ = "(2, None)"},
  "data: nothing is left of axis 1 with size 5")

local function check(line)
  local operator, code, shapes, params, text = unpack(line)
  local options, given = {name = "op"}, {}
  for k, v in pairs(params) do options[k] = v end
  for k, shape in ipairs(shapes) do
    options[k], given["x" .. k] = V("x" .. k), shape
  end
  local e = assert.raises(code, function()
    sym[operator](options):infer_shape_partial(given)
  end)
  assert.equal(text, e.message)
  assert.equal(operator, e.op)
  assert.equal("op", e.node)
end

describe("refused, with all that is said of it:", function()
  local count = {}
  for _, line in ipairs(LINES) do
    count[line[1]] = (count[line[1]] or 0) + 1
    it(("%s %d"):format(line[1], count[line[1]]), function() check(line) end)
  end

  it("Concat of less than its inputs need", function()
    local net = sym.elemwise_add{sym.Concat{V("a"), V("b"), dim = 0, name = "op"}, V("sum")}
    local e = assert.raises("shape", net.infer_shape_partial, net, {a = {3}, sum = {3}})
    assert.equal("output: size 3 along axis 0, but the inputs need more", e.message)
    assert.same({{3}, {2}, {5}}, (net:infer_shape{a = {3}, sum = {5}}))
  end)
end)
