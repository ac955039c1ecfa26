--- Functions of arrays and symbols, for one `forward` that serves both: each calls the function of
-- `ty.nd` if it gets arrays, that of `ty.sym` if it gets symbols.
--
--     F.relu(ty.nd.array{-1, 2})           --> an NDArray
--     F.relu(ty.sym.Variable("a"))         --> a Symbol
--     F.zeros{2, 3}                        --> a Symbol while a block is traced, else an NDArray
--
-- There is a function for each name that both namespaces have, also in `F.random`, `F.linalg`,
-- `F.contrib` and `F.image`.
--
-- @module tycho.F

require "tycho.core.luajit"
local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local namespace = require "tycho.core.namespace"
local nd = require "tycho.ndarray"
local registry = require "tycho.op.registry"
local sym = require "tycho.symbol.symbol"
local Symbol = require("tycho.symbol.symbol").Symbol
local tracing = require "tycho.symbol.tracing"
local values = require "tycho.core.values"

local getmetatable, select, type, unpack = getmetatable, select, type, unpack


-- Choosing ----------------------------------------------------------------------------------------

-- Returns the class of the first tensor in a table of arguments: NDArray, Symbol or nil.
local function find_class_in(t)
  for i = 1, #t do
    local class = getmetatable(t[i])
    if class == NDArray or class == Symbol then
      return class
    elseif class == nil and type(t[i]) == "table" then
      class = find_class_in(t[i])
      if class then
        return class
      end
    end
  end
  for key, v in next, t do
    local class = getmetatable(v)
    if class == NDArray or class == Symbol then
      return class
    elseif class == nil and type(v) == "table" and type(key) == "string" then
      class = find_class_in(v)
      if class then
        return class
      end
    end
  end
end


-- Returns the class of the first tensor among arguments.
local function find_class(first, ...)
  local class = getmetatable(first)
  if class == NDArray or class == Symbol then
    return class
  elseif class == nil and type(first) == "table" then
    class = find_class_in(first)
    if class then
      return class
    end
  end
  if select("#", ...) > 0 then
    return find_class(...)
  end
end


-- Raises E(type) for an array among the arguments of a function of symbols.
local function check_arguments(func, ...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    local class = getmetatable(v)
    if class == NDArray then
      Error.raise{ code = "type", func = func, expected = "symbols",
        got = "a Symbol and an NDArray",
        message = "symbols and arrays cannot be mixed; in a forward the value of a parameter is \z
          p:data(x), where x is an input" }
    elseif class == nil and type(v) == "table" then
      for _, member in pairs(v) do
        check_arguments(func, member)
      end
    end
  end
end


-- Returns the function f of arrays so that it accepts the option `name`, which only symbols have.
-- Operators accept it themselves. func: its public name, "F.zeros".
local function accept_name(f, func)
  local form = args.forms[func:gsub("^F", "nd")]
  if not form or form.by_name.name then
    return f
  end
  return function(...)
    local n = select("#", ...)
    local options = n > 0 and select(n, ...)
    if not values.is_plain(options) or options.name == nil then
      return f(...)
    end
    local list = { ... }
    list[n] = {}
    for key, value in pairs(options) do
      list[n][key] = value
    end
    list[n].name = nil
    return f(unpack(list, 1, n))
  end
end


-- Returns the function `key` of both namespaces. The namespaces are asked for theirs at its calls.
local function make_choice(func, key, arrays, symbols)
  local on_arrays
  local function choose(...)
    local class = find_class(...)
    if class == Symbol or class == nil and tracing.current() then
      check_arguments(func, ...)
      return symbols[key](...)
    end
    on_arrays = on_arrays or accept_name(arrays[key], func)
    return on_arrays(...)
  end
  return choose
end


-- Namespaces --------------------------------------------------------------------------------------

local function get_field(space, key)
  return space[key]
end


-- Returns whether a namespace has a function of a name.
local function has_function(space, key)
  local ok, value = pcall(get_field, space, key)
  return ok and type(value) == "function"
end


-- Returns a namespace of the functions that both namespaces have, which are added to `own` when
-- they are first used. names: returns the names for the error of an unknown one.
local function make_namespace(name, arrays, symbols, own, names)
  local missing = namespace.missing(name, "operator", own, names)
  return setmetatable(own, { __index = function(_, key)
    if type(key) ~= "string" or not (has_function(arrays, key) and has_function(symbols, key)) then
      return missing(key)
    end
    local f = make_choice(name .. "." .. key, key, arrays, symbols)
    rawset(own, key, f)
    return f
  end })
end


-- Returns a function that lists the operators whose names begin with a prefix, without the prefix.
local function make_lister(prefix)
  return function()
    local names = {}
    for _, name in ipairs(registry.names(true)) do
      if name:sub(1, #prefix) == prefix then
        names[#names + 1] = name:sub(#prefix + 1)
      end
    end
    return names
  end
end


local own = {}

for name, prefix in pairs{ random = "_random_", linalg = "_linalg_", contrib = "_contrib_",
    image = "_image_" } do
  own[name] = make_namespace("F." .. name, nd[name], sym[name], {}, make_lister(prefix))
end


--- Returns whether x is a Symbol: in a `forward`, whether the block is being traced.
function own.is_symbol(x)
  return getmetatable(x) == Symbol
end


return make_namespace("F", nd, sym, own, function()
  return registry.names(true)
end)
