--- A block that runs a symbol: a network from a file, or a part of a network.
--
--     local net = gluon.SymbolBlock.imports("cnn-symbol.json", "data", "cnn-0003.params")
--     local features = gluon.SymbolBlock(y:get_internals()["act1_output"], data,
--       { params = net:collect_params() })
--
-- @classmod ty.gluon.SymbolBlock

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local devices = require "tycho.gluon.devices"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local HybridBlock = require "tycho.gluon.hybrid_block"
local layer = require "tycho.gluon.layer"
local node = require "tycho.symbol.node"
local pairs = require("tycho.core.iterate").pairs
local ParameterDict = require "tycho.gluon.parameter_dict"
local parameter_files = require "tycho.gluon.parameter_files"
local sym = require "tycho.symbol.symbol"
local values = require "tycho.core.values"

local Symbol, unpack = sym.Symbol, unpack

--- A block whose forward is a symbol. The symbol's variables that are not inputs are its
-- parameters.
local SymbolBlock = HybridBlock:extend("SymbolBlock")
SymbolBlock.scoped = false


-- Returns a symbol or a list of symbols as a list; raises E(type) for other values.
local function list_symbols(v, argument)
  local list = Class.is_a(v, Symbol) and { v } or v
  if not values.is_plain(list) or #list == 0 then
    Error.raise{ code = "type", func = "gluon.SymbolBlock", argument = argument,
      expected = "a Symbol or a list of them", got = Error.kind(v),
      message = ("bad '%s'"):format(argument) }
  end
  for _, s in ipairs(list) do
    if not Class.is_a(s, Symbol) then
      Error.raise{ code = "type", func = "gluon.SymbolBlock", argument = argument,
        expected = "a Symbol or a list of them", got = Error.kind(s),
        message = ("bad '%s'"):format(argument) }
    end
  end
  return list
end


-- Returns the shape in a variable's attribute; nil if there is none.
local function read_shape(n)
  local text = n.attrs.__shape__
  if not text then
    return nil
  end
  local shape = {}
  for size in text:gmatch("%d+") do
    shape[#shape + 1] = tonumber(size)
  end
  return #shape > 0 and shape or nil
end


-- Returns the parameter for a variable's node: the one with its name in `_params` or in its shared
-- dictionary, or a new one with the variable's shape and dtype. As in the reference, the new one
-- does not get the variable's factors of rates and initializer, which belong to the exporting
-- script. mutated: set of the auxiliary states.
local function make_parameter(self, n, mutated)
  if self._params:contains(n.name) then
    return self._params:get(n.name)
  end
  local dtype = tonumber(n.attrs.__dtype__ or n.attrs.dtype)
  return self._params:get(n.name, { allow_deferred_init = true, shape = read_shape(n),
    grad_req = mutated[n] and "null" or nil, dtype = args.DTYPE_NAMES[dtype] })
end


local FORM = args.form("gluon.SymbolBlock", { { "outputs", "any" }, { "inputs", "any" }, "*",
  { "params", "any?" } })

-- Returns the names of the inputs; raises E(value) for one that is not a variable.
local function list_input_names(inputs)
  local names = {}
  for i, s in ipairs(list_symbols(inputs, "inputs")) do
    local n = #s._entries == 1 and s._entries[1][1]
    if not n or n.op then
      Error.raise{ code = "value", func = "gluon.SymbolBlock", argument = "inputs",
        expected = "variables", got = tostring(s), message = ("input %d is the output of an \z
          operator; inputs are variables of the symbol"):format(i) }
    end
    names[i] = n.name
  end
  return names
end


-- Sets the prefix "" and the dictionary of parameters, since parameters keep the variables' names.
function SymbolBlock:_begin(options)
  rawset(self, "_prefix", "")
  rawset(self, "_params", ParameterDict{ prefix = "", shared = options.params })
end


--- @param outputs a Symbol, or a list of them; a call returns an array for each output
-- @param inputs the variables that are inputs, in the order of a call's arguments: a Symbol or a
--   list of Symbols; E(`name`) for one that the outputs do not read
-- @tparam[opt] table options params: a ParameterDict whose parameters are used for variables with
--   their names
function SymbolBlock:init(...)
  local a = FORM(...)
  local outputs, names = list_symbols(a.outputs, "outputs"), list_input_names(a.inputs)
  local is_input, widths, entries = {}, {}, {}
  for i, name in ipairs(names) do
    is_input[name] = i
  end
  if #outputs == 1 then
    outputs = outputs[1]                                 -- each of its outputs is a result
  end
  for i, y in ipairs(outputs) do
    widths[i] = #y._entries
    for _, entry in ipairs(y._entries) do
      entries[#entries + 1] = entry
    end
  end
  rawset(self, "_names", names)
  rawset(self, "_widths", widths)
  self:_use(entries, is_input)
end


-- Sets the block's symbol to a copy of a graph in which the parameters' variables replace the
-- graph's. Raises E(name) for an input that the graph does not read.
function SymbolBlock:_use(entries, is_input)
  local order = node.walk(entries)
  local mutated, known = node.mutated(order), {}
  for pass = 1, 2 do                                     -- arguments, then auxiliary states
    for _, n in ipairs(order) do
      if not n.op and not is_input[n.name] and (pass == 2) == (mutated[n] == true) then
        known[n.name] = make_parameter(self, n, mutated)
        self._own[#self._own + 1] = { name = n.name, param = known[n.name] }
      end
    end
  end
  local copy = node.copy(entries, function(n)
    local p = not n.op and known[n.name]
    return p and { p:var()._entries[1] } or nil
  end, order)
  rawset(self, "_symbol", Symbol.of(copy))
  for name in pairs(is_input) do
    local found = false
    for _, n in ipairs(order) do
      found = found or not n.op and n.name == name
    end
    if not found then
      Error.unknown{ func = "gluon.SymbolBlock", argument = name, what = "variable",
        names = graph.variables(order) }
    end
  end
end


-- Calls -------------------------------------------------------------------------------------------

-- Returns the block's graph with the given symbols in place of its inputs. Raises E(value) for a
-- wrong number of symbols, E(type) for other values.
function SymbolBlock:_symbolic(...)
  local n, given = select("#", ...), { ... }
  if n ~= #self._names then
    Error.raise{ code = "value", func = "SymbolBlock", expected = #self._names, got = n,
      message = ("the block has %d inputs: %s"):format(#self._names,
        table.concat(self._names, ", ")) }
  end
  local by_name = {}
  for i, name in ipairs(self._names) do
    if not Class.is_a(given[i], Symbol) then
      Error.raise{ code = "type", func = "SymbolBlock", argument = name,
        expected = "an NDArray or a Symbol", got = Error.kind(given[i]),
        message = ("bad input '%s'"):format(name) }
    end
    by_name[name] = given[i]._entries[1]
  end
  local order = node.walk(self._symbol._entries)
  local entries, clone = node.copy(self._symbol._entries, function(v)
    if not v.op then
      return { by_name[v.name] or { v, 0 } }
    end
  end, order)
  node.renumber(order, clone)                            -- copies count as new nodes
  local results, at = {}, 0
  for i, width in ipairs(self._widths) do
    local part = {}
    for k = 1, width do
      part[k] = entries[at + k]
    end
    at = at + width
    results[i] = Symbol.of(part)
  end
  return unpack(results)
end


-- Operators whose inputs from the second on stay float32 if the data have a half type.
local NORMALIZATIONS = { BatchNorm = true, _contrib_BatchNormWithReLU = true,
  _contrib_SyncBatchNorm = true }

-- Returns the set of the names of variables that stay float32 if the data have a half type.
local function list_statistics(symbol)
  local names = {}
  for _, n in ipairs(node.walk(symbol._entries)) do
    for i = 2, NORMALIZATIONS[n.op] and #n.inputs or 0 do
      names[n.inputs[i][1].name] = true
    end
  end
  return names
end


function SymbolBlock:_cast_type(p, dtype)
  if not rawget(self, "_statistics") then
    rawset(self, "_statistics", list_statistics(self._symbol))
  end
  return self._statistics[p.name] and layer.statistics_type(dtype) or dtype
end


-- Runs the traced graph on arrays, even if the block is not hybridized.
function SymbolBlock:forward(...)
  return self:_run_trace(...)
end


-- Text --------------------------------------------------------------------------------------------

function SymbolBlock:_describe()
  return ("\n%s : %d -> %d\n"):format(tostring(self._symbol), #self._names, #self._symbol)
end


-- Files -------------------------------------------------------------------------------------------

-- Returns the length in bytes of the longest common prefix of the names of all parameters.
local function measure_common_prefix(own)
  local first, n = own[1] and own[1].name or "", own[1] and #own[1].name or 0
  for _, other in ipairs(own) do
    while other.name:sub(1, n) ~= first:sub(1, n) do
      n = n - 1
    end
  end
  return n
end


-- Appends { name, parameter } pairs for a parameter file to a list and returns it. A block that is
-- not a child uses full names. As a child it uses names without their common prefix, as in the
-- reference, since that prefix contains the number of the exported network; for reading, full names
-- are accepted too.
function SymbolBlock:_append_named(prefix, list, reading)
  local n = prefix ~= "" and measure_common_prefix(self._own) or 0
  for _, own in ipairs(self._own) do
    list[#list + 1] = { prefix .. own.name:sub(n + 1), own.param }
    if reading and n > 0 then
      list[#list + 1] = { prefix .. own.name, own.param }
    end
  end
  return list
end


local IMPORTS = args.form("SymbolBlock.imports", { { "symbol_file", "text" },
  { "input_names", "text|list" }, { "param_file", "text?" }, { "ctx", "contexts_or_options?" },
  { "allow_missing", "boolean", false }, { "ignore_extra", "boolean", false } })

--- Makes a block from files of `export`, of `save_checkpoint` or of the reference. Errors are those
-- of `ty.sym.load` and `Block:load_parameters`, and E(`name`) for an input that the network lacks.
-- @string symbol_file path
-- @param input_names name of an input, or a list of names in the order of a call's arguments
-- @string[opt] param_file path; without it the parameters wait for `initialize`
-- @tparam[opt] table options ctx = the current one (a context or a list of contexts), allow_missing
--   = false, ignore_extra = false
-- @treturn SymbolBlock
function SymbolBlock.imports(...)
  local a, func = IMPORTS(...), "SymbolBlock.imports"
  local inputs = {}
  for i, name in ipairs(type(a.input_names) == "table" and a.input_names or { a.input_names }) do
    inputs[i] = sym.Variable(name)
  end
  local b = SymbolBlock(sym.load(a.symbol_file), inputs)
  if not a.param_file then
    return b
  end
  local list = {}
  for i, p in ipairs(b._params:values()) do
    list[i] = { p.name, p }
  end
  parameter_files.apply(a.param_file, (parameter_files.read(a.param_file, func)), list,
    { ctx = devices.or_current(a.ctx), allow_missing = a.allow_missing,
      ignore_extra = a.ignore_extra, cast_dtype = true, dtype_source = "saved" }, func)
  return b
end


return SymbolBlock
