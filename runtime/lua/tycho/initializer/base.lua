--- Descriptions of parameters, the base class of initializers and their
-- registry; see `initializer/init.lua`.
--
-- @module tycho.initializer.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local log = require "tycho.core.log"
local namespace = require "tycho.core.namespace"
local values = require "tycho.core.values"
require "tycho.ndarray"

local base = { registry = {} }


-- Descriptions ------------------------------------------------------------------------------------

--- The name of a parameter, its attributes and the initializer that was called first.
-- @type InitDesc
local InitDesc = Class:extend("InitDesc")
base.InitDesc = InitDesc

local DESC = args.form("init.InitDesc", {
  { "name", "text" }, { "attrs", "dict?" }, { "global_init", "any?" },
})

-- Reads the arguments of `InitDesc("x", {__init__ = "..."})`: a second positional table holds
-- attributes, not options.
function InitDesc:init(name, attributes, global_init)
  local a = values.is_plain(name) and DESC(name)
    or DESC{ name = name, attrs = attributes, global_init = global_init }
  self.name, self.attrs, self.global_init = a.name, a.attrs or {}, values.value(a.global_init)
end


function InitDesc:__tostring()
  return self.name
end


-- The base class ----------------------------------------------------------------------------------

--- Base of initializers. Hooks, each `(self, desc, array)`: `_init_weight` (must be written),
-- `_init_bias`, `_init_gamma`, `_init_beta`, `_init_zero`, `_init_one`, `_init_default`.
-- @type Initializer
local Initializer = Class:extend("Initializer")
base.Initializer = Initializer

--- Names of options whose integers `dumps` writes with a point, as the reference does.
Initializer.reals = {}

local names = setmetatable({}, { __mode = "k" })         -- class -> registered name

--- @tparam[opt] table options the options that `dumps` writes
function Initializer:init(options)
  if options ~= nil and type(options) ~= "table" then
    Error.raise{ code = "type", func = "init." .. self.class_name, argument = "options",
      expected = "a table of options", got = Error.kind(options), message = "bad 'options'" }
  end
  for key in pairs(options or {}) do
    if type(key) ~= "string" then
      Error.raise{ code = "name", func = "init." .. self.class_name, argument = tostring(key),
        expected = "options by name", message = "a base class has no options by position" }
    end
  end
  self:_remember(options or {})
end


-- Keeps the options, in an order: the given one, or sorted.
function Initializer:_remember(options, order)
  if not order then
    order = {}
    for key in pairs(options) do
      order[#order + 1] = key
    end
    table.sort(order)
  end
  self._options, self._order = options, order
end


-- Returns JSON text of an initializer's name and of these options.
local function write_text(self, options)
  local pairs_of = {}
  for i, key in ipairs(self._order or {}) do
    local v = options[key]
    pairs_of[i] = { key, self.reals[key] and type(v) == "number" and json.real(v) or v }
  end
  return json.text{ names[getmetatable(self)] or self.class_name:lower(), json.object(pairs_of) }
end


--- Returns the initializer as JSON text with its name and options, the form of a variable's
-- `__init__` attribute.
function Initializer:dumps()
  return write_text(self, self._options or {})
end


function Initializer:__tostring()
  return self:dumps()
end


-- Returns text that arrays and lists of the same numbers share: an array that has gone through text
-- comes back as a list.
local function comparable_text(self)
  local options = {}
  for key, v in pairs(self._options or {}) do
    options[key] = type(v) == "table" and v.totable and v:totable() or v
  end
  return write_text(self, options)
end


--- Returns whether another initializer is of the same class with the same options.
function Initializer:equals(other)
  return getmetatable(self) == getmetatable(other) and
    comparable_text(self) == comparable_text(other)
end


local function default_stat(x)
  return ("%g"):format(x:norm():asscalar() / math.sqrt(x.size))
end


--- Sets whether each filled array is logged.
-- @bool[opt=false] verbose
-- @tparam[opt] function print_func array -> text; by default the root mean square
function Initializer:set_verbosity(verbose, print_func)
  self._verbose, self._print_func = verbose and true or false, print_func or default_stat
end


local function report(self, desc, how, x)
  if self._verbose then
    log:info(("Initialized %s as %s: %s")
      :format(tostring(desc), how, tostring(self._print_func(x))))
  end
end


-- Dispatch ----------------------------------------------------------------------------------------

--                suffix of a described name, hook
local DESCRIBED = {
  { "weight", "_init_weight" }, { "bias", "_init_bias" }, { "gamma", "_init_gamma" },
  { "beta", "_init_beta" }, { "min", "_init_zero" }, { "max", "_init_one" },
  { "weight_quantize", "_init_quantized_weight" }, { "bias_quantize", "_init_quantized_bias" },
}
--                suffix of a name without attributes, hook
local FILLED_BY_NAME = {
  { "bias", "_init_bias" }, { "gamma", "_init_gamma" }, { "beta", "_init_beta" },
  { "weight", "_init_weight" }, { "moving_mean", "_init_zero" }, { "moving_var", "_init_one" },
  { "moving_inv_var", "_init_zero" }, { "moving_avg", "_init_zero" }, { "min", "_init_zero" },
  { "max", "_init_one" },
}


local function find_hook(name, rows)
  for _, row in ipairs(rows) do
    if name:sub(-#row[1]) == row[1] then
      return row[2], row[1]
    end
  end
  return "_init_default", name
end


local function described(self, desc, x)
  desc.global_init = desc.global_init or self
  local text = desc.attrs.__init__
  if text ~= nil and text ~= "" then
    base.create(text):_init_weight(desc, x)
    report(self, desc, text, x)
    return
  end
  local hook, how = find_hook(desc.name, DESCRIBED)
  self[hook](self, desc, x)
  report(self, desc, how, x)
end


-- Fills an array whose variable has no attributes, by the rules of older programs for its name.
local function fill_by_name(self, name, x)
  if name:sub(1, 10) == "upsampling" then
    return self:_init_bilinear(name, x)
  elseif name:find("^stn_loc.*weight$") then
    return self:_init_zero(name, x)
  elseif name:find("^stn_loc.*bias$") then
    return self:_init_loc_bias(name, x)
  end
  self[find_hook(name, FILLED_BY_NAME)](self, name, x)
end


--- Fills the array of a parameter.
-- @param desc InitDesc, or a name
-- @tparam NDArray x
function Initializer:__call(desc, x)
  if not class.is_array(x) then
    Error.raise{ code = "type", func = "Initializer", argument = tostring(desc),
      expected = "an NDArray", got = Error.kind(x), message = "bad array" }
  elseif Class.is_a(desc, InitDesc) then
    described(self, desc, x)
  elseif type(desc) == "string" then
    fill_by_name(self, desc, x)
  else
    Error.raise{ code = "type", func = "Initializer", expected = "an InitDesc or a name",
      got = Error.kind(desc), message = "bad description" }
  end
end


-- Hooks -------------------------------------------------------------------------------------------

function Initializer._init_zero(_, _, x)
  call.fill(x, 0, "Initializer")
end

function Initializer._init_one(_, _, x)
  call.fill(x, 1, "Initializer")
end

Initializer._init_bias, Initializer._init_beta = Initializer._init_zero, Initializer._init_zero
Initializer._init_quantized_bias, Initializer._init_gamma =
  Initializer._init_zero, Initializer._init_one


function Initializer._init_quantized_weight(_, _, x)
  local one = require("tycho.ndarray.seed").randint{ low = -127, high = 127, shape = { 1 } }
  call.fill(x, one:asscalar(), "Initializer")
end


-- Fills the last two axes with the kernel of bilinear upsampling.
function Initializer._init_bilinear(_, _, x)
  local shape = x.shape
  local height, width = shape[#shape - 1], shape[#shape]
  local f = math.ceil(width / 2)
  local center = (2 * f - 1 - f % 2) / (2 * f)
  local rows = {}
  for y = 0, height - 1 do
    rows[y + 1] = {}
    for at = 0, width - 1 do
      rows[y + 1][at + 1] = (1 - math.abs(at / f - center)) * (1 - math.abs(y / f - center))
    end
  end
  x[":"] = rows
end


-- Fills a bias with the identity as an affine map of six numbers; raises E(shape) for another size.
function Initializer._init_loc_bias(_, name, x)
  if x.shape[1] ~= 6 then
    Error.raise{ code = "shape", func = "Initializer", argument = tostring(name), expected = { 6 },
      got = x.shape, message = "the bias of a spatial transformer has six elements" }
  end
  x[":"] = { 1, 0, 0, 0, 1, 0 }
end


function Initializer:_init_weight(desc)
  Error.raise{ code = "unsupported", func = self.class_name, argument = tostring(desc),
    message = "the class has no _init_weight" }
end


function Initializer._init_default(_, desc)
  local name = tostring(desc)
  Error.raise{ code = "name", func = "Initializer", argument = name,
    message = ("Unknown initialization pattern: '%s' ends in none of weight, bias, gamma, beta, \z
      min, max; "
      .. "give the variable an init attribute"):format(name) }
end


-- Registry ----------------------------------------------------------------------------------------

--- Registers a class under a name, which `dumps` also writes.
-- @tparam table kind a class that extends Initializer
-- @string[opt] name in any case; by default the class's name
-- @treturn table the class
function base.register(kind, name)
  name = namespace.class_key(kind, name, Initializer, "init.register")
  if base.registry[name] and base.registry[name] ~= kind then
    log:warning(("initializer '%s' is registered again"):format(name))
  end
  base.registry[name] = kind
  names[kind] = names[kind] or name
  return kind
end


--- Returns a subclass whose options are declared, kept as fields and written by `dumps`.
-- @string name
-- @tparam table spec parameters of its form
function base.kind(name, spec)
  local Kind = Initializer:extend(name)
  local form = args.form("init." .. name, spec)
  local order = form:names()
  function Kind:init(...)
    local a = form(...)
    for _, key in ipairs(order) do
      self[key] = class.keep(a[key])
    end
    self:_remember(a, order)
  end
  return base.register(Kind)
end



return base
