--- Data sets of images with labels: MNIST, CIFAR, records and folders (part of
-- `ty.gluon.data.vision`).
--
-- A sample is an image, (height, width, channels) uint8, and a label, a number from 0. Files have
-- the reference's names, with or without `.gz`, and are in the folder `root`; nothing is
-- downloaded. `transform` is called as transform(image, label) and returns both. A missing file is
-- E(`io`), one of another format E(`format`).
--
-- @module tycho.gluon.data.vision.datasets

local args = require "tycho.core.args"
local array_class = require "tycho.ndarray.class"
local codec = require "tycho.ndarray.image_codec"
local context = require "tycho.core.context"
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

-- Returns at most `most` bytes of a file from byte `skip` (from 0) on, decompressed if it is a gzip
-- file, as a uint8 array; nil if there are none.
local function read_bytes(path, skip, most, func)
  check(C.ty_gz_read(path, skip, most, made), func, { argument = path })
  return made[0] ~= nil and array_class.own(made[0]) or nil
end


-- Returns the folder of a data set: in TYCHO_HOME, else in ~/.tycho.
local function default_root(name)
  local home = os.getenv("TYCHO_HOME")
  if not home or home == "" then
    home = (os.getenv("HOME") or ".") .. "/.tycho"
  end
  return home .. "/datasets/" .. name
end


-- Returns the path of a file in a folder or in one of its subfolders `folders`; E(io) if there is
-- none.
local function find_file(root, name, func, folders)
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
    message = ("the folder '%s' has no file '%s'; put it there, or give root: Tycho does not \z
      download it"):format(root, name) }
end


local function fail_format(path, what, func)
  Error.raise{ code = "format", func = func, argument = path,
    message = ("'%s': %s"):format(path, what) }
end


-- In memory ---------------------------------------------------------------------------------------

-- The base class of data sets whose images and labels are read when they are made.
local Loaded = dataset.Dataset:extend("Loaded")

function Loaded:_set(images, labels, transform)
  self._images, self._labels, self._transform =
    array_class.keep(images), array_class.keep(labels), transform
end


function Loaded:len()
  return self._labels.shape[1]
end


-- Returns the image and the label of sample i, without the transform; raises E(index).
local function get_sample(self, i)
  if type(i) ~= "number" or i < 0 or i >= self:len() or i ~= math.floor(i) then
    Error.raise{ code = "index", func = self.class_name .. ":get", argument = tostring(i),
      expected = ("a sample from 0 to %d"):format(self:len() - 1), got = i,
      message = ("there is no sample %s"):format(tostring(i)) }
  end
  return self._images[i], self._labels[i]:asscalar()
end


function Loaded:get(i)
  if self._transform then
    return self._transform(get_sample(self, i))
  end
  return get_sample(self, i)
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
    fail_format(path, ("it is no idx file of bytes with %d dimensions"):format(ndim), func)
  end
  local sizes = {}
  for k = 1, ndim do
    local a, b, c, d = text:byte(1 + 4 * k, 4 + 4 * k)
    sizes[k] = ((a * 256 + b) * 256 + c) * 256 + d
    if sizes[k] == 0 then
      fail_format(path, ("dimension %d has size 0"):format(k - 1), func)
    end
  end
  return sizes, size
end


-- Returns the bytes of an idx file as an array, and its sizes; raises E(format).
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


-- Defines a data set of images and labels in idx files. folder: name in the folder of data sets.
local function define_mnist(class_name, folder)
  local Set = Loaded:extend(class_name)
  local func = "gluon.data.vision." .. class_name
  local form = args.form(func, { { "root", "path?" }, { "train", "boolean", true },
    { "transform", "function?" } })
  function Set:init(...)
    local a = form(...)
    local root, stem = a.root or default_root(folder), a.train and "train" or "t10k"
    local images_path = find_file(root, stem .. "-images-idx3-ubyte", func)
    local labels_path = find_file(root, stem .. "-labels-idx1-ubyte", func)
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


--- Handwritten digits, images (28, 28, 1) and labels 0 to 9, in idx files
-- (`train-images-idx3-ubyte` and so on). Options: root = TYCHO_HOME/datasets/mnist; train = true:
-- false for the test set (`t10k-...`); transform.
-- @function MNIST
define_mnist("MNIST", "mnist")

--- Pieces of clothing, in files like those of `MNIST`. Options: root =
-- TYCHO_HOME/datasets/fashion-mnist; train = true; transform.
-- @function FashionMNIST
define_mnist("FashionMNIST", "fashion-mnist")


-- CIFAR -------------------------------------------------------------------------------------------

local SIDE, CHANNELS = 32, 3
local PIXELS = SIDE * SIDE * CHANNELS

-- Returns the records of a CIFAR file as rows of bytes: labels, then an image, channels first.
local function read_records(path, label_bytes, func)
  local size = label_bytes + PIXELS
  local bytes = read_bytes(path, 0, 2 ^ 40, func)
  local count = bytes and bytes.size / size or 0
  if count == 0 or count ~= math.floor(count) then
    fail_format(path, ("it has %d bytes, which are not whole records of %d bytes")
      :format(bytes and bytes.size or 0, size), func)
  end
  return bytes:reshape{ count, size }
end


-- Returns the images and labels of CIFAR files. A record begins with `label_bytes` labels; number
-- `label_at` (from 0) is used.
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


-- Defines a data set of CIFAR files. archive: folder in the downloaded archive; kind: label_bytes
-- of a record, fine (whether there is an option fine_label), names of the files train and test.
local function define_cifar(class_name, folder, archive, kind)
  local Set = Loaded:extend(class_name)
  local func = "gluon.data.vision." .. class_name
  local spec = { { "root", "path?" } }
  if kind.fine then
    spec[#spec + 1] = { "fine_label", "boolean", false }
  end
  spec[#spec + 1] = { "train", "boolean", true }
  spec[#spec + 1] = { "transform", "function?" }
  local form = args.form(func, spec)
  function Set:init(...)
    local a, paths = form(...), {}
    for k, name in ipairs(a.train and kind.train or kind.test) do
      paths[k] = find_file(a.root or default_root(folder), name, func, { archive })
    end
    local images, labels = read_cifar(paths, kind.label_bytes, a.fine_label and 1 or 0, func)
    self:_set(images, labels, a.transform)
  end
  datasets[class_name] = Set
end


--- Images (32, 32, 3) of ten classes, in binary files (`data_batch_1.bin` and so on,
-- `test_batch.bin`). Options: root = TYCHO_HOME/datasets/cifar10; train = true: false for the test
-- set; transform.
-- @function CIFAR10
define_cifar("CIFAR10", "cifar10", "cifar-10-batches-bin/", { label_bytes = 1,
  test = { "test_batch.bin" }, train = { "data_batch_1.bin", "data_batch_2.bin",
    "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin" } })

--- Images (32, 32, 3) of a hundred classes in twenty groups (`train.bin`, `test.bin`). Options:
-- root = TYCHO_HOME/datasets/cifar100; fine_label = false: the label is the group, true: the class;
-- train = true; transform.
-- @function CIFAR100
define_cifar("CIFAR100", "cifar100", "cifar-100-binary/",
  { label_bytes = 2, fine = true, train = { "train.bin" }, test = { "test.bin" } })


-- Records -----------------------------------------------------------------------------------------

--- Images in a RecordIO file with an index. The label is a number; several are a float32 array.
-- @type ImageRecordDataset
local ImageRecordDataset = dataset.RecordFileDataset:extend("ImageRecordDataset")
datasets.ImageRecordDataset = ImageRecordDataset

local RECORDS = args.form("gluon.data.vision.ImageRecordDataset", { { "filename", "path" },
  { "flag", "integer", 1 }, { "transform", "function?" } })

--- @string filename path of the records; the index has the same path with `.idx` in place of the
--   ending
-- @int[opt=1] flag 1: three channels, 0: grey, -1: as stored
-- @tparam[opt] function transform called as transform(image, label), returns both
function ImageRecordDataset:init(...)
  local a = RECORDS(...)
  self._flag, self._transform = a.flag, a.transform
  self:_open(a.filename)
end


-- Returns the image and the label of sample i, without the transform.
local function get_record(self, i)
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
    return self._transform(get_record(self, i))
  end
  return get_record(self, i)
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

--- Images in folders, one folder for each class. A label is the position of the folder, from 0, in
-- alphabetical order. Fields: synsets (names of the folders), items (list of { path, label }).
-- @type ImageFolderDataset
local ImageFolderDataset = dataset.Dataset:extend("ImageFolderDataset")
datasets.ImageFolderDataset = ImageFolderDataset

local FOLDER = args.form("gluon.data.vision.ImageFolderDataset", { { "root", "path" },
  { "flag", "integer", 1 }, { "transform", "function?" } })

local IMAGES = { jpg = true, jpeg = true, png = true }

-- Appends the images of a folder to `items`; warns of other files.
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


--- @string root path of a folder with one folder for each class; E(`io`) if it is missing
-- @int[opt=1] flag 1: three channels, 0: grey, -1: as stored
-- @tparam[opt] function transform called as transform(image, label), returns both
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


-- Returns the image and the label of sample i, without the transform; raises E(index).
local function get_image(self, i)
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
    return self._transform(get_image(self, i))
  end
  return get_image(self, i)
end


local function fill_files(source, self)
  local n = #self.items
  local paths, labels = ffi.new("const char *[?]", n), {}
  for k, item in ipairs(self.items) do
    paths[k - 1], labels[k] = item[1], item[2]
  end
  check(C.ty_source_files(source, paths, n, self._flag), "gluon.data.DataLoader")
  -- on the CPU, where the threads read, whatever context is entered
  local column = nd.array(labels, { dtype = "float32", ctx = context.cpu(0) })
  check(C.ty_source_rows(source, column.handle), "gluon.data.DataLoader")
end


plan.describe(ImageFolderDataset.get, function(self)
  local p = { dataset = self, fields = 2, image = true, changes = {}, dtypes = {}, whole = {} }
  if #self.items > 0 then
    p.fill, p.stored = fill_files, self
  end
  return self._transform and plan.changed(p, self._transform, "all") or p
end)


return datasets
