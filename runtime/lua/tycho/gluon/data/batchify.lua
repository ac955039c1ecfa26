--- Batches of samples: `ty.gluon.data.batchify`.
--
--     local f = gluon.data.batchify.group(gluon.data.batchify.pad{ val = -1 },
--       gluon.data.batchify.stack)
--     local loader = gluon.data.DataLoader{ set, batch_size = 8, batchify_fn = f }
--
-- A function of this kind gets the list of samples (a value each, or a list of values) and returns
-- the batch's fields.
--
-- @module tycho.gluon.data.batchify

local ffi = require "ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local nd = require "tycho.ndarray"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local is_array, is_plain = class.is_array, values.is_plain
local unpack = unpack

local batchify = {}


-- One field ---------------------------------------------------------------------------------------

local function same_kind(list, test, what, func)
  for i, v in ipairs(list) do
    if not test(v) then
      Error.raise{ code = "type", func = func, argument = tostring(i - 1), expected = what,
        got = Error.kind(v), message = "the samples of a batch are of one kind" }
    end
  end
end


local function is_number(v)
  return type(v) == "number" or type(v) == "boolean"
end


local function all_whole(list)
  for _, v in ipairs(list) do
    if v ~= math.floor(v) then
      return false
    end
  end
  return true
end


-- Stacks numbers and booleans to an array of `dtype` (that of the array that they come from; nil:
-- float32). If `whole`, the type holds only if all numbers are whole, else the result is float32.
local function stack_numbers(list, dtype, whole, func)
  same_kind(list, is_number, "a number", func)
  local plain = {}
  for i, v in ipairs(list) do
    plain[i] = v == true and 1 or v or 0
  end
  if whole and not all_whole(plain) then
    dtype = nil
  end
  return nd.array(plain, { dtype = dtype or "float32" })
end


local make_batch                           -- of any field

-- Stacks the values of each position of lists of equal length.
local function stack_lists(list, func)
  local n, fields = #list[1], {}
  same_kind(list, function(v) return is_plain(v) and #v == n end, ("a list of %d"):format(n), func)
  for k = 1, n do
    local column = {}
    for i, v in ipairs(list) do
      column[i] = v[k]
    end
    fields[k] = make_batch(column, nil, nil, func)
  end
  return fields
end


local spec, ready, made = ffi.new("ty_batch_spec"), ffi.new("int[1]"), ffi.new("ty_tensor *[1]")
local loader_of, source_of, id = ffi.new("ty_loader *[1]"), ffi.new("ty_source *[1]"),
  ffi.new("int64_t[1]")
local number = ffi.new("double[1]")


-- Stacks arrays in host memory, without a limit of their number.
local function stack_here(list, func)
  check(C.ty_loader_new(0, loader_of), func)
  local loader = native.own(loader_of[0], C.ty_loader_free)
  check(C.ty_source_new(source_of), func)
  local source = native.own(source_of[0], C.ty_source_free)
  check(C.ty_source_given(source), func)
  local given, numbers = ffi.new("ty_tensor *[?]", #list), ffi.new("int64_t[?]", #list)
  for i, x in ipairs(list) do
    given[i - 1], numbers[i - 1] = x.handle, i - 1
  end
  ffi.fill(spec, ffi.sizeof(spec))
  spec.source, spec.sample, spec.given, spec.n, spec.stack = source, numbers, given, #list, 1
  check(C.ty_loader_submit(loader, spec, id), func)
  check(C.ty_loader_wait(loader, id[0], 0, ready), func)
  check(C.ty_loader_field(loader, id[0], 0, -1, made, number), func)
  local x = class.own(made[0])
  C.ty_loader_free(ffi.gc(loader, nil))
  C.ty_source_free(ffi.gc(source, nil))
  return x
end


local function stack_arrays(list, func)
  same_kind(list, is_array, "an array", func)
  for _, x in ipairs(list) do
    if x.context.device_type ~= "cpu" then
      return nd.stack(list)
    end
  end
  return stack_here(list, func)
end


function make_batch(list, dtype, whole, func)
  local first = list[1]
  if is_array(first) then
    return stack_arrays(list, func)
  elseif is_number(first) then
    return stack_numbers(list, dtype, whole, func)
  elseif is_plain(first) then
    return stack_lists(list, func)
  end
  return list
end


--- One field of a batch (not for users).
-- @tparam table list the values
-- @tparam ?string dtype of numbers
-- @tparam ?bool whole dtype holds while they are whole
-- @string func for errors
batchify.field = make_batch


-- Functions for loaders ---------------------------------------------------------------------------

local function check_samples(samples, func)
  if not is_plain(samples) or #samples == 0 then
    Error.raise{ code = is_plain(samples) and "value" or "type", func = func,
      argument = "samples", expected = "a list of samples", got = Error.kind(samples),
      message = "bad 'samples'" }
  end
end


--- Makes batches in the usual way: arrays are stacked, numbers become an array (float32), lists of
-- values are taken field by field, other values stay in lists.
-- @tparam table samples a list of what the data set gives
-- @return the fields
function batchify.default(samples)
  check_samples(samples, "gluon.data.batchify.default")
  if is_plain(samples[1]) then
    local fields = stack_lists(samples, "gluon.data.batchify.default")
    return unpack(fields, 1, #samples[1])
  end
  return make_batch(samples, nil, nil, "gluon.data.batchify.default")
end


--- Stacks arrays and numbers to one array; lists of values field by field.
function batchify.stack(samples)
  check_samples(samples, "gluon.data.batchify.stack")
  return make_batch(samples, nil, nil, "gluon.data.batchify.stack")
end


-- Returns a list of numbers, perhaps nested, or a number, as an array.
local function as_array(v)
  if is_array(v) then
    return v
  end
  return nd.array(type(v) == "number" and { v } or v, { dtype = "float32" })
end


local function longest(list, axis, func)
  local shape = list[1].shape
  for i, x in ipairs(list) do
    if x.ndim ~= #shape or x.dtype ~= list[1].dtype then
      Error.raise{ code = x.ndim ~= #shape and "shape" or "dtype", func = func,
        argument = tostring(i - 1), expected = ("%d dimensions, %s"):format(#shape, list[1].dtype),
        got = ("%d dimensions, %s"):format(x.ndim, x.dtype),
        message = "the samples of a batch are of one kind" }
    end
    for k, n in ipairs(x.shape) do
      if axis and k ~= axis and n ~= shape[k] then
        Error.raise{ code = "shape", func = func, argument = tostring(i - 1), expected = shape,
          got = x.shape, message = ("samples may differ on axis %d only"):format(axis - 1) }
      end
      shape[k] = math.max(shape[k], n)
    end
  end
  return shape
end


local function axis_of(axis, ndim, func)
  if axis and (axis >= ndim or axis < -ndim) then
    Error.raise{ code = "value", func = func, argument = "axis",
      expected = ("%d to %d"):format(-ndim, ndim - 1), got = axis,
      message = "the samples have no such axis" }
  end
  return axis and axis % ndim + 1
end


local PAD = args.form("gluon.data.batchify.pad", { { "axis", "integer?" }, { "val", "number", 0 },
  { "dtype", "dtype?" } })

local function padded(samples, a)
  local func = "gluon.data.batchify.pad"
  check_samples(samples, func)
  local list = {}
  for i, v in ipairs(samples) do
    list[i] = as_array(v)
  end
  local shape = longest(list, axis_of(a.axis, list[1].ndim, func), func)
  local out = nd.full({ #list, unpack(shape) }, a.val, { dtype = a.dtype or list[1].dtype })
  for i, x in ipairs(list) do
    local key = { tostring(i - 1) }
    for k, n in ipairs(x.shape) do
      key[k + 1] = "0:" .. n
    end
    out[table.concat(key, ", ")] = x:astype(out.dtype)
  end
  return out
end


--- Returns a function that fills samples (arrays, or lists of numbers) up to the longest one and
-- stacks them.
-- @int[opt] axis the one along which samples differ, from 0; nil: any
-- @number[opt=0] val what they are filled with
-- @tparam[opt] table options dtype: of the batch, that of the samples otherwise
-- @treturn function
function batchify.pad(...)
  local a = PAD(...)
  return function(samples)
    return padded(samples, a)
  end
end


local function run_group(list, samples)
  local fields = {}
  for k, f in ipairs(list) do
    local column = {}
    for i, sample in ipairs(samples) do
      if not is_plain(sample) or #sample ~= #list then
        Error.raise{ code = "value", func = "gluon.data.batchify.group",
          argument = tostring(i - 1), expected = #list .. " values",
          got = is_plain(sample) and #sample or Error.kind(sample),
          message = "there is a function for each value of a sample" }
      end
      column[i] = sample[k]
    end
    fields[k] = f(column)
  end
  return unpack(fields, 1, #list)
end


--- Returns a function that calls one for each value of a sample.
-- @param ... functions, or a list of them
-- @treturn function
function batchify.group(...)
  local first = ...
  local list = is_plain(first) and first or { ... }
  for k, f in ipairs(list) do
    if not args.types["function"].check(f) then
      Error.raise{ code = "type", func = "gluon.data.batchify.group", argument = tostring(k),
        expected = "a function", got = Error.kind(f), message = ("bad argument %d"):format(k) }
    end
  end
  return function(samples)
    check_samples(samples, "gluon.data.batchify.group")
    return run_group(list, samples)
  end
end


return namespace.close(batchify, "gluon.data.batchify", "function")
