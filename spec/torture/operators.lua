-- What spec/torture/faults.lua lets fail beside its scenarios: every line of two tables of
-- operators, run forward and, of the first, backward, or called on arrays. As scenarios.lua.

local runs = require "spec.support.operator_runs"

local list = {}
runs.add(list, require "spec.operators.cases", true)
runs.add(list, require "spec.operators.cases_values", false)

return list
