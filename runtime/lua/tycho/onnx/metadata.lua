--- The metadata of an ONNX file (not for users; `ty.onnx.get_model_metadata`).
--
-- @module tycho.onnx.metadata

local model_file = require "tycho.onnx.model_file"
local tables = require "tycho.core.tables"
local tensor = require "tycho.onnx.tensor"


local function describe_infos(infos, given)
  local list = {}
  for _, info in ipairs(infos) do
    local kind = tensor.type_of(info.type.type)
    local shape = info.type.dims and tables.copied(info.type.dims)
    for i, size in ipairs(shape or {}) do
      shape[i] = size == "" and "?" or size
    end
    if not given[info.name] then
      list[#list + 1] = { info.name, shape, kind and kind.name or info.type.kind }
    end
  end
  return list
end


return function(path, func)
  local m, given = model_file.read(path, func), {}
  for _, t in ipairs(m.graph.initializers) do
    given[t.name] = true
  end
  return { input_tensor_data = describe_infos(m.graph.inputs, given),
    output_tensor_data = describe_infos(m.graph.outputs, {}), ir_version = m.ir_version,
    opsets = m.opsets, producer_name = m.producer_name, producer_version = m.producer_version,
    metadata = m.metadata, nodes = #m.graph.nodes }
end
