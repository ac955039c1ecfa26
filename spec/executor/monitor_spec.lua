-- What monitors report: nodes are known by what they are, never by what they are called.
local ty = require "tycho"
local trials = require "spec.support.trials"
require "spec.helper"

describe("an executor", function()
  it("takes a variable of the user's that is called like a head gradient", function()
    local x = ty.sym.Variable("_head_grad_0")
    local exe = ty.sym.square{ data = x }:simple_bind{ ctx = ty.cpu(), _head_grad_0 = { 2 } }
    ty.nd.array{ 2, 3 }:copyto(exe.arg_dict._head_grad_0)
    assert.same({ 4, 9 }, exe:forward(true)[1]:totable())
    exe:backward(ty.nd.ones{ 2 })
    assert.same({ 4, 6 }, exe.grad_dict._head_grad_0:totable())
  end)
end)

describe("a monitor", function()
  it("reports a node of the user's that is called like a sum of gradients", function()
    local x = ty.sym.Variable("x")
    local y = ty.sym.square{ data = x, name = "sum_grad_penalty" }
    local exe = y:simple_bind{ ctx = ty.cpu(), x = { 2, 3 } }
    local seen = {}
    exe:set_monitor_callback(function(name) seen[#seen + 1] = name end)
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2, 3 })
    local names = " " .. table.concat(seen, " ") .. " "
    assert.is_truthy(names:find(" sum_grad_penalty_output ", 1, true), names)
  end)

  -- Each step is a task that touches its own arrays, not those of all steps.
  it("walks over 12,000 heads, again after their arguments have changed", function()
    local ctx = ty.cpu(0)                                -- 24,000 allocations are not for a GPU
    local heads, shapes, gradients = {}, { ctx = ctx }, {}
    for i = 1, 12000 do
      heads[i] = ty.sym.square{ ty.sym.Variable("x" .. i), name = "y" .. i }
      shapes["x" .. i], gradients[i] = { 1 }, ty.nd.ones({ 1 }, { ctx = ctx })
    end
    local exe, seen = ty.sym.Group(heads):simple_bind(shapes), 0
    exe:set_monitor_callback(function(name, value)
      seen = seen + 1
      if name == "y7_output" then assert.equal(seen > 12000 and 9 or 4, value:asscalar()) end
    end)
    exe.arg_dict.x7[":"] = 2
    exe:forward(true)
    assert.equal(12000, seen)
    exe.arg_dict.x7[":"] = 3
    exe:forward(true)
    assert.equal(24000, seen)
    exe:backward(gradients)
    assert.equal(6, exe.grad_dict.x7:asscalar())
    assert.equal(0, exe.grad_dict.x12000:asscalar())
  end)
end)

-- Operators of one input, data, whose name the reference declares; that of all others is numbered.
local NAMED = {}
for name in ([[
  Dropout GridGenerator L2Normalization LRN LeakyReLU MakeLoss Pad Pooling Pooling_v1
  SequenceReverse SliceChannel SwapAxis _CrossDeviceCopy _contrib_BilinearResize2D
  _contrib_MultiBoxPrior _contrib_fft _contrib_ifft _contrib_index_array _contrib_quadratic
  _contrib_rotary_embedding _histogram _image_normalize _image_to_tensor
  _ravel_multi_index _split_v2 _unravel_index
  all_finite col2im depth_to_space diag im2col log_softmax moments repeat reverse softmax
  space_to_depth squeeze tile
]]):gmatch("%S+") do NAMED[name] = true end

-- Returns the names of a node's inputs, as a monitor of everything reports them.
local function record_names(symbol, args)
  local exe, names = symbol:bind{ ctx = ty.cpu(), args = args }, {}
  exe:set_monitor_callback(function(name) names[#names + 1] = name end, true)
  exe:forward(false)
  local list = {}
  for _, name in ipairs(names) do
    if name:find("^op_") and not name:find("^op_output") then list[#list + 1] = name end
  end
  return list
end

describe("a monitor of everything", function()
  local seen = {}

  for _, name in ipairs{ "cases", "cases_values" } do
    for line, key in trials.lines(require("spec.operators." .. name)) do
      if not (line.options and line.options.imperative) and not line.build then
        local case = trials.make(line, trials.random(7))
        local own = ty.op.info(line[1]).name
        if next(case.inputs) == "data" and not next(case.inputs, "data")
            and not next(case.aux) then
          seen[own] = true
          it("calls the input as the reference does: " .. key, function()
            local dtype = line.options and line.options.dtype or "float64"
            local names = record_names(case.symbol, { in_data = case.inputs.data:astype(dtype) })
            assert.equal(NAMED[own] and "op_data" or "op_input0", names[1])
          end)
        end
      end
    end
  end

  it("meets all operators whose input has a name", function()
    for name in pairs(NAMED) do assert.is_true(seen[name], name) end
  end)

  it("numbers the inputs of updates of one weight, and names those of many", function()
    local function array(...) return ty.nd.ones{ ... } end
    local V = ty.sym.Variable
    local args = { w = array(2), g = array(2) }
    assert.same({ "op_input0", "op_input1" },
      record_names(ty.sym.sgd_update{ V"w", V"g", lr = 1, name = "op" }, args))
    assert.same({ "op_weight_0", "op_grad_0" }, record_names(ty.sym.multi_sgd_update{ V"w", V"g",
      lrs = { 1 }, wds = { 0 }, num_weights = 1, name = "op" }, args))
  end)
end)
