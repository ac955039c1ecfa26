--- `ty.nd.Custom`: operators written in Lua (op/custom.lua) on arrays.
--
-- @module tycho.ndarray.custom

local context = require "tycho.core.context"
local custom = require "tycho.op.custom"
local Error = require "tycho.core.error"
local create = require "tycho.ndarray.create"
local tables = require "tycho.core.tables"


local function infer_all(prop, dict, method, ins, func)
  local a, b, c = custom._guarded(method, "", nil, prop[method], prop, ins)
  custom._counted(a, #prop:list_arguments(), method, "inputs", dict.op_type, func)
  return custom._counted(b, #prop:list_outputs(), method, "outputs", dict.op_type, func), c
end


--- Runs forward at once.
-- @tparam {NDArray,...} inputs arguments, then auxiliary states
-- @tparam table dict attributes as text
-- @string func for errors
return function(inputs, dict, func)
  local prop = custom._describe(dict, func, "")
  local nargs, nauxs = #prop:list_arguments(), #prop:list_auxiliary_states()
  if #inputs ~= nargs + nauxs then
    Error.raise{ code = "value", func = func, op = "Custom", expected = nargs + nauxs,
      got = #inputs, message = ("'%s' has %d inputs"):format(dict.op_type, nargs + nauxs) }
  end
  local shapes, types, outs, req = {}, {}, {}, {}
  for i = 1, nargs do
    shapes[i], types[i] = inputs[i].shape, inputs[i].dtype
  end
  local ctx = inputs[1] and inputs[1].context or context.current_context()
  local out_shapes, out_types = infer_all(prop, dict, "infer_shape", shapes, func),
    infer_all(prop, dict, "infer_type", types, func)
  for i, shape in ipairs(out_shapes) do
    outs[i], req[i] = create.zeros(shape, { dtype = out_types[i], ctx = ctx }), "write"
  end
  local op = custom._guarded("create_operator", "", nil, prop.create_operator,
    prop, ctx, shapes, types)
  custom._guarded("forward", "", nil, op.forward, op, false, req, tables.part(inputs, 1, nargs),
    outs, tables.part(inputs, nargs + 1, nargs + nauxs))
  return #outs == 1 and outs[1] or outs
end
