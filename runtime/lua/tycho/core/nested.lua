--- Nested lists of values as a flat list and a text that describes the nesting: the structure.
--
-- In a structure "." is a value, "_" an absent one, "(" and ")" are the ends of a list:
-- `f(x, { h, c })` has ".(..)".
--
-- @module tycho.core.nested

local counted_from_1 = require "tycho.core.list"
local values = require "tycho.core.values"

local nested = {}


-- Appends the values in v to `flat` and their structure to `texts`.
local function append(v, flat, texts, mark_of, fail)
  local mark = mark_of(v)
  if mark == "." then
    flat[#flat + 1] = v
    texts[#texts + 1] = "."
  elseif mark == "_" then
    texts[#texts + 1] = "_"
  elseif mark == "(" or values.is_plain(v) and not values.has_names(v) then
    texts[#texts + 1] = "("
    for i = 1, mark == "(" and #v or table.maxn(v) do
      append(v[i], flat, texts, mark_of, fail)
    end
    texts[#texts + 1] = ")"
  else
    fail(v)
  end
end


--- Returns the single values among values in order, and the structure of the values.
-- @int n number of values
-- @tparam table list the values
-- @func mark_of value -> "." for a single value, "_" for an absent one, "(" for an object
--   that is used as a list, else nil
-- @func fail called with any other value that is not a list; raises an error
-- @treturn table
-- @treturn string structure
function nested.flatten(n, list, mark_of, fail)
  local flat, texts = {}, {}
  for i = 1, n do
    append(list[i], flat, texts, mark_of, fail)
  end
  return flat, table.concat(texts)
end


-- Reads the values of one list. at: number of single values that are used so far; from: position in
-- the structure, from 1; finish: called with each list in it. Returns the values, their number, and
-- `at` and `from` after them.
local function regroup_list(flat, structure, at, from, finish)
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
      inner, _, at, from = regroup_list(flat, structure, at, from, finish)
      list[n] = finish and finish(inner) or inner
    end
  end
  return list, n, at, from
end


--- Returns the values of a structure from the single values in it.
-- @tparam table flat
-- @string structure
-- @func[opt] finish called with each list in the result; returns the list
-- @treturn table the values
-- @treturn int the number of values
function nested.regroup(flat, structure, finish)
  local list, n = regroup_list(flat, structure, 0, 1, finish)
  return list, n
end


--- Returns the values of a structure as separate results; lists in them count from 1.
-- @tparam table flat
-- @string structure
function nested.results(flat, structure)
  local list, n = nested.regroup(flat, structure, counted_from_1)
  return unpack(list, 1, n)
end


--- Returns the arguments for a loop body's parameter: the entries of a list, or the value alone.
-- @tparam table flat
-- @string structure
function nested.arguments(flat, structure)
  return nested.results(flat, (structure:gsub("^%((.*)%)$", "%1")))
end


return nested
