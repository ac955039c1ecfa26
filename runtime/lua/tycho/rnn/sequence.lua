--- Sequences of symbols in two forms: a list with one symbol for each step, or one symbol with a
-- time axis.
--
-- @module tycho.rnn.sequence

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local symbol = require "tycho.symbol.symbol"

local sequence = {}


--- Returns whether x is a symbol and not a list.
function sequence.is_symbol(x)
  return Class.is_a(x, symbol.Symbol)
end

local is_symbol = sequence.is_symbol


--- Returns the time axis of a layout, from 0.
-- @string layout such as "NTC" or "TNC"
-- @string func for errors
function sequence.time_axis(layout, func)
  local axis = layout:find("T", 1, true)
  if not axis then
    Error.raise{ code = "value", func = func, argument = "layout",
      expected = "a layout with a T, such as NTC", got = layout, message = "bad 'layout'" }
  end
  return axis - 1
end


-- Splits a symbol along the time axis; returns one symbol for each step.
local function divided(x, length, axis, func)
  if #x ~= 1 then
    Error.raise{ code = "type", func = func, argument = "inputs",
      expected = "a Symbol with one output, or a list",
      got = ("%s with %d outputs"):format(tostring(x), #x), message = "bad 'inputs'" }
  end
  local steps, list = symbol.split{ x, axis = axis, num_outputs = length, squeeze_axis = 1 }, {}
  for t = 1, length do
    list[t] = steps[t]
  end
  return list
end


local function check_list(list, length, func)
  for _, x in ipairs(list) do
    if not is_symbol(x) then
      Error.raise{ code = "type", func = func, argument = "inputs", expected = "symbols",
        got = Error.kind(x), message = "bad 'inputs'" }
    end
  end
  if length and #list ~= length then
    Error.raise{ code = "value", func = func, argument = "inputs", expected = length .. " symbols",
      got = #list, message = "there must be one symbol per step" }
  end
end


-- Joins the symbols of all steps along a new time axis.
local function joined(list, axis)
  local parts = {}
  for t, x in ipairs(list) do
    parts[t] = symbol.expand_dims{ x, axis = axis }
  end
  return symbol.Concat(parts, { dim = axis })
end


--- Returns a sequence in the wanted form.
-- @int length number of steps; nil: the length of the list
-- @param x a symbol or a list of them
-- @string layout has a T at the time axis
-- @tparam ?boolean merge true: one symbol, false: a list, nil: the form of x
-- @string func for errors
-- @return a symbol or a list
-- @treturn int the time axis, from 0
function sequence.normalize(length, x, layout, merge, func)
  local axis = sequence.time_axis(layout, func)
  if is_symbol(x) then
    return merge == false and divided(x, length, axis, func) or x, axis
  end
  check_list(x, length, func)
  return merge and joined(x, axis) or x, axis
end


return sequence
