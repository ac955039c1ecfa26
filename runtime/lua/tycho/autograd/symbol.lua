--- The symbol of what was recorded.
--
-- @module tycho.autograd.symbol

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local steps = require "tycho.autograd.steps"
local operators = require "tycho.symbol.operators"
local symbol = require "tycho.symbol.symbol"

local FORM = args.form("autograd.get_symbol", { { "x", "array" } })


-- All steps that x depends on, in the order in which they were made.
local function all_steps(x)
  local list, step = {}, steps.before({ x })
  while step do
    table.insert(list, 1, step)
    step = steps.before({ x }, step.serial)
  end
  return list
end


--- What made an array, as a symbol: variables are var0, var1 ... in the order in which backward
-- meets them, operators node_0, node_1 ...
-- @tparam NDArray x recorded; else E(`state`)
-- @treturn Symbol
return function(...)
  local x = FORM(...).x
  local last, which = steps.of(x)
  if not last then
    Error.raise{ code = "state", func = "autograd.get_symbol",
      message = "the array was not recorded: nothing is known of what made it" }
  end
  local made, variables, count = {}, {}, 0

  local function variable(input)
    for _, v in ipairs(variables) do
      if v.input:same_memory(input) then
        return v.symbol
      end
    end
    local s = symbol.Variable("var" .. count)
    count = count + 1
    variables[#variables + 1] = { input = input, symbol = s }
    return s
  end

  for i, step in ipairs(all_steps(x)) do
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
