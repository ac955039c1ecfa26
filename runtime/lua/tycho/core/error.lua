--- Errors as values: every mistake raises a table of class `ty.Error`.
--
-- `pcall` returns the table unchanged; `tostring(e)` is the full text; `error(e)` raises it again;
-- `"..." .. e` works. The core's failures become such tables in `core/ffi.lua` (`check`); Lua's own
-- mistakes come from `Error.raise`.
--
--     local Error = require "tycho.core.error"
--     Error.raise{code = "name", func = "Executor:forward", argument = "x",
--       message = "there is no argument 'x'"}
--
-- @classmod ty.Error

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = {}
Error.__index = Error

--- Names of the core's status codes, by number (`TY_EVALUE` is 1).
Error.CODES = {
  "value", "type", "name", "shape", "dtype", "index", "state", "device", "memory", "io", "format",
  "interrupted", "unsupported", "run", "internal",
}

local getinfo = debug.getinfo
local HERE = debug.getinfo(1, "S").source:match("^@(.*/)core/") or "@none"


--- The source location of a call whose frame is gone (core/origin.lua); nil otherwise.
Error.location = nil
--- The file whose call of a function of `ty.sym` is running (core/origin.lua); nil otherwise.
Error.here = nil

-- Returns whether the function at a level got f, or a class with the constructor f, as an argument.
-- Then it is a helper that calls f for others (a function with `pcall(f, ...)`), and its line is
-- not the one to report.
local function was_given(f, level)
  local info = debug.getinfo(level + 1, "u")
  for i = 1, f and info.nparams or 0 do
    local _, value = debug.getlocal(level + 1, i)
    local meta = type(value) == "table" and debug.getmetatable(value)
    if value == f or type(meta) == "table" and rawget(meta, "__call") == f then
      return true
    end
  end
  return false
end


-- function -> its file, "=own" for the library's, "=C" for those of C:
-- asking costs more than remembering
local files = setmetatable({}, { __mode = "k" })
local by_source = {}                     -- the same by the name of the chunk: closures are many

local function find_file(f)
  local info = getinfo(f, "S")
  local source = info.source
  local file = by_source[source]
  if not file then
    local own = source:sub(2, #HERE + 1) == HERE
    file = own and "=own" or info.what == "C" and "=C" or source:match("^@(.*)$") or info.short_src
    if source:sub(1, 1) == "@" or file == "=C" then      -- not the text of a chunk
      by_source[source] = file
    end
  end
  files[f] = file
  return file
end


--- Returns the file of a function of the user's; nil for the library's and C's.
function Error.user_file(f)
  local file = files[f] or find_file(f)
  return file ~= "=own" and file ~= "=C" and file or nil
end


--- Functions of the library that run a function of the user and stay on the stack meanwhile:
-- function -> `find(level)`, which returns the location of a tail call by which the user's function
-- called the library; after a tail call that function is no longer on the stack.
Error.runners = setmetatable({}, { __mode = "k" })

--- A function that returns the name of what is running, for errors without a node; nil if unknown.
Error.running = nil


--- Returns the source line that called the library, "file.lua:12": the first on the stack that is
-- not the library's own.
-- @int[opt=2] level of the stack where the search begins
-- @treturn string the source location, "" when there is none
-- @treturn int its level, counted from the caller of this function; nil when there is none
function Error.caller(level)
  local runners = Error.runners
  if Error.location then
    return Error.location
  end
  level = (level or 2) + 1
  local called, through                  -- the library's outermost function; whether C called it
  while true do
    local info = getinfo(level, "fl")
    if not info then
      return ""
    end
    local file = files[info.func] or find_file(info.func)
    if file == "=own" then
      called, through = info.func, false
      local find = runners[info.func]
      local location = find and find(level + 1)
      if location then
        return location, level - 1
      end
    elseif file == "=C" then
      through = true
    elseif not (through and was_given(called, level)) then
      local line = info.currentline
      if line > 0 then
        return file .. ":" .. line, level - 1
      end
    end
    level = level + 1
  end
end


local function show_list(v, zero)
  local parts = {}
  for i = 1, #v do
    local size = v[i]
    local whole = type(size) == "number" and size % 1 == 0
    parts[i] = size == 0 and zero or whole and ("%.0f"):format(size) or tostring(size)
  end
  return "(" .. table.concat(parts, ", ") .. (#v == 1 and ",)" or ")")
end


--- Returns a shape, dtype, number or text as errors write it.
-- @param v shape table or anything `tostring` takes
-- @string[opt="?"] zero the text for a size of 0, which is unknown in a shape
-- @treturn string "(2, 3)" for a list
function Error.show(v, zero)
  if type(v) == "table" and not getmetatable(v) then
    return show_list(v, zero or "?")
  end
  return tostring(v)
end


--- Returns the name of a class with its article: "a Symbol", "an NDArray".
function Error.with_article(name)
  return (name:find("^[AEIOUaeiou]") or name == "NDArray") and "an " .. name or "a " .. name
end


--- Describes a Lua value in a few words: "a number 3", "a table", "a Symbol".
function Error.kind(v)
  local t = type(v)
  if t == "nil" then
    return "nothing"
  elseif t == "number" or t == "boolean" then
    return t .. " " .. tostring(v)
  elseif t == "string" then
    return ("text %q"):format(#v > 40 and v:sub(1, 40) .. "..." or v)
  elseif t == "table" and getmetatable(v) then
    local class = getmetatable(v)
    local name = type(class) == "table" and rawget(class, "class_name")
    return name and Error.with_article(name) or tostring(v)
  end
  return "a " .. t
end


--- Returns words as a sentence lists them: "a, b or c".
-- @tparam {string,...} words
function Error.choice(words)
  local n = #words
  return n < 2 and words[1] or table.concat(words, ", ", 1, n - 1) .. " or " .. words[n]
end


--- Sorts names by nearness to a word, nearest first. If the word is a name of another library, its
-- counterpart comes first. Names that begin with an underscore are included only for words that do.
-- @string word the unknown name
-- @tparam {string,...} names accepted names
-- @int[opt] limit the largest number of results
-- @treturn {string,...} a new list
-- @treturn bool whether the first one looks like the word, so that it may have been meant
function Error.nearest(word, names, limit)
  return require "tycho.core.nearest"(tostring(word), names, limit)
end


-- What to write for a value of a class where arrays, symbols or numbers belong.
local INSTEAD = {
  ["a Parameter"] = "; the array of a Parameter is p:data(x), where x is an input",
  ["a Constant"] = "; the array of a Constant is p:data(x), where x is an input",
}

-- Returns the advice for what came, or nil.
local function advice_for(fields)
  local text = fields.code == "type" and INSTEAD[fields.got]
  local expected = text and tostring(fields.expected)
  return text and (expected:find("NDArray", 1, true) or expected:find("Symbol", 1, true)
    or expected:find("number", 1, true)) and text or nil
end


--- Makes an error object without raising it.
-- @tparam table fields code, message and any further fields
function Error.new(fields)
  fields.code = Error.CODES[fields.code] or fields.code or "internal"
  fields.message = (fields.message or fields.code):gsub("%s*\n%s*", "; ")
    .. (advice_for(fields) or "")
  fields.where = fields.where or Error.caller(2)
  if Error.running and (fields.node == nil or fields.node == "") then
    fields.node = Error.running(2)
  end
  Error.location, Error.here = nil, nil
  return setmetatable(fields, Error)
end


--- Raises an error object.
-- @tparam table fields as `Error.new`
function Error.raise(fields)
  error(Error.new(fields), 0)
end


-- Returns a sentence with the counterpart of a function or method of another library, if the
-- namespace in which it was looked up does not have it; else nil.
local function elsewhere(word, what, near)
  if what == "layer" then                                -- what is no layer here
    local foreign = require "tycho.core.foreign"
    if near[1] and foreign.counterpart(word, near) then
      return nil
    end
    for _, name in ipairs(foreign.names(word)) do
      if name:find("^gluon%.") then
        return "here it is ty." .. name
      end
    end
    return nil
  end
  if not (what == "operator" or what:find("function") or what:find("method")) then
    return nil
  end
  local foreign = require "tycho.core.foreign"
  local name = foreign.names(word)[1]
  local here = name and near[1] and foreign.counterpart(word, near)
  return foreign.instead(word) or name and not here and name:find("^[%a]")
    and ("here it is %s%s"):format(name:find("^%l") and "ty." or "", name) or nil
end


--- Raises E(`name`) for an unknown word, with the accepted ones nearest first; for a function of
-- another library, with its counterpart here. The error has the ten nearest names as `candidates`,
-- all names as `names`, from which the prompt completes, and the lists `missing`, `extra` and
-- `mismatch` of t.
-- @tparam table t func, argument (the word), what ("argument", "operator" …), names (the accepted
--   ones), or among (a table whose keys are the accepted ones)
function Error.unknown(t)
  local names = t.names or {}
  for name in pairs(t.among or {}) do
    names[#names + 1] = name
  end
  local near, alike = Error.nearest(t.argument, names, 10)
  local instead = elsewhere(tostring(t.argument), t.what or "", near)
  local hint = instead and "; " .. instead
    or alike and ("; did you mean '%s'?"):format(near[1]) or ""
  Error.raise{
    code = "name", func = t.func, argument = tostring(t.argument), candidates = near, names = names,
    op = t.op, node = t.node, missing = t.missing, extra = t.extra, mismatch = t.mismatch,
    message = t.message
      or ("unknown %s '%s'%s"):format(t.what or "name", tostring(t.argument), hint),
  }
end


--- Returns whether x is an error object.
function Error.is_error(x)
  return type(x) == "table" and getmetatable(x) == Error
end


local function subject(e)
  if e.op and e.node and e.node ~= "" then
    return (" [operator %s, node %s]"):format(e.op, e.node)
  end
  return e.op and (" [operator %s]"):format(e.op) or e.node and e.node ~= ""
    and (" [node %s]"):format(e.node) or ""
end


local function shape_lines(e, lines)
  for _, s in ipairs(e.shapes or {}) do
    local shape = #s.shape == 0 and "of unknown shape" or Error.show(s.shape)
    lines[#lines + 1] = ("  input %s %s%s"):format(s.name, shape, s.from and ", " .. s.from or "")
  end
end


local function format_lines(e)
  local lines = { (e.func and e.func .. ": " or "") .. e.message .. subject(e) }
  if e.expected ~= nil and e.got ~= nil and not e.message:find("expected", 1, true) then
    local zero = e.code ~= "shape" and "0" or nil
    lines[#lines + 1] = ("  expected %s, got %s"):format(Error.show(e.expected, zero),
      Error.show(e.got, zero))
  end
  shape_lines(e, lines)
  if e.candidates and e.candidates[1] then
    lines[#lines + 1] = "  accepted, nearest first: " .. table.concat(e.candidates, ", ")
  end
  return lines
end


local function known_location(e)
  return e.where ~= "" and e.where or nil
end


-- Adds the cause's text to the lines, unless the message contains it.
local function add_cause(e, lines)
  local text = e.cause and tostring(e.cause)
  if text and not e.message:find(text, 1, true) then
    lines[#lines + 1] = "  because of " .. text
  end
end


function Error.__tostring(e)
  local lines = format_lines(e)
  if known_location(e) then
    lines[#lines + 1] = "  at " .. e.where
  end
  add_cause(e, lines)
  lines[#lines + 1] = "  (" .. e.code .. " error)"
  return table.concat(lines, "\n")
end


--- Returns the text that the program prints when it ends with this error: the script's line comes
-- first, as in Lua's own errors.
-- @treturn string
function Error:report()
  local lines = format_lines(self)
  if known_location(self) then
    lines[1] = self.where .. ": " .. lines[1]
  end
  add_cause(self, lines)
  return table.concat(lines, "\n")
end


function Error.__concat(a, b)
  return tostring(a) .. tostring(b)
end


Error.class_name = "Error"

return Error
