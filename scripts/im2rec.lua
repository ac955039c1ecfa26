--- Lists images and packs them into record files that ty.io.ImageRecordIter
-- and ty.image.ImageIter read.
--
--   tycho scripts/im2rec.lua --list data/train photos --recursive  writes data/train.lst: number,
--                                                                  label, path
--   tycho scripts/im2rec.lua data/train photos --resize 256        packs data/train*.lst into .rec
--                                                                  and .idx
--   tycho scripts/im2rec.lua --help
--
-- With --recursive each folder below the root is a label, numbered in the order of the folders'
-- names; without, the images of the root have label 0. Lists can be edited or written by other
-- programs: lines of a number, one or more labels, and a path below the root, between tabs.

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local argparse = require "argparse"
local files = require "tycho.core.files"
local ty = require "tycho"
local common = require "common"

local parser = argparse("im2rec.lua", "Lists images and packs them into record files.")

parser:argument("prefix", "path of the files to write, without an ending")
parser:argument("root", "folder of the images")
parser:flag("--list", "write lists instead of packing")
parser:flag("--recursive", "list: include folders; each is a label")
parser:option("--exts", "list: endings of images, separated by commas"):default(".jpeg,.jpg,.png")
common.count(parser, "--chunks", "list: number of files to split it into", 1)
common.number(parser, "--train-ratio", "list: share that goes to PREFIX_train", 1, 0, 1)
common.number(parser, "--test-ratio",
  "list: share that goes to PREFIX_test; the rest goes to PREFIX_val", 0, 0, 1)
parser:flag("--no-shuffle", "list: keep the order of names")
common.count(parser, "--seed", "list: seed of the order", 100, 0)
parser:flag("--pass-through", "pack: do not encode the files again")
common.count(parser, "--resize", "pack: pixels of the shorter side after resizing", 0, 0)
parser:flag("--center-crop", "pack: crop to the square in the middle")
common.number(parser, "--quality", "pack: quality, of JPEG 0 to 100, of PNG 0 to 9", 95, 0, 100)
parser:option("--color", "pack: 1 colour, 0 grey, -1 as stored")
  :convert(tonumber):choices{"-1", "0", "1"}:default("1")
parser:option("--encoding", "pack: format of the images"):choices{".jpg", ".png"}:default(".jpg")
parser:flag("--pack-label", "pack: all labels of a line, not only the first")
local options = parser:parse()

local function quoted(path)
  return "'" .. path:gsub("'", "'\\''") .. "'"
end

local function list_output(command)
  local pipe, list = assert(io.popen(command)), {}
  for line in pipe:lines() do
    list[#list + 1] = line
  end
  pipe:close()
  return list
end

-- -- listing --------------------------------------------------------------------------------------

local function has_ending(path)
  for ending in options.exts:gmatch("[^,%s]+") do
    if path:lower():sub(-#ending) == ending:lower() then
      return true
    end
  end
  return false
end

-- Returns {path, label} of the images below the root.
local function find_images()
  local images, labels, count = {}, {}, 0
  local depth = options.recursive and "" or "-maxdepth 1"
  for _, path in ipairs(list_output(("cd %s && find -L . %s -type f | LC_ALL=C sort")
      :format(quoted(options.root), depth))) do
    path = path:gsub("^%./", "")
    if has_ending(path) then
      local folder = path:match("^(.*)/") or "."
      if not labels[folder] then
        labels[folder], count = count, count + 1
        print(("label %d: %s"):format(labels[folder], folder))
      end
      images[#images + 1] = {path, options.recursive and labels[folder] or 0}
    end
  end
  return images
end

local function shuffle(list)
  ty.random.seed(options.seed)
  local mixed = {}
  local order = ty.nd.random.shuffle(ty.nd.arange{0, #list, dtype = "int32"}):totable()
  for i, k in ipairs(order) do
    mixed[i] = list[k + 1]
  end
  return mixed
end

local function write_list(path, images, from, to)
  if to <= from then
    return
  end
  local file = assert(io.open(path, "w"))
  for i = from + 1, to do
    file:write(("%d\t%f\t%s\n"):format(i - 1, images[i][2], images[i][1]))
  end
  file:close()
  print(("%s: %d images"):format(path, to - from))
end

local function write_lists()
  local images = find_images()
  if #images == 0 then
    error("no images in " .. options.root, 0)
  end
  if not options.no_shuffle then
    images = shuffle(images)
  end
  local size = math.ceil(#images / options.chunks)
  for chunk = 0, options.chunks - 1 do
    local from, to = chunk * size, math.min((chunk + 1) * size, #images)
    local name = options.prefix .. (options.chunks > 1 and "_" .. chunk or "")
    local test = from + math.floor((to - from) * options.test_ratio)
    local train = math.min(test + math.floor((to - from) * options.train_ratio), to)
    if options.train_ratio == 1 and options.test_ratio == 0 then
      write_list(name .. ".lst", images, from, to)
    else
      write_list(name .. "_test.lst", images, from, test)
      write_list(name .. "_train.lst", images, test, train)
      write_list(name .. "_val.lst", images, train, to)
    end
  end
end

-- -- packing --------------------------------------------------------------------------------------

-- Returns number, labels and path of a line.
local function read_line(line, path, number)
  local fields = {}
  for field in line:gmatch("[^\t]+") do
    fields[#fields + 1] = field
  end
  local labels = {}
  for i = 2, #fields - 1 do
    labels[i - 1] = tonumber(fields[i])
  end
  local id = tonumber(fields[1])
  if not id or #labels == 0 or #labels ~= #fields - 2 then
    error(("%s:%d: expected a number, labels and a path between tabs"):format(path, number), 0)
  end
  return id, labels, fields[#fields]
end

local function middle_square(x)
  local h, w = x.shape[1], x.shape[2]
  local side = math.min(h, w)
  return ty.image.fixed_crop(x, math.floor((w - side) / 2), math.floor((h - side) / 2), side, side)
end

local function read_bytes(path)
  local file, why = io.open(path, "rb")
  if not file then
    error(why, 0)
  end
  local bytes = file:read("*a")
  file:close()
  return bytes
end

local function packed(header, path)
  if options.pass_through then
    return ty.recordio.pack(header, read_bytes(path))
  end
  return ty.nd.scope(function()
    local x = ty.image.imread(path, {flag = options.color})
    if options.center_crop then
      x = middle_square(x)
    end
    if options.resize > 0 then
      x = ty.image.resize_short(x, options.resize, 1)
    end
    return ty.recordio.pack_img(header, x, {quality = options.quality, img_fmt = options.encoding})
  end)
end

-- Writes the image of a line of a list; false where it cannot be read.
local function write_image(record, line, path, number)
  local id, labels, file = read_line(line, path, number)
  local header = ty.recordio.IRHeader{0, options.pack_label and labels or labels[1], id, 0}
  local ok, text = pcall(packed, header, options.root .. "/" .. file)
  if ok then
    record:write_idx(id, text)
  else
    io.stderr:write(tostring(text), "\n")
  end
  return ok
end

-- Writes the images of a list; returns their number, and the number that could not be read.
local function write_images(record, path)
  local number, written, failed = 0, 0, 0
  for line in files.lines(path, "im2rec") do
    number = number + 1
    if line:find("%S") then
      local ok = write_image(record, line, path, number)
      written, failed = written + (ok and 1 or 0), failed + (ok and 0 or 1)
    end
  end
  return written, failed
end

-- Calls f(place, place beside it) for both files of a record.
local function each_file(name, f)
  for _, ending in ipairs{".rec", ".idx"} do
    f(name .. ending, name .. ending .. ".part")
  end
end

local function remove_parts(name)
  each_file(name, function(_, part) os.remove(part) end)
end

-- Packs a list; returns the number of images that could not be read. The files are written under
-- temporary names and renamed when they are complete, so that an error leaves the old ones.
local function pack_list(path)
  local name = path:gsub("%.lst$", "")
  remove_parts(name)                                      -- a link among them leads elsewhere
  local record = ty.recordio.MXIndexedRecordIO(name .. ".idx.part", name .. ".rec.part", "w")
  local ok, written, failed = pcall(write_images, record, path)
  record:close()
  if ok and written > 0 then
    each_file(name, function(place, part) assert(os.rename(part, place)) end)
    print(("%s.rec: %d images"):format(name, written))
    return failed
  end
  remove_parts(name)
  error(ok and ("%s: none of its images is in %s; %s.rec is left as it was")
    :format(path, options.root, name) or written, 0)
end

local function pack_lists()
  local folder, stem = options.prefix:match("^(.*/)([^/]*)$")
  folder, stem = folder or "./", stem or options.prefix
  local found, failed = 0, 0
  for _, path in ipairs(
      list_output(("find %s -maxdepth 1 -name '*.lst' | LC_ALL=C sort"):format(quoted(folder)))) do
    if path:match("([^/]*)$"):sub(1, #stem) == stem then
      found, failed = found + 1, failed + pack_list(path)
    end
  end
  if found == 0 then
    error("there is no list " .. options.prefix .. "*.lst; make one with --list", 0)
  end
  return failed
end

local ok, failed = pcall(options.list and write_lists or pack_lists)
if not ok then
  io.stderr:write(tostring(failed), "\n")
end
os.exit(ok and (failed or 0) == 0 and 0 or 1)
