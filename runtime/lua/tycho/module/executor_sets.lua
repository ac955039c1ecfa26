--- Sets of executors: a set is what a group has for one shape of its inputs, one executor for each
-- device. These functions read the fields of groups (module/executor_group.lua).
--
-- The last `KEPT` sets are kept, so that a smaller last batch is bound only once.
--
-- @module tycho.module.executor_sets

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local shared_arrays = require "tycho.module.shared_arrays"
local slices = require "tycho.module.batch_slices"
local values = require "tycho.core.values"

local null = values.null

local sets = {}

local FUNC = "Module:bind"                               -- who usually makes groups, for errors
local KEPT = 8                                           -- number of sets that a group keeps


-- Returns the number of rows of the batch; raises E(shape) unless all inputs with a batch axis have
-- equally many.
local function find_batch_size(data, labels)
  local size
  for _, part in ipairs{ data, labels or {} } do
    for _, d in ipairs(part) do
      local axis = descriptions.batch_axis(d)
      local n = axis >= 0 and d.shape[axis + 1]
      if n and size and n ~= size then
        Error.raise{ code = "shape", func = FUNC, argument = d.name, expected = size, got = n,
          message = ("'%s' has another batch size than the inputs before it"):format(d.name) }
      end
      size = size or n or nil
    end
  end
  return size or 1
end


-- Returns a text that is equal for equal descriptions.
local function make_key(descs)
  local parts = {}
  for k, d in ipairs(descs or {}) do
    parts[k] = tostring(d)
  end
  return table.concat(parts, " ")
end


-- Returns, for each name, a list over devices of arrays, or of {range, array} if `ranged`.
local function arrays_over_devices(set, names, ranged)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, exe in ipairs(set.execs) do
      local x = exe.arg_dict[name]
      list[k][i] = ranged and { set.slices[i], x } or x
    end
  end
  return list
end


-- Returns, for each data input, its gradients on all devices; `null` for a missing one.
local function input_grads(self, set)
  local list = {}
  for k, name in ipairs(self.data_names) do
    list[k] = {}
    for i, exe in ipairs(set.execs) do
      list[k][i] = exe.grad_dict[name] or null
    end
  end
  return list
end


-- Makes the executors of a set, one for each device, and its lists of arrays.
local function make_set(self, data, labels)
  local set = { data_shapes = data, label_shapes = labels,
    batch_size = find_batch_size(data, labels), execs = {} }
  set.slices = slices.split(set.batch_size, self.workload, FUNC)
  for i, range in ipairs(set.slices) do
    set.execs[i] = shared_arrays.bind(self, i, data, labels, range)
  end
  set.data_arrays = arrays_over_devices(set, descriptions.names(data), true)
  set.label_arrays = arrays_over_devices(set, descriptions.names(labels), true)
  set.state_arrays = arrays_over_devices(set, self.state_names, false)
  set.input_grad_arrays = self.inputs_need_grad and input_grads(self, set) or {}
  return set
end


local CURRENT = { "execs", "slices", "batch_size", "data_shapes", "label_shapes", "data_arrays",
  "label_arrays", "state_arrays", "input_grad_arrays" }

-- Moves monitors from the current executors to those of the set.
local function hand_monitors_on(self, before, set)
  for i, exe in ipairs(set.execs) do
    exe:_take_monitor(before.execs[i])
  end
  for _, monitor in ipairs(self._monitors) do
    if monitor._replace then
      monitor:_replace(before.execs, set.execs)
    end
  end
end


-- Makes a set the current one: its monitors and the fields of the group.
local function use_set(self, set)
  if self._set and self._set ~= set then
    hand_monitors_on(self, self._set, set)
  end
  for _, field in ipairs(CURRENT) do
    self[field] = set[field]
  end
  self._set = set
end


--- Frees a set's executors, except those whose pool other executors use.
function sets.drop(self, set)
  for i, exe in ipairs(set.execs) do
    if exe ~= self._shared[i].base then
      exe:free()
    end
  end
end


-- Moves a set to the front of the list of kept sets; the last one is freed if the list is too long.
local function keep_set(self, set, at)
  if at then
    table.remove(self._sets, at)
  end
  table.insert(self._sets, 1, set)
  if #self._sets > KEPT then
    sets.drop(self, table.remove(self._sets))
  end
end


-- Makes the first kept set that fits the current one, and returns whether there is one. Without
-- `label_key` any labels fit.
local function choose_kept(self, data_key, label_key)
  for at, set in ipairs(self._sets) do
    if set.data_key == data_key and (label_key == nil or set.label_key == label_key) then
      keep_set(self, set, at)
      use_set(self, set)
      return true
    end
  end
  return false
end


--- Makes the set for these descriptions the group's current one; it is bound if it is new.
-- @param self group
-- @tparam {DataDesc,...} data
-- @tparam ?{DataDesc,...} labels
function sets.choose(self, data, labels)
  local data_key, label_key = make_key(data), make_key(labels)
  if not choose_kept(self, data_key, label_key) then
    local set = make_set(self, data, labels)
    set.data_key, set.label_key = data_key, label_key
    keep_set(self, set)
    use_set(self, set)
  end
  self.label_descs = labels or self.label_descs
end


--- Makes a kept set for these data the current one, whatever its labels.
-- @param self group
-- @tparam {DataDesc,...} data
-- @treturn bool whether there is such a set
function sets.choose_by_data(self, data)
  return choose_kept(self, make_key(data), nil)
end


return sets
