--- Keys of buckets: numbers, texts, or lists of these, which count by contents (not for users).
--
-- @module tycho.module.bucket_keys

local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local is_plain, value = values.is_plain, values.value

local bucket_keys = {}


local function format_key(key)
  if not is_plain(key) then
    return type(key):sub(1, 1) .. tostring(key)
  end
  local parts = {}
  for i, part in ipairs(key) do
    parts[i] = format_key(part)
  end
  return "{" .. table.concat(parts, ",") .. "}"
end


--- Returns a key as text for messages.
function bucket_keys.show(key)
  return format_key(key):sub(2)
end


--- Returns the one value that stands for all equal keys.
-- @tparam table known lists that were met, by their text
-- @param key
-- @string func for errors
function bucket_keys.unique(known, key, func)
  if type(key) == "number" or type(key) == "string" then
    return key
  elseif not is_plain(key) then
    Error.raise{ code = value(key) == nil and "value" or "type", func = func,
      argument = "bucket_key", expected = "a number, a text or a list of these",
      got = Error.kind(key), message = "bad bucket key" }
  end
  local text = format_key(key)
  known[text] = known[text] or key
  return known[text]
end


return bucket_keys
