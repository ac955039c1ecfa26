--- Reads sound files.

local ffi = require "ffi"

local wav = {}

--- Returns the samples of a WAV file with 16 bits a sample and one channel.
-- @string path
-- @int rate required samples per second
-- @treturn {number,...} samples between -1 and 1; other files are an error
function wav.read(path, rate)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  local function number(at, bytes)
    local n = 0
    for i = bytes, 1, -1 do
      n = n * 256 + text:byte(at + i - 1)
    end
    return n
  end
  local at, ok = 13, false
  while text:sub(1, 4) == "RIFF" and at + 7 <= #text do
    local name, size = text:sub(at, at + 3), number(at + 4, 4)
    if name == "fmt " and at + 24 <= #text then
      ok = number(at + 8, 2) == 1 and number(at + 10, 2) == 1 and number(at + 12, 4) == rate
        and number(at + 22, 2) == 16
    elseif name == "data" and ok then
      local list, data = {}, ffi.cast("const int16_t *", ffi.cast("const char *", text) + at + 7)
      for i = 1, math.floor(math.min(size, #text - at - 7) / 2) do
        list[i] = data[i - 1] / 32768
      end
      return list
    end
    at = at + 8 + size + size % 2
  end
  error(("%s: no WAV file of %d Hz, 16 bits, one channel"):format(path, rate), 0)
end

return wav
