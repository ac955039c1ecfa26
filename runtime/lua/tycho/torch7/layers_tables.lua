--- Containers of Torch7 and layers with tables as inputs or outputs. For `torch7/import.lua`.
--
-- @module tycho.torch7.layers_tables

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local layers = require "tycho.torch7.layers"
local Tensor = require "tycho.torch7.tensor"
local tables = require "tycho.core.tables"

local containers = {}


-- Returns entry i (from 1) of an input; raises an error unless it is a tensor.
local function get_entry(net, x, i)
  if not Tensor.is(x[i]) then
    net:fail("type", "entry %d of the input is %s, not a tensor", i,
      x[i] and "a table" or "missing")
  end
  return x[i]
end


-- Raises an error unless the input has n entries.
local function need_entries(net, x, n)
  if #x ~= n then
    net:fail("value", "the input has %d entries instead of %d", #x, n)
  end
end


-- Containers --------------------------------------------------------------------------------------

-- Applies the module's children one after the other; returns the output of the last.
local function apply_children(net, m, x)
  for i = 1, net:count(m) do
    x = net:child(m, i, x)
  end
  return x
end

layers.any("nn.Sequential nn.CReLU nn.SpatialLPPooling nn.Maxout nn.LayerNormalization",
  apply_children)

-- Applies the first module, which these classes wrap.
layers.any("nn.Decorator nn.DontCast nn.GPU nn.DataParallelTable nn.Serial nn.Inception",
  function(net, m, x)
  return net:child(m, 1, x)
end)

layers.any("nn.ConcatTable", function(net, m, x)
  local list = {}
  for i = 1, net:count(m) do
    list[i] = net:child(m, i, x)
  end
  return list
end)

layers.table("nn.ParallelTable", function(net, m, x)
  local list = {}
  need_entries(net, x, net:count(m))
  for i = 1, #x do
    list[i] = net:child(m, i, x[i])
  end
  return list
end)

layers.table("nn.MapTable", function(net, m, x)
  local list = {}
  local inner = m.module or net:module(m, "modules", 1)
  for i = 1, #x do
    list[i] = net:apply(inner, x[i], "module")
  end
  return list
end)

layers.any("nn.Concat", function(net, m, x)
  local list = {}
  for i = 1, net:count(m) do
    list[i] = get_entry(net, { [i] = net:child(m, i, x) }, i)
  end
  return Tensor.concat(list, net:axis(net:integer(m, "dimension"), #list[1].shape))
end)

-- Joins maps; smaller ones are centred in the size of the largest and surrounded by zeros.
layers.any("nn.DepthConcat", function(net, m, x)
  local list, largest = {}, nil
  for i = 1, net:count(m) do
    local y = net:child(m, i, x)
    list[i] = get_entry(net, { [i] = y }, i)
    net:need_dims(y, 3, 4)
    largest = largest or tables.copied(y.shape)
    for k = 1, #largest do
      largest[k] = math.max(largest[k], y.shape[k] or 0)
    end
  end
  local n = #largest
  local joined = net:axis(net:integer(m, "dimension"), n)
  for i, y in ipairs(list) do
    local whole = n == 4 and y or y:unsqueeze(0)
    local before, after = {}, {}
    for k = 0, 1 do
      local missing = joined == n - 2 + k and 0 or largest[n - 1 + k] - y.shape[n - 1 + k]
      before[k + 1] = math.floor(missing / 2)
      after[k + 1] = missing - before[k + 1]
    end
    local padded = whole:pad(before, after, "constant", 0)
    list[i] = n == 4 and padded or padded:reshape(tables.part(padded.shape, 2, 4))
  end
  return Tensor.concat(list, joined)
end)

-- Applies a module to each slice along one axis, and joins the results along another.
layers.tensor("nn.Parallel", function(net, m, x)
  local axis = net:axis(net:integer(m, "inputDimension"), #x.shape)
  local n, list = net:count(m), {}
  if x.shape[axis + 1] ~= n then
    net:fail("shape", "the input has shape %s, for %d modules along axis %d", Error.show(x.shape),
      n, axis)
  end
  for i = 1, n do
    list[i] = get_entry(net, { [i] = net:child(m, i, x:select(axis, i - 1)) }, i)
  end
  return Tensor.concat(list, net:axis(net:integer(m, "outputDimension"), #list[1].shape))
end)

-- Joins leading axes, for a module that takes fewer axes.
layers.tensor("nn.Bottle", function(net, m, x)
  local inputs = net:integer(m, "nInputDim", 2, 1)
  local outputs = inputs - net:integer(m, "dimDelta", inputs - net:integer(m, "nOutputDim", inputs))
  if #x.shape <= inputs then
    return net:child(m, 1, x)
  end
  local lead = #x.shape - inputs + 1
  local leading, rest = tables.part(x.shape, 1, lead), tables.part(x.shape, lead + 1, #x.shape)
  local y = net:child(m, 1, x:reshape{ tables.product(leading), unpack(rest) })
  get_entry(net, { y }, 1)
  if #y.shape ~= outputs then
    net:fail("shape", "the module gives shape %s, not %d dimensions", Error.show(y.shape), outputs)
  end
  local shape = leading
  for k = 2, #y.shape do
    shape[#shape + 1] = y.shape[k]
  end
  return y:reshape(shape)
end)


-- Tables ------------------------------------------------------------------------------------------

-- Returns an index into n entries, counted from 1; a negative one counts from the end.
local function resolve_position(net, index, n)
  local i = index < 0 and n + index + 1 or index
  if i < 1 or i > n then
    net:fail("index", "there is no entry %d among %d", index, n)
  end
  return i
end

layers.table("nn.SelectTable", function(net, m, x)
  return x[resolve_position(net, net:integer(m, "index"), #x)]
end)

layers.table("nn.NarrowTable", function(net, m, x)
  local offset, length = net:integer(m, "offset", 1), net:integer(m, "length", 1)
  if length < 0 then
    length = #x + length - offset + 2
  end
  resolve_position(net, offset, #x)
  resolve_position(net, offset + length - 1, #x)
  return tables.part(x, offset, offset + length - 1)
end)

-- Appends the tensors of nested tables to a list, depth first. Returns the list.
local function flatten_table(x, list)
  if Tensor.is(x) then
    list[#list + 1] = x
  else
    for _, inner in ipairs(x) do
      flatten_table(inner, list)
    end
  end
  return list
end

containers.flatten = flatten_table

layers.any("nn.FlattenTable", function(_, _, x) return flatten_table(x, {}) end)
layers.table("nn.ReverseTable", function(_, _, x) return tables.reversed(x) end)

-- Returns { {a, c}, {b, d} } for { {a, b}, {c, d} }.
layers.table("nn.ZipTable", function(net, _, x)
  local list = {}
  for i = 1, #x do
    if Tensor.is(x[i]) or #x[i] ~= #x[1] then
      net:fail("value", "entry %d of the input is no table of %d", i, #x[1])
    end
    for k = 1, #x[i] do
      list[k] = list[k] or {}
      list[k][i] = x[i][k]
    end
  end
  return list
end)

-- Returns { {a, b}, {a, c} } for { a, {b, c} }.
layers.table("nn.ZipTableOneToMany", function(net, _, x)
  need_entries(net, x, 2)
  local list = {}
  for i, other in ipairs(x[2]) do
    list[i] = { x[1], other }
  end
  return list
end)

layers.tensor("nn.SplitTable", function(net, m, x)
  local axis = net:axis(net:integer(m, "dimension"), #x.shape, m.nInputDims)
  local list = {}
  for i = 1, x.shape[axis + 1] do
    list[i] = x:select(axis, i - 1)
  end
  return list
end)

layers.table("nn.JoinTable", function(net, m, x)
  local list = {}
  for i = 1, #x do
    list[i] = get_entry(net, x, i)
  end
  return Tensor.concat(list, net:axis(net:integer(m, "dimension"), #list[1].shape, m.nInputDims))
end)


-- Arithmetic --------------------------------------------------------------------------------------

-- Returns b in the shape of a. Torch's in-place additions accept other shapes with the same number
-- of elements; another number raises an error.
local function reshape_like(net, a, b)
  if a:size() ~= b:size() then
    net:fail("shape", "entries of shapes %s and %s", Error.show(a.shape), Error.show(b.shape))
  end
  return b:reshape(a.shape)
end

-- Defines layers that combine their entries from the left by f(a, b).
local function define_fold(names, f)
  layers.table(names, function(net, m, x)
    local y = get_entry(net, x, 1)
    for i = 2, #x do
      y = f(y, reshape_like(net, y, get_entry(net, x, i)))
    end
    return m.inplace and x[1]:set(y:get()) or y
  end)
end

define_fold("nn.CAddTable", function(a, b) return a + b end)
define_fold("nn.CMulTable", function(a, b) return a * b end)
define_fold("nn.CMaxTable", Tensor.maximum)
define_fold("nn.CMinTable", Tensor.minimum)

layers.table("nn.CAveTable", function(net, _, x)
  local y = get_entry(net, x, 1)
  for i = 2, #x do
    y = y + reshape_like(net, y, get_entry(net, x, i))
  end
  return y / #x
end)

-- Defines layers f(net, m, a, b) of a table of two tensors.
local function define_pair(names, f)
  layers.table(names, function(net, m, x)
    need_entries(net, x, 2)
    return f(net, m, get_entry(net, x, 1), get_entry(net, x, 2))
  end)
end

define_pair("nn.CSubTable", function(net, _, a, b) return a - reshape_like(net, a, b) end)
define_pair("nn.CDivTable", function(net, _, a, b) return a / reshape_like(net, a, b) end)

-- Returns { a + b, a + c } for { a, {b, c} }.
layers.table("nn.CAddTensorTable", function(net, _, x)
  need_entries(net, x, 2)
  local a, list = get_entry(net, x, 1), {}
  if Tensor.is(x[2]) then
    net:fail("type", "entry 2 of the input is a tensor, not a table")
  end
  for i = 1, #x[2] do
    list[i] = a + reshape_like(net, a, get_entry(net, x[2], i))
  end
  return list
end)

-- Returns the sum of the experts in the second entry, weighted by the gates in the first.
layers.table("nn.MixtureTable", function(net, m, x)
  need_entries(net, x, 2)
  local gates, experts = get_entry(net, x, 1), x[2]
  local batch = #gates.shape - 1
  if batch > 1 then
    net:fail("shape", "the gates have shape %s", Error.show(gates.shape))
  end
  local sum
  if Tensor.is(experts) then
    local axis = net:axis(net:integer(m, "dim", batch + 1), #experts.shape)
    local parts = {}
    for i = 1, experts.shape[axis + 1] do
      parts[i] = experts:select(axis, i - 1)
    end
    experts = parts
  end
  if #experts ~= gates.shape[batch + 1] then
    net:fail("value", "%d experts and gates of shape %s", #experts, Error.show(gates.shape))
  end
  for i = 1, #experts do
    local expert, shape = get_entry(net, experts, i), {}
    for k = 1, #expert.shape do
      shape[k] = k == 1 and batch == 1 and expert.shape[1] or 1
    end
    local part = expert * gates:slice(batch, i - 1, i):reshape(shape)
    sum = sum and sum + part or part
  end
  return sum
end)


-- Products of two tensors -------------------------------------------------------------------------

define_pair("nn.MM", function(_, m, a, b)
  if #a.shape == 2 then
    return Tensor.dot(a, b, m.transA == true, m.transB == true)
  end
  return Tensor.batch_dot(a, b, m.transA == true, m.transB == true)
end)

-- Multiplies a matrix by a vector.
define_pair("nn.MV", function(net, m, a, b)
  net:need_dims(a, 2, 3)
  if #a.shape == 2 then
    local y = Tensor.dot(a, b:unsqueeze(#b.shape), m.trans == true)
    return y:reshape{ y.shape[1] }
  end
  local y = Tensor.batch_dot(a, b:unsqueeze(#b.shape), m.trans == true)
  return y:reshape{ y.shape[1], y.shape[2] }
end)

-- Returns a vector as one row, a matrix as it is.
local function make_rows(net, x)
  net:need_dims(x, 1, 2)
  return #x.shape == 1 and x:reshape{ 1, x.shape[1] } or x
end

-- Returns y as a vector.
local function flatten_tensor(y)
  return y:reshape{ y:size() }
end

define_pair("nn.DotProduct", function(net, _, a, b)
  return flatten_tensor((make_rows(net, a) * make_rows(net, b)):sum(1))
end)

local SMALL = 1e-12

define_pair("nn.CosineDistance", function(net, _, a, b)
  a, b = make_rows(net, a), make_rows(net, b)
  local norms = (a:square():sum(1) + SMALL):sqrt() * (b:square():sum(1) + SMALL):sqrt()
  return flatten_tensor((a * b):sum(1) / norms)
end)

define_pair("nn.PairwiseDistance", function(net, m, a, b)
  local p, d = net:number(m, "norm", 2), make_rows(net, a) - make_rows(net, b)
  if p == 1 then
    return flatten_tensor(d:abs():sum(1))
  elseif p == 2 then
    return flatten_tensor(d:square():sum(1):root())
  end
  return flatten_tensor(d:abs():pow(p):sum(1):pow(1 / p))
end)

-- Returns a' W b + bias; W has a matrix for each output.
define_pair("nn.Bilinear", function(net, m, a, b)
  net:need_dims(a, 2)
  net:need_dims(b, 2)
  local out = net:size_of(m, "weight", 1)
  local rows, one, two = a.shape[1], a.shape[2], b.shape[2]
  local w = net:parameter(m, "weight", { out, one, two })
  local product = Tensor.dot(a, w:transpose{ 1, 0, 2 }:reshape{ one, out * two })
  local y = (product:reshape{ rows, out, two } * b:unsqueeze(1)):sum(2):reshape{ rows, out }
  local bias = net:optional(m, "bias", { 1, out })
  return bias and y + bias or y
end)

-- Returns the selected outputs of a linear layer.
layers.tensor("nn.PartialLinear", function(net, m, x)
  local partition = net:numbers(m, "partition")
  local list = type(partition[1]) == "table" and partition[1] or partition
  local indices = net:constant(list, "partition")
  local y = net:apply(net:module(m, "network"), { x, indices }, "network")
  local bias = net:optional(m, "bias")
  if not bias then
    return y
  end
  local n = bias:size()
  return y + bias:reshape{ n, 1 }:rows(indices - 1):reshape{ 1, #list }
end)


return containers
