--- Doc comments of the library's source files, for the prompt's help.
--
-- The files are read once, when help is first used. A comment block that begins with three dashes
-- belongs to the line of code below it; a file's first block describes the module.
--
--     comments.at(path, line)  --> entry or nil
--     comments.named("fit")    --> list of entries of functions, methods, classes, modules
--     entry.title, entry.name, entry.kind, entry.path, entry.line, entry.text
--
-- @module tycho.prompt.comments

local pairs = require("tycho.core.iterate").pairs
local comments = {}

local HERE = debug.getinfo(1, "S").source:match("^@(.*)prompt/[^/]*$")

local index                                              -- {by_line = {}, by_name = {}}


-- Returns the title ("Module:fit"), the name ("fit") and the kind of what a line of code defines;
-- nil if it defines nothing with a name.
local function defined(line)
  local title = line:match("^%s*function%s+([%w_%.:]+)")
  if title then
    return title, title:match("[%w_]+$"), "function"
  elseif line:match("^%s*local%s+function") then
    return nil
  end
  local quoted = line:match("extend%(\"([%w_]+)\"") or line:match("kind%(\"([%w_]+)\"")
    or line:match("class%(\"([%w_]+)\"")
  if quoted then
    return quoted, quoted, "class"
  end
  title = line:match("^%s*local%s+([%w_]+)%s*=") or line:match("^%s*([%w_%.]+)%s*=")
  return title, title and title:match("[%w_]+$"), "value"
end


local function module_name(block)
  for _, line in ipairs(block) do
    local name = line:match("^@module%s+(%S+)") or line:match("^@classmod%s+(%S+)")
    if name then
      return name
    end
  end
end


-- Returns the full name, the last name and the kind from a tag, "@function cpu" or "@type Conv2D",
-- which names a function or class that the code below the comment does not name.
local function tagged_name(block)
  for _, line in ipairs(block) do
    local tag, name = line:match("^@(%l+)%s+(%S+)")
    if tag == "function" or tag == "type" then
      return name, name:match("[%w_]+$"), tag == "type" and "class" or "function"
    end
  end
end


-- Adds an entry to both indexes.
local function add(entry)
  index.by_line[entry.path .. ":" .. entry.line] = entry
  index.by_name[entry.name] = index.by_name[entry.name] or {}
  table.insert(index.by_name[entry.name], entry)
end


-- Adds an entry for a comment block and the line of code below it.
local function note(path, n, line, block)
  local module = module_name(block)
  local title, name, kind = tagged_name(block)
  if not title then
    title, name, kind = defined(line)
  end
  if module then
    title, name, kind = module:gsub("^tycho", "ty"), module:match("[%w_]+$"), "module"
  end
  if name then
    add{ title = title, name = name, kind = kind, path = path, line = n, text = block }
  end
end


local function read_file(path)
  local block, n = nil, 0
  for line in io.lines(path) do
    n = n + 1
    line = line:gsub("^%s+%-%-", "--")                   -- a function may be defined inside another
    local first = line:match("^%-%-%-%s?([^%-].*)$") or line:match("^%-%-%-$")
    if first then
      block = { (first:gsub("^%-%-%-$", "")) }
    elseif block and line:find("^%-%-") then
      block[#block + 1] = line:match("^%-%-%s?(.*)$")
    elseif block then
      note(path, n, line, block)
      block = nil
    end
  end
end


local function read_all()
  index = { by_line = {}, by_name = {} }
  local folder = "'" .. HERE:gsub("'", "'\\''") .. "'"
  local list = io.popen("find " .. folder .. " -path " .. folder
    .. "scripts -prune -o -name '*.lua' -print | sort")
  for path in list:lines() do
    read_file(path)
  end
  list:close()
end


--- Returns the entry of the code that begins at a line; nil if there is none.
-- @string path in the form of `debug.getinfo`, without "@"
-- @int line
function comments.at(path, line)
  if not index then
    read_all()
  end
  return index.by_line[path .. ":" .. line]
end


--- Returns all entries with a name.
-- @string name the last part: "fit", "Module"
-- @treturn {entry,...} perhaps empty
function comments.named(name)
  if not index then
    read_all()
  end
  return index.by_name[name] or {}
end


--- Returns all names that have an entry.
function comments.names()
  comments.named("")
  local list = {}
  for name in pairs(index.by_name) do
    list[#list + 1] = name
  end
  return list
end


-- Text --------------------------------------------------------------------------------------------

-- tag -> type; "" if the tag does not give it
local TYPES = { string = "text", int = "integer", bool = "boolean", number = "number",
  func = "function", tab = "table", param = "" }


-- Parses the tag of a parameter: "@tparam[opt] table a the dictionary" becomes {name = "a", type =
-- "table, optional", text = "the dictionary"}; nil for other tags.
local function parameter(line)
  local tag, mark, rest = line:match("^@(%w+)(%b[])%s*(.*)$")
  if not tag then
    tag, rest = line:match("^@(%w+)%s*(.*)$")
  end
  local kind = TYPES[tag]
  if tag == "tparam" then
    kind, rest = rest:match("^(%S+)%s+(.*)$")
  end
  local name, text = (rest or ""):match("^(%S+)%s*(.*)$")
  if kind and name then
    return { name = name,
      type = kind .. (mark and (kind ~= "" and ", " or "") .. "optional" or ""), text = text }
  end
end


-- Parses the tag of a result; nil for other tags.
local function result(line)
  local kind, text = line:gsub("^(@treturn)%b[]", "%1"):match("^@treturn%s+(%S+)%s*(.*)$")
  text = text or line:match("^@return%s+(.*)$")
  return text and { type = kind or "", text = text, result = true }
end


-- Adds a line of a comment to the paragraphs or tags; a line after a tag continues that tag.
local function read_line(parts, line)
  line = line:gsub("@{([%w_%.:]+)|?([^}]*)}", "%1")
    :gsub("%s*%([cs][oh][ne][te][rt][^%s%)]* [%d][^%)]*%)", "")
  if line:sub(1, 1) == "@" then
    local part = parameter(line) or result(line) or {}
    table.insert(part.name and parts.params or part.result and parts.results or {}, part)
    parts.last = part
  elseif parts.last then
    parts.last.text = (parts.last.text or "") .. " " .. line:match("^%s*(.*)$")
  else
    table.insert(parts.lines, line)
  end
end


--- Returns an entry's comment with its tags parsed.
-- @tparam table entry
-- @treturn table lines (list of texts), params (list of `{name, type,
--   text}`), results (list of `{type, text}`)
function comments.parts(entry)
  local parts = { lines = {}, params = {}, results = {} }
  for _, line in ipairs(entry and entry.text or {}) do
    read_line(parts, line)
  end
  while parts.lines[#parts.lines] == "" do
    table.remove(parts.lines)
  end
  return parts
end


--- Returns whether a comment contains "not for users".
function comments.is_hidden(entry)
  return table.concat(entry.text, " "):find("not for users", 1, true) ~= nil
end


--- Returns the first sentence of an entry's comment.
function comments.summary(entry)
  local text = {}
  for _, line in ipairs(entry.text) do
    if line == "" or line:sub(1, 1) == "@" then
      break
    end
    text[#text + 1] = line
  end
  text = table.concat(text, " ")
  return text:match("^(.-[%.:])%s") or text
end


return comments
