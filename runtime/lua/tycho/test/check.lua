--- Checks of symbols: compares gradients with numeric ones, outputs and gradients with expected
-- values (part of `ty.test_utils`).
--
-- @module tycho.test.check

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local compare = require "tycho.test.compare"
local defaults = require "tycho.test.defaults"
local Error = require "tycho.core.error"
local gradient = require "tycho.test.gradient"
local inputs = require "tycho.test.inputs"
local param_check = require "tycho.model.param_check"
local random = require "tycho.test.random"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"
require "tycho.executor.executor"                        -- so that symbols can be bound

local is_array, is_plain = class.is_array, values.is_plain

local check = {}


-- Returns gradient requests by name. grad_nodes is nil ("write" for all arguments), a list ("write"
-- for these) or a table by name.
local function requests(grad_nodes, names)
  local reqs = {}
  for _, name in ipairs(grad_nodes and #grad_nodes > 0 and grad_nodes
      or not grad_nodes and names or {}) do
    reqs[name] = "write"
  end
  for name, req in pairs(grad_nodes and #grad_nodes == 0 and grad_nodes or {}) do
    reqs[name] = req
  end
  return reqs
end


-- Returns arrays of random numbers by name; as initial gradients they show whether a request is
-- honoured.
local function noise_like(arrays, reqs, scale)
  local noise = {}
  for name in pairs(reqs) do
    noise[name] = random.array(arrays[name].shape, random.normal(scale),
      arrays[name].dtype, arrays[name].context)
  end
  return noise
end


-- Checks gradients after backward: "write" must give the gradient, "add" noise + gradient, "null"
-- the noise. Other requests are E(value).
local function check_grads(exe, reqs, expected, noise, options, func)
  for _, name in ipairs(attrs.keys(reqs)) do
    local got = exe.grad_arrays and values.value(options.grads[name])
    local tolerance =
      options.tolerance{ "gradient of " .. name .. " (" .. reqs[name] .. ")", "expected" }
    if reqs[name] == "write" then
      compare.assert_almost_equal(got, expected[name], tolerance)
    elseif reqs[name] == "add" then
      compare.assert_almost_equal(got - noise[name], expected[name], tolerance)
    elseif reqs[name] == "null" then
      compare.assert_almost_equal(got, noise[name], tolerance)
    else
      Error.raise{ code = "value", func = func, argument = name, expected = "write, add or null",
        got = reqs[name], message = "bad gradient request" }
    end
  end
end


-- Returns a function of names that returns the options of a comparison.
local function tolerances(a)
  return function(names)
    return { rtol = a.rtol, atol = a.atol, names = names, equal_nan = a.equal_nan or false }
  end
end


local GRADIENT = args.form("test_utils.check_numeric_gradient", {
  { "sym", "symbol" }, { "location", "table" }, { "aux_states", "table?" },
  { "numeric_eps", "number?" }, { "rtol", "number?" },
  { "atol", "number?" }, { "grad_nodes", "table?" }, { "use_forward_train", "boolean", true },
  { "ctx", "context?" }, { "dtype", "dtype?" },
})

local PROJECTION = "__random_proj"

--- Compares the gradients of a symbol with one output with numeric ones; the output is weighted by
-- random numbers, so that errors do not cancel.
-- @tparam table options sym, location (a list, or values by name), aux_states, numeric_eps, rtol,
--   atol, grad_nodes (default: all; a list; or name -> request), use_forward_train = true, ctx,
--   dtype
function check.check_numeric_gradient(...)
  local a, func = GRADIENT(...), "test_utils.check_numeric_gradient"
  local ctx = a.ctx or defaults.default_context()
  if #a.sym ~= 1 then
    Error.raise{ code = "value", func = func, argument = "sym", expected = "one output",
      got = #a.sym, message = "choose one output" }
  end
  local names = a.sym:list_arguments()
  local location = inputs.arrays(inputs.named(a.location, names, "location", func), a.dtype, ctx)
  local aux = inputs.arrays(inputs.named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local reqs = requests(a.grad_nodes, names)
  local noise = noise_like(location, reqs, 0.01)
  local shapes = {}
  for name, x in pairs(location) do
    shapes[name] = x.shape
  end
  local _, outs = a.sym:infer_shape(shapes)
  local dtype = location[names[1]].dtype
  location[PROJECTION] = random.array(outs[1], random.uniform(0.1, 1.1), dtype, ctx)
  local loss = symbol.make_loss{ a.sym * symbol.Variable(PROJECTION) }
  local grads = param_check.copies(noise)
  local exe = loss:bind{ ctx = ctx, args = location, args_grad = grads, grad_req = reqs,
    aux_states = param_check.copies(aux) }
  exe:forward(true)
  exe:backward()
  for name, x in pairs(grads) do
    grads[name] = x:copy()
  end
  local wanted = {}
  for name, req in pairs(reqs) do
    wanted[#wanted + 1] = req ~= "null" and name or nil
  end
  local expected = gradient.numeric_grad{ exe = exe, location = location, aux_states = aux,
    names = wanted, eps = a.numeric_eps or gradient.default_numeric_eps[dtype] or 1e-3,
    use_forward_train = a.use_forward_train }
  check_grads(exe, reqs, expected, noise, { grads = grads, tolerance = tolerances(a) }, func)
end


-- Expected values ---------------------------------------------------------------------------------

local SYMBOLIC_FORWARD = args.form("test_utils.check_symbolic_forward", {
  { "sym", "symbol" }, { "location", "table" }, { "expected", "table" }, { "rtol", "number?" },
  { "atol", "number?" }, { "aux_states", "table?" }, { "ctx", "context?" },
  { "equal_nan", "boolean", false }, { "dtype", "dtype?" },
})

--- Runs a symbol forward for inference and compares all outputs.
-- @treturn {NDArray,...} the outputs
function check.check_symbolic_forward(...)
  local a, func = SYMBOLIC_FORWARD(...), "test_utils.check_symbolic_forward"
  local ctx = a.ctx or defaults.default_context()
  local location =
    inputs.arrays(inputs.named(a.location, a.sym:list_arguments(), "location", func), a.dtype, ctx)
  local aux = inputs.arrays(inputs.named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local names = a.sym:list_outputs()
  local outputs = a.sym:bind{ ctx = ctx, args = location, aux_states = aux }:forward(false)
  for i, want in ipairs(inputs.in_order(a.expected, names, "expected", func)) do
    compare.assert_almost_equal(outputs[i], want, tolerances(a){ names[i], "expected" })
  end
  return outputs
end


local SYMBOLIC_BACKWARD = args.form("test_utils.check_symbolic_backward", {
  { "sym", "symbol" }, { "location", "table" }, { "out_grads", "array|table?" },
  { "expected", "table" }, { "rtol", "number?" }, { "atol", "number?" }, { "aux_states", "table?" },
  { "grad_req", "text|table", "write" }, { "ctx", "context?" }, { "grad_stypes", "dict?" },
  { "equal_nan", "boolean", false }, { "dtype", "dtype?" },
})

-- Returns requests by name from a word, a list or a table by name.
local function requests_for(grad_req, names)
  local reqs = {}
  for i, name in ipairs(names) do
    reqs[name] = is_plain(grad_req) and (grad_req[name] or grad_req[i])
      or not is_plain(grad_req) and grad_req or "null"
  end
  return reqs
end


local function head_arrays(out_grads, dtype, ctx)
  if out_grads == nil or is_array(out_grads) then
    return out_grads
  end
  return inputs.arrays(out_grads, dtype, ctx)
end


--- Runs a symbol forward and backward and compares the gradients of the arguments that `expected`
-- names.
-- @treturn table name -> gradient (NDArray)
function check.check_symbolic_backward(...)
  local a, func = SYMBOLIC_BACKWARD(...), "test_utils.check_symbolic_backward"
  local ctx, names = a.ctx or defaults.default_context(), a.sym:list_arguments()
  local location = inputs.arrays(inputs.named(a.location, names, "location", func), a.dtype, ctx)
  local aux = inputs.arrays(inputs.named(a.aux_states or {}, a.sym:list_auxiliary_states(),
    "aux_states", func), a.dtype, ctx)
  local expected = #a.expected > 0 and inputs.named(a.expected, names, "expected", func)
    or a.expected
  local reqs = requests_for(a.grad_req, names)
  for name in pairs(reqs) do
    reqs[name] = expected[name] ~= nil and reqs[name] or nil
  end
  local noise = noise_like(location, reqs, 1)
  local grads = param_check.copies(noise)
  local exe = a.sym:bind{ ctx = ctx, args = location, args_grad = grads,
    grad_req = reqs, aux_states = aux }
  exe:forward(true)
  exe:backward{ out_grads = head_arrays(a.out_grads, a.dtype, ctx) }
  check_grads(exe, reqs, expected, noise, { grads = grads, tolerance = tolerances(a) }, func)
  return grads
end


local FORWARD = args.form("test_utils.simple_forward", {
  rest = "arrays", { "sym", "symbol" }, "*", { "ctx", "context?" },
  { "is_train", "boolean", false },
})

--- Binds a symbol, runs it forward once, and returns the output, or a list of several.
function check.simple_forward(...)
  local a = FORWARD(...)
  local ctx = a.ctx or defaults.default_context()
  local exe = a.sym:bind{ ctx = ctx, args = inputs.arrays(a.arrays, nil, ctx) }
  local outputs = exe:forward(a.is_train)
  return #outputs == 1 and outputs[1] or outputs
end


return check
