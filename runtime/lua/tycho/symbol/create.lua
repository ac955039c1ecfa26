--- Creation functions of `ty.sym`, and its namespaces `random`, `linalg`, `image`, `contrib`.
--
-- @module tycho.symbol.create

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local control = require "tycho.symbol.control"
local Error = require "tycho.core.error"
local finite = require "tycho.op.finite"
local namespace = require "tycho.core.namespace"
local origin = require "tycho.core.origin"
local registry = require "tycho.op.registry"
local operators = require "tycho.symbol.operators"
local updates = require "tycho.op.updates"
local values = require "tycho.core.values"
local variance = require "tycho.op.variance"
local where = require "tycho.op.where"
local zipfian = require "tycho.op.zipfian"

local create = {}

local null, compose = values.null, operators.compose


-- Returns a form with the options `name` and `attr`, which every function that makes a node takes.
local function make_form(name, spec)
  spec[#spec + 1] = { "name", "text?" }
  spec[#spec + 1] = { "attr", "dict?" }
  return args.form("sym." .. name, spec)
end


local function options(a)
  return { name = a.name, attr = a.attr }
end


local ZEROS = make_form("zeros",
  { list = true, { "shape", "shape" }, { "dtype", "dtype", "float32" }, "*" })
local ONES = make_form("ones",
  { list = true, { "shape", "shape" }, { "dtype", "dtype", "float32" }, "*" })
local FULL = make_form("full",
  { { "shape", "shape" }, { "val", "number" }, { "dtype", "dtype", "float32" }, "*" })
local EYE = make_form("eye", { { "N", "integer" }, { "M", "integer", 0 }, { "k", "integer", 0 },
                          { "dtype", "dtype", "float32" }, "*" })
local ARANGE = make_form("arange", { { "start", "number" }, { "stop", "number?" },
  { "step", "number", 1 }, { "repeat", "integer", 1 }, { "infer_range", "boolean", false },
  { "dtype", "dtype", "float32" }, "*" })
local LINSPACE = make_form("linspace", { { "start", "number" }, { "stop", "number" },
  { "num", "integer" }, { "endpoint", "boolean", true }, { "dtype", "dtype", "float32" }, "*" })
local HISTOGRAM = make_form("histogram",
  { { "a", "symbol" }, { "bins", "integer|symbol", 10 }, { "range", "list?" }, "*" })
local SPLIT = make_form("split_v2", { { "ary", "symbol" },
  { "indices_or_sections", "integer|dims" },
  { "axis", "integer", 0 }, { "squeeze_axis", "boolean", false }, "*" })


local function zeros(...)
  local a = ZEROS(...)
  return compose("_zeros", {}, { shape = a.shape, dtype = a.dtype }, "sym.zeros", options(a))
end


local function ones(...)
  local a = ONES(...)
  return compose("_ones", {}, { shape = a.shape, dtype = a.dtype }, "sym.ones", options(a))
end


local function full(...)
  local a = FULL(...)
  return compose("_full", {}, { shape = a.shape, value = a.val, dtype = a.dtype },
    "sym.full", options(a))
end


local function eye(...)
  local a = EYE(...)
  return compose("_eye", {}, { N = a.N, M = a.M, k = a.k, dtype = a.dtype }, "sym.eye", options(a))
end


local function arange(...)
  local a = ARANGE(...)
  local params = { start = a.start, stop = a.stop or null, step = a.step, ["repeat"] = a["repeat"],
    infer_range = a.infer_range, dtype = a.dtype }
  return compose("_arange", {}, params, "sym.arange", options(a))
end


local function linspace(...)
  local a = LINSPACE(...)
  local params = { start = a.start, stop = a.stop, num = a.num,
    endpoint = a.endpoint, dtype = a.dtype }
  return compose("_linspace", {}, params, "sym.linspace", options(a))
end


-- Returns the counts per bin: of a number of equal bins over a range, or of bins whose edges are
-- given.
local function histogram(...)
  local a = HISTOGRAM(...)
  if type(a.bins) == "table" then
    return compose("_histogram", { a.a, a.bins }, {}, "sym.histogram", options(a))
  elseif not a.range then
    Error.raise{ code = "value", func = "sym.histogram", argument = "range",
      expected = "{lowest, highest}", got = "nothing",
      message = "a number of bins needs their range, since a symbol's values are not known" }
  end
  return compose("_histogram", { a.a }, { bin_cnt = a.bins, range = a.range },
    "sym.histogram", options(a))
end


-- Splits an axis at given indices, or into a given number of equal pieces.
local function split_v2(...)
  local a = SPLIT(...)
  local params = { axis = a.axis, squeeze_axis = a.squeeze_axis }
  if type(a.indices_or_sections) == "number" then
    params.sections, params.indices = a.indices_or_sections, "[]"
  else
    params.indices = "[" .. table.concat({ 0, unpack(a.indices_or_sections) }, ", ") .. "]"
  end
  return compose("_split_v2", { a.ary }, params, "sym.split_v2", options(a))
end


-- Namespaces --------------------------------------------------------------------------------------

local function names_with(prefix)
  local names = {}
  for _, name in ipairs(registry.names(true)) do
    if name:sub(1, #prefix) == prefix then
      names[#names + 1] = name:sub(#prefix + 1)
    end
  end
  return names
end


--- Returns a namespace whose functions are the operators that begin with a prefix. Automatic names
-- leave the prefix out, except those of random numbers.
-- @string name "linalg"
-- @string prefix "_linalg_"
-- @tparam table own functions it has beside them
local function make_prefixed(name, prefix, own)
  local functions = {}
  local missing = namespace.missing("sym." .. name, "function", own, function()
    return names_with(prefix)
  end)

  local function make(key)
    local bare = args.bare_name(key)
    local whole = name == "random" and not bare:find "_like$"
    return own[key] or operators.maker(prefix .. bare, ("sym.%s.%s"):format(name, key),
      whole and prefix .. bare or bare)
  end

  return setmetatable({}, { __index = function(_, key)
    local f = functions[key]
    if not f then
      local value = type(key) == "string" and make(key)
      if not value then
        return missing(key)
      end
      f = origin.wrap(value)
      functions[key] = f
    end
    origin.note(f)
    return f
  end })
end


-- distribution -> parameters in order: name here, name of `_random_`, name of `_sample_`, default
local DISTRIBUTIONS = {
  uniform = { { "low", "low", "low", 0 }, { "high", "high", "high", 1 } },
  normal = { { "loc", "loc", "mu", 0 }, { "scale", "scale", "sigma", 1 } },
  poisson = { { "lam", "lam", "lam", 1 } },
  exponential = { { "scale", "lam", "lam", 1 } },
  gamma = { { "alpha", "alpha", "alpha", 1 }, { "beta", "beta", "beta", 1 } },
  negative_binomial = { { "k", "k", "k", 1 }, { "p", "p", "p", 1 } },
  generalized_negative_binomial = { { "mu", "mu", "mu", 1 }, { "alpha", "alpha", "alpha", 1 } },
}


local function distribution_form(name, rows)
  local spec = {}
  for i, row in ipairs(rows) do
    spec[i] = { row[1], "number|symbol", row[4] }
  end
  spec[#spec + 1] = { "shape", "shape?" }
  spec[#spec + 1] = { "dtype", "dtype?" }
  spec[#spec + 1] = "*"
  return make_form("random." .. name, spec)
end


-- Returns the parameter that the operator takes: for the exponential distribution the rate, 1 /
-- scale.
local function convert_scale(name, value)
  if name ~= "exponential" then
    return value
  end
  return 1 / value
end


local function sampler(name, rows)
  local read, func = distribution_form(name, rows), "sym.random." .. name
  return function(...)
    local a = read(...)
    local inputs, params, symbols = {}, { shape = a.shape, dtype = a.dtype }, 0
    for i, row in ipairs(rows) do
      local v = a[row[1]]
      inputs[i] = v
      symbols = symbols + (type(v) == "table" and 1 or 0)
      params[row[2]] = type(v) == "number" and convert_scale(name, v) or nil
    end
    if symbols == 0 then
      return compose("_random_" .. name, {}, params, func, options(a))
    elseif symbols < #rows then
      Error.raise{ code = "type", func = func,
        message = "the parameters are all numbers or all symbols" }
    end
    inputs[1] = convert_scale(name, inputs[1])
    return compose("_sample_" .. name, inputs, params, func, options(a))
  end
end


local RANDINT = make_form("random.randint", { { "low", "integer" }, { "high", "integer" },
  { "shape", "shape?" }, { "dtype", "dtype?" }, "*" })
local MULTINOMIAL = make_form("random.multinomial", { { "data", "symbol" }, { "shape", "shape?" },
  { "get_prob", "boolean", false }, { "dtype", "dtype", "int32" }, "*" })
local SHUFFLE = make_form("random.shuffle", { { "data", "symbol" }, "*" })


local function random_functions()
  local random = {}
  for name, rows in pairs(DISTRIBUTIONS) do
    random[name] = sampler(name, rows)
  end

  function random.randn(...)
    return random.normal(args.sizes_and_options("sym.random.randn", ...))
  end

  function random.randint(...)
    local a = RANDINT(...)
    return compose("_random_randint", {}, { low = a.low, high = a.high, shape = a.shape,
      dtype = a.dtype }, "sym.random.randint", options(a))
  end

  function random.multinomial(...)
    local a = MULTINOMIAL(...)
    return compose("_sample_multinomial", { a.data },
      { shape = a.shape, get_prob = a.get_prob, dtype = a.dtype },
      "sym.random.multinomial", options(a))
  end

  function random.shuffle(...)
    local a = SHUFFLE(...)
    return compose("_shuffle", { a.data }, {}, "sym.random.shuffle", options(a))
  end

  return random
end


-- Returns a number as a symbol of one element.
local function make_scale(v)
  return type(v) == "number" and full{ { 1 }, v } or v
end


--- Adds the creation functions and namespaces to `ty.sym`.
function create.add(symbol)
  symbol.zeros, symbol.ones, symbol.full, symbol.eye = zeros, ones, full, eye
  symbol.arange, symbol.linspace, symbol.histogram, symbol.split_v2 =
    arange, linspace, histogram, split_v2
  symbol.random = make_prefixed("random", "_random_", random_functions())
  symbol.linalg = make_prefixed("linalg", "_linalg_", {})
  symbol.sparse = namespace.refused("sym.sparse", "sparse storage is not part of Tycho")
  symbol.image = make_prefixed("image", "_image_", {})
  local controls = control.functions(symbol)
  updates(controls, "symbol", "sym.contrib.", { scale = make_scale, operator = operators.maker })
  symbol.contrib = make_prefixed("contrib", "_contrib_",
    zipfian(finite(controls, "symbol", "sym.contrib."), "symbol", "sym.contrib.",
      symbol.random.uniform))
  -- Integers stay in their type, as with moments: a symbol does not know its type.
  variance(symbol, symbol.Symbol, "symbol", "sym.", function(x, axes, keepdims)
    return compose("moments", { x }, { axes = axes, keepdims = keepdims }, "sym.moments")[2]
  end)
  symbol.where = where(operators.maker("where"), "symbol", "sym.where", function(like, v, dtype)
    local zero = compose("zeros_like", { like }, {}, "sym.where")
    zero = dtype and compose("Cast", { zero }, { dtype = dtype }, "sym.where") or zero
    return v == 0 and zero or zero + v
  end)
  symbol.Symbol.split_v2 = args.method(split_v2)
end


return create
