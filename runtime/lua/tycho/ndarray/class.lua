--- The class of arrays: a Lua table around a native tensor, its fields, how it is freed, and the
-- scope that frees arrays.
--
-- An array is `{_h, _shape, _dtype, _slot}`: the handle, shape and type of the tensor, read once
-- because they never change, and its slot (see "Handles"). There are four fields because a fifth
-- doubles the memory of the table, and each call makes one. `_readonly` (for arrays of monitors),
-- `_owner` (of foreign memory) and `_kept` (an object of the engine has it: scopes do not free it)
-- are set only where they apply. `_shape` never leaves the library, and arrays of one shape and
-- device share it, so no code may write to it; the field `shape` is a copy. After `free` the four
-- fields are nil, and reading one of them is E(state). `_size` and `_device` are computed on
-- access.
--
-- Methods are added to the class by the other files of the folder; `ndarray/init.lua` loads them
-- and defines `x[key]`.
--
-- @module tycho.ndarray.class

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local list = require "tycho.core.list"
local recording = require "tycho.ndarray.recording"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local C, check = native.C, native.check
local ffi_gc, new_table = ffi.gc, require "table.new"
local setmetatable, tonumber = setmetatable, tonumber

local class = {}

--- An array. Fields, all read-only: shape (a table, from 1), ndim, size (elements), dtype, context
-- (ctx), T (transposed), stype ("default"), writable, grad (after attach_grad), fresh_grad.
-- `x[key]` selects elements: by a number from 0, a text such as "1:3, :", or a list of these.
-- Comparisons are methods (`x:gt(0)`). All operators whose first input is an array are methods,
-- too.
local NDArray = Class:extend("NDArray")
class.NDArray = NDArray
args.class("array", NDArray)

--- Bytes of an element, by dtype code.
class.BYTES = { [0] = 4, [1] = 8, [2] = 2, [3] = 1, [4] = 4, [5] = 1, [6] = 8, [7] = 1, [12] = 2 }
local BYTES = class.BYTES

--- FFI pointer types by dtype code; 16-bit floats as their bits.
class.POINTERS = {
  [0] = ffi.typeof("float *"),    [1] = ffi.typeof("double *"),  [2] = ffi.typeof("uint16_t *"),
  [3] = ffi.typeof("uint8_t *"),  [4] = ffi.typeof("int32_t *"), [5] = ffi.typeof("int8_t *"),
  [6] = ffi.typeof("int64_t *"),  [7] = ffi.typeof("uint8_t *"), [12] = ffi.typeof("uint16_t *"),
}

local desc = ffi.new("ty_desc")                          -- scratch: filled and used at once
local made = ffi.new("ty_tensor *[1]")


-- Handles -----------------------------------------------------------------------------------------

-- A handle has a slot, and a weak table of the slots shows which handles the collector has freed:
-- one finalizer frees their tensors at the end of each cycle of the collector. If each handle had a
-- finalizer, it would be entered into LuaJIT's table of finalizers and finalized by the
-- interpreter, for which compiled code is left: a fifth of the time of a small call.
--
-- Finalizers run at allocations and wherever compiled code is left, so between any
-- two instructions. `busy` is set while the slots are changed: the finalizer then only sets `late`,
-- and the changing function frees the tensors when it is done.

local LEAST_SLOTS = 1024
-- A cycle of the collector is started after this number of new arrays, or more if Lua's heap is
-- large, since a cycle visits it. Lua alone may not start one, as compiled code allocates few
-- objects per array.
local LEAST_NEW = 8192
local HEAP_OF_NEW = 256
local WEAK = { __mode = "v" }

local handles                            -- slot -> handle; nil: collected; false: the slot is free
local pointers                           -- slot -> the handle's pointer
local free_slots                         -- `nfree` slots
local nfree, nslots = 0, 0
local cycle = gc.cycle
local asking = 0                         -- free slots with which a cycle of the collector begins
local asked = false                      -- that cycle has begun
local busy = false                       -- the slots are being changed
local late = false                       -- a cycle has ended while `busy` was set

-- Doubles the number of slots. The tables are made with their full size: a table that grows counts
-- its entries, and would get a hash part if many handles are nil.
local function add_slots()
  local n = math.max(2 * nslots, LEAST_SLOTS)
  local new_handles = setmetatable(new_table(n + 1, 0), WEAK)
  local new_pointers, new_free = ffi.new("ty_tensor *[?]", n + 1), ffi.new("int32_t[?]", n)
  if nslots > 0 then
    ffi.copy(new_pointers, pointers, (nslots + 1) * ffi.sizeof("ty_tensor *"))
    ffi.copy(new_free, free_slots, nfree * ffi.sizeof("int32_t"))
  end
  for slot = 1, nslots do
    new_handles[slot] = handles[slot]
  end
  local n_free = nfree
  for slot = n, nslots + 1, -1 do
    new_handles[slot], new_free[n_free] = false, slot
    n_free = n_free + 1
  end
  handles, pointers, free_slots = new_handles, new_pointers, new_free
  nfree, nslots = n_free, n
end


local BATCH = 128
local gone = ffi.new("int32_t[?]", BATCH)

-- Frees the tensors whose handles were collected. Allocates nothing: there may be no memory.
local function free_gone()
  local n = 0
  for slot = 1, nslots do
    if handles[slot] == nil then
      handles[slot] = false
      gone[n], free_slots[nfree] = slot, slot
      n, nfree = n + 1, nfree + 1
      if n == BATCH then
        C.ty_tensors_free(pointers, gone, n)
        n = 0
      end
    end
  end
  C.ty_tensors_free(pointers, gone, n)
end


-- Runs the loop over slots without tensors, so that it is compiled: LuaJIT compiles nothing while a
-- finalizer runs.
local function compile_loop()
  local handle = ffi.new("ty_tensor *")
  add_slots()
  for _ = 1, 2 do
    nfree = 0
    for slot = 1, nslots do
      if slot % 3 == 0 then
        handles[slot] = handle
      elseif slot % 3 == 1 then
        handles[slot] = nil
      end
    end
    free_gone()
  end
  nslots, nfree = 0, 0
end

compile_loop()


-- Frees the tensors whose handles a cycle of the collector has collected, now or, if the slots are
-- being changed, after that.
local function end_cycle()
  late = busy
  if not late then
    busy = true
    free_gone()
    busy, asked = false, false
    asking = math.max(nfree - math.max(LEAST_NEW, gc.heap_bytes() / HEAP_OF_NEW), 0)
  end
end

gc.at_cycle_end(end_cycle)


-- Begins a cycle of the collector if few slots are free, once until it ends, and adds slots if none
-- is free.
local function find_slots()
  gc.watch_cycles()
  if nfree <= asking and not asked and nslots >= LEAST_NEW then
    asked, asking = true, 0
    gc.begin()
  end
  if nfree == 0 then
    add_slots()
  end
end


-- Registers a handle, which takes over the caller's reference to a tensor. Returns its slot.
local function hold(handle)
  busy = true
  if nfree <= asking or not cycle[1] then
    local ok, e = pcall(find_slots)
    if not ok then
      busy = false
      C.ty_tensor_free(handle)
      error(e, 0)
    end
  end
  nfree = nfree - 1
  local slot = free_slots[nfree]
  handles[slot], pointers[slot] = handle, handle
  busy = false
  if late then
    end_cycle()
  end
  return slot
end


-- Frees a slot and the tensor of its handle; does nothing if the slot is free.
local function free_slot(slot, handle)
  if handles[slot] ~= false then
    busy = true
    handles[slot], free_slots[nfree] = false, slot
    nfree = nfree + 1
    busy = false
    C.ty_tensor_free(handle)
    if late then
      end_cycle()
    end
  end
end


--- An object that is finalized when the Lua state closes, and then frees all tensors.
class.last = ffi_gc(ffi.new("char[1]"), function()
  for slot = 1, nslots do
    handles[slot] = handles[slot] and nil
  end
  free_gone()
end)


-- Wrapping ----------------------------------------------------------------------------------------

local fresh_arrays                       -- list of arrays made since `class.tidy` began, or nil
local open_scopes = 0
local scope_arrays                       -- weak set of arrays made since the innermost scope began


local SHAPES = 64                        -- shapes that are remembered
-- number -> {ndim, its first four sizes, device, _shape, size}
local shapes = {}
-- _shape -> device, unless it is the first CPU
local devices = setmetatable({}, { __mode = "k" })

-- Returns the sizes in the scratch description and their product. LuaJIT does not compile a short
-- loop inside a function; shapes of five dimensions and more are not cached.
local function read_shape()
  local ndim, dim, device = desc.ndim, desc.dim, desc.device
  local a, b, c, d = tonumber(dim[0]), tonumber(dim[1]), tonumber(dim[2]), tonumber(dim[3])
  local at = (a + 3 * b + 9 * c + 27 * d) % SHAPES
  local seen = shapes[at]
  if seen and seen.a == a and seen.b == b and seen.c == c and seen.d == d and seen.ndim == ndim
      and seen.device == device then
    return seen.shape, seen.size
  end
  local shape, size = {}, 1
  for i = 1, ndim do
    local n = tonumber(dim[i - 1])
    shape[i], size = n, size * n
  end
  if device ~= C.TY_CPU then
    devices[shape] = device
  end
  if ndim <= 4 then
    shapes[at] = { ndim = ndim, a = a, b = b, c = c, d = d, device = device, shape = shape,
      size = size }
  end
  return shape, size
end


--- Returns the code of an array's device; for a freed array that of the first CPU.
function class.device_of(x)
  local shape = rawget(x, "_shape")
  return shape and devices[shape] or C.TY_CPU
end

local device_of = class.device_of


-- Returns an array that owns a tensor of the core, and its size. The tensor gets its slot before
-- any other allocation, which may fail.
local function wrap(pointer)
  local slot = hold(pointer)
  C.ty_tensor_desc(pointer, desc)
  local shape, size = read_shape()
  local x = setmetatable({ _h = pointer, _shape = shape, _dtype = desc.dtype, _slot = slot },
    NDArray)
  if open_scopes > 0 then
    scope_arrays[x] = true
  end
  return x, size
end


--- Returns an array that takes over one reference to a new tensor.
-- @param pointer `ty_tensor *`
function class.own(pointer)
  local x, size = wrap(pointer)
  if fresh_arrays then
    fresh_arrays[#fresh_arrays + 1] = x
  end
  gc.count(size * BYTES[x._dtype], desc.device)
  return x
end


--- Returns an array on a tensor that shares memory or is borrowed: takes over one reference and
-- counts no bytes.
function class.share(pointer)
  gc.count(0, nil)
  return (wrap(pointer))
end


--- Declares an array to be a state of a training: if a change in place fails, its old value is
-- valid again once the failure has been reported. Reads of other arrays fail each time.
function class.make_lasting(x)
  C.ty_tensor_lasting(x._h)
end


--- Returns an array on a borrowed tensor.
function class.borrow(pointer)
  C.ty_tensor_keep(pointer)
  return class.share(pointer)
end


--- Returns an array with a shape and no memory, for outputs of a dry run. Reading it is E(state).
function class.outline(pointer)
  local x = class.borrow(pointer)
  free_slot(x._slot, x._h)
  rawset(x, "_h", nil)
  return x
end


--- Returns whether x is an array.
function class.is_array(x)
  return Class.is_a(x, NDArray)
end


--- Returns the shape in a description.
-- @param of `ty_desc`
-- @treturn {int,...}
function class.shape_of(of)
  local shape = {}
  for i = 1, of.ndim do
    shape[i] = tonumber(of.dim[i - 1])
  end
  return shape
end


--- Fills the scratch description.
-- @tparam {int,...} shape
-- @int dtype code
-- @int device code
-- @string func for errors
-- @return `ty_desc`, valid until the next call
function class.describe(shape, dtype, device, func)
  if #shape == 0 or #shape > C.TY_MAXDIM then
    local most = ("1 to %d dimensions"):format(C.TY_MAXDIM)
    Error.raise{ code = "shape", func = func, argument = "shape", expected = most, got = #shape,
      message = "an array has " .. most }
  end
  desc.ndim, desc.dtype, desc.device = #shape, dtype, device
  for i = 1, #shape do
    desc.dim[i - 1] = shape[i]
  end
  return desc
end

local describe = class.describe


local zeros = ffi.new("int[1]")

--- Returns a new array of undefined contents. Out of memory: collects and tries once more.
-- @tparam {int,...} shape
-- @int dtype code
-- @int device code
-- @string func for errors
-- @treturn NDArray
-- @treturn bool whether its elements are zeros, as those of large arrays are, whose pages are
--   untouched
function class.blank(shape, dtype, device, func)
  for i = 1, #shape do
    if shape[i] == 0 then
      Error.raise{ code = "shape", func = func, argument = "shape", got = shape,
        expected = "sizes above 0", message = "an array needs a size above 0 in every dimension" }
    end
  end
  local code = C.ty_tensor_blank(describe(shape, dtype, device, func), made, zeros)
  if code == C.TY_EMEMORY then
    gc.release()
    code = C.ty_tensor_blank(describe(shape, dtype, device, func), made, zeros)
  end
  check(code, func)
  local blank = zeros[0] ~= 0
  return class.own(made[0]), blank
end


--- Returns a new array as `class.blank` does, without its size.
function class.new(shape, dtype, device, func)
  return (class.blank(shape, dtype, device, func))
end


-- Copies the optional fields of an array to its view, and returns the view. Fields that are nil are
-- not set, as that would make the table grow.
local function inherit(x, view)
  local readonly, owner = rawget(x, "_readonly"), rawget(x, "_owner")
  if readonly then
    rawset(view, "_readonly", readonly)
  end
  if owner then
    rawset(view, "_owner", owner)
  end
  return view
end


--- Returns a view: the elements from a byte offset on, under another shape.
-- @tparam NDArray x
-- @tparam {int,...} shape
-- @int offset bytes
-- @string func for errors
function class.view(x, shape, offset, func)
  if recording.on then
    recording.note_line_always()
  end
  check(C.ty_view(x._h, describe(shape, x._dtype, device_of(x), func), offset, made), func)
  return inherit(x, class.share(made[0]))
end


--- Returns another array on the same memory, without a history of recorded calls.
function class.detached(x)
  check(C.ty_tensor_view(x._h, describe(x._shape, x._dtype, x._device), 0, made))
  local v = class.share(made[0])
  check(C.ty_detach(v._h))
  return inherit(x, v)
end


--- Returns a view of the first bytes as other elements (not for users).
function class.view_as(x, shape, dtype)
  check(C.ty_tensor_view(x._h, describe(shape, dtype, x._device), 0, made))
  return class.share(made[0])
end


--- Raises E(state) for an array that may not be written. Notes the write if calls are recorded.
function class.writable(x, func)
  if rawget(x, "_readonly") then
    Error.raise{ code = "state", func = func,
      message = "the array is read-only; copy it first: x:copy()" }
  end
  recording.note_write(x)
end


-- Fields ------------------------------------------------------------------------------------------

local contexts = {}

local function find_context(x)
  local device = x._device
  local c = contexts[device]
  if not c then
    c = context.of_device(device)
    contexts[device] = c
  end
  return c
end


local function freed(x, key)
  Error.raise{ code = "state", func = "NDArray", argument = key, message = rawget(x, "_shape")
    and "the array has no memory: its executor was bound with dry_run" or "the array was freed" }
end


local function nothing()
  return nil
end


local kind, fresh = ffi.new("int[1]"), ffi.new("int[1]")

-- Returns whether backward has written an array's gradient since the last call with clear.
local function read_history(h, clear)
  check(C.ty_history(h, clear, kind, fresh))
  return fresh[0] ~= 0
end


--- Returns whether backward has written the array's gradient since `clear_fresh`.
function class.is_fresh(x)
  return read_history(x._h, 0)
end


--- Makes `fresh_grad` false until the next backward.
function class.clear_fresh(x)
  read_history(x._h, 1)
end


--- Set by autograd/late.lua: (func) raises an error while a backward is held until other devices
-- have called theirs.
class.check_gradient = nil


--- Functions that compute `x.name` if it is neither a raw field nor a method.
class.fields = {
  shape   = function(x) return list(tables.copied(x._shape)) end,
  ndim    = function(x) return #x._shape end,
  size    = function(x) return x._size end,
  dtype   = function(x) return args.DTYPE_NAMES[x._dtype] end,
  context = find_context,
  ctx     = find_context,
  stype   = function() return "default" end,
  handle  = function(x) return x._h end,
  writable = function(x) return not x._readonly end,
  grad    = function(x)
    if class.check_gradient then
      class.check_gradient("NDArray.grad")
    end
    return rawget(x, "_grad")
  end,
  fresh_grad = function(x) return read_history(x._h, 0) end,
  T       = function(x) return #x._shape < 2 and x or x:transpose() end,
  -- private
  _size   = function(x) return tables.product(x._shape) end,
  _device = function(x) return devices[x._shape] or C.TY_CPU end,
  _h = freed, _shape = freed, _dtype = freed, _slot = freed,
  _readonly = nothing, _owner = nothing, _kept = nothing, _grad = nothing,
}


-- Drops the handle now; queued work keeps the memory until it is done. Only existing fields are set
-- to nil: setting an absent one makes the table grow.
function class.drop(x)
  local h = rawget(x, "_h")
  if h then
    local slot = x._slot
    x._h, x._shape, x._dtype, x._slot = nil, nil, nil, nil
    if rawget(x, "_owner") then
      rawset(x, "_owner", nil)
    end
    if rawget(x, "_grad") then
      rawset(x, "_grad", nil)
    end
    free_slot(slot, h)
  end
end


--- Drops the handle of an array to which only the caller refers, and no longer counts its bytes for
-- the collector.
-- @tparam NDArray x
function class.release(x)
  if rawget(x, "_h") then
    gc.discount(tables.product(x._shape) * BYTES[x._dtype])
    class.drop(x)
  end
end


-- Records the arrays among a function's results, which are arrays and lists of arrays.
local function note_results(found, n, ...)
  for i = 1, n do
    local value = select(i, ...)
    if getmetatable(value) == NDArray then
      found[value] = true
    elseif values.is_plain(value) then
      note_results(found, #value, unpack(value))
    end
  end
end


-- Frees all arrays of a list except `result`, which is added to the outer list.
local function keep_one(arrays, outer, result)
  for i = 1, #arrays do
    local x = arrays[i]
    if not rawequal(x, result) then
      class.release(x)
    elseif outer then
      outer[#outer + 1] = x
    end
  end
end


local function end_tidy(outer, ok, ...)
  local arrays, results = fresh_arrays, {}
  fresh_arrays = outer
  if not ok then
    error((...), 0)
  elseif select("#", ...) == 1 and getmetatable((...)) == NDArray then
    keep_one(arrays, outer, (...))
    return ...
  end
  note_results(results, select("#", ...), ...)
  for i = 1, #arrays do
    local x = arrays[i]
    if not results[x] then
      class.release(x)
    elseif outer then
      outer[#outer + 1] = x
    end
  end
  return ...
end


--- Calls a function that keeps no array, and frees those that it made and does not return; views
-- are left to the collector. A recorded result that still exists when the program of the recorded
-- calls is made gets its own memory, and the operators next to it are not fused.
-- @tparam function f its results are arrays and lists of them
-- @param ... its arguments
-- @return the results of f
function class.tidy(f, ...)
  local outer = fresh_arrays
  fresh_arrays = {}
  return end_tidy(outer, pcall(f, ...))
end


--- Waits for the work queued on the array and frees its memory. Later use of the array is E(state);
-- views and executors that share the memory keep it. Failures of the queued work are not raised
-- here, but by reads of dependent arrays.
function NDArray.free(x)
  local h = rawget(x, "_h")
  if h and C.ty_tensor_failed(h) == 0 then
    C.ty_tensor_wait(h, 1)
  end
  class.drop(x)
end


-- Scope -------------------------------------------------------------------------------------------

-- Moves the arrays in a result (also inside tables) from the set of this scope to that of the outer
-- one.
local function spare(set, outer, value, depth)
  if type(value) ~= "table" then
    return
  elseif getmetatable(value) == NDArray then
    if outer then
      outer[value] = set[value]
    end
    set[value] = nil
    spare(set, outer, rawget(value, "_grad"), depth)
  elseif depth < 8 then
    for _, inner in pairs(value) do
      spare(set, outer, inner, depth + 1)
    end
  end
end


--- Excludes arrays that an object keeps from all scopes.
-- @param x an array, or a plain table of arrays and such tables; anything else is left as it is
-- @return x
function class.keep(x)
  if type(x) == "table" and getmetatable(x) == NDArray then
    rawset(x, "_kept", true)
    local grad = rawget(x, "_grad")
    if grad then
      class.keep(grad)
    end
  elseif values.is_plain(x) then
    for _, inner in pairs(x) do
      class.keep(inner)
    end
  end
  return x
end


--- Excludes the array from `ty.scope`: for classes that keep arrays from call to call.
-- @treturn NDArray itself
function NDArray.keep(x)
  return class.keep(x)
end


--- Excludes an array from scopes for as long as another one exists: the gradient of a variable.
-- @tparam NDArray x
-- @tparam NDArray owner
function class.keep_as_long(x, owner)
  local is_temporary = open_scopes > 0 and scope_arrays[owner]
  if rawget(owner, "_kept") or not is_temporary then
    class.keep(x)
  end
end


local function return_to(count, set, ok, ...)
  open_scopes, scope_arrays = count, set
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Calls f outside of all scopes: its arrays belong to the object that calls it, such as the states
-- of an optimizer, and are freed when nothing refers to them any more.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function class.outside(f, ...)
  if open_scopes == 0 then
    return f(...)
  end
  local count, set = open_scopes, scope_arrays
  open_scopes, scope_arrays = 0, nil
  return return_to(count, set, pcall(f, ...))
end


local function alias(x)
  local y = class.borrow(x._h)
  rawset(y, "_readonly", rawget(x, "_readonly"))
  rawset(y, "_owner", rawget(x, "_owner"))
  rawset(y, "_grad", rawget(x, "_grad"))
  return y
end


--- Returns new arrays on the same tensors, for objects that keep arrays of the user: no scope frees
-- them, nor does `free` of the given ones.
-- @tparam {NDArray,...} arrays
-- @treturn {NDArray,...}
function class.aliases(arrays)
  local others = {}
  for i, x in ipairs(arrays) do
    others[i] = class.outside(alias, x)
  end
  return others
end


local function leave(outer, ok, ...)
  local set = scope_arrays
  open_scopes, scope_arrays = open_scopes - 1, outer
  for i = 1, ok and select("#", ...) or 0 do
    spare(set, outer, (select(i, ...)), 0)
  end
  for x in pairs(set) do
    if not x._kept then
      x:free()
    end
  end
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Runs f and frees the arrays that were made inside, except those that it returns (also in
-- tables), those that objects of the engine keep (executors, modules, optimizers, stores,
-- iterators, recorded functions), the gradients of those, and those on which `keep` was called. The
-- results are f's.
-- @tparam function f
-- @param ... its arguments
function class.scope(f, ...)
  if type(f) ~= "function" then
    Error.raise{ code = "type", func = "scope", argument = "f", expected = "a function",
      got = Error.kind(f), message = "bad 'f'" }
  end
  local outer = scope_arrays
  open_scopes, scope_arrays = open_scopes + 1, setmetatable({}, { __mode = "k" })
  return leave(outer, pcall(f, ...))
end


return class
