-- Every line of spec/operators/cases.lua in ways that must not change what it computes: inside a
-- network whose programs are fused, plain (a monitor watches) or recompute; in a separate executor
-- and in one that shares its memory; without any plan, from arrays; and in other types than
-- float64.
local attrs = require "tycho.core.attrs"
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local cases = require "spec.operators.cases"
local trials = require "spec.support.trials"

local sym = ty.sym
-- some ten times slower: a trial for each line
local sanitized = (os.getenv("SANITIZER") or "") ~= ""
local TRIALS = sanitized and 1 or 4

-- Returns the operator between element-wise neighbours, which may be fused on both sides, and a
-- concatenation after it all.
local function network(case)
  local inputs = {}
  for _, variable in ipairs(attrs.keys(case.arrays)) do
    local v = sym.Variable(variable)
    inputs[variable] = case.fixed[variable] and v or v * 0.75 + v * v * 0.1 - v * 0.05
  end
  local y, parts = case.symbol(inputs), {}
  for k = 1, #y:list_outputs() do
    local z = #y:list_outputs() > 1 and y[k] or y
    z = z - sym.BlockGrad{z * 0.5}  -- the last gradient of the program is only handed on
    parts[k] = sym.Reshape{sym.sigmoid{z} * 2 - 0.5, shape = {-1}}
  end
  parts.dim, parts.name = 0, "all"
  return sym.Concat(parts) - sym.Variable("target")
end

local function results(exe, grads)
  local list = {}
  for k, y in ipairs(exe.outputs) do list["output " .. k] = y:copy() end
  for variable, g in pairs(grads) do list["gradient of " .. variable] = g end
  return list
end

local function run(trial, options, heads)
  local exe, grads = trials.bind(trial, "write", 0, options)
  if options.plain then exe:set_monitor_callback(function() end) end
  exe:forward{is_train = true}
  if heads then
    local converted = {}
    for i, h in ipairs(heads) do converted[i] = options.dtype and h:astype(options.dtype) or h end
    exe:backward(converted)
  end
  return results(exe, grads), exe
end

-- Raises an error unless results agree. least: the scale of a result whose numbers are all small,
-- since they may be differences of larger ones.
local function must_agree(want, got, bound, what, least)
  for _, key in ipairs(attrs.keys(want)) do
    local a, b = want[key], got[key]:astype("float64")
    local scale, p = least, a:data()
    for i = 0, a.size - 1 do
      if p[i] == p[i] and math.abs(p[i]) < 1e30 then scale = math.max(scale, math.abs(p[i])) end
    end
    local difference = arrays.difference(b, a, bound * scale, bound)
    if difference then error(what .. ", " .. key .. ": " .. difference, 0) end
  end
end

local WAYS = {plain = {plain = true}, recomputing = {force_mirroring = true}}

local function check_ways(line, seed)
  local random = trials.random(seed)
  local case = trials.make(line, random)
  local trial = {symbol = network(case), arrays = case.arrays, fixed = case.fixed, aux = case.aux}
  local shapes = {}
  for variable, x in pairs(case.arrays) do shapes[variable] = x.shape end
  local _, out = trial.symbol:get_internals()["all_output"]:infer_shape(shapes)
  trial.arrays.target = trials.fill(ty.nd.zeros(out[1], {dtype = "float64"}), random, -1, 1)
  trial.fixed.target = 1
  local _, exe = run(trial, {})
  local heads = trials.heads(exe, random)
  local want = run(trial, {}, heads)
  for _, way in ipairs(attrs.keys(WAYS)) do
    must_agree(want, (run(trial, WAYS[way], heads)), 1e-12, way, 1e-3)
  end
end

describe("neighbours, fusion and recomputation change nothing:", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      for k = 1, TRIALS do check_ways(line, trials.seed("ways", key, k)) end
    end)
  end
end)

-- -- plans ----------------------------------------------------------------------------------------

local function bits(arrays_list)
  local t = {}
  for k, y in ipairs(arrays_list) do t[k] = arrays.bytes(y) end
  return t
end

-- Runs the operator on arrays, each of which has memory of its own.
local function unplanned(line, case)
  local options = {}
  for k, v in pairs(case.params) do options[k] = v end
  for k, x in pairs(case.inputs) do options[k] = x end
  local y = ty.nd[line[1]](options)
  return #y > 0 and y or {y}
end

local function check_plans(line, seed)
  local case = trials.make(line, trials.random(seed))
  local first = trials.bind(case, "write", 0)
  first:forward{is_train = false}
  local want = bits(first.outputs)
  if not line.build and not next(case.aux) then  -- an executor sums packed weights otherwise
    must_agree(first.outputs, unplanned(line, case), 1e-12, "from arrays", 1e-3)
  end
  local second = trials.bind(case, "write", 0, {shared_exec = first})
  second:forward{is_train = false}
  assert.same(want, bits(second.outputs))
  first:forward{is_train = false}
  assert.same(want, bits(first.outputs))
end

describe("plans change nothing, not a bit:", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      for k = 1, TRIALS do check_plans(line, trials.seed("plans", key, k)) end
    end)
  end
end)

-- -- other types ----------------------------------------------------------------------------------

local BOUNDS = {float32 = 1e-4, float16 = 2e-2, bfloat16 = 1e-1}

local function rounded(case, dtype)
  local copy = {symbol = case.symbol, fixed = case.fixed, aux = case.aux,
    single = case.single, arrays = {}}
  for variable, x in pairs(case.arrays) do
    copy.arrays[variable] = x:astype(dtype):astype("float64")
  end
  return copy
end

local function check_types(line, seed)
  local random = trials.random(seed)
  local case = trials.make(line, random)
  for _, dtype in ipairs(attrs.keys(BOUNDS)) do
    local trial = rounded(case, dtype)
    local _, exe = run(trial, {})
    local heads = trials.heads(exe, random)
    for k, h in ipairs(heads) do heads[k] = h:astype(dtype):astype("float64") end
    local want = run(trial, {}, heads)
    local ok, got = pcall(run, trial, {dtype = dtype}, heads)
    if not ok then error(dtype .. ": " .. tostring(got), 0) end
    must_agree(want, got, BOUNDS[dtype], dtype, 0.1)
  end
end

describe("float32, float16 and bfloat16 agree with float64:", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      for k = 1, TRIALS do check_types(line, trials.seed("types", key, k)) end
    end)
  end
end)
