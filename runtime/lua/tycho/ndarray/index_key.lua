--- Parsing of array keys: `x[2]`, `x["1:3, :, -1"]`, `x[{"1:3", ty.newaxis, {0, 2}}]`.
--
-- `index_key.read` turns any key into a selection:
--
--     sel.axes   per axis of x: start, step, count (an integer has count 1), whole (all of the axis
--                in order)
--     sel.shape  shape of the result: integers dropped, new axes of 1 inserted, at least one
--                dimension
--     sel.count  number of selected elements
--     sel.bare   whether the key is one slice without bounds: the array itself, not a view of it
--     sel.lists  nil for a basic key; else the index lists, see `ndarray/gather.lua`
--
-- Numbers count from 0, negative ones from the end; the end of a slice is
-- excluded and bounds are clipped.
--
-- @module tycho.ndarray.index_key

local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local mask = require "tycho.ndarray.mask"
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"

local index_key = {}

local Slice, newaxis, ellipsis, null = values.Slice, values.newaxis, values.ellipsis, values.null
local is_plain = values.is_plain


-- Texts -------------------------------------------------------------------------------------------

local function fail_text(text, part, func)
  Error.raise{ code = "value", func = func, argument = "key",
    expected = "numbers, a:b:c, ..., None", got = text,
    message = ("'%s' is no index"):format(part) }
end


local WORDS = { ["..."] = ellipsis, None = newaxis, newaxis = newaxis }


local function read_part(text, part, func)
  if WORDS[part] then
    return WORDS[part]
  elseif part:find("^[+-]?%d+$") then
    return tonumber(part)
  end
  local bounds = {}
  for bound in (part .. ":"):gmatch("([^:]*):") do
    bound = bound:match("^%s*(.-)%s*$")
    if bound ~= "" and bound ~= "None" and not bound:find("^[+-]?%d+$") then
      fail_text(text, part, func)
    end
    bounds[#bounds + 1] = tonumber(bound) or false
  end
  if #bounds < 2 or #bounds > 3 then
    fail_text(text, part, func)
  end
  return values.slice(bounds[1] or nil, bounds[2] or nil, bounds[3] or nil)
end


local MOST_TEXTS = 256

local texts, ntexts = {}, 0

-- Returns a text such as "1:3, :, -1" as a list of keys. Lists are kept by text and must not be
-- changed.
local function read_text(text, func)
  local list = texts[text]
  if list then
    return list
  end
  list = {}
  local inner = text:match("^%s*(.-)%s*,?%s*$")
  for part in (inner .. ","):gmatch("%s*(.-)%s*,") do
    list[#list + 1] = read_part(text, part, func)
  end
  if ntexts >= MOST_TEXTS then
    texts, ntexts = {}, 0
  end
  texts[text], ntexts = list, ntexts + 1
  return list
end


-- Lists -------------------------------------------------------------------------------------------

local function list_of(k, func)
  if is_plain(k) or class.is_array(k) then
    return k
  end
  Error.raise{ code = "type", func = func, argument = "key", got = Error.kind(k),
    expected = "a number, ty.slice, ty.newaxis, ty.ellipsis, a list or an NDArray",
    message = "bad index" }
end


local function is_basic(k)
  return type(k) == "number" or k == newaxis or k == null or k == ellipsis or Class.is_a(k, Slice)
end


-- Returns a list of keys in which texts such as "1:3" are parsed.
local function read_texts(list, func)
  local keys = list
  for i = 1, #list do
    if type(list[i]) == "string" then
      local parts = read_text(list[i], func)
      if #parts ~= 1 then
        fail_text(list[i], list[i], func)
      end
      keys = keys == list and tables.copied(list) or keys
      keys[i] = parts[1]
    end
  end
  return keys
end


-- Returns any key as a list of keys, one per axis.
local function keys_of(k, func)
  if type(k) == "string" then
    return read_text(k, func)
  elseif is_plain(k) then
    return read_texts(k, func)
  end
  return { k }
end


-- Returns the position of the ellipsis (or where it would be), and the number of axes of the keys.
local function count_axes(keys, ndim, func)
  local named, position = 0, nil
  for i = 1, #keys do
    if keys[i] == ellipsis then
      if position then
        Error.raise{ code = "index", func = func, argument = "key",
          message = "an index has at most one ellipsis" }
      end
      position = i
    elseif keys[i] ~= newaxis and keys[i] ~= null then
      named = named + 1
    end
  end
  if named > ndim then
    Error.raise{ code = "index", func = func, argument = "key",
      expected = ("at most %d"):format(ndim), got = named,
      message = ("too many indices for an array of %d dimensions"):format(ndim) }
  end
  return position or #keys + 1, ndim - named
end


-- Axes --------------------------------------------------------------------------------------------

local function check_integer(v, func)
  if type(v) ~= "number" or v ~= math.floor(v) then
    Error.raise{ code = "type", func = func, argument = "key", expected = "an integer",
      got = Error.kind(v), message = "bad index" }
  end
  return v
end


local function integer_axis(i, axis, size, func)
  check_integer(i, func)
  local at = i < 0 and i + size or i
  if at < 0 or at >= size then
    transfer.fail_index(i, axis, size, func)
  end
  return { start = at, step = 1, count = 1, drop = true }
end


local function clip(v, size, low, high)
  if v < 0 then
    v = v + size
  end
  return math.max(low, math.min(high, v))
end


local function slice_axis(slice, size, func)
  local step = slice.step == nil and 1 or check_integer(slice.step, func)
  if step == 0 then
    Error.raise{ code = "value", func = func, argument = "key", got = tostring(slice),
      message = "a slice's step is not 0" }
  end
  local low, high = step > 0 and 0 or -1, step > 0 and size or size - 1
  local start, stop = step > 0 and low or high, step > 0 and high or low
  if slice.start ~= nil then
    start = clip(check_integer(slice.start, func), size, low, high)
  end
  if slice.stop ~= nil then
    stop = clip(check_integer(slice.stop, func), size, low, high)
  end
  return {
    start = start, step = step, count = math.max(0, math.ceil((stop - start) / step)),
    crossed = step == 1 and start > stop,
    whole = step == 1 and start == 0 and stop == size,
    bare = step == 1 and slice.start == nil and slice.stop == nil,
  }
end


local function whole_axis(size)
  return { start = 0, step = 1, count = size, whole = true }
end


local function read_axis(k, axis, size, func)
  if type(k) == "number" then
    return integer_axis(k, axis, size, func)
  elseif Class.is_a(k, Slice) then
    return slice_axis(k, size, func)
  end
  return { list = list_of(k, func) }
end


-- Returns one entry per key, with the ellipsis expanded: an axis {start, step, count ...}, a list
-- {list}, or a new axis {new}. All but new axes have their `axis` (from 1); `gap` is the number of
-- entries before the ellipsis.
local function expand(x, keys, func)
  local shape, entries, axis = x._shape, {}, 0
  local position, missing = count_axes(keys, #shape, func)
  local function add(entry)
    entries[#entries + 1] = entry
    if not entry.new then
      axis = axis + 1
      entry.axis = axis
    end
  end
  for i = 1, math.max(#keys, position) do
    local k = keys[i]
    if i == position then
      entries.gap = #entries
      for _ = 1, missing do
        add(whole_axis(shape[axis + 1]))
      end
    elseif k == newaxis or k == null then
      add{ new = true, start = 0, step = 1, count = 1 }
    else
      add(read_axis(k, axis, shape[axis + 1], func))
    end
  end
  return entries
end


local function basic(entries)
  local sel = { axes = {}, shape = {}, count = 1 }
  for _, e in ipairs(entries) do
    if not e.new then
      sel.axes[#sel.axes + 1] = e
      sel.crossed = sel.crossed or e.crossed
    end
    if not e.drop then
      sel.shape[#sel.shape + 1] = e.count
    end
    sel.count = sel.count * e.count
  end
  if #sel.shape == 0 then
    sel.shape[1] = 1
  end
  return sel
end


--- Reads a key.
-- @tparam NDArray x
-- @param k number, text, ty.slice, ty.newaxis, ty.ellipsis, NDArray, or a list of such
-- @string func for errors
-- @treturn table the selection; with `lists` (the entries of all keys) if the key has index
--   lists; only `count`, 0, if a mask selects nothing
function index_key.read(x, k, func)
  local keys = keys_of(k, func)
  for i = 1, #keys do
    if class.is_array(keys[i]) then
      keys = mask.expand(x, keys, func)
      if not keys then
        return { count = 0 }
      end
      break
    end
  end
  local entries = expand(x, keys, func)
  for i = 1, #keys do
    if not is_basic(keys[i]) then
      return { lists = entries }
    end
  end
  local sel = basic(entries)
  sel.bare = #keys == 1 and entries[1].bare
  return sel
end


return index_key
