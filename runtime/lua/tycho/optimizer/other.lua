--- SGLD, DCASGD, Test; see `optimizer/init.lua`.
--
-- @module tycho.optimizer.other

local args = require "tycho.core.args"
local base = require "tycho.optimizer.base"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local random = require "tycho.ndarray.seed"
local values = require "tycho.core.values"

local kinds = {}


--- Langevin dynamics: w -= lr / 2 (d + wd w), plus normal noise of standard deviation
-- sqrt(lr); d is the rescaled and clipped gradient.
kinds.SGLD = base.kind("SGLD", {})
kinds.SGLD.state_arrays = 0

function kinds.SGLD:update(index, weight, grad)
  self:_update_count(index)
  local lr, wd = self:_get_lr(index), self:_get_wd(index)
  local step = base.gradient(self, grad):add_(weight * wd):mul_(lr / 2)
  local noise = random.normal{ loc = 0, scale = math.sqrt(lr), shape = weight.shape,
    dtype = weight.dtype, ctx = weight.context }
  weight:sub_(step):add_(noise)
end


--- SGD for delayed gradients: w -= lr (d + wd w + lamda d^2 (w - the weight before)). Options
-- momentum = 0 (other values are an error), lamda = 0.04.
kinds.DCASGD = base.kind("DCASGD", { { "momentum", "number", 0 }, { "lamda", "number", 0.04 } })
kinds.DCASGD.state_arrays = 1

function kinds.DCASGD:create_state(_, weight)
  if self.momentum ~= 0 then
    Error.raise{ code = "value", func = "DCASGD", argument = "momentum", expected = 0,
      got = self.momentum, message = "DCASGD works without momentum only" }
  end
  return { values.null, weight:copy() }
end

function kinds.DCASGD:update(index, weight, grad, state)
  self:_update_count(index)
  local lr, wd = self:_get_lr(index), self:_get_wd(index)
  local d, previous = base.gradient(self, grad), state[2]
  local step = (d * d):mul_(weight - previous):mul_(self.lamda):add_(d):add_(weight * wd):mul_(lr)
  call.copy(previous, weight, "DCASGD:update")
  weight:sub_(step)
end


--- For tests: w += rescaled gradient; the state is a copy of the weight in float32.
kinds.Test = base.kind("Test", {})
kinds.Test.state_arrays = 1

function kinds.Test.create_state(_, _, weight)
  return call.fill(class.new(weight._shape, args.DTYPES.float32, weight._device, "Test"), 0, "Test")
end

function kinds.Test:update(_, weight, grad, state)
  weight:add_(grad * self.rescale_grad)
  call.copy(state, weight, "Test:update")
end


return kinds
