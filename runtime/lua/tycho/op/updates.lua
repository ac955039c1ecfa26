--- adamw_update and similar functions of `ty.nd.contrib` and `ty.sym.contrib`. They call the
-- operators of the same names with an underscore in front. Here the gradient's scale may be a
-- number, and arrays of many weights are given as lists.
--
--     ty.nd.contrib.adamw_update{weight, grad, mean, var, 1 / 32, lr = 0.1, eta = 1, out = weight}
--     ty.nd.contrib.multi_adamw_update{weights, grads, means, vars, 1 / 32, lrs = {0.1, 0.1},
--       wds = {0, 0}, etas = {1, 1}, out = weights}
--
-- @module tycho.op.updates

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local Error = require "tycho.core.error"

-- inputs of one weight, in the operator's order
local SINGLE = {
  adamw_update    = { "weight", "grad", "mean", "var" },
  mp_adamw_update = { "weight", "grad", "mean", "var", "weight32" },
}

-- lists of arrays; `scaled`: whether the operator reads a scale of the gradient
local LISTS = {
  multi_adamw_update    = { "weights", "grads", "mean", "var", scaled = true },
  multi_mp_adamw_update = { "weights", "grads", "mean", "var", "weights32", scaled = true },
  multi_lamb_update     = { "weights", "grads", "mean", "var" },
  multi_mp_lamb_update  = { "weights", "grads", "mean", "var", "weights32" },
}


local function single_form(func, inputs, kind)
  local spec = {}
  for i, name in ipairs(inputs) do
    spec[i] = { name, kind }
  end
  for _, entry in ipairs{ { "rescale_grad", "number|" .. kind }, { "lr", "number" },
      { "eta", "number" }, { "beta1", "number", 0.9 }, { "beta2", "number", 0.999 },
      { "epsilon", "number", 1e-8 }, { "wd", "number", 0 }, { "clip_gradient", "number", -1 },
      { "out", "array?" }, { "name", "text?" } } do
    spec[#spec + 1] = entry
  end
  return args.form(func, spec)
end


-- Returns a copy of a table without the given names.
local function without(a, inputs)
  local rest = {}
  for name, value in pairs(a) do
    rest[name] = value
  end
  for _, name in ipairs(inputs) do
    rest[name] = nil
  end
  return rest
end


-- Adds the functions for one weight.
local function add_single(functions, kind, space, tools)
  for name, inputs in pairs(SINGLE) do
    local func, run = space .. name, nil
    local form = single_form(func, inputs, kind)
    functions[name] = function(...)
      local a = form(...)
      local call = without(a, inputs)
      for i, input in ipairs(inputs) do
        call[i] = a[input]
      end
      call[#inputs + 1], call.rescale_grad = tools.scale(a.rescale_grad, a.weight), nil
      run = run or tools.operator("_" .. name, func)
      return run(call)
    end
  end
end


local function many_form(func, inputs)
  local spec = { rest = "others" }
  for i, name in ipairs(inputs) do
    spec[i] = { name, "list" }
  end
  spec[#spec + 1] = inputs.scaled and { "rescale_grad", "number|array" } or { "step_count", "list" }
  for _, name in ipairs{ "lrs", "wds", inputs.scaled and "etas" or nil } do
    spec[#spec + 1] = { name, "list" }
  end
  spec[#spec + 1] = { "out", "list?" }
  spec[#spec + 1] = { inputs.scaled and "size" or "num_tensors", "integer", 0 }
  return args.form(func, spec)
end


-- Returns the arrays of all weights in one list, weight by weight; E(value) for lists of unequal
-- length.
local function interleave(a, inputs, func)
  local all, n = {}, #a.weights
  if n == 0 then
    Error.raise{ code = "value", func = func, argument = "weights", expected = "an NDArray",
      got = "nothing", message = "the list of weights is empty" }
  end
  for _, name in ipairs(inputs) do
    if #a[name] ~= n then
      Error.raise{ code = "value", func = func, argument = name, expected = n .. " arrays",
        got = #a[name], message = "there is one for each weight" }
    end
  end
  for i = 1, n do
    for _, name in ipairs(inputs) do
      all[#all + 1] = a[name][i]
    end
  end
  return all
end


-- Adds the functions for lists of weights.
local function add_many(functions, space, tools)
  for name, inputs in pairs(LISTS) do
    local func, run = space .. name, nil
    local form = many_form(func, inputs)
    functions[name] = function(...)
      local a = form(...)
      local call, n = interleave(a, inputs, func), #a.weights
      for key, value in pairs(a.others) do
        call[key] = value
      end
      call.wds, call.out = a.wds, a.out
      if inputs.scaled then
        call[#call + 1] = tools.scale(a.rescale_grad, a.weights[1])
        call.lrs, call.etas, call.num_weights = a.lrs, a.etas, a.size > 0 and a.size or n
      else
        call.learning_rates, call.step_count = a.lrs, a.step_count
        call.num_tensors = a.num_tensors > 0 and a.num_tensors or n
      end
      run = run or tools.operator("_" .. name, func)
      return run(call)
    end
  end
end


--- Adds the functions to a namespace. `ty.sym` only gets those for one weight.
-- @tparam table functions the namespace's own functions
-- @string kind type of the arguments: "array" or "symbol"
-- @string space "nd.contrib.", for errors
-- @tparam table tools scale(v, weight): turns a number or an input into an input; operator(name,
--   func): returns the function of an operator
return function(functions, kind, space, tools)
  add_single(functions, kind, space, tools)
  if kind == "array" then
    add_many(functions, space, tools)
  end
  return functions
end
