--- Comparison of the settings of two optimizers (not for users).
--
-- @module tycho.optimizer.settings

local pairs = require("tycho.core.iterate").pairs
local attrs = require "tycho.core.attrs"
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"

local settings = {}

local COMMON = { "wd", "rescale_grad", "clip_gradient", "multi_precision" }

--- Fields of schedules that change during training.
settings.MOVING = { "base_lr", "count", "cur_step_ind" }

local is_moving = tables.positions(settings.MOVING)


-- Returns a schedule with its constant numbers: "FactorScheduler{factor = 0.9, step = 7}".
local function schedule_text(schedule)
  local parts = {}
  for key, v in pairs(type(schedule) == "table" and schedule or {}) do
    parts[#parts + 1] = not is_moving[key] and ("%s = %s"):format(key, Error.show(v)) or nil
  end
  table.sort(parts)
  return ("%s{%s}"):format(Error.kind(schedule):gsub("^a ", ""), table.concat(parts, ", "))
end


-- Returns an optimizer's settings as texts by name.
local function of(optimizer)
  local texts = { optimizer = optimizer.class_name,
    lr_scheduler = optimizer.lr_scheduler and schedule_text(optimizer.lr_scheduler),
    learning_rate = optimizer.lr and Error.show(optimizer.lr) or "none" }
  for _, names in ipairs{ COMMON, optimizer.option_names } do
    for _, name in ipairs(names) do
      local v = optimizer[name]
      texts[name] = texts[name] or v ~= nil and Error.show(v) or nil
    end
  end
  return texts
end


--- Returns the differences of two optimizers, sorted: "learning_rate = 0.1, not 0.01".
-- @tparam Optimizer now
-- @tparam Optimizer before
-- @treturn {string,...}
function settings.differences(now, before)
  local a, b, all, list = of(now), of(before), {}, {}
  for _, texts in ipairs{ a, b } do
    for name in pairs(texts) do
      all[name] = true
    end
  end
  for _, name in ipairs(attrs.keys(all)) do
    if a[name] ~= b[name] then
      list[#list + 1] = ("%s = %s, not %s"):format(name, a[name] or "none", b[name] or "none")
    end
  end
  return list
end


return settings
