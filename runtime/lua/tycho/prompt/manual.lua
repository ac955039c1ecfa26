--- The text of `?name`: operators from the registry, functions and classes from their comments and
-- argument forms.
--
--     manual.text("ty.mod.Module", value)  value: the value of the name, or nil
--
-- A function's parameters are read from its form (core/args.lua), an upvalue, so that help always
-- agrees with the arguments that the function accepts.
--
-- @module tycho.prompt.manual

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local comments = require "tycho.prompt.comments"
local foreign = require "tycho.core.foreign"
local glossary = require "tycho.prompt.glossary"
local members = require "tycho.prompt.members"
local methods = require "tycho.core.methods"
local operator = require "tycho.prompt.operator"
local Error = require "tycho.core.error"
local registry = require "tycho.op.registry"
local translation = require "tycho.prompt.translation"
local values = require "tycho.core.values"

local manual = {}

local WIDTH = 100                                        -- columns of wrapped text


-- Adds a text to the lines, wrapped between words.
local function add_text(lines, text, indent)
  local line = indent
  for word in text:gmatch("%S+") do
    if #line + #word >= WIDTH and line ~= indent then
      lines[#lines + 1] = line
      line = indent
    end
    line = line .. (line == indent and "" or " ") .. word
  end
  lines[#lines + 1] = line
end


-- Adds a row "  name               text"; further lines are indented to the text.
local function add_row(lines, name, text)
  local rows = {}
  add_text(rows, text, (" "):rep(22))
  rows[1] = ("  %-19s "):format(name) .. rows[1]:sub(23)
  for _, row in ipairs(rows) do
    lines[#lines + 1] = row
  end
end


-- Functions ---------------------------------------------------------------------------------------

-- Returns an iterator over the names and values of a function's upvalues.
local function upvalues(f)
  local i = 0
  return function()
    i = i + 1
    return debug.getupvalue(f, i)
  end
end


--- Returns the function inside a wrapper that records the caller (core/origin.lua) or checks the
-- object of a method (core/methods.lua).
function manual.unwrapped(f)
  f = methods.inner(f)
  if debug.getinfo(f, "S").source:find("tycho/core/origin.lua", 1, true) then
    for name, value in upvalues(f) do
      if name == "inner" then
        return value
      end
    end
  end
  return f
end


local function is_form(value)
  local class = type(value) == "table" and getmetatable(value)
  return type(class) == "table" and rawget(class, "class_name") == "form"
end


--- Returns the comment above a function, nil if there is none.
-- @func f
-- @treturn ?table entry of `prompt.comments`
function manual.comment(f)
  local info = debug.getinfo(manual.unwrapped(f), "S")
  return info.source:sub(1, 1) == "@" and comments.at(info.source:sub(2), info.linedefined) or nil
end


--- Returns the form with which a function reads its arguments; nil if it has none, or several of
-- which none has its name. A function that only passes its arguments on gets the form of its name.
-- @func f
-- @string[opt] name the last part of the function's name
function manual.form(f, name)
  local found, count = nil, 0
  for _, value in upvalues(manual.unwrapped(f)) do
    if is_form(value) then
      found, count = value, count + 1
      if name and value.func:match("[%w_]+$") == name then
        return value
      end
    end
  end
  local entry = count == 0 and manual.comment(f)
  return count == 1 and found or entry and args.forms[entry.title] or nil
end


--- Returns a default as a Lua expression.
function manual.literal(value)
  if values.is_plain(value) then
    local parts = {}
    for i, x in ipairs(value) do
      parts[i] = manual.literal(x)
    end
    return "{" .. table.concat(parts, ", ") .. "}"
  end
  return type(value) == "string" and ("%q"):format(value) or Error.show(value)
end


--- Returns the default of a form's parameter as a Lua expression; nil if there is none or it is a
-- function.
function manual.default(p)
  return p.default ~= nil and type(p.default) ~= "function" and manual.literal(p.default) or nil
end


--- Returns the call of a form: "Module:fit{train_data, [eval_data], eval_metric = \"acc\"}".
-- @param form
-- @string[opt] title the text in front of the brace; default: the form's name
function manual.signature(form, title)
  local words = {}
  for i, p in ipairs(form.params) do
    local default = manual.default(p)
    words[i] = default and p.name .. " = " .. default
      or p.required and p.name or "[" .. p.name .. "]"
  end
  if form.rest then
    words[#words + 1] = "..."
  end
  return (title or form.func) .. "{" .. table.concat(words, ", ") .. "}"
end


--- Returns the name of a method's first parameter, the object; nil for other functions.
-- @func f
-- @string title name of the call: "NDArray:get"
function manual.object(f, title)
  return title:find(":", 1, true) and debug.getlocal(manual.unwrapped(f), 1) or nil
end


--- Returns the call of a function without a form: "Module:update_metric(eval_metric, labels)". The
-- names are those of its parameters; parameters that the comment calls optional are in brackets.
-- @func f
-- @string title the text in front of the bracket; with a colon the object is left out
-- @tparam[opt] table entry the function's comment
function manual.plain_signature(f, title, entry)
  f = manual.unwrapped(f)
  local info, object = debug.getinfo(f, "u"), manual.object(f, title)
  local said, optional, names = {}, {}, {}
  for _, p in ipairs(comments.parts(entry).params) do
    said[#said + 1] = p.name ~= object and p or nil
    optional[p.name] = p.type:find("optional", 1, true) ~= nil
  end
  for i = object and 2 or 1, info.nparams do
    names[#names + 1] = debug.getlocal(f, i):match("^_?(%w.*)$")
  end
  if info.isvararg then
    for i = #names + 1, #said do
      names[i] = said[i].name
    end
    names[1] = names[1] or "..."
  end
  for i, name in ipairs(names) do
    names[i] = optional[name] and "[" .. name .. "]" or name
  end
  return title .. "(" .. table.concat(names, ", ") .. ")"
end


-- Adds a row for each parameter of a form, with the comment's text about it.
local function add_form(lines, form, said)
  for i, p in ipairs(form.params) do
    local text = p.type.text
      .. (p.required and ", required" or manual.default(p) and " = " .. manual.default(p) or "")
    local by_name = form.order[i] == p and "" or ", by name"
    local meaning = said[p.name] or glossary.text(form.func, p.name)
    add_row(lines, p.name, text .. by_name .. (meaning ~= "" and "; " .. meaning or ""))
  end
end


-- Adds the text of a comment, and the parameters of a form if there is one.
local function add_comment(lines, entry, form)
  local parts, said = comments.parts(entry), {}
  for _, line in ipairs(parts.lines) do
    lines[#lines + 1] = line
  end
  for _, p in ipairs(parts.params) do
    local known = form and form.by_name[p.name]
    said[p.name] = known and p.text ~= "" and p.text or nil
    if not known then
      add_row(lines, p.name, p.type .. (p.type ~= "" and p.text ~= "" and "; " or "") .. p.text)
    end
  end
  if form then
    add_form(lines, form, said)
  end
  for _, r in ipairs(parts.results) do
    add_row(lines, "returns", r.text ~= "" and r.text or r.type)
  end
end


local function short_path(path)
  return path:match("([^/]*/[^/]*/[^/]*)$") or path
end


-- Returns the comment, found by name, of a function that another function of its file made; nil if
-- there is none.
local function comment_in_file(f, name)
  local source = debug.getinfo(manual.unwrapped(f), "S").source
  for _, entry in ipairs(comments.named(name)) do
    if entry.kind == "function" and "@" .. entry.path == source then
      return entry
    end
  end
end


-- Returns the call of a function according to its comment: "record([train_mode], [f])".
local function commented_signature(entry)
  local names = {}
  for i, p in ipairs(comments.parts(entry).params) do
    names[i] = p.type:find("optional", 1, true) and "[" .. p.name .. "]" or p.name
  end
  return ("%s(%s)"):format(entry.title, table.concat(names, ", "))
end


-- Returns the help about a function; nil if it has neither comment nor form.
local function function_text(name, f)
  local info = debug.getinfo(manual.unwrapped(f), "S")
  local last = name:match("[%w_]+$")
  local own, form = manual.comment(f), manual.form(f, last)
  local entry = own or comment_in_file(f, last)
  if not entry and not form then
    return nil
  end
  local lines = {}
  add_text(lines, form and manual.signature(form)
    or own and manual.plain_signature(f, entry.title, entry) or commented_signature(entry), "")
  add_comment(lines, entry, form)
  lines[#lines + 1] = ("  source: %s:%d; ??%s shows it")
    :format(short_path(info.source), info.linedefined, name)
  return table.concat(lines, "\n")
end


-- Operators ---------------------------------------------------------------------------------------

--- Returns the help of an operator.
-- @tparam table info what `ty.op.info` returns
-- @treturn string
function manual.operator(info)
  local lines = { operator.signature(info) }
  add_text(lines, info.doc, "  ")
  for _, p in ipairs(info.params) do
    local default = operator.default(p)
    add_row(lines, p.name, ("%s%s; %s"):format(operator.type_text(p),
      default and " = " .. default or ", required", p.doc))
  end
  add_row(lines, "gradient:", info.gradient)
  if info.aliases[1] then
    add_row(lines, "other names:", table.concat(info.aliases, ", "))
  end
  local label = "  example:            "
  for _, example in ipairs(operator.examples(info)) do
    for line in example.text:gmatch("[^\n]+") do
      lines[#lines + 1], label = label .. line, (" "):rep(#label)
    end
  end
  return table.concat(lines, "\n")
end


-- Prefixes of operators of inner namespaces: "box_nms" is "_contrib_box_nms" in the registry.
local INNER = { "", "_contrib_", "_linalg_", "_image_" }

-- Returns the help about an operator by its name; nil if there is none.
local function operator_text(name)
  local last = name:match("[%w_]+$")
  for _, inner in ipairs(last and INNER or {}) do
    if registry.find(inner .. last) then
      return manual.operator(require("tycho.op").info(inner .. last))
    end
  end
end


-- Classes and modules -----------------------------------------------------------------------------

--- Returns whether a value is a class.
function manual.is_class(value)
  return type(value) == "table" and type(rawget(value, "class_name")) == "string"
end


local function function_names(t)
  local names = {}
  for name, value in pairs(t) do
    if type(value) == "function" and type(name) == "string"
        and name:sub(1, 1) ~= "_" and name ~= "init" then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  return names
end


--- Returns the comment of a class, nil if there is none.
-- @string name
function manual.class_entry(name)
  for _, kind in ipairs{ "class", "value", "function" } do
    for _, entry in ipairs(comments.named(name)) do
      if entry.kind == kind then
        return entry
      end
    end
  end
end


-- Returns the help about a class.
local function class_text(class)
  local name, base = class.class_name, rawget(class, "super")
  local form = type(class.init) == "function" and manual.form(class.init, name)
  local lines = {}
  add_text(lines, form and manual.signature(form) or name, "")
  add_comment(lines, manual.class_entry(name), form)
  while manual.is_class(class) and class.class_name ~= "Object" do
    local names = function_names(class)
    if names[1] then
      add_row(lines, ("of %s:"):format(class.class_name), table.concat(names, " "))
    end
    class, base = base, base and rawget(base, "super")
  end
  return table.concat(lines, "\n")
end


local NAMES = 80                          -- most names of a module that its help lists

-- Returns a module's comment and its names. If the names are listed, the paragraph "The parts:" is
-- left out.
local function module_text(module, value)
  local lines, names = { (module:gsub("^tycho", "ty")) }, members.list(value)
  for _, entry in ipairs(comments.named(module:match("[%w_]+$"))) do
    if entry.kind == "module" and entry.title == lines[1] then
      add_comment(lines, entry)
    end
  end
  local text = table.concat(lines, "\n")
  if #names == 0 or #names > NAMES then
    return text
  end
  lines = { (text:gsub("\n\nThe parts:.-\n\n", "\n\n"):gsub("\n\nThe parts:.*", "")) }
  add_row(lines, "names:", table.concat(names, " "))
  return table.concat(lines, "\n")
end


-- Names of other libraries ------------------------------------------------------------------------

-- Returns the comment of a name in Tycho that the table of foreign names refers to; nil if there is
-- none.
local function foreign_entry(name)
  local value = name:find("^%l") and translation.value(name)
  local entry = type(value) == "function" and manual.comment(value) or nil
  for _, other in ipairs(comments.named(foreign.last(name))) do
    entry = entry or (other.title == name or other.title == name:gsub(":", ".")
      or other.title == foreign.last(name)) and other or nil
  end
  return entry
end


-- Returns the description of an option of an operator, or of a function or class by the name of its
-- form.
local function option_text(owner, option)
  local info = registry.find(owner) and require("tycho.op").info(owner)
  for _, p in ipairs(info and info.params or {}) do
    if p.name == option then
      return operator.type_text(p) .. "; " .. p.doc
    end
  end
  for _, p in ipairs(comments.parts(foreign_entry(owner)).params) do
    if p.name == option and p.text ~= "" then
      return p.text
    end
  end
  return glossary.text(owner, option)
end


-- Returns one line about a name in Tycho: the first sentence of its comment or of its operator.
local function foreign_summary(name)
  local owner, option = name:match("^(.-){([%w_]+)}$")
  if owner then
    return option_text(owner, option)
  end
  local last, entry = foreign.last(name), foreign_entry(name)
  local inner = ("_%s_%s"):format(name:match("%.(%l+)%.") or "contrib", last)
  local schema = not entry and (registry.find(last) or registry.find(inner)
    or registry.find("broadcast_" .. last))
  return schema and (schema.doc:match("^(.-%.)%s") or schema.doc)
    or entry and comments.summary(entry) or ""
end


-- Returns the titles of methods whose last part is the name, without duplicates.
local function method_titles(name)
  local list, seen = {}, {}
  for _, entry in ipairs(comments.named(name)) do
    if entry.title:find("^%u.*:") and not comments.is_hidden(entry) and not seen[entry.title] then
      list[#list + 1] = entry.title
      seen[entry.title] = true
    end
  end
  return list
end


-- Returns the counterparts of a name of another library; nil for other words.
local function foreign_text(name)
  local word = name:match("[%w_]+$") or ""
  local names, instead = foreign.names(word), foreign.instead(word)
  if not names[1] and not instead then
    return nil
  end
  local lines, also = { name .. (instead and ": " .. instead or " is here:") }, method_titles(word)
  for _, here in ipairs(names) do
    add_row(lines, translation.written(here), foreign_summary(here))
  end
  if also[1] then
    add_row(lines, "also:", table.concat(also, " "))
  end
  return (table.concat(lines, "\n"):gsub("[ ]+\n", "\n"):gsub("%s+$", ""))
end


-- By name -----------------------------------------------------------------------------------------

local function entry_text(entry)
  local lines = { entry.title }
  add_comment(lines, entry)
  lines[#lines + 1] = ("  source: %s:%d"):format(short_path(entry.path), entry.line)
  return table.concat(lines, "\n")
end


-- Returns the text of the entries whose last part is the name: a single one in full, several as a
-- list; nil if there are none.
local function entries_text(name)
  local entries = comments.named(name:match("[%w_]+$") or "")
  if #entries <= 1 then
    return entries[1] and entry_text(entries[1])
  end
  local lines = {}
  for _, entry in ipairs(entries) do
    lines[#lines + 1] = ("%-34s %s"):format(entry.title, comments.summary(entry))
  end
  return table.concat(lines, "\n")
end


-- Returns known names that are similar to a name, as text.
local function nearest(name)
  local names = comments.names()
  for _, known in ipairs(registry.names(true)) do
    names[#names + 1] = known
  end
  return table.concat(Error.nearest(name:match("[%w_]*$"), names, 5), ", ")
end


-- Returns the help about a value; nil if there is none.
local function value_text(name, value)
  if type(value) == "function" then
    return function_text(name, value) or operator_text(name)
  elseif manual.is_class(value) then
    return class_text(value)
  elseif type(value) == "table" and members.find_module(value) then
    return module_text(members.find_module(value), value)
  elseif type(value) == "table" and manual.is_class(getmetatable(value)) then
    return class_text(getmetatable(value))
  end
end


--- Returns the source lines of a function, or a sentence if there are none.
-- @string name the name that was asked for
-- @param value the value of the name
-- @treturn string
function manual.source(name, value)
  local info = type(value) == "function" and debug.getinfo(manual.unwrapped(value), "S")
  local file = info and info.source:sub(1, 1) == "@" and io.open(info.source:sub(2))
  if not file then
    local known = registry.find(name:match("[%w_]+$") or "")
    return known and name .. " is an operator, written in C; ?" .. name .. " describes it"
      or "no Lua source of " .. name
  end
  local lines, n = { ("-- %s:%d"):format(info.source:sub(2), info.linedefined) }, 0
  for line in file:lines() do
    n = n + 1
    if n >= info.linedefined and n <= info.lastlinedefined then
      lines[#lines + 1] = line
    end
  end
  file:close()
  return table.concat(lines, "\n")
end


-- Modules whose classes are found without their path.
local CLASSES = { "gluon", "gluon.nn", "gluon.rnn", "gluon.loss", "gluon.data",
  "gluon.data.vision", "gluon.data.vision.transforms", "gluon.contrib.estimator",
  "gluon.contrib.nn", "gluon.contrib.rnn", "autograd" }

-- Returns the class of gluon with a name, and its path; nil if there is none.
local function gluon_class(name)
  for _, path in ipairs(name:find("^%u[%w]*$") and CLASSES or {}) do
    local module = translation.value(path)
    local ok, value = pcall(function() return module[name] end)
    if ok and manual.is_class(value) then
      return value, ("ty.%s.%s"):format(path, name)
    end
  end
end


-- Returns the help about a class of gluon, with other meanings of its name. If there is an operator
-- of that name, its help comes first.
local function gluon_text(name)
  local class, path = gluon_class(name)
  if not class then
    return nil
  end
  local schema, others = operator_text(name), {}
  for _, here in ipairs(foreign.names(name)) do
    local written = translation.written(here)
    others[#others + 1] = written ~= path and written or nil
  end
  if not schema and comments.named(name)[1] then
    for _, entry in ipairs(comments.named(name)) do
      local other = entry.kind == "class" and entry.title:find("^ty%.") and entry.title ~= path
      others[#others + 1] = other and entry.title or nil
    end
  end
  local lines = { schema or class_text(class) }
  if schema or others[1] then
    add_row(lines, "also:", schema and path or table.concat(others, " "))
  end
  return table.concat(lines, "\n")
end


-- Returns the help about a name without a value.
local function name_text(name)
  return gluon_text(name) or operator_text(name) or foreign_text(name) or entries_text(name)
end


--- Returns the help about a name.
-- @string name the name that was asked for, a path
-- @param[opt] value the value of the name
-- @treturn string
-- @treturn boolean whether there is any help
function manual.text(name, value)
  local text = value ~= nil and value_text(name, value) or value == nil and name_text(name)
  if text then
    return text, true
  end
  return ("nothing is known about '%s'; near: %s"):format(name, nearest(name)), false
end


return manual
