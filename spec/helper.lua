-- What every spec uses: the engine, loaded once, and assertions on arrays and error objects.
--
--   assert.near(want, got, atol = 1e-6, rtol = 0)   numbers, nested tables or arrays
--   assert.shape({2, 3}, x)
--   local e = assert.raises("shape", f, ...)      f raises an error object with this code; returned
--
-- A spec that needs a device or a file that is not there says so with `pending("why")` inside
-- `it`; the report counts it as skipped and prints the reason. Names of long tests carry
-- #slow, those that need a GPU #gpu.

local assert = require "luassert"
local say = require "say"
local ty = require "tycho"
local arrays = require "spec.support.arrays"

require("spec.support.device").enter()

local function near(_, arguments)
  local want, got, atol, rtol = arguments[1], arguments[2], arguments[3] or 1e-6, arguments[4] or 0
  local difference = arrays.difference(got, want, atol, rtol)
  arguments[1] = difference or "equal"
  return difference == nil
end

local function shape(_, arguments)
  local want, got = arrays.shape_text(arguments[1]), arrays.shape_text(arguments[2].shape)
  arguments[1], arguments[2] = want, got
  return want == got
end

local function raises(_, arguments)
  local code, f = arguments[1], arguments[2]
  local ok, e = pcall(f, unpack(arguments, 3, arguments.n))
  local right = not ok and ty.is_error(e) and e.code == code
  arguments[1], arguments[2] = code, ok and "no error" or tostring(e)
  return right, { e }
end

say:set("assertion.near.positive", "%s")
say:set("assertion.shape.positive", "shape: want %s, got %s")
say:set("assertion.raises.positive", "want an error of code %s, got: %s")
assert:register("assertion", "near", near, "assertion.near.positive")
assert:register("assertion", "shape", shape, "assertion.shape.positive")
assert:register("assertion", "raises", raises, "assertion.raises.positive")
