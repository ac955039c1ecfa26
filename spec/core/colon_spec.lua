-- A method that is called with a dot where a colon belongs is reported.

local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

describe("a dot where a colon belongs", function()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 4 } }
  local mod = ty.mod.Module{ symbol = net, label_names = {} }

  local layer = ty.gluon.nn.Dense(2)

  local CALLS = {
    ["fit of a module"]   = function() mod.fit{ num_epoch = 1 } end,
    ["bind of a module"]  = function() mod.bind{ data_shapes = {} } end,
    ["inference"]         = function() net.infer_shape{ data = { 3, 4 } } end,
    ["names of a symbol"] = function() net.list_arguments() end,
    ["forward"]           = function() exe.forward(true) end,
    ["backward"]          = function() exe.backward() end,
    ["an operator"]       = function() ty.nd.ones(2).sum() end,
    ["a binary operator"] = function() ty.nd.ones(2).dot() end,
    ["astype"]            = function() ty.nd.ones(2).astype("int32") end,
    ["forward of a block"] = function() layer.forward(ty.nd.ones{ 1, 2 }) end,
    ["summary of a block"] = function() layer.summary(ty.nd.ones{ 1, 2 }) end,
    ["a class"]           = function() ty.gluon.HybridBlock.extend("Net") end,
    ["add"]               = function() ty.gluon.nn.HybridSequential().add(layer) end,
    ["add of a stack"]    = function() ty.gluon.rnn.SequentialRNNCell().add(layer) end,
  }
  for what, call in pairs(CALLS) do
    it("is named: " .. what, function()
      local ok, e = pcall(call)
      assert.is_false(ok)
      assert.truthy(ty.is_error(e) and e.message:find("colon", 1, true), tostring(e))
    end)
  end

  it("is named by the program where Lua itself stops inside the library", function()
    local say = "ty = require 'tycho' "
    local output = shell.tycho(("-e %q"):format(say .. "ty.nd.ones(2).asscalar()"))
    assert.truthy(output:find("methods take a colon", 1, true), output)
    output = shell.tycho(("-e %q"):format(say .. "x = nil; x.y = 1"))
    assert.falsy(output:find("colon", 1, true), output)
  end)
end)
