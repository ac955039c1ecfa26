-- Operators written in Lua (runtime/lua/tycho/op/custom.lua): in executors, in a
-- Module, on arrays, with states, errors.

local ty = require "tycho"

local V = ty.sym.Variable

-- y = a * x + b, written in Lua; counts its calls in an auxiliary state; keeps a in the object.
local Affine, AffineProp = ty.operator.CustomOp:extend("Affine"),
  ty.operator.CustomOpProp:extend("AffineProp")
function Affine:init(scale) self.scale, self.calls = scale, 0 end
function Affine:forward(is_train, req, ins, outs, aux)
  self.calls = self.calls + 1
  self:assign(outs[1], req[1], ty.nd.broadcast_add(ins[1] * self.scale, ins[2]))
  if is_train then
    aux[1][":"] = aux[1] + 1
  end
end
function Affine:backward(req, heads, _, _, grads)
  self:assign(grads[1], req[1], heads[1] * self.scale)
  self:assign(grads[2], req[2], ty.nd.sum{ heads[1], axis = 0 })
end
function AffineProp:init(options)
  AffineProp.super.init(self)
  self.scale = tonumber(options.scale or 1)
end
function AffineProp.list_arguments() return { "data", "bias" } end
function AffineProp.list_auxiliary_states() return { "count" } end
function AffineProp.infer_shape(_, ins) return { ins[1], { ins[1][2] } }, { ins[1] }, { { 1 } } end
function AffineProp:create_operator() return Affine(self.scale) end
ty.operator.register("spec_affine", AffineProp)

-- Two outputs of which the second is the first one's sign.
local Split, SplitProp = ty.operator.CustomOp:extend("Split"),
  ty.operator.CustomOpProp:extend("SplitProp")
function Split:forward(_, req, ins, outs)
  self:assign(outs[1], req[1], ty.nd.abs(ins[1]))
  self:assign(outs[2], req[2], ty.nd.sign(ins[1]))
end
function Split:backward(req, heads, _, outs, grads)
  self:assign(grads[1], req[1], heads[1] * outs[2])
end
function SplitProp.list_outputs() return { "size", "sign" } end
function SplitProp.declare_backward_dependency(_, out_grad, _, out_data)
  return { out_grad[1], out_data[2] }
end
function SplitProp.create_operator() return Split() end
ty.operator.register("spec_split", SplitProp)

local function fails(code, f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  assert.equal(code, e.code, tostring(e))
  return e
end

local function affine(x, options)
  local t = { data = x, op_type = "spec_affine", name = "a" }
  for key, v in pairs(options or {}) do t[key] = v end
  return ty.sym.Custom(t)
end

describe("an operator in Lua", function()
  it("has the names and shapes that its class gives", function()
    local s = affine(V("x"), { scale = 3 })
    assert.same({ "x", "a_bias" }, s:list_arguments())
    assert.same({ "a_count" }, s:list_auxiliary_states())
    assert.same({ "a_output" }, s:list_outputs())
    local args, outs, auxs = s:infer_shape{ x = { 2, 3 } }
    assert.same({ { 2, 3 }, { 3 } }, args)
    assert.same({ { 2, 3 } }, outs)
    assert.same({ { 1 } }, auxs)
    local types = s:infer_type{ x = "float64" }
    assert.same({ "float64", "float64" }, types)
  end)

  it("runs between compiled parts, forward and backward, with its state", function()
    local s = ty.sym.sum(affine(V("x") * 2, { scale = 3 }) + 1)
    local e = s:simple_bind{ ctx = ty.cpu(), x = { 2, 2 } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"], e.aux_dict.a_count[":"] =
      { { 1, 2 }, { 3, 4 } }, { 10, 20 }, 0
    for _ = 1, 3 do
      e:forward(true)
      e:backward(ty.nd.ones(1))
    end
    assert.equal(60 + 60 + 4, e.outputs[1]:asscalar())
    assert.same({ { 6, 6 }, { 6, 6 } }, e.grad_dict.x:totable())
    assert.same({ 2, 2 }, e.grad_dict.a_bias:totable())
    assert.same({ 3 }, e.aux_dict.a_count:totable())
    e:forward(false)
    assert.same({ 3 }, e.aux_dict.a_count:totable())
  end)

  it("has the reference's name for a user's own function as well", function()
    local y = ty.nd._CustomFunction{ ty.nd.array{ -2, 3 }, op_type = "spec_split" }
    assert.same({ 2, 3 }, y[1]:totable())
    assert.same({ -1, 1 }, y[2]:totable())
    local exe = ty.sym._CustomFunction{ V("data"), op_type = "spec_split", name = "own" }[1]
      :simple_bind{ ctx = ty.cpu(), data = { 2 } }
    ty.nd.array{ -2, 3 }:copyto(exe.arg_dict.data)
    exe:forward(true)
    exe:backward(ty.nd.array{ 5, 7 })
    assert.same({ -5, 7 }, exe.grad_dict.data:totable())
  end)

  it("goes backward twice after one forward", function()
    local e = (affine(V("x"), { scale = 2 }) * V("w")):simple_bind{ ctx = ty.cpu(), x = { 1, 2 } }
    e.arg_dict.x[":"], e.arg_dict.w[":"], e.arg_dict.a_bias[":"] = 3, 5, 0
    e:forward(true)
    for _ = 1, 2 do
      e:backward(ty.nd.ones{ 1, 2 })
      assert.same({ { 10, 10 } }, e.grad_dict.x:totable())
      assert.same({ { 6, 6 } }, e.grad_dict.w:totable())
    end
  end)

  it("leaves no old gradient where the forward of a second backward fails", function()
    local net = affine(ty.sym.linalg_potrf(affine(V("x"))), { name = "b" })
    local e = net:simple_bind{ ctx = ty.cpu(), x = { 2, 2 } }
    e.arg_dict.a_bias[":"], e.arg_dict.b_bias[":"] = 0, 0
    e.arg_dict.x[":"] = ty.nd.array{ { 4, 0 }, { 0, 9 } }
    e:forward(true)
    e:backward(ty.nd.ones{ 2, 2 })
    assert.same({ { 2, 0 }, { 0, 3 } }, e.outputs[1]:totable())
    e.arg_dict.x[":"] = ty.nd.array{ { -4, 0 }, { 0, 9 } }
    fails("run", e.backward, e, ty.nd.ones{ 2, 2 })
    fails("run", e.grad_dict.x.totable, e.grad_dict.x)
  end)

  it("writes several outputs and reads what it declared", function()
    local s = ty.sym.Custom{ V("x"), op_type = "spec_split", name = "s" }
    assert.same({ "s_size", "s_sign" }, s:list_outputs())
    local e = s:simple_bind{ ctx = ty.cpu(), x = { 3 } }
    e.arg_dict.x[":"] = { -2, 0, 5 }
    e:forward(true)
    assert.same({ 2, 0, 5 }, e.outputs[1]:totable())
    assert.same({ -1, 0, 1 }, e.outputs[2]:totable())
    e:backward{ ty.nd.array{ 1, 1, 10 }, ty.nd.zeros(3) }
    assert.same({ -1, 0, 10 }, e.grad_dict.x:totable())
  end)

  it("adds gradients, and leaves out unused ones", function()
    for req, want in pairs{ add = { 8, 8 }, write = { 4, 4 } } do
      local e = ty.sym.Custom{ V("x"), op_type = "spec_split" }[1]
        :simple_bind{ ctx = ty.cpu(), x = { 2 }, grad_req = req }
      e.arg_dict.x[":"] = 1
      for _ = 1, 2 do
        e:forward(true)
        e:backward(ty.nd.array{ 4, 4 })
      end
      assert.same(want, e.grad_dict.x:totable())
    end
    local e = affine(V("x"), { scale = 2 }):simple_bind{ ctx = ty.cpu(), x = { 1, 1 },
      grad_req = { x = "write", a_bias = "null" } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"] = 1, 1
    e:forward(true)
    e:backward(ty.nd.ones{ 1, 1 })
    assert.same({ { 2 } }, e.grad_dict.x:totable())
  end)

  it("shows a monitor what it wrote", function()
    local e = (affine(V("x"), { scale = 2 }) + 1):simple_bind{ ctx = ty.cpu(), x = { 1, 1 } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"] = 4, 1
    local seen = {}
    e:set_monitor_callback(function(name, x) seen[name] = x:totable() end)
    e:forward(true)
    e:backward(ty.nd.ones{ 1, 1 })
    assert.same({ { 9 } }, seen.a_output)
    assert.same({ { 2 } }, e.grad_dict.x:totable())
  end)

  it("runs though a monitor failed before it", function()
    local e = affine(V("x") * 2, { scale = 2 }):simple_bind{ ctx = ty.cpu(), x = { 1, 1 } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"] = 4, 1
    e:set_monitor_callback(function() error("no") end)
    assert.has_error(function() e:forward(true) end)
    assert.same({ { 17 } }, e.outputs[1]:totable())
    assert.same({ 1 }, e.aux_dict.a_count:totable())
  end)

  it("takes part in partial_forward", function()
    local e = (affine(V("x"), { scale = 2 }) + 1):simple_bind{ ctx = ty.cpu(), x = { 1, 1 } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"] = 4, 1
    local step = 0
    while e:partial_forward{ step = step } > 0 do step = step + 1 end
    assert.same({ { 10 } }, e.outputs[1]:totable())
  end)

  it("is reshaped with its executor", function()
    local e = affine(V("x"), { scale = 2 }):simple_bind{ ctx = ty.cpu(), x = { 4, 3 } }
    e.arg_dict.a_bias[":"] = 1
    local r = e:reshape{ x = { 2, 3 } }
    r.arg_dict.x[":"] = 5
    r:forward()
    assert.same({ { 11, 11, 11 }, { 11, 11, 11 } }, r.outputs[1]:totable())
  end)

  it("is saved without what its class says, and loaded again", function()
    local s = affine(V("x"), { scale = 2 }) + 1
    local text = s:tojson()
    assert.is_nil(text:find("__custom_", 1, true))
    local again = ty.sym.load_json(text)
    assert.equal(text, again:tojson())
    assert.same({ "x", "a_bias" }, again:list_arguments())
    assert.same({ "a_count" }, again:list_auxiliary_states())
    local e = again:simple_bind{ ctx = ty.cpu(), x = { 1, 1 } }
    e.arg_dict.x[":"], e.arg_dict.a_bias[":"] = 4, 1
    assert.same({ { 10 } }, e:forward()[1]:totable())
  end)

  it("runs on arrays", function()
    local y = ty.nd.Custom{ ty.nd.array{ { 1, 2 } }, ty.nd.array{ 1, 1 }, ty.nd.zeros(1),
      op_type = "spec_affine", scale = 4 }
    assert.same({ { 5, 9 } }, y:totable())
    local named = ty.nd.Custom{ data = ty.nd.ones{ 1, 1 }, bias = ty.nd.ones(1),
      count = ty.nd.zeros(1), op_type = "spec_affine" }
    assert.same({ { 2 } }, named:totable())
  end)

  it("trains in a Module", function()
    local net = ty.sym.FullyConnected{ V("data"), num_hidden = 1, name = "fc" }
    net = affine(net, { scale = 0.5, count = V{ "a_count", init = ty.init.Zero() } })
    net = ty.sym.LinearRegressionOutput{ net, V("label"), name = "out" }
    local x = ty.nd.array{ { 1, 0 }, { 0, 1 }, { 1, 1 }, { 2, 1 } }
    local y = ty.nd.array{ { 3 }, { -1 }, { 1 }, { 4 } }    -- 3 x1 - 2 x2 + ... : fits with a bias
    local iter = ty.io.NDArrayIter{ data = x, label = y, batch_size = 4, label_name = "label" }
    local quiet = { info = function() end, warning = function() end }
    local m = ty.mod.Module{ net, label_names = { "label" }, context = ty.cpu(), logger = quiet }
    m:fit{ iter, num_epoch = 200, optimizer = "sgd", optimizer_params = { learning_rate = 0.5 },
      eval_metric = "mse", initializer = ty.init.Uniform(0.1) }
    assert.is_true(m:score(iter, "mse")[1][2] < 0.1)
    local _, aux = m:get_params()
    assert.equal(200, aux.a_count:asscalar())
  end)
end)

describe("mistakes with an operator in Lua", function()
  it("name need_top_grad where a loss lacks it", function()
    local Loss, LossProp = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
    function Loss:forward(_, req, ins, outs) self:assign(outs[1], req[1], ins[1]) end
    function Loss:backward(req, _, _, outs, grads) self:assign(grads[1], req[1], outs[1] * 2) end
    function LossProp.create_operator() return Loss() end
    ty.operator.register("spec_loss", LossProp)
    local function backward()
      local e = ty.sym.Custom{ V("x"), op_type = "spec_loss" }
        :simple_bind{ ctx = ty.cpu(), x = { 2 } }
      e:forward{ is_train = true, x = ty.nd.array{ 1, 3 } }
      e:backward()
      return e.grad_dict.x:totable()
    end
    assert.matches("need_top_grad = false", tostring(fails("value", backward)))
    LossProp.need_top_grad = false
    assert.same({ 2, 6 }, backward())
  end)

  it("are reported at the call", function()
    assert.matches("spec_affine",
      tostring(fails("name", ty.sym.Custom, { V("x"), op_type = "spec_afine" })))
    assert.matches("op_type", tostring(fails("value", ty.sym.Custom, { V("x") })))
    fails("type", ty.operator.register, "x", {})
  end)

  it("carry the node and the cause", function()
    local Bad, BadProp = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
    function Bad.forward() error("lost") end
    function BadProp.create_operator() return Bad() end
    ty.operator.register("spec_bad", BadProp)
    local e = ty.sym.Custom{ V("x"), op_type = "spec_bad", name = "b" }
      :simple_bind{ ctx = ty.cpu(), x = { 1 } }
    local err = fails("run", function() e:forward() end)
    assert.equal("b", err.node)
    assert.matches("lost", tostring(err.cause))
    local _, times = tostring(err):gsub("lost", "")
    assert.equal(1, times, tostring(err))
    function Bad.forward(_, _, _, ins) return ins[1]:no_such_method() end
    err = fails("run", function() e:forward() end)
    _, times = tostring(err):gsub("accepted, nearest first", "")
    assert.equal(1, times, tostring(err))
    assert.matches("no_such_method", err.message, 1, true)
    Bad.forward = function(self, _, req, ins, outs) self:assign(outs[1], req[1], ins[1]) end
    e.arg_dict.x[":"] = 7
    assert.same({ 7 }, e:forward()[1]:totable())         -- the executor is usable afterwards
  end)

  it("say that their lists count from 1", function()
    local Zero, ZeroProp = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
    function Zero:forward(_, req, ins, outs) self:assign(outs[0], req[0], ins[0]) end
    function ZeroProp.create_operator() return Zero() end
    ty.operator.register("spec_zero", ZeroProp)
    local err = fails("run", function()
      return ty.nd.Custom{ ty.nd.ones(1), op_type = "spec_zero" }
    end)
    assert.matches("count from 1", tostring(err.cause))
  end)

  it("in inference name the method", function()
    local Prop = ty.operator.CustomOpProp:extend()
    function Prop.infer_shape() return {}, {} end
    ty.operator.register("spec_short", Prop)
    local err = fails("value", function()
      return ty.sym.Custom{ V("x"), op_type = "spec_short", name = "q" }:infer_shape{ x = { 1 } }
    end)
    assert.matches("infer_shape", err.message)
    assert.equal("q", err.node)
  end)

  it("keep it out of loops' bodies", function()
    local outs = ty.sym.contrib.foreach(function(d, s)
      return ty.sym.Custom{ d, op_type = "spec_split" }[1] + s, s * 1
    end, V("d"), V("s"))
    fails("unsupported", function() return outs:infer_shape{ d = { 2, 1 }, s = { 1 } } end)
  end)
end)
