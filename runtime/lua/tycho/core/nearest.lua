--- Names that are near to a word (not for users): the body of `Error.nearest`, loaded with the
-- first unknown name.
--
-- @module tycho.core.nearest

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local foreign = require "tycho.core.foreign"


-- Returns the edit distance between two names; letters that differ only in case cost little, so
-- "relU" is near "relu", and two exchanged letters count as one mistake, so "sdg" is near "sgd".
local function distance(a, b)
  local la, lb = a:lower(), b:lower()
  local before, row = {}, {}                             -- rows i - 2 and i - 1 of the table
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local next_row = { [0] = i }
    for j = 1, #b do
      local cost = la:byte(i) ~= lb:byte(j) and 1 or a:byte(i) ~= b:byte(j) and 0.1 or 0
      local best = math.min(row[j] + 1, next_row[j - 1] + 1, row[j - 1] + cost)
      if i > 1 and j > 1 and la:byte(i) == lb:byte(j - 1) and la:byte(i - 1) == lb:byte(j) then
        best = math.min(best, before[j - 2] + 1)
      end
      next_row[j] = best
    end
    before, row = row, next_row
  end
  return row[#b]
end


-- Returns the distance of a word to a name that contains it as a part, else infinity. A part, as
-- "type" of "pool_type", is nearer than one wrong letter; the last part after a dot, as
-- "Module" of "mod.Module", is nearer than a difference in case.
local function of_parts(word, name)
  if name:sub(-#word - 1) == "." .. word then
    return 0.05 + #name / 1000
  end
  local parts = "_" .. name:lower():gsub("%.", "_") .. "_"
  local part = #word > 2 and parts:find("_" .. word:lower() .. "_", 1, true)
  return part and 0.5 + #name / 1000 or math.huge
end


--- See `Error.nearest`.
-- @string word
-- @tparam {string,...} names
-- @int[opt] limit
return function(word, names, limit)
  local edits, list = {}, {}
  local ours = foreign.counterpart(word, names)
  for _, name in ipairs(names) do
    if not edits[name] and (name:sub(1, 1) ~= "_" or word:sub(1, 1) == "_") then
      edits[name] = name == ours and -1 or math.min(distance(word, name), of_parts(word, name))
      list[#list + 1] = name
    end
  end
  table.sort(list, function(a, b)
    if edits[a] ~= edits[b] then
      return edits[a] < edits[b]
    end
    return a < b
  end)
  for i = #list, (limit or #list) + 1, -1 do
    list[i] = nil
  end
  return list, list[1] ~= nil and edits[list[1]] <= math.max(1, (#word - 1) / 2)
end
