--- Small functions on tables (not for users). None changes its arguments.
--
-- @module tycho.core.tables

local pairs = require("tycho.core.iterate").pairs

local tables = {}


--- Returns all entries in a new table; an empty one for nil.
function tables.copy(t)
  local copy = {}
  for key, value in pairs(t or {}) do
    copy[key] = value
  end
  return copy
end


--- Returns entries `first` to `last` (from 1) of a list as a new one. (`unpack` fills Lua's stack,
-- which holds fewer than 8,000.)
function tables.part(list, first, last)
  local part = {}
  for i = first, last do
    part[i - first + 1] = list[i]
  end
  return part
end


--- Returns a copy of a list without named keys.
function tables.copied(list)
  return tables.part(list, 1, #list)
end


--- Returns the list's entries, last one first.
function tables.reversed(list)
  local copy = {}
  for i = #list, 1, -1 do
    copy[#copy + 1] = list[i]
  end
  return copy
end


--- Returns whether two lists have equal entries.
function tables.same(a, b)
  local same = #a == #b
  for i = 1, same and #a or 0 do
    same = same and a[i] == b[i]
  end
  return same
end


--- Returns a table from each entry of a list to its position, from 1; an empty one for nil. For
-- equal entries it has the last position.
function tables.positions(list)
  local index_of = {}
  for i, entry in ipairs(list or {}) do
    index_of[entry] = i
  end
  return index_of
end


--- Returns the entries of a list at the given positions.
function tables.pick(list, positions)
  local picked = {}
  for i, position in ipairs(positions) do
    picked[i] = list[position]
  end
  return picked
end


--- Returns a list of n ones.
function tables.ones(n)
  local list = {}
  for i = 1, n do
    list[i] = 1
  end
  return list
end


--- Returns the product of numbers. Up to four numbers are multiplied without a loop, since LuaJIT
-- does not compile short loops inside of other functions.
function tables.product(list)
  if list[5] == nil then
    return (list[1] or 1) * (list[2] or 1) * (list[3] or 1) * (list[4] or 1)
  end
  local product = 1
  for _, n in ipairs(list) do
    product = product * n
  end
  return product
end


--- Returns whether a shape is known: it has dimensions, and none is 0.
function tables.is_known(shape)
  for _, size in ipairs(shape) do
    if size == 0 then
      return false
    end
  end
  return #shape > 0
end


return tables
