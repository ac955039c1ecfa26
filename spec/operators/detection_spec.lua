-- Operators of detection: anchors, targets, suppression, proposals, pooling of
-- regions. Values worked out by hand.
local ty = require "tycho"
require "spec.helper"

local nd, sym, contrib = ty.nd, ty.sym, ty.nd.contrib
local V = sym.Variable
local NAN, INF = 0 / 0, math.huge

local function constant(shape, of)
  local x = nd.zeros(shape)
  local p = x:data()
  for i = 0, x.size - 1 do p[i] = of(i) end
  return x
end

describe("MultiBoxPrior", function()
  local image = nd.zeros{1, 1, 1, 2}

  it("lays sizes, then ratios, around the centre of each cell", function()
    local want = {{{0.125, 0.25, 0.375, 0.75}, {0, 0.375, 0.5, 0.625}, {0.625, 0.25, 0.875, 0.75},
      {0.5, 0.375, 1, 0.625}}}
    assert.near(want, contrib.MultiBoxPrior{image, sizes = {0.5}, ratios = {1, 4}})
  end)

  it("clips, and takes steps and offsets as y and x", function()
    assert.near({{{0, 0, 0.75, 1}, {0.25, 0, 1, 1}}},
      contrib.MultiBoxPrior{image, sizes = {2}, clip = true})
    assert.near({{{0.125, -0.25, 0.375, 0.25}, {0.375, -0.25, 0.625, 0.25}}},
                contrib.MultiBoxPrior{image, sizes = {0.5}, steps = {0.5, 0.25}, offsets = {0, 1}})
  end)

  it("refuses lists that say nothing", function()
    for _, options in ipairs{{sizes = {}}, {ratios = {}}, {ratios = {0}},
        {steps = {0.1, -1}}, {offsets = {1}}} do
      options[1] = image
      assert.raises("value", contrib.MultiBoxPrior, options)
    end
    assert.raises("shape", contrib.MultiBoxPrior, {nd.zeros{1, 2, 3}})
  end)
end)

describe("MultiBoxTarget", function()
  local anchors = nd.array{{{0, 0, 0.5, 0.5}, {0.5, 0.5, 1, 1}, {0, 0.5, 0.5, 1}}}
  local pred = nd.array{{{0, 3, 1}, {0, 0, 0}}}

  local function target(label, options)
    local t = {anchors, nd.array(label), pred}
    for k, v in pairs(options or {}) do t[k] = v end
    return unpack(contrib.MultiBoxTarget(t))
  end

  it("gives each object its best anchor, and offsets from there", function()
    local place, mask, class =
      target{{{1, 0, 0, 0.5, 0.5}, {0, 0.5, 0.5, 1, 0.9}, {-1, 0, 0, 1, 1}}}
    assert.near({{2, 1, 0}}, class)
    assert.near({{0, 0, 0, 0, 0, -1, 0, math.log(0.8) / 0.2, 0, 0, 0, 0}}, place, 1e-5)
    assert.near({{1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0}}, mask)
  end)

  it("ignores every anchor of an image without objects", function()
    local place, mask, class =
      target({{{-1, 0, 0, 0.5, 0.5}, {0, 0, 0, 1, 1}}}, {ignore_label = -7})
    assert.near({{-7, -7, -7}}, class)
    assert.near({{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, place)
    assert.near({{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}, mask)
  end)

  it("mines the negatives that look least like background", function()
    local _, _, class = target({{{1, 0, 0, 0.5, 0.5}}}, {negative_mining_ratio = 1})
    assert.near({{2, -1, 0}}, class)
    _, _, class = target({{{1, 0, 0, 0.5, 0.5}}}, {negative_mining_ratio = 9})
    assert.near({{2, 0, 0}}, class)
    _, _, class =
      target({{{1, 0, 0, 0.5, 0.5}}}, {negative_mining_ratio = 9, negative_mining_thresh = 0})
    assert.near({{2, -1, -1}}, class)
  end)

  it("matches nothing to objects of NaN or without area", function()
    local _, mask, class = target{{{1, NAN, 0, 0.5, 0.5}, {0, 0.2, 0.2, 0.2, 0.2}}}
    assert.near({{0, 0, 0}}, class)
    assert.equal(0, nd.sum(mask):asscalar())
  end)

  it("refuses shapes that do not fit", function()
    assert.raises("shape", target, {{{1, 0, 0, 1}}})
    assert.raises("value", target, {{{1, 0, 0, 1, 1}}}, {variances = {1, 2}})
    assert.raises("shape", contrib.MultiBoxTarget, {anchors, nd.zeros{1, 2, 5}, nd.zeros{1, 2, 4}})
    assert.raises("shape", contrib.MultiBoxTarget, {anchors, nd.zeros{2, 2, 5}, nd.zeros{1, 2, 3}})
  end)
end)

describe("MultiBoxDetection", function()
  local anchors = nd.array{{{0, 0, 0.4, 0.4}, {0, 0, 0.4, 0.5}, {0.5, 0.5, 0.9, 0.9}}}
  local still, none = nd.zeros{1, 12}, {-1, -1, -1, -1, -1, -1}

  local function detect(prob, options)
    local t = {nd.array{prob}, still, anchors}
    for k, v in pairs(options or {}) do t[k] = v end
    return contrib.MultiBoxDetection(t)
  end

  it("keeps the better of two boxes of a class; the other keeps its row", function()
    local want = {{{0, 0.9, 0, 0, 0.4, 0.5}, {-1, 0.6, 0, 0, 0.4, 0.4}, none}}
    assert.near(want, detect{{0, 0, 0}, {0.6, 0.9, 0.005}})
  end)

  it("lets classes be, unless forced", function()
    local prob = {{0, 0, 0}, {0.6, 0.1, 0.1}, {0.2, 0.9, 0.7}}
    assert.near({{{1, 0.9, 0, 0, 0.4, 0.5}, {1, 0.7, 0.5, 0.5, 0.9, 0.9},
      {0, 0.6, 0, 0, 0.4, 0.4}}}, detect(prob))
    assert.near({{{1, 0.9, 0, 0, 0.4, 0.5}, {1, 0.7, 0.5, 0.5, 0.9, 0.9},
      {-1, 0.6, 0, 0, 0.4, 0.4}}}, detect(prob, {force_suppress = true}))
  end)

  it("leaves what is after nms_topk where it was found, and everything without a threshold",
    function()
      local prob = {{0, 0, 0}, {0.6, 0.9, 0.7}}
      assert.near({{{0, 0.9, 0, 0, 0.4, 0.5}, {-1, 0.9, 0, 0, 0.4, 0.5},
        {-1, 0.7, 0.5, 0.5, 0.9, 0.9}}}, detect(prob, {nms_topk = 1}))
      assert.near({{{0, 0.6, 0, 0, 0.4, 0.4}, {0, 0.9, 0, 0, 0.4, 0.5},
        {0, 0.7, 0.5, 0.5, 0.9, 0.9}}}, detect(prob, {nms_threshold = 0}))
    end)

  it("passes over NaN", function()
    assert.near({{{1, 0.3, 0, 0, 0.4, 0.4}, none, none}},
      detect{{0, 0, 0}, {NAN, NAN, NAN}, {0.3, NAN, 0}})
  end)

  it("finds nothing where only the background is", function()
    assert.near({{none, none, none}}, detect{{1, 1, 1}})
  end)
end)

describe("box_iou", function()
  it("is intersection over union in both forms", function()
    local a, b =
      nd.array{{0, 0, 2, 2}}, nd.array{{1, 1, 3, 3}, {2, 0, 4, 2}, {0, 0, 2, 2}, {5, 5, 4, 4}}
    assert.near({{1 / 7, 0, 1, 0}}, contrib.box_iou(a, b))
    assert.near({{1 / 7}},
      contrib.box_iou{nd.array{{1, 1, 2, 2}}, nd.array{{2, 2, 2, 2}}, format = "center"})
    assert.near({{NAN}}, contrib.box_iou(a, nd.array{{NAN, 0, 1, 1}}))
  end)

  it("takes any leading dims and refuses other boxes", function()
    assert.shape({2, 3, 5, 1}, contrib.box_iou(nd.zeros{2, 3, 4}, nd.zeros{5, 1, 4}))
    assert.raises("shape", contrib.box_iou, nd.zeros{2, 5}, nd.zeros{2, 4})
    assert.raises("shape", contrib.box_iou, nd.zeros{4}, nd.zeros{2, 4})
    assert.raises("dtype", contrib.box_iou, nd.zeros({2, 4}, {dtype = "int32"}),
      nd.zeros({2, 4}, {dtype = "int32"}))
  end)
end)

describe("box_nms", function()
  local A, B, C, D = {0, 0.5, 0, 0, 2, 2}, {1, 0.9, 0, 0, 2, 2},
    {0, 0.1, 5, 5, 6, 6}, {0, NAN, 5, 5, 6, 6}
  local none = {-1, -1, -1, -1, -1, -1}

  local function nms(rows, options)
    local t = {nd.array(rows)}
    for k, v in pairs(options or {}) do t[k] = v end
    return contrib.box_nms(t)
  end

  it("sorts, suppresses and fills up with -1", function()
    assert.near({B, C, none}, nms{A, B, C})
    assert.near({B, A, C}, nms({A, B, C}, {id_index = 0}))
    assert.near({B, C, none}, nms({A, B, C}, {id_index = 0, force_suppress = true}))
    assert.near({B, A, none}, nms({A, B, C}, {id_index = 0, valid_thresh = 0.3}))
    assert.near({A, C, none}, nms({A, B, C}, {id_index = 0, background_id = 1}))
    assert.near({B, none, none}, nms({A, B, C}, {topk = 2}))
    assert.near({A, B, C}, nms({A, B, C}, {topk = 0}))
    assert.near({{none}}, nms({{C}}, {valid_thresh = 2}))
  end)

  it("never chooses NaN", function()
    assert.near({B, C, none}, nms{D, C, B})
    assert.near({none}, nms{D})
  end)

  it("converts boxes from one form to the other", function()
    local centre, corner = {0, 0.5, 2, 3, 2, 4}, {0, 0.5, 1, 1, 3, 5}
    assert.near({corner}, nms({centre}, {in_format = "center", out_format = "corner"}))
    assert.near({centre}, nms({corner}, {in_format = "corner", out_format = "center"}))
  end)

  it("gives rows their gradients back", function()
    local exe = sym.contrib.box_nms{V("x")}:simple_bind{ctx = ty.cpu(), x = {3, 6}}
    exe.arg_dict.x[":"] = nd.array{A, B, C}
    exe:forward{is_train = true}
    exe:backward{constant({3, 6}, function(i) return math.floor(i / 6) + 1 end)}
    assert.near({{0, 0, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2}}, exe.grad_dict.x)
  end)

  it("counts rows beyond what float16 can", function()
    local n = 5000
    local x = constant({n, 6}, function(i)
      local row, column = math.floor(i / 6), i % 6
      return column == 1 and (row == n - 1 and 1 or 0) or column > 3 and 1 or 0
    end):astype("float16")
    local exe = sym.contrib.box_nms{V("x")}:bind{ctx = ty.cpu(), args = {x = x},
      args_grad = {x = nd.zeros({n, 6}, {dtype = "float16"})}}
    exe:forward{is_train = true}
    exe:backward{nd.ones({n, 6}, {dtype = "float16"})}
    assert.equal(6,
      nd.sum(exe.grad_dict.x:slice_axis{axis = 0, begin = n - 1, ["end"] = n}):asscalar())
    assert.equal(6, nd.sum(exe.grad_dict.x:astype("float32")):asscalar())
  end)

  it("refuses columns that overlap or are not there", function()
    assert.raises("shape", nms, {A}, {coord_start = 3})
    assert.raises("shape", nms, {A}, {id_index = 6})
    assert.raises("value", nms, {A}, {score_index = 2})
    assert.raises("value", nms, {A}, {id_index = 1})
    assert.raises("value", nms, {A}, {coord_start = -1})
    assert.raises("shape", contrib.box_nms, nd.zeros{6})
  end)
end)

describe("bipartite_matching", function()
  local x = nd.array{{0.5, 0.6}, {0.1, 0.2}, {0.3, 0.4}}
  local function match_pairs(t)
    t[1] = t[1] or x
    return unpack(contrib.bipartite_matching(t))
  end

  it("takes the best pair first", function()
    local rows, cols = match_pairs{threshold = 1e-12}
    assert.near({1, -1, 0}, rows)
    assert.near({2, 0}, cols)
    rows, cols = match_pairs{threshold = 0.35, is_ascend = true}
    assert.near({-1, 0, -1}, rows)
    assert.near({1, -1}, cols)
  end)

  it("takes NaN last, and none below the threshold", function()
    assert.near({-1, 0}, (match_pairs{nd.array{{NAN}, {0.2}}, threshold = 0.1}))
    assert.near({-1, 0}, (match_pairs{nd.array{{NAN}, {0.2}}, threshold = 0.3, is_ascend = true}))
    assert.near({-1, -1, -1}, (match_pairs{threshold = 0.6}))
  end)
end)

describe("box_encode and box_decode", function()
  local means, stds = nd.array{0, 0, 0, 0}, nd.array{0.1, 0.1, 0.2, 0.2}

  it("are each other's inverse", function()
    local anchors = nd.array{{{0, 0, 2, 2}, {1, 1, 3, 5}}}
    local refs = nd.array{{{0, 1, 4, 3}, {2, 2, 3, 3}}}
    local to, mask =
      unpack(contrib.box_encode{nd.array{{1, 1}}, nd.array{{1, 0}}, anchors, refs, means, stds})
    assert.near({{{1, 1, 1, 1}, {1, 1, 1, 1}}}, mask)
    assert.near({{{7.5, 7.5, math.log(0.5) / 0.2, math.log(0.5) / 0.2},
      {0, -2.5, math.log(2) / 0.2, math.log(0.5) / 0.2}}}, to, 1e-5)
    local back = contrib.box_decode{to, anchors, std0 = 0.1, std1 = 0.1, std2 = 0.2,
      std3 = 0.2, format = "corner"}
    assert.near({{{2, 2, 3, 3}, {0, 1, 4, 3}}}, back, 1e-5)
  end)

  it("leave out samples that do not count and matches that do not exist", function()
    local anchors, refs = nd.zeros{1, 4, 4} + 1, nd.ones{1, 1, 4}
    local to, mask = unpack(contrib.box_encode{nd.array{{0, 1, 1, 1}}, nd.array{{0, 1, -1, NAN}},
      anchors, refs, means, stds})
    assert.near(nd.zeros{1, 4, 4}, to)
    assert.near(nd.zeros{1, 4, 4}, mask)
  end)

  it("limit how much a box grows", function()
    local grown = contrib.box_decode{nd.array{{{0, 0, 9, 9}}},
      nd.array{{{0, 0, 2, 2}}}, clip = math.log(2)}
    assert.near({{{-2, -2, 2, 2}}}, grown, 1e-5)
  end)

  it("refuse anchors of other numbers", function()
    assert.raises("shape", contrib.box_decode, nd.zeros{1, 3, 4}, nd.zeros{1, 2, 4})
    assert.raises("shape", contrib.box_encode,
      {nd.zeros{1, 2}, nd.zeros{1, 2}, nd.zeros{1, 3, 4}, nd.zeros{1, 1, 4}, means, stds})
  end)
end)

describe("Proposal", function()
  local SQUARE = {scales = {1}, ratios = {1}, feature_stride = 16, rpn_post_nms_top_n = 5,
    rpn_min_size = 4, output_score = true}
  local function propose(scores, info, options, name)
    local batch = #scores
    local prob = nd.zeros{batch, 2, 2, 2}
    local p = prob:data()
    for n, list in ipairs(scores) do
      for i, v in ipairs(list) do p[8 * (n - 1) + 3 + i] = v end
    end
    local t = {prob, nd.zeros{batch, 4, 2, 2}, nd.array(info)}
    for _, o in ipairs{SQUARE, options or {}} do
      for k, v in pairs(o) do t[k] = v end
    end
    return unpack(contrib[name or "Proposal"](t))
  end
  local TL, TR, BL, BR = {0, 0, 0, 15, 15}, {0, 16, 0, 31, 15},
    {0, 0, 16, 15, 31}, {0, 16, 16, 31, 31}

  it("puts the best first and repeats where there are too few", function()
    local rois, score = propose({{0.1, 0.4, 0.3, 0.2}}, {{32, 32, 1}})
    assert.near({TR, BL, BR, TL, TR}, rois)
    assert.near({{0.4}, {0.3}, {0.2}, {0.1}, {0.4}}, score)
    assert.near({TR, BL},
      (propose({{0.1, 0.4, 0.3, 0.2}}, {{32, 32, 1}}, {rpn_post_nms_top_n = 2})))
    assert.near({TR, BL, TR, BL, TR},
      (propose({{0.1, 0.4, 0.3, 0.2}}, {{32, 32, 1}}, {rpn_pre_nms_top_n = 2})))
  end)

  it("lets boxes that are too small grow, and puts them last", function()
    local rois, score =
      propose({{0.1, 0.4, 0.3, 0.2}}, {{32, 32, 1}}, {rpn_min_size = 17, rpn_post_nms_top_n = 1})
    assert.near({{0, -8.5, -8.5, 23.5, 23.5}}, rois)
    assert.near({{-1}}, score)
  end)

  it("puts cells beyond the image and NaN last", function()
    local _, score = propose({{0.1, 0.4, 0.3, 0.2}}, {{16, 32, 1}}, {rpn_min_size = 0})
    assert.near({{0.4}, {0.1}}, score:slice_axis{axis = 0, begin = 0, ["end"] = 2})
    _, score = propose({{NAN, 0.4, NAN, 0.2}}, {{32, 32, 1}})
    assert.near({{0.4}, {0.2}, {-1}, {-1}, {0.4}}, score)
  end)

  it("treats each image of a batch alone", function()
    local rois = propose({{0.1, 0.4, 0.3, 0.2}, {0.4, 0.1, 0.2, 0.3}}, {{32, 32, 1}, {32, 32, 1}},
      {rpn_post_nms_top_n = 2}, "MultiProposal")
    assert.near({TR, BL, {1, 0, 0, 15, 15}, {1, 16, 16, 31, 31}}, rois)
    assert.raises("shape", propose, {{1}, {1}}, {{32, 32, 1}, {32, 32, 1}})
  end)

  it("refuses what makes no anchors", function()
    for _, options in ipairs{{scales = {}}, {ratios = {0}}, {feature_stride = 0},
        {rpn_post_nms_top_n = 0}} do
      assert.raises("value", propose, {{1}}, {{32, 32, 1}}, options)
    end
    assert.raises("shape", propose, {{1}}, {{32, 32, 1}}, {scales = {1, 2}})
  end)
end)

describe("pooling of regions", function()
  local ramp = constant({1, 1, 4, 4}, function(i) return i % 4 end)
  local grid = constant({1, 4, 2, 2}, function(i) return math.floor(i / 4) + 1 end)

  local function align(rois, options, name)
    local t = {ramp, nd.array(rois), pooled_size = {2, 2}, spatial_scale = 1}
    for k, v in pairs(options or {}) do t[k] = v end
    return contrib[name or "ROIAlign"](t)
  end

  it("aligned: is the mean of samples", function()
    assert.near({{{{1, 2.75}, {1, 2.75}}}}, align({{0, 0, 0, 4, 4}}, {sample_ratio = 2}))
    assert.near({{{{1, 2.75}, {1, 2.75}}}}, align{{0, 0, 0, 4, 4}})
    assert.near({{{{0.5, 2.5}, {0.5, 2.5}}}},
      align({{0, 0, 0, 4, 4}}, {sample_ratio = 2, aligned = true}))
    assert.near({{{{1, 2.75}, {1, 2.75}}}},
      align({{0, 0, 0, 8, 8}}, {sample_ratio = 2, spatial_scale = 0.5}))
  end)

  it("aligned: gives each bin channels of its own", function()
    local y = contrib.ROIAlign{grid, nd.array{{0, 0, 0, 2, 2}}, pooled_size = {2, 2},
      spatial_scale = 1, position_sensitive = true}
    assert.near({{{{1, 2}, {3, 4}}}}, y)
    assert.raises("shape", contrib.ROIAlign, {nd.zeros{1, 6, 2, 2}, nd.zeros{1, 5},
      pooled_size = {2, 2}, spatial_scale = 1, position_sensitive = true})
  end)

  it("rotated: turns samples about the centre", function()
    assert.near({{{{1, 2.75}, {1, 2.75}}}},
      align({{0, 2, 2, 4, 4, 0}}, {sampling_ratio = 2}, "RROIAlign"))
    assert.near({{{{1, 1}, {2.75, 2.75}}}},
      align({{0, 2, 2, 4, 4, 90}}, {sampling_ratio = 2}, "RROIAlign"), 1e-5)
    assert.near({{{{2.75, 1}, {2.75, 1}}}}, align({{0, 2, 2, 4, 4, 180}}, nil, "RROIAlign"), 1e-5)
  end)

  it("rotated: has no gradient", function()
    local s = sym.contrib.RROIAlign{V("x"), V("r"), pooled_size = {1, 1}, spatial_scale = 1}
    assert.raises("unsupported", s.simple_bind, s,
      {ctx = ty.cpu(), x = {1, 1, 2, 2}, r = {1, 6}, grad_req = "write"})
  end)

  it("position sensitive: means of pixels and of samples", function()
    local rois = nd.array{{0, 0, 0, 1, 1}}
    assert.near({{{{1, 2}, {3, 4}}}},
      contrib.PSROIPooling{grid, rois, spatial_scale = 1, output_dim = 1, pooled_size = 2})
    local options = {grid, rois, spatial_scale = 1, output_dim = 1, pooled_size = 2,
      group_size = 2, no_trans = true}
    assert.near({{{{1, 2}, {3, 4}}}}, contrib.DeformablePSROIPooling(options))
  end)

  it("position sensitive: bins that move out of the image are 0", function()
    local trans = constant({1, 2, 2, 2}, function(i) return i == 1 and 3 or 0 end)
    local y = contrib.DeformablePSROIPooling{grid, nd.array{{0, 0, 0, 1, 1}}, trans,
      spatial_scale = 1, output_dim = 1, pooled_size = 2, group_size = 2, trans_std = 1}
    assert.near({{{{1, 0}, {3, 4}}}}, y)
  end)

  it("position sensitive: refuses channels that do not fit", function()
    local rois = nd.zeros{1, 5}
    assert.raises("shape", contrib.PSROIPooling,
      {nd.zeros{1, 5, 2, 2}, rois, spatial_scale = 1, output_dim = 1, pooled_size = 2})
    assert.raises("shape", contrib.DeformablePSROIPooling, {grid, rois, nd.zeros{1, 3, 2, 2},
      spatial_scale = 1, output_dim = 1, pooled_size = 2, group_size = 2})
    assert.raises("value", contrib.PSROIPooling,
      {grid, rois, spatial_scale = 2, output_dim = 1, pooled_size = 2})
  end)

  -- regions of images that are not there, of NaN, infinite and huge ones
  local STRANGE = {{-1, 0, 0, 4, 4}, {1, 0, 0, 4, 4}, {NAN, 0, 0, 4, 4}, {0, NAN, 0, 4, 4},
    {0, -INF, 0, INF, 4}, {1e30, 0, 0, 4, 4}, {0, -3e38, -3e38, 3e38, 3e38},
    {0, 0, 0, 1e9, 1e9}, {0, 3, 3, -3, -3}}

  local function pooled(name, data, options)
    local rois = STRANGE
    if name == "RROIAlign" then
      rois = {}
      for i, r in ipairs(STRANGE) do rois[i] = {r[1], r[2], r[3], r[4], r[5], 30} end
    end
    local t = {data, nd.array(rois)}
    for k, v in pairs(options) do t[k] = v end
    return contrib[name](t)
  end

  it("gives 0 for samples that do not exist, and numbers for every region", function()
    local each = {
      ROIAlign = {ramp + 1, {pooled_size = {2, 2}, spatial_scale = 1}},
      RROIAlign = {ramp + 1, {pooled_size = {2, 2}, spatial_scale = 1}},
      PSROIPooling = {grid, {output_dim = 1, pooled_size = 2, spatial_scale = 1}},
      DeformablePSROIPooling = {grid, {output_dim = 1, pooled_size = 2, group_size = 2,
        spatial_scale = 1, no_trans = true, sample_per_part = 3}},
    }
    for name, case in pairs(each) do
      local y = pooled(name, case[1], case[2])
      local p = y:data()
      for i = 0, y.size - 1 do
        local region = math.floor(i / 4) + 1
        assert.is_true(p[i] == p[i] and math.abs(p[i]) < 100, name)
        if region <= 6 then assert.equal(0, p[i], name .. " region " .. region) end
      end
      assert.is_true(y.size > 0)
    end
  end)

  it("gives no gradient to what a strange region does not see", function()
    local exe = sym.contrib.ROIAlign{V("x"), V("r"), pooled_size = {2, 2}, spatial_scale = 1}
      :simple_bind{ctx = ty.cpu(), x = {1, 1, 4, 4}, r = {6, 5}}
    local strange = {}
    for i = 1, 6 do strange[i] = STRANGE[i] end
    exe.arg_dict.r[":"] = nd.array(strange)
    exe:forward{is_train = true}
    exe:backward{nd.ones{6, 1, 2, 2}}
    assert.near(nd.zeros{1, 1, 4, 4}, exe.grad_dict.x)
    assert.near(nd.zeros{6, 5}, exe.grad_dict.r)
  end)
end)

describe("detection in other types", function()
  local CALLS = {
    function(as) return contrib.MultiBoxPrior{as(nd.zeros{1, 1, 2, 2}), sizes = {0.5}} end,
    function(as) return contrib.box_iou(as(nd.array{{0, 0, 2, 2}}), as(nd.array{{1, 1, 3, 3}})) end,
    function(as)
      return contrib.box_nms{as(nd.array{{0, 0.5, 0, 0, 2, 2}, {0, 0.75, 0, 0, 2, 1}}),
        overlap_thresh = 0.25}
    end,
    function(as)
      return contrib.bipartite_matching{as(nd.array{{0.5, 0.25}, {0.125, 1}}), threshold = 0.2}[2]
    end,
    function(as)
      return contrib.box_decode(as(nd.array{{{0.5, 0, 0, 0}}}), as(nd.array{{{1, 1, 2, 2}}}))
    end,
    function(as)
      return contrib.ROIAlign{as(constant({1, 1, 4, 4}, function(i)
        return i
      end)), as(nd.array{{0, 0, 0, 3, 3}}), pooled_size = {2, 2}, spatial_scale = 1}
    end,
    function(as)
      return contrib.PSROIPooling{as(constant({1, 4, 3, 3}, function(i)
        return i
      end)), as(nd.array{{0, 0, 0, 2, 2}}), pooled_size = 2, output_dim = 1, spatial_scale = 1}
    end,
  }

  it("has their dtype and float32's values", function()
    for i, call in ipairs(CALLS) do
      local want = call(function(x) return x end)
      for dtype, bound in pairs{float64 = 1e-6, float16 = 1e-3, bfloat16 = 1e-2} do
        local got = call(function(x) return x:astype(dtype) end)
        assert.equal(dtype, got.dtype)
        assert.near(want, got:astype("float32"), bound, bound, "call " .. i)
      end
    end
  end)
end)
