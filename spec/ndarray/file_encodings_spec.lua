-- Elements as other engines' files have them (native/tensor/file_encodings.c).

local bit = require "bit"
local files = require "tycho.ndarray.file_arrays"
require "tycho.ndarray"                                  -- the class of arrays is complete then

local band, rshift = bit.band, bit.rshift

local function array(bytes, dtype, shape, more)
  local t = { at = 0, shape = shape, dtype = dtype }
  for key, value in pairs(more or {}) do
    t[key] = value
  end
  return files.copy(bytes, #bytes, "the bytes", "spec"):array(t)
end

local function values(bytes, dtype, n, more)
  local x = array(bytes, dtype, { n }, more)
  return x:totable(), x.dtype
end

describe("integers of a file", function()
  local rows = {
    { "int16", "\255\255\0\128\57\48", { -1, -32768, 12345 }, "int32" },
    { "uint16", "\255\255\0\128\57\48", { 65535, 32768, 12345 }, "int32" },
    { "long32", "\255\255\255\255\1\0\0\128", { -1, -2147483647 }, "int64" },
    { "uint32", "\255\255\255\255\1\0\0\128", { 4294967295, 2147483649 }, "int64" },
    { "uint64", "\1\0\0\0\0\1\0\0", { 2 ^ 40 + 1 }, "int64" },
  }
  for _, row in ipairs(rows) do
    it("are widened: " .. row[1], function()
      local got, dtype = values(row[2], row[1], #row[3])
      assert.same(row[3], got)
      assert.equal(row[4], dtype)
      local size = #row[2] / #row[3]
      local swapped = row[2]:gsub(("."):rep(size), string.reverse)
      assert.same(row[3], (values(swapped, row[1], #row[3], { swapped = true })))
      local n = #row[3]
      local backward = {}
      for i = n, 1, -1 do
        backward[#backward + 1] = row[3][i]
      end
      assert.same(backward, (values(row[2], row[1], n, { at = #row[2] - size, strides = { -1 } })))
    end)
  end

  it("that int64 cannot hold are an error of the read", function()
    local x = array(("\0"):rep(7) .. "\128", "uint64", { 1 })
    local e = assert.raises("value", x.totable, x)
    assert.truthy(e.message:find("9223372036854775808", 1, true))
  end)

  it("have the dtype that their encoding gives", function()
    assert.equal("int32", files.dtype_of("uint16"))
    assert.equal("float32", files.dtype_of("float32"))
    assert.is_nil(files.dtype_of("complex64"))
  end)
end)

-- Returns the value of an 8-bit float's bits.
local function float8(byte, exponent_bits, bias)
  local mantissa_bits = 7 - exponent_bits
  local sign = byte >= 128 and -1 or 1
  local exponent = rshift(band(byte, 127), mantissa_bits)
  local mantissa = band(byte, 2 ^ mantissa_bits - 1) / 2 ^ mantissa_bits
  if exponent == 0 then
    return sign * mantissa * 2 ^ (1 - bias)
  end
  return sign * (1 + mantissa) * 2 ^ (exponent - bias)
end

describe("8-bit floats of a file", function()
  local all = {}
  for byte = 0, 255 do
    all[byte + 1] = string.char(byte)
  end
  all = table.concat(all)

  it("with 4 bits of exponent have one NaN and no infinity", function()
    local got = values(all, "e4m3", 256)
    for byte = 0, 255 do
      if band(byte, 127) == 127 then
        assert.is_true(got[byte + 1] ~= got[byte + 1])
      else
        assert.equal(float8(byte, 4, 7), got[byte + 1])
      end
    end
  end)

  it("with 5 bits of exponent have both", function()
    local got = values(all, "e5m2", 256)
    for byte = 0, 255 do
      local mantissa = band(byte, 3)
      if band(byte, 124) ~= 124 then
        assert.equal(float8(byte, 5, 15), got[byte + 1])
      elseif mantissa == 0 then
        assert.equal(byte < 128 and math.huge or -math.huge, got[byte + 1])
      else
        assert.is_true(got[byte + 1] ~= got[byte + 1])
      end
    end
  end)
end)

-- Blocks of GGUF, element by element as ggml's documents have them. b(i): byte i of the block.

local function half(low, high)
  local exponent, sign = band(rshift(high, 2), 31), high >= 128 and -1 or 1
  local mantissa = (band(high, 3) * 256 + low) / 1024
  return exponent == 0 and sign * mantissa * 2 ^ -14 or sign * (1 + mantissa) * 2 ^ (exponent - 15)
end

local function nibble(b, at, k)
  return k < 16 and band(b(at + k), 15) or rshift(b(at + k - 16), 4)
end

local function fifth(b, at, k)
  return band(rshift(b(at + math.floor(k / 8)), k % 8), 1) * 16
end

-- Returns scale and minimum of a group of 32 in a block of 256.
local function group_scales(b, g)
  if g < 4 then
    return band(b(4 + g), 63), band(b(8 + g), 63)
  end
  return band(b(8 + g), 15) + rshift(b(g), 6) * 16, rshift(b(8 + g), 4) + rshift(b(4 + g), 6) * 16
end

local function grouped(b, k, bits, extra)
  local g = math.floor(k / 32)
  local scale, least = group_scales(b, g)
  local byte = b(bits + math.floor(g / 2) * 32 + k % 32)
  local q = (g % 2 == 1 and rshift(byte, 4) or band(byte, 15)) + extra(g)
  return half(b(0), b(1)) * scale * q - half(b(2), b(3)) * least
end

local BLOCKS = {
  Q4_0 = { 32, 18, function(b, k) return half(b(0), b(1)) * (nibble(b, 2, k) - 8) end },
  Q4_1 = { 32, 20, function(b, k)
    return half(b(0), b(1)) * nibble(b, 4, k) + half(b(2), b(3))
  end },
  Q5_0 = { 32, 22, function(b, k)
    return half(b(0), b(1)) * (nibble(b, 6, k) + fifth(b, 2, k) - 16)
  end },
  Q5_1 = { 32, 24, function(b, k)
    return half(b(0), b(1)) * (nibble(b, 8, k) + fifth(b, 4, k)) + half(b(2), b(3))
  end },
  Q8_0 = { 32, 34, function(b, k)
    local q = b(2 + k)
    return half(b(0), b(1)) * (q < 128 and q or q - 256)
  end },
  Q4_K = { 256, 144, function(b, k) return grouped(b, k, 16, function() return 0 end) end },
  Q5_K = { 256, 176, function(b, k)
    return grouped(b, k, 48, function(g) return band(rshift(b(16 + k % 32), g), 1) * 16 end)
  end },
  Q6_K = { 256, 210, function(b, k)
    local part, row = math.floor(k / 128), math.floor(k % 128 / 32)
    local low = b(part * 64 + row % 2 * 32 + k % 32)
    local high = band(rshift(b(128 + part * 32 + k % 32), 2 * row), 3)
    local q = (row < 2 and band(low, 15) or rshift(low, 4)) + high * 16 - 32
    local scale = b(192 + math.floor(k / 16))
    return half(b(208), b(209)) * (scale < 128 and scale or scale - 256) * q
  end },
}

describe("blocks of GGUF", function()
  for name, row in pairs(BLOCKS) do
    local elements, bytes, value = unpack(row)
    it("are read element by element: " .. name, function()
      local blocks, seed = {}, 1
      for i = 1, 4 * bytes do
        seed = (seed * 16807) % 2147483647
        -- scales are no NaN: their upper bytes stay below 0x7c
        blocks[i] = string.char(seed % 4 == 0 and seed % 256 or seed % 100)
      end
      local text = table.concat(blocks):gsub(("."):rep(bytes), function(block)
        local at = name == "Q6_K" and 209 or 1
        return block:sub(1, at) .. "\53" .. block:sub(at + 2)
      end)
      local x = array(text, name, { 2, 2 * elements })
      assert.equal("float32", x.dtype)
      local got = x:reshape{ -1 }:totable()
      for block = 0, 3 do
        local function b(i) return text:byte(block * bytes + i + 1) end
        for k = 0, elements - 1 do
          local want = value(b, k)
          assert.near(want, got[block * elements + k + 1], 1e-6 * math.abs(want) + 1e-6)
        end
      end
    end)

    it("make whole rows only, without strides: " .. name, function()
      local text = ("\0"):rep(bytes)
      assert.raises("shape", array, text, name, { 2, elements / 2 })
      assert.raises("value", array, text, name, { elements }, { strides = { 1 } })
      assert.raises("value", array, text, name, { elements }, { swapped = true })
      assert.raises("format", array, text, name, { 2 * elements })
    end)
  end
end)

describe("a file in memory", function()
  it("has the bytes that were there when it was made", function()
    local file = files.copy("abcdef", 6, "some bytes", "spec")
    assert.equal(6, file.size)
    assert.equal("cd", file:read(2, 2))
    local e = assert.raises("format", file.read, file, 2, 5)
    assert.truthy(e.message:find("'some bytes'", 1, true))
    assert.same({ 98, 100 }, file:array{ at = 1, shape = { 2 }, strides = { 2 }, dtype = "uint8" }
      :totable())
    assert.equal(0, files.copy("", 0, "nothing", "spec").size)
  end)
end)
