--- Checks that given parameters fit those of a module, before any is written.
--
-- The error has three sorted lists: `missing` (names of the module that were not given), `extra`
-- (given names that the module lacks) and `mismatch` (names whose shapes differ), so that a script
-- can rename, drop or initialise them and try again.
--
-- @module tycho.model.param_check

local pairs = require("tycho.core.iterate").pairs
local named = require "tycho.core.dict"
local Error = require "tycho.core.error"
local class = require "tycho.ndarray.class"

local params = {}

local SHOWN = 8                                          -- names of a list in the error's text


--- Returns copies of arrays, by the same names.
function params.copies(arrays)
  local list = {}
  for name, x in pairs(arrays) do
    list[name] = x:copy()
  end
  return list
end


--- Raises E(name) for lists, and for names of file entries (`arg:NAME`) instead of parameter names.
-- @tparam ?table given arrays by name
-- @string func for errors
function params.check_names(given, func)
  for name in pairs(given or {}) do
    if type(name) ~= "string" or name:find("^a[ru][gx]:") then
      Error.raise{ code = "name", func = func, argument = tostring(name),
        expected = "arrays by the names of parameters", got = tostring(name),
        message = "these are the entries of a file; m:load_params(file) and \z
          ty.model.load_checkpoint(prefix, epoch) read it" }
    end
  end
end


-- Returns whether an array has a shape; sizes of 0, and a shape without sizes, are unknown and fit.
local function fits(shape, want)
  local same = #want == 0 or #shape == #want
  for i = 1, same and #want or 0 do
    same = same and (want[i] == 0 or shape[i] == want[i])
  end
  return same
end


-- Adds the differences of one part (arguments or auxiliary states) to the lists.
local function compare(lists, own, given)
  for name, x in pairs(own) do
    local y = given[name]
    local want = class.is_array(x) and x.shape or x
    if y == nil then
      table.insert(lists.missing, name)
    elseif class.is_array(y) and not fits(y._shape, want) then
      table.insert(lists.mismatch, name)
      lists.shapes[name] = { want, y.shape }
    end
  end
  for name in pairs(given) do
    if own[name] == nil then
      table.insert(lists.extra, name)
    end
  end
end


local function names_text(names)
  local parts = {}
  for i = 1, math.min(#names, SHOWN) do
    parts[i] = "'" .. names[i] .. "'"
  end
  return table.concat(parts, ", ")
    .. (#names > SHOWN and (" and %d more"):format(#names - SHOWN) or "")
end


local function shapes_text(lists)
  local parts = {}
  for i = 1, math.min(#lists.mismatch, SHOWN) do
    local name = lists.mismatch[i]
    local want, got = unpack(lists.shapes[name])
    parts[i] = ("'%s' has shape %s, but %s is needed")
      :format(name, Error.show(got), Error.show(want))
  end
  return table.concat(parts, ", ")
    .. (#lists.mismatch > SHOWN and (" and %d more"):format(#lists.mismatch - SHOWN) or "")
end


local function raise(lists, own_names, func, missing, extra, what)
  local parts, first = {}, extra and lists.extra[1] or missing and lists.missing[1]
  if extra then
    local near = #lists.extra == 1 and Error.nearest(lists.extra[1], own_names, 1)[1]
    parts[#parts + 1] = ("unknown parameter%s %s%s (allow_extra = true ignores them)")
      :format(#lists.extra == 1 and "" or "s", names_text(lists.extra),
        near and (", did you mean '%s'?"):format(near) or "")
  end
  if missing then
    parts[#parts + 1] = ("%s not given (allow_missing = true %s)")
      :format(names_text(lists.missing), what)
  end
  if lists.mismatch[1] then
    parts[#parts + 1] = shapes_text(lists)
  end
  local shapes = lists.shapes[lists.mismatch[1]]
  Error.raise{ code = first and "name" or "shape", func = func,
    argument = first or lists.mismatch[1],
    expected = not first and shapes[1] or nil, got = not first and shapes[2] or nil,
    candidates = extra and Error.nearest(lists.extra[1], own_names, 10) or nil,
    missing = lists.missing, extra = lists.extra,
    mismatch = lists.mismatch, message = table.concat(parts, "; ") }
end


local function any(names, is_one)
  for _, name in ipairs(names) do
    if is_one(name) then
      return true
    end
  end
  return false
end


local function always()
  return true
end


--- Raises E(name) for names that differ, E(shape) if only shapes do.
-- @tparam {table,table} own arguments and auxiliary states by name: arrays, or shapes, in which 0
--   is an unknown size
-- @tparam {table,table} given the same for the given parameters; if one is nil, none of its names
--   count as missing
-- @tparam table allow allow_missing; allow_extra ("some": if at least one given name is one of the
--   module); is_missing: function of a name -> whether it must be given; what: the advice for
--   missing ones in the error
-- @string func for errors
function params.check(own, given, allow, func)
  local lists, own_names = { missing = {}, extra = {}, mismatch = {}, shapes = {} }, {}
  local known = 0
  for part = 1, 2 do
    params.check_names(given[part], func)
    if given[part] then
      compare(lists, own[part], given[part])
    end
    for name in pairs(own[part]) do
      own_names[#own_names + 1] = name
      known = known + (given[part] and given[part][name] ~= nil and 1 or 0)
    end
  end
  for _, key in ipairs{ "missing", "extra", "mismatch" } do
    table.sort(lists[key])
  end
  local missing = not allow.allow_missing and any(lists.missing, allow.is_missing or always)
  local extra = lists.extra[1] ~= nil
    and (not allow.allow_extra or allow.allow_extra == "some" and known == 0)
  if missing or extra or lists.mismatch[1] then
    raise(lists, own_names, func, missing, extra, allow.what or "keeps the present values")
  end
end


--- Returns parameters under other names.
-- @tparam table dict name -> array
-- @tparam[opt] function rename of a name -> its new name, or nil to keep it
-- @string func for errors: two parameters with the same new name are E(name)
function params.renamed(dict, rename, func)
  local result = named{}
  for name, x in pairs(dict) do
    local new = rename and rename(name) or name
    if type(new) ~= "string" then
      Error.raise{ code = "type", func = func, argument = "rename",
        expected = "a name, or nil to keep the old one",
        got = Error.kind(new), message = ("'rename' gave a bad name for '%s'"):format(name) }
    elseif result[new] ~= nil then
      Error.raise{ code = "name", func = func, argument = new,
        message = ("'rename' gives two parameters the name '%s'"):format(new) }
    end
    result[new] = x
  end
  return result
end


return params
