--- Values that the devices of a step share while its calls are recorded: a part of each device,
-- such as the statistics of its slice.
--
--     local parts = late.share(key, "batchnorm0", { 0, 1 }, 1, x)  -- parts[1] is x
--
-- A thread makes the calls on one device after those on another, so the parts of later devices do
-- not exist yet. Such a part is a late value of the core: calls that read it wait until the value
-- is given, so the first device's calls run only after the last device's. Backward needs the heads
-- of all devices: if it is called for some of them, it is held until it is called for the others.
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

local hold_heads                         -- defined below
local open_groups = {}                   -- groups that lack parts, the oldest first
local group_names = {}                   -- number of a group -> name, for errors
local last_number = 0                    -- number of the last group
local held_backward                      -- a backward that waits: heads, grads, flags, name; or nil


-- Groups ------------------------------------------------------------------------------------------

-- Returns the devices whose parts a group has, and those whose parts it lacks, as two strings.
local function show_devices(group)
  local has, lacks = {}, {}
  for i, device in ipairs(group.devices) do
    local list = group.parts[i] and has or lacks
    list[#list + 1] = tostring(context.of_device(device))
  end
  return table.concat(has, ", "), table.concat(lacks, ", ")
end


local function fail_open(func, group)
  local has, lacks = show_devices(group)
  Error.raise{ code = "state", func = func, argument = group.name, expected = has .. ", " .. lacks,
    got = has, message = ("'%s' shares statistics between devices, and was called on %s, not on \z
      %s: call the network on all devices of the step, then backward; num_devices sets how \z
      many devices share"):format(group.name, has, lacks) }
end


local function fail_held(func)
  local name = held_backward.name
  held_backward = nil
  Error.raise{ code = "state", func = func, argument = name,
    message = ("backward was called for some of the devices that share the statistics of '%s', \z
      but not for all: call it for the loss of each device, or autograd.backward with a list of \z
      all losses, before gradients are used"):format(name) }
end


-- Raises E(state) if a backward is held, since gradients that are about to be used are not written
-- yet.
local function check_held(func)
  if held_backward then
    fail_held(func)
  end
end


-- Returns an array with the shape of a part on a device, whose values are given later.
local function make_late_copy(group, x, device)
  local size = #group.devices * (#group.devices - 1)
  check(C.ty_late(class.describe(x._shape, x._dtype, device, group.name), group.number, size, made))
  return class.share(made[0])
end


-- Returns the oldest group of a key that lacks the part of device i, and its position among the
-- open groups; opens one if there is none.
local function find_or_open_group(key, name, devices, i)
  for at, group in ipairs(open_groups) do
    if group.key == key and not group.parts[i] and group.devices[i] == devices[i] then
      return group, at
    end
  end
  last_number = last_number + 1
  local group = { key = key, name = name, devices = devices, number = last_number, count = 0,
    parts = {}, wanted = {} }
  for k = 1, #devices do
    group.wanted[k] = {}
  end
  open_groups[#open_groups + 1], group_names[last_number] = group, name
  return group, #open_groups
end


--- Returns the parts of all devices as arrays on one of them. The k-th call for a key on one device
-- belongs to the k-th call for it on each other device.
-- @param key a value that is equal for all calls of a group
-- @string name of the group, for errors
-- @tparam {int,...} devices codes of the devices that share, the same list in each call
-- @int i position in that list of the device of this call, from 1
-- @tparam NDArray x the part of this device
-- @treturn {NDArray,...} a part for each device, in their order; parts[i] is x
function late.share(key, name, devices, i, x)
  gradients.hold, class.check_gradient = hold_heads, check_held -- hooks of scripts that share only
  check_held(name)
  local group, at = find_or_open_group(key, name, devices, i)
  local parts, waiting = {}, group.wanted[i]
  recording.note_line_always()
  for k = 1, #devices do
    parts[k] = k == i and x or make_late_copy(group, x, devices[i])
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
    table.remove(open_groups, at)
  end
  return parts
end


-- Backward ----------------------------------------------------------------------------------------

-- Appends heads and their gradients to lists.
local function append_heads(list, grads, heads, given)
  for i, x in ipairs(heads) do
    list[#list + 1], grads[#list + 1] = x, given[i] or false
  end
end


-- Drops the groups that lack parts, with the calls that wait for them. Raises E(state) if heads
-- depend on such a group.
local function drop_open_groups(func, heads)
  local groups = open_groups
  check(C.ty_late_missing(gradients.handles(heads), #heads, missing), func)
  C.ty_late_drop()
  open_groups = {}
  for _, group in ipairs(groups) do
    if group.number == tonumber(missing[0]) then
      held_backward = nil
      fail_open(func, group)
    end
  end
end


-- Returns the heads, gradients and flags of a backward together with those of the held one. Returns
-- nil, and holds the backward, if heads of other devices are missing; with given variables, whose
-- gradients the caller needs now, it raises E(state) instead.
function hold_heads(func, heads, grads, variables, flags)
  if #open_groups > 0 then
    drop_open_groups(func, heads)
  end
  local list, all = {}, {}
  if held_backward then
    append_heads(list, all, held_backward.heads, held_backward.grads)
    flags = bit.bor(flags, held_backward.flags)
  end
  append_heads(list, all, heads, grads)
  check(C.ty_late_missing(gradients.handles(list), #list, missing), func)
  local number = tonumber(missing[0])
  if number == 0 then
    held_backward, group_names = nil, {}
    return list, all, flags
  end
  held_backward = { heads = list, grads = all, flags = flags,
    name = group_names[number] or "a group" }
  if variables then
    fail_held(func)
  end
end


return late
