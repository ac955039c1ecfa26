--- Growing lists of integers in C memory, limited by memory only and not traversed by the
-- collector.
--
-- @module tycho.core.numbers

local ffi = require "ffi"
local Class = require "tycho.core.class"

--- A list of int32. Fields: n (their number), p (FFI array, from 0; `add` may replace it).
-- @type Numbers
local Numbers = Class:extend("Numbers")


function Numbers:init()
  self.capacity, self.n, self.p = 1024, 0, ffi.new("int32_t[1024]")
end


--- Appends a number.
function Numbers:add(v)
  if self.n == self.capacity then
    local p = ffi.new("int32_t[?]", self.capacity * 2)
    ffi.copy(p, self.p, self.capacity * 4)
    self.capacity, self.p = self.capacity * 2, p
  end
  self.p[self.n] = v
  self.n = self.n + 1
end


return Numbers
