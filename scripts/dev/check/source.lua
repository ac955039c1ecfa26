-- Source files of a checkout, and their text without comments and the contents of strings.

local source = {}

-- Returns the paths below the given folders that end in one of `endings`, sorted.
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

-- Returns the position of the last character of a Lua comment or long string that begins at `at`,
-- or nil; and whether it is a string.
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

-- Calls f(start, stop, is_string) for all comments and strings of a text, in order.
local function each_aside(path, text, f)
  local is_lua = path:match("%.lua$")
  local opens = is_lua and "[\"'%-%[]" or "[\"'/]"
  local start = text:find(opens)
  while start do
    local stop, is_string = (is_lua and lua_end or c_end)(text, start)
    if not stop and text:find("^[\"']", start) then
      stop, is_string = quoted_end(text, start), true
    end
    if stop then
      f(start, stop, is_string)
    end
    start = text:find(opens, (stop or start) + 1)
  end
end

-- Returns the text with comments made blank, and the insides of strings unless `keep_strings`;
-- every character keeps its line and column.
local function code(path, text, keep_strings)
  local parts, done = {}, 1
  each_aside(path, text, function(start, stop, is_string)
    if not (is_string and keep_strings) then
      local edge = is_string and 1 or 0
      parts[#parts + 1] = text:sub(done, start - 1 + edge)
      parts[#parts + 1] = blank(text:sub(start + edge, stop - edge))
      done = stop - edge + 1
    end
  end)
  parts[#parts + 1] = text:sub(done)
  return table.concat(parts)
end

local function line_at(text, place)
  return 1 + select(2, text:sub(1, place):gsub("\n", ""))
end

-- Returns the lines within strings that have several lines.
local function long_lines(path, text)
  local set = {}
  each_aside(path, text, function(start, stop, is_string)
    if is_string and text:sub(start, stop):find("\n", 1, true) then
      for line = line_at(text, start), line_at(text, stop) do
        set[line] = true
      end
    end
  end)
  return set
end

function source.lines(text)
  local list = {}
  for line in (text:find("\n$") and text or text .. "\n"):gmatch("([^\n]*)\n") do
    list[#list + 1] = line
  end
  return list
end

-- { path =, lines =, code = lines without comments and strings, names = lines without comments,
-- long = set of lines of long strings }, read once.
local known = {}

function source.read(path)
  if not known[path] then
    local file = assert(io.open(path))
    local text = file:read("*a")
    file:close()
    known[path] = {
      path = path,
      lines = source.lines(text),
      code = source.lines(code(path, text)),
      names = source.lines(code(path, text, true)),
      long = long_lines(path, text),
    }
  end
  return known[path]
end

return source
