-- The order of sums over ranks, and what need not wait for them.

local comm = require "tycho.kvstore.comm"
local dist = require "tycho.kvstore.dist"
local gate = require "spec.support.gate"
local trace = require "spec.support.trace"
local ty = require "tycho"

-- Calls `run(rank, group, gated)` per rank, who hands `gated` the array that its first message
-- sends; opens the gates after that. The elements of each rank's messages in the order in which
-- they went.
local function record_order(size, run)
  local sizes = {}
  local spans = trace.spans(trace.traced({ profile_all = true }, function()
    local gates = {}
    for r, group in ipairs(comm.group(size)) do
      run(r, group, function(x)
        gates[r] = gate.close(x)
      end)
    end
    for _, open in ipairs(gates) do
      open()
    end
  end))
  for _, span in ipairs(trace.of_category(spans, "comm")) do
    sizes[span.pid] = sizes[span.pid] or {}
    table.insert(sizes[span.pid], span.args.bytes / 4)
  end
  local list = {}
  for _, messages in pairs(sizes) do
    if messages[2] then                                  -- a gate has one
      list[#list + 1] = table.concat(messages, " ")
    end
  end
  return list
end

before_each(gate.watch)
after_each(gate.leave)

describe("of sums over ranks that wait for another one", function()
  local SIZES = { 1000, 2000, 300000, 500 }

  local function make_values(rank, ctx)
    local list = {}
    for i, n in ipairs(SIZES) do
      list[i] = (ty.nd.arange(n, { ctx = ctx }) + rank) / 7
      list[i]:wait_to_read()
    end
    return list
  end

  local function compute_sum(ranks, i)
    local sum = make_values(1)[i]
    for r = 2, ranks do
      sum = sum + make_values(r)[i]
    end
    return sum:totable()
  end

  local function check(priorities, want)
    local sums = {}
    local orders = record_order(3, function(r, group, gated)
      sums[r] = make_values(r, group.context)
      gated(sums[r][1])
      for i, x in ipairs(sums[r]) do
        group:sum({ x }, { priority = priorities[i] })
      end
    end)
    assert.same({ want, want, want }, orders)
    for r = 1, 3 do
      for i, x in ipairs(sums[r]) do
        assert.same(compute_sum(3, i), x:totable())
      end
    end
  end

  it("the one of the highest priority goes first, on all ranks", function()
    check({ -3, -1, -2, 0 }, "500 2000 300000 1000")
  end)

  it("the first one does where they are alike", function()
    check({ 5, 5, 5, 5 }, "1000 2000 300000 500")
  end)

  it("one that needs another one's array comes after it", function()
    local twice = {}
    local orders = record_order(2, function(r, group, gated)
      local x, y = ty.nd.full({ 10 }, r, { ctx = group.context }),
        ty.nd.ones({ 20 }, { ctx = group.context })
      gated(x)
      group:sum{ x }
      group:sum({ y }, { priority = 1 })
      group:sum({ x }, { priority = 2 })
      twice[r] = x
    end)
    assert.same({ "20 10 10", "20 10 10" }, orders)
    assert.equal(6, twice[1][0]:asscalar())
    assert.equal(6, twice[2][9]:asscalar())
  end)

  it("barriers keep their place", function()
    local first, second = unpack(comm.group(2))
    local x = ty.nd.ones({ 3 }, { ctx = first.context })
    local y = ty.nd.ones({ 3 }, { ctx = second.context })
    first:sum{ x }
    first:broadcast({ x }, 1)
    first:sum({ x }, { priority = 9 })
    second:sum{ y }
    second:broadcast({ y }, 1)
    second:sum({ y }, { priority = 9 })
    assert.same({ { 4, 4, 4 }, { 4, 4, 4 } }, { x:totable(), y:totable() })
  end)

  it("a store's pushes go by their priority", function()
    local orders = record_order(2, function(r, group, gated)
      local kv = dist.DistStore("dist_sync", group)
      local values = make_values(r, group.context)
      for i, n in ipairs(SIZES) do
        kv:init(i, ty.nd.zeros{ n })
      end
      gated(values[1])
      for i, x in ipairs(values) do
        kv:pushpull(i, x, { priority = -i % 4 })
      end
    end)
    for _, order in ipairs(orders) do                    -- after what begins with rank 0's values
      assert.equal("1000 2000 300000 500 1000 2000 300000 500", order)
    end
  end)

  it("the front keys of a push go first", function()
    local keys, sizes = { "a", "b", "c" }, { 10, 300000, 270000 }
    local orders = record_order(2, function(_, group, gated)
      local kv, values = dist.DistStore("dist_sync", group), {}
      for i, n in ipairs(sizes) do
        values[i] = ty.nd.ones({ n }, { ctx = group.context })
        kv:init(keys[i], values[i])
        values[i]:wait_to_read()
      end
      gated(values[3])
      kv:push(keys, values)
    end)
    for _, order in ipairs(orders) do
      assert.equal("10 300000 270000 10 300000 270000", order)
    end
  end)
end)

describe("after a sum over ranks", function()
  it("what needs nothing of it goes on, and only that", function()
    local ctx = ty.cpu(3)
    local late, w = ty.nd.ones({ 4 }, { ctx = ctx }), ty.nd.full({ 4 }, 2, { ctx = ctx })
    local v = ty.nd.full({ 4 }, 5, { ctx = ctx })
    ty.nd.waitall()
    local open = gate.close(late)
    local read = late + w                                -- waits, and so does all that needs it
    w:add_(100)
    v:add_(late)
    local seen = v * 2
    local other = ty.nd.full({ 30000 }, 3, { ctx = ctx }) * 7
    assert.equal(21, other[29999]:asscalar())
    open()
    assert.same({ 3, 3, 3, 3 }, read:totable())
    assert.same({ 102, 102, 102, 102 }, w:totable())
    assert.same({ 12, 12, 12, 12 }, seen:totable())
  end)

  local function network()
    local first = ty.sym.BatchNorm{ ty.sym.Variable("data"), name = "bn", fix_gamma = false }
    local x = first
    for i, n in ipairs{ 600, 600, 600 } do
      x = ty.sym.FullyConnected{ x, num_hidden = n, name = "fc" .. i }
      x = ty.sym.Activation{ x, act_type = "relu" }
    end
    return ty.sym.Group{ ty.sym.SoftmaxOutput{ x, name = "softmax" }, ty.sym.BlockGrad{ first } }
  end

  -- Returns a module that has made a step, and its batch. `between` is called after its backward.
  local function stepped(in_backward, between)
    local kv = dist.DistStore("dist_sync", comm.group(1)[1])
    local m = ty.mod.Module(network(), { context = kv._home })
    ty.random.seed(3)
    local batch = ty.io.DataBatch{ data = { ty.nd.random.uniform{ 0, 1, shape = { 4, 600 } } },
      label = { ty.nd.arange(4) } }
    m:bind{ data_shapes = { { "data", { 4, 600 } } },
      label_shapes = { { "softmax_label", { 4 } } } }
    m:init_params{ initializer = ty.init.Xavier() }
    m:init_optimizer{ kvstore = kv, in_backward = in_backward,
      optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
    m:forward_backward(batch)
    between(m)
    m:update()
    return m, batch
  end

  it("the next forward begins, as far as it has its weights", function()
    local open_first, open
    local m, batch = stepped(false, function(m)          -- of four sums, one stays
      ty.nd.waitall()
      local grads = m._exec_group.execs[1].grad_dict
      open_first, open = gate.close(grads.fc3_weight), gate.close(grads.fc2_weight)
    end)
    m:forward(batch, { is_train = true })
    open_first()
    local first = m:get_outputs()[2]:totable()
    open()
    local same, again = stepped(false, function() end)
    same:forward(again, { is_train = true })
    assert.same(same:get_outputs()[2]:totable(), first)
    assert.same(same:get_outputs()[1]:totable(), m:get_outputs()[1]:totable())
    m:backward()
    same:backward()
    m:update()
    same:update()
    local args, want = m:get_params(), same:get_params()
    for name, x in pairs(want) do
      assert.same(x:totable(), args[name]:totable())
    end
  end)
end)
