--- Operators of ONNX: shapes, parts, indices (not for users); see onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_shape

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op, product = value.op, value.product


-- Sizes -------------------------------------------------------------------------------------------

function ops.Shape(n, x)
  local rank = #x.shape
  local function clamp_position(i) return math.max(0, math.min(i < 0 and i + rank or i, rank)) end
  local first, last = clamp_position(n:int("start", 0)), clamp_position(n:int("end", rank))
  return value.list(tables.part(n:sizes(x, "its input"), first + 1, last), "int64")
end

function ops.Size(n, x) return value.scalar(product(n:sizes(x, "its input")), "int64") end

local MOST_DIMS = 16

-- Returns the shape; fails if it has too many dimensions.
local function check_rank(shape)
  if #shape > MOST_DIMS then
    value.refuse("%d dimensions, at most %d", #shape, MOST_DIMS)
  end
  return shape
end

-- Returns the size of the axis that gets the elements which the other sizes of a shape leave; -1 if
-- unknown.
local function compute_rest(from, to, rest)
  local known, taken, open = 1, 1, 0
  for _, size in ipairs(from) do
    known, open = known * math.abs(size), open + (size < 0 and 1 or 0)
  end
  for i, size in ipairs(to) do
    if i ~= rest then
      taken, open = taken * math.abs(size), open - (size < 0 and 1 or 0)
    end
  end
  return taken == 0 and 0 or open == 0 and known / taken or -1
end

function ops.Reshape(n, x, shape)
  local wanted = shape and shape:numbers("shape") or n:list("shape")
  local keep_zero, rest, to = n:flag("allowzero"), nil, {}
  check_rank(wanted)
  for i, size in ipairs(wanted) do
    if size == 0 and not keep_zero then
      size = x.shape[i] or value.damaged("size 0 on axis %d of an array of %d", i - 1, #x.shape)
    elseif size == -1 then
      rest = rest and value.damaged("two sizes of -1") or i
    end
    to[i] = size
  end
  if rest then
    to[rest] = compute_rest(x.shape, to, rest)
  end
  local same = true
  for _, size in ipairs(x.shape) do
    same = same and size >= 0
  end
  if same and product(to) ~= product(x.shape) or rest and to[rest] ~= math.floor(to[rest]) then
    value.damaged("%s as %s", value.shape_text(x.shape), value.shape_text(wanted))
  elseif not same and keep_zero and product(to) == 0 then
    n:sizes(x, "its input")
  elseif not same and #to > 0 and not value.same_shape(to, x.shape) and not x:is_empty() then
    -- the engine's Reshape treats 0 and -1 as ONNX does
    return value.output(op("Reshape", { x }, { shape = wanted }).entry, to, x.dtype)
  end
  return x:reshape(to)
end

function ops.Flatten(n, x)
  local axis, rank = n:int("axis", 1), #x.shape
  if axis < -rank or axis > rank then
    value.damaged("axis %d of %d", axis, rank)
  end
  axis = axis < 0 and axis + rank or axis
  if axis == 1 and rank == 2 then
    return x
  elseif axis == 1 and rank > 2 and x.entry then
    return (op("Flatten", { x }))
  end
  local shape = n:sizes(x, "its input")
  local rows = product(tables.part(shape, 1, axis))
  return x:reshape{ rows, product(tables.part(shape, axis + 1, rank)) }
end

function ops.Squeeze(n, x, axes)
  local list, drop, shape = n:list_of(axes, "axes"), {}, {}
  if not list then
    n:sizes(x, "its input")
  end
  for _, axis in ipairs(list and n:axes_of(list, #x.shape) or {}) do
    drop[axis] = true
    if x.shape[axis + 1] < 0 then
      n:sizes(x, "its input")
    elseif x.shape[axis + 1] ~= 1 then
      value.damaged("axis %d has %d elements", axis, x.shape[axis + 1])
    end
  end
  for i, size in ipairs(x.shape) do
    if list and not drop[i - 1] or not list and size ~= 1 then
      shape[#shape + 1] = size
    end
  end
  return x:reshape(shape)
end

function ops.Unsqueeze(n, x, axes)
  local list = n:list_of(axes, "axes")
  local rank = #x.shape + #list
  local set, shape, from = {}, {}, 1
  check_rank(x.shape)
  for _, axis in ipairs(n:axes_of(list, rank)) do
    set[axis] = true
  end
  for i = 1, rank do
    shape[i] = set[i - 1] and 1 or x.shape[from]
    from = from + (set[i - 1] and 0 or 1)
  end
  return x:reshape(check_rank(shape))
end

function ops.Transpose(n, x)
  local axes = n:list("perm")
  if not axes then
    axes = {}
    for axis = #x.shape - 1, 0, -1 do
      axes[#axes + 1] = axis
    end
  elseif #axes ~= #x.shape then
    value.damaged("perm has %d axes, the input %d", #axes, #x.shape)
  end
  return x:transpose(n:axes_of(axes, #x.shape))
end

function ops.Expand(n, x, shape)
  local to = value.broadcast(n:sizes(x, "its input"), check_rank(shape:numbers("shape")))
  return x:expand(to)
end

function ops.Tile(n, x, repeats)
  local reps = repeats:numbers("repeats")
  if #reps ~= #x.shape then
    value.damaged("%d repeats for %d dimensions", #reps, #x.shape)
  end
  local shape, same = {}, true
  for i, size in ipairs(n:sizes(x, "its input")) do
    shape[i], same = size * reps[i], same and reps[i] == 1
  end
  if same then
    return x
  elseif product(shape) == 0 then
    return value.empty(shape, x.dtype)
  end
  return (op("tile", { x }, { reps = reps }))
end


-- Making ------------------------------------------------------------------------------------------

local tensor = require "tycho.onnx.tensor"

local CONSTANTS = { "value_float", "value_int", "value_floats", "value_ints" }

function ops.Constant(n)
  if n.attrs.value then
    return n:tensor("value")
  end
  for _, name in ipairs(CONSTANTS) do
    local v, dtype = n.attrs[name], name:find("float") and "float32" or "int64"
    if type(v) == "number" then
      return value.scalar(v, dtype)
    elseif v then
      return value.list(n:list(name), dtype)
    end
  end
  n:refuse("a constant that is text or sparse")
end

-- Returns an array that is filled with a number.
local function make_full(shape, number, dtype)
  check_rank(shape)
  for _, size in ipairs(shape) do
    if size < 0 then
      value.damaged("a dimension of %d", size)
    elseif size == 0 then
      return value.empty(shape, dtype)
    end
  end
  local y = op("_full", {}, { shape = value.inner_shape(shape), value = number, dtype = dtype })
  y.shape = shape
  return y
end

value.full = make_full

function ops.ConstantOfShape(n, shape)
  local v = n.attrs.value and n:tensor("value") or value.scalar(0, "float32")
  return make_full(shape:numbers("shape"), v:number("value"), v.dtype)
end

function ops.Range(n, start, limit, delta)
  local a, b, step = start:number("start"), limit:number("limit"), delta:number("delta")
  local count = math.max(math.ceil((b - a) / step), 0)
  local list = {}
  value.spend(count, "a range")
  for i = 1, count do
    list[i] = a + (i - 1) * step
  end
  return value.list(list, start.dtype)
end

function ops.EyeLike(n, x)
  local kind = tensor.type_of(n:int("dtype", 0))
  local dtype, shape = kind and kind.dtype or x.dtype, n:sizes(x, "its input")
  if product(shape) == 0 then
    return value.empty(shape, dtype)
  end
  return op("_eye", {}, { N = shape[1], M = shape[2], k = n:int("k", 0), dtype = "float32" })
    :cast(dtype)
end

-- Returns a boolean matrix that is 1 where holds(row, column) is true; both count from 0.
local function make_triangle(rows, columns, holds)
  local list = {}
  value.spend(product{ rows, columns }, "a triangle")
  for i = 0, rows - 1 do
    for j = 0, columns - 1 do
      list[#list + 1] = holds(i, j) and 1 or 0
    end
  end
  return value.list(list, "bool", { rows, columns })
end

value.triangle = make_triangle

function ops.Trilu(n, x, k)
  local shift, upper = k and k:number("k") or 0, n:flag("upper", true)
  local shape = n:sizes(x, "its input")
  local rows, columns = shape[#shape - 1], shape[#shape]
  if product(shape) == 0 then
    return x
  end
  local inside = make_triangle(rows, columns, function(i, j)
    return upper and j - i >= shift or not upper and j - i <= shift
  end)
  return value.where(inside, x, value.scalar(0, x.dtype))
end


-- Parts -------------------------------------------------------------------------------------------

function ops.Concat(n, ...)
  local list = { ... }
  return value.concat(list, n:axis(1, #list[1].shape))
end

-- Returns the begin, the end and the number of elements of a slice along an axis, limited to the
-- axis as NumPy does.
local function compute_slice_bounds(from, to, step, size)
  local low, high = step > 0 and 0 or -1, step > 0 and size or size - 1
  from = from < 0 and from + size or from
  to = to < 0 and to + size or to
  from, to = math.max(low, math.min(from, high)), math.max(low, math.min(to, high))
  return from, to, math.max(math.ceil((to - from) / step), 0)
end

function ops.Slice(n, x, starts, ends, axes, steps)
  local from, to = n:list_of(starts, "starts"), n:list_of(ends, "ends")
  local list = n:list_of(axes, "axes")
  local step = steps and steps:numbers("steps")
  local rank, begins, stops, strides, shape = #x.shape, {}, {}, {}, tables.copied(x.shape)
  local null = value.null
  for i = 1, rank do
    begins[i], stops[i], strides[i] = null, null, 1
  end
  if not list then
    list = {}
    for i = 1, #from do
      list[i] = i - 1
    end
  end
  local changed = false
  for i, axis in ipairs(n:axes_of(list, rank)) do
    local by = step and step[i] or 1
    if by == 0 or not from[i] or not to[i] then
      value.damaged("starts, ends, axes and steps do not fit")
    end
    local size = x.shape[axis + 1]
    if size < 0 and not (from[i] == 0 and to[i] > 2 ^ 30 and by == 1) then
      n:sizes(x, "its input")
    elseif size >= 0 then
      local first, last, count = compute_slice_bounds(from[i], to[i], by, size)
      shape[axis + 1] = count
      if count ~= size or by ~= 1 then
        changed = true
        begins[axis + 1], strides[axis + 1] = first, by
        stops[axis + 1] = (last < 0 or by > 0 and last == size) and null or last
      end
    end
  end
  if not changed then
    return x
  end
  for _, size in ipairs(shape) do
    if size == 0 then
      return value.empty(shape, x.dtype)
    end
  end
  return (op("slice", { x }, { begin = begins, ["end"] = stops, step = strides }))
end

function ops.Split(n, x, split)
  local axis = n:axis(0, #x.shape)
  local size = n:sizes(x, "its input")[axis + 1]
  local sizes = n:list_of(split, "split")
  if not sizes then
    local count = n:int("num_outputs", n.count)
    local each = math.ceil(size / count)
    sizes = {}
    for i = 1, count do
      sizes[i] = math.max(math.min(each, size - (i - 1) * each), 0)
    end
  end
  return unpack(x:cut(axis, sizes))
end

-- Returns indices counted from 0; negative ones count from the end.
local function count_from_zero(indices, size)
  if indices:is_constant() then
    local list, changed = {}, false
    for i, index in ipairs(indices:numbers("indices")) do
      list[i] = index < 0 and index + size or index
      changed = changed or index < 0
    end
    return changed and value.list(list, indices.dtype, indices.shape) or indices
  end
  return value.where(indices:lesser(0), indices + size, indices)
end

function ops.Gather(n, x, indices)
  local axis = n:axis(0, #x.shape)
  local size = x.shape[axis + 1]
  local shape = tables.part(x.shape, 1, axis)
  for _, length in ipairs(indices.shape) do
    shape[#shape + 1] = length
  end
  for i = axis + 2, #x.shape do
    shape[#shape + 1] = x.shape[i]
  end
  if x:is_empty() or indices:is_empty() then
    return value.empty(shape, x.dtype)
  elseif indices:is_constant() and product(indices.shape) == 1 then
    local at = count_from_zero(indices, n:sizes(x, "its input")[axis + 1]):number("indices")
    if at < 0 or at >= size then
      value.damaged("index %d of axis %d, which has %d elements", at, axis, size)
    end
    return x:part(axis, at, at + 1):reshape(shape)
  end
  if size < 0 then
    n:sizes(x, "its input")
  end
  local y = op("take", { x, count_from_zero(indices, size) }, { axis = axis, mode = "clip" })
  return y:reshape(shape)
end

function ops.GatherElements(n, x, indices)
  return (op("_contrib_take_along_axis", { x, indices }, { axis = n:axis(0, #x.shape) }))
end

-- Returns indices with the last axis, that of the coordinates, moved to the front.
local function move_coordinates_first(indices)
  local axes = { #indices.shape - 1 }
  for axis = 0, #indices.shape - 2 do
    axes[#axes + 1] = axis
  end
  return indices:transpose(axes)
end

function ops.GatherND(n, x, indices)
  local lead = n:int("batch_dims", 0)
  local shape = tables.part(indices.shape, 1, #indices.shape - 1)
  local m = n:size(indices, #indices.shape - 1, "its indices")
  for i = lead + m + 1, #x.shape do
    shape[#shape + 1] = x.shape[i]
  end
  local first = move_coordinates_first(indices)
  if lead > 0 then
    local full_shape, rows = tables.copied(first.shape), {}
    full_shape[1] = 1
    for k = 1, lead do
      rows[k] = value.counted_along(full_shape, k, first.dtype)
    end
    rows[#rows + 1] = first
    first = value.concat(rows, 0)
  end
  return op("gather_nd", { x, first }):reshape(shape)
end

-- Returns the index along axis k of each element of a shape.
function value.counted_along(shape, k, dtype)
  local line, list = {}, {}
  value.spend(shape[k + 1], "an axis")
  for i = 1, #shape do
    line[i] = i == k + 1 and shape[i] or 1
  end
  for i = 1, shape[k + 1] do
    list[i] = i - 1
  end
  return value.list(list, dtype, line):expand(shape)
end

local REDUCTIONS = { none = "none", add = "add", mul = "mul", max = "max", min = "min" }

function ops.ScatterElements(n, x, indices, updates)
  if indices:is_empty() then
    return x
  end
  return (op("_contrib_scatter_along_axis", { x, indices, updates },
    { axis = n:axis(0, #x.shape), reduction = n:choice("reduction", "none", REDUCTIONS) }))
end

ops.Scatter = ops.ScatterElements

function ops.ScatterND(n, x, indices, updates)
  if indices:is_empty() then
    return x
  end
  local inner = #updates.shape == 0 and updates:reshape{ 1 } or updates
  return (op("_contrib_scatter_nd", { x, move_coordinates_first(indices), inner },
    { reduction = n:choice("reduction", "none", REDUCTIONS) }))
end

local WRITES = { linear = "linear", circular = "circular" }

-- Replaces rows of each sample of a cache from a position on; in mode 'circular' rows beyond the
-- end continue at its start.
function ops.TensorScatter(n, cache, update, first)
  local axis, shape = n:axis(-2, #cache.shape), n:sizes(update, "its update")
  local size = n:sizes(cache, "its cache")[axis + 1]
  if axis == 0 or shape[axis + 1] > size then
    value.damaged("%d rows of axis %d, which has %d", shape[axis + 1], axis, size)
  end
  local at = value.counted_along(shape, axis, "int64")
  if first then
    local line = {}
    for i = 1, #shape do
      line[i] = i == 1 and shape[1] or 1
    end
    at = at + first:cast("int64"):reshape(line)
  end
  at = n:choice("mode", "linear", WRITES) == "circular" and at % size or at
  return (op("_contrib_scatter_along_axis", { cache, at, update }, { axis = axis,
    reduction = "none" }))
end

function ops.OneHot(n, indices, depth, values)
  local count, rank = depth:number("depth"), #indices.shape
  local axis = n:axis(-1, rank + 1)
  local at = indices:unsqueeze(axis)
  local shape = {}
  for i = 1, rank + 1 do
    shape[i] = i == axis + 1 and count or 1
  end
  local positions = value.counted_along(shape, axis, at.dtype)
  at = value.where(at:lesser(0), at + count, at)
  local on, off = values:part(0, 1, 2):reshape{}, values:part(0, 0, 1):reshape{}
  return value.where(value.binary("equal", at, positions), on, off)
end

-- Selects the elements or parts for which the condition is not 0. The condition must be a constant,
-- since the size of the result depends on it.
function ops.Compress(n, x, condition)
  local axis = n:int("axis")
  local from = axis and x or x:reshape{ product(n:sizes(x, "its input")) }
  axis = axis and n:axis_of(axis, #x.shape) or 0
  local positions, size = {}, n:sizes(from, "its input")[axis + 1]
  for i, on in ipairs(condition:numbers("condition")) do
    if i > size then
      value.damaged("condition %d of axis %d, which has %d elements", i - 1, axis, size)
    elseif on ~= 0 then
      positions[#positions + 1] = i - 1
    end
  end
  local shape = tables.copied(from.shape)
  shape[axis + 1] = #positions
  if #positions == 0 then
    return value.empty(shape, x.dtype)
  end
  return (op("take", { from, value.list(positions, "int64") }, { axis = axis, mode = "clip" }))
end

function ops.NonZero(_, x)
  local shape, rows = x.shape, {}
  for k = 1, math.max(#shape, 1) do
    rows[k] = {}
  end
  local found = 0
  for i, v in ipairs(x:numbers("its input, whose zeros decide the result's size,")) do
    if v ~= 0 then
      local rest = i - 1
      found = found + 1
      for k = #shape, 1, -1 do
        rows[k][found] = rest % shape[k]
        rest = math.floor(rest / shape[k])
      end
      rows[1][found] = rows[1][found] or 0
    end
  end
  local list = {}
  for _, row in ipairs(rows) do
    for _, i in ipairs(row) do
      list[#list + 1] = i
    end
  end
  return value.list(list, "int64", { #rows, found })
end

function ops.TopK(n, x, k)
  local axis, count = n:axis(-1, #x.shape), k and k:number("k") or n:int("k")
  local values, indices = op("topk", { x }, { axis = axis, k = count, ret_typ = "both",
    is_ascend = not n:flag("largest", true), dtype = "int64" })
  return values, indices
end

function ops.ReverseSequence(n, x, lengths)
  local time, batch = n:int("time_axis", 0), n:int("batch_axis", 1)
  local y = time == 0 and x or x:transpose{ 1, 0, unpack(value.axes_from(2, #x.shape)) }
  if time + batch ~= 1 then
    n:refuse("time_axis = %d, batch_axis = %d", time, batch)
  end
  y = y:map("SequenceReverse", { lengths:cast(value.REAL[x.dtype] and x.dtype or "float32") },
    { use_sequence_length = true })
  return time == 0 and y or y:transpose{ 1, 0, unpack(value.axes_from(2, #x.shape)) }
end

-- Returns the axes a, a + 1 ... before b.
function value.axes_from(a, b)
  local axes = {}
  for axis = a, b - 1 do
    axes[#axes + 1] = axis
  end
  return axes
end


-- Returns whether an optional value is present, which is a constant, since absence means an omitted
-- input.
function ops.OptionalHasElement(_, x) return value.scalar(x and 1 or 0, "bool") end

function ops.OptionalGetElement(_, x) return x or value.damaged("its input is absent") end


-- Borders -----------------------------------------------------------------------------------------

-- Returns x with borders along one axis, as a call of the operator Pad on the third of four axes.
local function pad_axis(n, x, axis, before, after, mode, number)
  local shape = tables.copied(n:sizes(x, "its input"))
  if mode == "wrap" then
    local size = shape[axis + 1]
    return value.concat({ x:part(axis, size - before, size), x, x:part(axis, 0, after) }, axis)
  end
  local lead, trail = product(tables.part(shape, 1, axis)),
    product(tables.part(shape, axis + 2, #shape))
  local y = op("Pad", { x:reshape{ 1, lead, shape[axis + 1], trail } }, { mode = mode,
    constant_value = number, pad_width = { 0, 0, 0, 0, before, after, 0, 0 } })
  shape[axis + 1] = shape[axis + 1] + before + after
  return y:reshape(shape)
end

-- Returns images with borders on both axes, added by one operator.
local function pad_image(x, before, after, mode, number)
  local width = {}
  for i = 1, #x.shape do
    width[2 * i - 1], width[2 * i] = before[i], after[i]
  end
  return (op("Pad", { x }, { mode = mode, constant_value = number, pad_width = width }))
end

-- Returns x with borders; negative ones cut.
-- @tparam {int,...} before per axis
-- @tparam {int,...} after
-- @string mode constant, edge, reflect, wrap
-- @number number of a constant border
function value.pad(n, x, before, after, mode, number)
  before, after = tables.copied(before), tables.copied(after)
  local any, lead = false, false
  for i = 1, #x.shape do
    local cut_before, cut_after = math.min(before[i], 0), math.min(after[i], 0)
    if cut_before + cut_after < 0 then
      x = x:part(i - 1, -cut_before, n:sizes(x, "its input")[i] + cut_after)
    end
    before[i], after[i] = math.max(before[i], 0), math.max(after[i], 0)
    any = any or before[i] + after[i] > 0
    lead = lead or i <= 2 and before[i] + after[i] > 0
  end
  if not any then
    return x
  elseif (#x.shape == 4 or #x.shape == 5) and not lead and mode ~= "wrap" then
    return pad_image(x, before, after, mode, number)
  end
  for i = 1, #x.shape do
    if before[i] + after[i] > 0 then
      x = pad_axis(n, x, i - 1, before[i], after[i], mode, number)
    end
  end
  return x
end

local MODES = { constant = "constant", edge = "edge", reflect = "reflect", wrap = "wrap" }

function ops.Pad(n, x, pads, number, axes)
  local list, rank = n:list_of(pads, "pads"), #x.shape
  local mode = n:choice("mode", "constant", MODES)
  local own = axes and n:axes_of(axes:numbers("axes"), rank) or value.axes_from(0, rank)
  if #list ~= 2 * #own then
    value.damaged("%d pads for %d axes", #list, #own)
  end
  local before, after = {}, {}
  for i = 1, rank do
    before[i], after[i] = 0, 0
  end
  for i, axis in ipairs(own) do
    before[axis + 1], after[axis + 1] = list[i], list[#own + i]
  end
  if not number or number:is_constant() then
    return value.pad(n, x, before, after, mode,
      number and number:number("constant_value") or n:float("value", 0))
  end
  local ones = make_full(n:sizes(x, "its input"), 1, "float32")
  local inside = value.pad(n, ones, before, after, mode, 0)
  return value.where(inside, value.pad(n, x, before, after, mode, 0), number:reshape{})
end

function ops.CenterCropPad(n, x, shape)
  local rank, sizes = #x.shape, shape:numbers("shape")
  local axes = n:list("axes")
  axes = axes and n:axes_of(axes, rank) or value.axes_from(0, rank)
  local before, after = {}, {}
  for i = 1, rank do
    before[i], after[i] = 0, 0
  end
  for i, axis in ipairs(axes) do
    local more = sizes[i] - n:sizes(x, "its input")[axis + 1]
    local first = more >= 0 and math.floor(more / 2) or -math.floor(-more / 2)
    before[axis + 1], after[axis + 1] = first, more - first
  end
  return value.pad(n, x, before, after, "constant", 0)
end

function ops.DepthToSpace(n, x)
  local b, shape = n:int("blocksize"), n:sizes(x, "its input")
  local rows = n:choice("mode", "DCR", { DCR = false, CRD = true })
  local c, h, w = shape[2] / (b * b), shape[3], shape[4]
  local parts = rows and { shape[1], c, b, b, h, w } or { shape[1], b, b, c, h, w }
  local axes = rows and { 0, 1, 4, 2, 5, 3 } or { 0, 3, 4, 1, 5, 2 }
  return x:reshape(parts):transpose(axes):reshape{ shape[1], c, h * b, w * b }
end

function ops.SpaceToDepth(n, x)
  local b, shape = n:int("blocksize"), n:sizes(x, "its input")
  local rows = n:choice("mode", "DCR", { DCR = false, CRD = true })
  local c, h, w = shape[2], shape[3] / b, shape[4] / b
  local y = x:reshape{ shape[1], c, h, b, w, b }
  return y:transpose(rows and { 0, 1, 3, 5, 2, 4 } or { 0, 3, 5, 1, 2, 4 })
    :reshape{ shape[1], c * b * b, h, w }
end

return ops
