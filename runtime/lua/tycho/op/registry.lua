--- The operators of the native registry, and how the arguments of their functions are read.
--
--     local schema = registry.find("Convolution")  -- by name or alias; nil if there is none
--     schema.name, schema.inputs, schema.params[1].name, schema.variadic
--
--     local call = registry.read_call(schema, "nd.clip", is_array, OPTIONS, x, 0, 1)
--     call.inputs   {x}: positional inputs          call.named     {data = x}: inputs by name
--     call.params   {a_min = "0", a_max = "1"}      call.options   {out = ...}: keywords in OPTIONS
--     call.attrs    annotations and hidden attributes among the keywords
--
-- Positional arguments are first the inputs, then the parameters in declared order.
--
-- @module tycho.op.registry

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local values = require "tycho.core.values"

local C, check, text = native.C, native.check, native.text
local null, is_plain, has_names = values.null, values.is_plain, values.has_names

local registry = {}

local schemas = {}               -- by index
local by_name = {}               -- name or alias -> schema
local missing = {}               -- name -> number of operators at the time when it was not found


-- Returns the names in a port text such as "data weight! [mean] arg*num_args", without marks, and
-- the parameter that gives the number of inputs.
local function read_ports(ports)
  local names, counter = {}, nil
  for token in ports:gmatch("%S+") do
    local name, star = token:gsub("[%[%]{}!]", ""):match("^([^*]*)%*?(.*)$")
    if star ~= "" then
      counter = star
    end
    names[#names + 1] = name
  end
  return names, counter
end


-- Returns parameter number k of an operator: name, type, default, doc, takes_list.
local function read_param(index, k)
  local p = ffi.new("ty_param")
  check(C.ty_op_param(index, k, p))
  local kind = text(p.type)
  return {
    name = text(p.name), type = kind, default = text(p.init), doc = text(p.doc),
    takes_list = kind:find("tuple", 1, true) ~= nil,
  }
end


local function read_aliases(index)
  local out, list = ffi.new("const char *[1]"), {}
  check(C.ty_op_alias(index, out))
  for name in text(out[0]):gmatch("%S+") do
    list[#list + 1] = name
  end
  return list
end


local answer = ffi.new("int[1]")

--- Returns the schema of operator number `index` (from 0).
function registry.at(index)
  if schemas[index] then
    return schemas[index]
  end
  local info = ffi.new("ty_opinfo")
  check(C.ty_op_info(index, info))
  local schema = {
    index = index, name = text(info.name), doc = text(info.doc), inputs = text(info["in"]),
    outputs = text(info.out), added = info.added ~= 0, is_loss = info.loss ~= 0,
    params = {}, by_name = {},
    aliases = read_aliases(index),
  }
  schema.input_names, schema.variadic = read_ports(schema.inputs)
  check(C.ty_op_names_inputs(index, answer))
  schema.names_inputs = answer[0] ~= 0                   -- a monitor may see its inputs
  check(C.ty_op_draws(index, answer))
  schema.draws = answer[0] ~= 0                          -- it may draw random numbers
  for k = 1, info.nparam do
    local p = read_param(index, k - 1)
    if not p.name:find("^__") then                       -- names with "__" are internal
      schema.params[k], schema.by_name[p.name] = p, p
    end
  end
  schemas[index] = schema
  return schema
end


--- Returns the schema of an operator by name or alias; nil if there is none.
function registry.find(name)
  local found = by_name[name]
  if found or missing[name] == C.ty_op_count() then
    return found
  end
  local index = ffi.new("int[1]")
  if C.ty_op_find(name, index) ~= 0 then
    missing[name] = C.ty_op_count()
    return nil
  end
  by_name[name] = registry.at(index[0])
  return by_name[name]
end


--- Returns advice for a call with more inputs than its parameters allow, such as "; use_length =
-- true adds length"; "" if there is none.
-- @param schema of the operator
-- @tparam {string,...} inputs names of the inputs that the parameters ask for
-- @treturn string
function registry.switch_advice(schema, inputs)
  local has, parts = {}, {}
  for _, name in ipairs(inputs) do
    has[name] = true
  end
  for _, name in ipairs(schema.input_names) do
    local switch = schema.by_name["use_" .. name]
    parts[#parts + 1] = switch and not has[name] and ("use_%s = true adds %s"):format(name, name)
      or nil
  end
  return parts[1] and "; " .. table.concat(parts, ", ") or ""
end


--- Returns whether an operator was added at run time (`op.pointwise`).
function registry.is_formula(name)
  local schema = registry.find(name)
  return schema ~= nil and schema.added
end


--- Returns the names of all operators.
-- @bool aliases whether aliases are included
function registry.names(aliases)
  local list = {}
  for i = 0, C.ty_op_count() - 1 do
    local schema = registry.at(i)
    list[#list + 1] = schema.name
    for _, alias in ipairs(aliases and schema.aliases or {}) do
      list[#list + 1] = alias
    end
  end
  return list
end


-- Returns the names in a port text and the same words with their marks.
local function split_names(ports)
  local names, marks = {}, {}
  for token in ports:gmatch("%S+") do
    names[#names + 1] = token:gsub("[%[%]!]", "")
    marks[#names] = token
  end
  return names, marks
end


local ports_out = ffi.new("const char *[2]")

-- Asks the core for the ports of an operator.
local function ask_ports(op, keys, dict, nin, func, node)
  local out = ports_out
  local code = C.ty_op_ports(op, native.attrs(keys, dict), #keys, nin, out, out + 1)
  if code ~= 0 then
    check(code, func, { op = op, node = node, where = Error.caller(3) })
  end
  local ports = { mutated = {}, nvisible = 0 }
  local marks
  ports.inputs, marks = split_names(text(out[0]))
  for i, token in ipairs(marks) do
    ports.mutated[i] = token:find("!", 1, true) ~= nil
  end
  ports.outputs, marks = split_names(text(out[1]))
  for _, token in ipairs(marks) do
    ports.nvisible = ports.nvisible + (token:sub(1, 1) ~= "[" and 1 or 0)
  end
  return ports
end


local MOST_PORTS = 4096                  -- most entries of the cache; then it is cleared
local cached, ncached = {}, 0            -- text of make_key -> ports

local parts = {}

-- Returns one text for an operator, its attributes and nin.
local function make_key(op, keys, dict, nin)
  local n = #keys
  for i = 1, n do
    parts[2 * i - 1], parts[2 * i] = keys[i], dict[keys[i]]
  end
  return op .. "\0" .. nin .. "\0" .. table.concat(parts, "\0", 1, 2 * n)
end


--- Returns the names of the inputs and outputs for given attributes, and checks the attributes.
-- @string op canonical name
-- @tparam table dict attributes, all text
-- @int nin number of inputs of a variadic operator, else -1
-- @string func for errors
-- @string[opt] node for errors
-- @treturn table inputs and outputs (names), mutated[i] (whether input i, from 1, is changed in
--   place), nvisible (number of visible outputs). The caller must not change it
function registry.ports(op, dict, nin, func, node)
  local keys = attrs.keys(dict)
  local key = make_key(op, keys, dict, nin)
  local ports = cached[key]
  if not ports then
    ports = ask_ports(op, keys, dict, nin, func, node)
    if ncached == MOST_PORTS then
      cached, ncached = {}, 0
    end
    cached[key], ncached = ports, ncached + 1
  end
  return ports
end


-- Reading a call ----------------------------------------------------------------------------------

local function accepted_names(schema, options)
  local names = {}
  for _, p in ipairs(schema.params) do
    names[#names + 1] = p.name
  end
  for _, name in ipairs(schema.variadic and {} or schema.input_names) do
    names[#names + 1] = name
  end
  for name in pairs(options) do
    names[#names + 1] = name
  end
  return names
end


local FOREIGN = { NDArray = true, Symbol = true }        -- classes that can only be inputs
local WHERE_INPUTS_GO = "arrays are inputs of ty.nd, symbols of ty.sym, both of ty.F"

local function is_foreign(value)
  return type(value) == "table" and FOREIGN[value.class_name]
end


--- Returns a hint to append to "bad operand" if the operand is an array or a symbol where the other
-- one is expected; else "".
-- @param value the bad operand
function registry.mixed_hint(value)
  return is_foreign(value) and "; an array that belongs to a network is a variable of it, in a \z
    block self.params:get_constant(name, array)" or ""
end


-- How an element-wise operator of two inputs is written with a number; %s is the namespace.
local WITH_NUMBER = { add = "x + 1", plus = "x + 1", sub = "x - 1", minus = "x - 1",
  mul = "x * 1", div = "x / 1", mod = "x % 1", power = "x ^ 1" }
for name in ([[maximum minimum hypot equal not_equal greater greater_equal lesser
    lesser_equal]]):gmatch("%S+") do
  WITH_NUMBER[name] = "ty.%s." .. name .. "(x, 1)"
end


-- Returns a hint for a number in place of an input; "" if there is none.
local function number_hint(call, value)
  local name = call.schema.name
  local bare = name:match("^broadcast_(.*)") or name:match("^elemwise_(.*)") or name:match("^_(.*)")
  local form = type(value) == "number" and WITH_NUMBER[bare or false]
  return form and "; with a number: " .. form:gsub("%%s", call.func:match("^%a+")) or ""
end


-- Raises E(type) for an argument that is not an input at the position of one.
local function fail_input(call, input, value)
  Error.raise{ code = "type", func = call.func, op = call.schema.name, argument = input,
    got = Error.kind(value), expected = call.input_text,
    message = ("bad input '%s'"):format(input)
      .. (is_foreign(value) and "; " .. WHERE_INPUTS_GO or number_hint(call, value)) }
end


-- Raises E(type) for the first argument after the inputs if it was read as a parameter although an
-- input is missing.
local function check_first(call)
  local first = call.first
  if not first then
    return
  end
  local rest = {}
  for name, value in pairs(call.params) do
    rest[name] = name ~= first.param and value or nil
  end
  local ok, ports = pcall(registry.ports, call.schema.name, rest, -1, call.func)
  if not ok then                                         -- other arguments were shifted too
    ok, ports = pcall(registry.ports, call.schema.name, {}, -1, call.func)
  end
  local input = ok and ports.inputs[call.count + 1]
  if input and next(call.named) == nil then
    fail_input(call, input, first.value)
  end
end


-- Sets a parameter; E(name) if it is set already, E(type) for an array or a symbol.
local function set_param(call, p, value)
  if call.params[p.name] ~= nil then
    check_first(call)
    Error.raise{ code = "name", func = call.func, op = call.schema.name, argument = p.name,
      message = ("parameter '%s' is given twice"):format(p.name) }
  elseif is_foreign(value) then
    local got = Error.kind(value)
    local is_input = got == call.input_text
    Error.raise{ code = "type", func = call.func, op = call.schema.name, argument = p.name,
      expected = is_input and "a value of a parameter" or call.input_text, got = got,
      message = is_input and "inputs are given one by one; is one of them a list?"
        or WHERE_INPUTS_GO }
  end
  call.params[p.name] = attrs.text(value, call.func, p.name)
end


local NONE = {}                          -- shared by most calls; never written

-- Sets call[kind][key]; a shared empty table is replaced before.
local function put(call, kind, key, value)
  if call[kind] == NONE then
    call[kind] = {}
  end
  call[kind][key] = value
end


-- Reads one keyword: an option, an input, a parameter, an annotation or a hidden attribute.
local function read_keyword(call, key, value)
  local schema = call.schema
  local p = schema.by_name[key]
  local bare = p and key or args.bare_name(key)
  p = p or schema.by_name[bare]
  if call.accepted[key] and not p then
    put(call, "options", key, value)
  elseif call.is_input(value) then
    put(call, "named", bare, value)
  elseif p then
    set_param(call, p, value)
  elseif attrs.is_annotation(key) or attrs.wrap(key) ~= key then
    put(call, "attrs", attrs.wrap(key), attrs.text(value, call.func, key))
  elseif schema.name == "Custom" then                    -- an argument of its class
    call.params[key] = attrs.text(value, call.func, key)
  else
    for _, input in ipairs(schema.input_names) do
      if input == bare then
        Error.raise{ code = "type", func = call.func, op = schema.name, argument = key,
          expected = call.input_text,
          got = Error.kind(value), message = ("bad input '%s'"):format(key) }
      end
    end
    attrs.call_key(key, call.func)
    Error.unknown{ func = call.func, op = schema.name, argument = key, what = "argument",
      names = accepted_names(schema, call.accepted) }
  end
end


local function read_keywords(call, options)
  local n = #options
  for key, value in pairs(options) do
    if type(key) == "string" then
      read_keyword(call, key, value)
    elseif type(key) ~= "number" or key < 1 or key > n then
      Error.raise{ code = "type", func = call.func, op = call.schema.name, got = Error.kind(key),
        message = "a keyword is text" }
    end
  end
end


-- Returns whether a table contains only inputs and no named fields.
local function is_input_list(call, t)
  if not is_plain(t) or #t == 0 then
    return false
  end
  for i = 1, #t do
    if not call.is_input(t[i]) then
      return false
    end
  end
  return not has_names(t)
end


-- Returns the position of the last input among the first n arguments, 0 if there is none.
local function last_input(call, list, n)
  local last = 0
  for i = 1, n do
    if call.is_input(list[i]) then
      last = i
    end
  end
  return last
end


local JOINS = { Concat = true, stack = true, add_n = true }

local warned_at = {}                                     -- lines of users' programs -> true

-- Warns of `f(unpack(list), options)` or `{unpack(list), k = v}`, which pass only the list's first
-- entry. It warns once for each source line, since such a call may be intended.
local function warn_of_one(call)
  local location = Error.caller()
  if warned_at[location] then
    return
  end
  warned_at[location] = true
  log:warning(("%s: %s: one input alone; of unpack(list) in front of others Lua passes the first \z
    entry only: give the list itself, %s(list, {...})"):format(location, call.func, call.func))
end


-- Raises an error for the list of inputs of a variadic operator if it is empty, or if only some of
-- its entries are inputs.
local function check_list(call, t)
  if not is_plain(t) or has_names(t) then
    return
  elseif next(t) == nil then
    Error.raise{ code = "value", func = call.func, op = call.schema.name, got = "none",
      expected = "at least one input", message = "the list of inputs is empty" }
  end
  local last = table.maxn(t)
  if last_input(call, t, last) == 0 then
    return
  end
  for i = 1, last do
    if not call.is_input(t[i]) then
      Error.raise{ code = "type", func = call.func, op = call.schema.name, got = Error.kind(t[i]),
        expected = call.input_text, message = ("bad entry %d in the list of inputs"):format(i) }
    end
  end
end


-- Reads the inputs of a call and returns how many arguments they take.
local function read_inputs(call, list, n)
  if n > 0 and call.schema.variadic and not call.of_method and not call.is_input(list[1]) then
    check_list(call, list[1])
  end
  if n > 0 and is_input_list(call, list[1]) then
    for i, value in ipairs(list[1]) do
      call.inputs[i] = value
    end
    call.count = #list[1]
    return 1
  end
  local last = last_input(call, list, n)
  for i = 1, last do
    local value = list[i]
    if value == nil or value == null then
      value = nil                                        -- an omitted optional input
    elseif not call.is_input(value) then
      Error.raise{ code = "type", func = call.func, op = call.schema.name,
        expected = call.input_text, got = Error.kind(value),
        message = ("bad argument %d: inputs come first, then parameters"):format(i) }
    end
    call.inputs[i] = value
  end
  call.count = last
  if last == 1 and JOINS[call.schema.name] and not call.of_method then
    local is_last = n == 1 and not call.has_options      -- then nothing was cut off
    if not (is_last or is_foreign(list[2])) then
      warn_of_one(call)
    end
  end
  return last
end


-- Raises an error for an argument that is neither an input nor a parameter.
local function fail_beyond(call, list, i, used)
  local schema, message = call.schema
  local params, inputs = #schema.params, schema.input_names
  local input = params == 0 and not schema.variadic and inputs[i] or nil
  if input then
    fail_input(call, input, list[i])
  elseif params > 0 then
    message = ("too many arguments: the operator has %d parameter%s"):format(params,
      params == 1 and "" or "s")
  else
    message = ("too many arguments: the operator takes %s and has no parameters"):format(
      table.concat(inputs, ", "))
  end
  Error.raise{ code = "type", func = call.func, op = schema.name, got = Error.kind(list[i]),
    expected = used == 0 and call.input_text or nil, message = message }
end


local function read_positional(call, list, n)
  local used = read_inputs(call, list, n)
  for i = used + 1, n do
    local p = call.schema.params[i - used]
    if list[i] ~= nil and used > 0 and JOINS[call.schema.name] and not call.of_method then
      Error.raise{ code = "type", func = call.func, op = call.schema.name,
        expected = call.input_text, got = Error.kind(list[i]),
        message = ("bad argument %d: all are inputs, and parameters go by name"):format(i) }
    elseif not p then
      fail_beyond(call, list, i, used)
    elseif list[i] ~= nil then
      set_param(call, p, list[i])
      if i == used + 1 and call.checks_inputs and used < #call.schema.input_names then
        call.first = { param = p.name, value = list[i] }
      end
    end
  end
end


-- Returns whether a table without named fields, as the only argument of a method marked with R2, is
-- the value of the first parameter.
local function is_whole(call, t, whole)
  return whole and #t > 0 and type(t[1]) ~= "table" and call.schema.params[1]
end


-- Reads a call with one table: positional arguments in its array part, and keywords.
local function read_options(call, first, t, whole)
  local n = #t
  if is_whole(call, t, whole) then
    local list = {}
    for i = 1, n do
      list[i] = t[i]
    end
    read_positional(call, { first, list }, 2)
  elseif n > 0 or first ~= nil then
    local list = { first }
    local before = #list
    for i = 1, n do
      list[before + i] = t[i]
    end
    read_positional(call, list, before + n)
  end
  read_keywords(call, t)
end


-- Returns whether the last argument of a call holds its keywords: a table with named fields, or an
-- empty table that cannot be the value of a parameter.
local function are_options(call, list, n, is_method)
  local last = list[n]
  if not is_plain(last) then
    return false
  elseif has_names(last) or #last > 0 then
    return has_names(last)
  end
  local used = not is_method and is_input_list(call, list[1]) and 1 or last_input(call, list, n)
  local p = call.schema.params[n - used]
  return not (p and (p.type:find "^Shape" or p.type:find "^tuple"))
end


-- Sets the parameter use_NAME to true for each input that is given by name, if the operator has the
-- parameter and the call does not set it.
local function switch_on_inputs(call)
  for name in pairs(call.named) do
    local switch = "use_" .. name
    if call.schema.by_name[switch] and call.params[switch] == nil then
      call.params[switch] = attrs.text(true, call.func, switch)
    end
  end
  return call
end


--- Reads the arguments of an operator's function. An input that is given by name also sets its
-- parameter use_NAME, if there is one.
-- @tparam table schema the operator
-- @string func the public name, for errors
-- @tparam table kind is_input (function), input_text ("a Symbol"), options (set of keywords
--   that are not parameters), self (the object, for a method), whole (rule R2: a table's array
--   part is the first parameter), checks_inputs (a missing input is an error here)
-- @param ... the arguments of the function, without self
-- @treturn table inputs, count (of inputs, including holes), named, params (as strings), options,
--   attrs; the caller must not change named, options and attrs
function registry.read_call(schema, func, kind, ...)
  local n, only = values.count(...), ...
  local call = {
    schema = schema, func = func, is_input = kind.is_input, input_text = kind.input_text,
    accepted = kind.options, inputs = {}, count = 0, named = NONE, params = {}, options = NONE,
    attrs = NONE, of_method = kind.self ~= nil,
    checks_inputs = kind.checks_inputs and not schema.variadic,
  }
  if n == 1 and is_plain(only) then
    call.has_options = has_names(only)
    read_options(call, kind.self, only, kind.whole)
    check_first(call)
    return switch_on_inputs(call)
  end
  local list = { ... }
  local options = are_options(call, list, n, call.of_method) and list[n]
  call.has_options = options and true
  if options then
    if #options > 0 then
      Error.raise{ code = "type", func = func, op = schema.name, got = "a table with a list in it",
        message = "the last table holds keywords only" }
    end
    n = n - 1
  end
  if kind.whole and n > 1 and type(only) == "number" then
    list, n = { { unpack(list, 1, n) } }, 1              -- x:transpose(1, 0)
  end
  if kind.self ~= nil then
    table.insert(list, 1, kind.self)
    n = n + 1
  end
  read_positional(call, list, n)
  if options then
    read_keywords(call, options)
  end
  check_first(call)
  return switch_on_inputs(call)
end


return registry
