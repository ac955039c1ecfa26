-- Operators that give or take positions: a type that cannot hold the last one is refused, and half
-- types are not chosen for labels, lengths and indices by themselves.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
require "spec.helper"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable

-- how many positions a type counts
local COUNTS = {bool = 2, int8 = 128, uint8 = 256, bfloat16 = 257, float16 = 2049}
local WIDE = {"int32", "int64", "float32", "float64"}

-- Returns n zeros with a one at `at`, from 0.
local function peak(n, at, dtype)
  local x = nd.zeros({n}, {dtype = dtype})
  x[at] = 1
  return x
end

local function position(x) return arrays.list(x)[1] end

local SEARCHES = {
  argmax = function(x, dtype) return nd.argmax{x, axis = 0, dtype = dtype} end,
  ["argmax, flattened"] = function(x, dtype) return nd.argmax{x, dtype = dtype} end,
  ["argmax, columns"] = function(x, dtype)
    return nd.argmax{x:reshape{-1, 1}:broadcast_to{x.size, 3}, axis = 0, dtype = dtype}
  end,
  argmin = function(x, dtype)
    return nd.argmin{nd.logical_not{x:astype("float32")}:astype(x.dtype), axis = 0, dtype = dtype}
  end,
  argmax_channel = function(x, dtype)
    return nd.argmax_channel{x:reshape{1, -1}, dtype = dtype}
  end,
}

describe("positions of extremes", function()
  for name, find in pairs(SEARCHES) do
    it("fit into data's type, or are refused: " .. name, function()
      for dtype, n in pairs(COUNTS) do
        local y = find(peak(n, n - 1, dtype))
        assert.equal(dtype, y.dtype)
        assert.equal(n - 1, position(y))
        local e = assert.raises("value", find, peak(n + 1, n, dtype))
        assert.equal(("data: %s cannot count %d elements; parameter dtype gives positions a type \z
          of their own"):format(dtype, n + 1), e.message:match("data: .*"))
      end
    end)

    it("have a type of their own by dtype: " .. name, function()
      for dtype, n in pairs(COUNTS) do
        for _, own in ipairs(WIDE) do
          local y = find(peak(n + 40, n + 1, dtype), own)
          assert.equal(own, y.dtype)
          assert.equal(n + 1, position(y))
        end
      end
      local e = assert.raises("value", find, peak(300, 299, "float32"), "uint8")
      assert.is_truthy(e.message:find("parameter dtype: uint8 cannot count 300 elements", 1, true))
      assert.raises("value", find, peak(2, 1, "float32"), "bool")
    end)
  end

  it("are refused beyond 2^24 elements of float32", function()
    local x = V("x", {shape = {2 ^ 24 + 2}, dtype = "float32"})
    local e = assert.raises("value", function() sym.argmax{x}:infer_type{} end)
    assert.is_truthy(e.message:find("float32 cannot count 16777218 elements", 1, true), e.message)
    assert.raises("value", function() sym.argmax{x}:infer_shape{} end)
    sym.argmax{x, dtype = "int64"}:infer_type{}
  end)

  it("are refused when a network is bound, too, whichever way", function()
    local net = sym.argmax{V"x", axis = 1}
    local x = nd.zeros({1, 300}, {dtype = "uint8"})
    assert.raises("value", net.bind, net, {ctx = ty.cpu(), args = {x = x}})
    assert.raises("value", net.simple_bind, net, {ctx = ty.cpu(), x = {1, 300},
      type_dict = {x = "uint8"}})
    local exe = sym.argmax{V"x", axis = 1, dtype = "int32"}:bind{ctx = ty.cpu(), args = {x = x}}
    x["0, 299"] = 1
    assert.near({299}, exe:forward()[1], 0)
  end)
end)

describe("positions of elements and partners", function()
  it("fit into data's type, or are refused", function()
    local function refused(text, f, ...)
      local e = assert.raises("value", f, ...)
      text = text .. "; Cast data to a type that does"
      assert.is_truthy(e.message:find(text, 1, true), e.message)
    end
    local text = "data: %s cannot count %d elements"
    for dtype, n in pairs{uint8 = 256, float16 = 2049} do
      local last = nd.array({{0}, {n - 1}}, {dtype = dtype})
      assert.equal(n - 1, position(nd.ravel_multi_index{last, shape = {1, n}}))
      refused(text:format(dtype, n + 1), nd.ravel_multi_index, {last, shape = {1, n + 1}})
      assert.near({{0}, {n - 1}},
        nd.unravel_index{nd.array({n - 1}, {dtype = dtype}), shape = {1, n}}:astype("float64"), 0)
      refused(text:format(dtype, n + 1), nd.unravel_index, {last[1], shape = {1, n + 1}})
    end
    local scores = nd.zeros({2, 2050}, {dtype = "float16"})
    refused(text:format("float16", 2050), nd.contrib.bipartite_matching,
      {scores, threshold = 0.5})
    scores = nd.zeros({1, 2049}, {dtype = "float16"})
    scores["0, 2048"] = 1
    local columns = nd.contrib.bipartite_matching{scores, threshold = 0.5}[1]
    assert.near({2048}, columns:astype("float32"), 0)
  end)

  it("fit into data's type where they are counted like data", function()
    for dtype, most in pairs{uint8 = 256, int8 = 128} do
      local x = nd.zeros({2, most + 1}, {dtype = dtype})
      for _, options in ipairs{{axis = 1}, {}, {axis = 0, start = most}, {axis = 0, step = most}} do
        options[1] = x
        local e = assert.raises("value", nd.contrib.arange_like, options)
        assert.is_truthy(e.message:find("data: " .. dtype .. " cannot count ", 1, true), e.message)
      end
      local fits = nd.zeros({1, most}, {dtype = dtype})
      assert.equal(most - 1, position(nd.contrib.arange_like{fits, axis = 1}["-1:"]))
      assert.equal(most - 1, position(nd.contrib.arange_like{x, axis = 0, start = most - 1,
        step = 1 - most}["0:1"]))
      local net = sym.contrib.arange_like{V"x", axis = 1}
      assert.raises("value", net.bind, net, {ctx = ty.cpu(), args = {x = x}})
    end
    local x = nd.zeros({2, 2100}, {dtype = "float16"})            -- rounds, as arange does
    assert.equal(2096, position(nd.contrib.arange_like{x, axis = 1, start = 2095, step = 0}))
  end)

  it("fit into the type of what is drawn", function()
    local e = assert.raises("value", nd.sample_multinomial, {nd.ones{300} / 300, dtype = "uint8"})
    assert.is_truthy(e.message:find("parameter dtype: uint8 cannot count 300 elements", 1, true))
  end)

  it("of maxima in regions are exact in half types", function()
    for _, dtype in ipairs{"float16", "bfloat16"} do
      local x = nd.zeros({1, 1, 64, 64}, {dtype = dtype})
      local grad = x:copy()
      x["0, 0, 60, 37"] = 1
      local exe = sym.ROIPooling{V"x", V"r", pooled_size = {1, 1}, spatial_scale = 1}:bind{
        ctx = ty.cpu(), args_grad = {x = grad}, grad_req = {x = "write"},
        args = {x = x, r = nd.array({{0, 0, 0, 63, 63}}, {dtype = dtype})}}
      exe:forward{is_train = true}
      exe:backward(nd.ones({1, 1, 1, 1}, {dtype = dtype}))
      assert.equal(1, position(grad["0, 0, 60, 37"]))
      assert.equal(1, position(grad:astype("float32"):sum()))
    end
  end)
end)

-- Operators with labels, lengths or indices, 3000 of them: made from x and label, with the shapes
-- of x and of label.
local INDEXED = {
  SoftmaxOutput = {function(x, i) return sym.SoftmaxOutput{x, i} end, {2, 3000}},
  ["SoftmaxOutput, multi_output"] = {function(x, i)
    return sym.SoftmaxOutput{x, i, multi_output = true}
  end, {2, 3000, 2}},
  SVMOutput = {function(x, i) return sym.SVMOutput{x, i} end, {2, 3000}},
  softmax_cross_entropy = {function(x, i) return sym.softmax_cross_entropy{x, i} end, {2, 3000}},
  CTCLoss = {function(x, i) return sym.CTCLoss{x, i} end, {4, 2, 3000}, {2, 3}},
  linear_cross_entropy = {function(x, i)
    return sym.contrib.linear_cross_entropy{data = x, label = i, num_hidden = 3000, no_bias = true}
  end, {2, 3}},
}
for _, name in ipairs{"SequenceMask", "SequenceLast", "SequenceReverse"} do
  INDEXED[name] = {function(x, i) return sym[name]{x, i, use_sequence_length = true} end,
    {3000, 2}}
end
-- whose indices have no type by themselves
local TYPED = {
  take = {function(x, i) return sym.take{x, i} end, {3000, 2}},
  pick = {function(x, i) return sym.pick{x, i, axis = 1} end, {2, 3000}, {2}},
  batch_take = {function(x, i) return sym.batch_take{x, i} end, {2, 3000}, {2}},
  one_hot = {function(x, i) return sym.one_hot{i, depth = 3000, dtype = "float16"} + x end,
    {2, 3000}, {2}},
  Embedding = {function(x, i)
    return sym.Embedding{i, x, input_dim = 3000, output_dim = 2, dtype = "float16"}
  end, {3000, 2}},
  gather_nd = {function(x, i) return sym.gather_nd{x, i} end, {2, 3000}, {2, 1}},
  scatter_nd = {function(x, i) return sym.scatter_nd{x, i, shape = {2, 3000}} end, {1}, {2, 1}},
  index_copy = {function(x, i)
    return sym.contrib.index_copy{x, i, sym.zeros{shape = {1, 2}, dtype = "float16"}}
  end, {3000, 2}, {1}},
  ["sparse.retain"] = {function(x, i) return sym._sparse_retain{x, i} end, {3000, 2}, {1}},
  _onehot_encode = {function(x, i) return sym._onehot_encode{i, x} end, {2, 3000}, {2}},
  fill_element_0index = {function(x, i)
    return sym.fill_element_0index{x, sym.zeros{shape = {2}, dtype = "float16"}, i}
  end, {2, 3000}, {2}},
  softmax = {function(x, i) return sym.softmax{x, i, use_length = true} end, {2, 3000}, {2}},
}

describe("labels, lengths and indices", function()
  for name, case in pairs(INDEXED) do
    it("have data's type by themselves, float32 where that does not hold them: " .. name, function()
      local net = case[1](V"x", V"label")
      local function infer_label(x, shape)
        local label = V("label", {shape = case[3]})
        local types = (shape and case[1](V("x", {shape = shape}), label) or net):infer_type{x = x}
        for i, argument in ipairs(net:list_arguments()) do
          if argument == "label" then return types[i] end
        end
      end
      local known = name == "linear_cross_entropy"          -- by a parameter
      for _, half in ipairs{"float16", "bfloat16"} do
        assert.equal("float32", infer_label(half, case[2]))
        assert.equal(known and "float32" or half, infer_label(half))
      end
      for _, real in ipairs{"float32", "float64"} do
        assert.equal(real, infer_label(real, case[2]))
      end
      local exe = net:simple_bind{ctx = ty.cpu(), x = case[2], label = case[3],
        type_dict = {x = "float16"}}
      assert.equal("float32", exe.arg_dict.label.dtype)
    end)
  end

  for _, cases in ipairs{INDEXED, TYPED} do
    for name, case in pairs(cases) do
      it("are refused in a half type that does not hold them: " .. name, function()
        local net = case[1](V("x", {shape = case[2]}), V("label", {shape = case[3]}))
        for half, text in pairs{float16 = "float16 cannot count 300%d elements; give them in \z
          float32 or as integers", bfloat16 = "bfloat16 cannot count 300%d elements"} do
          local e = assert.raises("value", net.infer_type, net, {x = "float16", label = half})
          assert.is_truthy(e.message:find((text:gsub("%%d", "[01]"))), e.message)
        end
        for _, whole in ipairs{"int32", "float32", "uint8"} do
          net:infer_type{x = "float16", label = whole}
        end
      end)
    end
  end

  it("name classes that float16 does not hold", function()
    local exe = sym.SoftmaxOutput{V"x", V"label"}:simple_bind{ctx = ty.cpu(), x = {1, 4000},
      label = {1}, type_dict = {x = "float16"}}
    exe.arg_dict.label[":"] = 3001
    exe:forward{is_train = true}
    exe:backward()
    local g = arrays.list(exe.grad_dict.x)
    assert.is_true(g[3002] < -0.9 and g[3001] > 0 and g[3003] > 0)
  end)
end)
