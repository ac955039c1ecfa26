-- Operators on images on a GPU: the CPU's bytes, and its draws for the same seed.

local devices = require "spec.support.devices_agree"

local PIXELS = devices.SCRIPT .. [[
local function image(shape, ctx, dtype)
  local x = (pattern(shape, here, "float64") + 1) * 94.6
  return (dtype == "uint8" and ty.nd.floor(x) or x):astype(dtype):as_in_context(ctx)
end

for _, size in ipairs{{3, 4}, {11, 9}, {5, 4}, {7, 5}} do
  for how = 0, 4 do
    compare(("resized float64 %d %dx%d"):format(how, size[1], size[2]), function(ctx)
      return ty.nd._cvimresize{image({7, 10, 3}, ctx, "float64"), w = size[1], h = size[2],
        interp = how}
    end)
  end
end

compare("cubic rows of vectors and a rest", function(ctx)
  local column = ty.nd.array({{{93}}, {{140}}, {{220}}, {{134}}}, ctx, "uint8")
  return ty.nd._cvimresize{ty.nd.tile{column, reps = {1, 9, 1}}, w = 9, h = 10, interp = 2}
end)

for _, dtype in ipairs{"uint8", "float32"} do
  for how = 0, 4 do
    for _, size in ipairs{{3, 4}, {11, 9}, {5, 4}, {13, 3}, {10, 7}} do
      compare(("resized %s %d %dx%d"):format(dtype, how, size[1], size[2]), function(ctx)
        return ty.nd._cvimresize{image({7, 10, 3}, ctx, dtype), w = size[1], h = size[2],
          interp = how}
      end)
    end
  end
  compare("halves " .. dtype, function(ctx)
    return ty.nd.image.resize{image({2, 6, 8, 1}, ctx, dtype), size = {4, 3}}
  end)
  for kind = 0, 4 do
    compare(("border %d %s"):format(kind, dtype), function(ctx)
      return ty.nd._cvcopyMakeBorder{image({4, 5, 3}, ctx, dtype), top = 2, bot = 1, left = 3,
        right = 0, type = kind, value = 7.5}
    end)
  end
  compare("border by channel " .. dtype, function(ctx)
    return ty.nd._cvcopyMakeBorder{image({2, 3, 5}, ctx, dtype), top = 1, bot = 1, left = 1,
      right = 1, values = {300, 2.5, -1}}
  end)
  for channels = 1, 3, 2 do
    local shape = {9, 31, channels}
    for _, name in ipairs{"brightness", "contrast", "saturation", "hue"} do
      compare(("%s %s %d"):format(name, dtype, channels), function(ctx)
        return ty.nd.image["random_" .. name]{image(shape, ctx, dtype), min_factor = 0.3,
          max_factor = 1.6}
      end)
    end
    compare(("jitter %s %d"):format(dtype, channels), function(ctx)
      local runs = {}
      for i = 1, 5 do
        runs[i] = ty.nd.image.random_color_jitter{image(shape, ctx, dtype), brightness = 0.4,
          contrast = 0.5, saturation = i == 2 and 0 or 0.3, hue = 0.2}
      end
      return all(runs)
    end)
    compare(("light %s %d"):format(dtype, channels), function(ctx)
      local x = image(shape, ctx, dtype)
      return all{ty.nd.image.adjust_lighting{x, alpha = {0.5, -1, 2}},
        ty.nd.image.random_lighting{x, alpha_std = 0.5}}
    end)
  end
end
for _, dtype in ipairs{"uint8", "float32", "float16", "bfloat16", "bool", "int64"} do
  for _, name in ipairs{"left_right", "top_bottom"} do
    compare(("flip %s %s"):format(name, dtype), function(ctx)
      local runs = {}
      for i = 1, 6 do
        runs[i] = ty.nd.image["random_flip_" .. name]{image({3, 4, 2}, ctx, dtype)}
      end
      return all(runs)
    end)
  end
  compare("planes " .. dtype, function(ctx)
    return ty.nd.image.to_tensor{image({3, 4, 2}, ctx, dtype)}
  end)
end
]]

describe("images on a GPU", function()
  it("are the CPU's", function()
    devices.agree(pending, PIXELS, 5 * 4 + 1 + 2 * (25 + 1 + 5 + 1 + 2 * 6) + 6 * 3)
  end)
end)
