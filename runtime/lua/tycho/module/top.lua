-- `tycho --top PID`: shows the state of a running training.

local native = require "tycho.core.ffi"
local top_file = require "tycho.module.top_file"
local units = require "tycho.core.units"

local top = {}

local LOOK = 1                           -- seconds between two reads

-- The command -------------------------------------------------------------------------------------

local USAGE = [[
usage: tycho --top [PID] [--once]
  what a training does that was started with TYCHO_TOP=1; without PID: all of this user
  --once   one look, not one per second
]]

local STATES = { starts = "starts", trains = "trains", validates = "validates", done = "is done",
  interrupted = "was interrupted", failed = "has failed" }

-- Returns the lines that show a training's figures.
local function format_lines(f)
  local state = STATES[f.state] or f.state
  if f.stale and (f.state == "starts" or f.state == "trains" or f.state == "validates") then
    state = "has ended without a word"
  end
  local lines = { ("process %d  %s  %s"):format(f.pid, f.script or "", state),
    ("  epoch   %d of %d, batch %d%s"):format(f.epoch + 1, f.epochs, f.batch,
      f.batches and " of " .. f.batches or "") }
  local function row(name, value)
    lines[#lines + 1] = value and ("  %-7s %s"):format(name, value) or nil
  end
  row("rate", f.rate and units.rate(f.rate))
  for _, pair in ipairs(f.metrics) do
    row(pair[1], ("%.6g"):format(pair[2]))
  end
  row("time", f.seconds and units.duration(f.seconds))
  row("ETA", f.eta and not f.stale and units.duration(f.eta))
  row("memory", f.memory and units.bytes(f.memory))
  row("GPU", f.gpu_memory and units.bytes(f.gpu_memory))
  local age = os.time() - (f.time or os.time())
  row("seen", (age > 2 or f.stale) and units.duration(age) .. " ago")
  return lines
end


-- Prints all running trainings of this user once.
local function show_all()
  local shown = 0
  for _, pid in ipairs(top_file.all()) do
    local figures = top_file.read(pid)
    if not figures.stale then
      print(table.concat(format_lines(figures), "\n"))
      shown = shown + 1
    end
  end
  if shown == 0 then
    print("no training of this user runs with TYCHO_TOP=1")
  end
end


local UP, CLEAR = "\27[%dA", "\27[J"

-- Shows a training until its process ends.
local function follow(pid)
  local before = 0
  while true do
    local figures = top_file.read(pid)
    local lines = format_lines(figures)
    io.stdout:write(before > 0 and UP:format(before) .. CLEAR or "", table.concat(lines, "\n"),
      "\n")
    io.stdout:flush()
    before = #lines
    if figures.stale then
      return
    end
    native.sleep(LOOK)
  end
end


local function usage(text, ...)
  io.stderr:write(("tycho --top: " .. text .. "\n"):format(...), USAGE)
  return 2
end


-- Runs the command `tycho --top`.
-- @string _ "--top"
-- @string ... the arguments after it
-- @treturn int the exit status; failures raise errors
function top.main(_, ...)
  local pid, once
  for _, word in ipairs{ ... } do
    if word == "--help" then
      io.stdout:write(USAGE)
      return 0
    elseif word == "--once" then
      once = true
    elseif word:find("^[1-9]%d*$") and #word < 10 and not pid then
      pid = tonumber(word)
    else
      return usage("'%s' is no number of a process", word)
    end
  end
  if not pid then
    show_all()
  elseif once or not native.is_terminal(1) then
    print(table.concat(format_lines(top_file.read(pid)), "\n"))
  else
    follow(pid)
  end
  return 0
end


return top
