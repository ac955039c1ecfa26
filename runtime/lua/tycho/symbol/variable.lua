--- The attributes of a variable's node, from the options of `ty.sym.Variable`.
--
-- @module tycho.symbol.variable

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local attribute = require "tycho.symbol.attribute"
local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"

local variable = {}


local function init_text(init)
  if type(init) == "string" then
    return init
  elseif type(init) == "table" and type(init.dumps) == "function" then
    return init:dumps()
  end
  Error.raise{ code = "type", func = "sym.Variable", argument = "init",
    expected = "an Initializer or text", got = Error.kind(init), message = "bad 'init'" }
end


local function add_others(dict, others)
  for key, value in pairs(others) do
    if not attrs.is_annotation(key) then
      Error.raise{ code = "value", func = "sym.Variable", argument = key,
        candidates = Error.nearest(key,
          { "attr", "shape", "lr_mult", "wd_mult", "dtype", "init", "stype" }),
        message = ("unknown option '%s'; attributes of your own are spelled __%s__ or are in \z
          attr = {...}"):format(key, key) }
    end
    dict[key] = attrs.text(value, "sym.Variable", key)
  end
end


-- Returns the attributes of the current scopes and the given ones.
local function scope_attributes(given)
  local dict = {}
  for key, value in pairs((given or attribute.any()) and attribute.current():get(given) or dict) do
    if type(key) ~= "string" or type(value) ~= "string" then
      Error.raise{ code = "value", func = "sym.Variable", argument = tostring(key),
        expected = "text", got = Error.kind(value), message = "attributes are text" }
    end
    dict[attrs.wrap(key)] = value
  end
  return dict
end


--- Returns the attributes of a variable.
-- @tparam table a the checked options
-- @treturn table texts by name
function variable.attributes(a)
  local dict = scope_attributes(a.attr)
  dict.__shape__ = a.shape and attrs.text(a.shape) or dict.__shape__
  dict.__lr_mult__ = a.lr_mult and attrs.text(a.lr_mult) or dict.__lr_mult__
  dict.__wd_mult__ = a.wd_mult and attrs.text(a.wd_mult) or dict.__wd_mult__
  dict.__dtype__ = a.dtype and tostring(args.DTYPES[a.dtype]) or dict.__dtype__
  dict.__init__ = a.init ~= nil and init_text(a.init) or dict.__init__
  add_others(dict, a.others)
  return dict
end


return variable
