-- Writes descriptions of the library for editors and tools: definitions for the Lua language server
-- (---@meta files), and the same as JSON. Both are made from the registry of operators, the forms
-- of functions and their comments.
--
--   build/tycho scripts/dev/library.lua FOLDER    from the root of a checkout; the folder exists
--
-- FOLDER gets tycho.lua (the namespaces), a file for each page of the reference, operators of nd,
-- sym and F, members.lua (names that the reference leaves out) and api.json. A class of the library
-- becomes a class of the same path ("ty.io.NDArrayIter"), the options of a call a class with the
-- ending ".options".

package.path = "scripts/dev/?.lua;" .. package.path

local entries = require "doc.entries"
local comments = require "tycho.prompt.comments"
local json = require "tycho.core.json"
local manual = require "tycho.prompt.manual"
local members = require "tycho.prompt.members"
local operator = require "tycho.prompt.operator"
local registry = require "tycho.op.registry"
local reserved = require "tycho.core.reserved"
local ty = require "tycho"

-- Names that do not exist are looked up. The search for similar names would take half of the time.
package.loaded["tycho.core.nearest"] = function() return {}, false end

local WIDTH = 100                                        -- columns of comments

-- Types -------------------------------------------------------------------------------------------

-- Name of a class -> its path, the first of several: "NDArray", "ty.nd.NDArray". CLASS_PATHS: by
-- the class.
local PATHS, CLASS_PATHS = {}, {}

-- Names that are defined: "ty.nd.zeros" -> true. Namespaces with members: "gluon.nn" -> true.
local DEFINED, SPACES = {}, {}

-- Types in forms and comments -> types of the language server.
local TYPES = {
  [""] = "any", value = "any", ["another value"] = "any", number = "number", integer = "integer",
  int = "integer", boolean = "boolean", bool = "boolean", ["true"] = "true", text = "string",
  string = "string", list = "any[]", ["list of integers"] = "integer[]", shape = "ty.Shape",
  table = "table", ["table of names"] = "table<string, any>", dtype = "ty.DType",
  context = "ty.Context", ["function"] = "function", ["ty.null"] = "ty.Null",
  ["shape (a list of sizes)"] = "ty.Shape", ["context such as ty.cpu()"] = "ty.Context",
}


local lua_type

-- Returns the words that an option accepts as types: `"relu"|true` for "relu, true".
local function choice_type(words)
  local list = {}
  for i, word in ipairs(words) do
    list[i] = (word == "true" or word:find("^-?%d")) and word or ("%q"):format(word)
  end
  return table.concat(list, "|")
end


local function single_type(text)
  local name = text:gsub("^an? ", ""):gsub("^(integer) of at least .*", "%1"):gsub("^BaseModule$",
    "Module")
  local optional, inner = name:match("^(%??)(.*)$")
  local element = inner:match("^{(.*),%.%.%.}$")
  if name:find("^one of ") then
    local words = {}
    for word in name:sub(8):gmatch("[^, ]+") do
      words[#words + 1] = word
    end
    return choice_type(words)
  elseif optional == "?" then
    return lua_type(inner:gsub("|", " or ")) .. "|nil"
  elseif element then
    local of = single_type(element)
    return of:find("|", 1, true) and "(" .. of .. ")[]" or of .. "[]"
  end
  return TYPES[name] or PATHS[name] or "any"
end


-- Returns the type of a parameter or a result: "number|ty.nd.NDArray" for "a number or an NDArray".
function lua_type(text)
  local list, seen = {}, {}
  text = text:gsub("^true or false", "boolean"):gsub("^a context or \"all\"$", "a context or text")
  for part in (text .. " or "):gmatch("(.-) or ") do
    local one = single_type(part)
    list[#list + 1] = not seen[one] and one or nil
    seen[one] = true
  end
  return seen.any and "any" or table.concat(list, "|")
end


local OPERATOR_TYPES = {
  { "^Shape%(tuple%)", "ty.Shape" }, { "^boolean", "boolean" }, { "^dtype", "ty.DType" },
  { "^float", "number" }, { "^int", "integer" }, { "^string", "string" },
  { "^tuple of floats", "number[]" }, { "^tuple of ints", "integer[]" },
}

local function operator_type(p)
  local words, kind = operator.choices(p), "any"
  for _, row in ipairs(OPERATOR_TYPES) do
    kind = p.type:find(row[1]) and row[2] or kind
  end
  return (words and choice_type(words) or kind) .. (p.type:find(" or None") and "|ty.Null" or "")
end


-- Text --------------------------------------------------------------------------------------------

-- Adds a text as comment lines; paragraphs and indented lines are preserved.
local function add_comment(out, lines)
  while lines[#lines] == "" do
    table.remove(lines)
  end
  for _, line in ipairs(lines) do
    out[#out + 1] = ("---" .. (line == "" and "" or " " .. line))
  end
end


-- Returns a text wrapped between words.
local function broken(text)
  local lines, line = {}, ""
  for word in text:gmatch("%S+") do
    if #line + #word >= WIDTH then
      lines[#lines + 1], line = line, ""
    end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return lines
end


local function one_line(text)
  return (text:gsub("%s+", " "):gsub("^ ", ""):gsub(" $", ""))
end


-- Returns a name in the form of a field of a class, or of an index of a table in an assignment.
local function field_name(name)
  return (reserved[name] or not name:find("^[%a_][%w_]*$")) and ("[%q]"):format(name) or name
end


local function member(owner, name, sign)
  return reserved[name] and ("%s[%q]"):format(owner, name) or owner .. (sign or ".") .. name
end


-- Writes a class of options: name, rows of {name, type, required, text}. All fields are optional
-- for the language server, since the table may contain the values by position.
local function add_options(out, name, base, rows)
  out[#out + 1] = "---@class " .. name .. (base and ": " .. base or "")
  for _, row in ipairs(rows) do
    local field = field_name(row.name)
    local text = (row.required and "(required) " or "") .. row.text
    out[#out + 1] = one_line(field:sub(1, 1) == "["
      and ("---@field %s %s|nil %s"):format(field, row.type, text)
      or ("---@field %s%s %s %s"):format(field, field:find("^%.") and "" or "?", row.type, text))
  end
  out[#out + 1] = ""
end


-- Classes and functions ---------------------------------------------------------------------------

-- Returns the text of an option, with its default.
local function option_text(p)
  return one_line((p.default and "(default " .. p.default .. ") " or "") .. p.text)
end


local function option_rows(item)
  local rows = {}
  for _, p in ipairs(item.options) do
    rows[#rows + 1] = { name = p.name, type = lua_type(p.type), required = p.required,
      text = option_text(p) }
  end
  return rows
end


-- Writes the types of results; "NDArray,NDArray" are two. Without any, the language server would
-- infer from the empty body that there are no results.
local function add_results(out, item)
  if not item.results[1] then
    out[#out + 1] = "---@return any"
  end
  for _, r in ipairs(item.results) do
    if r.type:find("^[%w_]+,[%w_,]+$") then
      for one in r.type:gmatch("[^,]+") do
        out[#out + 1] = "---@return " .. lua_type(one)
      end
    else
      out[#out + 1] = one_line("---@return " .. lua_type(r.type) .. " # " .. r.text):gsub(" #$", "")
    end
  end
end


local function takes_options(item)
  return item.call ~= nil and item.call:find("{.*}$") ~= nil
end


-- Writes the parameters of a function with positional parameters; returns their names. An optional
-- parameter may be replaced by a table of options; space: the file's table, whose name parameters
-- must not have.
local function add_parameters(out, item, space)
  local names, by_name = {}, {}
  for _, p in ipairs(item.options) do
    by_name[p.name] = p
  end
  for word in (item.call or "()"):match("%((.*)%)$"):gmatch("[^,%s]+") do
    local name = word:match("^%[?([%w_%.]+)%]?$") or "..."
    local p = by_name[name] or { type = "", text = "" }
    local lua_name = (reserved[name] or name == space) and name .. "_" or name
    local optional = name ~= "..." and (word:find("^%[") or name == "options")
    local kind = lua_type(p.type)
    names[#names + 1] = lua_name
    out[#out + 1] = one_line(("---@param %s%s %s%s %s"):format(lua_name, optional and "?" or "",
      kind, optional and kind ~= "any" and "|table" or "", p.text))
  end
  return names
end


-- Writes a call with options: first a table, or values by position.
local function add_call(out, item, title, space)
  if not takes_options(item) then
    return add_parameters(out, item, space)
  end
  out[#out + 1] = "---@param options " .. title .. ".options|any"
  out[#out + 1] = "---@param ... any the same by position"
  return { "options", "..." }
end


-- Returns namespace and class of a class's path: "gluon.nn", "Dense" of "ty.gluon.nn.Dense".
local function split_path(path)
  return path:match("^ty%.([%w_.]+)%.([%w_]+)$")
end


-- Adds a function of a namespace or a method; spaces: the namespaces that the file needs, with the
-- classes in them that it needs; above: the class under which the reference lists it, if any.
local function add_function(out, item, spaces, above)
  local owner, sign, name = item.title:match("^(.*)([.:])([%w_]+)$")
  local of_class = above and above.class.class_name == owner and above.title or PATHS[owner]
  local path, space, class = of_class or owner, owner:match("^ty%.([%w_.]+)$"), nil
  if of_class then
    space, class = split_path(of_class)
  end
  if not space then
    return
  end
  spaces[space] = spaces[space] or {}
  spaces[space][class or ""] = true
  local title = path .. "." .. name
  DEFINED[title] = true
  if takes_options(item) then
    add_options(out, title .. ".options", nil, option_rows(item))
  end
  add_comment(out, item.lines)
  local names = table.concat(add_call(out, item, title, space:match("^[%w_]+")), ", ")
  add_results(out, item)
  local place = class and space .. "." .. class or space
  out[#out + 1] = reserved[name]
    and ("%s = function(%s) end"):format(member(place, name), (sign == ":" and "self"
      .. (names ~= "" and ", " or "") or "") .. names)
    or ("function %s(%s) end"):format(member(place, name, sign), names)
  out[#out + 1] = ""
end


-- Returns the path of the nearest base class that the reference describes; nil if there is none.
local function base_path(class)
  local base = rawget(class, "super")
  while base and not CLASS_PATHS[base] do
    base = rawget(base, "super")
  end
  return base and CLASS_PATHS[base]
end


local function add_class(out, item, spaces)
  local space, name = split_path(item.title)
  if not space then
    return
  end
  spaces[space] = spaces[space] or {}
  if takes_options(item) then
    local path = item.base and CLASS_PATHS[rawget(item.class, "super")]
    add_options(out, item.title .. ".options", path and path .. ".options", option_rows(item))
  end
  add_comment(out, item.lines)
  DEFINED[item.title] = true
  out[#out + 1] = "---@class " .. item.title .. ": " .. (base_path(item.class) or "ty.Class")
  if takes_options(item) then
    out[#out + 1] = ("---@overload fun(options: %s.options|any, ...: any): %s"):format(item.title,
      item.title)
  else
    out[#out + 1] = "---@overload fun(...: any): " .. item.title
  end
  out[#out + 1] = ("%s.%s = {}"):format(space, name)
  out[#out + 1] = ""
end


local function sorted_names(set)
  local names = {}
  for name in pairs(set) do
    names[#names + 1] = name ~= "" and name or nil
  end
  table.sort(names)
  return names
end


-- Returns the text of a file: tables of the namespaces and of enclosing ones, classes of other
-- files whose methods are here, the body.
local function with_spaces(body, spaces)
  local text, out = table.concat(body, "\n"), { "---@meta _", "" }
  for _, space in ipairs(sorted_names(spaces)) do
    local outer = space:match("^(.*)%.")
    while outer do
      spaces[outer] = spaces[outer] or {}
      outer = outer:match("^(.*)%.")
    end
  end
  for _, space in ipairs(sorted_names(spaces)) do
    SPACES[space] = true
    out[#out + 1] = "---@class ty." .. space
    out[#out + 1] = ("%s%s = {}\n"):format(space:find(".", 1, true) and "" or "local ", space)
    for _, class in ipairs(sorted_names(spaces[space])) do
      local name = ("%s.%s"):format(space, class)
      if not text:find("\n" .. name .. " = {}\n", 1, true) then
        out[#out + 1] = ("---@class ty.%s\n%s = {}\n"):format(name, name)
      end
    end
  end
  return table.concat(out, "\n") .. "\n" .. text .. "\n"
end


-- Returns the function of ty.F for a function of ty.nd that is not an operator; nil if there is
-- none.
local function shared_function(item)
  local name = item.title:match("^ty%.nd%.([%w_]+)$")
  local known = name and not registry.find(name) and pcall(function() return ty.F[name] end)
  return known and setmetatable({ title = "ty.F." .. name,
    results = { { type = "NDArray or Symbol", text = "" } } }, { __index = item }) or nil
end


local function page_text(page)
  local body, spaces, above = {}, {}, nil
  for _, item in ipairs(page.entries) do
    if item.kind == "class" then
      add_class(body, item, spaces)
      above = item
    else
      add_function(body, item, spaces, above)
      local shared = shared_function(item)
      if shared then
        add_function(body, shared, spaces)
      end
    end
  end
  return with_spaces(body, spaces)
end


-- Operators ---------------------------------------------------------------------------------------

-- Inner namespaces of operators: the prefix of the registry's names.
local INNER = { contrib = "_contrib_", linalg = "_linalg_", image = "_image_", random = "_random_" }

-- Returns the namespace and the name in it: "contrib", "box_nms" for "_contrib_box_nms"; nil for
-- operators without a public name.
local function public_name(name)
  if not name:find("^_") then
    return "", name
  end
  for inner, prefix in pairs(INNER) do
    if name:find("^" .. prefix) then
      return inner, name:sub(#prefix + 1)
    end
  end
end


local function input_rows(info, kind)
  local rows = {}
  for _, port in ipairs(info.inputs) do
    local name = not port:find("^[%[{]") and port:match("[%w_]+")
    rows[#rows + 1] = name and { name = name, type = port:find("*", 1, true) and kind .. "|" .. kind
      .. "[]" or kind, text = "" } or nil
  end
  return rows
end


local function parameter_rows(info)
  local rows = {}
  for i, p in ipairs(info.params) do
    local default = operator.default(p)
    rows[i] = { name = p.name, type = operator_type(p), required = p.default == nil,
      text = (default and "(default " .. default .. ") " or "") .. p.doc }
  end
  return rows
end


-- Namespaces of operators: name, class of operands, further options. ty.F has no class of operands:
-- it accepts those of both others.
local HOMES = {
  { space = "nd", kind = "ty.nd.NDArray", suffix = "arrays",
    more = { { name = "out", type = "ty.nd.NDArray|ty.nd.NDArray[]", text = "gets the result" } } },
  { space = "sym", kind = "ty.sym.Symbol", suffix = "symbols",
    more = { { name = "name", type = "string", text = "of the node" },
      { name = "attr", type = "table<string, string>", text = "attributes of the node" } } },
  { space = "F", kind = "ty.nd.NDArray|ty.sym.Symbol" },
}


local function add_operator(out, info, names, home)
  local class = "ty.op." .. info.name
  if home == HOMES[1] then
    add_options(out, class .. ".parameters", nil, parameter_rows(info))
  end
  if home.suffix then
    local rows = input_rows(info, home.kind)
    for _, row in ipairs(home.more) do
      rows[#rows + 1] = row
    end
    add_options(out, class .. "." .. home.suffix, class .. ".parameters", rows)
  end
  for _, name in ipairs(names) do
    local inner, last = public_name(name)
    add_comment(out, broken(info.doc))
    out[#out + 1] = home.suffix and ("---@param options %s.%s|any"):format(class, home.suffix)
      or ("---@param options %s.arrays|%s.symbols|any"):format(class, class)
    out[#out + 1] = "---@param ... any operands by position, options last"
    out[#out + 1] = "---@return " .. home.kind .. (#info.outputs > 1 and " ..." or "")
    local owner = home.space .. (inner ~= "" and "." .. inner or "")
    DEFINED["ty." .. owner .. "." .. last] = true
    out[#out + 1] = reserved[last] and member(owner, last) .. " = function(options, ...) end"
      or ("function %s(options, ...) end"):format(member(owner, last))
    out[#out + 1] = ""
  end
end


-- Returns all operators, sorted, with their public names: list of {info, names}.
local function operators()
  local list = {}
  for _, name in ipairs(ty.op.list()) do
    local info, names = ty.op.info(name), {}
    for _, one in ipairs{ name, unpack(info.aliases) } do
      names[#names + 1] = public_name(one) and one or nil
    end
    list[#list + 1] = { info = info, names = names }
  end
  return list
end


-- Returns the operators of a namespace. A single file would exceed the 500 kB that the language
-- server reads of a file ("workspace.preloadFileSize").
local function operators_text(list, home)
  local body, spaces = {}, { [home.space] = {} }
  for inner in pairs(INNER) do
    spaces[home.space .. "." .. inner] = {}
  end
  for _, row in ipairs(list) do
    if row.names[1] then
      add_operator(body, row.info, row.names, home)
    end
  end
  return with_spaces(body, spaces)
end


-- What the reference leaves out ------------------------------------------------------------------

-- Objects whose fields and methods represent those of their class.
local EXAMPLES = {}
EXAMPLES["ty.nd.NDArray"] = ty.nd.ones(1)
EXAMPLES["ty.sym.Symbol"] = ty.sym.Variable("x") + 1
EXAMPLES["ty.executor.Executor"] = EXAMPLES["ty.sym.Symbol"]:simple_bind{ ctx = ty.cpu(),
  x = { 1 } }

local FIELD_TYPES = {
  shape = "integer[]", ndim = "integer", size = "integer", dtype = "ty.DType", stype = "string",
  context = "ty.Context", ctx = "ty.Context", writable = "boolean", fresh_grad = "boolean",
  name = "string", grad = "ty.nd.NDArray", symbol = "ty.sym.Symbol",
  outputs = "ty.nd.NDArray[]", arg_arrays = "ty.nd.NDArray[]", grad_arrays = "ty.nd.NDArray[]",
  aux_arrays = "ty.nd.NDArray[]", arg_dict = "table<string, ty.nd.NDArray>",
  grad_dict = "table<string, ty.nd.NDArray>", aux_dict = "table<string, ty.nd.NDArray>",
  output_dict = "table<string, ty.nd.NDArray>",
}

-- Fields that are nil until they are set.
local UNSET = { log = { sink = "function|nil" } }

-- Names that every class has, and members that are not part of the interface.
local COMMON = { class_name = true, extend = true, fields = true, handle = true, init = true,
  is_a = true, is_class = true, super = true }

local METAMETHODS = { "add", "sub", "mul", "div", "mod", "pow", "unm" }

local function read_member(owner, name)
  local ok, value = pcall(function() return owner[name] end)
  return ok and value or nil
end


-- Returns the names of the fields of a class's objects; nil if only an object has them.
local function object_fields(path, class)
  local names, object = {}, EXAMPLES[path]
  if object then
    for name in pairs(members.set(object)) do
      names[name] = type(read_member(object, name)) ~= "function" or nil
    end
    return names
  end
  local list = class.fields
  while list do
    for name in pairs(list) do
      names[name] = true
    end
    list = (getmetatable(list) or {}).__index
  end
  return class.fields and names
end


-- Adds members of a class other than the described methods: fields, operators of Lua.
local function add_fields(out, path, class)
  out[#out + 1] = "---@class " .. path
  local names = object_fields(path, class)
  for _, name in ipairs(sorted_names(names or {})) do
    if not COMMON[name] and name:sub(1, 1) ~= "_" and not DEFINED[path .. "." .. name] then
      out[#out + 1] = ("---@field %s %s"):format(field_name(name),
        name == "T" and path or FIELD_TYPES[name] or "any")
    end
  end
  if not names then
    out[#out + 1] = "---@field [string] any"
  end
  if EXAMPLES[path] and rawget(class, "__index") ~= class then
    out[#out + 1] = "---@field [integer] " .. path
  end
  for _, name in ipairs(METAMETHODS) do
    if rawget(class, "__" .. name) then
      out[#out + 1] = ("---@operator %s%s: %s"):format(name, name == "unm" and "" or "(any)", path)
    end
  end
  out[#out + 1] = ""
end


-- Adds a function of which only the comment is known.
local function add_bare_function(out, place, name, value)
  local entry = manual.comment(value)
  if entry and comments.is_hidden(entry) then
    return
  end
  add_comment(out, entry and comments.parts(entry).lines or {})
  out[#out + 1] = "---@return any"
  out[#out + 1] = reserved[name] and member(place, name) .. " = function(...) end"
    or ("function %s(...) end"):format(member(place, name))
  out[#out + 1] = ""
end


-- Adds an operator as a method of its first operand.
local function add_operator_method(out, place, name, class, kind)
  local info = ty.op.info(name)
  add_comment(out, broken(info.doc))
  out[#out + 1] = ("---@param options ty.op.%s.%s|any"):format(info.name, kind)
  out[#out + 1] = "---@param ... any operands by position, options last"
  out[#out + 1] = ("---@return %s%s"):format(class, #info.outputs > 1 and " ..." or "")
  out[#out + 1] = reserved[name] and member(place, name) .. " = function(self, options, ...) end"
    or ("function %s(options, ...) end"):format(member(place, name, ":"))
  out[#out + 1] = ""
end


local OPERANDS = { ["ty.nd.NDArray"] = "arrays", ["ty.sym.Symbol"] = "symbols" }

local function add_methods(out, path, class, place)
  local owner = EXAMPLES[path] or class
  for _, name in ipairs(members.list(owner)) do
    local value = EXAMPLES[path] and read_member(owner, name) or rawget(class, name)
    if type(value) == "function" and not COMMON[name] and not DEFINED[path .. "." .. name] then
      local public = OPERANDS[path] and registry.find(name) and public_name(name)
      if public == "" then
        add_operator_method(out, place, name, path, OPERANDS[path])
      elseif not public then
        add_bare_function(out, place, name, value)
      end
    end
  end
end


-- Adds members of a namespace that the reference leaves out.
local function add_space(out, space, known)
  local value = ty
  for name in space:gmatch("[%w_]+") do
    value = value[name]
  end
  local fields, functions = { "---@class ty." .. space }, {}
  for _, name in ipairs(members.list(value)) do
    local one = read_member(value, name)
    if not DEFINED["ty." .. space .. "." .. name] and not COMMON[name] then
      if type(one) == "function" then
        add_bare_function(functions, space, name, one)
      elseif one ~= nil and not SPACES[space .. "." .. name] then
        fields[#fields + 1] = ("---@field %s %s"):format(field_name(name), CLASS_PATHS[one]
          or known[one] or type(one) ~= "table" and type(one) or "any")
      end
    end
  end
  for name, kind in pairs(UNSET[space] or {}) do
    fields[#fields + 1] = ("---@field %s %s"):format(name, kind)
  end
  fields[#fields + 1] = ""
  for _, lines in ipairs{ #fields > 2 and fields or {}, functions } do
    for _, line in ipairs(lines) do
      out[#out + 1] = line
    end
  end
end


local function members_text()
  local body, spaces, classes, known = {}, {}, {}, {}
  for class, path in pairs(CLASS_PATHS) do
    classes[path] = class
  end
  for _, space in ipairs(sorted_names(SPACES)) do
    local value = ty
    for name in space:gmatch("[%w_]+") do
      value = value[name]
    end
    spaces[space], known[value] = {}, "ty." .. space
  end
  for _, path in ipairs(sorted_names(classes)) do
    local space, name = split_path(path)
    if space then
      add_fields(body, path, classes[path])
      local first = #body
      add_methods(body, path, classes[path], space .. "." .. name)
      spaces[space][name] = #body > first or nil
    end
  end
  for _, space in ipairs(sorted_names(spaces)) do
    add_space(body, space, known)
  end
  return with_spaces(body, spaces)
end


-- The library's table -----------------------------------------------------------------------------

local SHARED = [[
---@alias ty.DType "float32"|"float64"|"float16"|"bfloat16"|"uint8"|"int8"|"int32"|"int64"|"bool"
---@alias ty.Shape integer|integer[]

---@class ty.Class
---@field class_name string
---@field super any the class above
---@field extend fun(self: any, name?: string): any makes a class below
---@field is_a fun(self: any, class: any): boolean

---@class ty.Null
---@class ty.Context: ty.context.Context

---@class ty.Error
---@field code %s
---@field message string
---@field func? string the function that was called
---@field argument? string which of its arguments
---@field expected? any what it takes
---@field got? any what came
---@field candidates? string[] accepted names, nearest first
---@field op? string the operator
---@field node? string the node
---@field where? string the line that made the call

]]


-- Returns the namespaces in the reference under their first name: module -> name.
local function known_spaces(pages)
  local names = {}
  for _, page in ipairs(pages) do
    for _, item in ipairs(page.entries) do
      local space = item.title:match("^ty%.([%w_]+)%.")
      if space and not names[ty[space]] then
        names[ty[space]] = space
      end
    end
  end
  return names
end


-- Types of members that are not namespaces, classes of the reference or functions.
local ROOT_TYPES = { Error = "ty.Error", null = "ty.Null" }

local function root_text(pages)
  local shared = SHARED:format(choice_type(ty.Error.CODES))
  local out, known = { "---@meta tycho", "", shared }, known_spaces(pages)
  local fields, functions = { "---@class ty" }, {}
  for _, name in ipairs(members.list(ty)) do
    local ok, value = pcall(function() return ty[name] end)
    local space = ok and type(value) == "table" and known[value]
    if space then
      fields[#fields + 1] = ("---@field %s ty.%s"):format(name, space)
    elseif ok and type(value) == "function" then
      local entry = manual.comment(value)
      add_comment(functions, entry and comments.parts(entry).lines or {})
      functions[#functions + 1] = ("---@return any\nfunction ty.%s(...) end\n"):format(name)
    elseif ok then
      local class = manual.is_class(value) and PATHS[value.class_name]
      fields[#fields + 1] = ("---@field %s %s"):format(name, class
        or type(value) == "string" and "string" or ROOT_TYPES[name] or "any")
    end
  end
  fields[#fields + 1] = "local ty = {}\n"
  return table.concat(out, "\n") .. table.concat(fields, "\n") .. "\n"
    .. table.concat(functions, "\n") .. "\nreturn ty\n"
end


-- JSON --------------------------------------------------------------------------------------------

-- Returns an object with these fields of a table; null for missing ones.
local function object(t, ...)
  local rows = {}
  for i, key in ipairs{ ... } do
    rows[i] = { key, t[key] == nil and ty.null or t[key] }
  end
  return json.object(rows)
end


local function map(list, f)
  local out = {}
  for i, x in ipairs(list) do
    out[i] = f(x)
  end
  return out
end


local function entry_data(item)
  return object({ kind = item.kind, name = item.title, call = item.call,
    text = table.concat(item.lines, "\n"),
    options = map(item.options, function(p)
      return object({ name = p.name, type = p.type, required = p.required == true,
        default = p.default, text = p.text }, "name", "type", "required", "default", "text")
    end),
    results = map(item.results, function(r) return object(r, "type", "text") end),
  }, "kind", "name", "call", "text", "options", "results")
end


local function page_data(page)
  return object({ title = page.title, entries = map(page.entries, entry_data) }, "title", "entries")
end


local function operator_data(row)
  local i = row.info
  return object({ name = i.name, aliases = i.aliases, public = row.names, text = i.doc,
    inputs = i.inputs, outputs = i.outputs, gradient = i.gradient,
    parameters = map(i.params, function(p) return object(p, "name", "type", "default", "doc") end),
  }, "name", "aliases", "public", "text", "inputs", "outputs", "gradient", "parameters")
end


-- All ---------------------------------------------------------------------------------------------

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  assert(file:close())
end


local function main(folder)
  if not folder or folder:sub(1, 1) == "-" then
    io.stderr:write("usage: build/tycho scripts/dev/library.lua FOLDER\n")
    os.exit(2)
  end
  local pages, list = entries.pages(), operators()
  for _, page in ipairs(pages) do
    for _, item in ipairs(page.entries) do
      if item.kind == "class" then
        local name = item.class.class_name
        PATHS[name], CLASS_PATHS[item.class] = PATHS[name] or item.title, item.title
      end
    end
  end
  write(folder .. "/tycho.lua", root_text(pages))
  for _, home in ipairs(HOMES) do
    write(("%s/operators_%s.lua"):format(folder, home.space), operators_text(list, home))
  end
  for _, page in ipairs(pages) do
    write(folder .. "/" .. page.file:match("^reference_(.*)") .. ".lua", page_text(page))
  end
  write(folder .. "/members.lua", members_text())
  write(folder .. "/api.json", json.text(object({ version = ty.version,
    pages = map(pages, page_data), operators = map(list, operator_data) },
    "version", "pages", "operators")) .. "\n")
end


assert(registry.names(true)[1], "there are no operators")
main(...)
