-- FeedForward: predictions of iterators with and without labels.

local ty = require "tycho"
local folder = require "spec.support.folder"

local function classifier()
  local fc = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
  return ty.sym.SoftmaxOutput{ fc, name = "softmax" }
end

local PARAMS = { fc_weight = ty.nd.array{ { 1, 0 }, { 0, 1 } }, fc_bias = ty.nd.zeros{ 2 } }

local function network(net)
  return ty.model.FeedForward{ symbol = net or classifier(), arg_params = PARAMS, num_epoch = 1 }
end

local X = ty.nd.array{ { 3, 0 }, { 0, 3 }, { 3, 0 } }
local CLASSES = { 0, 1, 0 }

local function check(outputs)
  assert.are.same(CLASSES, outputs:argmax{ axis = 1 }:totable())
end

describe("FeedForward", function()
  it("predicts whatever the iterator calls its labels, and without any", function()
    for _, name in ipairs{ "softmax_label", "target" } do
      for _, label in ipairs{ ty.nd.array(CLASSES), ty.nd.zeros{ 3, 5 } } do
        check(network():predict(ty.io.NDArrayIter{ data = X, label = label, batch_size = 2,
          label_name = name }))
      end
    end
    check(network():predict(ty.io.NDArrayIter{ data = X, batch_size = 2 }))
    check(network():predict(X))
  end)

  it("predicts a file of numbers without labels", function()
    folder.with(function(path)
      folder.write(path .. "/x.csv", "3,0\n0,3\n3,0\n")
      check(network():predict(ty.io.CSVIter{ data_csv = path .. "/x.csv", data_shape = { 2 },
        batch_size = 2 }))
    end)
  end)

  it("is scored with the labels of the batches, whatever they are called", function()
    for _, name in ipairs{ "softmax_label", "target" } do
      assert.are.equal(1, network():score(ty.io.NDArrayIter{ data = X,
        label = ty.nd.array(CLASSES), batch_size = 2, label_name = name }))
    end
  end)

  it("predicts where the label is reshaped inside, if the iterator describes it", function()
    local fc = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
    local net = ty.sym.SoftmaxOutput{ fc, label = ty.sym.Reshape{ ty.sym.Variable("softmax_label"),
      shape = { -1 } }, name = "softmax" }
    check(network(net):predict(ty.io.NDArrayIter{ data = X, label = ty.nd.zeros{ 3, 1 },
      batch_size = 2 }))
  end)

  it("predicts with a function of a bucket's key", function()
    local f = network(function() return classifier() end)
    local it_ = ty.io.NDArrayIter{ data = X, label = ty.nd.array(CLASSES), batch_size = 2,
      label_name = "target" }
    it_.default_bucket_key = 1
    check(f:predict(it_))
    assert.are.equal(1, f:score(it_))
  end)
end)
