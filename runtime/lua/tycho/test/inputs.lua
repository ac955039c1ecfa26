--- Inputs of test helpers: conversion of values to arrays, tables by name and lists.
--
-- @module tycho.test.inputs

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local transfer = require "tycho.ndarray.transfer"

local is_array = class.is_array

local inputs = {}


--- Returns a value as an array; a nested table becomes an array of type dtype.
function inputs.as_array(v, dtype, func)
  return is_array(v) and v or transfer.from_table(v, args.DTYPES[dtype], func)
end


--- Returns all elements of a value as a flat list of Lua numbers.
function inputs.flat(x, func)
  local p, list = transfer.read(x, func), {}
  for i = 1, x._size do
    list[i] = tonumber(p[i - 1])
  end
  return list
end


--- Returns values by name, from a list in order or a table by name; E(value) unless there is
-- exactly one for each name.
function inputs.named(given, names, what, func)
  local dict = {}
  if #given > 0 then
    if #given ~= #names then
      Error.raise{ code = "value", func = func, argument = what, expected = #names, got = #given,
        message = ("'%s' needs a value for each of: %s"):format(what, table.concat(names, ", ")) }
    end
    for i, name in ipairs(names) do
      dict[name] = given[i]
    end
    return dict
  end
  for _, name in ipairs(names) do
    dict[name] = given[name]
  end
  for _, name in ipairs(names) do
    if dict[name] == nil then
      Error.raise{ code = "value", func = func, argument = name,
        message = ("'%s' has no value for '%s'"):format(what, name) }
    end
  end
  for name in pairs(given) do
    if dict[name] == nil then
      Error.unknown{ func = func, argument = name, what = "name in " .. what, names = names }
    end
  end
  return dict
end


--- Returns copies of values as arrays on a device; arrays keep their element type if dtype is nil.
function inputs.arrays(dict, dtype, ctx)
  local arrays = {}
  for name, v in pairs(dict) do
    local kind = dtype or is_array(v) and v.dtype or "float32"
    arrays[name] = is_array(v) and v:astype(kind):as_in_context(ctx)
      or nd.array(v, { dtype = kind, ctx = ctx })
  end
  return arrays
end


--- Returns values as a list in the order of names.
function inputs.in_order(given, names, what, func)
  local dict, list = inputs.named(given, names, what, func), {}
  for i, name in ipairs(names) do
    list[i] = dict[name]
  end
  return list
end


return inputs
