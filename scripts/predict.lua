--- Says what a saved network sees in images.
--
--   tycho scripts/predict.lua             trains a small network, shows it digits
--   tycho scripts/predict.lua run/m       the last checkpoint of train_mnist.lua --checkpoint run/m
--   tycho scripts/predict.lua run/c --file cat.jpg --file dog.png
--   tycho scripts/predict.lua run/c --data cifar-10-batches-bin --images 20
--   tycho scripts/predict.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local saved = require "saved"

local parser = common.parser("Says what a saved network sees in images.")
saved.options(parser)
parser:option("--file", "JPEG or PNG file, may be given several times"):count("*")
common.count(parser, "--images", "images to draw or to take from a folder", 10)
common.count(parser, "--top", "guesses to print", 3)
parser:flag("--quick", "few images")
local options = common.parse(parser, {images = 5})

-- Returns an image file in the form of the network's input: resized, channels first, and grey if
-- the network has one channel.
local function read_image(path, shape)
  local x = ty.image.imread(path, {flag = shape[1] == 1 and 0 or 1})
  x = ty.image.imresize(x, shape[3], shape[2])
  x = x:transpose{axes = {2, 0, 1}}:expand_dims{axis = 0}
  return shape[1] == 3 and images.normalise(x) or x:astype("float32") / 255
end

local model = saved.load(options, parser)
local x, y
if #options.file > 0 then
  local list = {}
  for i, path in ipairs(options.file) do
    local ok, image = pcall(read_image, path, model.shape)
    list[i] = ok and image or parser:error(("--file %s: %s"):format(path, image.message))
  end
  x = ty.nd.concat{dim = 0, unpack(list)}
else
  x, y = saved.images(model, options, options.images)
end

local data = ty.io.NDArrayIter{data = x, batch_size = math.min(options.batch, x:len())}
local likely = saved.module(model, data):predict(data)
local top = likely:topk{k = math.min(options.top, likely.shape[2]), axis = 1}:totable()
local odds, truth, right = likely:totable(), y and y:totable(), 0

for i, guesses in ipairs(top) do
  local texts = {}
  for k, label in ipairs(guesses) do
    texts[k] = ("%s %.1f %%"):format(saved.class_name(model, options, label),
      100 * odds[i][label + 1])
  end
  local is = truth and saved.class_name(model, options, truth[i])
  right = right + (truth and truth[i] == guesses[1] and 1 or 0)
  print(("%s: %s"):format(is and ("image %d (%s)"):format(i - 1, is) or options.file[i],
    table.concat(texts, ", ")))
end
print(truth and ("%d of %d right by %s"):format(right, #truth, model.name)
  or ("%d images seen by %s"):format(#top, model.name))
