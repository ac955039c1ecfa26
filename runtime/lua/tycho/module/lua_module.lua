--- Modules without parameters, written in Lua: stages of a chain that compute with Lua functions.
--
--     local Twice = ty.mod.LuaModule:extend("Twice")
--     function Twice:_compute_output_shapes()
--       return { { "out_output", self.data_shapes[1].shape } }
--     end
--     function Twice:forward(batch) self._out = batch.data[1] * 2 end
--     function Twice:get_outputs() return { self._out } end
--
--     local loss = ty.mod.LuaLossModule{ grad_func = function(scores, labels)
--       return scores - labels
--     end }
--
-- @module tycho.module.lua_module

local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local nd = require "tycho.ndarray"
local values = require "tycho.core.values"

local null, value = values.null, values.value


-- LuaModule ------------------------------------------------------------------------------------

--- A module without parameters. Subclasses implement `_compute_output_shapes`, forward and
-- get_outputs; those that pass gradients on also backward and get_input_grads.
-- @type LuaModule
local LuaModule = BaseModule:extend("LuaModule")
LuaModule._guards_flags = true

local function raw(name)
  return function(self)
    return rawget(self, name)
  end
end

LuaModule.fields = BaseModule.extend_fields{
  data_names   = raw "_data_names",    label_names   = raw "_label_names",
  output_names = raw "_output_names",  data_shapes   = raw "_data_shapes",
  label_shapes = raw "_label_shapes",  output_shapes = raw "_output_shapes",
}

local NEW = args.form("mod.LuaModule", {
  { "data_names", "list" }, { "label_names", "list|null?" }, { "output_names", "list" },
  { "logger", "any?" },
})

function LuaModule:init(...)
  local a = NEW(...)
  LuaModule.super.init(self, { logger = a.logger })
  self._data_names, self._label_names, self._output_names =
    a.data_names, value(a.label_names) or {}, a.output_names
end


--- Returns two empty tables: the module has no parameters.
function LuaModule.get_params()
  return {}, {}
end


function LuaModule._own_params()
  return {}, {}
end


function LuaModule:init_params()
  self._params_initialized = true
end


function LuaModule:set_params()
  self._params_initialized = true
end


function LuaModule:init_optimizer()
  self._optimizer_initialized = true
end


function LuaModule.update() end

function LuaModule.install_monitor() end


--- Updates a metric with labels and outputs; does nothing if the module was bound without labels.
function LuaModule:update_metric(eval_metric, labels, pre_sliced)
  eval_metric, labels, pre_sliced =
    self:_metric_arguments(eval_metric, labels, pre_sliced)
  if not self._label_shapes then
    return
  elseif pre_sliced then
    Error.raise{ code = "unsupported", func = self:_func("update_metric"), argument = "pre_sliced",
      message = "a module of one device has no sliced labels" }
  end
  eval_metric:update(labels, self:get_outputs())
end


local BIND = args.form("LuaModule:bind", BaseModule.BIND)


local function check_order(self, descs, names, argument)
  for i = 1, math.max(#descs, #names) do
    if not descs[i] or descs[i].name ~= names[i] then
      Error.raise{ code = "name", func = self:_func("bind"), argument = argument,
        expected = table.concat(names, ", "), got = descs[i] and descs[i].name or "nothing",
        message = ("'%s' has other names than the module"):format(argument) }
    end
  end
end


--- Stores the shapes of the inputs and asks the subclass for those of the outputs.
function LuaModule:bind(...)
  local a = BIND(...)
  if not self:_begin_bind(a) then
    return
  elseif a.grad_req ~= "write" then
    Error.raise{ code = "value", func = self:_func("bind"), argument = "grad_req",
      expected = "write",
      got = Error.kind(a.grad_req), message = "a module written in Lua knows only 'write'" }
  end
  local data = descriptions.list(a.data_shapes, self:_func("bind"), "data_shapes")
  local labels = descriptions.list(a.label_shapes, self:_func("bind"), "label_shapes")
  check_order(self, data, self._data_names, "data_shapes")
  if labels then
    check_order(self, labels, self._label_names, "label_shapes")
  end
  self._for_training, self._inputs_need_grad = a.for_training, a.inputs_need_grad
  self._data_shapes, self._label_shapes = data, labels
  self._output_shapes = self:_compute_output_shapes()
  self._binded = true
end


--- Returns `{name, shape}` of each output. A subclass must define it; this one raises
-- E(unsupported).
function LuaModule:_compute_output_shapes()
  Error.raise{ code = "unsupported", func = self:_func("_compute_output_shapes"),
    message = "the subclass does not say what comes out" }
end


-- LuaLossModule --------------------------------------------------------------------------------

--- A loss at the end of a chain: its output is its input, and a function computes the gradient.
-- @type LuaLossModule
local LuaLossModule = LuaModule:extend("LuaLossModule")
LuaLossModule._guards_flags = true

local LOSS = args.form("mod.LuaLossModule", {
  { "name", "text", "pyloss" }, { "data_names", "list?" }, { "label_names", "list|null?" },
  { "logger", "any?" }, { "grad_func", "function?" },
})


local function check_one(names, argument)
  if #names ~= 1 then
    Error.raise{ code = "value", func = "mod.LuaLossModule", argument = argument,
      expected = "one name", got = #names, message = ("bad '%s'"):format(argument) }
  end
end


--- @string[opt="pyloss"] name the output is called NAME_output
-- @tparam[opt] table options data_names = {"data"}, label_names = {"softmax_label"}, grad_func:
--   scores, labels -> NDArray or nested table
function LuaLossModule:init(...)
  local a = LOSS(...)
  local data_names = a.data_names or { "data" }
  local label_names = a.label_names == null and {} or a.label_names or { "softmax_label" }
  check_one(data_names, "data_names")
  check_one(label_names, "label_names")
  LuaLossModule.super.init(self, { data_names = data_names, label_names = label_names,
    output_names = { a.name .. "_output" }, logger = a.logger })
  self._name, self._grad_func = a.name, a.grad_func
end


function LuaLossModule:_compute_output_shapes()
  return { { self._output_names[1], self._data_shapes[1].shape } }
end


--- Stores the scores and, for training, the labels.
function LuaLossModule:forward(data_batch, is_train)
  self:_need("forward", "binded")
  local batch = BaseModule._batch(data_batch, self:_func("forward"))
  self._scores = class.keep(batch.data[1])
  if is_train == nil and self._for_training or is_train then
    self._labels = class.keep(batch.label and batch.label[1])
  end
end


function LuaLossModule:get_outputs(merge_multi_context)
  return merge_multi_context == false and { { self._scores } } or { self._scores }
end


--- Computes the gradient of the scores with `grad_func`.
function LuaLossModule:backward(out_grads)
  self:_need("backward", "binded", "for_training")
  if value(out_grads) then
    Error.raise{ code = "value", func = self:_func("backward"), argument = "out_grads",
      expected = "nothing",
      got = Error.kind(out_grads), message = "a loss has no gradients from outside" }
  elseif not self._grad_func then
    Error.raise{ code = "unsupported", func = self:_func("backward"), argument = "grad_func",
      message = "the module was made without 'grad_func'" }
  elseif self._label_shapes and self._labels == nil then
    Error.raise{ code = "state", func = self:_func("backward"), argument = self._label_names[1],
      expected = "a batch with labels", got = "a batch without labels",
      message = ("the gradient needs '%s', which the last batch did not give")
        :format(self._label_names[1]) }
  end
  local grad = self._grad_func(self._scores, self._labels)
  self._grad = class.keep(class.is_array(grad) and grad
    or nd._as_array(grad, "float32", self:_func("backward")))
end


function LuaLossModule:get_input_grads(merge_multi_context)
  return merge_multi_context == false and { { self._grad } } or { self._grad }
end


return { LuaModule = LuaModule, LuaLossModule = LuaLossModule }
