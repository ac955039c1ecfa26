--- Computes histograms in the form that TensorBoard uses.
--
-- @module tycho.tensorboard.histogram

local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local ffi = require "ffi"
local values = require "tycho.core.values"

local histogram = {}


-- Returns the values as doubles in C memory, their number, and the array that owns the memory,
-- which the caller must keep referenced.
local function read_doubles(given, func)
  if class.is_array(given) then
    local x = given:as_in_context(context.cpu(0)):astype("float64")
    return x:data(), x.size, x
  elseif not values.is_plain(given) then
    Error.raise{ code = "type", func = func, argument = "values", got = Error.kind(given),
      expected = "an array or a list of numbers", message = "bad 'values'" }
  end
  local list = ffi.new("double[?]", #given + 1)
  for i, value in ipairs(given) do
    if type(value) ~= "number" then
      Error.raise{ code = "type", func = func, argument = ("values[%d]"):format(i),
        got = Error.kind(value), expected = "a number", message = "bad 'values'" }
    end
    list[i - 1] = value
  end
  return list, #given, list
end


--- Counts finite values in bins of equal width; NaN and infinities are left out.
-- @param given an array of any shape, or a list of numbers
-- @int bins number of bins
-- @string func for errors
-- @treturn table count, low, high, sum, squares, edges (upper ends of the bins), counts, left_out
function histogram.of(given, bins, func)
  local p, n, keep = read_doubles(given, func)
  local h = { count = 0, low = math.huge, high = -math.huge, sum = 0, squares = 0, edges = {},
    counts = {} }
  for i = 0, n - 1 do
    local v = p[i]
    if math.abs(v) < math.huge then
      h.count, h.sum, h.squares = h.count + 1, h.sum + v, h.squares + v * v
      h.low, h.high = math.min(h.low, v), math.max(h.high, v)
    end
  end
  h.left_out = n - h.count
  if h.count == 0 then
    h.low, h.high = 0, 0
  end
  bins = h.low < h.high and bins or 1
  local width = (h.high - h.low) / bins
  for i = 1, bins do
    h.edges[i], h.counts[i] = i == bins and h.high or h.low + i * width, 0
  end
  for i = 0, n - 1 do
    local v = p[i]
    if math.abs(v) < math.huge then
      local bin = width > 0 and math.min(bins, math.floor((v - h.low) / width) + 1) or 1
      h.counts[bin] = h.counts[bin] + 1
    end
  end
  return h, keep
end


return histogram
