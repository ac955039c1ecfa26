-- Lists of users' have no entry 0 and say so (runtime/lua/tycho/core/list.lua).

local container = require "tycho.ndarray.serialize"
local ty = require "tycho"
require "spec.helper"

describe("entry 0", function()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 4 } }
  local mod = ty.mod.Module{ symbol = net, label_names = {} }
  mod:bind{ data_shapes = { { "data", { 3, 4 } } }, for_training = false }
  mod:init_params()
  mod:forward(ty.io.DataBatch{ data = { ty.nd.ones{ 3, 4 } } })

  local LISTS = {
    shape = ty.nd.ones{ 2, 3 }.shape, outputs = exe.outputs, arg_arrays = exe.arg_arrays,
    grad_arrays = exe.grad_arrays, get_outputs = mod:get_outputs(),
    list_arguments = net:list_arguments(), infer_shape = net:infer_shape{ data = { 3, 4 } },
    ["data of a batch"] = ty.io.DataBatch{ data = { ty.nd.ones(1) } }.data,
  }
  for name, list in pairs(LISTS) do
    it(("of %s is an error that says where lists begin"):format(name), function()
      local e = assert.raises("index", function() return list[0] end)
      assert.truthy(e.message:find("count from 1", 1, true))
      assert.is_nil(list[100])
      assert.not_nil(list[1])
    end)
  end

  it("is an error in what cells, loops, operators and iterators give, as an entry from the end is",
    function()
      local outputs, states = ty.rnn.LSTMCell(3):unroll(2, { inputs = ty.sym.Variable "x" })
      local _, carried = ty.nd.contrib.foreach(function(d, s)
        return d, { s[1] }
      end, ty.nd.ones{ 2, 2 }, { ty.nd.ones(2) })
      for _, list in ipairs{ outputs, states, ty.rnn.GRUCell(3):begin_state(), carried,
          ty.nd.split(ty.nd.ones{ 2, 4 }, { num_outputs = 2 }), ty.nd.ones{ 2, 3 }.shape,
          ty.io.NDArrayIter(ty.nd.ones{ 2, 2 }, nil, 1).provide_data } do
        assert.raises("index", function() return list[0] end)
        local e = assert.raises("index", function() return list[-1] end)
        assert.truthy(e.message:find(("[%d]"):format(#list), 1, true), e.message)
      end
    end)

  it("hinders neither printing nor comparing", function()
    local x = ty.nd.ones{ 2, 3 }
    assert.equal("(2, 3)", tostring(x.shape))
    assert.equal("of (2, 3)", "of " .. x.shape)
    assert.equal("(data, fc_weight, fc_bias)", tostring(net:list_arguments()))
    assert.is_true(x.shape == ty.nd.zeros{ 2, 3 }.shape)
    assert.is_false(x.shape == x:reshape{ 3, 2 }.shape)
    assert.is_false(x.shape == x:reshape{ 2, 3, 1 }.shape)
  end)

  it("leaves such lists plain in all else", function()
    local x = ty.nd.ones{ 2, 3 }
    local shape = x.shape
    assert.same({ 2, 3 }, shape)
    assert.same({ 2, 3 }, ty.nd.zeros(shape).shape)
    shape[1] = 7
    assert.same({ 7, 3 }, ty.nd.zeros{ shape = shape }.shape)
    assert.same({ 2, 3 }, { unpack(ty.nd.ones{ 2, 3 }.shape) })
    assert.same({ 2, 3 }, container.decode(container.encode(x.shape), "spec"))
  end)
end)
