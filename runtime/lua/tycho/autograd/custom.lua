--- Recording of operators written in Lua (`ty.operator.CustomOp`): their `backward` computes the
-- gradient.
--
-- @module tycho.autograd.custom

local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local custom = require "tycho.op.custom"
local functions = require "tycho.autograd.function"
local modes = require "tycho.autograd.modes"
local recording = require "tycho.ndarray.recording"

-- The object that represents a call for `functions.record`.
local Recorded = {}
Recorded.__index = Recorded

function Recorded:_enter_backward(step)
  self.where = step.where
end


function Recorded:backward(...)
  local c = self.call
  local grads, req = {}, {}
  for i, x in ipairs(c.ins) do
    grads[i] = call.zeros(x._shape, x._dtype, x._device, "Custom")
    req[i] = "write"
  end
  custom._guarded("backward", "", self.where, c.op.backward, c.op, req, { ... }, c.ins, c.outs,
    grads, c.auxs)
  return unpack(grads, 1, #c.ins)
end


--- Runs an operator with recording off, and records it as one step.
-- @tparam table c the call in the form of ndarray/custom.lua: op, ins, outs, auxs
-- @tparam function forward called as forward(c)
-- @treturn {NDArray,...} outputs, with their history
return function(c, forward)
  class.outside(modes.run, false, recording.training, forward, c)
  return functions.record(c.ins, c.outs,
    setmetatable({ call = c, class_name = "Custom" }, Recorded))
end
