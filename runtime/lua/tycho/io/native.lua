--- Iterators over files, read ahead by a thread in C: MNISTIter, CSVIter, LibSVMIter, RawIter.
--
-- The first batch is fetched when the iterator is made, which is how its shapes are known and
-- mistakes in files come out early. `round_batch` completes the last batch of an epoch with the
-- first samples; the next epoch goes on after those.
--
-- @module tycho.io.native

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local base = require "tycho.io.data"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local gc = require "tycho.core.gc"
local native = require "tycho.core.ffi"
local nd = require "tycho.ndarray"

local C, check = native.C, native.check

local iters = {}

local WAIT_MS = 100                                      -- between looks for Ctrl-C


-- The class ---------------------------------------------------------------------------------------

--- Base of these iterators.
-- @type MXDataIter
local MXDataIter = base.DataIter:extend("MXDataIter")
iters.MXDataIter = MXDataIter

local more, out, pad = ffi.new("int[1]"), ffi.new("ty_tensor *[1]"), ffi.new("int[1]")


-- Returns a native iterator; `options` in Lua's values.
local function open(kind, options, func)
  local keys, dict = {}, {}
  for key, value in pairs(options) do
    keys[#keys + 1], dict[key] = key, attrs.text(value, func, key)
  end
  table.sort(keys)
  local handle = ffi.new("ty_iter *[1]")
  local code = C.ty_iter_new(kind, native.attrs(keys, dict), #keys, handle)
  if code == C.TY_EMEMORY then
    gc.release()
    code = C.ty_iter_new(kind, native.attrs(keys, dict), #keys, handle)
  end
  check(code, func)
  return native.own(handle[0], C.ty_iter_free)
end


local function live(self, method)
  if not self._handle then
    Error.raise{ code = "state", func = self.class_name .. ":" .. method,
      message = "the iterator was freed" }
  end
  return self._handle
end


-- Returns an array of the current batch.
local function array_at(self, i, dtype)
  check(C.ty_iter_data(self._handle, i, out), self.class_name .. ":next")
  C.ty_tensor_keep(out[0])
  local x = class.own(out[0])
  return dtype and x.dtype ~= dtype and x:astype(dtype) or x
end


-- Returns the next batch of the native iterator, nil at the end.
local function fetch(self)
  local func = self.class_name .. ":next"
  repeat
    check(C.ty_iter_next(live(self, "next"), WAIT_MS, more), func)
  until more[0] ~= -1
  if more[0] == 0 then
    return nil
  end
  check(C.ty_iter_pad(self._handle, pad), func)
  return base.DataBatch{ data = { array_at(self, 0, self._dtype) },
    label = { array_at(self, 1) }, pad = pad[0] }
end


-- @string kind native name
-- @tparam table options for the core
-- @tparam table a checked values: batch_size, data_name, label_name, dtype
function MXDataIter:_open(kind, options, a)
  MXDataIter.super.init(self, { batch_size = a.batch_size })
  self._kind, self._options, self._dtype, self._round = kind, options, a.dtype, a.round_batch
  self._handle = open(kind, options, "io." .. self.class_name)
  -- samples before this epoch's first; batches handed out; resets
  self._skip, self._batches, self._epoch = 0, 0, 0
  self._first = class.outside(fetch, self)
  if not self._first then
    Error.raise{ code = "value", func = "io." .. self.class_name, argument = "batch_size",
      got = a.batch_size, message = "the files do not hold one batch" }
  end
  local data, label = self._first.data[1], self._first.label[1]
  self.provide_data = { base.DataDesc(a.data_name, data.shape, data.dtype) }
  self.provide_label = { base.DataDesc(a.label_name, label.shape, label.dtype) }
end


-- Returns the number of samples that the last batch takes from the next epoch.
local function pad_of(self)
  return self._last and self._last.pad or 0
end


--- Goes to the next batch; false at the end.
function MXDataIter:iter_next()
  local held = self._first
  if not (held and self._again) then
    self._first = nil
  end
  self.current_batch = held or fetch(self)
  self._last = self.current_batch or self._last
  self._batches = self._batches + (self.current_batch and 1 or 0)
  return self:_has_current()
end


--- Returns the next batch, nil at the end.
function MXDataIter:next()
  return self:_hand_out()
end


--- Begins a new epoch.
function MXDataIter:reset()
  if self._first then
    return                       -- nothing of this epoch was handed out, or nothing will change
  end
  check(C.ty_iter_reset(live(self, "reset")), self.class_name .. ":reset")
  self._skip, self._batches, self._last = self._round and pad_of(self) or 0, 0, nil
  self._epoch = self._epoch + 1
end


--- Makes the iterator return the first batch again and again: to time everything but the reading.
function MXDataIter:debug_skip_load()
  self._again = true
  self._first = self._first or class.outside(fetch, self)
end


function MXDataIter:getdata() return self.current_batch.data end
function MXDataIter:getlabel() return self.current_batch.label end
function MXDataIter:getpad() return self.current_batch.pad end


function MXDataIter:state()
  return { kind = self._kind, skip = self._skip, batches = self._batches, epoch = self._epoch }
end


--- Opens the files again and reads up to the position.
function MXDataIter:set_state(state)
  if type(state) ~= "table" or state.kind ~= self._kind then
    Error.raise{ code = "value", func = self.class_name .. ":set_state", argument = "state",
      message = "the state is that of another iterator" }
  end
  local options = {}
  for key, value in pairs(self._options) do
    options[key] = value
  end
  options.skip_samples, options.first_epoch = state.skip, state.epoch
  self:free()
  self._handle = open(self._kind, options, self.class_name .. ":set_state")
  self._skip, self._batches, self._epoch = state.skip, state.batches, state.epoch or 0
  for _ = 1, state.batches do
    self._last = fetch(self)
  end
end


--- Stops the thread and gives the memory back.
function MXDataIter:free()
  if self._handle then
    C.ty_iter_free(ffi.gc(self._handle, nil))
    self._handle, self._first, self.current_batch, self._last = nil, nil, nil, nil
  end
end


-- Kinds -------------------------------------------------------------------------------------------

-- parameters of all kinds
local SHARED = {
  { "prefetch_buffer", "integer", 4 }, { "ctx", "context?" }, { "data_name", "text", "data" },
  { "label_name", "text", "softmax_label" },
}

-- not for the core
local OURS = { ctx = true, data_name = true, label_name = true, silent = true,
  verbose = true, device_id = true }

-- dtypes that text is read as before it is converted
local READ_AS = { int32 = "float64", int64 = "float64", float64 = "float64" }


-- Returns a kind of iterator: its native name and parameters.
local function kind(class_name, native_name, own)
  local Kind = MXDataIter:extend(class_name)
  local spec = { "*" }
  for _, list in ipairs{ own, SHARED } do
    for _, entry in ipairs(list) do
      spec[#spec + 1] = entry
    end
  end
  local form = args.form("io." .. class_name, spec)
  function Kind:init(...)
    local a, options = form(...), {}
    for key, value in pairs(a) do
      options[key] = not OURS[key] and value or nil
      if not OURS[key] and value == false then
        options[key] = false
      end
    end
    if native_name ~= "raw" then
      options.dtype = (own.read_as or READ_AS)[a.dtype] or "float32"
    end
    Kind.check(a)
    self.num_parts = a.num_parts
    self:_open(native_name, options, a)
    Kind.opened(self, a)
  end
  function Kind.check() end
  function Kind.opened() end
  iters[class_name] = Kind
  return Kind
end


local BATCH, ROUND, DTYPE =
  { "batch_size", "integer" }, { "round_batch", "boolean", true }, { "dtype", "dtype?" }
local PARTS = { { "num_parts", "integer", 1 }, { "part_index", "integer", 0 } }

--- Images and labels in idx files, plain or gz; pixels as parts of 256. An incomplete last batch
-- is dropped; shuffled once. Options image, label, batch_size = 128, shuffle = true,
-- flat = false, seed = 0, silent = false, num_parts = 1, part_index = 0, prefetch_buffer = 4,
-- dtype, data_name, label_name; data_shape or input_shape: what one image is expected to be,
-- {1, 28, 28} or, with flat, {784} (another one raises E(shape)).
-- @function MNISTIter
kind("MNISTIter", "mnist", {
  { "image", "text", "./train-images-idx3-ubyte" },
  { "label", "text", "./train-labels-idx1-ubyte" },
  { "batch_size", "integer", 128 }, { "shuffle", "boolean", true }, { "flat", "boolean", false },
  { "seed", "integer", 0 }, { "silent", "boolean", false }, PARTS[1], PARTS[2], DTYPE,
  { "data_shape", "shape?" }, { "input_shape", "shape?" },
}).opened = function(self, a)
  local sample = { unpack(self.provide_data[1].shape, 2) }
  for _, argument in ipairs{ "data_shape", "input_shape" } do
    local given = a[argument]
    if given and Error.show(given) ~= Error.show(sample) then
      self:free()
      Error.raise{ code = "shape", func = "io.MNISTIter", argument = argument, expected = given,
        got = sample, message = ("the images are not of '%s' (flat = %s)"):format(argument,
          tostring(a.flat)) }
    end
  end
end


--- Rows of numbers between commas, and perhaps a comma at the end. Options data_csv, data_shape,
-- label_csv = "NULL" (labels 0), label_shape = {1}, batch_size, round_batch = true,
-- prefetch_buffer = 4, dtype, data_name, label_name; header: whether the first line of each file is
-- one of names, which is skipped (nil: it is where none of its fields is a number).
-- @function CSVIter
kind("CSVIter", "csv", {
  { "data_csv", "text" }, { "data_shape", "shape" }, { "label_csv", "text", "NULL" },
  { "label_shape", "shape", { 1 } }, BATCH, ROUND, DTYPE, { "header", "boolean?" },
})


--- Rows of a label and index:value pairs, as dense arrays; what follows #, a weight of the label
-- and the number of a query (qid:) are passed over. Options data_libsvm, data_shape,
-- label_libsvm = "NULL" (the labels of the data), label_shape = {1}, num_parts = 1,
-- part_index = 0, batch_size, round_batch = true (nothing else is possible), prefetch_buffer = 4,
-- dtype, data_name, label_name.
-- @function LibSVMIter
kind("LibSVMIter", "libsvm", {
  { "data_libsvm", "text" }, { "data_shape", "shape" }, { "label_libsvm", "text", "NULL" },
  { "label_shape", "shape", { 1 } }, PARTS[1], PARTS[2], BATCH, ROUND, DTYPE,
}).check = function(a)
  if not a.round_batch then
    Error.raise{ code = "value", func = "io.LibSVMIter", argument = "round_batch", expected = true,
      got = "false", message = "LibSVMIter completes its last batch in any case" }
  end
end


--- Binary records of one size: `label_bytes` labels of a byte each, then the elements of a sample.
-- Options path, shape, dtype = "uint8", label_bytes = 0, batch_size, round_batch = true,
-- prefetch_buffer = 4, data_name, label_name.
-- @function RawIter
kind("RawIter", "raw", {
  { "path", "text" }, { "shape", "shape" }, { "dtype", "dtype", "uint8" },
  { "label_bytes", "integer", 0 }, BATCH, ROUND,
})


local PATHS = { "path_imgidx", "path_imglist", "mean_img" }
local COUNTS = { "seed_aug", "shuffle_chunk_size", "shuffle_chunk_seed", "device_id", "resize",
  "max_rotate_angle", "rotate", "max_crop_size", "min_crop_size", "random_h", "random_s",
  "random_l", "fill_value", "inter_method", "pad" }
local NUMBERS = { "max_aspect_ratio", "min_aspect_ratio", "max_shear_ratio", "max_random_scale",
  "min_random_scale", "max_random_area", "min_random_area", "max_img_size", "min_img_size",
  "brightness", "contrast", "saturation", "pca_noise" }
local LEVELS = { "mean_r", "mean_g", "mean_b", "mean_a", "std_r", "std_g", "std_b", "std_a",
  "scale", "max_random_contrast", "max_random_illumination" }
local TRUTHS = { "verbose", "rand_crop", "random_resized_crop", "mirror", "rand_mirror" }

local FLOATS = { "float32", "float64", "float16", "bfloat16" }

-- Returns the reference's parameters; those without a default here have it in the core.
local function record_params(dtype, bytes, label_width, sequence, rows)
  local dtypes = { unpack(FLOATS) }
  for _, name in ipairs(bytes) do
    dtypes[#dtypes + 1] = name
  end
  local spec = {
    { "path_imgrec", "text" }, { "data_shape", "shape" }, BATCH,
    { "label_width", "integer", label_width }, { "shuffle", "boolean", false },
    { "seed", "integer", 0 }, { "preprocess_threads", "integer", 4 }, ROUND, PARTS[1], PARTS[2],
    { "dtype", dtypes, dtype },
    { "aug_seq", { sequence }, sequence }, read_as = { uint8 = "uint8", int8 = "int8" },
  }
  for _, row in ipairs(rows) do
    for _, name in ipairs(row[1]) do
      spec[#spec + 1] = { name, row[2] }
    end
  end
  return spec
end


local function image_params(dtype)
  return record_params(dtype, { "uint8", "int8" }, 1, "aug_default", { { PATHS, "text?" },
    { COUNTS, "integer?" }, { NUMBERS, "number?" }, { LEVELS, "number?" }, { TRUTHS, "boolean?" } })
end


-- Writes the mean of the images, as they are before normalisation, into the file that is to hold
-- it.
local function make_mean(a, class_name)
  local options = { batch_size = 1, round_batch = false, shuffle = false, dtype = "float32" }
  for key, value in pairs(a) do
    options[key] = options[key] == nil and value or options[key]
  end
  for _, name in ipairs{ "mean_img", "mirror", "rand_mirror", "rand_mirror_prob",
      unpack(LEVELS) } do
    options[name] = nil
  end
  local it, sum, n = iters[class_name](options), nil, 0
  for batch in it do
    local x = batch.data[1]:astype("float64")
    sum, n = sum and sum + x or x, n + 1
  end
  it:free()
  nd.save(a.mean_img, { mean_img = (sum / n):astype("float32"):reshape(a.data_shape) })
end


local MEANS = { mean_img = true, mean_r = true, mean_g = true, mean_b = true, mean_a = true }

-- Returns a check of the options that change levels: dtype uint8 allows none of them, int8 only a
-- mean; others raise E(value). It also makes the mean image if its file does not exist.
local function check_levels(class_name)
  return function(a)
    for _, name in ipairs{ "mean_img", unpack(LEVELS) } do
      local fits = a.dtype ~= "uint8" and (a.dtype ~= "int8" or MEANS[name])
      if not fits and a[name] ~= nil then
        Error.raise{ code = "value", func = "io." .. class_name, argument = name,
          expected = "nothing, as dtype is " .. a.dtype, got = tostring(a[name]),
          message = ("'%s' is for floats"):format(name) }
      end
    end
    if a.mean_img and not files.exists(a.mean_img) then
      make_mean(a, class_name)
    end
  end
end


--- Labelled JPEG and PNG images of a record file, decoded and changed by threads; the same
-- batches for any number of them. What is done to an image, in this order: `resize`, turns and
-- scales, border, window, colours; then mirror image, mean, contrast, illumination, scale,
-- deviation. A new order in each epoch if `shuffle`.
--
-- Without effect: verbose, device_id, aug_seq, shuffle_chunk_size, shuffle_chunk_seed (all records
-- are shuffled). Without round_batch the last batch does not say how many rows it lacks. Damaged
-- records and images: E(format).
-- @param data_shape 1, 3 or 4 channels, height, width
-- @function ImageRecordIter
kind("ImageRecordIter", "image_record", image_params("float32")).check =
  check_levels("ImageRecordIter")


--- As `ImageRecordIter`, with dtype = "uint8": pixels as they are.
-- @function ImageRecordUInt8Iter
kind("ImageRecordUInt8Iter", "image_record", image_params("uint8")).check =
  check_levels("ImageRecordUInt8Iter")


--- As `ImageRecordIter`, with dtype = "int8": pixels less the rounded mean (mean_r, ... or
-- mean_img), from -128 to 127; without a mean all above 127 are 127.
-- @function ImageRecordInt8Iter
kind("ImageRecordInt8Iter", "image_record", image_params("int8")).check =
  check_levels("ImageRecordInt8Iter")


local DET_COUNTS = { "seed_aug", "shuffle_chunk_size", "shuffle_chunk_seed", "device_id", "resize",
  "num_crop_sampler", "max_random_hue", "max_random_saturation", "max_random_illumination",
  "fill_value", "inter_method", "label_pad_width" }
local DET_NUMBERS = { "label_pad_value", "rand_crop_prob", "emit_overlap_thresh", "rand_pad_prob",
  "max_pad_scale", "random_hue_prob", "random_saturation_prob", "random_illumination_prob",
  "max_random_contrast", "random_contrast_prob", "rand_mirror_prob", "mean_r", "mean_g", "mean_b",
  "mean_a", "std_r", "std_g", "std_b", "std_a", "scale" }
local DET_LISTS = { "min_crop_scales", "max_crop_scales", "min_crop_aspect_ratios",
  "max_crop_aspect_ratios", "min_crop_overlaps", "max_crop_overlaps", "min_crop_sample_coverages",
  "max_crop_sample_coverages", "min_crop_object_coverages", "max_crop_object_coverages",
  "max_crop_trials" }

local function det_params()
  local spec = record_params("float32", { "uint8" }, -1, "det_aug_default", { { PATHS, "text?" },
    { DET_COUNTS, "integer?" }, { DET_NUMBERS, "number?" }, { DET_LISTS, "number|list?" },
    { { "verbose" }, "boolean?" } })
  spec[#spec + 1] = { "crop_emit_mode", { "center", "overlap" }, "center" }
  spec[#spec + 1] = { "resize_mode", { "force", "shrink", "fit" }, "force" }
  return spec
end


--- Images with boxes of what they show, of a record file, decoded and changed by threads. The label
-- of a record (or of path_imglist) is how many numbers stand before the objects (2 at least), how
-- many an object has (5 at least), the rest of those before, then for each object its class, left,
-- top, right, bottom in shares of the image. A batch's label is (batch, 4 + the widest label):
-- channels, height and width of the image, how many numbers follow, these, and label_pad_value.
-- Options path_imgrec, data_shape, batch_size; and
--
-- records: as of `ImageRecordIter`, but label_width = -1 (any number), label_pad_width = 0 (that of
-- the widest label, for which all records are looked through), label_pad_value = -1;
--
-- windows: rand_crop_prob = 0, num_crop_sampler = 1, and for each sampler (a list, or one number
-- for all) min_crop_scales = 0, max_crop_scales = 1, min_crop_aspect_ratios, max_crop_aspect_ratios
-- = 1, min_crop_overlaps, min_crop_sample_coverages, min_crop_object_coverages = 0,
-- max_crop_overlaps, max_crop_sample_coverages, max_crop_object_coverages = 1, max_crop_trials =
-- 25; crop_emit_mode = "center" (an object stays whose middle does) or "overlap"
-- (emit_overlap_thresh = 0.3 of it do);
--
-- the rest: resize = -1 (of the shorter side), rand_pad_prob = 0, max_pad_scale = 1, fill_value =
-- 127, rand_mirror_prob = 0, max_random_hue, max_random_saturation, max_random_illumination (of
-- 180, 255, 255), max_random_contrast = 0, each with its random_..._prob = 0, inter_method = 1,
-- resize_mode = "force", "shrink" or "fit" (the image keeps its proportions, fill_value is beside
-- and below it), mean_img, mean_r, ... std_r, ... scale, dtype as of `ImageRecordIter`.
-- @function ImageDetRecordIter
kind("ImageDetRecordIter", "image_det_record", det_params()).check =
  check_levels("ImageDetRecordIter")


return iters
