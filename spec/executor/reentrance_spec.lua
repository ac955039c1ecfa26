-- What functions that the engine calls may do with it: monitors' callbacks, operators written in
-- Lua, metrics, callbacks of fit, finalizers, coroutines, ends of programs. Each thing works, or is
-- refused by an error that says so; afterwards all is as if nothing had been.

local ty = require "tycho"
local shell = require "spec.support.shell"

local V = ty.sym.Variable

local VALUES = { { 1, -2, 3, -4 }, { 5, 6, -7, 8 } }

local function bound()
  local net = ty.sym.Activation{ V("x"), act_type = "relu", name = "a" } * 2
  local exe = net:simple_bind{ ctx = ty.cpu(), x = { 2, 4 } }
  exe.arg_dict.x[":"] = ty.nd.array(VALUES)
  return exe
end

local RELU = { { 2, 0, 6, 0 }, { 10, 12, 0, 16 } }

-- Asserts that the executor works, without a monitor.
local function works(exe)
  exe:set_monitor_callback(ty.null)
  exe:forward{ is_train = true }
  exe:backward(ty.nd.ones{ 2, 4 })
  assert.same(RELU, exe.outputs[1]:totable())
  assert.same({ { 2, 0, 2, 0 }, { 2, 2, 0, 2 } }, exe.grad_dict.x:totable())
end

local hook

local Hooked, HookedProp = ty.operator.CustomOp:extend("Hooked"),
  ty.operator.CustomOpProp:extend("HookedProp")
function Hooked:forward(_, req, ins, outs)
  hook(ins)
  self:assign(outs[1], req[1], ins[1] * 2)
end
function Hooked:backward(req, heads, _, _, grads)
  self:assign(grads[1], req[1], heads[1] * 2)
end
function HookedProp.create_operator() return Hooked() end
ty.operator.register("spec_hooked", HookedProp)

-- What a callback may try with the executor that calls it.
local REFUSED = {
  forward = function(exe) exe:forward{} end,
  backward = function(exe) exe:backward(ty.nd.ones{ 2, 4 }) end,
  partial_forward = function(exe) exe:partial_forward(1) end,
  free = function(exe) exe:free() end,
}

describe("a monitor's callback", function()
  for name, f in pairs(REFUSED) do
    it("cannot call " .. name .. " of its executor", function()
      local exe = bound()
      local calls = 0
      exe:set_monitor_callback(function()
        calls = calls + 1
        f(exe)
      end)
      local e = assert.raises("state", exe.forward, exe, { is_train = true })
      assert.truthy(e.message:find("waits for the function", 1, true))
      assert.equal("Executor:" .. name, e.func)
      assert.equal(1, calls)
      works(exe)
    end)
  end

  it("may run another executor, reshape its own, take itself away, write arguments", function()
    local exe, other = bound(), bound()
    local wider
    exe:set_monitor_callback(function()
      other:forward{}
      wider = wider or exe:reshape{ x = { 3, 4 }, allow_up_sizing = true }
      exe:set_monitor_callback(ty.null)
      collectgarbage()
    end)
    exe:forward{}
    assert.same(RELU, exe.outputs[1]:totable())
    assert.same(RELU, other.outputs[1]:totable())
    wider:forward{ x = ty.nd.ones{ 3, 4 } }
    assert.equal(24, wider.outputs[1]:sum():asscalar())
  end)

  it("may be left in a coroutine that goes on, or never does", function()
    local exe = bound()
    exe:set_monitor_callback(function() coroutine.yield("in between") end)
    local thread = coroutine.wrap(function()
      exe:forward{}
      return "done"
    end)
    assert.equal("in between", thread())
    assert.equal("in between", thread())
    assert.equal("done", thread())
    assert.same(RELU, exe.outputs[1]:totable())

    thread = coroutine.wrap(function() exe:forward{} end)
    thread()
    works(exe)                                            -- a run that was left is over
    local ok, e = pcall(thread)
    assert.is_false(ok)
    assert.equal("state", e.code)
  end)

  it("may come back after its executor was freed", function()
    local exe = bound()
    local kept
    exe:set_monitor_callback(function(_, x)
      coroutine.yield()
      kept = x:totable()
    end)
    local thread = coroutine.wrap(function() exe:forward{} end)
    thread()
    exe:free()
    collectgarbage()
    local ok, e = pcall(thread)
    assert.is_false(ok)
    assert.equal("state", e.code)
    assert.equal(2, #kept)
  end)
end)

describe("an operator written in Lua", function()
  local function hooked()
    local exe = ty.sym.Custom{ ty.sym.relu(V("x")), op_type = "spec_hooked" }
      :simple_bind{ ctx = ty.cpu(), x = { 2, 4 } }
    exe.arg_dict.x[":"] = ty.nd.array(VALUES)
    return exe
  end

  for name, f in pairs(REFUSED) do
    it("cannot call " .. name .. " of its executor", function()
      local exe = hooked()
      hook = function() f(exe) end
      local e = assert.raises("run", exe.forward, exe, { is_train = true })
      assert.truthy(tostring(e):find("waits for the function", 1, true))
      hook = function() end
      works(exe)
    end)
  end

  it("may wait, read, run other executors, yield", function()
    local exe, other = hooked(), bound()
    hook = function(ins)
      ty.nd.waitall()
      ins[1]:totable()
      other:forward{}
      coroutine.yield("in between")
    end
    local thread = coroutine.wrap(function()
      exe:forward{}
      return exe.outputs[1]:totable()
    end)
    assert.equal("in between", thread())
    assert.same(RELU, thread())
  end)
end)

describe("fit", function()
  local function nothing() end

  local function training(options)
    local data = ty.io.NDArrayIter{ data = ty.nd.ones{ 8, 4 }, label = ty.nd.zeros{ 8 },
      batch_size = 4 }
    local net = ty.sym.FullyConnected{ V("data"), num_hidden = 2, name = "fc" }
    local mod = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" },
      logger = { debug = nothing, info = nothing, warning = nothing, error = nothing } }
    local t = { train_data = data, num_epoch = 2 }
    for key, v in pairs(options(mod, data)) do t[key] = v end
    local ok, e = pcall(mod.fit, mod, t)
    data:reset()
    mod:fit{ train_data = data, num_epoch = 1 }
    return ok, e
  end

  it("ends with an error of a metric or callback, and goes on another time", function()
    for _, key in ipairs{ "eval_metric", "batch_end_callback", "epoch_end_callback" } do
      local function fails() error("of its own") end
      local ok, e = training(function()
        return { [key] = key == "eval_metric" and ty.metric.CustomMetric(fails) or fails }
      end)
      assert.is_false(ok)
      assert.truthy(tostring(e):find("of its own", 1, true))
    end
  end)

  it("takes a module that its callbacks bind again or reshape", function()
    local ok, e = training(function(mod, data)
      return { batch_end_callback = function()
        mod:bind{ data_shapes = data.provide_data, label_shapes = data.provide_label,
          force_rebind = true }
        mod:reshape{ data_shapes = { { "data", { 2, 4 } } },
          label_shapes = { { "softmax_label", { 2 } } } }
      end }
    end)
    assert.is_true(ok, tostring(e))
  end)
end)

describe("finalizers", function()
  it("may run what they like, at any allocation", function()
    local exe, runs = bound(), 0
    for _ = 1, 100 do
      getmetatable(newproxy(true)).__gc = function()
        runs = runs + 1
        exe:forward{}
        exe.outputs[1]:totable()
      end
    end
    for _ = 1, 100 do
      exe:forward{}
      assert.same(RELU, exe.outputs[1]:totable())
      collectgarbage("step", 10)
    end
    collectgarbage()
    assert.equal(100, runs)
  end)
end)

describe("objects that belong together", function()
  local function live()
    for _ = 1, 3 do collectgarbage() end
    ty.nd.waitall()
    local texts = {}
    for kind, count in pairs(ty.live()) do texts[#texts + 1] = kind .. " " .. tostring(count) end
    table.sort(texts)
    return table.concat(texts, ", ")
  end

  -- Returns objects that all work, some of which read results of others.
  local function company()
    local exe = bound()
    local wider = exe:reshape{ x = { 3, 4 }, allow_up_sizing = true }
    local store, out = ty.kv.create("local"), ty.nd.zeros{ 2, 4 }
    store:init("x", exe.arg_dict.x)
    local it = ty.io.PrefetchingIter(ty.io.NDArrayIter{ data = ty.nd.ones{ 8, 4 },
      batch_size = 2 })
    local batch = it:next()
    for _ = 1, 20 do
      exe:forward{ is_train = true }
      wider:forward{}
      exe:backward(ty.nd.ones{ 2, 4 })
      store:push("x", exe.grad_dict.x)
      store:pull("x", { out = out })
    end
    return { exe, wider, store, out, it, batch, exe.outputs[1], exe.grad_dict.x, out[0],
      batch.data[1] + 1, exe.outputs[1]:reshape{ 8 } }
  end

  it("are collected in any order while they work", function()
    company()
    local before = live()
    for seed = 1, 8 do
      math.randomseed(seed)
      local list = company()
      while #list > 0 do
        table.remove(list, math.random(#list))
        collectgarbage()
      end
      assert.equal(before, live())
    end
  end)
end)

describe("the end of a program", function()
  local START = [[
    local ty = require "tycho"
    local exe = ty.sym.FullyConnected{ ty.sym.Variable("x"), num_hidden = 300, name = "fc" }
      :simple_bind{ ctx = ty.cpu(), x = { 300, 300 } }
    local x = ty.nd.ones{ 3 }
    for _ = 1, 20 do exe:forward{} end
  ]]
  local FINALIZER = [[
    Last = newproxy(true)
    getmetatable(Last).__gc = function()
      exe:forward{}
      print(exe.outputs[1].shape[1], (x + 1):sum():asscalar())
    end
  ]]

  local function ends(code, status, output)
    shell.with_file(START .. code, function(path)
      local text, got = shell.tycho(path)
      assert.equal(status, got, text)
      assert.truthy(text:find(output or "", 1, true), text)
    end)
  end

  it("comes with work under way, by any way", function()
    ends("", 0)
    ends("os.exit(3)", 3)
    ends("os.exit(4, true)", 4)
    ends("exe, x = nil, nil; collectgarbage(); os.exit(5, true)", 5)
    ends("error('the end')", 1, "the end")
    ends("exe:set_monitor_callback(function() os.exit(6) end); exe:forward{}", 6)
    ends("exe:set_monitor_callback(function() os.exit(7, true) end); exe:forward{}", 7)
  end)

  it("leaves finalizers what they use", function()
    ends(FINALIZER, 0, "300\t6")
    ends(FINALIZER .. "os.exit(8, true)", 8, "300\t6")
    ends(FINALIZER .. "error('the end')", 1, "300\t6")
  end)
end)
