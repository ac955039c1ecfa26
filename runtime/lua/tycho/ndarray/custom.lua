--- `ty.nd.Custom`: operators written in Lua (op/custom.lua) on arrays.
--
-- While calls are recorded, autograd runs the operator (`custom._record`), so that the gradient is
-- computed by the operator's `backward`.
--
-- @module tycho.ndarray.custom

local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local custom = require "tycho.op.custom"
local Error = require "tycho.core.error"
local create = require "tycho.ndarray.create"
local recording = require "tycho.ndarray.recording"
local tables = require "tycho.core.tables"


local function infer_all(prop, dict, method, ins, func)
  local a, b, c = custom._guarded(method, "", nil, prop[method], prop, ins)
  custom._counted(a, #prop:list_arguments(), method, "inputs", dict.op_type, func)
  return custom._counted(b, #prop:list_outputs(), method, "outputs", dict.op_type, func), c
end


-- Prepares a call of an operator written in Lua: its object, and the arrays that it reads and
-- writes.
local function prepare(inputs, dict, func)
  local prop = custom._describe(dict, func, "")
  local nargs, nauxs = #prop:list_arguments(), #prop:list_auxiliary_states()
  if #inputs ~= nargs + nauxs then
    Error.raise{ code = "value", func = func, op = "Custom", expected = nargs + nauxs,
      got = #inputs, message = ("'%s' has %d inputs"):format(dict.op_type, nargs + nauxs) }
  end
  local call = { ins = tables.part(inputs, 1, nargs), outs = {}, req = {},
    auxs = tables.part(inputs, nargs + 1, nargs + nauxs) }
  local shapes, types = {}, {}
  for i, x in ipairs(call.ins) do
    shapes[i], types[i] = x.shape, x.dtype
  end
  local ctx = inputs[1] and inputs[1].context or context.current_context()
  local out_shapes, out_types = infer_all(prop, dict, "infer_shape", shapes, func),
    infer_all(prop, dict, "infer_type", types, func)
  for i, shape in ipairs(out_shapes) do
    call.outs[i] = create.zeros(shape, { dtype = out_types[i], ctx = ctx })
    call.req[i] = "write"
  end
  call.op = custom._make_operator(prop, "", ctx, shapes, types)
  return call
end


local function forward(call)
  custom._guarded("forward", "", nil, call.op.forward, call.op, recording.training, call.req,
    call.ins, call.outs, call.auxs)
end


--- Runs forward at once.
-- @tparam {NDArray,...} inputs arguments, then auxiliary states
-- @tparam table dict attributes as text
-- @string func for errors
return function(inputs, dict, func)
  local outs
  if recording.on and custom._record then
    local call = class.outside(prepare, class.aliases(inputs), dict, func)
    outs = custom._record(call, forward)
  else
    local call = prepare(inputs, dict, func)
    forward(call)
    outs = call.outs
  end
  return #outs == 1 and outs[1] or outs
end
