--- Event files for TensorBoard: `ty.tensorboard`.
--
--     local writer = ty.tensorboard.Writer{ dir = "runs/first" }
--     writer:add_scalar("loss", 0.7, 1)
--     writer:add_histogram("weights/fc1", mod:get_params().fc1_weight, 1)
--     writer:add_image("digits", ty.viz.image_grid(x), 1)
--     writer:close()
--
-- `tensorboard --logdir runs` shows them. Writing does not need TensorBoard.
-- `ty.callback.TensorBoard` writes a training.
--
-- Names are those of mxboard's SummaryWriter. Each writer makes a new file in the folder. Records
-- that were flushed survive a crash: readers stop at an incomplete record. TensorBoard follows only
-- the newest file of a folder, so a run has one writer at a time.
--
-- @module tycho.tensorboard

require "tycho.core.luajit"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local graph = require "tycho.tensorboard.graph"
local histogram = require "tycho.tensorboard.histogram"
local message = require("tycho.core.wire_writer").message
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local record = require "tycho.tensorboard.record"
local summary = require "tycho.tensorboard.summary"

local C = native.C

local tensorboard = {}

local VERSION = "brain.Event:2"          -- of the format, in each file's first record
local FLUSH_SECONDS = 1                  -- age at which waiting records are written
local MOST_WAITING = 2 ^ 20              -- most bytes that wait
local BINS = 30                          -- of a histogram, as many as TensorBoard draws

--- Writes the event files of one run.
-- @type Writer
local Writer = Class:extend("Writer")
tensorboard.Writer = Writer


-- The system's clock counts whole seconds; the profiler's clock adds the time since then.
local started, ticks = os.time(), tonumber(C.ty_profile_now())

local function get_time()
  return started + (tonumber(C.ty_profile_now()) - ticks) * 1e-9
end


local function first_word(path)
  local file = io.open(path)
  local text = file and file:read("*a") or ""
  if file then
    file:close()
  end
  return text:match("^%S+") or "0"
end


local serial = 0

-- Returns a file name that no other writer uses. TensorBoard recognises event files by "tfevents"
-- in the name and sorts them by the time in it.
local function file_name(suffix)
  serial = serial + 1
  return ("events.out.tfevents.%010d.%s.%s.%d%s"):format(os.time(),
    (first_word("/proc/sys/kernel/hostname"):gsub("[^%w.-]", "_")), first_word("/proc/self/stat"),
    serial, suffix)
end


-- Writing -----------------------------------------------------------------------------------------

local function fail(self, why)
  self._file, self._waiting = nil, {}
  Error.raise{ code = "io", func = "Writer", argument = self.path,
    message = ("cannot write '%s': %s; the writer is closed"):format(self.path,
      (why or "unknown reason"):gsub("^.*: ", "")) }
end


-- Writes the waiting records to the file. If this fails, the file is closed, since an incomplete
-- record would hide later ones.
local function flush(self)
  local bytes = table.concat(self._waiting)
  self._waiting, self._bytes, self._flushed = {}, 0, get_time()
  local file = self._file
  local ok, why = file:write(bytes)
  if ok then
    ok, why = file:flush()
  end
  if not ok then
    file:close()
    fail(self, why)
  end
end


local function check_open(self, func)
  if not self._file then
    Error.raise{ code = "state", func = func, argument = self.path,
      message = "the writer is closed; make another one" }
  end
end


-- Adds an Event with the time, the step and the field that `fill` writes.
local function add_event(self, step, fill)
  local m = message()
  m:double(1, get_time())
  m:integer(2, step)
  fill(m)
  local bytes = record.frame(m:bytes_text())
  self._waiting[#self._waiting + 1] = bytes
  self._bytes = self._bytes + #bytes
  if self._bytes >= MOST_WAITING or get_time() - self._flushed >= self._flush_secs then
    flush(self)
  end
end


local function add_values(self, step, list)
  local m = message()
  for _, v in ipairs(list) do
    m:message(1, v)
  end
  add_event(self, step, function(event) event:message(5, m) end)
end


local WRITER = args.form("tensorboard.Writer", {
  { "dir", "text" }, "*", { "flush_secs", "number", FLUSH_SECONDS },
  { "filename_suffix", "text", "" },
})

--- Makes the folder and an event file in it.
-- @string dir folder of the run
-- @tparam[opt] table options flush_secs (1: seconds after which the next record is written together
--   with those that wait), filename_suffix ("")
-- @raise E(io) if the file cannot be made
function Writer:init(...)
  local a, func = WRITER(...), "tensorboard.Writer"
  if a.dir == "" or a.filename_suffix:find("/", 1, true) then
    Error.raise{ code = "value", func = func, argument = a.dir == "" and "dir" or "filename_suffix",
      expected = a.dir == "" and "a folder" or "a text without a slash",
      got = a.dir == "" and "an empty text" or a.filename_suffix, message = "bad name" }
  end
  files.make_folder(a.dir, func)
  self.dir, self.path = a.dir, a.dir:gsub("/*$", "/") .. file_name(a.filename_suffix)
  local file, why = io.open(self.path, "wb")
  if not file then
    fail(self, why)
  end
  file:setvbuf("no")                                     -- records are buffered here
  self._file, self._waiting, self._bytes = file, {}, 0
  self._flush_secs, self._flushed = a.flush_secs, get_time()
  add_event(self, 0, function(event) event:text(3, VERSION) end)
  flush(self)
end


function Writer.__tostring(self)
  return ("<Writer %s>"):format(self.path)
end


-- Records -----------------------------------------------------------------------------------------

local function step_type(v)
  local ok = type(v) == "number" and v == math.floor(v) and v >= 0 and v < 2 ^ 53
  return ok, v, "a whole number from 0", type(v) == "number" and "value" or "type"
end


local function tag_type(v)
  local ok = type(v) == "string" and v ~= ""
  return ok, v, "a text that is not empty", type(v) == "string" and "value" or "type"
end


local TAG, STEP = { "tag", tag_type }, { "global_step", step_type, 0 }

local SCALAR = args.form("Writer:add_scalar", { TAG, { "value", "number|array" }, STEP })

--- Adds a point of a curve.
-- @string tag such as "train/loss"; the part before the slash groups charts
-- @param value a number, or an array of one element
-- @int[opt=0] global_step position of the point on the axis of steps
function Writer:add_scalar(...)
  local a = SCALAR(...)
  check_open(self, "Writer:add_scalar")
  local value = type(a.value) == "number" and a.value or a.value:asscalar()
  add_values(self, a.global_step, { summary.scalar(a.tag, value) })
end


local SCALARS = args.form("Writer:add_scalars",
  { { "main_tag", tag_type }, { "values", "dict" }, STEP })

--- Adds a point to each of several curves, "MAIN_TAG/NAME".
-- @string main_tag the group of the curves
-- @tparam table values numbers by name
-- @int[opt=0] global_step position of the points on the axis of steps
function Writer:add_scalars(...)
  local a, list = SCALARS(...), {}
  check_open(self, "Writer:add_scalars")
  for i, name in ipairs(attrs.keys(a.values)) do
    if type(a.values[name]) ~= "number" then
      Error.raise{ code = "type", func = "Writer:add_scalars", argument = name,
        expected = "a number", got = Error.kind(a.values[name]), message = "bad value" }
    end
    list[i] = summary.scalar(a.main_tag .. "/" .. name, a.values[name])
  end
  add_values(self, a.global_step, list)
end


local HISTOGRAM = args.form("Writer:add_histogram",
  { TAG, { "values", "array|table" }, STEP, { "bins", "positive", BINS } })

--- Adds the distribution of values. NaN and infinities are left out.
-- @string tag name
-- @param values an array of any shape, or a list of numbers
-- @int[opt=0] global_step step to which it belongs
-- @int[opt=30] bins number of bins of equal width
function Writer:add_histogram(...)
  local a = HISTOGRAM(...)
  check_open(self, "Writer:add_histogram")
  add_values(self, a.global_step,
    { summary.histogram(a.tag, histogram.of(a.values, a.bins, "Writer:add_histogram")) })
end


-- Returns an image as uint8 in the shape (height, width, channels).
local function read_pixels(image, func)
  if type(image) == "table" and not class.is_array(image) and type(image.pixels) == "function" then
    return image:pixels()                                -- a drawing of ty.viz
  elseif not class.is_array(image) then
    Error.raise{ code = "type", func = func, argument = "image", got = Error.kind(image),
      expected = "an array or a drawing of ty.viz", message = "bad 'image'" }
  end
  local s = image.shape
  local channels = #s == 2 and 1 or #s == 3 and (s[3] == 1 or s[3] == 3) and s[3]
  local first = not channels and #s == 3 and (s[1] == 1 or s[1] == 3)
  if not channels and not first then
    Error.raise{ code = "shape", func = func, argument = "image", got = s,
      expected = "(height, width), (1 or 3, height, width) or (height, width, 1 or 3)",
      message = "not the shape of an image (ty.viz.image_grid puts several into one)" }
  end
  image = first and image:transpose{ axes = { 1, 2, 0 } }
    or #s == 2 and image:reshape{ s[1], s[2], 1 } or image
  if image.dtype ~= "uint8" then
    local x = image:astype("float32")
    local white = x:max():asscalar() > 1 and 255 or 1
    image = (x * (255 / white)):clip{ a_min = 0, a_max = 255 }:round():astype("uint8")
  end
  return image
end


local IMAGE = args.form("Writer:add_image", { TAG, { "image", "any" }, STEP })

--- Adds an image.
-- @string tag name
-- @param image (height, width), (1 or 3, height, width) or (height, width, 1 or 3), as bytes or
--   floats (white is 1, or 255 if a value is above 1); or a drawing of `ty.viz`
-- @int[opt=0] global_step step to which it belongs
function Writer:add_image(...)
  local a, func = IMAGE(...), "Writer:add_image"
  check_open(self, func)
  add_values(self, a.global_step, { summary.image(a.tag, read_pixels(a.image, func), func) })
end


local TEXT = args.form("Writer:add_text", { TAG, { "text", "text" }, STEP })

--- Adds a text, which TensorBoard shows as Markdown.
-- @string tag name
-- @string text Markdown
-- @int[opt=0] global_step step to which it belongs
function Writer:add_text(...)
  local a = TEXT(...)
  check_open(self, "Writer:add_text")
  add_values(self, a.global_step, { summary.text(a.tag, a.text) })
end


local GRAPH = args.form("Writer:add_graph", { { "symbol", "symbol" }, { "shape", "dict?" } })

--- Adds a network.
-- @tparam Symbol symbol
-- @tparam[opt] table shape argument name -> shape; arrows are then labelled with shapes
function Writer:add_graph(...)
  local a, func = GRAPH(...), "Writer:add_graph"
  check_open(self, func)
  local bytes = graph.bytes(a.symbol, a.shape, func)
  add_event(self, 0, function(event) event:text(4, bytes) end)
end


local HPARAMS = args.form("Writer:add_hparams",
  { dict = true, { "hparams", "dict" }, { "metrics", "list", {} } })

--- Adds hyperparameters: the run becomes a row of TensorBoard's table.
-- @tparam table hparams numbers, strings and booleans by name
-- @tparam[opt] table metrics tags of scalars that become columns of the table
function Writer:add_hparams(...)
  local a, func = HPARAMS(...), "Writer:add_hparams"
  check_open(self, func)
  for _, name in ipairs(attrs.keys(a.hparams)) do
    local kind = type(a.hparams[name])
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
      Error.raise{ code = "type", func = func, argument = name, got = Error.kind(a.hparams[name]),
        expected = "a number, a text or a boolean", message = "bad hyper-parameter" }
    end
  end
  for i, tag in ipairs(a.metrics) do
    if type(tag) ~= "string" then
      Error.raise{ code = "type", func = func, argument = ("metrics[%d]"):format(i),
        expected = "the tag of a scalar", got = Error.kind(tag), message = "bad 'metrics'" }
    end
  end
  for _, v in ipairs(summary.hparams(a.hparams, a.metrics, get_time())) do
    add_values(self, 0, { v })
  end
end


--- Writes the waiting records.
function Writer:flush()
  check_open(self, "Writer:flush")
  flush(self)
end


--- Writes the waiting records and closes the file; does nothing if it is closed.
function Writer:close()
  if self._file then
    flush(self)
    local ok, why = self._file:close()
    self._file = nil
    if not ok then
      fail(self, why)
    end
  end
end


return namespace.close(tensorboard, "tensorboard", "class")
