--- Arguments and results of blocks as a flat list of tensors and a text that says how they were
-- nested: their structure.
--
-- In a structure "." stands for a tensor, "_" for nil or `ty.null`, "(" and ")" for the ends of a
-- list: `f(x, { h, c })` has ".(..)".
--
-- @module tycho.gluon.nested

local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local Symbol = require("tycho.symbol.symbol").Symbol
local values = require "tycho.core.values"

local getmetatable = getmetatable

local nested = {}


local function is_tensor(v)
  local class = getmetatable(v)
  return class == NDArray or class == Symbol
end


-- Appends the tensors of a value to `flat` and its structure to `texts`.
local function flatten_value(v, flat, texts, func)
  if is_tensor(v) then
    flat[#flat + 1] = v
    texts[#texts + 1] = "."
  elseif v == nil or v == values.null then
    texts[#texts + 1] = "_"
  elseif values.is_plain(v) and not values.has_names(v) then
    texts[#texts + 1] = "("
    for i = 1, table.maxn(v) do
      flatten_value(v[i], flat, texts, func)
    end
    texts[#texts + 1] = ")"
  else
    Error.raise{ code = "type", func = func, expected = "arrays, symbols, nil and lists of them",
      got = Error.kind(v), message = "a block that is traced takes and returns tensors only; make \z
        numbers and options fields of the block" }
  end
end


--- Returns the tensors among values in order, and the structure of the values. A value of another
-- kind is E(type).
-- @int n number of values
-- @tparam table list the values
-- @string func name of the caller, for errors
-- @treturn {NDArray|Symbol,...}
-- @treturn string structure
function nested.flatten(n, list, func)
  local flat, texts = {}, {}
  for i = 1, n do
    flatten_value(list[i], flat, texts, func)
  end
  return flat, table.concat(texts)
end


-- Reads the values of one list. at: number of tensors that are used so far; from: position in the
-- structure, from 1. Returns the values, their number, and `at` and `from` after them.
local function regroup_list(flat, structure, at, from)
  local list, n = {}, 0
  while from <= #structure do
    local c = structure:sub(from, from)
    from = from + 1
    if c == ")" then
      break
    end
    n = n + 1
    if c == "." then
      at = at + 1
      list[n] = flat[at]
    elseif c == "(" then
      local inner, _
      inner, _, at, from = regroup_list(flat, structure, at, from)
      list[n] = inner
    end
  end
  return list, n, at, from
end


--- Returns the values of a structure from its tensors.
-- @tparam table flat
-- @string structure
-- @treturn table the values
-- @treturn int how many there are
function nested.regroup(flat, structure)
  local list, n = regroup_list(flat, structure, 0, 1)
  return list, n
end


return nested
