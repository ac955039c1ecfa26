--- Images for the scripts: loads them, splits them, and changes them slightly at random.
--
--     local x, y = images.load(options.data, {1, 28, 28}, 1000, 1)  -- digits; {3, 32, 32}:
--                                                                   pictures
--     local train, test = images.split(x, y, {train = 800, test = 200, batch = 50})
--     train = images.Augmented(train, {mirror = true, shift = 4})

local ty = require "tycho"
local digits = require "digits"
local pictures = require "pictures"

local images = {}

-- means and deviations of red, green and blue over CIFAR-10's training images
local MEAN, DEVIATION = {125.3, 123.0, 113.9}, {63.0, 62.1, 66.7}
images.MEAN, images.DEVIATION = MEAN, DEVIATION

local function plane_values(values)
  return ty.nd.array(values):reshape{1, #values, 1, 1}
end

--- Returns bytes of coloured images as numbers around 0.
-- @tparam NDArray x (N, 3, H, W)
-- @treturn NDArray float32
function images.normalise(x)
  return (x:astype("float32") - plane_values(MEAN)) / plane_values(DEVIATION)
end

--- Returns images of a shape, from a folder or drawn: digits with one plane, pictures with three.
-- @tparam ?string folder idx files of MNIST's form, or CIFAR-10's binary files; nil draws
-- @tparam {int,...} shape of one image
-- @int n number of images that are drawn
-- @int seed
-- @string[opt="test"] part of CIFAR-10
-- @treturn NDArray images (n, ...): digits in 0 .. 1, pictures normalised
-- @treturn NDArray labels (n,)
function images.load(folder, shape, n, seed, part)
  if shape[1] == 1 then
    if folder then
      return digits.read(folder)
    end
    return digits.draw(n, seed)
  end
  local x, y
  if folder then
    x, y = pictures.read(folder, part or "test")
  else
    x, y = pictures.draw(n, seed)
  end
  return images.normalise(x), y
end

--- Returns the name of a class for output.
-- @int label from 0
-- @tparam {int,...} shape of one image
-- @tparam ?string folder nil when the images are drawn
function images.class_name(label, shape, folder)
  local names = shape[1] == 3 and (folder and pictures.CIFAR or pictures.DRAWN) or {}
  return names[label] or tostring(label)
end

--- Returns the images whose classes a network knows, with the network's class numbers as labels.
-- @tparam NDArray x (N, ...)
-- @tparam NDArray y (N,)
-- @tparam ?{string,...} names of the network's classes; nil: those of the images
-- @tparam {int,...} shape of one image
-- @tparam ?string folder nil when the images are drawn
-- @treturn NDArray images
-- @treturn NDArray labels
function images.known(x, y, names, shape, folder)
  if not names then
    return x, y
  end
  local number, rows, labels = {}, {}, {}
  for i, name in ipairs(names) do
    number[name] = i - 1
  end
  for i, label in ipairs(y:totable()) do
    local known = number[images.class_name(label, shape, folder)]
    rows[#rows + 1], labels[#labels + 1] = known and i - 1, known
  end
  assert(#rows > 0, "no image is of a class that the network knows: " .. table.concat(names, ", "))
  return x:take(ty.nd.array(rows, {dtype = "int32"})), ty.nd.array(labels)
end

--- Returns iterators over the first images, for training, and the last ones, for testing.
-- @tparam NDArray x (N, ...)
-- @tparam NDArray y (N,)
-- @tparam table a train, test, batch: numbers of images
-- @treturn NDArrayIter training images, shuffled
-- @treturn NDArrayIter test images
function images.split(x, y, a)
  local n = x:len()
  assert(n >= a.train + a.test, ("there are %d images, %d are needed"):format(n, a.train + a.test))
  local function part(from, to, shuffle)
    return ty.io.NDArrayIter{data = x:slice_axis{axis = 0, begin = from, end_ = to},
      label = y:slice_axis{axis = 0, begin = from, end_ = to},
      batch_size = a.batch, shuffle = shuffle}
  end
  return part(0, a.train, true), part(n - a.test, n, false)
end


-- Small changes -----------------------------------------------------------------------------------

--- An iterator around another one of bytes of coloured images. It normalises them, mirrors each one
-- with probability 1/2, and shifts each batch by up to `shift` pixels, so that a network cannot
-- memorise the images.
local Augmented = ty.io.DataIter:extend("Augmented")
images.Augmented = Augmented

-- @tparam DataIter inner gives (N, 3, H, W)
-- @tparam table options mirror = false, shift = 0
function Augmented:init(inner, options)
  Augmented.super.init(self, {batch_size = inner.batch_size})
  local desc = inner.provide_data[1]
  self.inner, self.mirror, self.shift = inner, options.mirror, options.shift or 0
  self.provide_data, self.provide_label =
    {ty.io.DataDesc(desc.name, desc.shape)}, inner.provide_label
end

-- Mirrors each image with probability 1/2.
local function mirrored(x)
  local coin = ty.nd.random.uniform{shape = {x:len(), 1, 1, 1}}:gt(0.5)
  return x * coin + x:reverse{axis = 3} * (1 - coin)
end

local function shifted(x, by)
  local height, width = x.shape[3], x.shape[4]
  local from = ty.nd.random.randint(0, 2 * by + 1, {shape = 2}):totable()
  local wide = x:pad{mode = "constant", pad_width = {0, 0, 0, 0, by, by, by, by}}
  return wide:slice{begin = {0, 0, from[1], from[2]},
    end_ = {x:len(), 3, from[1] + height, from[2] + width}}
end

function Augmented:next()
  local batch = self.inner:next()
  if batch then
    local x = images.normalise(batch.data[1])
    x = self.mirror and mirrored(x) or x
    batch.data[1] = self.shift > 0 and shifted(x, self.shift) or x
  end
  return batch
end

function Augmented:reset()
  self.inner:reset()
end

function Augmented:state()
  return self.inner:state()
end

function Augmented:set_state(state)
  self.inner:set_state(state)
end

return images
