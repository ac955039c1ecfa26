--- One line for each update operator: the rule in Lua, for one weight at a time.
--
-- A line is {name, rule, states, kind, params}: rule(a, p) changes the lists a.weight, a.grad and those of the states;
-- kind says how the operator takes its arrays: plain; mp (a float16 weight and its float32 copy `weight32`, on which the
-- rule works); multi and preloaded (several weights; rates as lists or as arrays), each with mp or not.

local cases = {}

local function sign(a) return a > 0 and 1 or a < 0 and -1 or 0 end
local function clip(v, limit) return (limit < 0 or v ~= v) and v or math.max(-limit, math.min(limit, v)) end

-- Returns the gradient as most rules take it, without the part of weight decay.
local function bare(a, p, i) return clip(p.rescale_grad * a.grad[i], p.clip) end

-- Returns the same gradient with the part of weight decay.
local function whole(a, p, i) return clip(p.rescale_grad * a.grad[i] + p.wd * a.weight[i], p.clip) end

local function each(f) return function(a, p) for i = 1, #a.weight do f(a, p, i) end end end

local function moments(a, p, g, i)
  a.mean[i] = p.beta1 * a.mean[i] + (1 - p.beta1) * g
  a.var[i] = p.beta2 * a.var[i] + (1 - p.beta2) * g * g
end

local function limited(v, p) return clip(v, p.clip_weights) end

local sgd = each(function(a, p, i) a.weight[i] = (1 - p.lr * p.wd) * a.weight[i] - p.lr * bare(a, p, i) end)
local sgd_mom = each(function(a, p, i)
  a.mom[i] = p.momentum * a.mom[i] - p.lr * p.wd * a.weight[i] - p.lr * bare(a, p, i)
  a.weight[i] = a.weight[i] + a.mom[i]
end)
local nag = each(function(a, p, i)
  local g, m, w = bare(a, p, i), p.momentum * a.mom[i], a.weight[i]
  a.weight[i] = w - m + (p.momentum + 1) * (m - p.lr * (g + p.wd * w))
  a.mom[i] = m - p.lr * (g + p.wd * a.weight[i])          -- the weight is the new one already
end)
local adam = each(function(a, p, i)
  moments(a, p, whole(a, p, i), i)
  a.weight[i] = a.weight[i] - p.lr * a.mean[i] / (math.sqrt(a.var[i]) + p.epsilon)
end)
local rmsprop = each(function(a, p, i)
  local g = whole(a, p, i)
  a.n[i] = p.gamma1 * a.n[i] + (1 - p.gamma1) * g * g
  a.weight[i] = limited(a.weight[i] - p.lr * g / math.sqrt(a.n[i] + p.epsilon), p)
end)
local rmspropalex = each(function(a, p, i)
  local g = whole(a, p, i)
  a.n[i] = p.gamma1 * a.n[i] + (1 - p.gamma1) * g * g
  a.g[i] = p.gamma1 * a.g[i] + (1 - p.gamma1) * g
  a.delta[i] = p.gamma2 * a.delta[i] - p.lr * g / math.sqrt(a.n[i] - a.g[i] ^ 2 + p.epsilon)
  a.weight[i] = limited(a.weight[i] + a.delta[i], p)
end)
local ftrl = each(function(a, p, i)
  local g, n = bare(a, p, i), a.n[i]
  a.z[i] = a.z[i] + g - (math.sqrt(n + g * g) - math.sqrt(n)) * a.weight[i] / p.lr
  a.n[i] = n + g * g
  a.weight[i] = math.abs(a.z[i]) <= p.lamda1 and 0
    or (sign(a.z[i]) * p.lamda1 - a.z[i]) / ((p.beta + math.sqrt(a.n[i])) / p.lr + p.wd)
end)
local ftml = each(function(a, p, i)
  local g = whole(a, p, i)
  a.v[i] = p.beta2 * a.v[i] + (1 - p.beta2) * g * g
  local d = (1 - p.beta1 ^ p.t) / p.lr * (math.sqrt(a.v[i] / (1 - p.beta2 ^ p.t)) + p.epsilon)
  a.z[i] = p.beta1 * a.z[i] + (1 - p.beta1) * g - (d - p.beta1 * a.d[i]) * a.weight[i]
  a.d[i] = d
  a.weight[i] = -a.z[i] / d
end)
local signsgd = each(function(a, p, i) a.weight[i] = (1 - p.lr * p.wd) * a.weight[i] - p.lr * sign(a.grad[i]) end)
local signum = each(function(a, p, i)
  a.mom[i] = p.momentum * a.mom[i] - (1 - p.momentum) * (p.wd * a.weight[i] + bare(a, p, i))
  a.weight[i] = (1 - p.lr * p.wd_lh) * a.weight[i] + p.lr * sign(a.mom[i])
end)
local adagrad = each(function(a, p, i)
  local g = bare(a, p, i)
  a.history[i] = a.history[i] + g * g
  a.weight[i] = a.weight[i] - p.lr * g / math.sqrt(a.history[i] + p.epsilon)
end)
local adamw = each(function(a, p, i)
  moments(a, p, bare(a, p, i), i)
  a.weight[i] = a.weight[i] - p.eta * (p.lr * a.mean[i] / (math.sqrt(a.var[i]) + p.epsilon) + p.wd * a.weight[i])
end)

local function group_adagrad(a, p)                        -- a history per row of three
  for row = 0, #a.weight / 3 - 1 do
    local square = 0
    for k = 1, 3 do square = square + bare(a, p, 3 * row + k) ^ 2 / 3 end
    a.history[row + 1] = a.history[row + 1] + square
    for k = 3 * row + 1, 3 * row + 3 do
      a.weight[k] = a.weight[k] - p.lr * bare(a, p, k) / math.sqrt(a.history[row + 1] + p.epsilon)
    end
  end
end

local function lamb_direction(a, p)
  local out = {}
  for i = 1, #a.weight do
    moments(a, p, bare(a, p, i), i)
    local m, v = a.mean[i], a.var[i]
    if p.bias_correction then m, v = m / (1 - p.beta1 ^ p.t), v / (1 - p.beta2 ^ p.t) end
    out[i] = m / (math.sqrt(v) + p.epsilon) + p.wd * a.weight[i]
  end
  return out
end
local function lamb_step(a, p, g, r1, r2)
  if p.lower_bound >= 0 then r1 = math.max(r1, p.lower_bound) end
  if p.upper_bound >= 0 then r1 = math.min(r1, p.upper_bound) end
  local ratio = (r1 == 0 or r2 == 0) and 1 or r1 / r2
  for i = 1, #a.weight do a.weight[i] = a.weight[i] - p.lr * ratio * g[i] end
end
local function norm(x)
  local s = 0
  for _, v in ipairs(x) do s = s + v * v end
  return math.sqrt(s)
end

local function lamb(a, p)
  local r1 = norm(a.half or a.weight)                     -- mixed precision measures the float16 weight
  local g = lamb_direction(a, p)
  lamb_step(a, p, g, r1, norm(g))
end
local function phase1(a, p) a.out = lamb_direction(a, p) end
local function phase2(a, p) lamb_step(a, p, a.grad, a.r1[1], a.r2[1]) end

local RATE, ADAM = {lr = 0.25, wd = 0.125}, {lr = 0.25, wd = 0.125, beta1 = 0.75, beta2 = 0.5, epsilon = 0.125}
local function with(t, more)
  local all = {}
  for k, v in pairs(t) do all[k] = v end
  for k, v in pairs(more) do all[k] = v end
  return all
end
local MOMENTUM, LAMB = with(RATE, {momentum = 0.5}), with(ADAM, {t = 3, bias_correction = true, lower_bound = 0.5, upper_bound = 2})
local RMS = with(RATE, {gamma1 = 0.75, gamma2 = 0.5, epsilon = 0.125, clip_weights = 0.75})

local function add(name, rule, states, kind, params) cases[#cases + 1] = {name, rule, states, kind, params} end

--  name                              rule      states                 kind            parameters
add("sgd_update",                       sgd,      "",                    "plain",        RATE)
add("mp_sgd_update",                    sgd,      "",                    "mp",           RATE)
add("multi_sgd_update",                 sgd,      "",                    "multi",        RATE)
add("multi_mp_sgd_update",              sgd,      "",                    "multi mp",     RATE)
add("preloaded_multi_sgd_update",       sgd,      "",                    "preloaded",    RATE)
add("preloaded_multi_mp_sgd_update",    sgd,      "",                    "preloaded mp", RATE)
add("sgd_mom_update",                   sgd_mom,  "mom",                 "plain",        MOMENTUM)
add("mp_sgd_mom_update",                sgd_mom,  "mom",                 "mp",           MOMENTUM)
add("multi_sgd_mom_update",             sgd_mom,  "mom",                 "multi",        MOMENTUM)
add("multi_mp_sgd_mom_update",          sgd_mom,  "mom",                 "multi mp",     MOMENTUM)
add("preloaded_multi_sgd_mom_update",   sgd_mom,  "mom",                 "preloaded",    MOMENTUM)
add("preloaded_multi_mp_sgd_mom_update", sgd_mom, "mom",                 "preloaded mp", MOMENTUM)
add("nag_mom_update",                   nag,      "mom",                 "plain",        MOMENTUM)
add("mp_nag_mom_update",                nag,      "mom",                 "mp",           MOMENTUM)
add("adam_update",                      adam,     "mean var",            "plain",        ADAM)
add("rmsprop_update",                   rmsprop,  "n",                   "plain",        RMS)
add("rmspropalex_update",               rmspropalex, "n g delta",        "plain",        RMS)
add("ftrl_update",                      ftrl,     "z n",                 "plain",        with(RATE, {lamda1 = 0.25, beta = 0.5}))
add("ftml_update",                      ftml,     "d v z",               "plain",        with(ADAM, {t = 3}))
add("signsgd_update",                   signsgd,  "",                    "plain",        RATE)
add("signum_update",                    signum,   "mom",                 "plain",        with(MOMENTUM, {wd_lh = 0.0625}))
add("_sparse_adagrad_update",           adagrad,  "history",             "plain",        {lr = 0.25, epsilon = 0.125})
add("_contrib_group_adagrad_update",    group_adagrad, "history",        "plain rows",   {lr = 0.25, epsilon = 0.125})
add("_adamw_update",                    adamw,    "mean var",            "plain scaled", with(ADAM, {eta = 0.5}))
add("_mp_adamw_update",                 adamw,    "mean var",            "mp scaled",    with(ADAM, {eta = 0.5}))
add("_multi_adamw_update",              adamw,    "mean var",            "multi scaled", with(ADAM, {eta = 0.5}))
add("_multi_mp_adamw_update",           adamw,    "mean var",            "multi mp scaled", with(ADAM, {eta = 0.5}))
add("lamb_update_phase1",               phase1,   "mean var",            "plain out",    LAMB)
add("mp_lamb_update_phase1",            phase1,   "mean var",            "mp out",       LAMB)
add("lamb_update_phase2",               phase2,   "r1 r2",               "plain ratio",  LAMB)
add("mp_lamb_update_phase2",            phase2,   "r1 r2",               "mp ratio",     LAMB)
add("_multi_lamb_update",               lamb,     "mean var",            "multi",        LAMB)
add("_multi_mp_lamb_update",            lamb,     "mean var",            "multi mp",     LAMB)

local function ruled(rule, make, states, params)
  add("_multi_update", make, states, "multi by_kind", with(params, {rule = rule}))
end
ruled("adam_update",        adam,        "mean var",  ADAM)
ruled("nag_mom_update",     nag,         "mom",       MOMENTUM)
ruled("signsgd_update",     signsgd,     "",          RATE)
ruled("signum_update",      signum,      "mom",       with(MOMENTUM, {wd_lh = 0.0625}))
ruled("rmsprop_update",     rmsprop,     "n",         RMS)
ruled("rmspropalex_update", rmspropalex, "n g delta", RMS)
ruled("ftrl_update",        ftrl,        "z n",       with(RATE, {lamda1 = 0.25, beta = 0.5}))

return cases
