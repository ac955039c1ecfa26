--- The values of a module's parameters, or of its auxiliary states (not for users).
--
-- A name's values are in its places, the arrays of the devices; before it has any (loaded, or
-- between two bindings) in the array that is kept for it. Host copies are made when they are asked
-- for as objects; who only reads gets the device's own arrays where they lie on the host. From then
-- on every name has its copy, which stays the same array.
--
-- While `stale`, which an update sets, the places are newer than the copies, and those of several
-- devices may differ: they count by their mean. Modules that share memory share this object.
--
-- @module tycho.module.param_store

jit.off(true, true)                                      -- pays no compilation: core/iterate.lua

local pairs = require("tycho.core.iterate").pairs
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local rows = require "tycho.module.batch_slices"

local FUNC = "Module:get_params"
local HOST = context.cpu()._device

--- Values by name.
local Values = Class:extend("Values")


--- @bool[opt=false] copied whether there are copies from the beginning
-- @tparam[opt] table kept arrays by name: the values until there are places
function Values:init(copied, kept)
  self._copied, self._kept, self._places, self._copies = copied or false, kept or {}, {}, {}
  self.stale = false
end


-- Host arrays -------------------------------------------------------------------------------------

-- A new host array with the values that places have in common, or with their mean.
local function copy_of(places, mean, name)
  local x = class.new(places[1]._shape, places[1]._dtype, HOST, FUNC)
  rawset(x, "_kept", true)                               -- ty.scope leaves it
  return rows.mean(x, mean and places or { places[1] }, FUNC, name)
end


-- A host array with the present values: the only place that counts, if it is on the host.
local function near(self, name)
  local places = self._places[name]
  local mean = self.stale and #places > 1
  return not mean and places[1]._device == HOST and places[1] or copy_of(places, mean, name)
end


local function spread(x, places, name)
  for _, place in ipairs(places) do
    if place ~= x then
      call.copy(place, x, FUNC, name)
    end
  end
end


-- Reading -----------------------------------------------------------------------------------------

--- An array for each name that has its shape and type.
function Values:arrays()
  local list = {}
  for name, places in pairs(self._places) do
    list[name] = places[1]
  end
  for name, x in pairs(self._kept) do
    list[name] = x
  end
  return list
end


--- The shape of a name that has places.
function Values:shape(name)
  return self._places[name][1].shape
end


--- The values of a name, to be read at once.
function Values:value(name)
  self:refresh()
  return self._copies[name] or self._kept[name] or near(self, name)
end


--- The values of all names, to be read at once.
function Values:values()
  local list = self:arrays()
  for name in pairs(list) do
    list[name] = self:value(name)
  end
  return list
end


--- The copies by name, up to date: always the same table and arrays.
function Values:copies()
  for name, places in pairs(self._places) do
    if not self._copies[name] then
      self._copies[name] = copy_of(places, self.stale, name)
    elseif self.stale then
      rows.mean(self._copies[name], places, FUNC, name)
    end
  end
  for name, x in pairs(self._kept) do
    self._copies[name] = self._copies[name] or copy_of({ x }, false, name)
    self._kept[name] = self._copies[name]
  end
  self._copied, self.stale = true, false
  return self._copies
end


--- Brings the copies up to date, if there are any.
function Values:refresh()
  if self._copied and self.stale then
    self:copies()
  end
end


-- Writing -----------------------------------------------------------------------------------------

--- Has a function write a host array that holds a name's values, and gives them to all devices.
-- @string name
-- @tparam function f
function Values:fill(name, f)
  local x = self._copies[name] or near(self, name)
  f(x)
  spread(x, self._places[name], name)
end


-- Whether an array that is kept is of another type than its places will be:
-- its copy stays of that type.
local function converts(self, names, lists)
  for k, name in ipairs(names) do
    local x = self._kept[name]
    if x and x._dtype ~= lists[k][1]._dtype then
      return true
    end
  end
end


local function place_one(self, name, places)
  local x = self._kept[name]
  if x then
    spread(x, places, name)
  end
  if self._copied then
    self._copies[name] = self._copies[name] or copy_of({ x or places[1] }, false, name)
  end
  self._places[name], self._kept[name] = places, nil
end


--- Gives names their places, and the places the values that were kept.
-- @tparam {string,...} names those that have places keep them
-- @tparam table lists for each name an array on every device
function Values:place(names, lists)
  if converts(self, names, lists) then
    self:copies()
  end
  for k, name in ipairs(names) do
    if not self._places[name] then
      place_one(self, name, lists[k])
    end
  end
end


--- The same values and copies, without places: for a new binding.
function Values:moved()
  local new = Values(self._copied, self:values())
  new._copies = self._copies
  return new
end


return Values
