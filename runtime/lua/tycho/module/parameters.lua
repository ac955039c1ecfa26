--- The parameters of a Module: first values, given values. Adds methods to Module.
--
-- @module tycho.module.parameters

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local next = require("tycho.core.iterate").next
local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
local Error = require "tycho.core.error"
local init = require "tycho.initializer"
local nd = require "tycho.ndarray"
local param_check = require "tycho.model.param_check"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local null = values.null

local Module = {}                                        -- methods, for module/module.lua


local function sorted(names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = name
  end
  table.sort(list)
  return list
end


-- Calls f(name, values, given) for the wanted names, in order: parameters, then auxiliary states.
local function each_wanted(self, wanted, a, f)
  for _, part in ipairs{ { self._param_names, self._arg_store, a.arg_params },
                         { self._aux_names, self._aux_store, a.aux_params } } do
    for _, name in ipairs(sorted(part[1])) do
      if not wanted or wanted[name] then
        f(name, part[2], part[3])
      end
    end
  end
end


--- Refuses given parameters that are missing or of another shape, before
-- anything is written (not for users).
-- @tparam table wanted which ones: a set, or nil for all
-- @tparam table a checked options of init_params
function Module:_check_params(wanted, a)
  param_check.check_names(a.arg_params, "Module:init_params")
  param_check.check_names(a.aux_params, "Module:init_params")
  each_wanted(self, wanted, a, function(name, own, given)
    local source, shape = given and given[name], own:shape(name)
    if given and source == nil and not a.allow_missing then
      Error.raise{ code = "name", func = "Module:init_params", argument = name,
        message = ("'%s' is not among the given parameters (allow_missing = true initialises it)")
          :format(name) }
    elseif class.is_array(source) and not tables.same(source.shape, shape) then
      Error.raise{ code = "shape", func = "Module:init_params", argument = name, expected = shape,
        got = source.shape, message = "the shapes differ" }
    end
  end)
end


-- Fills an array from the given parameters or by the initializer; whether there was one of these.
local function fill_one(x, name, given, initializer, attrs)
  local source = given and given[name]
  if source ~= nil then
    if not class.is_array(source) then
      source = nd._as_array(source, x.dtype, "Module:init_params")
    end
    if source ~= x then
      call.copy(x, source, "Module:init_params", name)
    end
  elseif initializer then
    initializer(init.InitDesc(name, attrs[name], initializer), x)
  end
  return source ~= nil or initializer ~= nil
end


--- Fills parameters of this module, in order of their names (not for users).
-- @tparam table wanted
-- @tparam table a as `_check_params` had them
-- @param initializer
function Module:_fill_params(wanted, a, initializer)
  local attrs = self._symbol:attr_dict()
  each_wanted(self, wanted, a, function(name, own, given)
    own:fill(name, function(x)
      return fill_one(x, name, given, initializer, attrs)
    end)
  end)
  self:_tell_store(self._arg_store:arrays())
end


-- Arguments whose shapes follow from the size of the batch.
local function batch_arguments(self)
  local shapes, names = {}, {}
  for _, d in ipairs(self._exec_group.data_shapes) do
    local shape, axis = tables.copied(d.shape), descriptions.batch_axis(d)
    if axis >= 0 then
      shape[axis + 1] = 0
    end
    shapes[d.name] = shape
  end
  local found = self._symbol:infer_shape_partial(shapes)
  for i, name in ipairs(self._symbol:list_arguments()) do
    names[name] = not tables.is_known(found[i]) or nil
  end
  return names
end


--- Inference needs no labels, and users need not name them: arguments that got no values, and whose
-- shapes follow from the size of the batch, are inputs (not for users).
-- @tparam[opt] table given values that they are about to get, by name
function Module:_release_inputs(given)
  if self._for_training or next(self._arg_store.blank) == nil then
    return
  end
  local is_input, kept = {}, {}
  local of_batch = batch_arguments(self)
  for _, name in ipairs(self._param_names) do
    is_input[name] = self._arg_store.blank[name] and of_batch[name]
      and (given == nil or given[name] == nil)
    kept[#kept + 1] = not is_input[name] and name or nil
  end
  if #kept < #self._param_names then
    self._param_names = kept
    self._arg_store:forget(is_input)
    self._exec_group:release(is_input)
  end
end


local INIT = args.form("Module:init_params", BaseModule.INIT_PARAMS)

--- Gives parameters their first values: given ones win over the initializer.
-- @tparam[opt] table options initializer = Uniform(0.01), arg_params, aux_params,
--   allow_missing = false (a name that is not among given parameters is initialised instead of
--   E(name)), force_init = false, allow_extra
function Module:init_params(...)
  local a = INIT(...)
  if self:_is_done("init_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("init_params", "binded")
  if a.arg_params then
    self:_release_inputs(a.arg_params)
  end
  local initializer = BaseModule._initializer(a.initializer)
  self:_check_params(nil, a)
  self:_fill_params(nil, a, initializer)
  self:_have_params(false)
end


local SET = args.form("Module:set_params", BaseModule.SET_PARAMS)

--- Sets parameters. A missing name is E(name) unless `allow_missing`, an unknown one unless
-- `allow_extra`; the error lists `missing`, `extra` and `mismatch` (other shapes), and
-- nothing has been written then.
function Module:set_params(...)
  local a = SET(...)
  if self:_is_done("set_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("set_params", "binded")
  self:_release_inputs(a.arg_params)
  param_check.check({ self._arg_store:arrays(), self._aux_store:arrays() },
    { a.arg_params, a.aux_params }, a, "Module:set_params")
  if not a.allow_missing then
    return self:init_params{ initializer = null, arg_params = a.arg_params or {},
      aux_params = a.aux_params or {}, force_init = true }
  end
  self._exec_group:set_params(a.arg_params or {}, a.aux_params or {}, true)
  self._arg_store:written(a.arg_params or {})
  self:_tell_store(a.arg_params or {})
  self:_have_params(true)
end


return Module
