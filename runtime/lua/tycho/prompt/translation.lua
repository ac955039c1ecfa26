--- Hints for names of PyTorch and NumPy and for Python syntax, which are shown below Lua's error
-- messages.
--
--     translation.hint("prompt:1: attempt to index global 'np' (a nil value)", "np.ones(2)")
--                                        --> "np.ones is ty.nd.ones here"
--
-- The table of names is core/foreign.lua.
--
-- @module tycho.prompt.translation

local foreign = require "tycho.core.foreign"
local registry = require "tycho.op.registry"

local translation = {}


-- Names here --------------------------------------------------------------------------------------

--- Returns the value of a path in `ty`, such as "nd.concat"; nil if there is none.
function translation.value(path)
  local ok, value = pcall(function()
    local value = require "tycho"
    for part in path:gmatch("[%w_]+") do
      value = value[part]
    end
    return value
  end)
  return ok and value or nil
end


--- Returns a name of the table as users write it: "ty.nd.concat", "Module:fit{num_epoch = ...}".
-- @string name in the form of `foreign.TOPICS`
function translation.written(name)
  local owner, option = name:match("^(.-){([%w_]+)}$")
  local path = owner or name
  path = registry.find(path) and "ty.sym." .. path or path:find("^%l") and "ty." .. path or path
  return name:find("^'") and "\"" .. name:sub(2, -2) .. "\""
    or owner and path .. "{" .. option .. " = ...}" or path
end


-- Below Lua's errors ------------------------------------------------------------------------------

-- Usual names of Python libraries.
local LIBRARIES = {}
for name in ("torch np numpy nn F tf keras mx jnp jax optim plt transforms"):gmatch("%S+") do
  LIBRARIES[name] = true
end

-- Functions and keywords of Python.
local PYTHON = {
  len = "x:len() of an array, #t of a table", range = "for i = 0, n - 1 do ... end",
  str = "tostring(x)", int = "math.floor(x); x:astype(\"int32\") of an array",
  float = "tonumber(x); x:astype(\"float32\") of an array", isinstance = "ty.is_a(x, class)",
  enumerate = "for i, x in ipairs(t) do ... end", zip = "for i = 1, #t do ... end",
  abs = "math.abs(x); x:abs() of an array", min = "math.min(x, y); x:min() of an array",
  max = "math.max(x, y); x:max() of an array", round = "math.floor(x + 0.5); x:round() of an array",
  sum = "x:sum() of an array", open = "io.open(path)", super = "Class.super.init(self, ...)",
  help = "?name at the prompt, :help lists its commands", exit = "Ctrl-D at the prompt, or :quit",
  quit = "Ctrl-D at the prompt, or :quit",
  dict = "{a = 1, b = 2}", list = "{1, 2, 3}", tuple = "{1, 2, 3}",
}

--- Constants of Python, which Lua reads as undefined globals.
translation.CONSTANTS = { True = "true", False = "false", None = "nil, or ty.null inside lists" }

-- Python syntax in lines that Lua does not compile, and the equivalent in Lua. The first row that
-- matches is used.
local SYNTAX = {
  { "^%s*import%s", "require \"name\"; ty is there already at the prompt" },
  { "^%s*from%s+%S+%s+import", "require \"name\"; ty is there already at the prompt" },
  { "^%s*def%s", "function f(x) ... end" },
  { "^%s*class%s", "Class:extend(\"Name\"), as in ty.gluon.HybridBlock:extend(\"Net\")" },
  { "no_grad", "autograd.pause(function() ... end); calls outside of record are not recorded" },
  { "^%s*with%s", "scope:with(function() ... end)" },
  { "^%s*del%s", "x = nil" },
  { "^%s*print%s+[^%(]", "print(x)" },
  { "^%s*for%s.*:%s*$", "for i = 0, n - 1 do ... end" },
  { "^%s*if%s.*:%s*$", "if x then ... end" },
  { "^%s*while%s.*:%s*$", "while x do ... end" },
  { "^%s*try%s*:", "pcall(f, ...)" },
  { "%*%*", "x ^ y" },
  { "[%+%-%*/%%]=", "x = x + y, or x:add_(y) in place; also sub_ mul_ div_ mod_" },
  { "!=", "x ~= y; element by element x:ne(y)" },
  { "%s@%s", "ty.nd.dot(x, y)" },
  { "%[[^%]%(]*:[^%]%(]*%]", "x[\"0:2, :\"]: a slice is a text" },
  { "[%w_%)%]]%[[^%[%]{}%(]*,[^%[%]%(]*%]",
    "x[\"0, 1\"] or x[{0, 1}]: an element, rows and columns" },
  { "%([^%(%)]*[%w_]%s*=[^=]", "f(x, {option = 1}): options go in a table" },
  { "//", "math.floor(x / y)" },
  { "%f[%w]lambda%f[%W]", "function(x) return ... end" },
  { "%f[%w]is%s+None", "x == nil" },
  { "&&", "x and y" }, { "||", "x or y" },
}


-- Returns a sentence with the counterpart of a word; nil if it is unknown.
local function answer(called, word)
  local names, instead = foreign.names(word), foreign.instead(word)
  if word ~= "" and translation.value("nd." .. word) and not names[1] then
    names = { "nd." .. word }
  end
  if instead then
    return called .. ": " .. instead
  elseif names[1] then
    return ("%s is %s here"):format(called, translation.written(names[1]))
  end
end


-- Returns a hint for the use of a Python library's name in a line.
local function of_library(name, line)
  for called in (line or ""):gmatch("%f[%w_]" .. name .. "%.[%w_%.]+") do
    local text = answer(called, called:match("[%w_]+$"))
    if text then
      return text
    end
  end
  return name .. ": arrays are ty.nd, networks ty.sym; ?name says what a name is called here"
end


-- Methods of parameters, which `pairs` does not show.
local OF_PARAMETERS = { data = true, grad = true, list_data = true, list_grad = true,
  set_data = true, zero_grad = true }

-- Returns the counterpart of a method that an object does not have; a block's unknown fields are
-- nil.
local function of_method(name)
  if OF_PARAMETERS[name] then
    return "parameters of a network: for name, p in net:collect_params():items() do p:data() end"
  end
  local methods = {}
  for _, here in ipairs(foreign.names(name)) do
    methods[#methods + 1] = here:find(":", 1, true) and here:gsub("{.*", "") or nil
  end
  local text = foreign.instead(name) or methods[1] and table.concat(methods, " or ") .. " here"
  return text and ("'%s': %s"):format(name, text) or nil
end


-- Returns a hint for a global name of Python; nil if there is none. `called`: whether the message
-- is about a call; for other messages only names of libraries count.
local function of_global(name, line, called)
  if LIBRARIES[name] then
    return of_library(name, line)
  end
  return called and (PYTHON[name] and "in Lua: " .. PYTHON[name] or answer(name, name)) or nil
end


-- Returns a hint for a line with Python syntax; nil if there is none. `before`: whether the line
-- comes before the one in the message; then only rows that match at the start of a line count.
local function of_syntax(line, before)
  local code = line:gsub("\\.", ""):gsub("\"[^\"]*\"", "\"\""):gsub("'[^']*'", "\"\"")
  for _, row in ipairs(SYNTAX) do
    if code:find(row[1]) and (not before or row[1]:sub(1, 1) == "^") then
      return "in Lua: " .. row[2]
    end
  end
end


local NEAR = 3                           -- lines before a syntax error that may cause it

-- Returns the lines of a text up to the one in an error message.
local function lines_to(message, text)
  local number, list = tonumber(message:match(":(%d+): ")) or 0, {}
  for line in ((text or "") .. "\n"):gmatch("(.-)\n") do
    list[#list + 1] = #list < number and line or nil
  end
  return list
end


-- Returns the text of the file in an error message.
local function file_text(message)
  local file = io.open(message:match("^(.-):%d+: ") or "")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end


-- Patterns of Lua's messages about a table in place of another value, which is often an array or a
-- parameter -> advice.
local TABLES = {
  { "attempt to compare .*table",
    "arrays compare by methods: x:gt(y), x:ge(y), x:lt(y), x:le(y), x:eq(y), x:ne(y)" },
  { "attempt to concatenate .*a table value",
    "the text of an array is tostring(x), the number in one of one element x:asscalar()" },
  { "attempt to perform arithmetic on .*a table value",
    "the array of a list is ty.nd.array(list), that of a parameter p:data()" },
  { "bad argument #%d+ to '%l+' %(number expected, got table%)",
    "the number in an array of one element is x:asscalar(); ty.nd has functions of all elements" },
}

-- Messages that need advice only on some lines of a script: message, line, advice.
local ON_LINES = {
  { "attempt to index .*a nil value", "%[0%]",
    "lists and the layers of a network count from 1: net[1] is the first" },
  { "attempt to call a table value", "^%s*for .* in ",
    "rows of an array: for i = 0, x:len() - 1 do local row = x[i]; of a table: ipairs, pairs" },
}

local function of_table(message, line)
  for _, row in ipairs(TABLES) do
    if message:find(row[1]) then
      return row[2]
    end
  end
  for _, row in ipairs(ON_LINES) do
    if line and message:find(row[1]) and line:find(row[2]) then
      return row[3]
    end
  end
end


--- Returns a hint for an error message of Lua; nil if there is none.
-- @string message the text of the error
-- @string[opt] text the input; default: the text of the file in the message
-- @treturn ?string one line
function translation.hint(message, text)
  local lines = lines_to(message, text or file_text(message))
  local line = lines[#lines]
  local verb, global = message:match("attempt to (%l+) global '([%w_]+)' %(a nil value%)")
  local field = message:match("attempt to call %l+ '([%w_]+)' %(a %l+ value%)")
  local method = message:match("attempt to call method '([%w_]+)' %(a nil value%)")
  local value = message:match("attempt to index field '([%w_]+)' %(a function value%)")
  if global then
    return of_global(global, line, verb == "call")
  elseif method then
    return of_method(method)
  elseif field and not message:find("a nil value", 1, true) then
    return ("'%s' is a field: write x.%s, without brackets"):format(field, field)
  elseif value then
    return ("'%s' is a method: write x:%s(...)"):format(value, value)
  elseif message:find(" near '", 1, true) then
    local hint
    for i = #lines, math.max(1, #lines - NEAR), -1 do    -- Lua notices it some lines later
      hint = hint or of_syntax(lines[i], i < #lines)
    end
    return hint
  end
  return of_table(message, line)
end


return translation
