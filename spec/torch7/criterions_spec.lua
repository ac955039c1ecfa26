-- Criterions of Torch7 as losses.

local device = require "spec.support.device"
local folder = require "spec.support.folder"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local log = math.log

local function nn(class, fields)
  return t7.object("nn." .. class, fields)
end

local function loss(module, inputs, labels)
  local shapes, arrays = {}, {}
  for prefix, list in pairs{ data = inputs, label = labels } do
    for i, v in ipairs(list) do
      local name = i == 1 and prefix or prefix .. i
      arrays[name] = ty.nd.array(v)
      shapes[name] = arrays[name].shape
    end
  end
  local value
  folder.with(function(dir)
    folder.write(dir .. "/c.t7", t7.bytes(module))
    local net, args = ty.torch7.import_model{ dir .. "/c.t7", shapes = shapes }
    for _, name in ipairs(net:list_arguments()) do
      args[name] = args[name] or arrays[name]
    end
    value = net:bind{ ctx = ty.cpu(), args = device.placed(args, ty.cpu()) }:forward()[1]:asscalar()
  end)
  return value
end

local SUM = { sizeAverage = false }

describe("a criterion of Torch7", function()
  -- class, fields, inputs, labels, loss
  local rows = {
    { "MSECriterion", {}, { { 1, 3 } }, { { 0, 1 } }, 2.5 },
    { "MSECriterion", SUM, { { 1, 3 } }, { { 0, 1 } }, 5 },
    { "AbsCriterion", {}, { { 1, 3 } }, { { 0, 1 } }, 1.5 },
    { "SmoothL1Criterion", {}, { { 0.5, 3 } }, { { 0, 0 } }, (0.125 + 2.5) / 2 },
    { "ClassNLLCriterion", {}, { { { -1, -2 }, { -3, -4 } } }, { { 1, 2 } }, 2.5 },
    { "ClassNLLCriterion", SUM, { { { -1, -2 }, { -3, -4 } } }, { { 1, 2 } }, 5 },
    { "ClassNLLCriterion", {}, { { -1, -2 } }, { { 2 } }, 2 },
    { "ClassNLLCriterion", { weights = t7.tensor("Float", { 2 }, { 1, 3 }) },
      { { { -1, -2 }, { -3, -4 } } }, { { 1, 2 } }, (1 + 12) / 4 },
    { "ClassNLLCriterion", { ignoreIndex = 2 }, { { { -1, -2 }, { -3, -4 } } }, { { 1, 2 } }, 1 },
    { "SpatialClassNLLCriterion", {},
      { { { { { -1, -2 } }, { { -3, -4 } } } } }, { { { { 1, 2 } } } }, 2.5 },
    { "CrossEntropyCriterion", {}, { { { 0, 0 } } }, { { 1 } }, log(2) },
    { "BCECriterion", {}, { { 0.5, 0.25 } }, { { 1, 0 } }, (log(2) - log(0.75)) / 2 },
    { "MultiLabelSoftMarginCriterion", {}, { { 0 } }, { { 1 } }, log(2) },
    { "DistKLDivCriterion", {}, { { 0, log(0.25) } }, { { 0, 0.5 } }, 0.5 * log(2) / 2 },
    { "MarginCriterion", {}, { { 0.5, 3 } }, { { 1, -1 } }, (0.5 + 4) / 2 },
    { "SoftMarginCriterion", {}, { { 0 } }, { { 1 } }, log(2) },
    { "HingeEmbeddingCriterion", { margin = 1 }, { { 2, 0.25 } }, { { 1, -1 } }, (2 + 0.75) / 2 },
    { "MultiMarginCriterion", {}, { { { 1, 0.5, 3 } } }, { { 1 } }, (0.5 + 3) / 3 },
    { "MultiMarginCriterion", { p = 2 }, { { { 1, 0.5, 3 } } }, { { 1 } }, (0.25 + 9) / 3 },
    { "MarginRankingCriterion", { margin = 1 }, { { 1 }, { 3 } }, { { 1 } }, 3 },
    { "CosineEmbeddingCriterion", { margin = 0.5 },
      { { { 1, 0 } }, { { 3, 4 } } }, { { 1 } }, 0.4 },
    { "CosineEmbeddingCriterion", { margin = 0.5 },
      { { { 1, 0 } }, { { 3, 4 } } }, { { -1 } }, 0.1 },
    { "L1HingeEmbeddingCriterion", { margin = 4 }, { { 1, 2 }, { 2, 4 } }, { { -1 } }, 1 },
    { "L1Cost", {}, { { 1, -3 } }, {}, 4 },
    { "MultiCriterion", { criterions = { nn("MSECriterion"), nn("AbsCriterion") },
      weights = { 1, 10 } }, { { 2 } }, { { 0 } }, 24 },
    { "ParallelCriterion", { criterions = { nn("MSECriterion"), nn("AbsCriterion") },
      weights = { 1, 0.5 } }, { { 2 }, { 5 } }, { { 0 }, { 1 } }, 6 },
    { "ParallelCriterion", { criterions = { nn("MSECriterion"), nn("AbsCriterion") },
      repeatTarget = true }, { { 2 }, { 5 } }, { { 0 } }, 9 },
    { "SequencerCriterion", { criterion = nn("MSECriterion") },
      { { 1 }, { 2 } }, { { 0 }, { 0 } }, 5 },
    { "SequencerCriterion", { criterion = nn("MSECriterion"), sizeAverage = true },
      { { { 1 }, { 2 } } }, { { { 0 }, { 0 } } }, 2.5 },
    { "RepeaterCriterion", { criterion = nn("MSECriterion") }, { { 1 }, { 2 } }, { { 0 } }, 5 },
    { "ModuleCriterion", { criterion = nn("MSECriterion"), inputModule = nn("MulConstant",
      { constant_scalar = 2 }) }, { { 1 } }, { { 0 } }, 4 },
  }
  for i, row in ipairs(rows) do
    it(("is a loss: %s (%d)"):format(row[1], i), function()
      assert.near(row[5], loss(nn(row[1], row[2]), row[3], row[4]), 1e-5)
    end)
  end

  it("that is not known is named", function()
    local e = assert.raises("unsupported", loss, nn("MultiLabelMarginCriterion"), { { 1 } },
      { { 1 } })
    assert.truthy(e.message:find("nn.MultiLabelMarginCriterion", 1, true), e.message)
  end)

  it("has targets that fit", function()
    assert.raises("shape", loss, nn("MSECriterion"), { { 1, 2 } }, { { 1 } })
    assert.raises("shape", loss, nn("ClassNLLCriterion"), { { { 1, 2 } } }, { { 1, 2 } })
    assert.raises("type", loss, nn("MarginRankingCriterion"), { { 1, 2 } }, { { 1, 2 } })
  end)
end)
