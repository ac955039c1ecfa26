-- What needs more than gradients, loss scales and monitors, while sums over ranks are held up and
-- the next forward goes ahead of their updates: the numbers are those of an undisturbed run.

local dist = require "tycho.kvstore.dist"
local gate = require "spec.support.gate"
local LossScale = require "tycho.module.loss_scale"
local ty = require "tycho"

before_each(gate.watch)
after_each(gate.leave)

local function nothing() end

local function network()
  local first = ty.sym.broadcast_mul{ ty.sym.Variable("data"),
    ty.sym.Variable{ "first_weight", shape = { 1, 600 } }, name = "first" }
  local x = first
  for i, n in ipairs{ 600, 600, 600 } do
    x = ty.sym.FullyConnected{ x, num_hidden = n, name = "fc" .. i }
    x = ty.sym.Activation{ x, act_type = "relu", name = "relu" .. i }
  end
  return ty.sym.Group{ ty.sym.SoftmaxOutput{ x, name = "softmax" }, ty.sym.BlockGrad{ first,
    name = "early" } }
end

local function start()
  local kv = dist.DistStore("dist_sync", require("tycho.kvstore.comm").group(1)[1])
  local m = ty.mod.Module(network(), { context = kv._home })
  ty.random.seed(3)
  m:bind{ data_shapes = { { "data", { 4, 600 } } },
    label_shapes = { { "softmax_label", { 4 } } } }
  m:init_params{ initializer = ty.init.Uniform(0.1) }
  m:init_optimizer{ kvstore = kv, optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
  return m, kv
end

local function make_batch(step, factor)
  ty.random.seed(step)
  return ty.io.DataBatch{ label = { ty.nd.arange(4) * step },
    data = { ty.nd.random.uniform{ 0, 1, shape = { 4, 600 } } * (factor or 1) } }
end

-- Updates; of the sums that it sends fc2's stays until the function that this gives is called. The
-- gates are before the store's arrays for sums, so that gradients can be read.
local function update_held(m, kv, update)
  local grads = m._exec_group.execs[1].grad_dict
  local open_first = gate.close(kv:_buffer(kv._entries.fc3_weight, grads.fc3_weight))
  local open = gate.close(kv:_buffer(kv._entries.fc2_weight, grads.fc2_weight))
  update()
  open_first()                                           -- the front goes first
  return open
end

local function list_values(m)
  local list = {}
  for name, x in pairs((m:get_params())) do
    list[name] = x:totable()
  end
  return list
end

describe("a scaled loss while sums over ranks are held up:", function()
  local HUGE = 1e37                                      -- gradients of such data overflow

  -- Runs three steps, the second one with data of that factor. `held`: a sum of each step waits
  -- until the first layer of the next one has run.
  local function train(scale, factor, held)
    local m, kv = start()
    local scaler, open, early = LossScale(scale), nothing, {}
    m:_scale_loss(scaler)
    for step = 1, 3 do
      m:forward(make_batch(step, step == 2 and factor or 1), { is_train = true })
      early[step] = m:get_outputs()[2]:totable()
      open()
      open = nothing
      m:backward()
      if scaler:can_step(m:_gradients()) then
        local function update()
          scaler:divided(m:_updaters(), function() m:update() end)
        end
        open = held and update_held(m, kv, update) or update() or nothing
        scaler:stepped()
      end
    end
    open()
    return { params = list_values(m), early = early, scale = scaler:state() }
  end

  for _, scale in ipairs{ 256, "dynamic" } do
    it(("%s, steps are those of a run without a gate"):format(scale), function()
      local got = train(scale, 1, true)
      assert.same({ good = 3, skipped = 0, scale = scale == 256 and 256 or 2 ^ 15 }, got.scale)
      assert.same(train(scale, 1), got)
    end)

    it(("%s, a step that overflows is left out"):format(scale), function()
      local got = train(scale, HUGE, true)
      assert.same({ good = 1, skipped = 1, scale = scale == 256 and 256 or 2 ^ 14 }, got.scale)
      assert.same(train(scale, HUGE), got)
    end)
  end
end)

describe("while sums over ranks are held up", function()
  -- Runs two steps; after the update of the first one `open` lets its sum go on.
  local function train(held, watch)
    local m, kv = start()
    local gates = { open = nothing }
    local function open()
      gates.open()
      gates.open = nothing
    end
    local seen, between = watch(m, open)
    for step = 1, 2 do
      m:forward_backward(make_batch(step))
      local function update() m:update() end
      gates.open = held and step == 1 and update_held(m, kv, update) or update() or nothing
      between()
    end
    return { params = list_values(m), seen = seen }
  end

  local function check(watch)
    local got = train(true, watch)
    assert.is_true(#got.seen > 0)
    assert.same(train(false, watch), got)
    assert.same(train(false, function() return {}, nothing end).params, got.params)
  end

  it("an executor's callback sees the first layers, and the others after the updates", function()
    check(function(m, open)
      local seen = {}
      m._exec_group.execs[1]:set_monitor_callback(function(name, x)
        if name == "first_output" then
          open()
        end
        seen[#seen + 1] = { name, x:totable() }
      end)
      return seen, nothing
    end)
  end)

  it("a monitor sees weights as the held updates leave them", function()
    check(function(m, open)
      local seen, updated = {}, false
      local monitor = ty.mon.Monitor{ 1, pattern = "fc2_.*|first_weight", stat_func = function(x)
        if updated then
          open()
        end
        return x:norm()
      end }
      m:install_monitor(monitor)
      monitor:tic()
      return seen, function()
        updated = true
        for _, entry in ipairs(monitor:toc()) do
          seen[#seen + 1] = table.concat(entry, " ")
        end
        updated = false
        monitor:tic()
      end
    end)
  end)
end)
