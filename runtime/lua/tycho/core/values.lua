--- Constants for Python's None, new axes and the ellipsis; slice objects; tests of tables.
--
-- @module tycho.core.values

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"

local values = {}

local function constant(name)
  return setmetatable({}, {
    class_name = name,
    __tostring = function() return name end,
    __newindex = function() error("ty." .. name .. " is a constant", 2) end,
    __metatable = { class_name = name, __tostring = true },
  })
end

--- "None" where `nil` is not possible: inside sequences, and for options for which "none" differs
-- from "default". It is truthy.
values.null = constant("null")
--- An axis of length one in an index.
values.newaxis = constant("newaxis")
--- All axes that an index does not name.
values.ellipsis = constant("ellipsis")


local Slice = Class:extend("slice")

function Slice:init(start, stop, step)
  self.start, self.stop, self.step = start, stop, step
end

function Slice:__tostring()
  local function text(v) return v == nil and "" or tostring(v) end
  return text(self.start) .. ":" .. text(self.stop) .. (self.step and ":" .. text(self.step) or "")
end

--- The class of slices.
values.Slice = Slice


local function open(v)
  if v == values.null then
    return nil
  end
  return v
end


--- Returns an index for every `step`-th element from `start` (from 0) to the one before `stop`; nil
-- or `ty.null`: open.
function values.slice(start, stop, step)
  return Slice(open(start), open(stop), open(step))
end


--- Returns nil for nil, `ty.null` and `false`, else the value itself: for entries of sequences.
function values.value(v)
  if v == nil or v == false or v == values.null then
    return nil
  end
  return v
end


--- Returns the number of a call's arguments, without nil at the end.
function values.count(...)
  local n = select("#", ...)
  while n > 0 and (select(n, ...)) == nil do
    n = n - 1
  end
  return n
end


--- Returns whether x is a table without a metatable, or with one that is hidden (`getmetatable`
-- returns false): a list, a dictionary or options, never an object.
function values.is_plain(x)
  return type(x) == "table" and not getmetatable(x)
end


--- Returns whether the keys of a table are 1 to n without gaps.
function values.is_list(t)
  local n = 0
  for _ in pairs(t) do
    n = n + 1
  end
  for i = 1, n do
    if t[i] == nil then
      return false
    end
  end
  return true
end


--- Returns whether a plain table has named keys.
function values.has_names(t)
  for key in pairs(t) do
    if type(key) == "string" then
      return true
    end
  end
  return false
end


return values
