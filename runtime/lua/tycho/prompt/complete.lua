--- What Tab offers: fields and methods along a path, operator names and their options, file names inside strings.
--
-- @module tycho.prompt.complete

local KEYWORDS = {
  "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not", "or",
  "repeat", "return", "then", "true", "until", "while",
}


local function loaded()
  return package.loaded["tycho"]
end


-- Adds the string keys of a value and of everything its metatable leads to.
local function add_keys(names, value, depth)
  if type(value) == "table" then
    for key in pairs(value) do
      if type(key) == "string" and key:match("^[%a_][%w_]*$") then
        names[key] = true
      end
    end
  end
  local meta = debug.getmetatable(value)
  local index = type(meta) == "table" and rawget(meta, "__index")
  if depth < 8 and type(index) == "table" and index ~= value then
    add_keys(names, index, depth + 1)
  elseif depth < 8 and type(meta) == "table" and meta ~= value and type(value) == "table" then
    add_keys(names, meta, depth + 1)
  end
end


local function add_operators(names, value)
  local ty = loaded()
  if not ty or value == nil or value ~= rawget(ty, "sym") and value ~= rawget(ty, "nd") then
    return
  end
  local ok, list = pcall(function() return ty.op.list() end)
  for _, name in ipairs(ok and list or {}) do
    names[name] = true
  end
end


-- The value a path of names leads to ("ty.sym"), nil when it leads nowhere.
local function follow(env, path)
  local value = env
  for name in path:gmatch("[%w_]+") do
    local ok, next_value = pcall(function() return value[name] end)
    if not ok or next_value == nil then
      return nil
    end
    value = next_value
  end
  return value
end


-- Options of the operator whose braces are open before the word: "ty.sym.Convolution{data = x, ker".
local function add_options(names, text)
  local inside = text:match("[%w_]+%s*%b{}") and text:gsub("%b{}", "") or text
  local operator = inside:match("([%w_]+)%s*{[^{}]*$")
  local ty = loaded()
  local ok, info = pcall(function() return operator and ty.op.info(operator) end)
  if not ok or type(info) ~= "table" then
    return
  end
  for _, list in ipairs{ info.params or {}, info.inputs or {} } do
    for key, param in pairs(list) do
      local name = type(param) == "table" and param.name or type(key) == "string" and key or param
      if type(name) == "string" and name:match("^[%a_][%w_]*$") then
        names[name] = true
      end
    end
  end
end


local function matching(names, word)
  local list = {}
  for name in pairs(names) do
    if name:sub(1, #word) == word then
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return #word, list
end


local function files(path)
  local folder, word = path:match("^(.*/)([^/]*)$")
  local names = {}
  local list = io.popen("ls -1ap -- '" .. (folder or "."):gsub("'", "'\\''") .. "' 2>/dev/null")
  for name in list:lines() do
    if name ~= "./" and name ~= "../" then
      names[name] = true
    end
  end
  list:close()
  return matching(names, word or path)
end


--- The continuations of the last word before the cursor.
-- @tparam table env the prompt's variables
-- @string text the line up to the cursor
-- @treturn int length of the word to complete
-- @treturn {string,...} whole words that begin with it, sorted
return function(env, text)
  local _, quotes = text:gsub('"', "")
  if quotes % 2 == 1 then
    return files(text:match('"([^"]*)$'))
  end
  local path, word = text:match("([%a_][%w_%.:]*)[%.:]([%w_]*)$")
  local names = {}
  if path then
    local value = follow(env, path)
    add_keys(names, value, 0)
    add_operators(names, value)
    return matching(names, word)
  end
  add_keys(names, env, 0)
  add_keys(names, _G, 0)
  add_options(names, text)
  for _, keyword in ipairs(KEYWORDS) do
    names[keyword] = true
  end
  return matching(names, text:match("[%w_]*$"))
end
