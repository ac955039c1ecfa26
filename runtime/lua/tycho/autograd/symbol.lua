--- Recorded calls as a symbol: `autograd.get_symbol`.
--
-- @module tycho.autograd.symbol

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local Error = require "tycho.core.error"
local gradients = require "tycho.ndarray.gradients"
local native = require "tycho.core.ffi"
local steps = require "tycho.autograd.steps"
local operators = require "tycho.symbol.operators"
local symbol = require "tycho.symbol.symbol"

local C = native.C

local FORM = args.form("autograd.get_symbol", { { "x", "array" } })


local function fail_state(message)
  Error.raise{ code = "state", func = "autograd.get_symbol", message = message }
end


-- Raises E(state) if a part of the graph of x was freed: runs the core's backward for a variable
-- that it cannot reach, so that it checks the graph and computes nothing.
local function check_kept(x)
  local unused = call.zeros(x._shape, x._dtype, x._device, "autograd.get_symbol")
  gradients.run_core("autograd.get_symbol", { x }, { false }, { x }, { unused },
    bit.bor(C.TY_RETAIN, C.TY_UNREACHED))
end


--- Returns the recorded calls that made an array as a symbol. Its variables are called var0, var1
-- ... in the order in which calls read them, its operators node_0, node_1 ... An array that was not
-- recorded, or whose graph was freed, is E(`state`); one that depends on a Lua function is
-- E(`unsupported`).
-- @tparam NDArray x
-- @treturn Symbol
return function(...)
  local x = FORM(...).x
  local last, which = steps.of(x)
  if not last then
    fail_state("the array was not recorded; compute it from variables inside autograd.record")
  end
  check_kept(x)
  local made, variables, count = {}, {}, 0

  local function variable(input)
    for _, v in ipairs(variables) do
      if v.input._h == input._h then
        return v.symbol
      end
    end
    local s = symbol.Variable("var" .. count)
    count = count + 1
    variables[#variables + 1] = { input = input, symbol = s }
    return s
  end

  for i, step in ipairs(steps.all{ x }) do
    if not step.op then
      Error.raise{ code = "unsupported", func = "autograd.get_symbol", op = "Function",
        where = step.where,
        message = "the array depends on a function of Lua, which no symbol can express" }
    end
    local inputs = {}
    for k = 1, step.nin do
      local input = step:input(k)
      local from, out = steps.of(input)
      inputs[k] = from and made[from.serial][out] or variable(input)
    end
    made[step.serial] = operators.compose(step.op, inputs, step.attrs, "autograd.get_symbol",
      { name = "node_" .. i - 1 })
  end
  return made[last.serial][which]
end
