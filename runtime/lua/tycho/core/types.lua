--- Types of parameters: checks and conversions of values.
--
-- A type has `check(value) -> ok, converted, expected, code`, `takes(table)` (whether a plain table
-- is a value of the type; nil: never) and `text`, its description in errors.
--
-- @module tycho.core.types

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local types = {}

local null, is_plain, has_names = values.null, values.is_plain, values.has_names


local DTYPES = {
  float32 = 0, float64 = 1, float16 = 2, uint8 = 3, int32 = 4, int8 = 5, int64 = 6, bool = 7,
  bfloat16 = 12,
}
--- Codes of element types by name, as in files.
types.DTYPES = DTYPES

local DTYPE_NAMES = {}
for name, code in pairs(DTYPES) do
  DTYPE_NAMES[code] = name
end
--- Names of element types by code.
types.DTYPE_NAMES = DTYPE_NAMES

--- Set of the names of real element types.
types.REAL = { float16 = true, bfloat16 = true, float32 = true, float64 = true }


local function list_words(names)
  local list = {}
  for name in pairs(names) do
    list[#list + 1] = name
  end
  return list
end


local function is_integer(v)
  return type(v) == "number" and v == math.floor(v) and v - v == 0
end


local function is_callable(v)
  if type(v) == "function" then
    return true
  end
  local meta = type(v) == "table" and getmetatable(v)
  return type(meta) == "table" and meta.__call ~= nil
end


local function read_sizes(v, lowest)
  if type(v) == "number" then
    v = { v }
  end
  if not is_plain(v) or has_names(v) then
    return false
  end
  local copy = {}
  for i = 1, #v do
    if not is_integer(v[i]) then
      return false
    elseif v[i] < lowest then
      return false, nil, ("sizes of at least %d"):format(lowest), nil,
        ("%d on axis %d"):format(v[i], i - 1)
    end
    copy[i] = v[i]
  end
  return true, copy
end


local function of_type(name)
  return function(v)
    return type(v) == name
  end
end


local function nameless(t)
  return not has_names(t)
end


local function always()
  return true
end


local classes = {}                                       -- by the name of their type

-- Returns the check of an object whose class a module of a higher layer registers with
-- `types.class`; before that there are no such objects.
local function make_object(name)
  return function(v)
    local class = classes[name]
    return class ~= nil and Class.is_a(v, class)
  end
end


--- Registers the class of a type: "array", "context", "executor" or "symbol".
-- @string name
-- @tparam Class class
function types.class(name, class)
  classes[name] = class
end


--- The types by name: `check`, `takes` and `text`.
types.named = {
  any        = { check = always, takes = always, text = "a value" },
  number     = { check = of_type "number", text = "a number" },
  integer    = { check = is_integer, text = "an integer" },
  positive   = { text = "an integer of at least 1", check = function(v)
    return is_integer(v) and v > 0, nil, nil, is_integer(v) and "value" or "type"
  end },
  text       = { check = of_type "string", text = "text" },
  path       = { text = "a path", check = function(v)
    local is_text = type(v) == "string"
    return is_text and not v:find("\0", 1, true), nil, is_text and "a path without zero bytes" or nil,
      is_text and "value" or "type"
  end },
  boolean    = { check = of_type "boolean", text = "true or false" },
  ["function"] = { check = is_callable, text = "a function" },
  table      = { check = is_plain, takes = always, text = "a table" },
  dict       = { check = is_plain, takes = always, text = "a table of names" },
  list       = { check = function(v) return is_plain(v) and nameless(v) end, takes = nameless,
                 text = "a list" },
  shape      = { check = function(v) return read_sizes(v, 0) end, takes = nameless,
                 text = "a shape (a list of sizes)" },
  dims       = { check = function(v) return read_sizes(v, -2 ^ 53) end, takes = nameless,
                 text = "a list of integers" },
  context    = { check = make_object "context", text = "a context such as ty.cpu()" },
  symbol     = { check = make_object "symbol", text = "a Symbol" },
  array      = { check = make_object "array", text = "an NDArray" },
  executor   = { check = make_object "executor", text = "an Executor" },
  null       = { check = function(v) return v == null end, text = "ty.null" },
  stype      = { text = "default", check = function(v)
    return v == "default", v, "default, as sparse storage is not part of Tycho",
      type(v) == "string" and "unsupported" or "type"
  end },
  dtype      = { text = "a dtype", words = list_words(DTYPES), check = function(v)
    if type(v) ~= "string" then
      return false
    end
    return DTYPES[v] ~= nil, v,
      "one of float32 float64 float16 bfloat16 uint8 int8 int32 int64 bool", "dtype"
  end },
}


local function choice_type(words)
  local text = Error.choice(words)
  return { text = text, words = words, check = function(v)
    for _, word in ipairs(words) do
      if v == word then
        return true
      end
    end
    return false, nil, text, type(v) == "string" and "value" or "type"
  end }
end


local function make_any(list)
  local texts = {}
  for i, t in ipairs(list) do
    texts[i] = t.text
  end
  return {
    text = Error.choice(texts),
    check = function(v)
      local code
      for _, t in ipairs(list) do
        local ok, converted, _, why = t.check(v)
        if ok then
          return true, converted
        end
        code = code or why
      end
      return false, nil, nil, code
    end,
    takes = function(v)
      for _, t in ipairs(list) do
        if t.takes and t.takes(v) then
          return true
        end
      end
      return false
    end,
  }
end


local function named_type(text)
  local list = {}
  for name in text:gmatch("[^|]+") do
    list[#list + 1] = types.named[name] or error("args: no type called " .. name, 0)
  end
  return #list == 1 and list[1] or make_any(list)
end


--- Returns the type that a form's declaration names.
-- @param kind names of types ("number|text"), a list of words, a class, a function that checks, or
--   a type
function types.resolve(kind)
  if type(kind) == "string" then
    return named_type(kind)
  elseif type(kind) == "function" then
    return { check = kind, takes = always, text = "another value" }
  elseif kind.check then
    return kind
  elseif rawget(kind, "class_name") then
    local text = Error.with_article(kind.class_name)
    return { text = text, check = function(v) return Class.is_a(v, kind) end }
  end
  return choice_type(kind)
end


return types
