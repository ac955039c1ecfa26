--- The operators of ONNX that can be imported: domain -> name -> function (not for users).
--
-- @module tycho.onnx.operators

local pairs = require("tycho.core.iterate").pairs

local attention = require("tycho.onnx.ops_attention").ops

local operators = { [""] = {}, ["com.microsoft"] = {}, ["ai.onnx.ml"] = {},
  ["ai.onnx.preview"] = { FlexAttention = attention.FlexAttention } }

local TABLES = {
  { "", require "tycho.onnx.ops_math" },
  { "", require "tycho.onnx.ops_types" },
  { "", require "tycho.onnx.ops_shape" },
  { "", require "tycho.onnx.ops_nn" },
  { "", require "tycho.onnx.ops_random" },
  { "", require "tycho.onnx.ops_sequence" },
  { "", require "tycho.onnx.ops_image" },
  { "", require "tycho.onnx.ops_signal" },
  { "", require "tycho.onnx.ops_rnn" },
  { "", require("tycho.onnx.ops_quantized").ops },
  { "", attention },
  { "", require "tycho.onnx.ops_control" },
  { "com.microsoft", require "tycho.onnx.ops_microsoft" },
  { "ai.onnx.ml", require "tycho.onnx.ops_ml" },
}

for _, row in ipairs(TABLES) do
  for name, convert in pairs(row[2]) do
    operators[row[1]][name] = convert
  end
end

-- Graph optimizers write this operator without its domain.
operators[""].SimplifiedLayerNormalization =
  operators["com.microsoft"].SimplifiedLayerNormalization

return operators
