--- Parameters by name, in the order in which they were made.
--
--     local d = ty.gluon.ParameterDict("net_")
--     local w = d:get("weight", {shape = {3, 0}, allow_deferred_init = true})   -- "net_weight"
--     d["net_weight"] == w
--
-- @classmod ty.gluon.ParameterDict

local iterate = require "tycho.core.iterate"
local pairs = iterate.pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Constant = require "tycho.gluon.constant"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local Parameter = require "tycho.gluon.parameter"
local parameter_files = require "tycho.gluon.parameter_files"
local tables = require "tycho.core.tables"

local getmetatable, rawget, rawset = getmetatable, rawget, rawset

--- Parameters by full name: `d["net_weight"]`; an unknown name is E(`name`). Read-only field:
-- prefix, the start of the names of parameters that `get` makes.
local ParameterDict = Class:extend("ParameterDict")


local FORM = args.form("gluon.ParameterDict",
  { { "prefix", "text", "" }, "*", { "shared", "any?" } })

--- @string[opt=""] prefix
-- @tparam[opt] table options shared: another ParameterDict, in which `get` looks for a parameter
--   before it makes one
function ParameterDict:init(...)
  local a = FORM(...)
  if a.shared ~= nil and not Class.is_a(a.shared, ParameterDict) then
    Error.raise{ code = "type", func = "gluon.ParameterDict", argument = "shared",
      expected = "a ParameterDict", got = Error.kind(a.shared), message = "bad 'shared'" }
  end
  rawset(self, "prefix", a.prefix)
  rawset(self, "_shared", a.shared)
  rawset(self, "_names", {})
  rawset(self, "_params", {})
end


-- Access ------------------------------------------------------------------------------------------

-- Adds a parameter at the end.
local function add_parameter(self, name, p)
  self._names[#self._names + 1] = name
  self._params[name] = p
end


-- Returns the parameter with a full name; nil if there is none. A parameter of the shared
-- dictionary is added here.
local function find_or_share(self, name)
  local p = self._params[name]
  if not p and rawget(self, "_shared") then
    p = find_or_share(self._shared, name)
    if p then
      add_parameter(self, name, p)
    end
  end
  return p
end


--- Returns the full names, in order.
-- @treturn {string,...}
function ParameterDict:keys()
  return tables.copied(self._names)
end


--- Returns the parameters, in order.
-- @treturn {Parameter,...}
function ParameterDict:values()
  local list = {}
  for i, name in ipairs(self._names) do
    list[i] = self._params[name]
  end
  return list
end


--- Iterates over names and parameters in order: `for name, p in d:items() do`.
-- @treturn function iterator
-- @function ParameterDict:items
ParameterDict.items = iterate.alike(function(self)
  local i = 0
  return function()
    i = i + 1
    local name = self._names[i]
    return name, self._params[name]
  end
end)


--- Returns the number of parameters.
-- @treturn int
function ParameterDict:len()
  return #self._names
end


--- Returns whether there is a parameter with a full name.
-- @string name
-- @treturn bool
function ParameterDict:contains(name)
  return self._params[name] ~= nil
end


local function fail_unknown(self, name, func)
  Error.unknown{ func = func or "ParameterDict", argument = tostring(name), what = "parameter",
    among = self._params }
end


--- Returns the parameter with a full name; an unknown name is E(`name`).
-- @string name
-- @treturn Parameter
function ParameterDict:at(name)
  return self._params[name] or fail_unknown(self, name, "ParameterDict:at")
end


function ParameterDict.__index(self, key)
  local v = getmetatable(self)[key]
  if v == nil then
    v = rawget(self, "_params")[key]
    if v == nil and not (type(key) == "string" and key:sub(1, 1) == "_") then
      fail_unknown(self, key)
    end
  end
  return v
end


function ParameterDict.__newindex(_, key)
  Error.raise{ code = "state", func = "ParameterDict", argument = tostring(key),
    message = "fields of a ParameterDict cannot be set; get, get_constant and update add \z
      parameters" }
end


--- Returns the dictionary as text in the reference's form: one line per parameter.
function ParameterDict:__tostring()
  local lines = {}
  for i, p in ipairs(self:values()) do
    lines[i] = "  " .. tostring(p)
  end
  local head = self.prefix == "" and "(" or self.prefix .. " ("
  return head .. "\n" .. table.concat(lines, "\n") .. "\n)"
end


-- Making ------------------------------------------------------------------------------------------

local function fail_disagree(p, key, want)
  Error.raise{ code = "value", func = "ParameterDict:get", argument = key,
    expected = Error.show(p[key]), got = Error.show(want),
    message = ("parameter '%s' exists with another %s; give the same one to share it, or another \z
      name"):format(p.name, key) }
end


local function is_equal(a, b)
  return a == b or type(a) == "table" and type(b) == "table" and a.equals and a:equals(b)
end


-- Sets properties of a parameter that were unknown; raises E(value) if a known one differs from the
-- given value.
local function merge_properties(p, given)
  for key, want in pairs(given) do
    local have = p[key]
    if have == nil then
      p[key] = want
    elseif key == "shape" then
      local shape = #want == #have and Parameter._merged_shape(have, want)
      if not shape then
        fail_disagree(p, key, want)
      end
      rawset(p, "_shape", shape)
    elseif not is_equal(have, want) then
      fail_disagree(p, key, want)
    end
  end
  return p
end


local GET = args.form("ParameterDict:get", { { "name", "text" }, "*",
  { "grad_req", "any?" }, { "shape", "shape?" }, { "dtype", "dtype?" }, { "lr_mult", "number?" },
  { "wd_mult", "number?" }, { "init", "any?" }, { "allow_deferred_init", "boolean?" },
  { "differentiable", "boolean?" }, { "stype", "any?" }, { "grad_stype", "any?" },
})

local FIXED = { "allow_deferred_init", "differentiable", "stype", "grad_stype" }

--- Returns the parameter called prefix .. name, from this dictionary or the shared one, or a new
-- one. Options for a parameter that exists must agree with it, else E(`value`); unknown sizes of
-- its shape are set.
-- @string name without the prefix
-- @tparam[opt] table options as for `Parameter`
-- @treturn Parameter
function ParameterDict:get(...)
  local a = GET(...)
  local name = self.prefix .. a.name
  local p = find_or_share(self, name)
  a.name = name
  if not p then
    p = Parameter(a)
    add_parameter(self, name, p)
    return p
  end
  a.name = nil
  for _, key in ipairs(FIXED) do
    a[key] = nil
  end
  return merge_properties(p, a)
end


local function has_same_values(a, b)
  return tables.same(a._shape, b._shape) and a._dtype == b._dtype
    and a:tostring_raw() == b:tostring_raw()
end


local CONSTANT = args.form("ParameterDict:get_constant",
  { { "name", "text" }, { "value", "any?" } })

--- Returns the constant called prefix .. name; it is made if it does not exist.
-- @string name without the prefix
-- @param[opt] value an NDArray or a nested table of numbers; E(`value`) if the constant exists with
--   another value. nil: the constant must exist, else E(`name`)
-- @treturn Constant
function ParameterDict:get_constant(name, value)
  if type(name) == "table" then
    local a = CONSTANT(name)
    name, value = a.name, a.value
  else
    CONSTANT{ name = name }
  end
  name = self.prefix .. name
  local p = find_or_share(self, name)
  if not p and value == nil then
    Error.unknown{ func = "ParameterDict:get_constant", argument = name, among = self._params,
      message = ("there is no constant '%s'; give a value to make one"):format(name) }
  elseif not p then
    p = Constant(name, value)
    add_parameter(self, name, p)
  elseif value ~= nil then
    local is_same = Class.is_a(p, Constant) and has_same_values(p.value,
      nd._as_array(value, "float32", "ParameterDict:get_constant"))
    if not is_same then
      Error.raise{ code = "value", func = "ParameterDict:get_constant", argument = name,
        message = Class.is_a(p, Constant) and ("constant '%s' has another value"):format(name)
          or ("'%s' is a parameter, not a constant"):format(name) }
    end
  end
  return p
end


local function fail_clash(name)
  Error.raise{ code = "name", func = "ParameterDict:update", argument = name,
    message = ("two parameters are called '%s'; give one of their blocks another prefix, or share \z
      the parameter by the option params"):format(name) }
end


--- Adds a parameter under its name (not for users); another one of that name is E(`name`).
function ParameterDict:_add(p)
  local here = self._params[p.name]
  if here == nil then
    add_parameter(self, p.name, p)
  elseif here ~= p then
    fail_clash(p.name)
  end
end


--- Adds the parameters of another dictionary. If this one has a different parameter of the same
-- name, it is E(`name`), and nothing is added.
-- @tparam ParameterDict other
function ParameterDict:update(other)
  if not Class.is_a(other, ParameterDict) then
    Error.raise{ code = "type", func = "ParameterDict:update", argument = "other",
      expected = "a ParameterDict", got = Error.kind(other), message = "bad 'other'" }
  end
  for name, p in other:items() do
    if self._params[name] and self._params[name] ~= p then
      fail_clash(name)
    end
  end
  for _, p in other:items() do
    self:_add(p)
  end
end


-- All at once -------------------------------------------------------------------------------------

local INITIALIZE = args.form("ParameterDict:initialize", { { "init", "any?" },
  { "ctx", "contexts?" }, { "verbose", "boolean", false }, { "force_reinit", "boolean", false } })

--- Initializes all parameters (see `Parameter:initialize`).
-- @tparam[opt] table options init = `ty.init.Uniform()` (an initializer or its name, for parameters
--   without their own initializer), ctx = the current one (a context, or a list of contexts),
--   verbose = false: true logs each parameter; force_reinit = false
function ParameterDict:initialize(...)
  local a = INITIALIZE(...)
  local default = require("tycho.initializer").create(a.init or "uniform")
  if a.verbose and default.set_verbosity then
    default:set_verbosity(true)
  end
  for _, p in ipairs(self:values()) do
    p:initialize{ ctx = a.ctx, default_init = default, force_reinit = a.force_reinit }
  end
end


--- Sets all gradients to 0.
function ParameterDict:zero_grad()
  for _, p in ipairs(self:values()) do
    p:zero_grad()
  end
end


local RESET = args.form("ParameterDict:reset_ctx", { list = true, { "ctx", "contexts" } })

--- Moves all parameters to other devices (see `Parameter:reset_ctx`).
-- @param ctx a context or a list of them
function ParameterDict:reset_ctx(...)
  local ctx = RESET(...).ctx
  for _, p in ipairs(self:values()) do
    p:reset_ctx(ctx)
  end
end


--- Returns the devices of the parameters, without duplicates.
-- @treturn {Context,...}
function ParameterDict:list_ctx()
  local seen, list = {}, {}
  for _, p in ipairs(self:values()) do
    for _, c in ipairs(p:list_ctx()) do
      if not seen[c] then
        seen[c] = true
        list[#list + 1] = c
      end
    end
  end
  return list
end


local SETATTR = args.form("ParameterDict:setattr", { { "field", "text" }, { "value", "any?" } })

--- Sets a field of all parameters: `d:setattr("grad_req", "null")` freezes them.
-- @string field a writable field of `Parameter`, else E(`name`)
-- @param value its new value
function ParameterDict:setattr(...)
  local a = SETATTR(...)
  for _, p in ipairs(self:values()) do
    p[a.field] = a.value
  end
end


-- Files -------------------------------------------------------------------------------------------

local SAVE = args.form("ParameterDict:save", { { "filename", "path" },
  { "strip_prefix", "text", "" } })

-- Returns a name without a prefix; a name that does not begin with it is E(value).
local function strip_prefix(name, prefix, func, argument)
  if name:sub(1, #prefix) ~= prefix then
    Error.raise{ code = "value", func = func, argument = argument, expected = prefix .. "...",
      got = name, message = ("the name of parameter '%s' does not begin with '%s', perhaps since \z
        another block shares it; save_parameters writes names by structure"):format(name, prefix) }
  end
  return name:sub(#prefix + 1)
end


--- Writes the parameters to a file under their names. The mean of the devices is written.
-- @string filename
-- @tparam[opt] table options strip_prefix = "": text that is removed from the start of names; a
--   name that does not begin with it is E(`value`)
function ParameterDict:save(...)
  local a, list = SAVE(...), {}
  for i, p in ipairs(self:values()) do
    list[i] = { strip_prefix(p.name, a.strip_prefix, "ParameterDict:save", "strip_prefix"), p }
  end
  parameter_files.write(a.filename, list)
end


local LOAD_OPTIONS = tables.copied(parameter_files.LOAD)
table.insert(LOAD_OPTIONS, 5, { "restore_prefix", "text", "" })

local LOAD = args.form("ParameterDict:load", LOAD_OPTIONS)

--- Reads parameters by name. Errors are those of `Block:load_parameters`, after which nothing is
-- changed.
-- @string filename
-- @tparam[opt] table options restore_prefix = "": text that is put in front of each name in the
--   file; ctx, allow_missing = false, ignore_extra = false, cast_dtype = false, dtype_source =
--   "current" or "saved", as for `Block:load_parameters`
function ParameterDict:load(...)
  local a, list, loaded = LOAD(...), {}, {}
  for i, p in ipairs(self:values()) do
    strip_prefix(p.name, a.restore_prefix, "ParameterDict:load", "restore_prefix")
    list[i] = { p.name, p }
  end
  for name, x in pairs((parameter_files.read(a.filename, "ParameterDict:load"))) do
    loaded[a.restore_prefix .. name] = x
  end
  parameter_files.apply(a.filename, loaded, list, a, "ParameterDict:load")
end


return ParameterDict
