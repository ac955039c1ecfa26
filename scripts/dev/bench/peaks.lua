--- Greatest rates of the device: a copy, which reads and writes each byte, and a product, in the
-- precision of the other rows.
local measure = require "measure"
local ty = require "tycho"

local COPIED, SIDE = 2 ^ 26, 8192                        -- float32 numbers; rows and columns

return function()
  local x, y = ty.nd.zeros{COPIED}, ty.nd.zeros{COPIED}
  local function copy() x:copyto(y) end
  measure.rate("peak copy", "", "B/s", 2 * 4 * COPIED, measure.samples(copy, ty.waitall))
  for _, array in ipairs{x, y} do array:free() end
  local a, out = ty.nd.ones{SIDE, SIDE}, ty.nd.zeros{SIDE, SIDE}
  local function product() ty.nd.dot{a, a, out = out} end
  measure.rate("peak product", "", "FLOP/s", 2 * SIDE ^ 3, measure.samples(product, ty.waitall))
end
