-- Shapes and types of every line of the tables of cases, in all directions: whatever is left out,
-- nothing contradicts what is inferred from everything, and where others say what a shape or a
-- type is, another one is refused. All that is given is set after the operator was first asked,
-- so that it sees its inputs and outputs at once; in a loop its outputs are known first.
local ty = require "tycho"
local attrs = require "tycho.core.attrs"
local trials = require "spec.support.trials"
require "spec.helper"

-- the smallest and the largest shapes
local TRIALS = (os.getenv("SANITIZER") or "") ~= "" and 1 or 2

-- slots whose shape or type follows from others only where nothing is said of them: also right is
local ALSO = {
  shape = {
    LeakyReLU = {in_gamma = "(1, 1) for (1): of one element"},
    FullyConnected = {in_bias = "(n, 1) for (n)"},
    _contrib_quantized_fully_connected = {in_bias = "(n, 1) for (n)"},
    pick = {in_index = "with the axis that goes"},
    LinearRegressionOutput = {in_label = "(n) for (n, 1)"},
    LogisticRegressionOutput = {in_label = "(n) for (n, 1)"},
    MAERegressionOutput = {in_label = "(n) for (n, 1)"},
  },
  dtype = {
    SequenceMask = {in_sequence_length = "any type"},
    SequenceReverse = {in_sequence_length = "any type"},
    SequenceLast = {in_sequence_length = "any type"},
    broadcast_like = {in_rhs = "any type: only its shape is read"},
    reshape_like = {in_rhs = "any type: only its shape is read"},
    slice_like = {in_shape_like = "any type: only its shape is read"},
    softmax_cross_entropy = {in_label = "any type"},
    CTCLoss = {in_label = "any type"},
    _contrib_rotary_embedding = {in_offset = "any type"},
    _contrib_attention = {in_valid_length = "any type", in_offset = "any type", in_mask = "any type"},
    _contrib_linear_cross_entropy = {in_label = "any type"},
    SoftmaxOutput = {in_label = "any type"},
    SVMOutput = {in_label = "any type"},
    LinearRegressionOutput = {in_label = "any type"},
    LogisticRegressionOutput = {in_label = "any type"},
    MAERegressionOutput = {in_label = "any type"},
  },
}

-- a parameter says the type that an input has until another one is given, which is too late
-- here
local FIRST_TYPE = {Embedding = true, _contrib_SparseEmbedding = true, batch_take = true}

-- shapes and dtypes: how they are asked for, and what others than the right ones are
local SHAPES = {
  name = "shape", method = "infer_shape_partial", codes = {shape = true, value = true},
}
local TYPES = {name = "dtype", method = "infer_type_partial", codes = {dtype = true}}

-- Returns the operator's outputs; inputs: by the names of make.
local function make_outputs(line, params, inputs)
  local options = {name = "op"}
  for k, v in pairs(params) do options[k] = v end
  for k, v in pairs(inputs) do options[k] = v end
  local y, list = line.build and line.build(inputs, params) or ty.sym[line[1]](options), {}
  local n = #y:list_outputs()
  for k = 1, n do list[k] = n > 1 and y[k] or y end
  return list
end

-- Returns the slots of an operator, its inputs and outputs, each with its name and expression.
local function make_slots(line, case)
  local slots, inputs = {}, {}
  local function add(name, expression, key)
    local slot = {name = name, expression = expression, key = key, also = {}}
    for kind, list in pairs(ALSO) do slot.also[kind] = list[line[1]] and list[line[1]][name] end
    slots[#slots + 1] = slot
    return expression
  end
  for _, key in ipairs(attrs.keys(case.inputs)) do
    inputs[key] = add("in_" .. key, ty.sym.Variable("in_" .. key), key)
  end
  for k, y in ipairs(make_outputs(line, case.params, inputs)) do add("output " .. k, y) end
  return slots
end

-- Returns a network of the operator and, for each slot, a sum with a variable whose shape or type
-- the slot then has.
local function network(slots)
  local sums = {}
  for k = #slots, 1, -1 do
    local slot = slots[k]
    slot.witness, slot.at = "tell " .. k, #sums + 1
    sums[slot.at] = ty.sym.elemwise_add{slot.expression, ty.sym.Variable(slot.witness)}
  end
  return ty.sym.Group(sums)
end

-- Returns what is inferred of each slot if some are known, {[k] = shape or type}.
local function ask(kind, net, slots, seeds)
  local given = {}
  for k, v in pairs(seeds) do given[slots[k].witness] = v end
  local _, out = net[kind.method](net, given)
  local found = {}
  for k, slot in ipairs(slots) do found[k] = out[slot.at] end
  return found
end

local function text(v)
  return type(v) == "table" and "(" .. table.concat(v, ", ") .. ")" or tostring(v)
end

-- Returns whether the known dimensions of v are those of `full`.
function SHAPES.agrees(full, v)
  if #v == 0 then return true end
  for i, d in ipairs(v) do
    if d ~= 0 and d ~= full[i] then return false end
  end
  return #v == #full
end

-- Returns whether what is known of v excludes that it is `other`.
function SHAPES.excludes(v, other)
  return #v > 0 and (#v ~= #other or not SHAPES.agrees(other, v))
end

function SHAPES.others(full)
  local list = {{unpack(full)}}
  list[1][#full + 1] = 1
  for i, d in ipairs(full) do
    local one = {unpack(full)}
    one[i] = d + 1
    list[#list + 1] = one
  end
  return list
end

-- Returns shapes with less information than `full`: without the size along one axis each.
function SHAPES.less(full)
  local list = {}
  for i in ipairs(full) do
    local one = {unpack(full)}
    one[i] = 0
    list[i] = one
  end
  return list
end

function TYPES.agrees(full, v) return v == ty.null or v == full end
function TYPES.excludes(v, other) return v ~= ty.null and v ~= other end
function TYPES.others(full)
  return {full == "int32" and "float64" or "int32", full == "float16" and "bool" or "float16"}
end
function TYPES.less() return {} end

local function check_agrees(kind, what, slots, full, found)
  for k, slot in ipairs(slots) do
    if not slot.also[kind.name] and not kind.agrees(full[k], found[k]) then
      error(("%s: %s is %s, but %s"):format(what, slot.name, text(full[k]), text(found[k])), 0)
    end
  end
end

local function without(full, k)
  local seeds = {}
  for i, v in pairs(full) do if i ~= k then seeds[i] = v end end
  return seeds
end

local function check_less(kind, net, slots, full)
  check_agrees(kind, "nothing seeds", slots, full, ask(kind, net, slots, {}))
  for k, slot in ipairs(slots) do
    check_agrees(kind, slot.name .. " alone", slots, full, ask(kind, net, slots, {[k] = full[k]}))
    for _, less in ipairs(kind.less(full[k])) do
      local seeds = without(full, k)
      local what = slot.name .. " " .. text(less)
      check_agrees(kind, what .. " alone", slots, full, ask(kind, net, slots, {[k] = less}))
      seeds[k] = less
      check_agrees(kind, what, slots, full, ask(kind, net, slots, seeds))
    end
  end
end

-- Raises an error unless the error of a wrong slot names the operator, and its name in the network.
local function check_error(kind, line, what, e)
  local good = ty.is_error(e) and kind.codes[e.code]
      and (line.build or e.node == "op" or e.message:find(" op: ", 1, true)
        or e.node:find("^elemwise_add"))
  if not good then error(what .. ": " .. tostring(e), 0) end
end

local function check_others(kind, line, net, slots, full)
  for k, slot in ipairs(slots) do
    local seeds = without(full, k)
    local found = ask(kind, net, slots, seeds)
    check_agrees(kind, "without " .. slot.name, slots, full, found)
    for _, other in ipairs(kind.others(full[k])) do
      seeds[k] = other
      local what = ("%s is %s, not %s"):format(slot.name, text(full[k]), text(other))
      local ok, e = pcall(ask, kind, net, slots, seeds)
      if not ok then
        check_error(kind, line, what, e)
      elseif not slot.also[kind.name] and kind.excludes(found[k], other) then
        error(what .. ": not refused", 0)
      end
    end
  end
end

-- -- outputs that are known first ---------------------------------------------------------------

-- Returns the operator in a loop: its inputs and one of its outputs are the loop's states, so that
-- this output is known before the operator is asked.
local function loop(line, case, slots, at)
  local states, first = {}, 0
  for k, slot in ipairs(slots) do
    if slot.key then first, states[k] = k, ty.sym.Variable("state " .. k) end
  end
  states[first + 1] = ty.sym.Variable("state " .. at)
  local _, last = ty.sym.contrib.foreach(function(d, now)
    local inputs, after = {}, {}
    for k = 1, first do inputs[slots[k].key], after[k] = now[k], now[k] end
    after[first + 1] = make_outputs(line, case.params, inputs)[at - first]
    return d, after
  end, ty.sym.Variable("rows"), states)
  return last[first + 1]
end

local function ask_loop(kind, net, seeds)
  local given = {}
  for k, v in pairs(seeds) do given["state " .. k] = v end
  local _, out = net[kind.method](net, given)
  return out[1]
end

local function check_output(kind, line, case, slots, full, k)
  local net, seeds, name = loop(line, case, slots, k), {}, slots[k].name
  for i, slot in ipairs(slots) do seeds[i] = slot.key and full[i] or nil end
  local found = ask_loop(kind, net, seeds)
  for what, v in pairs{without = found, alone = ask_loop(kind, net, {[k] = full[k]})} do
    if not kind.agrees(full[k], v) then
      error(("in a loop, %s, %s: %s, but %s"):format(name, what, text(full[k]), text(v)), 0)
    end
  end
  for _, other in ipairs(kind.others(full[k])) do
    seeds[k] = other
    local what = ("in a loop, %s is %s, not %s"):format(name, text(full[k]), text(other))
    local ok, e = pcall(ask_loop, kind, net, seeds)
    if not ok then
      check_error(kind, line, what, e)
    elseif kind.excludes(found, other) then
      error(what .. ": not refused", 0)
    end
  end
end

local function check(kind, line, case, net, slots, full)
  check_less(kind, net, slots, full)
  check_others(kind, line, net, slots, full)
  for k, slot in ipairs(slots) do
    if not slot.key then check_output(kind, line, case, slots, full, k) end
  end
end

local function check_case(line, case)
  local slots, shapes, types = make_slots(line, case), {}, {}
  local net = network(slots)
  for k, slot in ipairs(slots) do
    if slot.key then
      local x = case.inputs[slot.key]
      shapes[k], types[k] = x.shape, x.dtype
    end
  end
  check(SHAPES, line, case, net, slots, ask(SHAPES, net, slots, shapes))
  if FIRST_TYPE[line[1]] then return end
  check(TYPES, line, case, net, slots, ask(TYPES, net, slots, types))
end

local function trial(line, random, sizes)
  local case = trials.make(line, random, sizes)
  local dtype = line.options and line.options.dtype
  for key, x in pairs(case.inputs) do case.inputs[key] = dtype and x:astype(dtype) or x end
  check_case(line, case)
end

-- Checks a line of spec/operators/cases_shapes.lua.
local function check_line(line)
  local inputs = {}
  for key, shape in pairs(line[2]) do
    inputs[key] = ty.nd.zeros(shape, {dtype = line.types[key]})
  end
  check_case(line, {params = line[3], inputs = inputs})
end

describe("shapes and types in all directions:", function()
  for line, key in trials.lines(require "spec.operators.cases_shapes") do
    it(key, function() check_line(line) end)
  end
end)

for _, name in ipairs{"cases", "cases_values"} do
  describe("shapes and types in all directions, " .. name .. ":", function()
    for line, key in trials.lines(require("spec.operators." .. name)) do
      if not (line.options and line.options.imperative) then
        it(key, function()
          trials.several(line, trials.seed("inference", key), TRIALS, trial)
        end)
      end
    end
  end)
end

describe("an output that is smaller than its padding", function()
  it("gives data no negative size", function()
    for name, case in pairs{
      Convolution = {{kernel = {1, 1}, pad = {3, 3}}, "axis 2 would have -4 elements"},
      Deconvolution = {{kernel = {5, 5}}, "axis 2 would have -2 elements"},
    } do
      local options = case[1]
      options.data, options.num_filter, options.no_bias = ty.sym.Variable("x"), 2, true
      local net = ty.sym[name](options) + ty.sym.Variable("y", {shape = {1, 2, 2, 2}})
      local e = assert.raises("shape", net.infer_shape_partial, net, {x = {0, 3, 0, 0}})
      assert.is_truthy(tostring(e):find(case[2], 1, true), tostring(e))
    end
  end)
end)

describe("sizes whose product does not fit", function()
  local sym, V = ty.sym, ty.sym.Variable
  local function refused(net, shapes, message)
    local e = assert.raises("shape", net.infer_shape_partial, net, shapes)
    assert.equal(message, e.message)
    return e
  end

  it("are refused where they are given, and where they come together", function()
    local long = 2 ^ 40
    local e = refused(sym.Flatten{V"x"}, {x = {0, long, long}},
      "a tensor of shape (?, 1099511627776, 1099511627776) is too large")
    assert.equal("x", e.argument)
    refused(V("x", {shape = {long, long}}) + 1, {},
      "a tensor of shape (1099511627776, 1099511627776) is too large")
    e = refused(V"x" + V"y", {x = {long, 0}, y = {0, long}},
      "rhs: a tensor of shape (1099511627776, 1099511627776) is too large")
    assert.equal("rhs", e.argument)
    assert.equal("elemwise_add", e.op)
  end)

  it("are refused where an operator multiplies them", function()
    local much = "output: 9223372036854775807 elements along axis 0; no machine holds them"
    for _, options in ipairs{{}, {axis = 0}} do
      options[1], options.repeats = V"x", 2 ^ 30
      refused(sym.repeat_(options), {x = {2 ^ 40}}, much)
    end
    refused(sym.contrib.interleaved_matmul_encdec_qk{V"q", V"kv", heads = 2 ^ 62},
      {q = {5, 4, 0}}, much)
    local pieces = sym.SliceChannel{V"x", num_outputs = 2, axis = 0}
    assert.same({2 ^ 41}, pieces:infer_shape_partial{x = {2 ^ 41}}[1])
  end)
end)

describe("what does not depend on an unknown size", function()
  local sym, V = ty.sym, ty.sym.Variable
  local x = V("x")

  -- Returns the first output's shape.
  local function known(net, shapes)
    local _, out = net:infer_shape_partial(shapes)
    return out[1]
  end

  it("is known: pieces of axes", function()
    local long = sym.Concat{V"a", V"b", dim = 0}
    local half = {a = {0, 3}, b = {0, 3}}
    local function cut(first, last)
      return known(sym.slice_axis{long, axis = 0, begin = first, end_ = last or "None"}, half)
    end
    assert.same({1, 3}, cut(0, 1))
    assert.same({4, 3}, cut(2, 6))
    assert.same({2, 3}, cut(-3, -1))
    assert.same({3, 3}, cut(-3))
    assert.same({0, 3}, cut(2))
    assert.same({0, 3}, cut(2, -1))
    local cuts = sym._split_v2{x, indices = {0, 2, 5}, axis = 1}
    local _, pieces = cuts:infer_shape_partial{x = {4, 0}}
    assert.same({{4, 2}, {4, 3}, {4, 0}}, {pieces[1], pieces[2], pieces[3]})
    cuts = sym._split_v2{x, indices = {0}, sections = 2, axis = 1}
    pieces = select(2, cuts:infer_shape_partial{x = {4, 0}})
    assert.same({4, 0}, pieces[1])
  end)

  it("is known: dims of Reshape that are made of others", function()
    assert.same({0, 12}, known(sym.Reshape{x, shape = {0, -1}}, {x = {0, 3, 4}}))
    assert.same({0, 2, 6}, known(sym.Reshape{x, shape = {0, 2, -1}}, {x = {0, 3, 4}}))
    assert.same({6, 0}, known(sym.Reshape{x, shape = {-1, 0}, reverse = true}, {x = {2, 3, 0}}))
    assert.same({2, 0}, known(sym.Reshape{x, shape = {0, -1}}, {x = {2, 3, 0}}))
  end)

  it("is known: dims of nothing at all", function()
    for _, case in ipairs{
      {sym.shape_array{x}, {0}}, {sym.size_array{x}, {1}}, {sym.sum{x}, {1}}, {sym.norm{x}, {1}},
      {sym.max{x}, {1}}, {sym.argmax{x}, {1}}, {sym.cumsum{x}, {0}},
      {sym.topk{x, axis = "None", k = 3}, {3}}, {sym.argsort{x, axis = "None"}, {0}},
      {sym.unravel_index{x, shape = {3, 4}}, {2, 0}},
    } do
      assert.same(case[2], known(case[1], {}), case[1].name)
    end
    assert.is_nil((known(sym.sum{x, keepdims = true}, {}) or {})[1])
  end)
end)
