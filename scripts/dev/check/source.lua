-- Source files of a checkout, and their text without comments and without what stands in quotes.

local source = {}

-- Paths below the given folders that end in one of `endings`, sorted.
function source.find(folders, endings)
  local list = {}
  local pipe = assert(io.popen(("find %s -type f 2>/dev/null | LC_ALL=C sort"):format(folders)))
  for path in pipe:lines() do
    if endings[path:match("%.(%w+)$")] then
      list[#list + 1] = path
    end
  end
  pipe:close()
  return list
end

local function blank(text)
  return (text:gsub("[^\n]", " "))
end

-- From what opens a comment or a string to the place behind it, by first character: position of the
-- end, or nil.
local function lua_end(text, at)
  local level = text:match("^%-%-%[(=*)%[", at) or text:match("^%[(=*)%[", at)
  if level then
    return select(2, text:find("]" .. level .. "]", at, true)) or #text, text:sub(at, at) == "["
  elseif text:find("^%-%-", at) then
    return (text:find("\n", at, true) or #text + 1) - 1
  end
end

local function c_end(text, at)
  if text:find("^/%*", at) then
    return select(2, text:find("*/", at + 2, true)) or #text
  elseif text:find("^//", at) then
    return (text:find("\n", at, true) or #text + 1) - 1
  end
end

local function quoted_end(text, at)
  local quote = text:sub(at, at)
  local place = at + 1
  while true do
    local stop = text:find('[\\\n"\']', place)
    local c = stop and text:sub(stop, stop)
    if not stop then
      return #text
    elseif c == "\\" then
      place = stop + 2
    elseif c == quote or c == "\n" then
      return stop
    else
      place = stop + 1
    end
  end
end

-- The text with comments and the insides of strings made blank; every character keeps its line and
-- column. Comments alone are made blank with `keep_strings`.
function source.code(path, text, keep_strings)
  local is_lua = path:match("%.lua$")
  local opens = is_lua and "[\"'%-%[]" or "[\"'/]"
  local parts, done, at = {}, 1, 1
  while true do
    local start = text:find(opens, at)
    if not start then
      break
    end
    local stop, is_string = (is_lua and lua_end or c_end)(text, start)
    if not stop and text:find("^[\"']", start) then
      stop, is_string = quoted_end(text, start), true
    end
    if stop and not (is_string and keep_strings) then
      local edge = is_string and 1 or 0
      parts[#parts + 1] = text:sub(done, start - 1 + edge)
      parts[#parts + 1] = blank(text:sub(start + edge, stop - edge))
      done = stop - edge + 1
    end
    at = (stop or start) + 1
  end
  parts[#parts + 1] = text:sub(done)
  return table.concat(parts)
end

function source.lines(text)
  local list = {}
  for line in (text:gsub("\n?$", "\n")):gmatch("(.-)\n") do
    list[#list + 1] = line
  end
  return list
end

-- { path =, lines =, code = lines without comments and strings, names = lines without comments },
-- read once.
local known = {}

function source.read(path)
  if not known[path] then
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    known[path] = {
      path = path,
      lines = source.lines(text),
      code = source.lines(source.code(path, text)),
      names = source.lines(source.code(path, text, true)),
    }
  end
  return known[path]
end

return source
