--- Tensors of ONNX files as constants (onnx/value.lua): types, positions of elements, arrays.
--
-- Elements that the file stores as the engine does become an array that is read on first use.
-- Others are converted: uint16 and int16 to int32, uint32 and uint64 to int64, floats of 8 and 4
-- bits to float32, integers of 4 and 2 bits to 8 bits. Strings and complex numbers are refused.
--
-- @module tycho.onnx.tensor

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local bit = require "bit"
local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local transfer = require "tycho.ndarray.transfer"

local tensor = {}

-- By TensorProto.DataType:
-- - name: in errors and metadata
-- - dtype: of the array; nil: refused
-- - c: C type of an element in the file; for elements smaller than a byte, of the bytes
-- - same: whether elements are stored as in the array
-- - bits: of an element, if it is not a whole byte; signed: whether in two's complement
-- - float: bits of the exponent, bits of the mantissa, bias, form: "ieee" has infinities and NaN,
--   "fn" only NaN, "uz" NaN in the place of negative zero, "all" neither, "e8m0" powers of two
local TYPES = {
  [1]  = { name = "float32", dtype = "float32", c = "float", same = true },
  [2]  = { name = "uint8", dtype = "uint8", c = "uint8_t", same = true },
  [3]  = { name = "int8", dtype = "int8", c = "int8_t", same = true },
  [4]  = { name = "uint16", dtype = "int32", c = "uint16_t" },
  [5]  = { name = "int16", dtype = "int32", c = "int16_t" },
  [6]  = { name = "int32", dtype = "int32", c = "int32_t", same = true },
  [7]  = { name = "int64", dtype = "int64", c = "int64_t", same = true },
  [8]  = { name = "text" },
  [9]  = { name = "bool", dtype = "bool", c = "uint8_t", same = true },
  [10] = { name = "float16", dtype = "float16", c = "uint16_t", same = true },
  [11] = { name = "float64", dtype = "float64", c = "double", same = true },
  [12] = { name = "uint32", dtype = "int64", c = "uint32_t" },
  [13] = { name = "uint64", dtype = "int64", c = "int64_t", same = true },
  [14] = { name = "complex64" },
  [15] = { name = "complex128" },
  [16] = { name = "bfloat16", dtype = "bfloat16", c = "uint16_t", same = true },
  [17] = { name = "float8e4m3fn", dtype = "float32", c = "uint8_t", float = { 4, 3, 7, "fn" } },
  [18] = { name = "float8e4m3fnuz", dtype = "float32", c = "uint8_t", float = { 4, 3, 8, "uz" } },
  [19] = { name = "float8e5m2", dtype = "float32", c = "uint8_t", float = { 5, 2, 15, "ieee" } },
  [20] = { name = "float8e5m2fnuz", dtype = "float32", c = "uint8_t", float = { 5, 2, 16, "uz" } },
  [21] = { name = "uint4", dtype = "uint8", c = "uint8_t", bits = 4 },
  [22] = { name = "int4", dtype = "int8", c = "uint8_t", bits = 4, signed = true },
  [23] = { name = "float4e2m1", dtype = "float32", c = "uint8_t", bits = 4,
    float = { 2, 1, 1, "all" } },
  [24] = { name = "float8e8m0", dtype = "float32", c = "uint8_t", float = { 8, 0, 127, "e8m0" } },
  [25] = { name = "uint2", dtype = "uint8", c = "uint8_t", bits = 2 },
  [26] = { name = "int2", dtype = "int8", c = "uint8_t", bits = 2, signed = true },
}

local MOST_DIMS = 16                                     -- TY_MAXDIM
local MOST_ELEMENTS = 2 ^ 47                             -- bytes that a processor can address


--- Returns the description of a file's type code.
-- @int code
-- @treturn ?table name and dtype; dtype is nil for a type that is refused
function tensor.type_of(code)
  return TYPES[code]
end


local BY_NAME = {}
for _, kind in pairs(TYPES) do
  BY_NAME[kind.name] = kind
end

--- Returns the description of a type by ONNX's name.
-- @string name
function tensor.named(name)
  return BY_NAME[name]
end


local function fail(t, code, text, ...)
  Error.raise{ code = code, func = t.func, argument = t.name,
    message = ("tensor '%s': %s"):format(t.name, text:format(...)) }
end


-- Returns the number of elements; raises an error for invalid sizes or products of sizes.
local function count_elements(t)
  local n = 1
  if #t.dims > MOST_DIMS then
    fail(t, "unsupported", "%d dimensions, at most %d", #t.dims, MOST_DIMS)
  end
  for _, size in ipairs(t.dims) do
    if size < 0 then
      fail(t, "format", "a dimension of %d", size)
    end
    n = n * size
    if n > MOST_ELEMENTS then
      fail(t, "format", "more elements than a machine has addresses")
    end
  end
  return n
end


local function read_integer(t, key, default)
  local text = t.external[key]
  local n = text == nil and default or tonumber(text)
  if not n or n < 0 or n ~= math.floor(n) then
    fail(t, "format", "its external data has the %s '%s'", key, tostring(text))
  end
  return n
end


-- Returns the file that contains the elements, and their position: {at, bytes}.
local function find_external_position(t, model)
  local name = t.external and t.external.location
  if not name then
    fail(t, "format", "its data are in another file, which has no name")
  end
  local files = model.files or {}
  model.files = files
  files[name] = files[name] or file_arrays.open_in(model.folder, name, t.func)
  local file, at = files[name], read_integer(t, "offset", 0)
  local bytes = read_integer(t, "length", math.max(file.size - at, 0))
  if at > file.size or bytes > file.size - at then
    fail(t, "format", "bytes %d to %d of '%s', which has %d", at, at + bytes, name, file.size)
  end
  return file, { at = at, bytes = bytes }
end


-- Returns the file and the position of a tensor's elements if they are contiguous and stored in the
-- type's usual form, else nil.
local function find_dense_position(t, kind, model)
  if t.is_external then
    return find_external_position(t, model)
  elseif t.raw then
    return model.file, t.raw
  end
  local part = t.parts and not t.parts[2] and not t.values and t.parts[1]
  if part and (t.kind == "float" and kind.name == "float32"
      or t.kind == "double" and kind.name == "float64") then
    return model.file, part
  end
end


-- Reads -------------------------------------------------------------------------------------------

-- Returns the value of a small float from its bits.
local function decode_float(code, form)
  local exponents, mantissas, bias, kind = unpack(form)
  if kind == "e8m0" then
    return code == 255 and 0 / 0 or 2 ^ (code - bias)
  end
  local size = 2 ^ mantissas
  local sign = code >= size * 2 ^ exponents and -1 or 1
  local magnitude = code % (size * 2 ^ exponents)
  local e, m = math.floor(magnitude / size), magnitude % size
  local top = 2 ^ exponents - 1
  if kind == "ieee" and e == top then
    return m == 0 and sign / 0 or 0 / 0
  elseif kind == "fn" and e == top and m == size - 1 or kind == "uz" and sign < 0 and magnitude == 0
  then
    return 0 / 0
  elseif e == 0 then
    return sign * m / size * 2 ^ (1 - bias)
  end
  return sign * (1 + m / size) * 2 ^ (e - bias)
end


-- Returns element i (from 0) of bytes that hold several small elements each, the lowest bits first.
local function read_bits(bytes, i, kind)
  local per_byte = 8 / kind.bits
  local code = bit.band(bit.rshift(bytes[math.floor(i / per_byte)], i % per_byte * kind.bits),
    2 ^ kind.bits - 1)
  return kind.signed and code >= 2 ^ (kind.bits - 1) and code - 2 ^ kind.bits or code
end


-- Returns an FFI array of type kind.dtype with n elements from the file.
local function convert_elements(n, kind, source)
  local target = ffi.new(kind.dtype == "float32" and "float[?]" or kind.dtype == "int64"
    and "int64_t[?]" or kind.dtype == "int32" and "int32_t[?]" or "uint8_t[?]", n)
  for i = 0, n - 1 do
    local v = kind.bits and read_bits(source, i, kind) or source[i]
    target[i] = kind.float and decode_float(v, kind.float) or v
  end
  return target
end


-- Returns the numbers in separate or packed fields as an FFI array of the element's type.
local function read_scattered(t, n, kind, model)
  local values, from = ffi.new(kind.c .. "[?]", math.max(n, 1)), 0
  local function put(v)
    if from < n then
      values[from] = v
    end
    from = from + 1
  end
  for _, part in ipairs(t.parts or {}) do
    tensor.each_packed(model, part, t.kind, put)
  end
  for _, v in ipairs(t.values or {}) do
    put(v)
  end
  return values, from
end


local WIDTHS = { float = "float", double = "double" }

--- Calls a function with each number of a packed field.
-- @tparam table model the model of the file
-- @tparam table part at, bytes
-- @string kind "float", "double" or "varint"
-- @tparam function f
function tensor.each_packed(model, part, kind, f)
  local bytes = model.file:read(part.at, part.bytes)
  if WIDTHS[kind] then
    local n = math.floor(#bytes / ffi.sizeof(WIDTHS[kind]))
    local numbers = ffi.new(WIDTHS[kind] .. "[?]", n)
    ffi.copy(numbers, bytes, n * ffi.sizeof(WIDTHS[kind]))
    for i = 0, n - 1 do
      f(numbers[i])
    end
    return
  end
  local value, shift = 0ULL, 0
  for i = 1, #bytes do
    local byte = bytes:byte(i)
    value = value + bit.lshift(0ULL + bit.band(byte, 127), shift)
    shift = shift + 7
    if byte < 128 then
      f(ffi.cast("int64_t", value))
      value, shift = 0ULL, 0
    end
  end
end


-- Returns a new array whose elements are those of FFI memory.
local function make_array(values, n, shape, dtype, func)
  local code = args.DTYPES[dtype]
  return transfer.from_string(ffi.string(values, n * tensor.BYTES[dtype]), shape, code, func)
end

--- Bytes of an element, by dtype.
tensor.BYTES = { float32 = 4, float64 = 8, float16 = 2, bfloat16 = 2, uint8 = 1, int8 = 1,
  int32 = 4, int64 = 8, bool = 1 }


local function count_bytes(n, kind)
  return kind.bits and math.ceil(n * kind.bits / 8) or n * ffi.sizeof(kind.c)
end


-- Returns the array of contiguous elements; if the engine has the type, they are read on first use.
local function make_dense_array(t, n, kind, shape, file, position)
  local want = count_bytes(n, kind)
  if position.bytes ~= want then
    fail(t, "format", "%d bytes of elements instead of %d", position.bytes, want)
  end
  if kind.same then
    return file:array{ at = position.at, shape = shape, dtype = kind.dtype }
  end
  local source = ffi.new(kind.c .. "[?]", kind.bits and want or n)
  ffi.copy(source, file:read(position.at, want), want)
  return make_array(convert_elements(n, kind, source), n, shape, kind.dtype, t.func)
end


-- Returns the array of elements that are in several fields.
local function make_scattered_array(t, n, kind, shape, model)
  local count = kind.bits and count_bytes(n, kind) or n
  if count > model.file.size then
    fail(t, "format", "%d elements, more than the file has bytes", n)
  end
  local source, got = read_scattered(t, count, kind, model)
  if got ~= count then
    fail(t, "format", "%d elements instead of %d", got, count)
  end
  if kind.same then
    return make_array(source, n, shape, kind.dtype, t.func)
  end
  return make_array(convert_elements(n, kind, source), n, shape, kind.dtype, t.func)
end


--- Returns a tensor's shape and type, and its array.
-- @tparam table t in the form of `onnx.model_file`
-- @tparam table model the model of the file
-- @treturn table shape (ONNX's), dtype, array (a function; nil if there are no elements)
function tensor.read(t, model)
  local kind = TYPES[t.type]
  if not kind or not kind.dtype or t.is_text then
    fail(t, "unsupported", "elements of type %s", kind and kind.name or tostring(t.type))
  end
  local n = count_elements(t)
  local shape = #t.dims > 0 and t.dims or { 1 }
  local value = { shape = t.dims, dtype = kind.dtype, onnx_type = kind.name }
  if n > 0 then
    local file, position = find_dense_position(t, kind, model)
    local x = position and make_dense_array(t, n, kind, shape, file, position)
      or make_scattered_array(t, n, kind, shape, model)
    value.array = x
  end
  return value
end


return tensor
