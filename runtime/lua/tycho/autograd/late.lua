--- Values that the devices of a step share while its calls are recorded: each device's part, of
-- which those of devices that are called later are not there yet.
--
--     local parts = late.share(key, "batchnorm0", { 0, 1 }, 1, x)  -- parts[1] is x
--
-- The calls of one thread on several devices come one after another. A part that is missing is a
-- late value of the core: calls that read it wait until it is given, so what the first device does
-- runs when the last one has been called. Backward needs the heads of all devices: heads of some of
-- them are held until the others come.
--
-- @module tycho.autograd.late

local ffi = require "ffi"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local gradients = require "tycho.ndarray.gradients"
local native = require "tycho.core.ffi"
local recording = require "tycho.ndarray.recording"

local C, check = native.C, native.check

local late = {}

local made, missing = ffi.new("ty_tensor *[1]"), ffi.new("uint64_t[1]")

local hold                               -- see Backward
local open = {}                          -- groups that wait for devices, the oldest first
local names = {}                         -- number of a group that had all its parts -> name
local last = 0                           -- number of the last group
local held                               -- a backward that waits: heads, grads, flags


-- Groups ------------------------------------------------------------------------------------------

-- Returns the devices that a group has, and those that it lacks, as text.
local function devices_of(group)
  local has, lacks = {}, {}
  for i, device in ipairs(group.devices) do
    local list = group.parts[i] and has or lacks
    list[#list + 1] = tostring(context.of_device(device))
  end
  return table.concat(has, ", "), table.concat(lacks, ", ")
end


local function fail_open(func, group)
  local has, lacks = devices_of(group)
  Error.raise{ code = "state", func = func, argument = group.name, expected = has .. ", " .. lacks,
    got = has, message = ("'%s' shares statistics between devices, and was called on %s, not on \z
      %s: call the network on all devices of the step, then backward; num_devices says how many \z
      devices share"):format(group.name, has, lacks) }
end


local function fail_held(func)
  local name = held.name
  held = nil
  Error.raise{ code = "state", func = func, argument = name,
    message = ("backward was called for some of the devices that share the statistics of '%s': call \z
      it for the loss of each device, or autograd.backward with a list of all losses, before \z
      gradients are used"):format(name) }
end


-- Raises an error if gradients are used that a held backward has not written yet.
local function check_held(func)
  if held then
    fail_held(func)
  end
end


-- Returns an array for a copy of a part on a device; its values are given later.
local function late_copy(group, x, device)
  local of = #group.devices * (#group.devices - 1)
  check(C.ty_late(class.describe(x._shape, x._dtype, device, group.name), group.number, of, made))
  return class.share(made[0])
end


local function group_for(key, name, devices, i)
  for at, group in ipairs(open) do
    if group.key == key and not group.parts[i] and group.devices[i] == devices[i] then
      return group, at
    end
  end
  last = last + 1
  local group = { key = key, name = name, devices = devices, number = last, count = 0, parts = {},
    wanted = {} }
  for k = 1, #devices do
    group.wanted[k] = {}
  end
  open[#open + 1], names[last] = group, name
  return group, #open
end


--- Returns the parts of all devices on the device of one of them. The k-th call of a key on one
-- device belongs to the k-th on each other.
-- @param key what the calls of a group have in common
-- @string name of it, for errors
-- @tparam {int,...} devices codes of those that share, the same list in each call
-- @int i which of them this is
-- @tparam NDArray x its part
-- @treturn {NDArray,...} a part per device
function late.share(key, name, devices, i, x)
  gradients.hold, class.check_gradient = hold, check_held -- other scripts do not pay for these
  check_held(name)
  local group, at = group_for(key, name, devices, i)
  local parts, waiting = {}, group.wanted[i]
  recording.note_line_always()
  for k = 1, #devices do
    parts[k] = k == i and x or late_copy(group, x, devices[i])
  end
  group.parts[i], group.count = x, group.count + 1
  for k = 1, #devices do
    if k ~= i and group.parts[k] then
      check(C.ty_late_give(parts[k]._h, group.parts[k]._h), name)
    elseif k ~= i then
      table.insert(group.wanted[k], parts[k])
    end
  end
  for _, value in ipairs(waiting) do
    check(C.ty_late_give(value._h, x._h), name)
  end
  if group.count == #devices then
    table.remove(open, at)
  end
  return parts
end


-- Backward ----------------------------------------------------------------------------------------

local function append(list, grads, heads, given)
  for i, x in ipairs(heads) do
    list[#list + 1], grads[#list + 1] = x, given[i] or false
  end
end


-- Drops groups that wait for calls on other devices. Raises an error if heads depend on one.
local function drop_open(func, heads)
  local groups = open
  check(C.ty_late_missing(gradients.handles(heads), #heads, missing), func)
  C.ty_late_drop()
  open = {}
  for _, group in ipairs(groups) do
    if group.number == tonumber(missing[0]) then
      held = nil
      fail_open(func, group)
    end
  end
end


-- Returns the heads of a backward together with those that were held; nil if they depend on a group
-- that waits for other devices, so that they are held, too.
function hold(func, heads, grads, variables, flags)
  if #open > 0 then
    drop_open(func, heads)
  end
  local list, all = {}, {}
  if held then
    append(list, all, held.heads, held.grads)
    flags = bit.bor(flags, held.flags)
  end
  append(list, all, heads, grads)
  check(C.ty_late_missing(gradients.handles(list), #list, missing), func)
  local number = tonumber(missing[0])
  if number == 0 then
    held, names = nil, {}
    return list, all, flags
  end
  held = { heads = list, grads = all, flags = flags, name = names[number] or "a group" }
  if variables then
    fail_held(func)
  end
end


return late
