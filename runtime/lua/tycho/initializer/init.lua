--- Initial values of parameters: `ty.init`.
--
-- An initializer is called with a description of the parameter and its array. The description's
-- `__init__` attribute, if it has one, names the initializer that fills the array; else the end of
-- the name selects the hook: weight, bias, gamma, beta, min, max, weight_quantize,
-- bias_quantize; another ending is E(name).
--
--     local init = ty.init.Xavier{ magnitude = 2.34 }
--     init(ty.init.InitDesc("fc1_weight"), array)
--     init:dumps()  --> '["xavier", {"rnd_type": "uniform", "factor_type": "avg", "magnitude":
--                   2.34}]'
--
--     local Two = ty.init.Initializer:extend("Two")
--     function Two:_init_weight(desc, array) array:fill(2) end
--     ty.init.register(Two, "two")
--
-- The initializers themselves are in `initializer.fill`, those made of
-- others in `initializer.composite`.
--
-- @module tycho.initializer

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local base = require "tycho.initializer.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local json = require "tycho.core.json"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local values = require "tycho.core.values"

local init = {
  InitDesc = base.InitDesc, Initializer = base.Initializer, registry = base.registry,
  register = base.register,
}

for _, part in ipairs{ require "tycho.initializer.fill", require "tycho.initializer.composite" } do
  for name, class in pairs(part) do
    init[name] = class
  end
end


-- Making by name ----------------------------------------------------------------------------------

local CREATE = args.form("init.create", { { "initializer", "any" }, { "options", "table?" } })

local function make(name, options)
  local class = type(name) == "string" and base.registry[name:lower()]
  if not class then
    Error.unknown{ func = "init.create", argument = tostring(name),
      what = "initializer", among = base.registry }
  end
  return class(options or {})
end


local function from_json(text)
  local v = json.parse(text, "init.create")
  if text:sub(1, 1) == "[" then
    return make(v[1], v[2])
  end
  local name = v.initializer
  v.initializer = nil
  return make(name, v)
end


--- Returns an initializer from an initializer (itself), a name in any case with options, a table
-- with the name under `initializer`, or the text of `dumps`.
-- @param x an unknown name is E(name)
-- @tparam[opt] table options
function init.create(x, options)
  if type(x) == "string" then
    local a = CREATE(x, options)
    local first = x:sub(1, 1)
    return (first == "[" or first == "{") and from_json(x) or make(x, a.options)
  elseif values.is_plain(x) and x.initializer then
    local copy = {}
    for key, value in pairs(x) do
      copy[key] = value
    end
    copy.initializer = nil
    return make(x.initializer, copy)
  elseif Class.is_class(x) then
    Error.raise{ code = "type", func = "init.create", expected = "an initializer",
      got = tostring(x), message = ("a class is no initializer; call it: ty.init.%s()")
        :format(x.class_name) }
  elseif Class.is_a(x, base.Initializer) or type(x) == "table" and not values.is_plain(x) then
    return x
  end
  Error.raise{ code = "type", func = "init.create", expected = "an initializer, a name or its text",
    got = Error.kind(x), message = "bad initializer" }
end

base.create = init.create


return namespace.close(methods.guard_all(init), "init", "initializer")
