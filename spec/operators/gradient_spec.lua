-- Gradients of operators against central differences in float64, on random shapes, with
-- write, add and null. One direction per trial: (f(x + e d) - f(x - e d)) / 2e must be
-- the sum of gradient times d.
local ffi = require "ffi"
local cases = require "spec.operators.cases"
local trials = require "spec.support.trials"
local ty = require "tycho"

local TRIALS, STEP, BOUND = 20, 1e-5, 1e-6

-- Returns the sum over outputs of output times its weights.
local function loss(exe, heads)
  local sum = 0
  for k, y in ipairs(exe:forward{is_train = true}) do
    local p, h = y:data(), heads[k]:data()
    for i = 0, y.size - 1 do sum = sum + p[i] * h[i] end
  end
  return sum
end

-- Moves x along d by step.
local function move(x, d, step)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = p[i] + step * d[i] end
end

-- Returns (f(x + h d) - f(x - h d)) / 2h.
local function difference(exe, heads, x, d, h)
  move(x, d, h)
  local above = loss(exe, heads)
  move(x, d, -2 * h)
  local below = loss(exe, heads)
  move(x, d, h)
  return (above - below) / (2 * h)
end

-- Returns the difference of fourth order, with so long steps that little is lost to rounding; a
-- kink near x spoils it sooner.
local function finer_difference(exe, heads, x, d)
  local h = 10 * STEP
  return (4 * difference(exe, heads, x, d, h) - difference(exe, heads, x, d, 2 * h)) / 3
end

local function is_off(slope, along, norm, bound)
  local off = math.abs(slope - along)
  return off > bound * math.max(norm, math.abs(slope), 1e-3) or off ~= off
end

local function check_direction(exe, heads, name, x, grad, random, bound)
  local n, p, along, norm = x.size, grad:data(), 0, 0
  local d = ffi.new("double[?]", n)
  for i = 0, n - 1 do
    d[i] = random() * 2 - 1
    along, norm = along + p[i] * d[i], norm + math.abs(p[i] * d[i])
  end
  local slope = difference(exe, heads, x, d, STEP)
  if is_off(slope, along, norm, bound)
      and is_off(finer_difference(exe, heads, x, d), along, norm, bound) then
    error(("%s: differences give %.12g, the gradient %.12g"):format(name, slope, along), 0)
  end
end

local function check_requests(case, heads, written)
  for req, rest in pairs{add = 1, null = 0} do
    local exe, grads = trials.bind(case, req, 3)
    exe:forward{is_train = true}
    exe:backward(heads)
    for variable, g in pairs(grads) do
      local got, want = g:data(), written[variable]:data()
      for i = 0, g.size - 1 do
        local expected = case.fixed[variable] and 3 or 3 + rest * want[i]
        local off = math.abs(got[i] - expected)
        if off > 1e-9 * math.max(1, math.abs(expected)) or off ~= off then
          error(("%s, %s: element %d is %.12g, expected %.12g")
            :format(variable, req, i, got[i], expected), 0)
        end
      end
    end
  end
end

-- Puts the operator between others, so that its operands are planned values, which may share bytes
-- where its texts say so, and not bound arrays.
local function between_others(case)
  local inputs, outputs = {}, {}
  for variable in pairs(case.arrays) do
    local v = ty.sym.Variable(variable)
    inputs[variable] = case.fixed[variable] and v or v * 0.75 + v * 0.25
  end
  local y = case.symbol(inputs)
  local n = #y:list_outputs()
  for k = 1, n do outputs[k] = ty.sym.sin(y[k] * 1.5) end
  case.symbol = n > 1 and ty.sym.Group(outputs) or outputs[1]
end

-- Runs one trial. Gradients begin at 7, so that a kernel that adds to what it should write is seen.
local function trial(line, random, sizes)
  local case = trials.make(line, random, sizes)
  between_others(case)
  local exe, grads = trials.bind(case, "write", 7)
  exe:forward{is_train = true}
  local heads = trials.heads(exe, random)
  exe:backward(heads)
  for variable, x in pairs(case.arrays) do
    if not case.fixed[variable] then
      check_direction(exe, heads, variable, x, grads[variable], random, case.bound or BOUND)
    end
  end
  check_requests(case, heads, grads)
end

describe("gradients agree with differences:", function()
  for line, key in trials.lines(cases) do
    it(key, function() trials.several(line, trials.seed("gradient", key), TRIALS, trial) end)
  end
end)
