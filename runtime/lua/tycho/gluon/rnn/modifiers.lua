--- Cells that change other cells: DropoutCell, ZoneoutCell, ResidualCell, and
-- VariationalDropoutCell of contrib.
--
-- A modifier has the parameters of its base cell; its prefix is the base's followed by the
-- modifier's hint. A direct call of a base cell is an error.
--
-- @module tycho.gluon.rnn.modifiers

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local base = require "tycho.gluon.rnn.base"
local sequence = require "tycho.gluon.rnn.sequence"
local values = require "tycho.core.values"
local Block = require "tycho.gluon.block"

local modifiers = {}


-- Prefixes ----------------------------------------------------------------------------------------

local construct = getmetatable(Block).__call

--- Gives objects of a class and of its subclasses a prefix that depends on the constructor's
-- arguments, unless they have the option `prefix`.
-- @tparam table cell_class
-- @func prefix_of called with the class and the arguments of the constructor; returns the prefix
function modifiers.set_prefix(cell_class, prefix_of)
  local function make(made, ...)
    local n = values.count(...)
    local list, options = { ... }
    if n > 0 and values.is_plain(list[n]) then
      options = {}
      for key, value in pairs(list[n]) do
        options[key] = value
      end
      list[n] = options
    else
      options = {}
      n = n + 1
      list[n] = options
    end
    if options.prefix == nil then
      options.prefix = prefix_of(made, ...)
    end
    return construct(made, unpack(list, 1, n))
  end
  local extend = cell_class.extend
  function cell_class:extend(name)
    local made = extend(self, name)
    getmetatable(made).__call = make
    return made
  end
  getmetatable(cell_class).__call = make
end


-- The base ----------------------------------------------------------------------------------------

--- The base class of modifiers. Field: base_cell.
-- @type ModifierCell
local ModifierCell = base.HybridRecurrentCell:extend("ModifierCell")

modifiers.set_prefix(ModifierCell, function(made, given)
  local cell = values.is_plain(given) and (given.base_cell or given[1]) or given
  local hint = made._hint or made.class_name:lower()
  return (type(cell) == "table" and cell.is_cell and cell.prefix or "") .. hint
end)


local MODIFIER = args.form("gluon.rnn.ModifierCell", { { "base_cell", "any" }, "*",
  { "prefix", "any?" }, { "params", "any?" } })

function ModifierCell:init(...)
  self:_modify(MODIFIER(...).base_cell)
end


-- Makes a cell the base.
function ModifierCell:_modify(cell)
  local func = "gluon.rnn." .. self.class_name
  if type(cell) ~= "table" or not cell.is_cell then
    Error.raise{ code = "type", func = func, argument = "base_cell", expected = "a cell",
      got = Error.kind(cell), message = "bad 'base_cell'" }
  elseif cell._modified then
    Error.raise{ code = "state", func = func, argument = cell.name,
      message = ("'%s' is modified already; a cell is modified once"):format(cell.name) }
  end
  cell._modified = true
  self.base_cell = cell
  rawset(self, "_params", cell.params)
end


function ModifierCell:state_info(batch_size)
  return self.base_cell:state_info(batch_size)
end


-- Calls a method of the base cell, which is allowed during the call.
local function with_base(self, method, ...)
  local cell = self.base_cell
  local function finish(ok, ...)
    cell._modified = true
    if not ok then
      error((...), 0)
    end
    return ...
  end
  cell._modified = false
  return finish(pcall(cell[method], cell, ...))
end


function ModifierCell:begin_state(...)
  base.refuse_modified(self, "RecurrentCell:begin_state")
  return with_base(self, "begin_state", ...)
end


layer.describe(ModifierCell, function(self)
  return ("%s(%s)"):format(self.class_name, tostring(self.base_cell))
end)


-- Raises an error for a bidirectional base cell, which cannot make single steps.
local function refuse_bidirectional(cell, func)
  if type(cell) == "table" and cell.is_bidirectional then
    Error.raise{ code = "unsupported", func = func, argument = "base_cell",
      message = "a BidirectionalCell has no single steps; modify the two cells in it" }
  end
end


-- Dropout -----------------------------------------------------------------------------------------

--- Applies dropout to its input, as a part of a stack: `DropoutCell(rate, axes)`. It has no states.
-- @type DropoutCell
local DropoutCell = layer.extend(base.HybridRecurrentCell, "gluon.rnn.DropoutCell",
  { { "rate", "number" }, { "axes", "shape", {} } })

DropoutCell._hint = "dropout"

function DropoutCell:set_up(a)
  self._rate, self._axes = a.rate, a.axes
end


function DropoutCell.state_info()
  return {}
end


function DropoutCell:forward(x, states)
  if self._rate > 0 then
    x = F.Dropout{ x, p = self._rate, axes = self._axes, name = layer.step_names(self, x)("fwd") }
  end
  return x, states or {}
end


local unroll_steps = DropoutCell._unroll

function DropoutCell:_unroll(a)
  self:reset()
  local x = sequence.format(a.inputs, a.merge_outputs, a.length, a.time, "DropoutCell:unroll")
  if values.is_plain(x) then
    a.inputs, a.valid_length = x, nil
    return unroll_steps(self, a)
  end
  return self(x, a.begin_state or {})
end


layer.describe(DropoutCell, function(self)
  return ("%s(rate=%s, axes=%s)"):format(self.class_name, layer.show(self._rate),
    layer.show(self._axes))
end)


-- Zoneout -----------------------------------------------------------------------------------------

--- In training mode keeps random elements of the last output and of the last states in place of new
-- ones: `ZoneoutCell(base_cell, zoneout_outputs, zoneout_states)`; both are probabilities, 0 by
-- default.
-- @type ZoneoutCell
local ZoneoutCell = ModifierCell:extend("ZoneoutCell")

ZoneoutCell._hint, ZoneoutCell.keeps_arrays = "zoneout", true

local ZONEOUT = args.form("gluon.rnn.ZoneoutCell", { { "base_cell", "any" },
  { "zoneout_outputs", "number", 0 }, { "zoneout_states", "number", 0 }, "*",
  { "prefix", "any?" }, { "params", "any?" } })

function ZoneoutCell:init(...)
  local a = ZONEOUT(...)
  refuse_bidirectional(a.base_cell, "gluon.rnn.ZoneoutCell")
  self.zoneout_outputs, self.zoneout_states = a.zoneout_outputs, a.zoneout_states
  self:_modify(a.base_cell)
end


function ZoneoutCell:reset()
  ZoneoutCell.super.reset(self)
  self._last_output = nil
end


-- Returns the new value, or the old one for elements that the random mask selects.
local function zone_out(p, new, old)
  return F.where(F.Dropout{ F.ones_like(new), p = p }, new, old)
end


function ZoneoutCell:forward(x, states)
  local y, new = self.base_cell:_step(x, states)
  local last = self._last_output
  if last == nil or F.is_symbol(last) ~= F.is_symbol(y) then
    last = F.zeros_like(y)
  end
  if self.zoneout_outputs ~= 0 then
    y = zone_out(self.zoneout_outputs, y, last)
  end
  if self.zoneout_states ~= 0 then
    local kept = {}
    for i, state in ipairs(new) do
      kept[i] = zone_out(self.zoneout_states, state, states[i])
    end
    new = kept
  end
  self._last_output = y
  return y, new
end


layer.describe(ZoneoutCell, function(self)
  return ("%s(p_out=%s, p_state=%s, %s)"):format(self.class_name,
    layer.show(self.zoneout_outputs), layer.show(self.zoneout_states), tostring(self.base_cell))
end)


-- Residual ----------------------------------------------------------------------------------------

--- Adds its input to the output of the base cell: `ResidualCell(base_cell)`. Both must have the
-- same shape.
-- @type ResidualCell
local ResidualCell = ModifierCell:extend("ResidualCell")

function ResidualCell:forward(x, states)
  local y, new = self.base_cell:_step(x, states)
  return F.elemwise_add{ y, x, name = layer.step_names(self, x)("fwd") }, new
end


function ResidualCell:_unroll(a)
  local func = "ResidualCell:unroll"
  self:reset()
  local outputs, states = with_base(self, "_unroll", a)
  local merge = a.merge_outputs
  if merge == nil then
    merge = not values.is_plain(outputs)
  end
  local inputs = sequence.format(a.inputs, merge, a.length, a.time, func)
  if a.valid_length ~= nil then
    inputs = sequence.format(sequence.mask(inputs, a.valid_length, a.time), merge, a.length, a.time,
      func)
  end
  if merge then
    return F.elemwise_add(outputs, inputs), states
  end
  local sums = {}
  for i, y in ipairs(outputs) do
    sums[i] = F.elemwise_add(y, inputs[i])
  end
  return sums, states
end


-- Variational dropout -----------------------------------------------------------------------------

--- Applies dropout to inputs, outputs and the first state, with the same mask in all steps of a
-- sequence: `VariationalDropoutCell(base_cell, drop_inputs, drop_states, drop_outputs)`,
-- probabilities, 0 by default.
-- @type VariationalDropoutCell
local VariationalDropoutCell = ModifierCell:extend("VariationalDropoutCell")

VariationalDropoutCell._hint, VariationalDropoutCell.keeps_arrays = "vardrop", true

local VARIATIONAL = args.form("contrib.rnn.VariationalDropoutCell", { { "base_cell", "any" },
  { "drop_inputs", "number", 0 }, { "drop_states", "number", 0 }, { "drop_outputs", "number", 0 },
  "*", { "prefix", "any?" }, { "params", "any?" } })

function VariationalDropoutCell:init(...)
  local a = VARIATIONAL(...)
  if a.drop_states ~= 0 then
    refuse_bidirectional(a.base_cell, "contrib.rnn.VariationalDropoutCell")
  end
  self.drop_inputs, self.drop_states, self.drop_outputs =
    a.drop_inputs, a.drop_states, a.drop_outputs
  self:_modify(a.base_cell)
end


function VariationalDropoutCell:reset()
  VariationalDropoutCell.super.reset(self)
  self._masks = {}
end


-- Returns x multiplied by the mask of a kind, which is drawn at its first use and kept until
-- `reset`.
local function mask(self, kind, p, x)
  if p == 0 then
    return x
  end
  self._masks = self._masks or {}
  local m = self._masks[kind]
  if m == nil or F.is_symbol(m) ~= F.is_symbol(x) then
    m = class.keep(F.Dropout{ F.ones_like(x), p = p })
    self._masks[kind] = m
  end
  return x * m
end


function VariationalDropoutCell:forward(x, states)
  if self.drop_states ~= 0 then
    states = base.part(states, 1, #states)
    states[1] = mask(self, "states", self.drop_states, states[1])
  end
  x = mask(self, "inputs", self.drop_inputs, x)
  local y, new = self.base_cell:_step(x, states)
  return mask(self, "outputs", self.drop_outputs, y), new
end


-- Runs the cell over a sequence. Without dropout of states the base cell runs over the whole
-- sequence at once, between one dropout of inputs and one of outputs.
function VariationalDropoutCell:_unroll(a)
  if self.drop_states ~= 0 then
    return VariationalDropoutCell.super._unroll(self, a)
  end
  self:reset()
  local x = sequence.join(a.inputs, a.time)
  local begin = a.begin_state
  if begin == nil then
    begin = base.begin(self, nil, x, class.is_array(x) and x.shape[a.batch + 1] or 0)
  end
  if self.drop_inputs ~= 0 then
    x = F.Dropout{ x, p = self.drop_inputs, axes = { a.time } }
  end
  local y, states = with_base(self, "_unroll", { length = a.length, inputs = x, begin_state = begin,
    layout = a.layout, time = a.time, batch = a.batch, merge_outputs = true,
    valid_length = a.valid_length })
  if self.drop_outputs ~= 0 then
    y = F.Dropout{ y, p = self.drop_outputs, axes = { a.time } }
  end
  return sequence.format(y, a.merge_outputs, a.length, a.time, "VariationalDropoutCell:unroll"),
    states
end


layer.describe(VariationalDropoutCell, function(self)
  return ("%s(p_out = %s, p_state = %s)"):format(self.class_name, layer.show(self.drop_outputs),
    layer.show(self.drop_states))
end)


modifiers.classes = { ModifierCell = ModifierCell, DropoutCell = DropoutCell,
  ZoneoutCell = ZoneoutCell, ResidualCell = ResidualCell }
modifiers.VariationalDropoutCell = VariationalDropoutCell

return modifiers
