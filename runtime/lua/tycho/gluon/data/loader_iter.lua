--- Batches of a data set for modules: `ty.io.Loader`.
--
-- @module tycho.gluon.data.loader_iter

local args = require "tycho.core.args"
local array_class = require "tycho.ndarray.class"
local base = require "tycho.io.data"
local DataLoader = require "tycho.gluon.data.loader"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"

local FUNC = "io.Loader"

--- An iterator for modules over a data set of `ty.gluon.data` or another object with `get(i)` and
-- `len()`.
-- @type Loader
local Loader = base.DataIter:extend("Loader")

local FORM = args.form(FUNC, {
  { "dataset", "any" }, { "batch_size", "positive" }, "*", { "workers", "integer", 0 },
  { "shuffle", "boolean", false }, { "sampler", "any?" },
  { "last_batch_handle", { "pad", "discard" }, "pad" }, { "data_names", "list", { "data" } },
  { "label_names", "list", { "softmax_label" } }, { "dtype", "dtype", "float32" },
  { "prefetch", "integer?" }, { "batchify_fn", "function?" }, { "timeout", "number", 120 },
})


-- Returns the arrays of the next batch, converted to the iterator's dtype; nil at the end. Raises
-- E(value) if their number differs from that of the names, E(type) for a value that is not an
-- array.
local function next_fields(self)
  local fields = { self._epoch() }
  if fields[1] == nil then
    return nil
  elseif #fields ~= #self._names then
    Error.raise{ code = "value", func = FUNC, argument = "label_names",
      expected = ("%d names of data and labels"):format(#fields), got = #self._names,
      message = ("a sample of the data set has %d values; data_names and label_names must name \z
        each"):format(#fields) }
  end
  for i, x in ipairs(fields) do
    if not array_class.is_array(x) then
      Error.raise{ code = "type", func = FUNC, argument = self._names[i], expected = "an array",
        got = Error.kind(x), message = ("the values for '%s' cannot be stacked to an array")
          :format(tostring(self._names[i])) }
    end
    fields[i] = x.dtype == self._dtype and x or x:astype(self._dtype)
  end
  return fields
end


-- Returns descriptions of arrays of the first batch, whose indices are above `from`.
local function describe_inputs(self, names, from)
  local list = {}
  for i, name in ipairs(names) do
    local shape = self._first[from + i].shape
    shape[1] = self.batch_size
    list[i] = base.DataDesc(name, shape, self._dtype)
  end
  return list
end


--- Reads the first batch of a data set, which determines the shapes and is also the first result of
-- `next`.
--
--     local set = ty.gluon.data.vision.ImageFolderDataset("pets"):transform_first(transforms)
--     mod:fit{ train_data = ty.io.Loader{ set, 32, workers = 2, shuffle = true }, num_epoch = 4 }
--
-- @param dataset each sample has the values of data_names, then of label_names, in this order
-- @int batch_size rows in a batch
-- @tparam[opt] table options workers = 0: threads that make batches ahead; shuffle = false, or
--   sampler; last_batch_handle = "pad" (the rows of an incomplete last batch are repeated to fill
--   it) or "discard"; data_names = {"data"}, label_names = {"softmax_label"}; dtype = "float32": of
--   all arrays; prefetch, batchify_fn and timeout as for `gluon.data.DataLoader`
-- @raise E(`value`) for a data set without a batch, or whose samples do not have one value for each
--   name; errors of `gluon.data.DataLoader`
function Loader:init(...)
  local a = FORM(...)
  Loader.super.init(self, { batch_size = a.batch_size })
  self._names, self._data_count, self._dtype = {}, #a.data_names, a.dtype
  for _, list in ipairs{ a.data_names, a.label_names } do
    for _, name in ipairs(list) do
      table.insert(self._names, name)
    end
  end
  self._loader = DataLoader{ a.dataset, batch_size = a.batch_size, shuffle = a.shuffle,
    sampler = a.sampler, num_workers = a.workers, prefetch = a.prefetch, timeout = a.timeout,
    batchify_fn = a.batchify_fn,
    last_batch = a.last_batch_handle == "discard" and "discard" or "keep" }
  self._epoch = self._loader:iter()
  self._first = next_fields(self)
  if not self._first then
    Error.raise{ code = "value", func = FUNC, argument = "dataset", expected = "a batch",
      got = ("%d samples"):format(a.dataset:len()),
      message = "the data set has too few samples for a batch" }
  end
  array_class.keep(self._first)
  self.provide_data, self.provide_label = describe_inputs(self, a.data_names, 0),
    describe_inputs(self, a.label_names, #a.data_names)
  self._fresh = true
end


--- Begins a new epoch; does nothing if the current one has not begun.
function Loader:reset()
  if not self._fresh then
    self._epoch, self._first, self._fresh = self._loader:iter(), nil, true
  end
end


-- Returns an array of `count` rows by repeating those of x.
local function repeat_rows(x, count)
  local parts, rows = {}, x.shape[1]
  for i = 1, math.ceil(count / rows) do
    parts[i] = x
  end
  return nd.concat(parts, { dim = 0 }):slice_axis{ axis = 0, begin = 0, end_ = count }
end


--- Goes to the next batch.
-- @treturn bool false: the epoch has ended
function Loader:iter_next()
  local fields = self._first or next_fields(self)
  self._first, self._fresh, self.current_batch = nil, false, nil
  if fields then
    local rows = fields[1].shape[1]
    for i, x in ipairs(rows < self.batch_size and fields or {}) do
      fields[i] = repeat_rows(x, self.batch_size)
    end
    self.current_batch = base.DataBatch{ data = { unpack(fields, 1, self._data_count) },
      label = { unpack(fields, self._data_count + 1) }, pad = self.batch_size - rows,
      provide_data = self.provide_data, provide_label = self.provide_label }
  end
  return self:_has_current()
end


--- Returns the next batch, nil at the end of the epoch.
function Loader:next()
  return self:_hand_out()
end


function Loader:getdata() return self.current_batch.data end
function Loader:getlabel() return self.current_batch.label end
function Loader:getpad() return self.current_batch.pad end


return Loader
