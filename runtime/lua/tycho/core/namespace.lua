--- Namespaces in which an unknown name is an error that suggests others (not for users).
--
--     return namespace.close(metrics, "metric", "metric")
--     ty.metric.acuracy                 --> metric: unknown metric 'acuracy'; did you mean ...
--
-- Code that tests whether a name exists uses `rawget`.
--
-- @module tycho.core.namespace

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"

local namespace = {}


-- Returns the public names of t, and further ones that the function `more` returns for a key.
local function list_names(t, more, key)
  local list = more and more(key) or {}
  for name in pairs(t) do
    if type(name) == "string" and name:sub(1, 1) ~= "_" then
      list[#list + 1] = name
    end
  end
  return list
end


--- Handles a name that a namespace's `__index` does not find: raises E(`name`), or returns nil for
-- names that begin with two underscores, which are Lua's, and for keys that are no text.
-- @string func name of the namespace in errors: "sym.linalg"
-- @string what "operator", "class" ...
-- @tparam table t its keys are the accepted names
-- @func[opt] more key -> new list of further accepted names
-- @treturn function to be called with the key
function namespace.missing(func, what, t, more)
  return function(key)
    if type(key) ~= "string" or key:sub(1, 2) == "__" then
      return nil
    end
    Error.unknown{ func = func, argument = key, what = what, names = list_names(t, more, key) }
  end
end


--- Makes unknown names of a table errors.
-- @tparam table t
-- @string func
-- @string what as in `missing`
-- @treturn table t
function namespace.close(t, func, what)
  local missing = namespace.missing(func, what, t)
  return setmetatable(t, { __index = function(_, key)
    return missing(key)
  end })
end


--- Returns the key under which a user's class is registered: its name in lower case.
-- @param kind E(`type`) unless it is a class that extends `base`
-- @param[opt] name the class's name by default; E(`type`) unless it is text
-- @tparam table base
-- @string func for errors
-- @treturn string
function namespace.class_key(kind, name, base, func)
  local class = kind
  while Class.is_class(class) and class ~= base do
    class = class.super
  end
  if class ~= base then
    Error.raise{ code = "type", func = func, argument = "kind",
      expected = "a class that extends " .. base.class_name, got = Error.kind(kind),
      message = "bad 'kind'" }
  elseif name ~= nil and type(name) ~= "string" then
    Error.raise{ code = "type", func = func, argument = "name", expected = "text",
      got = Error.kind(name), message = "bad 'name'" }
  end
  return (name or kind.class_name):lower()
end


--- Returns a namespace in which reading any name raises E(`unsupported`).
-- @string func name of the namespace in errors
-- @string text the reason
function namespace.refused(func, text)
  return setmetatable({}, { __index = function(_, key)
    if type(key) == "string" and key:sub(1, 2) ~= "__" then
      Error.raise{ code = "unsupported", func = func .. "." .. key, message = text }
    end
  end })
end


return namespace
