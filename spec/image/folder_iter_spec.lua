-- image.ImageFolderIter: classes from folders, labels from a function, what is no image.

local codec = require "tycho.ndarray.image_codec"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local ty = require "tycho"
require "spec.helper"

local function write(path, name, grey)
  local x = ty.nd.full({ 6, 8, 3 }, grey):astype "uint8"
  folder.write(path .. "/" .. name, codec.encode_as(x, nil, name:lower(), "spec"))
end

local function with_pets(f)
  folder.with(function(path)
    for _, name in ipairs{ "dog", "cat", "cat/old", ".hidden", "empty" } do
      lfs.mkdir(path .. "/" .. name)
    end
    write(path, "cat/a.png", 10)
    write(path, "cat/old/b.JPG", 20)
    write(path, "dog/c.jpeg", 30)
    write(path, "dog/.d.png", 40)
    write(path, ".hidden/e.png", 50)
    write(path, "loose.png", 60)
    folder.write(path .. "/dog/notes.txt", "woof")
    f(path)
  end)
end

describe("image.ImageFolderIter", function()
  it("takes folders for classes", function()
    with_pets(function(path)
      local it = ty.image.ImageFolderIter{ path = path, batch_size = 3, data_shape = { 3, 6, 6 } }
      assert.same({ "cat", "dog", "empty" }, it.classes)
      assert.same({ "cat/a.png", "cat/old/b.JPG", "dog/c.jpeg" }, it.paths)
      local batch = it:next()
      assert.near({ 0, 0, 1 }, batch.label[1])
      assert.shape({ 3, 3, 6, 6 }, batch.data[1])
      assert.near({ 10, 20, 30 }, batch.data[1]:mean{ axis = { 1, 2, 3 } }, 1)
      assert.is_nil(it:next())
      it:reset()
      assert.truthy(it:next())
    end)
  end)

  it("asks a function for labels", function()
    with_pets(function(path)
      local it = ty.image.ImageFolderIter{ path = path, batch_size = 4, data_shape = { 3, 6, 6 },
        label_width = 2, label = function(name) return { #name, name:find("cat") and 1 or 0 } end }
      assert.same({ "cat/a.png", "cat/old/b.JPG", "dog/c.jpeg", "loose.png" }, it.paths)
      assert.near({ { 9, 1 }, { 13, 1 }, { 10, 0 }, { 9, 0 } }, it:next().label[1])
    end)
  end)

  it("is an ImageIter in all else", function()
    with_pets(function(path)
      ty.random.seed(2)
      local it = ty.image.ImageFolderIter{ path = path, batch_size = 1, data_shape = { 1, 4, 4 },
        shuffle = true, num_parts = 3, part_index = 1, resize = 5, rand_crop = true }
      assert.shape({ 1, 1, 4, 4 }, it:next().data[1])
      assert.is_nil(it:next())
      assert.equal("ImageFolderIter", it:state().kind)
    end)
  end)

  it("names the image that cannot be read", function()
    with_pets(function(path)
      folder.write(path .. "/cat/a.png", "no pixels")
      local it = ty.image.ImageFolderIter{ path = path, batch_size = 3, data_shape = { 3, 6, 6 } }
      assert.equal(path .. "/cat/a.png", assert.raises("format", it.next, it).argument)
      os.remove(path .. "/cat/a.png")
      it:reset()
      assert.raises("io", it.next, it)
    end)
  end)

  it("refuses folders without images, and links around", function()
    with_pets(function(path)
      local function new(where, options)
        options = options or {}
        options.path, options.batch_size, options.data_shape = where, 1, { 3, 6, 6 }
        return ty.image.ImageFolderIter(options)
      end
      assert.raises("io", new, path .. "/none")
      assert.raises("value", new, path .. "/dog")
      assert.raises("value", new, path .. "/empty", { label = function() return 0 end })
      assert.raises("type", new, path, { label = function() return "cat" end })
      assert.raises("value", new, path, { imglist = {} })
      assert.raises("name", new, path, { resise = 3 })
      lfs.link("..", path .. "/dog/up", true)
      assert.equal("value", assert.raises("value", new, path).code)
    end)
  end)
end)
