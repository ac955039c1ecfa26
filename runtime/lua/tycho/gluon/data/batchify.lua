--- Batches of samples: `ty.gluon.data.batchify`.
--
--     local f = gluon.data.batchify.group(gluon.data.batchify.pad{ val = -1 },
--       gluon.data.batchify.stack)
--     local loader = gluon.data.DataLoader{ set, batch_size = 8, batchify_fn = f }
--
-- Such a function is called with the list of samples, each a value or a list of values, and returns
-- the fields of the batch.
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

-- Raises E(type), which names the sample, unless all entries of a list pass a test.
local function check_kinds(list, test, what, func)
  for i, v in ipairs(list) do
    if not test(v) then
      Error.raise{ code = "type", func = func, argument = tostring(i - 1), expected = what,
        got = Error.kind(v), message = ("sample %d of the batch is of another kind than sample 0")
          :format(i - 1) }
    end
  end
end


local function is_number(v)
  return type(v) == "number" or type(v) == "boolean"
end


local function are_whole(list)
  for _, v in ipairs(list) do
    if v ~= math.floor(v) then
      return false
    end
  end
  return true
end


-- Returns numbers and booleans as an array. dtype: that of the array they come from, nil: float32;
-- whole: whether to use dtype only if all numbers are whole, else float32.
local function stack_numbers(list, dtype, whole, func)
  check_kinds(list, is_number, "a number", func)
  local plain = {}
  for i, v in ipairs(list) do
    plain[i] = v == true and 1 or v or 0
  end
  if whole and not are_whole(plain) then
    dtype = nil
  end
  return nd.array(plain, { dtype = dtype or "float32" })
end


local make_batch                           -- defined below; calls stack_lists

-- Returns the fields of samples that are lists of equal length: one field for each position.
local function stack_lists(list, func)
  local n, fields = #list[1], {}
  check_kinds(list, function(v) return is_plain(v) and #v == n end, ("a list of %d"):format(n),
    func)
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
local new_loader, new_source, id = ffi.new("ty_loader *[1]"), ffi.new("ty_source *[1]"),
  ffi.new("int64_t[1]")
local number = ffi.new("double[1]")


-- Returns arrays in host memory stacked along a new axis 0, in any number.
local function stack_here(list, func)
  check(C.ty_loader_new(0, new_loader), func)
  local loader = native.own(new_loader[0], C.ty_loader_free)
  check(C.ty_source_new(new_source), func)
  local source = native.own(new_source[0], C.ty_source_free)
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


-- Returns arrays stacked along a new axis 0.
local function stack_arrays(list, func)
  check_kinds(list, is_array, "an array", func)
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


--- Returns one field of a batch: arrays are stacked, numbers become an array, lists become one
-- field per position, other values stay in their list (not for users).
-- @tparam table list the values
-- @tparam ?string dtype of an array of numbers, nil: float32
-- @tparam ?bool whole whether to use dtype only if all numbers are whole, else float32
-- @string func name of the caller, for errors
batchify.field = make_batch


-- Functions for loaders ---------------------------------------------------------------------------

local function check_samples(samples, func)
  if not is_plain(samples) or #samples == 0 then
    Error.raise{ code = is_plain(samples) and "value" or "type", func = func,
      argument = "samples", expected = "a list of samples", got = Error.kind(samples),
      message = "bad 'samples'" }
  end
end


--- Makes a batch in the usual way. Arrays are stacked along a new axis 0, numbers become a float32
-- array of shape (batch), lists of values become one field per position, other values stay in a
-- list.
-- @tparam table samples list of samples
-- @return a field for each value of a sample
-- @raise E(`type`) for samples of different kinds, E(`shape`), E(`dtype`) for arrays that differ
function batchify.default(samples)
  check_samples(samples, "gluon.data.batchify.default")
  if is_plain(samples[1]) then
    local fields = stack_lists(samples, "gluon.data.batchify.default")
    return unpack(fields, 1, #samples[1])
  end
  return make_batch(samples, nil, nil, "gluon.data.batchify.default")
end


--- Makes a batch as `default` does, but returns the fields of samples that are lists as one list.
-- @tparam table samples list of samples
-- @return an array, or a list of fields
function batchify.stack(samples)
  check_samples(samples, "gluon.data.batchify.stack")
  return make_batch(samples, nil, nil, "gluon.data.batchify.stack")
end


-- Converts a number or a nested list of numbers to a float32 array; an array is returned unchanged.
local function as_array(v)
  if is_array(v) then
    return v
  end
  return nd.array(type(v) == "number" and { v } or v, { dtype = "float32" })
end


-- Returns the shape that holds all arrays of a list. Raises E(shape) if they differ on other axes
-- than `axis` (from 1; nil: any), E(dtype) if their dtypes differ.
local function find_longest(list, axis, func)
  local shape = list[1].shape
  for i, x in ipairs(list) do
    if x.ndim ~= #shape or x.dtype ~= list[1].dtype then
      Error.raise{ code = x.ndim ~= #shape and "shape" or "dtype", func = func,
        argument = tostring(i - 1), expected = ("%d dimensions, %s"):format(#shape, list[1].dtype),
        got = ("%d dimensions, %s"):format(x.ndim, x.dtype),
        message = ("sample %d of the batch is of another kind than sample 0"):format(i - 1) }
    end
    for k, n in ipairs(x.shape) do
      if axis and k ~= axis and n ~= shape[k] then
        Error.raise{ code = "shape", func = func, argument = tostring(i - 1), expected = shape,
          got = x.shape, message = ("sample %d of the batch differs from sample 0 on axis %d; \z
            only axis %d may differ"):format(i - 1, k - 1, axis - 1) }
      end
      shape[k] = math.max(shape[k], n)
    end
  end
  return shape
end


-- Returns an axis counted from 1, for one from 0 or, negative, from the end; nil for nil.
local function resolve_axis(axis, ndim, func)
  if axis and (axis >= ndim or axis < -ndim) then
    Error.raise{ code = "value", func = func, argument = "axis",
      expected = ("%d to %d"):format(-ndim, ndim - 1), got = axis,
      message = ("the samples have no axis %d"):format(axis) }
  end
  return axis and axis % ndim + 1
end


local PAD = args.form("gluon.data.batchify.pad", { { "axis", "integer?" }, { "val", "number", 0 },
  { "dtype", "dtype?" } })

-- Returns samples as one array, padded to the largest sample; a: arguments of `pad`.
local function pad_samples(samples, a)
  local func = "gluon.data.batchify.pad"
  check_samples(samples, func)
  local list = {}
  for i, v in ipairs(samples) do
    list[i] = as_array(v)
  end
  local shape = find_longest(list, resolve_axis(a.axis, list[1].ndim, func), func)
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


--- Returns a function that pads samples to the longest one and stacks them along a new axis 0.
-- Samples are arrays of one dtype, numbers, or nested lists of numbers (float32).
-- @int[opt] axis along which samples may differ, from 0, negative from the end; nil: all axes. A
--   difference on another axis is E(`shape`)
-- @number[opt=0] val value of the padding
-- @tparam[opt] table options dtype: of the batch; default: that of the samples
-- @treturn function of a list of samples: returns an array
function batchify.pad(...)
  local a = PAD(...)
  return function(samples)
    return pad_samples(samples, a)
  end
end


-- Returns the results of functions, each called with the list of the values of all samples at one
-- position.
local function run_group(list, samples)
  local fields = {}
  for k, f in ipairs(list) do
    local column = {}
    for i, sample in ipairs(samples) do
      if not is_plain(sample) or #sample ~= #list then
        Error.raise{ code = "value", func = "gluon.data.batchify.group",
          argument = tostring(i - 1), expected = #list .. " values",
          got = is_plain(sample) and #sample or Error.kind(sample),
          message = ("sample %d of the batch does not have a value for each of the %d functions")
            :format(i - 1, #list) }
      end
      column[i] = sample[k]
    end
    fields[k] = f(column)
  end
  return unpack(fields, 1, #list)
end


--- Returns a function that makes each field of a batch with a separate function.
-- @param ... functions, or a list of functions: one for each value of a sample, called with the
--   list of this value of all samples
-- @treturn function of a list of samples: returns a field for each function. Samples with another
--   number of values are E(`value`)
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
