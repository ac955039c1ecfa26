--- Sequences of cells: one tensor with a time axis, or a list with a tensor for each step.
--
-- @module tycho.gluon.rnn.sequence

local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local F = require "tycho.symbol.either"
local layer = require "tycho.gluon.layer"
local values = require "tycho.core.values"

local sequence = {}


--- Returns the axes of time and batch of a layout, from 0; another layout is E(value).
-- @string layout "NTC" or "TNC"
-- @string func name of the caller, for errors
-- @treturn int time
-- @treturn int batch
function sequence.axes(layout, func)
  if type(layout) ~= "string" or not (layout:find("T", 1, true) and layout:find("N", 1, true)) then
    Error.raise{ code = "value", func = func, argument = "layout", got = Error.kind(layout),
      expected = "NTC or TNC", message = "bad 'layout'" }
  end
  return layout:find("T", 1, true) - 1, layout:find("N", 1, true) - 1
end


-- Raises E(type) unless x is a tensor or a list of tensors.
local function check(x, func)
  local first = values.is_plain(x) and x[1] or x
  if not (class.is_array(first) or F.is_symbol(first)) then
    Error.raise{ code = "type", func = func, argument = "inputs", got = Error.kind(first or x),
      expected = "an array, a symbol or a list of them", message = "bad 'inputs'" }
  end
end


local function check_length(n, length, func)
  if length ~= nil and n ~= length then
    Error.raise{ code = "shape", func = func, argument = "inputs", expected = length, got = n,
      message = ("the inputs have %d steps and the length is %s"):format(n, tostring(length)) }
  end
end


--- Returns the steps of a sequence as a list; another number of steps is E(shape).
-- @param x array, symbol or list
-- @int length number of steps
-- @int axis of time, from 0
-- @string func name of the caller, for errors
-- @treturn table
function sequence.split(x, length, axis, func)
  check(x, func)
  if values.is_plain(x) then
    check_length(#x, length, func)
    return x
  end
  if class.is_array(x) then
    check_length(x.shape[axis + 1] or 0, length, func)
  end
  return layer.outputs(F.split{ x, num_outputs = length, axis = axis, squeeze_axis = true }, length)
end


--- Returns a sequence as one tensor.
-- @param x array, symbol or list
-- @int axis of time, from 0
-- @return array or symbol
function sequence.join(x, axis)
  if not values.is_plain(x) then
    return x
  end
  return F.stack(x, { axis = axis })
end


--- Returns a sequence as one tensor or as a list.
-- @param x array, symbol or list
-- @param merge true: one tensor; false: a list; nil: the form of x
-- @int length
-- @int axis of time
-- @string func
function sequence.format(x, merge, length, axis, func)
  if merge == true then
    return sequence.join(x, axis)
  elseif merge == false then
    return sequence.split(x, length, axis, func)
  end
  return x
end


--- Sets the steps of a sequence after each sample's valid length to zeros.
-- @param x array, symbol or list
-- @param valid_length array (batch): number of valid steps of each sample
-- @int axis of time
-- @return one tensor
function sequence.mask(x, valid_length, axis)
  return F.SequenceMask{ sequence.join(x, axis), sequence_length = valid_length,
    use_sequence_length = true, axis = axis }
end


--- Returns the steps of a list in reverse order. With valid lengths, the valid steps of each sample
-- are reversed and the others keep their places.
-- @tparam table steps
-- @param valid_length or nil
-- @string func
-- @treturn table
function sequence.reverse(steps, valid_length, func)
  local n, reversed = #steps, {}
  if valid_length == nil then
    for i = 1, n do
      reversed[i] = steps[n + 1 - i]
    end
    return reversed
  end
  local whole = F.SequenceReverse{ sequence.join(steps, 0), sequence_length = valid_length,
    use_sequence_length = true }
  return sequence.split(whole, n, 0, func)
end


return sequence
