--- The base classes of recurrent cells: RecurrentCell and HybridRecurrentCell.
--
-- A cell is called with an input (batch, size) and the list of states, and returns an output and
-- the list of new states. A user's class defines `state_info(batch_size)` and `forward(x, states)`.
--
-- @module tycho.gluon.rnn.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Block = require "tycho.gluon.block"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local nd = require "tycho.ndarray"
local sequence = require "tycho.gluon.rnn.sequence"
local sym = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local base = {}


-- States ------------------------------------------------------------------------------------------

local BEGIN = args.form("RecurrentCell:begin_state", {
  { "batch_size", "integer", 0 }, { "func", "function?" }, "*",
  { "ctx", "context?" }, { "dtype", "dtype?" },
})

-- Set of functions that make symbols; they are called with a name and without a device.
local MAKES_SYMBOLS = {}
for _, name in ipairs{ "zeros", "ones", "full", "Variable", "var" } do
  MAKES_SYMBOLS[sym[name]] = true
end


--- Makes states from their descriptions.
-- @tparam table infos list of `{ shape = ... }`
-- @tparam table a arguments of `begin_state`
-- @func name_of returns the name of a state by its number, from 1
-- @treturn table list of arrays or symbols
function base.make_states(infos, a, name_of)
  local make, states = a.func or nd.zeros, {}
  if a.batch_size == 0 and not a.func then
    Error.raise{ code = "value", func = "RecurrentCell:begin_state", argument = "batch_size",
      expected = "the number of samples in a batch", got = "nothing",
      message = "'batch_size' is missing" }
  end
  for i, info in ipairs(infos) do
    if MAKES_SYMBOLS[make] then
      states[i] = make{ shape = info.shape, name = name_of(i), dtype = a.dtype or info.dtype }
    else
      states[i] = make{ shape = info.shape, ctx = a.ctx, dtype = a.dtype or info.dtype }
    end
  end
  return states
end


local function fail_states(cell, states)
  Error.raise{ code = "type", func = cell.class_name, argument = "states",
    expected = "a list of states", got = Error.kind(states),
    message = ("'%s' is called with an input and its states; begin with cell:begin_state{ \z
      batch_size = ... }"):format(cell.name) }
end


--- Raises E(type) for states that are not a list, and E(shape) for a list whose length is not
-- `expected`.
-- @tparam HybridBlock block the cell or layer, for errors
-- @param states
-- @int expected
function base.check_count(block, states, expected)
  if not values.is_plain(states) then
    fail_states(block, states)
  elseif #states ~= expected then
    Error.raise{ code = "shape", func = block.class_name, argument = "states", node = block.name,
      expected = expected, got = #states,
      message = ("'%s' has %d state%s; begin_state() gives a list of them"):format(block.name,
        expected, expected == 1 and "" or "s") }
  end
end


--- Arguments of `begin_state`.
base.read_begin = BEGIN


local function refuse_modified(self, func)
  if self._modified then
    Error.raise{ code = "state", func = func, argument = self.name,
      message = ("'%s' is the base of a modifier; call the modifier"):format(self.name) }
  end
end

base.refuse_modified = refuse_modified


-- Returns the dtype of the states of a trace, which has no arrays that determine it: that of the
-- weights. nil: float32, the default of symbols.
local function dtype_of_weights(cell)
  local p = cell:collect_params():values()[1]
  return p and p.dtype ~= "float32" and p.dtype or nil
end


--- Returns the initial states: the given ones, or zeros.
-- @param cell
-- @param given list of states, or nil
-- @param like an input; the zeros get its device and dtype
-- @int batch_size 0 for symbols
-- @treturn table list of states
function base.begin(cell, given, like, batch_size)
  if given ~= nil then
    return given
  elseif F.is_symbol(like) then
    return cell:begin_state{ batch_size = 0, func = sym.zeros, dtype = dtype_of_weights(cell) }
  end
  return cell:begin_state{ batch_size = batch_size, ctx = like.context, dtype = like.dtype }
end


-- Unrolling ---------------------------------------------------------------------------------------

local UNROLL = args.form("RecurrentCell:unroll", {
  { "length", "positive" }, { "inputs", "any" }, { "begin_state", "any?" },
  { "layout", "text", "NTC" }, { "merge_outputs", "boolean?" }, { "valid_length", "any?" },
})

-- Returns the arguments of a call with options in the third place, where a table without states was
-- read as begin_state; raises E(name) for an unknown option.
local function read_options(a)
  local given = { a.length, a.inputs }
  for key, value in pairs(a.begin_state) do
    given[key] = value
  end
  return UNROLL(given)
end


--- Returns the arguments of `unroll` by name, and the axes `time` and `batch` of the layout, from
-- 0. If merge_outputs is nil, outputs have the form of the inputs.
function base.read_unroll(...)
  local a = UNROLL(...)
  if select("#", ...) == 3 and values.is_plain(a.begin_state) and #a.begin_state == 0 then
    a = read_options(a)
  end
  a.time, a.batch = sequence.axes(a.layout, "RecurrentCell:unroll")
  a.begin_state = values.value(a.begin_state)
  a.valid_length = values.value(a.valid_length)
  if class.is_array(a.begin_state) or F.is_symbol(a.begin_state) then
    a.begin_state = { a.begin_state }
  end
  if a.merge_outputs == nil then
    a.merge_outputs = not values.is_plain(a.inputs)
  end
  return a
end


--- Returns the number of samples of a sequence that is a list of steps.
function base.batch_of(steps)
  return class.is_array(steps[1]) and steps[1].shape[1] or 0
end


-- Returns the states after the last valid step of each sample.
local function last_states(all, valid_length)
  local states = {}
  for k = 1, #all[1] do
    local steps = {}
    for i, at_step in ipairs(all) do
      steps[i] = at_step[k]
    end
    states[k] = F.SequenceLast{ F.stack(steps, { axis = 0 }), sequence_length = valid_length,
      use_sequence_length = true }
  end
  return states
end


local function unroll(self, a)
  local func = "RecurrentCell:unroll"
  self:reset()
  local steps = sequence.split(a.inputs, a.length, a.time, func)
  local states = base.begin(self, a.begin_state, steps[1], base.batch_of(steps))
  local outputs, all = {}, {}
  for i, x in ipairs(steps) do
    outputs[i], states = self(x, states)
    all[i] = states
  end
  if a.valid_length ~= nil then
    states = #states > 0 and last_states(all, a.valid_length) or states
    outputs = sequence.mask(outputs, a.valid_length, a.time)
  end
  return sequence.format(outputs, a.merge_outputs, a.length, a.time, func), states
end


-- Functions that apply the named activations.
local ACTIVATIONS = {}

for _, op in ipairs{ "tanh", "relu", "sigmoid", "softsign" } do
  ACTIVATIONS[op] = layer.unary(op)
end

local LeakyReLU = require("tycho.gluon.nn.activations").LeakyReLU


--- Applies an activation.
-- @param x array or symbol
-- @param activation name, LeakyReLU block or function
-- @string name of the node
-- @return array or symbol
function base.activate(x, activation, name)
  if ACTIVATIONS[activation] then
    return ACTIVATIONS[activation](name, x)
  elseif type(activation) == "string" then
    return F.Activation{ x, act_type = activation, name = name }
  elseif Class.is_a(activation, LeakyReLU) then
    return F.LeakyReLU{ x, act_type = "leaky", slope = activation._alpha, name = name }
  end
  return activation(x)
end


-- The classes -------------------------------------------------------------------------------------

-- Returns the states of a call as a list; a single state need not be in a list, and a cell without
-- states needs none. Raises E(type).
local function list_of_states(self, states)
  if class.is_array(states) or F.is_symbol(states) then
    return { states }
  elseif states == nil and #self:state_info() == 0 then
    return {}
  end
  fail_states(self, states)
end


-- Returns whether a cell, or one inside it, stores arrays from step to step, which a trace of a
-- single step would lose.
local function keeps_arrays(self)
  if self.keeps_arrays then
    return true
  end
  for _, pair in ipairs(self:children()) do
    if pair[2].is_cell and keeps_arrays(pair[2]) then
      return true
    end
  end
  return false
end


-- Adds the methods of cells to a class of blocks.
local function make_cell(cell)

  cell.is_cell = true

  cell._counter = -1                                     -- number of the last step


  function cell.init() end


  --- Resets the cell and its children: drops arrays that they store, and counts steps from 0 again.
  function cell:reset()
    self._counter, self._begun = -1, -1
    for _, pair in ipairs(self:children()) do
      if pair[2].is_cell then
        pair[2]:reset()
      end
    end
  end


  --- Returns the descriptions of the states; a cell must define it.
  -- @int[opt=0] batch_size
  -- @treturn table list of `{ shape = { batch_size, size }, __layout__ = "NC" }`
  function cell:state_info()
    Error.raise{ code = "unsupported", func = self.class_name .. ":state_info",
      message = "the class has no state_info" }
  end


  --- Makes the initial states.
  -- @tparam table options batch_size = 0; func = ty.nd.zeros: makes a state, called as `func{ shape
  --   = ..., ctx = ..., dtype = ... }`, for functions of `ty.sym` with a name and without ctx; ctx,
  --   dtype: of arrays
  -- @treturn table list of states
  function cell:begin_state(...)
    refuse_modified(self, "RecurrentCell:begin_state")
    local a = BEGIN(...)
    return base.make_states(self:state_info(a.batch_size), a, function()
      self._begun = (self._begun or -1) + 1
      return ("%sbegin_state_%d"):format(self.prefix, self._begun)
    end)
  end


  --- Calls the cell for each step of a sequence.
  -- @tparam table options length: number of steps; inputs: an array or symbol in the layout, or a
  --   list with (batch, size) for each step, other lengths are E(`shape`); begin_state: list of
  --   states, default: zeros; layout = "NTC" or "TNC"; merge_outputs: true for one array in the
  --   layout, false for a list, nil for the form of the inputs; valid_length: array (batch) with
  --   the number of steps of each sample: later outputs are 0, and the returned states are those
  --   after its last step
  -- @return outputs
  -- @return list of states
  function cell:unroll(...)
    return self:_unroll(base.read_unroll(...))
  end

  cell._unroll = unroll


  local hybridize = cell.hybridize

  --- Hybridizes the cell as HybridBlock does. A cell that stores arrays from step to step is traced
  -- only as part of a block that unrolls it, not by itself.
  function cell:hybridize(...)
    hybridize(self, ...)
    if keeps_arrays(self) then
      rawset(self, "_active", nil)
    end
  end


  local call = rawget(cell, "__call")

  --- Runs one step: `output, states = cell(x, states)`. A wrong number of states is E(`shape`), no
  -- states E(`type`).
  function cell.__call(self, x, states)
    refuse_modified(self, self.class_name)
    if not values.is_plain(states) then
      states = list_of_states(self, states)
    end
    return self:_step(x, states)
  end


  -- Runs one step. Modifiers call this on their base cell, which must not be called directly.
  function cell:_step(x, states)
    self._counter = self._counter + 1
    return call(self, x, states)
  end
end


--- The base class of cells that are Blocks.
-- @type RecurrentCell
base.RecurrentCell = Block:extend("RecurrentCell")
make_cell(base.RecurrentCell)

--- The base class of cells that are HybridBlocks.
-- @type HybridRecurrentCell
base.HybridRecurrentCell = HybridBlock:extend("HybridRecurrentCell")
make_cell(base.HybridRecurrentCell)


--- Returns the descriptions of the states of several cells as one list.
-- @tparam table cells
-- @int batch_size
-- @treturn table
function base.list_state_info(cells, batch_size)
  local list = {}
  for _, cell in ipairs(cells) do
    for _, info in ipairs(cell:state_info(batch_size)) do
      list[#list + 1] = info
    end
  end
  return list
end


--- Returns the initial states of several cells as one list.
-- @tparam table cells
-- @tparam table options of begin_state
-- @treturn table
function base.make_begin_states(cells, options)
  local list = {}
  for _, cell in ipairs(cells) do
    local copy = {}
    for key, value in pairs(options) do
      copy[key] = value
    end
    for _, state in ipairs(cell:begin_state(copy)) do
      list[#list + 1] = state
    end
  end
  return list
end


--- Returns the entries from `first` to `last` (from 1) of a list.
function base.part(list, first, last)
  local t = {}
  for i = first, last do
    t[#t + 1] = list[i]
  end
  return t
end


return base
