--- Values of an import: the value of a name in an ONNX file, and arithmetic on values (not for
-- users).
--
-- A value has fields `shape` (ONNX's: `{}` for a scalar, which the engine has as `{1}`; -1 for a
-- size that is not known) and `dtype` (of the engine), and is
--
-- - a constant: `array`, an NDArray that may be read when it is first needed, nil where there are
--   no elements. `levels`, where it was dequantized: q, scale, zero (constants), axis (of several
--   scales). `transposed`, where it is the transpose of another constant, made when its elements
--   are needed
-- - or an output of a node of the symbol that is being made: `entry`
--
-- Operators on constants run at once, so that the arithmetic of a file on shapes makes no nodes;
-- others become nodes. Both are written in the same way:
--
--     local y = (x - mean) / x:unary("sqrt")
--     local z = value.op("Convolution", { x, weight }, { kernel = { 3, 3 }, num_filter = 8 })
--
-- @module tycho.onnx.value

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local args = require "tycho.core.args"
local attribute = require "tycho.symbol.attribute"
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local native = require "tycho.core.ffi"
local node = require "tycho.symbol.node"
local registry = require "tycho.op.registry"
local tables = require "tycho.core.tables"
local transfer = require "tycho.ndarray.transfer"
local types = require "tycho.core.types"
local values = require "tycho.core.values"

local C = native.C
local DTYPES, DTYPE_NAMES = args.DTYPES, args.DTYPE_NAMES

local value = {}

local Value = {}
value.Value = Value

-- Returns a method, or a field that is not set yet: the array of a constant with a function `make`
-- is made when it is first read.
function Value.__index(v, key)
  local make = key == "array" and rawget(v, "make")
  if not make then
    return Value[key]
  end
  v.make, v.array = nil, make()
  return v.array
end

--- "None" in lists of parameters.
value.null = values.null

-- Limits of constants that are computed at import; operators beyond them become nodes.
local MOST_BYTES = 2 ^ 28                -- bytes of the results of one operator
local MOST_ALL = 2 ^ 30                  -- bytes of the results of all operators
local MOST_STEPS = 200000                -- operators that run during an import

local state                              -- of the import under way


--- Begins an import, which may be inside another one.
-- @tparam table s func: name of the public function, for errors; raise(code, message): raises an
--   error that names the node; params: name -> array, is filled in; shapes_of: node -> shapes of
--   its outputs, is filled in; names: set of the names in use
-- @treturn table the state of the import around it, for `finish`
function value.begin(s)
  local before = state
  s.bytes, s.steps, s.counter, s.numbers = 0, 0, 0, 0
  s.levels = { decoded = {}, encoded = {}, weights = {} }
  state = s
  return before
end


--- Ends an import.
-- @tparam table before what `begin` returned
function value.finish(before)
  state = before
end


--- Returns whether the network is meant for a device with kernels for products of 8-bit integers.
function value.has_integers()
  return state.integers
end


--- Raises E(`unsupported`) for the node that is being converted.
-- @string text what the importer does not support, a format of string.format
-- @param ... its arguments
function value.refuse(text, ...)
  state.raise("unsupported", "cannot be imported: " .. text:format(...))
end


--- Raises E(`format`) for a node that breaks ONNX's rules, or does not fit the shapes of its
-- inputs.
-- @string text what is wrong, a format of string.format
-- @param ... its arguments
function value.damaged(text, ...)
  state.raise("format", "the node is invalid: " .. text:format(...))
end


local MOST_NUMBERS = 2 ^ 22

--- Counts numbers that Lua is about to make; a file that needs too many is E(`unsupported`).
-- @number count a negative one is not known, which is E(`unsupported`), too
-- @string what name of the node or of its part, for errors
function value.spend(count, what)
  if count < 0 then
    value.refuse("the size of %s must be known; give the shapes of all inputs", what)
  end
  state.numbers = state.numbers + count
  if state.numbers > MOST_NUMBERS or count ~= count then
    value.refuse("%s would take the import more than %d numbers", what, MOST_NUMBERS)
  end
end


-- Shapes ------------------------------------------------------------------------------------------

-- Returns the number of elements; -1 where a size is not known, unless another one is 0.
local function product(shape)
  local n, open = 1, false
  for i = 1, #shape do
    open = open or shape[i] < 0
    n = n * math.abs(shape[i])
  end
  return open and n > 0 and -1 or n
end

value.product = product


local function same_shape(a, b)
  if #a ~= #b then
    return false
  end
  for i = 1, #a do
    if a[i] ~= b[i] then
      return false
    end
  end
  return true
end

value.same_shape = same_shape


local ONE = { 1 }

-- Returns the engine's shape of an ONNX shape.
local function inner_shape(shape)
  return #shape == 0 and ONE or shape
end

value.inner_shape = inner_shape


--- Returns whether a size of a shape is not known.
function value.is_open(shape)
  for i = 1, #shape do
    if shape[i] < 0 then
      return true
    end
  end
  return false
end


--- Returns a shape as errors write it.
function value.shape_text(shape)
  local parts = {}
  for i, n in ipairs(shape) do
    parts[i] = n < 0 and "?" or ("%d"):format(n)
  end
  return "(" .. table.concat(parts, ", ") .. (#parts == 1 and ",)" or ")")
end


--- Returns the shape to which two shapes broadcast.
function value.broadcast(a, b)
  local shape, n = {}, math.max(#a, #b)
  for i = 1, n do
    local x, y = a[i - n + #a] or 1, b[i - n + #b] or 1
    if x ~= y and x ~= 1 and y ~= 1 and x ~= -1 and y ~= -1 then
      value.damaged("shapes %s and %s do not broadcast", value.shape_text(a), value.shape_text(b))
    end
    shape[i] = (x == 1 or x == -1 and y > 1) and y or x
  end
  return shape
end


-- Making ------------------------------------------------------------------------------------------

local function new(shape, dtype)
  return setmetatable({ shape = shape, dtype = dtype }, Value)
end


--- Returns a constant.
-- @tparam ?NDArray array nil: it has no elements
-- @tparam {int,...} shape ONNX's
-- @string dtype
-- @string[opt] name of the parameter that it becomes
function value.constant(array, shape, dtype, name)
  local v = new(shape, dtype)
  v.array, v.name = array, name
  return v
end


--- Returns an output of a node.
-- @tparam entry entry
-- @tparam {int,...} shape
-- @string dtype
function value.output(entry, shape, dtype)
  local v = new(shape, dtype)
  v.entry = entry
  return v
end


--- Returns a constant of given numbers.
-- @tparam {number,...} list row-major
-- @string dtype
-- @tparam[opt] {int,...} shape one dimension
function value.list(list, dtype, shape)
  shape = shape or { #list }
  local array
  if #list > 0 then
    array = transfer.from_table(list, DTYPES[dtype], state.func):reshape(inner_shape(shape))
  end
  local v = value.constant(array, shape, dtype)
  v.list = list
  return v
end


--- Returns a scalar.
function value.scalar(number, dtype)
  return value.list({ number }, dtype, {})
end


--- Returns a sequence of values: it has a field `items`, and neither shape nor dtype.
-- @tparam {Value,...} items
function value.sequence(items)
  local v = new(nil, nil)
  v.items = items
  return v
end


--- Returns whether a value's elements are known.
function Value:is_constant()
  return self.entry == nil
end


--- Returns whether a value has no elements.
function Value:is_empty()
  for i = 1, #self.shape do
    if self.shape[i] == 0 then
      return true
    end
  end
  return false
end


--- Returns the elements of a constant, row-major.
-- @string what for errors: what they are
-- @treturn {number,...} not to be changed
function Value:numbers(what)
  if self.entry then
    value.refuse("%s must be known when the file is imported, but is computed from an input; give \z
      the shapes of all inputs, or make it a constant", what)
  elseif self.list then
    return self.list
  end
  local n, list = product(self.shape), {}
  value.spend(n, what)
  if self.array then
    local p = transfer.read(self.array, state.func)
    for i = 1, n do
      list[i] = tonumber(p[i - 1])
    end
  end
  self.list = list
  return list
end


--- Returns the only element of a constant.
function Value:number(what)
  local list = self:numbers(what)
  if #list ~= 1 then
    value.damaged("%s has %d elements instead of one", what, #list)
  end
  return list[1]
end


-- Nodes -------------------------------------------------------------------------------------------

local function free_name(hint)
  local names, name = state.names, hint
  while names[name] do
    state.counter = state.counter + 1
    name = hint .. "_" .. state.counter
  end
  names[name] = true
  return name
end

value.free_name = free_name


--- Returns the attributes that state a variable's shape, if it is known, and type, so that it can
-- be bound without being given.
function value.described(shape, dtype)
  return { __dtype__ = tostring(DTYPES[dtype]),
    __shape__ = not value.is_open(shape) and attrs.text(inner_shape(shape)) or nil }
end


--- Records for onnx/levels.lua that an output of a node has the real values of 8-bit levels
-- ("decoded"), or the levels of a value ("encoded").
-- @string kind
-- @tparam Value v
-- @tparam table what entry (of the other value), scale, zero and, of levels, dtype
function value.note_levels(kind, v, what)
  state.levels[kind][v.entry[1]] = what
end


--- Returns the entry of a value; a constant becomes a parameter of the network.
-- @tparam Value v
function value.make_entry(v)
  if v.entry then
    return v.entry
  elseif v.items then
    value.refuse("a sequence would be part of the network, or of a loop or choice that only a run \z
      decides; it must be known when the file is imported")
  elseif not v.variable then
    if not v.array then
      value.refuse("an array without elements (%s) would be part of the network",
        value.shape_text(v.shape))
    end
    local name = v.name and not state.params[v.name] and v.name or free_name(state.hint .. "_const")
    state.params[name] = v.array
    state.levels.weights[name] = v.levels
    v.variable = { node.variable(name, value.described(v.shape, v.dtype), state.where), 0 }
  end
  return v.variable
end


local descs, capacity = ffi.new("ty_desc[?]", 32), 32
local MOST_OUTPUTS = 256
local out_descs, out_count = ffi.new("ty_desc[?]", MOST_OUTPUTS), ffi.new("int[1]")

local function put_desc(d, v)
  local shape = inner_shape(v.shape)
  d.dtype, d.device, d.ndim = DTYPES[v.dtype], C.TY_CPU, #shape
  for k = 1, #shape do
    d.dim[k - 1] = shape[k] < 0 and 0 or shape[k]
  end
end


-- Returns the descriptions of an operator's outputs: {shape, dtype} each.
local function infer_outputs(op, texts, inputs)
  if #inputs > capacity then
    capacity = 2 * #inputs
    descs = ffi.new("ty_desc[?]", capacity)
  end
  for i, v in ipairs(inputs) do
    put_desc(descs[i - 1], v)
  end
  local list, n = native.put_attrs(texts)
  local code = C.ty_op_infer(op, list, n, descs, #inputs, out_descs, MOST_OUTPUTS, out_count)
  if code ~= 0 then
    local e = native.failure(code, state.func)
    if e.code == "memory" or e.code == "interrupted" then
      error(e, 0)
    end
    state.raise("shape", e.message)
  end
  local outputs = {}
  for i = 1, out_count[0] do
    local d, shape = out_descs[i - 1], {}
    for k = 1, d.ndim do
      local size = tonumber(d.dim[k - 1])
      shape[k] = size == 0 and -1 or size
    end
    outputs[i] = new(shape, DTYPE_NAMES[d.dtype] or "float32")
  end
  return outputs
end


local function all_constant(inputs)
  for i = 1, #inputs do
    local v = inputs[i]
    if v.entry or not v.array then
      return false
    end
  end
  return true
end


-- Returns whether outputs are small enough to be made now, in the budget of the import.
local function is_affordable(outputs)
  local bytes = 0
  for _, v in ipairs(outputs) do
    bytes = bytes + product(v.shape) * 8
  end
  state.bytes, state.steps = state.bytes + bytes, state.steps + 1
  return bytes <= MOST_BYTES and state.bytes <= MOST_ALL and state.steps <= MOST_STEPS
end


local function run_operator(op, inputs, texts, outputs)
  local arrays, flat = {}, {}
  for i, v in ipairs(inputs) do
    arrays[i] = v.array
  end
  for key, text in pairs(texts) do
    flat[#flat + 1] = key
    flat[#flat + 1] = text
  end
  local results = call.many(op, state.func, arrays, #arrays, flat, {}, #outputs)
  for i, v in ipairs(outputs) do
    v.array = results[i]
  end
  return outputs
end


local function make_node(op, inputs, texts, outputs)
  local schema = registry.find(op)
  local dict = attribute.any() and node.merged(attribute.current():get(), texts) or texts
  local n = node.operator(schema, free_name(state.hint .. "_" .. op), dict,
    schema.variadic and #inputs or -1, state.func, state.where)
  local entries = {}
  for i, v in ipairs(inputs) do
    entries[i] = value.make_entry(v)
  end
  node.connect(n, entries, state.func)
  local shapes = {}
  for i, v in ipairs(outputs) do
    v.entry, shapes[i] = { n, i - 1 }, v.shape
  end
  state.shapes_of[n] = shapes
  return outputs
end


--- Calls an operator of the engine; returns its outputs as values.
-- @string op its name
-- @tparam {Value,...} inputs
-- @tparam[opt] table params
-- @treturn Value,... its visible outputs
function value.op(op, inputs, params)
  local texts = {}
  for key, v in pairs(params or {}) do
    texts[key] = attrs.text(v, state.func, key)
  end
  local schema = registry.find(op)
  if schema.variadic and schema.by_name[schema.variadic] then
    texts[schema.variadic] = tostring(#inputs)
  end
  local outputs = infer_outputs(op, texts, inputs)
  if all_constant(inputs) and is_affordable(outputs) then
    return unpack(run_operator(op, inputs, texts, outputs))
  end
  return unpack(make_node(op, inputs, texts, outputs))
end

local op = value.op


--- Calls an operator without inputs that draws numbers: it becomes a node, which draws at each run.
-- @string name
-- @tparam table params
function value.draw(name, params)
  local texts = {}
  for key, v in pairs(params) do
    texts[key] = attrs.text(v, state.func, key)
  end
  return make_node(name, {}, texts, infer_outputs(name, texts, {}))[1]
end


--- Returns a value whose readers become nodes; a constant becomes a parameter of the network.
function Value:as_node()
  return value.output(value.make_entry(self), self.shape, self.dtype)
end


-- Element by element ------------------------------------------------------------------------------

-- Operator name -> the engine's operators: of two values of equal shapes, of shapes that broadcast,
-- with a number on the right, on the left.
local BINARY = {
  add = { "elemwise_add", "broadcast_add", "_plus_scalar", "_plus_scalar" },
  sub = { "elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar" },
  mul = { "elemwise_mul", "broadcast_mul", "_mul_scalar", "_mul_scalar" },
  div = { "elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar" },
  mod = { "_mod", "broadcast_mod", "_mod_scalar", "_rmod_scalar" },
  pow = { "_power", "broadcast_power", "_power_scalar", "_rpower_scalar" },
  maximum = { "_maximum", "broadcast_maximum", "_maximum_scalar", "_maximum_scalar" },
  minimum = { "_minimum", "broadcast_minimum", "_minimum_scalar", "_minimum_scalar" },
  equal = { "_equal", "broadcast_equal", "_equal_scalar", "_equal_scalar" },
  greater = { "_greater", "broadcast_greater", "_greater_scalar", "_lesser_scalar" },
  greater_equal = { "_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar",
    "_lesser_equal_scalar" },
  lesser = { "_lesser", "broadcast_lesser", "_lesser_scalar", "_greater_scalar" },
  lesser_equal = { "_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar",
    "_greater_equal_scalar" },
  logical_and = { "_logical_and", "broadcast_logical_and" },
  logical_or = { "_logical_or", "broadcast_logical_or" },
  logical_xor = { "_logical_xor", "broadcast_logical_xor" },
}

local REAL = types.REAL
value.REAL = REAL

local SAFE_INTEGER = 2 ^ 53

-- Returns the number of a constant of one element, if an operator can take it as a parameter
-- instead.
local function as_number(v, other)
  if v.entry or not v.array or product(v.shape) ~= 1 or #v.shape > math.max(#other.shape, 1)
      or v.dtype ~= other.dtype or v.dtype == "bool" or not other.entry then
    return nil
  end
  local number = v:numbers("a constant")[1]
  if number ~= number or math.abs(number) > SAFE_INTEGER then
    return nil
  end
  return number
end


-- Returns an empty value of the given shape; it has no array.
local function empty(shape, dtype)
  return value.constant(nil, shape, dtype)
end

value.empty = empty


--- Computes a function of two values, which broadcast, or of a value and a number.
-- @string name of the table above
-- @param a value
-- @param b value or number
function value.binary(name, a, b)
  local row = BINARY[name]
  if type(b) == "number" then
    return a:map(row[3], {}, { scalar = b })
  elseif type(a) == "number" then
    return b:map(row[4], {}, { scalar = a })
  end
  if a:is_empty() or b:is_empty() then
    return empty(value.broadcast(a.shape, b.shape), a.dtype)
  end
  local number = row[3] and as_number(b, a)
  if number then
    return a:map(row[3], {}, { scalar = number })
  end
  number = row[4] and as_number(a, b)
  if number then
    return b:map(row[4], {}, { scalar = number })
  end
  local y = op(same_shape(a.shape, b.shape) and row[1] or row[2], { a, b })
  if #a.shape == 0 and #b.shape == 0 then
    y.shape = {}
  end
  return y
end

for name in pairs(BINARY) do
  Value[name] = function(a, b) return value.binary(name, a, b) end
end

for event, name in pairs{ __add = "add", __sub = "sub", __mul = "mul", __div = "div",
    __mod = "mod", __pow = "pow" } do
  Value[event] = function(a, b) return value.binary(name, a, b) end
end

function Value.__unm(a)
  return a:map("negative")
end


--- Applies an operator element by element: its output has the shape of the value.
-- @string name the operator
-- @tparam[opt] {Value,...} others further inputs
-- @tparam[opt] table params
function Value:map(name, others, params)
  if self:is_empty() then
    return empty(self.shape, self.dtype)
  end
  local y = op(name, { self, unpack(others or {}) }, params)
  y.shape = self.shape
  return y
end


--- Returns the value in another type.
function Value:cast(dtype)
  if dtype == self.dtype then
    return self
  elseif self:is_empty() then
    return empty(self.shape, dtype)
  end
  local y = self:map("Cast", {}, { dtype = dtype })
  return y
end


--- Returns a result of a comparison or of logic, 0 and 1 in the type of the inputs, as bool.
function Value:truth()
  return self:cast("bool")
end


-- Returns a constant of one element as a node with its number; graph passes recognise attention's
-- masks by it.
local function number_node(v)
  if not REAL[v.dtype] or not v:is_constant() or product(v.shape) ~= 1 then
    return v
  end
  local texts = { shape = "(1,)", dtype = v.dtype,
    value = ("%.17g"):format(v:number("a constant")) }
  local y = make_node("_full", {}, texts, infer_outputs("_full", texts, {}))[1]
  y.shape = v.shape
  return y
end


--- Returns the elements of a where the condition holds, else of b.
function value.where(condition, a, b)
  if condition:is_empty() or a:is_empty() or b:is_empty() then
    return empty(value.broadcast(condition.shape, value.broadcast(a.shape, b.shape)), a.dtype)
  end
  if not all_constant{ condition, a, b } then
    a, b = number_node(a), number_node(b)
  end
  local y = op("_npi_where", { condition, a, b })
  if #condition.shape + #a.shape + #b.shape == 0 then
    y.shape = {}
  end
  return y
end


-- Shapes of values --------------------------------------------------------------------------------

-- Returns a constant with the same elements in another shape.
local function reshaped_constant(v, shape)
  local y = value.constant(v.array and v.array:reshape(inner_shape(shape)), shape, v.dtype)
  y.list = v.list
  return y
end


local function count_open(shape)
  local count = 0
  for i = 1, #shape do
    count = count + (shape[i] < 0 and 1 or 0)
  end
  return count
end

-- Returns a value with several open sizes in a shape that differs only in axes of one element,
-- without Reshape, which takes one open size; refuses other shapes.
local function move_ones(v, from, to)
  local left, wanted, ones = {}, {}, {}
  for i, size in ipairs(from) do
    if size == 1 then
      ones[#ones + 1] = i - 1
    else
      left[#left + 1] = size
    end
  end
  for _, size in ipairs(to) do
    wanted[#wanted + 1] = size ~= 1 and size or nil
  end
  if not same_shape(left, wanted) then
    value.refuse("%s becomes %s, with several sizes that are not known; give the shapes of all \z
      inputs", value.shape_text(from), value.shape_text(to))
  end
  local y = #ones > 0 and op("squeeze", { v }, { axis = ones }) or v
  for i, size in ipairs(to) do
    if size == 1 then
      y = op("expand_dims", { y }, { axis = i - 1 })
    end
  end
  return y
end

--- Returns the elements in another shape of as many.
-- @tparam {int,...} shape -1: an unknown or computed size
function Value:reshape(shape)
  if same_shape(shape, self.shape) then
    return self
  elseif self:is_constant() then
    return reshaped_constant(self, shape)
  end
  local from, to = inner_shape(self.shape), inner_shape(shape)
  local y = self
  if count_open(to) > 1 then
    y = move_ones(self, from, to)
  elseif not same_shape(to, from) then
    y = op("Reshape", { self }, { shape = to })
  end
  return value.output(y.entry, shape, self.dtype)
end


-- elements of a constant matrix from which its transpose is made when it is needed
local LARGE_MATRIX = 4096

-- Returns the transpose of a constant matrix, computed when it is needed: a product may take the
-- matrix as it is.
local function transposed_later(v)
  local y = value.constant(nil, { v.shape[2], v.shape[1] }, v.dtype)
  y.transposed = v
  y.make = function() return op("transpose", { v }, { axes = { 1, 0 } }).array end
  return y
end


--- Transposes the axes into another order.
-- @tparam {int,...} axes from 0
function Value:transpose(axes)
  local ordered = true
  for i, axis in ipairs(axes) do
    ordered = ordered and axis == i - 1
  end
  if ordered then
    return self
  elseif self:is_empty() then
    local shape = {}
    for i, axis in ipairs(axes) do
      shape[i] = self.shape[axis + 1]
    end
    return empty(shape, self.dtype)
  elseif self.transposed then
    return self.transposed
  elseif #axes == 2 and self:is_constant() and REAL[self.dtype] and not self.levels
    and product(self.shape) >= LARGE_MATRIX and is_affordable({ self }) then
    return transposed_later(self)
  end
  local y, levels = op("transpose", { self }, { axes = axes }), self.levels
  if levels and #axes == 2 then
    y.levels = { q = levels.q:transpose(axes), scale = levels.scale, zero = levels.zero,
      axis = 1 - levels.axis }
  end
  return y
end


--- Returns the value repeated to a larger shape.
-- @tparam {int,...} shape to which it broadcasts
function Value:expand(shape)
  if same_shape(self.shape, shape) then
    return self
  end
  for i = 1, #shape do
    if shape[i] == 0 then
      return empty(shape, self.dtype)
    end
  end
  local own, padded = self.shape, {}
  for i = 1, #shape do
    padded[i] = own[i - #shape + #own] or 1
  end
  local x = self:reshape(padded)
  if same_shape(x.shape, shape) then
    return x
  end
  local to = tables.copied(inner_shape(shape))
  for i, size in ipairs(to) do
    if size < 0 and padded[i] >= 0 then
      value.refuse("%s would be repeated to %s, whose axis %d is not known; give the shapes of all \z
        inputs", value.shape_text(own), value.shape_text(shape), i - 1)
    end
    to[i] = math.max(size, 0)                            -- 0: the size of x
  end
  local y = op("broadcast_to", { x }, { shape = to })
  y.shape = shape
  return y
end


--- Returns a part of an axis.
-- @int axis from 0
-- @int from
-- @int to after the last element
function Value:part(axis, from, to)
  local size = self.shape[axis + 1]
  if from == 0 and to == size then
    return self
  elseif from >= to or self:is_empty() then
    local shape = tables.copied(self.shape)
    shape[axis + 1] = math.max(to - from, 0)
    return empty(shape, self.dtype)
  end
  return (op("slice_axis", { self }, { axis = axis, begin = from, ["end"] = to }))
end


--- Returns the parts of an axis that have these sizes, in order. Sizes that are not those of the
-- whole axis are E(format).
-- @int axis from 0
-- @tparam {number,...} sizes
function Value:cut(axis, sizes)
  local size, parts, at = self.shape[axis + 1], {}, 0
  for i, length in ipairs(sizes) do
    if length < 0 or at + length > size then
      value.damaged("a part of %g elements, of %d that are left", length, size - at)
    end
    parts[i], at = self:part(axis, at, at + length), at + length
  end
  if at ~= size then
    value.damaged("parts of %d elements in all, of %d", at, size)
  end
  return parts
end


--- Joins values along an axis.
-- @tparam {Value,...} list
-- @int axis from 0
function value.concat(list, axis)
  local parts = {}
  for _, v in ipairs(list) do
    if not v:is_empty() then
      parts[#parts + 1] = v
    end
  end
  if #parts == 0 then
    local shape = tables.copied(list[1].shape)
    for i = 2, #list do
      shape[axis + 1] = shape[axis + 1] + list[i].shape[axis + 1]
    end
    return empty(shape, list[1].dtype)
  elseif #parts == 1 then
    return parts[1]
  end
  return (op("Concat", parts, { dim = axis }))
end


--- Returns the value with one more axis of one element; elements are not moved.
-- @int axis where the new axis is
function Value:unsqueeze(axis)
  local shape = tables.copied(self.shape)
  table.insert(shape, axis + 1, 1)
  return self:reshape(shape)
end


--- Returns the value without an axis of one element.
function Value:squeeze(axis)
  local shape = tables.copied(self.shape)
  table.remove(shape, axis + 1)
  return self:reshape(shape)
end


--- Reduces over axes.
-- @string name the operator: "sum", "mean", "max" ...
-- @tparam {int,...} axes from 0
-- @bool keep axes of one element stay
function Value:reduce(name, axes, keep)
  local left, drop = {}, {}
  for _, axis in ipairs(axes) do
    drop[axis] = true
  end
  for i, size in ipairs(self.shape) do
    if not drop[i - 1] then
      left[#left + 1] = size
    elseif keep then
      left[#left + 1] = 1
    end
  end
  if #axes == 0 then
    return self
  elseif #self.shape == 0 then
    return self:reduce_one(name)
  end
  local y = op(name, { self }, { axis = axes, keepdims = keep })
  y.shape = left
  return y
end


-- Reduces a scalar, which is stored with an axis of one element.
function Value:reduce_one(name)
  local y = op(name, { self }, { axis = { 0 }, keepdims = true })
  y.shape = {}
  return y
end


local HALF = { float16 = true, bfloat16 = true }

--- Returns the function f, an operator of several steps, so that it computes half types in float32
-- and rounds its results once: float16 cannot hold the square of 300.
function value.round_once(f)
  return function(n, x, ...)
    local dtype, count = x.dtype, 1 + select("#", ...)
    if not HALF[dtype] then
      return f(n, x, ...)
    end
    local inputs = { x, ... }
    for i = 1, count do
      local v = inputs[i]
      inputs[i] = v and HALF[v.dtype] and v:cast("float32") or v
    end
    local results = { f(n, unpack(inputs, 1, count)) }
    for i, y in ipairs(results) do
      results[i] = y.dtype == "float32" and y:cast(dtype) or y
    end
    return unpack(results)
  end
end


--- Computes a matrix product over the last two axes; others broadcast, or are equal.
-- @tparam Value a
-- @tparam Value b
-- @bool[opt] ta a is transposed
-- @bool[opt] tb b is transposed
function value.batch_dot(a, b, ta, tb)
  local rank = math.max(#a.shape, #b.shape)
  if rank == 2 then
    return (op("dot", { a, b }, { transpose_a = ta, transpose_b = tb }))
  end
  local function lead_of(v)
    local shape = {}
    for i = 1, #v.shape - 2 do
      shape[i] = v.shape[i]
    end
    return shape
  end
  local lead = value.broadcast(lead_of(a), lead_of(b))
  local function expand_lead(v)
    local shape = tables.copied(lead)
    shape[#shape + 1], shape[#shape + 2] = v.shape[#v.shape - 1], v.shape[#v.shape]
    return v:expand(shape)
  end
  if #lead > 1 and (value.is_open(a.shape) or value.is_open(b.shape)) then
    return (op("_linalg_gemm2", { expand_lead(a), expand_lead(b) }, { transpose_a = ta,
      transpose_b = tb }))
  end
  local function three(v)
    local wide = expand_lead(v)
    return wide:reshape{ product(lead), wide.shape[#wide.shape - 1], wide.shape[#wide.shape] }
  end
  local y = op("batch_dot", { three(a), three(b) }, { transpose_a = ta, transpose_b = tb })
  local shape = lead
  shape[#shape + 1], shape[#shape + 2] = y.shape[2], y.shape[3]
  return y:reshape(shape)
end


return value
