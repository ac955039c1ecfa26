--- The bytes of an updater's states: writing, reading, and checks whether they fit an optimizer
-- (not for users).
--
-- They are a container (ndarray/serialize.lua) of `kind`, `states` by index or name, the whole
-- `optimizer` if requested, and `about`, which older versions ignore:
--
--   version    1
--   optimizer  the class's name
--   options    options that decide the form of states, by name
--   names      the parameter of each index
--   counts     updates by device and index, and `num_update`, the largest of them
--   schedule   fields of a schedule that change, by name, and its class in `kind`
--   own        the class's own counts (`progress`, `keyed_progress`), by name
--
-- Bytes without `about` are only compared with the weights.
--
-- @module tycho.optimizer.saved_states

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local base = require "tycho.optimizer.base"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local container = require "tycho.ndarray.serialize"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local settings = require "tycho.optimizer.settings"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local saved_states = {}

local KIND, VERSION = "updater", 1


-- Writing -----------------------------------------------------------------------------------------

local function collect_options(optimizer)
  local options = { multi_precision = optimizer.multi_precision }
  for _, name in ipairs(optimizer.state_options) do
    options[name] = optimizer[name]
  end
  return options
end


local function collect_fields(object, names)
  local fields = {}
  for _, name in ipairs(names) do
    fields[name] = rawget(object, name)
  end
  return fields
end


-- Returns the update counts by device and index; those of waiting states by name.
local function copy_counts(updater)
  local counts = {}
  for device, of_device in pairs(updater.optimizer._counts) do
    counts[device] = tables.copy(of_device)
  end
  for name, waiting in pairs(updater.waiting) do
    counts[0] = counts[0] or {}
    counts[0][name] = waiting.count
  end
  return counts
end


-- Returns the class's own counts by index; those of waiting states by name.
local function copy_keyed(updater, field)
  local all = tables.copy(rawget(updater.optimizer, field))
  for name, waiting in pairs(updater.waiting) do
    all[name] = waiting.own[field]
  end
  return all
end


local function about(updater, names)
  local optimizer = updater.optimizer
  local schedule = optimizer.lr_scheduler
  local own = collect_fields(optimizer, optimizer.progress)
  for _, field in ipairs(optimizer.keyed_progress) do
    own[field] = copy_keyed(updater, field)
  end
  local moving = type(schedule) == "table" and collect_fields(schedule, settings.MOVING) or nil
  if moving then
    moving.kind = schedule.class_name
  end
  return { version = VERSION, optimizer = optimizer.class_name,
    options = collect_options(optimizer), names = names, counts = copy_counts(updater),
    num_update = optimizer.num_update, schedule = moving, own = own }
end


-- Returns a copy of an optimizer without references to objects of the program.
local function portable(optimizer)
  local copy = tables.copy(optimizer)
  copy.param_dict = {}
  return setmetatable(copy, getmetatable(optimizer))
end


--- Returns the states as bytes.
-- @tparam Updater updater
-- @bool dump_optimizer whether to include the whole optimizer
-- @tparam table names of parameters by index
function saved_states.encode(updater, dump_optimizer, names)
  local states = {}
  for index in pairs(updater.states_synced) do
    local state = updater.states[index]
    states[index] = state == nil and values.null or state
  end
  for name, waiting in pairs(updater.waiting) do
    states[name] = waiting.state                         -- nil: there is only a count
  end
  return container.encode{ kind = KIND, states = states, about = about(updater, names),
    optimizer = dump_optimizer and portable(updater.optimizer) or nil }
end


-- Reading -----------------------------------------------------------------------------------------

local function fail_format(func, text)
  Error.raise{ code = "format", func = func, message = text }
end


local function has_types(t, types)
  for name, kind in pairs(types) do
    if type(t[name]) ~= kind then
      return false
    end
  end
  return true
end


local function all_are(t, kind)
  for _, v in pairs(t) do
    if type(v) ~= kind then
      return false
    end
  end
  return true
end


local ABOUT = { optimizer = "string", options = "table", names = "table", counts = "table",
  num_update = "number", own = "table" }

local function check_about(given, func)
  if type(given) ~= "table" or type(given.version) ~= "number" then
    fail_format(func, "the bytes describe no optimizer")
  elseif given.version > VERSION then
    fail_format(func, ("the states are of version %g, this program reads up to version %d")
      :format(given.version, VERSION))
  end
  local good = has_types(given, ABOUT) and all_are(given.names, "string")
    and all_are(given.counts, "table")
  for _, counts in pairs(good and given.counts or {}) do
    good = good and all_are(counts, "number")
  end
  if not good then
    fail_format(func, "the bytes describe no optimizer")
  end
end


--- Returns the contents of saved bytes, with their form checked.
-- @string bytes
-- @string func for errors
function saved_states.decode(bytes, func)
  local saved = container.decode(bytes, func)
  if type(saved) ~= "table" or saved.kind ~= KIND or type(saved.states) ~= "table" then
    fail_format(func, "the bytes are no states of an updater")
  elseif saved.optimizer ~= nil and not Class.is_a(saved.optimizer, base.Optimizer) then
    fail_format(func, "the bytes hold something else in the place of an optimizer")
  elseif saved.about ~= nil then
    check_about(saved.about, func)
  end
  return saved
end


-- The optimizer -----------------------------------------------------------------------------------

-- Returns a name with options as text: "SGD{momentum = 0.9}".
local function format_options(name, options, shown)
  local parts = {}
  for _, key in ipairs(shown) do
    parts[#parts + 1] = ("%s = %s"):format(key, Error.show(options[key]))
  end
  return #parts > 0 and ("%s{%s}"):format(name, table.concat(parts, ", ")) or name
end


-- Returns whether an option makes states: a momentum of 0 does not.
local function makes_state(v)
  return v ~= nil and v ~= false and v ~= 0
end


local function has_half(targets)
  for _, target in ipairs(targets or {}) do
    if base.is_half(target.weight) then
      return true
    end
  end
  return false
end


--- Raises E(state) for states of another optimizer.
-- @tparam table saved of `decode`
-- @tparam Optimizer optimizer
-- @tparam ?table targets of `match`
-- @string func for errors
function saved_states.check_optimizer(saved, optimizer, targets, func)
  local name = saved.about and saved.about.optimizer or saved.optimizer
    and saved.optimizer.class_name
  if not name then
    return
  end
  local before = saved.about and saved.about.options or collect_options(saved.optimizer)
  local now, shown = collect_options(optimizer), tables.copied(optimizer.state_options)
  shown[#shown + 1] = has_half(targets) and "multi_precision" or nil
  local same = name == optimizer.class_name
  for _, key in ipairs(shown) do
    same = same and makes_state(before[key]) == makes_state(now[key])
  end
  if not same then
    local saved_text = name == optimizer.class_name and format_options(name, before, shown) or name
    local present_text = format_options(optimizer.class_name, now, shown)
    Error.raise{ code = "state", func = func, argument = "optimizer", expected = saved_text,
      got = present_text, message = ("the states are those of %s, and the optimizer is %s")
        :format(saved_text, present_text) }
  end
end


-- The states --------------------------------------------------------------------------------------

-- Returns whether two states are arrays of the same shapes and types, in the same lists.
local function alike(a, b)
  a, b = values.value(a), values.value(b)
  if class.is_array(a) and class.is_array(b) then
    return a._dtype == b._dtype and tables.same(a._shape, b._shape)
  elseif not (values.is_plain(a) and values.is_plain(b)) then
    return a == nil and b == nil
  end
  local same = #a == #b
  for i = 1, same and #a or 0 do
    same = same and alike(a[i], b[i])
  end
  return same
end


local function state_text(state)
  state = values.value(state)
  if class.is_array(state) then
    return ("%s %s"):format(state.dtype, Error.show(state._shape))
  elseif not values.is_plain(state) then
    return state == nil and "none" or Error.kind(state)
  end
  local parts = {}
  for i = 1, #state do
    parts[i] = state_text(state[i])
  end
  return ("{%s}"):format(table.concat(parts, ", "))
end


--- Raises E(state) for a state that does not fit the optimizer and a weight.
-- @tparam Optimizer optimizer
-- @tparam table target key, name, weight
-- @param state
-- @string func for errors
function saved_states.check_state(optimizer, target, state, func)
  class.scope(function()
    local want = optimizer:create_state_multi_precision(target.key, target.weight)
    if not alike(want, state) then
      Error.raise{ code = "state", func = func, argument = tostring(target.name or target.key),
        expected = state_text(want), got = state_text(state),
        message = ("the saved state of '%s' is none of %s for a weight of shape %s"):format(
          tostring(target.name or target.key), optimizer.class_name,
          Error.show(target.weight._shape)) }
    end
  end)
end


--- Returns a copy of a state, for another array of the same parameter.
function saved_states.copy_state(state)
  if class.is_array(state) then
    return state:copy()
  elseif not values.is_plain(state) then
    return state
  end
  local list = {}
  for i = 1, #state do
    list[i] = saved_states.copy_state(state[i])
  end
  return list
end


-- Returns the keys of the saved states and counts by parameter, those of several devices in order.
local function keys_by_parameter(saved)
  local names, keys, by_parameter = saved.about and saved.about.names or {}, {}, {}
  local all = tables.copy(saved.states)
  for _, of_device in pairs(saved.about and saved.about.counts or {}) do
    for key in pairs(of_device) do
      all[key] = true
    end
  end
  for key in pairs(all) do
    keys[#keys + 1] = key
  end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then
      return type(a) == "number"
    end
    return a < b
  end)
  for _, key in ipairs(keys) do
    local parameter = names[key] or key
    by_parameter[parameter] = by_parameter[parameter] or {}
    table.insert(by_parameter[parameter], key)
  end
  return by_parameter
end


local function sorted_texts(set)
  local list = {}
  for key in pairs(set) do
    list[#list + 1] = tostring(key)
  end
  table.sort(list)
  return list
end


local SHOWN = 8                                          -- parameters that an error lists at most

local function fail_parameters(missing, extra, func)
  missing, extra = sorted_texts(missing), sorted_texts(extra)
  local parts = {}
  for _, case in ipairs{ { missing, "has none for '%s'" }, { extra, "has some for '%s'" } } do
    local list = case[1]
    local names = table.concat(tables.part(list, 1, math.min(#list, SHOWN)), "', '")
    parts[#parts + 1] = #list > 0 and case[2]:format(names)
      .. (#list > SHOWN and (" and %d more"):format(#list - SHOWN) or "") or nil
  end
  Error.raise{ code = "state", func = func, argument = missing[1] or extra[1], missing = missing,
    extra = extra, mismatch = {},
    message = ("the saved states are those of other parameters: the file %s")
      :format(table.concat(parts, ", and ")) }
end


-- Sorts names by their text, numbers in them by their value.
local function sort_numbered(list)
  local key = {}
  for _, name in ipairs(list) do
    key[name] = name:gsub("%d+", function(digits) return ("%20s"):format(digits) end)
  end
  table.sort(list, function(a, b) return key[a] < key[b] end)
end


-- Returns the saved name of each present one if the names differ in numbers only: automatic names
-- count the layers that were made before. Returns nil if they differ otherwise, or are all the
-- same.
local function renumbered(by_parameter, targets)
  local saved, present, known = {}, {}, {}
  for name in pairs(by_parameter) do
    saved[#saved + 1] = type(name) == "string" and name or nil
  end
  for _, target in ipairs(targets) do
    if type(target.name) == "string" and not known[target.name] then
      known[target.name] = true
      present[#present + 1] = target.name
    end
  end
  sort_numbered(saved)
  sort_numbered(present)
  if #saved ~= #present or tables.same(saved, present) then
    return nil
  end
  local of = {}
  for i, name in ipairs(present) do
    if name:gsub("%d+", "0") ~= saved[i]:gsub("%d+", "0") then
      return nil
    end
    of[name] = saved[i]
  end
  return of
end


-- Returns the name of a parameter among the saved ones: by its name, or by its number if that has
-- no name.
local function saved_parameter(names, by_parameter, target)
  if target.name and by_parameter[target.name] or names[target.key] then
    return target.name
  end
  return by_parameter[target.key] and target.key or target.name or target.key
end


-- Returns the set of parameters that the file lacks, if it has others.
local function missing_ones(names, targets, from)
  local known, missing = {}, {}
  for _, name in pairs(names) do
    known[name] = true
  end
  for _, target in ipairs(targets) do
    local parameter = target.name or target.key
    missing[parameter] = target.required and from[target.key] == nil and not known[parameter]
      or nil
  end
  return missing
end


--- Returns the saved key of each present one.
-- @tparam table saved of `decode`
-- @tparam {table,...} targets for each present state: key, name (or nil), weight, device (its
--   number), required (whether it is updated); states of one parameter in the order of devices
-- @bool keep_unknown whether states of unknown parameters are kept for later
-- @string func for errors
-- @treturn table key -> saved key
-- @treturn table saved keys of unknown parameters, by parameter
function saved_states.match(saved, targets, keep_unknown, func)
  local names, by_parameter = saved.about and saved.about.names or {}, keys_by_parameter(saved)
  local renamed = keep_unknown and renumbered(by_parameter, targets)
  local seen, unknown, from = {}, {}, {}
  for _, target in ipairs(targets) do
    local parameter = renamed and renamed[target.name]
      or saved_parameter(names, by_parameter, target)
    local keys = by_parameter[parameter]
    seen[parameter] = (seen[parameter] or 0) + 1
    if keys then
      from[target.key] = keys[seen[parameter]] or keys[1]
    end
  end
  for parameter, keys in pairs(by_parameter) do
    unknown[parameter] = not seen[parameter] and keys[1] or nil
  end
  if next(by_parameter) == nil then
    return from, unknown
  end
  local missing = missing_ones(names, targets, from)
  local differ = next(missing) ~= nil or next(unknown) ~= nil
  if differ and not keep_unknown or #targets > 0 and next(from) == nil then
    fail_parameters(missing, unknown, func)
  end
  return from, unknown
end


--- Returns the states for present keys, checked.
-- @tparam table saved
-- @tparam table targets as for `match`
-- @tparam table from key -> saved key
-- @tparam Optimizer optimizer that will use the states
-- @string func for errors
function saved_states.moved(saved, targets, from, optimizer, func)
  local states, used = {}, {}
  for _, target in ipairs(targets) do
    local key = from[target.key]
    if key ~= nil and saved.states[key] ~= nil then
      local state = values.value(saved.states[key])
      saved_states.check_state(optimizer, target, state, func)
      states[target.key] = used[key] and saved_states.copy_state(state) or state or values.null
      used[key] = true
    end
  end
  return states
end


-- Progress ----------------------------------------------------------------------------------------

-- Returns the number of updates of a saved key, the largest over all devices.
local function find_count(counts, key)
  local most
  for _, of_device in pairs(counts) do
    most = of_device[key] and math.max(most or 0, of_device[key]) or most
  end
  return most
end


local function moved_counts(counts, targets, from)
  local moved = {}
  for _, target in ipairs(targets) do
    local n = from[target.key] ~= nil and find_count(counts, from[target.key])
    if n then
      moved[target.device] = moved[target.device] or {}
      moved[target.device][target.key] = n
    end
  end
  return moved
end


-- Returns entries by present keys. Keys with the same source get separate arrays.
local function moved_by_key(t, from)
  local moved, used = {}, {}
  for key, before in pairs(from) do
    moved[key] = used[before] and class.outside(saved_states.copy_state, t[before])
      or t[before]
    used[before] = true
  end
  return moved
end


-- Sets a schedule back to its saved position: it may have advanced further.
local function rewind(schedule, saved)
  if saved and type(schedule) == "table" and schedule.class_name == saved.kind then
    for _, name in ipairs(settings.MOVING) do
      schedule[name] = type(saved[name]) == "number" and saved[name] or schedule[name]
    end
  end
end


--- Puts the counts of updates into an optimizer.
-- @tparam Optimizer optimizer
-- @tparam ?table record `about` of the saved bytes
-- @tparam ?table targets as for `match`; nil: the keys are the saved ones
-- @tparam table from key -> saved key
-- @string func for the log
function saved_states.restore_progress(optimizer, record, targets, from, func)
  if not record then
    log:warning(("%s: the states have no counts of updates: bias corrections and schedules begin \z
      with the first update again"):format(func))
    return
  end
  if optimizer.num_update > record.num_update then
    rewind(optimizer.lr_scheduler, record.schedule)
  end
  optimizer.num_update = record.num_update
  optimizer._counts = targets and moved_counts(record.counts, targets, from)
    or record.counts
  for _, name in ipairs(optimizer.progress) do
    optimizer[name] = values.value(record.own[name])
  end
  for _, name in ipairs(optimizer.keyed_progress) do
    local own = values.value(record.own[name])
    optimizer[name] = type(own) == "table" and (targets and moved_by_key(own, from) or own) or nil
  end
end


--- Returns the saved data for a parameter that is added later.
-- @tparam table saved of `decode`
-- @tparam Optimizer optimizer that will use the states
-- @param key the saved key
-- @treturn table state, count, own (the class's own counts, by field)
function saved_states.waiting(saved, optimizer, key)
  local own = {}
  for _, field in ipairs(optimizer.keyed_progress) do
    local by_key = values.value(saved.about.own[field])
    own[field] = type(by_key) == "table" and by_key[key] or nil
  end
  return { state = saved.states[key], count = find_count(saved.about.counts, key), own = own }
end


--- Sets the counts of an index from the saved data that waited for its parameter.
-- @tparam Optimizer optimizer
-- @param index
-- @tparam table waiting of `saved_states.waiting`
function saved_states.settle_counts(optimizer, index, waiting)
  optimizer:_set_count(index, waiting.count)
  for field, v in pairs(waiting.own) do
    optimizer[field] = optimizer[field] or {}
    optimizer[field][index] = class.outside(saved_states.copy_state, v)
  end
end


return saved_states
