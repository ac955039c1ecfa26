--- One line for each operator whose gradient the specs compare with differences: random shapes and parameters.
-- A case is {operator, make}; make(r) returns the shapes of the inputs (by name, or a list for operators that take any
-- number), the parameters, and the interval of the values (default -1 .. 1). r(a, b) is a random integer.
-- Inputs named in `fixed` get whole numbers from 0 to fixed[name] - 1 and no gradient.

local cases = {}

local function shape(r, least, most)
  local s = {}
  for i = 1, r(least or 1, most or 4) do
    s[i] = r(1, 4)
  end
  return s
end

local function same(name, low, high)
  cases[#cases + 1] = {name, function(r) return {data = shape(r)}, {}, low, high end}
end

local function pair(name, low, high)
  cases[#cases + 1] = {name, function(r) local s = shape(r); return {lhs = s, rhs = s}, {}, low, high end}
end

-- two shapes that broadcast, of equal rank
local function broadcast(name, low, high)
  cases[#cases + 1] = {name, function(r)
    local a, b = shape(r), {}
    for i, d in ipairs(a) do
      local which = r(1, 3)
      b[i] = which == 1 and 1 or d
      a[i] = which == 2 and 1 or d
    end
    return {lhs = a, rhs = b}, {}, low, high
  end}
end

local function add(name, make) cases[#cases + 1] = {name, make} end

local SMOOTH = "negative sigmoid tanh sin cos exp expm1 square softsign erf arctan arcsinh sinh cosh degrees radians softmin " ..
               "log_softmax softmax identity cbrt"
for name in SMOOTH:gmatch("%S+") do
  same(name, name == "cbrt" and 0.3 or nil, name == "cbrt" and 2 or nil)
end
for name in ("log log10 log2 sqrt rsqrt reciprocal rcbrt gamma gammaln"):gmatch("%S+") do same(name, 0.6, 2) end
for name in ("log1p arcsin arccos arctanh erfinv tan"):gmatch("%S+") do same(name, -0.7, 0.7) end
same("arccosh", 1.3, 3)
same("relu", 0.1, 1)
same("abs", -2, -0.1)
for name in ("elemwise_add elemwise_sub elemwise_mul"):gmatch("%S+") do pair(name) end
for name in ("elemwise_div _power _hypot"):gmatch("%S+") do pair(name, 0.5, 2) end
for name in ("broadcast_add broadcast_sub broadcast_mul"):gmatch("%S+") do broadcast(name) end
for name in ("broadcast_div broadcast_power broadcast_hypot"):gmatch("%S+") do broadcast(name, 0.5, 2) end
for name in ("_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar"):gmatch("%S+") do
  add(name, function(r) return {data = shape(r)}, {scalar = 0.5 + r(1, 5)} end)
end
for name in ("_rdiv_scalar _power_scalar _rpower_scalar _hypot_scalar"):gmatch("%S+") do
  add(name, function(r) return {data = shape(r)}, {scalar = 0.5 + r(1, 3)}, 0.5, 2 end)
end
for kind in ("sigmoid tanh softrelu softsign"):gmatch("%S+") do add("Activation", function(r) return {data = shape(r)},
    {act_type = kind} end) end
for kind in ("elu selu gelu leaky"):gmatch("%S+") do add("LeakyReLU", function(r) return {data = shape(r, 2)}, {act_type = kind,
    slope = 0.3}, 0.1, 1 end) end
add("LeakyReLU", function(r) local s = shape(r, 2); return {data = s, gamma = {s[2]}}, {act_type = "prelu"}, 0.1, 1 end)
add("smooth_l1", function(r) return {data = shape(r)}, {scalar = 1}, 0.1, 0.9 end)

add("FullyConnected", function(r) local n, k, m = r(1, 5), r(1, 6), r(1, 5); return {data = {n, k}, weight = {m, k}, bias = {m}},
    {num_hidden = m} end)
add("FullyConnected", function(r) local k, m = r(1, 5), r(1, 5); return {data = {2, 3, k}, weight = {m, k}}, {num_hidden = m,
    flatten = false, no_bias = true} end)
add("Convolution", function(r)
  local g, c, f, k = r(1, 2), r(1, 3), r(1, 3), r(1, 3)
  local h, w = r(k + 2, 7), r(k + 2, 7)
  return {data = {r(1, 3), c * g, h, w}, weight = {f * g, c, k, k}, bias = {f * g}},
         {kernel = {k, k}, num_filter = f * g, num_group = g, stride = {r(1, 2), r(1, 2)}, pad = {r(0, 1), r(0, 1)}, dilate = {1,
             r(1, 2)}}
end)
add("Convolution", function(r) local k = r(1, 3); return {data = {2, 2, r(4, 8)}, weight = {3, 2, k}}, {kernel = {k}, num_filter = 3,
    no_bias = true, pad = {1}} end)
add("Convolution", function(r) return {data = {1, 2, r(2, 4), r(2, 4), r(2, 4)}, weight = {2, 2, 2, 2, 2}, bias = {2}}, {kernel = {2,
    2, 2}, num_filter = 2, pad = {1, 0, 1}} end)
add("Deconvolution", function(r)
  local k, s = r(2, 3), r(1, 2)
  return {data = {r(1, 2), 2, r(2, 4), r(2, 4)}, weight = {2, 3, k, k}, bias = {3}}, {kernel = {k, k}, num_filter = 3, stride = {s,
      s}, pad = {1, 1}, no_bias = false}
end)
add("dot", function(r) local m, k, n = r(1, 4), r(1, 4), r(1, 4); return {lhs = {m, k}, rhs = {k, n}}, {} end)
add("dot", function(r) local m, k, n = r(1, 4), r(1, 4), r(1, 4); return {lhs = {k, m}, rhs = {n, k}}, {transpose_a = true,
    transpose_b = true} end)
add("batch_dot", function(r) local b, m, k, n = r(1, 3), r(1, 4), r(1, 4), r(1, 4); return {lhs = {b, k, m}, rhs = {b, k, n}},
    {transpose_a = true} end)
add("batch_dot", function(r) local b, m, k, n = r(1, 3), r(1, 4), r(1, 4), r(1, 4); return {lhs = {b, m, k}, rhs = {b, n, k}},
    {transpose_b = true} end)
add("_linalg_gemm2", function(r) local m, k, n = r(1, 4), r(1, 4), r(1, 4); return {A = {2, m, k}, B = {2, k, n}}, {alpha = 0.5} end)
for kind in ("avg sum lp"):gmatch("%S+") do
  add("Pooling", function(r)
    local k = r(1, 3)
    return {data = {r(1, 2), 2, r(3, 6), r(3, 6)}}, {kernel = {k, k}, pool_type = kind, stride = {r(1, 2), r(1, 2)}, pad = {r(0,
        k - 1 > 0 and 1 or 0), 0}, p_value = 2,
           pooling_convention = ({"valid", "full"})[r(1, 2)], count_include_pad = r(1, 2) == 1}, 0.5, 2
  end)
end
add("Pooling", function(r) return {data = {2, 3, r(1, 5), r(1, 5)}}, {global_pool = true, pool_type = "avg"} end)
add("LayerNorm", function(r) local s = shape(r, 2); s[#s] = r(2, 5); return {data = s, gamma = {s[#s]}, beta = {s[#s]}}, {eps = 0.1} end)
add("InstanceNorm", function(r) local c = r(1, 3); return {data = {r(1, 3), c, r(2, 5)}, gamma = {c}, beta = {c}}, {eps = 0.1} end)
add("GroupNorm", function(r) return {data = {r(1, 3), 4, r(2, 4)}, gamma = {2}, beta = {2}}, {num_groups = 2, eps = 0.1} end)
for mode in ("instance channel spatial"):gmatch("%S+") do
  add("L2Normalization", function(r) return {data = {r(1, 3), r(2, 3), r(2, 3), r(1, 3)}}, {mode = mode}, 0.2, 1 end)
end
add("LRN", function(r) return {data = {r(1, 2), r(3, 5), r(1, 3), r(1, 3)}}, {nsize = 3, alpha = 0.5} end)
for mode in ("instance channel"):gmatch("%S+") do add("SoftmaxActivation", function(r) return {data = {r(1, 3), r(2, 4)}},
    {mode = mode} end) end
for _, name in ipairs{"softmax", "log_softmax"} do
  add(name, function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), temperature = r(1, 3)} end)
end

for name in ("sum mean prod nansum nanprod"):gmatch("%S+") do
  add(name, function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), keepdims = r(1, 2) == 1}, 0.5, 2 end)
  add(name, function(r) return {data = shape(r)}, {}, 0.5, 1.5 end)
end
add("norm", function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), ord = r(1, 2)}, 0.3, 2 end)
add("cumsum", function(r) local s = shape(r); return {a = s}, {axis = r(0, #s - 1)} end)
add("Flatten", function(r) return {data = shape(r, 2)}, {} end)
add("Reshape", function(r) return {data = {r(1, 4), 6}}, {shape = {-1, r(1, 3)}} end)
add("transpose", function(r) return {data = shape(r)}, {} end)
add("SwapAxis", function(r) local s = shape(r, 2); return {data = s}, {dim1 = 0, dim2 = #s - 1} end)
add("expand_dims", function(r) local s = shape(r, 1, 3); return {data = s}, {axis = r(0, #s)} end)
add("reverse", function(r) local s = shape(r); return {data = s}, {axis = {r(0, #s - 1)}} end)
add("tile", function(r) return {data = shape(r, 1, 3)}, {reps = {r(1, 3), r(1, 3)}} end)
add("repeat", function(r) local s = shape(r); return {data = s}, {repeats = r(1, 3), axis = r(0, #s - 1)} end)
add("broadcast_axis", function(r) return {data = {r(1, 3), 1, r(1, 3)}}, {axis = {1}, size = {r(1, 4)}} end)
add("broadcast_to", function(r) local n = r(1, 3); return {data = {n, 1}}, {shape = {n, r(1, 4)}} end)
add("slice", function(r) return {data = {5, 6}}, {begin = {r(0, 2), r(0, 2)}, ["end"] = {r(3, 5), r(3, 6)}, step = {1, r(1, 2)}} end)
add("slice_axis", function(r) return {data = {r(1, 3), 6}}, {axis = 1, begin = r(0, 2), ["end"] = r(3, 6)} end)
add("clip", function(r) return {data = shape(r)}, {a_min = -2, a_max = 2} end)
add("Pad", function(r) return {data = {1, 2, r(2, 4), r(2, 4)}}, {mode = ({"constant", "edge", "reflect"})[r(1, 3)], pad_width = {0,
    0, 0, 0, 1, 1, r(0, 1), 1}} end)
add("depth_to_space", function(r) return {data = {r(1, 2), 4, r(1, 3), r(1, 3)}}, {block_size = 2} end)
add("space_to_depth", function(r) return {data = {r(1, 2), r(1, 3), 2 * r(1, 2), 2 * r(1, 2)}}, {block_size = 2} end)
add("squeeze", function(r) return {data = {r(1, 3), 1, r(2, 3)}}, {axis = 1} end)
add("Concat", function(r) local n, m = r(1, 3), r(1, 3); return {{n, r(1, 3), m}, {n, r(1, 3), m}, {n, 2, m}}, {dim = 1} end)
add("stack", function(r) local s = shape(r, 1, 3); return {s, s, s}, {axis = r(0, #s)} end)
add("add_n", function(r) local s = shape(r); return {s, s, s, s}, {} end)
add("SliceChannel", function(r) return {data = {r(1, 3), 6, r(1, 3)}}, {num_outputs = ({1, 2, 3, 6})[r(1, 4)], axis = 1} end)
add("where", function(r) local s = shape(r); return {condition = s, x = s, y = s}, {}, nil, nil, {condition = 2} end)
add("take", function(r) return {a = {r(2, 5), r(1, 3)}, indices = {r(1, 4)}}, {}, nil, nil, {indices = 2} end)
add("pick", function(r) local n = r(1, 4); return {data = {n, r(2, 5)}, index = {n}}, {}, nil, nil, {index = 2} end)
add("Embedding", function(r) local n, m = r(2, 6), r(1, 4); return {data = {r(1, 3), r(1, 4)}, weight = {n, m}}, {input_dim = n,
    output_dim = m}, nil, nil, {data = n} end)
add("SequenceMask", function(r) local n = r(1, 3); return {data = {4, n, 2}, sequence_length = {n}}, {use_sequence_length = true},
    nil, nil, {sequence_length = 4} end)
add("SequenceReverse", function(r) local n = r(1, 3); return {data = {4, n, 2}}, {} end)
add("UpSampling", function(r) return {{1, 2, r(1, 3), r(1, 3)}}, {scale = 2, sample_type = "nearest"} end)
for mode, gates in pairs{lstm = 4, gru = 3, rnn_tanh = 1} do
  for dirs = 1, 2 do
    add("RNN", function(r)
      local t, n, i, h, layers = r(1, 4), r(1, 3), r(1, 4), r(1, 4), r(1, 2)
      local size = gates * h * dirs * ((i + h + 2) + (layers - 1) * (dirs * h + h + 2))
      return {data = {t, n, i}, parameters = {size}, state = {layers * dirs, n, h}, state_cell = mode == "lstm" and {layers * dirs,
          n, h} or nil},
             {mode = mode, state_size = h, num_layers = layers, bidirectional = dirs == 2}
    end)
  end
end

return cases
