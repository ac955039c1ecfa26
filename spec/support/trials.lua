-- Trials of operators: makes a symbol and arrays from a line of spec/operators/cases.lua, with
-- random shapes, parameters and values.

local ty = require "tycho"

local trials = {}

--- Iterates over the lines of a table of cases, each with its key: the operator's name and the
-- number of its line.
function trials.lines(cases)
  local count, i = {}, 0
  return function()
    i = i + 1
    local line = cases[i]
    if not line then return nil end
    count[line[1]] = (count[line[1]] or 0) + 1
    return line, ("%s %d"):format(line[1], count[line[1]])
  end
end

--- Returns a seed from texts and numbers, usually a line's key, so that lines added elsewhere do
-- not change it.
function trials.seed(...)
  local n = 1
  for _, part in ipairs{...} do
    for _, byte in ipairs{(tostring(part) .. "\n"):byte(1, -1)} do
      n = (n + byte) * 48271 % 2147483647
    end
  end
  return n
end

--- Returns a repeatable source of random numbers: r(a, b) is a whole number, r() one from 0 to 1.
function trials.random(seed)
  local n = seed
  return function(a, b)
    n = (n * 16807) % 2147483647
    local u = n / 2147483647
    return a and a + math.floor(u * (b - a + 1)) or u
  end
end

--- Returns the smallest number of a range in place of a random one, for the smallest shapes of a
-- case.
function trials.least(a) return a or 0 end

--- Returns the largest number of a range, for the largest shapes.
function trials.most(_, b) return b or 1 end

function trials.fill(x, random, low, high)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = low + (high - low) * random() end
  return x
end

local function whole(x, random, n)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = random(0, n - 1) end
end

local function build(line, shapes, params)
  local options, variables, arrays, inputs = {}, {}, {}, {}
  for k, v in pairs(params) do options[k] = v end
  for key, s in pairs(shapes) do
    local variable = "in_" .. key
    variables[key] = ty.sym.Variable(variable)
    options[key], inputs[key] = variables[key], ty.nd.zeros(s, {dtype = "float64"})
    arrays[variable] = inputs[key]
  end
  if line.options and line.options.imperative then return nil, arrays, inputs end
  options.name = "op"
  return line.build and line.build(variables, params) or ty.sym[line[1]](options), arrays, inputs
end

-- Variables that stay float32 if the data have a half type: parameters of batch normalisation, like
-- its states.
local SINGLE = {in_gamma = true, in_beta = true}

local function dtype_beside(trial, variable, dtype)
  local half = dtype == "float16" or dtype == "bfloat16"
  return half and trial.single and (variable == nil or SINGLE[variable]) and "float32" or dtype
end

local function list_shapes(arrays)
  local shapes = {}
  for variable, x in pairs(arrays) do shapes[variable] = x.shape end
  return shapes
end

--- Returns one trial of a case {name, make}: symbol, arrays (float64, by variable; inputs: by the
-- names of make), params, fixed (variables without a gradient), aux (shapes of auxiliary states, by
-- name), bound (of the relative error, if the operator's rules allow more). case.build(variables,
-- params) makes another symbol than the operator alone. `sizes` (trials.least, trials.most; default
-- random) chooses only the shapes and parameters.
function trials.make(case, random, sizes)
  local shapes, params, low, high, fixed_names, bound = case[2](sizes or random)
  local symbol, arrays, inputs = build(case, shapes, params)
  local fixed, aux, names = {}, {}, {}
  for key, n in pairs(fixed_names or {}) do fixed["in_" .. key] = n end
  for variable in pairs(arrays) do names[#names + 1] = variable end
  table.sort(names)                              -- values must not depend on pairs' order
  for _, variable in ipairs(names) do
    local x = arrays[variable]
    if fixed[variable] then whole(x, random, fixed[variable])
    elseif type(low) == "function" then low(x, random, variable:sub(4))
    else trials.fill(x, random, low or -1, high or 1) end
  end
  local states = symbol and symbol:list_auxiliary_states() or {}
  if #states > 0 then
    local _, _, of_states = symbol:infer_shape(list_shapes(arrays))
    for i, name in ipairs(states) do aux[name] = of_states[i] end
  end
  return {symbol = symbol, arrays = arrays, inputs = inputs, params = params,
    single = case[1]:find("BatchNorm", 1, true) ~= nil, fixed = fixed, aux = aux, bound = bound}
end

--- Binds a trial with gradients that are filled with `start`. options: dtype, to which all arrays
-- are converted, force_mirroring, shared_exec.
function trials.bind(trial, req, start, options)
  local dtype = options and options.dtype or "float64"
  local args, grads, reqs, states = {}, {}, {}, {}
  for variable, x in pairs(trial.arrays) do
    local own = dtype_beside(trial, variable, dtype)
    args[variable] = own == "float64" and x or x:astype(own)
    reqs[variable] = trial.fixed[variable] and "null" or req
    grads[variable] = ty.nd.full(x.shape, start, {dtype = own})
  end
  for name, s in pairs(trial.aux) do
    states[name] = ty.nd.ones(s, {dtype = dtype_beside(trial, nil, dtype)})
  end
  local exe = trial.symbol:bind{ctx = ty.cpu(), args = args, args_grad = grads, grad_req = reqs,
    aux_states = states, force_mirroring = options and options.force_mirroring,
    shared_exec = options and options.shared_exec}
  return exe, grads
end

--- Returns random head gradients for the outputs of an executor that has run.
function trials.heads(exe, random)
  local heads = {}
  for k, y in ipairs(exe.outputs) do
    heads[k] = trials.fill(ty.nd.zeros(y.shape, {dtype = "float64"}), random, -1, 1)
  end
  return heads
end

--- Runs trial(line, random, sizes) `count` times, the first two with the smallest and the largest
-- shapes.
function trials.several(line, seed, count, trial)
  local random, sizes = trials.random(seed), {trials.least, trials.most}
  for k = 1, count do
    local ok, e = pcall(trial, line, random, sizes[k])
    if not ok then error(("trial %d: %s"):format(k, tostring(e)), 0) end
  end
end

return trials
