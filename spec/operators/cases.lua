--- One line for each operator whose gradient the specs compare with differences: random shapes and parameters.
-- A case is {operator, make}; make(r) returns the shapes of the inputs (by name, or a list for operators that take any
-- number), the parameters, and the interval of the values (default -1 .. 1). r(a, b) is a random integer.
-- Inputs named in `fixed` get whole numbers from 0 to fixed[name] - 1 and no gradient. A function in the interval's place
-- fills the inputs: f(x, random, name). case.build(variables, parameters) makes another symbol than the operator alone.
-- Images begin at one pixel a side, or at what a window needs.
-- case.want(x, parameters) gives the outputs as in spec/operators/cases_values.lua; spec/operators/table_spec.lua says of which
-- operators the values are checked elsewhere.

local ty = require "tycho"

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

-- Adds a case with two shapes that broadcast, of equal rank.
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

-- Returns the fewest pixels on which a window of n fits, with so many zeros on both sides.
local function side(n, pad) return math.max(1, n - 2 * pad) end

local function add(name, make, build, want) cases[#cases + 1] = {name, make, build = build, want = want} end

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
for kind in ("sigmoid tanh softrelu softsign"):gmatch("%S+") do
  add("Activation", function(r) return {data = shape(r)}, {act_type = kind}, -8, 8 end)
end
for kind in ("elu selu gelu leaky"):gmatch("%S+") do
  add("LeakyReLU", function(r) return {data = shape(r, 2)}, {act_type = kind, slope = 0.3}, -8, 8 end)
end
for kind in ("elu leaky"):gmatch("%S+") do
  add("LeakyReLU", function(r) return {data = shape(r)}, {act_type = kind, slope = -0.7}, -8, 8 end)
end
add("LeakyReLU", function(r)
  local s = shape(r, 2)
  return {data = s, gamma = {s[2]}}, {act_type = "prelu"}, -8, 8
end)
for name in ("sigmoid tanh softsign erf"):gmatch("%S+") do same(name, -8, 8) end
add("smooth_l1", function(r) return {data = shape(r)}, {scalar = 1}, 0.1, 0.9 end)

add("FullyConnected", function(r)
  local n, k, m = r(1, 5), r(1, 6), r(1, 5)
  return {data = {n, k}, weight = {m, k}, bias = {m}}, {num_hidden = m}
end)
add("FullyConnected", function(r)
  local k, m = r(1, 5), r(1, 5)
  return {data = {2, 3, k}, weight = {m, k}}, {num_hidden = m, flatten = false, no_bias = true}
end)
add("Convolution", function(r)
  local g, c, f, k, apart = r(1, 2), r(1, 3), r(1, 3), r(1, 3), r(1, 2)
  local pad = {r(0, 1), r(0, 1)}
  local h, w = r(side(k, pad[1]), 7), r(side((k - 1) * apart + 1, pad[2]), 7)
  return {data = {r(1, 3), c * g, h, w}, weight = {f * g, c, k, k}, bias = {f * g}},
         {kernel = {k, k}, num_filter = f * g, num_group = g, stride = {r(1, 2), r(1, 2)}, pad = pad, dilate = {1, apart}}
end)
add("Convolution", function(r)
  local k = r(1, 3)
  return {data = {2, 2, r(side(k, 1), 8)}, weight = {3, 2, k}},
         {kernel = {k}, num_filter = 3, no_bias = true, pad = {1}}
end)
add("Convolution", function(r)
  return {data = {1, 2, r(1, 4), r(2, 4), r(1, 4)}, weight = {2, 2, 2, 2, 2}, bias = {2}},
         {kernel = {2, 2, 2}, num_filter = 2, pad = {1, 0, 1}}
end)
add("Deconvolution", function(r)
  local k, s = r(2, 3), r(1, 2)
  local least = k > 2 and 1 or 2                          -- 2 x 2 of one pixel is all padding
  return {data = {r(1, 2), 2, r(least, 4), r(least, 4)}, weight = {2, 3, k, k}, bias = {3}},
         {kernel = {k, k}, num_filter = 3, stride = {s, s}, pad = {1, 1}, no_bias = false}
end)
add("dot", function(r) local m, k, n = r(1, 4), r(1, 4), r(1, 4); return {lhs = {m, k}, rhs = {k, n}}, {} end)
add("dot", function(r)
  local m, k, n = r(1, 4), r(1, 4), r(1, 4)
  return {lhs = {k, m}, rhs = {n, k}}, {transpose_a = true, transpose_b = true}
end)
add("batch_dot", function(r)
  local b, m, k, n = r(1, 3), r(1, 4), r(1, 4), r(1, 4)
  return {lhs = {b, k, m}, rhs = {b, k, n}}, {transpose_a = true}
end)
add("batch_dot", function(r)
  local b, m, k, n = r(1, 3), r(1, 4), r(1, 4), r(1, 4)
  return {lhs = {b, m, k}, rhs = {b, n, k}}, {transpose_b = true}
end)
add("_linalg_gemm2", function(r) local m, k, n = r(1, 4), r(1, 4), r(1, 4); return {A = {2, m, k}, B = {2, k, n}}, {alpha = 0.5} end)
for kind in ("avg sum lp"):gmatch("%S+") do
  add("Pooling", function(r)
    local k = r(1, 3)
    local pad = r(0, k > 1 and 1 or 0)
    return {data = {r(1, 2), 2, r(side(k, pad), 6), r(k, 6)}},
           {kernel = {k, k}, pool_type = kind, stride = {r(1, 2), r(1, 2)}, pad = {pad, 0}, p_value = 2,
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
for mode in ("instance channel"):gmatch("%S+") do
  add("SoftmaxActivation", function(r) return {data = {r(1, 3), r(2, 4)}}, {mode = mode} end)
end
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
for name in ("_image_flip_left_right _image_flip_top_bottom"):gmatch("%S+") do
  add(name, function(r) return {data = {r(1, 4), r(1, 4), r(1, 4)}}, {} end)
end
add("_image_crop", function(r)
  local n, h, w, x, y = r(1, 2), r(1, 4), r(1, 4), r(0, 2), r(0, 2)
  return {data = {n, y + h + r(0, 1), x + w + r(0, 1), r(1, 3)}}, {x = x, y = y, width = w, height = h}
end)
add("_image_normalize", function(r)
  return {data = {r(1, 2), 3, r(1, 4), r(1, 4)}}, {mean = {0.1, 0.2, 0.3}, std = {0.5, 2, r(1, 3)}}
end)
add("tile", function(r) return {data = shape(r, 1, 3)}, {reps = {r(1, 3), r(1, 3)}} end)
add("repeat", function(r) local s = shape(r); return {data = s}, {repeats = r(1, 3), axis = r(0, #s - 1)} end)
add("broadcast_axis", function(r) return {data = {r(1, 3), 1, r(1, 3)}}, {axis = {1}, size = {r(1, 4)}} end)
add("broadcast_to", function(r) local n = r(1, 3); return {data = {n, 1}}, {shape = {n, r(1, 4)}} end)
add("slice", function(r) return {data = {5, 6}}, {begin = {r(0, 2), r(0, 2)}, ["end"] = {r(3, 5), r(3, 6)}, step = {1, r(1, 2)}} end)
add("slice_axis", function(r) return {data = {r(1, 3), 6}}, {axis = 1, begin = r(0, 2), ["end"] = r(3, 6)} end)
add("clip", function(r) return {data = shape(r)}, {a_min = -2, a_max = 2} end)
for _, mode in ipairs{"constant", "edge", "reflect"} do
  local least = mode == "reflect" and 2 or 1
  add("Pad", function(r) return {data = {1, 2, r(least, 4), r(least, 4)}}, {mode = mode, pad_width = {0, 0, 0, 0, 1, 1, r(0, 1), 1}} end)
end
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
add("Embedding", function(r)
  local n, m = r(2, 6), r(1, 4)
  return {data = {r(1, 3), r(1, 4)}, weight = {n, m}},
         {input_dim = n, output_dim = m}, nil, nil, {data = n}
end)
add("SequenceMask", function(r)
  local n = r(1, 3)
  return {data = {4, n, 2}, sequence_length = {n}},
         {use_sequence_length = true}, nil, nil, {sequence_length = 4}
end)
add("SequenceReverse", function(r) local n = r(1, 3); return {data = {4, n, 2}}, {} end)
add("UpSampling", function(r) return {{1, 2, r(1, 3), r(1, 3)}}, {scale = r(1, 3), sample_type = "nearest"} end)
add("UpSampling", function(r)
  local scale = r(1, 4)
  local k = 2 * scale - scale % 2
  return {{1, 2, r(1, 3), r(1, 3)}, {2, 1, k, k}}, {scale = scale, sample_type = "bilinear", num_filter = 2}
end)
local GATES = {lstm = 4, gru = 3, rnn_tanh = 1}
for mode in ("lstm gru rnn_tanh"):gmatch("%S+") do
  local gates = GATES[mode]
  for dirs = 1, 2 do
    add("RNN", function(r)
      local t, n, i, h, layers = r(1, 4), r(1, 3), r(1, 4), r(1, 4), r(1, 2)
      local size = gates * h * dirs * ((i + h + 2) + (layers - 1) * (dirs * h + h + 2))
      return {data = {t, n, i}, parameters = {size}, state = {layers * dirs, n, h},
               state_cell = mode == "lstm" and {layers * dirs, n, h} or nil},
             {mode = mode, state_size = h, num_layers = layers, bidirectional = dirs == 2}
    end)
  end
end
for dirs = 1, 2 do                                       -- projected
  add("RNN", function(r)
    local t, n, i, h, p, layers = r(1, 4), r(1, 3), r(1, 4), r(1, 4), r(1, 3), r(1, 2)
    local size = dirs * (4 * h * (i + p + 2) + p * h + (layers - 1) * (4 * h * (dirs * p + p + 2) + p * h))
    return {data = {t, n, i}, parameters = {size}, state = {layers * dirs, n, p}, state_cell = {layers * dirs, n, h}},
           {mode = "lstm", state_size = h, num_layers = layers, bidirectional = dirs == 2, projection_size = p}
  end)
end

-- Returns the shape of a matrix or of a stack of them, for linear algebra; cases that need
-- symmetric or regular matrices are in linalg_spec.lua.
local function stack(r, m, n) return r(1, 2) == 1 and {m, n} or {r(1, 3), m, n} end
local function stack_like(a, m, n) return #a == 2 and {m, n} or {a[1], m, n} end
for i, name in ipairs{"_linalg_trmm", "_linalg_trsm"} do
  add(name, function(r)
    local m, n, right = r(1, 4), r(1, 4), r(1, 2) == 1
    local k = right and n or m
    local a = stack(r, k, k)
    return {A = a, B = stack_like(a, m, n)}, {transpose = r(1, 2) == 1, rightside = right, lower = r(1, 2) == 1, alpha = r(1, 3) - 0.5},
           i == 2 and 1 or nil, i == 2 and 2 or nil
  end)
end
add("_linalg_syrk", function(r) return {A = stack(r, r(1, 4), r(1, 4))}, {transpose = r(1, 2) == 1, alpha = r(1, 3) - 0.5} end)
add("_linalg_gemm", function(r)
  local m, k, n = r(1, 4), r(1, 4), r(1, 4)
  local a = stack(r, m, k)
  return {A = a, B = stack_like(a, k, n), C = stack_like(a, m, n)}, {alpha = 0.5, beta = -2}
end)
add("_linalg_sumlogdiag", function(r) local n = r(1, 4); return {A = stack(r, n, n)}, {}, 0.5, 2 end)
for _, name in ipairs{"_linalg_extractdiag", "_linalg_extracttrian"} do
  add(name, function(r) local n = r(2, 5); return {A = stack(r, n, n)}, {offset = r(-1, 1)} end)
end
add("_linalg_makediag", function(r) return {A = shape(r, 1, 3)}, {offset = r(-2, 2)} end)
add("_linalg_maketrian", function(r) local m = r(1, 4); return {A = {r(1, 3), m * (m + 1) / 2}}, {offset = r(-2, 2), lower = false} end)

-- contrib
add("_contrib_div_sqrt_dim", function(r) return {data = shape(r)}, {} end)
add("_contrib_attention", function(r)
  local n, kv, g, tq, tk, d, dv = r(1, 2), r(1, 2), r(1, 3), r(1, 4), r(1, 5), r(1, 3), r(1, 3)
  return {query = {n, tq, kv * g * d}, key = {n, tk, kv * d}, value = {n, tk, kv * dv},
      bias = {({1, n})[r(1, 2)], 1, ({1, tq})[r(1, 2)], ({1, tk})[r(1, 2)]}},
    {heads = kv * g, kv_heads = kv, use_bias = true, causal = r(1, 2) == 1, window = r(0, 1) * r(1, 4)}
end)
add("_contrib_attention", function(r)
  local h, d = r(1, 3), r(1, 3)
  return {query_key_value = {r(1, 4), r(1, 3), h * 3 * d}}, {heads = h, layout = "TNC", packed = "qkv",
    scale = r(1, 3) / 2}
end)
add("_contrib_attention", function(r)
  local n, h, d = r(1, 2), r(1, 2), r(1, 3)
  return {query = {n, h, r(1, 4), d}, key = {n, h, 4, d}, value = {n, h, 4, d}, valid_length = {n}},
    {layout = "NHTC", use_valid_length = true}, nil, nil, {valid_length = 5}
end)
add("_contrib_RMSNorm", function(r) local s = shape(r, 2); local a = r(0, #s - 1); return {data = s, gamma = {s[a + 1]}},
    {axis = a, eps = 0.1} end)
add("_contrib_swiglu", function(r) local s = shape(r); return {gate = s, data = s}, {} end)
add("_contrib_rotary_embedding", function(r)
  local n, h, d = r(1, 3), r(1, 3), 2 * r(1, 4)
  return {data = {n, r(1, 4), h * d}, offset = {n}}, {heads = h, use_offset = true, size = r(0, 1) * 2, interleaved = r(1, 2) == 1,
    base = 100}, nil, nil, {offset = 5}
end)
add("_contrib_rotary_embedding", function(r) return {data = {r(1, 3), r(1, 3), r(1, 70), 2 * r(1, 3)}}, {layout = "NHTC"} end)
add("_contrib_interleaved_matmul_selfatt_qk", function(r) local h = r(1, 3); return {queries_keys_values = {r(1, 4), r(1, 3),
    h * 3 * r(1, 3)}}, {heads = h} end)
add("_contrib_interleaved_matmul_selfatt_valatt", function(r) local h, t, b = r(1, 3), r(1, 4), r(1, 3); return {
    queries_keys_values = {t, b, h * 3 * r(1, 3)}, attention = {b * h, t, t}}, {heads = h} end)
add("_contrib_interleaved_matmul_encdec_qk", function(r) local h, b, d = r(1, 3), r(1, 3), r(1, 3); return {queries = {r(1, 4), b,
    h * d}, keys_values = {r(1, 4), b, h * 2 * d}}, {heads = h} end)
add("_contrib_interleaved_matmul_encdec_valatt", function(r) local h, b, t = r(1, 3), r(1, 3), r(1, 4); return {keys_values = {t, b,
    h * 2 * r(1, 3)}, attention = {b * h, r(1, 4), t}}, {heads = h} end)
add("_contrib_BilinearResize2D", function(r)
  return {data = {r(1, 2), r(1, 2), r(1, 5), r(1, 5)}},
         {height = r(1, 6), width = r(1, 6), align_corners = r(1, 2) == 1}
end)
add("_contrib_BilinearResize2D", function(r)
  return {data = {1, 2, r(2, 5), r(2, 5)}},
         {mode = ({"to_even_up", "to_even_down", "to_odd_up", "to_odd_down"})[r(1, 4)]}
end)
add("_contrib_fft", function(r) return {data = {r(1, 3), r(1, 12)}}, {} end)
add("_contrib_ifft", function(r) return {data = {r(1, 3), 2 * r(1, 12)}}, {} end)
add("_contrib_count_sketch", function(r)
  local n, m = r(1, 5), r(1, 4)
  return {data = {r(1, 3), n}, h = {1, n}, s = {1, n}}, {out_dim = m}, nil, nil, {h = m, s = 2}
end)
for _, name in ipairs{"_contrib_DeformableConvolution", "_contrib_ModulatedDeformableConvolution"} do
  add(name, function(r)
    local k, g, set, n, pad = r(1, 3), r(1, 2), r(1, 2), r(1, 2), r(0, 1)
    local h, w = r(side(k, pad), 5), r(side(k, pad), 5)
    local out_h, out_w = h + 2 * pad - k + 1, w + 2 * pad - k + 1
    local mask = name:find("Mod") and {n, set * k * k, out_h, out_w} or nil
    return {data = {n, 2, h, w}, offset = {n, 2 * set * k * k, out_h, out_w}, mask = mask, weight = {4, 2 / g, k, k}, bias = {4}},
           {kernel = {k, k}, num_filter = 4, num_group = g, num_deformable_group = set, pad = {pad, pad}}
  end)
end
add("_square_sum", function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), keepdims = r(1, 2) == 1} end)
for name in ("_scatter_plus_scalar _scatter_minus_scalar"):gmatch("%S+") do
  add(name, function(r) return {data = shape(r)}, {scalar = 0.5 + r(1, 5)} end)
end
pair("_scatter_elemwise_div", 0.5, 2)

-- Adds a case with regions (sample, x1, y1, x2, y2) in four images.
local function regions(name, planes, options)
  add(name, function(r)
    local o = options(r)
    return {data = {4, planes(o), r(1, 6), r(1, 6)}, rois = {r(1, 3), 5}}, o, nil, nil, {rois = 4}
  end)
end
local function grid_planes(o) return o.output_dim * o.group_size ^ 2 end
add("_contrib_box_nms", function(r) return {data = {r(1, 2), r(1, 6), 6}}, {overlap_thresh = 0.3, topk = r(1, 6)}, 0.1, 1 end)
for aligned = 0, 1 do
  regions("_contrib_ROIAlign", function() return 8 end, function(r) return {pooled_size = {2, r(1, 2)}, spatial_scale = 0.7,
      sample_ratio = r(0, 2), position_sensitive = r(0, 1) == 1, aligned = aligned == 1} end)
end
regions("_contrib_PSROIPooling", grid_planes, function(r) return {output_dim = r(1, 2), group_size = r(1, 2), pooled_size = r(1, 3),
    spatial_scale = 0.8} end)
regions("_contrib_DeformablePSROIPooling", grid_planes, function(r) return {output_dim = r(1, 2), group_size = r(1, 2),
    pooled_size = r(1, 3), spatial_scale = 0.8, sample_per_part = r(1, 3), no_trans = true} end)
add("_contrib_DeformablePSROIPooling", function(r)
  local n, part, classes, g = r(1, 3), r(1, 2), r(1, 2), r(1, 2)
  return {data = {4, 2 * g * g, 5, 5}, rois = {n, 5}, trans = {n, 2 * classes, part, part}}, {output_dim = 2, group_size = g,
      pooled_size = 3, part_size = part, sample_per_part = 2, spatial_scale = 0.8, trans_std = 0.3}, nil, nil, {rois = 4}
end)

-- what only passes on, picks, or repeats
for name in ("_copy _copyto _CrossDeviceCopy"):gmatch("%S+") do same(name) end
for name in ("_grad_add _identity_with_attr_like_rhs"):gmatch("%S+") do pair(name) end
for name in ("Cast amp_cast"):gmatch("%S+") do add(name, function(r) return {data = shape(r)}, {dtype = "float64"} end) end
add("Dropout", function(r) return {data = shape(r)}, {p = 0} end)
for name in ("_maximum _minimum"):gmatch("%S+") do pair(name) end
for name in ("broadcast_maximum broadcast_minimum"):gmatch("%S+") do broadcast(name) end
for name in ("_maximum_scalar _minimum_scalar"):gmatch("%S+") do
  add(name, function(r) return {data = shape(r)}, {scalar = 0.1 * r(-3, 3)} end)
end
pair("_mod", 0.5, 2)
broadcast("broadcast_mod", 0.5, 2)
broadcast("_npi_fmod", 0.5, 2)
for name in ("_mod_scalar _rmod_scalar"):gmatch("%S+") do
  add(name, function(r) return {data = shape(r)}, {scalar = 0.7 + r(1, 2)}, 0.3, 2 end)
end
add("hard_sigmoid", function(r) return {data = shape(r)}, {alpha = 0.3} end)
add("_contrib_quadratic", function(r) return {data = shape(r)}, {a = r(1, 3), b = -r(1, 3), c = 1} end)
for name in ("max min"):gmatch("%S+") do
  add(name, function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), keepdims = r(1, 2) == 1} end)
end
add("moments", function(r) local s = shape(r, 2); return {data = s}, {axes = {r(0, #s - 1)}, keepdims = r(1, 2) == 1} end)
add("sort", function(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1), is_ascend = r(1, 2) == 1} end)
add("topk", function(r)
  local s = shape(r)
  local axis = r(0, #s - 1)
  return {data = s},
         {axis = axis, k = r(1, s[axis + 1]), ret_typ = "value", is_ascend = r(1, 2) == 1}
end)
add("diag", function(r) local s = shape(r, 1, 3); return {data = s}, {k = #s > 1 and r(0, 0) or r(-1, 1)} end)
add("_split_v2", function(r) return {data = {r(1, 3), 6}}, {indices = {0, r(1, 2), r(3, 5)}, axis = 1} end)
add("_rnn_param_concat", function(r) return {{r(1, 5)}, {r(1, 5)}, {r(1, 5)}}, {dim = 0} end)
add("broadcast_like", function(r) local a, b = shape(r, 2), {}; for i, d in ipairs(a) do b[i] = d end; a[r(1, #a)] = 1; return {lhs = a,
    rhs = b}, {} end)
add("reshape_like", function(r) local n, m = r(1, 4), r(1, 4); return {lhs = {n, m}, rhs = {m, n}}, {} end)
add("slice_like", function(r) local n, m = r(1, 3), r(1, 3); return {data = {n + r(0, 2), m + r(0, 2)}, shape_like = {n, m}}, {} end)
add("Crop", function(r)
  local h, w, x = r(1, 3), r(1, 3), r(0, 1)
  return {{1, 2, h + r(0, 2), w + x + r(0, 2)}}, {num_args = 1, h_w = {h, w}, offset = {0, x}}
end)
add("gather_nd", function(r) return {data = {3, 3, r(1, 3)}, indices = {r(1, 2), r(1, 4)}}, {}, nil, nil, {indices = 3} end)

-- Returns the positions in data (2, 3, n) that indices (2, k, n) name along axis 1, counted from 1.
local function along_places(x)
  local places, n, k = {}, x.data.shape[3], x.indices.shape[2]
  for i = 0, #x.indices - 1 do
    places[i + 1] = (math.floor(i / (k * n)) * 3 + x.indices[i + 1]) * n + i % n + 1
  end
  return places
end

-- Returns data after updates, in order.
local function updated(data, places, updates, reduction)
  local out = {}
  for i, v in ipairs(data) do out[i] = v end
  for i, at in ipairs(places) do out[at] = (reduction == "add" and out[at] or 0) + updates[i] end
  return {out}
end

add("_npi_where", function(r) local s, t = shape(r), {}; for i, d in ipairs(s) do t[i] = r(1, 2) == 1 and 1 or d end
  return {condition = t, x = s, y = t}, {}, nil, nil, {condition = 2} end, nil,
  function(x)
    local out, n = {}, #x.x
    for i = 0, n - 1 do
      local rest, at, step = i, 1, 1
      for k = #x.x.shape, 1, -1 do
        local j = rest % x.x.shape[k]
        rest = math.floor(rest / x.x.shape[k])
        at, step = at + (x.condition.shape[k] == 1 and 0 or j) * step, step * x.condition.shape[k]
      end
      out[i + 1] = x.condition[at] ~= 0 and x.x[i + 1] or x.y[at]
    end
    return {out}
  end)
add("_contrib_take_along_axis", function(r) local n = r(1, 3); return {data = {2, 3, n}, indices = {2, r(1, 4), n}}, {axis = 1}, nil, nil,
    {indices = 3} end, nil, function(x)
  local out = {}
  for i, at in ipairs(along_places(x)) do out[i] = x.data[at] end
  return {out}
end)
for reduction in ("none add"):gmatch("%S+") do
  add("_contrib_scatter_along_axis", function(r)
    local n, k = r(1, 3), r(1, 4)
    return {data = {2, 3, n}, indices = {2, k, n}, updates = {2, k, n}}, {axis = 1, reduction = reduction}, nil, nil, {indices = 3}
  end, nil, function(x, p) return updated(x.data, along_places(x), x.updates, p.reduction) end)
  add("_contrib_scatter_nd", function(r)
    local k, n = r(1, 4), r(1, 3)
    return {data = {3, n}, indices = {1, k}, updates = {k, n}}, {reduction = reduction}, nil, nil, {indices = 3}
  end, nil, function(x, p)
    local places, n = {}, x.data.shape[2]
    for i = 0, #x.updates - 1 do places[i + 1] = x.indices[math.floor(i / n) + 1] * n + i % n + 1 end
    return updated(x.data, places, x.updates, p.reduction)
  end)
end
add("_contrib_SparseEmbedding", function(r)
  local n, m = r(2, 6), r(1, 4)
  return {data = {r(1, 4)}, weight = {n, m}}, {input_dim = n, output_dim = m}, nil, nil, {data = n}
end, nil, function(x, p)
  local out = {}
  for _, row in ipairs(x.data) do
    for k = 1, p.output_dim do out[#out + 1] = x.weight[row * p.output_dim + k] end
  end
  return {out}
end)
add("_contrib_index_copy", function(r)
  local n, m = r(1, 4), r(1, 4)
  return {old_tensor = {n, m}, index_vector = {1}, new_tensor = {1, m}},
         {}, nil, nil, {index_vector = n}
end)
add("SequenceLast", function(r)
  local n = r(1, 3)
  return {data = {4, n, 2}, sequence_length = {n}},
         {use_sequence_length = true}, nil, nil, {sequence_length = 4}
end)

-- normalisation over a batch
for name in ("BatchNorm BatchNorm_v1 _contrib_SyncBatchNorm"):gmatch("%S+") do
  add(name, function(r)
    local c = r(1, 3)
    return {data = {r(2, 4), c, r(2, 3)}, gamma = {c}, beta = {c}},
           {eps = 0.1, fix_gamma = false, use_global_stats = r(1, 3) == 1, key = name:find("Sync") and "k" or nil}
  end)
end
add("_contrib_BatchNormWithReLU", function(r)
  local c = r(1, 3)
  return {data = {r(2, 4), c, r(2, 3)}, gamma = {c}, beta = {c}}, {eps = 0.1, fix_gamma = false}
end, nil, function(x, p)
  local n, c, width = unpack(x.data.shape)
  local function channel(i) return math.floor((i - 1) / width) % c + 1 end
  local mean, variance, out = {}, {}, {}
  for k = 1, c do mean[k], variance[k] = 0, 0 end
  for i, v in ipairs(x.data) do mean[channel(i)] = mean[channel(i)] + v / (n * width) end
  for i, v in ipairs(x.data) do variance[channel(i)] = variance[channel(i)] + (v - mean[channel(i)]) ^ 2 / (n * width) end
  for i, v in ipairs(x.data) do
    local k = channel(i)
    out[i] = math.max(0, x.gamma[k] * (v - mean[k]) / math.sqrt(variance[k] + p.eps) + x.beta[k])
  end
  return {out}
end)

-- images
add("Convolution_v1", function(r)
  local k = r(1, 3)
  return {data = {2, 2, r(side(k, 1), 5), r(k, 5)}, weight = {3, 2, k, k}, bias = {3}},
         {kernel = {k, k}, num_filter = 3, pad = {1, 0}}
end)
for kind in ("max avg sum"):gmatch("%S+") do
  add("Pooling_v1", function(r) return {data = {1, 2, r(2, 6), r(2, 6)}}, {kernel = {2, 2}, pool_type = kind, stride = {r(1, 2), 1}} end)
end
add("Pooling", function(r)
  local k = r(1, 3)
  return {data = {1, 2, r(2, 6), r(k, 6)}},
         {kernel = {2, k}, pool_type = "max", stride = {r(1, 2), 1}}
end)
add("_contrib_AdaptiveAvgPooling2D", function(r) return {data = {1, 2, r(1, 6), r(1, 6)}}, {output_size = {r(1, 4), r(1, 4)}} end)
add("Correlation", function(r) local s = {r(1, 2), 2, r(1, 5), r(1, 5)}; return {data1 = s, data2 = s}, {kernel_size = 1,
    max_displacement = r(1, 2), stride1 = 1, stride2 = 1, pad_size = 2, is_multiply = r(1, 2) == 1} end)
add("im2col", function(r)
  local k = r(1, 3)
  return {data = {r(1, 2), 2, r(1, 5), r(k, 5)}},
         {kernel = {2, k}, pad = {1, 0}, stride = {1, r(1, 2)}}
end)
add("col2im", function(r)
  local h, w = r(1, 4), r(2, 4)
  return {data = {r(1, 2), 2 * 4, (h + 1) * (w - 1)}},
         {output_size = {h, w}, kernel = {2, 2}, pad = {1, 0}}
end)
add("BilinearSampler", function(r) return {data = {2, 2, r(1, 5), r(1, 5)}, grid = {2, 2, r(1, 3), r(1, 3)}}, {}, -0.9, 0.9 end)
add("GridGenerator", function(r) return {data = {r(1, 3), 6}}, {transform_type = "affine", target_shape = {r(1, 4), r(1, 4)}} end)
add("GridGenerator", function(r) return {data = {r(1, 3), 2, r(2, 4), r(2, 4)}}, {transform_type = "warp"} end)
add("SpatialTransformer", function(r)
  return {data = {2, 2, r(1, 5), r(1, 5)}, loc = {2, 6}},
         {transform_type = "affine", sampler_type = "bilinear", target_shape = {r(1, 3), r(1, 3)}}, -0.45, 0.45
end)
regions("ROIPooling", function() return 2 end, function(r) return {pooled_size = {2, r(1, 2)}, spatial_scale = 0.8} end)

-- losses that read head gradients, densities
add("softmax_cross_entropy", function(r)
  local n = r(2, 4)
  local m = r(1, 4)
  return {data = {m, n}, label = {m}}, {}, nil, nil, {label = n}
end)
add("CTCLoss", function(r)                                -- equal labels need a blank between them: 2 m - 1 steps of time
  local n, m = r(1, 3), r(1, 3)
  return {data = {2 * m - 1 + r(0, 3), n, 4}, label = {n, m}}, {}, nil, nil, {label = 4}
end)
local function density(law, ports, fixed)
  for log = 0, 1 do
    add("_random_pdf_" .. law, function(r)
      local n, m = r(1, 3), r(1, 3)
      local inputs = {sample = {n, m}}
      for port in ports:gmatch("%S+") do inputs[port] = {n} end
      -- their digamma is the reference's, which takes one logarithm in single precision
      return inputs, {is_log = log == 1}, 0.3, 0.9, fixed and {sample = fixed} or nil, 1e-5
    end)
  end
end
density("exponential", "lam")
density("gamma", "alpha beta")
density("normal", "mu sigma")
density("poisson", "lam", 5)
density("negative_binomial", "k p", 5)
density("generalized_negative_binomial", "mu alpha", 5)
add("_random_pdf_dirichlet", function(r)
  local n, k = r(1, 3), r(2, 4)
  return {sample = {n, r(1, 3), k}, alpha = {n, k}}, {is_log = r(1, 2) == 1}, 0.3, 0.9
end)

-- Fills x with matrices that are far from singular: noise with 3 on the diagonal.
local function regular(x, random)
  local p, n = x:data(), x.shape[#x.shape]
  for i = 0, x.size - 1 do p[i] = (random() - 0.5) * 1.5 + (math.floor(i / n) % n == i % n and 3 or 0) end
end
local function square_stack(r) local n = r(1, 4); return {A = stack(r, n, n)}, {}, regular end
for name in ("_linalg_det _linalg_inverse"):gmatch("%S+") do add(name, square_stack) end
add("_linalg_slogdet", square_stack, function(x) return ty.sym._linalg_slogdet{x.A}[2] end)     -- a sign has no slope
add("_linalg_gelqf", function(r) local m = r(1, 3); return {A = stack(r, m, m)}, {}, regular end)
-- Returns symmetric matrices, whose elements do not vary alone: A A' + A0.
local function symmetric(x) return ty.sym._linalg_syrk{x.A} end
for name in ("_linalg_potrf _linalg_syevd"):gmatch("%S+") do
  add(name, square_stack, function(x) return ty.sym[name]{symmetric(x)} end)
end
add("_linalg_potri", square_stack)

-- events of two kinds, all within the time
add("_contrib_hawkesll", function(r)
  local n, t = r(1, 2), r(1, 4)
  return {lda = {n, 2}, alpha = {2}, beta = {2}, state = {n, 2}, lags = {n, t}, marks = {n, t}, valid_length = {n}, max_time = {n}}, {},
    0.3, 0.9, {state = 2, lags = 2, marks = 2, valid_length = 3, max_time = 2}
end, function(x)
  return ty.sym._contrib_hawkesll{lda = x.lda, alpha = x.alpha, beta = x.beta, state = x.state, lags = x.lags,
    marks = ty.sym.Cast{x.marks, dtype = "int32"}, valid_length = x.valid_length, max_time = x.max_time + 9}[1]
end)
add("scatter_nd", function(r) local n = r(1, 3); return {data = {1, n}, indices = {1, 1}}, {shape = {4, n}}, nil, nil, {indices = 4} end)
add("cast_storage", function(r) return {data = shape(r)}, {stype = "default"} end, nil, function(x) return {x.data} end)
add("_sparse_retain", function(r)
  local n = r(2, 4)
  return {data = {n, r(1, 3)}, indices = {r(1, 3)}}, {}, nil, nil, {indices = n}
end, nil, function(x)
  local width, kept, out = x.data.shape[2], {}, {}
  for _, row in ipairs(x.indices) do kept[row] = true end
  for i, v in ipairs(x.data) do out[i] = kept[math.floor((i - 1) / width)] and v or 0 end
  return {out}
end)
add("amp_multicast", function(r) return {shape(r), shape(r)}, {num_outputs = 2} end)

return cases
