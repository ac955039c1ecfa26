-- training/rnn_cells.json: cells alone and nested, unrolled or by hand: graphs, names,
-- outputs, gradients, weights by gate.

local attrs = require "tycho.core.attrs"
local faults = require "spec.support.faults"
local json = require "spec.support.json"
local tables = require "spec.support.tables"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local null, value = vectors.null, vectors.value

faults.rnn_cells = {
  fused_dropout_inference = {
    outputs = "the reference drops out in inference too: \z
      a mask over the first layer gives its numbers",
  },
}

-- Cells -------------------------------------------------------------------------------------------

local function make_options(args)
  local options = {}
  for key, v in pairs(value(args) or {}) do
    options[key] = v
  end
  return options
end

local function build(spec)
  if spec.cell == "unfuse" then
    return build(spec.base):unfuse()
  end
  local options = make_options(spec.args)
  options.l_cell, options.r_cell = spec.left and build(spec.left), spec.right and build(spec.right)
  options.base_cell = spec.base and build(spec.base)
  local cell = ty.rnn[spec.cell](options)
  for _, child in ipairs(spec.children or {}) do
    cell:add(build(child))
  end
  return cell
end

-- Unrolling ---------------------------------------------------------------------------------------

local function make_inputs(u)
  if u.inputs == "none" then
    return nil
  elseif u.inputs ~= "list" then
    local data = ty.sym.Variable("data")
    return u.inputs == "merged" and data or ty.sym.split{ data, num_outputs = u.length,
      axis = u.layout:find("T") - 1, squeeze_axis = true }
  end
  local list = {}
  for t = 1, u.length do
    list[t] = ty.sym.Variable(("t%d_data"):format(t - 1))
  end
  return list
end

local function by_hand(cell, inputs)
  local outputs, states = {}, cell:begin_state()
  for t, x in ipairs(inputs) do
    outputs[t], states = cell(x, states)
  end
  return outputs, states
end

local function unroll(cell, u, begin)
  local inputs = make_inputs(u)
  if u.steps then
    return by_hand(cell, inputs)
  end
  return cell:unroll{ length = u.length, inputs = inputs, begin_state = begin, layout = u.layout,
    merge_outputs = value(u.merge_outputs) }
end

local function is_symbol(x)
  return ty.is_a(x, ty.sym.Symbol)
end

local function flatten(list, flat)
  for _, x in ipairs(list) do
    if is_symbol(x) then
      flat[#flat + 1] = x
    else
      flatten(x, flat)
    end
  end
  return flat
end

-- Returns the names of all outputs of a symbol or a list of symbols.
local function list_names(x)
  local names = {}
  for _, s in ipairs(is_symbol(x) and { x } or x) do
    for _, name in ipairs(s:list_outputs()) do
      names[#names + 1] = name
    end
  end
  return names
end

-- What is compared --------------------------------------------------------------------------------

local function graph_facts(result, cell, outputs, states)
  local flat = flatten(states, {})
  local group = ty.sym.Group(flatten({ outputs, states }, {}))
  result.state_info, result.params = cell.state_info, attrs.keys(cell.params._params)
  result.merged, result.output_names, result.state_names =
    is_symbol(outputs), list_names(outputs), list_names(flat)
  result.nested_states = {}
  for i, s in ipairs(states) do
    result.nested_states[i] = is_symbol(s) and null or #s
  end
  result.arguments, result.symbol = group:list_arguments(), json.decode(group:tojson())
  return group
end

local function run(result, world, case, group)
  result.arg_shapes, result.out_shapes = group:infer_shape(make_options(case.shapes))
  local grad_req = value(case.heads) and "write" or "null"
  local exe = group:simple_bind{ ctx = ty.cpu(), grad_req = grad_req,
    shapes = make_options(case.shapes) }
  for name, key in pairs(case.values) do
    exe.arg_dict[name][":"] = world.array(key)
  end
  result.outputs = exe:forward(case.is_train)
  if value(case.heads) then
    local heads = {}
    for i, key in ipairs(case.heads) do
      heads[i] = world.array(key)
    end
    exe:backward(heads)
    result.grads = exe.grad_dict
  end
  return exe
end

local function weights(result, cell, exe)
  local own = {}
  for name in pairs(cell.params._params) do
    own[name] = exe.arg_dict[name]
  end
  result.unpacked, result.packed_again = cell:unpack_weights(own), {}
  for name, x in pairs(cell:pack_weights(result.unpacked)) do
    result.packed_again[name] = x:tostring_raw() == own[name]:tostring_raw()
  end
end

local function run_case(world, case)
  return ty.name.NameManager():with(function()
    local cell, result = build(case.spec), {}
    local begin = case.unroll.begin == "variables"
      and cell:begin_state{ func = ty.sym.Variable } or nil
    result.begin_names = begin and list_names(begin)
    local outputs, states = unroll(cell, case.unroll, begin)
    local exe = run(result, world, case, graph_facts(result, cell, outputs, states))
    if case.expect.unpacked then
      weights(result, cell, exe)
    end
    if faults.of("rnn_cells", case.name, "outputs") then
      result.outputs, case.expect.outputs = nil, nil
    end
    return result
  end)
end

return {
  needs = { "tycho.rnn" },
  define = function()
    local level = ty.log.level
    setup(function() ty.log.level = "error" end)
    local cases, release = tables.cases("rnn_cells", run_case)
    teardown(function()
      ty.log.level = level
      release()
    end)
    for _, row in ipairs(cases) do
      it(row.name, row.run)
    end
  end,
}
