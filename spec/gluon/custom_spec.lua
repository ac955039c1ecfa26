-- Operators written in Lua on recorded arrays and in hybrid blocks.

local ty = require "tycho"

local autograd, F, gluon, nd = ty.autograd, ty.F, ty.gluon, ty.nd

local Triple = ty.operator.CustomOp:extend("Triple")

local seen                               -- is_train of the last forward

function Triple:forward(is_train, req, ins, outs)
  seen = is_train
  self:assign(outs[1], req[1], ins[1] * 3)
  self:assign(outs[2], req[2], ins[1] + ins[2])
end

-- Writes gradients that are not the derivative, to be distinguished from it.
function Triple:backward(req, heads, _, _, grads)
  self:assign(grads[1], req[1], heads[1] * 5)
  self:assign(grads[2], req[2], heads[2] * 7)
end

local TripleProp = ty.operator.CustomOpProp:extend("TripleProp")

function TripleProp.list_arguments() return { "a", "b" } end
function TripleProp.list_outputs() return { "x", "y" } end
function TripleProp.infer_shape(_, shapes) return shapes, { shapes[1], shapes[1] }, {} end
function TripleProp.create_operator() return Triple() end

ty.operator.register("gluon_spec_triple", TripleProp)


describe("an operator written in Lua", function()
  it("that create_operator does not return is named", function()
    local Nothing = TripleProp:extend("Nothing")
    function Nothing.create_operator() end
    ty.operator.register("gluon_spec_nothing", Nothing)
    local function call(a) return F.Custom{ a, a, op_type = "gluon_spec_nothing" }[1] end
    local net = gluon.nn.HybridLambda(call)
    net:hybridize()
    for _, f in ipairs{ function() call(nd.ones(2)) end, function() net(nd.ones(2)) end,
        function()
          call(ty.sym.Variable "a"):simple_bind{ ctx = ty.cpu(), a = { 2 } }:forward()[1]:totable()
        end } do
      local e = assert.raises("type", f)
      assert.matches("create_operator returned no operator", tostring(e))
    end
  end)

  it("has its own backward as gradient, recorded or hybridized", function()
    local Net = gluon.HybridBlock:extend("Net")
    function Net.forward(_, a, b)
      local r = F.Custom{ a * 1, b, op_type = "gluon_spec_triple" }
      return r[1] + r[2]
    end
    for _, active in ipairs{ false, true } do
      local net, a, b = Net(), nd.array{ 1, 2 }, nd.array{ 3, 4 }
      net:hybridize(active)
      a:attach_grad()
      b:attach_grad()
      local y = autograd.record(function() return net(a, b) end)
      assert.is_true(seen)
      y:backward()
      assert.near({ 7, 12 }, y)
      assert.near({ 5, 5 }, a.grad)
      assert.near({ 7, 7 }, b.grad)
      assert.near({ 7, 12 }, net(a, b))
      assert.is_false(seen)
    end
  end)
end)
