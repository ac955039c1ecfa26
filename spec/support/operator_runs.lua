-- Runs operators and returns all results as one text, for specs that make something fail in them:
-- lines of tables of cases, forward and, if there is a gradient, backward, or called on arrays.

local is_array = require("tycho.ndarray.class").is_array
local text_of = require("spec.support.arrays").text
local trials = require "spec.support.trials"
local ty = require "tycho"

local runs = {}

local CHANGES_AN_INPUT = { _onehot_encode = true, _scatter_set_nd = true, _set_value = true,
  reset_arrays = true }

local function call(line, case)
  local options = {}
  for k, v in pairs(case.params) do options[k] = v end
  for k, x in pairs(case.inputs) do options[k] = x end
  local outputs = ty.nd[line[1]](options)
  return is_array(outputs) and { outputs } or outputs
end

local function bind(case, random, gradients, dtype)
  if gradients == "all" then case.fixed = {} end
  local exe, grads = trials.bind(case, gradients and "write" or "null", 0, { dtype = dtype })
  exe:forward{ is_train = true }
  if gradients then exe:backward(trials.heads(exe, random)) end
  local names, arrays = {}, { unpack(exe.outputs) }
  for name in pairs(grads) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    arrays[#arrays + 1] = grads[name]
  end
  return arrays
end

--- Returns the values of arrays as text, a line for each.
function runs.text(arrays)
  local texts = {}
  for i, array in ipairs(arrays) do
    texts[i] = text_of(array)
  end
  return table.concat(texts, "\n")
end

local function run(line, key, gradients)
  local kind = ty.op.info(line[1]).gradient
  ty.random.seed(3)
  local random = trials.random(trials.seed("torture", key))
  local case = trials.make(line, random)
  local dtype = line.options and line.options.dtype
  gradients = gradients and kind ~= "none" and next(case.arrays) and gradients
  return runs.text(case.symbol and bind(case, random, gradients, dtype) or call(line, case))
end

--- Adds a table's lines to a list, each as a name and a function that returns a text. gradients:
-- true; "all", including those of inputs without a gradient, which are zeros; or false.
function runs.add(list, cases, gradients)
  for line, key in trials.lines(cases) do
    if not CHANGES_AN_INPUT[line[1]] then
      list[#list + 1] = { name = key, run = function() return run(line, key, gradients) end }
    end
  end
end

return runs
