--- Rates that adapt to each element's gradients: Adam, AdamW, Adamax, Nadam, AdaGrad, GroupAdaGrad,
-- RMSProp, AdaDelta, Ftrl, FTML; see `optimizer/init.lua`. In the formulas d is the rescaled and
-- clipped gradient; "d decayed" means that wd w is added before clipping.
--
-- @module tycho.optimizer.adaptive

local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local rule = require "tycho.optimizer.rule"
local values = require "tycho.core.values"

local kinds = {}

local zeros, blend, gradient = base.zeros, base.blend, base.gradient


-- Returns a create_state that makes n arrays of zeros in a list.
local function states(n)
  return function(_, _, weight)
    local list = {}
    for i = 1, n do
      list[i] = zeros(weight)
    end
    return list
  end
end


-- Counts an update; returns its rate, decay and number.
local function begin(self, index)
  self:_update_count(index)
  return self:_get_lr(index), self:_get_wd(index), self:_count_of(index)
end


local BETAS = { { "beta1", "number", 0.9 }, { "beta2", "number", 0.999 } }
local EPSILON = { "epsilon", "number", 1e-8 }

local function rate(default)
  return { "learning_rate", "number|null", default }
end


-- Adam and relatives ------------------------------------------------------------------------------

--- d decayed; m, v running means of d and d^2; w -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m /
-- (sqrt(v) + epsilon). Options learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8,
-- lazy_update = true (of no effect), state_dtype = "float32" ("bfloat16": an updater's states,
-- rounded at random).
kinds.Adam = base.kind("Adam", { rate(0.001), BETAS[1], BETAS[2], EPSILON,
  { "lazy_update", "boolean", true }, base.STATE_DTYPE })
kinds.Adam.create_state, kinds.Adam.state_arrays = states(2), 2

function kinds.Adam:_rule(index)
  local t = self:_count_of(index)
  return "adam_update",
    { lr = self:_get_lr(index) * math.sqrt(1 - self.beta2 ^ t) / (1 - self.beta1 ^ t),
      wd = self:_get_wd(index), beta1 = self.beta1, beta2 = self.beta2, epsilon = self.epsilon }
end

rule.follow(kinds.Adam)
base.offer_narrow_states(kinds.Adam)


--- Adam with decoupled weight decay (Loshchilov, Hutter 2019): m, v running means of d
-- and d^2; w -= lr (c m / (sqrt(v) + epsilon) + wd w), c = sqrt(1 - beta2^t) / (1 - beta1^t), or 1
-- without correct_bias. Options learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8,
-- correct_bias = true, state_dtype = "float32" (see Adam).
kinds.AdamW = base.kind("AdamW", { rate(0.001), BETAS[1], BETAS[2], EPSILON,
  { "correct_bias", "boolean", true }, base.STATE_DTYPE })
kinds.AdamW.create_state, kinds.AdamW.state_arrays = states(2), 2

function kinds.AdamW:update(index, weight, grad, state)
  local lr, wd, t = begin(self, index)
  local scale = class.new({ 1 }, args.DTYPES.float32, weight._device, "Optimizer:update")
  call.fill(scale, self.rescale_grad, "Optimizer:update")
  local correction = self.correct_bias
    and math.sqrt(1 - self.beta2 ^ t) / (1 - self.beta1 ^ t) or 1
  local params = base.params(self, { lr = correction, eta = lr, wd = wd, beta1 = self.beta1,
    beta2 = self.beta2, epsilon = self.epsilon })
  table.remove(params, 1)                                -- the scale is an input here
  table.remove(params, 1)
  base.run("_adamw_update", { weight, grad, state[1], state[2], scale }, params)
end

base.offer_narrow_states(kinds.AdamW)


--- d decayed; m running mean of d; u = max(beta2 u, |d|); w -= lr / (1 - beta1^t) m / u. Options
-- learning_rate = 0.002, beta1 = 0.9, beta2 = 0.999.
kinds.Adamax = base.kind("Adamax", { rate(0.002), BETAS[1], BETAS[2] })
kinds.Adamax.create_state, kinds.Adamax.state_arrays = states(2), 2

function kinds.Adamax:update(index, weight, grad, state)
  local lr, wd, t = begin(self, index)
  local d, m, u = gradient(self, grad, weight, wd), state[1], state[2]
  blend(m, self.beta1, d)
  call.binary("broadcast_maximum", "Optimizer:update", u:mul_(self.beta2), d:abs(), u)
  weight:sub_(m / u * (lr / (1 - self.beta1 ^ t)))
end


--- Adam with Nesterov's momentum; the product of its momentum schedule is shared by
-- all parameters. Options learning_rate = 0.001, beta1 = 0.9, beta2 = 0.999,
-- epsilon = 1e-8, schedule_decay = 0.004.
kinds.Nadam = base.kind("Nadam", {
  rate(0.001), BETAS[1], BETAS[2], EPSILON, { "schedule_decay", "number", 0.004 },
})
kinds.Nadam.create_state, kinds.Nadam.state_arrays = states(2), 2
kinds.Nadam.progress = { "m_schedule" }

-- Returns the momentum of step t.
local function nadam_momentum(self, t)
  return self.beta1 * (1 - 0.5 * 0.96 ^ (t * self.schedule_decay))
end

function kinds.Nadam:update(index, weight, grad, state)
  local lr, wd, t = begin(self, index)
  local d, m, v = gradient(self, grad, weight, wd), state[1], state[2]
  local now, later = nadam_momentum(self, t), nadam_momentum(self, t + 1)
  self.m_schedule = (self.m_schedule or 1) * now
  blend(m, self.beta1, d)
  blend(v, self.beta2, d * d)
  local ahead = d * ((1 - now) / (1 - self.m_schedule))
    + m * (later / (1 - self.m_schedule * later))
  local root = (v / (1 - self.beta2 ^ t)):sqrt():add_(self.epsilon)
  weight:sub_(ahead:div_(root):mul_(lr))
end


--- d decayed; v running mean of d^2; D' = (1 - beta1^t) / lr (sqrt(v / (1 - beta2^t)) + epsilon);
-- z = beta1 z + (1 - beta1) d - (D' - beta1 D) w; D = D'; w = -z / D. Options beta1 = 0.6,
-- beta2 = 0.999, epsilon = 1e-8.
kinds.FTML = base.kind("FTML", { { "beta1", "number", 0.6 }, BETAS[2], EPSILON })
kinds.FTML.create_state, kinds.FTML.state_arrays = states(3), 3

function kinds.FTML:update(index, weight, grad, state)
  local lr, wd, t = begin(self, index)
  base.run("ftml_update", { weight, grad, state[1], state[2], state[3] },
    base.params(self, { lr = lr, wd = wd, t = t, beta1 = self.beta1, beta2 = self.beta2,
      epsilon = self.epsilon, clip_name = "clip_grad" }))
end


-- Sums of squares ---------------------------------------------------------------------------------

--- h += d^2; w -= lr (d / sqrt(h + eps) + wd w). Option eps = 1e-7.
kinds.AdaGrad = base.kind("AdaGrad", { { "eps", "number", 1e-7 } })
kinds.AdaGrad.state_arrays = 1

function kinds.AdaGrad.create_state(_, _, weight)
  return zeros(weight)
end

function kinds.AdaGrad:update(index, weight, grad, state)
  local lr, wd = begin(self, index)
  local d = gradient(self, grad)
  state:add_(d * d)
  d:div_((state + self.eps):sqrt()):add_(weight * wd)
  weight:sub_(d:mul_(lr))
end


--- One sum per row of a matrix: h += mean of d^2 along the row; w -= lr d / sqrt(h + eps).
-- No decay. Option eps = 1e-5.
kinds.GroupAdaGrad = base.kind("GroupAdaGrad", { { "eps", "number", 1e-5 } })
kinds.GroupAdaGrad.state_arrays = 1

function kinds.GroupAdaGrad.create_state(_, _, weight)
  if #weight._shape ~= 2 then
    Error.raise{ code = "shape", func = "GroupAdaGrad:create_state", argument = "weight",
      expected = "two dimensions", got = weight.shape, message = "GroupAdaGrad is for matrices" }
  end
  local history = class.new({ weight._shape[1], 1 }, weight._dtype, weight._device, "GroupAdaGrad")
  return call.fill(history, 0, "GroupAdaGrad")
end

function kinds.GroupAdaGrad:update(index, weight, grad, state)
  local lr, wd = begin(self, index)
  if wd ~= 0 then
    Error.raise{ code = "value", func = "GroupAdaGrad:update", argument = "wd", expected = 0,
      got = wd, message = "GroupAdaGrad has no weight decay" }
  end
  local d = gradient(self, grad)
  state:add_((d * d):mean{ axis = 1, keepdims = true })
  weight:sub_(d:div_((state + self.eps):sqrt()):mul_(lr))
end


--- d decayed; n running mean of d^2; w -= lr d / sqrt(n + epsilon). Centered: with the running mean
-- of d taken off and momentum gamma2. Options learning_rate = 0.001, gamma1 = 0.9, gamma2 = 0.9,
-- epsilon = 1e-8, centered = false, clip_weights.
kinds.RMSProp = base.kind("RMSProp", {
  rate(0.001), { "gamma1", "number", 0.9 }, { "gamma2", "number", 0.9 }, EPSILON,
  { "centered", "boolean", false }, { "clip_weights", "number?" },
})

kinds.RMSProp.state_options = { "centered" }

function kinds.RMSProp:create_state(index, weight)
  return states(self.centered and 3 or 1)(self, index, weight)
end

function kinds.RMSProp:_rule(index)
  return self.centered and "rmspropalex_update" or "rmsprop_update", { lr = self:_get_lr(index),
    wd = self:_get_wd(index), gamma1 = self.gamma1, epsilon = self.epsilon, gamma2 = self.centered
      and self.gamma2 or nil, clip_weights = self.clip_weights ~= 0 and self.clip_weights or nil }
end

rule.follow(kinds.RMSProp)


--- A, D running means of d^2 and of the squared steps; step = sqrt(D + epsilon) / sqrt(A + epsilon)
-- d; w -= step + wd w. There is no rate. The rescaled gradient is written into the given array.
-- Options rho = 0.9, epsilon = 1e-5.
kinds.AdaDelta = base.kind("AdaDelta", { { "rho", "number", 0.9 }, { "epsilon", "number", 1e-5 } })
kinds.AdaDelta.create_state, kinds.AdaDelta.state_arrays = states(2), 2

function kinds.AdaDelta:update(index, weight, grad, state)
  local _, wd = begin(self, index)
  grad:mul_(self.rescale_grad)
  local d = grad
  if self.clip_gradient then
    d = grad:clip(-self.clip_gradient, self.clip_gradient)
  end
  local squares, steps = state[1], state[2]
  blend(squares, self.rho, d * d)
  local step = (steps + self.epsilon):sqrt() / (squares + self.epsilon):sqrt() * d
  blend(steps, self.rho, step * step)
  weight:sub_(step:add_(weight * wd))
end


local FTRL = { { "lamda1", "number", 0.01 }, rate(0.1), { "beta", "number", 1 } }

--- Follow the regularised leader: z += d - (sqrt(n + d^2) - sqrt(n)) w / lr; n += d^2; w = (sign(z)
-- lamda1 - z) / ((beta + sqrt(n)) / lr + wd) where |z| > lamda1, else 0. Options lamda1 = 0.01,
-- learning_rate = 0.1, beta = 1.
kinds.Ftrl = base.kind("Ftrl", FTRL)
local init_ftrl, read_ftrl = kinds.Ftrl.init, base.form("Ftrl", FTRL)

--- Initializes Ftrl. The learning rate is not passed to the base class, which would set a
-- schedule's rate.
-- @number[opt=0.01] lamda1 weight of the sum of absolute values
-- @number[opt=0.1] learning_rate
-- @number[opt=1] beta added to the roots of the sums of squares
function kinds.Ftrl:init(...)
  local a = read_ftrl(...)
  local options = base.common(a)
  options.lamda1, options.beta, options.learning_rate = a.lamda1, a.beta, values.null
  init_ftrl(self, options)
  self.lr = values.value(a.learning_rate)
end

kinds.Ftrl.create_state, kinds.Ftrl.state_arrays = states(2), 2

function kinds.Ftrl:_rule(index)
  return "ftrl_update",
    { lr = self:_get_lr(index), wd = self:_get_wd(index), lamda1 = self.lamda1, beta = self.beta }
end

rule.follow(kinds.Ftrl)


return kinds
