--- Samplers: which samples come in which order (part of `ty.gluon.data`).
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


--- The base of samplers. To be defined: `iter()` (an iterator function) and `len()`. An object is
-- called by `for`, and begins anew in each loop.
-- @type Sampler
local Sampler = Class:extend("Sampler")
sampler.Sampler = Sampler

fields.give(Sampler, {})


function Sampler:__call(_, control)
  if control == nil then
    rawset(self, "_iterator", self:iter())
  end
  return self._iterator()
end


local function undefined(self, method)
  Error.raise{ code = "unsupported", func = self.class_name .. ":" .. method,
    message = ("a sampler defines iter() and len(); '%s' has no %s"):format(self.class_name,
      method) }
end


--- Returns an iterator function over one epoch; a subclass must define it.
function Sampler:iter()
  undefined(self, "iter")
end


--- Returns the number of values of an epoch; a subclass must define it.
function Sampler:len()
  undefined(self, "len")
end


local function extend(name)
  local class = Sampler:extend(name)
  sampler[name] = class
  return class
end


local function natural(v, argument, func)
  if v < 0 then
    Error.raise{ code = "value", func = func, argument = argument, expected = "0 or more",
      got = v, message = ("bad '%s'"):format(argument) }
  end
  return v
end


--- The numbers from `start` on, in order.
-- @type SequentialSampler
local SequentialSampler = extend "SequentialSampler"

local SEQUENTIAL = args.form("gluon.data.SequentialSampler", { { "length", "integer" },
  { "start", "integer", 0 } })

function SequentialSampler:init(...)
  local a = SEQUENTIAL(...)
  self._length, self._start =
    natural(a.length, "length", "gluon.data.SequentialSampler"), a.start
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


--- The numbers below `length` in random order, drawn from `ty.random` when a loop begins.
-- @type RandomSampler
local RandomSampler = extend "RandomSampler"

local RANDOM = args.form("gluon.data.RandomSampler", { { "length", "integer" } })

function RandomSampler:init(...)
  self._length = natural(RANDOM(...).length, "length", "gluon.data.RandomSampler")
end


-- Returns an iterator function of what is in a list.
local elements = iterate.alike(function(list)
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
  return elements(order)
end


function RandomSampler:len()
  return self._length
end


--- The numbers of samples for which a function gives true; all samples are read when it is made.
-- @type FilterSampler
local FilterSampler = extend "FilterSampler"

local FILTER = args.form("gluon.data.FilterSampler", { { "fn", "function" }, { "dataset", "any" } })

function FilterSampler:init(...)
  local a = FILTER(...)
  self._numbers = {}
  for i = 0, a.dataset:len() - 1 do
    if a.fn(a.dataset:get(i)) then
      self._numbers[#self._numbers + 1] = i
    end
  end
end


function FilterSampler:iter()
  return elements(self._numbers)
end


function FilterSampler:len()
  return #self._numbers
end


--- Lists of numbers from another sampler. The last, incomplete list is kept ("keep"), left out
-- ("discard"), or begins the next epoch ("rollover").
-- @type BatchSampler
local BatchSampler = extend "BatchSampler"

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


-- Returns an iterator function of batches, of which the first begins with what is in `list`.
local batches = iterate.alike(function(self, inner, list)
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
  return batches(self, self._sampler:iter(), list)
end


function BatchSampler:len()
  local n = self._sampler:len()
  if self._last == "keep" then
    return ceil(n / self._size)
  end
  return floor((n + (self._last == "rollover" and #self._rest or 0)) / self._size)
end


return sampler
