--- A parameter of a block: one array per device, with its gradient.
--
-- Its shape may have unknown sizes, written 0. The arrays are then made at the first call of the
-- block, whose inputs determine the sizes (deferred initialization).
--
-- @classmod ty.gluon.Parameter

local next = require("tycho.core.iterate").next
local args = require "tycho.core.args"
local as_list = require "tycho.core.list"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local devices = require "tycho.gluon.devices"
local Error = require "tycho.core.error"
local init = require "tycho.initializer"
local left_out = require "tycho.gluon.left_out"
local log = require "tycho.core.log"
local modes = require "tycho.autograd.modes"
local nd = require "tycho.ndarray"
local recording = require "tycho.ndarray.recording"
local sym = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local NDArray, Symbol, Context = class.NDArray, sym.Symbol, context.Context
local getmetatable, rawget, rawset = getmetatable, rawget, rawset

--- A parameter. Fields: name (read-only), grad_req ("write", "add" or "null"), dtype, shape (only
-- unknown sizes can be set), lr_mult and wd_mult (factors of the learning rate and of the weight
-- decay), init.
local Parameter = Class:extend("Parameter")

-- Implements `__call` of classes: makes a parameter. It reads `init` from the class, since the
-- field `p.init` is the parameter's initializer.
local function construct_parameter(kind, ...)
  local p = setmetatable({}, kind)
  kind.init(p, ...)
  return p
end

--- Returns a subclass.
-- @string[opt] name of the class, by default the base's
-- @treturn table class
function Parameter:extend(name)
  local kind = Class.extend(self, name)
  getmetatable(kind).__call = construct_parameter
  return kind
end

getmetatable(Parameter).__call = construct_parameter

-- Checks ------------------------------------------------------------------------------------------

local REQUESTS = { write = true, add = true, null = true }

local function check_grad_req(word)
  if not REQUESTS[word] then
    Error.raise{ code = "value", func = "gluon.Parameter", argument = "grad_req",
      expected = "write, add or null", got = Error.show(word), message = "bad 'grad_req'" }
  end
end


-- Raises E(unsupported) for sparse storage, which the reference has.
local function check_stype(word, argument, func)
  if word ~= nil and word ~= "default" then
    Error.raise{ code = "unsupported", func = func, argument = argument, expected = "default",
      got = Error.show(word), message = "sparse storage is not part of Tycho; leave it out" }
  end
end


-- Returns whether a shape is given and has no size of 0.
local function is_known(shape)
  if not shape then
    return false
  end
  for i = 1, #shape do
    if shape[i] == 0 then
      return false
    end
  end
  return true
end


-- Returns the initializer of a name, or the given one; nil for nil. An unknown name is E(name).
local function make_initializer(v)
  return v ~= nil and init.create(v) or nil
end


-- Calls f with recording off.
local function run_unrecorded(f, ...)
  return modes.run(false, recording.training, f, ...)
end


-- Making ------------------------------------------------------------------------------------------

local FORM = args.form("gluon.Parameter", {
  { "name", "text" }, { "grad_req", "any", "write" }, { "shape", "shape?" },
  { "dtype", "dtype?" }, { "lr_mult", "number", 1 }, { "wd_mult", "number", 1 },
  { "init", "any?" }, { "allow_deferred_init", "boolean", false },
  { "differentiable", "boolean", true }, { "stype", "any?" }, { "grad_stype", "any?" },
})


-- The reference's text for the dtype of a parameter without one.
local DEFAULT = "<class 'numpy.float32'>"

--- @string name
-- @tparam[opt] table options grad_req = "write" ("add": gradients are summed until `zero_grad`,
--   "null": none), shape (0: an unknown size), dtype = "float32", lr_mult = 1, wd_mult = 1, init
--   (an initializer or its name), allow_deferred_init = false: true lets `initialize` wait for
--   unknown sizes; differentiable = true: false fixes grad_req to "null"
function Parameter:init(...)
  local a = FORM(...)
  check_grad_req(a.grad_req)
  check_stype(a.stype, "stype", "gluon.Parameter")
  check_stype(a.grad_stype, "grad_stype", "gluon.Parameter")
  make_initializer(a.init)
  rawset(self, "_name", a.name)
  rawset(self, "_differentiable", a.differentiable)
  rawset(self, "_grad_req", a.differentiable and a.grad_req or "null")
  rawset(self, "_shape", a.shape)
  rawset(self, "_dtype", a.dtype or "float32")
  rawset(self, "_dtype_text", a.dtype or DEFAULT)
  rawset(self, "_lr_mult", a.lr_mult)
  rawset(self, "_wd_mult", a.wd_mult)
  rawset(self, "_init", a.init)
  rawset(self, "_allow_deferred", a.allow_deferred_init)
  rawset(self, "_version", 0)
end


-- Private fields that may be nil: `_data` (list of arrays), `_by_device` (device -> array),
-- `_deferred` (the arguments of initialize, while a size is unknown), `_var`.


--- Returns the parameter as text: "Parameter dense0_weight (shape=(3, 0), dtype=float32)".
function Parameter:__tostring()
  local shape = self._shape
  local text = "None"
  if shape then
    text = "(" .. table.concat(shape, ", ") .. (#shape == 1 and ",)" or ")")
  end
  return ("%s %s (shape=%s, dtype=%s)"):format(self.class_name, self.name, text, self._dtype_text)
end


-- First values ------------------------------------------------------------------------------------

local function fail_uninitialized(self, func)
  Error.raise{ code = "state", func = func, argument = self.name,
    message = ("parameter '%s' has not been initialized; call net:initialize() first (parameters \z
      are best initialized and handed to a Trainer through net:collect_params())")
      :format(self.name) }
end


local function fail_deferred(self, func)
  Error.raise{ code = "state", func = func, argument = self.name,
    message = ("parameter '%s' waits for its shape, %s: call the block with a batch first, or \z
      give the sizes (in_units, in_channels ...) when it is made")
      :format(self.name, Error.show(self._shape or {})) }
end


-- Attaches a gradient to an array, or removes it, according to grad_req.
local function attach_gradient(self, x)
  if self._grad_req ~= "null" then
    x:attach_grad(self._grad_req)
  elseif x.grad then
    x:attach_grad("null")
  end
end


-- Counts a change of the values, so that Trainers update the copies in their stores.
local function note_values(self)
  rawset(self, "_version", self._version + 1)
end


-- Sets the parameter's arrays, one per device, with gradients. Scopes (`ty.scope`) do not free
-- them.
local function set_arrays(self, list)
  note_values(self)
  local by_device = {}
  for _, x in ipairs(list) do
    by_device[x._device] = class.keep(x)
    class.make_lasting(x)
    attach_gradient(self, x)
  end
  rawset(self, "_data", list)
  rawset(self, "_by_device", by_device)
  rawset(self, "_deferred", nil)
end


-- Returns copies of an array, one per device; with `keep`, the array itself on its own device.
local function copy_to_devices(ctx, x, keep)
  local list = {}
  for i, c in ipairs(ctx) do
    list[i] = keep and c == x.context and x or x:copyto(c)
  end
  return list
end


-- Fills an array with the initializer `how`, with its rule for weights whatever the parameter's
-- name is. An initializer without such a rule (Mixed, Load) chooses by the name. default: the
-- initializer of `initialize`, whose setting `verbose` applies.
local function fill_array(self, how, default, x)
  local desc = init.InitDesc(self.name, {}, default)
  local rule = how._init_weight
  if rule and rule ~= init.Initializer._init_weight then
    rule(how, desc, x)
  else
    how(desc, x)
  end
  if rawget(default, "_verbose") then
    log:info(("Initialized %s as %s: %s"):format(self.name, tostring(how),
      tostring(default._print_func(x))))
  end
end


-- Makes the arrays of a parameter whose shape is known, from values that were set while it waited,
-- else with the initializer.
local function make_arrays(self, deferred)
  local x = deferred.data
  if not x then
    x = nd.zeros(self._shape, { dtype = self._dtype, ctx = context.cpu() })
    fill_array(self, deferred.init, deferred.default, x)
  elseif not tables.same(x._shape, self._shape) then
    Error.raise{ code = "shape", func = "Parameter:set_data", argument = self.name,
      expected = tables.copied(self._shape), got = x.shape,
      message = ("the values that set_data was given for '%s' do not have the shape that the \z
        block needs"):format(self.name) }
  elseif x.dtype ~= self._dtype then
    x = x:astype(self._dtype)
  end
  set_arrays(self, copy_to_devices(deferred.ctx, x, not deferred.data))
end


--- Sets unknown sizes of the shape (not for users).
function Parameter:_know_shape(shape)
  if not is_known(self._shape) then
    self.shape = shape
  end
end


--- Makes the arrays of a parameter that waited for its shape; other parameters are not changed (not
-- for users).
function Parameter:_finish()
  local deferred = rawget(self, "_deferred")
  if deferred then
    if not is_known(self._shape) then
      fail_deferred(self, "Parameter:initialize")
    end
    class.outside(run_unrecorded, make_arrays, self, deferred)
  end
end


local INITIALIZE = args.form("Parameter:initialize", { { "init", "any?" }, { "ctx", "contexts?" },
  { "default_init", "any?" }, { "force_reinit", "boolean", false } })

--- Makes the arrays and fills them. A parameter that has arrays is not changed, with a warning. One
-- with unknown sizes waits for the first call of its block; without `allow_deferred_init` it is
-- E(`shape`).
-- @tparam[opt] table options init (an initializer or its name; nil: the parameter's own, else
--   default_init), ctx = the current one (a context, or a list of them for an array on each),
--   default_init = `ty.init.Uniform()`, force_reinit = false: true replaces arrays that it has
function Parameter:initialize(...)
  local a = INITIALIZE(...)
  if rawget(self, "_data") and not a.force_reinit then
    log:warning(("parameter '%s' is initialized already and stays as it is; force_reinit = true \z
      initializes it again"):format(self.name))
    return
  end
  local default = make_initializer(a.default_init) or init.Uniform()
  local deferred = { init = make_initializer(a.init) or make_initializer(self._init) or default,
    default = default, ctx = devices.or_current(a.ctx) }
  if not is_known(self._shape) and not self._allow_deferred then
    Error.raise{ code = "shape", func = "Parameter:initialize", argument = self.name,
      expected = "sizes above 0", got = tables.copied(self._shape or {}),
      message = ("parameter '%s' has an unknown shape; give its sizes, or allow_deferred_init = \z
        true to let the first call determine them"):format(self.name) }
  end
  rawset(self, "_data", nil)
  rawset(self, "_by_device", nil)
  rawset(self, "_deferred", deferred)
  if is_known(self._shape) then
    self:_finish()
  end
end


-- Values ------------------------------------------------------------------------------------------

--- Returns whether the parameter has its arrays (not for users).
function Parameter:_is_ready()
  return rawget(self, "_data") ~= nil
end


-- Raises E(state), which says why there are no arrays.
local function fail_data(self, func)
  if rawget(self, "_deferred") then
    fail_deferred(self, func)
  end
  fail_uninitialized(self, func)
end


local function fail_device(self, func, ctx)
  local list = {}
  for i, x in ipairs(self._data) do
    list[i] = tostring(x.context)
  end
  Error.raise{ code = "device", func = func, argument = self.name,
    expected = table.concat(list, ", "), got = tostring(ctx),
    message = ("parameter '%s' has no array on %s; initialize it with ctx = {...}, or move it: \z
      reset_ctx"):format(self.name, tostring(ctx)) }
end


-- Returns the array on a device; E(state) if the parameter has no arrays, E(device) if it has none
-- there. ctx: the context that the caller gave, for the error.
local function get_array(self, device, func, ctx)
  local by_device = rawget(self, "_by_device") or fail_data(self, func)
  return by_device[device] or fail_device(self, func, ctx or context.of_device(device))
end


local WHERE = {
  ["Parameter:data"] = args.form("Parameter:data", { { "where", "any?" } }),
  ["Parameter:grad"] = args.form("Parameter:grad", { { "where", "any?" } }),
}

-- Returns the result of `data`; func: the method's name for errors.
local function find_data(self, where, func)
  local kind = getmetatable(where)
  if kind == NDArray then
    return get_array(self, where._device, func)
  elseif kind == Symbol then
    return self:var()
  elseif where == nil then
    local list = rawget(self, "_data") or fail_data(self, func)
    return list[2] == nil and list[1] or get_array(self, context.current_context()._device, func)
  elseif Class.is_a(where, Context) then
    return get_array(self, where._device, func, where)
  elseif values.is_plain(where) and #where < 2 then
    return find_data(self, WHERE[func](where).where, func)
  end
  Error.raise{ code = "type", func = func, argument = "where",
    expected = "a context, an NDArray, a Symbol or nothing", got = Error.kind(where),
    message = "bad 'where'; a layer takes one tensor, no list" }
end


-- Raises E(type) for a call `p.data()`. The class's guard does not cover this method, since each
-- call of a layer calls it.
local function fail_dot()
  Error.raise{ code = "type", func = "Parameter:data", argument = "self", expected = "a Parameter",
    got = "nothing", message = "methods take a colon: x:data(...), not x.data(...)" }
end


--- Returns the parameter's array on a device, not a copy; its gradient is in `grad`. A parameter
-- without arrays is E(`state`), one without an array on this device E(`device`).
-- @param[opt] where a context; an array, for its device; a symbol, for which the parameter's
--   variable is returned; nil: the only array, or the one on the current context
-- @treturn NDArray or Symbol
function Parameter:data(where)
  if not self then
    fail_dot()
  end
  return find_data(self, where, "Parameter:data")
end


--- Returns the list of arrays itself, which must not be changed (not for users).
-- @string func name of the caller, for errors
function Parameter:_arrays(func)
  return rawget(self, "_data") or fail_data(self, func)
end


--- Returns a number that changes when the arrays change or values are set (not for users).
function Parameter:_values_version()
  return rawget(self, "_version")
end


--- Returns the arrays on all devices, in the order of `initialize`; E(state) if there are none.
-- @treturn {NDArray,...}
function Parameter:list_data()
  return tables.copied(rawget(self, "_data") or fail_data(self, "Parameter:list_data"))
end


-- Raises E(state) for a parameter whose grad_req is "null".
local function check_grad(self, func)
  if rawget(self, "_data") and self._grad_req == "null" then
    Error.raise{ code = "state", func = func, argument = self.name,
      message = ("parameter '%s' has no gradient, since its grad_req is \"null\"; set grad_req to \z
        \"write\" or \"add\""):format(self.name) }
  end
end


--- Returns the gradient on a device: the array to which backward writes. With grad_req "null" it is
-- E(`state`); other errors are those of `data`.
-- @param[opt] where a context, an array, or nil, as for `data`
-- @treturn NDArray
function Parameter:grad(where)
  check_grad(self, "Parameter:grad")
  return find_data(self, where, "Parameter:grad").grad
end


--- Returns the gradients on all devices, in the order of `initialize`. Errors are those of `grad`.
-- @treturn {NDArray,...}
function Parameter:list_grad()
  check_grad(self, "Parameter:list_grad")
  local list = self:list_data()
  for i, x in ipairs(list) do
    list[i] = x.grad
  end
  return list
end


--- Returns the devices of the parameter, even if it waits for its shape; E(`state`) if it was not
-- initialized.
-- @treturn {Context,...}
function Parameter:list_ctx()
  local deferred, list = rawget(self, "_deferred"), {}
  if deferred then
    return tables.copied(deferred.ctx)
  end
  for i, x in ipairs(rawget(self, "_data") or fail_uninitialized(self, "Parameter:list_ctx")) do
    list[i] = x.context
  end
  return list
end


-- Writing -----------------------------------------------------------------------------------------

-- Returns the shape with the known sizes of two shapes; nil if they contradict each other. old may
-- be nil.
local function merge_shapes(old, new)
  if not old then
    return new
  elseif #old ~= #new then
    return nil
  end
  local shape = {}
  for i = 1, #new do
    if old[i] ~= new[i] and old[i] ~= 0 and new[i] ~= 0 then
      return nil
    end
    shape[i] = old[i] == 0 and new[i] or old[i]
  end
  return shape
end

Parameter._merged_shape = merge_shapes         -- for ParameterDict:get


local function copy_to_all(list, x, func, name)
  for _, own in ipairs(list) do
    call.copy(own, x, func, name)
  end
end


--- Sets the values on all devices; gradients are not changed. A parameter that waits for its shape
-- uses the values later. Another shape is E(`shape`), a parameter that was not initialized
-- E(`state`).
-- @param x an NDArray (copied) or a nested table of numbers, of the parameter's shape
function Parameter:set_data(x)
  if x == nil then
    Error.raise{ code = "value", func = "Parameter:set_data", argument = "x",
      expected = "an NDArray or a nested table of numbers", got = "nothing",
      message = "'x' is missing" }
  end
  x = nd._as_array(x, self._dtype, "Parameter:set_data")
  local shape = merge_shapes(self._shape, x._shape)
  if not shape then
    Error.raise{ code = "shape", func = "Parameter:set_data", argument = self.name,
      expected = tables.copied(self._shape), got = x.shape,
      message = ("the values do not fit parameter '%s'"):format(self.name) }
  end
  local list, deferred = rawget(self, "_data"), rawget(self, "_deferred")
  if not list and not deferred then
    fail_uninitialized(self, "Parameter:set_data")
  end
  rawset(self, "_shape", shape)
  if deferred then
    deferred.data = class.keep(class.outside(x.copy, x))
    return
  end
  note_values(self)
  run_unrecorded(copy_to_all, list, x, "Parameter:set_data", self.name)
end


-- Sets copies of an array as the parameter's arrays, one per device.
local function set_copies(self, ctx, x)
  set_arrays(self, copy_to_devices(ctx, x, false))
end


--- Sets the values to those of a file; a parameter without arrays gets them (not for users).
-- @tparam NDArray x
-- @string[opt] dtype the parameter's new dtype
-- @tparam ?{Context,...} ctx devices of a parameter that was not initialized; default: the CPU
function Parameter:_load(x, dtype, ctx)
  if dtype then
    self:cast(dtype)
  end
  self.shape = x.shape
  if rawget(self, "_data") then
    self:set_data(x)
    return
  end
  local deferred = rawget(self, "_deferred")
  ctx = deferred and deferred.ctx or ctx or { context.cpu() }
  class.outside(run_unrecorded, set_copies, self, ctx, x)
end


--- Makes given arrays the arrays of the parameter, one per device (not for users). Another shape or
-- dtype is E(shape) or E(dtype).
-- @tparam {NDArray,...} list
-- @string func name of the caller, for errors
function Parameter:_adopt(list, func)
  local shape = merge_shapes(rawget(self, "_shape"), list[1]._shape)
  local differs = not shape and "shape" or list[1].dtype ~= self._dtype and "dtype"
  if differs then
    Error.raise{ code = differs, func = func, argument = self.name, expected = self[differs],
      got = list[1][differs], message = ("the array for '%s' has another %s"):format(self.name,
        differs) }
  end
  rawset(self, "_shape", shape)
  rawset(self, "_var", nil)
  class.outside(run_unrecorded, set_arrays, self, list)
end


--- Sets the gradients to 0; does nothing if there are none.
function Parameter:zero_grad()
  for _, x in ipairs(rawget(self, "_data") or {}) do
    if x.grad then
      x.grad:fill(0)
    end
  end
end


-- Replaces the arrays by copies of another dtype.
local function set_converted(self, dtype)
  local old, list = self._data, {}
  for i, x in ipairs(old) do
    list[i] = x:astype(dtype)
  end
  set_arrays(self, list)
  for i, x in ipairs(old) do
    if x.grad and self._data[i].grad then
      call.copy(self._data[i].grad, x.grad:astype(dtype), "Parameter:cast")
    end
  end
end


local CAST = args.form("Parameter:cast", { { "dtype", "dtype" } })

--- Converts values and gradients to another dtype.
-- @string dtype such as "float16"
function Parameter:cast(...)
  local dtype = CAST(...).dtype
  if dtype == self._dtype then
    return
  end
  rawset(self, "_dtype", dtype)
  rawset(self, "_dtype_text", dtype)
  rawset(self, "_var", nil)
  if rawget(self, "_data") then
    class.outside(run_unrecorded, set_converted, self, dtype)
  end
end


-- Returns the mean of arrays on several devices, on the CPU.
local function compute_mean(list)
  local sum = list[1]:as_in_context(context.cpu())
  for i = 2, #list do
    sum = sum + list[i]:as_in_context(context.cpu())
  end
  return #list > 1 and sum / #list or sum
end


-- Sets copies of the mean over the present devices as the parameter's arrays.
local function set_mean(self, ctx)
  set_arrays(self, copy_to_devices(ctx, compute_mean(self._data), false))
end


local RESET = args.form("Parameter:reset_ctx", { list = true, { "ctx", "contexts" } })

--- Moves the parameter to other devices: each gets the mean over the old ones, and a new gradient;
-- E(`state`) if it was not initialized.
-- @param ctx a context or a list of them
function Parameter:reset_ctx(...)
  local ctx = RESET(...).ctx
  local old, deferred = rawget(self, "_data"), rawget(self, "_deferred")
  if deferred then
    deferred.ctx = ctx
  elseif not old then
    fail_uninitialized(self, "Parameter:reset_ctx")
  else
    class.outside(run_unrecorded, set_mean, self, ctx)
  end
end


-- Node of a variable -> its parameter. Keys and values are weak: the parameter refers to its
-- variable, so a strong value would keep both.
local by_variable = setmetatable({}, { __mode = "kv" })

--- Returns the parameter of a variable's node, or nil (not for users).
function Parameter._of_variable(n)
  return by_variable[n]
end


--- Frees the arrays immediately; afterwards the parameter is as before `initialize` (not for
-- users).
function Parameter:_free()
  for _, x in ipairs(rawget(self, "_data") or {}) do
    if x.grad then
      x.grad:free()
    end
    x:free()
  end
  rawset(self, "_data", nil)
  rawset(self, "_by_device", nil)
  rawset(self, "_deferred", nil)
end


--- Returns the parameter's variable for symbols, which stays the same until shape, dtype or an
-- attribute changes.
-- @treturn Symbol
function Parameter:var()
  local v = rawget(self, "_var")
  if not v then
    v = sym.Variable(self.name, { shape = self._shape, dtype = self._dtype,
      lr_mult = self._lr_mult, wd_mult = self._wd_mult, init = self._init })
    rawset(self, "_var", v)
    by_variable[v._entries[1][1]] = self
  end
  return v
end


-- Fields ------------------------------------------------------------------------------------------

local READ = {
  name = function(self) return self._name end,
  grad_req = function(self) return self._grad_req end,
  dtype = function(self) return self._dtype end,
  shape = function(self)
    local shape = rawget(self, "_shape")
    return shape and as_list(tables.copied(shape))
  end,
  lr_mult = function(self) return self._lr_mult end,
  wd_mult = function(self) return self._wd_mult end,
  init = function(self) return rawget(self, "_init") end,
}

local WRITE = {}

function WRITE.grad_req(self, word)
  check_grad_req(word)
  word = self._differentiable and word or "null"
  if word ~= self._grad_req then
    rawset(self, "_grad_req", word)
    for _, x in ipairs(rawget(self, "_data") or {}) do
      attach_gradient(self, x)
    end
  end
end

function WRITE.dtype(self, dtype)
  self:cast(dtype)
end

function WRITE.shape(self, shape)
  local ok, sizes = args.types.shape.check(shape)
  local old = rawget(self, "_shape")
  local fits = ok and (not old or #old == #sizes)
  for i = 1, fits and old and #old or 0 do
    fits = fits and (old[i] == 0 or old[i] == sizes[i])
  end
  if not fits then
    Error.raise{ code = ok and "shape" or "type", func = "Parameter", argument = self.name,
      expected = self._shape and tables.copied(self._shape) or "a shape", got = ok and sizes
      or Error.kind(shape), message = ("only unknown sizes of '%s' can be set"):format(self.name) }
  end
  rawset(self, "_shape", sizes)
  rawset(self, "_var", nil)
end

-- Returns the function that sets a field to a number.
local function make_number_writer(key)
  return function(self, v)
    if type(v) ~= "number" then
      Error.raise{ code = "type", func = "Parameter", argument = key, expected = "a number",
        got = Error.kind(v), message = ("bad '%s'"):format(key) }
    end
    rawset(self, "_" .. key, v)
    rawset(self, "_var", nil)
  end
end

WRITE.lr_mult, WRITE.wd_mult = make_number_writer("lr_mult"), make_number_writer("wd_mult")

function WRITE.init(self, v)
  make_initializer(v)
  rawset(self, "_init", v)
  rawset(self, "_var", nil)
end


-- Returns the names of fields and methods, for the error of an unknown one.
local function list_members(self)
  local names = {}
  for name in next, READ do
    names[#names + 1] = name
  end
  local kind = getmetatable(self)
  while kind do
    for name, v in next, kind do
      if type(v) == "function" and name:sub(1, 1) ~= "_" then
        names[#names + 1] = name
      end
    end
    kind = rawget(kind, "super")
  end
  return names
end


function Parameter.__index(self, key)
  local v = getmetatable(self)[key]
  if v ~= nil and key ~= "init" then
    return v
  elseif type(key) ~= "string" or key:sub(1, 1) == "_" then
    return nil
  end
  local field = READ[key]
  if field then
    return field(self)
  end
  Error.unknown{ func = "Parameter", argument = key, what = "field or method",
    names = list_members(self) }
end


function Parameter.__newindex(self, key, v)
  local write = WRITE[key]
  if not write then
    Error.unknown{ func = "Parameter", argument = tostring(key), what = "writable field",
      among = WRITE }
  end
  write(self, v)
end


left_out.add(Parameter, "Parameter", ":", {
  row_sparse_data = "storage is dense; data(x) gives the whole array",
  list_row_sparse_data = "storage is dense; list_data() gives the whole arrays",
})


return Parameter
