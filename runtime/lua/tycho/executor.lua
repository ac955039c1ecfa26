-- The name that users require: executor/executor.lua and some names of the layer of data
-- parallelism.
require "tycho.core.luajit"
local executor = require "tycho.executor.executor"
local namespace = require "tycho.core.namespace"

local MANAGER = { _split_input_slice = true, _check_arguments = true, _load_general = true,
  _load_data = true, _load_label = true }

local missing = namespace.missing("executor", "class or function", executor)

return setmetatable(executor, { __index = function(_, key)
  if not MANAGER[key] then
    return missing(key)
  end
  return require("tycho.module.executor_manager")[key]
end })
