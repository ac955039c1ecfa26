--- Numbers between Lua and tensors: nested tables, bytes, foreign memory, single elements.
--
-- 16-bit floats are passed as float32 and converted by the core. Reading waits for queued work and
-- raises its failures. Nested tables are row-major, 1-based and must not be ragged.
--
-- @module tycho.ndarray.transfer

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local nans = require "tycho.core.nans"
local product = require("tycho.core.tables").product

local C, check = native.C, native.check
local NDArray, BYTES, POINTERS = class.NDArray, class.BYTES, class.POINTERS

local transfer = {}

local F32, F16, BOOL, BF16 = C.TY_F32, C.TY_F16, C.TY_BOOL, C.TY_BF16
local CPU = C.TY_CPU

local CAPACITY = 4096                                        -- bytes of a small read or write

local scratch = ffi.new("uint64_t[?]", CAPACITY / 8)
transfer._scratch = scratch                  -- casts do not keep it alive
local small, large = {}, {}              -- by dtype: pointers into scratch; types of new buffers

for dtype, name in pairs{ [0] = "float", "double", "uint16_t", "uint8_t", "int32_t", "int8_t",
    "int64_t", "uint8_t", [12] = "uint16_t" } do
  small[dtype], large[dtype] = ffi.cast(name .. " *", scratch), ffi.typeof(name .. "[?]")
end


-- Returns memory for n elements; a small one is reused by the next call.
local function buffer(dtype, n)
  if n * BYTES[dtype] <= CAPACITY then
    return small[dtype]
  end
  return large[dtype](n)
end


local function fail_element(v, func, argument)
  Error.raise{ code = "type", func = func, argument = argument, expected = "numbers",
    got = Error.kind(v), message = "an array is made of numbers" }
end


-- Returns the shape of nested tables: that of their first members; others are checked when they are
-- read. A table may be inside itself.
local function shape_of(t, func, argument)
  local shape = {}
  while type(t) == "table" do
    local kind = getmetatable(t)
    if kind == NDArray then
      for _, n in ipairs(t._shape) do
        shape[#shape + 1] = n
      end
      return shape
    elseif kind then
      fail_element(t, func, argument)
    elseif #shape == C.TY_MAXDIM then
      Error.raise{ code = "shape", func = func, argument = argument,
        expected = ("at most %d levels"):format(C.TY_MAXDIM), got = "more",
        message = "tables are nested too deep for an array" }
    end
    shape[#shape + 1] = #t
    t = t[1]
  end
  return shape
end


local function fail_ragged(want, got, func, argument)
  Error.raise{ code = "shape", func = func, argument = argument, expected = want, got = got,
    message = "the rows of the table have different lengths" }
end


local function check_row(t, want, func, argument)
  if type(t) ~= "table" then
    fail_ragged(want, "a number", func, argument)
  elseif #t ~= want then
    fail_ragged(want, #t, func, argument)
  end
end


-- Writes the innermost table. `truth`: numbers other than 0 become 1.
local function put_numbers(p, at, t, n, truth, func, argument)
  for i = 1, n do
    local v = t[i]
    if type(v) ~= "number" then
      if type(v) == "table" then
        fail_ragged("a number", "a table", func, argument)
      elseif type(v) ~= "cdata" or not tonumber(v) then
        fail_element(v, func, argument)
      end
    end
    p[at + i - 1] = truth and (v ~= 0 and 1 or 0) or v
  end
end


local function put_table(p, at, t, shape, depth, truth, func, argument)
  if getmetatable(t) == NDArray then
    t = t:totable()
  end
  local n = shape[depth]
  check_row(t, n, func, argument)
  if depth == #shape then
    put_numbers(p, at, t, n, truth, func, argument)
    return at + n
  end
  for i = 1, n do
    at = put_table(p, at, t[i], shape, depth + 1, truth, func, argument)
  end
  return at
end


--- Returns a new array on the CPU from a number or nested tables of numbers.
-- @param source number or table
-- @int dtype code
-- @string func for errors
-- @string[opt] argument for errors
-- @treturn NDArray
function transfer.from_table(source, dtype, func, argument)
  if type(source) == "number" then
    source = { source }
  elseif type(source) ~= "table" then
    fail_element(source, func, argument)
  elseif getmetatable(source) ~= NDArray and rawget(source, 1) == nil and next(source) ~= nil then
    fail_element(source, func, argument)
  end
  local shape = shape_of(source, func, argument)
  local kind = (dtype == F16 or dtype == BF16) and F32 or dtype
  local x = class.new(shape, kind, CPU, func)
  local size = product(shape)
  local p = buffer(kind, size)
  put_table(p, 0, source, shape, 1, kind == BOOL, func, argument)
  check(C.ty_tensor_write(x._h, p, size * BYTES[kind]), func)
  if kind ~= dtype then
    return call.copy(class.new(shape, dtype, CPU, func), x, func)
  end
  return x
end


-- Returns an array whose elements Lua can read: x itself, or x as float32.
local function readable(x, func)
  if x._dtype == F16 or x._dtype == BF16 then
    return call.copy(class.new(x._shape, F32, x._device, func), x, func)
  end
  return x
end


--- Returns the elements, row-major, to be used before anything else is read.
-- @tparam NDArray x
-- @string func for errors
-- @return cdata indexed from 0; floats for 16-bit floats
function transfer.read(x, func)
  local y = readable(x, func)
  local size = product(y._shape)
  local p = buffer(y._dtype, size)
  gc.finish()
  check(C.ty_tensor_read(y._h, p, size * BYTES[y._dtype]), func)
  nans.mend(p, y._dtype, size)
  return p
end


local function take_table(p, at, shape, depth)
  local t, n = {}, shape[depth]
  if depth == #shape then
    for i = 1, n do
      t[i] = tonumber(p[at + i - 1])
    end
    return t, at + n
  end
  for i = 1, n do
    t[i], at = take_table(p, at, shape, depth + 1)
  end
  return t, at
end


--- Converts the elements to nested tables of numbers: what `asnumpy`, `numpy` and `tolist` do in
-- Python. Waits. bool as 0 and 1; int64 beyond 2^53 loses digits.
function NDArray.totable(x)
  return (take_table(transfer.read(x, "NDArray:totable"), 0, x._shape, 1))
end


--- Returns the value of an array of one element. Waits. More elements: E(value).
function NDArray.asscalar(x)
  local size = product(x._shape)
  if size ~= 1 then
    Error.raise{ code = "value", func = "NDArray:asscalar", expected = "one element", got = x.shape,
      message = ("the array has %d elements"):format(size) }
  end
  return (tonumber(transfer.read(x, "NDArray:asscalar")[0]))
end


--- Returns the elements' bytes as a Lua string, little-endian, row-major. Waits.
function NDArray.tostring_raw(x)
  local size = product(x._shape)
  local p, bytes = buffer(x._dtype, size), size * BYTES[x._dtype]
  check(C.ty_tensor_read(x._h, p, bytes), "NDArray:tostring_raw")
  return ffi.string(p, bytes)
end


local out_pointer = ffi.new("void *[1]")

--- Returns a typed FFI pointer to the elements, on the CPU only (else E(device)). Waits; valid
-- while the array lives. 16-bit floats appear as `uint16_t`. NaNs that operators make are safe to
-- read. NaNs from a file may have any bits, which operators keep, and LuaJIT takes some of them
-- for pointers: read such elements with `totable`. Call this function again before each series
-- of writes, so that the engine knows of them.
function NDArray.data(x)
  check(C.ty_tensor_data(x._h, out_pointer), "NDArray:data")
  return ffi.cast(POINTERS[x._dtype], out_pointer[0])
end


-- Returns the byte offset of an element; indices count from 0, negative ones from the end. Raises
-- E(index) outside.
local function offset_of(x, indices, n, func)
  local shape, at = x._shape, 0
  if n ~= #shape then
    Error.raise{ code = "index", func = func, expected = #shape .. " indices", got = n,
      message = ("an array of %d dimensions takes %d indices"):format(#shape, #shape) }
  end
  for d = 1, n do
    local i = indices[d]
    if type(i) ~= "number" or i ~= math.floor(i) then
      Error.raise{ code = "type", func = func, argument = "index " .. d, expected = "an integer",
        got = Error.kind(i), message = "bad index" }
    end
    i = i < 0 and i + shape[d] or i
    if i < 0 or i >= shape[d] then
      transfer.fail_index(indices[d], d - 1, shape[d], func)
    end
    at = at * shape[d] + i
  end
  return at * BYTES[x._dtype]
end


--- Raises E(index) with the valid interval.
function transfer.fail_index(i, axis, size, func)
  Error.raise{ code = "index", func = func, argument = "axis " .. axis,
    expected = ("%d to %d"):format(-size, size - 1), got = i,
    message = ("index %s is out of range for axis %d of size %d"):format(tostring(i), axis, size) }
end


local ONE = { 1 }

--- Returns one element, `x:get(i, j)`, as a number; waits until it is computed.
-- @tparam NDArray x
-- @tparam int ... one index per axis, from 0, negative from the end; outside E(index)
function NDArray.get(x, ...)
  local at = offset_of(x, { ... }, select("#", ...), "NDArray:get")
  return class.view(x, ONE, at, "NDArray:get"):asscalar()
end


--- Sets one element: `x:set(i, j, v)`.
function NDArray.set(x, ...)
  local n = select("#", ...)
  local v = n > 0 and select(n, ...) or nil
  class.writable(x, "NDArray:set")
  if type(v) ~= "number" then
    Error.raise{ code = "type", func = "NDArray:set", argument = "v", expected = "a number",
      got = Error.kind(v), message = "bad value" }
  end
  local at = offset_of(x, { ... }, n - 1, "NDArray:set")
  local one = transfer.from_table(v, x._dtype, "NDArray:set")
  call.copy(class.view(x, ONE, at, "NDArray:set"), one:as_in_context(x.context), "NDArray:set")
end


-- Foreign memory ----------------------------------------------------------------------------------

-- Each row: the owner, a weak reference to the token to which all arrays on the memory refer, a
-- tensor to wait for.
local foreign = {}


-- Releases owners whose arrays have been collected, after the last queued work on their memory.
local function sweep()
  local kept = {}
  for _, row in ipairs(foreign) do
    if row.token[1] ~= nil then
      kept[#kept + 1] = row
    else
      C.ty_tensor_wait(row.handle, 1)
    end
  end
  foreign = kept
end

gc.watch(sweep)


-- When the Lua state closes, this finalizer runs before the memory of owners is freed, and waits
-- for queued work on it.
transfer.last = ffi.gc(ffi.new("char[1]"), function()
  C.ty_wait(-1)
end)


local function hold(x, owner)
  local token, out = {}, ffi.new("ty_tensor *[1]")
  rawset(x, "_owner", token)
  C.ty_tensor_view(x._h, class.describe(x._shape, x._dtype, x._device), 0, out)
  foreign[#foreign + 1] = { owner = owner, token = setmetatable({ token }, { __mode = "v" }),
    handle = ffi.gc(out[0], C.ty_tensor_free) }
end


--- Returns an array on the caller's memory, which is not copied.
-- @param pointer cdata: a pointer or array; aligned to an element
-- @tparam {int,...} shape
-- @int dtype code
-- @param owner kept alive as long as the memory is used; nil: the caller keeps the memory alive
-- @string func for errors
function transfer.from_pointer(pointer, shape, dtype, owner, func)
  local out = ffi.new("ty_tensor *[1]")
  local desc = class.describe(shape, dtype, CPU, func)
  check(C.ty_tensor_wrap(desc, ffi.cast("void *", pointer), out), func)
  local x = class.share(out[0])
  sweep()
  hold(x, owner == nil and pointer or owner)
  return x
end


--- Returns an array of raw bytes.
-- @string bytes little-endian, row-major
-- @tparam {int,...} shape
-- @string dtype
-- @string func public name, for errors
function transfer.from_string(bytes, shape, dtype, func)
  local x = class.new(shape, dtype, CPU, func)
  local want = product(x._shape) * BYTES[dtype]
  if #bytes ~= want then
    Error.raise{ code = "shape", func = func, argument = "bytes", expected = want, got = #bytes,
      message = ("%s of shape %s has %d bytes")
        :format(args.DTYPE_NAMES[dtype], Error.show(shape), want) }
  end
  check(C.ty_tensor_write(x._h, bytes, want), func)
  return x
end


return transfer
