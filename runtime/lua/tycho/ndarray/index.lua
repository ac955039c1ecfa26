--- Getting and setting with keys: `x[key]`, `x[key] = v`, `x:at(i)`.
--
-- A basic key (numbers, slices, new axes) gives a view where the selected elements are
-- contiguous, else a copy; writing through a view changes the base. A key with lists or arrays
-- gathers a copy (ndarray/gather.lua). An integer on a one-dimensional array gives shape {1}.
-- An empty selection is E(index), as arrays have at least one element; an assignment to it does
-- nothing.
--
-- @module tycho.ndarray.index

local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local gather = require "tycho.ndarray.gather"
local transfer = require "tycho.ndarray.transfer"
local index_key = require "tycho.ndarray.index_key"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local NDArray, BYTES, is_array = class.NDArray, class.BYTES, class.is_array

local index = {}


-- Selections --------------------------------------------------------------------------------------

-- Returns whether the selected elements are contiguous: from the right, whole axes, then
-- one part, then single elements.
local function is_contiguous(x, sel)
  local shape, parted = x._shape, false
  if sel.count <= 1 then
    return true
  end
  for d = #shape, 1, -1 do
    local axis = sel.axes[d]
    if axis.count > 1 and axis.step ~= 1 or parted and axis.count > 1 then
      return false
    end
    parted = parted or axis.count < shape[d]
  end
  return true
end


local function offset_of(x, sel)
  local shape, at = x._shape, 0
  for d = 1, #shape do
    at = at * shape[d] + sel.axes[d].start
  end
  return at * BYTES[x._dtype]
end


-- Returns the parameters of the slice operators for a selection.
local function slice_params(sel)
  local first, last, step = {}, {}, {}
  for d, axis in ipairs(sel.axes) do
    local stop = axis.start + axis.count * axis.step
    if axis.step > 0 then
      stop = axis.start + (axis.count - 1) * axis.step + 1
    end
    first[d], last[d], step[d] = axis.start, stop < 0 and values.null or stop, axis.step
  end
  return { "begin", attrs.text(first), "end", attrs.text(last), "step", attrs.text(step) }
end


local function check_selection(sel, k, func)
  if sel.crossed then
    Error.raise{ code = "index", func = func, argument = "key", got = tostring(k),
      expected = "begin <= end", message = "the bounds of the slice are crossed" }
  end
end


-- Getting -----------------------------------------------------------------------------------------

local ROW = {}                                           -- scratch: the shape of a row

-- Returns sub-array i along the first axis as a view; i counts from 0, negative from the end.
local function row(x, i, func)
  local shape = x._shape
  local at = i < 0 and i + shape[1] or i
  if i ~= math.floor(i) then
    Error.raise{ code = "type", func = func, argument = "key", expected = "an integer",
      got = Error.kind(i), message = "bad index" }
  elseif at < 0 or at >= shape[1] then
    transfer.fail_index(i, 0, shape[1], func)
  end
  local n = math.max(1, #shape - 1)
  for d = 1, n do
    ROW[d] = shape[d + 1] or 1
  end
  for d = #ROW, n + 1, -1 do
    ROW[d] = nil
  end
  return class.view(x, ROW, at * (x._size / shape[1]) * BYTES[x._dtype], func)
end


local function is_all(x, sel)
  for _, axis in ipairs(sel.axes) do
    if not axis.whole then
      return false
    end
  end
  return #sel.shape == #x._shape
end


--- Returns `x[key]`: a view if the elements are contiguous, else a copy; x itself for `x[":"]`.
function index.get(x, k)
  if type(k) == "number" then
    return row(x, k, "NDArray")
  end
  local sel = index_key.read(x, k, "NDArray")
  if sel.lists then
    return gather.get(x, sel.lists, "NDArray")
  end
  check_selection(sel, k, "NDArray")
  if sel.count == 0 then
    Error.raise{ code = "index", func = "NDArray", argument = "key", got = tostring(k),
      expected = "at least one element",
      message = "the index selects nothing" }
  elseif sel.bare then
    return x
  elseif is_contiguous(x, sel) then
    return class.view(x, sel.shape, offset_of(x, sel), "NDArray")
  end
  local copy = call.params("slice", "NDArray", { x }, slice_params(sel))
  return class.view(copy, sel.shape, 0, "NDArray")
end


--- Returns sub-array i along the first axis as a view; i counts from 0, negative from the end.
function NDArray.at(x, i)
  if type(i) ~= "number" then
    Error.raise{ code = "type", func = "NDArray:at", argument = "i", expected = "an integer",
      got = Error.kind(i), message = "bad 'i'" }
  end
  return row(x, i, "NDArray:at")
end


-- Setting -----------------------------------------------------------------------------------------

local function is_value(v)
  return type(v) == "number" or type(v) == "boolean"
end


local function number_of(v)
  return type(v) == "boolean" and (v and 1 or 0) or v
end


--- Returns v as an array of x's element type, on x's device, broadcast to exactly the given shape.
-- @tparam NDArray x
-- @param v NDArray or nested table
-- @tparam {int,...} shape
-- @string func public name, for errors
function index.fit(x, v, shape, func)
  if type(v) == "table" and not is_array(v) and values.is_plain(v) then
    v = transfer.from_table(v, x._dtype, func, "value")
  elseif not is_array(v) then
    Error.raise{ code = "type", func = func, argument = "value",
      expected = "a number, NDArray or nested table", got = Error.kind(v), message = "bad value" }
  end
  v = gather.broadcast(v, shape, func)
  if v._dtype ~= x._dtype or v._device ~= x._device then
    v = call.copy(class.new(v._shape, x._dtype, x._device, func), v, func)
  end
  return v
end


-- Sets all elements of x.
local function set_all(x, v, func)
  if is_value(v) then
    call.fill(x, number_of(v), func)
  elseif is_array(v) and tables.same(v._shape, x._shape) then
    call.copy(x, v, func)
  else
    call.copy(x, index.fit(x, v, x._shape, func), func)
  end
end


local function set_part(x, sel, v, func)
  local params = slice_params(sel)
  class.writable(x, func)
  if is_value(v) then
    params[7], params[8] = "scalar", call.number(number_of(v))
    call.params("_slice_assign_scalar", func, { x }, params, x)
    return
  end
  local region = {}
  for d, axis in ipairs(sel.axes) do
    region[d] = axis.count
  end
  local fitted = index.fit(x, v, sel.shape, func)
  call.params("_slice_assign", func, { x, class.view(fitted, region, 0, func) }, params, x)
end


--- Sets `x[key] = v`; v is a number, an NDArray or a nested table, and broadcasts to the shape of
-- the selection.
function index.set(x, k, v)
  class.writable(x, "NDArray")
  if type(k) == "number" then
    return set_all(row(x, k, "NDArray"), v, "NDArray")
  end
  local sel = index_key.read(x, k, "NDArray")
  if sel.lists then
    return gather.set(x, sel.lists, is_value(v) and number_of(v) or v, "NDArray", index.fit)
  end
  check_selection(sel, k, "NDArray")
  if sel.count == 0 then
    return
  elseif is_all(x, sel) then
    set_all(x, v, "NDArray")
  elseif is_contiguous(x, sel) then
    set_all(class.view(x, sel.shape, offset_of(x, sel), "NDArray"), v, "NDArray")
  else
    set_part(x, sel, v, "NDArray")
  end
end


return index
