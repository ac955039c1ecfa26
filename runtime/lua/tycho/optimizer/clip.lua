--- Limits to gradients: `ty.optimizer.clip_global_norm`.
--
-- @module tycho.optimizer.clip

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local nd = require "tycho.ndarray"
local null = require("tycho.core.values").null

local clip = {}


--- Returns the square of an array's length, one float32 element on a context (not for users).
function clip.square(x, ctx)
  return x:astype("float32"):square():sum():as_in_context(ctx)
end


--- Returns the factor that limits the norm of vectors: an array of one element, at most 1 (not for
-- users).
-- @tparam NDArray square of the length
-- @number limit
function clip.factor(square, limit)
  return nd.minimum(limit / square:sqrt(), 1)
end


--- Multiplies an array by one element, which may be on another device (not for users).
function clip.scale(x, factor)
  return x:mul_(factor:as_in_context(x.context):astype(x.dtype))
end


--- Raises E(value) for a limit that is not a positive number (not for users).
-- @number limit
-- @string func for errors
function clip.check_limit(limit, func)
  if limit <= 0 then
    Error.raise{ code = "value", func = func, argument = "max_norm", expected = "a number above 0",
      got = limit, message = "bad 'max_norm'" }
  end
end


local FUNC = "optimizer.clip_global_norm"

local FORM = args.form(FUNC, {
  list = true, { "arrays", "list" }, { "max_norm", "number" },
  { "check_isfinite", "boolean", true },
})


-- Returns the arrays, without entries that are `ty.null`.
local function list_arrays(a)
  local list = {}
  for i, x in ipairs(a.arrays) do
    if not class.is_array(x) and x ~= null then
      Error.raise{ code = "type", func = FUNC, argument = "arrays", expected = "NDArrays",
        got = Error.kind(x), message = ("entry %d is no array"):format(i) }
    end
    list[#list + 1] = x ~= null and x or nil
  end
  if #list == 0 then
    Error.raise{ code = "value", func = FUNC, argument = "arrays", expected = "one array at least",
      got = "none", message = "there is nothing to clip" }
  end
  return list
end


--- Scales arrays in place, all by one factor, so that the L2 norm of all elements together is at
-- most a limit.
-- @tparam {NDArray,...} arrays
-- @number max_norm
-- @tparam[opt] table options check_isfinite = true: waits for the norm, and warns if it is infinite
--   or NaN
-- @return the norm before: a number, or an array of one element without `check_isfinite`
function clip.clip_global_norm(...)
  local a = FORM(...)
  clip.check_limit(a.max_norm, FUNC)
  local arrays, square = list_arrays(a), nil
  for _, x in ipairs(arrays) do
    local own = clip.square(x, arrays[1].context)
    square = square and square + own or own
  end
  local length, factor = square:sqrt(), clip.factor(square, a.max_norm)
  for _, x in ipairs(arrays) do
    clip.scale(x, factor)
  end
  if not a.check_isfinite then
    return length
  end
  local number = length:asscalar()
  if number - number ~= 0 then
    log:warning(("%s: the length of the arrays is %s; what is made of them means nothing")
      :format(FUNC, tostring(number)))
  end
  return number
end


return clip
