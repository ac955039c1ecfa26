--- Data sets: samples by number, from 0 (part of `ty.gluon.data`).
--
--     local Squares = gluon.data.Dataset:extend("Squares")
--     function Squares:init(n) self.n = n end
--     function Squares:len() return self.n end
--     function Squares:get(i) return ty.nd.full({ 2 }, i), i * i end
--     local x, y = Squares(7):get(3)
--     local sample = Squares(7)[3]                         -- { x, y }
--
-- @module tycho.gluon.data.dataset

local args = require "tycho.core.args"
local array_class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local fields = require "tycho.core.fields"
local plan = require "tycho.gluon.data.plan"
local sampler = require "tycho.gluon.data.sampler"
local values = require "tycho.core.values"

local is_array, is_plain = array_class.is_array, values.is_plain
local select, type, unpack = select, type, unpack

local dataset = {}


-- Base --------------------------------------------------------------------------------------------

--- The base of data sets. A subclass defines `get(i)`, which returns the values of a sample, and
-- `len()`. `set[i]` is the sample as one value or a list of several.
-- @type Dataset
local Dataset = Class:extend("Dataset")
dataset.Dataset = Dataset

fields.give(Dataset, {})


-- Returns a single value itself, several values as a list.
local function pack_values(...)
  if select("#", ...) > 1 then
    return { ... }
  end
  return (...)
end


-- Returns i if it is the number of a sample; raises E(index), or E(type) for no number.
local function check_index(self, i)
  local n = self:len()
  if type(i) ~= "number" or i ~= math.floor(i) or i < 0 or i >= n then
    Error.raise{ code = type(i) == "number" and "index" or "type",
      func = self.class_name .. ":get", argument = tostring(i),
      expected = ("a sample from 0 to %d"):format(n - 1), got = i,
      message = ("there is no sample %s; samples are numbered from 0"):format(tostring(i)) }
  end
  return i
end


local get_member = Dataset.__index

function Dataset.__index(self, key)
  if type(key) == "number" then
    return pack_values(self:get(check_index(self, key)))
  end
  return get_member(self, key)
end


local function fail_undefined(self, method)
  Error.raise{ code = "unsupported", func = self.class_name .. ":" .. method,
    message = ("class '%s' has no %s; a data set must define get(i) and len()")
      :format(self.class_name, method) }
end


--- Returns the values of a sample; a subclass must define it.
-- @int _ number of the sample, from 0; another one is E(`index`)
-- @return one or several values
function Dataset:get(_)
  fail_undefined(self, "get")
end


--- Returns the number of samples; a subclass must define it.
-- @treturn int
function Dataset:len()
  fail_undefined(self, "len")
end


function Dataset:__tostring()
  return "<" .. self.class_name .. ">"
end


-- Lists -------------------------------------------------------------------------------------------

--- A Lua list, or any object with `len` and `get`, as a data set: `SimpleDataset(list)`. An entry
-- that is a list of two or more values is a sample with several values.
-- @type SimpleDataset
local SimpleDataset = Dataset:extend("SimpleDataset")
dataset.SimpleDataset = SimpleDataset

-- Returns whether a value can be a source of samples: an array, a list, an object with len and get.
local function is_source(v)
  return type(v) == "table" and (is_plain(v) or is_array(v)
    or type(v.len) == "function" and type(v.get) == "function")
end


function SimpleDataset:init(data)
  if not is_source(data) then
    Error.raise{ code = data == nil and "value" or "type", func = "gluon.data.SimpleDataset",
      argument = "data", expected = "a list, or an object with len and get",
      got = data == nil and "nothing" or Error.kind(data), message = "bad 'data'" }
  end
  self._data = array_class.keep(data)
end


-- Returns the number of samples of a source.
local function get_length(data)
  if is_array(data) then
    return data.shape[1]
  elseif is_plain(data) then
    return #data
  end
  return data:len()
end


-- Returns sample i (from 0) of a source; a number for an array of one dimension.
local function get_sample(data, i)
  if is_array(data) then
    local x = data[i]
    return #data._shape == 1 and x:asscalar() or x
  elseif is_plain(data) then
    local v = data[i + 1]
    if is_plain(v) and #v > 1 then
      return unpack(v)
    end
    return v
  end
  return data:get(i)
end


function SimpleDataset:get(i)
  return get_sample(self._data, check_index(self, i))
end


function SimpleDataset:len()
  return get_length(self._data)
end


-- Arrays ------------------------------------------------------------------------------------------

--- Arrays, lists or data sets of equal length, side by side: `ArrayDataset(images, labels)`. A
-- sample has one value of each: entry i along axis 0 of an array, a number for an array of one
-- dimension.
-- @type ArrayDataset
local ArrayDataset = Dataset:extend("ArrayDataset")
dataset.ArrayDataset = ArrayDataset

-- Returns the list of sources and their number. A single table of tables is the list of sources; a
-- single table of numbers or strings is one source.
local function list_sources(n, first, ...)
  if n == 1 and is_plain(first) and type(first[1]) == "table" then
    return first, #first
  end
  return { first, ... }, n
end


--- @param ... arrays, lists, data sets; E(`shape`) if lengths differ, E(`type`) for other values
function ArrayDataset:init(...)
  local list, n = list_sources(select("#", ...), ...)
  if n == 0 then
    Error.raise{ code = "value", func = "gluon.data.ArrayDataset", argument = "data",
      expected = "arrays, lists or data sets", got = "nothing", message = "'data' is missing" }
  end
  for k = 1, n do
    if not is_source(list[k]) then
      Error.raise{ code = "type", func = "gluon.data.ArrayDataset", argument = tostring(k),
        expected = "an array, a list or a data set", got = Error.kind(list[k]),
        message = ("bad argument %d"):format(k) }
    elseif get_length(list[k]) ~= get_length(list[1]) then
      Error.raise{ code = "shape", func = "gluon.data.ArrayDataset", argument = tostring(k),
        expected = get_length(list[1]), got = get_length(list[k]),
        message = ("argument %d has %d samples, argument 1 has %d"):format(k,
          get_length(list[k]), get_length(list[1])) }
    end
  end
  self._data = array_class.keep(list)
end


-- Returns sample i of sources k, k + 1 ... of a list; several values of one source as a list.
local function get_samples(list, i, k)
  if k == #list then
    return pack_values(get_sample(list[k], i))
  end
  return pack_values(get_sample(list[k], i)), get_samples(list, i, k + 1)
end


function ArrayDataset:get(i)
  check_index(self, i)
  if #self._data == 1 then
    return get_sample(self._data[1], i)
  end
  return get_samples(self._data, i, 1)
end


function ArrayDataset:len()
  return get_length(self._data[1])
end


plan.describe(ArrayDataset.get, function(self)
  return plan.of_arrays(self._data, self)
end)


-- Records -----------------------------------------------------------------------------------------

--- The records of a RecordIO file, each as a text: `RecordFileDataset(filename)`.
-- @type RecordFileDataset
local RecordFileDataset = Dataset:extend("RecordFileDataset")
dataset.RecordFileDataset = RecordFileDataset

local RECORDS = args.form("gluon.data.RecordFileDataset", { { "filename", "path" } })

--- @string filename path of the records; E(`io`) if it is missing. The index has the same path with
--   `.idx` in place of the ending
function RecordFileDataset:init(...)
  self:_open(RECORDS(...).filename)
end


-- Opens the file of records and its index.
function RecordFileDataset:_open(filename)
  local recordio = require "tycho.io.recordio"
  self._filename = filename
  local stem = filename:match("^(.*)%.[^./]*$") or filename
  self._record = recordio.MXIndexedRecordIO{ stem .. ".idx", filename, "r" }
end


function RecordFileDataset:len()
  return #self._record.keys
end


function RecordFileDataset:get(i)
  return self._record:read_idx(self._record.keys[check_index(self, i) + 1])
end


-- Data sets made of others ------------------------------------------------------------------------

-- Samples of another data set, by a list of their numbers from 0.
local Sampled = Dataset:extend("SampledDataset")

function Sampled:init(base, numbers)
  self._base, self._numbers = base, numbers
end


function Sampled:len()
  return #self._numbers
end


function Sampled:get(i)
  return self._base:get(self._numbers[check_index(self, i) + 1])
end


plan.describe(Sampled.get, function(self)
  return plan.chosen(plan.of(self._base), self._numbers)
end)


-- Samples of another data set, changed by a function of all their values.
local Transformed = Dataset:extend("TransformedDataset")

function Transformed:init(base, f)
  self._base, self._f = base, f
end


function Transformed:len()
  return self._base:len()
end


function Transformed:get(i)
  return self._f(self._base:get(i))
end


plan.describe(Transformed.get, function(self)
  return plan.changed(plan.of(self._base), self._f, "all")
end)


-- Samples of another data set, changed by a function of their first value.
local TransformedFirst = Transformed:extend("TransformedDataset")

local function change_first(f, x, ...)
  return (f(x)), ...
end


function TransformedFirst:get(i)
  return change_first(self._f, self._base:get(i))
end


plan.describe(TransformedFirst.get, function(self)
  return plan.changed(plan.of(self._base), self._f, "first")
end)


-- Returns a data set of all samples of another one, which are read at once.
local function evaluate(set)
  local list = {}
  for i = 0, set:len() - 1 do
    list[i + 1] = set[i]
    if list[i + 1] == nil then
      Error.raise{ code = "value", func = "Dataset:transform", argument = tostring(i),
        expected = "values", got = "nil",
        message = ("sample %d: 'fn' returned nothing; a return may be missing"):format(i) }
    end
  end
  return SimpleDataset(list)
end


local TRANSFORM = { { "fn", "function" }, { "lazy", "boolean", true } }
local ALL, FIRST = args.form("Dataset:transform", TRANSFORM),
  args.form("Dataset:transform_first", TRANSFORM)

--- Returns a data set whose samples are changed by a function of all their values.
-- @tparam function fn called as fn(values of a sample ...): returns the new values; may be a block
-- @bool[opt=true] lazy true: fn is called whenever a sample is read; false: it is called for all
--   samples now
-- @treturn Dataset
function Dataset:transform(...)
  local a = ALL(...)
  local set = Transformed(self, a.fn)
  return a.lazy and set or evaluate(set)
end


--- Returns a data set whose samples are changed by a function of their first value.
-- @tparam function fn called as fn(first value): returns the new one; may be a block
-- @bool[opt=true] lazy as for `transform`
-- @treturn Dataset
function Dataset:transform_first(...)
  local a = FIRST(...)
  local set = TransformedFirst(self, a.fn)
  return a.lazy and set or evaluate(set)
end


-- Returns the numbers that a sampler gives in an epoch.
local function collect_numbers(numbers)
  local list = {}
  for i in numbers do
    list[#list + 1] = i
  end
  return list
end


local FILTER = args.form("Dataset:filter", { { "fn", "function" } })

--- Returns a data set of the samples for which a function is true. All samples are read now.
-- @tparam function fn called as fn(values of a sample ...)
-- @treturn Dataset
function Dataset:filter(...)
  return Sampled(self, collect_numbers(sampler.FilterSampler(FILTER(...).fn, self)))
end


-- Returns the integers from `from` to below `to`.
local function list_range(from, to)
  local list = {}
  for i = from, to - 1 do
    list[#list + 1] = i
  end
  return list
end


local SHARD = args.form("Dataset:shard", { { "num_shards", "positive" }, { "index", "integer" } })

--- Returns one of several consecutive parts, whose lengths differ by at most one; the first parts
-- are the longer ones.
-- @int num_shards number of parts, at least 1
-- @int index of the part, from 0; another one is E(`value`)
-- @treturn Dataset
function Dataset:shard(...)
  local a = SHARD(...)
  if a.index < 0 or a.index >= a.num_shards then
    Error.raise{ code = "value", func = "Dataset:shard", argument = "index",
      expected = ("0 to %d"):format(a.num_shards - 1), got = a.index,
      message = ("there is no shard %d of %d"):format(a.index, a.num_shards) }
  end
  local n = self:len()
  local size, rest = math.floor(n / a.num_shards), n % a.num_shards
  local from = size * a.index + math.min(a.index, rest)
  return Sampled(self, list_range(from, from + size + (a.index < rest and 1 or 0)))
end


local TAKE = args.form("Dataset:take", { { "count", "integer?" } })

--- Returns a data set of the first samples.
-- @int[opt] count number of samples; default, and for larger numbers: all samples
-- @treturn Dataset
function Dataset:take(...)
  local count = TAKE(...).count or self:len()
  if count < 0 then
    Error.raise{ code = "value", func = "Dataset:take", argument = "count", expected = "0 or more",
      got = count, message = "bad 'count'" }
  end
  return Sampled(self, list_range(0, math.min(count, self:len())))
end


local SAMPLE = args.form("Dataset:sample", { { "sampler", "any" } })

--- Returns a data set of the samples whose numbers a sampler returns now.
-- @tparam Sampler sampler of numbers from 0; a number that is not a sample's is E(`index`)
-- @treturn Dataset
function Dataset:sample(...)
  local numbers = SAMPLE(...).sampler
  if not Class.is_a(numbers, sampler.Sampler) then
    Error.raise{ code = "type", func = "Dataset:sample", argument = "sampler",
      expected = "a Sampler", got = Error.kind(numbers), message = "bad 'sampler'" }
  end
  local list = collect_numbers(numbers)
  for _, i in ipairs(list) do
    check_index(self, i)
  end
  return Sampled(self, list)
end


return dataset
