-- Calls that Ctrl-C stops between the blocks of their work: what they write has no value until it
-- is written again, what is changed in place is whole, what is kept for later calls is right.

local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"
local device = require "spec.support.device"
local ty = require "tycho"

local C, nd = native.C, ty.nd

-- Calls f while an interruption is pending, as between the signal and its handling.
local function interrupted(f)
  C.ty_interrupt(1)
  local ok, e = pcall(f)
  C.ty_interrupt(0)
  return ok, e
end

local function catch_code(f, ...)
  local ok, e = pcall(f, ...)
  return ok and "none" or e.code
end

local function ones(...)
  local x = nd.ones{ ... }
  x:wait_to_read()
  return x
end

local function positive(n)
  local x = nd.eye{ n } * n + nd.ones{ n, n }
  x:wait_to_read()
  return x
end

-- Calls that are cut up: a function that makes the arguments and returns the call.
local CALLS = {
  dot = function()
    local x = ones(400, 400)
    return function() return nd.dot{ x, x } end
  end,
  ["dot, transposed"] = function()
    local x = ones(400, 400)
    return function() return nd.dot{ x, x, transpose_b = true } end
  end,
  ["dot of rows"] = function()
    local x, y = ones(2, 40000), ones(600, 40000)
    return function() return nd.dot{ x, y, transpose_b = true } end
  end,
  ["dot, float64"] = function()
    local x = ones(300, 300):astype("float64")
    return function() return nd.dot{ x, x } end
  end,
  ["dot, float16"] = function()
    local x = ones(300, 300):astype("float16")
    return function() return nd.dot{ x, x } end
  end,
  batch_dot = function()
    local x = ones(40, 100, 100)
    return function() return nd.batch_dot{ x, x } end
  end,
  ["batch_dot, large"] = function()
    local x = ones(3, 400, 400)
    return function() return nd.batch_dot{ x, x } end
  end,
  FullyConnected = function()
    local x, w = ones(300, 400), ones(200, 400)
    return function()
      return nd.FullyConnected{ x, w, no_bias = true, num_hidden = 200 }
    end
  end,
  ["linalg.gemm2"] = function()
    local x = ones(300, 300)
    return function() return nd.linalg.gemm2{ x, x } end
  end,
  ["Convolution, 3 x 3"] = function()
    local x, w = ones(4, 32, 40, 40), ones(32, 32, 3, 3)
    return function()
      return nd.Convolution{ x, w, no_bias = true, num_filter = 32, kernel = { 3, 3 } }
    end
  end,
  ["Convolution, 5 x 5"] = function()
    local x, w = ones(4, 20, 40, 40), ones(20, 20, 5, 5)
    return function()
      return nd.Convolution{ x, w, no_bias = true, num_filter = 20, kernel = { 5, 5 } }
    end
  end,
  ["Convolution, depthwise"] = function()
    local x, w = ones(4, 32, 60, 60), ones(32, 1, 3, 3)
    return function()
      return nd.Convolution{ x, w, no_bias = true, num_filter = 32, num_group = 32,
        kernel = { 3, 3 } }
    end
  end,
  Deconvolution = function()
    local x, w = ones(4, 16, 30, 30), ones(16, 16, 4, 4)
    return function()
      return nd.Deconvolution{ x, w, no_bias = true, num_filter = 16, kernel = { 4, 4 },
        stride = { 2, 2 } }
    end
  end,
  Pooling = function()
    local x = ones(16, 16, 60, 60)
    return function() return nd.Pooling{ x, kernel = { 3, 3 }, pool_type = "avg" } end
  end,
  sum = function()
    local x = ones(1000, 1000)
    return function() return x:sum() end
  end,
  ["sum of columns"] = function()
    local x = ones(1000, 1000)
    return function() return x:sum{ axis = 0 } end
  end,
  ["argmax"] = function()
    local x = nd.arange(1000000):reshape{ 1000, 1000 }
    x:wait_to_read()
    return function() return nd.argmax{ x, axis = 0 } end
  end,
  cumsum = function()
    local x = ones(1000, 600)
    return function() return nd.cumsum{ x, axis = 0 } end
  end,
  sort = function()
    local x = nd.arange(200000, 0, -1)
    x:wait_to_read()
    return function() return nd.sort{ x } end
  end,
  topk = function()
    local x = nd.arange(200000)
    x:wait_to_read()
    return function() return nd.topk{ x, k = 3, ret_typ = "value" } end
  end,
  ["linalg.potrf"] = function()
    local x = positive(300)
    return function() return nd.linalg.potrf{ x } end
  end,
  ["linalg.potrf of a stack"] = function()
    local x = nd.stack{ positive(60), positive(60), positive(60), axis = 0 }
    return function() return nd.linalg.potrf{ x } end
  end,
  ["linalg.trsm"] = function()
    local x, y = nd.eye{ 200 } * 2, ones(200, 300)
    return function() return nd.linalg.trsm{ x, y } end
  end,
  ["linalg.trmm"] = function()
    local x, y = nd.eye{ 200 } * 2, ones(300, 200)
    return function() return nd.linalg.trmm{ x, y, rightside = true } end
  end,
  RNN = function()
    local x, w, h = ones(20, 16, 64), ones(2 * 64 * 64 + 2 * 64) * 0.001, nd.zeros{ 1, 16, 64 }
    return function()
      return nd.RNN{ x, w, h, state_size = 64, num_layers = 1, mode = "rnn_tanh" }
    end
  end,
  exp = function()
    local x = ones(1000, 1000)
    return function() return x:exp() end
  end,
  im2col = function()
    local x = ones(4, 16, 60, 60)
    return function() return nd.im2col{ x, kernel = { 3, 3 } } end
  end,
}

describe("a call that Ctrl-C stops", function()
  setup(device.leave)                                    -- a launch is not stopped
  teardown(device.come_back)
  for name, make in pairs(CALLS) do
    it("leaves no value: " .. name, function()
      local call = make()
      local want = call():tostring_raw()
      local y
      local _, e = interrupted(function()
        y = call()
        y:wait_to_read()
      end)
      assert.equal("interrupted", type(e) == "table" and e.code or e)
      for _ = 1, 2 do
        local ok, state = pcall(y.totable, y)
        assert.is_false(ok)
        assert.equal("state", state.code)
        assert.is_truthy(tostring(state):find("interrupted, so it has no value", 1, true))
      end
      assert.equal("state", catch_code(function() return (y + 1):totable() end))
      assert.equal(want, call():tostring_raw())
    end)
  end

  it("writes into an array that is given, which counts again when it is written", function()
    local x, out = ones(400, 400), nd.zeros{ 400, 400 }
    interrupted(function() nd.dot{ x, x, out = out } nd.waitall() end)
    assert.equal("state", catch_code(out.totable, out))
    assert.equal("none", catch_code(x.totable, x))
    nd.dot{ x, x, out = out }
    assert.equal(400, out:get(3, 5))
  end)

  it("ends where it changes something in place", function()
    local x, w, g = ones(500, 500), ones(300000), ones(300000)
    local ok = interrupted(function()
      nd.sgd_update{ w, g, lr = 0.5, out = w }
      nd.exp{ x, out = x }
      nd.waitall()
    end)
    assert.is_true(ok)
    assert.near(math.exp(1), x:get(7, 8), 1e-5)
    assert.near(x:min():asscalar(), x:max():asscalar(), 0)
    assert.equal(0.5, w:get(299999))
    assert.equal(w:min():asscalar(), w:max():asscalar())
  end)

  it("in an executor leaves weights and what is packed of them as they were", function()
    local net = ty.sym.Variable("data")
    for i = 1, 3 do
      net = ty.sym.FullyConnected{ data = net, num_hidden = 1500, no_bias = true, name = "f" .. i }
    end
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 1500, 1500 } }
    for _, w in pairs(exe.arg_dict) do
      w[":"] = 0.001
    end
    local function run() return exe:forward{ is_train = true }[1] end
    local want = run():tostring_raw()
    -- some tenths of a second; a busy machine may have done it before the interruption comes
    local y, ok, e
    for _ = 1, 100 do
      y = run()
      ok, e = interrupted(function() y:wait_to_read() end)
      if not ok then break end
    end
    assert.is_false(ok)
    assert.equal("interrupted", type(e) == "table" and e.code or e)
    assert.equal("state", catch_code(y.totable, y))
    assert.near(0.001, exe.arg_dict.f2_weight:min():asscalar(), 1e-9)
    assert.equal(want, run():tostring_raw())
    exe:backward{ nd.ones{ 1500, 1500 } }
    interrupted(function() exe.grad_dict.f1_weight:wait_to_read() end)
    run()
    exe:backward{ nd.ones{ 1500, 1500 } }
    local once = exe.grad_dict.f1_weight:tostring_raw()
    run()
    exe:backward{ nd.ones{ 1500, 1500 } }
    assert.equal(once, exe.grad_dict.f1_weight:tostring_raw())
  end)

  it("at the prompt is over at once, and its array says why it has no value", function()
    local t = terminal.open(shell.program, "TERM=xterm NO_COLOR=1 HOME=/nonexistent TYCHO_HISTORY=")
    t:expect("> ")
    t:line("x = ty.nd.ones{4000, 4000} y = ty.nd.zeros{4000, 4000}")
    t:line("x:sum():asscalar() + y:sum():asscalar()", "16000000")
    t:line("for i = 1, 60 do ty.nd.dot{x, x, out = y} end")   -- a minute
    t:send("y:wait_to_read()\n")
    t:expect("wait_to_read()")
    os.execute("sleep 0.5")
    local clock = os.time()
    t:send("\3")
    t:expect("interrupted")
    t:expect("> ")
    assert.is_true(os.time() - clock < 10)
    t:send("y:get(0, 0)\n")
    t:expect("was interrupted, so it has no value")
    t:expect("> ")
    t:line("x:get(0, 0)", "1")
    assert.equal(0, t:close())
  end)
end)
