--- Changes of gradients between backward and update in `fit`: their mean over several batches, and
-- a limit of their norm (not for users).
--
-- A part is `{copies, scale}` of one optimizer: for each parameter a list of gradients over
-- devices, whose sum is the gradient, and the factor by which the optimizer multiplies it. These
-- functions do not wait for a device.
--
-- @module tycho.module.gradients

local call = require "tycho.ndarray.call"
local clip = require "tycho.optimizer.clip"

local gradients = {}


-- Calls f(gradient, x) for the gradients of all parts on all devices.
local function each(parts, f, x)
  for _, part in ipairs(parts) do
    for _, copies in ipairs(part[1]) do
      for _, g in ipairs(copies) do
        f(g, x)
      end
    end
  end
end


local function multiply(g, factor)
  g:mul_(factor)
end


--- Multiplies all gradients by a number.
function gradients.scale(parts, factor)
  each(parts, multiply, factor)
end


local function clear(g)
  call.fill(g, 0, "Module:fit")
end


--- Sets all gradients to 0.
function gradients.clear(parts)
  each(parts, clear)
end


-- Returns the sum of a gradient's parts on all devices.
local function compute_sum(copies)
  local sum = copies[1]
  for i = 2, #copies do
    sum = sum + copies[i]:as_in_context(sum.context)
  end
  return sum
end


--- Scales all gradients, as the optimizers receive them, so that the norm of all together is at
-- most a limit.
-- @tparam table parts
-- @number limit greatest norm of all parameters' gradients as one vector
-- @treturn ?NDArray their norm before, one element; nil if there are no gradients
function gradients.clip(parts, limit)
  local total, ctx
  for _, part in ipairs(parts) do
    for _, copies in ipairs(part[1]) do
      ctx = ctx or copies[1].context
      local own = clip.square(compute_sum(copies), ctx) * part[2] ^ 2
      total = total and total + own or own
    end
  end
  if total then
    local factor = clip.factor(total, limit)
    each(parts, clip.scale, factor)
    return total:sqrt()
  end
end


return gradients
