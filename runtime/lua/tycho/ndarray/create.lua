--- Creation of arrays: `ty.nd.array`, `zeros`, `arange` and others.
--
-- The default of `ctx` is the current context, that of `dtype` "float32". Sizes are above 0.
--
-- @module tycho.ndarray.create

local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local transfer = require "tycho.ndarray.transfer"

local create = {}

local DTYPES = args.DTYPES
local DENSE = { "stype", "text?" }


local function device_of(ctx)
  return (ctx or context.current_context())._device
end


local function refuse_sparse(stype, func)
  if stype ~= nil and stype ~= "default" then
    Error.raise{ code = "unsupported", func = func, argument = "stype", expected = "default",
      got = stype, message = ("sparse storage ('%s') is not part of Tycho"):format(stype) }
  end
end


local function on(x, ctx)
  return x:as_in_context(ctx or context.current_context())
end


local ARRAY = args.form("nd.array", {
  list = true, { "source", "number|table|array" }, { "ctx", "context?" }, { "dtype", "dtype?" },
})

--- Returns an array from a number, nested tables or another array; always a copy.
-- @param source row-major nested tables of numbers; ragged tables are E(shape), other values
--   E(type)
-- @tparam[opt] table options ctx, dtype (an array's own, else "float32")
-- @treturn NDArray
function create.array(...)
  local a = ARRAY(...)
  local source = a.source
  if class.is_array(source) then
    local ctx = a.ctx or context.current_context()
    local x = class.new(source._shape, a.dtype and DTYPES[a.dtype] or source._dtype,
      ctx._device, "nd.array")
    return call.copy(x, source, "nd.array")
  end
  return on(transfer.from_table(source, DTYPES[a.dtype or "float32"], "nd.array", "source"), a.ctx)
end


-- Returns the form of a function that takes a shape.
local function shape_form(func)
  return args.form(func, {
    list = true, { "shape", "shape" }, { "ctx", "context?" }, { "dtype", "dtype", "float32" }, "*",
    DENSE, { "out", "array?" },
  })
end


local function made(a, func, new)
  refuse_sparse(a.stype, func)
  if not a.out then
    return (new or class.new)(a.shape, DTYPES[a.dtype], device_of(a.ctx), func)
  elseif Error.show(a.out._shape) ~= Error.show(a.shape) then
    Error.raise{ code = "shape", func = func, argument = "out", expected = a.shape,
      got = a.out.shape, message = "'out' has another shape" }
  end
  return a.out
end


local EMPTY, ZEROS, ONES = shape_form("nd.empty"), shape_form("nd.zeros"), shape_form("nd.ones")

--- Returns an array of undefined contents.
-- @tparam {int,...} shape a number is a shape of one dimension
-- @tparam[opt] table options ctx, dtype
function create.empty(...)
  return made(EMPTY(...), "nd.empty")
end


--- Returns an array of zeros; options also `out`.
function create.zeros(...)
  local a = ZEROS(...)
  local x = made(a, "nd.zeros", call.zeros)
  return a.out and call.fill(x, 0, "nd.zeros") or x
end


--- Returns an array of ones; options also `out`.
function create.ones(...)
  return call.fill(made(ONES(...), "nd.ones"), 1, "nd.ones")
end


local FULL = args.form("nd.full", {
  { "shape", "shape" }, { "val", "number" }, { "ctx", "context?" },
  { "dtype", "dtype", "float32" }, "*", DENSE, { "out", "array?" },
})

--- Returns an array of one value.
function create.full(...)
  local a = FULL(...)
  return call.fill(made(a, "nd.full"), a.val, "nd.full")
end


-- Calls a creation operator on the chosen device.
local function generate(op, func, a, params)
  params[#params + 1], params[#params + 2] = "dtype", a.dtype
  params[#params + 1], params[#params + 2] = "ctx", tostring(a.ctx or context.current_context())
  return call.params(op, func, {}, params)
end


local ARANGE = args.form("nd.arange", {
  { "start", "number" }, { "stop", "number|null?" }, { "step", "number", 1 },
  { "repeat", "integer", 1 }, { "infer_range", "boolean?" }, { "ctx", "context?" },
  { "dtype", "dtype", "float32" },
})

--- Returns the numbers `start, start + step, ...` before `stop`, each `repeat_` times. With one
-- number that is `stop`, and start is 0.
function create.arange(...)
  local a = ARANGE(...)
  local stop = type(a.stop) == "number" and a.stop or nil
  return generate("_arange", "nd.arange", a, { "start", call.number(stop and a.start or 0), "stop",
    call.number(stop or a.start), "step", call.number(a.step), "repeat", call.number(a["repeat"]) })
end


local LINSPACE = args.form("nd.linspace", {
  { "start", "number" }, { "stop", "number" }, { "num", "integer" },
  { "endpoint", "boolean", true }, "*", { "ctx", "context?" }, { "dtype", "dtype", "float32" },
})

--- Returns `num` evenly spaced numbers from start to stop; `endpoint = false` leaves out stop.
function create.linspace(...)
  local a = LINSPACE(...)
  return generate("_linspace", "nd.linspace", a, {
    "start", call.number(a.start), "stop", call.number(a.stop), "num", call.number(a.num),
    "endpoint", attrs.text(a.endpoint) })
end


local EYE = args.form("nd.eye", {
  { "N", "integer" }, { "M", "integer", 0 }, { "k", "integer", 0 }, "*", { "ctx", "context?" },
  { "dtype", "dtype", "float32" },
})

--- Returns an N x M matrix (M = 0: square) with ones on diagonal `k`, zeros elsewhere.
function create.eye(...)
  local a = EYE(...)
  return generate("_eye", "nd.eye", a,
    { "N", call.number(a.N), "M", call.number(a.M), "k", call.number(a.k) })
end


local POINTER = args.form("nd.from_pointer", {
  { "pointer", "any" }, { "shape", "shape" }, "*", { "dtype", "dtype", "float32" },
  { "owner", "any?" },
})

--- Returns an array on the caller's memory on the CPU, without a copy.
-- @param pointer FFI pointer or array, aligned to an element
-- @tparam {int,...} shape
-- @tparam[opt] table options dtype; owner: an object that is kept alive as long as the memory is
--   used (by default the cdata itself)
function create.from_pointer(...)
  local a = POINTER(...)
  if type(a.pointer) ~= "cdata" then
    Error.raise{ code = "type", func = "nd.from_pointer", argument = "pointer", expected = "cdata",
      got = Error.kind(a.pointer),
      message = "bad 'pointer'" }
  end
  return transfer.from_pointer(a.pointer, a.shape, DTYPES[a.dtype], a.owner, "nd.from_pointer")
end


local STRING = args.form("nd.from_string", {
  { "bytes", "text" }, { "shape", "shape" }, "*", { "dtype", "dtype", "float32" },
  { "ctx", "context?" },
})

--- Returns an array of raw bytes: little-endian, row-major.
function create.from_string(...)
  local a = STRING(...)
  return on(transfer.from_string(a.bytes, a.shape, DTYPES[a.dtype], "nd.from_string"), a.ctx)
end


local ONEHOT = args.form("nd.onehot_encode", { { "indices", "array" }, { "out", "array" } })

--- Writes rows of 0 with a 1 at each index into `out` and returns it.
function create.onehot_encode(...)
  local a = ONEHOT(...)
  local params = { "depth", call.number(a.out._shape[#a.out._shape]), "dtype", a.out.dtype }
  return call.params("one_hot", "nd.onehot_encode", { a.indices }, params, a.out)
end


local CONCATENATE = args.form("nd.concatenate", {
  list = true, { "arrays", "list" }, { "axis", "integer", 0 }, { "always_copy", "boolean", true },
})

--- Returns arrays joined along an axis (from 0).
-- @tparam {NDArray,...} arrays at least one
function create.concatenate(...)
  local a = CONCATENATE(...)
  for i, x in ipairs(a.arrays) do
    if not class.is_array(x) then
      Error.raise{ code = "type", func = "nd.concatenate", argument = "arrays",
        expected = "a list of NDArrays",
        got = Error.kind(x), message = ("member %d is no NDArray"):format(i) }
    end
  end
  if #a.arrays == 0 then
    Error.raise{ code = "value", func = "nd.concatenate", argument = "arrays",
      message = "there is nothing to join" }
  elseif #a.arrays == 1 and not a.always_copy then
    return a.arrays[1]
  end
  return call.params("Concat", "nd.concatenate", a.arrays, { "dim", call.number(a.axis) })
end


local MOVEAXIS = args.form("nd.moveaxis", {
  { "tensor", "array" }, { "source", "integer|dims" }, { "destination", "integer|dims" },
})

local function axis_list(v, ndim, argument)
  local list, seen = type(v) == "number" and { v } or v, {}
  local axes = {}
  for i, axis in ipairs(list) do
    axes[i] = axis < 0 and axis + ndim or axis
    if axes[i] < 0 or axes[i] >= ndim or seen[axes[i]] then
      Error.raise{ code = "value", func = "nd.moveaxis", argument = argument, got = axis,
        expected = ("different axes from %d to %d"):format(-ndim, ndim - 1),
        message = ("bad '%s'"):format(argument) }
    end
    seen[axes[i]] = true
  end
  return axes, seen
end

--- Returns an array with axes moved to other positions; the others keep their order.
-- @tparam NDArray tensor
-- @param source axis or list of axes, from 0
-- @param destination the new positions: one, or a list of the same length
function create.moveaxis(...)
  local a = MOVEAXIS(...)
  local ndim = #a.tensor._shape
  local from, moved = axis_list(a.source, ndim, "source")
  local to = axis_list(a.destination, ndim, "destination")
  if #from ~= #to then
    Error.raise{ code = "value", func = "nd.moveaxis", expected = #from, got = #to,
      message = "'source' and 'destination' have different lengths" }
  end
  local order = {}
  for i, axis in ipairs(from) do
    order[to[i] + 1] = axis
  end
  local position = 1
  for axis = 0, ndim - 1 do
    if not moved[axis] then
      while order[position] do
        position = position + 1
      end
      order[position] = axis
    end
  end
  return call.params("transpose", "nd.moveaxis", { a.tensor }, { "axes", attrs.text(order) })
end


local HISTOGRAM = args.form("nd.histogram", {
  { "a", "array" }, { "bins", "integer|array|list", 10 }, { "range", "list?" },
})

--- Returns the counts of values per bin, and the edges of the bins.
-- @tparam NDArray a
-- @param bins number of bins, or their edges as an array or a list
-- @tparam[opt] {number,number} range of the bins; by default that of the data
-- @treturn NDArray,NDArray counts (int64) and edges
function create.histogram(...)
  local a = HISTOGRAM(...)
  if type(a.bins) ~= "number" then
    local edges = class.is_array(a.bins) and a.bins
      or create.array(a.bins, { dtype = a.a.dtype, ctx = a.a.context })
    return unpack(call.many("_histogram", "nd.histogram", { a.a, edges }, 2, {}, {}, 2))
  end
  local range = a.range or { a.a:min():asscalar(), a.a:max():asscalar() }
  if #range ~= 2 or type(range[1]) ~= "number" or type(range[2]) ~= "number" then
    Error.raise{ code = "value", func = "nd.histogram", argument = "range",
      expected = "two numbers", message = "bad 'range'" }
  end
  return unpack(call.many("_histogram", "nd.histogram", { a.a }, 1,
    { "bin_cnt", call.number(a.bins), "range", attrs.text(range) }, {}, 2))
end


local SPLIT = args.form("nd.split_v2", {
  { "ary", "array" }, { "indices_or_sections", "integer|dims" }, { "axis", "integer", 0 },
  { "squeeze_axis", "boolean", false },
})

--- Splits an array along an axis (from 0): into n equal pieces, or before the given indices (from
-- 0).
-- @treturn {NDArray,...}
function create.split_v2(...)
  local a = SPLIT(...)
  local count
  local params = { "axis", call.number(a.axis), "squeeze_axis", attrs.text(a.squeeze_axis) }
  if type(a.indices_or_sections) == "number" then
    count = a.indices_or_sections
    params[5], params[6], params[7], params[8] = "sections", call.number(count), "indices", "()"
  else
    local cuts = { 0 }
    for i, index in ipairs(a.indices_or_sections) do
      cuts[i + 1] = index
    end
    count = #cuts
    params[5], params[6] = "indices", attrs.text(cuts)
  end
  return call.many("_split_v2", "nd.split_v2", { a.ary }, 1, params, {}, count)
end

class.NDArray.split_v2 = args.method(create.split_v2)


return create
