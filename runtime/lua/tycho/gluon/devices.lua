--- Devices as arguments: a context, or a list of contexts.
--
-- @module tycho.gluon.devices

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local devices = {}


local function is_context(v)
  return Class.is_a(v, context.Context)
end


-- The `check` of both types: returns true and the list, or false.
local function check(v)
  if is_context(v) then
    return true, { v }
  elseif not values.is_plain(v) or #v == 0 or values.has_names(v) then
    return false
  end
  for _, c in ipairs(v) do
    if not is_context(c) then
      return false
    end
  end
  return true, tables.copied(v)
end

-- The type "contexts" of forms. Its value is always a list, also for a single context.
args.types.contexts = { check = check, text = "a context such as ty.cpu(), or a list of them",
  takes = function(t)
    return not values.has_names(t)
  end }

-- Like "contexts", but a table of options may come in its place; an empty table means options.
args.types.contexts_or_options = { check = check, text = args.types.contexts.text,
  takes = function(t)
    return #t > 0 and not values.has_names(t)
  end }


--- Returns the given list of contexts; for nil a list of the current context.
-- @tparam ?{Context,...} list
-- @treturn {Context,...}
function devices.or_current(list)
  return list or { context.current_context() }
end


--- Returns a list of contexts as text: "cpu(0), cpu(1)".
-- @tparam {Context,...} list
-- @treturn string
function devices.show(list)
  local names = {}
  for i, c in ipairs(list) do
    names[i] = tostring(c)
  end
  return table.concat(names, ", ")
end


--- Returns whether two lists have the same contexts in the same order.
-- @tparam {Context,...} a
-- @tparam {Context,...} b
-- @treturn bool
function devices.same(a, b)
  return tables.same(a, b)
end


return devices
