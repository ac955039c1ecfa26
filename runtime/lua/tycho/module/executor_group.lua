--- One symbol on several devices: `ty.mod.DataParallelExecutorGroup`.
--
--     local g = ty.mod.DataParallelExecutorGroup{ symbol = net,
--       contexts = { ty.cpu(0), ty.cpu(1) },
--       workload = { 1, 1 }, data_shapes = { { "data", { 4, 3 } } },
--       param_names = { "fc_weight", "fc_bias" }, for_training = true, inputs_need_grad = false }
--     g:forward(batch, true)
--     g:backward()
--
-- Groups that share (`shared_group`) use the same arrays (module/shared_arrays.lua); a group may
-- have parameters that the others lack. All groups together need the intermediate memory of the
-- largest one, bound in any order; only one of them may run at a time.
--
-- A group has a set of executors for each shape that it meets (module/executor_sets.lua);
-- `label_descs` describes the labels of the last set that had any. Fields of the current set:
-- execs, slices, batch_size, data_shapes, label_shapes, data_arrays and label_arrays (for each
-- input a list over devices of `{{begin, end}, array}`), state_arrays, input_grad_arrays (for each
-- input a list over devices). Fields of the group: param_arrays, grad_arrays (nil without
-- training), aux_arrays, for each name a list over devices, with `ty.null` in place of a missing
-- gradient.
--
-- Running a group is in module/group_running.lua, its states are in module/group_states.lua.
--
-- @module tycho.module.executor_group

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local descriptions = require "tycho.module.descriptions"
local gradient_requests = require "tycho.module.gradient_requests"
local log = require "tycho.core.log"
local sets = require "tycho.module.executor_sets"
local shared_arrays = require "tycho.module.shared_arrays"
local slices = require "tycho.module.batch_slices"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null, is_plain = values.null, values.is_plain

-- bytes by which a pool grows: PAGE of base/memory.h
local PAGE = jit.arch == "x64" and 4096 or 65536

--- Executors of one symbol on a list of devices.
-- @type DataParallelExecutorGroup
local Group = Class:extend("DataParallelExecutorGroup")
Group.field_count = 48

for _, part in ipairs{ require "tycho.module.group_running",
    require "tycho.module.group_states" } do
  for name, method in pairs(part) do
    Group[name] = method
  end
end

local FUNC = "Module:bind"                               -- who usually makes groups, for errors

local FORM = args.form("mod.DataParallelExecutorGroup", {
  { "symbol", "symbol" }, { "contexts", "list|context" }, { "workload", "list?" },
  { "data_shapes", "table" }, { "label_shapes", "table?" }, { "param_names", "list" },
  { "for_training", "boolean" }, { "inputs_need_grad", "boolean" }, { "shared_group", "any?" },
  { "logger", "any?" }, { "fixed_param_names", "list?" },
  { "grad_req", "text|table", "write" }, { "state_names", "list?" }, { "group2ctxs", "table?" },
  { "memory_budget", "number?" }, { "force_mirroring", "boolean?" }, { "fuse", "function?" },
  { "loss_scale", "any?" }, { "precision", "text?" },
})


-- Making ------------------------------------------------------------------------------------------

-- Returns the parameters that updates inside backward can change: those with gradients. For a
-- gradient with the request "add" it raises E(unsupported).
local function fused_names(self, reqs)
  local names = {}
  for _, name in ipairs(self.for_training and self.param_names or {}) do
    if reqs[name] == "add" then
      Error.raise{ code = "unsupported", func = FUNC, argument = name,
        expected = "grad_req = 'write'", got = "add",
        message = "a gradient that adds up cannot be used inside backward" }
    end
    names[#names + 1] = reqs[name] == "write" and name or nil
  end
  return names
end


-- Chooses the gradient requests of the arguments, and the symbol that is bound. Parameters that
-- backward itself updates have the request "null".
local function choose_requests(self, fuse, loss_scale)
  local reqs = gradient_requests.read(self, self._asked)
  local names = fuse and fused_names(self, reqs) or {}
  local fusion = #names > 0 and fuse(names) or nil
  for _, name in ipairs(fusion and names or {}) do
    reqs[name] = "null"
  end
  self._reqs, self.grad_req, self._fusion = reqs, reqs, fusion
  self._loss_scale = loss_scale
  self._bound_symbol = fusion and fusion.symbol
    or loss_scale and self.for_training and loss_scale.make_symbol(self.symbol) or self.symbol
end


-- Returns, for each name, a list over devices of the shared arrays of a kind: "args", "grads" or
-- "auxs"; `ty.null` for a gradient that is not requested.
local function over_devices(self, names, kind)
  local list = {}
  for k, name in ipairs(names) do
    list[k] = {}
    for i, shared in ipairs(self._shared) do
      local wanted = kind ~= "grads" or self._reqs[name] ~= "null"
      list[k][i] = wanted and shared[kind][name] or null
    end
  end
  return list
end


local function check_workload(self)
  if #self.workload ~= #self.contexts then
    Error.raise{ code = "value", func = FUNC, argument = "workload", expected = #self.contexts,
      got = #self.workload, message = "'workload' has not one number for each context" }
  end
end


-- Takes the arrays of another group, or makes an empty set of arrays for each device.
local function share_arrays(self, group)
  if group and #group._shared < #self.contexts then
    Error.raise{ code = "value", func = FUNC, argument = "shared_group", expected = #self.contexts,
      got = #group._shared,
      message = "the shared group has fewer executors than there are contexts" }
  end
  self._shared = {}
  for i = 1, #self.contexts do
    self._shared[i] = group and group._shared[i] or shared_arrays.new()
  end
end


-- Returns the arguments that are neither parameters nor data nor states: the labels, with or
-- without a description.
local function label_arguments(self)
  local known, list = tables.positions(self.data_names), {}
  for _, name in ipairs(self.state_names) do
    known[name] = true
  end
  for _, name in ipairs(self.arg_names) do
    list[#list + 1] = not (known[name] or self._is_param[name]) and name or nil
  end
  return list
end


-- Raises E(name) if two variables have the same name, since arrays are found by name.
local function check_names(names)
  local seen = {}
  for _, name in ipairs(names) do
    if seen[name] then
      Error.raise{ code = "name", func = FUNC, argument = name,
        message = ("two variables are called '%s', and arrays are found by name: read one \z
          variable twice"):format(name) }
    end
    seen[name] = true
  end
end


function Group:init(...)
  local a = FORM(...)
  self.symbol, self.logger = a.symbol, a.logger or log
  self.contexts = is_plain(a.contexts) and tables.copy(a.contexts) or { a.contexts }
  self.workload = a.workload and tables.copy(a.workload) or tables.ones(#self.contexts)
  check_workload(self)
  self.arg_names, self.aux_names = a.symbol:list_arguments(), a.symbol:list_auxiliary_states()
  check_names(self.arg_names)
  check_names(self.aux_names)
  self.output_names, self._attrs = a.symbol:list_outputs(), symbol._variable_attrs(a.symbol)
  self._is_arg, self._is_param = tables.positions(self.arg_names), tables.positions(a.param_names)
  self._is_aux = tables.positions(self.aux_names)
  self.param_names = {}
  for _, name in ipairs(self.arg_names) do
    self.param_names[#self.param_names + 1] = self._is_param[name] and name or nil
  end
  self.for_training, self.inputs_need_grad = a.for_training, a.inputs_need_grad
  self.fixed_param_names, self.state_names =
    tables.copy(a.fixed_param_names), tables.copy(a.state_names)
  self._group2ctxs = shared_arrays.group_contexts(a.group2ctxs, #self.contexts)
  self._memory_budget, self._force_mirroring, self._precision =
    a.memory_budget, a.force_mirroring, a.precision
  local data = descriptions.list(a.data_shapes, FUNC, "data_shapes")
  local labels = descriptions.labels(a.label_shapes, FUNC)
  self.data_names, self.label_names = descriptions.names(data), descriptions.names(labels)
  self._asked, self._monitors, self._sets = a.grad_req, {}, {}
  self._label_arguments = label_arguments(self)
  choose_requests(self, a.fuse, a.loss_scale)
  self:_find_output_axes()
  share_arrays(self, a.shared_group)
  sets.choose(self, data, labels)
  self.param_arrays = over_devices(self, self.param_names, "args")
  self.grad_arrays = self.for_training and over_devices(self, self.param_names, "grads") or nil
  self.aux_arrays = over_devices(self, self.aux_names, "auxs")
end


-- Returns whether an executor is that of device i in one of the sets of a list.
local function is_of(list, i, exe)
  for _, set in ipairs(list) do
    if set.execs[i] == exe then
      return true
    end
  end
  return false
end


local REQUESTED = { "_reqs", "grad_req", "_fusion", "_loss_scale", "_bound_symbol", "_sets" }

-- Replaces all executors by ones with other gradient requests, and returns the old sets. If this
-- fails, nothing is changed.
local function bind_again(self, fuse, loss_scale)
  local before = {}
  for _, field in ipairs(REQUESTED) do
    before[field] = self[field]
  end
  self._sets = {}
  local ok, e = pcall(function()
    local guessed = self._set.guessed
    choose_requests(self, fuse, loss_scale)
    sets.choose(self, self.data_shapes, self.label_shapes)
    self._set.guessed = guessed
  end)
  if not ok then
    for _, field in ipairs(REQUESTED) do
      self[field] = before[field]
    end
    error(e, 0)
  end
  return before._sets
end


-- Binds again for other gradient requests and frees the old executors.
local function rebind(self, fuse, loss_scale)
  local old = bind_again(self, fuse, loss_scale)
  for i, shared in ipairs(self._shared) do
    shared.base = is_of(old, i, shared.base) and self.execs[i] or shared.base
    shared_arrays.drop_gradients(self, shared)
  end
  for _, set in ipairs(old) do
    sets.drop(self, set)
  end
  self.grad_arrays = self.for_training and over_devices(self, self.param_names, "grads") or nil
end


--- Puts the optimizer's updates into backward, or removes them from it if `fuse` is nil (not for
-- users).
-- @tparam ?function fuse names of parameters -> symbol, find_array, backward; see
--   module/fused_update.lua
function Group:fuse(fuse)
  rebind(self, fuse, nil)
end


--- Turns the scaling of gradients on or off (not for users).
-- @tparam ?LossScale loss_scale see module/loss_scale.lua
function Group:scale_loss(loss_scale)
  rebind(self, nil, loss_scale)
end


--- Turns parameters into inputs (not for users).
-- @tparam table names set
function Group:release(names)
  local kept = {}
  for _, name in ipairs(self.param_names) do
    kept[#kept + 1] = not names[name] and name or nil
    self._is_param[name] = not names[name] and self._is_param[name] or nil
  end
  self.param_names, self.param_arrays = kept, over_devices(self, kept, "args")
end


-- Finds the batch axis of each output, from 0, in the layout of the output; 0 without a layout, -1
-- for a layout without a batch axis.
function Group:_find_output_axes()
  self._output_axes = {}
  for i = 1, #self.symbol do
    local layout = self.symbol[i]:attr("__layout__")
    self._output_axes[i] = layout and (layout:find("N", 1, true) or 0) - 1 or 0
  end
end


--- Chooses executors for other shapes of the inputs; parameters are kept. Executors of recently
-- used shapes are used again.
-- @tparam table data_shapes descriptions
-- @tparam[opt] table label_shapes descriptions
function Group:reshape(data_shapes, label_shapes)
  sets.choose(self, descriptions.list(data_shapes, "Module:reshape", "data_shapes"),
    descriptions.labels(label_shapes, "Module:reshape"))
end


--- Chooses executors that were made before for these data, whatever their labels (not for users).
-- @tparam {DataDesc,...} data
-- @treturn bool whether such executors exist
function Group:choose_by_data(data)
  return sets.choose_by_data(self, data)
end


--- Records that the shapes of the current labels are derived from those of earlier batches (not for
-- users).
function Group:guess_labels()
  self._set.guessed = true
end


--- Returns whether the shapes of the current labels were derived, not given (not for users).
function Group:has_guessed_labels()
  return self._set.guessed == true
end


-- Parameters --------------------------------------------------------------------------------------

--- Copies parameters to all devices.
-- @tparam table arg_params by name; missing ones stay as they are
-- @tparam[opt] table aux_params
-- @bool[opt=false] allow_extra unknown names are ignored instead of E(name)
function Group:set_params(arg_params, aux_params, allow_extra)
  for _, exe in ipairs(self.execs) do
    exe:copy_params_from(arg_params, aux_params, allow_extra)
  end
end


--- Writes the means over devices into arrays, converted to their element types.
-- @tparam table arg_params arrays by name
-- @tparam table aux_params arrays by name
-- @tparam[opt] table done set of names that are skipped; written names are added to it
function Group:get_params(arg_params, aux_params, done)
  done = done or {}
  for _, part in ipairs{ { self.param_names, self.param_arrays, arg_params },
                         { self.aux_names, self.aux_arrays, aux_params } } do
    for k, name in ipairs(part[1]) do
      if part[3][name] and not done[name] then
        done[name] = true
        slices.mean(part[3][name], part[2][k], "Module:get_params", name)
      end
    end
  end
end


-- Watching ----------------------------------------------------------------------------------------

--- Installs a monitor, which always watches the executors of the current shapes.
function Group:install_monitor(monitor)
  self._monitors[#self._monitors + 1] = monitor
  for _, exe in ipairs(self.execs) do
    monitor:install(exe)
  end
end


--- Returns numbers of bytes over all devices: planned (of the current executors), pages (the same,
-- rounded up to whole pages as in pools), pool (what all sharing executors use together), params,
-- grads, aux.
function Group:memory()
  local m = { planned = 0, pages = 0, pool = 0, params = 0, grads = 0, aux = 0 }
  for i, exe in ipairs(self.execs) do
    local of_exe, shared = exe:memory(), self._shared[i]
    m.planned, m.pool = m.planned + of_exe.planned, m.pool + of_exe.pool
    m.pages = m.pages + math.ceil(of_exe.planned / PAGE) * PAGE
    for kind, field in pairs{ args = "params", grads = "grads", auxs = "aux" } do
      for _, x in pairs(shared[kind]) do
        m[field] = m[field] + x._size * class.BYTES[x._dtype]
      end
    end
  end
  return m
end


--- Frees all executors of this group, but no arrays and no memory that other groups use.
function Group:free()
  for _, set in ipairs(self._sets) do
    sets.drop(self, set)
  end
  self._sets = {}
end


return Group
