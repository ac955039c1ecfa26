-- The rate at which a schedule begins: its own base rate or the optimizer's.

local ty = require "tycho"

local SCHEDULES = {
  factor = function(options)
    options.step, options.factor = 2, 0.5
    return ty.lr_scheduler.FactorScheduler(options)
  end,
  cosine = function(options)
    options.max_update = 10
    return ty.lr_scheduler.CosineScheduler(options)
  end,
}

describe("a schedule", function()
  local logged
  before_each(function()
    logged = {}
    ty.log.sink = function(level, text)
      logged[#logged + 1] = level == "warning" and text or nil
    end
  end)
  after_each(function() ty.log.sink = nil end)

  for name, make in pairs(SCHEDULES) do
    local function rates(options, learning_rate)
      local schedule = make(options)
      local _ = ty.optimizer.SGD{ learning_rate = learning_rate, lr_scheduler = schedule }
      return { schedule(1), schedule(5), schedule(9) }
    end

    it(("without a base rate takes the optimizer's: %s"):format(name), function()
      assert.same(rates({ base_lr = 0.3 }), rates({}, 0.3))
      assert.same(rates({ base_lr = 0.3, warmup_steps = 4 }), rates({ warmup_steps = 4 }, 0.3))
      assert.same({}, logged)
    end)

    it(("with another base rate warns: %s"):format(name), function()
      rates({ base_lr = 0.2 }, 0.2)
      assert.same({}, logged)
      rates({ base_lr = 0.2 }, 0.3)
      assert.equal(1, #logged)
      assert.truthy(logged[1]:find("0.2", 1, true) and logged[1]:find("0.3", 1, true), logged[1])
    end)
  end

  it("may be a function, and nothing else that cannot be called", function()
    local optimizer = ty.optimizer.SGD{ lr_scheduler = function(n) return 1 / n end }
    local x = ty.nd.ones(1)
    local update = ty.optimizer.get_updater(optimizer)
    update(0, ty.nd.ones(1), x)
    update(0, ty.nd.ones(1), x)
    assert.same({ -0.5 }, x:totable())
    assert.equal("lr_scheduler",
      assert.raises("type", ty.optimizer.SGD, { lr_scheduler = 0.1 }).argument)
  end)
end)
