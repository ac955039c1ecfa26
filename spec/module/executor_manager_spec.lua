-- The older data-parallel layer: shares, buffers of buckets, means over devices.

local ty = require "tycho"

local manager = ty.executor_manager

local function net()
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 1, name = "fc" }
  return ty.sym.LinearRegressionOutput{ data = h, name = "lro" }
end

local function iterator(rows)
  return ty.io.NDArrayIter{ data = ty.nd.ones{ rows, 3 },
    label = { lro_label = ty.nd.zeros{ rows, 1 } }, batch_size = rows }
end

describe("executor_manager", function()
  it("rounds shares half to even and gives the rest to the last device", function()
    assert.are.same({ { 0, 2 }, { 2, 5 } }, manager._split_input_slice(5, { 1, 1 }))
    assert.are.same({ { 0, 4 }, { 4, 7 } }, manager._split_input_slice(7, { 1, 1 }))
    assert.are.same({ { 0, 3 }, { 3, 6 }, { 6, 10 } }, manager._split_input_slice(10, { 1, 1, 1 }))
    assert.raises("value", manager._split_input_slice, 3, { 1, 1, 1, 1 })
  end)

  it("trains on two devices as on one", function()
    local function gradient(devices)
      local it_ = iterator(6)
      local m =
        manager.DataParallelExecutorManager{ symbol = net(), ctx = devices, train_data = it_ }
      m:set_params({ fc_weight = ty.nd.ones{ 1, 3 }, fc_bias = ty.nd.zeros(1) }, {})
      m:load_data_batch(it_:next())
      m:forward(true)
      m:backward()
      local sum = 0
      for _, g in ipairs(m.grad_arrays[1]) do
        sum = sum + g:totable()[1][1]
      end
      return sum
    end
    assert.near(gradient{ ty.cpu(0) }, gradient{ ty.cpu(0), ty.cpu(1) })
  end)

  it("lets a smaller bucket use the first elements of the larger one's buffers", function()
    local shared, names = {}, { "fc_weight", "fc_bias" }
    local large = manager._bind_exec{ net(), ty.cpu(), { data = { 4, 3 }, lro_label = { 4, 1 } },
      names, need_grad = true, shared_data_arrays = shared }
    local small = manager._bind_exec{ net(), ty.cpu(), { data = { 2, 3 }, lro_label = { 2, 1 } },
      names, need_grad = true, shared_data_arrays = shared, base_exec = large }
    assert.is_true(small.arg_dict.data:same_memory(large.arg_dict.data))
    assert.is_true(small.grad_dict.fc_weight:same_memory(large.grad_dict.fc_weight))
    assert.shape({ 2, 3 }, small.arg_dict.data)
  end)

  it("says what is wrong with a batch", function()
    local m = manager
      .DataParallelExecutorManager{ symbol = net(), ctx = ty.cpu(), train_data = iterator(4) }
    assert.raises("state", m.forward, m)
    local short = ty.io.DataBatch{ data = { ty.nd.ones{ 3, 3 } }, label = { ty.nd.zeros{ 3, 1 } } }
    assert.raises("shape", m.load_data_batch, m, short)
  end)
end)
