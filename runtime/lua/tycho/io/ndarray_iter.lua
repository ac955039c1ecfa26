--- Batches of arrays in memory: `ty.io.NDArrayIter`.
--
-- An epoch has the rows in their own order or, with `shuffle`, in a new permutation at each reset.
-- Consecutive rows of the data are returned as views, others as copies. An incomplete last batch is
-- completed with the first rows of the epoch ("pad", repeatedly if need be), left out ("discard"),
-- or held back for the beginning of the next epoch ("roll_over"). The cursor is the position, from
-- 0, of the current batch's first row in the epoch. It is below 0 before the first batch, and in a
-- batch that begins with held rows.
--
-- @module tycho.io.ndarray_iter

local ffi = require "ffi"
local args = require "tycho.core.args"
local base = require "tycho.io.data"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"
require "tycho.ndarray"

local is_array, is_plain = class.is_array, values.is_plain
local F32, I32 = args.DTYPES.float32, args.DTYPES.int32

--- An iterator over arrays. Fields: idx, the numbers of the rows in the order of the epoch
-- (NDArray); num_data, the number of rows; cursor.
-- @type NDArrayIter
local NDArrayIter = base.DataIter:extend("NDArrayIter")

local FORM = args.form("io.NDArrayIter", {
  { "data", "any" }, { "label", "any?" }, { "batch_size", "integer", 1 },
  { "shuffle", "boolean", false }, { "last_batch_handle", { "pad", "discard", "roll_over" },
    "pad" }, { "data_name", "text", "data" }, { "label_name", "text", "softmax_label" },
  { "layout", "text|null", "NCHW" },
})


-- Sources -----------------------------------------------------------------------------------------

local function is_pair(v)
  return is_plain(v) and type(v[1]) == "string"
end


-- Returns data or labels as a list of {name, array or table}; nil for a value that is neither an
-- array nor a table, and for a list with gaps or names.
local function list_sources(given, name)
  if is_array(given) then
    return { { name, given } }
  elseif not is_plain(given) or #given > 0 and not values.is_list(given) then
    return nil
  elseif #given == 0 or is_pair(given[1]) then
    local dict, names = args.pairs_of(given)
    local list = {}
    for i, key in ipairs(names or {}) do
      list[i] = { key, dict[key] }
    end
    return list
  elseif not is_array(given[1]) then
    return { { name, given } }
  end
  local list = {}
  for i, x in ipairs(given) do
    list[i] = { #given == 1 and name or ("_%d_%s"):format(i - 1, name), x }
  end
  return list
end


-- Returns data or labels as a list of {name, array}, sorted by name; raises E(type).
local function read_sources(given, name, argument)
  local list = values.value(given) == nil and {} or list_sources(given, name)
  if not list then
    Error.raise{ code = "type", func = "io.NDArrayIter", argument = argument,
      got = Error.kind(given), expected = "an NDArray, a nested table, or a list or table of them",
      message = ("bad '%s'"):format(argument) }
  end
  for _, source in ipairs(list) do
    if not is_array(source[2]) then
      source[2] = transfer.from_table(source[2], F32, "io.NDArrayIter", argument)
    end
    class.keep(source[2])
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end


-- Raises E(shape) unless all arrays have n rows.
local function check_rows(sources, n, argument, first)
  for _, source in ipairs(sources) do
    if source[2]._shape[1] ~= n then
      Error.raise{ code = "shape", func = "io.NDArrayIter", argument = source[1],
        expected = n .. " rows", got = ("%d rows"):format(source[2]._shape[1]),
        message = ("array '%s' of '%s' has another number of rows than '%s' of 'data'")
          :format(source[1], argument, first) }
    end
  end
end


-- Returns the descriptions of batches of sources.
local function describe_sources(sources, layout, batch_size)
  local list = {}
  for i, source in ipairs(sources) do
    local shape = source[2].shape
    local axis = base.DataDesc.get_batch_axis(layout)
    if axis >= 0 and axis < #shape then
      shape[axis + 1] = batch_size
    end
    list[i] = base.DataDesc(source[1], shape, source[2].dtype, layout)
  end
  return counted_from_1(list)
end


-- Order -------------------------------------------------------------------------------------------

-- Returns 0, 1 ... n - 1 as an FFI array of int32.
local function list_numbers(n)
  local rows = ffi.new("int32_t[?]", n)
  for i = 0, n - 1 do
    rows[i] = i
  end
  return rows
end


-- Returns an NDArray of n numbers of an FFI array.
local function make_index(rows, n)
  return transfer.from_string(ffi.string(rows, 4 * n), { n }, I32, "io.NDArrayIter")
end


-- Sets the public field `idx`.
local function set_index(self, idx)
  self.idx = class.keep(idx)
end


-- Sets the order of the epoch to the row numbers in an int32 NDArray.
local function set_order(self, idx)
  self._order = ffi.new("int32_t[?]", self.num_data)
  ffi.copy(self._order, idx:tostring_raw(), 4 * self.num_data)
  set_index(self, idx)
end


-- If the iterator shuffles, sets the order to a new permutation, drawn from the random state of
-- cpu(0).
local function reorder(self)
  if self.shuffle then
    local n = self.num_data
    set_order(self, call.unary("_shuffle", "io.NDArrayIter", make_index(list_numbers(n), n)))
  end
end


-- The iterator ------------------------------------------------------------------------------------

--- @param data an NDArray, a nested table of numbers (float32), a list of arrays, or a table name
--   -> array, sorted by name; all with the same number of rows along axis 0, else E(`shape`)
-- @param[opt] label in the same form, with the same number of rows
-- @int[opt=1] batch_size rows in a batch, at least 1
-- @tparam[opt] table options shuffle = false: true for a new order in each epoch, drawn from the
--   random state of cpu(0); last_batch_handle = "pad", "discard" or "roll_over"; data_name =
--   "data", label_name = "softmax_label": names of inputs given without one; layout = "NCHW"
function NDArrayIter:init(...)
  local a = FORM(...)
  if a.batch_size < 1 then
    Error.raise{ code = "value", func = "io.NDArrayIter", argument = "batch_size",
      expected = "at least 1", got = a.batch_size, message = "bad 'batch_size'" }
  end
  NDArrayIter.super.init(self, { batch_size = a.batch_size })
  self._data = read_sources(a.data, a.data_name, "data")
  self._label = read_sources(a.label, a.label_name, "label")
  if #self._data == 0 then
    Error.raise{ code = "value", func = "io.NDArrayIter", argument = "data",
      expected = "at least one array", got = "none", message = "bad 'data'" }
  end
  self.num_data = self._data[1][2]._shape[1]
  check_rows(self._data, self.num_data, "data", self._data[1][1])
  check_rows(self._label, self.num_data, "label", self._data[1][1])
  self.shuffle, self.last_batch_handle = a.shuffle, a.last_batch_handle
  self.provide_data = describe_sources(self._data, a.layout, a.batch_size)
  self.provide_label = describe_sources(self._label, a.layout, a.batch_size)
  self.cursor = -a.batch_size
  set_index(self, make_index(list_numbers(self.num_data), self.num_data))
  self:reset()
end


--- Begins a new epoch. After a whole epoch with "roll_over", held rows come first.
function NDArrayIter:reset()
  reorder(self)
  local n, size = self.num_data, self.batch_size
  if self.last_batch_handle == "roll_over" and n - size < self.cursor and self.cursor < n then
    self.cursor = self.cursor - n - size
  else
    self.cursor = -size
  end
end


--- Begins a new epoch and drops held rows.
function NDArrayIter:hard_reset()
  reorder(self)
  self._held, self.cursor = nil, -self.batch_size
end


-- Batches -----------------------------------------------------------------------------------------

-- Returns whether the current batch begins with rows held from the last epoch.
local function has_held_rows(self)
  return self.last_batch_handle == "roll_over" and self.cursor < 0
    and self.cursor > -self.batch_size
end


-- Returns the numbers of `count` rows from position `from` of the epoch on, as the bytes of int32.
-- Positions beyond the end begin at the first again.
local function list_rows(self, from, count)
  local order, n = self._order, self.num_data
  local rows = ffi.new("int32_t[?]", math.max(count, 1))
  for i = 0, count - 1 do
    local at = (from + i) % n
    rows[i] = order and order[at] or at
  end
  return ffi.string(rows, 4 * count)
end


-- Returns the position of the current batch's first row in the epoch, the number of its rows in the
-- epoch, and the held rows before them, as the bytes of int32. Raises E(state) where there is no
-- current batch.
local function get_extent(self)
  local n, size = self.num_data, self.batch_size
  if has_held_rows(self) then
    if not self._held then
      Error.raise{ code = "state", func = "NDArrayIter:getdata",
        message = "the rows held from the last epoch were not read; call next" }
    end
    return 0, math.min(self.cursor + size, n), self._held
  elseif self.cursor < 0 or self.cursor >= n then
    Error.raise{ code = "state", func = "NDArrayIter:getdata", message = self.cursor < 0
      and "call iter_next first" or "the epoch is over; call reset first" }
  elseif self.last_batch_handle == "pad" then
    return self.cursor, size, ""
  end
  return self.cursor, math.min(size, n - self.cursor), ""
end


-- Returns a view of `count` rows of an array.
local function view_rows(x, from, count)
  local shape = x.shape
  local row = x._size / shape[1] * class.BYTES[x._dtype]
  shape[1] = count
  return class.view(x, shape, from * row, "NDArrayIter:getdata")
end


-- Returns the arrays of the current batch.
local function take_rows(self, sources)
  local from, count, held = get_extent(self)
  local index, list = nil, {}
  if held ~= "" or self._order or from + count > self.num_data then
    local bytes = held .. list_rows(self, from, count)
    index = transfer.from_string(bytes, { #bytes / 4 }, I32, "NDArrayIter:getdata")
  end
  for i, source in ipairs(sources) do
    local x = source[2]
    if index then
      list[i] = call.params("take", "NDArrayIter:getdata", { x, index:as_in_context(x.context) },
        { "axis", "0" })
    else
      list[i] = view_rows(x, from, count)
    end
  end
  return list
end


--- Goes to the next batch.
-- @treturn bool false: the epoch has ended
function NDArrayIter:iter_next()
  self.cursor = self.cursor + self.batch_size
  return self.cursor < self.num_data
end


--- Returns the next batch.
-- @treturn ?DataBatch nil: the epoch has ended
function NDArrayIter:next()
  if not self:iter_next() then
    return nil
  end
  local from, count, held = get_extent(self)
  if #held / 4 + count < self.batch_size then
    self._held = held .. list_rows(self, from, count)
    return nil
  end
  local batch = base.DataBatch{ data = self:getdata(), label = self:getlabel(),
    pad = self:getpad(), provide_data = self.provide_data, provide_label = self.provide_label }
  if held ~= "" then
    self._held = nil
  end
  return batch
end


function NDArrayIter:getdata()
  return take_rows(self, self._data)
end


function NDArrayIter:getlabel()
  return take_rows(self, self._label)
end


--- Returns the number of rows of the current batch that do not count: those added at the end of the
-- last batch ("pad"), or those held from the last epoch at the beginning of the first
-- ("roll_over").
-- @treturn int
function NDArrayIter:getpad()
  if self.last_batch_handle == "pad" then
    return math.max(self.cursor + self.batch_size - self.num_data, 0)
  end
  return has_held_rows(self) and -self.cursor or 0
end


-- State -------------------------------------------------------------------------------------------

function NDArrayIter:state()
  return { kind = "NDArrayIter", num_data = self.num_data, cursor = self.cursor,
    batch_size = self.batch_size, held = self._held,
    order = self._order and ffi.string(self._order, 4 * self.num_data) }
end


function NDArrayIter:set_state(state)
  if type(state) ~= "table" or state.kind ~= "NDArrayIter" or state.num_data ~= self.num_data
    or (state.order ~= nil) ~= self.shuffle then
    Error.raise{ code = "value", func = "NDArrayIter:set_state", argument = "state",
      message = "the state is that of another iterator" }
  end
  -- the next row is the same, also if the state is that of an iterator of another batch_size
  self.cursor = state.cursor + (state.batch_size or self.batch_size) - self.batch_size
  self._held = state.held
  if state.order then
    set_order(self, transfer.from_string(state.order, { self.num_data }, I32,
      "NDArrayIter:set_state"))
  end
end


return NDArrayIter
