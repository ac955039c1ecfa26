-- The name that users require: executor/executor.lua and some names of the layer of data
-- parallelism.
local executor = require "tycho.executor.executor"

local MANAGER = { _split_input_slice = true, _check_arguments = true, _load_general = true,
  _load_data = true, _load_label = true }

return setmetatable(executor, { __index = function(_, key)
  return MANAGER[key] and require("tycho.module.executor_manager")[key] or nil
end })
