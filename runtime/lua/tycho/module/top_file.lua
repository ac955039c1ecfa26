--- The file in which a training describes itself for `tycho --top` (part of `fit`).
--
-- If TYCHO_TOP=1, `fit` writes a small file called PID to a folder of this user: TYCHO_TOP_DIR if
-- set, else tycho-top-UID in /dev/shm, TMPDIR or /tmp. The file is always replaced as a whole, so a
-- reader never sees a part of one, and a killed process leaves no lock. The file contains the start
-- time of its process. It is stale if the process has ended, or if another process now has its
-- number. Other users cannot read the folder, and a folder that belongs to another user is refused.
--
-- @module tycho.module.top_file

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local folder = require "tycho.ndarray.folder"
local log = require "tycho.core.log"
local native = require "tycho.core.ffi"

local top_file = {}

local FORMAT = "tycho-top 1"             -- the first line of a file
local PERIOD = 0.5                       -- seconds between two writes
local LONGEST = 65536                    -- most bytes that are read of a file

--- Returns whether the environment asks for the file.
function top_file.asked()
  return os.getenv("TYCHO_TOP") == "1"
end


-- Processes ---------------------------------------------------------------------------------------

local function read(path)
  local file = io.open(path, "rb")
  local text = file and (file:read(LONGEST) or "")
  if file then
    file:close()
  end
  return text
end


-- Returns the number of a process and its start time, in ticks since the start of the system; nil
-- if it does not exist. The program's name, in brackets, may contain spaces and brackets.
local function process(pid)
  local text = read(("/proc/%s/stat"):format(pid))
  local number, rest = (text or ""):match("^(%d+) %(.*%) (.*)$")
  local fields = {}
  for word in (rest or ""):gmatch("%S+") do
    fields[#fields + 1] = word
  end
  if number and fields[1] ~= "Z" and fields[1] ~= "X" then
    return tonumber(number), fields[20]
  end
end


-- Returns the effective user of a process; nil if there is no such process.
local function read_user(pid)
  return (read(("/proc/%s/status"):format(pid)) or ""):match("Uid:%s*%d+%s+(%d+)")
end


--- Returns the folder of this user's files, which need not exist.
-- @treturn string
function top_file.folder()
  local home = os.getenv("TYCHO_TOP_DIR")
  if home and home ~= "" then
    return home
  end
  local parent = files.exists("/dev/shm/.") and "/dev/shm" or os.getenv("TMPDIR") or "/tmp"
  return ("%s/tycho-top-%s"):format(parent, read_user("self") or "0")
end


-- Writing -----------------------------------------------------------------------------------------

local ORDER = { "state", "epoch", "epochs", "batch", "batches", "rate", "seconds", "eta", "memory",
  "gpu_memory" }

local function number_text(v)
  return type(v) == "number" and ("%.10g"):format(v) or tostring(v)
end


-- Returns the text of the file.
local function format_figures(file, figures)
  local lines = { FORMAT, "pid=" .. file.pid, "start=" .. file.start, "script=" .. file.script,
    "time=" .. os.time() }
  for _, key in ipairs(ORDER) do
    if figures[key] ~= nil then
      lines[#lines + 1] = key .. "=" .. number_text(figures[key])
    end
  end
  for _, pair in ipairs(figures.metrics or {}) do
    lines[#lines + 1] = ("metric.%s=%s"):format(tostring(pair[1]):gsub("[\n=]", "_"),
      number_text(pair[2]))
  end
  return table.concat(lines, "\n") .. "\n"
end


-- Removes the files of processes that have ended.
local function sweep(path)
  for _, name in ipairs(folder.files(path)) do
    local start = (read(path .. "/" .. name) or ""):match("\nstart=(%d+)")
    local _, now = process(name:match("^%d+$") or "none")
    if name:find("^%d+$") and now ~= start then
      os.remove(path .. "/" .. name)
    end
  end
end


local File = Class:extend("TopFile")
top_file.File = File

-- Calls f. If it cannot write the file, this is logged once and the training continues.
local function attempt(self, f)
  local ok, e = pcall(f)
  if not ok then
    if not Error.is_error(e) or e.code ~= "io" then
      error(e, 0)
    end
    self._broken = true
    log:warning("tycho --top will not see this training: " .. e.message)
  end
end


function File:init()
  local path = top_file.folder()
  self._written = -math.huge
  attempt(self, function()
    files.make_folder(path, "fit", true)
    sweep(path)
    self.pid, self.start = process("self")
    self.path = ("%s/%d"):format(path, self.pid)
    self.script = ((rawget(_G, "arg") or {})[0] or ""):gsub("[\n\r]", " ")
  end)
end


--- Replaces the file, at most twice a second unless `must` is set.
-- @tparam table figures the field `figures` of a Progress
-- @bool[opt] must
function File:write(figures, must)
  local now = tonumber(native.C.ty_profile_now()) * 1e-9
  if self._broken or not must and now - self._written < PERIOD then
    return
  end
  self._written = now
  attempt(self, function() files.write(self.path, format_figures(self, figures), "fit") end)
end


-- Reading -----------------------------------------------------------------------------------------

local function fail(code, pid, message, ...)
  Error.raise{ code = code, func = "tycho --top", argument = tostring(pid),
    message = message:format(...) }
end


-- Returns the figures in a file's text; raises E(format) if it is damaged.
local function parse(text, path, pid)
  local figures = { metrics = {} }
  if text:sub(1, #FORMAT + 1) ~= FORMAT .. "\n" then
    fail("format", pid, "'%s' is no file of a training that this version reads", path)
  end
  for key, value in text:gmatch("\n([%w_.%-]+)=([^\n]*)") do
    local metric = key:match("^metric%.(.*)$")
    if metric then
      table.insert(figures.metrics, { metric, tonumber(value) or 0 / 0 })
    else
      figures[key] = (key == "state" or key == "script" or key == "start") and value
        or tonumber(value)
    end
  end
  if not (figures.pid and figures.start and figures.epoch and figures.epochs and figures.batch
      and figures.state) then
    fail("format", pid, "'%s' is damaged", path)
  end
  return figures
end


--- Returns the figures in a training's file.
-- @int pid
-- @treturn table epoch, epochs, batch, batches, rate, eta, memory, metrics, state and others;
--   stale: whether its process has ended
-- @raise E(io): the file is missing or belongs to another user; E(format): it is damaged
function top_file.read(pid)
  local own, owner = top_file.folder(), read_user(pid)
  local path = ("%s/%d"):format(own, pid)
  if owner and owner ~= read_user("self") then
    fail("io", pid, "process %d belongs to another user", pid)
  elseif files.exists(own) then
    files.make_folder(own, "tycho --top", true)
  end
  local text = read(path)
  if not text and not owner then
    fail("io", pid, "there is no process %d", pid)
  elseif not text then
    fail("io", pid, "process %d has no training to show; it must be started with TYCHO_TOP=1", pid)
  end
  local figures = parse(text, path, pid)
  local _, start = process(pid)
  figures.stale = start ~= figures.start or nil
  return figures
end


--- Returns the processes of this user that have a file.
-- @treturn {int,...}
function top_file.all()
  local list = {}
  for _, name in ipairs(folder.files(top_file.folder())) do
    list[#list + 1] = name:find("^%d+$") and tonumber(name) or nil
  end
  table.sort(list)
  return list
end


return top_file
