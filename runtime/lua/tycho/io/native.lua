--- Iterators over files, which a thread in C reads ahead: MNISTIter, CSVIter, LibSVMIter, RawIter,
-- ImageRecordIter, ImageDetRecordIter.
--
-- The constructor reads the first batch, which determines the shapes. A file that is missing is
-- E(`io`), one that is damaged E(`format`), in the constructor or when the batch comes. With
-- `round_batch`, the last batch of an epoch is completed by the first samples, and the next epoch
-- continues after these. `num_parts` and `part_index`, from 0, divide the samples among processes;
-- `prefetch_buffer` is the number of batches read ahead; `data_name` and `label_name` are the names
-- of the inputs.
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

local WAIT_MS = 100                                      -- longest wait before a check for Ctrl-C


-- The class ---------------------------------------------------------------------------------------

--- The base of these iterators.
-- @type MXDataIter
local MXDataIter = base.DataIter:extend("MXDataIter")
iters.MXDataIter = MXDataIter

local more, out, pad = ffi.new("int[1]"), ffi.new("ty_tensor *[1]"), ffi.new("int[1]")


-- Returns a new native iterator. kind: its native name; options: Lua values by name.
local function open_iterator(kind, options, func)
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


-- Returns the native iterator; E(state) after `free`.
local function get_handle(self, method)
  if not self._handle then
    Error.raise{ code = "state", func = self.class_name .. ":" .. method,
      message = "the iterator was freed" }
  end
  return self._handle
end


-- Returns array i, from 0, of the native batch, converted to dtype if that is given.
local function get_array(self, i, dtype)
  check(C.ty_iter_data(self._handle, i, out), self.class_name .. ":next")
  C.ty_tensor_keep(out[0])
  local x = class.own(out[0])
  return dtype and x.dtype ~= dtype and x:astype(dtype) or x
end


-- Waits for the next batch of the native iterator and returns it; nil at the end.
local function fetch_batch(self)
  local func = self.class_name .. ":next"
  repeat
    check(C.ty_iter_next(get_handle(self, "next"), WAIT_MS, more), func)
  until more[0] ~= -1
  if more[0] == 0 then
    return nil
  end
  check(C.ty_iter_pad(self._handle, pad), func)
  return base.DataBatch{ data = { get_array(self, 0, self._dtype) },
    label = { get_array(self, 1, self._label_dtype) }, pad = pad[0] }
end


-- Makes the native iterator, reads the first batch and describes the inputs. kind: native name;
-- options: for the core; a: arguments of the constructor. E(value): there is no batch.
function MXDataIter:_open(kind, options, a)
  MXDataIter.super.init(self, { batch_size = a.batch_size })
  self._kind, self._options, self._dtype, self._round = kind, options, a.dtype, a.round_batch
  self._label_dtype = self.label_dtypes[a.dtype]
  self._handle = open_iterator(kind, options, "io." .. self.class_name)
  self._skip = 0                                         -- samples that the last epoch took of this
  self._batches = 0                                      -- batches returned in this epoch
  self._epoch = 0                                        -- number of resets
  self._first = class.outside(fetch_batch, self)
  if not self._first then
    Error.raise{ code = "value", func = "io." .. self.class_name, argument = "batch_size",
      got = a.batch_size, message = "the files do not hold one batch" }
  end
  local data, label = self._first.data[1], self._first.label[1]
  self.provide_data = { base.DataDesc(a.data_name, data.shape, data.dtype) }
  self.provide_label = { base.DataDesc(a.label_name, label.shape, label.dtype) }
end


MXDataIter.label_dtypes = {}                             -- dtype of the data -> not float32


-- Returns the number of samples that the last batch took from the next epoch.
local function get_pad(self)
  return self._last and self._last.pad or 0
end


--- Goes to the next batch.
-- @treturn bool false: the epoch has ended
function MXDataIter:iter_next()
  local held = self._first
  if not (held and self._again) then
    self._first = nil
  end
  self.current_batch = held or fetch_batch(self)
  self._last = self.current_batch or self._last
  self._batches = self._batches + (self.current_batch and 1 or 0)
  return self:_has_current()
end


--- Returns the next batch.
-- @treturn ?DataBatch nil: the epoch has ended
function MXDataIter:next()
  return self:_hand_out()
end


--- Begins a new epoch; does nothing before the first batch of one.
function MXDataIter:reset()
  if self._first then
    return
  end
  check(C.ty_iter_reset(get_handle(self, "reset")), self.class_name .. ":reset")
  self._skip, self._batches, self._last = self._round and get_pad(self) or 0, 0, nil
  self._epoch = self._epoch + 1
end


--- Makes the iterator return its first batch at each call from now on, to time a training without
-- the reading of files.
function MXDataIter:debug_skip_load()
  self._again = true
  self._first = self._first or class.outside(fetch_batch, self)
end


function MXDataIter:getdata() return self:_current("getdata").data end
function MXDataIter:getlabel() return self:_current("getlabel").label end
function MXDataIter:getpad() return self:_current("getpad").pad end


function MXDataIter:state()
  return { kind = self._kind, skip = self._skip, batches = self._batches, epoch = self._epoch }
end


--- Goes to a position: opens the files again and reads up to it. A state of another kind of
-- iterator is E(`value`).
-- @tparam table state what `state` returned
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
  self._handle = open_iterator(self._kind, options, self.class_name .. ":set_state")
  self._skip, self._batches, self._epoch = state.skip, state.batches, state.epoch or 0
  for _ = 1, state.batches do
    self._last = fetch_batch(self)
  end
end


--- Stops the thread and frees its memory. The iterator cannot be used then: E(`state`).
function MXDataIter:free()
  if self._handle then
    C.ty_iter_free(ffi.gc(self._handle, nil))
    self._handle, self._first, self.current_batch, self._last = nil, nil, nil, nil
  end
end


-- Kinds -------------------------------------------------------------------------------------------

-- Parameters of all kinds.
local SHARED = {
  { "prefetch_buffer", "integer", 4 }, { "ctx", "context?" }, { "data_name", "text", "data" },
  { "label_name", "text", "softmax_label" },
}

-- Parameters that are not passed to the core.
local NOT_FOR_CORE = { ctx = true, data_name = true, label_name = true, silent = true,
  verbose = true, device_id = true }

-- Dtype of the batch -> dtype as which text is read; others are read as float32.
local READ_AS = { int32 = "float64", int64 = "float64", float64 = "float64" }


-- Defines and returns a class of iterators. own: its parameters; read_as, a field of it: dtype of
-- the batch -> dtype that the core gives. The caller may set `check` of the class, called with the
-- arguments before it opens files, and `opened`, called with object and arguments after that.
local function define_iterator(class_name, native_name, own)
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
      options[key] = not NOT_FOR_CORE[key] and value or nil
      if not NOT_FOR_CORE[key] and value == false then
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

--- Reads images and labels from idx files, plain or packed by gzip. Pixels are divided by 256. An
-- incomplete last batch is skipped; samples are shuffled once, before the first epoch. Options:
-- image, label: paths; batch_size = 128; shuffle = true; flat = false: true for images of one
-- axis; seed = 0; data_shape or input_shape: expected shape of an image, {1, 28, 28} or, with
-- flat, {784}, another one is E(`shape`); num_parts = 1, part_index = 0, prefetch_buffer = 4,
-- dtype = "float32", data_name = "data", label_name = "softmax_label"; silent is accepted, without
-- effect.
-- @function MNISTIter
define_iterator("MNISTIter", "mnist", {
  { "image", "path", "./train-images-idx3-ubyte" },
  { "label", "path", "./train-labels-idx1-ubyte" },
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
        got = sample, message = ("the images do not have the shape '%s' (flat = %s)")
          :format(argument, tostring(a.flat)) }
    end
  end
end


--- Reads lines of comma-separated numbers; a comma may end a line. Options: data_csv: path;
-- data_shape: of a sample; label_csv = "NULL": path, without it labels are 0; label_shape = {1};
-- batch_size; round_batch = true; header: whether the first line of each file has names and is
-- skipped, nil: if none of its fields is a number; prefetch_buffer = 4, dtype = "float32" (int32
-- and int64 also apply to labels), data_name = "data", label_name = "softmax_label".
-- @function CSVIter
define_iterator("CSVIter", "csv", {
  { "data_csv", "path" }, { "data_shape", "shape" }, { "label_csv", "path", "NULL" },
  { "label_shape", "shape", { 1 } }, BATCH, ROUND, DTYPE, { "header", "boolean?" },
}).label_dtypes = { int32 = "int32", int64 = "int64" }


--- Reads lines of a label and index:value pairs as dense arrays. Comments after #, weights of
-- labels and numbers of queries (qid:) are ignored. Options: data_libsvm: path; data_shape: of a
-- sample; label_libsvm = "NULL": path, without it the labels are those of the data; label_shape =
-- {1}; num_parts = 1, part_index = 0; batch_size; round_batch = true (false is E(`value`));
-- prefetch_buffer = 4, dtype = "float32", data_name = "data", label_name = "softmax_label".
-- @function LibSVMIter
define_iterator("LibSVMIter", "libsvm", {
  { "data_libsvm", "path" }, { "data_shape", "shape" }, { "label_libsvm", "path", "NULL" },
  { "label_shape", "shape", { 1 } }, PARTS[1], PARTS[2], BATCH, ROUND, DTYPE,
}).check = function(a)
  if not a.round_batch then
    Error.raise{ code = "value", func = "io.LibSVMIter", argument = "round_batch", expected = true,
      got = "false", message = "LibSVMIter always completes its last batch" }
  end
end


--- Reads binary records of one size: `label_bytes` labels of one byte each, then the elements of a
-- sample. Options: path; shape: of a sample; dtype = "uint8": of its elements, little-endian;
-- label_bytes = 0; batch_size; round_batch = true; prefetch_buffer = 4, data_name = "data",
-- label_name = "softmax_label".
-- @function RawIter
define_iterator("RawIter", "raw", {
  { "path", "path" }, { "shape", "shape" }, { "dtype", "dtype", "uint8" },
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

-- Returns the parameters of an iterator over records of images: `rows` has { names, type } of those
-- whose defaults the core knows. bytes: names of the 8-bit dtypes; sequence: value of aug_seq.
local function record_params(dtype, bytes, label_width, sequence, rows)
  local dtypes = { unpack(FLOATS) }
  for _, name in ipairs(bytes) do
    dtypes[#dtypes + 1] = name
  end
  local spec = {
    { "path_imgrec", "path" }, { "data_shape", "shape" }, BATCH,
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


-- Reads all images, as they are before mean and scale, and writes their mean to the file
-- `mean_img`.
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

-- Returns the function `check` for the options that change levels: with dtype uint8 none of them,
-- with int8 only a mean is allowed, else E(value). It also makes the mean image if its file does
-- not exist.
local function check_levels(class_name)
  return function(a)
    for _, name in ipairs{ "mean_img", unpack(LEVELS) } do
      local fits = a.dtype ~= "uint8" and (a.dtype ~= "int8" or MEANS[name])
      if not fits and a[name] ~= nil then
        Error.raise{ code = "value", func = "io." .. class_name, argument = name,
          expected = "nothing, as dtype is " .. a.dtype, got = tostring(a[name]),
          message = ("'%s' needs a dtype of floats"):format(name) }
      end
    end
    if a.mean_img and not files.exists(a.mean_img) then
      make_mean(a, class_name)
    end
  end
end


--- Reads labelled JPEG and PNG images from a RecordIO file; threads decode and change them. The
-- batches are the same for any number of threads. An image is changed in this order: resize,
-- rotation and scale, border, crop, colours, mirroring, mean, contrast, illumination, scale,
-- deviation. With shuffle = true each epoch has a new order. Damaged records and images are
-- E(`format`).
--
-- Accepted, without effect: verbose, device_id, aug_seq, shuffle_chunk_size, shuffle_chunk_seed
-- (all records are shuffled). With round_batch = false `pad` does not count the padding rows of the
-- last batch.
-- @param data_shape {channels, height, width} of a sample, 1, 3 or 4 channels
-- @function ImageRecordIter
define_iterator("ImageRecordIter", "image_record", image_params("float32")).check =
  check_levels("ImageRecordIter")


--- Reads images as `ImageRecordIter` does, with dtype = "uint8": pixels are not changed to floats.
-- @function ImageRecordUInt8Iter
define_iterator("ImageRecordUInt8Iter", "image_record", image_params("uint8")).check =
  check_levels("ImageRecordUInt8Iter")


--- Reads images as `ImageRecordIter` does, with dtype = "int8": pixels less the rounded mean
-- (mean_r, ... or mean_img), limited to -128 to 127. Without a mean, pixels above 127 become 127.
-- @function ImageRecordInt8Iter
define_iterator("ImageRecordInt8Iter", "image_record", image_params("int8")).check =
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

local function detection_params()
  local spec = record_params("float32", { "uint8" }, -1, "det_aug_default", { { PATHS, "text?" },
    { DET_COUNTS, "integer?" }, { DET_NUMBERS, "number?" }, { DET_LISTS, "number|list?" },
    { { "verbose" }, "boolean?" } })
  spec[#spec + 1] = { "crop_emit_mode", { "center", "overlap" }, "center" }
  spec[#spec + 1] = { "resize_mode", { "force", "shrink", "fit" }, "force" }
  return spec
end


--- Reads images with labelled boxes of objects from a RecordIO file; threads decode and change
-- them.
--
-- The label of a record (or of its line in path_imglist) is a list of numbers: A, how many numbers
-- precede the objects (at least 2, A itself counts); B, how many each object has (at least 5); A -
-- 2 further numbers; then, for each object, its class and left, top, right, bottom as shares of the
-- image's size, and B - 5 further numbers. A batch's label has shape (batch, 4 + width of the
-- widest label): channels, height and width of the image, the number of numbers that follow, these
-- numbers, and label_pad_value in the rest.
--
-- Options path_imgrec, data_shape, batch_size, and these:
--
-- Records: those of `ImageRecordIter`, but label_width = -1 (any number); label_pad_width = 0
-- (width of the widest label, for which all records are read once), label_pad_value = -1.
--
-- Random crops: rand_crop_prob = 0; num_crop_sampler = 1, and for each sampler (a list, or one
-- number for all) min_crop_scales = 0, max_crop_scales = 1, min_crop_aspect_ratios = 1,
-- max_crop_aspect_ratios = 1, min_crop_overlaps = 0, max_crop_overlaps = 1,
-- min_crop_sample_coverages = 0, max_crop_sample_coverages = 1, min_crop_object_coverages = 0,
-- max_crop_object_coverages = 1, max_crop_trials = 25; crop_emit_mode = "center" keeps an object
-- whose centre is inside the crop, "overlap" one of which a share of emit_overlap_thresh = 0.3 is.
--
-- Others: resize = -1 (size of the shorter side, in pixels); rand_pad_prob = 0, max_pad_scale = 1,
-- fill_value = 127; rand_mirror_prob = 0; max_random_hue = 0 (of 180), max_random_saturation = 0
-- and max_random_illumination = 0 (of 255), max_random_contrast = 0, each with its random_..._prob
-- = 0; inter_method = 1; resize_mode = "force", "shrink" or "fit" (the image keeps its proportions,
-- and fill_value is to the right of it and below); mean_img, mean_r, ... std_r, ... scale, dtype as
-- of `ImageRecordIter`.
-- @function ImageDetRecordIter
define_iterator("ImageDetRecordIter", "image_det_record", detection_params()).check =
  check_levels("ImageDetRecordIter")


return iters
