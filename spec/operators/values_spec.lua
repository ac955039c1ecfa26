-- Lines of spec/operators/cases.lua that say what they compute: values. Every line of
-- spec/operators/cases_values.lua: values, gradients (zero, the operator's own, or refused) with
-- write, add and null; the same values in an executor that is fused, plain (a monitor watches),
-- recomputes or shares its memory with another one, and from arrays without any plan; the other
-- floating types; the smallest and largest shapes.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local cases = require "spec.operators.cases_values"
local with_gradient = require "spec.operators.cases"
local trials = require "spec.support.trials"

local TRIALS = 8
local BOUNDS = {float64 = 1e-9, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2}

-- Returns the type in which a line is computed.
local function base(line) return line.options and line.options.dtype or "float64" end

-- Returns the relative tolerance of a line.
local function bound_of(line) return line.options.bound or BOUNDS[base(line)] end

local function all_numbers(several)
  local t = {}
  for k, x in pairs(several) do t[k] = arrays.list(x) end
  return t
end

local function agree(what, want, got, bound)
  if #want ~= #got then error(("%s: %d elements, expected %d"):format(what, #got, #want), 0) end
  local scale = 1e-2
  for _, v in ipairs(want) do
    if v == v and math.abs(v) < 1e30 then scale = math.max(scale, math.abs(v)) end
  end
  for i, v in ipairs(want) do
    local off = math.abs(v - got[i])
    if v ~= got[i] and (off > bound * scale or off ~= off)
        and not (v ~= v and got[i] ~= got[i]) then
      error(("%s, element %d: %.12g, expected %.12g"):format(what, i - 1, got[i], v), 0)
    end
  end
end

local function agree_all(what, want, got, bound)
  for k, w in pairs(want) do
    if not got[k] then error(("%s %s is missing"):format(what, k), 0) end
    agree(what .. " " .. k, w, got[k], bound)
  end
end

-- Returns inputs as `want` takes them.
local function known(case, dtype)
  local x = {}
  for key, array in pairs(case.inputs) do x[key] = arrays.list(array:astype(dtype)) end
  return x
end

local function expected(line, case, heads, dtype)
  local outputs, grads = line.want(known(case, dtype or base(line)), case.params, heads)
  local by_variable = {}
  for key, g in pairs(grads or {}) do by_variable["in_" .. key] = g end
  return outputs, grads and by_variable
end

-- -- arrays ---------------------------------------------------------------------------------------

local function call(line, case)
  local options = {}
  for k, v in pairs(case.params) do options[k] = v end
  for k, x in pairs(case.inputs) do options[k] = x:astype(base(line)) end
  if options.out then options.out = ty.nd.zeros(options.out, {dtype = base(line)}) end
  if line[1] == "_scatter_set_nd" then options.lhs:copyto(options.out) end
  local out = ty.nd[line[1]](options)
  if line.options.changed then return all_numbers{options[1], options[2]} end
  return all_numbers(#out > 0 and out or {out})
end

-- -- executors ------------------------------------------------------------------------------------

local function run(line, case, req, start, options)
  options = options or {}
  local exe, grads = trials.bind(case, req, start, {dtype = options.dtype or base(line),
    force_mirroring = options.force_mirroring, shared_exec = options.shared_exec})
  if options.plain then exe:set_monitor_callback(function() end) end
  exe:forward{is_train = true}
  return all_numbers(exe.outputs), exe, grads
end

local WAYS = {plain = {plain = true}, recomputing = {force_mirroring = true}}

local function check_ways(line, case, req, want)
  for way, options in pairs(WAYS) do
    agree_all(way .. " output", want, (run(line, case, req, 0, options)), 1e-12)
  end
  local _, first = run(line, case, req, 0)
  local second = run(line, case, req, 0, {shared_exec = first})
  agree_all("sharing output", want, second, 1e-12)
  first:forward{is_train = true}
  agree_all("shared output", want, all_numbers(first.outputs), 1e-12)
  if not line.build and not next(case.aux) then
    agree_all("output from arrays", want, call(line, case), 1e-12)
  end
end

local function check_gradients(line, case, random, has_own)
  for req, start in pairs{write = 0, add = 3, null = 3} do
    local _, exe, grads = run(line, case, req, start)
    local heads = trials.heads(exe, random)
    exe:backward(heads)
    local own
    if has_own then _, own = expected(line, case, all_numbers(heads)) end
    for variable, g in pairs(grads) do
      if not case.fixed[variable] then
        local want = arrays.list(g)
        for i = 1, #want do
          local added = own and own[variable] and own[variable][i] or 0
          want[i] = req == "null" and start or start + added
        end
        agree(req .. " gradient of " .. variable, want, arrays.list(g), bound_of(line))
      end
    end
  end
end

local function check_refusal(case)
  local ok, e = pcall(trials.bind, case, "write", 0)
  if ok or not ty.is_error(e) or not tostring(e):find("has no gradient", 1, true) then
    error("a gradient that does not exist must be refused: " .. tostring(e), 0)
  end
end

local function check_types(line, case, req, heads)
  for _, dtype in ipairs{"float32", "float16", "bfloat16"} do
    local ok, got = pcall(run, line, case, req, 0, {dtype = dtype})
    if not ok then error(dtype .. ": " .. tostring(got), 0) end
    if line.want then
      agree_all(dtype .. " output", (expected(line, case, heads, dtype)), got, BOUNDS[dtype])
    end
  end
end

local function trial(line, random, sizes)
  local case = trials.make(line, random, sizes)
  local kind = ty.op.info(line[1]).gradient
  if line.options.imperative then
    return agree_all("output", (expected(line, case)), call(line, case), bound_of(line))
  end
  local req = (kind == "none" or not next(case.arrays)) and "null" or "write"
  local got, exe = run(line, case, req, 0)
  local heads, own = all_numbers(trials.heads(exe, random)), nil
  if line.want then
    local want
    want, own = expected(line, case, heads)
    agree_all("output", want, got, bound_of(line))
  end
  check_ways(line, case, req, got)
  if kind ~= "none" then
    check_gradients(line, case, random, own)
  elseif next(case.arrays) then
    check_refusal(case)
  end
  if line.options.types ~= false and next(case.arrays) then check_types(line, case, req, heads) end
end

describe("values, beside derivatives:", function()
  for line, key in trials.lines(with_gradient) do
    local function value_trial(_, random, sizes)
      local case = trials.make(line, random, sizes)
      local want = line.want(known(case, "float64"), case.params)
      agree_all("output", want, (run(line, case, "write", 0)), BOUNDS.float64)
    end
    if line.want then
      it(key, function() trials.several(line, trials.seed("values", key), TRIALS, value_trial) end)
    end
  end
end)

describe("values, without derivatives:", function()
  for line, key in trials.lines(cases) do
    it(key, function() trials.several(line, trials.seed("values", key), TRIALS, trial) end)
  end
end)
