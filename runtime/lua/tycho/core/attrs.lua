--- Conversion between Lua values and attribute text, the form of attributes in symbol files and in
-- the core's parameters.
--
--     attrs.text(0.5)      --> "0.5"        attrs.text(true)       --> "True"
--     attrs.text{3, 3}     --> "(3, 3)"     attrs.text(ty.null)    --> "None"
--     attrs.text{3}        --> "(3,)"       attrs.text{{1, 2}}     --> "((1, 2),)"
--
-- @module tycho.core.attrs

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local attrs = {}

--- Attributes that any node may have in addition to its operator's parameters; stored between
-- double underscores.
attrs.HIDDEN = { "ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage" }

local hidden = {}
for _, key in ipairs(attrs.HIDDEN) do
  hidden[key] = true
end


-- Returns the shortest decimal text that reads back equal.
local function number_text(v)
  if v ~= v then
    return "nan"
  elseif v == 1 / 0 then
    return "inf"
  elseif v == -1 / 0 then
    return "-inf"
  elseif v == math.floor(v) and math.abs(v) < 1e15 then
    return ("%d"):format(v)
  end
  for digits = 1, 17 do
    local s = ("%." .. digits .. "g"):format(v)
    if tonumber(s) == v then
      return s
    end
  end
end


local function list_text(t, func, key)
  local parts = {}
  for i = 1, #t do
    parts[i] = attrs.text(t[i], func, key)
  end
  return "(" .. table.concat(parts, ", ") .. (#parts == 1 and ",)" or ")")
end


--- Returns a value as attribute text.
-- @param v number, boolean, text, list of these, `ty.null`, integer cdata, or an object
--   whose class has `attribute_text`
-- @string[opt] func public function, for errors
-- @string[opt] key attribute, for errors
function attrs.text(v, func, key)
  local t = type(v)
  if t == "string" then
    return v
  elseif t == "number" then
    return number_text(v)
  elseif t == "boolean" then
    return v and "True" or "False"
  elseif v == values.null then
    return "None"
  elseif t == "cdata" then
    return (tostring(v):gsub("U?LL$", ""))
  elseif values.is_plain(v) and not values.has_names(v) then
    return list_text(v, func, key)
  elseif t == "table" and type(getmetatable(v)) == "table" and getmetatable(v).attribute_text then
    return v:attribute_text()    -- the test reads the class: on an array the name would be an error
  end
  Error.raise{ code = "type", func = func, argument = key, got = Error.kind(v),
    expected = "a number, boolean, text, list of these or ty.null",
    message = ("bad value of parameter '%s'"):format(key) }
end


--- Returns the stored spelling of a hidden key ("lr_mult" is "__lr_mult__"); other keys stay.
function attrs.wrap(key)
  return hidden[key] and "__" .. key .. "__" or key
end


--- Returns the bare spelling of a stored hidden key, or nil.
function attrs.bare(key)
  local word = key:match("^__(.*)__$")
  return word and hidden[word] and word or nil
end


--- Returns whether a key is an annotation: between double underscores.
function attrs.is_annotation(key)
  return #key > 4 and key:sub(1, 2) == "__" and key:sub(-2) == "__"
end


--- Returns the stored spelling of an attribute of a call: keys that begin with a hidden key are
-- wrapped; those that end with one belong to a variable and are refused.
-- @string key as given
-- @string func public function, for errors
function attrs.call_key(key, func)
  for _, word in ipairs(attrs.HIDDEN) do
    if key:sub(1, #word) == word then
      return "__" .. key .. "__"
    end
  end
  for _, word in ipairs(attrs.HIDDEN) do
    if key:sub(-#word - 1) == "_" .. word then
      Error.raise{ code = "name", func = func, argument = key,
        message = ("'%s' belongs to an input: make the variable with ty.sym.Variable(name, \z
          {%s = ...}) and pass it")
          :format(key, word) }
    end
  end
  return key
end


--- Returns the sorted keys of a table of attributes.
function attrs.keys(dict)
  local keys = {}
  for key in pairs(dict) do
    keys[#keys + 1] = key
  end
  if keys[2] then
    table.sort(keys)
  end
  return keys
end


return attrs
