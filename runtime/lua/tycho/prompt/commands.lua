--- The commands of the prompt, `:name rest`. Each is a function `f(session, rest)`, defined
-- together with its line of help.
--
-- @module tycho.prompt.commands

local pairs = require("tycho.core.iterate").pairs
local core_files = require "tycho.core.files"
local Error = require "tycho.core.error"
local files = require "tycho.prompt.files"
local objects = require "tycho.prompt.objects"
local show = require "tycho.prompt.show"
local transcript = require "tycho.prompt.transcript"

local commands, help = {}, {}

-- Defines a command and its line of help.
local function command(name, usage, text, f)
  commands[name] = f
  help[#help + 1] = ("  %-18s %s"):format(usage, text)
end


local function engine()
  return require "tycho"
end


-- -- texts of numbers -----------------------------------------------------------------------------

local function bytes_text(n)
  local units, i = { "B", "KB", "MB", "GB", "TB" }, 1
  while n >= 1024 and i < #units do
    n, i = n / 1024, i + 1
  end
  return (i == 1 and "%d %s" or "%.1f %s"):format(n, units[i])
end


local function seconds_text(s)
  for _, unit in ipairs{ { 1, "s" }, { 1e-3, "ms" }, { 1e-6, "us" } } do
    if s >= unit[1] then
      return ("%.4g %s"):format(s / unit[1], unit[2])
    end
  end
  return ("%.4g ns"):format(s / 1e-9)
end


-- -- help, leaving --------------------------------------------------------------------------------

command("help", ":help name", "as ?name; without a name this list", function(session)
  session:page([[
  expression         is evaluated and printed; `;` after it prints nothing; _ is the last result,
                     _2 the one before
  ?name  ??name      help on an operator, function, class or value, on a name of PyTorch or NumPy;
                     its source
  local x = ...      makes a variable of the session, as without `local`
  x:len()  x.size    the rows and the elements of an array; #x of one is always 0
  !command           a shell command
  Tab                completes names, options, keys and files; Up, Down, Ctrl-R walk through the
                     history
  Ctrl-C             stops what runs, or leaves the line; variables stay. Ctrl-D leaves
]] .. table.concat(help, "\n"))
end)


-- Returns the names and titles of the manual's pages, one per line.
local function page_list()
  local lines = {}
  for _, name in ipairs(files.names("doc", "md")) do
    local text = core_files.read(files.path("doc", name .. ".md"), ":doc")
    lines[#lines + 1] = ("  %-20s %s"):format(name, text:match("^# ([^\n]*)") or "")
  end
  return table.concat(lines, "\n")
end


local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end


command("doc", ":doc page", "a page of the manual, in $PAGER if that is set; alone: their names",
  function(session, rest)
    local name = rest:match("^([%w_]+)%s*$")
    local path = name and files.path("doc", name .. ".md")
    local pager = os.getenv("PAGER") or ""
    if rest == "" then
      session:page(page_list())
    elseif not path then
      local near = Error.nearest(rest, files.names("doc", "md"), 3)
      error(("there is no page '%s'; near: %s. :doc lists them"):format(rest,
        table.concat(near, ", ")), 0)
    elseif session.editing and pager ~= "" then
      os.execute(pager .. " " .. quoted(path))
    else
      session:page((core_files.read(path, ":doc"):gsub("%s+$", "")))
    end
  end)


command("quit", ":quit", "leaves", function(session)
  session.over = true
end)


-- -- running --------------------------------------------------------------------------------------

-- Returns a path with "~/" at its start replaced by the home folder, as a shell does.
local function expanded(path)
  return (path:gsub("^~/", (os.getenv("HOME") or "~") .. "/"))
end


command("run", ":run file words",
  "runs a script with the prompt's variables; its words are in `arg` and `...`",
  function(session, rest)
    local words = {}
    for word in rest:gmatch("%S+") do
      words[#words + 1] = word
    end
    local path = expanded(words[1] or "")
    local chunk, message = loadfile(path)
    if not words[1] or not chunk then
      error(words[1] and message or "which file?  :run file", 0)
    end
    session.env.arg = { [0] = path, unpack(words, 2) }
    if session:run(chunk, true, unpack(words, 2)) then
      transcript.add_run(session.transcript, path, { unpack(words, 2) })
    end
  end)


command("save", ":save file", "writes what was typed and ran as a script; replaces its own alone",
  function(session, rest)
    local path = expanded(rest:match("^(.-)%s*$"))
    if path == "" then
      error("which file?  :save file", 0)
    end
    local old = io.open(path, "rb")
    local text = old and (old:read(200) or "")
    if old then
      old:close()
    end
    if text and not transcript.is_own(text) then
      error(("%s is there already, and :save did not write it"):format(path), 0)
    end
    core_files.write(path, transcript.text(session.transcript), ":save")
    session.write(("  %d texts in %s; tycho %s runs them\n"):format(#session.transcript.texts, path,
      path))
  end)


-- Returns the seconds that n runs of a chunk take, including the computations that they start.
local function measure(session, chunk, n)
  local ty = engine()
  ty.waitall()
  local start = session.editor.now()
  for _ = 1, n do
    chunk(session.pass)
  end
  ty.waitall()
  return session.editor.now() - start
end


-- Compiles an expression or statement for the session's variables; an error if it is empty or
-- wrong.
local function compile(session, text, usage)
  if not text:find("%S") then
    error("what?  " .. usage, 0)
  end
  local chunk, message = session:compile(text)
  if not chunk then
    error(message, 0)
  end
  return setfenv(chunk, session.env)
end


command("time", ":time expr", "how long one run takes, the devices' work included",
  function(session, text)
    local chunk = compile(session, text, ":time expr")
    jit.off(chunk, true)                                   -- interpreted code can be interrupted
    session.write(seconds_text(measure(session, chunk, 1)), "\n")
  end)


command("bench", ":bench expr", "the same, mean and least of many runs", function(session, text)
  local chunk = compile(session, text, ":bench expr")
  jit.off(chunk, true)
  local n, once = 1, math.max(measure(session, chunk, 1), 1e-9)
  jit.on(chunk, true)
  local seconds = measure(session, chunk, n)             -- compiled code from here on
  while seconds < 0.05 and n < 1e7 do
    n = math.ceil(n * math.min(10, 0.07 / math.max(seconds, 1e-9)))
    seconds = measure(session, chunk, n)
  end
  local sum, least, rounds = 0, math.huge, once > 1 and 2 or 7
  for _ = 1, rounds do
    local s = measure(session, chunk, n) / n
    sum, least = sum + s, math.min(least, s)
  end
  session.write(("%s per run, at best %s (%d times %d runs)\n"):format(seconds_text(sum / rounds),
    seconds_text(least), rounds, n))
end)


-- -- memory and variables -------------------------------------------------------------------------

command("mem", ":mem", "native objects that live, pools, Lua's heap", function(session)
  local live, ctx = engine().live(), engine().current_context()
  local function row(name, text)
    session.write(("  %-12s %s\n"):format(name, text))
  end
  row("tensors", ("%d, %s"):format(live.tensors, bytes_text(live.bytes)))
  for _, name in ipairs{ "graphs", "executors", "iters" } do
    row(name, ("%d"):format(live[name]))
  end
  row("pools", ("%d, %s on %s"):format(live.pools, bytes_text(ctx:memory().pool), tostring(ctx)))
  row("results", ("%d kept; :forget drops them"):format(session.count))
  row("Lua's heap", bytes_text(collectgarbage("count") * 1024))
end)


local BYTES = { float32 = 4, float64 = 8, float16 = 2, bfloat16 = 2, uint8 = 1, int8 = 1,
  int32 = 4, int64 = 8, bool = 1 }

-- Returns kind, shape, dtype, device and bytes of an array as text; a short text for other values.
local function describe(value)
  local ok, text = pcall(function()
    if type(value) == "table" and getmetatable(value) and value.dtype and value.context then
      return ("NDArray  %s  %s  %s  %s"):format(table.concat(value.shape, "x"), value.dtype,
        tostring(value.context), bytes_text(value.size * BYTES[value.dtype]))
    end
  end)
  if ok and text then
    return text
  elseif type(value) == "table" and not getmetatable(value) then
    local n = 0
    for _ in pairs(value) do
      n = n + 1
    end
    return n == 1 and "table, 1 entry" or ("table, %d entries"):format(n)
  end
  return objects.line(value) or show(value):match("^[^\n]*")
end


command("who", ":who", "the variables made here", function(session)
  local names, width = {}, 8
  for name in pairs(session.env) do
    names[#names + 1] = tostring(name)
    width = math.min(math.max(width, #tostring(name)), 24)
  end
  table.sort(names)
  for _, name in ipairs(names) do
    session.write(("  %-" .. width .. "s  %s\n"):format(name, describe(rawget(session.env, name))))
  end
end)


command("stat", ":stat x", "least, mean, greatest value of an array, count of NaN",
  function(session, text)
    local x, ty = session:value(text), engine()
    if not ty.is_a(x, ty.nd.NDArray) then
      error("':stat' takes an array, not " .. ty.Error.kind(x), 0)
    end
    local v = x:astype("float64"):reshape{ -1 }
    local bad = v:ne(v)
    local nan = bad:sum():asscalar()
    local function least(sign)                             -- excluding NaN
      return sign * ty.nd.where(bad, ty.nd.full({ v.size }, math.huge, { dtype = "float64" }),
        v * sign):min():asscalar()
    end
    local sum = ty.nd.where(bad, ty.nd.zeros({ v.size }, { dtype = "float64" }), v):sum():asscalar()
    session.write(nan == v.size and "  nothing but NaN\n"
      or ("  min %.6g  mean %.6g  max %.6g  NaN %d of %d\n"):format(least(1), sum / (v.size - nan),
        least(-1), nan, v.size))
  end)


command("forget", ":forget", "drops the kept results", function(session)
  session:forget()
end)


-- -- the last error -------------------------------------------------------------------------------

command("where", ":where", "the frames of the last error", function(session)
  if not session.frames then
    session.write("  there was no error\n")
  end
  for i, frame in ipairs(session.frames or {}) do
    session.write(("  %d  %s\n"):format(i, frame.text))
  end
  if session.frames and session.frames.cut then
    session.write("  ...\n")
  end
end)


command("locals", ":locals n", "the local variables of a frame of the last error",
  function(session, n)
    local number = tonumber(n) or 1
    local frame = session.frames and session.frames[number]
    if not frame then
      session.write(session.frames and ("  there are %d frames\n"):format(#session.frames)
        or "  there was no error\n")
      return
    end
    for _, variable in ipairs(frame.locals) do
      session.write(("  %s = %s\n"):format(variable.name,
        objects.line(variable.value) or show(variable.value)))
    end
  end)


return commands
