--- Pictures with labels: MNIST, CIFAR, records and folders (part of `ty.gluon.data.vision`).
--
-- A sample is an image, (height, width, channels) uint8, and a label, a number. Files are those of
-- the reference's names in `root`, plain or with `.gz` appended; nothing is fetched.
--
-- @module tycho.gluon.data.vision.datasets

local args = require "tycho.core.args"
local array_class = require "tycho.ndarray.class"
local codec = require "tycho.ndarray.image_codec"
local dataset = require "tycho.gluon.data.dataset"
local Error = require "tycho.core.error"
local list_folder = require("tycho.ndarray.folder").list
local ffi = require "ffi"
local files = require "tycho.core.files"
local log = require "tycho.core.log"
local native = require "tycho.core.ffi"
local nd = require "tycho.ndarray"
local plan = require "tycho.gluon.data.plan"
local recordio = require "tycho.io.recordio"

local C, check = native.C, native.check

local datasets = {}


-- Files -------------------------------------------------------------------------------------------

local made = ffi.new("ty_tensor *[1]")

-- Reads up to `most` bytes of a file, packed by gzip or not, from byte `skip` (from 0) on; returns
-- a uint8 array, nil if there are none.
local function read_bytes(path, skip, most, func)
  check(C.ty_gz_read(path, skip, most, made), func, { argument = path })
  return made[0] ~= nil and array_class.own(made[0]) or nil
end


local function default_root(name)
  local home = os.getenv("TYCHO_HOME")
  if not home or home == "" then
    home = (os.getenv("HOME") or ".") .. "/.tycho"
  end
  return home .. "/datasets/" .. name
end


-- Returns the path of a file in a folder, or in one of the folders that archives make there.
local function find(root, name, func, folders)
  for _, folder in ipairs{ "", unpack(folders or {}) } do
    for _, ending in ipairs{ "", ".gz" } do
      local path = ("%s/%s%s%s"):format(root, folder, name, ending)
      if files.exists(path) then
        return path
      end
    end
  end
  Error.raise{ code = "io", func = func, argument = root,
    expected = ("%s or %s.gz"):format(name, name), got = "neither",
    message = ("the folder '%s' has no file '%s'; nothing is fetched: put it there"):format(root,
      name) }
end


local function fail_format(path, what, func)
  Error.raise{ code = "format", func = func, argument = path,
    message = ("'%s': %s"):format(path, what) }
end


-- In memory ---------------------------------------------------------------------------------------

-- Base of data sets whose images and labels are read when they are made.
local Loaded = dataset.Dataset:extend("Loaded")

function Loaded:_set(images, labels, transform)
  self._images, self._labels, self._transform =
    array_class.keep(images), array_class.keep(labels), transform
end


function Loaded:len()
  return self._labels.shape[1]
end


local function sample_at(self, i)
  if type(i) ~= "number" or i < 0 or i >= self:len() or i ~= math.floor(i) then
    Error.raise{ code = "index", func = self.class_name .. ":get", argument = tostring(i),
      expected = ("a sample from 0 to %d"):format(self:len() - 1), got = i,
      message = ("there is no sample %s"):format(tostring(i)) }
  end
  return self._images[i], self._labels[i]:asscalar()
end


function Loaded:get(i)
  if self._transform then
    return self._transform(sample_at(self, i))
  end
  return sample_at(self, i)
end


plan.describe(Loaded.get, function(self)
  local p = plan.of_arrays({ self._images, self._labels }, self)
  if self._transform then
    p = plan.changed(p, self._transform, "all")
    p.dtypes[2], p.whole[2] = "int32", true
  end
  return p
end)


-- MNIST -------------------------------------------------------------------------------------------

local IDX_BYTES = 8                                      -- the code of bytes in an idx file

-- Returns the sizes in the head of an idx file, and the head's length in bytes.
local function read_head(path, ndim, func)
  local size = 4 + 4 * ndim
  local head = read_bytes(path, 0, size, func)
  local text = head and head:tostring_raw() or ""
  if #text < size or text:byte(1) ~= 0 or text:byte(2) ~= 0 or text:byte(3) ~= IDX_BYTES
      or text:byte(4) ~= ndim then
    fail_format(path, ("no idx file of %d dimensions of bytes"):format(ndim), func)
  end
  local sizes = {}
  for k = 1, ndim do
    local a, b, c, d = text:byte(1 + 4 * k, 4 + 4 * k)
    sizes[k] = ((a * 256 + b) * 256 + c) * 256 + d
    if sizes[k] == 0 then
      fail_format(path, "a dimension of 0", func)
    end
  end
  return sizes, size
end


local function read_idx(path, ndim, func)
  local sizes, skip = read_head(path, ndim, func)
  local n = 1
  for _, size in ipairs(sizes) do
    n = n * size
  end
  local body = n < 2 ^ 53 and read_bytes(path, skip, n + 1, func)
  local got = body and body.size or 0
  if got ~= n then
    fail_format(path, got < n and ("the file is truncated: %d of %.0f bytes"):format(got, n)
      or "the file goes on after its last element", func)
  end
  return body:reshape(sizes), sizes
end


local function mnist(class_name, folder)
  local Set = Loaded:extend(class_name)
  local func = "gluon.data.vision." .. class_name
  local form = args.form(func, { { "root", "text?" }, { "train", "boolean", true },
    { "transform", "function?" } })
  function Set:init(...)
    local a = form(...)
    local root, stem = a.root or default_root(folder), a.train and "train" or "t10k"
    local images_path = find(root, stem .. "-images-idx3-ubyte", func)
    local labels_path = find(root, stem .. "-labels-idx1-ubyte", func)
    local images, sizes = read_idx(images_path, 3, func)
    local labels = read_idx(labels_path, 1, func)
    if labels.size ~= sizes[1] then
      fail_format(labels_path, ("%d labels, but '%s' has %d images"):format(labels.size,
        images_path, sizes[1]), func)
    end
    self:_set(images:reshape{ sizes[1], sizes[2], sizes[3], 1 }, labels:astype("int32"),
      a.transform)
  end
  datasets[class_name] = Set
end


--- Handwritten digits in idx files (`train-images-idx3-ubyte` and so on).
-- Options root = TYCHO_HOME/datasets/mnist, train = true, transform(image, label).
-- @function MNIST
mnist("MNIST", "mnist")

--- As `MNIST`, pieces of clothing; root = TYCHO_HOME/datasets/fashion-mnist.
-- @function FashionMNIST
mnist("FashionMNIST", "fashion-mnist")


-- CIFAR -------------------------------------------------------------------------------------------

local SIDE, CHANNELS = 32, 3
local PIXELS = SIDE * SIDE * CHANNELS

-- Returns the records of a file as rows: label bytes, then an image, channels first.
local function read_records(path, label_bytes, func)
  local size = label_bytes + PIXELS
  local bytes = read_bytes(path, 0, 2 ^ 40, func)
  local count = bytes and bytes.size / size or 0
  if count == 0 or count ~= math.floor(count) then
    fail_format(path, ("%d bytes are not records of %d"):format(bytes and bytes.size or 0, size),
      func)
  end
  return bytes:reshape{ count, size }
end


-- Returns the images and labels of CIFAR files. A record begins with `label_bytes` labels, of which
-- number `label_at` (from 0) is used.
local function read_cifar(paths, label_bytes, label_at, func)
  local images, labels = {}, {}
  for k, path in ipairs(paths) do
    local records = read_records(path, label_bytes, func)
    local n = records.shape[1]
    labels[k] = records:slice_axis{ axis = 1, begin = label_at, end_ = label_at + 1 }
      :reshape{ n }:astype("int32")
    images[k] = records:slice_axis{ axis = 1, begin = label_bytes, end_ = label_bytes + PIXELS }
      :reshape{ n, CHANNELS, SIDE, SIDE }:transpose{ axes = { 0, 2, 3, 1 } }
  end
  if #paths == 1 then
    return images[1], labels[1]
  end
  images.dim, labels.dim = 0, 0
  return nd.concat(images), nd.concat(labels)
end


local function cifar(class_name, folder, archive, kind)
  local Set = Loaded:extend(class_name)
  local func = "gluon.data.vision." .. class_name
  local spec = { { "root", "text?" } }
  if kind.fine then
    spec[#spec + 1] = { "fine_label", "boolean", false }
  end
  spec[#spec + 1] = { "train", "boolean", true }
  spec[#spec + 1] = { "transform", "function?" }
  local form = args.form(func, spec)
  function Set:init(...)
    local a, paths = form(...), {}
    for k, name in ipairs(a.train and kind.train or kind.test) do
      paths[k] = find(a.root or default_root(folder), name, func, { archive })
    end
    local images, labels = read_cifar(paths, kind.label_bytes, a.fine_label and 1 or 0, func)
    self:_set(images, labels, a.transform)
  end
  datasets[class_name] = Set
end


--- Small pictures of ten kinds in binary files (`data_batch_1.bin` and so on, `test_batch.bin`).
-- Options root = TYCHO_HOME/datasets/cifar10, train = true, transform(image, label).
-- @function CIFAR10
cifar("CIFAR10", "cifar10", "cifar-10-batches-bin/", { label_bytes = 1, test = { "test_batch.bin" },
  train = { "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
    "data_batch_5.bin" } })

--- As `CIFAR10`, a hundred kinds in twenty groups (`train.bin`, `test.bin`);
-- root = TYCHO_HOME/datasets/cifar100. Option fine_label = false: the label is the group.
-- @function CIFAR100
cifar("CIFAR100", "cifar100", "cifar-100-binary/",
  { label_bytes = 2, fine = true, train = { "train.bin" }, test = { "test.bin" } })


-- Records -----------------------------------------------------------------------------------------

--- Images in a file of records. A label is a number, several are an array.
-- @type ImageRecordDataset
local ImageRecordDataset = dataset.RecordFileDataset:extend("ImageRecordDataset")
datasets.ImageRecordDataset = ImageRecordDataset

local RECORDS = args.form("gluon.data.vision.ImageRecordDataset", { { "filename", "text" },
  { "flag", "integer", 1 }, { "transform", "function?" } })

--- @string filename the index is beside it under the same name with `.idx`; missing E(io)
-- @int[opt=1] flag 1: three channels, 0: grey, -1: as stored
-- @tparam[opt] function transform of image and label
function ImageRecordDataset:init(...)
  local a = RECORDS(...)
  self._flag, self._transform = a.flag, a.transform
  self:_open(a.filename)
end


local function record_at(self, i)
  local text = ImageRecordDataset.super.get(self, i)
  local header, bytes = recordio.unpack(text)
  local label = header.label
  if type(label) == "table" then
    label = nd.array(label, { dtype = "float32" })
  end
  return codec.decode(bytes, self._flag, true, "ImageRecordDataset:get"), label
end


function ImageRecordDataset:get(i)
  if self._transform then
    return self._transform(record_at(self, i))
  end
  return record_at(self, i)
end


local function fill_records(source, self)
  local keys, idx = self._record.keys, self._record.idx
  local offset = ffi.new("int64_t[?]", math.max(#keys, 1))
  for k, key in ipairs(keys) do
    offset[k - 1] = idx[key]
  end
  check(C.ty_source_records(source, self._filename, offset, #keys, self._flag),
    "gluon.data.DataLoader")
end


plan.describe(ImageRecordDataset.get, function(self)
  local p = { dataset = self, fields = 2, image = true, changes = {}, dtypes = {}, whole = {} }
  p.fill, p.stored = fill_records, self
  return self._transform and plan.changed(p, self._transform, "all") or p
end)


-- Folders -----------------------------------------------------------------------------------------

--- Images in folders, one for each kind. Fields: synsets (names of the kinds), items (lists of
-- path and label).
-- @type ImageFolderDataset
local ImageFolderDataset = dataset.Dataset:extend("ImageFolderDataset")
datasets.ImageFolderDataset = ImageFolderDataset

local FOLDER = args.form("gluon.data.vision.ImageFolderDataset", { { "root", "text" },
  { "flag", "integer", 1 }, { "transform", "function?" } })

local IMAGES = { jpg = true, jpeg = true, png = true }

local function add_images(self, path, label, func)
  for _, entry in ipairs(list_folder(path, func)) do
    local file = path .. "/" .. entry.name
    if not entry.folder and IMAGES[(entry.name:match("%.([^.]*)$") or ""):lower()] then
      self.items[#self.items + 1] = { file, label }
    else
      log:warning(("%s: '%s' is passed over; images end in .jpg, .jpeg or .png"):format(func, file))
    end
  end
end


--- @string root a folder of folders; missing E(io)
-- @int[opt=1] flag 1: three channels, 0: grey, -1: as stored
-- @tparam[opt] function transform of image and label
function ImageFolderDataset:init(...)
  local a, func = FOLDER(...), "gluon.data.vision.ImageFolderDataset"
  self._flag, self._transform = a.flag, a.transform
  self.synsets, self.items = {}, {}
  for _, entry in ipairs(list_folder(a.root, func)) do
    local path = a.root .. "/" .. entry.name
    if entry.folder then
      self.synsets[#self.synsets + 1] = entry.name
      add_images(self, path, #self.synsets - 1, func)
    else
      log:warning(("%s: '%s' is passed over, as it is no folder"):format(func, path))
    end
  end
end


function ImageFolderDataset:len()
  return #self.items
end


local function image_at(self, i)
  local item = self.items[i + 1]
  if not item then
    Error.raise{ code = "index", func = "ImageFolderDataset:get", argument = tostring(i),
      expected = ("a sample from 0 to %d"):format(#self.items - 1), got = i,
      message = ("there is no sample %s"):format(tostring(i)) }
  end
  local image = files.parse(item[1], "ImageFolderDataset:get", function(bytes)
    return codec.decode(bytes, self._flag, true, "ImageFolderDataset:get")
  end)
  return image, item[2]
end


function ImageFolderDataset:get(i)
  if self._transform then
    return self._transform(image_at(self, i))
  end
  return image_at(self, i)
end


local function fill_files(source, self)
  local n = #self.items
  local paths, labels = ffi.new("const char *[?]", n), {}
  for k, item in ipairs(self.items) do
    paths[k - 1], labels[k] = item[1], item[2]
  end
  check(C.ty_source_files(source, paths, n, self._flag), "gluon.data.DataLoader")
  check(C.ty_source_rows(source, nd.array(labels, { dtype = "float32" }).handle),
    "gluon.data.DataLoader")
end


plan.describe(ImageFolderDataset.get, function(self)
  local p = { dataset = self, fields = 2, image = true, changes = {}, dtypes = {}, whole = {} }
  if #self.items > 0 then
    p.fill, p.stored = fill_files, self
  end
  return self._transform and plan.changed(p, self._transform, "all") or p
end)


return datasets
