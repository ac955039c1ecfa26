-- What operators that take indices, classes, lengths or places make of those that are not there:
-- clipped, wrapped around, left out, or refused; fractions are cut off. One line per operator;
-- three of everything, so that 0, 1 and 2 are there.
local device = require "spec.support.device"
local ty = require "tycho"
require "spec.helper"

local nd = ty.nd
local A, ROW, STEPS = nd.array{10, 20, 30}, nd.array{{10, 20, 30}}, nd.array{{{1}}, {{2}}, {{3}}}
local IMAGE, CORNERS = nd.ones{1, 1, 4, 4}, {0, 0, 2, 2}
local REFUSED = "refused"

local function int(i) return nd.Cast{i, dtype = "int32"} end
local function onto(name, options, out)
  options.out = out
  return nd[name](options)
end
local function make_table(name, sparse)
  return function(i)
    return nd[name]{i, nd.array{{10}, {20}, {30}}, input_dim = 3,
      output_dim = 1, sparse_grad = sparse}
  end
end
local function region(i, more)
  local t = {i:asscalar()}
  for k, v in ipairs(more or CORNERS) do t[k + 1] = v end
  return nd.array{t}
end

local LINES = {}
-- Adds a line. at: the result of each index of INDEX, or one result for all.
local function add(name, f, at) LINES[#LINES + 1] = {name = name, f = f, at = at} end

local INDEX = {-1, 3, 1.7, 1e9, -1e9, 0 / 0, 1 / 0, -1 / 0}
local ALL_REFUSED = {REFUSED, REFUSED, nil, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED}
local CLIPPED = {10, 30, 20, 30, 10, 10, 30, 10}          -- NaN counts as the least integer
local function refused_but(second)
  local t = {unpack(ALL_REFUSED, 1, 8)}
  t[3] = second
  return t
end

add("take, clip", function(i) return nd.take(A, i) end, CLIPPED)
add("take, wrap", function(i)
  return nd.take(A, i, {mode = "wrap"})
end, {30, 10, 20, 20, 30, 20, 20, 20})
add("take, raise", function(i) return nd.take(A, i, {mode = "raise"}) end, refused_but(20))
add("pick, clip", function(i) return nd.pick(ROW, i) end, CLIPPED)
add("pick, wrap", function(i)
  return nd.pick(ROW, i, {mode = "wrap"})
end, {30, 10, 20, 20, 30, 20, 20, 20})
add("batch_take", function(i) return nd.batch_take(ROW, i) end, CLIPPED)
add("Embedding", make_table("Embedding"), CLIPPED)
add("Embedding, sparse_grad", make_table("Embedding", true), refused_but(20))
add("_contrib_SparseEmbedding", make_table("_contrib_SparseEmbedding"), CLIPPED)
add("one_hot", function(i) return nd.one_hot(i, {depth = 3}) end, {
  {0, 0, 0}, {0, 0, 0}, {0, 1, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0},
  {0, 0, 0}})
add("gather_nd", function(i)
  return nd.gather_nd(A, i:reshape{1, 1})
end, {30, REFUSED, 20, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED})
add("scatter_nd", function(i)
  return nd.scatter_nd(nd.array{5}, i:reshape{1, 1}, {shape = {3}})
end, refused_but{0, 5, 0})
add("_scatter_set_nd", function(i)
  return onto("_scatter_set_nd", {A, nd.array{5}, i:reshape{1, 1}, shape = {3}}, A:copy())
end, refused_but{10, 5, 30})
add("_contrib_index_copy", function(i)
  return nd._contrib_index_copy(A:reshape{3, 1}, i, nd.array{{9}})
end, refused_but{10, 9, 30})
add("_sparse_retain", function(i) return nd._sparse_retain(A, i) end, refused_but{0, 20, 0})
add("fill_element_0index", function(i)
  return nd.fill_element_0index(ROW, nd.array{9}, i)
end, refused_but{10, 9, 30})
add("_onehot_encode", function(i)
  local o = nd.zeros{1, 3}
  return onto("_onehot_encode", {i, o}, o)
end, refused_but{0, 1, 0})
add("_contrib_count_sketch", function(i)
  return nd._contrib_count_sketch(nd.array{{1}}, i:reshape{1, 1}, nd.array{{1}}, {out_dim = 3})
end, refused_but{0, 1, 0})
add("SequenceLast", function(i)
  return nd.SequenceLast(STEPS, i, {use_sequence_length = true})
end, {1, 3, 1, 3, 1, 1, 3, 1})
add("SequenceMask", function(i)
  return nd.SequenceMask(STEPS, i, {use_sequence_length = true, value = -1})
end, {{-1, -1, -1}, {1, 2, 3}, {1, -1, -1}, {1, 2, 3}, {-1, -1, -1}, {-1, -1, -1},
  {1, 2, 3}, {-1, -1, -1}})
add("SequenceReverse", function(i)
  return nd.SequenceReverse(STEPS, i, {use_sequence_length = true})
end, {{1, 2, 3}, {3, 2, 1}, {1, 2, 3}, {3, 2, 1}, {1, 2, 3}, {1, 2, 3}, {3, 2, 1}, {1, 2, 3}})
add("softmax, use_length", function(i)
  return nd.softmax(nd.zeros{1, 3}, int(i), {use_length = true})
end, {{0, 0, 0}, {1 / 3, 1 / 3, 1 / 3},
  -- NaN and what does not fit: the least int32
  {1, 0, 0}, {1 / 3, 1 / 3, 1 / 3}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}})
add("softmax_cross_entropy", function(i)
  return nd.softmax_cross_entropy(nd.zeros{1, 3}, i)
end, math.log(3))
add("SoftmaxOutput", function(i)
  return nd.SoftmaxOutput(nd.zeros{1, 3}, i)
end, {1 / 3, 1 / 3, 1 / 3, every = true})
add("ROIPooling", function(i)
  return nd.ROIPooling(IMAGE, region(i), {pooled_size = {1, 1}, spatial_scale = 1})
end, 0)
add("_contrib_ROIAlign", function(i)
  return nd._contrib_ROIAlign(IMAGE, region(i), {pooled_size = {1, 1}, spatial_scale = 1})
end, 0)
add("_contrib_RROIAlign", function(i)
  return nd._contrib_RROIAlign(IMAGE, region(i, {1, 1, 2, 2, 0}),
    {pooled_size = {1, 1}, spatial_scale = 1})
end, 0)
for name in ("_contrib_PSROIPooling _contrib_DeformablePSROIPooling"):gmatch("%S+") do
  add(name, function(i)
    return nd[name]{IMAGE, region(i), pooled_size = 1, spatial_scale = 1, output_dim = 1,
      group_size = 1, no_trans = name:find("Def") and true or nil}
  end, 0)
end
add("_contrib_box_encode", function(i)
  local box = nd.array{{{0, 0, 1, 1}}}
  return nd._contrib_box_encode(nd.ones{1, 1}, i:reshape{1, 1}, box, box,
    nd.zeros{4}, nd.ones{4})[1]
end, {0, 0, 0, 0, every = true})
add("_histogram", function(i)
  return nd._histogram(i, {bin_cnt = 3, range = {0, 3}})[1]
end, {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}})

local function check(line, k)
  local want = type(line.at) ~= "table" and line.at or line.at.every and line.at or line.at[k]
  local ok, got = pcall(function()
    return nd.Cast{line.f(nd.array{INDEX[k]}), dtype = "float64"}:reshape{-1}:totable()
  end)
  if want == REFUSED then
    assert(not ok and ty.is_error(got) and got.code == "run",
      ("index %g must be refused, got %s"):format(INDEX[k],
        ok and table.concat(got, " ") or tostring(got)))
  else
    assert(ok, tostring(got))
    want = type(want) == "table" and {unpack(want)} or {want}
    assert.near(want, got, 1e-6)
  end
end

describe("indices that are not there:", function()
  for _, line in ipairs(LINES) do
    it(line.name, function()
      for k in ipairs(INDEX) do check(line, k) end
    end)
  end

  it("gradients go to what was taken in their place", function()
    local s = ty.sym.take{ty.sym.Variable("a"), ty.sym.Variable("i"), mode = "clip"}
    local exe = s:simple_bind{ctx = ty.cpu(), a = {3}, i = {4},
      grad_req = {a = "write", i = "null"}}
    exe.arg_dict.i[":"] = {-7, 0, 2, 99}
    exe:forward{is_train = true}
    exe:backward(nd.array{1, 2, 4, 8})
    assert.near({3, 0, 12}, exe.grad_dict.a)
  end)

  it("classes that do not exist give a label no place in the gradient", function()
    local s = ty.sym.SoftmaxOutput{ty.sym.Variable("x"), ty.sym.Variable("label")}
    local exe = s:simple_bind{ctx = ty.cpu(), x = {2, 2}, label = {2}}
    exe.arg_dict.x[":"] = 0
    for _, class in ipairs{5, -3, 0 / 0} do
      exe.arg_dict.label[":"] = class
      exe:forward{is_train = true}
      exe:backward()
      assert.near({{0.5, 0.5}, {0.5, 0.5}}, exe.grad_dict.x)
    end
  end)
end)

describe("numbers that nothing can hold are refused:", function()
  local CALLS = {
    _zeros_without_dtype = {{shape = {1}, dtype = 65537}, {shape = {1}, dtype = 8}},
    _contrib_DeformablePSROIPooling = {{IMAGE, region(nd.array{0}), pooled_size = 1,
      spatial_scale = 1, output_dim = 1, group_size = 1,
      no_trans = true, sample_per_part = 2147483647}},
    _contrib_ROIAlign = {{IMAGE, region(nd.array{0}), pooled_size = {1, 1}, spatial_scale = 1,
      sample_ratio = 65537}},
    tile = {{nd.ones{4, 3}, reps = {3, 2 ^ 62}}},
    Pooling = {{IMAGE, kernel = {2, 2}, pad = {2 ^ 62, 0}}},
    col2im = {{nd.ones{1, 8, 9}, kernel = {2, 2}, output_size = {4, 2 ^ 62}}},
    ["repeat"] = {{nd.ones{2}, repeats = 2 ^ 62}},
    _contrib_PSROIPooling = {{IMAGE, region(nd.array{0}), pooled_size = 1, spatial_scale = 1,
      output_dim = 1, group_size = 65537}},
  }
  it("RNN", function()
    local s = ty.sym.RNN{ty.sym.Variable("x"), state_size = 2 ^ 62, num_layers = 1, mode = "lstm"}
    assert.raises("shape", s.infer_shape, s, {x = {2, 2, 2}})
  end)

  for name, calls in pairs(CALLS) do
    it(name, function()
      for _, options in ipairs(calls) do assert.raises("value", nd[name], options) end
    end)
  end
end)

describe("indices that are no longer there when gradients are made are refused:", function()
  local V = ty.sym.Variable

  -- Asserts that a bad index is refused in a later run. arguments: shapes; the index is good in
  -- forward. GPUs report late failures with a text of their own.
  local function refused_late(net, arguments, index, good, bad, text, gpu_text)
    local req, types = {}, {}
    for name in pairs(arguments) do
      req[name], types[name] = name == index and "null" or "write", "float32"
    end
    types[index] = "int32"
    local exe = net:simple_bind{ctx = ty.cpu(), shapes = arguments, type_dict = types,
      grad_req = req}
    for _, x in ipairs(exe.arg_arrays) do x[":"] = 1 end
    exe.arg_dict[index][":"] = nd.array(good)
    exe:forward(true)[1]:wait_to_read()
    exe.arg_dict[index][":"] = nd.array(bad)
    local e = assert.raises("run", function()
      exe:backward(nd.ones(exe.outputs[1].shape))
      for _, g in pairs(exe.grad_dict) do g:wait_to_read() end
    end)
    if device.is_gpu then
      assert.truthy(e.message:find(gpu_text or text, 1, true), e.message)
    else
      assert.equal(text, e.message)
    end
  end

  it("gather_nd", function()
    refused_late(ty.sym.gather_nd{V("a"), V("i")}, {a = {3}, i = {1, 2}}, "i", {{0, 2}}, {{0, 7}},
      "index 7 at position 1 is out of range on axis 0; expected -3 to 2")
  end)
  it("scatter_nd", function()
    refused_late(ty.sym.scatter_nd{V("a"), V("i"), shape = {3}}, {a = {2}, i = {1, 2}}, "i",
      {{0, 2}}, {{0, 7}},
      "index 7 at position 1 is out of range on axis 0; expected 0 to 2")
  end)
  it("_contrib_index_copy", function()
    refused_late(ty.sym.contrib.index_copy{V("a"), V("i"), V("b")},
      {a = {3, 1}, i = {2}, b = {2, 1}}, "i", {0, 2}, {0, 7},
      "index 7 at position 1 is out of range; expected 0 to 2")
  end)
  it("_contrib_hawkesll", function()
    local net = ty.sym.contrib.hawkesll{V("mu"), V("alpha"), V("beta"), V("state"), V("lags"),
      V("marks"), V("valid"), V("max")}
    refused_late(net[1], {mu = {1, 2}, alpha = {2}, beta = {2}, state = {1, 2}, lags = {1, 2},
      marks = {1, 2}, valid = {1}, max = {1}}, "marks", {{0, 1}}, {{2, 1}},
      "mark 2 of event 0 of sequence 0; expected 0 to 1", "index 2 at position 0 is out of range")
  end)
end)
