--- The devices of parameters: a context or a list of contexts, as an argument's type.
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

-- The type "contexts" of forms: what comes out is a list.
args.types.contexts = { check = check, text = "a context such as ty.cpu(), or a list of them",
  takes = function(t)
    return not values.has_names(t)
  end }

-- The same where options may follow in its place: an empty table is no options.
args.types.contexts_or_options = { check = check, text = args.types.contexts.text,
  takes = function(t)
    return #t > 0 and not values.has_names(t)
  end }


--- Returns a list of contexts; nil: the current one.
-- @tparam ?{Context,...} list
-- @treturn {Context,...}
function devices.or_current(list)
  return list or { context.current_context() }
end


--- Returns whether two lists have the same contexts in the same order.
function devices.same(a, b)
  return tables.same(a, b)
end


return devices
