--- Samplers: the order of samples in an epoch (part of `ty.gluon.data`).
--
--     for i in gluon.data.RandomSampler(10) do print(i) end        -- numbers from 0
--     for batch in gluon.data.BatchSampler(gluon.data.SequentialSampler(10), 4) do
--       print(#batch)                                              -- 4, 4, 2
--     end
--
-- @module tycho.gluon.data.sampler

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local fields = require "tycho.core.fields"
local iterate = require "tycho.core.iterate"
local random = require "tycho.image.random"

local ceil, floor, rawset = math.ceil, math.floor, rawset

local sampler = {}


--- The base class of samplers. A subclass defines `iter()` and `len()`. `for i in sampler do`
-- iterates over an epoch, and a new loop begins another one; a loop inside it must use
-- `sampler:iter()`.
-- @type Sampler
local Sampler = Class:extend("Sampler")
sampler.Sampler = Sampler

fields.give(Sampler, {})


-- Implements `for ... in sampler do`: begins an epoch at the first call of a loop. Raises E(state)
-- if another loop has begun since.
function Sampler:__call(_, control)
  if control == nil then
    rawset(self, "_iterator", self:iter())
  elseif control ~= self._given then
    Error.raise{ code = "state", func = self.class_name,
      message = "another loop over this sampler has begun; a loop inside of a loop takes iter()" }
  end
  local v = self._iterator()
  rawset(self, "_given", v)
  return v
end


local function fail_undefined(self, method)
  Error.raise{ code = "unsupported", func = self.class_name .. ":" .. method,
    message = ("class '%s' has no %s; a sampler must define iter() and len()")
      :format(self.class_name, method) }
end


--- Begins an epoch; a subclass must define it.
-- @treturn function iterator of sample numbers, from 0, or of lists of them
function Sampler:iter()
  fail_undefined(self, "iter")
end


--- Returns the number of values of `iter` in an epoch; a subclass must define it.
-- @treturn int
function Sampler:len()
  fail_undefined(self, "len")
end


-- Returns a new class of the namespace.
local function define_sampler(name)
  local class = Sampler:extend(name)
  sampler[name] = class
  return class
end


local function check_length(v, argument, func)
  if v < 0 then
    Error.raise{ code = "value", func = func, argument = argument, expected = "0 or more",
      got = v, message = ("bad '%s'"):format(argument) }
  end
  return v
end


--- Returns `length` numbers in order, start, start + 1 ...: `SequentialSampler(length, start)`,
-- start = 0. A negative length is E(`value`).
-- @type SequentialSampler
local SequentialSampler = define_sampler "SequentialSampler"

local SEQUENTIAL = args.form("gluon.data.SequentialSampler", { { "length", "integer" },
  { "start", "integer", 0 } })

function SequentialSampler:init(...)
  local a = SEQUENTIAL(...)
  self._length, self._start =
    check_length(a.length, "length", "gluon.data.SequentialSampler"), a.start
end


function SequentialSampler:iter()
  local at, stop = self._start, self._start + self._length
  return function()
    if at < stop then
      at = at + 1
      return at - 1
    end
  end
end


function SequentialSampler:len()
  return self._length
end


--- Returns the numbers from 0 to length - 1 in random order, drawn from `ty.random` when an epoch
-- begins: `RandomSampler(length)`.
-- @type RandomSampler
local RandomSampler = define_sampler "RandomSampler"

local RANDOM = args.form("gluon.data.RandomSampler", { { "length", "integer" } })

function RandomSampler:init(...)
  self._length = check_length(RANDOM(...).length, "length", "gluon.data.RandomSampler")
end


-- Returns an iterator of the entries of a list.
local iterate_list = iterate.alike(function(list)
  local at = 0
  return function()
    at = at + 1
    return list[at]
  end
end)


function RandomSampler:iter()
  local order, n = {}, self._length
  for i = 1, n do
    order[i] = i - 1
  end
  for i = n, 2, -1 do
    local k = random.integer(1, i)
    order[i], order[k] = order[k], order[i]
  end
  return iterate_list(order)
end


function RandomSampler:len()
  return self._length
end


--- Returns the numbers of the samples for which fn(values of the sample ...) is true:
-- `FilterSampler(fn, dataset)`. All samples are read when it is made.
-- @type FilterSampler
local FilterSampler = define_sampler "FilterSampler"

local FILTER = args.form("gluon.data.FilterSampler", { { "fn", "function" }, { "dataset", "any" } })

function FilterSampler:init(...)
  local a = FILTER(...)
  local set = a.dataset
  if type(set) ~= "table" or type(set.get) ~= "function" or type(set.len) ~= "function" then
    Error.raise{ code = "type", func = "gluon.data.FilterSampler", argument = "dataset",
      expected = "a data set (with get and len)", got = Error.kind(set),
      message = "bad 'dataset'" }
  end
  self._numbers = {}
  for i = 0, set:len() - 1 do
    if a.fn(set:get(i)) then
      self._numbers[#self._numbers + 1] = i
    end
  end
end


function FilterSampler:iter()
  return iterate_list(self._numbers)
end


function FilterSampler:len()
  return #self._numbers
end


--- Returns lists of `batch_size` numbers from another sampler: `BatchSampler(sampler, batch_size,
-- last_batch)`. An incomplete last list is kept (`last_batch` = "keep"), left out ("discard"), or
-- begins the next epoch ("rollover").
-- @type BatchSampler
local BatchSampler = define_sampler "BatchSampler"

local BATCH = args.form("gluon.data.BatchSampler", { { "sampler", "any" },
  { "batch_size", "positive" }, { "last_batch", { "keep", "discard", "rollover" }, "keep" } })

function BatchSampler:init(...)
  local a = BATCH(...)
  if not Class.is_a(a.sampler, Sampler) then
    Error.raise{ code = "type", func = "gluon.data.BatchSampler", argument = "sampler",
      expected = "a Sampler", got = Error.kind(a.sampler), message = "bad 'sampler'" }
  end
  self._sampler, self._size, self._last, self._rest = a.sampler, a.batch_size, a.last_batch, {}
end


-- Returns an iterator of lists, the first of which begins with the entries of `list`. inner:
-- iterator of numbers.
local iterate_batches = iterate.alike(function(self, inner, list)
  local ended = false
  return function()
    while not ended do
      local i = inner()
      if i ~= nil then
        list[#list + 1] = i
      end
      ended = i == nil
      local whole = #list == self._size
      if whole or ended and #list > 0 and self._last == "keep" then
        local batch = list
        list = {}
        return batch
      elseif ended and self._last == "rollover" then
        self._rest = list
      end
    end
  end
end)


function BatchSampler:iter()
  local list = self._rest
  self._rest = {}
  return iterate_batches(self, self._sampler:iter(), list)
end


function BatchSampler:len()
  local n = self._sampler:len()
  if self._last == "keep" then
    return ceil(n / self._size)
  end
  return floor((n + (self._last == "rollover" and #self._rest or 0)) / self._size)
end


return sampler
