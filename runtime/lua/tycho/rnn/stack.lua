--- Cells made of cells: SequentialRNNCell runs cells one after the other, BidirectionalCell runs
-- two over the sequence, from both ends.
--
-- @module tycho.rnn.stack

local args = require "tycho.core.args"
local base = require "tycho.rnn.base"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local sequence = require "tycho.rnn.sequence"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"

local BaseRNNCell = base.BaseRNNCell

local stack = {}


local function check_cell(cell, func, argument)
  if not Class.is_a(cell, BaseRNNCell) then
    Error.raise{ code = "type", func = func, argument = argument, expected = "a cell",
      got = Error.kind(cell), message = ("bad '%s'"):format(argument) }
  end
end


-- Returns n entries of a list, from a position that counts from 1.
local function part(list, from, n)
  return { unpack(list, from, from + n - 1) }
end


local function append(to, list)
  for _, x in ipairs(list) do
    to[#to + 1] = x
  end
end


-- Containers --------------------------------------------------------------------------------------

-- The base class of both; it passes calls on to the cells in `_cells`.
local Container = BaseRNNCell:extend("Container")

Container.fields = BaseRNNCell.extend_fields{ state_info = function(self)
  local list = {}
  for _, cell in ipairs(self._cells) do
    append(list, cell.state_info)
  end
  return list
end }


function Container:reset()
  Container.super.reset(self)
  for _, cell in ipairs(rawget(self, "_cells") or {}) do
    cell:reset()
  end
end


function Container:_begin(func, given)
  local states = {}
  for _, cell in ipairs(self._cells) do
    append(states, self._make_begin(cell, func, given))
  end
  return states
end


function Container:_unpack(dict)
  for _, cell in ipairs(self._cells) do
    cell:_unpack(dict)
  end
end


function Container:_pack(dict)
  for _, cell in ipairs(self._cells) do
    cell:_pack(dict)
  end
end


-- Adds a cell's parameters to the container's; if the container was given parameters, the cell gets
-- them. E(value) if the cell was given parameters too.
function Container:_adopt(cell, argument)
  if self._given_params then
    if not cell._own_params then
      Error.raise{ code = "value", func = self.class_name, argument = argument,
        message = "parameters are given to the container or to its cells, not to both" }
    end
    cell.params:merge(self._params)
  end
  self._params:merge(cell.params)
end


-- SequentialRNNCell -------------------------------------------------------------------------------

--- Cells one after the other; the states are those of all cells in order.
-- @type SequentialRNNCell
local SequentialRNNCell = Container:extend("SequentialRNNCell")
stack.SequentialRNNCell = SequentialRNNCell

local SEQUENTIAL = args.form("rnn.SequentialRNNCell", { { "params", "rnn_params?" } })

--- @tparam[opt] RNNParams params shared with the cells that are added
function SequentialRNNCell:init(...)
  local a = SEQUENTIAL(...)
  self._cells, self._given_params = {}, a.params ~= nil
  SequentialRNNCell.super.init(self, { params = a.params })
end


--- Adds a cell at the end.
-- @tparam BaseRNNCell cell
function SequentialRNNCell:add(cell)
  check_cell(cell, "SequentialRNNCell:add", "cell")
  self:_adopt(cell, "cell")
  table.insert(self._cells, cell)
end


function SequentialRNNCell:__call(inputs, states)
  self._counter = self._counter + 1
  local next_states, at = {}, 1
  for _, cell in ipairs(self._cells) do
    local n = #cell.state_info
    local new
    inputs, new = cell(inputs, part(states, at, n))
    append(next_states, new)
    at = at + n
  end
  self._output = inputs
  return inputs, next_states
end


function SequentialRNNCell:_unroll(a)
  local outputs, states, at = a.inputs, {}, 1
  if #self._cells == 0 then
    Error.raise{ code = "state", func = "SequentialRNNCell:unroll",
      message = "there are no cells; add some first" }
  end
  for i, cell in ipairs(self._cells) do
    local n, options = #cell.state_info, { length = a.length, inputs = outputs, layout = a.layout }
    options.begin_state = part(a.begin_state, at, n)
    if i == #self._cells then
      options.merge_outputs = a.merge_outputs
    end
    local new
    outputs, new = cell:unroll(options)
    append(states, new)
    at = at + n
  end
  return outputs, states
end


-- BidirectionalCell -------------------------------------------------------------------------------

--- Runs one cell from the first step to the last, another one from the last to the first. Outputs
-- are joined, states are `{left's, right's}`.
-- @type BidirectionalCell
local BidirectionalCell = Container:extend("BidirectionalCell")
stack.BidirectionalCell = BidirectionalCell

local BIDIRECTIONAL = args.form("rnn.BidirectionalCell", {
  { "l_cell", BaseRNNCell }, { "r_cell", BaseRNNCell }, { "params", "rnn_params?" },
  { "output_prefix", "text", "bi_" },
})

--- @tparam BaseRNNCell l_cell
-- @tparam BaseRNNCell r_cell
-- @tparam[opt] RNNParams params
-- @string[opt="bi_"] output_prefix put in front of the names of joined outputs
function BidirectionalCell:init(...)
  local a = BIDIRECTIONAL(...)
  self._cells, self._given_params = { a.l_cell, a.r_cell }, a.params ~= nil
  self._output_prefix = a.output_prefix
  BidirectionalCell.super.init(self, { params = a.params })
  self:_adopt(a.l_cell, "l_cell")
  self:_adopt(a.r_cell, "r_cell")
end


-- Joins the outputs of both cells, step by step, along the features (axis 1 of a step).
local function join_steps(self, left, right)
  local outputs = {}
  for t = 1, #left do
    outputs[t] = symbol.Concat{ left[t], right[#right + 1 - t], dim = 1,
      name = ("%st%d"):format(self._output_prefix, t - 1) }
  end
  return outputs
end


-- Joins merged outputs of both cells, after reversing those of the right one in time.
local function join_merged(self, left, right, axis)
  local turned = symbol.reverse{ right, axis = axis }
  return symbol.Concat{ left, turned, dim = 2, name = self._output_prefix .. "out" }
end


function BidirectionalCell:_unroll(a)
  local inputs, axis = self:normalize(a.length, a.inputs, a.layout, false)
  local l, r = self._cells[1], self._cells[2]
  local nl, nr = #l.state_info, #r.state_info
  local merge = a.merge_outputs
  local left, l_states = l:unroll{ length = a.length, inputs = inputs,
    begin_state = part(a.begin_state, 1, nl), layout = a.layout, merge_outputs = merge }
  local right, r_states = r:unroll{ length = a.length, inputs = tables.reversed(inputs),
    layout = a.layout, begin_state = part(a.begin_state, nl + 1, nr), merge_outputs = merge }
  if merge == nil then
    merge = sequence.is_symbol(left) and sequence.is_symbol(right)
    left = self:normalize(a.length, left, a.layout, merge)
    right = self:normalize(a.length, right, a.layout, merge)
  end
  local join = merge and join_merged or join_steps
  return join(self, left, right, axis), { l_states, r_states }
end


return stack
