--- Data parallelism with bare executors: `ty.executor_manager`.
--
--     local m = ty.executor_manager.DataParallelExecutorManager{ symbol = net,
--       ctx = { ty.cpu(0), ty.cpu(1) }, train_data = it }
--     m:set_params(arg_params, aux_params)
--     for batch in it do
--       m:load_data_batch(batch); m:forward(true); m:backward()
--     end
--
-- A manager has a group of executors (module/manager_group.lua) for its symbol or, with `sym_gen`,
-- one for each bucket key. All groups share the parameters, gradients, states, input buffers and
-- pool of the first one. `ty.mod` offers the same at a higher level.
--
-- @module tycho.executor_manager

local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"
local parts = require "tycho.module.manager_group"
local slices = require "tycho.module.batch_slices"
local tables = require "tycho.core.tables"

local Group = parts.DataParallelExecutorGroup

local manager = tables.copy(parts)

--- Groups of executors, one for each bucket, with common parameters.
-- @type DataParallelExecutorManager
local Manager = Class:extend("DataParallelExecutorManager")
manager.DataParallelExecutorManager = Manager

local FUNC = "executor_manager.DataParallelExecutorManager"

local NEW = args.form(FUNC, {
  { "symbol", "symbol" }, { "ctx", "list|context" }, { "train_data", "any" },
  { "arg_names", "list?" }, { "param_names", "list?" }, { "aux_names", "list?" },
  { "work_load_list", "list?" }, { "logger", "any?" }, { "sym_gen", "function?" },
})


local function work_loads(a)
  local list = a.work_load_list or tables.ones(#a.ctx)
  if #list ~= #a.ctx then
    Error.raise{ code = "value", func = FUNC, argument = "work_load_list", expected = #a.ctx,
      got = #list, message = "'work_load_list' has not one number for each context" }
  end
  return list
end


-- Returns the arguments that the iterator does not describe.
local function list_parameters(a)
  local inputs, list = {}, {}
  for _, kind in ipairs{ "provide_data", "provide_label" } do
    for _, d in ipairs(parts._provided(a.train_data, kind, FUNC)) do
      inputs[d.name] = true
    end
  end
  for _, name in ipairs(a.symbol:list_arguments()) do
    list[#list + 1] = not inputs[name] and name or nil
  end
  return list
end


-- Returns the iterator's default bucket key; raises E(name) if it has none.
local function default_key(a)
  local ok, key = attempt(function() return a.train_data.default_bucket_key end)
  if not ok or key == nil then
    Error.raise{ code = "name", func = FUNC, argument = "default_bucket_key",
      message = "with 'sym_gen' the iterator needs a 'default_bucket_key'" }
  end
  return key
end


--- @tparam table options symbol, ctx, train_data (iterator), arg_names, param_names, aux_names
--   (from the symbol by default), work_load_list, logger, sym_gen (bucket key -> symbol)
function Manager:init(...)
  local a = NEW(...)
  a.ctx = parts._contexts(a.ctx, FUNC)
  local loads = work_loads(a)
  self.symbol, self.ctx, self.logger, self.sym_gen = a.symbol, a.ctx, a.logger or log, a.sym_gen
  self.slices = slices.split(a.train_data.batch_size, loads, FUNC)
  self.arg_names = a.arg_names or a.symbol:list_arguments()
  self.aux_names = a.aux_names or a.symbol:list_auxiliary_states()
  self.execgrp = Group(a.symbol, self.arg_names, a.param_names or list_parameters(a), a.ctx,
    self.slices, a.train_data)
  self.param_names = self.execgrp.param_names
  if a.sym_gen then
    self.execgrp_bucket = { [default_key(a)] = self.execgrp }
  end
end


-- The default group's arrays, which all buckets share.
local SHARED = { param_arrays = true, grad_arrays = true, aux_arrays = true }

function Manager.__index(self, key)
  if SHARED[key] then
    return self.execgrp[key]
  end
  return Manager[key]
end


--- Installs a monitor on the executors; a manager with buckets does not support it.
function Manager:install_monitor(monitor)
  if self.sym_gen then
    Error.raise{ code = "unsupported", func = FUNC .. ":install_monitor",
      message = "monitoring does not work with sym_gen" }
  end
  for _, exe in ipairs(self.execgrp.train_execs) do
    monitor:install(exe)
  end
end


-- Returns arrays by name, from a table by name or from a list in the order of names.
local function by_name(given, names)
  if #(given or {}) == 0 then
    return given or {}
  end
  local dict = {}
  for k, name in ipairs(names) do
    dict[name] = given[k]
  end
  return dict
end


--- Copies parameters to all devices.
-- @tparam table arg_params by name, or a list in the order of param_names; an unknown name is
--   E(name)
-- @tparam table aux_params in the same form
function Manager:set_params(arg_params, aux_params)
  local arg_dict, aux_dict = by_name(arg_params, self.param_names),
    by_name(aux_params, self.aux_names)
  for _, exe in ipairs(self.execgrp.train_execs) do
    exe:copy_params_from{ arg_params = arg_dict, aux_params = aux_dict }
  end
end


-- Writes the means over devices into the given arrays.
local function copy_means(given, names, arrays)
  local dict = by_name(given, names)
  for k, name in ipairs(names) do
    if not dict[name] then
      Error.raise{ code = "name", func = FUNC .. ":copy_to", argument = name,
        candidates = attrs.keys(dict), message = ("there is no array for '%s'"):format(name) }
    end
    slices.mean(dict[name], arrays[k], FUNC .. ":copy_to", name)
  end
end


--- Writes the means over devices into arrays, converted to their element types.
-- @tparam table arg_params by name, or a list in the order of param_names; a missing name is
--   E(name)
-- @tparam table aux_params in the same form
function Manager:copy_to(arg_params, aux_params)
  copy_means(arg_params, self.param_names, self.execgrp.param_arrays)
  copy_means(aux_params, self.aux_names, self.execgrp.aux_arrays)
end


-- Returns a group for a bucket, with the manager's parameters that the bucket's symbol has.
local function bucket_group(self, net, data_batch)
  local names, known, own = net:list_arguments(), tables.positions(self.param_names), {}
  for _, name in ipairs(names) do
    own[#own + 1] = known[name] and name or nil
  end
  return Group(net, names, own, self.ctx, self.slices, data_batch, self.execgrp)
end


--- Copies a batch to the devices. With buckets it goes to the group of its key, which is made for a
-- new key, and made again for the first batch with labels.
function Manager:load_data_batch(data_batch)
  local group = self.execgrp
  if self.sym_gen then
    local key = data_batch.bucket_key
    group = self.execgrp_bucket[key]
    if not group or group ~= self.execgrp and group:lacks_labels(data_batch) then
      group = bucket_group(self, self.sym_gen(key), data_batch)
      self.execgrp_bucket[key] = group
    end
  end
  self.curr_execgrp = group
  group:load_data_batch(data_batch)
end


-- Returns the group that has the last batch; raises E(state) if none was loaded.
local function current(self, method)
  if not self.curr_execgrp then
    Error.raise{ code = "state", func = FUNC .. ":" .. method,
      message = "call load_data_batch first" }
  end
  return self.curr_execgrp
end


--- Runs the loaded batch forward.
-- @bool[opt=false] is_train
function Manager:forward(is_train)
  current(self, "forward"):forward(is_train)
end


--- Computes the gradients.
function Manager:backward()
  current(self, "backward"):backward()
end


--- Updates a metric with labels and outputs; see the group's `update_metric`.
function Manager:update_metric(metric, labels, pre_sliced)
  current(self, "update_metric"):update_metric(metric, labels, pre_sliced)
end


return namespace.close(methods.guard_all(manager), "executor_manager", "class or function")
