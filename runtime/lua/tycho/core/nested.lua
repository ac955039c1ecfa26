--- Values in lists, which may be in lists themselves, as a flat list and a text that says how they
-- were nested: their structure.
--
-- In a structure "." stands for a value, "_" for none, "(" and ")" for the ends of a list:
-- `f(x, { h, c })` has ".(..)".
--
-- @module tycho.core.nested

local counted_from_1 = require "tycho.core.list"
local values = require "tycho.core.values"

local nested = {}


-- Appends what is in v to `flat` and its structure to `texts`.
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
-- @func mark_of value -> "." if it is a single value, "_" if it is none, "(" if it is an object
--   that serves as a list, else nil
-- @func fail called with a value that is none of these and no list; raises an error
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
-- @treturn int how many there are
function nested.regroup(flat, structure, finish)
  local list, n = regroup_list(flat, structure, 0, 1, finish)
  return list, n
end


--- Returns the values of a structure, with as many results; lists in them count from 1.
-- @tparam table flat
-- @string structure
function nested.results(flat, structure)
  local list, n = nested.regroup(flat, structure, counted_from_1)
  return unpack(list, 1, n)
end


--- Returns the arguments of a body that one value gives: the entries of a list, or the value.
-- @tparam table flat
-- @string structure
function nested.arguments(flat, structure)
  return nested.results(flat, (structure:gsub("^%((.*)%)$", "%1")))
end


return nested
