--- The symbol of what was recorded.
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


-- Raises the core's error if a part of the graph of x was freed. Runs the core's backward with a
-- variable that it cannot reach, so nothing is computed.
local function check_kept(x)
  local unused = call.zeros(x._shape, x._dtype, x._device, "autograd.get_symbol")
  gradients.run_core("autograd.get_symbol", { x }, { false }, { x }, { unused },
    bit.bor(C.TY_RETAIN, C.TY_UNREACHED))
end


--- What made an array, as a symbol: variables are var0, var1 ... in the order in which backward
-- meets them, operators node_0, node_1 ...
-- @tparam NDArray x recorded; else E(`state`)
-- @treturn Symbol
return function(...)
  local x = FORM(...).x
  local last, which = steps.of(x)
  if not last then
    fail_state("the array was not recorded: nothing is known of what made it")
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
        where = step.where, message = "a function of Lua has no symbol" }
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
