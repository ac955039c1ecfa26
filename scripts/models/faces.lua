--- Finds faces in a picture with MTCNN, three small networks with weights in PyTorch files.
--
--   pip download --no-deps facenet-pytorch && unzip -q facenet_pytorch-*.whl -d facenet
--   tycho scripts/models/faces.lua --folder facenet/facenet_pytorch/data --file photo.jpg
--   tycho scripts/models/faces.lua --help
--
-- The first network looks at the picture in many sizes and proposes squares, the second one drops
-- most of them, the third one finds the eyes, the nose and the mouth (Zhang et al., 2016).

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"

local sym = ty.sym

local LEAST = 20                                         -- pixels of the smallest face
local FACTOR = 0.709                                     -- between two sizes of the picture
local SURE = { 0.6, 0.7, 0.7 }                           -- least score of each network
local CELL, STRIDE = 12, 2                               -- window and stride of the first network

local parser = common.parser("Finds faces in a picture.")
parser:option("--folder", "folder with pnet.pt, rnet.pt and onet.pt"):count(1)
parser:option("--file", "JPEG or PNG file")
parser:option("--output", "PNG file to draw the faces into")
parser:option("--export", "folder for the networks as ONNX files: pnet.onnx, rnet.onnx, onet.onnx")
local options = common.parse(parser, {})


-- The networks -----------------------------------------------------------------------------------

-- Returns a convolution whose variables have the names in the file.
local function convolution(x, name, filters, kernel)
  return sym.Convolution{ data = x, weight = sym.Variable(name .. ".weight"),
    bias = sym.Variable(name .. ".bias"), num_filter = filters, kernel = { kernel, kernel } }
end

local function product(x, name, n)
  return sym.FullyConnected{ data = x, weight = sym.Variable(name .. ".weight"),
    bias = sym.Variable(name .. ".bias"), num_hidden = n }
end

local function prelu(x, name)
  return sym.LeakyReLU{ x, sym.Variable(name .. ".weight"), act_type = "prelu" }
end

local function pool(x, kernel)
  return sym.Pooling{ data = x, kernel = { kernel, kernel }, stride = { 2, 2 }, pool_type = "max",
    pooling_convention = "full" }
end

-- Flattens columns before rows, the order of the weights of the first product.
local function flat(x)
  return sym.Flatten(x:transpose{ axes = { 0, 3, 2, 1 } })
end

local function pnet()
  local x = prelu(convolution(sym.Variable "data", "conv1", 10, 3), "prelu1")
  x = prelu(convolution(pool(x, 2), "conv2", 16, 3), "prelu2")
  x = prelu(convolution(x, "conv3", 32, 3), "prelu3")
  return sym.Group{ convolution(x, "conv4_1", 2, 1):softmax{ axis = 1 },
    convolution(x, "conv4_2", 4, 1) }
end

local function rnet()
  local x = prelu(convolution(sym.Variable "data", "conv1", 28, 3), "prelu1")
  x = prelu(convolution(pool(x, 3), "conv2", 48, 3), "prelu2")
  x = prelu(convolution(pool(x, 3), "conv3", 64, 2), "prelu3")
  x = prelu(product(flat(x), "dense4", 128), "prelu4")
  return sym.Group{ product(x, "dense5_1", 2):softmax{ axis = 1 }, product(x, "dense5_2", 4) }
end

local function onet()
  local x = prelu(convolution(sym.Variable "data", "conv1", 32, 3), "prelu1")
  x = prelu(convolution(pool(x, 3), "conv2", 64, 3), "prelu2")
  x = prelu(convolution(pool(x, 3), "conv3", 64, 3), "prelu3")
  x = prelu(convolution(pool(x, 2), "conv4", 128, 2), "prelu4")
  x = prelu(product(flat(x), "dense5", 256), "prelu5")
  return sym.Group{ product(x, "dense6_1", 2):softmax{ axis = 1 }, product(x, "dense6_2", 4),
    product(x, "dense6_3", 10) }
end

-- Returns a function that runs a network on an array.
local function loaded(net, file)
  local weights = ty.nd.load(options.folder .. "/" .. file)
  return function(x)
    weights.data = (x - 127.5) / 128
    local args = {}
    for i, name in ipairs(net:list_arguments()) do
      args[i] = weights[name]
    end
    return net:bind{ ctx = ty.cpu(), args = args, grad_req = "null" }:forward()
  end
end


-- Boxes: {left, top, right, bottom, score = ...} --------------------------------------------------

-- Drops boxes that overlap a better one by more than a share of their union, or of the smaller one.
local function best(boxes, most, of_smaller)
  table.sort(boxes, function(a, b) return a.score > b.score end)
  local kept = {}
  for _, b in ipairs(boxes) do
    local free, area = true, (b[3] - b[1] + 1) * (b[4] - b[2] + 1)
    for _, a in ipairs(kept) do
      local common_area = math.max(0, math.min(a[3], b[3]) - math.max(a[1], b[1]) + 1)
        * math.max(0, math.min(a[4], b[4]) - math.max(a[2], b[2]) + 1)
      local other = (a[3] - a[1] + 1) * (a[4] - a[2] + 1)
      local whole = of_smaller and math.min(area, other) or area + other - common_area
      free = free and common_area <= most * whole
    end
    kept[#kept + 1] = free and b or nil
  end
  return kept
end

-- Returns a box moved by a network's output, which is relative to its sides.
local function moved(b, by, extra)
  local w, h = b[3] - b[1] + extra, b[4] - b[2] + extra
  return { b[1] + by[1] * w, b[2] + by[2] * h, b[3] + by[3] * w, b[4] + by[4] * h, score = b.score }
end

local function squared(b)
  local w, h = b[3] - b[1], b[4] - b[2]
  local side = math.max(w, h)
  local left, top = b[1] + (w - side) / 2, b[2] + (h - side) / 2
  return { left, top, left + side, top + side, score = b.score }
end

local function resized(image, height, width)
  return ty.nd.contrib.AdaptiveAvgPooling2D{ image, output_size = { height, width } }
end

-- Returns the parts of the picture in boxes, all resized to one size; boxes outside it are dropped.
local function crops(image, boxes, size)
  local height, width, list, inside = image.shape[3], image.shape[4], {}, {}
  for _, b in ipairs(boxes) do
    local x, y = math.max(math.floor(b[1]), 1) - 1, math.max(math.floor(b[2]), 1) - 1
    local ex, ey = math.min(math.floor(b[3]), width), math.min(math.floor(b[4]), height)
    if ex > x and ey > y then
      list[#list + 1] = resized(image[(":, :, %d:%d, %d:%d"):format(y, ey, x, ex)], size, size)
      inside[#inside + 1] = b
    end
  end
  return list[1] and ty.nd.concat{ dim = 0, unpack(list) }, inside
end

-- Returns the boxes for which the second or third network gives a sufficient score, with the
-- network's outputs.
local function judged(net, image, boxes, size, sure)
  local batch, inside = crops(image, boxes, size)
  local out = batch and net(batch) or {}
  local scores, moves = out[1] and out[1]:totable() or {}, out[2] and out[2]:totable()
  local points, kept = out[3] and out[3]:totable(), {}
  for i, b in ipairs(inside) do
    if scores[i][2] > sure then
      kept[#kept + 1] = { b[1], b[2], b[3], b[4], score = scores[i][2], by = moves[i],
        points = points and points[i] }
    end
  end
  return kept
end


-- The three stages -------------------------------------------------------------------------------

local function propose(net, image)
  local height, width, all = image.shape[3], image.shape[4], {}
  local scale, side = CELL / LEAST, math.min(image.shape[3], image.shape[4]) * CELL / LEAST
  while side >= CELL do
    local out = net(resized(image, math.floor(height * scale + 1), math.floor(width * scale + 1)))
    local scores, moves, boxes = out[1]:totable()[1][2], out[2]:totable()[1], {}
    for y, row in ipairs(scores) do
      for x, score in ipairs(row) do
        if score >= SURE[1] then
          local left, top = STRIDE * (x - 1), STRIDE * (y - 1)
          boxes[#boxes + 1] = { math.floor((left + 1) / scale), math.floor((top + 1) / scale),
            math.floor((left + CELL) / scale), math.floor((top + CELL) / scale), score = score,
            by = { moves[1][y][x], moves[2][y][x], moves[3][y][x], moves[4][y][x] } }
        end
      end
    end
    for _, b in ipairs(best(boxes, 0.5)) do
      all[#all + 1] = b
    end
    scale, side = scale * FACTOR, side * FACTOR
  end
  local kept = best(all, 0.7)
  for i, b in ipairs(kept) do
    kept[i] = squared(moved(b, b.by, 0))
  end
  return kept
end

local function find(image)
  local boxes = propose(loaded(pnet(), "pnet.pt"), image)
  local second = best(judged(loaded(rnet(), "rnet.pt"), image, boxes, 24, SURE[2]), 0.7)
  for i, b in ipairs(second) do
    second[i] = squared(moved(b, b.by, 1))
  end
  local third = judged(loaded(onet(), "onet.pt"), image, second, 48, SURE[3])
  for i, b in ipairs(third) do
    local w, h, points = b[3] - b[1] + 1, b[4] - b[2] + 1, {}
    for k = 1, 5 do
      points[k] = { b[1] + w * b.points[k] - 1, b[2] + h * b.points[k + 5] - 1 }
    end
    third[i] = moved(b, b.by, 1)
    third[i].points = points
  end
  return best(third, 0.7, true)
end


-- Draws frames around faces and dots on the points found in them into a picture.
local function draw(picture, faces)
  local height, width = picture.shape[1], picture.shape[2]
  local function paint(x, y, w, h)
    local left, top = math.max(math.floor(x), 0), math.max(math.floor(y), 0)
    local right, bottom = math.min(math.floor(x + w), width), math.min(math.floor(y + h), height)
    if left < right and top < bottom then
      picture[("%d:%d, %d:%d, :"):format(top, bottom, left, right)] = 255
    end
  end
  for _, b in ipairs(faces) do
    local w, h = b[3] - b[1], b[4] - b[2]
    paint(b[1], b[2], w, 2)
    paint(b[1], b[4] - 2, w, 2)
    paint(b[1], b[2], 2, h)
    paint(b[3] - 2, b[2], 2, h)
    for _, point in ipairs(b.points) do
      paint(point[1] - 1, point[2] - 1, 3, 3)
    end
  end
end

-- Writes the networks as ONNX files, each for a single picture.
local function export(to)
  for name, case in pairs{ pnet = { pnet(), 120, 160 }, rnet = { rnet(), 24, 24 },
    onet = { onet(), 48, 48 } } do
    ty.onnx.export_model{ case[1], ty.nd.load(options.folder .. "/" .. name .. ".pt"),
      { data = { 1, 3, case[2], case[3] } }, to .. "/" .. name .. ".onnx" }
  end
end

if options.export then
  export(options.export)
end
if not options.file then
  return
end
local picture = ty.image.imread(options.file)
local image = picture:astype("float32"):transpose{ axes = { 2, 0, 1 } }:expand_dims{ axis = 0 }
local faces = find(image)
for i, b in ipairs(faces) do
  print(("face %d: %.0f, %.0f to %.0f, %.0f, score %.4f")
    :format(i, b[1], b[2], b[3], b[4], b.score))
end
print("faces: " .. #faces)
if options.output then
  draw(picture, faces)
  ty.image.imwrite(options.output, picture)
end
