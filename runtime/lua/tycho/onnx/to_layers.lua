--- Conversion of operators to ONNX: recurrent layers, control flow, detection (not for users); see
-- onnx/to_math.lua.
--
-- @module tycho.onnx.to_layers

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local call = require "tycho.ndarray.call"
local create = require "tycho.ndarray.create"
local tables = require "tycho.core.tables"

local to = {}


-- Recurrent layers --------------------------------------------------------------------------------

-- ONNX's operator, number of gates, and the position in the engine's order of each of ONNX's gates.
local CELLS = {
  lstm = { "LSTM", 4, { 1, 4, 2, 3 } }, gru = { "GRU", 3, { 2, 1, 3 } },
  rnn_tanh = { "RNN", 1, { 1 } }, rnn_relu = { "RNN", 1, { 1 }, "Relu" },
}

-- Returns the rows of gates in the vector of parameters as ONNX orders them, (1, gates * units,
-- columns), and the position after them.
local function order_gate_rows(vector, at, cell, units, columns)
  local parts, params = {}, { "begin", "", "end", "", "axis", "0" }
  for i, k in ipairs(cell[3]) do
    local from = at + (k - 1) * units * columns
    params[2], params[4] = tostring(from), tostring(from + units * columns)
    parts[i] = call.params("slice_axis", "onnx.export_model", { vector }, params)
  end
  local x = #parts > 1 and call.params("Concat", "onnx.export_model", parts,
    { "dim", "0", "num_args", tostring(#parts) }) or parts[1]
  return x, at + cell[2] * units * columns
end

-- Joins arrays along axis 0 in the given shape; returns a new NDArray.
local function join_parts(list, shape)
  local x = list[1]
  if #list > 1 then
    x = call.params("Concat", "onnx.export_model", list, { "dim", "0", "num_args",
      tostring(#list) })
  end
  return x:reshape(shape)
end

-- Returns the weights and biases of all layers: a list of { w, r, b }.
local function split_layers(vector, p, cell, inputs)
  local units, directions, at = p.state_size, p.bidirectional and 2 or 1, 0
  local layers = {}
  for layer = 1, p.num_layers do
    local width, w, r = layer == 1 and inputs or directions * units, {}, {}
    for d = 1, directions do
      w[d], at = order_gate_rows(vector, at, cell, units, width)
      r[d], at = order_gate_rows(vector, at, cell, units, units)
    end
    layers[layer] = { w = join_parts(w, { directions, cell[2] * units, width }),
      r = join_parts(r, { directions, cell[2] * units, units }) }
  end
  for layer = 1, p.num_layers do
    local b = {}
    for d = 1, directions do
      b[2 * d - 1], at = order_gate_rows(vector, at, cell, units, 1)
      b[2 * d], at = order_gate_rows(vector, at, cell, units, 1)
    end
    layers[layer].b = join_parts(b, { directions, 2 * cell[2] * units })
  end
  return layers
end

-- Emits rows `from` to `to_row` - 1 (from 0) of x. Returns the value's name.
local function emit_rows(e, x, from, to_row)
  return e:emit("Slice", { x, e:ints{ from }, e:ints{ to_row }, e:ints{ 0 } })
end

function to.RNN(e, c)
  local p, vector = c.p, c.constant(2)
  local cell = CELLS[p.mode]
  if not vector or p.projection_size then
    e:refuse(vector and "projection_size" or "parameters that are not parameters of the network")
  end
  local directions, units, shape = p.bidirectional and 2 or 1, p.state_size, c.shapes[1]
  local layers = split_layers(vector, p, cell, e:known{ shape[3] }[1])
  local x, hidden, cells = c.inputs[1], {}, {}
  for i, layer in ipairs(layers) do
    local from, stop = (i - 1) * directions, i * directions
    local inputs = { x, e:array(layer.w), e:array(layer.r), e:array(layer.b), "",
      emit_rows(e, c.inputs[3], from, stop) }
    if p.mode == "lstm" then
      inputs[7] = emit_rows(e, c.inputs[4], from, stop)
    end
    local y
    y, hidden[i], cells[i] = e:emit(cell[1], inputs, { hidden_size = units,
      direction = p.bidirectional and "bidirectional" or "forward",
      linear_before_reset = p.mode == "gru" and 1 or nil,
      activations = cell[4] and { words = directions == 2 and { cell[4], cell[4] }
        or { cell[4] } } },
      p.mode == "lstm" and 3 or 2)
    y = e:emit("Transpose", { y }, { perm = { 0, 2, 1, 3 } })
    x = e:reshape(y, { shape[1], shape[2], directions, units }, { shape[1], shape[2], directions
      * units })
  end
  if not p.state_outputs then
    return x
  end
  local function all(list) return #list > 1 and e:emit("Concat", list, { axis = 0 }) or list[1] end
  return x, all(hidden), p.mode == "lstm" and all(cells) or nil
end


-- Control flow ------------------------------------------------------------------------------------

-- Returns a copy of the list of positions (from 0) in an attribute of the node; {} without the
-- attribute.
local function list_positions(c, key)
  local list = {}
  for _, at in ipairs(c.p[key] or {}) do
    list[#list + 1] = at
  end
  return list
end

-- Returns shape and dtype of input i (from 0) of the node; drop_first: without its first axis.
local function describe_input(c, i, drop_first)
  local shape = c.shapes[i + 1]
  return { shape = drop_first and tables.part(shape, 2, #shape) or shape, dtype = c.dtypes[i + 1] }
end

function to._foreach(e, c)
  local n, p = c.node, c.p
  local data, states, rest = list_positions(c, "in_data_locs"), list_positions(c, "in_state_locs"),
    list_positions(c, "remain_locs")
  local bound, inputs, given = {}, {}, {}
  for k, at in ipairs(states) do
    local i = #data + k - 1
    bound[at] = { describe_input(c, i), "state" .. k, input = true }
    inputs[#inputs + 1], given[#given + 1] = c.inputs[i + 1], at
  end
  for k, at in ipairs(data) do
    bound[at] = { describe_input(c, k - 1, true), "row" .. k, input = true }
    inputs[#inputs + 1], given[#given + 1] = c.inputs[k], at
  end
  for k, at in ipairs(rest) do
    local i = #data + #states + k - 1
    bound[at] = { describe_input(c, i), c.inputs[i + 1] }
  end
  local body, outputs = e:body(n.bodies[1], bound, given)
  local results, count = {}, #outputs
  for k = p.num_out_data + 1, count do
    results[#results + 1] = outputs[k]
  end
  for k = 1, p.num_out_data do
    results[#results + 1] = outputs[k]
  end
  body.outputs = results
  local names = { e:emit("Scan", inputs, { body = body, num_scan_inputs = #data }, count) }
  local list = {}
  for k = 1, p.num_out_data do
    list[k] = names[#states + k]
  end
  for k = 1, #states do
    list[p.num_out_data + k] = names[k]
  end
  return unpack(list)
end

-- Exports a branch as a subgraph, which reads the enclosing graph's values by their names.
-- Returns the graph.
local function export_branch(e, c, body, key)
  local bound = {}
  for k, i in ipairs(list_positions(c, key)) do
    bound[k - 1] = { describe_input(c, i), c.inputs[i + 1] }
  end
  local g, outputs = e:body(body, bound, {})
  g.outputs = outputs
  return g
end

-- Emits the nodes of a condition into the enclosing graph. Returns the name of the result: a bool
-- without axes.
local function emit_condition(e, c, body, bound)
  local name, d = e:inline(body, bound)
  return e:reshape(e:cast(name, d.dtype, "bool"), d.shape, {})
end

function to._cond(e, c)
  local bodies, bound = c.node.bodies, {}
  for k, i in ipairs(list_positions(c, "cond_input_locs")) do
    bound[k - 1] = { describe_input(c, i), c.inputs[i + 1] }
  end
  local test = emit_condition(e, c, bodies[1], bound)
  return e:emit("If", { test }, { then_branch = export_branch(e, c, bodies[2], "then_input_locs"),
    else_branch = export_branch(e, c, bodies[3], "else_input_locs") }, c.p.num_outputs)
end

-- Emits x with rows of zeros after those of the steps that ran, so that there are `most` rows.
local function fill_up(e, x, out, most)
  local count = e:emit("Slice", { e:emit("Shape", { x }), e:ints{ 0 }, e:ints{ 1 } })
  local zeros = {}
  for i = 1, #out.shape do
    zeros[i] = 0
  end
  local list = { e:ints(zeros), e:emit("Sub", { e:ints{ most }, count }) }
  if #out.shape > 1 then
    list[3] = e:ints(tables.part(zeros, 2, #zeros))
  end
  local y = e:emit("Pad", { x, e:emit("Concat", list, { axis = 0 }) })
  return e:emit("Reshape", { y, e:ints(e:known(out.shape)) })
end

function to._while_loop(e, c)
  local p, bodies = c.p, c.node.bodies
  local outer, in_cond, in_func, vars = {}, list_positions(c, "cond_input_locs"), list_positions(c,
    "func_input_locs"),
    list_positions(c, "func_var_locs")
  for k, i in ipairs(in_cond) do
    outer[k - 1] = { describe_input(c, i), c.inputs[i + 1] }
  end
  local first = emit_condition(e, c, bodies[1], outer)
  local bound, inputs, given, is_var = {}, {}, {}, {}
  for k, i in ipairs(in_func) do
    bound[k - 1] = { describe_input(c, i), c.inputs[i + 1] }
  end
  for k, at in ipairs(vars) do
    local i = in_func[at + 1]
    bound[at] = { describe_input(c, i), "var" .. k, input = true }
    inputs[k], given[k], is_var[i] = c.inputs[i + 1], at, k
  end
  local body, outputs = e:body(bodies[2], bound, given, function(results)
    local after = {}
    for k, i in ipairs(in_cond) do
      local var = is_var[i]
      after[k - 1] = { describe_input(c, i),
        var and results[p.num_out_data + var].name or c.inputs[i + 1] }
    end
    return emit_condition(e, c, bodies[1], after)
  end)
  local results, scans = { body.condition }, p.num_out_data
  for k = scans + 1, #outputs do
    results[#results + 1] = outputs[k]
  end
  for k = 1, scans do
    results[#results + 1] = outputs[k]
  end
  body.outputs = results
  table.insert(body.inputs, 1, { name = body.alive, shape = {}, dtype = "bool" })
  table.insert(body.inputs, 1, { name = body.counter, shape = {}, dtype = "int64" })
  local names = { e:emit("Loop", { e:scalar(p.max_iterations, "int64"), first,
    unpack(inputs) }, { body = body }, #outputs) }
  local list, states = {}, #outputs - scans
  for k = 1, scans do
    list[k] = fill_up(e, names[states + k], c.out[k], p.max_iterations)
  end
  for k = 1, states do
    list[scans + k] = names[k]
  end
  return unpack(list)
end

-- Detection ---------------------------------------------------------------------------------------

-- Runs an operator that reads only the shape of its input. Returns the name of its result, a
-- constant.
local function emit_by_shape(e, c)
  local x, flat = create.zeros{ shape = e:known(c.shapes[1]), dtype = c.dtypes[1] }, {}
  for key, text in pairs(c.node.attrs) do
    if not key:find "^__" then
      flat[#flat + 1], flat[#flat + 2] = key, text
    end
  end
  return e:array(call.params(c.node.op, e.func, { x }, flat))
end

to._contrib_MultiBoxPrior = emit_by_shape

-- Emits column k (from 0) of the last axis of x, which keeps an axis of one element.
local function emit_column(e, x, k)
  return e:emit("Slice", { x, e:ints{ k }, e:ints{ k + 1 }, e:ints{ -1 } })
end

local function emit_product(e, a, b) return e:emit("Mul", { a, b }) end
local function emit_sum(e, a, b) return e:emit("Add", { a, b }) end
local function emit_number(e, v) return e:number(v, "float32") end

-- Emits the corners (batch, boxes, 4) of boxes from their offsets (batch, boxes, 4) to anchors,
-- which are corners too: (1, boxes, 4).
local function emit_corners(e, offsets, anchors, variances, clip)
  local function side(k)
    local low, high = emit_column(e, anchors, k), emit_column(e, anchors, k + 2)
    local size = e:emit("Sub", { high, low })
    local centre = emit_product(e, emit_sum(e, low, high), emit_number(e, 0.5))
    local shift = emit_product(e, emit_column(e, offsets, k), emit_number(e, variances[k + 1]))
    centre = emit_sum(e, emit_product(e, shift, size), centre)
    local variance = emit_number(e, variances[k + 3])
    local factor = e:emit("Exp", { emit_product(e, emit_column(e, offsets, k + 2), variance) })
    local half = emit_product(e, emit_product(e, factor, size), emit_number(e, 0.5))
    return e:emit("Sub", { centre, half }), emit_sum(e, centre, half)
  end
  local x1, x2 = side(0)
  local y1, y2 = side(1)
  local boxes = e:emit("Concat", { x1, y1, x2, y2 }, { axis = -1 })
  if clip then
    boxes = e:emit("Clip", { boxes, e:scalar(0, "float32"), e:scalar(1, "float32") })
  end
  return boxes
end

-- Emits which boxes (batch, boxes, 4) non-maximum suppression keeps, as a bool (batch, boxes).
-- Scores are (batch, 1, boxes). Unless `together`, boxes of different classes are moved apart, so
-- that none suppresses one of another class.
local function mark_kept(e, boxes, scores, classes, shape, threshold, least, together)
  if not together then
    boxes = emit_sum(e, boxes, emit_product(e, classes, emit_number(e, 4)))
  end
  local chosen = e:emit("NonMaxSuppression", { boxes, scores,
    e:scalar(shape[2], "int64"), e:scalar(threshold, "float32"),
    e:scalar(least, "float32") })
  local at = e:emit("Gather", { chosen, e:ints{ 0, 2 } }, { axis = 1 })
  local count = e:emit("Slice", { e:emit("Shape", { chosen }), e:ints{ 0 }, e:ints{ 1 } })
  local marks = e:emit("Expand", { emit_number(e, 1), count })
  local none = e:emit("Expand", { emit_number(e, 0), e:ints(shape) })
  return e:cast(e:emit("ScatterND", { none, at, marks }), "float32", "bool")
end

-- Emits rows (batch, rows, n) sorted by keys (batch, rows), largest first.
local function sort_by_key(e, data, keys, shape, width)
  local _, order = e:emit("TopK", { keys, e:ints{ shape[2] } }, { axis = 1, largest = 1,
    sorted = 1 }, 2)
  local at = e:emit("Expand", { e:emit("Unsqueeze", { order, e:ints{ 2 } }),
    e:ints{ shape[1], shape[2], width } })
  return e:emit("GatherElements", { data, at }, { axis = 1 })
end

local LOWEST = -3e38

function to._contrib_MultiBoxDetection(e, c)
  local p, s = c.p, e:known(c.shapes[1])
  local batch, classes, count = s[1], s[2], s[3]
  if p.background_id ~= 0 or p.nms_topk > 0 and p.nms_topk < count then
    e:refuse("background_id = %d, nms_topk = %d", p.background_id, p.nms_topk)
  end
  local offsets = e:emit("Reshape", { c.inputs[2], e:ints{ batch, count, 4 } })
  local boxes = emit_corners(e, offsets, c.inputs[3], p.variances, p.clip)
  local objects = e:emit("Slice", { c.inputs[1], e:ints{ 1 }, e:ints{ classes }, e:ints{ 1 } })
  local scores = e.opset >= 18 and e:emit("ReduceMax", { objects, e:ints{ 1 } }, { keepdims = 0 })
    or e:emit("ReduceMax", { objects }, { axes = { 1 }, keepdims = 0 })
  local class = e:cast(e:emit("ArgMax", { objects }, { axis = 1, keepdims = 0 }), "int64",
    "float32")
  local valid = e:emit("GreaterOrEqual", { scores, emit_number(e, p.threshold) })
  local keys = e:emit("Where", { valid, scores, emit_number(e, LOWEST) })
  local function last(x) return e:emit("Unsqueeze", { x, e:ints{ 2 } }) end
  local data = e:emit("Concat", { last(class), last(scores), boxes }, { axis = 2 })
  data = sort_by_key(e, data, keys, { batch, count }, 6)
  local sorted_valid = e:emit("GreaterOrEqual",
    { emit_column(e, data, 1), emit_number(e, p.threshold) })
  data = e:emit("Where", { sorted_valid, data, emit_number(e, -1) })
  if p.nms_threshold <= 0 or p.nms_threshold > 1 then
    return data
  end
  local own = e:emit("Slice", { data, e:ints{ 2 }, e:ints{ 6 }, e:ints{ 2 } })
  local key = e:emit("Transpose", { emit_column(e, data, 1) }, { perm = { 0, 2, 1 } })
  local mask = mark_kept(e, own, key, emit_column(e, data, 0), { batch, count }, p.nms_threshold,
    p.threshold, p.force_suppress)
  class = e:emit("Where", { last(mask), emit_column(e, data, 0), emit_number(e, -1) })
  return e:emit("Concat", { class, e:emit("Slice", { data, e:ints{ 1 }, e:ints{ 6 },
    e:ints{ 2 } }) },
    { axis = 2 })
end

function to._contrib_box_nms(e, c)
  local p, s = c.p, e:known(c.shapes[1])
  local rank, width = #s, s[#s]
  if p.topk >= 0 or p.in_format ~= "corner" or p.out_format ~= "corner" or p.background_id >= 0
      or rank < 2 then
    e:refuse("topk, background_id or boxes that are no corners")
  end
  local batch, count = 1, s[rank - 1]
  for i = 1, rank - 2 do
    batch = batch * s[i]
  end
  local data = e:emit("Reshape", { c.inputs[1], e:ints{ batch, count, width } })
  local scores = emit_column(e, data, p.score_index)
  local boxes = e:emit("Slice", { data, e:ints{ p.coord_start }, e:ints{ p.coord_start + 4 },
    e:ints{ 2 } })
  local together = p.force_suppress or p.id_index < 0
  local classes = not together and emit_column(e, data, p.id_index) or nil
  local mask = mark_kept(e, boxes, e:emit("Transpose", { scores }, { perm = { 0, 2, 1 } }), classes,
    { batch, count }, p.overlap_thresh, p.valid_thresh, together)
  mask = e:emit("Unsqueeze", { mask, e:ints{ 2 } })
  local keys = e:emit("Squeeze", { e:emit("Where", { mask, scores, emit_number(e, LOWEST) }),
    e:ints{ 2 } })
  data = e:emit("Where", { mask, data, emit_number(e, -1) })
  data = sort_by_key(e, data, keys, { batch, count }, width)
  return e:emit("Reshape", { data, e:ints(s) })
end

function to._contrib_box_decode(e, c)
  local p = c.p
  if p.format ~= "corner" or p.clip > 0 then
    e:refuse("format = '%s', clip = %g", p.format, p.clip)
  end
  return emit_corners(e, c.inputs[1], c.inputs[2], { p.std0, p.std1, p.std2, p.std3 }, false)
end

return to
