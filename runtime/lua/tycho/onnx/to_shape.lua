--- Conversion of operators to ONNX: shapes, parts, indices, sequences (not for users); see
-- onnx/to_math.lua.
--
-- @module tycho.onnx.to_shape

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"

local to = {}

local MOST = 2 ^ 31 - 1                                  -- an end after all elements


-- Shapes ------------------------------------------------------------------------------------------

-- Emits the input reshaped to the shape of the node's output.
local function emit_reshaped(e, c) return e:reshape(c.inputs[1], c.shapes[1], c.out[1].shape) end

for _, name in ipairs{ "Reshape", "expand_dims", "squeeze", "Flatten", "reshape_like" } do
  to[name] = emit_reshaped
end

-- Returns the axes rank - 1 to 0.
local function list_axes_from_end(rank)
  local axes = {}
  for axis = rank - 1, 0, -1 do
    axes[#axes + 1] = axis
  end
  return axes
end

function to.transpose(e, c)
  local axes, rank = c.p.axes, #c.shapes[1]
  axes = axes and #axes > 0 and tables.copied(axes) or list_axes_from_end(rank)
  for i, axis in ipairs(axes) do
    axes[i] = axis < 0 and axis + rank or axis
  end
  return e:emit("Transpose", { c.inputs[1] }, { perm = axes })
end

-- Returns the axes 0 to rank - 1.
local function list_axes(rank)
  return tables.reversed(list_axes_from_end(rank))
end

function to.SwapAxis(e, c)
  local axes, rank = list_axes(#c.shapes[1]), #c.shapes[1]
  local a, b = c.p.dim1 % rank, c.p.dim2 % rank
  axes[a + 1], axes[b + 1] = b, a
  return e:emit("Transpose", { c.inputs[1] }, { perm = axes })
end

-- Emits the input repeated to the shape of the node's output; an axis of unknown size keeps the
-- input's size.
local function emit_expand(e, c)
  local shape = {}
  for i, size in ipairs(c.out[1].shape) do
    shape[i] = type(size) == "number" and size or 1
  end
  local from, padded = c.shapes[1], {}
  for i = 1, #shape do
    padded[i] = from[i - #shape + #from] or 1
  end
  return e:emit("Expand", { e:reshape(c.inputs[1], from, padded), e:ints(shape) })
end

to.broadcast_to, to.broadcast_axis = emit_expand, emit_expand

function to.broadcast_like(e, c)
  if c.p.lhs_axes then
    return emit_expand(e, c)
  end
  return e:emit("Expand", { c.inputs[1], e:emit("Shape", { c.inputs[2] }) })
end

function to.shape_array(e, c)
  return e:emit("Shape", { c.inputs[1] })
end

function to.size_array(e, c) return e:reshape(e:emit("Size", { c.inputs[1] }), {}, { 1 }) end

function to.tile(e, c)
  local reps, from, padded = tables.copied(c.p.reps), c.shapes[1], {}
  while #reps < #from do
    table.insert(reps, 1, 1)
  end
  for i = 1, #reps do
    padded[i] = from[i - #reps + #from] or 1
  end
  return e:emit("Tile", { e:reshape(c.inputs[1], from, padded), e:ints(reps) })
end

to["repeat"] = function(e, c)
  local x, shape, axis, times = c.inputs[1], c.shapes[1], c.p.axis, c.p.repeats
  if axis == nil then
    x, shape, axis = e:emit("Reshape", { x, e:ints{ -1 } }), { "all" }, 0
  end
  axis = axis % #shape
  local wide, reps = tables.copied(shape), {}
  table.insert(wide, axis + 2, 1)
  for i = 1, #wide do
    reps[i] = i == axis + 2 and times or 1
  end
  x = e:emit("Unsqueeze", { x, e:ints{ axis + 1 } })
  wide[axis + 2] = times
  return e:reshape(e:emit("Tile", { x, e:ints(reps) }), wide, c.out[1].shape)
end

function to.depth_to_space(e, c)
  return e:emit("DepthToSpace", { c.inputs[1] }, { blocksize = c.p.block_size })
end

function to.space_to_depth(e, c)
  return e:emit("SpaceToDepth", { c.inputs[1] }, { blocksize = c.p.block_size })
end


-- Parts -------------------------------------------------------------------------------------------

-- Emits the elements from, from + step … before stop (from 0) of an axis.
local function slice_axis(e, x, axis, from, stop, step)
  return e:emit("Slice", { x, e:ints{ from }, e:ints{ stop }, e:ints{ axis }, e:ints{ step or 1 } })
end

function to.slice_axis(e, c)
  return slice_axis(e, c.inputs[1], c.p.axis % #c.shapes[1], c.p.begin, c.p["end"] or MOST)
end

local function is_given(v) return type(v) == "number" end

function to.slice(e, c)
  local begins, ends, axes, steps = {}, {}, {}, {}
  local from, stop, step = c.p.begin, c.p["end"], c.p.step or {}
  for i = 1, #from do
    local by = is_given(step[i]) and step[i] or 1
    axes[i], steps[i] = i - 1, by
    begins[i] = is_given(from[i]) and from[i] or by > 0 and 0 or MOST
    ends[i] = is_given(stop[i]) and stop[i] or by > 0 and MOST or -MOST
  end
  return e:emit("Slice", { c.inputs[1], e:ints(begins), e:ints(ends), e:ints(axes), e:ints(steps) })
end

function to.slice_like(e, c)
  local axes, x = c.p.axes, c.inputs[1]
  axes = axes and #axes > 0 and axes or list_axes(#c.shapes[2])
  for _, axis in ipairs(axes) do
    axis = axis % #c.shapes[1]
    local size = c.shapes[2][axis + 1]
    if c.shapes[1][axis + 1] ~= size then
      x = slice_axis(e, x, axis, 0, e:known{ size }[1])
    end
  end
  return x
end

function to.Crop(e, c)
  local shape, out, y = c.shapes[1], c.out[1].shape, c.inputs[1]
  local offset = c.p.offset or { 0, 0 }
  for i = 3, 4 do
    local at = c.p.center_crop and math.floor((e:known(shape)[i] - out[i]) / 2) or offset[i - 2]
    y = slice_axis(e, y, i - 1, at, at + e:known(out)[i])
  end
  return y
end

-- Emits parts of an axis in the given sizes; squeezed: whether that axis is removed. Returns their
-- names.
local function split_axis(e, c, axis, sizes, squeezed)
  local names = { e:emit("Split", { c.inputs[1], e:ints(sizes) }, { axis = axis }, #sizes) }
  for i, name in ipairs(squeezed and names or {}) do
    names[i] = e:emit("Squeeze", { name, e:ints{ axis } })
  end
  return unpack(names)
end

function to.SliceChannel(e, c)
  local axis, sizes = c.p.axis % #c.shapes[1], {}
  local size = e:known{ c.shapes[1][axis + 1] }[1] / c.p.num_outputs
  for i = 1, c.p.num_outputs do
    sizes[i] = size
  end
  return split_axis(e, c, axis, sizes, c.p.squeeze_axis)
end

function to._split_v2(e, c)
  local axis, sizes = c.p.axis % #c.shapes[1], {}
  for i, out in ipairs(c.out) do
    sizes[i] = c.p.squeeze_axis and 1 or e:known{ out.shape[axis + 1] }[1]
  end
  return split_axis(e, c, axis, sizes, c.p.squeeze_axis)
end

local function all_inputs(c)
  local list = {}
  for i = 1, c.count do
    list[i] = c.inputs[i]
  end
  return list
end

function to.Concat(e, c)
  return e:emit("Concat", all_inputs(c), { axis = c.p.dim % #c.shapes[1] })
end

to._rnn_param_concat = to.Concat

function to.stack(e, c)
  local axis, list = c.p.axis % #c.out[1].shape, {}
  for i, x in ipairs(all_inputs(c)) do
    list[i] = e:emit("Unsqueeze", { x, e:ints{ axis } })
  end
  return e:emit("Concat", list, { axis = axis })
end

function to.reverse(e, c)
  local list, axes = type(c.p.axis) == "table" and c.p.axis or { c.p.axis }, {}
  local begins, ends, steps = {}, {}, {}
  for i, axis in ipairs(list) do
    axes[i], begins[i], ends[i], steps[i] = axis % #c.shapes[1], MOST, -MOST, -1
  end
  return e:emit("Slice", { c.inputs[1], e:ints(begins), e:ints(ends), e:ints(axes), e:ints(steps) })
end


-- Making ------------------------------------------------------------------------------------------

-- Returns a converter of an array filled with a number, or with the node's value.
local function make_filled(number)
  return function(e, c)
    local shape = e:known(c.out[1].shape)
    local x = e:number(number or c.p.value, c.out[1].dtype)
    return e:emit("Expand", { x, e:ints(shape) })
  end
end

to._zeros, to._zeros_without_dtype = make_filled(0), make_filled(0)
to._ones, to._full = make_filled(1), make_filled(nil)

function to._contrib_arange_like(e, c)
  local out, list = e:known(c.out[1].shape), {}
  local count = 1
  for _, size in ipairs(out) do
    count = count * size
  end
  for i = 0, count - 1 do
    list[i + 1] = c.p.start + math.floor(i / c.p["repeat"]) * c.p.step
  end
  return e:list(list, c.out[1].dtype, out)
end


-- Indices -----------------------------------------------------------------------------------------

-- Emits input i (from 1) of the node as int64.
local function cast_indices(e, c, i) return e:cast(c.inputs[i], c.dtypes[i], "int64") end

-- Emits int64 indices limited to an axis of known size: wrapped or clipped.
local function bound_indices(e, x, size, mode)
  if mode == "wrap" then
    return e:emit("Mod", { x, e:ints{ size } })
  end
  return e:emit("Clip", { x, e:scalar(0, "int64"),
    e:scalar(size - 1, "int64") })
end

function to.take(e, c)
  local axis = c.p.axis % #c.shapes[1]
  local size = e:known{ c.shapes[1][axis + 1] }[1]
  return e:emit("Gather", { c.inputs[1], bound_indices(e, cast_indices(e, c, 2), size, c.p.mode) },
    { axis = axis })
end

function to.Embedding(e, c)
  return e:emit("Gather", { c.inputs[2], bound_indices(e, cast_indices(e, c, 1), c.p.input_dim) })
end

to._contrib_SparseEmbedding = to.Embedding

function to.pick(e, c)
  local rank = #c.shapes[1]
  local axis = (c.p.axis or -1) % rank
  local at = bound_indices(e, cast_indices(e, c, 2), e:known{ c.shapes[1][axis + 1] }[1], c.p.mode)
  local kept = tables.copied(c.shapes[1])
  kept[axis + 1] = 1
  at = e:reshape(at, c.shapes[2], kept)
  return e:reshape(e:emit("GatherElements", { c.inputs[1], at }, { axis = axis }), kept,
    c.out[1].shape)
end

function to.batch_take(e, c)
  local at = e:emit("Unsqueeze", { bound_indices(e, cast_indices(e, c, 2), e:known(c.shapes[1])[2]),
    e:ints{ 1 } })
  return e:emit("Squeeze", { e:emit("GatherElements", { c.inputs[1], at }, { axis = 1 }),
    e:ints{ 1 } })
end

-- Emits x with its first axis, that of coordinates, moved to the end.
local function move_coordinates_last(e, x, rank)
  local axes = {}
  for axis = 1, rank - 1 do
    axes[axis] = axis
  end
  axes[rank] = 0
  return e:emit("Transpose", { x }, { perm = axes })
end

function to.gather_nd(e, c)
  local at = move_coordinates_last(e, cast_indices(e, c, 2), #c.shapes[2])
  local y = e:emit("GatherND", { c.inputs[1], at })
  local is_scalar = #c.shapes[2] == 1 and c.shapes[2][1] == #c.shapes[1]
  return is_scalar and e:reshape(y, {}, { 1 }) or y
end

function to.scatter_nd(e, c)
  local zeros = e:emit("Expand", { e:number(0, c.dtypes[1]), e:ints(e:known(c.out[1].shape)) })
  local at = move_coordinates_last(e, cast_indices(e, c, 2), #c.shapes[2])
  return e:emit("ScatterND", { zeros, at, c.inputs[1] })
end

-- Returns the attribute `reduction` of ONNX's operator, or nil for none. Raises an error if the
-- exporter's opset has no such reduction.
local function choose_reduction(e, p)
  local least = (p.reduction == "add" or p.reduction == "mul") and 16 or 18
  if p.reduction ~= "none" and e.opset < least then
    e:refuse("reduction = '%s' before opset %d", p.reduction, least)
  end
  return p.reduction ~= "none" and p.reduction or nil
end

function to._contrib_take_along_axis(e, c)
  return e:emit("GatherElements", { c.inputs[1], cast_indices(e, c, 2) }, { axis = c.p.axis })
end

function to._contrib_scatter_along_axis(e, c)
  return e:emit("ScatterElements", { c.inputs[1], cast_indices(e, c, 2), c.inputs[3] },
    { axis = c.p.axis, reduction = choose_reduction(e, c.p) })
end

function to._contrib_scatter_nd(e, c)
  local at = move_coordinates_last(e, cast_indices(e, c, 2), #c.shapes[2])
  return e:emit("ScatterND", { c.inputs[1], at, c.inputs[3] },
    { reduction = choose_reduction(e, c.p) })
end

function to.one_hot(e, c)
  local dtype = c.out[1].dtype
  local values = e:list({ c.p.off_value, c.p.on_value }, dtype)
  local at, zero = cast_indices(e, c, 1), e:ints{ 0 }
  local safe = e:emit("Where", { e:emit("Less", { at, zero }), e:ints{ c.p.depth }, at })
  return e:emit("OneHot", { safe, e:scalar(c.p.depth, "int64"), values })
end

function to.topk(e, c)
  local axis, k = (c.p.axis or -1) % #c.shapes[1], c.p.k
  local size = c.shapes[1][axis + 1]
  if c.p.ret_typ == "mask" or c.p.axis == nil and #c.shapes[1] > 1 then
    e:refuse("ret_typ = '%s', axis = %s", c.p.ret_typ, tostring(c.p.axis))
  end
  local values, at = e:emit("TopK", { c.inputs[1], e:ints{ k < 1 and e:known{ size }[1] or k } },
    { axis = axis, largest = not c.p.is_ascend, sorted = 1 }, 2)
  at = e:cast(at, "int64", c.out[#c.out].dtype)
  if c.p.ret_typ == "value" then
    return values
  elseif c.p.ret_typ == "both" then
    return values, at
  end
  return e:cast(at, c.out[#c.out].dtype, c.out[1].dtype)
end

-- Emits the input sorted along the node's axis. Returns the name of the sorted values (which = 1)
-- or of their places from 0, int64 (which = 2).
local function emit_sort(e, c, which)
  local axis = (c.p.axis or -1) % #c.shapes[1]
  if c.p.axis == nil and #c.shapes[1] > 1 then
    e:refuse("axis = None")
  end
  local results = { e:emit("TopK", { c.inputs[1], e:ints{ e:known{ c.shapes[1][axis + 1] }[1] } },
    { axis = axis, largest = not c.p.is_ascend, sorted = 1 }, 2) }
  return results[which]
end

function to.sort(e, c) return emit_sort(e, c, 1) end

function to.argsort(e, c) return e:cast(emit_sort(e, c, 2), "int64", c.out[1].dtype) end


-- Sequences: time first ---------------------------------------------------------------------------

-- Returns the lengths of sequences, or nil if all steps count.
local function emit_lengths(e, c)
  return c.p.use_sequence_length and cast_indices(e, c, 2) or nil
end

function to.SequenceMask(e, c)
  local lengths, shape, axis = emit_lengths(e, c), c.shapes[1], c.p.axis
  if not lengths then
    return c.inputs[1]
  end
  local steps, time, other = {}, {}, {}
  for i = 1, #shape do
    time[i], other[i] = 1, 1
  end
  time[axis + 1], other[2 - axis] = e:known{ shape[axis + 1] }[1], shape[2 - axis]
  for i = 1, shape[axis + 1] do
    steps[i] = i - 1
  end
  local inside = e:emit("Less", { e:list(steps, "int64", time), e:reshape(lengths, c.shapes[2],
    other) })
  return e:emit("Where", { inside, c.inputs[1], e:number(c.p.value, c.dtypes[1]) })
end

function to.SequenceReverse(e, c)
  local lengths = emit_lengths(e, c)
  if not lengths then
    return slice_axis(e, c.inputs[1], 0, MOST, -MOST, -1)
  end
  return e:emit("ReverseSequence", { c.inputs[1], lengths }, { time_axis = 0, batch_axis = 1 })
end

function to.SequenceLast(e, c)
  local lengths, shape, axis = emit_lengths(e, c), c.shapes[1], c.p.axis
  if not lengths then
    local y = slice_axis(e, c.inputs[1], axis, -1, MOST)
    return e:emit("Squeeze", { y, e:ints{ axis } })
  elseif axis ~= 0 then
    e:refuse("axis = 1 with sequence_length")
  end
  local at = e:emit("Sub", { lengths, e:ints{ 1 } })
  local line, batch = { 1, shape[2] }, tables.copied(shape)
  for i = 3, #shape do
    line[i] = 1
  end
  batch[1] = 1
  at = e:emit("Expand", { e:reshape(at, c.shapes[2], line), e:ints(e:known(batch)) })
  return e:emit("Squeeze", { e:emit("GatherElements", { c.inputs[1], at }, { axis = 0 }),
    e:ints{ 0 } })
end

return to
