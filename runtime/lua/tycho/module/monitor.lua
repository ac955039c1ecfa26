--- Watching values while a network runs: `ty.monitor`.
--
--     local mon = ty.monitor.Monitor{ 10, pattern = ".*weight" }
--     mod:install_monitor(mon)
--     mon:tic(); mod:forward_backward(batch)
--     for _, entry in ipairs(mon:toc()) do print(unpack(entry)) end      --> step, name, text
--
-- In every interval-th step, between `tic` and `toc`, the outputs of all nodes are reported,
-- including those of backward nodes; `toc` adds the arguments and auxiliary states of the executors
-- that ran. The reported step counts from 1.
--
-- @module tycho.monitor

local iterate = require "tycho.core.iterate"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local Executor = require("tycho.executor.executor").Executor
local log = require "tycho.core.log"
local name_values = require "tycho.core.name_values"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local regex = require "tycho.core.regex"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"
require "tycho.ndarray"

--- A monitor of executors. Fields: interval, step, activated, exes, queue.
-- @type Monitor
local Monitor = Class:extend("Monitor")

local NEW = args.form("monitor.Monitor", {
  { "interval", "integer" }, { "stat_func", "function?" }, { "pattern", "text|function", ".*" },
  { "sort", "boolean", false }, { "monitor_all", "boolean", false },
})


-- Returns the root mean square of an array.
local function root_mean_square(x)
  local norm = x:norm()
  return norm / math.sqrt(x.size)
end


--- @int interval number of steps from one watched step to the next
-- @tparam[opt] function stat_func array -> array or list of arrays; default: the root mean square
-- @param[opt=".*"] pattern regular expression of names (`"fc\\d_(weight|bias)"`), matched from the
--   start, or a function of the name
-- @bool[opt=false] sort by name
-- @bool[opt=false] monitor_all whether inputs of nodes are reported too
function Monitor:init(...)
  local a = NEW(...)
  self.interval, self.stat_func, self.sort =
    math.max(a.interval, 1), a.stat_func or root_mean_square, a.sort
  self.matches = regex.matcher(a.pattern, "monitor.Monitor", "pattern")
  self.monitor_all = a.monitor_all
  self.activated, self.step, self.queue, self.exes, self._ran = false, 0, {}, {}, {}
end


-- Adds the statistic of an array whose name matches. It is computed at once, since the array is
-- valid only during the call.
local function take(self, name, x)
  if self.matches(name) then
    self.queue[#self.queue + 1] = { self.step, name, class.keep(self.stat_func(x)) }
  end
end


local watcher = iterate.alike(function(self, index)
  return function(name, x)
    if self.activated then
      self._ran[index] = true
      take(self, name, x)
    end
  end
end)


--- Watches an executor.
-- @tparam Executor exe
function Monitor:install(exe)
  if not Class.is_a(exe, Executor) then
    Error.raise{ code = "type", func = "Monitor:install", argument = "exe",
      expected = "an Executor", got = Error.kind(exe), message = "bad 'exe'" }
  end
  local index = #self.exes + 1
  exe:set_monitor_callback(watcher(self, index), self.monitor_all)
  self.exes[index] = exe
end


--- Watches executors in place of earlier ones, whose callbacks they have taken over (not for
-- users).
-- @tparam {Executor,...} before
-- @tparam {Executor,...} now
function Monitor:_replace(before, now)
  local index_of = tables.positions(before)
  for i, exe in ipairs(self.exes) do
    self.exes[i] = now[index_of[exe]] or exe
  end
end


-- Calls f(self, name, array) for every argument and auxiliary state of the executors that ran in
-- this step, or of all if none ran. Executors of other buckets share these parameters. Freed
-- executors are left out.
local function each_array(self, f)
  local all = iterate.next(self._ran) == nil
  for index, exe in ipairs(self.exes) do
    local wanted = (all or self._ran[index]) and rawget(exe, "_handle")
    for _, part in ipairs(wanted and { { exe._names.arguments, exe.arg_arrays },
        { exe._names.auxiliary, exe.aux_arrays } } or {}) do
      for i, name in ipairs(part[1]) do
        if values.value(part[2][i]) then
          f(self, name, part[2][i])
        end
      end
    end
  end
end


local function wait(_, _, x)
  x:wait_to_read()
end


--- Begins a step.
function Monitor:tic()
  if self.step % self.interval == 0 then
    self._ran = {}
    each_array(self, wait)
    self.queue, self.activated = {}, true
  end
  self.step = self.step + 1
end


local function fail_stat(name, v)
  Error.raise{ code = "type", func = "Monitor:toc", argument = "stat_func",
    expected = "an NDArray or a list of them",
    got = Error.kind(v), message = ("bad statistic of '%s'"):format(name) }
end


-- Returns a statistic as text: for each of its arrays a number if it has one element, else the
-- array's text, followed by a tab.
local function stat_text(name, stat)
  local list, texts = class.is_array(stat) and { stat } or stat, {}
  if not values.is_plain(list) then
    fail_stat(name, stat)
  end
  for i, x in ipairs(list) do
    if not class.is_array(x) then
      fail_stat(name, x)
    end
    texts[i] = (x.size == 1 and ("%.8g"):format(x:asscalar()) or tostring(x)) .. "\t"
  end
  return table.concat(texts)
end


--- Ends a step.
-- @treturn table list of `{step, name, text}`; empty when the step was not watched
function Monitor:toc()
  if not self.activated then
    return {}
  end
  self.activated = false
  each_array(self, take)
  local queue, list = self.queue, {}
  self.queue = {}
  for i, row in ipairs(queue) do
    list[i] = { row[1], row[2], stat_text(row[2], row[3]), i }
  end
  if self.sort then
    table.sort(list, function(a, b)
      if a[2] ~= b[2] then
        return a[2] < b[2]
      end
      return a[4] < b[4]
    end)
  end
  for _, row in ipairs(list) do
    row[4] = nil
  end
  return name_values(list)
end


--- Ends a step and logs the recorded values.
function Monitor:toc_print()
  for _, row in ipairs(self:toc()) do
    log:info(("Batch: %7d %30s %s"):format(row[1], row[2], row[3]))
  end
end


return namespace.close(methods.guard_all({ Monitor = Monitor }), "monitor", "class")
