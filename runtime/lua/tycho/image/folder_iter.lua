--- Batches of the images in a folder, without packing: `ty.image.ImageFolderIter`.
--
-- @module tycho.image.folder_iter

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local folder = require "tycho.ndarray.folder"
local ImageIter = require("tycho.image.iter").ImageIter

local FUNC = "image.ImageFolderIter"
local DEEPEST = 16                       -- depth of folders; links may form a circle
local ENDINGS = { jpg = true, jpeg = true, jpe = true, png = true }

--- An ImageIter over a folder. Fields: classes (names of the folders; the label of an image is the
-- position of its folder, from 0), paths (below the folder, sorted).
-- @type ImageFolderIter
local ImageFolderIter = ImageIter:extend("ImageFolderIter")

local FORM = args.form(FUNC, { rest = "options", { "path", "path" }, { "label", "function?" } })


local function is_image(name)
  return name:sub(1, 1) ~= "." and ENDINGS[(name:match("%.(%w+)$") or ""):lower()] == true
end


-- Adds the images below a folder, "" or "cat/", to a list, by their paths below `root`.
local function add_images(list, root, inner, depth)
  if depth > DEEPEST then
    Error.raise{ code = "value", func = FUNC, argument = root .. "/" .. inner,
      expected = ("at most %d folders below each other"):format(DEEPEST), got = "more",
      message = "the folders are too deep; does a link lead to one above it?" }
  end
  for _, entry in ipairs(folder.list(root .. "/" .. inner, FUNC)) do
    local name = entry.name
    if entry.folder and name:sub(1, 1) ~= "." then
      add_images(list, root, inner .. name .. "/", depth + 1)
    elseif not entry.folder and is_image(name) then
      list[#list + 1] = inner .. name
    end
  end
end


-- Returns rows {label, path} of the images in folders, each of which is a class.
local function rows_of_classes(self, path)
  local rows = {}
  for _, entry in ipairs(folder.list(path, FUNC)) do
    local list = {}
    if entry.folder and entry.name:sub(1, 1) ~= "." then
      add_images(list, path, entry.name .. "/", 1)
      table.insert(self.classes, entry.name)
    end
    for _, image in ipairs(list) do
      rows[#rows + 1] = { #self.classes - 1, image }
    end
  end
  return rows
end


local function rows_by(label, path)
  local list, rows = {}, {}
  add_images(list, path, "", 0)
  for i, image in ipairs(list) do
    local v = label(image)
    if type(v) ~= "number" and (type(v) ~= "table" or type(v[1]) ~= "number") then
      Error.raise{ code = "type", func = FUNC, argument = "label", got = Error.kind(v),
        expected = "a function of a path to a number or a list of numbers",
        message = ("no label of '%s'"):format(image) }
    end
    rows[i] = { v, image }
  end
  return rows
end


--- Reads the names of the images; pixels are read with their batch.
--
--     it = ty.image.ImageFolderIter{ path = "pets", batch_size = 32, data_shape = { 3, 224, 224 },
--       shuffle = true, resize = 256, rand_crop = true }          -- pets/cat/1.jpg, pets/dog/7.png
--     print(it.classes[1], it.classes[2])                           --> cat dog
--
-- @string path of a folder with a folder for each class, which may have folders in it; images end
--   in .jpg, .jpeg, .jpe or .png. Names that begin with a point are left out
-- @tparam[opt] function label path of an image below the folder -> its label, instead of that of
--   its class; the images then need no folders of classes
-- @param ... the other options are those of `ImageIter`: batch_size, data_shape, shuffle,
--   num_parts, part_index, last_batch_handle, those of `CreateAugmenter` ...
-- @raise E(io), E(value): there are no images
function ImageFolderIter:init(...)
  local a = FORM(...)
  self.classes, self.paths = {}, {}
  local rows = a.label and rows_by(a.label, a.path) or rows_of_classes(self, a.path)
  if #rows == 0 then
    Error.raise{ code = "value", func = FUNC, argument = a.path,
      expected = a.label and "images" or "folders of classes with images", got = "none",
      message = ("the folder '%s' has no images%s"):format(a.path, a.label and ""
        or " in folders; 'label' is for those without") }
  end
  for i, row in ipairs(rows) do
    self.paths[i] = row[2]
  end
  for _, name in ipairs{ "imglist", "path_imglist", "path_imgrec", "path_imgidx", "path_root" } do
    if a.options[name] ~= nil then
      Error.raise{ code = "value", func = FUNC, argument = name, expected = "only 'path'",
        got = "both", message = "the images are those of the folder" }
    end
  end
  a.options.imglist, a.options.path_root = rows, a.path
  ImageFolderIter.super.init(self, a.options)
end


return ImageFolderIter
