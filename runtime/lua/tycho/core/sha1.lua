--- The SHA-1 hash of bytes, which names files of parameters.
--
-- @module tycho.core.sha1

local band, bor, bxor, bnot, rol, tohex =
  bit.band, bit.bor, bit.bxor, bit.bnot, bit.rol, bit.tohex
local byte, char, floor = string.byte, string.char, math.floor

local BLOCK = 64                                         -- bytes


-- Returns the bytes with the padding that the standard asks for.
local function padded(bytes)
  local n = #bytes
  local length = {}
  for i = 8, 1, -1 do
    length[9 - i] = char(floor(n * 8 / 256 ^ (i - 1)) % 256)
  end
  return bytes .. "\128" .. ("\0"):rep((BLOCK - 9 - n) % BLOCK) .. table.concat(length)
end


local function mix(i, b, c, d)
  if i < 20 then
    return bor(band(b, c), band(bnot(b), d)), 0x5A827999
  elseif i < 40 then
    return bxor(b, c, d), 0x6ED9EBA1
  elseif i < 60 then
    return bor(band(b, c), band(b, d), band(c, d)), 0x8F1BBCDC
  end
  return bxor(b, c, d), 0xCA62C1D6
end


local function add_block(h, text, at, w)
  for i = 0, 15 do
    local a, b, c, d = byte(text, at + 4 * i, at + 4 * i + 3)
    w[i] = bor(a * 0x1000000, b * 0x10000, c * 0x100, d)
  end
  for i = 16, 79 do
    w[i] = rol(bxor(w[i - 3], w[i - 8], w[i - 14], w[i - 16]), 1)
  end
  local a, b, c, d, e = h[1], h[2], h[3], h[4], h[5]
  for i = 0, 79 do
    local f, k = mix(i, b, c, d)
    a, b, c, d, e = bor(rol(a, 5) + f + e + k + w[i], 0), a, rol(b, 30), c, d
  end
  h[1], h[2], h[3], h[4], h[5] = bor(h[1] + a, 0), bor(h[2] + b, 0), bor(h[3] + c, 0),
    bor(h[4] + d, 0), bor(h[5] + e, 0)
end


--- @string bytes
-- @treturn string 40 hexadecimal digits
return function(bytes)
  local h = { 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0 }
  local text, w = padded(bytes), {}
  for at = 1, #text, BLOCK do
    add_block(h, text, at, w)
  end
  local parts = {}
  for i = 1, 5 do
    parts[i] = tohex(h[i])
  end
  return table.concat(parts)
end
