--- Records of TensorBoard's event files, which are TFRecord files: length in 8 bytes, its checksum,
-- contents, their checksum. A checksum is a CRC-32C, rotated and with a constant added ("masked"),
-- in 4 bytes.
--
-- Source: tensorflow/core/lib/io/record_writer.h, RFC 3720 appendix B.4 (the polynomial).
--
-- @module tycho.tensorboard.record

local bit = require "bit"
local ffi = require "ffi"

local record = {}

local POLYNOMIAL = 0x82F63B78            -- of Castagnoli, bits reversed
local MASK = 0xA282EAD8
local LENGTH_BYTES, CHECKSUM_BYTES = 8, 4

local TABLE = ffi.new("uint32_t[256]")
for i = 0, 255 do
  local crc = i
  for _ = 1, 8 do
    local low = bit.band(crc, 1)
    crc = bit.bxor(bit.rshift(crc, 1), low == 1 and POLYNOMIAL or 0)
  end
  TABLE[i] = bit.tobit(crc)
end


--- Returns the CRC-32C of a text.
-- @string bytes
-- @treturn int 0 to 2^32 - 1
function record.crc(bytes)
  local from, crc = ffi.cast("const uint8_t *", bytes), bit.bnot(0)
  for i = 0, #bytes - 1 do
    local at = bit.band(bit.bxor(crc, from[i]), 0xFF)
    crc = bit.bxor(bit.rshift(crc, 8), bit.tobit(TABLE[at]))
  end
  return bit.bnot(crc) % 2 ^ 32
end


local function little_endian(n, count)
  local bytes = {}
  for i = 1, count do
    bytes[i], n = string.char(n % 256), math.floor(n / 256)
  end
  return table.concat(bytes)
end


--- Returns the masked checksum of a text.
-- @string bytes
-- @treturn string 4 bytes
function record.checksum(bytes)
  local crc = record.crc(bytes)
  return little_endian((bit.ror(crc, 15) + MASK) % 2 ^ 32, CHECKSUM_BYTES)
end


--- Returns a text framed as a record.
-- @string bytes
-- @treturn string
function record.frame(bytes)
  local length = little_endian(#bytes, LENGTH_BYTES)
  return length .. record.checksum(length) .. bytes .. record.checksum(bytes)
end


return record
