-- Variables of one name: their gradients are sums or errors, never lost.

local ty = require "tycho"

local function net()
  return ty.sym.Variable("w") * 2 + ty.sym.Variable("w") * 3
end

local function quiet()
  local log = {}
  function log.info() end
  log.warning, log.debug, log.error = log.info, log.info, log.info
  return log
end

describe("two variables of one name", function()
  it("have no common array for gradients that are written", function()
    local w, g = ty.nd.ones{ 2 }, ty.nd.zeros{ 2 }
    for _, options in ipairs{
      { args = { w = w }, args_grad = { w = g } },
      { args = { w = w }, args_grad = { w = g }, grad_req = { w = "write" } },
      { args = { w, w }, args_grad = { g, g } },
      { args = { w, w }, args_grad = { g, g }, grad_req = { "write", "add" } },
      { args = { w, w }, args_grad = { g, g }, grad_req = { "add", "write" } },
      { args = { { "w", w } }, args_grad = { { "w", g } } },
    } do
      options.ctx = ty.cpu()
      local e = assert.raises("name", net().bind, net(), options)
      assert.are.equal("w", e.argument)
      assert.truthy(e.message:find("'w'", 1, true), e.message)
    end
  end)

  it("add to one array, and write to one each", function()
    local w, g, h = ty.nd.ones{ 2 }, ty.nd.zeros{ 2 }, ty.nd.zeros{ 2 }
    local exe = net():bind{ ctx = ty.cpu(), args = { w = w }, args_grad = { w = g },
      grad_req = "add" }
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2 })
    assert.are.same({ 5, 5 }, g:totable())
    exe = net():bind{ ctx = ty.cpu(), args = { w = w }, args_grad = { g, h } }
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2 })
    assert.are.same({ { 2, 2 }, { 3, 3 } }, { g:totable(), h:totable() })
    exe = net():bind{ ctx = ty.cpu(), args = { w = w }, args_grad = { g, ty.null } }
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2 })
    assert.are.same({ 2, 2 }, g:totable())
    assert.are.same({ 5, 5 }, net():bind{ ctx = ty.cpu(), args = { w = w } }:forward()[1]:totable())
    exe = net():simple_bind{ ctx = ty.cpu(), w = { 2 } }
    exe:forward(true)
    exe:backward(ty.nd.ones{ 2 })
    assert.are.same({ { 2, 2 }, { 3, 3 } },
      { exe.grad_arrays[1]:totable(), exe.grad_arrays[2]:totable() })
  end)

  it("are refused by modules and managers, which find arrays by name", function()
    local x = ty.sym.Variable("data")
    local function fc()
      return ty.sym.FullyConnected{ x, ty.sym.Variable("w_weight"), no_bias = true,
        num_hidden = 3 }
    end
    local m = ty.mod.Module{ symbol = fc() + fc(), label_names = {}, logger = quiet() }
    for _, training in ipairs{ true, false } do
      local e = assert.raises("name", m.bind, m, { data_shapes = { { "data", { 2, 4 } } },
        for_training = training })
      assert.are.equal("w_weight", e.argument)
      assert.truthy(e.message:find("'w_weight'", 1, true), e.message)
    end
    local it_ = ty.io.NDArrayIter{ data = ty.nd.ones{ 2, 4 }, batch_size = 2 }
    assert.are.equal("w_weight", assert.raises("name",
      ty.executor_manager.DataParallelExecutorManager,
      { symbol = fc() + fc(), ctx = { ty.cpu() }, train_data = it_ }).argument)
  end)
end)

describe("two variables", function()
  it("have no common array for gradients that are written", function()
    local sum, x, g = ty.sym.Variable("a") + ty.sym.Variable("b"), ty.nd.ones{ 2 }, ty.nd.zeros{ 2 }
    local e = assert.raises("name", sum.bind, sum, { ctx = ty.cpu(), args = { x, x },
      args_grad = { a = g, b = g } })
    assert.truthy(e.message:find("'a' and 'b'", 1, true), e.message)
    sum:bind{ ctx = ty.cpu(), args = { x, x }, args_grad = { a = g, b = g },
      grad_req = { a = "write", b = "null" } }
  end)
end)
