--- Recorded calls, as steps that the core reports: the step that made an array, its inputs and
-- outputs.
--
--     local step, which = steps.of(y)               -- nil: y was not recorded
--     step.op, step.attrs, step.serial, step.nin    -- op nil: a function of Lua
--     step:input(1), step:output(1)                 -- arrays, with the history that they have
--
-- @module tycho.autograd.steps

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local gradients = require "tycho.ndarray.gradients"

local C, check = native.C, native.check

local steps = {}

local handle, which = ffi.new("ty_step *[1]"), ffi.new("int[1]")
local info, made = ffi.new("ty_step_info"), ffi.new("ty_tensor *[1]")


--- A recorded call. Fields: op (name of the operator; nil: a Lua function), attrs (strings by
-- name), where (line of the script, or nil), serial (number, larger than those of the steps that
-- made its inputs), nin and nout (numbers of inputs and outputs), train (whether it ran in training
-- mode).
local Step = Class:extend("Step")
steps.Step = Step

function Step:init(pointer)
  self._h = ffi.gc(pointer, C.ty_step_free)
  check(C.ty_step_info_of(self._h, info))
  self.op = info.op ~= nil and ffi.string(info.op) or nil
  self.where = info.where ~= nil and ffi.string(info.where) or nil
  self.serial, self.nin, self.nout = tonumber(info.serial), info.nin, info.nout
  self.train = info.train ~= 0
  self.attrs = {}
  for i = 0, info.nattr - 1 do
    self.attrs[ffi.string(info.attr[i].key)] = ffi.string(info.attr[i].value)
  end
end


--- Returns whether a backward has freed the step's data.
function Step:is_freed()
  return self.nin == 0 and not self.op
end


--- Returns an input of the step as an array with its history.
-- @int i from 1
-- @treturn NDArray
function Step:input(i)
  check(C.ty_step_input(self._h, i - 1, made))
  return class.share(made[0])
end


--- Returns an output of the step as an array with its history.
-- @int i from 1
-- @treturn NDArray
function Step:output(i)
  check(C.ty_step_output(self._h, i - 1, made))
  return class.share(made[0])
end


--- Returns the step that made an array.
-- @tparam NDArray x
-- @treturn ?Step nil if x was not recorded
-- @treturn int which of its outputs x is, from 1
function steps.of(x)
  check(C.ty_step_of(x._h, handle, which))
  if handle[0] ~= nil then
    return Step(handle[0]), which[0] + 1
  end
end


local LAST = 2 ^ 53                      -- above all serial numbers

--- Returns the last step, in the order of recording, on which arrays depend.
-- @tparam {NDArray,...} heads
-- @tparam ?number below only steps with a serial number below this
-- @tparam ?bool functions whether to look for Lua functions only, except for those on which these
--   depend
-- @treturn ?Step nil if there is none
function steps.before(heads, below, functions)
  check(C.ty_step_before(gradients.handles(heads), #heads, below or LAST, functions and 1 or 0,
    handle))
  if handle[0] ~= nil then
    return Step(handle[0])
  end
end


--- Returns all steps on which arrays depend, in the order of recording. Lua functions are included,
-- but not the steps on which only these depend.
-- @tparam {NDArray,...} heads
-- @treturn {Step,...}
function steps.all(heads)
  local found, list, visited = {}, {}, 0
  local function add_step_of(x)
    local step = steps.of(x)
    if step and not found[step.serial] then
      found[step.serial] = true
      list[#list + 1] = step
    end
  end
  for _, x in ipairs(heads) do
    add_step_of(x)
  end
  while visited < #list do
    visited = visited + 1
    local step = list[visited]
    for i = 1, step.op and step.nin or 0 do
      add_step_of(step:input(i))
    end
  end
  table.sort(list, function(a, b) return a.serial < b.serial end)
  return list
end


--- Returns the state of an array in the core.
-- @tparam NDArray x
-- @treturn string "plain", "variable", "recorded", or "freed": a backward has freed its graph
function steps.kind(x)
  check(C.ty_history(x._h, 0, which, ffi.new("int[1]")))
  return ({ [0] = "plain", "variable", "recorded", "freed" })[which[0]]
end


return steps
