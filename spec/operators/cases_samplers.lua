--- One line for each operator that draws random numbers: how to draw n of them, and their law.
--
-- A line is {name, draw, law}: draw(n) gives a flat list of numbers, n or, where each takes a call, fewer. A law has a mean and a
-- variance, and cdf(x), where it is continuous, or pmf(k) of whole numbers from `first`. Sources: textbooks.

local ty = require "tycho"
local arrays = require "spec.support.arrays"

local cases = {}

local function add(name, draw, law) cases[#cases + 1] = {name, draw, law} end

-- -- functions ------------------------------------------------------------------------------------------------------------------

local LANCZOS = {76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 1.208650973866179e-3, -5.395239384953e-6}
local function ln_gamma(x)
  local sum, t = 1.000000000190015, x + 5.5
  for k, c in ipairs(LANCZOS) do sum = sum + c / (x + k) end
  return (x + 0.5) * math.log(t) - t + math.log(2.5066282746310005 * sum / x)
end

-- Returns the regularised lower incomplete gamma function, by its series.
local function gamma_p(a, x)
  if x <= 0 then return 0 end
  local term = 1 / a
  local sum, k = term, a
  repeat
    k = k + 1
    term = term * x / k
    sum = sum + term
  until term < sum * 1e-14
  return math.min(1, sum * math.exp(a * math.log(x) - x - ln_gamma(a)))
end

-- -- laws -------------------------------------------------------------------------------------------------------------------------

local function uniform(low, high)
  return {mean = (low + high) / 2, variance = (high - low) ^ 2 / 12, cdf = function(x)
    return math.max(0, math.min(1, (x - low) / (high - low)))
  end}
end
local function normal(mu, sigma)
  return {mean = mu, variance = sigma ^ 2, cdf = function(x)
    local z = (x - mu) / sigma
    return 0.5 * (1 + (z < 0 and -1 or 1) * gamma_p(0.5, z * z / 2))
  end}
end
local function gamma(alpha, beta)                         -- beta is a scale
  return {mean = alpha * beta, variance = alpha * beta ^ 2, cdf = function(x) return gamma_p(alpha, x / beta) end}
end
local function exponential(lam) return gamma(1, 1 / lam) end
local function poisson(lam)
  return {mean = lam, variance = lam, first = 0, pmf = function(k) return math.exp(k * math.log(lam) - lam - ln_gamma(k + 1)) end}
end
local function failures(r, p)                             -- before the r-th success
  return {mean = r * (1 - p) / p, variance = r * (1 - p) / p ^ 2, first = 0, pmf = function(k)
    return math.exp(ln_gamma(k + r) - ln_gamma(k + 1) - ln_gamma(r) + r * math.log(p) + k * math.log(1 - p))
  end}
end
local function dispersed(mu, alpha) return failures(1 / alpha, 1 / (1 + alpha * mu)) end
local function make_table(first, p)
  local mean, square = 0, 0
  for i, v in ipairs(p) do mean, square = mean + (first + i - 1) * v, square + (first + i - 1) ^ 2 * v end
  return {mean = mean, variance = square - mean ^ 2, first = first, pmf = function(k) return p[k - first + 1] or 0 end}
end
local function equal(low, high)                           -- whole numbers, high excluded
  local p = {}
  for i = 1, high - low do p[i] = 1 / (high - low) end
  return make_table(low, p)
end

-- -- drawing ------------------------------------------------------------------------------------------------------------------------

local function flat(x)
  local values, n = arrays.numbers(x)
  local t = {}
  for i = 1, n do t[i] = tonumber(values[i - 1]) end
  return t
end

local function with(options, more)
  local all = {}
  for k, v in pairs(options) do all[k] = v end
  for k, v in pairs(more) do all[k] = v end
  return all
end

-- Adds _random_X, _random_X_like, and _sample_X, which takes its parameters from arrays: the last
-- of several.
local function family(law_name, law, names, ...)
  for _, values in ipairs{...} do
    local options = {}
    for i, name in ipairs(names) do options[name] = values[i] end
    local of = law(unpack(values))
    add("_random_" .. law_name, function(n)
      return flat(ty.nd["_random_" .. law_name](with(options, {shape = {n}, dtype = "float64"})))
    end, of)
    add("_random_" .. law_name .. "_like", function(n)
      return flat(ty.nd["_random_" .. law_name .. "_like"](with(options, {ty.nd.zeros({n}, {dtype = "float64"})})))
    end, of)
    add("_sample_" .. law_name, function(n)
      local inputs = {shape = {n}, dtype = "float64"}
      for i in ipairs(names) do inputs[i] = ty.nd.array({1, values[i]}, {dtype = "float64"}) end
      return flat(ty.nd.slice_axis(ty.nd["_sample_" .. law_name](inputs), {axis = 0, begin = 1, ["end"] = 2}))
    end, of)
  end
end

family("uniform", uniform, {"low", "high"}, {0, 1}, {-3, 5})
family("normal", normal, {"loc", "scale"}, {0, 1}, {-2, 0.5})
family("gamma", gamma, {"alpha", "beta"}, {0.5, 1}, {1, 2}, {7.5, 0.5})
family("exponential", exponential, {"lam"}, {1}, {4})
family("poisson", poisson, {"lam"}, {0.75}, {9}, {40})
family("negative_binomial", failures, {"k", "p"}, {1, 0.5}, {6, 0.25})
family("generalized_negative_binomial", dispersed, {"mu", "alpha"}, {2, 0.25}, {6, 1.5})
add("_random_randint", function(n) return flat(ty.nd._random_randint{low = -3, high = 8, shape = {n}}) end, equal(-3, 8))
add("_random_randint", function(n) return flat(ty.nd._random_randint{low = 0, high = 2, shape = {n}, dtype = "int64"}) end, equal(0, 2))
add("_sample_multinomial", function(n) return flat(ty.nd._sample_multinomial{ty.nd.array{0.1, 0, 0.4, 0.3, 0.2}, shape = {n}}) end,
  make_table(0, {0.1, 0, 0.4, 0.3, 0.2}))

local ZIPF = {}
for k = 0, 19 do ZIPF[k + 1] = math.log((k + 2) / (k + 1)) / math.log(21) end
add("_sample_unique_zipfian", function(n)
  return flat(ty.nd._sample_unique_zipfian{range_max = 20, shape = {n, 1}}[1])
end, make_table(0, ZIPF))

-- Returns a function that draws one number many times.
local function repeated(f) return function(n)
  local t = {}
  for i = 1, n / 10 do t[i] = f() end
  return t
end end

local THREE = ty.nd.array{1, 2, 3}
add("_shuffle", repeated(function()
  local p = flat(ty.nd._shuffle{THREE})
  return (p[1] - 1) * 2 + (p[2] > p[3] and 1 or 0)        -- which of the six orders
end), equal(0, 6))
local PAIR = {_image_random_flip_left_right = ty.nd.array{{{0}, {1}}}, _image_random_flip_top_bottom = ty.nd.array{{{0}}, {{1}}}}
for _, name in ipairs{"_image_random_flip_left_right", "_image_random_flip_top_bottom"} do
  add(name, repeated(function() return flat(ty.nd[name]{PAIR[name]})[1] end), equal(0, 2))
end

-- how an image changed tells the factor, which is uniform
local PIXELS = ty.nd.array{{{8, 16, 32}}, {{64, 0, 32}}}
for name in ("brightness contrast saturation"):gmatch("%S+") do
  add("_image_random_" .. name, repeated(function()
    local p = flat(ty.nd["_image_random_" .. name]{PIXELS, min_factor = 0.5, max_factor = 1.5})
    return (p[2] - p[1]) / 8                              -- the greys cancel
  end), uniform(0.5, 1.5))
end
add("_image_random_color_jitter", repeated(function()
  local p = flat(ty.nd._image_random_color_jitter{PIXELS, brightness = 0.5, contrast = 0, saturation = 0, hue = 0})
  return p[2] / 16
end), uniform(0.5, 1.5))
add("_image_random_lighting", repeated(function()         -- red moves by three numbers of the law, times constants
  return flat(ty.nd._image_random_lighting{ty.nd.zeros{1, 1, 3}, alpha_std = 0.5})[1]
end), normal(0, 0.5 * math.sqrt((55.46 * -0.5675) ^ 2 + (4.794 * 0.7192) ^ 2 + (1.148 * 0.4009) ^ 2)))
add("_image_random_hue", repeated(function()              -- a turn by any part of the circle: each colour may end as the largest
  local p = flat(ty.nd._image_random_hue{ty.nd.array{{{200, 100, 100}}}, min_factor = 0, max_factor = 1})
  return p[1] > math.max(p[2], p[3]) and 0 or p[2] > p[3] and 1 or 2
end), equal(0, 3))
add("Dropout", function(n)                                -- what stays is scaled by 4 / 3
  return flat(ty.nd.Dropout{ty.nd.full({n}, 0.75, {dtype = "float64"}), p = 0.25, mode = "always"})
end, make_table(0, {0.25, 0.75}))

return cases
