--- Symbol files: writing, and reading of all versions.
--
-- The core writes and parses the text (`ty_graph_text`, `ty_graph_parse`). A symbol that was read
-- keeps the core's graph. Its nodes become Lua nodes when they are first needed, so it composes
-- like any other symbol.
--
-- @module tycho.symbol.json

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local bodies = require "tycho.symbol.bodies"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local graph = require "tycho.symbol.graph"
local log = require "tycho.core.log"
local node = require "tycho.symbol.node"
local new_table = require "table.new"
local registry = require "tycho.op.registry"

local C, check, text = native.C, native.check, native.text

local symbol_json = {}

local CURRENT = 10901                                    -- the version that is written

local CONTROL = { _foreach = true, _while_loop = true, _cond = true }   -- operators with bodies
local CASTS = { amp_cast = true, amp_multicast = true }


-- Reading -----------------------------------------------------------------------------------------

local read_entries


local function read_bodies(g, i, Symbol, where)
  local list, out = {}, ffi.new("ty_graph *[1]")
  while true do
    check(C.ty_graph_body(g, i, #list, out), "sym.load")
    if out[0] == nil then
      return list[1] and list or nil
    end
    list[#list + 1] = Symbol.of(read_entries(out[0], Symbol, where))
  end
end


local NONE = {}                                          -- nodes share tables of attributes

local function read_attrs(raw)
  if raw.nattr == 0 then
    return NONE
  end
  local dict = {}
  for k = 0, raw.nattr - 1 do
    dict[text(raw.attr[k].key)] = text(raw.attr[k].value)
  end
  return dict
end


local function read_node(g, i, raw, nodes, Symbol, where)
  check(C.ty_graph_node(g, i, raw), "sym.load")
  local name, dict, op = text(raw.name), read_attrs(raw), text(raw.op)
  where = text(raw.where) or where
  if not op then
    return node.variable(name, dict, where)
  end
  local schema = registry.find(op)
  dict = op == "Custom" and require("tycho.op.custom")._own(dict) or dict
  local n = node.operator(schema, name, dict, schema.variadic and raw.nin or -1, "sym.load", where)
  local from = raw["in"]
  for k = 0, raw.nin - 1 do
    n.inputs[k + 1] = { nodes[from[k].node + 1], from[k].out }
  end
  local list = CONTROL[op] and read_bodies(g, i, Symbol, where)
  if list then
    bodies.attach(n, list)
  end
  return n
end


-- Returns the entries of the heads of a native graph, and its nodes.
read_entries = function(g, Symbol, where)
  local count, raw, nodes = ffi.new("int[1]"), ffi.new("ty_node"), {}
  check(C.ty_graph_size(g, count), "sym.load")
  for i = 0, count[0] - 1 do
    nodes[i + 1] = read_node(g, i, raw, nodes, Symbol, where)
  end
  local heads, entries = ffi.new("const ty_entry *[1]"), {}
  check(C.ty_graph_heads(g, heads, count), "sym.load")
  for i = 0, count[0] - 1 do
    entries[i + 1] = { nodes[heads[0][i].node + 1], heads[0][i].out }
  end
  return entries, nodes
end


-- Keeps the parsed graph as the symbol's own, unless an operator written in Lua is in it: its file
-- lacks what the operator's class says.
local function attach_graph(symbol, g, entries, nodes)
  local position = {}
  for i, n in ipairs(nodes) do
    position[n] = i
    if n.custom then
      return
    end
  end
  local count = #entries
  local heads = ffi.new("ty_entry[?]", count)
  for i, entry in ipairs(entries) do
    heads[i - 1].node, heads[i - 1].out = position[entry[1]] - 1, entry[2]
  end
  rawset(symbol, "_built",
    { handle = g, heads = heads, count = count, order = nodes, position = position,
      edits = node.edits })
end


-- Returns whether an operator written in Lua is in a graph.
local function has_custom(g)
  local count, raw = ffi.new("int[1]"), ffi.new("ty_node")
  check(C.ty_graph_size(g, count), "sym.load")
  for i = 0, count[0] - 1 do
    check(C.ty_graph_node(g, i, raw), "sym.load")
    if text(raw.op) == "Custom" then
      return true
    end
  end
  return false
end


-- Returns a symbol of `count` outputs whose entries `make` makes when they are first read. An
-- output holds as little as possible: its position, and a function that all share.
local function make_deferred(Symbol, count, make)
  local entries
  local function entries_of(symbol)
    entries = entries or make()
    local at = rawget(symbol, "_at")
    return at and { entries[at] } or entries
  end
  local self = new_table(count, 2)
  self._make = entries_of
  setmetatable(self, Symbol)
  if count == 1 then
    self[1] = self
    return self
  end
  for i = 1, count do
    local output = new_table(1, 2)
    output[1], output._make, output._at = output, entries_of, i
    self[i] = setmetatable(output, Symbol)
  end
  return self
end


local function make_symbol(g, Symbol, where)
  local heads, count, symbol = ffi.new("const ty_entry *[1]"), ffi.new("int[1]"), nil
  check(C.ty_graph_heads(g, heads, count), "sym.load")
  symbol = make_deferred(Symbol, count[0], function()
    local entries, nodes = read_entries(g, Symbol, where)
    attach_graph(symbol, g, entries, nodes)
    return entries
  end)
  local _ = has_custom(g) and symbol._entries            -- raises if an operator's class is missing
  return symbol
end


-- Logs the version of a file unless it is the current one.
local function log_version(g, func)
  local out = ffi.new("int[1]")
  check(C.ty_graph_version(g, out), func)
  local version = out[0]
  local shown = ("%d.%d.%d"):format(math.floor(version / 10000),
    math.floor(version / 100) % 100, version % 100)
  if version > CURRENT then
    log:warning(func .. ": the graph was written by the newer version " .. shown
      .. "; reading it as it is")
  elseif version < CURRENT then
    log:debug(func .. ": the graph was written by version " .. shown
      .. "; bringing it up to the present form")
  end
end


-- Returns the symbol of the graph in `out`, or raises the error of `code`, the result of reading
-- it.
local function take_graph(Symbol, code, out, func, file)
  if code ~= 0 then
    local e = native.failure(code, func)
    if file and e.code ~= "io" then
      e.message = file .. ": " .. e.message
      e.argument = e.argument or file
    end
    error(e, 0)
  end
  local g = native.own(out[0], C.ty_graph_free)
  log_version(g, func)
  return make_symbol(g, Symbol, Error.caller(2))
end


-- Writing -----------------------------------------------------------------------------------------

-- Returns the symbol without casts of mixed precision, except those that are outputs, whose types
-- stay as they are.
local function remove_casts(symbol, Symbol)
  local entries, order = symbol._entries, node.walk(symbol._entries)
  local any, is_output, kept = false, {}, {}
  for _, n in ipairs(order) do
    any = any or CASTS[n.op]
  end
  if not any then
    return symbol
  end
  for _, entry in ipairs(entries) do
    is_output[entry[1]] = true
  end
  local list = node.copy(entries, function(n, moved)
    if not CASTS[n.op] then
      return nil
    end
    local inputs = {}
    for i, input in ipairs(n.inputs) do
      inputs[i] = moved(input)
    end
    kept[n] = is_output[n] and node.with_inputs(n, inputs)
    return inputs
  end, order)
  for i, entry in ipairs(entries) do
    if kept[entry[1]] then
      list[i] = { kept[entry[1]], entry[2] }
    end
  end
  return Symbol.of(list)
end


local LOAD = args.form("sym.load", { { "fname", "path" } })
local LOAD_JSON = args.form("sym.load_json", { { "json_str", "text" } })
local TOJSON = args.form("Symbol:tojson", { "*", { "remove_amp_cast", "boolean", true } })
local SAVE = args.form("Symbol:save",
  { { "fname", "path" }, "*", { "remove_amp_cast", "boolean", true } })


--- Adds `load`, `load_json` to the namespace and `tojson`, `save` to the class.
function symbol_json.add(namespace, Symbol)
  --- Returns a symbol from a symbol file of any version.
  -- @string fname
  function namespace.load(...)
    local path, out = LOAD(...).fname, ffi.new("ty_graph *[1]")
    return take_graph(Symbol, C.ty_graph_load(path, out), out, "sym.load", path)
  end

  --- Returns a symbol from the text of a symbol file.
  -- @string json_str
  function namespace.load_json(...)
    local content, out = LOAD_JSON(...).json_str, ffi.new("ty_graph *[1]")
    local zero = content:find("%z")                      -- a text of C would end there
    if zero then
      Error.raise{ code = "format", func = "sym.load_json",
        message = ("byte %d: this is not text"):format(zero - 1) }
    end
    return take_graph(Symbol, C.ty_graph_parse(content, out), out, "sym.load_json")
  end

  --- Returns the text of a symbol file, byte for byte as the reference writes it.
  -- @tparam[opt] table options remove_amp_cast = true: without mixed-precision casts, except those
  --   that are outputs
  function Symbol:tojson(...)
    local symbol = TOJSON(...).remove_amp_cast and remove_casts(self, Symbol) or self
    return graph.text(symbol, "Symbol:tojson")
  end

  --- Writes a symbol file.
  -- @string fname
  -- @tparam[opt] table options as `tojson`
  function Symbol:save(...)
    local a = SAVE(...)
    files.write(a.fname, self:tojson{ remove_amp_cast = a.remove_amp_cast }, "Symbol:save")
  end
end


return symbol_json
