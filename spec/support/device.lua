-- The device that specs run on: TYCHO_TEST_DEVICE="gpu(0)" makes it the default device of arrays
-- and executors. Specs read elements through `x:data()`; for a GPU it is replaced here: it returns
-- the elements at the time of the call, and assignments are written through one by one. `ty.cpu()`
-- means that device too; `ty.cpu(0)` is the CPU.

local ffi = require "ffi"
local ty = require "tycho"
local native = require "tycho.core.ffi"

local device = {}

device.name = os.getenv("TYCHO_TEST_DEVICE")
device.is_gpu = device.name ~= nil and device.name:match("^gpu") ~= nil

local POINTER = { float32 = "float *", float64 = "double *", float16 = "uint16_t *",
  bfloat16 = "uint16_t *", int32 = "int32_t *", int64 = "int64_t *", int8 = "int8_t *",
  uint8 = "uint8_t *", bool = "uint8_t *" }

local function mirror(x)
  local raw = x:tostring_raw()
  local bytes = ffi.new("char[?]", #raw)
  ffi.copy(bytes, raw, #raw)
  local p = ffi.cast(POINTER[x.dtype], bytes)
  local flat, size = x:reshape{ -1 }, #raw / x.size
  return setmetatable({}, {
    __index = function(_, i)
      return p[i]
    end,
    __newindex = function(_, i, v)
      p[i] = v
      local element = flat[{ ("%d:%d"):format(i, i + 1) }]
      native.check(native.C.ty_tensor_write(element.handle, bytes + i * size, size), "NDArray:data")
    end,
  })
end

--- Enters the device that specs run on, once per Lua state.
function device.enter()
  if not device.name or ty.current_context() == ty.Context(device.name) then
    return
  end
  ty.Context(device.name):enter()
  require "tycho.ndarray"
  local NDArray, cpu = require("tycho.ndarray.class").NDArray, ty.cpu
  function ty.cpu(...)
    return select("#", ...) == 0 and not device.left and ty.Context(device.name) or cpu(...)
  end
  local data = NDArray.data
  function NDArray.data(x)
    return x.context.device_type == "gpu" and mirror(x) or data(x)
  end
end

--- Enters cpu(0), in `setup` of specs about the CPU's kernels.
function device.leave()
  if device.name then
    device.left = ty.cpu(0):enter()
  end
end

--- Leaves cpu(0), in `teardown`.
function device.come_back()
  if device.left then
    device.left:exit()
    device.left = nil
  end
end

--- Returns arrays by name on a device, since files are read to the CPU. An array that is on it is
-- not copied.
function device.placed(arrays, context)
  local placed = {}
  for name, x in pairs(arrays or {}) do
    placed[name] = x:as_in_context(context)
  end
  return placed
end

--- Returns the device that a recorded case names by kind and number.
function device.of(kind, id)
  return kind == "cpu" and id == 0 and ty.cpu() or ty[kind](id)
end

--- Returns the kind and the number of a context, the inverse of `device.of`.
function device.pair(context)
  if context == ty.cpu() then
    return { "cpu", 0 }
  end
  return { context.device_type, context.device_id }
end

return device
