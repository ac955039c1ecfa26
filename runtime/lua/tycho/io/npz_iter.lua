--- Batches from a folder of `.npz` files: `ty.io.NPZIter`.
--
-- One file is in memory at a time, with rows of the previous one that a batch still needs. Files
-- are read in the order of their names. With `shuffle`, the order of the files, and that of the
-- rows in each file, is drawn for each epoch from the random state of cpu(0).
--
-- @module tycho.io.npz_iter

local args = require "tycho.core.args"
local base = require "tycho.io.data"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local ffi = require "ffi"
local folder = require "tycho.ndarray.folder"
local nd = require "tycho.ndarray"
local pairs = require("tycho.core.iterate").pairs
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"

local FUNC = "io.NPZIter"
local I32 = args.DTYPES.int32

--- An iterator over the files of a folder. Fields: path, files (names of its own files, sorted).
-- @type NPZIter
local NPZIter = base.DataIter:extend("NPZIter")

local FORM = args.form(FUNC, {
  { "path", "path" }, { "batch_size", "positive" }, "*", { "data_names", "list", { "data" } },
  { "label_names", "list", { "softmax_label" } }, { "arrays", "dict", {} },
  { "whole_files", "boolean", false }, { "shuffle", "boolean", false },
  { "last_batch_handle", { "pad", "discard" }, "pad" }, { "num_parts", "positive", 1 },
  { "part_index", "integer", 0 },
})


-- Files -------------------------------------------------------------------------------------------

-- Returns the names of the iterator's files, of those in the folder; raises E(value) if there are
-- none.
local function list_files(a)
  local all, own = {}, {}
  for _, entry in ipairs(folder.list(a.path, FUNC)) do
    all[#all + 1] = not entry.folder and entry.name:lower():find("%.npz$") and entry.name or nil
  end
  if a.part_index < 0 or a.part_index >= a.num_parts then
    Error.raise{ code = "value", func = FUNC, argument = "part_index", got = a.part_index,
      expected = "0 to num_parts - 1", message = "bad 'part_index'" }
  end
  for i = 1 + a.part_index, #all, a.num_parts do
    own[#own + 1] = all[i]
  end
  if #own == 0 then
    Error.raise{ code = "value", func = FUNC, argument = a.path, expected = ".npz files",
      got = #all == 0 and "none" or ("%d for %d parts"):format(#all, a.num_parts),
      message = ("the folder '%s' has no file for this iterator"):format(a.path) }
  end
  return own
end


local function list_names(arrays)
  local names = {}
  for name in pairs(arrays) do
    names[#names + 1] = tostring(name)
  end
  table.sort(names)
  return names
end


-- Returns the array of an input from a file, as one row if each file is a sample; raises E(name).
local function find_array(self, loaded, name, path)
  local key = self._arrays[name] or name
  local x = loaded[key]
  if not class.is_array(x) then
    Error.unknown{ func = FUNC, argument = key, what = ("array of '%s'"):format(path),
      names = list_names(loaded) }
  end
  return self._whole_files and x:expand_dims{ axis = 0 } or x
end


-- Raises E(shape) if the rows of an array have another shape than those of the first file, or if
-- their number is not `rows`.
local function check_rows(self, x, name, path, rows)
  local want, shape = self._row_shapes[name], x.shape
  local row = { unpack(shape, 2, #shape) }
  if want and not tables.same(want, row) then
    Error.raise{ code = "shape", func = FUNC, argument = name, expected = want, got = row,
      message = ("the rows of '%s' in '%s' have another shape than those of the first file")
        :format(name, path) }
  elseif rows and shape[1] ~= rows then
    Error.raise{ code = "shape", func = FUNC, argument = name, expected = rows .. " rows",
      got = shape[1] .. " rows",
      message = ("the arrays of '%s' have different numbers of rows"):format(path) }
  end
end


-- Returns the arrays of a file in the order of the inputs, and their number of rows.
local function load_file(self, name)
  local path = self.path .. "/" .. name
  local loaded, list, rows = nd.load(path), {}, nil
  for i, array_name in ipairs(self._names) do
    local x = find_array(self, loaded, array_name, path)
    check_rows(self, x, array_name, path, rows)
    rows = x.shape[1]
    list[i] = x.dtype == (self._dtypes[array_name] or x.dtype) and x
      or x:astype(self._dtypes[array_name])
  end
  return class.keep(list), rows
end


-- Order -------------------------------------------------------------------------------------------

-- Returns 0, 1 ... n - 1 as an int32 array.
local function make_numbers(n)
  local rows = ffi.new("int32_t[?]", n)
  for i = 0, n - 1 do
    rows[i] = i
  end
  return transfer.from_string(ffi.string(rows, 4 * n), { n }, I32, FUNC)
end


-- Returns 0, 1 ... n - 1 in random order as an int32 array.
local function shuffle_numbers(n)
  return call.unary("_shuffle", FUNC, make_numbers(n))
end


-- Reads the next file of the epoch, and shuffles its rows if `mixes`. Returns false if there is
-- none.
local function open_next(self, mixes)
  if self._at == #self._order then
    self._open = nil
    return false
  end
  self._at, self._row = self._at + 1, 0
  self._open, self._rows = load_file(self, self.files[self._order[self._at]])
  self._mixed = mixes and class.keep(shuffle_numbers(self._rows)) or nil
  return true
end


-- The iterator ------------------------------------------------------------------------------------

-- Returns the descriptions of inputs.
local function describe_inputs(self, names)
  local list = {}
  for i, name in ipairs(names) do
    local shape = { self.batch_size, unpack(self._row_shapes[name]) }
    list[i] = base.DataDesc(name, shape, self._dtypes[name])
  end
  return list
end


-- Checks the names of inputs and the table `arrays`.
local function check_names(a)
  if #a.data_names == 0 then
    Error.raise{ code = "value", func = FUNC, argument = "data_names", expected = "at least one",
      got = "none", message = "bad 'data_names'" }
  end
  local known = {}
  for _, key in ipairs{ "data_names", "label_names" } do
    for i, name in ipairs(a[key]) do
      if type(name) ~= "string" or known[name] then
        Error.raise{ code = "value", func = FUNC, argument = ("%s[%d]"):format(key, i),
          expected = "a name, once", got = name, message = ("bad '%s'"):format(key) }
      end
      known[name] = true
    end
  end
  for name, key in pairs(a.arrays) do
    if not known[name] then
      Error.unknown{ func = FUNC, argument = tostring(name), what = "name in 'arrays'",
        among = known }
    elseif type(key) ~= "string" then
      Error.raise{ code = "type", func = FUNC, argument = name, expected = "a name in the files",
        got = Error.kind(key), message = "bad 'arrays'" }
    end
  end
end


--- Reads the first file, which determines shapes and dtypes.
-- @string path of the folder
-- @int batch_size rows in a batch
-- @tparam[opt] table options data_names = {"data"}, label_names = {"softmax_label"}: names of
--   inputs; arrays = {}: name of an input -> name of its array in the files, where they differ;
--   whole_files = false: axis 0 of the arrays counts samples, true: each file is one sample;
--   shuffle = false; last_batch_handle = "pad" (the first rows of the files fill the last batch) or
--   "discard"; num_parts = 1, part_index = 0: each part has different files
-- @raise E(`io`): the folder cannot be read; E(`value`): it has no file for this part; when a file
--   is read, E(`name`): it lacks an array, E(`shape`): its rows are not like those of the first
--   file
function NPZIter:init(...)
  local a = FORM(...)
  check_names(a)
  NPZIter.super.init(self, { batch_size = a.batch_size })
  self.path, self.files = a.path, list_files(a)
  self.num_parts = a.num_parts
  self._names, self._data_count, self._arrays = {}, #a.data_names, a.arrays
  for _, list in ipairs{ a.data_names, a.label_names } do
    for _, name in ipairs(list) do
      table.insert(self._names, name)
    end
  end
  self._whole_files, self._shuffle, self._handle = a.whole_files, a.shuffle, a.last_batch_handle
  self._row_shapes, self._dtypes = {}, {}
  for i, x in ipairs((load_file(self, self.files[1]))) do
    local shape = x.shape
    self._row_shapes[self._names[i]] = { unpack(shape, 2, #shape) }
    self._dtypes[self._names[i]] = x.dtype
  end
  self.provide_data, self.provide_label = describe_inputs(self, a.data_names),
    describe_inputs(self, a.label_names)
  self:reset()
end


--- Begins a new epoch.
function NPZIter:reset()
  self._order = {}
  for i, k in ipairs(self._shuffle and shuffle_numbers(#self.files):totable() or {}) do
    self._order[i] = k + 1
  end
  for i = 1, self._shuffle and 0 or #self.files do
    self._order[i] = i
  end
  self._at, self._row, self._open, self._rows, self._mixed = 0, 0, nil, 0, nil
  self._ended, self.current_batch = false, nil
end


-- Returns `count` rows of each array of the open file, from position `from` of its order on.
local function take_rows(self, from, count)
  local index = self._mixed and self._mixed:slice_axis{ axis = 0, begin = from,
    end_ = from + count }
  local list = {}
  for i, x in ipairs(self._open) do
    list[i] = index and call.params("take", FUNC, { x, index }, { "axis", "0" })
      or x:slice_axis{ axis = 0, begin = from, end_ = from + count }
  end
  return list
end


-- Returns pieces of files that make a batch, and the number of their rows, which is smaller at the
-- end of the epoch.
local function gather_rows(self, mixes)
  local pieces, count = {}, 0
  while count < self.batch_size do
    if self._row == self._rows and not open_next(self, mixes) then
      break
    end
    local n = math.min(self.batch_size - count, self._rows - self._row)
    if n > 0 then
      pieces[#pieces + 1] = take_rows(self, self._row, n)
      self._row, count = self._row + n, count + n
    end
  end
  return pieces, count
end


-- Adds rows from the beginning of the files until a batch is full. They are not shuffled, since
-- drawing an order for them would change later random numbers.
local function fill_batch(self, pieces, count)
  local at, row, open, rows, mix = self._at, self._row, self._open, self._rows, self._mixed
  while count < self.batch_size do
    self._at, self._row, self._rows, self._mixed = 0, 0, 0, nil
    local more, n = gather_rows(self, false)
    for i = 1, #more do
      pieces[#pieces + 1] = more[i]
    end
    count = count + n
  end
  self._at, self._row, self._open, self._rows, self._mixed = at, row, open, rows, mix
end


-- Returns the batch of pieces; rows beyond the batch size are cut off.
local function make_batch(self, pieces, pad)
  local arrays = {}
  for i = 1, #self._names do
    local parts = {}
    for k, piece in ipairs(pieces) do
      parts[k] = piece[i]
    end
    local x = #parts == 1 and parts[1] or nd.concat(parts, { dim = 0 })
    arrays[i] = x.shape[1] == self.batch_size and x
      or x:slice_axis{ axis = 0, begin = 0, end_ = self.batch_size }
  end
  return base.DataBatch{ data = { unpack(arrays, 1, self._data_count) },
    label = { unpack(arrays, self._data_count + 1) }, pad = pad,
    provide_data = self.provide_data, provide_label = self.provide_label }
end


--- Goes to the next batch.
-- @treturn bool false: the epoch has ended
function NPZIter:iter_next()
  self.current_batch = nil
  if self._ended then
    return false
  end
  local pieces, count = gather_rows(self, self._shuffle)
  self._ended = count < self.batch_size
  if count == 0 or self._ended and self._handle == "discard" then
    return false
  end
  if self._ended then
    fill_batch(self, pieces, count)
  end
  self.current_batch = make_batch(self, pieces, self.batch_size - math.min(count, self.batch_size))
  return self:_has_current()
end


--- Returns the next batch.
-- @treturn ?DataBatch nil: the epoch has ended
function NPZIter:next()
  return self:_hand_out()
end


function NPZIter:getdata() return self.current_batch.data end
function NPZIter:getlabel() return self.current_batch.label end
function NPZIter:getpad() return self.current_batch.pad end


-- State -------------------------------------------------------------------------------------------

function NPZIter:state()
  return { kind = "NPZIter", files = table.concat(self.files, "/"), order = tables.copied(
    self._order), at = self._at, row = self._row, ended = self._ended,
    mixed = self._mixed and self._mixed:tostring_raw() or nil }
end


function NPZIter:set_state(state)
  if type(state) ~= "table" or state.kind ~= "NPZIter"
      or state.files ~= table.concat(self.files, "/") then
    Error.raise{ code = "value", func = "NPZIter:set_state", argument = "state",
      message = "the state is that of another iterator" }
  end
  self:reset()
  self._order = tables.copied(state.order)
  if state.at > 0 then
    self._at = state.at - 1
    open_next(self, false)
  end
  self._row, self._ended = state.row, state.ended
  self._mixed = state.mixed and class.keep(transfer.from_string(state.mixed, { #state.mixed / 4 },
    I32, "NPZIter:set_state")) or nil
end


return NPZIter
