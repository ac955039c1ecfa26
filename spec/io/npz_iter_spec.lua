-- io.NPZIter: batches across files, order, parts, states; folders that hold something else.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local ty = require "tycho"
require "spec.helper"

-- Writes files of 3, 5 and 2 rows; the data of row i are i and i + 0.5, its label is i.
local function write(path)
  local row = 0
  for k, rows in ipairs{ 3, 5, 2 } do
    local x, y = {}, {}
    for i = 1, rows do
      x[i], y[i] = { row, row + 0.5 }, row
      row = row + 1
    end
    ty.nd.save(("%s/part%d.npz"):format(path, k), { x = ty.nd.array(x), y = ty.nd.array(y) })
  end
  folder.write(path .. "/readme.txt", "no arrays")
  lfs.mkdir(path .. "/more.npz")
end

local NAMES = { data = "x", softmax_label = "y" }

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

local function with_files(f)
  folder.with(function(path)
    write(path)
    f(path, function(options)
      options.path, options.arrays = path, options.arrays or NAMES
      return ty.io.NPZIter(options)
    end)
  end)
end

describe("io.NPZIter", function()
  it("goes across files, and fills the last batch from the beginning", function()
    with_files(function(_, new)
      local it = new{ batch_size = 4 }
      assert.same({ "part1.npz", "part2.npz", "part3.npz" }, it.files)
      assert.equal("DataDesc[data,(4, 2),float32,NCHW]", tostring(it.provide_data[1]))
      assert.equal("DataDesc[softmax_label,(4,),float32,NCHW]", tostring(it.provide_label[1]))
      local want = { "0 1 2 3", "4 5 6 7", "8 9 0 1 pad 2" }
      assert.same(want, read_labels(it))
      assert.is_nil(it:next())
      it:reset()
      assert.same(want, read_labels(it))
      assert.same({ "0 1 2 3", "4 5 6 7" },
        read_labels(new{ batch_size = 4, last_batch_handle = "discard" }))
      assert.same({ "0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 pad 13" },
        read_labels(new{ batch_size = 23 }))
      assert.same({}, read_labels(new{ batch_size = 11, last_batch_handle = "discard" }))
    end)
  end)

  it("shuffles files, and the rows of each", function()
    with_files(function(_, new)
      ty.random.seed(5)
      local it, orders = new{ batch_size = 5, shuffle = true }, {}
      for epoch = 1, 8 do
        local rows = table.concat(read_labels(it), " ")
        orders[epoch] = rows
        local seen = {}
        for row in rows:gmatch("%d+") do
          assert.is_nil(seen[row])
          seen[row] = true
        end
        it:reset()
      end
      assert.are_not.equal(orders[1], orders[2])
      ty.random.seed(5)
      assert.equal(orders[1], table.concat(read_labels(new{ batch_size = 5, shuffle = true }), " "))
    end)
  end)

  it("takes a file for one sample where the option says so", function()
    folder.with(function(path)
      for i = 0, 2 do
        ty.nd.save(("%s/%d.npz"):format(path, i), { data = ty.nd.full({ 2, 2 }, i),
          softmax_label = ty.nd.array{ i } })
      end
      local it = ty.io.NPZIter{ path, 2, whole_files = true }
      assert.same({ 2, 2, 2 }, it.provide_data[1].shape)
      assert.near({ { 0 }, { 1 } }, it:next().label[1])
      assert.equal(1, it:next().pad)
    end)
  end)

  it("gives parts their own files", function()
    with_files(function(_, new)
      local function part(i)
        return read_labels(new{ batch_size = 5, num_parts = 2, part_index = i })
      end
      assert.same({ "0 1 2 8 9" }, part(0))
      assert.same({ "3 4 5 6 7" }, part(1))
      assert.equal("value", assert.raises("value", part, 2).code)
      assert.raises("value", new, { batch_size = 5, num_parts = 4, part_index = 3 })
    end)
  end)

  it("goes on from a state, shuffled too", function()
    with_files(function(_, new)
      for _, shuffle in ipairs{ false, true } do
        local it = new{ batch_size = 3, shuffle = shuffle }
        it:next()
        it:next()
        local state, random = it:state(), ty.random.get_state()
        local rest = read_labels(it)
        local other = new{ batch_size = 3, shuffle = shuffle }
        other:set_state(state)
        ty.random.set_state(random)
        assert.same(rest, read_labels(other))
        assert.raises("value", other.set_state, other, { kind = "NDArrayIter" })
      end
    end)
  end)

  it("trains a module", function()
    with_files(function(_, new)
      local net = ty.sym.LinearRegressionOutput{ ty.sym.FullyConnected{ ty.sym.Variable "data",
        num_hidden = 1, name = "fc" }, name = "lro" }
      local mod = ty.mod.Module{ symbol = net, label_names = { "lro_label" } }
      local it = new{ batch_size = 2, label_names = { "lro_label" },
        arrays = { data = "x", lro_label = "y" } }
      local level = ty.log.level
      ty.log.level = "warning"
      mod:fit{ train_data = it, num_epoch = 30, eval_metric = "mse", optimizer = "adam",
        optimizer_params = { learning_rate = 0.1 } }
      ty.log.level = level
      it:reset()
      assert.truthy(mod:score(it, "mse")[1][2] < 1)
    end)
  end)

  it("has arrays that outlive scopes", function()
    with_files(function(_, new)
      local it = new{ batch_size = 2, shuffle = true }
      for _ = 1, 2 do
        ty.scope(function() assert.truthy(it:next()) end)
      end
      assert.equal(2, it:next().data[1].shape[1])
    end)
  end)

  it("says which file is not like the first", function()
    with_files(function(path, new)
      local function broken(arrays)
        ty.nd.save(path .. "/part2.npz", arrays)
        local it = new{ batch_size = 4 }
        local ok, e = pcall(it.next, it)
        assert.is_false(ok)
        assert.truthy(tostring(e):find("part2.npz", 1, true), tostring(e))
        return e.code
      end
      assert.equal("name", broken{ x = ty.nd.ones{ 2, 2 } })
      assert.equal("shape", broken{ x = ty.nd.ones{ 2, 3 }, y = ty.nd.ones(2) })
      assert.equal("shape", broken{ x = ty.nd.ones{ 2, 2 }, y = ty.nd.ones(3) })
      folder.write(path .. "/part2.npz", "PK\3\4 and no more")
      local it = new{ batch_size = 4 }
      assert.equal(path .. "/part2.npz", assert.raises("format", it.next, it).argument)
      ty.nd.save(path .. "/part2.npz", { x = ty.nd.ones{ 1, 2 }:astype "float64",
        y = ty.nd.ones(1) })
      assert.equal("float32", new{ batch_size = 4 }:next().data[1].dtype)
    end)
  end)

  it("refuses folders and options that give no batches", function()
    with_files(function(path, new)
      assert.raises("io", ty.io.NPZIter, { path .. "/none", 2 })
      assert.raises("value", ty.io.NPZIter, { path .. "/more.npz", 2 })
      assert.raises("name", ty.io.NPZIter, { path, 2 })
      assert.raises("value", new, { batch_size = 0 })
      assert.raises("value", new, { batch_size = 1, data_names = {} })
      assert.raises("value", new, { batch_size = 1, label_names = { "data" } })
      assert.raises("name", new, { batch_size = 1, arrays = { dta = "x" } })
      assert.raises("type", new, { batch_size = 1, arrays = { data = 3 } })
      assert.raises("name", new, { batch_size = 1, shufle = true })
    end)
  end)
end)
