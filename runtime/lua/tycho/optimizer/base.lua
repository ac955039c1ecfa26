--- The base of optimizers: learning rates, weight decays, update counts, master copies of float16
-- weights; and functions for writing rules. See `optimizer/init.lua`.
--
-- A rule is a subclass with `create_state(index, weight)` and `update(index, weight, grad, state)`.
-- An update counts first (`_count`), so the first one is number `begin_num_update + 1`, then asks
-- for its rate and decay (`_get_lr`, `_get_wd`). A rule with `aggregate_num` gets lists, and a
-- fifth argument: a table in which it may cache values, the same one for the same weights. Counts
-- are kept per device; `num_update` is the largest of all.
--
-- @module tycho.optimizer.base

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local arrays = require "tycho.ndarray.class"
local call = require "tycho.ndarray.call"
local Class = require "tycho.core.class"
local container = require "tycho.ndarray.serialize"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local namespace = require "tycho.core.namespace"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"
require "tycho.ndarray"

local base = { registry = {} }

local blank, is_array, null = arrays.blank, arrays.is_array, values.null


-- Options -----------------------------------------------------------------------------------------

local COMMON = {
  { "rescale_grad", "number", 1 }, { "param_idx2name", "dict?" }, { "wd", "number", 0 },
  { "clip_gradient", "number?" }, { "learning_rate", "number?" }, { "lr_scheduler", "function?" },
  { "sym", "symbol?" }, { "begin_num_update", "integer", 0 },
  { "multi_precision", "boolean", false }, { "param_dict", "dict?" }, { "no_decay", "list?" },
}

--- Returns a form of a class's own options followed by the common ones; own options override common
-- ones of the same name.
-- @string name class
-- @tparam table own parameters; "number|null" with a default where `ty.null` means none
function base.form(name, own)
  local spec, seen = {}, {}
  for _, list in ipairs{ own, COMMON } do
    for _, entry in ipairs(list) do
      spec[#spec + 1] = not seen[entry[1]] and entry or nil
      seen[entry[1]] = true
    end
  end
  return args.form("optimizer." .. name, spec)
end


--- Returns the names of the options of all registered optimizers (not for users).
-- @treturn table set
function base.all_options()
  local names = {}
  for _, entry in ipairs(COMMON) do
    names[entry[1]] = true
  end
  for _, kind in pairs(base.registry) do
    for _, name in ipairs(kind.option_names) do
      names[name] = true
    end
  end
  return names
end


-- The class ---------------------------------------------------------------------------------------

--- Base of optimizers. Fields: lr, learning_rate (read-only: the current rate), wd, rescale_grad,
-- num_update, lr_mult, wd_mult, idx2name, lr_scheduler; rescales_by_batch: rescale_grad is one over
-- the rows of a batch, and is changed if a training continues with batches of another size.
-- @type Optimizer
local Optimizer = Class:extend("Optimizer")
base.Optimizer = Optimizer

--- Names of a class's own options, for messages.
Optimizer.option_names = {}

--- Names of the options that decide which arrays a state has. For a number only 0 makes a
-- difference.
Optimizer.state_options = {}

--- Names of fields that change from update to update: they belong to the saved states.
Optimizer.progress = {}

--- Names of fields that are tables by index and belong to the saved states, entry by entry.
Optimizer.keyed_progress = {}

--- The number of parameters of one call of `update`; 0: one by one.
Optimizer.aggregate_num = 0

local BASE = base.form("Optimizer", {})


-- Sets the learning rate and the schedule. With a schedule the rate is the schedule's, which begins
-- with the given rate.
local function set_rate(self, lr, scheduler)
  self.lr_scheduler = scheduler
  self.lr = lr or not scheduler and 0.01 or nil
  if lr and type(scheduler) == "table" and scheduler._take_rate then
    scheduler:_take_rate(lr)
  end
end


-- Returns a list of Lua patterns; E(type), E(value) for anything else.
local function checked_patterns(self, list)
  for i, pattern in ipairs(list) do
    if type(pattern) ~= "string" or not pcall(string.find, "", pattern) then
      Error.raise{ code = type(pattern) == "string" and "value" or "type",
        func = "optimizer." .. self.class_name, argument = "no_decay", expected = "Lua patterns",
        got = tostring(pattern), message = ("bad entry %d of 'no_decay'"):format(i) }
    end
  end
  return list
end


-- Raises E(type) unless all names of parameters are texts.
local function check_names(self, names)
  for index, name in pairs(names) do
    if type(name) ~= "string" then
      Error.raise{ code = "type", func = "optimizer." .. self.class_name,
        argument = "param_idx2name", expected = "names", got = Error.kind(name),
        message = ("bad name of index %s"):format(tostring(index)) }
    end
  end
end


--- @tparam[opt] table options the common ones
function Optimizer:init(...)
  local a = BASE(...)
  set_rate(self, a.learning_rate, a.lr_scheduler)
  self.rescale_grad, self.wd, self.clip_gradient = a.rescale_grad, a.wd, a.clip_gradient
  self.multi_precision = a.multi_precision
  self.begin_num_update, self.num_update = a.begin_num_update, a.begin_num_update
  check_names(self, a.param_idx2name or {})
  self.idx2name, self.param_dict = tables.copy(a.param_idx2name), a.param_dict or {}
  self.no_decay = a.no_decay and checked_patterns(self, a.no_decay)
  self._attributes = a.sym and { of = a.sym:attr_dict(), names = a.sym:list_arguments() }
  self._counts, self._device = {}, 0
  self:set_lr_mult{}
  self:set_wd_mult{}
end


--- Returns the common options among checked values, for `super.init`.
function base.common(a)
  local options = {}
  for _, entry in ipairs(COMMON) do
    options[entry[1]] = a[entry[1]] ~= null and a[entry[1]] or nil
  end
  options.multi_precision = a.multi_precision
  return options
end


local function fail_schedule(self, lr)
  Error.raise{ code = "type", func = "optimizer." .. self.class_name, argument = "lr_scheduler",
    expected = "a function that returns a rate", got = Error.kind(lr),
    message = ("the schedule has no rate for update %s"):format(tostring(self.num_update)) }
end


function Optimizer.__index(self, key)
  if key == "learning_rate" then
    local scheduler = rawget(self, "lr_scheduler")
    if not scheduler then
      return rawget(self, "lr")
    end
    local lr = scheduler(self.num_update)
    return type(lr) == "number" and lr or fail_schedule(self, lr)
  end
  return getmetatable(self)[key]
end


function Optimizer:__tostring()
  return ("<%s lr=%s wd=%s updates=%d>"):format(self.class_name, tostring(self.learning_rate),
    tostring(self.wd), self.num_update or 0)
end


local RATE = args.form("Optimizer:set_learning_rate", { { "lr", "number" } })

--- Sets the rate; with a schedule E(state).
function Optimizer:set_learning_rate(...)
  local lr = RATE(...).lr
  if self.lr_scheduler then
    Error.raise{ code = "state", func = self.class_name .. ":set_learning_rate",
      message = "the rate follows a schedule; set the schedule's base_lr" }
  end
  self.lr = lr
end


-- Multipliers -------------------------------------------------------------------------------------

-- Adds the factors from the attributes of a symbol's variables to `mult`.
local function add_attributes(self, mult, key)
  for _, name in ipairs(self._attributes and self._attributes.names or {}) do
    local attributes = self._attributes.of[name] or {}
    local text = attributes["__" .. key .. "__"] or attributes[key]
    if text ~= nil then
      mult[name] = tonumber(text)
    end
  end
end


local function add_all(mult, given, func)
  for key, value in pairs(given) do
    if type(value) ~= "number" then
      Error.raise{ code = "type", func = func, argument = tostring(key), expected = "a number",
        got = Error.kind(value), message = ("bad factor of '%s'"):format(tostring(key)) }
    end
    mult[key] = value
  end
  return mult
end


local LR_MULT = args.form("Optimizer:set_lr_mult", { dict = true, { "args_lr_mult", "dict" } })
local WD_MULT = args.form("Optimizer:set_wd_mult", { dict = true, { "args_wd_mult", "dict" } })

--- Sets factors of the rate by index or name, added to those in the symbol's attributes.
function Optimizer:set_lr_mult(...)
  local mult = {}
  add_attributes(self, mult, "lr_mult")
  self.lr_mult = add_all(mult, LR_MULT(...).args_lr_mult, "Optimizer:set_lr_mult")
end


-- Returns whether a parameter of this name decays by default.
function Optimizer._decays(_, name)
  return name:find("_weight$") ~= nil or name:find("_gamma$") ~= nil
end


--- Returns 0 for a parameter that does not decay by default or whose name matches a pattern of
-- `no_decay`, else nil (not for users).
function Optimizer:_default_wd_mult(name)
  for _, pattern in ipairs(self.no_decay or {}) do
    if name:find(pattern) then
      return 0
    end
  end
  return not self:_decays(name) and 0 or nil
end


--- Sets factors of the decay by index or name. They override the symbol's attributes, and these the
-- defaults: 0 for named parameters that do not end in `_weight` or `_gamma`, or match a pattern of
-- `no_decay`.
function Optimizer:set_wd_mult(...)
  local mult = {}
  for _, name in pairs(self.idx2name) do
    mult[name] = self:_default_wd_mult(name)
  end
  add_attributes(self, mult, "wd_mult")
  self.wd_mult = add_all(mult, WD_MULT(...).args_wd_mult, "Optimizer:set_wd_mult")
end


local function multiplier(self, index, field)
  local param = self.param_dict[index]
  if param then
    return param[field] or 1
  end
  local mult = self[field]
  return mult[index] or mult[self.idx2name[index] or false] or 1
end


-- Counts and rates --------------------------------------------------------------------------------

--- Selects the counts of a device.
-- @int id its number
function Optimizer:_set_current_context(id)
  self._device = id
end


local function get_counts(self)
  local counts = self._counts[self._device]
  if not counts then
    counts = {}
    self._counts[self._device] = counts
  end
  return counts
end


--- Counts an update of one index or of each of a list.
function Optimizer:_update_count(indices)
  local counts = get_counts(self)
  for _, index in ipairs(type(indices) == "table" and indices or { indices }) do
    counts[index] = (counts[index] or self.begin_num_update) + 1
    self.num_update = math.max(self.num_update, counts[index])
  end
end


--- Sets how often an index was updated on the current device (not for users).
function Optimizer:_set_count(index, count)
  get_counts(self)[index] = count
end


--- Returns how often an index was updated on the current device.
function Optimizer:_count_of(index)
  return get_counts(self)[index] or self.begin_num_update
end


--- Returns the rates of a list of indices.
function Optimizer:_get_lrs(indices)
  local lr, list = self.learning_rate, {}
  for i, index in ipairs(indices) do
    list[i] = lr * multiplier(self, index, "lr_mult")
  end
  return list
end


function Optimizer:_get_lr(index)
  return self:_get_lrs{ index }[1]
end


--- Returns the decays of a list of indices.
function Optimizer:_get_wds(indices)
  local list = {}
  for i, index in ipairs(indices) do
    list[i] = self.wd * multiplier(self, index, "wd_mult")
  end
  return list
end


function Optimizer:_get_wd(index)
  return self:_get_wds{ index }[1]
end


--- Puts the rates and decays of indices into `kept.lrs` and `kept.wds`. Returns whether these, or
-- the other common numbers of rules, differ from the previous call.
-- @tparam {int,...} indices the same number as in the previous call
-- @tparam table kept the cache of an updater for a list of weights
function Optimizer:_refresh(indices, kept)
  local lr, lrs, wds = self.learning_rate, kept.lrs or {}, kept.wds or {}
  local same = kept.rescale_grad == self.rescale_grad and kept.clip_gradient == self.clip_gradient
  for i, index in ipairs(indices) do
    local rate, decay = lr * multiplier(self, index, "lr_mult"),
      self.wd * multiplier(self, index, "wd_mult")
    same = same and lrs[i] == rate and wds[i] == decay
    lrs[i], wds[i] = rate, decay
  end
  kept.lrs, kept.wds, kept.rescale_grad, kept.clip_gradient =
    lrs, wds, self.rescale_grad, self.clip_gradient
  return not same
end


-- States and updates ------------------------------------------------------------------------------

--- The number of arrays in each state of a rule; nil: the rule's options decide.
Optimizer.state_arrays = nil


local function check_array(self, method, argument, x)
  if not is_array(x) then
    Error.raise{ code = "type", func = ("%s:%s"):format(self.class_name, method),
      argument = argument, expected = "an NDArray", got = Error.kind(x),
      message = ("bad '%s'"):format(argument) }
  end
end


local function check_index(self, method, index)
  if type(index) ~= "number" and type(index) ~= "string" then
    Error.raise{ code = "type", func = ("%s:%s"):format(self.class_name, method),
      argument = "index", expected = "a number or a name", got = Error.kind(index),
      message = "bad 'index'" }
  end
end


-- Returns the number of arrays in a state; nil if there is something else in it.
local function count_arrays(state)
  if state == nil or state == null then
    return 0
  elseif not values.is_plain(state) then
    return is_array(state) and 1 or nil
  end
  local n = 0
  for i = 1, #state do
    local more = count_arrays(state[i])
    if not more then
      return nil
    end
    n = n + more
  end
  return n
end


-- Raises E(type) for a state that cannot belong to the rule.
local function check_state(self, method, state)
  local n, want = count_arrays(state), self.state_arrays
  local fits = n and (not want or n == want or self.multi_precision and n == want + 1)
  if not fits then
    Error.raise{ code = "type", func = ("%s:%s"):format(self.class_name, method),
      argument = "state", expected = "what create_state returned",
      got = n and ("%d array%s"):format(n, n == 1 and "" or "s") or Error.kind(state),
      message = "bad 'state'" }
  end
end


local function check_create(method)
  return function(self, index, weight)
    check_index(self, method, index)
    check_array(self, method, "weight", weight)
  end
end


local function check_list(self, method, argument, list)
  if not values.is_plain(list) then
    Error.raise{ code = "type", func = ("%s:%s"):format(self.class_name, method),
      argument = argument, expected = "a list, as of indices and weights", got = Error.kind(list),
      message = ("bad '%s'"):format(argument) }
  end
end


-- Lists come from updaters, which have checked their entries.
local function check_update(method)
  return function(self, index, weight, grad, state)
    if type(index) == "table" and values.is_plain(weight) then
      check_list(self, method, "grad", grad)
      check_list(self, method, "state", state)
      return
    end
    check_index(self, method, index)
    check_array(self, method, "weight", weight)
    check_array(self, method, "grad", grad)
    check_state(self, method, state)
  end
end


--- Checks the arguments of the rules' methods (core/methods.lua).
Optimizer.argument_checks = {
  create_state = check_create("create_state"),
  create_state_multi_precision = check_create("create_state_multi_precision"),
  update = check_update("update"),
  update_multi_precision = check_update("update_multi_precision"),
}


--- Returns a new state for a parameter: nil, an array, or a list of arrays and `ty.null` (no
-- array).
-- @tparam int|string index of the parameter, or its name
-- @tparam NDArray weight
function Optimizer:create_state(index, weight) end


--- Changes a weight in place.
-- @tparam int|string index of the parameter, or its name
-- @tparam NDArray weight
-- @tparam NDArray grad
-- @param state what `create_state` returned
function Optimizer:update(index, weight, grad, state)
  Error.raise{ code = "unsupported", func = self.class_name .. ":update",
    message = "the class has no update" }
end


--- The largest number of weights that one call of an operator updates; on a GPU one launch updates
-- some dozens of them.
base.MAX_TOGETHER = 128

function base.is_on_gpu(weight)
  return weight.context.device_type == "gpu"
end


--- Returns whether a weight is float16 or bfloat16.
function base.is_half(weight)
  return weight._dtype == args.DTYPES.float16 or weight._dtype == args.DTYPES.bfloat16
end


--- Returns the number of weights of this type and device that one call updates: `aggregate_num`; on
-- a GPU, where each launch costs time, a rule may take more.
-- @treturn int at most `base.MAX_TOGETHER`; 0: one by one
function Optimizer:_together(_)
  return math.min(self.aggregate_num, base.MAX_TOGETHER)
end


--- Returns whether a weight has a float32 master copy.
function Optimizer:_keeps_master(weight)
  if not base.is_half(weight) then
    return false
  elseif not self.multi_precision then
    log:warning(("updating %s weights loses accuracy; use multi_precision = true")
      :format(weight.dtype))
  end
  return self.multi_precision
end


--- Returns a state as `create_state` does; for a float16 or bfloat16 weight with `multi_precision`:
-- `{master copy, its state}`.
function Optimizer:create_state_multi_precision(index, weight)
  if self:_keeps_master(weight) then
    local master = weight:astype("float32")
    return { master, self:create_state(index, master) or null }
  end
  return self:create_state(index, weight)
end


--- Updates as `update` does, on the master copy if there is one.
function Optimizer:update_multi_precision(index, weight, grad, state)
  if type(index) ~= "table" and self.multi_precision and base.is_half(weight) then
    self:update(index, state[1], grad:astype("float32"), values.value(state[2]))
    call.copy(weight, state[1], "Optimizer:update")
    return
  end
  return self:update(index, weight, grad, state)
end


-- States of bfloat16 ------------------------------------------------------------------------------

--- The option of the classes that have such states.
base.STATE_DTYPE = { "state_dtype", "text", "float32" }

-- Returns whether a weight's states are bfloat16: those of float32 weights, if the option is set.
local function has_narrow_states(self, weight)
  return self.state_dtype == "bfloat16" and weight._dtype == args.DTYPES.float32
end


--- Applies f to each array of a state: an array, a list of states, or nothing.
-- @param state
-- @func f
function base.map_state(state, f)
  if not values.is_plain(state) then
    return state ~= nil and state ~= null and f(state) or state
  end
  local list = {}
  for i, x in ipairs(state) do
    list[i] = base.map_state(x, f)
  end
  return list
end


-- Returns a state in float32. A separate function, since LuaJIT does not compile functions that
-- make a closure.
local function widened(state)
  return base.map_state(state, function(x) return x:astype("float32") end)
end


local function store_rounded(wide, state)
  for i, x in ipairs(values.is_plain(wide) and wide or { wide }) do
    call.params("_contrib_stochastic_round", "Optimizer:update", { x }, {},
      values.is_plain(state) and state[i] or state)
  end
end


--- Gives a class the option `state_dtype`: with "bfloat16" the states of float32 weights that an
-- updater keeps take half the bytes. An update computes in float32 and rounds them at random.
-- @tparam table Kind
function base.offer_narrow_states(Kind)
  local create, update, together =
    Kind.create_state_multi_precision, Kind.update_multi_precision, Kind._together

  function Kind:create_state_multi_precision(index, weight)
    local state = create(self, index, weight)
    return has_narrow_states(self, weight)
      and base.map_state(state, function(x) return x:astype("bfloat16") end) or state
  end

  function Kind:update_multi_precision(index, weight, grad, state, kept)
    if type(index) == "table" or not has_narrow_states(self, weight) then
      return update(self, index, weight, grad, state, kept)
    end
    local wide = widened(state)
    update(self, index, weight, grad, wide)
    if wide ~= nil then
      store_rounded(wide, state)
    end
  end

  function Kind:_together(weight)
    return has_narrow_states(self, weight) and 0 or together(self, weight)
  end
end


-- Functions for rules -----------------------------------------------------------------------------

--- Returns an array of zeros like another one, with memory that has been written. An update reads a
-- state before it writes it: untouched memory would first be mapped to the system's page of
-- zeros, which the write then replaces, page by page, with an interrupt of every core.
function base.zeros(weight)
  return call.fill((blank(weight._shape, weight._dtype, weight._device, "Optimizer")),
    0, "Optimizer")
end


local number = call.number

--- Returns the parameters of an update operator as a flat list: options that are not nil,
-- rescale_grad and, unless unset or 0, clip_gradient.
-- @tparam Optimizer self
-- @tparam table options numbers and texts by name
function base.params(self, options)
  local flat = { "rescale_grad", number(self.rescale_grad) }
  if self.clip_gradient and self.clip_gradient ~= 0 then
    flat[3], flat[4] = options.clip_name or "clip_gradient", number(self.clip_gradient)
  end
  for key, value in pairs(options) do
    if key ~= "clip_name" then
      flat[#flat + 1], flat[#flat + 2] = key, type(value) == "number" and number(value) or value
    end
  end
  return flat
end


--- Returns a list of numbers as the text of a parameter.
function base.list_text(list)
  local texts = {}
  for i, v in ipairs(list) do
    texts[i] = number(v)
  end
  return "(" .. table.concat(texts, ", ") .. ",)"
end


--- Runs an update operator whose result is the weight.
-- @string op name of the operator
-- @tparam {NDArray,...} inputs the weight first
-- @tparam table params
function base.run(op, inputs, params)
  call.params(op, "Optimizer:update", inputs, params, inputs[1])
end


--- Returns the gradient times rescale_grad, plus wd * weight (when given), limited to
-- clip_gradient, as a new array. Here 0 limits to 0.
-- @tparam Optimizer self
-- @tparam NDArray grad
-- @tparam[opt] NDArray weight
-- @number[opt] wd
function base.gradient(self, grad, weight, wd)
  local d = grad * self.rescale_grad
  if weight then
    d:add_(weight * wd)
  end
  if self.clip_gradient then
    local c = self.clip_gradient
    call.params("clip", "Optimizer:update", { d }, { "a_min", number(-c), "a_max", number(c) }, d)
  end
  return d
end


--- Updates a running mean in place: x = rate * x + (1 - rate) * y.
function base.blend(x, rate, y)
  return x:mul_(rate):add_(y * (1 - rate))
end


-- Registry ----------------------------------------------------------------------------------------

--- Registers a class under a name, in any case.
-- @tparam table kind a class that extends Optimizer
-- @string[opt] name by default the class's name
-- @treturn table the class
function base.register(kind, name)
  name = namespace.class_key(kind, name, Optimizer, "optimizer.register")
  if base.registry[name] and base.registry[name] ~= kind then
    log:warning(("optimizer '%s' is registered again"):format(name))
  end
  base.registry[name] = kind
  container.register(kind, "optimizer." .. name)
  return kind
end


--- Returns a registered subclass whose options become fields.
-- @string name
-- @tparam table own options of its form
function base.kind(name, own)
  local Kind = Optimizer:extend(name)
  local form = base.form(name, own)
  Kind.option_names, Kind.is_built_in = {}, true
  for i, entry in ipairs(own) do
    Kind.option_names[i] = entry[1]
  end
  function Kind:init(...)
    local a = form(...)
    Optimizer.init(self, base.common(a))
    for _, entry in ipairs(own) do
      if entry[1] ~= "learning_rate" then
        self[entry[1]] = values.value(a[entry[1]])
      end
    end
    if self.state_dtype and self.state_dtype ~= "float32" and self.state_dtype ~= "bfloat16" then
      Error.raise{ code = "value", func = "optimizer." .. name, argument = "state_dtype",
        expected = "float32 or bfloat16", got = self.state_dtype, message = "bad 'state_dtype'" }
    end
  end
  return base.register(Kind)
end


return base
