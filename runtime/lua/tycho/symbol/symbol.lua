--- Symbols: Lua values that name outputs of a graph which is not built yet, and the namespace
-- `ty.sym`.
--
-- A symbol is a list of entries (node, output); nodes are shared between symbols (symbol/node.lua).
-- Building on a symbol never copies it. Outputs are the array part: `#s`, `s[1]`, `ipairs(s)`.
-- A native graph is built from the heads when something is asked of the core (symbol/graph.lua).
--
--     local net = ty.sym.FullyConnected{data = ty.sym.Variable("data"),
--       num_hidden = 10, name = "fc"}
--     net:list_arguments()                             --> {"data", "fc_weight", "fc_bias"}
--     net:infer_shape{data = {32, 784}}
--
-- Lists, `s[i]` and results count from 1; axes, and the numbers in `ty.slice`, from 0.
--
-- @module tycho.symbol

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local compose = require "tycho.symbol.compose"
local counted_from_1 = require "tycho.core.list"
local named = require "tycho.core.dict"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local inference = require "tycho.symbol.inference"
local namespace = require "tycho.core.namespace"
local node = require "tycho.symbol.node"
local origin = require "tycho.core.origin"
local registry = require "tycho.op.registry"
local operators = require "tycho.symbol.operators"
local symbol_text = require "tycho.symbol.text"
local tables = require "tycho.core.tables"
local tracing = require "tycho.symbol.tracing"
local values = require "tycho.core.values"
local variable = require "tycho.symbol.variable"

local symbol = {}

--- Outputs of a graph. `#s` counts them, `s[i]` is one, from 1, `s.NAME_output` the one of that
-- name. Fields: name (of the node, where there is one), T (transposed). Arithmetic makes new
-- symbols; the usual operators are methods, too, and, while a block is traced, those of arrays.
local Symbol = Class:extend("Symbol")
symbol.Symbol = Symbol
args.class("symbol", Symbol)
operators.use(Symbol)
operators.add_infix(Symbol)

for name, method in pairs(inference.methods) do
  Symbol[name] = method
end

local is_plain = values.is_plain


-- Making ------------------------------------------------------------------------------------------

-- Replaces the entries of a symbol.
local function set_entries(self, entries)
  for i = #self, 1, -1 do
    self[i] = nil
  end
  self._entries = entries
  rawset(self, "_make", nil)
  rawset(self, "_built", nil)
  rawset(self, "_walked", nil)
  if #entries == 1 then
    self[1] = self
    return self
  end
  for i, entry in ipairs(entries) do
    self[i] = Symbol.of{ entry }
  end
  return self
end


--- Returns a symbol of the given entries (not for users).
function Symbol.of(entries)
  return set_entries(setmetatable({}, Symbol), entries)
end


setmetatable(Symbol, { __index = Class, __tostring = function()
  return "<class Symbol>"
end, __call = function()
  Error.raise{ code = "type", func = "Symbol",
    message = "symbols are made by ty.sym.Variable, ty.sym.Group and operators" }
end })


local VARIABLE = args.form("sym.Variable", {
  rest = "others", { "name", "text" }, "*", { "attr", "dict?" }, { "shape", "shape?" },
  { "lr_mult", "number|text?" }, { "wd_mult", "number|text?" },
  { "dtype", "dtype?" }, { "init", "any?" }, { "stype", "stype", "default" },
})

--- Returns a variable: an input of a graph.
-- @string name its name
-- @tparam[opt] table options attr (table of texts), shape (0 where unknown), lr_mult, wd_mult,
--   dtype, init (Initializer or text), and own attributes `__x__`
-- @treturn Symbol
function symbol.Variable(...)
  local where = origin.take() or Error.caller()
  local a = VARIABLE(...)
  return Symbol.of{ { node.variable(a.name, variable.attributes(a), where), 0 } }
end

symbol.var = symbol.Variable


local GROUP = args.form("sym.Group", { list = true, { "symbols", "list" } })

--- Returns all outputs of several symbols as one symbol.
-- @tparam {Symbol,...} symbols at least one
-- @treturn Symbol
function symbol.Group(...)
  local list = values.count(...) > 0 and not (is_plain((...)) and #(...) == 0)
    and GROUP(...).symbols or {}
  local entries = {}
  for i, s in ipairs(list) do
    if not Class.is_a(s, Symbol) then
      Error.raise{ code = "type", func = "sym.Group", argument = "symbols",
        expected = "a list of Symbols",
        got = Error.kind(s), message = ("member %d is no Symbol"):format(i) }
    end
    for _, entry in ipairs(s._entries) do
      entries[#entries + 1] = entry
    end
  end
  if #entries == 0 then
    Error.raise{ code = "type", func = "sym.Group", argument = "symbols",
      expected = "at least one Symbol", got = "none", message = "a group needs members" }
  end
  return Symbol.of(entries)
end


-- Names and outputs -------------------------------------------------------------------------------

--- Returns the names of the outputs, in order.
function Symbol:list_outputs()
  return counted_from_1(tables.copied(graph.names(self).outputs))
end


--- Returns the names of the variables that are not auxiliary states, depth first.
function Symbol:list_arguments()
  return counted_from_1(tables.copied(graph.names(self).arguments))
end


--- Returns the names of the variables that operators change (moving averages), depth first.
function Symbol:list_auxiliary_states()
  return counted_from_1(tables.copied(graph.names(self).auxiliary))
end


--- Returns the names of all variables, depth first.
function Symbol:list_inputs()
  return counted_from_1(graph.variables((graph.walk(self))))
end


local function entries_named(self, key)
  local found = {}
  for _, entry in ipairs(self._entries) do
    if node.output_name(entry[1], entry[2]) == key then
      found[#found + 1] = entry
    end
  end
  return found
end


local function output_named(self, key, func, others)
  local found = entries_named(self, key)
  if #found == 1 then
    return Symbol.of{ found[1] }
  end
  local names = self:list_outputs()
  for _, name in ipairs(#found == 0 and others or {}) do
    names[#names + 1] = name
  end
  Error.unknown{ func = func, argument = key, names = names,
    what = others and "output or method" or "output", message = #found > 1
    and ("%d outputs are called '%s'; choose one by number"):format(#found, key) or nil }
end


local function output_at(self, i, func)
  local s = type(i) == "number" and rawget(self, i)
  if not s then
    Error.raise{ code = "index", func = func, argument = tostring(i), got = i, expected = "1 to "
      .. #self, message = ("output %s of a symbol with %d"):format(tostring(i), #self) }
  end
  return s
end


-- Returns outputs a, a + c ... before b, in 0-based numbers; negative ones are not counted from the
-- end.
local function output_range(self, slice)
  local entries = {}
  for i = slice.start or 0, (slice.stop or #self) - 1, slice.step or 1 do
    entries[#entries + 1] = output_at(self, i + 1, "Symbol:output")._entries[1]
  end
  if #entries == 0 then
    Error.raise{ code = "type", func = "Symbol:output", argument = tostring(slice),
      message = "the range holds no outputs" }
  end
  return Symbol.of(entries)
end


--- Returns one output, or several.
-- @param key number from 1, exact output name, or `ty.slice(a, b)` of 0-based numbers
-- @treturn Symbol
function Symbol:output(key)
  if Class.is_a(key, values.Slice) then
    return output_range(self, key)
  elseif type(key) == "string" then
    return output_named(self, key, "Symbol:output")
  elseif type(key) == "number" then
    return output_at(self, key, "Symbol:output")
  end
  Error.raise{ code = "type", func = "Symbol:output", argument = "key",
    expected = "a number, name or ty.slice", got = Error.kind(key), message = "bad 'key'" }
end


--- Returns every node's outputs, depth first, variables too: `net:get_internals()["fc1_output"]`.
function Symbol:get_internals()
  local entries = {}
  for _, n in ipairs((graph.walk(self))) do
    for k = 1, n.ports.nvisible do
      entries[#entries + 1] = { n, k - 1 }
    end
  end
  return Symbol.of(entries)
end


--- Returns the direct inputs of the head nodes as a group; nil for a variable.
function Symbol:get_children()
  local entries, seen = {}, {}
  for _, entry in ipairs(self._entries) do
    for _, input in ipairs(not seen[entry[1]] and entry[1].inputs or {}) do
      entries[#entries + 1] = input
    end
    seen[entry[1]] = true
  end
  return entries[1] and Symbol.of(entries) or nil
end


--- Returns the line that built the head node: "file.lua:12".
function Symbol:where()
  return self._entries[1][1].where or ""
end


-- Attributes --------------------------------------------------------------------------------------

--- Returns an attribute's text, or nil; nil for groups over several nodes. Hidden keys
-- (`lr_mult` ...) under both spellings.
-- @string key
function Symbol:attr(key)
  local n = node.only(self._entries)
  if type(key) ~= "string" then
    Error.raise{ code = "type", func = "Symbol:attr", argument = "key", expected = "text",
      got = Error.kind(key), message = "bad 'key'" }
  elseif not n then
    return nil
  elseif key == "name" then
    return n.name
  end
  return n.attrs[key] or n.attrs[attrs.wrap(key)]
end


--- Returns the attributes of the head node.
function Symbol:list_attr(options)
  if options == true or values.is_plain(options) and options.recursive then
    Error.raise{ code = "unsupported", func = "Symbol:list_attr", argument = "recursive",
      message = "'recursive' was removed; use attr_dict()" }
  end
  local n = node.only(self._entries)
  return n and node.shown_attrs(n) or named{}
end


local function collect_attrs(self, variables_only)
  local dict = named{}
  for _, n in ipairs((graph.walk(self))) do
    if next(n.attrs) and not (variables_only and n.op) then
      local of_name = dict[n.name] or named{}
      for key, value in pairs(node.shown_attrs(n)) do
        of_name[key] = value
      end
      dict[n.name] = of_name
    end
  end
  return dict
end

--- Returns the attributes of every node that has any: node name -> table. Nodes of one name share
-- one, the last one's value of a key counts.
function Symbol:attr_dict()
  return collect_attrs(self, false)
end

--- Returns the attributes of the variables that have any: name -> table.
function symbol._variable_attrs(self)
  return collect_attrs(self, true)
end


--- Sets attributes of the head node. An operator's parameters are checked again.
-- @tparam table t texts by name
function Symbol:_set_attr(t)
  local n = node.only(self._entries)
  if not n then
    Error.raise{ code = "type", func = "Symbol:_set_attr",
      message = "a group has no attributes of its own" }
  end
  local dict = {}
  for key, value in pairs(n.attrs) do
    dict[key] = value
  end
  for key, value in pairs(t) do
    if type(key) ~= "string" or type(value) ~= "string" then
      Error.raise{ code = "value", func = "Symbol:_set_attr", argument = tostring(key),
        expected = "text", got = Error.kind(value), message = "attributes are text" }
    end
    dict[attrs.wrap(key)] = value
  end
  if n.op then
    n.ports = registry.ports(n.op, dict, registry.find(n.op).variadic and #n.inputs or -1,
      "Symbol:_set_attr", n.name)
  end
  for key, value in pairs(dict) do
    node.set_attr(n, key, value)
  end
end


-- Composition -------------------------------------------------------------------------------------

--- Returns a copy of the graph with variables replaced: `s{variable = symbol, name = "new"}`.
function Symbol:__call(...)
  return Symbol.of(compose(self, "Symbol", ...))
end


--- Replaces variables as calling the symbol does, but in place.
function Symbol:_compose(...)
  set_entries(self, compose(self, "Symbol:_compose", ...))
end


--- Returns a copy that shares no node with this symbol. While a block is traced, it is the node
-- that stands for a copy of the array.
function Symbol:copy()
  if tracing.current() and #self._entries == 1 then
    return operators.compose("identity", { self }, {}, "Symbol:copy")
  end
  return Symbol._restored(graph.snapshot(self))
end


--- Returns a symbol with the contents that another one had when a snapshot of it was taken (not for
-- users).
-- @tparam table snapshot as `graph.snapshot`
function Symbol._restored(snapshot)
  local entries, built = graph.restore(snapshot)
  local copy = Symbol.of(entries)
  rawset(copy, "_built", built)
  return copy
end


--- Shapes and dtypes of all variables, or nil.
symbol._find_variables = inference.find_variables


-- Methods that only arrays have, and their error.
for _, method in ipairs{ "wait_to_read", "wait_to_write", "asscalar", "totable", "as_in_context",
    "detach", "backward", "asnumpy", "copyto", "attach_grad", "add_", "sub_", "mul_",
    "div_", "mod_", "fill" } do
  Symbol[method] = function()
    tracing.refuse(method)
    Error.raise{ code = "unsupported", func = "Symbol:" .. method,
      message = "a symbol holds no values; bind it (or call eval) and use the outputs" }
  end
end


-- Text --------------------------------------------------------------------------------------------

--- Returns the nodes in text form, as the reference writes them.
function Symbol:debug_str()
  return symbol_text.debug_str(self._entries)
end


--- Returns the graph as a tree, inputs below their readers; what was shown before is not repeated.
function Symbol:draw()
  return symbol_text.draw(self._entries)
end


function Symbol:__tostring()
  local n = node.only(self._entries)
  if n then
    return "<Symbol " .. n.name .. ">"
  end
  local names = {}
  for i, entry in ipairs(self._entries) do
    names[i] = entry[1].name
  end
  return "<Symbol group [" .. table.concat(names, ", ") .. "]>"
end


-- Fields ------------------------------------------------------------------------------------------

local PROPERTIES = {
  name = function(self)
    local n = node.only(self._entries)
    return n and n.name
  end,
  T = function(self)
    return operators.compose("transpose", { self }, {}, "Symbol.T")
  end,
}


local function method_names()
  local names = operators.method_names()
  for _, list in ipairs{ Symbol, PROPERTIES } do
    for key in pairs(list) do
      names[#names + 1] = key:sub(1, 1) ~= "_" and key or nil
    end
  end
  return names
end


function Symbol.__index(self, key)
  if type(key) == "number" then
    tracing.refuse_part(key)
    return output_at(self, key, "Symbol")
  elseif type(key) ~= "string" then
    if is_plain(key) then
      tracing.refuse_part("{...}")
    end
    return Symbol.output(self, key)
  elseif key == "_entries" then
    return graph.made_entries(self)
  end
  local value = rawget(Symbol, key)
  if value ~= nil then
    return value
  elseif PROPERTIES[key] then
    return PROPERTIES[key](self)
  elseif key:sub(1, 1) == "_" and #entries_named(self, key) == 0 then
    return Class[key]                                    -- private fields that are not set
  end
  value = operators.method(key)
  if not value or #entries_named(self, key) > 0 then
    if tracing.current() and tracing.is_of_arrays(key) and #entries_named(self, key) == 0 then
      local operator = operators.maker(key, "Symbol:" .. key)
      return operator or tracing.refuse(key)
    elseif not key:find("^[%a_]") then
      tracing.refuse_part(key)
    end
    return output_named(self, key, "Symbol", method_names())
  end
  return value
end


-- The rest of the namespace: files, creation, control flow, one function per operator -------------

require("tycho.symbol.json").add(symbol, Symbol)
operators.add_binary(symbol)
require("tycho.symbol.create").add(symbol)


local missing = namespace.missing("sym", "operator", symbol, function()
  return registry.names(true)
end)

local functions = {}                     -- as handed out: they know the line they are called from

local function find(_, key)
  local f = functions[key]
  if not f then
    local value = symbol[key]
    if value == nil then
      value = type(key) == "string"
        and (operators.maker(key) or operators.maker(args.bare_name(key)))
      if not value then
        return missing(key)
      end
    elseif type(value) ~= "function" or key:sub(1, 1) == "_" then
      return value                       -- what other files call does not ask for its caller
    end
    f = origin.wrap(value)
    functions[key] = f
  end
  origin.note(f)
  return f
end


return setmetatable({}, { __index = find, __newindex = symbol })
