--- JSON text: written with keys in a given order, read by lua-cjson, which is loaded on first use.
--
--     json.text{ "constant", json.object{ { "value", 1 } } }       --> '["constant", {"value": 1}]'
--     json.parse('["one", {}]')                                     --> { "one", {} }
--
-- `null` is `ty.null` on both sides; arrays (NDArray) are written as nested lists, real numbers of
-- them with a point.
--
-- @module tycho.core.json

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local attempt = require "tycho.core.attempt"
local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local json = {}

local OBJECT = {}

--- Returns an object whose keys are written in this order.
-- @tparam {{string,any},...} list
function json.object(list)
  return setmetatable(list, OBJECT)
end


local REAL = {}

--- Returns a number that is written with a point, as the reference writes a real number: 1 as
-- "1.0".
-- @number v
function json.real(v)
  return setmetatable({ v }, REAL)
end


local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function string_text(s)
  return '"' .. s:gsub('[%c"\\]', function(c)
    return ESCAPES[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end


local function object_text(list)
  local parts = {}
  for i, pair in ipairs(list) do
    parts[i] = string_text(pair[1]) .. ": " .. json.text(pair[2])
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end


local function sorted_pairs(t)
  local list = {}
  for key, value in pairs(t) do
    list[#list + 1] = { tostring(key), value }
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end


-- Returns nested lists with their numbers marked as real ones.
local function make_reals(v)
  if type(v) == "number" then
    return json.real(v)
  end
  local list = {}
  for i, inner in ipairs(v) do
    list[i] = make_reals(inner)
  end
  return list
end


local function table_text(t)
  if getmetatable(t) == OBJECT then
    return object_text(t)
  elseif getmetatable(t) == REAL then
    local text = attrs.text(t[1])
    return text:find("^-?%d+$") and text .. ".0" or text
  elseif t.totable then
    return json.text(t.dtype:find("float") and make_reals(t:totable()) or t:totable())
  elseif #t == 0 and next(t) ~= nil then
    return object_text(sorted_pairs(t))
  end
  local parts = {}
  for i, v in ipairs(t) do
    parts[i] = json.text(v)
  end
  return "[" .. table.concat(parts, ", ") .. "]"
end


--- Returns a value as JSON text. A plain table is a list, or with named keys an object sorted by
-- key.
function json.text(v)
  if v == nil or v == values.null then
    return "null"
  elseif type(v) == "string" then
    return string_text(v)
  elseif type(v) == "table" then
    return table_text(v)
  elseif type(v) == "boolean" then
    return tostring(v)
  end
  return attrs.text(v)
end


local function put_nulls(v, null)
  if v == null then
    return values.null
  elseif type(v) == "table" then
    for key, inner in pairs(v) do
      v[key] = put_nulls(inner, null)
    end
  end
  return v
end


--- Returns JSON text as tables.
-- @string text
-- @string func for errors
-- @return the value; E(format) for other text, E(unsupported) without lua-cjson, E(memory) if
-- there is no memory to load it
function json.parse(text, func)
  local found, cjson = attempt(require, "cjson")
  local why = not found and tostring(cjson) or ""
  if why:find("annot allocate memory", 1, true) or why:find("failed to map", 1, true) then
    Error.raise{ code = "memory", func = func, message = why }
  elseif not found then
    Error.raise{ code = "unsupported", func = func,
      message = "reading JSON needs lua-cjson, which is not installed: apt-get install lua-cjson, \z
        or luarocks install lua-cjson" }
  end
  local ok, value = attempt(cjson.decode, text)
  if not ok then
    Error.raise{ code = "format", func = func, message = "bad JSON: " .. tostring(value) }
  end
  return put_nulls(value, cjson.null)
end


return json
