-- io.Loader: data sets of gluon as iterators of modules.

local ty = require "tycho"
require "spec.helper"

local gluon = ty.gluon

-- Samples {i, i + 0.5} with label i.
local Numbers = gluon.data.Dataset:extend("Numbers")

function Numbers:init(n) self.n = n end
function Numbers:len() return self.n end
function Numbers.get(_, i) return ty.nd.array{ i, i + 0.5 }, i end

local function read_labels(it)
  local list = {}
  for batch in it do
    local text = table.concat(batch.label[1]:totable(), " ")
    list[#list + 1] = batch.pad > 0 and text .. " pad " .. batch.pad or text
    assert.near(batch.label[1], batch.data[1]:slice_axis{ axis = 1, begin = 0, end_ = 1 }
      :reshape{ -1 }, 0)
  end
  return list
end

describe("io.Loader", function()
  it("gives batches of one size, with any number of workers", function()
    for _, workers in ipairs{ 0, 2 } do
      local it = ty.io.Loader{ Numbers(8), 3, workers = workers }
      assert.same({ 3, 2 }, it.provide_data[1].shape)
      assert.same({ 3 }, it.provide_label[1].shape)
      assert.equal("float32", it.provide_label[1].dtype)
      local want = { "0 1 2", "3 4 5", "6 7 6 pad 1" }
      it:reset()
      assert.same(want, read_labels(it))
      assert.is_nil(it:next())
      it:reset()
      assert.same(want, read_labels(it))
      assert.same({ "0 1 2", "3 4 5" }, read_labels(ty.io.Loader{ Numbers(8), 3, workers = workers,
        last_batch_handle = "discard" }))
    end
    assert.same({ "0 0 0 pad 2" }, read_labels(ty.io.Loader{ Numbers(1), 3 }))
  end)

  it("shuffles anew in each epoch", function()
    ty.random.seed(4)
    local it, seen = ty.io.Loader{ Numbers(30), 30, shuffle = true }, {}
    for epoch = 1, 3 do
      seen[epoch] = read_labels(it)[1]
      it:reset()
    end
    assert.are_not.equal(seen[1], seen[2])
    assert.are_not.equal(seen[2], seen[3])
  end)

  it("reads arrays that are there", function()
    local set = gluon.data.ArrayDataset(ty.nd.ones{ 4, 2 }:astype "uint8", ty.nd.arange{ 4 })
    local it = ty.io.Loader{ set, 2, dtype = "float16" }
    local batch = it:next()
    assert.equal("float16", batch.data[1].dtype)
    assert.near({ 0, 1 }, batch.label[1])
  end)

  it("trains a module", function()
    local net = ty.sym.LinearRegressionOutput{ ty.sym.FullyConnected{ ty.sym.Variable "data",
      num_hidden = 1, name = "fc" }, name = "lro" }
    local mod = ty.mod.Module{ symbol = net, label_names = { "lro_label" } }
    local it, level = ty.io.Loader{ Numbers(10), 4, workers = 2, shuffle = true,
      label_names = { "lro_label" } }, ty.log.level
    ty.log.level = "warning"
    mod:fit{ train_data = it, num_epoch = 60, eval_metric = "mse", optimizer = "adam",
      optimizer_params = { learning_rate = 0.1 } }
    ty.log.level = level
    assert.truthy(mod:score(it, "mse")[1][2] < 1)
  end)

  it("refuses data sets that give no batches for a module", function()
    assert.raises("type", ty.io.Loader, { 3, 2 })
    assert.raises("value", ty.io.Loader, { Numbers(0), 2 })
    assert.raises("value", ty.io.Loader, { Numbers(1), 2, last_batch_handle = "discard" })
    assert.equal("label_names", assert.raises("value", ty.io.Loader,
      { Numbers(4), 2, label_names = {} }).argument)
    assert.raises("value", ty.io.Loader, { Numbers(4), 2, workers = -1 })
    assert.raises("name", ty.io.Loader, { Numbers(4), 2, num_worker = 1 })
    assert.raises("value", ty.io.Loader, { Numbers(4), 0 })
    assert.raises("unsupported", function() ty.io.Loader{ Numbers(4), 2 }:state() end)
    assert.raises("name", function() return ty.io.Lodder end)
  end)

  it("is found in ty.io, as folders of images are", function()
    assert.equal(ty.image.ImageFolderIter, ty.io.ImageFolderIter)
    assert.is_true(ty.is_a(ty.io.Loader{ Numbers(4), 2 }, ty.io.DataIter))
  end)
end)
