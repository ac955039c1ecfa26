-- training/lr_schedulers.json: the rates that schedules give, call after call.

local tables = require "spec.support.tables"
local ty = require "tycho"

local function run(_, case)
  local schedule = ty.lr_scheduler[case.class](case.args)
  local result = { values = {}, base_lr = {}, warmup_values = case.warmup_calls and {} }
  local set = {}
  for _, row in ipairs(case.set_base_lr or {}) do
    set[row.before_call] = row.value
  end
  for i, n in ipairs(case.warmup_calls or {}) do
    result.warmup_values[i] = schedule:get_warmup_lr(n)
  end
  for i, n in ipairs(case.calls) do
    schedule.base_lr = set[i - 1] or schedule.base_lr
    result.values[i] = schedule(n)
    result.base_lr[i] = schedule.base_lr
  end
  return result
end

return {
  needs = { "tycho.lr_scheduler" },
  define = function()
    local level = ty.log.level
    setup(function() ty.log.level = "warning" end)
    teardown(function() ty.log.level = level end)
    for _, row in ipairs((tables.cases("lr_schedulers", run))) do
      it(row.name, function()
        if row.name == "e_poly_warm_eq" then
          pending("divides by zero there, gives the final rate here")
        end
        row.run()
      end)
    end
  end,
}
