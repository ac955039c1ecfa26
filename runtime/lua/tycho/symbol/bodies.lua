--- Bodies of control-flow nodes: which of the node's inputs they change in place.
--
-- @module tycho.symbol.bodies

local node = require "tycho.symbol.node"

local bodies = {}

-- Attributes of a foreach that list for each input of the node, in order, which variable of the
-- body it is for.
local FOREACH = { "in_data_locs", "in_state_locs", "remain_locs" }

-- Other operators -> for each body the attribute that lists for each variable, in order, which
-- input of the node it gets.
local INPUTS = {
  _while_loop = { "cond_input_locs", "func_input_locs" },
  _cond = { "cond_input_locs", "then_input_locs", "else_input_locs" },
}


-- Returns the position of the input (from 1) of each variable (from 0) of a body.
local function index_inputs(n, which)
  local of, count = {}, 0
  for _, key in ipairs(n.op == "_foreach" and FOREACH or { INPUTS[n.op][which] }) do
    for location in (n.attrs[key] or ""):gmatch("%-?%d+") do
      if n.op == "_foreach" then
        of[tonumber(location)] = count + 1
      else
        of[count] = tonumber(location) + 1
      end
      count = count + 1
    end
  end
  return of
end


-- Marks the inputs of a node that a body changes.
local function mark_changed(changed, n, which, entries)
  local order = node.walk(entries)
  local states, inputs, k = node.mutated(order), index_inputs(n, which), 0
  for _, m in ipairs(order) do
    if not m.op then
      if states[m] and inputs[k] then
        changed[inputs[k]] = true
      end
      k = k + 1
    end
  end
end


--- Gives a node its bodies. What a body changes in place (moving statistics) is an auxiliary state
-- of the whole network.
-- @tparam table n the node
-- @tparam {Symbol,...} list
function bodies.attach(n, list)
  local changed = {}
  for i in ipairs(n.ports.inputs) do
    changed[i] = n.ports.mutated[i]
  end
  for which, body in ipairs(list) do
    mark_changed(changed, n, which, body._entries)
  end
  n.bodies = list
  n.ports = setmetatable({ mutated = changed }, { __index = n.ports })
end


return bodies
