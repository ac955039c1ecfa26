--- The parameters of a module, or its auxiliary states: for each name an array on every device
-- (not for users).
--
-- While a name has no arrays (after loading, or between two bindings), its values are in an array
-- in `_kept`. Copies on the host are made when `copies` is first called, and are the same arrays
-- from then on. Callers that only read get the device's array itself if it is on the host.
--
-- `blank` is the set of names that were never given a value: their zeros mean nothing.
--
-- An update sets `stale`: the arrays are then newer than the copies, and those of several devices
-- may differ, in which case their mean is the value. Modules that share memory share this object.
-- While `lent`, other code writes the arrays too, so they always count as newer.
--
-- @module tycho.module.param_store

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local named = require "tycho.core.dict"
local slices = require "tycho.module.batch_slices"

local FUNC = "Module:get_params"
local HOST = context.cpu()._device

--- The parameters or auxiliary states of a module by name.
local ParamStore = Class:extend("ParamStore")


--- @bool[opt=false] copied whether every name has a copy from the beginning
-- @tparam[opt] table kept arrays by name: the values until arrays are attached
function ParamStore:init(copied, kept)
  self._copied, self._kept, self._arrays, self._copies =
    copied or false, class.keep(kept or {}), {}, named{}
  self.stale, self.blank, self.lent = false, {}, false
end


-- Host arrays -------------------------------------------------------------------------------------

-- Returns a new host array with the values of the first device, or with the mean over devices.
local function copy_arrays(arrays, mean, name)
  local x = class.keep(class.new(arrays[1]._shape, arrays[1]._dtype, HOST, FUNC))
  return slices.mean(x, mean and arrays or { arrays[1] }, FUNC, name)
end


-- Returns a host array with the present values: the device's array itself if it is the only one and
-- on the host, else a copy.
local function host_array(self, name)
  local arrays = self._arrays[name]
  local mean = self.stale and #arrays > 1
  return not mean and arrays[1]._device == HOST and arrays[1] or copy_arrays(arrays, mean, name)
end


local function copy_to_all(x, arrays, name)
  for _, to in ipairs(arrays) do
    if to ~= x then
      call.copy(to, x, FUNC, name)
    end
  end
end


-- Reading -----------------------------------------------------------------------------------------

--- Returns an array with the shape and type of each name; its values may be old.
function ParamStore:arrays()
  local list = {}
  for name, arrays in pairs(self._arrays) do
    list[name] = arrays[1]
  end
  for name, x in pairs(self._kept) do
    list[name] = x
  end
  return list
end


--- Returns the arrays as `arrays` does, without names that were never given a value.
function ParamStore:given()
  local list = self:arrays()
  for name in pairs(self.blank) do
    list[name] = nil
  end
  return list
end


--- Returns the arrays of a name on all devices; nil if it has none.
function ParamStore:on_devices(name)
  return self._arrays[name]
end


--- Returns the devices' arrays by name, for callers that may write them at any time.
-- @treturn table name -> list of arrays
function ParamStore:lend()
  self.lent, self.stale = true, true
  self.blank = {}
  local list = {}
  for name, arrays in pairs(self._arrays) do
    list[name] = arrays
  end
  return list
end


--- Returns the shape of a name that has arrays.
function ParamStore:shape(name)
  return self._arrays[name][1].shape
end


--- Returns the values of a name as a host array, to be read at once.
function ParamStore:value(name)
  self:refresh()
  return self._copies[name] or self._kept[name] or host_array(self, name)
end


--- Returns the values of all names as host arrays, to be read at once.
function ParamStore:values()
  local list = self:arrays()
  for name in pairs(list) do
    list[name] = self:value(name)
  end
  return list
end


-- Waits for updates, so that an update that failed raises its error before its result is copied.
local function wait_for_updates(self)
  for _, arrays in pairs(self._arrays) do
    for _, x in ipairs(arrays) do
      x:wait_to_read()
    end
  end
end


--- Returns the copies by name, up to date. Waits for updates. The table and its arrays are always
-- the same ones.
function ParamStore:copies()
  if self.stale then
    wait_for_updates(self)
  end
  for name, arrays in pairs(self._arrays) do
    if not self._copies[name] then
      self._copies[name] = copy_arrays(arrays, self.stale, name)
    elseif self.stale then
      slices.mean(self._copies[name], arrays, FUNC, name)
    end
  end
  for name, x in pairs(self._kept) do
    self._copies[name] = self._copies[name] or copy_arrays({ x }, false, name)
    self._kept[name] = self._copies[name]
  end
  self._copied, self.stale = true, self.lent
  return self._copies
end


--- Brings the copies up to date, if there are any.
function ParamStore:refresh()
  if self._copied and self.stale then
    self:copies()
  end
end


-- Writing -----------------------------------------------------------------------------------------

--- Calls a function that writes a host array of a name's values, and copies the array to all
-- devices.
-- @string name
-- @tparam function f gets the array and returns whether it has written it
function ParamStore:fill(name, f)
  local x = self._copies[name] or host_array(self, name)
  if f(x) then
    copy_to_all(x, self._arrays[name], name)
    self.blank[name] = nil
  end
end


--- Records that values were written to the devices' arrays.
-- @tparam table given by name
function ParamStore:written(given)
  for name in pairs(given) do
    self.blank[name] = nil
  end
end


-- Returns whether a kept array has another type than the arrays it is written to. Such a name gets
-- a copy, which keeps the type.
local function converts(self, names, lists)
  for k, name in ipairs(names) do
    local x = self._kept[name]
    if x and x._dtype ~= lists[k][1]._dtype then
      return true
    end
  end
end


-- Gives a name its arrays and writes its kept values to them.
local function attach_one(self, name, arrays)
  local x = self._kept[name]
  if x then
    copy_to_all(x, arrays, name)
  end
  if self._copied then
    self._copies[name] = self._copies[name] or copy_arrays({ x or arrays[1] }, false, name)
  end
  self._arrays[name], self._kept[name], self.blank[name] = arrays, nil, not x or nil
end


--- Gives names their arrays on the devices and writes the kept values to these.
-- @tparam {string,...} names names that have arrays already keep them
-- @tparam table lists for each name an array on every device
function ParamStore:attach(names, lists)
  if converts(self, names, lists) then
    self:copies()
  end
  for k, name in ipairs(names) do
    if not self._arrays[name] then
      attach_one(self, name, lists[k])
    end
  end
end


--- Removes names that turned out not to be parameters.
-- @tparam table names set
function ParamStore:forget(names)
  for name in pairs(names) do
    self._arrays[name], self._kept[name], self._copies[name], self.blank[name] = nil, nil, nil, nil
  end
end


--- Returns a new store with the same values and copies but without arrays, for a new binding.
function ParamStore:detached()
  local kept = self:values()
  for name in pairs(self.blank) do
    kept[name] = nil
  end
  local new = ParamStore(self._copied, kept)
  new._copies = self._copies
  return new
end


return ParamStore
