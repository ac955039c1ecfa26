--- Which label belongs to which output of a symbol (not for users).
--
-- Metrics compare the first label with the first output, and so on, but iterators list labels in
-- the order of their names.
--
-- @module tycho.module.output_labels

local tables = require "tycho.core.tables"

local output_labels = {}


-- Returns the names of the labels that are the fewest nodes away from an output, going backward.
local function nearest_labels(entry, is_label)
  local level, seen, found = { entry[1] }, { [entry[1]] = true }, {}
  while #level > 0 and #found == 0 do
    local before = {}
    for _, n in ipairs(level) do
      if not n.op and is_label[n.name] then
        found[#found + 1] = n.name
      end
      for _, input in ipairs(n.inputs) do
        if not seen[input[1]] then
          seen[input[1]], before[#before + 1] = true, input[1]
        end
      end
    end
    level = before
  end
  return found
end


--- Returns the positions of labels in the order of the outputs that they belong to.
-- @tparam Symbol symbol
-- @tparam {string,...} names of the labels
-- @treturn ?{int,...} positions from 1; nil: labels have that order already, or an output does not
--   have exactly one label
function output_labels.order(symbol, names)
  local at, order, used, moved = tables.positions(names), {}, {}, false
  if #names < 2 or #symbol._entries ~= #names then
    return nil
  end
  for k, entry in ipairs(symbol._entries) do
    local found = nearest_labels(entry, at)
    if #found ~= 1 or used[found[1]] then
      return nil
    end
    order[k], used[found[1]] = at[found[1]], true
    moved = moved or order[k] ~= k
  end
  return moved and order or nil
end


return output_labels
