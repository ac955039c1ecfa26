-- Computes a symbol by calls on arrays, node after node.

local is_array = require("tycho.ndarray.class").is_array
local ty = require "tycho"

local imperative = {}

local function make_options(node, inputs)
  local options = { unpack(inputs) }
  for key, value in pairs(node.attrs) do
    options[key] = not key:find("^__") and value or nil
  end
  return options
end

-- Returns the outputs of a node as a list; each node is computed at most once.
local function compute_outputs(node, values, made)
  if made[node] then
    return made[node]
  elseif not node.op then
    made[node] = { assert(values[node.name], "no array for " .. node.name) }
    return made[node]
  end
  local inputs = {}
  for i, entry in ipairs(node.inputs) do
    inputs[i] = compute_outputs(entry[1], values, made)[entry[2] + 1]
  end
  local y = ty.nd[node.op](make_options(node, inputs))
  made[node] = is_array(y) and { y } or y
  return made[node]
end

--- Computes a symbol by calls.
-- @tparam Symbol symbol
-- @tparam table values arrays by names of variables
-- @treturn {NDArray,...}
function imperative.run(symbol, values)
  local made, outputs = {}, {}
  for i, entry in ipairs(symbol._entries) do
    outputs[i] = compute_outputs(entry[1], values, made)[entry[2] + 1]
  end
  return outputs
end

return imperative
