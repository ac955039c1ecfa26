--- The time that a step takes of the calling thread: the device is idle at its beginning, and is
-- waited for after the measured part.
local measure = require "measure"
local ty = require "tycho"

local NAMES = {mlp = "mlp", lenet = "lenet", fused = "LSTM 2x200 fused",
  unrolled = "LSTM 2x200 unrolled"}

--- Prints the records of `only`, by default of all; make_step(name) returns the measured function.
return function(make_step, only)
  for _, name in ipairs{"mlp", "lenet", "fused", "unrolled"} do
    if not only or only == name then
      local step, list = make_step(name), {}
      for i = -99, 200 do                       -- the first hundred compile, record, warm up
        local from = measure.now()
        step()
        list[i] = (measure.now() - from) * 1e6
        ty.waitall()
      end
      measure.record("host " .. NAMES[name], "", "us/step", list)
    end
  end
end
