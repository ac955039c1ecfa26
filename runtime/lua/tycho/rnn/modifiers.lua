--- Cells that change the steps of another cell: ZoneoutCell, ResidualCell and their base class.
--
-- @module tycho.rnn.modifiers

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local fused = require "tycho.rnn.fused"
local sequence = require "tycho.rnn.sequence"
local stack = require "tycho.rnn.stack"
local symbol = require "tycho.symbol.symbol"

local BaseRNNCell = base.BaseRNNCell

local modifier = {}


-- ModifierCell ------------------------------------------------------------------------------------

--- The base class of cells around a cell. Parameters and states are those of the inner cell; begin
-- states are made through the outer one.
-- @type ModifierCell
local ModifierCell = BaseRNNCell:extend("ModifierCell")
modifier.ModifierCell = ModifierCell

ModifierCell.fields = BaseRNNCell.extend_fields{
  state_info = function(self) return self._base.state_info end,
  params     = function(self)
    self._own_params = false
    return self._base.params
  end,
  base_cell  = function(self) return self._base end,
}

local MODIFIER = args.form("rnn.ModifierCell", { { "base_cell", BaseRNNCell } })

--- @tparam BaseRNNCell base_cell
function ModifierCell:init(...)
  self._base = MODIFIER(...).base_cell
  self._base._modified = true
  ModifierCell.super.init(self, {})
end


function ModifierCell:reset()
  ModifierCell.super.reset(self)
  self._base:reset()
end


-- Calls f with the inner cell, which during the call can be used as if it had no outer cell.
local function unwrapped(self, f)
  local inner = self._base
  inner._modified = false
  local ok, a, b = pcall(f, inner)
  inner._modified = true
  if not ok then
    error(a, 0)
  end
  return a, b
end


function ModifierCell:_begin(func, given)
  return (unwrapped(self, function(inner) return self._make_begin(inner, func, given) end))
end


function ModifierCell:__call(inputs, states)
  self._output, states = self._base(inputs, states)
  return self._output, states
end


function ModifierCell:_unpack(dict)
  self._base:_unpack(dict)
end


function ModifierCell:_pack(dict)
  self._base:_pack(dict)
end


-- ZoneoutCell -------------------------------------------------------------------------------------

--- Zoneout: in training, a random part of the outputs and states of a step keep the values of the
-- previous step.
-- @type ZoneoutCell
local ZoneoutCell = ModifierCell:extend("ZoneoutCell")
modifier.ZoneoutCell = ZoneoutCell
ZoneoutCell.fields = ModifierCell.fields

local ZONEOUT = args.form("rnn.ZoneoutCell", {
  { "base_cell", BaseRNNCell }, { "zoneout_outputs", "number", 0 },
  { "zoneout_states", "number", 0 },
})


-- Raises E(unsupported) for a cell that cannot make single steps, which Zoneout needs, or that
-- contains such a cell.
local function check_steps(cell)
  local bidirectional = Class.is_a(cell, stack.BidirectionalCell)
  if bidirectional or Class.is_a(cell, fused.FusedRNNCell) then
    Error.raise{ code = "unsupported", func = "rnn.ZoneoutCell", argument = "base_cell",
      got = cell.class_name, expected = "a cell that makes single steps", message = bidirectional
        and "wrap the two inner cells instead"
        or "unfuse the cell first: ZoneoutCell{ cell:unfuse() }" }
  end
  for _, inner in ipairs(rawget(cell, "_cells") or {}) do
    check_steps(inner)
  end
  if rawget(cell, "_base") then
    check_steps(cell._base)
  end
end


--- @tparam BaseRNNCell base_cell must make single steps, else E(unsupported)
-- @number[opt=0] zoneout_outputs probability with which an output keeps its value
-- @number[opt=0] zoneout_states probability with which an element of a state keeps its value
function ZoneoutCell:init(...)
  local a = ZONEOUT(...)
  check_steps(a.base_cell)
  self._zoneout_outputs, self._zoneout_states = a.zoneout_outputs, a.zoneout_states
  ZoneoutCell.super.init(self, a.base_cell)
end


function ZoneoutCell:reset()
  ZoneoutCell.super.reset(self)
  self._previous = nil
end


-- Returns the new value where the mask is not 0, the old value elsewhere.
local function zoned(p, new, old)
  local mask = symbol.Dropout{ symbol.ones_like(new), p = p }
  return symbol.where{ mask, new, old or symbol.zeros{ 0, 0 } }
end


function ZoneoutCell:__call(inputs, states)
  local output, new = self._base(inputs, states)
  if self._zoneout_outputs > 0 then
    output = zoned(self._zoneout_outputs, output, self._previous)
  end
  if self._zoneout_states > 0 then
    for i, state in ipairs(new) do
      new[i] = zoned(self._zoneout_states, state, states[i])
    end
  end
  self._previous, self._output = output, output
  return output, new
end


-- ResidualCell ------------------------------------------------------------------------------------

--- Adds the inputs to the outputs of a cell; both must have the same shape.
-- @type ResidualCell
local ResidualCell = ModifierCell:extend("ResidualCell")
modifier.ResidualCell = ResidualCell
ResidualCell.fields = ModifierCell.fields


local function plus(output, inputs)
  return symbol.elemwise_add{ output, inputs, name = output.name .. "_plus_residual" }
end


function ResidualCell:__call(inputs, states)
  local output, new = self._base(inputs, states)
  self._output = plus(output, inputs)
  return self._output, new
end


function ResidualCell:_unroll(a)
  local outputs, states = unwrapped(self, function(inner) return inner:unroll(a) end)
  local merge = a.merge_outputs
  if merge == nil then
    merge = sequence.is_symbol(outputs)
  end
  local inputs = self:normalize(a.length, a.inputs, a.layout, merge)
  if merge then
    return plus(outputs, inputs), states
  end
  for t, x in ipairs(outputs) do
    outputs[t] = plus(x, inputs[t])
  end
  return outputs, states
end


return modifier
