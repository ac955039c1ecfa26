-- Places in which the engine calls functions of a program, and actions of such functions on the
-- engine, for spec/executor/places_spec.lua.
--
--     local ok, e = places.run("metric", "rebind")       -- and a training that works afterwards

local ty = require "tycho"

local places = { text = "an error of its own", status = 9 }

local V = ty.sym.Variable
local DATA, LABEL = { { "data", { 4, 3 } } }, { { "softmax_label", { 4 } } }
local QUIET = { debug = function() end, info = function() end, warning = function() end,
  error = function() end }

local function nothing() end

local hooks = { forward = nothing, backward = nothing }

local Placed, PlacedProp = ty.operator.CustomOp:extend("Placed"),
  ty.operator.CustomOpProp:extend("PlacedProp")
function Placed:forward(_, req, ins, outs)
  hooks.forward()
  self:assign(outs[1], req[1], ins[1] * 2)
end
function Placed:backward(req, heads, _, _, grads)
  hooks.backward()
  self:assign(grads[1], req[1], heads[1] * 2)
end
function PlacedProp.create_operator() return Placed() end
ty.operator.register("spec_placed", PlacedProp)

local function data() return ty.nd.arange(24):reshape{ 8, 3 } / 24 end
local function iterator()
  return ty.io.NDArrayIter{ data = data(), label = ty.nd.arange(8) % 2, batch_size = 4 }
end

local function make_module(placed)
  local net = ty.sym.FullyConnected{ V("data"), num_hidden = 2, name = "fc" }
  net = placed and ty.sym.Custom{ net, op_type = "spec_placed", name = "own" } or net
  local mod = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" },
    logger = QUIET }
  mod:bind{ data_shapes = DATA, label_shapes = LABEL }
  mod:init_params{ initializer = ty.init.One() }
  mod:init_optimizer{}
  return mod
end

local function batch()
  return ty.io.DataBatch{ data = { ty.nd.ones{ 4, 3 } }, label = { ty.nd.zeros{ 4 } } }
end

local function fit(mod, options)
  options.train_data = options.train_data or iterator()
  options.num_epoch = 1
  mod:fit(options)
end

local function step(mod)
  mod:forward_backward(batch())
  mod:update()
  ty.nd.waitall()
end

-- By place: calls f there, at least once. `mod` has an operator in Lua.
places.PLACES = {
  monitor = function(mod, f)
    fit(mod, { monitor = ty.mon.Monitor{ interval = 1, stat_func = function(x)
      f()
      return x:mean()
    end } })
  end,
  operator_forward = function(mod, f)
    hooks.forward = f
    step(mod)
  end,
  operator_backward = function(mod, f)
    hooks.backward = f
    step(mod)
  end,
  metric = function(mod, f)
    fit(mod, { eval_metric = ty.metric.CustomMetric(function()
      f()
      return 0
    end) })
  end,
  iterator = function(mod, f)
    local Own, inner = ty.io.DataIter:extend("Own"), iterator()
    Own.provide_data, Own.provide_label = DATA, LABEL
    function Own.reset() inner:reset() end
    function Own.next()
      f()
      return inner:next()
    end
    fit(mod, { train_data = Own(4) })
  end,
  batch_end = function(mod, f) fit(mod, { batch_end_callback = f }) end,
  epoch_end = function(mod, f) fit(mod, { epoch_end_callback = f }) end,
  finalizer = function(mod, f)
    mod:forward(batch(), true)
    getmetatable(newproxy(true)).__gc = f
    collectgarbage()
    step(mod)
  end,
  coroutine = function(mod, f)
    local thread = coroutine.wrap(function()
      mod:forward(batch(), true)
      coroutine.yield()
      f()
      step(mod)
    end)
    thread()
    thread()
  end,
}

-- Actions by name.
places.ACTIONS = {
  error = function() error(places.text, 0) end,
  collect = function()
    for _ = 1, 3 do collectgarbage() end
  end,
  rebind = function(mod)
    mod:bind{ data_shapes = DATA, label_shapes = LABEL, force_rebind = true }
  end,
  reshape = function(mod)
    mod:reshape{ data_shapes = { { "data", { 2, 3 } } },
      label_shapes = { { "softmax_label", { 2 } } } }
    mod:reshape{ data_shapes = DATA, label_shapes = LABEL }
  end,
  forward = function(mod) mod:forward(batch(), true) end,
  another = function(_, other) step(other) end,
  exit = function() os.exit(places.status) end,
  exit_closed = function() os.exit(places.status, true) end,
}

--- Does an action once in a place, then trains with the same module. Returns true, or false and the
-- error; and how often the place was reached.
function places.run(place, action)
  local level = ty.log.level
  ty.log.level = "error"
  local mod, other = make_module(true), make_module(false)
  local times = 0
  local ok, e = pcall(places.PLACES[place], mod, function()
    times = times + 1
    if times == 1 then places.ACTIONS[action](mod, other) end
  end)
  hooks.forward, hooks.backward = nothing, nothing
  local settled, late = pcall(ty.nd.waitall)
  if ok and not settled then
    ok, e = false, late
  end
  fit(mod, {})
  step(mod)
  ty.log.level = level
  return ok, e, times
end

return places
