--- Batches of images from record files, lists of files or both: `ty.image.ImageIter`.
--
-- Samples are (label, bytes of a file); if labels come from a list, its numbers are the keys of
-- the records. Images are decoded and changed one after the other by `aug_list`. The order of a
-- shuffling iterator comes from the random state of cpu(0).
--
-- @module tycho.image.iter

local next = require("tycho.core.iterate").next
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local augment = require "tycho.image.augment"
local base = require "tycho.io.data"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local nd = require "tycho.ndarray"
local pixels = require "tycho.image.pixels"
local recordio = require "tycho.io.recordio"

local iter = {}

--- Fields: batch_size, provide_data, provide_label, auglist, seq (keys of the samples in
-- order; nil: as in the file).
-- @type ImageIter
local ImageIter = base.DataIter:extend("ImageIter")
iter.ImageIter = ImageIter

local FORM = args.form("image.ImageIter", {
  rest = "augment", { "batch_size", "integer" }, { "data_shape", "shape" },
  { "label_width", "integer", 1 }, { "path_imgrec", "path?" }, { "path_imglist", "path?" },
  { "path_root", "path", "" }, { "path_imgidx", "path?" }, { "shuffle", "boolean", false },
  { "part_index", "integer", 0 }, { "num_parts", "integer", 1 }, { "aug_list", "list?" },
  { "imglist", "list?" }, { "data_name", "text", "data" },
  { "label_name", "text", "softmax_label" }, { "dtype", "dtype", "float32" },
  { "last_batch_handle", { "pad", "discard", "roll_over" }, "pad" },
})


local function bad(self, argument, expected, got, message)
  Error.raise{ code = "value", func = "image." .. self.class_name, argument = argument,
    expected = expected, got = got, message = message or ("bad '%s'"):format(argument) }
end


-- Sources -----------------------------------------------------------------------------------------

-- Reads a list file with lines "key TAB label ... TAB path". Returns the keys in order and the rows
-- {label, path} by key.
local function read_list(self, path)
  local keys, rows, number = {}, {}, 0
  for line in files.lines(path, "image." .. self.class_name) do
    local fields = {}
    number = number + 1
    for field in line:gmatch("[^\t]+") do
      fields[#fields + 1] = field
    end
    local key, label = tonumber(fields[1]), {}
    for i = 2, #fields - 1 do
      label[i - 1] = tonumber(fields[i])
    end
    local blank = not line:find("%S")
    if not blank and (not key or #fields < 3 or #label ~= #fields - 2) then
      Error.raise{ code = "format", func = "image." .. self.class_name, argument = path,
        message = ("line %d is no number, labels and path between tabs"):format(number) }
    elseif not blank then
      keys[#keys + 1], rows[key] = key, { label, fields[#fields] }
    end
  end
  return keys, rows
end


local function read_table(self, list)
  local keys, rows = {}, {}
  for i, row in ipairs(list) do
    if type(row) ~= "table" or type(row[#row]) ~= "string" or #row < 2 then
      bad(self, "imglist", "rows {label, path}", Error.kind(row))
    end
    local label = type(row[1]) == "table" and row[1] or { unpack(row, 1, #row - 1) }
    keys[i], rows[i] = i, { label, row[#row] }
  end
  return keys, rows
end


local function take_part(self, keys, a)
  if a.num_parts < 1 or a.part_index < 0 or a.part_index >= a.num_parts then
    bad(self, "part_index", "0 to num_parts - 1", a.part_index)
  end
  self.num_parts = a.num_parts
  local count, part = math.floor(#keys / a.num_parts), {}
  for i = 1, a.num_parts > 1 and count or #keys do
    part[i] = keys[a.part_index * count + i]
  end
  return part
end


-- Raises E(value) if there are no images.
local function check_images(self, argument, a)
  if self.seq and #self.seq > 0 or not self.seq and self._record:read() then
    return
  end
  local part = a.num_parts > 1 and ("; part %d of %d has none"):format(a.part_index, a.num_parts)
  Error.raise{ code = "value", func = "image." .. self.class_name, argument = argument,
    expected = "at least one image", got = "none",
    message = "there are no images" .. (part or "") }
end


function ImageIter:_open(a)
  if not (a.path_imgrec or a.path_imglist or a.imglist) then
    bad(self, "path_imgrec", "a source: path_imgrec, path_imglist or imglist", "none")
  end
  local keys
  if a.path_imglist then
    keys, self._list = read_list(self, a.path_imglist)
  elseif a.imglist then
    keys, self._list = read_table(self, a.imglist)
  end
  if a.path_imgrec and a.path_imgidx then
    self._record = recordio.MXIndexedRecordIO(a.path_imgidx, a.path_imgrec, "r")
    keys = self._record.keys
  elseif a.path_imgrec then
    self._record, keys = recordio.MXRecordIO(a.path_imgrec, "r"), nil
    if a.shuffle or a.num_parts > 1 then
      bad(self, "path_imgidx", "the index of the records", "none",
        "shuffle and num_parts need 'path_imgidx'")
    end
  end
  self.seq = keys and take_part(self, keys, a)
  check_images(self, a.path_imgrec and "path_imgrec" or a.path_imglist and "path_imglist"
    or "imglist", a)
end


-- The iterator ------------------------------------------------------------------------------------

-- Methods that subclasses may override: labels, augmenters, samples.

function ImageIter:_label_shape()
  return self._label_width == 1 and { self.batch_size } or { self.batch_size, self._label_width }
end


function ImageIter._create_augmenters(_, options)
  return augment.CreateAugmenter(options)
end


-- Returns the first numbers of an image's label, as many as the array of labels has per image.
function ImageIter:_check_label(label, name)
  label = type(label) == "table" and label or { label }
  if #label ~= self._label_width then
    Error.raise{ code = "shape", func = self.class_name .. ":next", argument = name,
      expected = self._label_width, got = #label,
      message = "the sample has another number of labels than label_width" }
  end
  return label
end


function ImageIter:_augment(x, label)
  for _, step in ipairs(self.auglist) do
    x = step(x)
  end
  return x, label
end


-- Returns the labels of a batch's samples as an array.
function ImageIter:_label_array(list)
  local labels = {}
  for i, sample in ipairs(list) do
    for k, v in ipairs(sample[2]) do
      labels[(i - 1) * self._label_width + k] = v
    end
  end
  return nd.array(labels):reshape(self:_label_shape())
end


--- Reads the options batch_size, data_shape (channels, height, width), label_width = 1, path_imgrec
-- with path_imgidx, path_imglist (lines "number TAB label ... TAB path") or imglist (rows {label,
-- path}), path_root = "", shuffle = false, part_index = 0, num_parts = 1, aug_list, data_name =
-- "data", label_name = "softmax_label", dtype = "float32", last_batch_handle = "pad"; without
-- aug_list those of `CreateAugmenter`.
function ImageIter:init(...)
  self:_set_up(FORM(...))
  self.provide_label = { base.DataDesc(self._label_name, self:_label_shape()) }
end


function ImageIter:_set_up(a)
  if a.batch_size < 1 then
    bad(self, "batch_size", "at least 1", a.batch_size)
  elseif #a.data_shape ~= 3 or (a.data_shape[1] ~= 1 and a.data_shape[1] ~= 3) then
    bad(self, "data_shape", "{1 or 3, height, width}", a.data_shape)
  elseif a.label_width < 1 then
    bad(self, "label_width", "at least 1", a.label_width)
  end
  ImageIter.super.init(self, { batch_size = a.batch_size })
  self._shape, self._label_width, self._root, self._dtype, self._label_name =
    a.data_shape, a.label_width, a.path_root, a.dtype, a.label_name
  self._shuffle, self._handle = a.shuffle, a.last_batch_handle
  if a.aug_list and next(a.augment) then
    bad(next(a.augment), "either aug_list or options of CreateAugmenter", "both")
  end
  a.augment.data_shape = a.data_shape
  self.auglist = a.aug_list or self:_create_augmenters(a.augment)
  self:_open(a)
  local c, h, w = unpack(a.data_shape)
  self.provide_data = { base.DataDesc(a.data_name, { a.batch_size, c, h, w }, a.dtype) }
  self._held = {}
  self:reset()
end


-- Returns the keys in another order.
local function mixed(keys)
  local order, list = nd.arange{ 0, #keys, dtype = "int32", ctx = context.cpu(0) }, {}
  for i, k in ipairs(nd.random.shuffle(order):totable()) do
    list[i] = keys[k + 1]
  end
  return list
end


local function copy(list)
  local result = {}
  for i, v in ipairs(list) do
    result[i] = v
  end
  return result
end


local function rewind(self)
  if self._record and not self.seq then
    self._record:reset()
  end
  self._at = 0
end


--- Begins a new epoch; with "roll_over" it begins with the samples that did not fill a batch.
function ImageIter:reset()
  if self._shuffle then
    self.seq = mixed(self.seq)
  end
  if self._handle ~= "roll_over" then
    self._held = {}
  end
  rewind(self)
  self._ended, self.current_batch = false, nil
end


--- Begins a new epoch and forgets samples that were kept for it.
function ImageIter:hard_reset()
  self._held = {}
  self:reset()
end


local function no_row(self, key)
  Error.raise{ code = "name", func = self.class_name .. ":next", argument = tostring(key),
    message = "the list has no such number" }
end


--- Returns the label (number or list) and the bytes of the next image; nil at the end.
function ImageIter:next_sample()
  local key = self.seq and self.seq[self._at + 1]
  local row = key and self._list and (self._list[key] or no_row(self, key))
  if self.seq and not key then
    return nil
  end
  self._at = self._at + 1
  if not self._record then
    local path = self._root ~= "" and self._root .. "/" .. row[2] or row[2]
    return row[1], files.read(path, self.class_name .. ":next"), path
  end
  local text = key and self._record:read_idx(key) or not key and self._record:read() or nil
  if not text then
    return nil
  end
  local header, bytes = recordio.unpack(text)
  row = row or self._list and (self._list[header.id] or no_row(self, header.id))
  return row and row[1] or header.label, bytes, "record " .. tostring(key or self._at - 1)
end


-- Returns the image changed and laid out (channels, height, width), and its label.
local function prepared(self, bytes, label, name)
  local ok, x = attempt(pixels.imdecode, bytes, { flag = self._shape[1] == 1 and 0 or 1 })
  if not ok then
    Error.raise{ code = x.code, func = self.class_name .. ":next", argument = name,
      message = name .. ": " .. x.message }
  end
  x, label = self:_augment(x, label)
  local c, h, w = unpack(self._shape)
  local shape = x.shape
  if shape[1] ~= h or shape[2] ~= w or shape[3] ~= c then
    Error.raise{ code = "shape", func = self.class_name .. ":next", argument = name,
      expected = { h, w, c }, got = shape,
      message = "the augmenters left another shape than data_shape" }
  end
  return { x:transpose{ 2, 0, 1 }, label }
end


local function next_prepared(self)
  local label, bytes, name = self:next_sample()
  if not label then
    return nil
  end
  return prepared(self, bytes, self:_check_label(label, name), name)
end


-- Returns the samples of the next batch, and the number of those that only fill it up; nil at the
-- end.
local function collect(self)
  local list, size = self._held, self.batch_size
  local kept = #list
  self._held = {}
  local sample
  repeat
    sample = #list < size and next_prepared(self) or nil
    list[#list + 1] = sample
  until not sample
  local missing = size - #list
  if missing == 0 then
    return list, kept > 0 and size - kept or 0
  end
  self._ended = true
  if #list == 0 or self._handle ~= "pad" then
    self._held = self._handle == "roll_over" and class.keep(list) or {}
    return nil
  end
  rewind(self)
  while #list < size do
    list[#list + 1] = next_prepared(self) or rewind(self)
  end
  return list, missing
end


local function assemble(self, list, pad)
  local data = nd.empty(self.provide_data[1].shape, { dtype = self._dtype, ctx = context.cpu(0) })
  for i, sample in ipairs(list) do
    sample[1]:copyto(data:at(i - 1))
  end
  return base.DataBatch{ data = { data }, label = { self:_label_array(list) }, pad = pad }
end


--- Goes to the next batch; false at the end.
function ImageIter:iter_next()
  local list, pad
  if not self._ended then
    list, pad = collect(self)
  end
  self.current_batch = list and class.scope(assemble, self, list, pad) or nil
  return self:_has_current()
end


--- Returns the next batch, nil at the end. `pad` counts the samples that fill a batch up: borrowed
-- from the beginning ("pad"), or those of the new epoch after samples that were kept for it
-- ("roll_over").
function ImageIter:next()
  return self:_hand_out()
end


function ImageIter:getdata() return self.current_batch.data end
function ImageIter:getlabel() return self.current_batch.label end
function ImageIter:getpad() return self.current_batch.pad end


--- Returns the position of the iterator: numbers and texts. To repeat random changes of images,
-- also restore `ty.random.get_state`.
function ImageIter:state()
  if #self._held > 0 then
    Error.raise{ code = "unsupported", func = self.class_name .. ":state",
      message = "samples are kept for the next epoch (roll_over); \z
        their pixels are no part of a state" }
  end
  return { kind = self.class_name, seq = self.seq and copy(self.seq),
    at = self._at, ended = self._ended }
end


function ImageIter:set_state(state)
  if type(state) ~= "table" or state.kind ~= self.class_name
      or (state.seq ~= nil) ~= (self.seq ~= nil) then
    Error.raise{ code = "value", func = self.class_name .. ":set_state", argument = "state",
      message = "the state is that of another iterator" }
  end
  self.seq, self._held, self.current_batch = state.seq and copy(state.seq), {}, nil
  rewind(self)
  for _ = 1, self.seq and 0 or state.at do
    self._record:read()
  end
  self._at, self._ended = state.at, state.ended
end


--- Closes the record file.
function ImageIter:free()
  if self._record then
    self._record:close()
  end
end


return iter
