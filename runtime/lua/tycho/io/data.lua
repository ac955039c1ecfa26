--- Descriptions of inputs, batches, and the base class of iterators.
--
--     local Count = ty.io.DataIter:extend("Count")
--     function Count:init(n) Count.super.init(self, { batch_size = 1 }); self.n, self.at = n, 0 end
--     function Count:reset() self.at = 0 end
--     function Count:iter_next() self.at = self.at + 1; return self.at <= self.n end
--     function Count:getdata() return { ty.nd.full({ 1, 1 }, self.at) } end
--     for batch in Count(3) do print(batch.data[1]) end
--
-- A call of an iterator returns the next batch, or nil at the end of the epoch. `reset` begins
-- another epoch.
--
-- @module tycho.io.data

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local data_of = {}


-- Descriptions ------------------------------------------------------------------------------------

--- The name, shape, dtype and layout of an input: `DataDesc(name, shape, dtype, layout)`, dtype =
-- "float32", layout = "NCHW". `d[1]` is the name, `d[2]` the shape.
-- @type DataDesc
local DataDesc = Class:extend("DataDesc")
data_of.DataDesc = DataDesc

local DESC = args.form("io.DataDesc", {
  { "name", "text" }, { "shape", "shape" }, { "dtype", "dtype", "float32" },
  { "layout", "text|null", "NCHW" },
})

function DataDesc:init(...)
  local a = DESC(...)
  self.name, self.shape, self.dtype, self.layout = a.name, a.shape, a.dtype, values.value(a.layout)
  counted_from_1(self.shape)
  self[1], self[2] = self.name, self.shape
end


function DataDesc:__tostring()
  return ("DataDesc[%s,%s,%s,%s]"):format(self.name, Error.show(self.shape),
    self.dtype, tostring(self.layout))
end


--- Returns whether name and shape are equal; dtype and layout are not compared.
-- @param other a description or `{name, shape}`
-- @treturn bool
function DataDesc:equals(other)
  if type(other) ~= "table" or other[1] ~= self.name or type(other[2]) ~= "table" then
    return false
  end
  return Error.show(other[2]) == Error.show(self.shape)
end


--- Returns the axis of samples, from 0.
-- @tparam[opt] string layout such as "NCHW"
-- @treturn int position of N; 0 without a layout, -1 without N
function DataDesc.get_batch_axis(layout)
  if values.value(layout) == nil then
    return 0
  elseif type(layout) ~= "string" then
    Error.raise{ code = "type", func = "DataDesc.get_batch_axis", argument = "layout",
      expected = "text such as \"NCHW\"", got = Error.kind(layout), message = "bad 'layout'" }
  end
  return (layout:find("N", 1, true) or 0) - 1
end


-- Raises E(type) unless a value is a list of `{name, ...}`.
local function check_pairs(argument, list, second)
  local is_list = type(list) == "table"
  for i = 1, is_list and #list or 0 do
    is_list = is_list and type(list[i]) == "table" and type(list[i][1]) == "string"
  end
  if not is_list then
    Error.raise{ code = "type", func = "DataDesc.get_list", argument = argument,
      expected = ("a list of {name, %s}"):format(second), got = Error.kind(list),
      message = ("bad '%s'"):format(argument) }
  end
end


--- Returns descriptions from shapes and dtypes.
-- @tparam table shapes list of `{name, shape}`
-- @tparam[opt] table types list of `{name, dtype}`, in any order; others are float32
-- @treturn {DataDesc,...}
function DataDesc.get_list(shapes, types)
  local dtypes, list = {}, {}
  check_pairs("types", types or {}, "dtype")
  check_pairs("shapes", shapes, "shape")
  for _, pair in ipairs(types or {}) do
    dtypes[pair[1]] = pair[2]
  end
  for i, pair in ipairs(shapes) do
    list[i] = DataDesc(pair[1], pair[2], dtypes[pair[1]])
  end
  return list
end


--- Returns a description from a description, `{name, shape}`, `{name, shape, dtype}` or
-- `{name, shape, dtype, layout}`; anything else is E(`type`).
-- @param given
-- @string func name of the caller, for errors
-- @treturn DataDesc
function DataDesc.of(given, func)
  if Class.is_a(given, DataDesc) then
    return given
  elseif type(given) ~= "table" or given[1] == nil or given[2] == nil then
    Error.raise{ code = "type", func = func, expected = "a DataDesc or {name, shape}",
      got = Error.kind(given), message = "bad description of an input" }
  end
  return DataDesc(given[1], given[2], values.value(given[3]), given[4])
end


-- Batches -----------------------------------------------------------------------------------------

--- A batch: arrays, and the number of padding rows. Fields: data and label (lists of arrays), pad
-- (rows that do not count), index (numbers of the samples; may be nil), bucket_key, provide_data
-- and provide_label (lists of descriptions), n (rows that count).
-- @type DataBatch
local DataBatch = Class:extend("DataBatch")
data_of.DataBatch = DataBatch

local BATCH = args.form("io.DataBatch", {
  { "data", "list?" }, { "label", "list?" }, { "pad", "integer?" }, { "index", "any?" },
  { "bucket_key", "any?" }, { "provide_data", "list?" }, { "provide_label", "list?" },
})

function DataBatch:init(...)
  for key, value in pairs(BATCH(...)) do
    self[key] = value
  end
  for _, key in ipairs{ "data", "label" } do
    self[key] = self[key] and counted_from_1(self[key])
  end
end


-- Returns the size of the first array along its batch axis, less the padding.
local function count_rows(batch)
  local first = batch.data and batch.data[1]
  if type(first) ~= "table" or not first.shape then
    return 0
  end
  local desc = batch.provide_data and batch.provide_data[1]
  local axis = desc and DataDesc.get_batch_axis(rawget(desc, "layout") or desc[4]) or 0
  return (first.shape[math.max(axis, 0) + 1] or 0) - (batch.pad or 0)
end


-- Returns `n`, the number of rows that count, computed from data and pad; other keys are members of
-- the class.
function DataBatch.__index(batch, key)
  if key == "n" then
    return count_rows(batch)
  end
  return getmetatable(batch)[key]
end


local function show_shapes(list)
  local texts = {}
  for i, x in ipairs(list or {}) do
    texts[i] = Error.show(x.shape)
  end
  return "[" .. table.concat(texts, ", ") .. "]"
end


function DataBatch:__tostring()
  return ("DataBatch: data shapes: %s label shapes: %s"):format(show_shapes(self.data),
    self.label and show_shapes(self.label) or "None")
end


-- Iterators ---------------------------------------------------------------------------------------

--- The base of iterators. Fields: `batch_size`, `provide_data` and `provide_label` (lists of
-- descriptions). A subclass defines `reset`, and `next` or `iter_next` with `getdata`, `getlabel`,
-- `getpad` and perhaps `getindex`.
-- @type DataIter
local DataIter = Class:extend("DataIter")
data_of.DataIter = DataIter

local ITER = args.form("io.DataIter", { { "batch_size", "integer", 0 } })
local BASE = args.form("io.DataIter", { rest = "own", { "batch_size", "integer", 0 } })

--- Reads the options of the base. Options that it does not know are an error for a DataIter itself;
-- from a subclass, which may pass on its own options, they are ignored.
-- @int[opt=0] batch_size
function DataIter:init(...)
  local form = getmetatable(self) == DataIter and ITER or BASE
  self.batch_size = form(...).batch_size
end


--- Begins a new epoch; a subclass defines it.
function DataIter.reset(_) end


-- Returns descriptions if they are a list; nil for shapes by name, which have no order.
local function get_list(descs)
  return type(descs) == "table" and #descs > 0 and descs or nil
end


--- Returns the next batch.
-- @treturn ?DataBatch nil: the epoch has ended
function DataIter:next()
  if not self:iter_next() then
    return nil
  end
  return DataBatch{ data = self:getdata(), label = self:getlabel(), pad = self:getpad(),
    index = self:getindex(), provide_data = get_list(self.provide_data),
    provide_label = get_list(self.provide_label) }
end


--- Returns the next batch, nil at the end, for the `next` of a class whose `iter_next` sets
-- `current_batch`. The caller owns the batch, so `ty.scope` frees it (not for users).
function DataIter:_hand_out()
  self._handing_out = true
  local more = self:iter_next()
  self._handing_out = nil
  return more and self.current_batch or nil
end


--- Returns whether there is a `current_batch`, for the `iter_next` of such a class. Unless `next`
-- is about to return it, the iterator owns the batch, so a scope does not free it (not for users).
function DataIter:_has_current()
  local batch = self.current_batch
  if batch and not self._handing_out then
    class.keep(batch.data)
    class.keep(batch.label)
  end
  return batch ~= nil
end


--- Returns the `current_batch`, for `getdata` and the other getters of such a class; E(`state`)
-- without one (not for users).
-- @string method for errors
function DataIter:_current(method)
  return self.current_batch or Error.raise{ code = "state", argument = "current_batch",
    func = ("%s:%s"):format(self.class_name, method), expected = "a batch", got = "none",
    message = "call iter_next first: there is no batch before it, nor after the last" }
end


function DataIter:__call()
  return self:next()
end


--- Goes to the next batch; a subclass defines it.
-- @treturn bool false: the epoch has ended
function DataIter.iter_next(_)
  return false
end


--- Returns the input arrays of the current batch; a subclass defines it.
-- @treturn {NDArray,...}
function DataIter.getdata(_) end

--- Returns the labels of the current batch; a subclass defines it.
-- @treturn {NDArray,...}
function DataIter.getlabel(_) end

--- Returns the numbers of the samples in the current batch; a subclass may define it.
-- @return nil: the iterator does not know them
function DataIter.getindex(_) end

--- Returns the number of padding rows of the current batch; a subclass defines it.
-- @treturn int
function DataIter.getpad(_) end


local function fail_state(self, method)
  Error.raise{ code = "unsupported", func = self.class_name .. ":" .. method,
    message = ("a %s has no state; define state and set_state to resume it"):format(
      self.class_name) }
end


--- Returns the iterator's position, for `set_state`, also in another process. A class without one
-- raises E(`unsupported`).
-- @treturn table of numbers and texts
function DataIter:state()
  fail_state(self, "state")
end


--- Goes to a position. A class without one raises E(`unsupported`); a state of another iterator is
-- E(`value`).
-- @tparam table state what `state` of an equal iterator returned
function DataIter:set_state(state)
  fail_state(self, "set_state")
end


return data_of
