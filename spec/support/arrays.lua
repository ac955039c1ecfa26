-- Arrays as plain numbers, for comparisons: bytes, flat doubles, differences, checksums.

local bit = require "bit"
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local ty = require "tycho"

local C, check = native.C, native.check
local arrays = {}

--- Returns all elements as text, separated by blanks.
function arrays.text(x)
  return table.concat(x:reshape{ -1 }:totable(), " ")
end

local CTYPES = {
  float32 = "float", float64 = "double", float16 = "uint16_t", bfloat16 = "uint16_t",
  uint8 = "uint8_t", int8 = "int8_t", int32 = "int32_t", int64 = "int64_t", bool = "uint8_t",
}

local function half(bits)
  local sign = bit.band(bits, 0x8000) ~= 0 and -1 or 1
  local exponent, fraction = bit.band(bit.rshift(bits, 10), 31), bit.band(bits, 1023)
  if exponent == 31 then
    return fraction == 0 and sign * math.huge or 0 / 0
  elseif exponent == 0 then
    return sign * fraction * 2 ^ -24
  end
  return sign * (1 + fraction / 1024) * 2 ^ (exponent - 15)
end

local word = ffi.new("union { uint32_t bits; float value; }")

local function brain(bits)
  word.bits = bit.lshift(bits, 16)
  return word.value
end

local DECODE = { float16 = half, bfloat16 = brain }

-- Returns the array's elements in C memory, their number and their bytes; the caller must keep the
-- buffer referenced.
local function raw(x)
  local n = 1
  for _, d in ipairs(x.shape) do
    n = n * d
  end
  local ctype = CTYPES[x.dtype] or error("no such dtype: " .. tostring(x.dtype))
  local buffer = ffi.new(ctype .. "[?]", math.max(n, 1))
  if n > 0 then
    check(C.ty_tensor_read(x.handle, buffer, n * ffi.sizeof(ctype)), "spec")
  end
  return buffer, n, n * ffi.sizeof(ctype)
end

--- Returns the array's bytes, row-major.
function arrays.bytes(x)
  local buffer, _, bytes = raw(x)
  return ffi.string(buffer, bytes)
end

--- Returns the elements as C doubles (floats for float32), and their number. Indices count from 0.
function arrays.numbers(x)
  local buffer, n = raw(x)
  local decode = DECODE[x.dtype]
  if decode then
    local values = ffi.new("double[?]", math.max(n, 1))
    for i = 0, n - 1 do
      values[i] = decode(buffer[i])
    end
    return values, n
  end
  return buffer, n
end

function arrays.shape_text(shape)
  return "(" .. table.concat(shape, ", ") .. ")"
end

local function is_array(x)
  return type(x) == "table" and not not getmetatable(x)
end

-- Returns nested tables or an array as a flat Lua list and its shape.
local function flatten(x)
  local flat, shape = {}, {}
  if is_array(x) then
    local values, n = arrays.numbers(x)
    for i = 1, n do
      flat[i] = tonumber(values[i - 1])
    end
    return flat, x.shape
  end
  local function walk(v, depth)
    if type(v) ~= "table" then
      flat[#flat + 1] = v
      return
    end
    shape[depth] = shape[depth] or #v
    for i = 1, #v do
      walk(v[i], depth + 1)
    end
  end
  walk(x, 1)
  return flat, shape
end

local function close(got, want, atol, rtol)
  if got == want or (got ~= got and want ~= want) then
    return true
  end
  return math.abs(got - want) <= atol + rtol * math.abs(want)
end

-- Returns the index of element i (from 0) of a row-major array as text: "(1, 2)".
local function place(i, shape)
  local at = {}
  for axis = #shape, 1, -1 do
    at[axis] = i % shape[axis]
    i = math.floor(i / shape[axis])
  end
  return arrays.shape_text(at)
end

-- Returns the worst of n elements as text; nil if all are close. A value of another kind (NaN,
-- infinity) is worse than any other.
local function worst(got, want, n, shape, atol, rtol)
  local at, most, wrong = nil, -1, 0
  for i = 0, n - 1 do
    local g, w = tonumber(got[i]), tonumber(want[i])
    if not close(g, w, atol, rtol) then
      local excess = math.abs(g - w) / (atol + rtol * math.abs(w))
      wrong = wrong + 1
      if excess ~= excess or excess > most then
        at, most = i, excess == excess and excess or math.huge
      end
    end
  end
  if not at then
    return nil
  end
  return ("%d of %d elements differ; worst at %s: got %.9g, want %.9g (allowed %.3g)"):format(wrong,
    n, place(at, shape), tonumber(got[at]), tonumber(want[at]),
    atol + rtol * math.abs(tonumber(want[at])))
end

--- Returns a flat list of the array's numbers, and its shape.
function arrays.list(x)
  x = x:astype("float64")
  local p, t = x:data(), {shape = x.shape}
  for i = 1, x.size do t[i] = p[i - 1] end
  return t
end

--- Returns an array of numbers from -1 to 1, equal in every run, and a pointer to them. They are
-- written at once, since a separate write to an array on a GPU is a separate copy.
function arrays.noise(shape, seed, dtype)
  local list, n, size = {}, seed or 1, 1
  for _, d in ipairs(shape) do
    size = size * d
  end
  for i = 1, size do
    n = (n * 16807) % 2147483647
    list[i] = n / 1073741823 - 1
  end
  local x = ty.nd.array(list, {dtype = dtype or "float64"}):reshape(shape)
  return x, x:data()
end

--- Returns the difference of two arrays, nested tables or numbers as text; nil if they agree.
-- @param got, want the values to compare
-- @number atol, rtol |got - want| <= atol + rtol * |want|
function arrays.difference(got, want, atol, rtol)
  if type(got) ~= "table" and type(want) ~= "table" then
    got, want = { got }, { want }
  elseif type(got) ~= "table" or type(want) ~= "table" then
    return ("got %s, want %s"):format(tostring(got), tostring(want))
  end
  local g, gs = flatten(got)
  local w, ws = flatten(want)
  if #g ~= #w or is_array(got) and is_array(want)
      and arrays.shape_text(gs) ~= arrays.shape_text(ws) then
    return ("got shape %s, want %s"):format(arrays.shape_text(gs), arrays.shape_text(ws))
  end
  for i = 1, #w do
    if type(g[i]) ~= "number" or type(w[i]) ~= "number" then
      if g[i] ~= w[i] then
        return ("element %d: got %s, want %s"):format(i, tostring(g[i]), tostring(w[i]))
      end
      g[i], w[i] = 0, 0
    end
  end
  g[0], w[0] = table.remove(g, 1), table.remove(w, 1)
  return worst(g, w, #w + (w[0] ~= nil and 1 or 0), is_array(want) and ws or gs, atol, rtol)
end

--- Returns how an array differs from a recorded one in shape, dtype or values; nil if they agree.
function arrays.mismatch(got, want, rtol, atol)
  if not is_array(got) then
    return "got no array but " .. tostring(got)
  elseif arrays.shape_text(got.shape) ~= arrays.shape_text(want.shape) then
    return ("got shape %s, want %s"):format(arrays.shape_text(got.shape),
      arrays.shape_text(want.shape))
  elseif got.dtype ~= want.dtype then
    return ("got dtype %s, want %s"):format(got.dtype, want.dtype)
  end
  local w, n = arrays.numbers(want)
  return worst(arrays.numbers(got), w, n, want.shape, atol, rtol)
end

-- -- SHA-256 (FIPS 180-4) -------------------------------------------------------------------------

local ROUND = ffi.new("int32_t[64]")
local START = {}

-- Computes the constants: the first 32 bits of the fractional parts of cube and square roots of the
-- first primes.
local function fill_constants()
  local found, candidate = 0, 2
  while found < 64 do
    local prime = true
    for d = 2, math.floor(math.sqrt(candidate)) do
      prime = prime and candidate % d ~= 0
    end
    if prime then
      local root = candidate ^ (1 / 3)
      -- one Newton step gives the last bit
      root = root - (root ^ 3 - candidate) / (3 * root ^ 2)
      ROUND[found] = bit.tobit(math.floor(root % 1 * 2 ^ 32))
      if found < 8 then
        START[found + 1] = bit.tobit(math.floor(math.sqrt(candidate) % 1 * 2 ^ 32))
      end
      found = found + 1
    end
    candidate = candidate + 1
  end
end
fill_constants()

local function padded(text)
  local bits = #text * 8
  local tail = {}
  for i = 1, 8 do
    tail[9 - i] = string.char(bits % 256)
    bits = math.floor(bits / 256)
  end
  return text .. "\128" .. ("\0"):rep((55 - #text) % 64) .. table.concat(tail)
end

local w = ffi.new("int32_t[64]")

local function expand(bytes, at)
  local rol, bxor, shr = bit.ror, bit.bxor, bit.rshift
  for i = 0, 15 do
    local p = at + i * 4
    w[i] = bit.bor(bit.lshift(bytes[p], 24), bit.lshift(bytes[p + 1], 16),
      bit.lshift(bytes[p + 2], 8), bytes[p + 3])
  end
  for i = 16, 63 do
    local a, b = w[i - 15], w[i - 2]
    w[i] = bit.tobit(w[i - 16] + bxor(rol(a, 7), rol(a, 18), shr(a, 3)) + w[i - 7]
      + bxor(rol(b, 17), rol(b, 19), shr(b, 10)))
  end
end

local function compress(h)
  local ror, bxor, band, bnot, tobit = bit.ror, bit.bxor, bit.band, bit.bnot, bit.tobit
  local a, b, c, d, e, f, g, k = unpack(h)
  for i = 0, 63 do
    local t1 = tobit(k + bxor(ror(e, 6), ror(e, 11), ror(e, 25))
      + bxor(band(e, f), band(bnot(e), g)) + ROUND[i] + w[i])
    local t2 =
      tobit(bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + bxor(band(a, b), band(a, c), band(b, c)))
    k, g, f, e, d, c, b, a = g, f, e, tobit(d + t1), c, b, a, tobit(t1 + t2)
  end
  for i, v in ipairs{ a, b, c, d, e, f, g, k } do
    h[i] = tobit(h[i] + v)
  end
end

--- Returns the SHA-256 of a text, as 64 hexadecimal digits.
function arrays.sha256(text)
  local h = { unpack(START) }
  text = padded(text)
  local bytes = ffi.cast("const uint8_t *", text)
  for at = 0, #text - 1, 64 do
    expand(bytes, at)
    compress(h)
  end
  for i = 1, 8 do
    h[i] = bit.tohex(h[i])
  end
  return table.concat(h)
end

return arrays
