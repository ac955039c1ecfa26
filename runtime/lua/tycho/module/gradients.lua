--- What `fit` does to gradients between backward and update: their mean over several batches, their
-- common length (not for users).
--
-- A part is `{copies, scale}` of one optimizer: for each parameter a list of gradients over
-- devices, whose sum is the gradient, and the factor by which the optimizer multiplies it.
-- Nothing here waits for a device.
--
-- @module tycho.module.gradients

local call = require "tycho.ndarray.call"
local nd = require "tycho.ndarray"

local gradients = {}


local function each(parts, f)
  for _, part in ipairs(parts) do
    for _, copies in ipairs(part[1]) do
      for _, g in ipairs(copies) do
        f(g)
      end
    end
  end
end


--- Multiplies all gradients by a number.
function gradients.scale(parts, factor)
  each(parts, function(g) g:mul_(factor) end)
end


--- Makes all gradients 0.
function gradients.clear(parts)
  each(parts, function(g) call.fill(g, 0, "Module:fit") end)
end


-- The square of a gradient's length, one float32 element on a context.
local function square(copies, ctx)
  local sum = copies[1]
  for i = 2, #copies do
    sum = sum + copies[i]:as_in_context(sum.context)
  end
  return sum:astype("float32"):square():sum():as_in_context(ctx)
end


--- Makes all gradients together, as the optimizers take them, no longer than a limit.
-- @tparam table parts
-- @number limit length of all parameters' gradients as one vector
function gradients.clip(parts, limit)
  local total, ctx
  for _, part in ipairs(parts) do
    for _, copies in ipairs(part[1]) do
      ctx = ctx or copies[1].context
      local own = square(copies, ctx) * part[2] ^ 2
      total = total and total + own or own
    end
  end
  if total then
    local factor = nd.minimum(limit / total:sqrt(), 1)
    each(parts, function(g) g:mul_(factor:as_in_context(g.context):astype(g.dtype)) end)
  end
end


return gradients
