--- where of arrays and symbols, of which one or both choices may be numbers: `ty.nd.where(x:gt(0),
-- x, 0)`. A number gets the shape and type of the other choice; two numbers get the shape of the
-- condition, in float32.
--
-- @module tycho.op.where

local args = require "tycho.core.args"
local is_plain = require("tycho.core.values").is_plain

local function is_number(v)
  return type(v) == "number"
end


--- Returns the function `where` of a namespace.
-- @tparam function operator the function of the operator
-- @string kind type of the arguments: "array" or "symbol"
-- @string func "nd.where", for errors
-- @tparam function fill f(like, number, dtype): an array or symbol filled with a number, in the
--   shape of `like`, and in its type if dtype is nil
return function(operator, kind, func, fill)
  local choice = "number|" .. kind
  local form = args.form(func, { { "condition", kind }, { "x", choice }, { "y", choice }, "*",
    { "out", "array?" }, { "name", "text?" }, { "attr", "dict?" } })

  local function choose(a)
    local x, y = a.x, a.y
    local like = not is_number(x) and x or not is_number(y) and y
    local dtype = not like and "float32" or nil
    x = is_number(x) and fill(like or a.condition, x, dtype) or x
    y = is_number(y) and fill(like or a.condition, y, dtype) or y
    return operator{ a.condition, x, y, out = a.out, name = a.name, attr = a.attr }
  end

  return function(...)
    local only, x, y = ...
    if select("#", ...) == 1 and is_plain(only) then
      x, y = only[2] or only.x, only[3] or only.y
    end
    if is_number(x) or is_number(y) then
      return choose(form(...))
    end
    return operator(...)
  end
end
