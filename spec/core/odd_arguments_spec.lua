-- Arguments of another kind than a method can use, where no form reads them: each is refused by an
-- error that names it.

local ty = require "tycho"

local inside = {}
inside[1] = inside                                         -- a table that has no end

local net = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }

-- {what, code, function, arguments ...}
local CALLS = {
  { "a table inside itself", "shape", ty.nd.array, inside },
  { "symbols as elements", "type", ty.nd.array, { net } },
  { "symbols to compare", "type", ty.test_utils.find_max_violation, net, 1 },
  { "the name of a metric", "type", function()
    ty.metric.create{ "acc", "mse" }:get_metric("acc")
  end },
  { "arrays without names", "type", function()
    ty.metric.create("acc"):update_dict(ty.nd.ones(2), {})
  end },
  { "predictions that are none", "type", function()
    ty.metric.create{ "acc" }:update_dict({ label = ty.nd.ones(2) }, nil)
  end },
  { "something else than an executor", "type", function()
    ty.monitor.Monitor{ 1 }:install(net)
  end },
  { "nothing as executor", "type", function() ty.monitor.Monitor{ 1 }:install() end },
  { "no number of updates", "type", function()
    ty.lr_scheduler.PolyScheduler{ max_update = 9, warmup_steps = 3 }:get_warmup_lr(false)
  end },
  { "a list of weights without states", "type", function()
    ty.optimizer.SGD{ momentum = 0.9 }:update({ 0 }, { ty.nd.ones(2) }, { ty.nd.ones(2) })
  end },
  { "a list of weights with one gradient", "type", function()
    ty.optimizer.LARS{}:update_multi_precision({ 0 }, { ty.nd.ones(2) }, ty.nd.ones(2), {})
  end },
  { "no element to set", "type", function() ty.nd.ones(2):set() end },
  { "no limit of sizes", "type", ty.test_utils.rand_shape_2d, "4", 4 },
  { "half a dimension", "value", ty.test_utils.rand_shape_nd, 1.5 },
  { "attributes that are no table", "type", ty.AttrScope, 3 },
  { "options of an initializer by position", "name", ty.init.Initializer, { 1, x = 2 } },
}

describe("an odd argument is refused:", function()
  for _, call in ipairs(CALLS) do
    it(call[1], function() assert.raises(call[2], unpack(call, 3, table.maxn(call))) end)
  end

  it("but not one that a method without options has no use for", function()
    assert.same(net:list_attr(), net:list_attr(7))
  end)
end)
