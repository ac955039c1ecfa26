-- Executor:check_numerics: the first node whose output is not finite is reported, with what it
-- read, in forward and backward, of each float type, on each device.

local ty = require "tycho"
require "spec.helper"

local V = ty.sym.Variable

local function bound(net, values, dtype)
  local args, grads = {}, {}
  for name, v in pairs(values) do
    args[name] = ty.nd.array(v, { dtype = dtype })
    grads[name] = ty.nd.zeros(args[name].shape, { dtype = dtype })
  end
  local e = net:bind{ ctx = ty.cpu(), args = args, args_grad = grads }
  e:check_numerics()
  return e, args
end

-- Returns the error of a run, when its outputs are read; false without one.
local function said(e, heads)
  local ok, failure = pcall(function()
    local outputs = e:forward{ is_train = heads ~= nil }
    if heads then
      e:backward(heads)
      for _, g in pairs(e.grad_dict) do
        g:totable()
      end
    end
    for _, y in ipairs(outputs) do
      y:totable()
    end
  end)
  if ok then
    return false
  end
  assert.equal("run", failure.code, tostring(failure))
  local message = failure.message:gsub("%-nan", "nan")   -- a sign is the machine's choice
  return ("%s %s: %s"):format(failure.op, failure.node, message)
end

describe("the search for bad numbers", function()
  it("names the first node, the element and the ranges of what it read", function()
    local nan, inf = 0 / 0, math.huge
    local net = ty.sym.exp{ ty.sym.FullyConnected{ V("x"), V("w"), no_bias = true, num_hidden = 2,
      name = "fc" }, name = "e" }
    for _, dtype in ipairs{ "float32", "float64" } do
      local e, args = bound(net, { x = { { 1, 2 } }, w = { { 1, 0 }, { 3, -1 } } }, dtype)
      assert.is_false(said(e))
      for _, case in ipairs{ { nan, "nan" }, { inf, "inf" }, { -inf, "-inf" } } do
        args.w[1] = ty.nd.array({ 3, case[1] }, { dtype = dtype })
        local message = said(e)
        assert.truthy(message:find("FullyConnected fc: element 1 of its output is "
          .. case[2] .. "; inputs: data in [1, 2], weight in [", 1, true), message)
      end
      args.w[1] = ty.nd.array({ 1000, 1000 }, { dtype = dtype }) -- e overflows
      local message = said(e)
      assert.truthy(message:find("exp e: element 1 of its output is inf; inputs: input 0 overwritten \z
        by the output", 1, true), message)
      args.w[1] = ty.nd.zeros({ 2 }, { dtype = dtype })
      assert.is_false(said(e))
      e:check_numerics(false)
      args.w[1] = ty.nd.array({ 3, nan }, { dtype = dtype })
      assert.is_false(said(e))
    end
  end)

  it("sees gradients", function()
    local net = ty.sym.FullyConnected{ V("x"), V("w"), no_bias = true, num_hidden = 1, name = "fc" }
    local e = bound(net, { x = { { 1, 2 } }, w = { { 3, 4 } } })
    assert.is_false(said(e, { ty.nd.ones{ 1, 1 } }))
    local message = said(e, { ty.nd.full({ 1, 1 }, math.huge) })
    assert.truthy(message:find("_backward_FullyConnected fc_backward: element 0 of its output is \z
      inf; inputs: input in [", 1, true), message)
    net = ty.sym.sqrt{ V("x"), name = "root" }
    e = bound(net, { x = { 4, 0 } })
    assert.is_false(said(e))
    message = said(e, { ty.nd.ones(2) })
    assert.truthy(message:find("root_backward: element 1 of its output is inf; inputs: ", 1, true),
      message)
  end)

  it("leaves out what holds no floats, and says where nothing was read", function()
    local net = ty.sym.Embedding{ V("ids"), V("w"), input_dim = 3, output_dim = 2, name = "rows" }
    local e = net:simple_bind{ ctx = ty.cpu(), ids = { 2 }, w = { 3, 2 },
      type_dict = { ids = "int32", w = "float32" }, grad_req = "null" }
    e:check_numerics()
    e.arg_dict.ids[":"] = 1
    assert.is_false(said(e))
    e.arg_dict.w[1] = 0 / 0
    local message = said(e)
    assert.truthy(message:find("Embedding rows: element 0 of its output is nan; inputs: weight \z
      in [", 1, true), message)
    net = ty.sym._full{ shape = { 2 }, value = math.huge, name = "many" }
    e = net:bind{ ctx = ty.cpu(), args = {} }
    e:check_numerics()
    message = said(e)
    assert.truthy(message:find("_full many: element 0 of its output is inf; inputs: none", 1, true),
      message)
    net = ty.sym.Cast{ V("x"), dtype = "int32" }
    e = bound(net, { x = { 0 / 0, 1 } })
    assert.is_false(said(e))
  end)

  it("finds labels that are no class, in training", function()
    local net = ty.sym.SoftmaxOutput{ V("x"), V("label"), name = "softmax" }
    local e, args = bound(net, { x = { { 1, 2, 3 }, { 3, 2, 1 } }, label = { 0, 2 } })
    assert.is_false(said(e, {}))
    for _, label in ipairs{ 3, -1 } do
      args.label[1] = label
      assert.is_false(said(e))
      local message = said(e, {})
      assert.truthy(message and message:find(("label %d at position 1 is not a class; classes are \z
        counted from 0, expected 0 to 2"):format(label), 1, true), tostring(message))
    end
    args.label[1] = 1
    assert.is_false(said(e, {}))
  end)

  it("finds what one of many fused nodes makes", function()
    local x = V("x")
    for i = 1, 9 do
      x = ty.sym.tanh{ x, name = "t" .. i }
    end
    local e = bound(ty.sym.log{ x - 1, name = "last" }, { x = { 0.5, 1 } })
    local message = said(e)
    assert.truthy(message:find("log last: element 0 of its output is nan; inputs: input 0", 1,
      true), message)
  end)
end)
