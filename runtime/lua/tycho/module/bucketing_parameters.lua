--- The parameters of all buckets of a BucketingModule. Adds methods to it.
--
-- Values given for buckets that are not bound yet are kept for them.
--
-- @module tycho.module.bucketing_parameters

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local BaseModule = require "tycho.module.base"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local null = values.null

local BucketingModule = {}                               -- methods, for module/bucketing.lua


-- Calls f(module, names) for every bound bucket, with the set of its parameters
-- that no bucket before it had.
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


-- Keeps what belongs to no bound bucket.
local function keep_others(kept, given, known)
  for name, x in pairs(given or {}) do
    if not known[name] then
      kept[name] = class.is_array(x) and x:copy() or x
    end
  end
end


local function fill_all(self, a, initializer)
  each_part(self, function(m, names) m:_check_params(names, a) end)
  each_part(self, function(m, names) m:_fill_params(names, a, initializer) end)
  keep_others(self._kept_args, a.arg_params, self._arg_store:arrays())
  keep_others(self._kept_auxs, a.aux_params, self._aux_store:arrays())
  self:_have_params(false)
  for _, m in ipairs(self._met) do
    m._params_initialized = true
  end
end


local INIT = args.form("BucketingModule:init_params", BaseModule.INIT_PARAMS)

--- Gives parameters their first values; those of later buckets get theirs in
-- the same way when they come.
-- @tparam[opt] table options as `Module:init_params`
function BucketingModule:init_params(...)
  local a = INIT(...)
  if self:_is_done("init_params", "params_initialized", a.force_init) then
    return
  end
  self:_need("init_params", "binded")
  local initializer = BaseModule._initializer(a.initializer)
  self._initializer = initializer or self._initializer
  fill_all(self, a, initializer)
end


-- Writes given values straight to the devices.
local function write_some(self, a)
  for _, part in ipairs{ { a.arg_params, self._arg_store:arrays() },
      { a.aux_params, self._aux_store:arrays() } } do
    for name in pairs(part[1] or {}) do
      if not part[2][name] and not a.allow_extra then
        Error.unknown{ func = "BucketingModule:set_params", argument = name,
          what = "parameter", among = part[2] }
      end
    end
  end
  each_part(self, function(m, names)
    m._exec_group:set_params(pick(a.arg_params or {}, names), pick(a.aux_params or {}, names), true)
    m:_tell_store(a.arg_params or {})
    m._params_initialized = true
  end)
  self:_have_params(true)
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
  self:init_params{ initializer = null, arg_params = a.arg_params or {},
    aux_params = a.aux_params or {}, force_init = true }
end


--- Names of parameters of a bucket that no bound one has (not for users).
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


--- Gives first values to parameters that a later bucket brings (not for users).
-- @tparam Module m the bucket
-- @tparam table names set
function BucketingModule:_fill_new(m, names)
  if next(names) then
    local a = { arg_params = self._kept_args, aux_params = self._kept_auxs, allow_missing = true }
    m:_fill_params(names, a, self._initializer or BaseModule._initializer())
  end
end


return BucketingModule
