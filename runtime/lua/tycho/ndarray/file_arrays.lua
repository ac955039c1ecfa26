--- Files of other engines, whose arrays are read on first use (not for users).
--
--     local file = file_arrays.open("model.bin", "nd.load")
--     local header = file:read(0, 16)
--     local x = file:array{ at = 4096, shape = { 10, 20 }, dtype = "float32" }
--
-- An array takes no memory before it is used. If the file has become shorter by then, that use is
-- E(`io`). Arrays keep the file open.
--
-- @module tycho.ndarray.file_arrays

local ffi = require "ffi"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local types = require "tycho.core.types"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local file_arrays = {}

local File = {}
File.__index = File

--- Encoding of elements in a file -> its code, and the dtype of the array. Dtypes of the engine
-- that are not listed have the same name.
file_arrays.ENCODINGS = {
  int16 = { C.TY_FILE_I16, "int32" }, uint16 = { C.TY_FILE_U16, "int32" },
  -- "int32" is a dtype: this is the 32-bit integer that becomes int64
  long32 = { C.TY_FILE_I32, "int64" },
  uint32 = { C.TY_FILE_U32, "int64" }, uint64 = { C.TY_FILE_U64, "int64" },
  e4m3 = { C.TY_FILE_E4M3, "float32" }, e5m2 = { C.TY_FILE_E5M2, "float32" },
  Q4_0 = { C.TY_FILE_Q4_0, "float32" }, Q4_1 = { C.TY_FILE_Q4_1, "float32" },
  Q5_0 = { C.TY_FILE_Q5_0, "float32" }, Q5_1 = { C.TY_FILE_Q5_1, "float32" },
  Q8_0 = { C.TY_FILE_Q8_0, "float32" }, Q4_K = { C.TY_FILE_Q4_K, "float32" },
  Q5_K = { C.TY_FILE_Q5_K, "float32" }, Q6_K = { C.TY_FILE_Q6_K, "float32" },
}
local ENCODINGS = file_arrays.ENCODINGS


local function wrap(handle, path, func)
  local size = ffi.new("int64_t[1]")
  check(C.ty_file_size(handle, size), func)
  return setmetatable({ _h = handle, path = path, size = tonumber(size[0]), func = func }, File)
end


--- Opens a file.
-- @string path
-- @string func the public function that was called, for errors
-- @treturn table with the methods below, and `path`, `size` in bytes
function file_arrays.open(path, func)
  local out = ffi.new("ty_file *[1]")
  check(C.ty_file_open(path, out), func, { argument = path })
  return wrap(native.own(out[0], C.ty_file_free), path, func)
end


--- Opens a file that another one names, such as one with a model's weights. Names and links that
-- lead out of the folder are E(`format`).
-- @string folder
-- @string name relative to it
-- @string func the public function that was called, for errors
-- @treturn table as `open`
function file_arrays.open_in(folder, name, func)
  local out = ffi.new("ty_file *[1]")
  check(C.ty_file_open_in(folder, name, out), func, { argument = name })
  return wrap(native.own(out[0], C.ty_file_free), folder .. "/" .. name, func)
end


--- Returns a file in memory with a copy of the bytes.
-- @param bytes text, or a pointer
-- @int n number of bytes
-- @string path name of the file in errors
-- @string func for errors
-- @treturn table as that of `open`
function file_arrays.copy(bytes, n, path, func)
  local out = ffi.new("ty_file *[1]")
  check(C.ty_file_copy(bytes, n, out), func, { argument = path })
  return wrap(native.own(out[0], C.ty_file_free), path, func)
end


--- Returns the dtype of an array whose elements have an encoding.
-- @string stored the encoding in the file: a dtype, or a key of `ENCODINGS`
-- @treturn ?string nil: it is unknown
function file_arrays.dtype_of(stored)
  return ENCODINGS[stored] and ENCODINGS[stored][2] or types.DTYPES[stored] and stored
end


--- Returns whether strides, in elements, are those of a dense array.
-- @tparam {int,...} sizes
-- @tparam {int,...} strides
function file_arrays.is_dense(sizes, strides)
  local stride = 1
  for i = #sizes, 1, -1 do
    if sizes[i] ~= 1 and strides[i] ~= stride then
      return false
    end
    stride = stride * sizes[i]
  end
  return true
end


--- Reads bytes at once.
-- @int at first byte, from 0
-- @int n number of bytes
-- @treturn string
function File:read(at, n)
  self:check_range(at, n)
  local buffer = ffi.new("uint8_t[?]", n)
  self:read_into(buffer, at, n)
  return ffi.string(buffer, n)
end


--- Reads bytes into the caller's memory.
function File:read_into(to, at, n)
  check(C.ty_file_read(self._h, at, to, n), self.func, { argument = self.path })
end


--- Raises E(format) if the file does not have these bytes, before memory is allocated for them.
function File:check_range(at, n)
  if not (at >= 0 and n >= 0 and at + n <= self.size) then
    Error.raise{ code = "format", func = self.func, argument = self.path,
      message = ("'%s': %.0f bytes at byte %.0f are asked for, but the file has %.0f")
        :format(self.path, n, at, self.size) }
  end
end


--- Makes an array of a part of the file.
-- @tparam table t at: byte of the first element, from 0; shape; dtype: the encoding in the file,
--   a dtype or a key of `ENCODINGS`; strides: elements between neighbours along each axis, if they
--   are not dense; swapped: big-endian
-- @treturn NDArray on the CPU
function File:array(t)
  local n, out = #t.shape, ffi.new("ty_tensor *[1]")
  local stored = ENCODINGS[t.dtype]
  local desc = ffi.new("ty_desc", { dtype = types.DTYPES[stored and stored[2] or t.dtype], ndim = n,
    device = context.cpu()._device })
  local stride = t.strides and ffi.new("int64_t[?]", math.max(n, 1))
  for i = 1, n do
    desc.dim[i - 1] = t.shape[i]
    if stride then
      stride[i - 1] = t.strides[i]
    end
  end
  local encoding = (stored and stored[1] or C.TY_FILE_PLAIN)
    + (t.swapped and C.TY_FILE_SWAPPED or 0)
  check(C.ty_file_tensor(self._h, t.at, desc, stride, encoding, out), self.func,
    { argument = self.path })
  return class.share(out[0])
end


return file_arrays
