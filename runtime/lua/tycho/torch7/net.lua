--- The state of an import: parameters as variables, names of nodes, and the position in the object.
--
-- @module tycho.torch7.net

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local objects = require "tycho.torch7.objects"
local operators = require "tycho.symbol.operators"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"
local transfer = require "tycho.ndarray.transfer"
local args = require "tycho.core.args"
local values = require "tycho.core.values"

local FUNC = "torch7.import_model"

local DEEPEST = 200                                      -- greatest nesting of modules
local MOST_CALLS = 100000                                -- most layers of a network
local MOST_INTEGER = 2 ^ 31 - 1

local Net = Class:extend("net")

local FLOATS = { float32 = true, float64 = true, float16 = true }


--- @string dtype of the network: that of its inputs, parameters and constants
function Net:init(dtype)
  self.dtype = dtype
  self.arg_params, self.aux_params = {}, {}
  self.regions = {}                                      -- storage -> its variables
  self.variables = setmetatable({}, { __mode = "k" })    -- for arrays from elsewhere
  self.counts = {}                                       -- class -> number of layers so far
  self.path, self.active, self.calls = {}, {}, 0
  self.states = {}                                       -- recurrent module -> its step
  self.overrides = {}                                    -- module -> field -> replacing tensor
end


-- Errors ------------------------------------------------------------------------------------------

--- Returns the position of the import: "modules.3.modules.1".
function Net:where()
  local parts = {}
  for _, step in ipairs(self.path) do
    parts[#parts + 1] = step.at ~= "" and step.at or nil
  end
  return table.concat(parts, ".")
end


--- Raises an error about the module that is being imported.
-- @string code
-- @string text
function Net:fail(code, text, ...)
  Error.raise{ code = code, func = FUNC, message = text:format(...) }
end


--- Adds the module and its position to an error on its way to the caller.
function Net:explain(e)
  local step = self.path[#self.path]
  if Error.is_error(e) and step and not e.module then
    local where = self:where()
    e.module = step.class
    e.message = ("%s%s: %s"):format(step.class, where ~= "" and " at " .. where or "", e.message)
  end
  return e
end


-- Fields ------------------------------------------------------------------------------------------

local function is_integer(v, least)
  return type(v) == "number" and v == math.floor(v) and v <= MOST_INTEGER
    and v >= (least or -MOST_INTEGER)
end


--- Returns a field that is an integer; another value is E(value).
-- @tparam table m module
-- @string name of the field
-- @param default value of a missing field; nil: a missing field is an error
-- @int[opt] least smallest value
function Net:integer(m, name, default, least)
  local v = m[name]
  if v == nil then
    v = default
  end
  if not is_integer(v, least) then
    self:fail("value", "the field '%s' is %s, not an integer%s", name, objects.kind(v),
      least and (" of at least " .. least) or "")
  end
  return v
end


--- Returns a field that is a number; another value is E(value).
function Net:number(m, name, default)
  local v = m[name]
  if v == nil then
    v = default
  end
  if type(v) ~= "number" then
    self:fail("value", "the field '%s' is %s, not a number", name, objects.kind(v))
  end
  return v
end


--- Returns a field that is a LongStorage or a list, as a list of integers; another value is
-- E(value).
-- @treturn ?{int,...} nil if the field is missing
function Net:integers(m, name)
  local v = m[name]
  local list = class.is_array(v) and v._size <= 64 and v:reshape{ -1 }:totable() or v
  if v == nil then
    return nil
  elseif objects.is(v) or type(list) ~= "table" or class.is_array(list) then
    self:fail("value", "the field '%s' is %s, not a list of integers", name, objects.kind(v))
  end
  for _, n in ipairs(list) do
    if not is_integer(n) then
      self:fail("value", "the field '%s' has %s, which is no integer", name, objects.kind(n))
    end
  end
  return tables.copied(list)
end


--- Returns a field that is a tensor, as a nested list of numbers; another value is E(value).
function Net:numbers(m, name)
  local v = m[name]
  if not class.is_array(v) then
    self:fail("value", "the field '%s' is %s, not a tensor", name, objects.kind(v))
  end
  return v:totable()
end


--- Returns a module inside a module: the field `name`, or entry `index` of it; another value is
-- E(value).
function Net:module(m, name, index)
  local v = m[name]
  if index ~= nil and type(v) == "table" and not objects.is(v) and not class.is_array(v) then
    v = v[index]
  end
  if not objects.is(v) then
    self:fail("value", "%s is %s, not a module", index and name .. "[" .. index .. "]" or name,
      objects.kind(v))
  end
  return v
end


--- Returns the number of modules in a container; E(value) if it has none.
function Net:count(m)
  local list = m.modules
  if type(list) ~= "table" or class.is_array(list) or #list == 0 then
    self:fail("value", "the field 'modules' is %s", type(list) == "table" and "empty"
      or objects.kind(list))
  end
  return #list
end


-- Names -------------------------------------------------------------------------------------------

-- Returns the name of a new layer: "linear3" for the third nn.Linear.
local function make_layer_name(net, typename)
  local base = typename:match("([%w_]+)$") or "layer"
  base = base:lower()
  net.counts[base] = (net.counts[base] or 0) + 1
  return base .. net.counts[base]
end


--- Returns the name of the module that is being imported, for nodes and parameters.
function Net:name()
  local step = self.path[#self.path]
  step.name = step.name or make_layer_name(self, step.class)
  return step.name
end


-- Returns the name, or the first of name_2, name_3 … that is not the name of a parameter.
local function make_free_name(net, name)
  local n, free = 1, name
  while net.arg_params[free] or net.aux_params[free] do
    n = n + 1
    free = name .. "_" .. n
  end
  return free
end


-- Parameters --------------------------------------------------------------------------------------

-- Returns the axes of an array by falling stride, if the array is dense; else nil.
local function order_dense_axes(shape, strides)
  local axes = {}
  for i, size in ipairs(shape) do
    if size > 1 then
      axes[#axes + 1] = i
    end
  end
  table.sort(axes, function(a, b) return strides[a] > strides[b] end)
  local stride = 1
  for k = #axes, 1, -1 do
    if strides[axes[k]] ~= stride then
      return nil
    end
    stride = stride * shape[axes[k]]
  end
  return axes
end


local function is_sorted(axes)
  for k = 2, #axes do
    if axes[k] < axes[k - 1] then
      return false
    end
  end
  return true
end


-- Returns a flat variable in another shape; its elements are stored in the order `axes`.
local function arrange_axes(flat, shape, axes)
  if is_sorted(axes) then
    return flat:reshape(shape)
  end
  local sizes, back = {}, {}
  for k, axis in ipairs(axes) do
    sizes[k] = shape[axis]
  end
  local order = tables.copied(axes)
  table.sort(order)
  for k, axis in ipairs(order) do
    for i, other in ipairs(axes) do
      back[k] = other == axis and i - 1 or back[k]
    end
  end
  return flat:reshape(sizes):transpose(back):reshape(shape)
end


-- Returns a variable for an array, as a tensor of the network's dtype.
local function add_variable(net, x, name)
  net.arg_params[name] = x
  local v = Tensor(symbol.Variable(name), tables.copied(x._shape))
  return net:cast(v, x.dtype)
end


--- Returns a tensor in the network's dtype.
-- @tparam Tensor x
-- @string dtype current type of x
function Net:cast(x, dtype)
  return dtype == self.dtype and x or x:unary("Cast", { dtype = self.dtype })
end


-- Returns the region of a storage that contains the elements from `from` to `to` - 1, or nil, and
-- the list of all regions that have variables.
local function find_region(net, origin, from, to)
  local list = net.regions[origin.storage] or {}
  net.regions[origin.storage] = list
  for _, region in ipairs(list) do
    if region.from <= from and region.to >= to then
      return region, list
    end
  end
  return nil, list
end


-- Returns a tensor for an array of a file; arrays that share elements share a variable.
local function share_variable(net, x, origin, name)
  local shape, n = x._shape, x._size
  local axes = order_dense_axes(shape, origin.strides)
  local from = origin.offset
  local key = not axes and table.concat(origin.strides, ",") .. ":" .. table.concat(shape, ",")
  local region, list = find_region(net, origin, from, from + n)
  if axes and region and not region.key then
    return arrange_axes(region.tensor:reshape{ region.to - region.from }
      :slice(0, from - region.from, from - region.from + n), shape, axes)
  elseif key then
    for _, other in ipairs(list) do
      if other.key == key and other.from == from then
        return other.tensor
      end
    end
  end
  local v = add_variable(net, x, name)
  if axes and not is_sorted(axes) then
    -- the variable has the array's order of axes, the region the storage's order
    local forward = {}
    for k, axis in ipairs(axes) do
      forward[k] = axis - 1
    end
    for axis = 1, #shape do
      if shape[axis] == 1 then
        forward[#forward + 1] = axis - 1
      end
    end
    list[#list + 1] = { from = from, to = from + n, tensor = v:transpose(forward) }
  else
    list[#list + 1] = { from = from, to = from + n, tensor = v, key = key or nil }
  end
  return v
end


--- Returns the parameter in a field.
-- @tparam table m module
-- @string name of the field
-- @tparam[opt] {int,...} shape wanted shape, to which the array may be viewed; nil: any
-- @treturn ?Tensor nil if the field is missing or has no elements
function Net:optional(m, name, shape)
  local x = m[name]
  local instead = self.overrides[m] and self.overrides[m][name]
  if instead then
    return instead:reshape(shape or instead.shape)
  end
  if x == nil or x == values.null then
    return nil
  elseif not class.is_array(x) then
    self:fail("value", "the field '%s' is %s, not a tensor", name, objects.kind(x))
  elseif shape and tables.product(shape) ~= x._size then
    self:fail("shape", "the field '%s' has shape %s, but %s is needed", name,
      Error.show(x._shape), Error.show(shape))
  end
  local origin, v = objects.origin(x), self.variables[x]
  if not v then
    local full = make_free_name(self, self:name() .. "_" .. name)
    v = origin and share_variable(self, x, origin, full) or add_variable(self, x, full)
    self.variables[x] = v
  end
  return v:reshape(shape or tables.copied(x._shape))
end


--- Returns a parameter as `optional` does; raises E(value) for a missing one.
function Net:parameter(m, name, shape)
  local v = self:optional(m, name, shape)
  if not v then
    self:fail("value", "the field '%s' is missing", name)
  end
  return v
end


--- Returns f(); during the call a field of a module is a tensor that the network computes.
function Net:with_field(m, name, tensor, f)
  self.overrides[m] = { [name] = tensor }
  local y = f()
  self.overrides[m] = nil
  return y
end


--- Returns the size of a field's tensor along an axis, counted from 1.
function Net:size_of(m, name, axis)
  local x = m[name]
  local instead = self.overrides[m] and self.overrides[m][name]
  if instead and instead.shape[axis] then
    return instead.shape[axis]
  end
  if not class.is_array(x) or not x._shape[axis] then
    self:fail("value", "the field '%s' is %s, not a tensor with axis %d", name, class.is_array(x)
      and ("a tensor of shape " .. Error.show(x._shape)) or objects.kind(x), axis)
  end
  return x._shape[axis]
end


--- Returns an auxiliary state, which layers change during training.
-- @string name of the field, or its meaning
-- @tparam NDArray x
-- @treturn Symbol
function Net:state(name, x)
  local full = make_free_name(self, self:name() .. "_" .. name)
  if x.dtype ~= self.dtype and FLOATS[x.dtype] then
    x = x:astype(self.dtype)
  end
  self.aux_params[full] = x
  return symbol.Variable(full)
end


-- Constants ---------------------------------------------------------------------------------------

--- Returns a constant tensor, which is not trained.
-- @tparam table list nested
-- @string name
function Net:constant(list, name)
  local x = class.is_array(list) and list
    or transfer.from_table(list, args.DTYPES[self.dtype], FUNC)
  local full = make_free_name(self, self:name() .. "_" .. name)
  self.arg_params[full] = x
  local v = Tensor(symbol.Variable{ full, lr_mult = 0, wd_mult = 0 }, tables.copied(x._shape))
  return self:cast(v, x.dtype):block()
end


--- Returns a tensor filled with one number.
function Net:full(shape, v)
  local made = operators.compose("_full", {}, { shape = shape, value = v, dtype = self.dtype },
    FUNC)
  return Tensor(made, tables.copied(shape))
end


-- Layers ------------------------------------------------------------------------------------------

--- Raises an error unless the number of dimensions of an input is from `least` to `most`.
function Net:need_dims(x, least, most)
  if #x.shape < least or #x.shape > (most or least) then
    self:fail("shape", "the input has shape %s, but %s dimensions are needed", Error.show(x.shape),
      most and most ~= least and least .. " to " .. most or tostring(least))
  end
end


-- Raises an error if a module gets a tensor instead of a table or the reverse.
local function check_input(net, takes, x)
  if takes == "tensor" and not Tensor.is(x) then
    net:fail("type", "the input is a table, not a tensor")
  elseif takes == "table" and (Tensor.is(x) or #x == 0) then
    net:fail("type", "the input is a tensor, not a table")
  end
end


-- Raises an error about a class without a layer, with the reason if one is known.
local function fail_unknown(net, name)
  local why = layers.refused[name]
  net:fail("unsupported", why and "this layer cannot be imported: " .. why
    or "there is no layer of this class")
end


--- Returns the output of a module for an input.
-- @tparam table m module
-- @param x tensor or list
-- @string at position for errors, such as "modules.3"
function Net:apply(m, x, at)
  local name = objects.is(m) and objects.typename(m)
  self.path[#self.path + 1] = { at = at, class = name or objects.kind(m) }
  self.calls = self.calls + 1
  if not name then
    self:fail("type", "this is no module")
  elseif self.active[m] then
    self:fail("value", "the module contains itself")
  elseif #self.path > DEEPEST then
    self:fail("value", "more than %d modules are in each other", DEEPEST)
  elseif self.calls > MOST_CALLS then
    self:fail("value", "the network has more than %d layers", MOST_CALLS)
  end
  local layer = layers.find(name) or fail_unknown(self, name)
  check_input(self, layer.takes, x)
  self.active[m] = true
  local y = layer.f(self, m, x)
  self.active[m] = nil
  self.path[#self.path] = nil
  return y
end


--- Returns the output of module number i of a container.
function Net:child(m, i, x)
  return self:apply(self:module(m, "modules", i), x, "modules." .. i)
end


--- Returns an axis counted from 0, for one that counts from 1 or, if negative, from the end.
-- @int axis
-- @int ndim
-- @int[opt] without number of axes of an input without a batch: with one axis more, all axes move
--   by one
function Net:axis(axis, ndim, without)
  local k = axis < 0 and ndim + axis or axis - 1
  if axis > 0 and without and without > 0 and ndim == without + 1 then
    k = k + 1
  end
  if axis == 0 or k < 0 or k >= ndim then
    self:fail("shape", "there is no axis %d in %d dimensions", axis, ndim)
  end
  return k
end


return Net
