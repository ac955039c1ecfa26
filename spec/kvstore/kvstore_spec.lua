-- Stores: what the recorded cases do not reach.

local ty = require "tycho"

describe("kvstore", function()
  it("are like local, with a warning, for names that are none", function()
    local lines, level, sink = {}, ty.log.level, ty.log.sink
    ty.log.level, ty.log.sink = "warning", function(_, text) lines[#lines + 1] = text end
    for _, name in ipairs{ "local", "device", "local_update_cpu", "locla" } do
      ty.kv.create(name)
    end
    ty.log.level, ty.log.sink = level, sink
    assert.equal(1, #lines)
    assert.matches("'locla' names no kind of store", lines[1])
  end)

  it("keeps optimizer states in a file", function()
    local path = os.tmpname()
    local function make()
      local kv = ty.kv.create("device")
      kv:init("w", ty.nd.ones{ 2 })
      kv:set_optimizer(ty.optimizer.SGD{ learning_rate = 0.1, momentum = 0.9 })
      return kv
    end
    local a, b, x, y = make(), make(), ty.nd.zeros{ 2 }, ty.nd.zeros{ 2 }
    a:push("w", ty.nd.ones{ 2 })
    b:push("w", ty.nd.ones{ 2 })
    a:save_optimizer_states(path, { dump_optimizer = true })
    b:load_optimizer_states(path)
    a:pushpull("w", ty.nd.ones{ 2 }, { out = x })
    b:pushpull("w", ty.nd.ones{ 2 }, { out = y })
    assert.same(x:totable(), y:totable())
    os.remove(path)
    assert.raises("io", b.load_optimizer_states, b, path)
  end)

  it("of type nccl needs GPUs", function()
    if ty.num_gpus() > 0 then return pending("there are GPUs") end
    local e = assert.raises("device", ty.kv.create, "nccl")
    assert.matches("adds over .*GPUs", tostring(e))      -- there is none, or no NCCL
  end)

  it("compresses gradients of keys that were there before, too", function()
    local kv, out = ty.kv.create("device"), ty.nd.zeros{ 4 }
    kv:init("w", ty.nd.zeros{ 4 })
    kv:push("w", ty.nd.array{ 0.6, 3, 0, 0 })
    kv:set_gradient_compression{ type = "2bit", threshold = 0.5 }
    kv:push("w", ty.nd.array{ 0.6, -0.7, 0.2, 3 })
    kv:pull("w", { out = out })
    assert.same({ 0.5, -0.5, 0, 0.5 }, out:totable())
    kv:set_gradient_compression{ type = "2bit", threshold = 2 }
    kv:push("w", ty.nd.zeros{ 4 })
    kv:pull("w", { out = out })
    assert.same({ 0, 0, 0, 2 }, out:totable())
  end)

  it("refuses values of another shape, and lists that do not match", function()
    local kv = ty.kv.create()
    kv:init({ 1, 2 }, { ty.nd.ones{ 2 }, ty.nd.ones{ 3 } })
    assert.raises("shape", kv.push, kv, 1, ty.nd.ones{ 3 })
    assert.raises("value", kv.push, kv, { 1, 2 }, { ty.nd.ones{ 2 } })
    assert.raises("type", kv.push, kv, 1, "x")
    assert.raises("value", kv.pull, kv, 1)
    assert.raises("unsupported", ty.kv.create, "horovod")
  end)

  it("sums arrays of several devices without changing them", function()
    local kv, list = ty.kv.create("device"), {}
    for i = 1, 3 do
      list[i] = ty.nd.full({ 2 }, i, { ctx = ty.cpu(i - 1) })
    end
    kv:init("g", ty.nd.zeros{ 2 })
    kv:push("g", list)
    local out = ty.nd.zeros{ 2 }
    kv:pull("g", { out = out })
    assert.same({ 6, 6 }, out:totable())
    assert.same({ 3, 3 }, list[3]:totable())
  end)
end)


describe("wrong calls of stores", function()
  it("name the argument", function()
    for _, kind in ipairs{ "local", "device" } do
      local kv, x = ty.kv.create(kind), ty.nd.ones{ 2 }
      kv:init("w", x)
      for _, value in ipairs{ {}, { out = 3 }, { out = x }, 3, { x, 3 } } do
        assert.equal("value", assert.raises("type", kv.push, kv, "w", value).argument)
        assert.raises("type", kv.pushpull, kv, "w", value)
        assert.equal("value", assert.raises("type", kv.init, kv, "v", value).argument)
      end
      assert.equal("self", assert.raises("type", kv.init, "w", x).argument)
      assert.raises("name", kv.pull, kv, "v", { out = x })
    end
    for _, name in ipairs{ 3, {}, false } do
      assert.equal("name", assert.raises("type", ty.kv.KVStore, name).argument)
    end
  end)
end)
