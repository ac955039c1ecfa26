--- The base class of recurrent cells: parameters, begin states, unrolling, weights by gate.
--
--     local cell = ty.rnn.LSTMCell{ 200, prefix = "l0_" }
--     local outputs, states =
--       cell:unroll{ length = 10, inputs = ty.sym.Variable("data"), merge_outputs = true }
--     local output, next_states = cell(x, cell:begin_state())               -- one step
--
-- A user's cell extends BaseRNNCell. `__call(inputs, states)` makes one step and returns its output
-- and the new states; `state_info` lists the states' shapes, with 0 for the batch. Names of a
-- step's nodes begin with `cell:next_step()`.
--
-- Nodes of a step are named `<prefix>t<step>_...`, begin states `<prefix>begin_state_<i>`. `reset`
-- sets both counters back, so that a second unrolling gives the same names.
--
-- @module tycho.rnn.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local fields = require "tycho.core.fields"
local nd = require "tycho.ndarray"
local sequence = require "tycho.rnn.sequence"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
require "tycho.executor.executor"        -- so that networks of cells can be bound

local rnn_cell = {}


-- Parameters --------------------------------------------------------------------------------------

--- A set of variables by name, which cells can share.
-- @type RNNParams
local RNNParams = Class:extend("RNNParams")
rnn_cell.RNNParams = RNNParams

args.types.rnn_params = { check = function(v)
  return Class.is_a(v, RNNParams)
end, text = "RNNParams" }

local PARAMS = args.form("rnn.RNNParams", { { "prefix", "text", "" } })
local GET = args.form("RNNParams:get", { rest = "options", { "name", "text" } })

--- @string[opt=""] prefix put in front of every name
function RNNParams:init(...)
  self._prefix, self._params = PARAMS(...).prefix, {}
end


--- Returns the variable of a name. The first call makes it, with the options of that call.
-- @string name
-- @tparam[opt] table options of `ty.sym.Variable`
-- @treturn Symbol
function RNNParams:get(...)
  local a = GET(...)
  local full = self._prefix .. a.name
  if not self._params[full] then
    a.options[1] = full
    self._params[full] = symbol.Variable(a.options)
  end
  return self._params[full]
end


-- Adds the variables of another set to this one.
function RNNParams:merge(other)
  for name, x in pairs(other._params) do
    self._params[name] = x
  end
end


-- Fields ------------------------------------------------------------------------------------------

--- The base class of all cells.
-- @type BaseRNNCell
local BaseRNNCell = Class:extend("BaseRNNCell")
rnn_cell.BaseRNNCell = BaseRNNCell


-- Read-only properties by name.
fields.give(BaseRNNCell, {
  params      = function(self)
    self._own_params = false
    return self._params
  end,
  output      = function(self) return rawget(self, "_output") end,
  state_info  = function(self)
    Error.raise{ code = "unsupported", func = self.class_name, argument = "state_info",
      message = "a cell must list its states" }
  end,
  state_shape = function(self)
    local shapes = {}
    for i, info in ipairs(self.state_info) do
      shapes[i] = info.shape
    end
    return shapes
  end,
})


-- The base ----------------------------------------------------------------------------------------

local NEW = args.form("rnn.BaseRNNCell", { { "prefix", "text", "" }, { "params", "rnn_params?" } })

--- @string[opt=""] prefix put in front of the names of nodes and parameters
-- @tparam[opt] RNNParams params of another cell, to share them
function BaseRNNCell:init(...)
  local a = NEW(...)
  self._prefix, self._params, self._own_params =
    a.prefix, a.params or RNNParams(a.prefix), not a.params
  self._modified = false
  self:reset()
end


-- Returns the suffixes of the gates; the cell's matrices have one block of rows for each gate.
function BaseRNNCell._gate_names(_)
  return {}
end


--- Resets the counters of steps and states, also in contained cells. `unroll` calls it.
function BaseRNNCell:reset()
  self._init_counter, self._counter = -1, -1
end


--- Counts a step and returns the prefix of its nodes' names: "lstm_t0_".
function BaseRNNCell:next_step()
  self._counter = self._counter + 1
  return ("%st%d_"):format(self._prefix, self._counter)
end


--- Raises E(unsupported) for a single step of a cell that needs the whole sequence.
function BaseRNNCell:refuse_step()
  Error.raise{ code = "unsupported", func = self.class_name,
    message = "the cell needs the whole sequence and makes no single steps; use unroll" }
end

BaseRNNCell.__call = BaseRNNCell.refuse_step


--- Applies an activation: a string for Activation's `act_type`, or a function of a symbol and
-- `{name = ...}`.
function BaseRNNCell.activate(_, x, activation, name)
  if type(activation) == "string" then
    return symbol.Activation{ x, act_type = activation, name = name }
  end
  return activation(x, { name = name })
end


-- Begin states ------------------------------------------------------------------------------------

local BEGIN = args.form("BaseRNNCell:begin_state", { rest = "options", { "func", "function?" } })


-- Returns the options with which a begin state is made.
local function state_options(given, info, name)
  local options = { name = name, shape = info.shape, attr = { __layout__ = info.__layout__ } }
  for key, v in pairs(given) do
    options[key] = v
  end
  return options
end


function BaseRNNCell:_begin(func, given)
  local states = {}
  for i, info in ipairs(self.state_info) do
    self._init_counter = self._init_counter + 1
    states[i] = func(state_options(given, info,
      ("%sbegin_state_%d"):format(self._prefix, self._init_counter)))
  end
  return states
end


--- Returns symbols for the states before the first step. Their shapes have batch 0, which shape
-- inference replaces.
-- @tparam[opt] table options func: called with `{name, shape, attr}` and the other options for
--   every state (default `ty.sym.zeros`; with `ty.sym.Variable` the states become inputs)
-- @treturn {Symbol,...}
function BaseRNNCell:begin_state(...)
  local a = BEGIN(...)
  if self._modified then
    Error.raise{ code = "state", func = self.class_name .. ":begin_state",
      message = "the cell is wrapped by another one; ask that one for begin states" }
  end
  return counted_from_1(self:_begin(a.func or symbol.zeros, a.options))
end


-- Returns the begin states of a contained cell.
function BaseRNNCell._make_begin(cell, func, given)
  local options = tables.copy(given)
  options.func = func
  return cell:begin_state(options)
end


-- Unrolling ---------------------------------------------------------------------------------------

local UNROLL = args.form("BaseRNNCell:unroll", {
  { "length", "positive" }, { "inputs", "symbol|list" }, { "begin_state", "list?" },
  { "layout", "text", "NTC" }, { "merge_outputs", "boolean?" },
})


local function check_states(self, states)
  if #states ~= #self.state_info then
    Error.raise{ code = "value", func = self.class_name .. ":unroll", argument = "begin_state",
      expected = #self.state_info .. " states", got = #states,
      message = "the cell has another number of states" }
  end
end


--- Unrolls the cell over several steps.
-- @int length number of steps
-- @param inputs a symbol with a time axis, or a list with one symbol for each step
-- @tparam[opt] {Symbol,...} begin_state
-- @string[opt="NTC"] layout of the inputs and of merged outputs; T is the time axis
-- @bool[opt] merge_outputs true: one symbol, false: a list, nil: the form that the cell produces
-- @return outputs, a symbol or a list
-- @treturn table states after the last step
function BaseRNNCell:unroll(...)
  local a = UNROLL(...)
  self:reset()
  a.begin_state = a.begin_state or self:begin_state()
  check_states(self, a.begin_state)
  local outputs, states = self:_unroll(a)
  self._output = outputs
  return counted_from_1(outputs), counted_from_1(states)
end


--- Returns a sequence in the wanted form, with errors in the name of this cell; see
-- rnn/sequence.lua.
function BaseRNNCell:normalize(length, x, layout, merge)
  return sequence.normalize(length, x, layout, merge, self.class_name .. ":unroll")
end


-- Unrolls with the checked options, here step by step.
function BaseRNNCell:_unroll(a)
  local inputs = self:normalize(a.length, a.inputs, a.layout, false)
  local outputs, states = {}, a.begin_state
  for t = 1, a.length do
    outputs[t], states = self(inputs[t], states)
  end
  return self:normalize(a.length, outputs, a.layout, a.merge_outputs), states
end


-- Weights by gate ---------------------------------------------------------------------------------

local UNPACK = args.form("BaseRNNCell:unpack_weights", { dict = true, { "args", "dict" } })
local PACK = args.form("BaseRNNCell:pack_weights", { dict = true, { "args", "dict" } })


--- Removes an array from a table and returns it; E(name) if it is not there.
function BaseRNNCell:take(dict, name, method)
  local x = dict[name]
  if x == nil then
    Error.unknown{ func = self.class_name .. ":" .. method, argument = name,
      what = "parameter", among = dict }
  end
  dict[name] = nil
  return x
end


--- Returns the parameters with one array for each gate (`lstm_i2h_f_weight`) in place of the packed
-- arrays; other entries are unchanged.
-- @tparam table args arrays by name
-- @treturn table
function BaseRNNCell:unpack_weights(...)
  local dict = tables.copy(UNPACK(...).args)
  self:_unpack(dict)
  return dict
end


--- Returns the parameters with packed arrays, the inverse of `unpack_weights`.
-- @tparam table args arrays by name
-- @treturn table
function BaseRNNCell:pack_weights(...)
  local dict = tables.copy(PACK(...).args)
  self:_pack(dict)
  return dict
end


-- Returns {packed name, list of the gates' names} for each of the cell's four packed arrays.
local function packed_names(self)
  local list, gates = {}, self:_gate_names()
  for _, group in ipairs(#gates > 0 and { "i2h", "h2h" } or {}) do
    for _, what in ipairs{ "weight", "bias" } do
      local names = {}
      for k, gate in ipairs(gates) do
        names[k] = ("%s%s%s_%s"):format(self._prefix, group, gate, what)
      end
      list[#list + 1] = { ("%s%s_%s"):format(self._prefix, group, what), names }
    end
  end
  return list
end


function BaseRNNCell:_unpack(dict)
  for _, row in ipairs(packed_names(self)) do
    local packed, names = row[1], row[2]
    local x = self:take(dict, packed, "unpack_weights")
    local rows = x.shape[1] / #names
    if rows ~= math.floor(rows) then
      Error.raise{ code = "shape", func = self.class_name .. ":unpack_weights", argument = packed,
        got = x.shape, expected = ("a multiple of %d rows"):format(#names),
        message = "the rows do not divide into the gates" }
    end
    for k, name in ipairs(names) do
      dict[name] = nd.slice_axis{ x, axis = 0, begin = (k - 1) * rows, end_ = k * rows }
    end
  end
end


function BaseRNNCell:_pack(dict)
  for _, row in ipairs(packed_names(self)) do
    local parts, names = {}, row[2]
    for k, name in ipairs(names) do
      parts[k] = self:take(dict, name, "pack_weights")
    end
    dict[row[1]] = nd.concat(parts, { dim = 0 })
  end
end


return rnn_cell
