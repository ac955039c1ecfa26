-- NaN in one element of an input or of a head gradient, for every line of spec/operators/cases.lua:
-- every result that depends on the element must be NaN, and where operators are element-wise no
-- other may be. The table below says who passes over NaN, and why.
local attrs = require "tycho.core.attrs"
local ty = require "tycho"
local cases = require "spec.operators.cases"
local trials = require "spec.support.trials"

local TRIALS = 5

-- input (or "*") -> why results need not be NaN
local PASSES = {
  nansum = {["*"] = "leaves NaN out"},
  nanprod = {["*"] = "leaves NaN out"},
  sort = {["*"] = "puts NaN somewhere in the order"},
  topk = {["*"] = "puts NaN somewhere in the order"},
  _contrib_box_nms = {["*"] = "never chooses a box whose score is NaN"},
  _linalg_syevd = {["*"] = "fails: there are no eigenvalues"},
  Pooling = {["*"] = "a maximum over a window passes over NaN, as the reference's comparison does"},
  Pooling_v1 = {
    ["*"] = "a maximum over a window passes over NaN, as the reference's comparison does"},
  ROIPooling = {data = "a maximum over a bin passes over NaN, as Pooling's does"},
  _contrib_ModulatedDeformableConvolution = {offset = "NaN points nowhere: outside the image, 0"},
  _contrib_DeformableConvolution = {offset = "NaN points nowhere: outside the image, 0"},
  _contrib_DeformablePSROIPooling = {trans = "NaN points nowhere: outside the image, 0"},
  BilinearSampler = {grid = "NaN points nowhere: outside the image, 0"},
  SpatialTransformer = {loc = "NaN points nowhere: outside the image, 0"},
}

local function numbers(arrays)
  local t = {}
  for _, x in ipairs(arrays) do
    local p = x:data()
    for i = 0, x.size - 1 do t[#t + 1] = p[i] end
  end
  return t
end

-- Returns f's results with x[i] as it is, a little larger, and NaN.
local function three(f, x, i)
  local was = x:data()[i]
  local function with(v)
    x:data()[i] = v
    return f()
  end
  local moved, sick = with(was * 1.07 + 0.013), with(0 / 0)
  return with(was), moved, sick
end

local function must_spread(what, clean, moved, sick)
  for k, v in ipairs(clean) do
    if moved[k] ~= v and sick[k] == sick[k] then
      error(("NaN in %s: result %d depends on it and is %.12g"):format(what, k - 1, sick[k]), 0)
    end
  end
end

local function check_inputs(line, case, exe, random)
  local passes = PASSES[line[1]] or {}
  for _, variable in ipairs(attrs.keys(case.arrays)) do
    local x = case.arrays[variable]
    if not case.fixed[variable] and not passes["*"] and not passes[variable:sub(4)] then
      must_spread(variable:sub(4), three(function()
        return numbers(exe:forward{is_train = true})
      end, x, random(0, x.size - 1)))
    end
  end
end

local function check_heads(case, exe, grads, random)
  exe:forward{is_train = true}
  local heads, list = trials.heads(exe, random), {}
  for _, variable in ipairs(attrs.keys(grads)) do
    if not case.fixed[variable] then list[#list + 1] = grads[variable] end
  end
  for k, h in ipairs(heads) do
    must_spread("head gradient " .. k, three(function()
      exe:backward(heads)
      return numbers(list)
    end, h, random(0, h.size - 1)))
  end
end

-- operators whose inputs broadcast, beside those that say so
local BROADCASTS = {_npi_fmod = true}

-- Returns whether an operator works element by element, on inputs of one shape.
local function is_row(name)
  local ok, shown = pcall(function() return ty.op.info(name).gradient end)
  return ok and shown:find("^a: ") and not name:find("^broadcast") and not BROADCASTS[name]
end

local function check_others(case, exe, random)
  local x = case.arrays[attrs.keys(case.arrays)[1]]
  local i = random(0, x.size - 1)
  local clean, _, sick = three(function() return numbers(exe:forward{is_train = true}) end, x, i)
  for k, v in ipairs(clean) do
    if k ~= i + 1 and sick[k] ~= v then
      error(("NaN in element %d changes element %d"):format(i, k - 1), 0)
    end
  end
end

describe("NaN reaches what depends on it:", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      local random = trials.random(trials.seed("edges", key))
      for _ = 1, TRIALS do
        local case = trials.make(line, random)
        local exe, grads = trials.bind(case, "write", 0)
        check_inputs(line, case, exe, random)
        check_heads(case, exe, grads, random)
        if is_row(line[1]) then check_others(case, exe, random) end
      end
    end)
  end
end)
