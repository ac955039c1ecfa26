--- `ty.gluon.contrib.data`: a sampler that visits the data in strides.
--
-- @module tycho.gluon.contrib.data

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local iterate = require "tycho.core.iterate"
local namespace = require "tycho.core.namespace"
local Sampler = require("tycho.gluon.data.sampler").Sampler

local data = {}

local INTERVAL = args.form("gluon.contrib.data.IntervalSampler", { { "length", "positive" },
  { "interval", "positive" }, { "rollover", "boolean", true } })

--- Returns every `interval`-th number below `length`, from 0; with rollover then those from 1, from
-- 2 and so on, until all numbers were returned.
-- @type IntervalSampler
local IntervalSampler = Sampler:extend("IntervalSampler")
data.IntervalSampler = IntervalSampler

--- @int length
-- @int interval at most the length, else E(value)
-- @bool[opt=true] rollover
function IntervalSampler:init(...)
  local a = INTERVAL(...)
  if a.interval > a.length then
    Error.raise{ code = "value", func = "gluon.contrib.data.IntervalSampler",
      argument = "interval", expected = "at most " .. a.length, got = a.interval,
      message = "the interval is larger than the length" }
  end
  self._length, self._interval, self._rollover = a.length, a.interval, a.rollover
end


IntervalSampler.iter = iterate.alike(function(self)
  local first, at = 0, 0
  return function()
    while first < (self._rollover and self._interval or 1) do
      if at < self._length then
        at = at + self._interval
        return at - self._interval
      end
      first = first + 1
      at = first
    end
  end
end)


function IntervalSampler:len()
  return self._rollover and self._length or math.ceil(self._length / self._interval)
end


-- left out
data.text = namespace.refused("gluon.contrib.data.text",
  "texts that are fetched are left out; ty.io.text reads local ones")


return namespace.close(data, "gluon.contrib.data", "class")
