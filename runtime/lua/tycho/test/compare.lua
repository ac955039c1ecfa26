--- Comparison of arrays with tolerances by element type (part of `ty.test_utils`).
--
-- @module tycho.test.compare

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local inputs = require "tycho.test.inputs"

local is_array = class.is_array

local compare = {}

--- Default relative and absolute tolerances by element type.
compare.default_rtols = { float16 = 1e-2, bfloat16 = 1e-2, float32 = 1e-4, float64 = 1e-5,
  int8 = 0, uint8 = 0, int32 = 0, int64 = 0, bool = 0 }
compare.default_atols = { float16 = 1e-1, bfloat16 = 1e-1, float32 = 1e-3, float64 = 1e-20,
  int8 = 0, uint8 = 0, int32 = 0, int64 = 0, bool = 0 }


-- Returns the larger of the tolerances of two arrays' element types.
local function loosest(a, b, by_dtype)
  local s = is_array(a) and a.dtype or "float32"
  local t = is_array(b) and b.dtype or "float32"
  return math.max(by_dtype[s], by_dtype[t])
end


-- Returns the position (from 0) of an element by its number i (from 1).
local function position(i, shape)
  local at = {}
  i = i - 1
  for d = #shape, 1, -1 do
    at[d] = i % shape[d]
    i = math.floor(i / shape[d])
  end
  return at
end


-- Returns how far a is from b as a multiple of the tolerance; above 1 the comparison fails.
local function violation(a, b, rtol, atol, equal_nan)
  if a == b or equal_nan and a ~= a and b ~= b then
    return 0
  elseif a ~= a or b ~= b or math.abs(a) == math.huge or math.abs(b) == math.huge then
    return math.huge
  end
  local difference, tolerance = math.abs(a - b), atol + rtol * math.abs(b)
  return tolerance > 0 and difference / tolerance or difference > 0 and math.huge or 0
end


local COMPARE = {
  { "a", "any" }, { "b", "any" }, "*", { "rtol", "number?" }, { "atol", "number?" },
  { "names", "list", { "a", "b" } }, { "equal_nan", "boolean", false },
}

-- Returns the worst element, {at, value, a, b}; or nil and why the shapes do not match.
local function worst(given, func)
  local rtol = given.rtol or loosest(given.a, given.b, compare.default_rtols)
  local atol = given.atol or loosest(given.a, given.b, compare.default_atols)
  local a, b = inputs.as_array(given.a, "float64", func), inputs.as_array(given.b, "float64", func)
  if Error.show(a._shape) ~= Error.show(b._shape) then
    return nil, ("shapes differ: %s and %s"):format(Error.show(a._shape), Error.show(b._shape))
  end
  local p, q, found = inputs.flat(a, func), inputs.flat(b, func), { value = -1 }
  for i = 1, #p do
    local v = violation(p[i], q[i], rtol, atol, given.equal_nan)
    if v > found.value then
      found = { at = position(i, a._shape), value = v, a = p[i], b = q[i] }
    end
  end
  found.rtol, found.atol = rtol, atol
  return found
end


local function describe(found, why, names)
  if not found then
    return why
  end
  return ("%s and %s differ most at (%s): %.9g and %.9g, \z
    %.3g times the tolerance (rtol %g, atol %g)"):format(names[1], names[2],
    table.concat(found.at, ", "), found.a, found.b, found.value, found.rtol, found.atol)
end


local ALMOST = args.form("test_utils.almost_equal", COMPARE)

--- Returns whether |a - b| <= atol + rtol |b| everywhere.
-- @tparam[opt] table options rtol, atol (default: by element type), equal_nan = false
function compare.almost_equal(...)
  local found = worst(ALMOST(...), "test_utils.almost_equal")
  return found ~= nil and found.value <= 1
end


local ASSERT = args.form("test_utils.assert_almost_equal", COMPARE)

--- Raises an error that shows the worst element, unless `almost_equal` is true.
-- @tparam[opt] table options rtol, atol, names = {"a", "b"}, equal_nan = false
function compare.assert_almost_equal(...)
  local given = ASSERT(...)
  local found, why = worst(given, "test_utils.assert_almost_equal")
  if not found or found.value > 1 then
    error(describe(found, why, given.names), 2)
  end
end


local VIOLATION = args.form("test_utils.find_max_violation", COMPARE)

--- Returns the position of the worst element and how far it is off.
-- @treturn {int,...} its position, from 0
-- @treturn number its difference as a multiple of the tolerance
function compare.find_max_violation(...)
  local found, why = worst(VIOLATION(...), "test_utils.find_max_violation")
  if not found then
    error(why, 2)
  end
  return found.at, found.value
end


local SAME = args.form("test_utils.same", { { "a", "any" }, { "b", "any" } })

--- Returns whether shapes and all elements are equal.
function compare.same(...)
  local given = SAME(...)
  given.rtol, given.atol = 0, 0
  local found = worst(given, "test_utils.same")
  return found ~= nil and found.value == 0
end


local SAME_ARRAY = args.form("test_utils.same_array", { { "a", "array" }, { "b", "array" } })

--- Returns whether two arrays share memory, so that writing to one changes the other.
function compare.same_array(...)
  local given = SAME_ARRAY(...)
  local a, b = given.a, given.b
  local before = inputs.flat(b, "test_utils.same_array")
  if not compare.same(a:reshape{ -1 }, before) then
    return false
  end
  a:add_(1)
  local after = inputs.flat(b, "test_utils.same_array")
  a:sub_(1)
  for i = 1, #before do
    if after[i] ~= before[i] + 1 then
      return false
    end
  end
  return true
end


return compare
