--- Files of other engines, whose arrays are read when they are first needed (not for users).
--
--     local file = file_arrays.open("model.bin", "nd.load")
--     local header = file:read(0, 16)
--     local x = file:array{ at = 4096, shape = { 10, 20 }, dtype = "float32" }
--
-- An array takes no memory before something uses it. A file that has become shorter by then is
-- E(`io`) at that use. Arrays keep the file open.
--
-- @module tycho.ndarray.file_arrays

local ffi = require "ffi"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local types = require "tycho.core.types"
local native = require "tycho.core.ffi"

local C, check = native.C, native.check

local file_arrays = {}

local File = {}
File.__index = File

local ENCODINGS = { plain = C.TY_FILE_PLAIN, swapped = C.TY_FILE_SWAPPED }


local function opened(pointer, path, func)
  local size = ffi.new("int64_t[1]")
  local handle = native.own(pointer, C.ty_file_free)
  check(C.ty_file_size(handle, size), func)
  return setmetatable({ _h = handle, path = path, size = tonumber(size[0]), func = func }, File)
end


--- Opens a file.
-- @string path
-- @string func the public function that was asked, for errors
-- @treturn table with the methods below, and `path`, `size` in bytes
function file_arrays.open(path, func)
  local out = ffi.new("ty_file *[1]")
  check(C.ty_file_open(path, out), func, { argument = path })
  return opened(out[0], path, func)
end


--- Opens a file that another one names, such as one with a model's weights. Names and links that
-- lead out of the folder are E(`format`).
-- @string folder
-- @string name relative to it
-- @string func the public function that was asked, for errors
-- @treturn table as `open`
function file_arrays.open_in(folder, name, func)
  local out = ffi.new("ty_file *[1]")
  check(C.ty_file_open_in(folder, name, out), func, { argument = name })
  return opened(out[0], folder .. "/" .. name, func)
end


--- Reads bytes at once.
-- @int at from byte, counted from 0
-- @int n how many
-- @treturn string
function File:read(at, n)
  local buffer = ffi.new("uint8_t[?]", n)
  check(C.ty_file_read(self._h, at, buffer, n), self.func, { argument = self.path })
  return ffi.string(buffer, n)
end


--- Makes an array of a part of the file.
-- @tparam table t at: byte of the first element, from 0; shape; dtype; strides: elements between
--   neighbours along each axis, where they are not dense; encoding = "plain": "plain"
--   (little-endian) or "swapped"
-- @treturn NDArray on the CPU
function File:array(t)
  local n, out = #t.shape, ffi.new("ty_tensor *[1]")
  local desc = ffi.new("ty_desc", { dtype = types.DTYPES[t.dtype], ndim = n,
    device = context.cpu()._device })
  local stride = t.strides and ffi.new("int64_t[?]", math.max(n, 1))
  for i = 1, n do
    desc.dim[i - 1] = t.shape[i]
    if stride then
      stride[i - 1] = t.strides[i]
    end
  end
  check(C.ty_file_tensor(self._h, t.at, desc, stride, ENCODINGS[t.encoding or "plain"], out),
    self.func, { argument = self.path })
  return class.share(out[0])
end


return file_arrays
