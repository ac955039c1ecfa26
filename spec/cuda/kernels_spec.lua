-- Kernels for GPUs beside the CPU's, on the stand-in whose checker watches every access: equal
-- bits where both compute the same in the same order. All operators' values and gradients are
-- compared where the other specs run on a GPU (TYCHO_TEST_DEVICE).

local devices = require "spec.support.devices_agree"

local COMPARE, agree = devices.SCRIPT, devices.agree

local RANDOM = COMPARE .. [[
for _, dtype in ipairs{"float32", "float64", "float16"} do
  for _, law in ipairs{"uniform", "normal", "exponential"} do
    compare(law .. " " .. dtype, function(ctx)
      return ty.nd["_random_" .. law]{shape = {33, 7}, dtype = dtype, ctx = ctx}
    end)
  end
end
-- parameters per element; what rejects has the CPU's numbers where its functions have its last bits
local PARAMETERS = {uniform = {{0, 1, -3}, {1, 1, 4}}, normal = {{0, 1, -3}, {1, 0, 4}}, exponential = {{1, 2, 0.5}},
  gamma = {{0.5, 2, 9}, {1, 3, 0.5}}, poisson = {{0, 3, 40}}, negative_binomial = {{1, 4, 2}, {0.5, 1, 0.25}},
  generalized_negative_binomial = {{0, 3, 8}, {0.5, 1, 0}}}
for law, given in pairs(PARAMETERS) do
  for _, dtype in ipairs(law:match("gamma") and {"float64"} or {"float32", "float64"}) do
    compare("of rows: " .. law .. " " .. dtype, function(ctx)
      local inputs = {shape = {5}}
      for k, values in ipairs(given) do
        inputs[k] = ty.nd.array{values, ctx = here}:astype(dtype):as_in_context(ctx)
      end
      return ty.nd["_sample_" .. law](inputs)
    end)
  end
end
compare("whole numbers", function(ctx)
  return ty.nd._random_randint{low = -5, high = 2 ^ 40, shape = {100}, dtype = "int64", ctx = ctx}
end)
for _, dtype in ipairs{"float32", "float64", "bfloat16"} do
  for _, axes in ipairs{{}, {1}, {0, 2}} do
    compare("dropout " .. dtype .. " " .. #axes, function(ctx)
      local net = ty.sym.Dropout{data = ty.sym.Variable("x"), p = 0.3, axes = axes}
      local exe = net:simple_bind{ctx = ctx, x = {3, 5, 7}, type_dict = {x = dtype}}
      pattern({3, 5, 7}, ctx, dtype):copyto(exe.arg_dict.x)
      exe:backward{exe:forward{is_train = true}[1]}
      return exe.grad_dict.x
    end)
  end
end
print(select(2, pcall(function()
  return ty.nd._random_normal{scale = -1, shape = {3}, ctx = there}:totable()
end)))
print(select(2, pcall(function()
  local alpha, beta = ty.nd.array({1, 0 / 0, 2}, there), ty.nd.array({1, 1, 1}, there)
  return ty.nd._sample_gamma{alpha, beta, shape = {2}}:totable()
end)))
]]

-- so few rows are added in the CPU's order; of more see lines_spec.lua
local ROWS = COMPARE .. [[
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16"} do
  for _, width in ipairs{3, 8, 200} do
    compare("table " .. dtype .. " " .. width, function(ctx)
      local net = ty.sym.Embedding{data = ty.sym.Variable("i"), weight = ty.sym.Variable("w"),
        input_dim = 11, output_dim = width}
      local exe = net:simple_bind{ctx = ctx, i = {4, 7}, w = {11, width},
        type_dict = {w = dtype, i = "float32"}}
      local index = {}
      for i = 1, 28 do
        index[i] = i * i % 13 - 1
      end
      ty.nd.array{index, ctx = here}:reshape{4, 7}:copyto(exe.arg_dict.i)
      exe:forward{is_train = true}
      exe:backward{pattern({4, 7, width}, ctx, dtype)}
      return exe.grad_dict.w
    end)
  end
end
print(select(2, pcall(function()
  local x = ty.nd.zeros({6, 4}, {ctx = there})
  return ty.nd.take{x, ty.nd.array{{1, 7}, ctx = there}, mode = "raise"}:totable()
end)))
]]

local WINDOWS = COMPARE .. [[
for _, window in ipairs{
  {pool_type = "max", kernel = {2, 2}, stride = {2, 2}},
  {pool_type = "max", kernel = {3, 3}, stride = {2, 2}, pad = {1, 1}, pooling_convention = "full"},
  {pool_type = "max", global_pool = true},
  {pool_type = "sum", kernel = {1, 3}, stride = {1, 3}},
} do
  compare(window.pool_type, function(ctx)
    window.data = ty.sym.Variable("x")
    local exe = ty.sym.Pooling(window):simple_bind{ctx = ctx, x = {2, 3, 7, 9}}
    pattern({2, 3, 7, 9}, ctx, "float32"):copyto(exe.arg_dict.x)
    exe:backward{exe:forward{is_train = true}[1] * 0.5}
    return exe.grad_dict.x
  end)
end
]]

local ORDER = COMPARE .. [[
for _, dtype in ipairs{"float32", "float16", "int64"} do
  for _, axis in ipairs{0, 1} do
    local function data(ctx)
      return (pattern({75, 4}, ctx, "float32") * 20):astype(dtype)
    end
    local name = dtype .. " " .. axis
    compare("sort " .. name, function(ctx)
      return ty.nd.sort{data(ctx), axis = axis}
    end)
    compare("argsort " .. name, function(ctx)
      return ty.nd.argsort{data(ctx), axis = axis, is_ascend = false}
    end)
    compare("topk " .. name, function(ctx)
      return ty.nd.topk{data(ctx), axis = axis, k = 2, ret_typ = "mask"}
    end)
  end
end
for _, op in ipairs{"SequenceMask", "SequenceReverse", "SequenceLast"} do
  compare(op, function(ctx)
    local lengths = ty.nd.array{{0, 1, 9, 2, 3}, ctx = ctx}:reshape{-1}
    return ty.nd[op]{pattern({4, 5, 3}, ctx, "float32"), lengths, use_sequence_length = true}
  end)
end
]]

local LAYERS = COMPARE .. [[
local function close(name, f)
  local a, b, worst, greatest = numbers(f, here), numbers(f, there), 0, 1
  for i = 1, #a do
    worst, greatest = math.max(worst, math.abs(a[i] - b[i])), math.max(greatest, math.abs(a[i]))
  end
  print(name, #a == #b and worst / greatest < 1e-6 and "equal" or "different: " .. worst)
end

for _, mode in ipairs{"lstm", "gru", "rnn_tanh", "rnn_relu"} do
  for _, layers in ipairs{1, 3} do
    local both = layers == 3
    for _, read in ipairs{"x", "p", "h"} do
      close(mode .. " " .. layers .. " " .. read, function(ctx)
        local inputs = {data = ty.sym.Variable("x"), parameters = ty.sym.Variable("p"),
          state = ty.sym.Variable("h"), state_size = 6, num_layers = layers, mode = mode,
          bidirectional = both, state_outputs = both, p = both and 0.4 or 0,
          state_cell = mode == "lstm" and ty.sym.Variable("c") or nil}
        local exe = ty.sym.RNN(inputs):simple_bind{ctx = ctx, x = {4, 3, 5}}
        for _, x in pairs(exe.arg_dict) do
          (pattern(x.shape, ctx, "float32") * 0.3):copyto(x)
        end
        local heads = {}
        for i, y in ipairs(exe:forward{is_train = true}) do
          heads[i] = y * 0.5
        end
        exe:backward(heads)
        return exe.grad_dict[read]
      end)
    end
  end
end

for _, both in ipairs{false, true} do
  for output = 1, 3 do
    close("projected lstm " .. output, function(ctx)
      local exe = ty.sym.RNN{data = ty.sym.Variable("x"), parameters = ty.sym.Variable("p"),
        state = ty.sym.Variable("h"), state_cell = ty.sym.Variable("c"), state_size = 6,
        num_layers = 2, mode = "lstm", projection_size = 3, bidirectional = both,
        state_outputs = true}:simple_bind{ctx = ctx, grad_req = "null", x = {4, 3, 5}}
      for _, x in pairs(exe.arg_dict) do
        (pattern(x.shape, ctx, "float32") * 0.3):copyto(x)
      end
      return exe:forward()[output]
    end)
  end
  for _, read in ipairs{"x", "p", "h", "c"} do
    close("projected lstm, gradient of " .. read, function(ctx)
      local exe = ty.sym.RNN{data = ty.sym.Variable("x"), parameters = ty.sym.Variable("p"),
        state = ty.sym.Variable("h"), state_cell = ty.sym.Variable("c"), state_size = 6,
        num_layers = 2, mode = "lstm", projection_size = 3,
        bidirectional = both}:simple_bind{ctx = ctx, x = {4, 3, 5}}
      for _, x in pairs(exe.arg_dict) do
        (pattern(x.shape, ctx, "float32") * 0.3):copyto(x)
      end
      exe:forward(true)
      exe:backward{pattern({4, 3, both and 6 or 3}, ctx, "float32")}
      return exe.grad_dict[read]
    end)
  end
end
]]

local VISION = COMPARE .. [[
local function net(name, options, inputs, dtype)
  for k in pairs(inputs) do
    options[k] = ty.sym.Variable(k)
  end
  return function(ctx, read)
    local types = {}
    for k in pairs(inputs) do
      types[k] = dtype
    end
    local shapes = {ctx = ctx, type_dict = types}
    for k, x in pairs(inputs) do
      shapes[k] = x.shape
    end
    local exe = ty.sym[name](options):simple_bind(shapes)
    for k, x in pairs(inputs) do
      x:astype(dtype):copyto(exe.arg_dict[k])
    end
    local y = exe:forward{is_train = true}[1]
    if read then
      exe:backward{pattern(y.shape, ctx, dtype)}
    end
    return read and exe.grad_dict[read] or y
  end
end

local function both(name, what, options, inputs, dtype, read)
  local f = net(name, options, inputs, dtype)
  compare(what .. " " .. dtype, f)
  if read then
    compare(what .. " gradient " .. dtype, function(ctx) return f(ctx, read) end)
  end
end

local function make_numbers(list, shape)
  return ty.nd.array{list, ctx = here}:reshape(shape)
end

local image = pattern({2, 3, 9, 11}, here, "float64")
local rois = make_numbers({0, 1, 1, 7, 6, 1, 0, 0, 10, 8, 1, 4, 2, 5, 7, 0, 3, 3, 3, 3}, {4, 5})
local boxes = {}
for i = 1, 40 do
  local x, y = i * 13 % 29 / 10, i * 7 % 23 / 10
  for _, v in ipairs{i % 3, i * 31 % 17 / 17, x, y, x + 1 + i % 5 / 5, y + 1} do
    boxes[#boxes + 1] = v
  end
end
for _, dtype in ipairs{"float32", "float64"} do
  both("ROIPooling", "maxima", {pooled_size = {3, 2}, spatial_scale = 1},
    {data = image, rois = rois}, dtype, "data")
  both("im2col", "columns", {kernel = {3, 2}, stride = {2, 1}, pad = {1, 0}}, {data = image},
    dtype, "data")
  both("_contrib_box_nms", "suppression", {overlap_thresh = 0.3, id_index = 0, topk = 30},
    {data = make_numbers(boxes, {2, 20, 6})}, dtype, "data")
  both("_contrib_bipartite_matching", "pairs", {threshold = 0.01},
    {data = pattern({2, 7, 5}, here, "float64")}, dtype)
  both("_linalg_extracttrian", "triangles", {offset = -1},
    {A = pattern({2, 5, 5}, here, "float64")}, dtype, "A")
end
compare("overlaps", function(ctx)
  local x = pattern({12, 4}, ctx, "float32")
  return ty.nd._contrib_box_iou{x, x + 0.1, format = "center"}
end)
compare("anchors", function(ctx)
  return ty.nd._contrib_MultiBoxPrior{ty.nd.zeros({1, 1, 4, 5}, {ctx = ctx}),
    sizes = {0.3, 0.7}, ratios = {1, 2, 0.5}}
end)
local function anchors(ctx)
  return ty.nd._contrib_MultiBoxPrior{ty.nd.zeros({1, 1, 4, 5}, {ctx = ctx}), sizes = {0.3, 0.7}}
end
for i = 1, 3 do
  compare("targets " .. i, function(ctx)
    local label = make_numbers({1, .1, .1, .5, .5, 0, .4, .4, .9, .8, 2, .3, .2, .6, .9,
      -1, 0, 0, 0, 0}, {2, 2, 5}):as_in_context(ctx)
    local t = ty.nd._contrib_MultiBoxTarget{anchors(ctx), label,
      pattern({2, 4, 40}, ctx, "float32"), negative_mining_ratio = 2,
      negative_mining_thresh = 0.4}
    return t[i]
  end)
end
compare("index_copy", function(ctx)
  local list = ty.nd.array{{3, 0, 3}, ctx = here}:reshape{3}:as_in_context(ctx)
  return ty.nd._contrib_index_copy{pattern({5, 4}, ctx, "float32"), list,
    pattern({3, 4}, ctx, "float32") * 2}
end)
print(select(2, pcall(function()
  return ty.nd._contrib_index_copy{ty.nd.zeros({5, 4}, {ctx = there}),
    ty.nd.array{{1, 5}, ctx = there}:reshape{2}, ty.nd.ones({2, 4}, {ctx = there})}:totable()
end)))
]]

local NEARLY = COMPARE .. [[
local function close(name, make, shapes, fill, dtype)
  for read = 0, make.gradient == false and 0 or 1 do
    local worst, greatest, lists = 0, 1, {}
    for k, ctx in ipairs{here, there} do
      local types, bind = {}, {ctx = ctx}
      for n, s in pairs(shapes) do
        bind[n], types[n] = s, make.types and make.types[n] or dtype
      end
      bind.type_dict = types
      local exe = make.symbol():simple_bind(bind)
      for n, x in pairs(exe.arg_dict) do
        local values = fill[n] and fill[n](shapes[n]) or pattern(shapes[n], here, "float64") * 0.5
        values:astype(x.dtype):copyto(x)
      end
      ty.random.seed(7)
      local y, list = exe:forward{is_train = true}, {}
      if read == 1 then
        local heads = {}
        for i, z in ipairs(y) do
          heads[i] = pattern(z.shape, ctx, z.dtype)
        end
        exe:backward(heads)
      end
      local from = read == 1 and exe.grad_dict or y
      local names = {}
      for n in pairs(from) do names[#names + 1] = n end
      table.sort(names)
      for _, n in ipairs(names) do
        for _, v in ipairs(from[n]:as_in_context(here):astype("float64"):reshape{-1}:totable()) do
          list[#list + 1] = v
        end
      end
      lists[k] = list
    end
    for i = 1, #lists[1] do
      local a, b = lists[1][i], lists[2][i]
      if a == a or b == b then
        worst, greatest = math.max(worst, math.abs(a - b)), math.max(greatest, math.abs(a))
      end
    end
    print(name .. (read == 1 and " gradients" or ""), #lists[1] == #lists[2]
      and worst / greatest < 1e-6 and "equal" or "different: " .. worst)
  end
end

local function op(name, options, inputs, more)
  local make = more or {}
  function make.symbol()
    local given = {}
    for k, v in pairs(options) do
      given[k] = v
    end
    for _, k in ipairs(inputs) do
      given[k] = ty.sym.Variable(k)
    end
    return ty.sym[name](given)
  end
  return make
end

local function of(list)
  return function(shape) return ty.nd.array{list, ctx = here}:reshape(shape) end
end
local regions = of{0, 1, 1, 7, 6, 1, 0, 0, 10, 8, 1, 4, 2, 5, 7}

local dtype = "float32"
close("CTCLoss", op("CTCLoss", {}, {"data", "label"}), {data = {6, 2, 5}, label = {2, 3}},
  {label = of{1, 2, 2, 3, 0, 0}}, dtype)
close("SpatialTransformer", op("SpatialTransformer", {target_shape = {4, 5},
  transform_type = "affine", sampler_type = "bilinear"}, {"data", "loc"}),
  {data = {2, 3, 5, 6}, loc = {2, 6}}, {}, dtype)
close("ROIAlign", op("_contrib_ROIAlign", {pooled_size = {2, 3}, spatial_scale = 0.8},
  {"data", "rois"}), {data = {2, 3, 8, 9}, rois = {3, 5}}, {rois = regions}, dtype)
close("DeformablePSROIPooling", op("_contrib_DeformablePSROIPooling", {pooled_size = 2,
  output_dim = 2, group_size = 2, spatial_scale = 1, sample_per_part = 2, trans_std = 0.1,
  part_size = 2}, {"data", "rois", "trans"}), {data = {2, 8, 8, 9}, rois = {3, 5},
  trans = {3, 2, 2, 2}}, {rois = regions}, dtype)
close("DeformableConvolution", op("_contrib_DeformableConvolution", {kernel = {3, 3},
  num_filter = 4, num_group = 2, num_deformable_group = 2, pad = {1, 1}},
  {"data", "offset", "weight", "bias"}), {data = {2, 4, 5, 6}, offset = {2, 36, 5, 6},
  weight = {4, 2, 3, 3}, bias = {4}}, {}, dtype)
close("Correlation", op("Correlation", {kernel_size = 3, max_displacement = 2, stride1 = 2,
  pad_size = 2, is_multiply = false}, {"data1", "data2"}),
  {data1 = {2, 2, 6, 7}, data2 = {2, 2, 6, 7}}, {}, dtype)
close("fft", op("_contrib_fft", {}, {"data"}), {data = {3, 60}}, {}, dtype)
close("LRN", op("LRN", {nsize = 3}, {"data"}), {data = {2, 5, 3, 4}}, {}, dtype)
close("BilinearResize2D", op("_contrib_BilinearResize2D", {height = 7, width = 4}, {"data"}),
  {data = {2, 2, 5, 6}}, {}, dtype)
close("AdaptiveAvgPooling2D", op("_contrib_AdaptiveAvgPooling2D", {output_size = {3, 4}},
  {"data"}), {data = {2, 2, 7, 6}}, {}, dtype)
close("pdf of normal", op("_random_pdf_normal", {}, {"sample", "mu", "sigma"}),
  {sample = {2, 3, 50}, mu = {2, 3}, sigma = {2, 3}},
  {sigma = of{1, 2, 0.5, 3, 1, 1}}, dtype)
close("count_sketch", op("_contrib_count_sketch", {out_dim = 4}, {"data", "h", "s"}),
  {data = {3, 7}, h = {1, 7}, s = {1, 7}}, {h = of{0, 3, 1, 3, 3, 0, 2},
  s = of{1, -1, 1, 1, -1, 1, 1}}, dtype)
close("potrf", op("_linalg_potrf", {}, {"A"}), {A = {2, 3, 3}}, {A = of{4, 1, 2, 1, 5, 3, 2, 3, 6,
  2, 0.5, 0.1, 0.5, 3, 1, 0.1, 1, 7}}, dtype)
print(select(2, pcall(function()
  return ty.nd._linalg_potrf{ty.nd.zeros({2, 2}, {ctx = there}) - 1}:totable()
end)))
close("linear_cross_entropy", op("_contrib_linear_cross_entropy", {num_hidden = 5,
  use_ignore = true, ignore_label = 3, normalization = "valid"}, {"data", "weight", "bias",
  "label"}), {data = {6, 4}, weight = {5, 4}, bias = {5}, label = {6}},
  {label = of{0, 3, 4, 1, 2, 2}}, dtype)
close("linear_cross_entropy, none ignored", op("_contrib_linear_cross_entropy", {num_hidden = 5,
  no_bias = true, ignore_label = 3, normalization = "valid"}, {"data", "weight", "label"}),
  {data = {6, 4}, weight = {5, 4}, label = {6}}, {label = of{0, 3, 4, 1, 2, 2}}, dtype)
close("trmm", op("_linalg_trmm", {transpose = true, alpha = 2}, {"A", "B"}),
  {A = {2, 4, 4}, B = {2, 4, 3}}, {}, dtype)
close("trsm", op("_linalg_trsm", {rightside = true, lower = false}, {"A", "B"}),
  {A = {2, 3, 3}, B = {2, 4, 3}}, {A = of{2, .3, .1, 9, 1, .4, 9, 9, 3, 1, .2, .5, 9, 2, .1, 9, 9,
  1}}, dtype)
]]

-- What failures of runs say that a kernel finds: of a node in the middle of a run, also where the
-- choice of a later branch waits for the device; of one of two nodes of an operator.
local FAILURES = devices.SCRIPT .. [[
local S = ty.sym
local V = S.Variable
local function failure(ctx, net, arrays)
  local args = {}
  for name, t in pairs(arrays) do
    args[name] = ty.nd.array(t, {ctx = ctx})
  end
  local e = select(2, pcall(function()
    return net:bind{ctx = ctx, args = args, grad_req = "null"}:forward()[1]:totable()
  end))
  return ("%s %s: %s"):format(e.op, e.node, e.code)
end
local function check(name, net, arrays)
  local mine, theirs = failure(here, net, arrays), failure(there, net, arrays)
  print(name, theirs, mine == theirs and "equal" or "different: " .. mine)
end
local function taken(i, name) return S.take{V "x", V(i), mode = "raise", name = name} end
local X = {{1, 2}, {3, 4}}
check("rows", S.tanh(taken("i", "rows")) + 1, {x = X, i = {1, 7}})
check("second rows", taken("i", "first") + taken("j", "second"), {x = X, i = {0, 1},
  j = {1, 7}})
local rows = taken("i", "rows")
check("before a branch", S.contrib.cond(V "p", function() return rows * 2 end,
  function() return S.identity(V "z") end), {x = X, i = {0, 7}, p = {1}, z = X})
check("draws", S._sample_gamma{V "a", V "b", name = "draws"} * 2, {a = {1, -1}, b = {1, 1}})
check("choices", S._sample_multinomial{V "p", name = "choices"}, {p = {{1, 2}, {0, 0}}})
check("factor", S._linalg_potrf{V "x", name = "factor"} * 2, {x = {{-1, 0}, {0, -1}}})
]]

describe("a failure that a kernel for GPUs finds", function()
  it("names the node", function()
    local text = agree(pending, FAILURES, 6)
    if text then
      assert.matches("take second: run", text, 1, true)
    end
  end)
end)

describe("a kernel for GPUs gives the CPU's bits", function()
  it("of random numbers and Dropout", function()
    local text = agree(pending, RANDOM, 32)
    if text then
      local refused = "bad parameters at 1; expected finite numbers above 0 [operator \z
        _sample_gamma]"
      assert.matches(refused, text, 1, true)
      assert.matches("bad parameters: loc = 0, scale = -1", text, 1, true)
    end
  end)

  it("of rows that indices name; what is out of range is an error", function()
    local text = agree(pending, ROWS, 12)
    if text then
      assert.matches("index 7 at position 1 is out of range; expected 0 to 5 [operator take]",
        text, 1, true)
    end
  end)

  it("of pooling", function()
    agree(pending, WINDOWS, 4)
  end)

  it("of sorted lines, and sequences of unequal length", function()
    agree(pending, ORDER, 21)
  end)

  it("of recurrent layers, nearly", function()
    agree(pending, LAYERS, 38)
  end)

  it("of regions, boxes, windows, triangles and lists of rows", function()
    local text = agree(pending, VISION, 24)
    if text then
      assert.matches("index 5 at position 1 is out of range; expected 0 to 4", text, 1, true)
    end
  end)

  it("of samples, losses, columns and equations, nearly", function()
    local text = agree(pending, NEARLY, 34)
    if text then
      assert.matches("matrix 0 is not positive definite [operator _linalg_potrf]", text, 1, true)
    end
  end)
end)

describe("a source of kernels", function()
  it("opens with what it does, its method and its bound", function()
    local n = 0
    for name in require("lfs").dir("native/cuda/kernels") do
      if name:find("%.cu$") then
        local head = ("\n" .. require("spec.support.folder").read("native/cuda/kernels/" .. name))
          :match("^(\n// .-)\n[^/]")
        assert.matches("^\n// " .. name:gsub("%p", "%%%0") .. " %- .+Method:.+Bound:", head)
        n = n + 1
      end
    end
    assert.is_true(n > 40)
  end)
end)
