--- The parameters of a Module: initial values and given values. Adds methods to Module.
--
-- @module tycho.module.parameters

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local descriptions = require "tycho.module.descriptions"
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


-- Calls f(name, store, given) for the wanted names, sorted: parameters, then auxiliary states.
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


--- Raises an error before anything is written if given parameters are missing, of another shape or
-- of another network: E(name) or E(shape) with the lists of `set_params` (not for users).
-- @tparam table own parameters by name, arrays or shapes
-- @tparam table own_auxs auxiliary states by name
-- @tparam table a checked options of init_params
function Module:_check_given(own, own_auxs, a)
  param_check.check({ own, own_auxs }, { a.arg_params, a.aux_params },
    { allow_missing = a.allow_missing, allow_extra = a.allow_extra or "some",
      what = "initialises them" }, self:_func("init_params"))
end


-- Fills an array from the given parameters, else with the initializer; returns false if there is
-- neither.
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
    class.outside(initializer, init.InitDesc(name, attrs[name], initializer), x)
  end
  return source ~= nil or initializer ~= nil
end


--- Fills parameters and auxiliary states of this module, each sorted by name (not for users).
-- @tparam ?table wanted set of names; nil: all
-- @tparam table a the options that `_check_given` checked
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


-- Returns the set of arguments whose shapes depend on the batch size.
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


--- Turns arguments without values whose shapes depend on the batch size from parameters into
-- inputs, if the module is bound for inference. Labels need no values there, so users need not name
-- them (not for users).
-- @tparam[opt] table given values that arguments are about to get, by name
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


--- Returns the set of parameters that were never given a value (not for users).
-- @treturn table set
function Module:_blank_names()
  local names = {}
  for _, store in ipairs{ self._arg_store, self._aux_store } do
    for name in pairs(store.blank) do
      names[name] = true
    end
  end
  return names
end


--- Checks parameters that were loaded from a file, after binding: missing ones raise E(name), or
-- are left to `init_params` if `allow_missing` was set (not for users).
function Module:_check_complete()
  if self._loaded == nil or next(self:_blank_names()) == nil then
    return
  end
  param_check.check({ self._arg_store:arrays(), self._aux_store:arrays() },
    { self._arg_store:given(), self._aux_store:given() },
    { allow_missing = self._loaded.allow_missing, allow_extra = true,
      what = "leaves them to init_params" }, "Module:bind")
  self._params_initialized, self._lacks_some = false, true
end


local INIT = args.form("Module:init_params", BaseModule.INIT_PARAMS)

--- Gives parameters their first values: given ones take precedence over the initializer. After a
-- load with `allow_missing`, only missing parameters get values.
-- @tparam[opt] table options initializer = Uniform(0.01), arg_params, aux_params, allow_missing =
--   false (true: a name that is not given is initialised, not E(name)), force_init = false,
--   allow_extra = false (names of other networks are ignored if some given names are this
--   network's; true: always)
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
  local wanted = self._lacks_some and not a.force_init and self:_blank_names() or nil
  self:_check_given(self._arg_store:arrays(), self._aux_store:arrays(), a)
  self:_fill_params(wanted, a, initializer)
  self._lacks_some = nil
  self:_have_params(false)
end


function Module:_own_params(given)
  self:_release_inputs(given)
  return self._arg_store:arrays(), self._aux_store:arrays()
end


local SET = args.form("Module:set_params", BaseModule.SET_PARAMS)

--- Sets parameters. A missing name is E(name) unless `allow_missing`, an unknown one unless
-- `allow_extra`. The error lists `missing`, `extra` and `mismatch` (other shapes), and nothing is
-- written.
function Module:set_params(...)
  local a = SET(...)
  if self:_is_done("set_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("set_params", "binded")
  self:_release_inputs(a.arg_params)
  param_check.check({ self._arg_store:arrays(), self._aux_store:arrays() },
    { a.arg_params or {}, a.aux_params or {} }, a, "Module:set_params")
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
