--- How the prompt shows objects: arrays without their middle, symbols as a tree, modules and
-- iterators as a list of properties.
--
--     objects.text(value)  several lines, for a value by itself; nil for other values
--     objects.line(value)  one line, for a value inside another one; nil for other values
--
-- Reading an array waits for its computation; only the elements that are shown are read.
--
-- @module tycho.prompt.objects

local pairs = require("tycho.core.iterate").pairs
local Class = require "tycho.core.class"
local members = require "tycho.prompt.members"
local methods = require "tycho.core.methods"

local objects = {}

local ROWS, NODES, SHORT = 40, 30, 8     -- rows of an array, lines of a tree, elements on one line
local WIDEST, LONG = 28, 70              -- columns of names in a tree; of the text after them
local NAMES = 60                         -- most names of a module that are listed


-- Returns whether a value is an instance of a class, given by its module and its name there ("" if
-- the module is the class).
local function is(value, module, name)
  local loaded = package.loaded[module]
  return loaded ~= nil and Class.is_a(value, name == "" and loaded or loaded[name])
end


local function is_array(value)
  return is(value, "tycho.ndarray.class", "NDArray")
end


-- Arrays ------------------------------------------------------------------------------------------

-- Returns whether an array is shown by its elements on one line.
local function is_short(x)
  return rawget(x, "_h") and #x.shape == 1 and x.size <= SHORT
end


local function array_line(x)
  if is_short(x) then
    local text = tostring(x):gsub("^\n", "")
    return (text:gsub("\n", " "))
  elseif rawget(x, "_h") then
    return ("<NDArray %s>"):format(x:summary())
  end
  return tostring(x)
end


-- Symbols -----------------------------------------------------------------------------------------

-- Returns the attributes of a node without annotations, as text.
local function attributes(n)
  local attrs, parts = require "tycho.core.attrs", {}
  for _, key in ipairs(attrs.keys(n.attrs)) do
    if not attrs.is_annotation(key) then
      parts[#parts + 1] = key .. "=" .. n.attrs[key]
    end
  end
  return parts[1] and "{" .. table.concat(parts, ", ") .. "}" or ""
end


-- Returns the operators whose outputs a node reads, without duplicates, and the names of the
-- variables.
local function list_inputs(n)
  local operators, variables, seen = {}, {}, {}
  for _, entry in ipairs(n.inputs) do
    local input = entry[1]
    if not input.op then
      variables[#variables + 1] = input.name
    elseif not seen[input] then
      operators[#operators + 1] = input
    end
    seen[input] = true
  end
  return operators, variables
end


-- Returns the names of variables, with a node's own parameters combined: "data, fc1_{weight,
-- bias}".
local function folded(n, variables)
  local list, own, prefix = {}, {}, n.name .. "_"
  for _, name in ipairs(variables) do
    local is_own = name:sub(1, #prefix) == prefix
    list[#list + 1] = not is_own and name or nil
    own[#own + 1] = is_own and name:sub(#prefix + 1) or nil
  end
  if #own > 0 then
    list[#list + 1] = #own == 1 and prefix .. own[1]
      or ("%s{%s}"):format(prefix, table.concat(own, ", "))
  end
  return table.concat(list, ", ")
end


-- Returns the text that follows a node's name.
local function about(n, variables)
  local text, names = n.op and n.op .. attributes(n) or "", table.concat(variables, ", ")
  if #text + #names > LONG then
    names = folded(n, variables)
  end
  return names ~= "" and text .. "  <- " .. names or text
end


-- Returns rows of two texts as lines with the second texts in one column.
local function aligned(rows)
  local width, lines = 0, {}
  for _, row in ipairs(rows) do
    width = math.max(width, row[2] ~= "" and #row[1] or 0)
  end
  for i, row in ipairs(rows) do
    lines[i] = row[2] == "" and row[1]
      or ("%-" .. math.min(width, WIDEST) .. "s  %s"):format(row[1], row[2])
  end
  return lines
end


-- Returns the tree of a symbol as rows, outputs first. A chain of operators stays in one column;
-- the inputs of a node with several operator inputs are indented.
local function tree(heads)
  local rows, stack, seen, more = {}, {}, {}, 0
  for i = #heads, 1, -1 do
    stack[#stack + 1] = { heads[i], "  " }
  end
  while #stack > 0 do
    local n, indent = unpack(table.remove(stack))
    local operators, variables = list_inputs(n)
    local again = seen[n] and n.op
    if #rows < NODES then
      rows[#rows + 1] = { indent .. n.name, again and "(above)" or about(n, variables) }
    else
      more = more + (again and 0 or 1)
    end
    for i = again and 0 or #operators, 1, -1 do
      stack[#stack + 1] = { operators[i],
        #operators > 1 and indent .. (i < #operators and "| " or "  ") or indent }
    end
    seen[n] = true
  end
  rows[#rows + 1] = more > 0 and { ("  ... %d more"):format(more), "" } or nil
  return aligned(rows)
end


-- Returns the nodes of a symbol's outputs, without duplicates and without nodes on which another
-- output depends.
local function list_heads(s)
  local heads, inner = {}, {}
  for _, n in ipairs(require("tycho.symbol.node").walk(s._entries)) do
    for _, entry in ipairs(n.inputs) do
      inner[entry[1]] = true
    end
  end
  for _, entry in ipairs(s._entries) do
    local n = entry[1]
    heads[#heads + 1] = not inner[n] and n or nil
    inner[n] = true
  end
  return heads
end


local function symbol_text(s)
  local heads = list_heads(s)
  local title = tostring(s)
  if #heads == 1 and not heads[1].op then
    return title
  elseif #s._entries > 1 then
    title = ("<Symbol group of %d outputs>"):format(#s._entries)
  end
  return title .. "\n" .. table.concat(tree(heads), "\n")
end


-- Cards: a title and rows of name and value -------------------------------------------------------

local function card(title, rows)
  local lines = { title }
  for _, row in ipairs(rows) do
    if row[2] then
      lines[#lines + 1] = ("  %-12s %s"):format(row[1], row[2])
    end
  end
  return table.concat(lines, "\n")
end


-- Returns descriptions of inputs as text: "data 32x784 float32, softmax_label 32".
local function descriptions(list)
  local parts = {}
  for i, d in ipairs(type(list) == "table" and list or {}) do
    local dtype = d.dtype and d.dtype ~= "float32" and " " .. d.dtype or ""
    parts[i] = ("%s %s%s"):format(d.name or d[1], table.concat(d.shape or d[2], "x"), dtype)
  end
  return parts[1] and table.concat(parts, ", ")
end


-- Returns a field; nil if reading it raises an error.
local function field(object, name)
  local ok, value = pcall(function() return object[name] end)
  return ok and value or nil
end


local function parameters(mod)
  local count, elements = 0, 0
  local values = rawget(mod, "_arg_store")
  for _, x in pairs(values and values:arrays() or {}) do
    count, elements = count + 1, elements + x.size
  end
  return count > 0 and ("%d arrays, %d values"):format(count, elements)
end


local function contexts(mod)
  local list, parts = rawget(mod, "_context") or {}, {}
  for i, ctx in ipairs(list) do
    parts[i] = tostring(ctx)
  end
  return parts[1] and table.concat(parts, ", ") or rawget(list, "device_type") and tostring(list)
end


local function buckets(mod)
  local keys = {}
  for key in pairs(rawget(mod, "_buckets") or {}) do
    keys[#keys + 1] = tostring(key)
  end
  table.sort(keys)
  return keys[1] and table.concat(keys, ", ")
end


local function module_text(mod)
  local state = mod.optimizer_initialized and "ready to train" or mod.params_initialized
    and "with parameters" or mod.binded and "bound" or "not bound"
  local symbol, optimizer = field(mod, "symbol"), rawget(mod, "_optimizer")
  return card(("<%s, %s>"):format(mod.class_name, state), {
    { "symbol", symbol and tostring(symbol) },
    { "data", mod.binded and descriptions(field(mod, "data_shapes"))
      or table.concat(field(mod, "data_names") or {}, ", ") },
    { "labels", mod.binded and descriptions(field(mod, "label_shapes")) },
    { "outputs", mod.binded and descriptions(field(mod, "output_shapes")) },
    { "parameters", parameters(mod) }, { "buckets", buckets(mod) },
    { "optimizer", optimizer and tostring(optimizer) }, { "on", contexts(mod) },
  })
end


local function iterator_text(it)
  return card(("<%s>"):format(it.class_name), {
    { "data", descriptions(field(it, "provide_data")) },
    { "labels", descriptions(field(it, "provide_label")) },
    { "batch_size", field(it, "batch_size") }, { "samples", field(it, "num_data") },
  })
end


local function arrays_line(list)
  local parts = {}
  for i, x in ipairs(type(list) == "table" and list or {}) do
    parts[i] = array_line(x)
  end
  return parts[1] and table.concat(parts, ", ")
end


local function batch_text(batch)
  return card("<DataBatch>", {
    { "data", arrays_line(batch.data) }, { "label", arrays_line(batch.label) },
    { "pad", batch.pad and tostring(batch.pad) },
    { "bucket_key", batch.bucket_key and tostring(batch.bucket_key) },
  })
end


-- Functions and namespaces ------------------------------------------------------------------------

local function function_line(f)
  local info = debug.getinfo(methods.inner(f), "S")
  if info.what == "C" then
    return tostring(f)
  end
  local form = require("tycho.prompt.manual").form(f)
  if form then
    return "<function " .. form.func .. ">"
  end
  return ("<function %s:%d>"):format(info.short_src:match("[^/]*$"), info.linedefined)
end


local function namespace_text(value)
  local names = members.list(value)
  local title = members.find_module(value):gsub("^tycho", "ty")
  local text, line = { ("<module %s>"):format(title) }, " "
  for i, name in ipairs(names) do
    if #line + #name > 100 then
      text[#text + 1], line = line, " "
    end
    line = line .. " " .. (i <= NAMES and name or ("... %d in all"):format(#names))
    if i > NAMES then
      break
    end
  end
  text[#text + 1] = line ~= " " and line or nil
  return table.concat(text, "\n")
end


-- The two views -----------------------------------------------------------------------------------

local function array_text(x)
  return rawget(x, "_h") and x:text(ROWS) or tostring(x)
end

-- module, class, view
local VIEWS = {
  { "tycho.ndarray.class", "NDArray", array_text },
  { "tycho.symbol.symbol", "Symbol", symbol_text },
  { "tycho.module.base", "", module_text },
  { "tycho.io.data", "DataIter", iterator_text },
  { "tycho.io.data", "DataBatch", batch_text },
}


--- Returns the text of a value shown by itself; nil for other kinds of values.
-- @treturn ?string
function objects.text(value)
  if type(value) == "function" then
    return function_line(value)
  elseif type(value) ~= "table" then
    return nil
  end
  for _, view in ipairs(VIEWS) do
    if is(value, view[1], view[2]) then
      return view[3](value)
    end
  end
  if getmetatable(value) and rawget(value, "class_name") == nil and members.find_module(value) then
    return namespace_text(value)
  end
end


--- Returns the text of a value inside another one, on one line; nil for other kinds of values.
-- @treturn ?string
function objects.line(value)
  if type(value) == "function" then
    return function_line(value)
  elseif is_array(value) then
    return array_line(value)
  elseif type(value) == "table" and getmetatable(value) then
    local meta = debug.getmetatable(value)
    local text = type(meta) == "table" and meta.__tostring and tostring(value)
      or members.find_module(value) and "<module>"
    return text and text:match("^[^\n]*")
  end
end


return objects
