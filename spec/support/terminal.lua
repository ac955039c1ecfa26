-- Runs a program on a separate terminal, driven by a spec: sends keys and waits for text on the
-- screen.
--
--     local t = terminal.open("build/tycho", "TERM=xterm")
--     t:send("1 + 1\n")
--     t:expect("2")                -- what comes after the last thing expected; fails after a while
--     t:close()                    -- Ctrl-D; returns the exit status

local terminal = {}
terminal.__index = terminal

-- Number of waits before giving up; seconds of a wait and of a session. A busy machine or a
-- sanitizer may take twenty times as long as usual.
local PATIENCE, STEP, LIMIT = 1200, 0.05, 900

--- Starts a command under `script`, which provides a terminal and writes its output to a file. The
-- shell in between (always sh, whatever the user's shell is) survives a Ctrl-C, which the terminal
-- sends to it too, and reports the status. Keys for a program that has ended are read by cat;
-- otherwise the sender would be killed by SIGPIPE.
function terminal.open(command, environment)
  local log = os.tmpname()
  local inner = ("trap : INT; stty cols 400 rows 40; %s %s; echo \"status=$?\"")
    :format(environment or "", command)
  inner = inner:gsub("'", "'\\''")
  local script = ("SHELL=/bin/sh timeout -k 1 %d script -qfec '%s' %s >/dev/null 2>&1; \z
    exec cat >/dev/null"):format(LIMIT, inner, log)
  local keys = assert(io.popen(script, "w"))
  keys:setvbuf("no")
  return setmetatable({ keys = keys, log = log, place = 1 }, terminal)
end

--- Returns all text shown so far.
function terminal:screen()
  local file = io.open(self.log, "rb")
  local text = file and file:read("*a") or ""
  if file then
    file:close()
  end
  return text
end

--- Types a text.
function terminal:send(text)
  self.keys:write(text)
end

--- Waits for a text after the last one that was found; returns the text in between.
function terminal:expect(text)
  for _ = 1, PATIENCE do
    local screen = self:screen()
    local from, to = screen:find(text, self.place, true)
    if from then
      local between = screen:sub(self.place, from - 1)
      self.place = to + 1
      return between
    end
    os.execute("sleep " .. STEP)
  end
  error(("'%s' never came; the screen after it should:\n%s")
    :format(text, self:screen():sub(self.place)), 2)
end

--- Types a key and waits until the screen shows that it was read, so that the next key does not
-- arrive together with it, like a paste.
function terminal:press(key)
  local before = #self:screen()
  self:send(key)
  for _ = 1, PATIENCE do
    if #self:screen() > before then return end
    os.execute("sleep " .. STEP)
  end
  error(("nothing is shown for key %q"):format(key), 2)
end

--- Types a line at the prompt and waits for its output and the next prompt.
function terminal:line(text, want)
  self:send(text .. "\n")
  self:expect("\r\n" .. (want and want .. "\r\n" or "") .. "> ")
end

--- Ends the program with Ctrl-D; returns its exit status.
function terminal:close()
  self:send("\4")
  self:expect("status=")
  self:expect("\n")
  local status = self:screen():match(".*status=(%d+)")
  self.keys:close()
  os.remove(self.log)
  return tonumber(status)
end

return terminal
