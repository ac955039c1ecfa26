--- Training with less typing: `ty.mod`.
--
--     local mod = ty.mod.Module{ symbol = net, context = ty.cpu() }
--     mod:fit{ train_data = train, eval_data = test, num_epoch = 4, optimizer_params = { learning_rate = 0.1 } }
--     print(mod:score(test, "acc")[1][2])
--
-- The classes: `module_base` (what all have), `module_module` (a symbol), `module_bucketing` (a symbol for each key,
-- with common parameters and memory), `module_sequential` (a chain), `module_python` (modules written in Lua),
-- `module_group` (executors on several devices). `module_fit` is the training loop, `module_state` the saved state of a
-- training.
--
-- @module tycho.module

local pairs = require("tycho.iterate").pairs
local Error = require "tycho.error"

-- class -> file, and the class's name there when the file has several
local CLASSES = {
  BaseModule       = { "module_base" },       Module           = { "module_module" },
  BucketingModule  = { "module_bucketing" },  SequentialModule = { "module_sequential" },
  PythonModule     = { "module_python", "PythonModule" },
  PythonLossModule = { "module_python", "PythonLossModule" },
  LuaModule        = { "module_python", "PythonModule" },
  LuaLossModule    = { "module_python", "PythonLossModule" },
  DataParallelExecutorGroup = { "module_group" },
}

require "tycho.module_fit"
require "tycho.module_state"


local function names()
  local list = {}
  for name in pairs(CLASSES) do
    list[#list + 1] = name
  end
  return list
end


return setmetatable({}, { __index = function(mod, key)
  local place = CLASSES[key]
  if not place then
    Error.unknown{ func = "mod", argument = key, what = "class", names = names() }
  end
  local found = require("tycho." .. place[1])
  found = place[2] and found[place[2]] or found
  rawset(mod, key, found)
  return found
end })
