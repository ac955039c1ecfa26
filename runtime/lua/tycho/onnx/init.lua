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


local RENAMED = args.renamed{ sym = "symbol", in_shapes = "input_shapes",
  input_shape = "input_shapes", in_types = "input_types", input_type = "input_types",
  onnx_file_path = "file", model_file = "file" }

local IMPORT = args.form("onnx.import_model", { advice = RENAMED,
  { "file", "path" }, "*", { "shapes", "dict?" }, { "partial", "boolean", false },
  { "ctx", "context?" }, { "constants", "dict?" } })

--- Reads a network. A file that cannot be read is E(`io`); one that is damaged or breaks ONNX's
-- rules is E(`format`). A node that the importer cannot convert is E(`unsupported`), a size that is
-- missing in `shapes` E(`shape`), an option for an input that the file lacks E(`name`).
-- @string file path
-- @tparam[opt] table options shapes: input -> sizes, for dimensions that the file leaves open;
--   constants: input -> a number, a list of numbers or an array, for inputs with the same value in
--   all runs, such as a sample rate: they are not arguments of the network, and branches that
--   depend on them are chosen at import; partial = false: true lists all nodes that cannot be
--   converted in the error's field `missing`, instead of the first one only; ctx = the current one:
--   the device on which the network will run, since quantized layers use 8-bit integers on a CPU
--   and floats on a GPU
-- @treturn Symbol its arguments are the file's inputs and parameters, its outputs the file's
-- @treturn table arguments: name -> array on cpu(0) for any `ctx`, which is read on first use
-- @treturn table auxiliary states: name -> array on cpu(0)
function onnx.import_model(...)
  local a = IMPORT(...)
  local r = require("tycho.onnx.importer").run({ path = a.file, shapes = a.shapes,
    constants = a.constants, partial = a.partial, ctx = a.ctx }, "onnx.import_model")
  return r.symbol, r.arguments, r.auxiliary
end


--- Returns the inputs and outputs of a network, and the file's metadata, without reading weights.
-- Errors of the file are those of `import_model`.
-- @string file path
-- @treturn table input_tensor_data and output_tensor_data: lists of `{name, shape, dtype}`, where
--   an open size is a name or "?"; ir_version, opsets (domain -> version), producer_name,
--   producer_version, metadata (key -> text)
function onnx.get_model_metadata(file)
  local ok = type(file) == "string"
  if not ok then
    Error.raise{ code = "type", func = "onnx.get_model_metadata", argument = "file",
      expected = "a path", got = Error.kind(file), message = "bad 'file'" }
  end
  return require("tycho.onnx.metadata")(file, "onnx.get_model_metadata")
end


local LOAD = args.form("onnx.load", { { "file", "path" }, "*", { "shapes", "dict?" },
  { "ctx", "context?" }, { "constants", "dict?" } })

--- Reads a network as a Module that is bound for inference. Errors are those of `import_model`. The
-- module's data are the inputs that the network reads. Batches of other shapes are E(`shape`) if
-- the file computes with the shapes, so that they would need another network.
-- @string file path
-- @tparam[opt] table options shapes, constants, ctx: as for `import_model`
-- @treturn Module
function onnx.load(...)
  local a = LOAD(...)
  return require("tycho.onnx.load_module")(a, "onnx.load")
end


local EXPORT = args.form("onnx.export_model", { advice = RENAMED,
  { "symbol", "symbol|text" }, { "params", "any?" }, { "input_shapes", "any?" },
  { "file", "path", "model.onnx" }, "*", { "opset", "integer", 17 },
  { "dynamic", "dict?" }, { "input_types", "dict?" } })

--- Writes a network for inference. Losses are replaced by their predictions, labels are left out.
-- An operator that ONNX cannot express is E(`unsupported`), an input without a shape E(`shape`).
-- @param symbol a Symbol, or the path of its file, or the prefix of a checkpoint
-- @param params name -> array, with or without "arg:" and "aux:" before the name, or the path of
--   such a file; for a checkpoint the number of its epoch
-- @tparam table input_shapes input -> sizes, or a list of shapes in the order of the inputs
-- @string file path
-- @tparam[opt] table options opset = 17: 13 to 24; dynamic: input -> list of axes, from 0, whose
--   size stays open in the file; input_types: input -> dtype, float32 for others
function onnx.export_model(...)
  require("tycho.onnx.export_arguments")(EXPORT(...), "onnx.export_model")
end


return namespace.close(onnx, "onnx", "function")
