--- The default context and element type of test helpers (part of `ty.test_utils`).
--
-- @module tycho.test.defaults

local args = require "tycho.core.args"
local context = require "tycho.core.context"

local defaults = {}

local chosen

--- Returns the default context of test helpers.
function defaults.default_context()
  return chosen or context.current_context()
end


local CONTEXT = args.form("test_utils.set_default_context", { { "ctx", "context" } })

--- Sets the default context of test helpers.
function defaults.set_default_context(...)
  chosen = CONTEXT(...).ctx
end


--- Returns the default element type, "float32".
function defaults.default_dtype()
  return "float32"
end


--- Returns the device numbers of the GPUs, from 0.
function defaults.list_gpus()
  local list = {}
  for id = 0, context.num_gpus() - 1 do
    list[#list + 1] = id
  end
  return list
end


return defaults
