--- Tensors of a network during an import: symbols with known shapes.
--
-- Tensors of Torch may share memory: writing to one changes its views, and a layer that works in
-- place changes its input for all later readers. A Tensor is therefore a variable that holds a
-- symbol: `get` reads it, `set` replaces it, as an in-place layer does, and a view reads and writes
-- through its base. Axes count from 0; a shape has at least one axis.
--
-- @module tycho.torch7.tensor

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local operators = require "tycho.symbol.operators"
local tables = require "tycho.core.tables"
require "tycho.symbol.symbol"                            -- completes the class of symbols

local FUNC = "torch7.import_model"

local Tensor = Class:extend("tensor")

-- most elements of a tensor; invented sizes could otherwise overflow
local MOST_ELEMENTS = 2 ^ 40


--- Raises E(shape).
function Tensor.fail(text, ...)
  Error.raise{ code = "shape", func = FUNC, message = text:format(...) }
end


function Tensor:init(sym, shape)
  self.sym, self.shape = sym, shape
  for _, size in ipairs(shape) do
    if size < 1 then
      Tensor.fail("a result of shape %s", Error.show(shape))
    end
  end
  if #shape == 0 or #shape > 16 or tables.product(shape) > MOST_ELEMENTS then
    Tensor.fail("a result of %d dimensions, %.0f elements", #shape, tables.product(shape))
  end
end


--- Returns whether x is a Tensor.
function Tensor.is(x)
  return Class.is_a(x, Tensor)
end


--- Returns the current symbol. That of a view is made again if its base has changed.
function Tensor:get()
  local base = self.base
  if base then
    local now = base:get()
    if now ~= self.seen then
      self.seen, self.sym = now, self.read(now)
    end
  end
  return self.sym
end


--- Replaces the symbol by one of the same shape; a view changes its base.
function Tensor:set(sym)
  if self.base then
    self.base:set(self.write(self.base:get(), sym))
    self.seen = self.base:get()
  end
  self.sym = sym
  return self
end


-- Returns a view of a tensor: a part of it, or its elements in another shape or order.
local function make_view(base, shape, read, write)
  local v = Tensor(base:get(), shape)
  v.base, v.read, v.write, v.seen = base, read, write, nil
  return v
end


function Tensor:ndim()
  return #self.shape
end


--- Returns the number of elements.
function Tensor:size()
  return tables.product(self.shape)
end


-- Calling operators -------------------------------------------------------------------------------

local function compose_node(op, inputs, params, name)
  return operators.compose(op, inputs, params or {}, FUNC, name and { name = name })
end


--- Returns a new tensor, computed by an operator.
-- @string op
-- @tparam {Tensor,...} inputs
-- @tparam ?table params
-- @tparam {int,...} shape shape of the first output
-- @string[opt] name of the node
function Tensor.call(op, inputs, params, shape, name)
  local syms = {}
  for i, x in ipairs(inputs) do
    syms[i] = x:get()
  end
  local out = compose_node(op, syms, params, name)
  return Tensor(#out > 1 and out[1] or out, shape)
end

local call = Tensor.call


--- Applies an operator that does not change the shape.
function Tensor:unary(op, params, name)
  return call(op, { self }, params, self.shape, name)
end


local function apply_scalar(x, op, v)
  return x:unary(op, { scalar = v })
end


-- Broadcasting ------------------------------------------------------------------------------------

-- Returns the shape to which two shapes of equal rank broadcast; raises an error if they do not
-- fit.
local function combine_shapes(a, b)
  local shape = {}
  if #a.shape ~= #b.shape then
    Tensor.fail("shapes %s and %s do not fit", Error.show(a.shape), Error.show(b.shape))
  end
  for i, n in ipairs(a.shape) do
    local m = b.shape[i]
    if n ~= m and n ~= 1 and m ~= 1 then
      Tensor.fail("shapes %s and %s do not fit", Error.show(a.shape), Error.show(b.shape))
    end
    shape[i] = math.max(n, m)
  end
  return shape
end


-- Returns a binary function from the names of four operators: for tensors of equal shape, for
-- shapes that broadcast, for a tensor and a number, for a number and a tensor.
local function make_binary(same, broadcast, number, reverse)
  return function(a, b)
    if type(b) == "number" then
      return apply_scalar(a, number, b)
    elseif type(a) == "number" then
      return apply_scalar(b, reverse or number, a)
    elseif tables.same(a.shape, b.shape) then
      return call(same, { a, b }, nil, a.shape)
    end
    return call(broadcast, { a, b }, nil, combine_shapes(a, b))
  end
end

Tensor.__add = make_binary("elemwise_add", "broadcast_add", "_plus_scalar")
Tensor.__sub = make_binary("elemwise_sub", "broadcast_sub", "_minus_scalar", "_rminus_scalar")
Tensor.__mul = make_binary("elemwise_mul", "broadcast_mul", "_mul_scalar")
Tensor.__div = make_binary("elemwise_div", "broadcast_div", "_div_scalar", "_rdiv_scalar")
Tensor.maximum = make_binary("_maximum", "broadcast_maximum", "_maximum_scalar")
Tensor.minimum = make_binary("_minimum", "broadcast_minimum", "_minimum_scalar")
Tensor.eq = make_binary("_equal", "broadcast_equal", "_equal_scalar")
Tensor.ne = make_binary("_not_equal", "broadcast_not_equal", "_not_equal_scalar")
Tensor.gt = make_binary("_greater", "broadcast_greater", "_greater_scalar")
Tensor.lt = make_binary("_lesser", "broadcast_lesser", "_lesser_scalar")

function Tensor.__unm(a)
  return a * -1
end

function Tensor:pow(exponent)
  return apply_scalar(self, "_power_scalar", exponent)
end


--- Returns elements of the first if a condition (0 or 1) is 1, else of the second; all have one
-- shape.
function Tensor.where(condition, yes, no)
  return call("where", { condition, yes, no }, nil, yes.shape)
end


for method, op in pairs{ abs = "abs", exp = "exp", log = "log", sqrt = "sqrt", square = "square",
  sigmoid = "sigmoid", tanh = "tanh", relu = "relu", block = "BlockGrad", sign = "sign",
  zeros_like = "zeros_like", ones_like = "ones_like", copy = "identity" } do
  Tensor[method] = function(x)
    return x:unary(op)
  end
end


--- Returns log(1 + exp(x)).
function Tensor:softplus()
  return self:unary("Activation", { act_type = "softrelu" })
end


--- Returns the square root, whose gradient at 0 is 0.
function Tensor:root()
  return (self + self:eq(0)):sqrt() * self:ne(0)
end


function Tensor:clip(least, most)
  return self:unary("clip", { a_min = least, a_max = most })
end


-- Shapes ------------------------------------------------------------------------------------------

--- Returns a view in another shape with the same number of elements.
function Tensor:reshape(shape)
  if tables.same(shape, self.shape) then
    return self
  elseif tables.product(shape) ~= self:size() then
    Tensor.fail("%s cannot be viewed as %s", Error.show(self.shape), Error.show(shape))
  end
  local own = self.shape
  return make_view(self, shape, function(s)
    return compose_node("Reshape", { s }, { shape = shape })
  end, function(_, s)
    return compose_node("Reshape", { s }, { shape = own })
  end)
end


local function invert_axes(axes)
  local list = {}
  for i, axis in ipairs(axes) do
    list[axis + 1] = i - 1
  end
  return list
end


--- Returns a view with its axes in another order.
function Tensor:transpose(axes)
  local shape = {}
  for i, axis in ipairs(axes) do
    shape[i] = self.shape[axis + 1]
  end
  return make_view(self, shape, function(s)
    return compose_node("transpose", { s }, { axes = axes })
  end, function(_, s)
    return compose_node("transpose", { s }, { axes = invert_axes(axes) })
  end)
end


--- Returns a view with two axes exchanged.
function Tensor:swap(a, b)
  local axes = {}
  for i = 1, #self.shape do
    axes[i] = i - 1
  end
  axes[a + 1], axes[b + 1] = b, a
  return self:transpose(axes)
end


local function replace_size(shape, axis, size)
  local copy = tables.copied(shape)
  copy[axis + 1] = size
  return copy
end


local function make_slice(s, axis, from, to)
  return compose_node("slice_axis", { s }, { axis = axis, begin = from, ["end"] = to })
end


--- Returns a view of the elements from `from` to `to` - 1 along an axis.
function Tensor:slice(axis, from, to)
  local size = self.shape[axis + 1]
  if from < 0 or to > size or from >= to then
    Tensor.fail("elements %d to %d of axis %d of %s", from, to - 1, axis, Error.show(self.shape))
  elseif from == 0 and to == size then
    return self
  end
  return make_view(self, replace_size(self.shape, axis, to - from), function(s)
    return make_slice(s, axis, from, to)
  end, function(all, s)
    local parts = { s }
    if from > 0 then
      table.insert(parts, 1, make_slice(all, axis, 0, from))
    end
    if to < size then
      parts[#parts + 1] = make_slice(all, axis, to, size)
    end
    return compose_node("Concat", parts, { dim = axis })
  end)
end


--- Returns a view without an axis, either an axis of one element or at a chosen index.
function Tensor:select(axis, index)
  local x = self:slice(axis, index, index + 1)
  local shape = tables.copied(x.shape)
  table.remove(shape, axis + 1)
  return x:reshape(#shape > 0 and shape or { 1 })
end


--- Returns a view with one more axis, of size 1.
function Tensor:unsqueeze(axis)
  local shape = tables.copied(self.shape)
  table.insert(shape, axis + 1, 1)
  return self:reshape(shape)
end


--- Repeats the tensor along axes of size 1.
function Tensor:expand(shape)
  if tables.same(shape, self.shape) then
    return self
  end
  return call("broadcast_to", { self }, { shape = shape }, shape)
end


--- Joins tensors along an axis (from 0).
function Tensor.concat(list, axis)
  local first = list[1].shape
  if #list == 1 then
    return list[1]
  end
  local size = 0
  for _, x in ipairs(list) do
    if axis < 0 or axis >= #first
        or not tables.same(replace_size(x.shape, axis, 0), replace_size(first, axis, 0)) then
      Tensor.fail("shapes %s and %s cannot be joined along axis %d", Error.show(first),
        Error.show(x.shape), axis)
    end
    size = size + x.shape[axis + 1]
  end
  return call("Concat", list, { dim = axis }, replace_size(first, axis, size))
end


--- Returns the elements in opposite order along an axis.
function Tensor:reverse(axis)
  return self:unary("reverse", { axis = axis })
end


--- Returns a tensor in which each element is repeated several times in a row along an axis (from
-- 0).
function Tensor:repeated(times, axis)
  return call("repeat", { self }, { repeats = times, axis = axis },
    replace_size(self.shape, axis, self.shape[axis + 1] * times))
end


--- Returns rows of a matrix, by a tensor of indices from 0.
function Tensor:rows(indices)
  local shape = tables.copied(indices.shape)
  for i = 2, #self.shape do
    shape[#shape + 1] = self.shape[i]
  end
  return call("take", { self, indices }, { axis = 0, mode = "clip" }, shape)
end


-- Reductions --------------------------------------------------------------------------------------

--- Returns a reduction along one axis: "sum", "mean", "max", "min"; the axis keeps one element.
function Tensor:reduce(op, axis)
  return call(op, { self }, { axis = axis, keepdims = true }, replace_size(self.shape, axis, 1))
end


for _, op in ipairs{ "sum", "mean", "max", "min" } do
  Tensor[op] = function(x, axis)
    return x:reduce(op, axis)
  end
end


--- Returns the sum of all elements.
function Tensor:total()
  return call("sum", { self }, nil, { 1 })
end


function Tensor:softmax(axis)
  return self:unary("softmax", { axis = axis })
end


function Tensor:log_softmax(axis)
  return self:unary("log_softmax", { axis = axis })
end


-- Products ----------------------------------------------------------------------------------------

--- Returns a product of two matrices, each of which may be transposed.
function Tensor.dot(a, b, transpose_a, transpose_b)
  local rows, inner = unpack(transpose_a and { a.shape[2], a.shape[1] } or a.shape)
  local other, columns = unpack(transpose_b and { b.shape[2], b.shape[1] } or b.shape)
  if #a.shape ~= 2 or #b.shape ~= 2 or inner ~= other then
    Tensor.fail("no product of shapes %s and %s", Error.show(a.shape), Error.show(b.shape))
  end
  return call("dot", { a, b }, { transpose_a = transpose_a or false,
    transpose_b = transpose_b or false }, { rows, columns })
end


--- Returns the products of pairs of matrices.
function Tensor.batch_dot(a, b, transpose_a, transpose_b)
  if #a.shape ~= 3 or #b.shape ~= 3 or a.shape[1] ~= b.shape[1] then
    Tensor.fail("no products of shapes %s and %s", Error.show(a.shape), Error.show(b.shape))
  end
  local rows, inner = a.shape[transpose_a and 3 or 2], a.shape[transpose_a and 2 or 3]
  local other, columns = b.shape[transpose_b and 3 or 2], b.shape[transpose_b and 2 or 3]
  if inner ~= other then
    Tensor.fail("no products of shapes %s and %s", Error.show(a.shape), Error.show(b.shape))
  end
  return call("batch_dot", { a, b }, { transpose_a = transpose_a or false,
    transpose_b = transpose_b or false }, { a.shape[1], rows, columns })
end


-- Padding -----------------------------------------------------------------------------------------

--- Adds elements around the last axes of a tensor of 4 or 5 dimensions.
-- @tparam {int,...} before for each axis from the third on
-- @tparam {int,...} after
-- @string mode "constant", "edge" or "reflect"
-- @number[opt=0] value of "constant"
function Tensor:pad(before, after, mode, value)
  local widths, shape, any = { 0, 0, 0, 0 }, tables.copied(self.shape), false
  for i = 1, #before do
    widths[#widths + 1], widths[#widths + 2] = before[i], after[i]
    shape[i + 2] = shape[i + 2] + before[i] + after[i]
    any = any or before[i] ~= 0 or after[i] ~= 0
  end
  if not any then
    return self
  end
  return call("Pad", { self }, { mode = mode, pad_width = widths, constant_value = value or 0 },
    shape)
end


return Tensor
