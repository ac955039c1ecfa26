--- Call forms: the schemas by which the arguments of public functions are read and checked.
--
-- A form is declared once, next to its function, and called with the function's arguments. It
-- returns a table of checked values by parameter name:
--
--     local args = require "tycho.core.args"
--
--     local FULL = args.form("nd.full", {
--       { "shape", "shape" },                  -- required: neither "?" nor a default
--       { "val", "number" },
--       { "dtype", "dtype", "float32" },       -- a default makes it optional
--       "*",                                   -- what follows is given by name only
--       { "ctx", "context?" },                 -- "?" makes it optional, nil when absent
--     })
--     function nd.full(...)
--       local a = FULL(...)
--       return fill(a.shape, a.val, a.dtype, a.ctx)
--     end
--     nd.full{shape = {2, 3}, val = 1}         -- options form (R1)
--     nd.full{{2, 3}, 1, dtype = "int32"}      -- its array part is positional
--     nd.full({2, 3}, 1, {ctx = ty.cpu(1)})    -- positional form (R4), keywords last
--
-- If the parameter of rule R2 is a shape, its sizes may be separate arguments, `nd.zeros(2, 3)`, or
-- a table inside the table, `nd.zeros{{2, 3}, dtype = "int32"}`. If a list is the only positional
-- parameter, its members may be separate arguments, too: `sym.Group(a, b)`.
-- If the last positional parameter is optional and takes anything, a table whose keys all name
-- options that are not given yet is the options: `NDArrayIter(x, {batch_size = 32})` has no labels.
--
--     local BACKWARD = args.form("Executor:backward", {
--       list = true,                   -- rule R2: a table's whole array part is parameter 1
--       dict = true,                   -- rule R3: a lone table is options only if all its keys are
--                                      parameters
--       { "out_grads", "any?" }, { "is_train", "boolean", true },
--     })
--     function Executor:backward(...)  -- methods pass what follows self
--       local a = BACKWARD(...)
--     end
--
--     local FORWARD = args.form("Executor:forward", {
--       rest = "arrays",                      -- other names are collected: a.arrays = {data = ...}
--       { "is_train", "boolean", false }, { "args", "dict?" },
--     })
--
-- Types: any, number, integer, positive (an integer above 0), text, path, boolean, function (or
-- callable), table, list, dict, shape (a number or sizes, 0 for an unknown dimension; becomes a
-- fresh list), dims (like shape, negative numbers too), dtype, context, symbol, array, null
-- (`ty.null` is passed on); "a|b" takes either; "?" at the end: optional. A list of texts takes one
-- of these words. A class takes its instances. A function `f(value) -> ok, converted, expected,
-- code, got` is called for the check. `args.types` may be extended.
--
-- `advice`: a function of an unknown keyword -> what to do instead, for the error, or nil.
--
-- nil at the end counts as absent, and so does `ty.null` for an optional parameter unless its type
-- names null. Lua's reserved words have a second spelling with an underscore (`end_ = 3`);
-- the result uses the plain name.
--
-- Mistakes: unknown keyword E(name) with candidates, given twice E(name), missing
-- E(value), wrong kind E(type).
--
-- @module tycho.core.args

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local reserved = require "tycho.core.reserved"
local table_new = require "table.new"
local types = require "tycho.core.types"
local values = require "tycho.core.values"

local args = { forms = {} }                              -- forms: by public name, for help

local null, is_plain = values.null, values.is_plain

local byte, UNDERSCORE = string.byte, ("_"):byte()


--- Returns the plain spelling of a name: "end_" is "end", "repeat_" is "repeat", others stay.
function args.bare_name(name)
  local word = byte(name, -1) == UNDERSCORE and name:match("^(%a+)_$")
  return word and reserved[word] and word or name
end


-- Types by name, and codes of element types: see core/types.lua.
args.types, args.class = types.named, types.class
args.DTYPES, args.DTYPE_NAMES = types.DTYPES, types.DTYPE_NAMES


-- Forms -------------------------------------------------------------------------------------------

local Form = Class:extend("form")


local function compile_param(form, entry, positional)
  local kind, optional, takes_null = entry[2] or "any", false, false
  if type(kind) == "string" then
    kind, optional = kind:gsub("%?$", "")
    optional = optional > 0
    takes_null = ("|" .. kind .. "|"):find("|null|", 1, true) ~= nil
  end
  local p = { name = entry[1], type = types.resolve(kind), default = entry[3], null = takes_null }
  p.required = not optional and entry[3] == nil
  form.params[#form.params + 1] = p
  form.by_name[p.name] = p
  if positional then
    form.order[#form.order + 1] = p
  end
end


function Form:init(func, spec)
  self.func, self._spec = func, spec
  self.list, self.dict, self.rest = spec.list or false, spec.dict or false, spec.rest or false
  self.advice = spec.advice or false
end


-- Sets the fields that a form derives from its list of parameters. Most forms of a program are
-- never used, and a compiled parameter takes three times the memory of its entry.
local function compile_form(self)
  local spec, positional = self._spec, true
  self._spec, self.params, self.order, self.by_name = nil, {}, {}, {}
  for _, entry in ipairs(spec) do
    if entry == "*" then
      positional = false
    else
      compile_param(self, entry, positional)
    end
  end
  self.capacity = #self.params + 1
  local first = self.list and self.order[1].type
  self.sizes = first == types.named.shape or first == types.named.dims
  self.members = first == types.named.list and #self.order == 1
end


-- Compiles the form when a field is read that it does not have yet.
function Form.__index(self, key)
  if rawget(self, "_spec") then
    compile_form(self)
  end
  local value = rawget(self, key)
  return value == nil and Form[key] or value
end


--- Returns accepted parameter names, in order.
function Form:names()
  local names = {}
  for i, p in ipairs(self.params) do
    names[i] = p.name
  end
  return names
end


local function fail_twice(form, name)
  Error.raise{ code = "name", func = form.func, argument = name,
    message = ("'%s' is given twice, by position and by name"):format(name) }
end


local function fail_count(form, n)
  local by_order, by_name = {}, {}
  for i, p in ipairs(form.params) do
    table.insert(form.order[i] == p and by_order or by_name, p.name)
  end
  Error.raise{ code = "type", func = form.func, expected = #form.order, got = n,
    message = ("takes at most %d positional argument%s%s, got %d%s"):format(#form.order,
      #form.order == 1 and "" or "s",
      by_order[1] and " (" .. table.concat(by_order, ", ") .. ")" or "", n,
      by_name[1] and "; by name: " .. table.concat(by_name, ", ") or "") }
end


-- Checks one value and stores what it becomes.
local function accept(form, given, p, value)
  if given[p.name] ~= nil then
    fail_twice(form, p.name)
  end
  if value == null and not p.null and (not p.required and p.default == nil) then
    return
  end
  local ok, converted, expected, code, got = p.type.check(value)
  if not ok then
    expected = expected or p.type.text
    Error.raise{
      code = code or "type", func = form.func, argument = p.name, expected = expected,
      got = got or Error.kind(value), message = ("bad '%s'"):format(p.name),
      candidates = p.type.words and Error.nearest(value, p.type.words) or nil,
    }
  end
  if converted == nil then
    converted = value
  end
  given[p.name] = converted
end


local function accept_named(form, given, options)
  for key, value in pairs(options) do
    if type(key) == "string" then
      local p = form.by_name[key] or form.by_name[args.bare_name(key)]
      if p then
        accept(form, given, p, value)
      elseif form.rest then
        given[form.rest][key] = value
      else
        local advice = form.advice and form.advice(key)
        Error.unknown{ func = form.func, argument = key, what = "argument", names = form:names(),
          message = advice and ("unknown argument '%s': %s"):format(key, advice) }
      end
    elseif type(key) ~= "number" or key < 1 or key > #options then
      Error.raise{ code = "type", func = form.func, argument = tostring(key),
        message = ("options are named by text, not by %s"):format(Error.kind(key)) }
    end
  end
end


local function accept_order(form, given, list, n)
  if n > #form.order then
    fail_count(form, n)
  end
  for i = 1, n do
    if list[i] ~= nil then
      accept(form, given, form.order[i], list[i])
    end
  end
end


-- Accepts the entries of a call's only table: positional ones (as one list for a form of lists,
-- unless a table inside it has the sizes), then named ones (rules R1, R2).
local function accept_options(form, given, options)
  local n = #options
  if form.list and n > 0 and not (form.sizes and is_plain(options[1])) then
    local list = {}
    for i = 1, n do
      list[i] = options[i]
    end
    accept(form, given, form.order[1], list)
  else
    accept_order(form, given, options, n)
  end
  accept_named(form, given, options)
end


-- Returns whether a lone table of a function marked with R3 is a table of options.
local function all_names_known(form, t)
  local named = false
  for key in pairs(t) do
    if type(key) == "string" then
      named = true
      if not (form.by_name[key] or form.by_name[args.bare_name(key)]) then
        return false
      end
    end
  end
  return named
end


local function accept_lone(form, given, t)
  if form.dict and not all_names_known(form, t) then
    accept(form, given, form.order[1], t)
  else
    accept_options(form, given, t)
  end
end


-- Returns whether all names of a table are options that no earlier position gave, with at least one
-- besides the option of this position. False if the option of this position is required.
local function names_options(form, t, position)
  local others, here = false, form.order[position]
  if here.required or here.type ~= types.named.any then
    return false
  end
  for key in pairs(t) do
    local p = type(key) == "string" and form.by_name[args.bare_name(key)]
    if not p then
      return false
    end
    for i = 1, position - 1 do
      if form.order[i] == p then
        return false
      end
    end
    others = others or p ~= form.order[position]
  end
  return others
end


-- Returns a list whose first entry holds the leading arguments as one list, followed by a table of
-- options if that is last; and its length.
local function gather(list, n)
  local members, last = {}, list[n]
  for i = 1, is_plain(last) and n - 1 or n do
    members[i] = list[i]
  end
  list = { members, #members < n and last or nil }
  return list, #list
end


local function accept_positional(form, given, list, n)
  if form.sizes and type(list[1]) == "number" and type(list[2]) == "number"
      or form.members and list[2] ~= nil and not is_plain(list[1]) and not is_plain(list[2]) then
    list, n = gather(list, n)
  end
  local last = list[n]
  local p = form.order[n]
  local taken = p and p.type.takes and is_plain(last) and p.type.takes(last)
  if is_plain(last) and not (taken and not names_options(form, last, n)) then
    if #last > 0 then
      Error.raise{ code = "type", func = form.func, argument = p and p.name,
        got = "a table with a list in it", expected = p and p.type.text or "a table of options",
        message = ("bad argument %d"):format(n) }
    end
    n = n - 1
    accept_named(form, given, last)
  end
  accept_order(form, given, list, n)
end


-- Raises E(value) for a required parameter that is missing. If a method got no argument at all, the
-- message suggests the colon of a method call.
local function fail_missing(form, p, n)
  local hint = n == 0 and form.func:match(":(.*)$")
  Error.raise{ code = "value", func = form.func, argument = p.name, expected = p.type.text,
    got = "nothing", message = ("'%s' is missing%s"):format(p.name, hint
      and ("; methods take a colon: x:%s(...), not x.%s(...)"):format(hint, hint) or "") }
end


local function finish(form, given, n)
  for _, p in ipairs(form.params) do
    if given[p.name] == nil then
      if p.required then
        fail_missing(form, p, n)
      end
      given[p.name] = p.default
    end
  end
  return given
end


--- Reads a call's arguments.
-- @treturn table checked values by parameter name; other names under the form's `rest`
function Form:__call(...)
  local n, first = select("#", ...), ...
  if n > 1 or first == nil then
    n = values.count(...)
  end
  local given = table_new(0, self.capacity)
  if self.rest then
    given[self.rest] = {}
  end
  if n == 1 and is_plain(first) then
    accept_lone(self, given, first)
  elseif n > 0 then
    accept_positional(self, given, { ... }, n)
  end
  return finish(self, given, n)
end


--- Raises E(name) if a dictionary parameter seems to be a misplaced table of options: one of its
-- keys is a parameter of the function and not a valid name of the dictionary.
-- @string param the dictionary parameter
-- @tparam table dict its value
-- @tparam {string,...} names valid names of the dictionary
function Form:check_dict(param, dict, names)
  local own = {}
  for _, name in ipairs(names) do
    own[name] = true
  end
  for key in pairs(dict) do
    if type(key) == "string" and self.by_name[key] and not own[key] then
      Error.raise{ code = "name", func = self.func, argument = key,
        candidates = Error.nearest(key, names, 10),
        message = ("'%s' is an option of the function, but is inside '%s'; \z
          give the options in one table: "
          .. "f{%s = ..., %s = ...}"):format(key, param, param, key) }
    end
  end
end


--- Returns the `advice` of a form for names of the reference that are others here.
-- @tparam table names of the reference -> here
-- @treturn function
function args.renamed(names)
  return function(key)
    return names[key] and ("it is '%s' here"):format(names[key])
  end
end


--- Declares a form; see the top of the file.
-- @string func the public name, for errors: "nd.full", "Executor:backward"
-- @tparam table spec parameters in order, and `list`, `dict`, `rest`
-- @return the form: call it with the arguments
function args.form(func, spec)
  local form = Form(func, spec)
  args.forms[func] = form
  return form
end


--- Returns a method of a function whose first parameter is the object: `x:f(1, {axis = 0})`, and
-- `x:f{1, axis = 0}` for a lone table with names.
-- @func f called with its arguments, or with one table of them
-- @treturn function
function args.method(f)
  return function(self, first, ...)
    if select("#", ...) > 0 or not is_plain(first) or not values.has_names(first) then
      return f(self, first, ...)
    end
    local given = { self }
    for key, value in pairs(first) do
      given[type(key) == "number" and key + 1 or key] = value
    end
    return f(given)
  end
end


--- Returns the sizes and options of a call such as `randn(2, 3, {loc = 1})` or `randn{2, 3, loc =
-- 1}`.
-- @string func the public name, for errors
-- @param ... the call's arguments
-- @treturn table the options; `shape` has the sizes, if there are any
function args.sizes_and_options(func, ...)
  local list, n, options, shape = { ... }, values.count(...), {}, {}
  local last = is_plain(list[n]) and list[n] or {}
  for key, value in pairs(last) do
    if type(key) == "string" then
      options[key] = value
    end
  end
  for i = 1, last == list[n] and n - 1 or n do
    shape[i] = list[i]
  end
  for _, size in ipairs(last) do
    shape[#shape + 1] = size
  end
  if #shape > 0 and options.shape ~= nil then
    fail_twice({ func = func }, "shape")
  end
  options.shape = options.shape or #shape > 0 and shape or nil
  return options
end


--- Returns a dictionary or a list of `{key, value}` pairs as a dictionary and its keys in
-- order (sorted for a dictionary); nil for another list, or for a list with gaps or named keys.
-- @tparam table t
-- @treturn table,{string,...}
function args.pairs_of(t)
  local dict, keys = {}, {}
  local listed = #t > 0
  if listed and not values.is_list(t) then
    return nil
  end
  for i = 1, #t do
    local pair = t[i]
    if not (is_plain(pair) and type(pair[1]) == "string" and pair[2] ~= nil and #pair == 2) then
      return nil
    end
    dict[pair[1]], keys[i] = pair[2], pair[1]
  end
  if listed then
    return dict, keys
  end
  for key, value in pairs(t) do
    dict[key], keys[#keys + 1] = value, key
  end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  return dict, keys
end


return args
