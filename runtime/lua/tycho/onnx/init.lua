--- Networks in ONNX files: `ty.onnx`.
--
--     local sym, args, auxs = ty.onnx.import_model{"net.onnx", shapes = {input = {1, 3, 224, 224}}}
--     local mod = ty.onnx.load{"net.onnx", shapes = {input = {1, 3, 224, 224}}}
--
-- @module tycho.onnx

local args = require "tycho.core.args"
local namespace = require "tycho.core.namespace"

local onnx = {}


local IMPORT = args.form("onnx.import_model", { { "file", "text" }, "*", { "shapes", "dict?" },
  { "partial", "boolean", false } })

--- Reads a network.
-- @string file path
-- @tparam[opt] table options shapes: input to sizes, for dimensions that the file leaves open;
--   partial: if operators are missing, the error lists all of them in `missing`, not the first one
-- @treturn Symbol its arguments are the file's inputs and parameters, its outputs the file's
-- @treturn table parameters by name, read when they are first needed
-- @treturn table auxiliary states by name
function onnx.import_model(...)
  local a = IMPORT(...)
  local r = require("tycho.onnx.import").run({ path = a.file, shapes = a.shapes,
    partial = a.partial }, "onnx.import_model")
  return r.symbol, r.arguments, r.auxiliary
end


return namespace.close(onnx, "onnx", "function")
