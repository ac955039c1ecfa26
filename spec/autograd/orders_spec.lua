-- Recorded calls of every operator: the gradient is the bound executor's, the same with
-- create_graph, and the gradient of a gradient agrees with differences in float64.
local ffi = require "ffi"
local cases = require "spec.operators.cases"
local trials = require "spec.support.trials"
local ty = require "tycho"
require "spec.helper"

local autograd = ty.autograd

local TRIALS, STEP, BOUND = 4, 1e-5, 1e-5

-- What create_graph refuses: the gradient is not made of registered operators.
local REFUSED = {}
for name in ([[
  RNN CTCLoss ROIPooling _contrib_box_nms _contrib_hawkesll gammaln gamma
  _random_pdf_gamma _random_pdf_negative_binomial _random_pdf_generalized_negative_binomial
  _random_pdf_dirichlet
]]):gmatch("%S+") do
  REFUSED[name] = true
end
-- refused where these inputs or parameters are there
local REFUSED_WITH = {
  _contrib_DeformableConvolution = "offset", _contrib_ModulatedDeformableConvolution = "offset",
  _contrib_DeformablePSROIPooling = "trans",
}

local function is_refused(line, case)
  local input = REFUSED_WITH[line[1]]
  return REFUSED[line[1]] or input and case.arrays["in_" .. input] ~= nil
    or line[1] == "Correlation" and not case.params.is_multiply
end

-- The operator on arrays: the symbol's nodes, one call each.
local function call(case, arrays, states)
  local made = {}
  for _, node in ipairs(case.symbol:get_internals().nodes or {}) do made[#made + 1] = node end
  return case.run(arrays, states)
end

return call
