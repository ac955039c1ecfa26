--- The parameters of all buckets of a BucketingModule. Adds methods to it.
--
-- Values that are given for buckets that are not bound yet are stored for them.
--
-- @module tycho.module.bucketing_parameters

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local class = require "tycho.ndarray.class"
local nd = require "tycho.ndarray"
local param_check = require "tycho.model.param_check"
local values = require "tycho.core.values"

local null = values.null

local BucketingModule = {}                               -- methods, for module/bucketing.lua


-- Calls f(module, names) for every bound bucket; `names` is the set of its parameters that no
-- earlier bucket has.
local function each_part(self, f)
  local done = {}
  for _, m in ipairs(self._met) do
    local names, some = {}, false
    for _, list in ipairs{ m._param_names, m._aux_names } do
      for _, name in ipairs(list) do
        if not done[name] then
          done[name], names[name], some = true, true, true
        end
      end
    end
    if some then
      f(m, names)
    end
  end
end


local function pick(params, names)
  local part = {}
  for name in pairs(names) do
    part[name] = params[name]
  end
  return part
end


-- Stores copies of the given values whose names no bound bucket has.
local function keep_others(kept, given, known)
  for name, x in pairs(given or {}) do
    if not known[name] then
      kept[name] = class.is_array(x) and class.keep(x:copy()) or x
    end
  end
end


-- Raises an error if a parameter of a bound bucket has no given value or one of another shape.
-- Unknown names may be those of later buckets.
local function check_given(self, a)
  param_check.check({ self._arg_store:arrays(), self._aux_store:arrays() },
    { a.arg_params, a.aux_params }, { allow_missing = a.allow_missing, allow_extra = true,
      what = "initialises them" }, "BucketingModule:init_params")
end


-- Sets the parameters of all bound buckets and stores given values of others.
local function fill_all(self, a, initializer)
  check_given(self, a)
  each_part(self, function(m, names) m:_fill_params(names, a, initializer) end)
  keep_others(self._kept_args, a.arg_params, self._arg_store:arrays())
  keep_others(self._kept_auxs, a.aux_params, self._aux_store:arrays())
  self:_have_params(false)
  for _, m in ipairs(self._met) do
    m._params_initialized = true
  end
end


local INIT = args.form("BucketingModule:init_params", BaseModule.INIT_PARAMS)

--- Gives parameters their first values; those of later buckets get theirs in the same way when the
-- buckets are bound.
-- @tparam[opt] table options as `Module:init_params`
function BucketingModule:init_params(...)
  local a = INIT(...)
  if self:_is_done("init_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("init_params", "binded")
  local initializer = BaseModule._initializer(a.initializer)
  self._chosen_initializer = initializer or self._chosen_initializer
  fill_all(self, a, initializer)
end


-- Stores given values that belong to the network's later buckets and returns the others.
local function keep_own(self, given, kept, store)
  local rest = {}
  for name, x in pairs(given or {}) do
    if self._kept_own[name] and kept[name] ~= nil and not store:on_devices(name) then
      keep_others(kept, { [name] = x }, {})
    else
      rest[name] = x
    end
  end
  return rest
end


-- Writes given values to the devices directly; names without a value keep theirs.
local function write_some(self, a)
  a.arg_params = keep_own(self, a.arg_params, self._kept_args, self._arg_store)
  a.aux_params = keep_own(self, a.aux_params, self._kept_auxs, self._aux_store)
  param_check.check({ self._arg_store:arrays(), self._aux_store:arrays() },
    { a.arg_params, a.aux_params },
    { allow_missing = true, allow_extra = a.allow_extra }, "BucketingModule:set_params")
  each_part(self, function(m, names)
    m._exec_group:set_params(pick(a.arg_params, names), pick(a.aux_params, names), true)
    m:_tell_store(a.arg_params)
    m._params_initialized = true
  end)
  self:_have_params(true)
end


--- Records that all given values belong to this network, including those for later buckets: until
-- their bucket is bound, they are part of the parameters that are read and saved (not for users).
-- @tparam ?table arg_params by name
-- @tparam ?table aux_params by name
function BucketingModule:_own_kept(arg_params, aux_params)
  for _, given in ipairs{ arg_params or {}, aux_params or {} } do
    for name in pairs(given) do
      self._kept_own[name] = true
    end
  end
end


-- Adds copies of stored values in `own` that are on no device yet.
local function add_kept(params, kept, own, store)
  for name, x in pairs(kept) do
    if own[name] and not store:on_devices(name) then
      x = class.is_array(x) and x or nd._as_array(x, "float32", "BucketingModule:get_params")
      params[name] = class.keep(x:copy())
    end
  end
end


--- Adds the network's values for buckets that are not bound yet to the parameters of the bound ones
-- (not for users).
-- @tparam table arg_params
-- @tparam table aux_params
-- @treturn table arg_params
-- @treturn table aux_params
function BucketingModule:_add_kept(arg_params, aux_params)
  add_kept(arg_params, self._kept_args, self._kept_own, self._arg_store)
  add_kept(aux_params, self._kept_auxs, self._kept_own, self._aux_store)
  return arg_params, aux_params
end


local SET = args.form("BucketingModule:set_params", BaseModule.SET_PARAMS)

--- Sets parameters. A missing name is E(name) unless `allow_missing`; names of no bound bucket are
-- kept for later ones, or, with `allow_missing`, E(name) unless `allow_extra`.
function BucketingModule:set_params(...)
  local a = SET(...)
  if self:_is_done("set_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("set_params", "binded")
  if a.allow_missing then
    return write_some(self, a)
  end
  self:_own_kept(a.arg_params, a.aux_params)
  self:init_params{ initializer = null, arg_params = a.arg_params or {},
    aux_params = a.aux_params or {}, force_init = true }
end


--- Returns the names of a bucket's parameters that no other bound bucket has (not for users).
-- @tparam Module m
-- @treturn table set
function BucketingModule:_new_names(m)
  local names = {}
  for _, part in ipairs{ { m._param_names, self._arg_store:arrays() },
      { m._aux_names, self._aux_store:arrays() } } do
    for _, name in ipairs(part[1]) do
      names[name] = not part[2][name] or nil
    end
  end
  return names
end


-- Raises an error if a loaded file lacks values for a bucket's new parameters, or has values of
-- other shapes.
local function check_new(self, m, names)
  local own, given = {}, {}
  for k, part in ipairs{ { m._param_names, m._arg_store, self._kept_args },
      { m._aux_names, m._aux_store, self._kept_auxs } } do
    own[k], given[k] = {}, {}
    for _, name in ipairs(part[1]) do
      if names[name] then
        own[k][name] = part[2]:on_devices(name)[1]
        given[k][name] = part[3][name]
      end
    end
  end
  local strict = self._loaded and not self._loaded.allow_missing
  param_check.check(own, given, { allow_missing = not strict, what = "initialises them" },
    "BucketingModule:bind")
end


--- Gives first values to the new parameters of a later bucket (not for users). If the module was
-- loaded from a file, the file must have them, unless missing ones are allowed.
-- @tparam Module m the bucket
-- @tparam table names set
function BucketingModule:_fill_new(m, names)
  m:_release_inputs(self._kept_args)
  for name in pairs(names) do
    local arrays = m._arg_store:on_devices(name) or m._aux_store:on_devices(name)
    names[name] = arrays ~= nil or nil
  end
  if next(names) then
    check_new(self, m, names)
    local a = { arg_params = self._kept_args, aux_params = self._kept_auxs, allow_missing = true }
    m:_fill_params(names, a, self._chosen_initializer or BaseModule._initializer())
  end
end


return BucketingModule
