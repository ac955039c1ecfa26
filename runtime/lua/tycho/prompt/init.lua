--- The prompt of the program `tycho`: evaluates lines, prints results, continues after errors and
-- Ctrl-C.
--
-- A session has its variables in a separate table that falls back to the globals, so nothing it
-- defines leaks into modules. Chunks run without the JIT compiler: a compiled loop would not notice
-- Ctrl-C. Order of calls: `new`, any of `use` and `text`, then `loop`.
--
-- @classmod tycho.prompt

require "tycho.core.luajit"
local Error = require "tycho.core.error"
local commands = require "tycho.prompt.commands"
local complete = require "tycho.prompt.complete"
local foreign = require "tycho.core.foreign"
local manual = require "tycho.prompt.manual"
local show = require "tycho.prompt.show"
local transcript = require "tycho.prompt.transcript"
local translation = require "tycho.prompt.translation"
local written = require "tycho.core.written"

local Session = {}
Session.__index = Session

local LARGE = 2 ^ 18                                     -- elements; larger results are held weakly
local COLOURS = { error = "31", note = "2", sign = "1" } -- ANSI sequences: red, faint, bold
local LIBRARY = debug.getinfo(1, "S").source:match("^@(.*)prompt/[^/]*$") or "@none"


-- Returns a result by its name: `_` and `_1` are the last one, `_2` the one before; nil for other
-- names.
local function result(session, name)
  local back = name == "_" and 1 or tonumber(name:match("^_(%d+)$"))
  local i = back and session.count - back + 1
  if i == nil then
    return nil
  end
  local value = session.strong[i]
  if value == nil then
    value = session.weak[i]
  end
  return value
end


-- Makes the table of a session's variables.
local function environment(session)
  return setmetatable({}, { __index = function(_, name)
    local value = type(name) == "string" and result(session, name)
    if value ~= nil and value ~= false then
      return value
    end
    if name == "ty" and rawget(_G, "ty") == nil then
      return require "tycho"
    elseif translation.CONSTANTS[name] and rawget(_G, name) == nil then
      Error.raise{ code = "name", argument = name,
        message = ("%s is Lua's %s"):format(name, translation.CONSTANTS[name]) }
    end
    return _G[name]
  end })
end


--- Makes a session.
-- @tparam table options `plain`: no line editing; `terminal`: a user types; `strict`: texts of
-- `-e` declare no variables; `editor`: functions of repl.c; `write`: where results go
function Session.new(options)
  local session = setmetatable({
    plain = options.plain, terminal = options.terminal, strict = options.strict,
    editor = options.editor,
    write = options.write or function(...) io.stdout:write(...) end,
  }, Session)
  local term, no_colour = os.getenv("TERM"), os.getenv("NO_COLOR")
  session.colours = options.terminal and not options.plain and term ~= "dumb"
    and (no_colour or "") == ""
  session:forget()
  session.transcript = transcript.new()
  session.env = environment(session)
  return session
end


--- Returns a text in a colour, unchanged if the terminal has no colours.
-- @string kind "error", "note" or "sign"
-- @string text
function Session:paint(kind, text)
  return self.colours and ("\27[%sm%s\27[0m"):format(COLOURS[kind], text) or text
end


local MORE = "-- any key: more, q: enough -- "

--- Writes a text, screen by screen if it has more lines than the terminal.
-- @string text without a newline at its end
function Session:page(text)
  local rows = self.editing and self.editor.rows() - 1 or math.huge
  local shown = 0
  for line in (text .. "\n"):gmatch("([^\n]*)\n") do
    if shown >= rows then
      shown = 0
      local key = self.editor.key(self:paint("note", MORE))
      if not key or key == "q" then
        return
      end
    end
    self.write(line, "\n")
    shown = shown + 1
  end
end


-- Adds an input to the history; a block of several lines is one entry.
local function remember(session, text)
  if session.editing then
    session.editor.add(text)
  end
end


--- Drops the kept results.
function Session:forget()
  self.count, self.strong, self.weak = 0, {}, setmetatable({}, { __mode = "v" })
end


-- Stores a result under the next number.
local function keep(session, value)
  session.count = session.count + 1
  local ok, size = pcall(function()
    return type(value) == "table" and getmetatable(value) and value.size
  end)
  local large = ok and type(size) == "number" and size > LARGE
  session[large and "weak" or "strong"][session.count] = value
end


-- Compiles an expression. Its values pass through a function: a bare `return f()` would be a tail
-- call, and errors inside f would be reported without their line.
local function expression(text, name)
  local chunk, message = loadstring("return " .. text, name)
  if not chunk then
    return nil, message
  end
  local close = text:find("--", 1, true) and "\n)" or ")"  -- a comment would hide the bracket
  return (loadstring("local pass = ...; return pass(" .. text:gsub(";%s*$", "") .. close,
    name)) or chunk
end


local function incomplete(message)
  return message ~= nil and message:sub(-7) == "'<eof>'"
end


--- Compiles a text, as an expression if possible.
-- @string text
-- @treturn ?function the chunk, to be called with `Session.pass`; nil if the text is unfinished or
--   wrong
-- @treturn ?string the compiler's message
-- @treturn boolean whether more text could complete it
function Session:compile(text)
  local chunk, message = expression(text:gsub("^%s*=", ""), "=prompt")
  if chunk then
    return chunk
  end
  local statement, wrong = loadstring(text, "=prompt")
  return statement, wrong, not statement and (incomplete(message) or incomplete(wrong))
end


local function pass(...)
  return ...
end

Session.pass = pass


local INSIDE = "\n  (inside the library; methods take a colon: x:copy(), not x.copy())"

-- Returns whether a Lua error was raised inside the library, which happens if a method is called
-- without its object.
local function stopped_inside()
  local level = 3
  while true do
    local info = debug.getinfo(level, "S")
    if not info or info.what ~= "C" then
      return info ~= nil and info.source:sub(2, #LIBRARY + 1) == LIBRARY
    end
    level = level + 1
  end
end


local FRAMES = 24                                        -- most in a traceback; see runtime/main.c

-- Returns the frames of the user's code at an error, with their locals; `cut` if there are more
-- than FRAMES.
local function frames()
  local list, level = {}, 3
  while true do
    local info = debug.getinfo(level, "Snl")
    local shown = info and info.what ~= "C" and info.source:sub(2, #LIBRARY + 1) ~= LIBRARY
    list.cut = shown and #list == FRAMES
    if not info or list.cut then
      return list
    end
    if shown then
      local frame = { text = ("%s:%d: in %s"):format(info.short_src, info.currentline,
        info.name or "the chunk"), locals = {} }
      for i = 1, 60 do
        local name, value = debug.getlocal(level, i)
        if not name then
          break
        end
        if name:sub(1, 1) ~= "(" and value ~= pass then
          table.insert(frame.locals, { name = name, value = value })
        end
      end
      list[#list + 1] = frame
    end
    level = level + 1
  end
end


-- Returns a Lua error with a hint below it; `text` is the input.
local function with_hint(message, text)
  local hint = translation.hint(message, message:find("^prompt:") and text or nil)
  return hint and message .. "\n  (" .. hint .. ")" or message
end


-- Writes an error, its first line in colour.
local function write_error(session, text)
  local first, rest = text:match("^([^\n]*)(.*)$")
  session.write(session:paint("error", first), rest, "\n")
end


local function is_overflow(e)
  return type(e) == "string" and e:sub(-14) == "stack overflow"
end


-- Returns the frames in a text of `debug.traceback`, without locals.
local function parse_frames(traceback)
  local list = {}
  for line in traceback:gmatch("\t([^\n]+)") do
    local where, name = line:match("^(.-:%d+: in )function '(.-)'$")
    if line == "..." then
      list[#list + 1] = { text = line, locals = {} }
    elseif not line:find("^%[C%]") and not line:find("tycho/[%w_]+/[%w_]+%.lua:%d") then
      list[#list + 1] = { text = where and where .. name or line, locals = {} }
    end
  end
  return list
end


-- Writes an error with its frames.
local function report(session, e)
  if Error.is_error(e) and e.code == "interrupted" then
    local position = e.epoch and (" in epoch %d, batch %d"):format(e.epoch, e.nbatch or 0) or ""
    session.write(session:paint("error", "interrupted" .. position), "\n")
    return
  end
  write_error(session, type(e) == "string" and e or show(e))
  local list = session.frames or {}
  for i, frame in ipairs(list) do
    if i < #list or list.cut then
      session.write("  ", frame.text, "\n")
    end
  end
  if list.cut then
    session.write("  ...\n")
  end
end


-- Returns a value's text; the line that describes an array is in faint colour.
local function value_text(session, value)
  return (show(value):gsub("<NDArray [^\n]*>$", function(line)
    return session:paint("note", line)
  end))
end


-- Prints and stores the results of a run, or reports its error; returns whether it succeeded.
local function finish(session, mute, ok, ...)
  if not ok then
    report(session, (...))
    return false
  end
  for i = 1, mute and 0 or select("#", ...) do
    local value = select(i, ...)
    if value == nil or value ~= written.text then
      session.write(value_text(session, value), "\n")
    end
  end
  if select("#", ...) > 0 and (...) ~= nil then
    keep(session, (...))
  end
  return true
end


--- Runs a chunk with the session's variables and prints its results.
-- @func chunk
-- @bool[opt] mute whether nothing is printed
-- @param ... arguments of the chunk
-- @treturn boolean whether it ended without error
function Session:run(chunk, mute, ...)
  setfenv(chunk, self.env)
  jit.off(chunk, true)
  self.frames = nil
  written.text = nil
  local traceback
  return finish(self, mute, (function(ok, ...)
    self.frames = traceback and parse_frames(traceback) or self.frames
    return ok, ...
  end)(xpcall(chunk, function(e)
    if is_overflow(e) then                                 -- there is stack for one more call
      traceback = debug.traceback("", 2)
      return e
    end
    self.frames = frames()
    if type(e) == "string" then
      return stopped_inside() and e .. INSIDE or with_hint(e, self.typed)
    end
    return e
  end, ...)))
end


--- Returns the value of an expression of the session's variables; errors are raised.
function Session:value(text)
  local chunk, message = expression(text, "=prompt")
  if not chunk then
    error(message, 0)
  end
  return setfenv(chunk, self.env)(pass)
end


-- Returns a view of the session's variables that refuses new globals, for `--strict`.
local function declared(session)
  local env = session.env
  return setmetatable({}, { __index = env, __newindex = function(_, name, value)
    if rawget(env, name) == nil and rawget(_G, name) == nil then
      Error.raise{ code = "name", argument = tostring(name),
        message = ("writing an undeclared global '%s'"):format(tostring(name)) }
    end
    env[name] = value
  end })
end


--- Runs the text of `tycho -e`. The values of an expression are printed, strings without quotes.
-- Errors are raised.
function Session:text(text)
  local chunk, message = expression(text, "=(command line)")
  if not chunk then
    chunk, message = loadstring(text, "=(command line)")
  end
  if not chunk then
    error(message, 0)
  end
  local function print_all(...)
    for i = 1, select("#", ...) do
      local value = select(i, ...)
      self.write(type(value) == "string" and value or show(value), "\n")
    end
  end
  print_all(setfenv(chunk, self.strict and declared(self) or self.env)(pass))
end


--- Requires a module for `tycho -l module`, and assigns it to a variable with its last name.
function Session:use(module)
  self.env[module:match("[^.]*$")] = require(module)
end


-- Returns the value of a path of names; nil if there is none. No function is called. A path may
-- omit `ty.` and `ty.gluon.`: "nn.Dense", "autograd.record".
local function named_value(session, name)
  if not name:find("^[%a_][%w_%.:%[%]]*$") then
    return nil
  end
  local path = name:gsub(":", ".")
  local prefixes = { "" }
  if path:find(".", 1, true) or path == "gluon" or path == "autograd" then
    prefixes = { "", "ty.", "ty.gluon." }
  end
  for _, prefix in ipairs(prefixes) do
    local ok, value = pcall(session.value, session, prefix .. path)
    if ok and value ~= nil then
      return value
    end
  end
end


-- Returns the name that a line asks about: its first word, or all words if together they are a name
-- of another library, as in "?weight decay".
local function asked_name(text)
  local joined = text:match("^%s*(.-)%s*$"):gsub("%s+", "_")
  return foreign.names(joined)[1] and joined or text:match("%S+") or ""
end


-- Shows the help about a name for `?name`; the value if there is no help.
local function explain(session, name)
  local value = named_value(session, name)
  local text, known = manual.text(name, value)
  if not known and value ~= nil then
    text = show(value)
  end
  local first, rest = text:match("^([^\n]*)(.*)$")
  session:page(session:paint("sign", first) .. rest)
end


-- Runs a line that begins with `?`, `??`, `!` or `:`.
local function special(session, line)
  if line:find("^%?+%s*$") then
    commands.help(session)
  elseif line:sub(1, 2) == "??" then
    local name = line:sub(3):match("%S+") or ""
    session:page(manual.source(name, named_value(session, name)))
  elseif line:sub(1, 1) == "?" then
    explain(session, asked_name(line:sub(2)))
  elseif line:sub(1, 1) == "!" then
    os.execute(line:sub(2))
  else
    local name, rest = line:match("^:(%w+)%s*(.*)$")
    if name == "help" and rest ~= "" then
      explain(session, asked_name(rest))
      return
    elseif not commands[name] then
      session.write("unknown command; :help lists them (a chain of calls goes on in the next line "
        .. "where a bracket is open)\n")
      return
    end
    commands[name](session, rest)
  end
end


-- Removes `local` from a statement, since a local variable would end with the line; the variable
-- becomes one of the session.
local function without_local(text)
  local name, after = text:match("^%s*local%s+([%a_][%w_%s,]*)(=?)")
  if name and (after == "=" or name:find("^function%s")) then
    return (text:gsub("^(%s*)local%s+", "%1", 1))
  end
  return text
end


--- Runs one line; the lines of an unfinished statement are collected until it is complete.
-- @string line
-- @treturn boolean whether the next line continues this one
function Session:feed(line)
  if not self.pending and line:match("^%s*[:?!]") then
    remember(self, line)
    special(self, line:match("^%s*(.*)$"))
    return false
  end
  local text = self.pending and self.pending .. "\n" .. line or line
  local ended = self.pending ~= nil and line:match("^%s*$")
  self.pending = nil
  if text:match("^%s*$") then
    return false
  end
  local bare = without_local(text)
  local chunk, message, more = self:compile(bare)
  if more and not ended then
    self.pending = text
    return true
  end
  remember(self, text)
  self.typed = text
  if not chunk then
    write_error(self, with_hint(message, text))
    return false
  end
  if self:run(chunk, text:match(";%s*$") ~= nil, pass) then
    transcript.add(self.transcript, bare)
  end
  return false
end


-- Returns the path of the history file; nil if there is none.
local function history_path()
  local path = os.getenv("TYCHO_HISTORY")
  if path then
    return path ~= "" and path or nil
  end
  local home = os.getenv("HOME")
  local state = os.getenv("XDG_STATE_HOME") or home and home .. "/.local/state"
  return state and state .. "/tycho/history"
end


local function open_editor(session)
  local path = history_path()
  local folder = path and path:match("^(.*)/")
  if folder then
    os.execute("mkdir -p '" .. folder:gsub("'", "'\\''") .. "'")
  end
  session.editor.open(path, function(text)
    return complete(session.env, session.pending and session.pending .. "\n" .. text or text)
  end)
end


local function is_recording()
  local modes = package.loaded["tycho.autograd.modes"]
  return modes ~= nil and modes.is_recording()
end


-- Reads a line; nil at the end of input, false if Ctrl-C was pressed.
local function read(session)
  local sign = session.pending and ">> " or is_recording() and "rec> " or "> "
  if session.editing then
    return session.editor.read(session:paint("sign", sign))
  end
  if session.terminal then
    session.write(sign)
    io.stdout:flush()
  end
  return io.read("*l")
end


-- Reads a line and runs it.
local function step(session)
  local line, editing = read(session), session.editing
  if line == nil then
    session.over = true
    session.write(session.terminal and "\n" or "")
  elseif line == false then
    if session.pending then
      remember(session, session.pending)
    end
    session.pending = nil
  elseif not (session.pending and editing and line:match("^%s*$") and session.editor.waiting()) then
    session:feed(line)                           -- a blank line within pasted text
  end
  io.stdout:flush()
end


--- Reads and evaluates until the end of input or `:quit`.
function Session:loop()
  if self.terminal then
    self.write(self:paint("note", ("Tycho %s, %s. :help lists commands, Ctrl-D leaves."):format(
      require("tycho").version, jit.version)), "\n")
  end
  if self.terminal and not self.plain then
    open_editor(self)
    self.editing = true
  end
  while not self.over do
    local ok, e = pcall(step, self)
    if not ok then
      self.frames = nil
      pcall(report, self, e)
    end
  end
  if self.editing then
    self.editor.close()
    self.editing = false
  end
end


return Session
