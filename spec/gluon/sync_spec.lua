-- SyncBatchNorm: statistics over the devices of a step.

local gluons = require "spec.support.gluon"
local native = require "tycho.core.ffi"
local ty = require "tycho"
local device = require "spec.support.device"

local autograd, gluon, nd = ty.autograd, ty.gluon, ty.nd
local nn, form = gluon.nn, gluons.form

local function contexts(n)
  local list = {}
  for i = 1, n do
    list[i] = ty.cpu(i - 1)
  end
  return list
end

local function joined(list)
  local parts = { dim = 0 }
  for i, x in ipairs(list) do
    parts[i] = x:as_in_context(ty.cpu(0))
  end
  return nd.concat(parts)
end

-- Returns slices of x of the given numbers of rows, each a variable on its device.
local function spread(x, rows, ctx)
  local list, at = {}, 0
  for i, n in ipairs(rows) do
    list[i] = nd.slice_axis{ x, axis = 0, begin = at, ["end"] = at + n }:as_in_context(ctx[i])
    list[i]:attach_grad()
    at = at + n
  end
  return list
end

-- Returns a network with BatchNorm on one device, and one with SyncBatchNorm on several, with equal
-- values.
local function pair(make, ctx, x, dtype)
  local one, many = make(nn.BatchNorm), make(nn.SyncBatchNorm)
  one:initialize()
  many:initialize{ ctx = ctx }
  one:cast(dtype or "float64")
  many:cast(dtype or "float64")
  one(x)
  many(x:as_in_context(ctx[1]))
  gluons.fill(one)
  local from = one:collect_params():values()
  for i, p in ipairs(many:collect_params():values()) do
    p:set_data(from[i]:data())
  end
  return one, many
end

local function norm(Norm)
  return Norm()
end

local function deep(Norm)
  return nn.HybridSequential{ nn.Conv2D(6, 1), Norm(), nn.Activation("tanh"), nn.Conv2D(4, 1),
    Norm{ scale = false, momentum = 0.6, epsilon = 0.01 }, nn.GlobalAvgPool2D() }
end

local function back_at_once(losses)
  autograd.backward(losses)
end

local function back_one_by_one(losses)
  for _, l in ipairs(losses) do
    l:backward()
  end
end

-- Compares results, gradients and averages of a step, and what the averages give afterwards.
local function compare(one, many, x, rows, ctx, back, tolerance)
  local whole, slices = x:copy(), spread(x, rows, ctx)
  whole:attach_grad()
  local y = autograd.record(function() return one(whole) end)
  local head = form(y.shape, y.dtype, 7)
  autograd.record(function() return (y * head):sum() end):backward()
  local heads = spread(head, rows, ctx)
  local results, losses = {}, {}
  autograd.record(function()
    for i, slice in ipairs(slices) do
      results[i] = many(slice)
      losses[i] = (results[i] * heads[i]:detach()):sum()
    end
  end)
  back(losses)
  assert.near(y, joined(results), tolerance)
  local grads = {}
  for i, slice in ipairs(slices) do
    grads[i] = slice.grad
  end
  assert.near(whole.grad, joined(grads), tolerance)
  local want = one:collect_params():values()
  for i, p in ipairs(many:collect_params():values()) do
    local data = p:list_data()
    for k = 1, #data do
      assert.near(want[i]:data(), data[k]:as_in_context(ty.cpu(0)), tolerance)
    end
    if p.name:find("running") then
      for k = 2, #data do
        assert.near(data[1], data[k]:as_in_context(ctx[1]), 0)
      end
    elseif p.grad_req ~= "null" then
      local sum
      for _, g in ipairs(p:list_grad()) do
        g = g:as_in_context(ty.cpu(0))
        sum = sum and sum + g or g
      end
      assert.near(want[i]:grad(), sum, tolerance)
    end
  end
  assert.near(one(x), many(x:as_in_context(ctx[2])):as_in_context(ty.cpu(0)), tolerance)
end


local function with_lazy(on, f)
  local before = native.C.ty_lazy_enable(on and 1 or 0)
  local ok, e = pcall(f)
  native.C.ty_lazy_enable(before)
  if not ok then
    error(e, 0)
  end
end


for _, lazy in ipairs{ true, false } do
  local how = lazy and "that wait" or "at once"
  describe("SyncBatchNorm on several devices, with calls " .. how, function()
    setup(device.leave)                                  -- contexts are CPUs by name
    teardown(device.come_back)

    for _, hybrid in ipairs{ false, true } do
      for name, back in pairs{ ["all losses at once"] = back_at_once,
          ["loss by loss"] = back_one_by_one } do
        local title = ("is BatchNorm of the whole batch: %s, %s"):format(
          hybrid and "hybridized" or "plain", name)
        it(title, function()
          with_lazy(lazy, function()
            for _, case in ipairs{ { norm, { 3, 3 }, { 6, 5 } }, { norm, { 1, 4, 2 }, { 7, 3, 2 } },
                { deep, { 2, 2 }, { 4, 3, 5, 2 } }, { deep, { 2, 3, 1 }, { 6, 3, 4, 4 } } } do
              local ctx, x = contexts(#case[2]), form(case[3])
              local one, many = pair(case[1], ctx, x)
              if hybrid then
                many:hybridize()
              end
              for step = 1, 3 do
                compare(one, many, form(case[3], nil, step), case[2], ctx, back, 1e-10)
              end
            end
          end)
        end)
      end
    end

    it("is BatchNorm of the whole batch for half types, and where means are large", function()
      with_lazy(lazy, function()
        local ctx = contexts(2)
        local one, many = pair(norm, ctx, form({ 8, 3 }, "float32"), "float32")
        compare(one, many, form({ 8, 3 }, "float32") * 1e-2 + 100, { 4, 4 }, ctx, back_at_once,
          2e-2)
        one, many = pair(norm, ctx, form({ 8, 3 }, "float32"), "float16")
        compare(one, many, form({ 8, 3 }, "float16"), { 4, 4 }, ctx, back_at_once, 2e-2)
      end)
    end)

    it("trains by a Trainer as one device does", function()
      with_lazy(lazy, function()
        local ctx, loss = contexts(2), gluon.loss.L2Loss()
        local one, many = pair(deep, ctx, form{ 4, 3, 2, 2 })
        local trainers = {}
        for i, net in ipairs{ one, many } do
          trainers[i] = gluon.Trainer(net:collect_params(), "sgd",
            { learning_rate = 0.1, momentum = 0.9 })
        end
        for step = 1, 4 do
          local x, label = form({ 4, 3, 2, 2 }, nil, step), form({ 4, 4, 1, 1 }, nil, step + 9)
          for i, net in ipairs{ one, many } do
            local on = i == 1 and { ctx[1] } or ctx
            local xs = gluon.utils.split_and_load(x, on)
            local labels = gluon.utils.split_and_load(label, on)
            local losses = autograd.record(function()
              local list = {}
              for k = 1, #on do
                list[k] = loss(net(xs[k]), labels[k])
              end
              return list
            end)
            back_one_by_one(losses)
            trainers[i]:step(4)
          end
        end
        local want = one:collect_params():values()
        for i, p in ipairs(many:collect_params():values()) do
          assert.near(want[i]:data(), p:data(ctx[1]), 1e-10)
          assert.near(p:data(ctx[1]), p:data(ctx[2]):as_in_context(ctx[1]), 0)
        end
      end)
    end)
  end)
end


describe("SyncBatchNorm", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  local ctx, layer, xs

  before_each(function()
    ctx = contexts(2)
    layer = nn.SyncBatchNorm{ in_channels = 3 }
    layer:initialize{ ctx = ctx }
    xs = spread(form({ 4, 3 }, "float32"), { 2, 2 }, ctx)
  end)

  local function call(i)
    return autograd.record(function() return layer(xs[i]) end)
  end

  it("fails with the device that is missing, and goes on", function()
    local y = call(1)
    local e = assert.raises("state", y.totable, y)
    assert.matches("another device", e.message)
    local other = call(2)
    assert.shape({ 2, 3 }, y:copy())
    autograd.backward{ y, other }
    y = call(1)
    e = assert.raises("state", y.backward, y)
    assert.equal(layer.name, e.argument)
    assert.matches("called on cpu%(0%), not on cpu%(1%)", e.message)
    assert.raises("state", y.totable, y)
    local again = { call(1), call(2) }
    autograd.backward(again)
    assert.near({ 0, 0, 0 }, again[1]:sum{ axis = 0 } +
      again[2]:as_in_context(ctx[1]):sum{ axis = 0 }, 1e-5)
  end)

  it("holds a backward until those of all devices come", function()
    local ys = { call(1), call(2) }
    ys[1]:backward()
    local e = assert.raises("state", function() return xs[1].grad end)
    assert.matches("loss of each device", e.message)
    ys = { call(1), call(2) }
    ys[2]:backward()
    assert.raises("state", call, 1)
    ys = { call(1), call(2) }
    assert.raises("state", autograd.grad, ys[1], { xs[1] })
    local grads = autograd.grad(ys, { xs[1], xs[2] }, { head_grads = { xs[1] * 1, xs[2] * 1 } })
    assert.shape({ 2, 3 }, grads[2])
    local trainer = gluon.Trainer(layer:collect_params(), "sgd", { learning_rate = 1 })
    ys = { call(1), call(2) }
    ys[1]:backward()
    assert.raises("state", trainer.step, trainer, 1)
  end)

  it("shares calls in their order where it is called twice", function()
    local twice = nn.HybridSequential{ layer, nn.Activation("relu"), layer }
    local one = nn.BatchNorm{ in_channels = 3 }
    one:initialize()
    local x = form({ 4, 3 }, "float32")
    local want = autograd.record(function() return one(nd.relu(one(x))) end)
    local got = autograd.record(function() return { twice(xs[1]), twice(xs[2]) } end)
    autograd.backward(got)
    assert.near(want, joined(got), 1e-5)
  end)

  it("does not share in predict mode, with use_global_stats, on one device", function()
    assert.shape({ 2, 3 }, layer(xs[1]))
    assert.shape({ 2, 3 }, autograd.record(false, function() return layer(xs[1]) end))
    local e = assert.raises("state", autograd.train_mode, function() return layer(xs[1]) end)
    assert.matches("autograd.record", e.message)
    for _, options in ipairs{ { use_global_stats = true }, { num_devices = 1 } } do
      options.in_channels = 3
      local alone = nn.SyncBatchNorm(options)
      alone:initialize{ ctx = ctx }
      assert.shape({ 2, 3 }, autograd.record(function() return alone(xs[2]) end):copy())
    end
    local alone = nn.SyncBatchNorm{ in_channels = 3, num_devices = 2 }
    alone:initialize()
    assert.shape({ 2, 3 }, autograd.record(function() return alone(xs[1]) end):copy())
    assert.raises("value", nn.SyncBatchNorm, { num_devices = 0 })
  end)

  it("shares in groups of num_devices", function()
    local four = contexts(4)
    local pairs_of = nn.SyncBatchNorm{ in_channels = 3, num_devices = 2 }
    pairs_of:initialize{ ctx = four }
    local x = form({ 8, 3 }, "float32")
    local parts = spread(x, { 2, 2, 2, 2 }, four)
    local ys = autograd.record(function()
      local list = {}
      for i = 1, 4 do
        list[i] = pairs_of(parts[i])
      end
      return list
    end)
    autograd.backward(ys)
    local one = nn.BatchNorm{ in_channels = 3 }
    one:initialize()
    for k = 0, 1 do
      local half = nd.slice_axis{ x, axis = 0, begin = 4 * k, ["end"] = 4 * k + 4 }
      local want = autograd.record(function() return one(half) end)
      assert.near(want, joined{ ys[2 * k + 1], ys[2 * k + 2] }, 1e-5)
    end
  end)

  it("keeps nothing of steps that are over, or were dropped", function()
    local function step(all)
      local ys = { call(1), all and call(2) or nil }
      if all then
        back_one_by_one(ys)
      else
        pcall(ys[1].backward, ys[1])
      end
    end
    local function live()
      collectgarbage()
      collectgarbage()
      local counts = ty.live()
      return { counts.nodes, counts.storages }
    end
    step(true)
    step(false)
    step(true)
    local before = live()
    for _ = 1, 10 do
      step(true)
      step(false)
    end
    step(true)
    assert.same(before, live())
  end)

  it("refuses what a call that waits cannot see", function()
    local y = call(1)
    local average = layer.running_mean:data(ctx[1])
    assert.raises("state", average.totable, average)
    assert.raises("state", average.fill, average, 1)
    assert.raises("state", autograd.record, false, function()
      return layer.gamma:data(ctx[1]) * y
    end)
    call(2)
    assert.equal(3, #average:totable())
  end)
end)
