-- Runs scripts that compute the same on the CPU and on the stand-in for a GPU, whose checker
-- observes every access.

local assert = require "luassert"
local stand_in = require "spec.support.stand_in"

local devices = {}

--- What a script begins with: `compare(name, f)` prints "equal" where f(context) returns arrays of
--- the same numbers for both devices; `all(arrays)` is one array of what several hold; `pattern`
--- an array of numbers from -1 to 1.7 in no order, `farthest` how far lists of arrays are apart.
devices.SCRIPT = [[
local ty = require "tycho"
local here, there = ty.cpu(0), ty.gpu(0)

local function numbers(f, ctx)
  ty.random.seed(7)
  return f(ctx):as_in_context(here):astype("float64"):reshape{-1}:totable()
end

local function compare(name, f)
  local a, b = numbers(f, here), numbers(f, there)
  local different = #a
  for i = 1, #a do
    different = different - (a[i] == b[i] and 1 or 0)
  end
  print(name, different == 0 and #a == #b and "equal" or "different: " .. different)
end

local function pattern(shape, ctx, dtype)
  local n, values = 1, {}
  for _, d in ipairs(shape) do
    n = n * d
  end
  for i = 1, n do
    values[i] = (i * 7919 % 101) / 37 - 1
  end
  return ty.nd.array{values, ctx = here}:reshape(shape):astype(dtype):as_in_context(ctx)
end

-- Returns the largest difference of two lists of arrays, as a share of the largest element of its
-- array.
local function farthest(mine, theirs)
  local worst = 0
  for i, a in ipairs(mine) do
    a = a:astype("float64")
    local b = theirs[i]:as_in_context(here):astype("float64")
    local far = ty.nd.abs(a - b):max():asscalar() / (ty.nd.abs(a):max():asscalar() + 1e-3)
    worst = far <= worst and worst or far  -- NaN stays
  end
  return worst
end

local function all(arrays)
  local parts = {dim = 0}
  for i, y in ipairs(arrays) do
    parts[i] = y:as_in_context(here):astype("float64"):reshape{-1}
  end
  return ty.nd.concat(parts)
end
]]

--- The same, and `costs()`: a line for each launch since the last call.
devices.COSTS = devices.SCRIPT .. [[
local ffi = require "ffi"
ffi.cdef "const char *cudasim_costs(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local function costs() return ffi.string(driver.cudasim_costs()) end
]]

--- Runs a script; n lines have to say "equal", none "different". Returns what it printed; nil,
--- and busted's `pending` is called, where there is no stand-in. settings: further variables.
function devices.agree(pending, script, n, settings)
  if not stand_in.exists() then
    pending("no build/cudasim: make cudasim")
    return
  end
  local all = { CUDASIM_CHECK = "1", CUDASIM_COSTS = "1" }
  for name, value in pairs(settings or {}) do
    all[name] = value
  end
  local text, status = stand_in.run(script, all)
  local _, equal = text:gsub("\tequal", "")
  assert.equal(0, status, text)
  assert.equal(n, equal, text)
  assert.is_nil(text:match("different"), text)
  return text
end

return devices
