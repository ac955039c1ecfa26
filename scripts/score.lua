--- Measures a saved network on images with known labels.
--
--   tycho scripts/score.lua               trains a small network first
--   tycho scripts/score.lua run/m         the last checkpoint of train_mnist.lua --checkpoint run/m
--   tycho scripts/score.lua run/c 160 --data cifar-10-batches-bin
--   tycho scripts/score.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local saved = require "saved"

local parser = common.parser("Measures a saved network on images with known labels.")
saved.options(parser)
common.count(parser, "--images", "images to draw, or to take from a folder at most", 10000)
parser:flag("--quick", "few images")
local options = common.parse(parser, {images = 500})

local model = saved.load(options, parser)
local x, y = saved.images(model, options, options.data and options.images
  or math.min(options.images, 2000))
local n = x:len()
local data = ty.io.NDArrayIter{data = x, label = y, batch_size = math.min(options.batch, n)}
local module = saved.module(model, data)
local metric = ty.metric.create{"acc", "ce", ty.metric.TopKAccuracy{top_k = 3}}
module:score(data, metric, {count_pad = false})

-- Measures the speed without the metric, after warm-up.
data:reset()
local started = ty.callback.clock()
for batch in data do
  module:forward(batch)
end
ty.waitall()
local seconds = math.max(ty.callback.clock() - started, 0.005)

local _, values = metric:get()
print(("cross-entropy %.4f, among the best three %.4f, %.0f images/s")
  :format(values[2], values[3], n / seconds))
print(("accuracy %.4f of %s on %d images"):format(values[1], model.name, n))
