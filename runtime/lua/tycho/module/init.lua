--- Modules, the high-level interface for training: `ty.mod`.
--
--     local mod = ty.mod.Module{ symbol = net, context = ty.cpu() }
--     mod:fit{ train_data = train, eval_data = test, num_epoch = 4,
--       optimizer_params = { learning_rate = 0.1 } }
--     print(mod:score(test, "acc")[1][2])
--
-- The classes: `module.base` (the base class), `module.module` (one symbol), `module.bucketing` (a
-- symbol for each key, with shared parameters and memory), `module.sequential` (a chain),
-- `module.lua_module` (modules written in Lua), `module.executor_group` (executors on several
-- devices). `module.fit` is the training loop, `module.training_state` the saved state of a
-- training.
--
-- @module tycho.module

require "tycho.core.luajit"
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

-- class -> the file that defines it, and its name there if the file has several
local CLASSES = {
  BaseModule                = { "tycho.module.base" },
  Module                    = { "tycho.module.module" },
  BucketingModule           = { "tycho.module.bucketing" },
  SequentialModule          = { "tycho.module.sequential" },
  LuaModule                 = { "tycho.module.lua_module", "LuaModule" },
  LuaLossModule             = { "tycho.module.lua_module", "LuaLossModule" },
  PythonModule              = { "tycho.module.lua_module", "LuaModule" },      -- as the reference
  PythonLossModule          = { "tycho.module.lua_module", "LuaLossModule" },  -- calls them
  DataParallelExecutorGroup = { "tycho.module.executor_group" },
}


local missing = namespace.missing("mod", "class", CLASSES)

return setmetatable({}, { __index = function(mod, key)
  local source = CLASSES[key]
  if not source then
    return missing(key)
  end
  local found = require(source[1])
  found = source[2] and found[source[2]] or found
  rawset(mod, key, methods.guard(found))
  return found
end })
