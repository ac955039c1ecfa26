--- Keys with index lists, `x[{{0, 2}}]`, `x[{idx, ty.slice(0, 3)}]`: reading and writing.
--
-- Index lists, and integers with them, broadcast against each other as in NumPy. In the result
-- their common shape replaces the first list if all lists are neighbours (an ellipsis separates
-- them even if it covers no axis), else it comes first. Indices are truncated to integers; negative
-- ones count from the end; an index out of range is E(index). Indices are read on the host, which
-- waits for them. In general the whole key becomes positions in the flattened array; a list along
-- one axis alone uses `take`.
--
-- @module tycho.ndarray.gather

local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local transfer = require "tycho.ndarray.transfer"
local attrs = require "tycho.core.attrs"
local tables = require "tycho.core.tables"

local is_array = class.is_array

local gather = {}

local INT32, INT64 = args.DTYPES.int32, args.DTYPES.int64


-- Broadcasting ------------------------------------------------------------------------------------

local function fail_broadcast(from, to, func)
  Error.raise{ code = "shape", func = func, argument = "value", expected = tables.copied(to),
    got = tables.copied(from),
    message = func == "NDArray:broadcast_to" and "the array does not broadcast to this shape"
      or "the value does not broadcast to what is selected" }
end


--- Returns an array broadcast to a shape: surplus leading dimensions of 1 are dropped, missing ones
-- added.
-- @tparam NDArray v
-- @tparam {int,...} shape
-- @string func public name, for errors
function gather.broadcast(v, shape, func)
  local from, padded, equal = v._shape, {}, true
  local surplus = #from - #shape
  for d = 1, surplus do
    if from[d] ~= 1 then
      fail_broadcast(from, shape, func)
    end
  end
  for d = 1, #shape do
    padded[d] = from[d + surplus] or 1
    if padded[d] ~= shape[d] then
      equal = false
      if padded[d] ~= 1 then
        fail_broadcast(from, shape, func)
      end
    end
  end
  if surplus ~= 0 then
    v = class.view(v, padded, 0, func)
  end
  return equal and v or call.params("broadcast_to", func, { v }, { "shape", attrs.text(shape) })
end


-- Index lists -------------------------------------------------------------------------------------

local function truncate(v)
  return v < 0 and math.ceil(v) or math.floor(v)
end


-- Reads a list or array of indices along an axis of the given size; returns {shape, values from 0,
-- in range}.
local function read_list(list, axis, size, func)
  local x = is_array(list) and list or transfer.from_table(list, INT64, func, "key")
  local p, read = transfer.read(x, func), { shape = x._shape, n = x._size }
  for i = 0, x._size - 1 do
    local v = truncate(tonumber(p[i]))
    local at = v < 0 and v + size or v
    if not (at >= 0 and at < size) then
      transfer.fail_index(v, axis - 1, size, func)
    end
    read[i] = at
  end
  return read
end


local function common_shape(lists, func)
  local shape = {}
  for _, list in ipairs(lists) do
    for d = 0, #list.shape - 1 do
      local n, at = list.shape[#list.shape - d], d + 1
      if shape[at] and shape[at] ~= n and shape[at] ~= 1 and n ~= 1 then
        Error.raise{ code = "index", func = func, argument = "key", got = n, expected = shape[at],
          message = "the index lists do not broadcast against each other" }
      end
      shape[at] = math.max(shape[at] or 1, n)
    end
  end
  return tables.reversed(shape)
end


-- Returns element i (from 0, row-major in `shape`) of a list that broadcasts to `shape`.
local function broadcast_at(list, shape, i)
  local at, stride = 0, 1
  for d = 0, #shape - 1 do
    local n = shape[#shape - d]
    local own = list.shape[#list.shape - d] or 1
    if own ~= 1 then
      at, stride = at + (i % n) * stride, stride * own
    end
    i = math.floor(i / n)
  end
  return list[at]
end


local function make_strides(shape)
  local strides, n = {}, 1
  for d = #shape, 1, -1 do
    strides[d], n = n, n * shape[d]
  end
  return strides
end


-- Positions ---------------------------------------------------------------------------------------

-- Returns all sums of steps along the given axes, row-major.
local function list_offsets(entries, strides)
  local list = { 0 }
  for _, e in ipairs(entries) do
    local wider, stride = {}, e.axis and strides[e.axis] or 0
    for _, base in ipairs(list) do
      for i = 0, e.count - 1 do
        wider[#wider + 1] = base + (e.start + i * e.step) * stride
      end
    end
    list = wider
  end
  return list
end


-- Splits the entries of a key into those before the result's list axes, the lists (integers too),
-- and those after; all in order.
local function split(entries)
  local first, last, together = nil, nil, true
  for i, e in ipairs(entries) do
    if e.list or e.drop then
      first, last = first or i, i
    end
  end
  for i = first, last do
    together = together and (entries[i].list or entries[i].drop) and true or false
  end
  together = together and not (entries.gap >= first and entries.gap < last)
  local before, lists, after = {}, {}, {}
  for i, e in ipairs(entries) do
    local part = (e.list or e.drop) and lists or together and i < first and before or after
    part[#part + 1] = e
  end
  return before, lists, after
end


local function add_counts(shape, entries)
  for _, e in ipairs(entries) do
    shape[#shape + 1] = e.count
  end
end


-- Returns the position of each combination of the lists.
local function list_positions(x, entries, strides, func)
  local lists = {}
  for i, e in ipairs(entries) do
    lists[i] = e.list and read_list(e.list, e.axis, x._shape[e.axis], func)
      or { shape = {}, n = 1, [0] = e.start }
  end
  local shape = common_shape(lists, func)
  local n = 1
  for _, size in ipairs(shape) do
    n = n * size
  end
  local positions = {}
  for i = 0, n - 1 do
    local at = 0
    for k, list in ipairs(lists) do
      at = at + broadcast_at(list, shape, i) * strides[entries[k].axis]
    end
    positions[i + 1] = at
  end
  return positions, shape
end


-- Returns the positions of all selected elements in flattened x as an array, and the result's
-- shape.
local function collect_positions(x, entries, func)
  local strides = make_strides(x._shape)
  local before, lists, after = split(entries)
  local middle, list_shape = list_positions(x, lists, strides, func)
  local outer, inner, flat = list_offsets(before, strides), list_offsets(after, strides), {}
  for _, a in ipairs(outer) do
    for _, b in ipairs(middle) do
      for _, c in ipairs(inner) do
        flat[#flat + 1] = a + b + c
      end
    end
  end
  local shape = {}
  add_counts(shape, before)
  for _, n in ipairs(list_shape) do
    shape[#shape + 1] = n
  end
  add_counts(shape, after)
  if #flat == 0 then
    return nil, shape
  end
  local dtype = x._size < 2 ^ 31 and INT32 or INT64
  local list = transfer.from_table(flat, dtype, func):as_in_context(x.context)
  return list, #shape > 0 and shape or { 1 }
end


-- Returns the only entry with a list, if the key takes every other axis whole; else nil.
local function only_list(entries)
  local found
  for _, e in ipairs(entries) do
    if e.list then
      if found then
        return nil
      end
      found = e
    elseif not e.whole then
      return nil
    end
  end
  return found
end


local function axis_indices(x, e, func)
  local read = read_list(e.list, e.axis, x._shape[e.axis], func)
  local flat = {}
  for i = 1, read.n do
    flat[i] = read[i - 1]
  end
  return class.view(transfer.from_table(flat, INT32, func):as_in_context(x.context),
    read.shape, 0, func)
end


--- Returns `x[key]` for a key with lists, as a copy; raises E(index) if it selects nothing.
-- @tparam NDArray x
-- @tparam table entries of the key (ndarray/index_key.lua)
-- @string func public name, for errors
function gather.get(x, entries, func)
  local alone = only_list(entries)
  if alone and x._shape[alone.axis] < 2 ^ 31 then
    return call.params("take", func, { x, axis_indices(x, alone, func) },
      { "axis", call.number(alone.axis - 1) })
  end
  local positions, shape = collect_positions(x, entries, func)
  if not positions then
    Error.raise{ code = "index", func = func, argument = "key", got = shape,
      expected = "at least one element", message = "the index selects nothing" }
  end
  local flat = class.view(x, { x._size }, 0, func)
  return class.view(call.params("take", func, { flat, positions }, {}), shape, 0, func)
end


--- Sets `x[key] = v` for a key with lists. If an index occurs twice, either value may result.
-- @tparam NDArray x
-- @tparam table entries of the key (ndarray/index_key.lua)
-- @param v number, NDArray or nested table
-- @string func public name, for errors
-- @tparam function fit turns v into an array: `index.fit`
function gather.set(x, entries, v, func, fit)
  local positions, shape = collect_positions(x, entries, func)
  if not positions then
    return
  end
  local n = positions._size
  local source
  if type(v) == "number" then
    source = call.fill(class.new({ n }, x._dtype, x._device, func), v, func)
  else
    source = class.view(fit(x, v, shape, func), { n }, 0, func)
  end
  local flat = class.view(x, { x._size }, 0, func)
  call.params("_scatter_set_nd", func, { flat, source, class.view(positions, { 1, n }, 0, func) },
    { "shape", attrs.text{ x._size } }, flat)
end


return gather
