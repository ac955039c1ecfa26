--- Methods that return an array with another shape, element type or device, as a view if possible,
-- else as a copy.
--
-- `reshape` and the `inplace` forms are views; `astype`, `copy`, `as_in_context` and the
-- others make new arrays (or return the same object if nothing would change). Axes count
-- from 0, negative ones from the end.
--
-- @module tycho.ndarray.shape

local ffi = require "ffi"
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local gather = require "tycho.ndarray.gather"
local gc = require "tycho.core.gc"
local log = require "tycho.core.log"
local native = require "tycho.core.ffi"
local next = require("tycho.core.iterate").next
local recording = require "tycho.ndarray.recording"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local NDArray, is_array = class.NDArray, class.is_array

local shape_of = {}


-- Reshape codes -----------------------------------------------------------------------------------

local function fail_reshape(x, target, text)
  Error.raise{ code = "shape", func = "NDArray:reshape", argument = "shape",
    expected = x._size .. " elements", got = Error.show(target, "0"),
    message = text or ("cannot reshape an array of shape %s"):format(Error.show(x._shape)) }
end


-- Splits source size n into the two factors that follow a -4; one of them may be -1.
local function split_dim(n, a, b)
  if not n or not a or not b then
    return nil
  end
  a = a == -1 and n / b or a
  b = b == -1 and n / a or b
  if a * b ~= n or a < 1 or b < 1 then
    return nil
  end
  return a, b
end


-- Decodes the code at position i of the target, with the source pointer at p. Returns the new
-- sizes, the number of target entries used, the number of source sizes used.
local function decode_one(source, target, i, p)
  local code = target[i]
  if code > 0 then
    return { code }, 1, 1
  elseif code == 0 and source[p] then
    return { source[p] }, 1, 1
  elseif code == -1 then
    return { -1 }, 1, 1
  elseif code == -2 then
    return { unpack(source, p) }, 1, math.max(0, #source - p + 1)
  elseif code == -3 and source[p + 1] then
    return { source[p] * source[p + 1] }, 1, 2
  elseif code == -4 then
    local a, b = split_dim(source[p], target[i + 1], target[i + 2])
    return a and { a, b }, 3, 1
  end
end


-- Replaces the -1 by the size that gives `total` elements; returns nil if no size does.
local function infer_rest(out, total)
  local known, at = 1, nil
  for d, n in ipairs(out) do
    if n == -1 then
      if at then
        return nil
      end
      at = d
    else
      known = known * n
    end
  end
  if at then
    out[at] = total / known
  end
  return #out > 0 and tables.product(out) == total and (not at or out[at] % 1 == 0) and out or nil
end


--- Returns the sizes of reshape codes for a source shape; nil if they do not fit.
-- @tparam {int,...} source
-- @tparam {int,...} target n > 0: n; 0: keep; -1: computed (once); -2: all remaining sizes; -3:
--   product of two; -4, a, b: split
-- @bool reverse match from the right
-- @treturn {int,...}
function shape_of.decode(source, target, reverse)
  if reverse then
    source, target = tables.reversed(source), tables.reversed(target)
  end
  local out, i, p = {}, 1, 1
  while i <= #target do
    local sizes, used, passed = decode_one(source, target, i, p)
    if not sizes then
      return nil
    end
    for _, n in ipairs(sizes) do
      out[#out + 1] = n
    end
    i, p = i + used, p + passed
  end
  out = infer_rest(out, tables.product(source))
  return out and reverse and tables.reversed(out) or out
end


-- Returns the sizes if they are given without codes and options, as numbers or as a list; nil if
-- the form must read them.
local function full_sizes(x, first, ...)
  local shape = type(first) == "number" and { first, ... } or first
  if not values.is_plain(shape) or #shape == 0 then
    return nil
  end
  local size = 1
  for i = 1, #shape do
    local n = shape[i]
    if type(n) ~= "number" or n < 1 or n % 1 ~= 0 then
      return nil
    end
    size = size * n
  end
  return size == x._size and next(shape, #shape) == nil and shape or nil
end


local RESHAPE = args.form("NDArray:reshape",
  { list = true, { "shape", "dims" }, "*", { "reverse", "boolean", false } })


--- Returns a view under another shape.
-- @tparam NDArray x
-- @tparam {int,...} shape sizes and codes 0, -1, -2, -3, -4 (see `decode`); also as separate
--   numbers
-- @tparam[opt] table options reverse = true matches from the right
-- @treturn NDArray E(shape) if the number of elements differs
function NDArray.reshape(x, ...)
  local sizes = full_sizes(x, ...)
  if sizes then
    return class.view(x, sizes, 0, "NDArray:reshape")
  end
  local a = RESHAPE(...)
  local shape = shape_of.decode(x._shape, a.shape, a.reverse)
  if not shape then
    fail_reshape(x, a.shape)
  end
  return class.view(x, shape, 0, "NDArray:reshape")
end


local LIKE = args.form("NDArray:reshape_like", { { "other", "array" } })

--- Returns a view with another array's shape.
function NDArray.reshape_like(x, ...)
  local other = LIKE(...).other
  if other._size ~= x._size then
    fail_reshape(x, other.shape)
  end
  return class.view(x, other._shape, 0, "NDArray:reshape_like")
end


-- Views or copies ---------------------------------------------------------------------------------

local function viewed(x, shape, inplace, func)
  if inplace then
    return class.view(x, shape, 0, func)
  end
  return class.view(x:copy(), shape, 0, func)
end


local FLATTEN = args.form("NDArray:flatten", { { "inplace", "boolean", false } })

--- Returns x with two dimensions: the first, and the product of the others.
function NDArray.flatten(x, ...)
  local rows = x._shape[1]
  return viewed(x, { rows, x._size / rows }, FLATTEN(...).inplace, "NDArray:flatten")
end


local function axis_in(axis, low, high, func)
  local at = axis < 0 and axis + high + 1 or axis
  if at < 0 or at > high then
    Error.raise{ code = "value", func = func, argument = "axis", expected = ("%d to %d")
      :format(low, high), got = axis, message = ("axis %d does not exist"):format(axis) }
  end
  return at
end


local EXPAND = args.form("NDArray:expand_dims",
  { { "axis", "integer" }, { "inplace", "boolean", false } })

--- Returns x with a dimension of 1 before `axis`.
function NDArray.expand_dims(x, ...)
  local a = EXPAND(...)
  local n = #x._shape
  local at = axis_in(a.axis, -n - 1, n, "NDArray:expand_dims")
  local shape = tables.copied(x._shape)
  table.insert(shape, at + 1, 1)
  return viewed(x, shape, a.inplace, "NDArray:expand_dims")
end


local SQUEEZE = args.form("NDArray:squeeze",
  { { "axis", "dims?" }, { "inplace", "boolean", false } })

--- Returns x without its dimensions of 1: all of them, or those given; E(shape) for one that is not
-- 1.
-- @tparam NDArray x
-- @param axis number or list, nil for all
function NDArray.squeeze(x, ...)
  local a = SQUEEZE(...)
  local n, drop, shape = #x._shape, {}, {}
  for _, axis in ipairs(a.axis or {}) do
    local at = axis_in(axis, -n, n - 1, "NDArray:squeeze") + 1
    if x._shape[at] ~= 1 then
      Error.raise{ code = "shape", func = "NDArray:squeeze", argument = "axis", expected = 1,
        got = x._shape[at], message = ("dimension %d is not 1"):format(axis) }
    end
    drop[at] = true
  end
  for d, size in ipairs(x._shape) do
    if not drop[d] and (a.axis or size ~= 1) then
      shape[#shape + 1] = size
    end
  end
  return viewed(x, #shape > 0 and shape or { 1 }, a.inplace, "NDArray:squeeze")
end


local BROADCAST = args.form("NDArray:broadcast_to", { list = true, { "shape", "shape" } })

--- Returns a copy broadcast to a shape of at least as many dimensions; dimensions of 1
-- are repeated, 0 keeps a size.
function NDArray.broadcast_to(x, ...)
  local shape = BROADCAST(...).shape
  local missing = #shape - #x._shape
  for d = 1, #shape do
    shape[d] = shape[d] == 0 and x._shape[d - missing] or shape[d]
  end
  if missing < 0 then
    Error.raise{ code = "shape", func = "NDArray:broadcast_to", argument = "shape", got = shape,
      expected = x.shape, message = "broadcasting cannot drop dimensions" }
  end
  local y = gather.broadcast(x, shape, "NDArray:broadcast_to")
  return y._h == x._h and x:copy() or y
end


local function has_options(...)
  return values.count(...) > 1 or not is_array((...))
end

--- Returns a copy broadcast to another array's shape; with `lhs_axes` and
-- `rhs_axes`, along these axes only.
function NDArray.broadcast_like(x, ...)
  if has_options(...) then
    return require("tycho.ndarray.operators").method("broadcast_like")(x, ...)
  end
  return x:broadcast_to((...)._shape)
end


-- Copies ------------------------------------------------------------------------------------------

local ASTYPE = args.form("NDArray:astype", { { "dtype", "dtype" }, { "copy", "boolean", true } })

--- Returns a copy with another element type, converted as C casts do; with `copy = false` returns x
-- itself if it has the type.
function NDArray.astype(x, ...)
  local a = ASTYPE(...)
  local dtype = args.DTYPES[a.dtype]
  if dtype == x._dtype and not a.copy then
    return x
  end
  if recording.on then                                   -- a call of an operator may wait
    return call.params("Cast", "NDArray:astype", { x }, { "dtype", a.dtype })
  end
  return call.copy(class.new(x._shape, dtype, x._device, "NDArray:astype"), x, "NDArray:astype")
end


--- Returns a copy on the same device.
function NDArray.copy(x)
  if recording.on then
    return call.unary("_copy", "NDArray:copy", x)
  end
  return call.copy(class.new(x._shape, x._dtype, x._device, "NDArray:copy"), x, "NDArray:copy")
end


local function copy_to_context(x, ctx, func)
  return call.copy(class.new(x._shape, x._dtype, ctx._device, func), x, func)
end


--- Copies to an array of equal shape (any element type and device), which is returned, or to a new
-- array on a device. For the array itself it warns and returns false.
function NDArray.copyto(x, other)
  if Class.is_a(other, context.Context) then
    return copy_to_context(x, other, "NDArray:copyto")
  elseif not is_array(other) then
    Error.raise{ code = "type", func = "NDArray:copyto", argument = "other",
      expected = "an NDArray or a context", got = Error.kind(other), message = "bad 'other'" }
  elseif other == x or other._h == x._h then
    log:warning("NDArray:copyto: source and destination are the same array; nothing is copied")
    return false
  end
  return call.copy(other, x, "NDArray:copyto", "other")
end


--- Returns x itself if it is on the device, else a copy there.
function NDArray.as_in_context(x, ctx)
  if not Class.is_a(ctx, context.Context) then
    Error.raise{ code = "type", func = "NDArray:as_in_context", argument = "ctx",
      expected = "a context such as ty.cpu()",
      got = Error.kind(ctx), message = "bad 'ctx'" }
  end
  return ctx._device == x._device and x or copy_to_context(x, ctx, "NDArray:as_in_context")
end

NDArray.as_in_ctx = NDArray.as_in_context


--- Returns another array on the same memory, through which no gradient flows.
function NDArray.detach(x)
  return class.detached(x)
end


--- Returns a copy in a storage type. The only one is "default"; others are E(unsupported).
function NDArray.tostype(x, stype)
  if stype ~= "default" then
    Error.raise{ code = "unsupported", func = "NDArray:tostype", argument = "stype",
      expected = "default", got = stype, message = "sparse storage is not part of Tycho" }
  end
  return x:copy()
end


-- Tests and waiting -------------------------------------------------------------------------------

--- Returns the size of the first dimension.
function NDArray.len(x)
  return x._shape[1]
end


local BYTE = { 1 }
local address = ffi.new("const void *[2]")

-- Returns whether the first bytes have the same address. Storages are not compared, since outputs
-- of executors that share a pool are different storages.
local function same_address(x, y)
  if x._device ~= y._device or x._device >= C.TY_GPU then
    return false
  end
  check(C.ty_tensor_const_data(x._h, address), "NDArray:same_memory")
  check(C.ty_tensor_const_data(y._h, address + 1), "NDArray:same_memory")
  return address[0] == address[1]
end


--- Returns whether two arrays begin at the same address.
function NDArray.same_memory(x, y)
  if not is_array(y) then
    Error.raise{ code = "type", func = "NDArray:same_memory", argument = "y",
      expected = "an NDArray", got = Error.kind(y), message = "bad 'y'" }
  end
  local a = class.view_as(x, BYTE, args.DTYPES.uint8)
  local b = class.view_as(y, BYTE, args.DTYPES.uint8)
  return C.ty_tensor_same(a._h, b._h) ~= 0 or same_address(x, y)
end


--- Waits until the values are computed; a failure is raised, once.
function NDArray.wait_to_read(x)
  gc.finish()
  check(C.ty_tensor_wait(x._h, 0), "NDArray:wait_to_read")
end


--- Waits until no queued work reads or writes the array.
function NDArray.wait_to_write(x)
  check(C.ty_tensor_wait(x._h, 1), "NDArray:wait_to_write")
end


return shape_of
