-- Gradients of operators against central differences in float64, on random shapes, with write, add and null.
-- One direction per trial: (f(x + e d) - f(x - e d)) / 2e must be the sum of gradient times d.
local ffi = require "ffi"
local ty = require "tycho"
local cases = require "spec.cases"

local TRIALS, STEP, BOUND = 20, 1e-5, 1e-6

local function random_table(state)
  return function(a, b)
    state.n = (state.n * 16807) % 2147483647
    local u = state.n / 2147483647
    return a and a + math.floor(u * (b - a + 1)) or u
  end
end

local function fill(x, random, low, high)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = low + (high - low) * random() end
end

local function whole(x, random, n)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = random(0, n - 1) end
end

local function build(name, shapes, params)
  local options, arrays = {}, {}
  for k, v in pairs(params) do options[k] = v end
  for key, s in pairs(shapes) do
    local variable = "in_" .. key
    options[key] = ty.sym.Variable(variable)
    arrays[variable] = ty.nd.zeros(s, {dtype = "float64"})
  end
  options.name = "op"
  return ty.sym[name](options), arrays
end

-- the sum over outputs of output times its weights
local function loss(exe, heads)
  local sum = 0
  for k, y in ipairs(exe:forward{is_train = true}) do
    local p, h = y:data(), heads[k]:data()
    for i = 0, y.size - 1 do sum = sum + p[i] * h[i] end
  end
  return sum
end

local function heads_for(exe, random)
  local heads = {}
  for k, y in ipairs(exe.outputs) do
    heads[k] = ty.nd.zeros(y.shape, {dtype = "float64"})
    fill(heads[k], random, -1, 1)
  end
  return heads
end

-- moves x along d by step
local function move(x, d, step)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = p[i] + step * d[i] end
end

local function check_direction(exe, heads, name, x, grad, random)
  local n, p, along, norm = x.size, grad:data(), 0, 0
  local d = ffi.new("double[?]", n)
  for i = 0, n - 1 do
    d[i] = random() * 2 - 1
    along, norm = along + p[i] * d[i], norm + math.abs(p[i] * d[i])
  end
  move(x, d, STEP)
  local above = loss(exe, heads)
  move(x, d, -2 * STEP)
  local below = loss(exe, heads)
  move(x, d, STEP)
  local slope = (above - below) / (2 * STEP)
  local scale = math.max(norm, math.abs(slope), 1e-3)
  local off = math.abs(slope - along)
  if off > BOUND * scale or off ~= off then
    error(("%s: differences give %.12g, the gradient %.12g"):format(name, slope, along), 0)
  end
end

local function gradients(symbol, arrays, fixed, req, start)
  local grads, reqs = {}, {}
  for variable, x in pairs(arrays) do
    reqs[variable] = fixed[variable] and "null" or req
    grads[variable] = ty.nd.full(x.shape, start, {dtype = "float64"})
  end
  local exe = symbol:bind{ctx = ty.cpu(), args = arrays, args_grad = grads, grad_req = reqs}
  return exe, grads
end

local function check_requests(symbol, arrays, fixed, heads, written)
  for req, rest in pairs{add = 1, null = 0} do
    local exe, grads = gradients(symbol, arrays, fixed, req, 3)
    exe:forward{is_train = true}
    exe:backward(heads)
    for variable, g in pairs(grads) do
      local got, want = g:data(), written[variable]:data()
      for i = 0, g.size - 1 do
        local expected = fixed[variable] and 3 or 3 + rest * want[i]
        local off = math.abs(got[i] - expected)
        if off > 1e-9 * math.max(1, math.abs(expected)) or off ~= off then
          error(("%s, %s: element %d is %.12g, expected %.12g"):format(variable, req, i, got[i], expected), 0)
        end
      end
    end
  end
end

local function trial(name, make, random)
  local shapes, params, low, high, fixed_names = make(random)
  local symbol, arrays = build(name, shapes, params)
  local fixed = {}
  for key, n in pairs(fixed_names or {}) do fixed["in_" .. key] = n end
  for variable, x in pairs(arrays) do
    if fixed[variable] then whole(x, random, fixed[variable]) else fill(x, random, low or -1, high or 1) end
  end
  local exe, grads = gradients(symbol, arrays, fixed, "write", 0)
  exe:forward{is_train = true}
  local heads = heads_for(exe, random)
  exe:backward(heads)
  for variable, x in pairs(arrays) do
    if not fixed[variable] then check_direction(exe, heads, variable, x, grads[variable], random) end
  end
  check_requests(symbol, arrays, fixed, heads, grads)
end

describe("gradients agree with differences:", function()
  for i, case in ipairs(cases) do
    local name, make = case[1], case[2]
    it(("%s (line %d of the table)"):format(name, i), function()
      local random = random_table{n = 1000 + i}
      for k = 1, TRIALS do
        local ok, e = pcall(trial, name, make, random)
        if not ok then error(("trial %d: %s"):format(k, tostring(e)), 0) end
      end
    end)
  end
end)
