-- Every line of spec/operators/cases_updates.lua: one step in each floating type, in place, with
-- and without clipping; the weight, the states and the float32 copy afterwards, NaN in one gradient
-- included, which must not reach another element.
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local cases = require "spec.operators.cases_updates"
local shell = require "spec.support.shell"
local trials = require "spec.support.trials"

-- rates are singles
local BOUNDS = {float64 = 1e-6, float32 = 1e-5, float16 = 4e-3, bfloat16 = 3e-2}
local TRIALS = 4

local function agree(what, want, got, bound)
  for i, v in ipairs(want) do
    local off = math.abs(v - got[i])
    if (off ~= off or off > bound * math.max(1, math.abs(v)))
        and not (v ~= v and got[i] ~= got[i]) then
      error(("%s, element %d: %.12g, expected %.12g"):format(what, i - 1, got[i], v), 0)
    end
  end
end

-- Returns the arrays of one weight, in the operator's order.
local function one_weight(line, kind, random, dtype, sick)
  local rows = kind.rows and random(1, 3)
  local n, a, order = rows and 3 * rows or random(1, 5), {}, {"weight", "grad"}
  local function array(name, size, low, high)
    local narrow = not kind.mp or name == "weight" or (name == "grad" and not kind.ratio)
    local x = trials.fill(ty.nd.zeros(size, {dtype = "float64"}), random, low, high)
    a[name] = x:astype(narrow and dtype or "float32")
  end
  array("weight", rows and {rows, 3} or {n}, -1, 1)
  array("grad", rows and {rows, 3} or {n}, -1, 1)
  for name in line[3]:gmatch("%S+") do
    local signed = name == "mom" or name == "delta" or name == "z"
    array(name, (kind.ratio and {1}) or (rows and {rows, 1}) or {n},
      signed and -1 or name == "g" and 0 or 0.25, name == "g" and 0.25 or 1)
    order[#order + 1] = name
  end
  if kind.mp then
    a.weight32 = a.weight:astype("float32") * 1.0001
    order[#order + 1] = "weight32"
  end
  if sick then a.grad:data()[0] = 0 / 0 end
  return a, order
end

-- Returns the arrays after the rule.
local function expected(line, kind, a, p)
  local known = {}
  for name, x in pairs(a) do known[name] = arrays.list(x) end
  if kind.mp then
    known.half, known.weight = known.weight, {unpack(known.weight32)}
    line[2](known, p)
    if not kind.ratio and not kind.out then known.weight32 = known.weight end
  else
    line[2](known, p)
  end
  return known
end

local function kinds(text)
  local t = {}
  for word in text:gmatch("%S+") do t[word] = true end
  return t
end

local COPIED = {beta1 = 1, beta2 = 1, epsilon = 1, momentum = 1, gamma1 = 1, gamma2 = 1,
  clip_weights = 1, lamda1 = 1, beta = 1, wd_lh = 1, rule = 1,
  bias_correction = 1, lower_bound = 1, upper_bound = 1}

local function has(info, name)
  for _, p in ipairs(info.params) do if p.name == name then return true end end
end

local function repeated(v, n)
  local t = {}
  for i = 1, n do t[i] = v end
  return t
end

local function call_options(info, kind, p, n)
  local t = {}
  for name, v in pairs(p) do if COPIED[name] and has(info, name) then t[name] = v end end
  if has(info, "rescale_grad") then t.rescale_grad = p.rescale_grad end
  for _, name in ipairs{"clip_grad", "clip_gradient"} do
    if has(info, name) then t[name] = p.clip end
  end
  for plain, lists in pairs{lr = "lrs learning_rates", wd = "wds",
      eta = "etas", t = "step_count"} do
    if has(info, plain) then t[plain] = p[plain] end
    for name in lists:gmatch("%S+") do
      if has(info, name) then t[name] = repeated(p[plain], n) end
    end
  end
  if kind.multi or kind.preloaded then
    t[has(info, "num_tensors") and "num_tensors" or "num_weights"] = n
  end
  return t
end

local function trial(line, random, dtype, clip, sick)
  local kind, info = kinds(line[4]), ty.op.info(line[1])
  local n = (kind.multi or kind.preloaded) and random(1, 3) or 1
  local p = {rescale_grad = kind.ratio and 1 or 0.5, clip = clip, wd = 0}
  for k, v in pairs(line[5]) do p[k] = v end
  local options, weights, wants, out = call_options(info, kind, p, n), {}, {}, {}
  for k = 1, n do
    local a, order = one_weight(line, kind, random, dtype, sick)
    weights[k], wants[k] = a, expected(line, kind, a, p)
    for i, name in ipairs(order) do
      options[kind.by_kind and (i - 1) * n + k or #options + 1] = a[name]
    end
    out[k] = kind.out
      and ty.nd.zeros(a.weight.shape, {dtype = kind.mp and "float32" or dtype}) or a.weight
  end
  local rates = kind.mp and "float32" or dtype
  if kind.preloaded then
    options[#options + 1] = ty.nd.array(repeated(p.lr, n), {dtype = rates})
    options[#options + 1] = ty.nd.array(repeated(p.wd, n), {dtype = rates})
  end
  if kind.scaled then options[#options + 1] = ty.nd.array({p.rescale_grad}, {dtype = rates}) end
  options.out = #out > 1 and out or out[1]
  ty.nd[line[1]](options)
  for k, a in ipairs(weights) do
    for name, x in pairs(a) do
      if name ~= "grad" then
        agree(dtype .. " " .. name, wants[k][name], arrays.list(x), BOUNDS[x.dtype])
      end
    end
    if kind.out then
      agree(dtype .. " output", wants[k].out, arrays.list(out[k]), BOUNDS[out[k].dtype])
    end
  end
end

describe("one step of", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      local random = trials.random(trials.seed("updates", key))
      for _, dtype in ipairs(line[4]:find("mp") and {"float16", "bfloat16"}
          or {"float64", "float32", "float16", "bfloat16"}) do
        for k = 1, TRIALS do
          trial(line, random, dtype, k % 2 == 0 and 0.125 or -1, false)
        end
      end
    end)
  end
  for _, line in ipairs(cases) do
    -- rules that take the norm of the whole weight spread NaN by their nature
    if line[4]:find("plain$") then
      it(line[1] .. " keeps NaN where it is", function()
        trial(line, trials.random(9), "float64", -1, true)
      end)
    end
  end
end)

-- a limit that nothing reaches goes by the formula's instructions
describe("adam_update in one loop", function()
  local function step(n, dtype, options)
    ty.random.seed(n)
    local function noise() return ty.nd.random_normal{shape = {n}}:astype(dtype) end
    local w, g, m, v = noise(), noise(), noise(), ty.nd.abs(noise())
    local out = options.apart and ty.nd.zeros({n}, {dtype = dtype}) or w
    ty.nd.adam_update{w, g, m, v, out = out, lr = 0.013, wd = 0.07, beta1 = 0.83,
      rescale_grad = 0.3, clip_gradient = options.clip}
    return {out:totable(), m:totable(), v:totable(), w:totable()}
  end

  it("gives the same bits as instruction by instruction", function()
    for _, n in ipairs{1, 7, 64, 1000, 40000} do
      for _, dtype in ipairs{"float32", "float64"} do
        for _, apart in ipairs{false, true} do
          assert.same(step(n, dtype, {apart = apart, clip = 1e30}), step(n, dtype, {apart = apart}))
        end
      end
    end
  end)
end)

describe("an update of many weights", function()
  it("writes every one in its place, with no room for copies", function()
    local script = [[
      local ty, n = require "tycho", 30
      local call = {num_weights = n, lrs = {}, wds = {}, momentum = 0.5, out = {}}
      for i = 0, n - 1 do
        for k = 1, 3 do call[3 * i + k] = ty.nd.ones{1048576} end
        call.out[i + 1], call.lrs[i + 1], call.wds[i + 1] = call[3 * i + 1], 0.25, 0
      end
      ty.nd.multi_sgd_mom_update(call)
      for i = 1, n do assert(call.out[i]:mean():asscalar() == 1.25) end
      print("done")
    ]]
    shell.with_file(script, function(path)
      local output =
        shell.run(("TYCHO_MEM_LIMIT=%d %s %s"):format((90 * 4 + 3) * 1048576, shell.program, path))
      assert.equal("done\n", output)
    end)
  end)
end)

describe("an update of many weights", function()
  it("refuses what is no rule, and longer lists than it takes", function()
    local x = ty.nd.ones{2}
    local function refused(options)
      options[1], options[2], options.wds = x, x, options.wds or {0}
      local ok, e = pcall(ty.nd._multi_update, options)
      assert.is_false(ok)
      return tostring(e)
    end
    for _, rule in ipairs{"nothing", "relu", "ftml_update", "_adamw_update"} do
      local text = refused{rule = rule, lrs = {1}}
      assert.truthy(text:find("parameter rule: expected an update of one weight", 1, true), text)
      assert.truthy(text:find("got " .. rule, 1, true), text)
    end
    assert.truthy(refused{rule = "adam_update", lrs = repeated(1, 129), wds = repeated(0, 129)}
      :find("parameter lrs: expected at most 128 numbers, got '129'", 1, true))
  end)
end)
