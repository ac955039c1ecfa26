--- Iterating over arrays in memory.
--
-- A batch is a range of rows of the epoch's order, which is the rows' own or, with `shuffle`, a new
-- permutation at every reset. Rows that are neighbours in the data come as views, others are
-- gathered. What happens to a last incomplete batch: "pad" completes it with the first rows, again
-- and again if need be; "discard" drops it; "roll_over" holds its rows back and puts them in front
-- of the next epoch. The cursor is the first row of the current batch; it is below 0 before the
-- first one and while held rows are given out.
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

--- Iterator over arrays. Field: idx, the numbers of the rows in the order of the epoch (NDArray).
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


-- Returns what was given as a list of {name, array or table}; nil for something that is no table.
local function named_sources(given, name)
  if is_array(given) then
    return { { name, given } }
  elseif not is_plain(given) then
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


local function read_sources(given, name, argument)
  local list = values.value(given) == nil and {} or named_sources(given, name)
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


local function check_rows(sources, n, argument)
  for _, source in ipairs(sources) do
    if source[2]._shape[1] ~= n then
      Error.raise{ code = "shape", func = "io.NDArrayIter", argument = source[1],
        expected = n .. " rows", got = source[2].shape,
        message = ("array '%s' of '%s' has another number of rows than the data")
          :format(source[1], argument) }
    end
  end
end


local function describe(sources, layout, batch_size)
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

local function numbered(n)
  local rows = ffi.new("int32_t[?]", n)
  for i = 0, n - 1 do
    rows[i] = i
  end
  return rows
end


local function index_array(rows, n)
  return transfer.from_string(ffi.string(rows, 4 * n), { n }, I32, "io.NDArrayIter")
end


-- Sets the field `idx`, the row numbers in order, which users read.
local function show_order(self, idx)
  self.idx = class.keep(idx)
end


-- Sets the order of the epoch to the numbers of an int32 array.
local function take_order(self, idx)
  self._order = ffi.new("int32_t[?]", self.num_data)
  ffi.copy(self._order, idx:tostring_raw(), 4 * self.num_data)
  show_order(self, idx)
end


-- Draws a new permutation of the rows from the random state of cpu(0), if the iterator shuffles.
local function reorder(self)
  if self.shuffle then
    local n = self.num_data
    take_order(self, call.unary("_shuffle", "io.NDArrayIter", index_array(numbered(n), n)))
  end
end


-- The iterator ------------------------------------------------------------------------------------

--- Reads the options. Data and labels are an NDArray, a nested table (float32), a list of arrays,
-- or arrays by name, which are sorted by name. The order of a shuffling iterator comes from the
-- random state of cpu(0).
-- @param data rows along axis 0
-- @param[opt] label
-- @int[opt=1] batch_size
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
      message = "there is no data" }
  end
  self.num_data = self._data[1][2]._shape[1]
  check_rows(self._data, self.num_data, "data")
  check_rows(self._label, self.num_data, "label")
  self.shuffle, self.last_batch_handle = a.shuffle, a.last_batch_handle
  self.provide_data = describe(self._data, a.layout, a.batch_size)
  self.provide_label = describe(self._label, a.layout, a.batch_size)
  self.cursor = -a.batch_size
  show_order(self, index_array(numbered(self.num_data), self.num_data))
  self:reset()
end


--- Begins a new epoch. With "roll_over" after the last batch, held rows come first.
function NDArrayIter:reset()
  reorder(self)
  local n, size = self.num_data, self.batch_size
  if self.last_batch_handle == "roll_over" and n - size < self.cursor and self.cursor < n then
    self.cursor = self.cursor - n - size
  else
    self.cursor = -size
  end
end


--- Begins a new epoch and forgets held rows.
function NDArrayIter:hard_reset()
  reorder(self)
  self._held, self.cursor = nil, -self.batch_size
end


-- Batches -----------------------------------------------------------------------------------------

local function rolls(self)
  return self.last_batch_handle == "roll_over" and self.cursor < 0
    and self.cursor > -self.batch_size
end


-- Returns row numbers as the bytes of int32: `count` rows of the epoch from position `from` on.
local function list_rows(self, from, count)
  local order, n = self._order, self.num_data
  local rows = ffi.new("int32_t[?]", math.max(count, 1))
  for i = 0, count - 1 do
    local at = (from + i) % n
    rows[i] = order and order[at] or at
  end
  return ffi.string(rows, 4 * count)
end


-- Returns first row and number of rows of the epoch in the current batch, and the held rows before
-- them.
local function extent(self)
  local n, size = self.num_data, self.batch_size
  if rolls(self) then
    if not self._held then
      Error.raise{ code = "state", func = "NDArrayIter:getdata",
        message = "there are no rows from the epoch before" }
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


local function view_rows(x, from, count)
  local shape = x.shape
  local row = x._size / shape[1] * class.BYTES[x._dtype]
  shape[1] = count
  return class.view(x, shape, from * row, "NDArrayIter:getdata")
end


local function take_rows(self, sources)
  local from, count, held = extent(self)
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


--- Goes to the next batch; false at the end.
function NDArrayIter:iter_next()
  self.cursor = self.cursor + self.batch_size
  return self.cursor < self.num_data
end


--- Returns the next batch, nil at the end of the epoch.
function NDArrayIter:next()
  if not self:iter_next() then
    return nil
  end
  local from, count, held = extent(self)
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


--- Returns the number of rows that do not count: borrowed ones at the end of the last batch
-- ("pad"), or rows of the epoch before at the front of the first one ("roll_over").
function NDArrayIter:getpad()
  if self.last_batch_handle == "pad" then
    return math.max(self.cursor + self.batch_size - self.num_data, 0)
  end
  return rolls(self) and -self.cursor or 0
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
  -- the row that comes next is the same, whatever the size of batches
  self.cursor = state.cursor + (state.batch_size or self.batch_size) - self.batch_size
  self._held = state.held
  if state.order then
    take_order(self, transfer.from_string(state.order, { self.num_data }, I32,
      "NDArrayIter:set_state"))
  end
end


return NDArrayIter
