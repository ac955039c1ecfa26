--- Images: files, sizes, windows, colours, and iterators over them (`ty.image`).
--
--     local x = ty.image.imread("cat.jpg")                   -- (height, width, 3) uint8, red first
--     ty.image.imwrite("small.png", ty.image.resize_short(x, 224))
--     local it = ty.image.ImageIter{ batch_size = 32, data_shape = {3, 224, 224},
--       path_imgrec = "train.rec",
--       path_imgidx = "train.idx", shuffle = true, rand_crop = true, rand_mirror = true }
--
-- The parts: `image.pixels` and `image.rotate` (functions), `image.augment` (objects that change
-- images), `image.iter` (the iterator), `image.folder_iter` (the images of a folder),
-- `image.det_augment` and `image.det_iter` (images with bounding boxes).
-- For training at full speed see `ty.io.ImageRecordIter`, which works in C threads.
--
-- @module tycho.image

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local methods = require "tycho.core.methods"
local namespace = require "tycho.core.namespace"

local image = {}

for _, part in ipairs{ require "tycho.image.pixels", require "tycho.image.rotate",
    require "tycho.image.augment",
    require "tycho.image.iter", require "tycho.image.det_augment",
    require "tycho.image.det_iter",
    { ImageFolderIter = require "tycho.image.folder_iter" } } do
  for name, value in pairs(part) do
    image[name] = value
  end
end


return namespace.close(methods.guard_all(image), "image", "function or class")
