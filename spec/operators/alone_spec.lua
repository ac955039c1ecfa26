-- Every line of two tables of cases: an output that is the only one read equals what it is among
-- all outputs; so does a gradient that is the only one requested, or that flows from one output
-- only. Kernels get NULL for what is not read.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local trials = require "spec.support.trials"
require "spec.helper"

local function copy(x) return arrays.list(x) end

local function agree(what, want, got)
  for i, v in ipairs(want) do
    local g = got[i]
    local off = math.abs(v - g)
    if v ~= g and (v == v or g == g) and (off ~= off or off > 1e-9 * math.max(1, math.abs(v))) then
      error(("%s, element %d: %.12g, expected %.12g"):format(what, i - 1, g, v), 0)
    end
  end
end

-- Returns the case with only one gradient.
local function only(case, variable)
  local fixed = {}
  for name in pairs(case.arrays) do
    fixed[name] = name ~= variable and 0 or nil
  end
  return setmetatable({ fixed = fixed }, { __index = case })
end

local function list_variables(case)
  local names = {}
  for name in pairs(case.arrays) do
    names[#names + 1] = not case.fixed[name] and name or nil
  end
  table.sort(names)
  return names
end

local function bind(case, req, dtype)
  ty.random.seed(3)
  local exe, grads = trials.bind(case, req, 7, { dtype = dtype })
  exe:forward{ is_train = true }
  return exe, grads
end

local function check_outputs(case, dtype)
  local exe = bind(case, "null", dtype)
  for k, y in ipairs(#exe.outputs > 1 and exe.outputs or {}) do
    local one = setmetatable({ symbol = case.symbol[k] }, { __index = case })
    agree("output " .. k, copy(y), copy(bind(one, "null", dtype).outputs[1]))
  end
end

local function check_gradients(case, random, dtype)
  local exe, grads = bind(case, "write", dtype)
  local heads, names = trials.heads(exe, random), list_variables(case)
  exe:backward(heads)
  for _, name in ipairs(#names > 1 and names or {}) do
    local alone, g = bind(only(case, name), "write", dtype)
    alone:backward(heads)
    agree("the gradient of " .. name, copy(grads[name]), copy(g[name]))
  end
  for k = 1, #heads > 1 and #heads or 0 do
    local one = setmetatable({ symbol = case.symbol[k] }, { __index = case })
    local rest = {}
    for i, h in ipairs(heads) do rest[i] = i == k and h or h * 0 end
    exe:backward(rest)
    local alone, g = bind(one, "write", dtype)
    alone:backward{ heads[k] }
    for _, name in ipairs(names) do
      agree(("the gradient of %s by output %d"):format(name, k), copy(grads[name]), copy(g[name]))
    end
  end
end

for about, cases in pairs{ ["with a gradient"] = require "spec.operators.cases",
  ["by values"] = require "spec.operators.cases_values" } do
  describe("what is asked for alone is the same, operators " .. about .. ":", function()
    for line, key in trials.lines(cases) do
      if not (line.options and line.options.imperative) then
        it(key, function()
          local random = trials.random(trials.seed("torture", key))
          local case = trials.make(line, random)
          local dtype = line.options and line.options.dtype
          check_outputs(case, dtype)
          if ty.op.info(line[1]).gradient ~= "none" and next(case.arrays) then
            check_gradients(case, random, dtype)
          end
        end)
      end
    end
  end)
end
