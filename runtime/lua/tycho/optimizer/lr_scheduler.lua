--- Learning rates that follow the number of updates: `ty.lr_scheduler`.
--
-- A schedule is called with the number of updates so far and returns the rate. During the first
-- `warmup_steps` updates the rate rises from `warmup_begin_lr` to the base rate given at
-- construction ("linear"), or stays at `warmup_begin_lr` ("constant"). All keep the current rate in
-- `base_lr`, which the `learning_rate` option of an optimizer overwrites; without a base rate at
-- construction, the optimizer's rate is the base rate.
--
--     local s = ty.lr_scheduler.MultiFactorScheduler{ step = { 15, 25 }, factor = 0.1,
--       base_lr = 0.1, warmup_steps = 10 }
--     s(5)                                                       --> 0.05
--
-- @module tycho.lr_scheduler

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local container = require "tycho.ndarray.serialize"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

local schedules = {}

local WARMUP = {
  { "base_lr", "number?" }, { "warmup_steps", "integer", 0 },
  { "warmup_begin_lr", "number", 0 }, { "warmup_mode", { "linear", "constant" }, "linear" },
}


-- Returns a form of a class's own parameters followed by those of the base.
local function make_form(name, own)
  local spec = {}
  for _, list in ipairs{ own, WARMUP } do
    for _, entry in ipairs(list) do
      spec[#spec + 1] = entry
    end
  end
  return args.form("lr_scheduler." .. name, spec)
end


local function check(ok, func, argument, got, expected)
  if not ok then
    Error.raise{ code = "value", func = "lr_scheduler." .. func, argument = argument,
      expected = expected, got = got, message = ("bad '%s'"):format(argument) }
  end
end


-- The base ----------------------------------------------------------------------------------------

--- Base of schedules.
-- @type LRScheduler
local LRScheduler = Class:extend("LRScheduler")

local BASE = args.form("lr_scheduler.LRScheduler", WARMUP)

--- Reads the options base_lr = 0.01, warmup_steps = 0, warmup_begin_lr = 0, warmup_mode = "linear"
-- or "constant".
function LRScheduler:init(...)
  local a = BASE(...)
  local func = self.class_name
  local base_lr = a.base_lr or 0.01
  self._base_given = a.base_lr ~= nil
  check(a.warmup_begin_lr <= base_lr, func, "warmup_begin_lr",
    a.warmup_begin_lr, "at most base_lr")
  check(a.warmup_steps >= 0, func, "warmup_steps", a.warmup_steps, "0 or more")
  self.base_lr, self.warmup_steps, self.warmup_mode = base_lr, a.warmup_steps, a.warmup_mode
  self.warmup_begin_lr, self.warmup_final_lr = a.warmup_begin_lr, base_lr
end


-- Raises E(type) or E(value) unless num_update is a number of updates.
local function check_number(self, num_update)
  local is_number = type(num_update) == "number"
  if not is_number or num_update < 0 or num_update ~= num_update then
    Error.raise{ code = is_number and "value" or "type", func = self.class_name,
      argument = "num_update", expected = "a number, 0 or more",
      got = is_number and num_update or Error.kind(num_update), message = "bad 'num_update'" }
  end
end


--- Returns the rate during the warm-up.
function LRScheduler:get_warmup_lr(num_update)
  check_number(self, num_update)
  if self.warmup_mode == "constant" then
    return self.warmup_begin_lr
  end
  return self.warmup_begin_lr
    + (self.warmup_final_lr - self.warmup_begin_lr) * num_update / self.warmup_steps
end


--- Sets the learning rate of an optimizer: as base rate of the schedule if it was made without one,
-- else, as in the reference, only as the current rate (not for users).
function LRScheduler:_take_rate(lr)
  if not self._base_given then
    self.warmup_final_lr = lr
    self.base_lr_orig = self.base_lr_orig and lr
  elseif self.base_lr ~= lr then
    log:warning(self.base_lr_orig
      and ("the schedule has base_lr = %g; the optimizer's learning_rate = %g has no effect")
        :format(self.base_lr_orig, lr)
      or ("the optimizer's learning_rate = %g takes the place of the schedule's base_lr = %g")
        :format(lr, self.base_lr))
  end
  self.base_lr = lr
end


--- Returns the rate after a number of updates.
-- @int num_update
-- @treturn number
function LRScheduler:__call(num_update)
  check_number(self, num_update)
  if num_update < self.warmup_steps then
    return self:get_warmup_lr(num_update)
  end
  return self:_rate(num_update)
end


function LRScheduler:_rate()
  Error.raise{ code = "unsupported", func = self.class_name, message = "the class has no schedule" }
end


-- Sets the fields of the base from checked values.
local function init_base(self, class, a)
  class.super.init(self, { base_lr = a.base_lr, warmup_steps = a.warmup_steps,
    warmup_begin_lr = a.warmup_begin_lr, warmup_mode = a.warmup_mode })
end


local function log_rate(num_update, lr)
  log:info(("Update[%d]: Change learning rate to %0.5e"):format(num_update, lr))
end


-- Steps -------------------------------------------------------------------------------------------

--- Multiplies the rate by `factor` after every `step` updates, down to `stop_factor_lr`.
-- @type FactorScheduler
local FactorScheduler = LRScheduler:extend("FactorScheduler")

local FACTOR = make_form("FactorScheduler", {
  { "step", "integer" }, { "factor", "number", 1 }, { "stop_factor_lr", "number", 1e-8 },
})

--- Reads the options step, factor = 1, stop_factor_lr = 1e-8, and the base's.
function FactorScheduler:init(...)
  local a = FACTOR(...)
  init_base(self, FactorScheduler, a)
  check(a.step >= 1, "FactorScheduler", "step", a.step, "at least 1")
  check(a.factor <= 1, "FactorScheduler", "factor", a.factor, "at most 1")
  self.step, self.factor, self.stop_factor_lr, self.count = a.step, a.factor, a.stop_factor_lr, 0
end


function FactorScheduler:_rate(num_update)
  while num_update > self.count + self.step do
    self.count = self.count + self.step
    self.base_lr = math.max(self.base_lr * self.factor, self.stop_factor_lr)
    log_rate(num_update, self.base_lr)
  end
  return self.base_lr
end


--- Multiplies the rate by `factor` after each of the update counts in the list `step`.
-- @type MultiFactorScheduler
local MultiFactorScheduler = LRScheduler:extend("MultiFactorScheduler")

local MULTI = make_form("MultiFactorScheduler", { { "step", "list" }, { "factor", "number", 1 } })

local function check_steps(step)
  check(#step > 0, "MultiFactorScheduler", "step", "an empty list", "a list of update numbers")
  for i, s in ipairs(step) do
    check(type(s) == "number" and s >= 1, "MultiFactorScheduler", "step", tostring(s),
      "numbers of at least 1")
    check(i == 1 or s > step[i - 1], "MultiFactorScheduler", "step", s, "an increasing list")
  end
end

--- Reads the options step (an increasing list), factor = 1, and the base's.
function MultiFactorScheduler:init(...)
  local a = MULTI(...)
  init_base(self, MultiFactorScheduler, a)
  check_steps(a.step)
  check(a.factor <= 1, "MultiFactorScheduler", "factor", a.factor, "at most 1")
  self.step, self.factor, self.cur_step_ind = a.step, a.factor, 0
end


function MultiFactorScheduler:_rate(num_update)
  while self.cur_step_ind < #self.step and num_update > self.step[self.cur_step_ind + 1] do
    self.cur_step_ind = self.cur_step_ind + 1
    self.base_lr = self.base_lr * self.factor
    log_rate(num_update, self.base_lr)
  end
  return self.base_lr
end


-- Curves ------------------------------------------------------------------------------------------

-- Initializes the fields of both curves. Their `shape` maps the fraction of updates that are done,
-- 0 to 1, to a factor from 1 to 0.
local function init_curve(self, class, a)
  init_base(self, class, a)
  check(a.max_update >= 1, self.class_name, "max_update", a.max_update, "at least 1")
  self.base_lr_orig, self.max_update, self.final_lr = self.base_lr, a.max_update, a.final_lr
  self.max_steps = a.max_update - a.warmup_steps
end


local function curve_rate(self, num_update, shape)
  if num_update <= self.max_update then
    local done = self.max_steps > 0 and (num_update - self.warmup_steps) / self.max_steps or 1
    self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * shape(done)
  elseif self.max_steps <= 0 then
    self.base_lr = self.final_lr
  end
  return self.base_lr
end


--- Falls from base_lr to final_lr as the power `pwr` of the remaining fraction of `max_update`
-- updates.
-- @type PolyScheduler
local PolyScheduler = LRScheduler:extend("PolyScheduler")

local POLY = args.form("lr_scheduler.PolyScheduler", {
  { "max_update", "integer" }, WARMUP[1], { "pwr", "number", 2 }, { "final_lr", "number", 0 },
  WARMUP[2], WARMUP[3], WARMUP[4],
})

--- Reads the options max_update, base_lr = 0.01, pwr = 2, final_lr = 0, and the base's.
function PolyScheduler:init(...)
  local a = POLY(...)
  init_curve(self, PolyScheduler, a)
  self.power = a.pwr
end


function PolyScheduler:_rate(num_update)
  return curve_rate(self, num_update, function(done) return (1 - done) ^ self.power end)
end


--- Falls from base_lr to final_lr within `max_update` updates, along half a cosine.
-- @type CosineScheduler
local CosineScheduler = LRScheduler:extend("CosineScheduler")

local COSINE = args.form("lr_scheduler.CosineScheduler", {
  { "max_update", "integer" }, WARMUP[1], { "final_lr", "number", 0 }, WARMUP[2], WARMUP[3],
  WARMUP[4],
})

--- Reads the options max_update, base_lr = 0.01, final_lr = 0, and the base's.
function CosineScheduler:init(...)
  init_curve(self, CosineScheduler, COSINE(...))
end


function CosineScheduler:_rate(num_update)
  return curve_rate(self, num_update, function(done) return (1 + math.cos(math.pi * done)) / 2 end)
end


for _, class in ipairs{ LRScheduler, FactorScheduler, MultiFactorScheduler,
    PolyScheduler, CosineScheduler } do
  schedules[class.class_name] = class
  container.register(class, "lr_scheduler." .. class.class_name)
end

return namespace.close(methods.guard_all(schedules), "lr_scheduler", "schedule")
