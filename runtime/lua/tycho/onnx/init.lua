--- Networks in ONNX files: `ty.onnx`.
--
--     local sym, args, auxs = ty.onnx.import_model{"net.onnx", shapes = {input = {1, 3, 224, 224}}}
--     local mod = ty.onnx.load{"net.onnx", shapes = {input = {1, 3, 224, 224}}}
--
-- @module tycho.onnx

require "tycho.core.luajit"
local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"

local onnx = {}


local IMPORT = args.form("onnx.import_model", { { "file", "text" }, "*", { "shapes", "dict?" },
  { "partial", "boolean", false }, { "ctx", "context?" }, { "constants", "dict?" } })

--- Reads a network.
-- @string file path
-- @tparam[opt] table options shapes: input to sizes, for dimensions that the file leaves open;
--   constants: input to a number, a list of them or an array, for inputs that are the same in all
--   runs, such as a rate of samples: no argument of the network, and a choice that depends on it
--   is the branch that it chooses;
--   partial: if operators are missing, the error lists all of them in `missing`, not the first one;
--   ctx = current: where it will run; quantized layers are computed in 8-bit integers on a CPU, in
--   floats on a GPU
-- @treturn Symbol its arguments are the file's inputs and parameters, its outputs the file's
-- @treturn table parameters by name, read when they are first needed
-- @treturn table auxiliary states by name
function onnx.import_model(...)
  local a = IMPORT(...)
  local r = require("tycho.onnx.importer").run({ path = a.file, shapes = a.shapes,
    constants = a.constants, partial = a.partial, ctx = a.ctx }, "onnx.import_model")
  return r.symbol, r.arguments, r.auxiliary
end


--- Returns the inputs and outputs of a network, and the file's metadata.
-- @string file path
-- @treturn table input_tensor_data and output_tensor_data: lists of `{name, shape, dtype}`, open
--   sizes by name or "?"; ir_version, opsets, producer_name, producer_version, metadata
function onnx.get_model_metadata(file)
  local ok = type(file) == "string"
  if not ok then
    Error.raise{ code = "type", func = "onnx.get_model_metadata", argument = "file",
      expected = "a path", got = Error.kind(file), message = "bad 'file'" }
  end
  return require("tycho.onnx.metadata")(file, "onnx.get_model_metadata")
end


local LOAD = args.form("onnx.load", { { "file", "text" }, "*", { "shapes", "dict?" },
  { "ctx", "context?" }, { "constants", "dict?" } })

--- Reads a network as a Module that is bound for inference.
-- @string file path
-- @tparam[opt] table options shapes and constants as of `import_model`; ctx
-- @treturn Module
function onnx.load(...)
  local a = LOAD(...)
  return require("tycho.onnx.load_module")(a, "onnx.load")
end


local EXPORT = args.form("onnx.export_model", { { "symbol", "symbol|text" }, { "params", "any?" },
  { "input_shapes", "any?" }, { "file", "text", "model.onnx" }, "*", { "opset", "integer", 17 },
  { "dynamic", "dict?" }, { "input_types", "dict?" } })

--- Writes a network for inference. Losses become their predictions, labels are left out.
-- @param symbol a Symbol, or the path of its file, or the prefix of a checkpoint
-- @tparam table params arrays by name, with or without "arg:" and "aux:", or a path; of a
-- checkpoint   its epoch
-- @tparam table input_shapes input to sizes, or a list of sizes in the order of the inputs
-- @string file path
-- @tparam[opt] table options opset = 17: 13 to 24; dynamic: input to axes whose size stays open;
--   input_types: input to dtype, float32 where it is not said
function onnx.export_model(...)
  require("tycho.onnx.export_arguments")(EXPORT(...), "onnx.export_model")
end


return namespace.close(onnx, "onnx", "function")
