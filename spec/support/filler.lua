-- Weights by formula (networks/README.md in the folder of the recorded cases): every value follows
-- from a name and an element number. All computations use integers below 2^53, so doubles are
-- exact; float32 results are rounded once.

local ffi = require "ffi"
local native = require "tycho.core.ffi"

local M = 67108859
local filler = {}

-- Returns a mod M; the quotient may be off by one, so the remainder is corrected.
local function mod(a)
  local r = a - math.floor(a / M) * M
  if r < 0 then
    return r + M
  elseif r >= M then
    return r - M
  end
  return r
end

function filler.hash(name)
  local h = 0
  for i = 1, #name do
    h = mod(h * 257 + name:byte(i))
  end
  return h
end

--- Returns the integer w of element i (from 0) under hash h.
function filler.word(h, i)
  local u = mod(i * 40503 + h)
  local v = mod(u * u + i)
  return mod(v * v + u)
end

local function put_uniform(out, n, h, fill)
  local a, b = fill.offset, fill.scale
  for i = 0, n - 1 do
    out[i] = a + b * (2 * (filler.word(h, i) / M) - 1)
  end
end

local function put_integer(out, n, h, fill)
  for i = 0, n - 1 do
    out[i] = fill.low + math.floor(filler.word(h, i) / M * fill.count)
  end
end

local function put_values(out, n, _, fill)
  for i = 0, n - 1 do
    out[i] = fill.values[i + 1]
  end
end

local KINDS = { uniform = put_uniform, integer = put_integer, values = put_values }

--- Returns n floats (C memory) for a variable.
function filler.floats(name, n, fill)
  local out = ffi.new("float[?]", math.max(n, 1))
  KINDS[fill.kind](out, n, filler.hash(fill.key or name), fill)
  return out
end

--- Fills a float32 array.
function filler.fill(x, name, fill)
  local n = x.size
  native.check(native.C.ty_tensor_write(x.handle, filler.floats(name, n, fill), 4 * n), "spec")
end

return filler
