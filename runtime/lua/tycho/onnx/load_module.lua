--- An ONNX file as a Module (not for users; `ty.onnx.load`).
--
-- @module tycho.onnx.load_module

local contexts = require "tycho.core.context"
local data = require "tycho.io.data"
local Error = require "tycho.core.error"
local import = require "tycho.onnx.importer"
local module = require "tycho.module"


return function(a, func)
  local r = import.run({ path = a.file, shapes = a.shapes, constants = a.constants,
    ctx = a.ctx }, func)
  local names, shapes = {}, {}
  for i, input in ipairs(r.inputs) do
    for axis, size in ipairs(input.shape) do
      if size < 0 then
        Error.raise{ code = "shape", func = func, argument = input.name, expected = "a size",
          got = "nothing",
            message = ("axis %d of input '%s' is open; give shapes = {['%s'] = {...}}")
          :format(axis - 1, input.name, input.name) }
      end
    end
    names[i] = input.name
    shapes[i] = data.DataDesc(input.name, #input.shape > 0 and input.shape or { 1 }, input.dtype)
  end
  local mod = module.Module{ symbol = r.symbol, data_names = names, label_names = {},
    context = a.ctx or contexts.current_context() }
  mod:bind{ data_shapes = shapes, for_training = false }
  mod:set_params(r.arguments, r.auxiliary)
  return mod
end
