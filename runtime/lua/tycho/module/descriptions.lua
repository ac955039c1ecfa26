--- Descriptions of a module's inputs: their names, shapes and batch axes (not for users).
--
-- @module tycho.module.descriptions

local pairs = require("tycho.core.iterate").pairs
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local io_data = require "tycho.io.data"
local values = require "tycho.core.values"

local descriptions = {}


--- Returns descriptions of inputs as a list of DataDesc, from such a list, a list of `{name, shape,
-- ...}`, or a table of shapes by name.
-- @tparam ?table given
-- @string func for errors
-- @string argument for errors
-- @treturn ?table nil if nothing is given
function descriptions.list(given, func, argument)
  if values.value(given) == nil then
    return nil
  elseif type(given) ~= "table" then
    Error.raise{ code = "type", func = func, argument = argument,
      expected = "a list of {name, shape}",
      got = Error.kind(given), message = ("bad '%s'"):format(argument) }
  end
  local list = {}
  if #given == 0 then
    for name, shape in pairs(given) do
      list[#list + 1] = { name, shape }
    end
    table.sort(list, function(a, b) return a[1] < b[1] end)
    given = list
  end
  local result = {}
  for i, d in ipairs(given) do
    result[i] = io_data.DataDesc.of(d, func)
  end
  return counted_from_1(result)
end


--- Returns descriptions of labels as `list` does, but nil for an empty list.
function descriptions.labels(given, func)
  local labels = descriptions.list(given, func, "label_shapes")
  return labels and #labels > 0 and labels or nil
end


--- Returns the names of descriptions; an empty list for nil.
function descriptions.names(descs)
  local names = {}
  for i, d in ipairs(descs or {}) do
    names[i] = d.name
  end
  return names
end


local function name_of(description)
  return type(description) == "table" and description[1] or description
end


--- Returns the position in a batch of each bound input.
-- @tparam ?table described descriptions of the batch's arrays
-- @tparam table bound descriptions, or names
-- @treturn ?{int,...} positions in the batch, from 1, in the bound order; nil: the arrays are in
--   the bound order, or their names differ from the bound ones
function descriptions.order(described, bound)
  local moved, at, order = false, {}, {}
  for k = 1, type(described) == "table" and #bound or 0 do
    moved = moved or name_of(described[k]) ~= name_of(bound[k])
  end
  if not moved then
    return nil
  end
  for k, description in ipairs(described) do
    at[name_of(description)] = k
  end
  for k, description in ipairs(bound) do
    order[k] = at[name_of(description)]
    if not order[k] then
      return nil
    end
  end
  return order
end


--- Returns the batch axis of a description, from 0; -1 if it has none.
function descriptions.batch_axis(desc)
  return io_data.DataDesc.get_batch_axis(desc.layout)
end


return descriptions
