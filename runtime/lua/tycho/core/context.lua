--- Contexts: devices by kind and number, interned so that equal contexts are the same table.
--
--     ty.cpu() == ty.cpu(0)          ty.gpu(1):with(function() ... end)        ty.Context("gpu(1)")
--
-- Device ids count from 0. Making a gpu context never fails; using it fails if the GPU is missing.
--
-- @module tycho.context

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local scope = require "tycho.core.scope"

local C, check = native.C, native.check

local context = {}

--- A device: kind and number; equal contexts are the same table. Fields: device_type, device_id.
-- @type Context
local Context = Class:extend("Context")
scope.make(Context, "context")
args.class("context", Context)

local TYPE_IDS = { cpu = 1, gpu = 2, cpu_pinned = 3 }
local BASES = { cpu = C.TY_CPU, gpu = C.TY_GPU, cpu_pinned = C.TY_PINNED }
local MAX_ID = 255               -- a device number is its kind plus its id; kinds are 256 apart
local TYPES = { "cpu", "gpu", "cpu_pinned" }

local interned = {}


function Context:__tostring()
  return self._text
end


-- A context whose id is larger than the core allows: it can be made and compared, but not used.
local Absent = Context:extend()

function Absent:__index(key)
  if key == "_device" then
    Error.raise{ code = "device", func = "Context", got = self._text,
      expected = ("%s(0) to %s(%d)"):format(self.device_type, self.device_type, MAX_ID),
      message = self._text .. " does not exist; no machine has that many devices" }
  end
  return Context[key]
end


local function intern(kind, id)
  local key = kind .. "(" .. id .. ")"
  local c = interned[key]
  if not c then
    c = { device_type = kind, device_id = id, device_typeid = TYPE_IDS[kind], _text = key }
    if id <= MAX_ID then
      c._device = BASES[kind] + id
    end
    interned[key] = setmetatable(c, c._device and Context or Absent)
  end
  return c
end


local FORM = args.form("Context",
  { { "device_type", "text|context" }, { "device_id", "integer?" } })

-- Returns the context for Context("gpu", 1), Context("gpu(1)") or Context(other). Raises E(value)
-- for an unknown device type or a negative number.
local function make(_, ...)
  local a = FORM(...)
  if type(a.device_type) == "table" then
    return a.device_type
  end
  local kind, id = a.device_type:match("^([%a_]+)%((%d+)%)$")
  kind, id = kind or a.device_type, a.device_id or tonumber(id) or 0
  if not TYPE_IDS[kind] then
    Error.raise{ code = "value", func = "Context", argument = "device_type",
      expected = "cpu, gpu or cpu_pinned", got = a.device_type,
      candidates = Error.nearest(kind, TYPES), message = ("no device is called '%s'"):format(kind) }
  elseif id < 0 then
    Error.raise{ code = "value", func = "Context", argument = "device_id",
      expected = "0 or more", got = id, message = "bad 'device_id'" }
  end
  return intern(kind, id)
end

setmetatable(Context, { __index = Class, __call = make, __tostring = function()
  return "<class Context>"
end })


--- Waits until the device's queue is empty; the first failure that was not reported yet is raised.
function Context:wait()
  check(C.ty_wait(self._device), "Context:wait")
end


--- Returns memory of the device in bytes: `{total, free, pool, tensors}`.
function Context:memory()
  local n = ffi.new("int64_t[3]")
  check(C.ty_device_memory(self._device, n, n + 1, n + 2), "Context:memory")
  local total, used, pool = tonumber(n[0]), tonumber(n[1]), tonumber(n[2])
  return { total = total, free = total - used, pool = pool, tensors = tonumber(C.ty_live("bytes")) }
end


--- Sets the precision of float32 products and convolutions in executors that are bound on this
-- context from now on (see `tycho.precision`).
-- @string word "highest", "high" or "medium"
function Context:set_precision(word)
  self._precision = require("tycho.core.precision").check(word, "Context:set_precision")
end


--- Returns the work that was queued on a GPU so far: `{launches, copies}`. Launches count kernels
-- and library calls, those of a recorded graph each time it starts; copies count copies and fills.
-- Both are 0 for a CPU.
function Context:work()
  local n = ffi.new("int64_t[2]")
  check(C.ty_device_work(self._device, n, n + 1), "Context:work")
  return { launches = tonumber(n[0]), copies = tonumber(n[1]) }
end


context.Context = Context

--- Returns the context of the CPU; ids above 0 are further queues of work that share its cores.
-- @function context.cpu

--- Returns the context of a GPU. It may name a GPU that is missing; using it then fails.
-- @function context.gpu

--- Returns the context of pinned CPU memory, which GPUs copy fast.
-- @function context.cpu_pinned

for _, kind in ipairs(TYPES) do
  local form = args.form(kind, { { "device_id", "integer", 0 } })
  -- `ty.cpu(device_id = 0)`, `ty.gpu(device_id = 0)`, `ty.cpu_pinned(device_id = 0)`
  context[kind] = function(...)
    return make(nil, kind, form(...).device_id)
  end
end


--- Returns the innermost context that was entered; `cpu(0)` if there is none.
function context.current_context()
  return scope.current("context") or intern("cpu", 0)
end


--- Returns the number of GPUs; 0 without a driver.
function context.num_gpus()
  return C.ty_devices(C.TY_GPU)
end


--- Returns the context with the core's device number.
function context.of_device(device)
  local base = math.floor(device / 256) * 256
  for kind, b in pairs(BASES) do
    if b == base then
      return intern(kind, device - base)
    end
  end
end


return namespace.close(context, "context", "class or function")
