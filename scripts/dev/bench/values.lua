--- Values of the benchmark, equal in all systems: a table of numbers in [0, 1), read cyclically
-- from a position that depends on the array's name. peer_common.py is the same in Python.
local ffi = require "ffi"
local ty = require "tycho"

local values = {}

local COUNT = 65521
local numbers = ffi.new("double[?]", COUNT)
do
  local x = 20011
  for i = 0, COUNT - 1 do
    x = x * 16807 % 2147483647
    numbers[i] = x / 2147483647
  end
end

local function compute_place(name)
  local place = 0
  for i = 1, #name do place = (place * 131 + name:byte(i)) % COUNT end
  return place
end

-- The table of (number - shift) * scale in float32. Only the last one is kept, since memory is
-- measured too.
local floats, last_scale, last_shift = ffi.new("float[?]", COUNT), nil, nil
local function circle(scale, shift)
  if scale ~= last_scale or shift ~= last_shift then
    for i = 0, COUNT - 1 do floats[i] = (numbers[i] - shift) * scale end
    last_scale, last_shift = scale, shift
  end
  return floats
end

-- Writes out[i] = (number i of `name` - shift) * scale; out is float memory.
local function write(out, name, n, scale, shift)
  local from, place, done = circle(scale, shift), compute_place(name), 0
  while done < n do
    local some = math.min(n - done, COUNT - place)
    ffi.copy(out + done, from + place, some * 4)
    done, place = done + some, 0
  end
end

local function floor(out, n)
  for i = 0, n - 1 do out[i] = math.floor(out[i]) end
end
jit.off(floor)

-- Fills x with f, which gets the elements in CPU memory, even if the array is elsewhere.
local function fill(x, f)
  local here = x.context.device_type == "gpu" and x:copyto(ty.cpu(0)) or x
  f(here:data())
  if here ~= x then here:copyto(x) end
  return x
end

local function uniform(x, name, scale, shift)
  return fill(x, function(p) write(p, name, x.size, scale, shift) end)
end

--- Fills a weight: uniform, with the variance that keeps relu's; within 0.1 in a language model;
-- scales with 1; all others with 0.
function values.parameter(x, name)
  if name:find("_gamma$") or name:find("_moving_var$") then
    x[":"] = 1
  elseif name:find("_bias$") or name:find("_beta$") or name:find("_moving_mean$")
      or name:find("begin_state") then
    x[":"] = 0
  elseif name:find("^embed") or name:find("^l%d") or name:find("^pred") then
    uniform(x, name, 0.2, 0.5)
  else
    uniform(x, name, math.sqrt(24 * x.shape[1] / x.size), 0.5)
  end
  return x
end

--- Returns the parameter vector of a fused operator with several layers: their weights, then their
-- biases.
function values.lstm(x, layers, units, first)
  return fill(x, function(p)
    local at = 0
    for l = first or 0, (first or 0) + layers - 1 do
      for _, gate in ipairs{"i2h", "h2h"} do
        write(p + at, ("l%d_%s_weight"):format(l, gate), 4 * units * units, 0.2, 0.5)
        at = at + 4 * units * units
      end
    end
    ffi.fill(p + at, (x.size - at) * 4)
  end)
end

function values.images(shape) return uniform(ty.nd.zeros(shape), "data", math.sqrt(12), 0.5) end

--- Returns an array of numbers around 0.
function values.around(shape, name) return uniform(ty.nd.zeros(shape), name, 1, 0.5) end

--- Returns whole numbers below `classes`, as floats.
function values.labels(name, shape, classes)
  local x = uniform(ty.nd.zeros(shape), name, classes, 0)
  return fill(x, function(p) floor(p, x.size) end)
end

return values
