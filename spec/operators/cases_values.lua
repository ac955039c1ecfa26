--- One line for each operator whose gradient is not the derivative of its output: what it computes, in Lua.
--
-- A line is {name, make, want, options}; make(r) as in spec/operators/cases.lua. want(x, p, heads) returns the outputs and, where
-- the operator has a gradient of its own, the gradients by input; all are flat lists, row-major. x.NAME (x[1] .. of
-- operators that take any number) is such a list with a shape, p the parameters, heads the head gradients. Without `want`
-- the values stand in another spec, spec/`options.values`.lua. options.imperative: arrays only, an input is changed or
-- the shape is not known; options.build as in spec/operators/cases.lua; options.dtype: the widest type that it takes, float64 unless
-- given; options.bound: of the error.

local ty = require "tycho"
local pointwise = require "spec.operators.cases_pointwise"
local with_gradient = require "spec.operators.cases"

local cases = {}

local function add(name, make, want, options)
  options = options or {}
  cases[#cases + 1] = {name, make, want = want, options = options, build = options.build}
end

-- -- lists ----------------------------------------------------------------------------------------------------------------

local function shape(r, least, most)
  local s = {}
  for i = 1, r(least or 1, most or 4) do s[i] = r(1, 4) end
  return s
end

local function count(s)
  local n = 1
  for _, d in ipairs(s) do n = n * d end
  return n
end

local function list(n, f)
  local t = {}
  for i = 1, n do t[i] = f(i) end
  return t
end

local function same(v) return v end
local function map(x, f) return list(#x, function(i) return f(x[i], i) end) end

-- Replaces lines along an axis (from 0): f(elements, number of the line) returns a number or a
-- list.
local function along(x, axis, f)
  local outer, n, inner = 1, x.shape[axis + 1], 1
  for k, d in ipairs(x.shape) do
    if k <= axis then outer = outer * d elseif k > axis + 1 then inner = inner * d end
  end
  local out = {}
  for o = 0, outer - 1 do
    for i = 0, inner - 1 do
      local y = f(list(n, function(k) return x[(o * n + k - 1) * inner + i + 1] end), o * inner + i + 1)
      if type(y) ~= "table" then y = {y} end
      for k, v in ipairs(y) do out[(o * #y + k - 1) * inner + i + 1] = v end
    end
  end
  return out
end

local function first(better)
  return function(row)
    local best = 1
    for k, v in ipairs(row) do if better(v, row[best]) then best = k end end
    return best - 1
  end
end
local first_most, first_least = first(function(a, b) return a > b end), first(function(a, b) return a < b end)

local function softmax(row)
  local sum, most = 0, math.max(unpack(row))
  local e = map(row, function(v) return math.exp(v - most) end)
  for _, v in ipairs(e) do sum = sum + v end
  return map(e, function(v) return v / sum end)
end

local function sum(x, f)
  local s = 0
  for _, v in ipairs(x) do s = s + (f and f(v) or v) end
  return s
end

-- Fills x with numbers that differ by a quarter or more, so that no type makes two of them equal.
local function apart(x, random)
  local p, n = x:data(), x.size
  for i = 0, n - 1 do p[i] = (i - math.floor(n / 2)) / 4 end
  for i = n - 1, 1, -1 do
    local k = random(0, i)
    p[i], p[k] = p[k], p[i]
  end
end

-- -- element-wise, from the formulas ------------------------------------------------------------------------------------

local OWN = {                                             -- gradients that are no derivatives
  _contrib_round_ste = function(h) return h end,
  _contrib_sign_ste = function(h) return h end,
  _contrib_gradientmultiplier = function(h) return -2 * h end,
  make_loss = function() return 1 end,
  MakeLoss = function() return 1 end,
}

local covered = {}
for _, line in ipairs(with_gradient) do covered[line[1]] = true end

local function sorted(t)
  local keys = {}
  for k in pairs(t) do if not covered[k] and k ~= "MakeLoss" then keys[#keys + 1] = k end end
  table.sort(keys)
  return keys
end

for _, name in ipairs(sorted(pointwise.unary)) do
  add(name, function(r) return {data = shape(r)}, pointwise.params[name] or {}, -2, 2 end, function(x, _, heads)
    return {map(x.data, pointwise.unary[name])}, OWN[name] and {data = map(heads[1], OWN[name])}
  end)
end
for _, name in ipairs(sorted(pointwise.binary)) do
  add(name, function(r)
    local s = shape(r)
    return {lhs = s, rhs = s}, {}, apart
  end, function(x) return {map(x.lhs, function(a, i) return pointwise.binary[name](a, x.rhs[i]) end)} end)
end
for _, name in ipairs(sorted(pointwise.scalar)) do
  add(name, function(r) return {data = shape(r)}, {scalar = r(-2, 2) / 4}, apart end, function(x, p)
    return {map(x.data, function(a) return pointwise.scalar[name](a, p.scalar) end)}
  end)
end

-- -- makers ------------------------------------------------------------------------------------------------------------------

local function maker(name, params, f, n)
  add(name, function(r)
    local p = params(r)
    p.dtype = p.dtype or "float64"
    return {}, p
  end, function(_, p) return {list(n and n(p) or count(p.shape), function(i) return f(i - 1, p) end)} end)
end

maker("_zeros", function(r) return {shape = shape(r)} end, function() return 0 end)
maker("_ones", function(r) return {shape = shape(r)} end, function() return 1 end)
maker("_full", function(r) return {shape = shape(r), value = r(-4, 4) / 2} end, function(_, p) return p.value end)
maker("_zeros_without_dtype", function(r) return {shape = shape(r), dtype = 1} end, function() return 0 end)
add("_NoGradient", function(r) local s = shape(r); return {data = s}, {} end, function(x, _, heads)
  return {map(x.data, same)}, {data = heads[1]}
end, {build = function(x) return x.data + ty.sym._NoGradient{} end})
maker("_arange", function(r) return {start = r(-3, 3), stop = 4 + r(0, 4), step = r(1, 3), ["repeat"] = r(1, 2)} end,
  function(i, p) return p.start + math.floor(i / p["repeat"]) * p.step end,
  function(p) return math.ceil((p.stop - p.start) / p.step) * p["repeat"] end)
maker("_linspace", function(r) return {start = r(-3, 3), stop = 4 + r(0, 4), num = r(2, 6), endpoint = r(1, 2) == 1} end,
  function(i, p) return p.start + i * (p.stop - p.start) / (p.num - (p.endpoint and 1 or 0)) end, function(p) return p.num end)
maker("_eye", function(r) return {N = r(1, 4), M = r(1, 5), k = r(-2, 2)} end,
  function(i, p) return i % p.M - math.floor(i / p.M) == p.k and 1 or 0 end, function(p) return p.N * p.M end)
add("_set_value", function(r) return {}, {src = r(-4, 4) / 2, out = shape(r)} end, function(_, p)
  return {list(count(p.out), function() return p.src end)}
end, {imperative = true})

add("shape_array", function(r) return {data = shape(r)}, {} end, function(x) return {x.data.shape} end)
add("size_array", function(r) return {data = shape(r)}, {} end, function(x) return {{#x.data}} end)
add("_contrib_index_array", function(r) return {data = {r(1, 3), r(1, 3)}}, {} end, function(x)
  local out = {}
  for i = 0, #x.data - 1 do
    out[2 * i + 1], out[2 * i + 2] = math.floor(i / x.data.shape[2]), i % x.data.shape[2]
  end
  return {out}
end)
add("_contrib_arange_like", function(r) return {data = shape(r)}, {start = r(-2, 2), step = r(1, 3)} end, function(x, p)
  return {list(#x.data, function(i) return p.start + (i - 1) * p.step end)}
end)

-- -- choosing and ordering -----------------------------------------------------------------------------------------------------

local function ranked(r) local s = shape(r); return {data = s}, {axis = r(0, #s - 1)}, apart end
add("argmax", ranked, function(x, p) return {along(x.data, p.axis, first_most)} end)
add("argmin", ranked, function(x, p) return {along(x.data, p.axis, first_least)} end)
add("argmax_channel", function(r) return {data = {r(1, 3), r(1, 4), r(1, 3)}}, {}, apart end, function(x)
  return {along(x.data, 1, first_most)}
end)
add("argsort", function(r)
  local s = shape(r)
  return {data = s}, {axis = r(0, #s - 1), is_ascend = r(1, 2) == 1}, apart
end, function(x, p)
  return {along(x.data, p.axis, function(row)
    local order = list(#row, function(k) return k - 1 end)
    table.sort(order, function(a, b)
      if p.is_ascend then return row[a + 1] < row[b + 1] end
      return row[a + 1] > row[b + 1]
    end)
    return order
  end)}
end)
add("one_hot", function(r) return {indices = shape(r)}, {depth = r(1, 4), on_value = 2, off_value = -1}, nil, nil, {indices = 5} end,
  function(x, p)
    local out = {}
    for _, v in ipairs(x.indices) do
      for k = 0, p.depth - 1 do out[#out + 1] = v == k and p.on_value or p.off_value end
    end
    return {out}
  end)
add("_onehot_encode", function(r) local n = r(1, 4); return {{n}, {n, 3}}, {out = {n, 3}}, nil, nil, {3, 1} end, function(x)
  return {along({shape = {#x[1], 3}, unpack(list(3 * #x[1], function() return 0 end))}, 1, function(_, row)
    return list(3, function(k) return x[1][row] == k - 1 and 1 or 0 end)
  end)}
end, {imperative = true})
add("fill_element_0index", function(r) local n = r(1, 4); return {{n, 3}, {n}, {n}}, {}, nil, nil, {[3] = 3} end, function(x)
  return {along(x[1], 1, function(row, i) row[x[3][i] + 1] = x[2][i]; return row end)}
end, {imperative = true})
add("batch_take", function(r) local n = r(1, 4); return {a = {n, 3}, indices = {n}}, {}, nil, nil, {indices = 3} end, function(x)
  return {along(x.a, 1, function(row, i) return row[x.indices[i] + 1] end)}
end)
add("_ravel_multi_index", function(r) return {data = {3, r(1, 4)}}, {shape = {3, 4, 5}}, nil, nil, {data = 3} end, function(x, p)
  return {along(x.data, 0, function(c) return (c[1] * p.shape[2] + c[2]) * p.shape[3] + c[3] end)}
end)
add("_unravel_index", function(r) return {data = {r(1, 5)}}, {shape = {2, 3, 4}}, nil, nil, {data = 24} end, function(x)
  local n, out = #x.data, {}
  for i, v in ipairs(x.data) do out[i], out[n + i], out[2 * n + i] = math.floor(v / 12), math.floor(v / 4) % 3, v % 4 end
  return {out}
end)
add("_histogram", function(r) return {data = shape(r)}, {bin_cnt = 4, range = {-2, 2}}, apart end, function(x, p)
  local bins = {0, 0, 0, 0}
  for _, v in ipairs(x.data) do
    local k = v == 2 and 4 or math.floor(v + 2) + 1
    if bins[k] then bins[k] = bins[k] + 1 end
  end
  return {bins, list(p.bin_cnt + 1, function(i) return i - 3 end)}
end)
add("khatri_rao", function(r) local k = r(1, 3); return {{r(1, 3), k}, {r(1, 3), k}}, {} end, function(x)
  local k, m = x[1].shape[2], x[2].shape[1]
  return {list(x[1].shape[1] * m * k, function(i)
    local row, column = math.floor((i - 1) / k), (i - 1) % k
    return x[1][math.floor(row / m) * k + column + 1] * x[2][row % m * k + column + 1]
  end)}
end)

-- Returns whether element i (from 1) of (4, 5) is in rows 1 to 2 and columns 1 to 3, counted from
-- 0.
local function inside(i) return math.floor((i - 1) / 5) % 3 ~= 0 and (i - 1) % 5 >= 1 and (i - 1) % 5 <= 3 end
local WINDOW = {begin = {1, 1}, ["end"] = {3, 4}}
add("_slice_assign", function() return {lhs = {4, 5}, rhs = {2, 3}}, WINDOW end, function(x)
  return {map(x.lhs, function(v, i) return inside(i) and x.rhs[(math.floor((i - 1) / 5) - 1) * 3 + (i - 1) % 5] or v end)}
end)
add("_slice_assign_scalar", function() return {data = {4, 5}}, {begin = {1, 1}, ["end"] = {3, 4}, scalar = 1.5} end, function(x)
  return {map(x.data, function(v, i) return inside(i) and 1.5 or v end)}
end)
add("_scatter_set_nd", function()
  return {lhs = {5}, rhs = {1}, indices = {1, 1}}, {shape = {5}, out = {5}}, nil, nil, {indices = 5}
end, function(x) return {map(x.lhs, function(v, i) return i == x.indices[1] + 1 and x.rhs[1] or v end)} end, {imperative = true})

-- -- tests of arrays -------------------------------------------------------------------------------------------------------------

add("all_finite", function(r) return {data = shape(r)}, {} end, function() return {{1}} end)
add("multi_all_finite", function(r) return {shape(r), shape(r)}, {num_arrays = 2} end, function() return {{1}} end)
add("multi_sum_sq", function(r) return {shape(r), shape(r)}, {num_arrays = 2} end, function(x)
  return {list(2, function(k) return sum(x[k], function(v) return v * v end) end)}
end, {bound = 1e-6})                                      -- its output is float32, whatever goes in
add("multi_lars", function(r)
  local n = r(1, 4)
  return {lrs = {n}, weights_sum_sq = {n}, grads_sum_sq = {n}, wds = {n}}, {eta = 0.5, eps = 0.125, rescale_grad = 2}, 0.1, 1
end, function(x, p)
  return {map(x.lrs, function(lr, i)
    local w, g = math.sqrt(x.weights_sum_sq[i]), math.sqrt(x.grads_sum_sq[i])
    return lr * p.eta * w / (g * p.rescale_grad + x.wds[i] * w + p.eps)
  end)}
end)
add("reset_arrays", function(r) return {shape(r), shape(r)}, {num_arrays = 2} end, function(x)
  return {map(x[1], function() return 0 end), map(x[2], function() return 0 end)}
end, {imperative = true, changed = true})
add("_contrib_getnnz", function(r) return {data = {r(1, 4), r(1, 3)}}, {axis = ({0, 1})[r(1, 3)]}, apart end, function(x, p)
  local filled = map(x.data, function(v) return v ~= 0 and 1 or 0 end)
  filled.shape = x.data.shape
  return {p.axis and along(filled, p.axis, function(row) return sum(row) end) or {sum(filled)}}
end)
add("_contrib_allclose", function(r) local s = shape(r); return {a = s, b = s}, {rtol = 0, atol = 1.25} end, function(x)
  local close = true
  for i, v in ipairs(x.a) do close = close and math.abs(v - x.b[i]) <= 1.25 end
  return {{close and 1 or 0}}
end)

-- -- losses: the gradient is that of a loss that is never computed ---------------------------------------------------------------

local function regression(name, y_of, slope)
  add(name, function(r)
    local s = {r(1, 4), r(1, 3)}
    return {data = s, label = s}, {grad_scale = r(1, 3)}
  end, function(x, p)
    local y = map(x.data, y_of)
    return {y}, {data = map(y, function(v, i) return slope(v - x.label[i]) * p.grad_scale / x.label.shape[2] end),
                 label = map(y, function() return 0 end)}
  end)
end
regression("LinearRegressionOutput", same, same)
regression("LogisticRegressionOutput", pointwise.unary.sigmoid, same)
regression("MAERegressionOutput", same, function(d) return d > 0 and 1 or -1 end)

add("SoftmaxOutput", function(r)
  local n, k = r(1, 4), r(2, 4)
  return {data = {n, k}, label = {n}}, {grad_scale = r(1, 3), use_ignore = r(1, 2) == 1, ignore_label = 1, smooth_alpha = 0.25 * r(0, 1),
      normalization = ({"null", "batch", "valid"})[r(1, 3)]}, nil, nil, {label = k}
end, function(x, p)
  local valid = 0
  for _, l in ipairs(x.label) do if l ~= p.ignore_label then valid = valid + 1 end end
  local z = p.normalization == "batch" and #x.label or p.normalization == "valid" and math.max(1, valid) or 1
  return {along(x.data, 1, softmax)}, {data = along(x.data, 1, function(row, i)
    if p.use_ignore and x.label[i] == p.ignore_label then return map(row, function() return 0 end) end
    return map(softmax(row), function(v, k)
      local target = k - 1 == x.label[i] and 1 - p.smooth_alpha or p.smooth_alpha / (#row - 1)
      return (v - target) * p.grad_scale / z
    end)
  end)}
end)
add("SVMOutput", function(r)
  local n, k = r(1, 4), r(2, 4)
  return {data = {n, k}, label = {n}},
         {margin = 0.5, regularization_coefficient = r(1, 3), use_linear = r(1, 2) == 1}, nil, nil, {label = k}
end, function(x, p)
  local R, m = p.regularization_coefficient, p.margin
  return {map(x.data, same)}, {data = along(x.data, 1, function(row, i)
    return map(row, function(v, k)
      local s = k - 1 == x.label[i] and -1 or 1           -- the target is pulled up, the others down
      local over = m + s * v
      return over <= 0 and 0 or p.use_linear and s * R or 2 * s * R * over
    end)
  end)}
end)
add("MakeLoss", function(r)
  return {data = {r(1, 4), r(1, 3)}},
         {grad_scale = r(1, 3), valid_thresh = 0.25, normalization = ({"null", "batch", "valid"})[r(1, 3)]}
end, function(x, p)
  local valid = sum(x.data, function(v) return v > p.valid_thresh and 1 or 0 end)
  local z = p.normalization == "batch" and x.data.shape[1] or p.normalization == "valid" and math.max(1, valid) or 1
  return {map(x.data, same)}, {data = map(x.data, function() return p.grad_scale / z end)}
end)
add("IdentityAttachKLSparseReg", function(r) return {data = {r(2, 4), r(1, 3)}}, {sparseness_target = 0.25, penalty = 0.5,
    momentum = 0.5}, 0.1, 0.9 end, function(x, p, heads)
  local n, c, m = x.data.shape[1], x.data.shape[2], {}
  for k = 1, c do
    local mean = 0
    for i = 0, n - 1 do mean = mean + x.data[i * c + k] / n end
    m[k] = 0.5 * 1 + 0.5 * mean                           -- auxiliary states begin with 1
  end
  return {map(x.data, same)}, {data = map(heads[1], function(h, i)
    local v = m[(i - 1) % c + 1]
    return h + p.penalty * (-p.sparseness_target / v + (1 - p.sparseness_target) / (1 - v))
  end)}
end)
add("_random_pdf_uniform", function(r)
  local n = r(1, 3)
  return {sample = {n, r(1, 3)}, low = {n}, high = {n}}, {}, function(x, random, key)
    local p = x:data()
    for i = 0, x.size - 1 do p[i] = key == "low" and -random() or key == "high" and 1 + random() or random() end
  end
end, function(x, _, heads)
  local width, low = map(x.low, function(v, i) return x.high[i] - v end), map(x.low, function() return 0 end)
  local per = x.sample.shape[2]
  local function row(i) return math.floor((i - 1) / per) + 1 end
  for i, h in ipairs(heads[1]) do low[row(i)] = low[row(i)] + h / width[row(i)] ^ 2 end
  return {map(x.sample, function(_, i) return 1 / width[row(i)] end)},
         {sample = map(x.sample, function() return 0 end), low = low, high = map(low, function(v) return -v end)}
end)

-- -- images --------------------------------------------------------------------------------------------------------------------------

local SINGLE = {dtype = "float32", bound = 1e-5}          -- their pixels are bytes or float32
local function image(r) return {data = {r(1, 4), r(1, 4), 3}} end
local function pixel(x, i) local k = math.floor((i - 1) / 3) * 3; return x[k + 1], x[k + 2], x[k + 3] end
add("_image_to_tensor", function(r) return image(r), {} end, function(x, _, heads)
  local h, w = x.data.shape[1], x.data.shape[2]
  local plane = h * w
  local function place(i) return (i - 1) % 3 * plane + math.floor((i - 1) / 3) + 1 end
  local out = {}
  for i, v in ipairs(x.data) do out[place(i)] = v / 255 end
  return {out}, {data = map(x.data, function(_, i) return heads[1][place(i)] / 255 end)}
end, SINGLE)
add("_image_random_brightness", function(r) local f = r(1, 4) / 2; return image(r), {min_factor = f, max_factor = f} end, function(x, p)
  return {map(x.data, function(v) return v * p.min_factor end)}
end, SINGLE)
add("_image_random_contrast", function(r) local f = r(1, 4) / 2; return image(r), {min_factor = f, max_factor = f} end, function(x, p)
  local grey = 0
  for i = 1, #x.data, 3 do
    local red, green, blue = pixel(x.data, i)
    grey = grey + (0.299 * red + 0.587 * green + 0.114 * blue) / (#x.data / 3)
  end
  return {map(x.data, function(v) return v * p.min_factor + (1 - p.min_factor) * grey end)}
end, SINGLE)
add("_image_random_saturation", function(r) local f = r(1, 4) / 2; return image(r), {min_factor = f, max_factor = f} end, function(x, p)
  return {map(x.data, function(v, i)
    local _, _, blue = pixel(x.data, i)                   -- the reference's grey is the third channel's part alone
    return v * p.min_factor + (1 - p.min_factor) * 0.114 * blue
  end)}
end, SINGLE)
add("_image_random_hue", function(r) return image(r), {min_factor = 0, max_factor = 0}, 0, 255 end,
  function(x) return {map(x.data, same)} end, SINGLE)
add("_image_random_color_jitter", function(r) return image(r), {brightness = 0, contrast = 0, saturation = 0, hue = 0}, 0, 255 end,
  function(x) return {map(x.data, same)} end, SINGLE)
add("_image_random_lighting", function(r) return image(r), {alpha_std = 0} end, function(x) return {map(x.data, same)} end, SINGLE)
add("_image_adjust_lighting", function(r) return image(r), {alpha = {0, 0, 0}} end, function(x) return {map(x.data, same)} end, SINGLE)
local IMAGE = {values = "image/image_spec", dtype = "float32"}
add("_image_resize", function(r) return image(r), {size = {2 * r(1, 3), r(1, 4)}} end, nil, IMAGE)
add("_cvimresize", function(r) return {src = {r(1, 4), r(1, 4), 3}}, {w = r(1, 5), h = r(1, 5)} end, nil, IMAGE)
add("_cvcopyMakeBorder", function(r) return {src = {r(1, 3), r(1, 3), 3}}, {top = 1, bot = 0, left = 2, right = 1, value = 1.5} end,
  function(x)
    local h, w, out = x.src.shape[1], x.src.shape[2], {}
    for i = 0, h do
      for k = 0, w + 2 do
        for c = 1, 3 do
          local here = i > 0 and k > 1 and k < w + 2
          out[#out + 1] = here and x.src[((i - 1) * w + k - 2) * 3 + c] or 1.5
        end
      end
    end
    return {out}
  end, SINGLE)

-- -- boxes ---------------------------------------------------------------------------------------------------------------------------

-- Fills x with corners (x1, y1, x2, y2) with x1 < x2, y1 < y2, in eighths.
local function corners(x, random)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = i % 4 < 2 and random(0, 3) / 8 or random(4, 8) / 8 end
end
local function box(x, i) return x[4 * i + 1], x[4 * i + 2], x[4 * i + 3], x[4 * i + 4] end
add("_contrib_box_iou", function(r) return {lhs = {r(1, 4), 4}, rhs = {r(1, 4), 4}}, {}, corners end, function(x)
  local out = {}
  for i = 0, x.lhs.shape[1] - 1 do
    for k = 0, x.rhs.shape[1] - 1 do
      local ax, ay, aX, aY = box(x.lhs, i)
      local bx, by, bX, bY = box(x.rhs, k)
      local common = math.max(0, math.min(aX, bX) - math.max(ax, bx)) * math.max(0, math.min(aY, bY) - math.max(ay, by))
      out[#out + 1] = common / ((aX - ax) * (aY - ay) + (bX - bx) * (bY - by) - common)
    end
  end
  return {out}
end)
add("_contrib_box_decode", function(r)
    local n = r(1, 4)
    return {data = {r(1, 2), n, 4}, anchors = {1, n, 4}}, {format = "corner"}, corners
  end, function(x)
    local out, n = {}, x.anchors.shape[2]
    for i = 0, #x.data / 4 - 1 do
      local ax, ay, aX, aY = box(x.anchors, i % n)
      local dx, dy, dw, dh = box(x.data, i)
      local w, h = aX - ax, aY - ay
      local cx, cy = (ax + aX) / 2 + dx * w, (ay + aY) / 2 + dy * h
      w, h = w * math.exp(dw) / 2, h * math.exp(dh) / 2
      for _, v in ipairs{cx - w, cy - h, cx + w, cy + h} do out[#out + 1] = v end
    end
    return {out}
  end)
local DETECTION = {values = "operators/detection_spec"}
add("_contrib_box_encode", function(r)
  local n = r(1, 3)
  return {samples = {1, n}, matches = {1, n}, anchors = {1, n, 4}, refs = {1, 2, 4}, means = {4}, stds = {4}}, {}, corners, nil,
         {samples = 2, matches = 2}
end, nil, DETECTION)
add("_contrib_bipartite_matching", function(r)
  return {data = {r(1, 2), r(1, 3), r(1, 3)}}, {threshold = 0.125}, apart
end, nil, DETECTION)
add("_contrib_MultiBoxPrior", function(r)
  return {data = {1, 1, r(1, 3), r(1, 3)}}, {sizes = {0.5, 0.25}, ratios = {1, 2}}
end, nil, DETECTION)
add("_contrib_MultiBoxTarget", function(r)
  local n = r(1, 4)
  return {anchor = {1, n, 4}, label = {1, 2, 5}, cls_pred = {1, 3, n}}, {}, corners, nil, {label = 2}
end, nil, DETECTION)
add("_contrib_MultiBoxDetection", function(r)
  local n = r(1, 4)
  return {cls_prob = {1, 3, n}, loc_pred = {1, 4 * n}, anchor = {1, n, 4}}, {}, apart
end, nil, DETECTION)
for name in ("_contrib_Proposal _contrib_MultiProposal"):gmatch("%S+") do
  add(name, function(r)
    local h, w = r(1, 3), r(1, 3)
    return {cls_prob = {1, 2, h, w}, bbox_pred = {1, 4, h, w}, im_info = {1, 3}},
           {scales = {8}, ratios = {1}, rpn_post_nms_top_n = 4}, apart
  end, nil, DETECTION)
end
add("_contrib_RROIAlign", function(r)
  return {data = {2, 1, 4, 4}, rois = {r(1, 3), 6}}, {pooled_size = {2, 2}, spatial_scale = 1}, nil, nil, {rois = 2}
end, nil, DETECTION)

return cases
