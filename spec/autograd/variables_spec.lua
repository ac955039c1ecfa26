-- Variables, gradients, what moves values while recording.
local ty = require "tycho"
require "spec.helper"

local autograd, nd = ty.autograd, ty.nd

local function variable(values, options)
  return nd.array(values, options):attach_grad()
end

local function compute_gradient(x, f)
  autograd.record(f):backward()
  return x.grad:totable()
end

describe("attach_grad", function()
  it("returns the array, with a gradient of zeros of its shape, type and device", function()
    for _, dtype in ipairs{ "float32", "float64", "float16", "int32" } do
      local x = nd.array({ { 1, 2 } }, { dtype = dtype, ctx = ty.cpu(1) })
      assert.equal(x, x:attach_grad())
      assert.same({ { 0, 0 } }, x.grad:totable())
      assert.equal(dtype, x.grad.dtype)
      assert.equal(ty.cpu(1), x.grad.context)
    end
    assert.is_nil(nd.array{ 1 }.grad)
  end)

  it("the gradient is the same object until the next one", function()
    local x = variable{ 1, 2 }
    local g = x.grad
    compute_gradient(x, function() return x * 3 end)
    assert.equal(g, x.grad)
    assert.same({ 3, 3 }, g:totable())
    x:attach_grad()
    assert.not_equal(g, x.grad)
    assert.same({ 0, 0 }, x.grad:totable())
  end)

  it("grad cannot be set, but written", function()
    local x = variable{ 1, 2 }
    assert.is_false(pcall(function() x.grad = nd.zeros{ 2 } end))
    x.grad[":"] = 7
    assert.same({ 7, 7 }, x.grad:totable())
    autograd.record(function() x.grad[":"] = 8 end)
    assert.same({ 8, 8 }, x.grad:totable())
  end)

  it("write overwrites once per backward, add adds, null asks for nothing", function()
    local w, a, n = variable{ 2 }, variable({ 2 }), variable({ 2 })
    a:attach_grad{ grad_req = "add" }
    n:attach_grad{ grad_req = "null" }
    assert.is_nil(n.grad)
    for _ = 1, 2 do
      autograd.record(function() return w * w + a * a + n * n + w * a end):backward()
    end
    assert.same({ 6 }, w.grad:totable())
    assert.same({ 12 }, a.grad:totable())
    assert.is_nil(n.grad)
    assert.raises("value", w.attach_grad, w, { grad_req = "often" })
    assert.raises("unsupported", w.attach_grad, w, { stype = "row_sparse" })
  end)

  it("cuts a recorded result from what made it", function()
    local x = variable{ 3 }
    local y, z = autograd.record(function()
      local y = x * x
      y:attach_grad()
      return y, y * 5
    end)
    z:backward()
    assert.same({ 5 }, y.grad:totable())
    assert.same({ 0 }, x.grad:totable())
  end)
end)

describe("mark_variables", function()
  it("gives variables the arrays of their gradients", function()
    local a, b = nd.array{ 1, 2 }, nd.array{ 3, 4 }
    local ga, gb = nd.ones{ 2 }, nd.ones{ 2 }
    autograd.mark_variables({ a, b }, { ga, gb }, { grad_reqs = { "write", "add" } })
    assert.equal(ga, a.grad)
    autograd.record(function() return a * b end):backward()
    assert.same({ 3, 4 }, ga:totable())
    assert.same({ 2, 3 }, gb:totable())
    autograd.mark_variables(a, gb)
    assert.equal(gb, a.grad)
  end)

  it("refuses what does not fit", function()
    local a = nd.array{ 1, 2 }
    assert.raises("shape", autograd.mark_variables, { a }, {})
    assert.raises("shape", autograd.mark_variables, { a }, { nd.ones{ 3 } })
    assert.raises("dtype", autograd.mark_variables, a, nd.ones({ 2 }, { dtype = "float64" }))
    assert.raises("device", autograd.mark_variables, a, nd.ones({ 2 }, { ctx = ty.cpu(2) }))
    assert.raises("value", autograd.mark_variables, a, nd.ones{ 2 }, { grad_reqs = "no" })
    assert.raises("type", autograd.mark_variables, 1, nd.ones{ 2 })
  end)
end)

describe("backward", function()
  it("begins with ones, or with what is given", function()
    local x = variable{ 1, 2 }
    autograd.record(function() return x * x end):backward()
    assert.same({ 2, 4 }, x.grad:totable())
    autograd.record(function() return x * x end):backward(nd.array{ 10, 100 })
    assert.same({ 20, 400 }, x.grad:totable())
  end)

  it("takes several heads; ty.null and false stand for ones", function()
    local x = variable{ 1, 2 }
    local function heads()
      return autograd.record(function() return { x * x, x * 3 } end)
    end
    autograd.backward(heads())
    assert.same({ 5, 7 }, x.grad:totable())
    autograd.backward(heads(), { nd.array{ 10, 10 }, ty.null })
    assert.same({ 23, 43 }, x.grad:totable())
    autograd.backward(heads()[1])
    assert.same({ 2, 4 }, x.grad:totable())
    local y, z = unpack(heads())
    autograd.backward{ y, z, head_grads = { ty.null, ty.null } }
    assert.same({ 5, 7 }, x.grad:totable())
    autograd.backward(heads(), { false, nd.array{ 10, 10 } })
    assert.same({ 32, 34 }, x.grad:totable())
  end)

  it("goes through loops and choices, also where a loop ends early", function()
    local x = variable{ 1, 2 }
    local outputs = autograd.record(function()
      local rows, last = nd.contrib.while_loop(function(i) return i:lt(2) end,
        function(i, a) return a * a, { i + 1, a * x } end, { nd.zeros{ 1 }, x },
        { max_iterations = 4 })
      local chosen = nd.contrib.cond(x:sum():gt(0), function() return x * 5 end,
        function() return x end)
      return { rows, last[2], chosen }
    end)
    assert.near({ { 1, 4 }, { 1, 16 }, { 0, 0 }, { 0, 0 } }, outputs[1])
    autograd.backward(outputs)
    -- x^2 + x^4 + x^3 + 5 x
    assert.near({ 2 + 4 + 3 + 5, 4 + 32 + 12 + 5 }, x.grad)
  end)

  it("adds up where a variable is used many times", function()
    local x = variable{ 3 }
    assert.same({ 2 * 3 + 1 + 4 }, compute_gradient(x, function() return x * x + x + x * 4 end))
  end)

  it("leaves a variable that is not reached", function()
    local x, other = variable{ 3 }, variable{ 4 }
    other.grad[":"] = 9
    compute_gradient(x, function() return x * 2 end)
    assert.same({ 9 }, other.grad:totable())
    assert.is_false(other.fresh_grad)
  end)

  it("of a variable gives the head gradient", function()
    local x = variable{ 3, 4 }
    x:backward(nd.array{ 5, 6 })
    assert.same({ 5, 6 }, x.grad:totable())
    x:backward()
    assert.same({ 1, 1 }, x.grad:totable())
    assert.same({ 1, 1 }, autograd.grad(x, x):totable())
  end)

  it("goes through several record scopes", function()
    local x = variable{ 2 }
    local y = autograd.record(function() return x * x end)
    local z = autograd.record(function() return y * x end)
    z:backward()
    assert.same({ 12 }, x.grad:totable())
  end)

  it("sets fresh_grad; attach_grad clears it", function()
    local x = variable{ 2 }
    assert.is_false(x.fresh_grad)
    compute_gradient(x, function() return x * x end)
    assert.is_true(x.fresh_grad)
    x:attach_grad()
    assert.is_false(x.fresh_grad)
  end)

  it("train_mode is that of the recording", function()
    local x = nd.ones{ 1000 }:attach_grad()
    local y = autograd.record(true, function() return nd.Dropout(x, { p = 0.5 }) end)
    y:backward()
    assert.near(y, x.grad)
    y = autograd.record(false, function() return nd.Dropout(x, { p = 0.5 }) end)
    y:backward{ train_mode = false }
    assert.near(nd.ones{ 1000 }, x.grad)
  end)

  it("runs another time where the graph is kept", function()
    local x = variable({ 2 })
    x:attach_grad{ grad_req = "add" }
    local y = autograd.record(function() return x * x * x end)
    y:backward{ retain_graph = true }
    y:backward()
    assert.same({ 24 }, x.grad:totable())
  end)
end)

describe("grad", function()
  it("returns a list, or one array for one; x.grad stays", function()
    local a, b = variable{ 2 }, variable{ 3 }
    local y = autograd.record(function() return a * a * b end)
    local list = autograd.grad(y, { a, b }, { retain_graph = true })
    assert.same({ 12 }, list[1]:totable())
    assert.same({ 4 }, list[2]:totable())
    assert.same({ 24 }, autograd.grad(y, a, { head_grads = nd.array{ 2 } }):totable())
    assert.same({ 0 }, a.grad:totable())
    assert.is_false(a.fresh_grad)
    assert.raises("state", autograd.grad, y, a)
  end)

  it("returns an array of its own for each place of a variable", function()
    local a, b = variable{ 2 }, variable{ 3 }
    local y = autograd.record(function() return a * a * b end)
    for _, create_graph in ipairs{ false, true } do
      local list = autograd.grad(y, { a, b, a }, { retain_graph = true,
        create_graph = create_graph })
      list[1]:add_(1)
      assert.same({ 13 }, list[1]:totable())
      assert.same({ 4 }, list[2]:totable())
      assert.same({ 12 }, list[3]:totable())
    end
  end)

  it("takes heads of several graphs, and their gradients", function()
    local x = variable{ 2 }
    local y, z = autograd.record(function() return x * x, x * 3 end)
    assert.same({ 4 * 10 + 3 }, autograd.grad({ y, z }, x,
      { head_grads = { nd.array{ 10 }, ty.null } }):totable())
    y, z = autograd.record(function() return x * x, x * 3 end)
    assert.same({ 4 + 3 * 10 }, autograd.grad({ y, z }, x,
      { head_grads = { false, nd.array{ 10 } } }):totable())
  end)

  it("create_graph records; recording need not be on", function()
    local x = variable({ 2 }, { dtype = "float64" })
    local y = autograd.record(function() return x * x * x * x end)
    local values = { 32, 48, 48, 24 }
    for order, want in ipairs(values) do
      y = autograd.grad(y, x, { create_graph = order < #values })
      assert.same({ want }, y:totable())
    end
    assert.is_false(autograd.is_recording())
    assert.same({ 0 }, x.grad:totable())
  end)

  it("create_graph keeps the graph, whose backward is still there", function()
    local x = variable{ 3 }
    local y = autograd.record(function() return x * x end)
    local dx = autograd.grad(y, x, { create_graph = true })
    y:backward{ retain_graph = true }
    dx:backward()
    assert.same({ 2 }, x.grad:totable())
    y:backward()
    assert.same({ 6 }, x.grad:totable())
  end)

  it("results of create_graph are arrays of their own", function()
    local a, b = variable{ 1 }, variable{ 2 }
    local y = autograd.record(function() return a + b end)
    local g = nd.array{ 5 }
    local list = autograd.grad(y, { a, b }, { head_grads = g, create_graph = true })
    assert.is_false(list[1]:same_memory(list[2]))
    assert.is_false(list[1]:same_memory(g))
    assert.same({ 5 }, list[1]:totable())
  end)

  it("create_graph refuses what grad refuses", function()
    local x, other, plain = variable{ 1, 2 }, variable{ 1, 2 }, nd.array{ 1, 2 }
    local function y() return autograd.record(function() return x * x end) end
    local options = { create_graph = true }
    assert.raises("state", autograd.grad, plain, x, options)
    assert.equal("1", assert.raises("value", autograd.grad, y(), other, options).argument)
    assert.equal("2", assert.raises("value", autograd.grad, y(), { x, plain }, options).argument)
    assert.raises("shape", autograd.grad, y(), x, { create_graph = true,
      head_grads = nd.ones{ 3 } })
    assert.raises("dtype", autograd.grad, y(), x, { create_graph = true,
      head_grads = nd.ones({ 2 }, { dtype = "float64" }) })
    local made = y()
    local last = autograd.record(function() return made * 2 end)
    assert.raises("value", autograd.grad, last, made, options)
    assert.raises("value", autograd.grad, last, made)
    local old = y()
    x[":"] = 7
    assert.raises("state", autograd.grad, old, x, options)
    local done = y()
    done:backward()
    assert.raises("state", autograd.grad, done, x, options)
  end)
end)

describe("while recording, values move with their history:", function()
  local MOVES = {
    { "as_in_context", function(x) return x:as_in_context(ty.cpu(1)):as_in_context(x.context) end },
    { "astype", function(x) return x:astype("float64"):astype("float32") end },
    { "copy", function(x) return x:copy() end },
    { "copyto", function(x) return x:copyto(nd.zeros{ 3, 2 }) end },
    { "copyto another device", function(x)
      return x:copyto(nd.zeros({ 3, 2 }, { ctx = ty.cpu(1) })):as_in_context(x.context)
    end },
    { "out =", function(x) return nd.negative(x, { out = nd.zeros{ 3, 2 } }) * -1 end },
    { "z[':'] =", function(x)
      local z = nd.zeros{ 3, 2 }
      z[":"] = x
      return z
    end },
    { "reshape", function(x) return x:reshape{ 2, 3 }:reshape{ 3, 2 } end },
    { "transpose", function(x) return x.T.T end },
    { "expand_dims", function(x) return x:expand_dims{ axis = 0 }:reshape{ 3, 2 } end },
  }
  for _, move in ipairs(MOVES) do
    it(move[1], function()
      local x = nd.array{ { 1, 2 }, { 3, 4 }, { 5, 6 } }:attach_grad()
      local h = nd.array{ { 1, 10 }, { 100, 1000 }, { 3, 7 } }
      local y = autograd.record(function() return move[2](x) end)
      assert.near(x, y)
      y:backward(h)
      assert.near(h, x.grad)
    end)
  end

  local PARTS = {
    { "a row", function(x) return x[1] end, { { 0, 0 }, { 1, 1 }, { 0, 0 } } },
    { "the last row", function(x) return x[-1] end, { { 0, 0 }, { 0, 0 }, { 1, 1 } } },
    { "a slice", function(x) return x["0:2"] end, { { 1, 1 }, { 1, 1 }, { 0, 0 } } },
    { "a row of a slice", function(x) return x["1:3"][1] end, { { 0, 0 }, { 0, 0 }, { 1, 1 } } },
    { "a column", function(x) return x[":,1"] end, { { 0, 1 }, { 0, 1 }, { 0, 1 } } },
    { "steps", function(x) return x["::2"] end, { { 1, 1 }, { 0, 0 }, { 1, 1 } } },
  }
  for _, part in ipairs(PARTS) do
    it(part[1], function()
      local x = nd.array{ { 1, 2 }, { 3, 4 }, { 5, 6 } }:attach_grad()
      autograd.record(function() return part[2](x):sum() end):backward()
      assert.same(part[3], x.grad:totable())
    end)
  end

  it("x[i] is a view, and recorded", function()
    local x = nd.array{ { 1, 2 }, { 3, 4 } }:attach_grad()
    local row, y = autograd.record(function()
      local row = x[0]
      return row, row * row
    end)
    assert.is_true(row:same_memory(x))
    y:backward()
    assert.same({ { 2, 4 }, { 0, 0 } }, x.grad:totable())
  end)

  it("detach and BlockGrad have the values and no history", function()
    local x = variable{ 2 }
    local y = autograd.record(function()
      local d = x:detach()
      assert.is_true(d:same_memory(x))
      return x * d + nd.BlockGrad(x * x) + nd.stop_gradient(x) * x
    end)
    y:backward()
    assert.same({ 4 }, x.grad:totable())
  end)

  it("the gradient has the variable's type and device", function()
    local x = nd.array({ 1, 2 }, { dtype = "float16", ctx = ty.cpu(1) }):attach_grad()
    local y = autograd.record(function()
      local z = x:astype("float32"):as_in_context(ty.cpu(0))
      return z * z
    end)
    y:backward{ retain_graph = true }
    assert.same({ 2, 4 }, x.grad:totable())
    assert.equal("float16", x.grad.dtype)
    local dx = autograd.grad(y, x, { create_graph = true })
    assert.equal("float16", dx.dtype)
    assert.equal(ty.cpu(1), dx.context)
    dx:backward()
    assert.same({ 2, 2 }, x.grad:totable())
  end)
end)
