--- One function per operator on arrays: `ty.nd.Convolution{...}`,
-- `ty.nd.contrib.X`, `x:sum{axis = 1}`.
--
-- Arrays come first, then parameters; `out =` an array or list to write, `ctx =` the device of an
-- operator without inputs. The result is an array, or a list if there are several outputs.
-- Functions and methods are made on first use.
--
-- @module tycho.ndarray.operators

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local args = require "tycho.core.args"
local call = require "tycho.ndarray.call"
local call_cache = require "tycho.ndarray.call_cache"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local registry = require "tycho.op.registry"
local values = require "tycho.core.values"

local is_array, is_plain, NDArray = class.is_array, values.is_plain, class.NDArray
local put_input, cached, cached_list = call.put_input, call.cached, call.cached_list
local find_table = call_cache.find_table
local getmetatable, select, type = getmetatable, select, type

local operators = {}

local MOST_OUTPUTS = 60                                  -- `call.cached_list` takes 64

local OPTIONS = { out = true, ctx = true, name = true }
local KIND = { is_input = is_array, input_text = "an NDArray", options = OPTIONS,
  checks_inputs = true }


-- Attributes and outputs --------------------------------------------------------------------------

-- Returns a Context among the options as text, the form of the operators' parameter.
local function convert_context(...)
  local n = values.count(...)
  local t = n > 0 and select(n, ...)
  if is_plain(t) and Class.is_a(t.ctx, context.Context) then
    local copy = {}
    for key, value in pairs(t) do
      copy[key] = value
    end
    copy.ctx = tostring(t.ctx)
    local list = { ... }
    list[n] = copy
    return unpack(list, 1, n)
  end
  return ...
end


-- Returns the parameters as a flat list sorted by name; an operator without inputs gets the current
-- context.
local function flat_params(c)
  local keys = {}
  for key in pairs(c.params) do
    keys[#keys + 1] = key
  end
  if c.schema.by_name.ctx and not c.params.ctx and #c.inputs == 0 then
    c.params.ctx = c.out and tostring(c.out[1].context) or tostring(context.current_context())
    keys[#keys + 1] = "ctx"
  end
  table.sort(keys)
  local flat = {}
  for i, key in ipairs(keys) do
    flat[2 * i - 1], flat[2 * i] = key, c.params[key]
  end
  return flat
end


local function outputs_given(out, func)
  if out == nil then
    return nil
  elseif is_array(out) then
    return { out }
  end
  for i = 1, is_plain(out) and #out or 1 do
    if not (is_plain(out) and is_array(out[i])) then
      Error.raise{ code = "type", func = func, argument = "out",
        expected = "an NDArray or a list of them",
        got = Error.kind(is_plain(out) and out[i] or out), message = "bad 'out'" }
    end
  end
  return out
end


-- Inputs ------------------------------------------------------------------------------------------

local function find_position(names, key)
  for i, name in ipairs(names) do
    if name == key then
      return i
    end
  end
end


-- Moves inputs given by name to their positions.
local function put_named(c)
  local schema, func = c.schema, c.func
  if schema.variadic then
    Error.raise{ code = "type", func = func, op = schema.name, argument = (next(c.named)),
      message = "takes any number of inputs, so they are given by position only" }
  end
  local params = c.params
  if schema.name == "Custom" then
    params = require("tycho.op.custom")._with_ports(params, func)
  end
  local names = registry.ports(schema.name, params, -1, func).inputs
  for key, x in pairs(c.named) do
    local position = find_position(names, key)
    if not position then
      Error.unknown{ func = func, op = schema.name, argument = key, what = "input", names = names }
    elseif c.inputs[position] then
      Error.raise{ code = "name", func = func, op = schema.name, argument = key,
        message = ("input '%s' is given twice, by position and by name"):format(key) }
    end
    c.inputs[position] = x
  end
  c.count = #names
end


-- Raises E(value) for a missing input. If a method got no input at all, it was called with a dot,
-- and the message suggests the colon.
local function fail_missing(c, name, argument)
  local method = c.count == 0 and c.func:match("^NDArray:(.*)$")
  Error.raise{ code = "value", func = c.func, op = c.schema.name, argument = argument,
    expected = "an NDArray", got = "nothing", message = ("input '%s' is missing%s"):format(name,
      method and ("; methods take a colon: x:%s(...), not x.%s(...)"):format(method, method)
      or "") }
end


-- Checks that all inputs up to the last one are given.
local function check_inputs(c)
  local names
  for i = 1, c.count do
    if not c.inputs[i] then
      names = names or registry.ports(c.schema.name, c.params, c.schema.variadic and c.count or -1,
        c.func).inputs
      fail_missing(c, names[i] or i, names[i] or "input " .. i)
    end
  end
end


-- Extends the error of a wrong number of inputs.
local function explain(c, e)
  if c.schema.variadic or not Error.is_error(e) or e.code ~= "value" or e.argument then
    error(e, 0)
  end
  local ok, ports = pcall(registry.ports, c.schema.name, c.params, -1, c.func)
  if not ok or #ports.inputs == c.count then
    error(e, 0)
  elseif #ports.inputs > c.count then
    fail_missing(c, ports.inputs[c.count + 1], ports.inputs[c.count + 1])
  end
  Error.raise{ code = "type", func = c.func, op = c.schema.name, expected = #ports.inputs,
    got = c.count,
    message = ("takes %d inputs (%s)%s"):format(#ports.inputs, table.concat(ports.inputs, ", "),
      registry.switch_advice(c.schema, ports.inputs)) }
end


local function check_ctx(c)
  local ctx = c.options.ctx
  if ctx ~= nil and c.inputs[1] and tostring(c.inputs[1].context) ~= ctx then
    Error.raise{ code = "device", func = c.func, op = c.schema.name, argument = "ctx",
      expected = tostring(c.inputs[1].context),
      got = ctx, message = "an operator runs where its inputs are" }
  end
end


-- Calls -------------------------------------------------------------------------------------------

local function run(c)
  if next(c.named) then
    put_named(c)
  end
  if c.schema.name == "Custom" then
    return require("tycho.ndarray.custom")(c.inputs, c.params, c.func)
  end
  check_inputs(c)
  check_ctx(c)
  c.out = outputs_given(c.options.out, c.func)
  local flat = flat_params(c)
  local n = registry.ports(c.schema.name, c.params, c.schema.variadic and c.count or -1,
    c.func).nvisible
  local results = call.many(c.schema.name, c.func, c.inputs, c.count, flat, c.out or {}, n)
  c.nout = n
  c.flat = (n == 1 or n > 1 and n <= MOST_OUTPUTS and not c.out) and flat
  if c.options.out ~= nil then
    return c.options.out
  elseif n == 1 then
    return results[1]
  end
  return n > 0 and results or nil
end


-- Reads and runs a call in full, and adds it to the cache, where the next such call finds it.
local function attempt(cache, kind, schema, func, ...)
  local c = registry.read_call(schema, func, kind, convert_context(...))
  local ok, result = pcall(run, c)
  if not ok then
    explain(c, result)
  end
  if cache and c.flat then
    call_cache.add(cache, c, c.flat, kind.self, kind.whole, ...)
  end
  return result
end


-- Returns the number of inputs, 1 or 2, of an operator that needs no parameter and has one output;
-- else nil.
local function fixed_inputs(schema)
  local fixed = not schema.variadic and #schema.params == 0 and schema.outputs == "output"
    and #schema.input_names <= 2
  return fixed and #schema.input_names or nil
end


-- Returns the cached entry of a call with only one or two arrays, and sets the inputs; nil if this
-- is not such a call, or the first one.
local function find_bare(cache, n, a, b)
  if n > 2 or n == 2 and getmetatable(b) ~= NDArray then
    return nil
  end
  local entry = cache.root[n]
  if entry then
    put_input(0, a)
    if n == 2 then
      put_input(1, b)
    end
  end
  return entry
end


--- Returns the function of an operator.
-- @tparam table schema
-- @string func public name, for errors
function operators.maker(schema, func)
  local name, cache, fixed = schema.name, call_cache.new(schema), fixed_inputs(schema)
  return function(...)
    local n, a, b = select("#", ...), ...
    local kind = getmetatable(a)
    if fixed and n == fixed and kind == NDArray then
      if fixed == 1 then
        return call.unary(name, func, a)
      elseif getmetatable(b) == NDArray then
        return call.binary(name, func, a, b)
      end
    elseif cache then
      local entry, out
      if kind == NDArray then
        entry = find_bare(cache, n, a, b)
      elseif n == 1 and kind == nil and type(a) == "table" then
        entry, out = find_table(cache, nil, false, a)
      end
      if not entry then
        entry, out = call_cache.find(cache, nil, false, ...)
      end
      if entry and entry.nout == 1 then
        local y = cached(entry, func, out, a)            -- no tail call: `...` stays alive
        return y
      elseif entry and not out then
        local list = cached_list(entry, func, a)
        return list
      end
    end
    return attempt(cache, KIND, schema, func, ...)
  end
end


--- Returns the prepared call for `call.cached`, for an operator with one output and fixed
-- parameters.
-- @string name of the operator
-- @tparam table params
-- @int nin number of inputs, which the caller sets with `call.put_input`
-- @treturn table with `func`, the public name
function operators.prepare(name, params, nin)
  local schema, func = registry.find(name), "nd." .. name
  local flat = flat_params(registry.read_call(schema, func, KIND, params))
  local entry = call_cache.entry(schema.name, flat, nin, 1)
  entry.func = func
  return entry
end


-- Namespaces --------------------------------------------------------------------------------------

--- Returns a namespace that finds operators by one of several prefixes.
-- @string name "nd.linalg"
-- @tparam {string,...} prefixes
-- @tparam[opt] table own its further functions
function operators.namespace(name, prefixes, own)
  own = own or {}
  local missing = namespace.missing(name, "operator", own, function()
    local names = {}
    for _, full in ipairs(registry.names(true)) do
      for _, prefix in ipairs(prefixes) do
        names[#names + 1] = full:sub(1, #prefix) == prefix and full:sub(#prefix + 1) or nil
      end
    end
    return names
  end)
  return setmetatable(own, { __index = function(_, key)
    for _, prefix in ipairs(prefixes) do
      local schema = type(key) == "string" and registry.find(prefix .. key)
      if schema then
        own[key] = operators.maker(schema, name .. "." .. key)
        return own[key]
      end
    end
    return missing(key)
  end })
end

--- Returns the operator function for a name in `ty.nd`, or nil.
function operators.named(key)
  local schema = registry.find(key) or registry.find(args.bare_name(key))
  return schema and operators.maker(schema, "nd." .. key)
end


-- Methods -----------------------------------------------------------------------------------------

-- methods whose operator has another name
local OTHER_NAME = { repeat_ = "repeat" }
-- methods for which a table's whole array part is the first parameter (rule R2)
local WHOLE = { transpose = true, tile = true }


--- Returns the method for an operator with at least one input, or nil.
-- @string key method name
function operators.method(key)
  local schema = key:sub(1, 1) ~= "_" and registry.find(OTHER_NAME[key] or key)
  if not schema or #schema.input_names == 0 then
    return nil
  end
  local func, whole = "NDArray:" .. key, WHOLE[key] or false
  local name, cache, fixed = schema.name, call_cache.new(schema), fixed_inputs(schema) == 1
  return function(x, ...)
    if fixed and select("#", ...) == 0 then
      return call.unary(name, func, x)
    elseif cache and getmetatable(x) == NDArray then
      local n, a = select("#", ...), ...
      local entry, out = find_bare(cache, n + 1, x, a), nil
      if not entry and n == 1 and type(a) == "table" and getmetatable(a) == nil then
        entry, out = find_table(cache, x, whole, a)
      end
      if not entry then
        entry, out = call_cache.find(cache, x, whole, ...)
      end
      if entry and entry.nout == 1 then
        local y = cached(entry, func, out, x)            -- no tail call: `...` stays alive
        return y
      elseif entry and not out then
        local list = cached_list(entry, func, x)
        return list
      end
    end
    local kind = { is_input = is_array, input_text = "an NDArray", options = OPTIONS,
      self = x, whole = whole, checks_inputs = true }
    return attempt(cache, kind, schema, func, ...)
  end
end


return operators
