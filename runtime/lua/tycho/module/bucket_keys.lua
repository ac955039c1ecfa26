--- Bucket keys: numbers, strings, or lists of these, compared by contents (not for users).
--
-- @module tycho.module.bucket_keys

local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local is_plain, value = values.is_plain, values.value

local bucket_keys = {}


local function format_key(key)
  if type(key) == "number" then
    return ("%.17g"):format(key)
  elseif type(key) == "string" then
    return ("%q"):format(key)
  end
  local parts = {}
  for i, part in ipairs(key) do
    parts[i] = format_key(part)
  end
  return "{" .. table.concat(parts, ",") .. "}"
end


-- Raises E(type) unless a key is a number, a string or a list of keys without holes and named
-- fields; E(value) if there is no key.
local function check_key(key, func)
  if type(key) == "number" or type(key) == "string" then
    return
  end
  local got, count = not is_plain(key) and Error.kind(key), 0
  for name in pairs(got and {} or key) do
    count = count + 1
    got = got or type(name) ~= "number" and ("a table with field '%s'"):format(tostring(name))
  end
  if not got and count ~= #key then
    got = "a list with holes"
  end
  if got then
    Error.raise{ code = value(key) == nil and "value" or "type", func = func,
      argument = "bucket_key", expected = "a number, a text or a list of these",
      got = got, message = "bad bucket key" }
  end
  for _, part in ipairs(key) do
    check_key(part, func)
  end
end


--- Returns a key as text for messages.
function bucket_keys.show(key)
  return type(key) == "string" and key or format_key(key)
end


-- Returns a copy of a key that shares no table with it.
local function copy_key(key)
  if type(key) ~= "table" then
    return key
  end
  local copy = {}
  for i, part in ipairs(key) do
    copy[i] = copy_key(part)
  end
  return copy
end


--- Returns one value for all equal keys. For a list it is a copy, so that the caller may change the
-- key later.
-- @tparam table known the lists met so far, by their text; a new one is added
-- @param key
-- @string func for errors
function bucket_keys.unique(known, key, func)
  check_key(key, func)
  if type(key) ~= "table" then
    return key
  end
  local text = format_key(key)
  known[text] = known[text] or copy_key(key)
  return known[text]
end


return bucket_keys
