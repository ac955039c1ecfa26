--- Cells made of cells: SequentialRNNCell, HybridSequentialRNNCell, BidirectionalCell.
--
-- @module tycho.gluon.rnn.stacks

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local base = require "tycho.gluon.rnn.base"
local modifiers = require "tycho.gluon.rnn.modifiers"
local sequence = require "tycho.gluon.rnn.sequence"
local values = require "tycho.core.values"

local stacks = {}


local function list_cells(self)
  local cells = {}
  for i, child in ipairs(self:children()) do
    cells[i] = child.block
  end
  return cells
end


-- Returns the arguments of `begin_state` as one table of options.
local function begin_options(self, ...)
  base.refuse_modified(self, "RecurrentCell:begin_state")
  local options = {}
  for key, value in pairs(base.read_begin(...)) do
    options[key] = value
  end
  return options
end


-- Stacks ------------------------------------------------------------------------------------------

-- Adds the methods of a stack to a class of cells.
local function make_stack(class)

  --- Appends cells.
  -- @param ... cells
  -- @return the stack
  function class:add(...)
    if not Class.is_a(self, class) then
      Error.raise{ code = "type", func = class.class_name .. ":add", got = Error.kind(self),
        expected = Error.with_article(class.class_name),
        message = "methods take a colon: x:add(...), not x.add(...)" }
    end
    for i = 1, math.max(1, select("#", ...)) do
      local cell = select(i, ...)
      if type(cell) ~= "table" or not cell.is_cell then
        Error.raise{ code = "type", func = self.class_name .. ":add", argument = "cell",
          expected = "a cell", got = Error.kind(cell), message = "bad 'cell'" }
      end
      self:register_child(cell)
    end
    return self
  end


  function class:register_child(...)
    class.super.register_child(self, ...)
    for i, each in ipairs(list_cells(self)) do
      rawset(self, i, each)
    end
  end


  function class:len()
    return #self
  end


  function class:state_info(batch_size)
    return base.list_state_info(self, batch_size)
  end


  function class:begin_state(...)
    return base.make_begin_states(self, begin_options(self, ...))
  end


  function class:forward(x, states)
    local all, from = {}, 0
    for _, cell in ipairs(self) do
      local n = #cell:state_info()
      local new
      x, new = cell(x, base.part(states, from + 1, from + n))
      from = from + n
      for _, state in ipairs(new) do
        all[#all + 1] = state
      end
    end
    return x, all
  end


  -- Runs each cell over the whole output sequence of the cell before it.
  function class:_unroll(a)
    self:reset()
    local x, all, from = a.inputs, {}, 0
    local begin = a.begin_state
    if begin == nil then
      local steps = sequence.split(x, a.length, a.time, "RecurrentCell:unroll")
      begin = base.begin(self, nil, steps[1], base.batch_of(steps))
    end
    for i, cell in ipairs(self) do
      local n, merge = #cell:state_info(), nil
      if i == #self then
        merge = a.merge_outputs
      end
      local states
      x, states = cell:_unroll{ length = a.length, inputs = x, layout = a.layout, time = a.time,
        begin_state = base.part(begin, from + 1, from + n), batch = a.batch,
        merge_outputs = merge, valid_length = a.valid_length }
      from = from + n
      for _, state in ipairs(states) do
        all[#all + 1] = state
      end
    end
    return x, all
  end


  layer.describe(class, function(self)
    local lines = {}
    for i, cell in ipairs(self) do
      lines[i] = ("(%d): %s"):format(i - 1, layer.indent(tostring(cell)))
    end
    return layer.listed(self.class_name .. "(", lines)
  end)
end


--- Calls cells one after the other in each step. The states are those of all cells, in order.
-- @type SequentialRNNCell
stacks.SequentialRNNCell = base.RecurrentCell:extend("SequentialRNNCell")
make_stack(stacks.SequentialRNNCell)

--- Calls cells like SequentialRNNCell, and can be hybridized; the cells must be HybridBlocks.
-- @type HybridSequentialRNNCell
stacks.HybridSequentialRNNCell = base.HybridRecurrentCell:extend("HybridSequentialRNNCell")
make_stack(stacks.HybridSequentialRNNCell)


-- Both directions ---------------------------------------------------------------------------------

--- Runs one cell over the sequence and another one over the reversed sequence, and joins their
-- outputs of each step: `BidirectionalCell(l_cell, r_cell)`. It can only be unrolled.
-- @type BidirectionalCell
local BidirectionalCell = base.HybridRecurrentCell:extend("BidirectionalCell")
stacks.BidirectionalCell = BidirectionalCell

modifiers.set_prefix(BidirectionalCell, function()
  return ""
end)

BidirectionalCell.is_bidirectional = true

local BIDIRECTIONAL = args.form("gluon.rnn.BidirectionalCell", { { "l_cell", "any" },
  { "r_cell", "any" }, { "output_prefix", "text", "bi_" }, "*", { "prefix", "any?" },
  { "params", "any?" } })

function BidirectionalCell:init(...)
  local a = BIDIRECTIONAL(...)
  for _, name in ipairs{ "l_cell", "r_cell" } do
    if type(a[name]) ~= "table" or not a[name].is_cell then
      Error.raise{ code = "type", func = "gluon.rnn.BidirectionalCell", argument = name,
        expected = "a cell", got = Error.kind(a[name]), message = ("bad '%s'"):format(name) }
    end
  end
  self._output_prefix = a.output_prefix
  self:register_child(a.l_cell, "l_cell")
  self:register_child(a.r_cell, "r_cell")
end


function BidirectionalCell:forward()
  Error.raise{ code = "unsupported", func = self.class_name,
    message = "both directions need the whole sequence; use cell:unroll" }
end


BidirectionalCell._step = BidirectionalCell.forward
BidirectionalCell.__call = BidirectionalCell.forward


function BidirectionalCell:state_info(batch_size)
  return base.list_state_info(list_cells(self), batch_size)
end


function BidirectionalCell:begin_state(...)
  return base.make_begin_states(list_cells(self), begin_options(self, ...))
end


-- Joins the outputs of both directions along the last axis, for each step or as one tensor.
local function join_outputs(self, l, r, merge, time)
  if merge then
    l, r = sequence.join(l, time), sequence.join(r, time)
    return F.concat{ l, r, dim = 2, name = F.is_symbol(l) and self._output_prefix .. "out" or nil }
  end
  local outputs = {}
  for i, y in ipairs(l) do
    outputs[i] = F.concat{ y, r[i], dim = 1,
      name = F.is_symbol(y) and ("%st%d"):format(self._output_prefix, i - 1) or nil }
  end
  return outputs
end


local function unroll_one(cell, a, inputs, states, merge)
  return cell:_unroll{ length = a.length, inputs = inputs, begin_state = states,
    layout = a.layout, time = a.time, batch = a.batch, merge_outputs = merge,
    valid_length = a.valid_length }
end


function BidirectionalCell:_unroll(a)
  local func = "BidirectionalCell:unroll"
  self:reset()
  local steps = sequence.split(a.inputs, a.length, a.time, func)
  local begin = base.begin(self, a.begin_state, steps[1], base.batch_of(steps))
  local cells = list_cells(self)
  local n = #cells[1]:state_info()
  local l, l_states = unroll_one(cells[1], a, steps, base.part(begin, 1, n), a.merge_outputs)
  local r, r_states = unroll_one(cells[2], a, sequence.reverse(steps, a.valid_length, func),
    base.part(begin, n + 1, #begin), false)
  r = sequence.reverse(r, a.valid_length, func)
  local merge = a.merge_outputs
  if merge == nil then
    merge = not values.is_plain(l)
  end
  l = sequence.format(l, merge, a.length, a.time, func)
  local outputs = join_outputs(self, l, r, merge, a.time)
  if a.valid_length ~= nil then
    outputs = sequence.format(sequence.mask(outputs, a.valid_length, a.time), merge, a.length,
      a.time, func)
  end
  for _, state in ipairs(r_states) do
    l_states[#l_states + 1] = state
  end
  return outputs, l_states
end


layer.describe(BidirectionalCell, function(self)
  local cells = list_cells(self)
  return ("%s(forward=%s, backward=%s)"):format(self.class_name, tostring(cells[1]),
    tostring(cells[2]))
end)


return stacks
