--- Progress of a training: rate, time left, memory; the live line in a terminal (part of `fit`).
--
-- `fit` makes a Progress only if it is shown: with `progress = true`, or if TYCHO_TOP=1 asks for
-- the file that `tycho --top` reads.
--
-- @module tycho.module.progress

local C = require("tycho.core.ffi").C
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local native = require "tycho.core.ffi"
local top_file = require "tycho.module.top_file"
local units = require "tycho.core.units"

local progress = {}

local PERIOD = 0.25                      -- seconds between two refreshes
local SMOOTH = 0.7                       -- weight of the earlier rate in the smoothed one
local MOST_METRICS = 3                   -- number in the live line


local function seconds_now()
  return tonumber(C.ty_profile_now()) * 1e-9
end


-- Texts -------------------------------------------------------------------------------------------

-- Returns the first `most` pairs of names and values as text.
local function metrics_text(pairs_, prefix, most)
  local parts = {}
  for i, pair in ipairs(pairs_ or {}) do
    if i <= (most or #pairs_) then
      parts[i] = ("%s%s %.4g"):format(prefix, pair[1], pair[2])
    end
  end
  return table.concat(parts, "  ")
end


-- Joins the parts that are neither false, nil nor empty.
local function joined(parts)
  local list = {}
  for _, part in ipairs(parts) do
    list[#list + 1] = part and part ~= "" and part or nil
  end
  return table.concat(list, "  ")
end


-- Figures -----------------------------------------------------------------------------------------

--- Returns the resident memory of the process in bytes, and the memory in use on the GPUs of a list
-- of contexts; nil if the system does not report it or there is no GPU.
-- @tparam[opt] {Context,...} contexts
-- @treturn ?int,?int
function progress.memory(contexts)
  local file = io.open("/proc/self/status")
  local resident = file and tonumber(file:read("*a"):match("VmRSS:%s*(%d+) kB"))
  if file then
    file:close()
  end
  local on_gpus
  for _, ctx in ipairs(contexts or {}) do
    if ctx.device_type == "gpu" then
      local memory = ctx:memory()
      on_gpus = (on_gpus or 0) + memory.total - memory.free
    end
  end
  return resident and resident * 1024, on_gpus
end


local Progress = Class:extend("Progress")

-- Returns the number of batches in an epoch, from the iterator's size; nil if it has none.
local function expected_batches(data)
  local rows, size = rawget(data, "num_data"), rawget(data, "batch_size")
  return type(rows) == "number" and type(size) == "number" and size > 0 and math.ceil(rows / size)
    or nil
end


function Progress:init(module, a)
  self._module, self._data = module, a.train_data
  self._batches, self._epochs = expected_batches(a.train_data), a.num_epoch
  self._begin = a.begin_epoch
  self._shows = a.progress and module.logger == log and native.is_terminal(1) and log.overwrites()
  self._lines = a.progress
  self._started, self._seen, self._samples, self._done = seconds_now(), seconds_now(), 0, 0
  self._file = top_file.asked() and top_file.File(a.num_epoch) or nil
  self.figures = { epoch = a.begin_epoch, epochs = a.num_epoch, batch = 0, state = "starts" }
end


-- Returns the number of samples in a batch; 0 if it is not known.
local function samples_of(self, batch)
  local size = rawget(self._data, "batch_size")
  local first = type(batch) == "table" and batch.data and batch.data[1]
  return type(size) == "number" and size or first and first.shape[1] or 0
end


-- Returns the estimated seconds until the end of the last epoch; nil while unknown.
local function time_left(self, epoch, nbatch, now)
  if not self._batches or self._done == 0 then
    return nil
  end
  local left = (self._epochs - epoch) * self._batches - (nbatch + 1)
  return math.max(0, left) * (now - self._started) / self._done
end


-- Computes the figures that are shown: rate, time left, metrics, memory.
local function refresh(self, epoch, nbatch, metric, now)
  local f, rate = self.figures, self._samples / (now - self._seen)
  f.rate = f.rate and SMOOTH * f.rate + (1 - SMOOTH) * rate or rate
  f.epoch, f.batch, f.batches, f.state = epoch, nbatch + 1, self._batches, "trains"
  f.eta, f.seconds = time_left(self, epoch, nbatch, now), now - self._started
  f.metrics = metric:get_name_value()
  f.memory, f.gpu_memory = progress.memory(rawget(self._module, "_context"))
  self._seen, self._samples = now, 0
end


-- Lines -------------------------------------------------------------------------------------------

local function live_line(f, metrics)
  return joined{ ("epoch %d/%d"):format(f.epoch + 1, f.epochs),
    f.batches and ("batch %d/%d"):format(f.batch, f.batches) or ("batch %d"):format(f.batch),
    units.rate(f.rate), metrics_text(f.metrics, "", metrics),
    f.eta and "ETA " .. units.duration(f.eta), f.memory and units.bytes(f.memory),
    f.gpu_memory and "GPU " .. units.bytes(f.gpu_memory) }
end


-- Draws the live line with as many metrics as fit: a longer line than the terminal's width could
-- not be erased.
local function draw(f)
  local columns = (native.terminal_size(2) or 80) - 1
  local text
  for metrics = MOST_METRICS, 0, -1 do
    text = live_line(f, metrics)
    if #text <= columns then
      break
    end
  end
  log:info(text:sub(1, columns) .. "\r")
end


local function erase(self)
  if self._drawn then
    log:info("\r")
    self._drawn = false
  end
end


--- Records a batch. The display is refreshed only a few times a second, so that a short batch costs
-- one reading of the clock.
-- @int epoch
-- @int nbatch
-- @tparam EvalMetric metric
-- @param batch
function Progress:batch(epoch, nbatch, metric, batch)
  local now = seconds_now()
  self._samples, self._done = self._samples + samples_of(self, batch), self._done + 1
  if now - self._seen < PERIOD then
    return
  end
  refresh(self, epoch, nbatch, metric, now)
  if self._shows then
    draw(self.figures)
    self._drawn = true
  end
  if self._file then
    self._file:write(self.figures)
  end
end


--- Records the end of an epoch's batches, before its validation.
-- @int epoch
-- @int batches
-- @tparam table train values of metrics, a list of {name, value}
-- @number seconds
function Progress:trained(epoch, batches, train, seconds)
  local f = self.figures
  self._batches = batches
  self._train, self._seconds = train, seconds
  self._speed = batches * samples_of(self) / seconds
  f.epoch, f.batch, f.batches, f.metrics, f.state = epoch, batches, batches, train, "validates"
  f.rate = f.rate or self._speed
  if self._file then
    self._file:write(f)
  end
end


--- Logs the line of an epoch.
-- @tparam[opt] table validation values of metrics, a list of {name, value}
function Progress:epoch(validation)
  local f = self.figures
  erase(self)
  if self._lines then
    f.memory, f.gpu_memory = progress.memory(rawget(self._module, "_context"))
    self._module.logger:info(joined{ ("epoch %d/%d"):format(f.epoch + 1, f.epochs),
      metrics_text(self._train, ""), metrics_text(validation, "val-"),
      self._speed > 0 and units.rate(self._speed), units.duration(self._seconds),
      f.memory and units.bytes(f.memory),
      f.gpu_memory and "GPU " .. units.bytes(f.gpu_memory) })
  end
  self._seen, self._samples = seconds_now(), 0           -- the rate does not include validation
end


--- Ends the display at the end of the training, and writes the final state to the file.
-- @param e the error that ended it, or nil
function Progress:finish(e)
  erase(self)
  if self._file then
    self.figures.state = not e and "done"
      or Error.is_error(e) and e.code == "interrupted" and "interrupted" or "failed"
    self._file:write(self.figures, true)
  end
end


--- Returns the Progress to which `fit` reports; nil if no progress is shown.
-- @param module
-- @tparam table a options of `fit`
function progress.of(module, a)
  local speaks = not a.ranks or a.ranks:speaks()
  return (a.progress or top_file.asked()) and speaks and Progress(module, a) or nil
end


return progress
