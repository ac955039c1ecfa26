-- Every operator has a line in a table of cases, or stands here with the spec that has its cases,
-- the reason, and the word by which that spec calls it, where it is another.
local ty = require "tycho"
require "spec.helper"

-- what the lines of each table are checked for
local TABLES = {
  ["spec.operators.cases"] = "gradient against differences, write, add and null, fused, plain, \z
    recomputed, half types, ends, NaN",
  ["spec.operators.cases_values"] =
  "values, gradient, write, add and null, planned, shared, unplanned, half types, ends",
  ["spec.operators.cases_updates"] = "one step in each type, NaN",
  ["spec.operators.cases_samplers"] =
  "moments, Kolmogorov-Smirnov or chi-square, seeds and threads",
}

local ELSEWHERE = {
  Custom = {"executor/custom_operator_spec",
    "its inputs, outputs and gradients are whatever a Lua class says"},
  _foreach = {"symbol/control_spec", "it has a body"},
  _while_loop = {"symbol/control_spec", "it has bodies"},
  _cond = {"symbol/control_spec", "it has bodies"},
  _guard = {"symbol/control_spec", "only loops and choices make it", "while_loop"},
  _contrib_linear_cross_entropy = {"operators/linear_cross_entropy_spec",
    "its gradient takes no head gradient, and it is a loss with a label for each row"},
  _learn = {"module/fused_optimizer_spec", "its gradient is a step on its inputs", "Learner"},
  _gate = {"symbol/control_spec", "only loops and choices make it", "cond"},
  _select = {"symbol/control_spec", "only loops and choices make it", "cond"},
  _contrib_boolean_mask = {"operators/boolean_mask_spec",
    "its output has as many rows as the data say"},
  _cvimdecode = {"image/image_spec", "it takes a file's bytes"},
  _cvimread = {"image/image_spec", "it takes a file's name"},
}

local QUANTIZED = "quantize quantize_v2 dequantize requantize calibrate_entropy quantized_act \z
  quantized_batch_norm quantized_concat " ..
  "quantized_conv quantized_elemwise_add quantized_elemwise_mul quantized_embedding \z
    quantized_flatten quantized_fully_connected " ..
  "quantized_pooling"
for name in QUANTIZED:gmatch("%S+") do
  ELSEWHERE["_contrib_" .. name] = {"operators/quantize_spec", "its arrays are integers and ranges"}
end

local function lines()
  local count = {}
  for name in pairs(TABLES) do
    for _, line in ipairs(require(name)) do
      local own = ty.op.info(line[1]).name
      count[own] = (count[own] or 0) + 1
    end
  end
  return count
end

describe("the tables of cases", function()
  it("have a line for every operator", function()
    local count, missing = lines(), {}
    for _, name in ipairs(ty.op.list()) do
      if ty.op.info(name).tier > 0 and not count[name] and not ELSEWHERE[name] then
        missing[#missing + 1] = name
      end
    end
    assert.equal("", table.concat(missing, " "))
  end)

  it("leave out only what cannot have one, and whose spec is there", function()
    local count = lines()
    for name, where in pairs(ELSEWHERE) do
      assert.is_nil(count[name], name .. " has a line")
      local file = assert(io.open("spec/" .. where[1] .. ".lua"))
      local plain = where[3] or name:gsub("^_contrib_", ""):gsub("^_cv", ""):gsub("^_", "")
      assert.is_truthy(file:read("*a"):find(plain, 1, true),
        where[1] .. " does not speak of " .. plain)
      file:close()
    end
  end)
end)
