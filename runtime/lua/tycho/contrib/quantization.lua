--- Quantization of networks to 8-bit integers, for inference.
--
--     local q, args, auxs = ty.contrib.quantization.quantize_model{ sym = net, arg_params = args,
--       aux_params = auxs, calib_mode = "entropy", calib_data = iter, num_calib_examples = 500 }
--     local q, params = ty.contrib.quantization.quantize_dynamic(net, params)
--
-- A FullyConnected or Convolution whose weight is a parameter is replaced by `_contrib_int8_...`.
-- Its weight is int8 with a scale for each output channel; its data is int8 with a scale from
-- calibration, or computed from the data in each run. A BatchNorm after a convolution is folded
-- into the weight. A sum and a relu that follow are computed in the same pass as the product. A
-- result that only such layers read stays in 8 bits.
--
-- @module tycho.contrib.quantization

jit.off(true, true)                                      -- makes graphs: core/iterate.lua

local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local executor = require "tycho.executor.executor"
local namespace = require "tycho.core.namespace"
local nd = require "tycho.ndarray"
local node = require "tycho.symbol.node"
local rewriting = require "tycho.symbol.rewriting"
local tables = require "tycho.core.tables"
local symbol = require "tycho.symbol.symbol"

local is_only_read, new_node, new_parameter, parameter_of, run = rewriting.is_only_read,
  rewriting.operator, rewriting.new_parameter, rewriting.parameter_of, rewriting.run

local quantization = {}

local BINS = 8001                                        -- bins of a histogram, as in the reference
local LEVELS = { int8 = 127, uint8 = 255 }
local INT8 = {
  FullyConnected = "_contrib_int8_fully_connected", Convolution = "_contrib_int8_convolution",
}
local IS_INT8 = { [INT8.FullyConnected] = true, [INT8.Convolution] = true }

local ADDS = { elemwise_add = true, broadcast_add = true, _plus = true, _Plus = true }


-- Graphs ------------------------------------------------------------------------------------------

-- Returns a vector reshaped to `rank` axes, with its elements along the first.
local function align_rows(x, rank)
  local shape = { x.size }
  for i = 2, rank do
    shape[i] = 1
  end
  return x:reshape(shape)
end


-- BatchNorm ---------------------------------------------------------------------------------------

-- Folds a BatchNorm with fixed statistics that follows a Convolution into the convolution's weight
-- and bias. Returns the entries that replace the node, or nil if it stays.
local function fold_norm(g, n)
  if n.op ~= "BatchNorm" or not is_only_read(g, n.inputs[1]) then
    return nil
  end
  local axis = tonumber(n.attrs.axis or 1)
  local before = g.moved(n.inputs[1])[1]
  local w = before.op == "Convolution" and parameter_of(g, before.inputs[2])
  local bias = before.inputs[3] and parameter_of(g, before.inputs[3])
  local statistics = {}
  for i = 2, 5 do
    statistics[i - 1] = not n.inputs[i][1].op
      and (g.params[n.inputs[i][1].name] or g.aux[n.inputs[i][1].name])
  end
  local gamma, beta, mean, var = unpack(statistics)
  if not w or axis ~= 1 or before.inputs[3] and not bias or not (gamma and beta and mean and var)
      or g.readers[n][1] or g.readers[n][2] then
    return nil
  end
  local eps = tonumber(n.attrs.eps or 1e-3)
  local scale = 1 / (var + eps):sqrt()
  if (n.attrs.fix_gamma or "True") == "False" then
    scale = scale * gamma
  end
  local shift = beta - mean * scale
  if bias then
    shift = shift + bias * scale
  end
  return { new_node(g, "Convolution", before.name, node.merged(before.attrs, { no_bias = "False" }),
    { before.inputs[1],
      new_parameter(g, before.inputs[2][1].name .. "_folded", w * align_rows(scale, #w.shape)),
      new_parameter(g, before.name .. "_bias_folded", shift) }) }
end


-- Layers ------------------------------------------------------------------------------------------

-- Returns a weight as int8, and the scale of each row.
local function quantize_weight(w)
  local rows = w:reshape{ w.shape[1], -1 }
  local most = nd.maximum(rows:abs():max{ axis = 1 }, 1e-30)
  local scale = most / 127
  return (w / align_rows(scale, #w.shape)):rint():clip{ a_min = -127, a_max = 127 }:astype "int8",
    scale
end


-- Returns whether all numbers of the parameter w are finite.
local function is_finite(g, w)
  if g.finite[w] == nil then
    g.finite[w] = (w * 0):sum():asscalar() == 0
  end
  return g.finite[w]
end


-- Returns the weight, an array, of a node that can run on 8-bit integers, which have no infinity;
-- nil for others.
local function find_weight(g, n)
  local w = INT8[n.op] and not g.excluded[n.name] and n.inputs[2] and parameter_of(g, n.inputs[2])
  local last = n.op == "Convolution" and n.attrs.layout and n.attrs.layout:find "C$"
  return w and w.dtype == "float32" and not last
    and rewriting.has_large_groups(w.shape, tonumber(n.attrs.num_group or 1)) and is_finite(g, w)
    and w or nil
end


-- Returns the entries of the int8 node that replaces a layer; nil for other nodes.
local function quantize_layer(g, n)
  local w = find_weight(g, n)
  if not w then
    return nil
  end
  local key = n.inputs[2][1].name
  local made = g.weights[key]
  if not made then
    local levels, scale = quantize_weight(w)
    made = { new_parameter(g, key .. "_quantize", levels),
      new_parameter(g, key .. "_scale", scale) }
    g.weights[key] = made
  end
  local threshold = g.threshold(n.inputs[1])
  local inputs = { g.moved(n.inputs[1]), made[1], made[2] }
  if n.inputs[3] then
    inputs[4] = g.moved(n.inputs[3])
  end
  local entry = new_node(g, INT8[n.op], n.name, node.merged(n.attrs,
    { data_scale = threshold and ("%.9g"):format(threshold / 127) or nil }), inputs)
  g.stands_for[entry[1]] = { n, 0 }
  return { entry }
end


-- Returns the int8 node whose output an entry is, if it has no activation and a single reader; nil
-- otherwise.
local function find_layer_before(g, entry)
  local before = g.moved(entry)[1]
  return IS_INT8[before.op] and not before.attrs.act_type and is_only_read(g, entry) and before
    or nil
end


-- Returns a copy of an int8 node that also computes n, its only reader. attrs: what n adds to its
-- attributes; more: a further input, or nil.
local function extend_layer(g, n, before, attrs, more)
  local inputs = tables.copied(before.inputs)
  inputs[#inputs + 1] = more
  local entry = new_node(g, before.op, n.name, node.merged(before.attrs, attrs), inputs)
  g.stands_for[entry[1]] = { n, 0 }
  return { entry }
end


-- Returns what replaces n: if it is a relu, or a sum of two values of one shape, the int8 node
-- before it, extended; else nil.
local function fuse_into(g, n)
  local is_relu = n.op == "relu" or n.op == "Activation" and n.attrs.act_type == "relu"
  if is_relu then
    local before = find_layer_before(g, n.inputs[1])
    return before and extend_layer(g, n, before, { act_type = "relu" })
  elseif ADDS[n.op] and n.inputs[1][1] ~= n.inputs[2][1] then
    for i = 2, 1, -1 do
      local before = find_layer_before(g, n.inputs[i])
      local other = n.inputs[3 - i]
      if before and not before.attrs.with_sum and g.same_shape(n.inputs[i], other) then
        return extend_layer(g, n, before, { with_sum = "True" }, g.moved(other))
      end
    end
  end
end


-- Returns a variable with the shape of its parameter, since int8 layers do not infer it; the
-- variable itself if it has a shape or is not a parameter.
local function describe_variable(g, n)
  local x = not n.attrs.__shape__ and g.params[n.name]
  return x and node.variable(n.name, node.merged(n.attrs,
    { __shape__ = ("(%s,)"):format(table.concat(x.shape, ", ")) })) or n
end


-- Makes each int8 node whose results only int8 nodes read store 8-bit integers.
local function store_levels(g)
  local order = node.walk(g.entries)
  local kind = {}                                        -- node -> {dtype, scale of a level}
  local read = {}                                        -- node -> whether only int8 nodes read it
  local function refuse(entry) read[entry[1]] = false end
  for _, n in ipairs(order) do
    for i, entry in ipairs(n.inputs) do
      local sum = IS_INT8[n.op] and n.attrs.with_sum and i == #n.inputs
      if not IS_INT8[n.op] or i > 1 and not sum then
        refuse(entry)
      elseif read[entry[1]] ~= false then
        read[entry[1]] = true
      end
    end
  end
  for _, entry in ipairs(g.entries) do
    refuse(entry)
  end
  for _, n in ipairs(order) do
    local threshold = IS_INT8[n.op] and read[n] and g.threshold(g.stands_for[n])
    if threshold then
      local dtype = g.dtype ~= "int8" and n.attrs.act_type and "uint8" or "int8"
      kind[n] = { dtype, ("%.9g"):format(threshold / LEVELS[dtype]) }
    end
  end
  g.entries = node.copy(g.entries, function(n, moved)
    if not n.op then
      return { { describe_variable(g, n), 0 } }
    elseif not IS_INT8[n.op] then
      return nil
    end
    local own, data = kind[n], kind[n.inputs[1][1]]
    local more = n.attrs.with_sum and kind[n.inputs[#n.inputs][1]]
    local inputs = {}
    for i, entry in ipairs(n.inputs) do
      inputs[i] = moved(entry)
    end
    return { new_node(g, n.op, n.name, node.merged(n.attrs,
      own and { out_type = own[1], out_scale = own[2] },
      data and { data_scale = data[2] }, more and { sum_scale = more[2] }), inputs) }
  end, order)
end


-- Calibration -------------------------------------------------------------------------------------

-- Returns the threshold of a histogram with the least loss of information.
local function entropy_threshold(hist, edges)
  return nd.contrib.calibrate_entropy{ hist, edges, num_quantized_bins = 255 }[1]:asscalar()
end


-- Raises E(name) unless all arguments and states of a network that calibrates are data, labels or
-- parameters.
local function check_complete(g, net, a)
  local given, missing = tables.positions(a.data_names), {}
  for _, name in ipairs(a.label_names or {}) do
    given[name] = true
  end
  for _, name in ipairs(net:list_arguments()) do
    missing[#missing + 1] = not given[name] and not g.params[name] and name or nil
  end
  local argument = #missing > 0 and "arg_params" or "aux_params"
  for _, name in ipairs(argument == "aux_params" and net:list_auxiliary_states() or {}) do
    missing[#missing + 1] = not g.aux[name] and name or nil
  end
  if #missing > 0 then
    Error.raise{ code = "name", func = g.func, argument = argument, got = "nothing",
      expected = "an array for each parameter that calibration runs with", missing = missing,
      message = ("'%s' lacks %s"):format(argument, table.concat(missing, ", ")) }
  end
end


-- Runs the network over the batches of the calibration data, and calls f(i, array) for entry i of
-- the list in each batch.
local function each_batch(g, entries, a, f)
  local seen, exe = 0, nil
  a.calib_data:reset()
  for batch in a.calib_data do
    if a.num_calib_examples and seen >= a.num_calib_examples then
      break
    end
    if not exe then
      local options = { ctx = a.ctx, grad_req = "null" }
      local net = symbol.Symbol.of(entries)
      local known = tables.positions(net:list_arguments())
      for i, name in ipairs(a.data_names) do
        if known[name] then
          options[name] = batch.data[i].shape
        end
      end
      check_complete(g, net, a)
      exe = executor.simple_bind(net, options)
      exe:copy_params_from(g.params, g.aux, true)
    end
    local inputs = {}
    for i, name in ipairs(a.data_names) do
      if exe.arg_dict[name] then
        inputs[name] = batch.data[i]
      end
    end
    exe:forward(inputs)
    for i, values in ipairs(exe.outputs) do
      f(i, values)
    end
    seen = seen + batch.data[1].shape[1]
  end
  if seen == 0 then
    Error.raise{ code = "value", func = g.func, argument = "calib_data",
      expected = "an iterator with a batch", got = "none", message = "'calib_data' gives no data" }
  end
end


-- Returns the thresholds that calibration finds: node -> output -> magnitude above which values are
-- limited to it.
local function calibrate(g, a)
  local entries, asked = {}, {}
  for _, n in ipairs((node.walk(g.entries))) do
    local entry = n.inputs[1]
    if find_weight(g, n)
        and (not a.calib_layer or a.calib_layer(node.output_name(entry[1], entry[2]))) then
      local of = asked[entry[1]] or {}
      if not of[entry[2]] then
        entries[#entries + 1] = entry
      end
      of[entry[2]], asked[entry[1]] = true, of
    end
  end
  local most, hist, edges = {}, {}, {}
  if #entries == 0 then
    return {}
  end
  each_batch(g, entries, a, function(i, values)
    most[i] = math.max(most[i] or 0, values:abs():max():asscalar())
  end)
  if a.calib_mode == "entropy" then
    each_batch(g, entries, a, function(i, values)
      local top = math.max(most[i], 1e-8)
      local counts, ends = nd.histogram{ values, bins = BINS, range = { -top, top } }
      hist[i] = hist[i] and hist[i] + counts or counts
      edges[i] = ends
    end)
  end
  local thresholds = {}
  for i, entry in ipairs(entries) do
    local of = thresholds[entry[1]] or {}
    local t = hist[i] and entropy_threshold(hist[i]:astype "float32", edges[i]) or most[i]
    of[entry[2]] = t > 0 and t < math.huge and t or nil
    thresholds[entry[1]] = of
  end
  return thresholds
end


-- Public ------------------------------------------------------------------------------------------

-- Begins the rewriting of a network: returns the table g of symbol/rewriting.lua, with the weights
-- that are quantized and, for each new node, the node that it replaces, both empty at first.
local function begin_rewrites(sym, arg_params, aux_params, excluded, func)
  rewriting.warn_of_unknown(sym._entries, excluded, func)
  return { func = func, params = tables.copy(arg_params), aux = aux_params or {},
    excluded = tables.positions(excluded), entries = sym._entries, weights = {}, finite = {},
    stands_for = {} }
end


-- Rewrites the network. Returns the symbol and its parameters. thresholds: result of `calibrate`,
-- {} without calibration; shapes: node -> shapes of its outputs, or nil: no sum is fused.
local function quantize_graph(g, thresholds, shapes)
  function g.threshold(entry)
    local of = entry and thresholds[entry[1]]
    return of and of[entry[2]]
  end
  shapes = shapes or {}
  function g.same_shape(x, y)
    local a, b = shapes[x[1]] and shapes[x[1]][x[2] + 1], shapes[y[1]] and shapes[y[1]][y[2] + 1]
    if x[1].op and not a or not b then
      return false
    end
    return table.concat(a, ",") == table.concat(b, ",")
  end
  run(g, function(_, n) return quantize_layer(g, n) or fuse_into(g, n) end)
  store_levels(g)
  local sym = symbol.Symbol.of(g.entries)
  local known = {}
  for _, name in ipairs(sym:list_arguments()) do
    known[name] = g.params[name]
  end
  return sym, known
end


-- Returns the shapes of all entries of a symbol: node -> list by output.
local function infer_shapes(entries, given)
  local order = node.walk(entries)
  local list, at = {}, {}
  for _, n in ipairs(order) do
    for k = 0, (n.ports.nvisible or 1) - 1 do
      list[#list + 1], at[#at + 1] = { n, k }, n
    end
  end
  local shapes = {}
  local _, outs = symbol.Symbol.of(list):infer_shape_partial(given)
  for i, entry in ipairs(list) do
    local of = shapes[entry[1]] or {}
    of[entry[2] + 1] = outs and outs[i]
    shapes[entry[1]] = of
  end
  return shapes
end


local MODEL = args.form("contrib.quantization.quantize_model", {
  { "sym", "symbol" }, { "arg_params", "dict" }, { "aux_params", "dict?" },
  { "data_names", "list", { "data" } }, { "label_names", "list?" }, { "ctx", "context?" },
  { "excluded_sym_names", "list?" }, { "calib_mode", "text", "entropy" }, { "calib_data", "any?" },
  { "num_calib_examples", "integer?" }, { "calib_layer", "function?" },
  { "quantized_dtype", "text", "int8" }, { "logger", "any?" },
})

local function check_word(func, argument, word, words)
  for _, w in ipairs(words) do
    if w == word then
      return
    end
  end
  Error.raise{ code = "value", func = func, argument = argument,
    expected = Error.choice(words), got = Error.kind(word), candidates = Error.nearest(word, words),
    message = ("bad '%s'"):format(argument) }
end


-- Raises an error for parameters that are not arrays by the names of parameters.
local function check_arrays(given, argument, func)
  for name, x in pairs(given or {}) do
    if type(name) ~= "string" or name:find "^a[ru][gx]:" then
      Error.raise{ code = "name", func = func, argument = argument, got = tostring(name),
        expected = "arrays by the names of parameters",
        message = ("'%s' has the entry '%s'"):format(argument, tostring(name)) }
    elseif not class.is_array(x) then
      Error.raise{ code = "type", func = func, argument = argument, got = Error.kind(x),
        expected = ("an NDArray for '%s'"):format(name), message = ("bad '%s'"):format(argument) }
    end
  end
end


local function gives_batches(data)
  return data.reset and data.next and #data.provide_data > 0
end


-- Raises an error for calibration data that does not give the network's data.
local function check_calibration(a, func)
  if a.calib_mode ~= "none" and not a.calib_data then
    Error.raise{ code = "value", func = func, argument = "calib_data", expected = "an iterator",
      got = "nothing", message = ("calib_mode '%s' needs 'calib_data'"):format(a.calib_mode) }
  elseif a.num_calib_examples and a.num_calib_examples < 1 then
    Error.raise{ code = "value", func = func, argument = "num_calib_examples",
      expected = "at least 1", got = a.num_calib_examples, message = "bad 'num_calib_examples'" }
  elseif not a.calib_data then
    return
  end
  local ok, described = attempt(gives_batches, a.calib_data)
  if not ok or not described then
    Error.raise{ code = "value", func = func, argument = "calib_data",
      expected = "an iterator that describes its batches, such as ty.io.NDArrayIter{...}",
      got = Error.kind(a.calib_data), message = "bad 'calib_data'" }
  end
  local inputs = a.sym:list_arguments()
  local known, given = tables.positions(inputs), #a.calib_data.provide_data
  for _, name in ipairs(a.data_names) do
    if not known[name] then
      Error.raise{ code = "name", func = func, argument = "data_names", got = tostring(name),
        candidates = Error.nearest(tostring(name), inputs),
        message = ("no input of the network is called '%s'"):format(tostring(name)) }
    end
  end
  if #a.data_names > given then
    Error.raise{ code = "value", func = func, argument = "data_names", got = #a.data_names,
      expected = ("at most %d, as 'calib_data' gives"):format(given), message = "too many names" }
  end
end


--- Quantizes a network with its parameters.
--
-- Options: sym; arg_params, aux_params: name -> array; data_names = {"data"}, label_names; ctx =
-- current: the device of the calibration; excluded_sym_names: names of nodes that are not
-- quantized; calib_mode = "entropy" (the threshold with the least loss of information), "naive"
-- (the largest magnitude), or "none" (scales are computed from the data in each run); calib_data:
-- an iterator, needed unless calib_mode is "none", else E(`value`); num_calib_examples: samples
-- that are used, all by default; calib_layer: called with the name of an output, returns false for
-- one that is not to be calibrated; quantized_dtype = "int8", or "auto": results after relu are
-- uint8.
-- @treturn Symbol
-- @treturn table parameters: name -> array
-- @treturn table auxiliary states: name -> array
function quantization.quantize_model(...)
  local a = MODEL(...)
  local func = "contrib.quantization.quantize_model"
  check_word(func, "calib_mode", a.calib_mode, { "none", "naive", "entropy" })
  check_word(func, "quantized_dtype", a.quantized_dtype, { "int8", "uint8", "auto" })
  check_arrays(a.arg_params, "arg_params", func)
  check_arrays(a.aux_params, "aux_params", func)
  check_calibration(a, func)
  a.ctx = a.ctx or context.current_context()
  local g = begin_rewrites(a.sym, a.arg_params, a.aux_params, a.excluded_sym_names, func)
  g.dtype = a.quantized_dtype
  run(g, fold_norm)
  local thresholds = a.calib_mode ~= "none" and calibrate(g, a) or {}
  local shapes = {}
  if a.calib_data then
    local given, known = {}, tables.positions(symbol.Symbol.of(g.entries):list_arguments())
    a.calib_data:reset()
    for i, desc in ipairs(a.calib_data.provide_data) do
      local name = a.data_names[i]
      if known[name] then
        given[name] = desc.shape or desc[2]
      end
    end
    shapes = infer_shapes(g.entries, given)
  end
  local sym, params = quantize_graph(g, thresholds, shapes)
  local aux, kept = {}, tables.positions(sym:list_auxiliary_states())
  for name, x in pairs(a.aux_params or {}) do
    aux[name] = kept[name] and x or nil
  end
  return sym, params, aux
end


local DYNAMIC = args.form("contrib.quantization.quantize_dynamic", {
  { "sym", "symbol" }, { "params", "dict" }, "*", { "excluded_sym_names", "list?" },
})

-- Returns the entries that replace a dot with a matrix of parameters: those of a FullyConnected
-- with the transposed matrix; nil for other nodes.
local function replace_dot(g, n)
  local w = n.op == "dot" and not g.excluded[n.name] and parameter_of(g, n.inputs[2])
  if not w or #w.shape ~= 2 or n.attrs.transpose_a == "True" or n.attrs.transpose_b == "True" then
    return nil
  end
  return { new_node(g, "FullyConnected", n.name,
    { num_hidden = tostring(w.shape[2]), no_bias = "True", flatten = "False" },
    { g.moved(n.inputs[1]), new_parameter(g, n.inputs[2][1].name .. "_turned", w:transpose()) }) }
end


--- Quantizes the products of a network without calibration: FullyConnected, Convolution, and dot
-- with a matrix of parameters. The data between layers stays float32; in each run, each row of a
-- product's data (each image) gets a scale from its own numbers.
-- @tparam Symbol sym
-- @tparam table params name -> array; products whose weight is not among them stay as they are
-- @tparam[opt] table options excluded_sym_names: names of nodes that are not quantized
-- @treturn Symbol
-- @treturn table parameters: name -> array
function quantization.quantize_dynamic(...)
  local a = DYNAMIC(...)
  local func = "contrib.quantization.quantize_dynamic"
  check_arrays(a.params, "params", func)
  local g = begin_rewrites(a.sym, a.params, nil, a.excluded_sym_names, func)
  local aux = tables.positions(a.sym:list_auxiliary_states())
  run(g, replace_dot)
  local sym, params = quantize_graph(g, {}, nil)
  for name in pairs(aux) do
    params[name] = a.params[name]
  end
  return sym, params
end


return namespace.close(quantization, "contrib.quantization", "function")
