-- Regions that a network proposes, and gradients of rows that a mask chooses, on a GPU: the CPU's.

local devices = require "spec.support.devices_agree"

local REGIONS = devices.SCRIPT .. [[
local V = ty.sym.Variable

local function proposals(name, images, dtype, options)
  return function(ctx)
    local info = {}
    for i = 1, images do
      info[3 * i - 2], info[3 * i - 1], info[3 * i] = 40 + 20 * i, 70, 1
    end
    local call = {(pattern({images, 12, 5, 6}, here, "float64") + 1):astype(dtype):as_in_context(ctx),
      (pattern({images, 24, 5, 6}, here, "float64") * 0.4):astype(dtype):as_in_context(ctx),
      ty.nd.array{info, ctx = here}:reshape{images, 3}:astype(dtype):as_in_context(ctx),
      scales = {1, 2.5, 4}, ratios = {0.5, 1.7}, output_score = true}
    for k, v in pairs(options) do
      call[k] = v
    end
    return all(ty.nd.contrib[name](call))
  end
end

for _, dtype in ipairs{"float32", "float64"} do
  compare("of one image " .. dtype, proposals("Proposal", 1, dtype,
    {rpn_pre_nms_top_n = 60, rpn_post_nms_top_n = 9}))
  compare("of images " .. dtype, proposals("MultiProposal", 3, dtype,
    {rpn_pre_nms_top_n = 0, rpn_post_nms_top_n = 200, threshold = 0.5, rpn_min_size = 20}))
  compare("of corners " .. dtype, proposals("MultiProposal", 2, dtype,
    {rpn_post_nms_top_n = 20, iou_loss = true, feature_stride = 9}))
end

for _, dtype in ipairs{"float32", "float16", "int32"} do
  for _, n in ipairs{3, 700} do
    compare(("rows of %d by %s"):format(n, dtype), function(ctx)
      local exe = ty.sym.contrib.boolean_mask{V("x"), V("mask")}:simple_bind{ctx = ctx, x = {n, 2},
        mask = {n}, type_dict = {x = "float64", mask = dtype}}
      pattern({n, 2}, ctx, "float64"):copyto(exe.arg_dict.x)
      ty.nd.relu(ty.nd.floor(pattern({n}, here, "float64") * 2)):astype(dtype)
        :copyto(exe.arg_dict.mask)
      exe:forward{is_train = true}
      exe:backward{pattern(exe.outputs[1].shape, ctx, "float64")}
      return all{exe.outputs[1], exe.grad_dict.x, exe.grad_dict.mask}
    end)
  end
end
]]

describe("on a GPU", function()
  it("the CPU's regions are proposed, and rows of a mask get their gradients", function()
    devices.agree(pending, REGIONS, 12)
  end)
end)
