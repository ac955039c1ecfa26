--- Calling operators on symbols: `ty.sym.FullyConnected{...}`, `x:reshape{...}`, `x + 1`.
--
-- Order of one call: scope attributes, parameters as text, automatic name by the function's own
-- name, check of the parameters by the registry, connection of the inputs.
--
-- @module tycho.symbol.operators

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local attribute = require "tycho.symbol.attribute"
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local name = require "tycho.symbol.name"
local node = require "tycho.symbol.node"
local origin = require "tycho.core.origin"
local registry = require "tycho.op.registry"
local values = require "tycho.core.values"

local operators = {}

local Symbol                                     -- set by symbol.lua, which requires this file

--- Sets the class of symbols.
function operators.use(class)
  Symbol = class
end


local function is_symbol(x)
  return Class.is_a(x, Symbol)
end


local OPTIONS = { name = true, attr = true, out = true }
-- inplace has no meaning here
local METHOD_OPTIONS = { name = true, attr = true, out = true, inplace = true }
local KIND = { is_input = is_symbol, input_text = "a Symbol", options = OPTIONS }


-- Returns the one entry of a symbol that is used as an input.
local function single_entry(x, argument, op, func)
  if #x._entries ~= 1 then
    Error.raise{ code = "type", func = func, op = op, argument = argument,
      expected = "a Symbol with one output",
      got = ("%s with %d outputs"):format(tostring(x), #x._entries),
      message = ("'%s' has several outputs; choose one: x[1], x[\"name\"]"):format(argument) }
  end
  return x._entries[1]
end


-- Returns the attributes of the scope and of `attr =`; raises E(value) for one that is not text.
local function outer_attrs(call, given)
  local dict = {}
  if given ~= nil and not values.is_plain(given) then
    Error.raise{ code = "type", func = call.func, argument = "attr", expected = "a table of texts",
      got = Error.kind(given), message = "bad 'attr'" }
  end
  for key, value in pairs(attribute.current():get(given)) do
    if type(value) ~= "string" then
      Error.raise{ code = "value", func = call.func, argument = key, expected = "text",
        got = Error.kind(value), message = "attributes are text" }
    end
    dict[attrs.call_key(key, call.func)] = value
  end
  return dict
end


-- Returns all attributes of the new node: scope, `attr =`, keywords, parameters, the count of a
-- variadic operator. Where there are parameters only, it is the call's own table.
local function collect_attrs(call, schema)
  local dict, given = call.params, call.options.attr
  if given ~= nil or attribute.any() or next(call.attrs) then
    dict = node.merged(outer_attrs(call, given), call.attrs, call.params)
  end
  local counter = schema.variadic
  if counter and schema.by_name[counter] and dict[counter] == nil then
    dict[counter] = tostring(call.count)
  end
  return dict
end


local function named_inputs(call, n, given)
  for key, x in pairs(call.named) do
    local position
    for i, input in ipairs(n.ports.inputs) do
      position = input == key and i or position
    end
    if not position then
      Error.unknown{ func = call.func, op = n.op, node = n.name, argument = key, what = "input",
        names = n.ports.inputs }
    elseif given[position] then
      Error.raise{ code = "name", func = call.func, op = n.op, node = n.name, argument = key,
        message = ("input '%s' is given twice, by position and by name"):format(key) }
    end
    given[position] = single_entry(x, key, n.op, call.func)
  end
end


local function check_variadic(call, schema)
  if schema.variadic and next(call.named) then
    Error.raise{ code = "type", func = call.func, op = schema.name, argument = (next(call.named)),
      message = "takes any number of inputs, so they are given by position only" }
  end
end


local function given_inputs(call, n)
  local given = {}
  if call.count > #n.ports.inputs then
    Error.raise{ code = "type", func = call.func, op = n.op, node = n.name,
      expected = #n.ports.inputs, got = call.count, message = ("takes at most %d inputs (%s)%s")
        :format(#n.ports.inputs, table.concat(n.ports.inputs, ", "),
          registry.switch_advice(call.schema, n.ports.inputs)) }
  end
  for i = 1, call.count do
    local x = call.inputs[i]
    given[i] = x and single_entry(x, n.ports.inputs[i], n.op, call.func)
  end
  named_inputs(call, n, given)
  return given
end


-- Returns a symbol of all visible outputs of a node.
local function make_outputs(n)
  local entries = {}
  for k = 1, n.ports.nvisible do
    entries[k] = { n, k - 1 }
  end
  return Symbol.of(entries)
end

local function make(call, schema, hint, where)
  check_variadic(call, schema)
  local given_name = call.options.name
  if given_name ~= nil and type(given_name) ~= "string" then
    Error.raise{ code = "type", func = call.func, argument = "name", expected = "text",
      got = Error.kind(given_name), message = "bad 'name'" }
  end
  local dict = collect_attrs(call, schema)
  local full = name.current():get(given_name, hint)
  local n = node.operator(schema, full, dict, schema.variadic and call.count or -1, call.func,
    where or Error.caller())
  node.connect(n, given_inputs(call, n), call.func)
  return make_outputs(n)
end


--- Makes a symbol of an operator as a function would.
-- @tparam table schema the operator
-- @string hint of automatic names: the name it is called by
-- @string func the public name, for errors
-- @param ... the function's arguments
function operators.call(schema, hint, func, ...)
  local where = origin.take()
  return make(registry.read_call(schema, func, KIND, ...), schema, hint:lower(), where)
end


--- Makes a symbol from parts that are known: inputs, parameters, name.
-- @string op operator or alias; also the hint
-- @tparam {Symbol,...} inputs
-- @tparam table params values
-- @string func for errors
-- @tparam[opt] table options name, attr
function operators.compose(op, inputs, params, func, options)
  local schema = registry.find(op) or Error.unknown{ func = func, what = "operator", argument = op,
    names = registry.names(true) }
  local call = { schema = schema, func = func, inputs = inputs, count = #inputs, named = {},
    params = {}, attrs = {}, options = options or {} }
  for key, value in pairs(params) do
    call.params[key] = attrs.text(value, func, key)
  end
  return make(call, schema, op:lower())
end


--- Returns the function of an operator for the namespace `ty.sym`.
-- @string alias name or alias
-- @string[opt] func public name, for errors
-- @string[opt] hint of automatic names; the alias
-- @treturn function or nil when there is no such operator
function operators.maker(alias, func, hint)
  local schema = registry.find(alias)
  if not schema then
    return nil
  end
  func, hint = func or "sym." .. alias, hint or alias
  return function(...)
    return operators.call(schema, hint, func, ...)
  end
end


-- Infix operators ---------------------------------------------------------------------------------

-- event -> alias for two symbols, symbol and number, number and symbol
local INFIX = {
  __add = { "_Plus",  "_PlusScalar",  "_PlusScalar" },
  __sub = { "_Minus", "_MinusScalar", "_RMinusScalar" },
  __mul = { "_Mul",   "_MulScalar",   "_MulScalar" },
  __div = { "_Div",   "_DivScalar",   "_RDivScalar" },
  __mod = { "_Mod",   "_ModScalar",   "_RModScalar" },
  __pow = { "_Power", "_PowerScalar", "_rpower_scalar" },
}

-- method -> alias for two symbols, with a number
local COMPARE = {
  eq = { "_equal",   "_equal_scalar" },    ne = { "_not_equal",     "_not_equal_scalar" },
  gt = { "_greater", "_greater_scalar" },  ge = { "_greater_equal", "_greater_equal_scalar" },
  lt = { "_lesser",  "_lesser_scalar" },   le = { "_lesser_equal",  "_lesser_equal_scalar" },
}

-- function -> alias for two symbols, symbol and number, number and symbol; what two numbers give
local BINARY = {
  pow           = { "_Power", "_PowerScalar", "_RPowerScalar", math.pow },
  power         = { "_Power", "_PowerScalar", "_RPowerScalar", math.pow },
  maximum       = { "_Maximum", "_MaximumScalar", "_MaximumScalar", math.max },
  minimum       = { "_Minimum", "_MinimumScalar", "_MinimumScalar", math.min },
  hypot         = { "_Hypot", "_HypotScalar", "_HypotScalar", function(a, b)
    return math.sqrt(a * a + b * b)
  end },
  equal         = { "_equal", "_equal_scalar", "_equal_scalar" },
  not_equal     = { "_not_equal", "_not_equal_scalar", "_not_equal_scalar" },
  greater       = { "_greater", "_greater_scalar", "_lesser_scalar" },
  greater_equal = { "_greater_equal", "_greater_equal_scalar", "_lesser_equal_scalar" },
  lesser        = { "_lesser", "_lesser_scalar", "_greater_scalar" },
  lesser_equal  = { "_lesser_equal", "_lesser_equal_scalar", "_greater_equal_scalar" },
}


local function bad_operand(func, a, b)
  local other = is_symbol(a) and b or a
  Error.raise{ code = "type", func = func, expected = "a Symbol or a number",
    got = Error.kind(other), message = "bad operand" .. registry.mixed_hint(other) }
end


local function binary(func, row, a, b, options)
  if is_symbol(a) and is_symbol(b) then
    return operators.compose(row[1], { a, b }, {}, func, options)
  elseif is_symbol(a) and type(b) == "number" then
    return operators.compose(row[2], { a }, { scalar = b }, func, options)
  elseif is_symbol(b) and type(a) == "number" then
    return operators.compose(row[3], { b }, { scalar = a }, func, options)
  elseif row[4] and type(a) == "number" and type(b) == "number" then
    return row[4](a, b)
  end
  bad_operand(func, a, b)
end


local function refuse_order(a, b)
  Error.raise{ code = "unsupported", func = "Symbol", got = Error.kind(is_symbol(a) and b or a),
    message = "'<' and '<=' cannot compare symbols; use x:lt(y), x:le(y), x:gt(y), x:ge(y)" }
end


--- Adds the infix operators and comparisons to the class.
function operators.add_infix(class)
  for event, row in pairs(INFIX) do
    class[event] = function(a, b)
      return binary("Symbol:" .. event, row, a, b)
    end
  end
  function class.__unm(a)
    return operators.compose("_MulScalar", { a }, { scalar = -1 }, "Symbol:__unm")
  end
  class.__lt, class.__le = refuse_order, refuse_order
  for method, row in pairs(COMPARE) do
    class[method] = function(a, b)
      return binary("Symbol:" .. method, { row[1], row[2], row[2] }, a, b)
    end
  end
end


--- Adds the functions of two operands (`maximum`, `equal` ...) to the namespace.
function operators.add_binary(namespace)
  for func, row in pairs(BINARY) do
    local form = args.form("sym." .. func, { { "lhs", "any?" }, { "rhs", "any?" }, "*",
      { "left", "any?" }, { "right", "any?" }, { "name", "text?" }, { "attr", "dict?" } })
    namespace[func] = function(...)
      local a = form(...)
      return binary("sym." .. func, row, a.lhs == nil and a.left or a.lhs,
        a.rhs == nil and a.right or a.rhs, { name = a.name, attr = a.attr })
    end
  end
end


-- Fluent methods ----------------------------------------------------------------------------------

local FLUENT = [[
  reshape sum mean max min prod nansum nanprod norm argmax argmin argmax_channel argsort sort
  topk transpose swapaxes flatten expand_dims squeeze split slice slice_axis slice_like take pick
  one_hot clip abs sign exp expm1 log log2 log10 log1p sqrt rsqrt cbrt rcbrt square reciprocal
  relu sigmoid tanh softmax log_softmax softmin round rint fix floor ceil trunc sin cos tan
  arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians tile flip diag pad
  depth_to_space space_to_depth broadcast_to broadcast_like broadcast_axes zeros_like ones_like
  repeat reshape_like shape_array size_array astype split_v2]]

-- methods whose operator has another name
local OTHER_NAME = { astype = "cast" }
-- methods for which a table's whole array part is the first parameter (rule R2)
local WHOLE = { reshape = true, transpose = true, broadcast_to = true, tile = true,
  broadcast_axes = false }

local fluent = {}
for method in FLUENT:gmatch("%S+") do
  fluent[method] = OTHER_NAME[method] or method
end
fluent.repeat_ = "repeat"
fluent.split_v2 = nil


local methods = {}

local function make_method(key, op, schema)
  local func, whole = "Symbol:" .. key, WHOLE[key] or false
  return origin.wrap(function(self, ...)
    local kind = { is_input = is_symbol, input_text = "a Symbol", options = METHOD_OPTIONS,
      self = self, whole = whole }
    local where = origin.take()
    return make(registry.read_call(schema, func, kind, ...), schema, op:lower(), where)
  end)
end


--- Returns the method of a symbol for an operator, in the list above or added at run time; nil for
-- others.
-- @string key method name
function operators.method(key)
  if not methods[key] then
    local op = fluent[key] or registry.is_formula(key) and key
    local schema = op and registry.find(op)
    if not schema then
      return nil
    end
    methods[key] = make_method(key, op, schema)
  end
  origin.note(methods[key])
  return methods[key]
end


--- Returns the names of the fluent methods, for "did you mean".
function operators.method_names()
  return attrs.keys(fluent)
end


return operators
