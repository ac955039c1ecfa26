--- `ty.nd.Custom`: operators written in Lua (op/custom.lua) on arrays.
--
-- @module tycho.ndarray.custom

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


-- A recorded call: `backward` gives the gradients of the arguments from those of the outputs.
local Call = { class_name = "Custom" }
Call.__index = Call


-- The arrays of the step, which know where they come from.
function Call:_enter_backward(step)
  self.ins, self.outs = {}, {}
  for i = 1, step.nin do
    self.ins[i] = step:input(i)
  end
  for i = 1, step.nout do
    self.outs[i] = step:output(i)
  end
  self.where = step.where
end


function Call:backward(...)
  local ins, outs, grads, req = self.ins, self.outs, {}, {}
  self.ins, self.outs = nil, nil
  for i, x in ipairs(ins) do
    grads[i], req[i] = create.zeros(x.shape, { dtype = x.dtype, ctx = x.context }), "write"
  end
  custom._guarded("backward", "", self.where, self.op.backward, self.op, req, { ... }, ins, outs,
    grads, self.aux)
  return unpack(grads, 1, #ins)
end


--- Runs forward at once; records it where recording is on.
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
  local args, aux = tables.part(inputs, 1, nargs), tables.part(inputs, nargs + 1, nargs + nauxs)
  recording.without(custom._guarded, "forward", "", nil, op.forward, op, recording.training, req,
    args, outs, aux)
  if recording.on then
    outs = recording.record_function(args, outs, setmetatable({ op = op, aux = aux }, Call))
  end
  return #outs == 1 and outs[1] or outs
end
