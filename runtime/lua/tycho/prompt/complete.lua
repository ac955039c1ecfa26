--- Completion with Tab: commands, members along a path, options of the unfinished call, words that
-- an option accepts, keys and file names in strings.
--
-- Only the fields of a path ("exe.outputs[1].sh") are evaluated; no function is called.
--
-- @module tycho.prompt.complete

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local manual = require "tycho.prompt.manual"
local members = require "tycho.prompt.members"
local operator = require "tycho.prompt.operator"

local KEYWORDS = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
  "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
}


-- Returns the names that begin with a word, sorted. Names with a leading underscore need a word
-- that is not empty.
local function matching(names, word)
  local list = {}
  for name in pairs(names) do
    if name:sub(1, #word) == word and (name:sub(1, 1) ~= "_" or word ~= "") then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end


-- Paths -------------------------------------------------------------------------------------------

-- Returns the steps of the path at the end of a text, in order: names, numbers of [1], strings of
-- ["a"]; and the text in front of the path.
local function path_before(text)
  local steps = {}
  while true do
    local key = text:match("%[(%-?%d+)%]$")
    local quoted = not key and text:match("%[[\"']([^\"'%[%]]*)[\"']%]$")
    local name = text:match("([%a_][%w_]*)$")
    if key or quoted then
      table.insert(steps, 1, key and tonumber(key) or quoted)
      text = text:gsub("%b[]$", "")
    elseif name then
      table.insert(steps, 1, name)
      text = text:sub(1, -#name - 1)
      if not text:find("[%.:]$") then
        return steps, text
      end
      text = text:sub(1, -2)
    else
      return {}, text
    end
  end
end


-- Returns the value at the end of the steps; nil if there is none.
local function follow(env, steps)
  local value = env
  for _, step in ipairs(steps) do
    local ok, found = pcall(function() return value[step] end)
    if not ok or found == nil then
      return nil
    end
    value = found
  end
  return #steps > 0 and value or nil
end


-- Calls -------------------------------------------------------------------------------------------

local OPENER = { [")"] = "(", ["}"] = "{", ["]"] = "[" }

-- Returns the text in front of the bracket of the unfinished call: "ty.sym.Convolution" for
-- "ty.sym.Convolution{data = f(x), ker", "f" for "f(x, {opt".
local function before_brace(text)
  local closed, last = {}, false
  for i = #text, 1, -1 do
    local c = text:sub(i, i)
    if OPENER[c] then
      closed[#closed + 1] = OPENER[c]
    elseif c == closed[#closed] then
      closed[#closed] = nil
    elseif c == "{" and text:find("^,%s*{", i - #text:sub(1, i - 1):match("%s*$") - 1) then
      last = true                                -- the last table in f(x, {...})
    elseif c:find("[%(%[{]") then
      return (c == "{" or c == "(" and last) and (text:sub(1, i - 1):gsub("%s*%(?%s*$", "")) or nil
    end
  end
end


-- Adds the inputs and parameters of an operator to the options.
local function add_operator(options, name)
  local ok, info = pcall(function() return require("tycho.op").info(name) end)
  if not ok then
    return
  end
  for _, input in ipairs(info.inputs) do
    options[input:match("[%w_]+")] = {}
  end
  for _, p in ipairs(info.params) do
    options[p.name] = { words = operator.choices(p) }
  end
  options.name = {}
end


-- Returns the options of the call that a text leaves unfinished: name -> {words}; nil if there is
-- no such call.
local function open_options(env, text)
  local call = before_brace(text:gsub("\"[^\"\n]*\"", "0"):gsub("'[^'\n]*'", "0"))
  local steps = call and path_before(call)
  if not steps or #steps == 0 then
    return nil
  end
  local options, f, name = {}, follow(env, steps), tostring(steps[#steps])
  if type(f) == "table" and type(rawget(f, "class_name")) == "string" then
    f = f.init
  end
  local form = type(f) == "function" and manual.form(f, name)
  for _, p in ipairs(form and form.params or {}) do
    options[p.name] = { words = p.type.words }
  end
  if not form then
    add_operator(options, name)
  end
  return options
end


-- Strings -----------------------------------------------------------------------------------------

-- Returns the text in front of an open quote, the quote, and the text after it; nil outside
-- strings.
local function open_string(text)
  local line = text:match("[^\n]*$")
  local quote, from
  for i = 1, #line do
    local c = line:sub(i, i)
    if quote and c == quote and line:sub(i - 1, i - 1) ~= "\\" then
      quote = nil
    elseif not quote and (c == '"' or c == "'") then
      quote, from = c, i
    end
  end
  if quote then
    return text:sub(1, #text - #line + from - 1), quote, line:sub(from + 1)
  end
end


local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end


-- Returns files whose names continue a path; a single file closes the string.
local function files(path, quote)
  local folder, word = path:match("^(.*/)([^/]*)$")
  local home = folder and folder:gsub("^~/", (os.getenv("HOME") or "~") .. "/")
  local names = {}
  local pipe = io.popen("ls -1ap -- " .. quoted(home or ".") .. " 2>/dev/null")
  for name in pipe:lines() do
    if name ~= "./" and name ~= "../"
        and (name:sub(1, 1) ~= "." or (word or path):sub(1, 1) == ".") then
      names[name] = true
    end
  end
  pipe:close()
  local list = matching(names, word or path)
  if #list == 1 and list[1]:sub(-1) ~= "/" then
    list[1] = list[1] .. quote
  end
  return #(word or path), list
end


-- Completes a word in a string: a word that the option accepts, a key, or a file name.
local function in_string(env, before, quote, word)
  local option = before:match("([%a_][%w_]*)%s*=%s*$")
  local options = option and open_options(env, before)
  local names = {}
  if options and options[option] and options[option].words then
    for _, choice in ipairs(options[option].words) do
      names[choice] = true
    end
  elseif before:find("%[%s*$") then
    local value = follow(env, (path_before(before:gsub("%[%s*$", ""))))
    for key in pairs(type(value) == "table" and value or {}) do
      names[tostring(key)] = type(key) == "string" or nil
    end
  else
    return files(word, quote)
  end
  local list = matching(names, word)
  if #list == 1 then
    list[1] = list[1] .. quote
  end
  return #word, list
end


-- Words -------------------------------------------------------------------------------------------

local function command_names(word)
  local names = {}
  for name in pairs(require "tycho.prompt.commands") do
    names[name] = true
  end
  return #word, matching(names, word)
end


local function page_names(word)
  local names = {}
  for _, name in ipairs(require("tycho.prompt.files").names("doc", "md")) do
    names[name] = true
  end
  return #word, matching(names, word)
end


-- Returns names that continue a word. An empty word lists only the options of the unfinished call;
-- a single option gets its "=".
local function word_or_option(env, text, word)
  local options = open_options(env, text:sub(1, -#word - 1)) or {}
  local names = {}
  for name in pairs(options) do
    names[name == "end" and "end_" or name] = true
  end
  if word ~= "" or next(names) == nil then
    for _, set in ipairs{ members.set(env), members.set(_G) } do
      for name in pairs(set) do
        names[name] = true
      end
    end
    for _, keyword in ipairs(KEYWORDS) do
      names[keyword] = true
    end
    names.ty = true
  end
  local list = matching(names, word)
  if #list == 1 and options[list[1]] then
    list[1] = list[1] .. " = "
  end
  return #word, list
end


--- Returns the continuations of the last word before the cursor.
-- @tparam table env the prompt's variables
-- @string text the text before the cursor, with earlier lines of an unfinished statement
-- @treturn int length of the word to complete
-- @treturn {string,...} whole words that begin with it, sorted
return function(env, text)
  local command = text:match("^%s*:(%w*)$")
  if command then
    return command_names(command)
  elseif text:find("^%s*:run%s") or text:find("^%s*:save%s") then
    return files(text:match("^%s*:%w+%s+(.*)$"), "")
  elseif text:find("^%s*:doc%s") then
    return page_names(text:match("^%s*:doc%s+(.*)$"))
  end
  text = text:gsub("^%s*%?%??", "")
  local before, quote, inside = open_string(text)
  if before then
    return in_string(env, before, quote, inside)
  end
  local word = text:match("[%w_]*$")
  local rest = text:sub(1, -#word - 1)
  if rest:find("[%w_%]][%.:]$") then
    local steps = path_before(rest:sub(1, -2))
    local value = follow(env, steps)
    return #word, value ~= nil and matching(members.set(value), word) or {}
  end
  return word_or_option(env, text, word)
end
