--- The prompt's own commands: `:name rest`. One entry is one command: `f(session, rest)`; its line of help stands beside it.
--
-- @module tycho.prompt.commands

local show = require "tycho.prompt.show"

local commands, help = {}, {}

local function command(name, usage, text, f)
  commands[name] = f
  help[#help + 1] = ("  %-16s %s"):format(usage, text)
end


local function engine()
  return require "tycho"
end


command("help", ":help", "this list", function(session)
  session.write("  expression;      evaluates, prints nothing; _, _1, _2 hold the last results\n")
  session.write("  ?name  ??name    an operator's or function's help; its source\n")
  session.write("  !command         runs a shell command\n")
  session.write(table.concat(help, "\n"), "\n")
end)


command("quit", ":quit", "leaves (also Ctrl-D)", function(session)
  session.over = true
end)


command("run", ":run file", "runs a script with the prompt's variables", function(session, path)
  local chunk, message = loadfile(path)
  if not chunk then
    error(message, 0)
  end
  session:run(chunk, true)
end)


-- seconds that n runs of an expression or statement take, with everything it started
local function measure(session, text, n)
  local chunk, message = session:compile(text)
  if not chunk then
    error(message, 0)
  end
  setfenv(chunk, session.env)
  local ty = engine()
  ty.waitall()
  local start = session.editor.now()
  for _ = 1, n do
    chunk(session.pass)
  end
  ty.waitall()
  return session.editor.now() - start
end


command("time", ":time expr", "one run, waits for the devices", function(session, text)
  session.write(("%.6g s\n"):format(measure(session, text, 1)))
end)


command("bench", ":bench expr", "seconds per run of many", function(session, text)
  local n = 1
  local seconds = measure(session, text, n)
  while seconds < 0.5 and n < 1e7 do
    n = math.ceil(n * math.min(10, 0.6 / math.max(seconds, 1e-9)))
    seconds = measure(session, text, n)
  end
  session.write(("%.6g s per run of %d\n"):format(seconds / n, n))
end)


command("mem", ":mem", "live native objects and Lua's heap", function(session)
  local live, names = engine().live(), {}
  for name in pairs(live) do
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    session.write(("  %-12s %d\n"):format(name, live[name]))
  end
  session.write(("  %-12s %d\n"):format("lua bytes", collectgarbage("count") * 1024))
end)


local function describe(value)
  local ok, text = pcall(function()
    return ("%s %s %s"):format(show(value.shape), value.dtype, tostring(value.context))
  end)
  if ok and type(value) == "table" then
    return text
  end
  return type(value) == "table" and not getmetatable(value) and "table" or (show(value):match("^[^\n]*"))
end


command("who", ":who", "the variables made here", function(session)
  local names = {}
  for name in pairs(session.env) do
    names[#names + 1] = tostring(name)
  end
  table.sort(names)
  for _, name in ipairs(names) do
    session.write(("  %-12s %s\n"):format(name, describe(session.env[name])))
  end
end)


command("stat", ":stat x", "least, mean, greatest value, count of NaN", function(session, text)
  local x = session:value(text)
  local low, high, sum, n, bad = math.huge, -math.huge, 0, 0, 0
  for _, v in ipairs(x:reshape{ -1 }:totable()) do
    if v ~= v then
      bad = bad + 1
    else
      low, high, sum, n = math.min(low, v), math.max(high, v), sum + v, n + 1
    end
  end
  session.write(("  min %.6g  mean %.6g  max %.6g  NaN %d\n"):format(low, sum / n, high, bad))
end)


command("forget", ":forget", "drops the last results", function(session)
  session:forget()
end)


command("where", ":where", "frames of the last error", function(session)
  for i, frame in ipairs(session.frames or {}) do
    session.write(("  %d  %s\n"):format(i, frame.text))
  end
end)


command("locals", ":locals n", "local variables of a frame of the last error", function(session, n)
  local frame = session.frames and session.frames[tonumber(n) or 1]
  for _, variable in ipairs(frame and frame.locals or {}) do
    session.write(("  %s = %s\n"):format(variable.name, show(variable.value)))
  end
end)


return commands
