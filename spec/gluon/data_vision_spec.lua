-- gluon.data.vision: files of pictures, whole and damaged, and transforms.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local ty = require "tycho"

local nd, vision = ty.nd, ty.gluon.data.vision
local data, transforms = ty.gluon.data, ty.gluon.data.vision.transforms

local function be32(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
    math.floor(n / 256) % 256, n % 256)
end

local function idx(sizes, body)
  local head = "\0\0\8" .. string.char(#sizes)
  for _, n in ipairs(sizes) do
    head = head .. be32(n)
  end
  return head .. body
end

local function pixels(n, seed)
  local list = {}
  for i = 1, n do
    list[i] = string.char((i * 7 + seed) % 256)
  end
  return table.concat(list)
end

local function write_mnist(path, n, compress)
  folder.write(path .. "/train-images-idx3-ubyte", idx({ n, 5, 4 }, pixels(20 * n, 3)))
  folder.write(path .. "/train-labels-idx1-ubyte", idx({ n }, pixels(n, 0)))
  if compress then
    os.execute("gzip " .. path .. "/*-ubyte")
  end
end

local function picture(h, w, seed)
  return (nd.arange(h * w * 3) * 5 + seed):reshape{ h, w, 3 }:astype("uint8")
end


describe("MNIST", function()
  it("reads plain and compressed files", function()
    for _, compress in ipairs{ false, true } do
      folder.with(function(path)
        write_mnist(path, 6, compress)
        local set = vision.MNIST{ root = path }
        assert.equal(6, set:len())
        local x, t = set:get(2)
        assert.shape({ 5, 4, 1 }, x)
        assert.equal("uint8", x.dtype)
        assert.equal((41 * 7 + 3) % 256, x:totable()[1][1][1])
        assert.equal(21, t)
        for _, labels in data.DataLoader{ set, batch_size = 6, num_workers = 1 } do
          assert.equal("int32", labels.dtype)
        end
        set = vision.MNIST{ root = path, transform = function(a, b) return a, b end }
        for _, labels in data.DataLoader{ set, batch_size = 6 } do
          assert.equal("int32", labels.dtype)
        end
        set = vision.MNIST{ root = path, transform = function(a, b) return a, b / 2 end }
        for _, labels in data.DataLoader{ set, batch_size = 6 } do
          assert.equal("float32", labels.dtype)
        end
        assert.raises("index", set.get, set, 6)
        assert.raises("io", vision.MNIST, { root = path, train = false })
      end)
    end
  end)

  it("refuses damaged files", function()
    local good_images, good_labels = idx({ 2, 5, 4 }, pixels(40, 0)), idx({ 2 }, "\1\2")
    local bad = {
      { good_images:sub(1, -2), good_labels }, { good_images .. "x", good_labels },
      { good_images, good_labels:sub(1, -2) }, { good_images:sub(1, 9), good_labels },
      { "", good_labels }, { good_images, "" }, { good_labels, good_images },
      { idx({ 3, 5, 4 }, pixels(60, 0)), good_labels }, { idx({ 0, 5, 4 }, ""), good_labels },
      { idx({ 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, "abc"), good_labels },
      { idx({ 2 ^ 31, 2 ^ 20, 1 }, "abc"), good_labels },
    }
    for i, pair in ipairs(bad) do
      folder.with(function(path)
        folder.write(path .. "/train-images-idx3-ubyte", pair[1])
        folder.write(path .. "/train-labels-idx1-ubyte", pair[2])
        local e = assert.raises("format", vision.MNIST, { root = path })
        assert.matches("ubyte", e.argument, 1, true, "file " .. i)
      end)
    end
    folder.with(function(path)
      write_mnist(path, 600, true)
      local name = path .. "/train-images-idx3-ubyte.gz"
      local bytes = folder.read(name)
      folder.write(name, bytes:sub(1, #bytes / 2))
      assert.raises("format", vision.MNIST, { root = path })
      folder.write(name, bytes:sub(1, 100) .. ("x"):rep(50) .. bytes:sub(151))
      assert.raises("format", vision.MNIST, { root = path })
    end)
  end)
end)


describe("CIFAR", function()
  local function record(labels, seed)
    return labels .. pixels(3072, seed)
  end

  it("reads its records, channels last", function()
    folder.with(function(path)
      for i = 1, 5 do
        folder.write(("%s/data_batch_%d.bin"):format(path, i), record("\1", i) .. record("\9", i))
      end
      local set = vision.CIFAR10(path)
      assert.equal(10, set:len())
      local x, t = set:get(3)
      assert.shape({ 32, 32, 3 }, x)
      assert.equal(9, t)
      local body = pixels(3072, 2)
      local rows = x:totable()
      assert.equal(body:byte(1), rows[1][1][1])
      assert.equal(body:byte(1024 + 34), rows[2][2][2])
      assert.equal(body:byte(3072), rows[32][32][3])
      folder.write(path .. "/data_batch_5.bin", record("\1", 5):sub(1, -2))
      local e = assert.raises("format", vision.CIFAR10, path)
      assert.equal(path .. "/data_batch_5.bin", e.argument)
      folder.write(path .. "/data_batch_5.bin", "")
      assert.raises("format", vision.CIFAR10, path)
      os.remove(path .. "/data_batch_5.bin")
      e = assert.raises("io", vision.CIFAR10, path)
      assert.matches("data_batch_5.bin", e.message, 1, true)
    end)
  end)

  it("has groups and kinds", function()
    folder.with(function(path)
      folder.write(path .. "/test.bin", record("\3\70", 1) .. record("\4\80", 2))
      local set = vision.CIFAR100{ path, train = false }
      assert.equal(4, select(2, set:get(1)))
      set = vision.CIFAR100{ path, fine_label = true, train = false }
      assert.equal(80, select(2, set:get(1)))
    end)
  end)
end)


describe("a folder of pictures", function()
  local function fill(path)
    for k, kind in ipairs{ "b", "a" } do
      lfs.mkdir(path .. "/" .. kind)
      for i = 1, 2 do
        ty.image.imwrite(("%s/%s/%d.png"):format(path, kind, i), picture(6, 5, 10 * k + i))
      end
    end
  end

  it("is read by workers as by the script", function()
    folder.with(function(path)
      fill(path)
      local set = vision.ImageFolderDataset(path)
      assert.same({ "a", "b" }, set.synsets)
      assert.same({ path .. "/b/1.png", 1 }, set.items[3])
      for _, flag in ipairs{ 1, 0, -1 } do
        set = vision.ImageFolderDataset{ path, flag = flag }
        for x, t in data.DataLoader{ set, batch_size = 4, num_workers = 2 } do
          assert.near({ 0, 0, 1, 1 }, t)
          for i = 0, 3 do
            assert.equal(set[i][1]:tostring_raw(), x[i]:tostring_raw())
          end
        end
      end
    end)
  end)

  it("passes over what is no picture, and says so", function()
    folder.with(function(path)
      fill(path)
      folder.write(path .. "/a/note.txt", "x")
      folder.write(path .. "/note.txt", "x")
      local texts = {}
      local sink = ty.log.sink
      ty.log.sink = function(_, text) texts[#texts + 1] = text end
      local set = vision.ImageFolderDataset(path)
      ty.log.sink = sink
      assert.equal(4, set:len())
      assert.equal(2, #texts)
    end)
    assert.raises("io", vision.ImageFolderDataset, "/nowhere/at/all")
  end)

  it("names the sample of a damaged picture", function()
    folder.with(function(path)
      fill(path)
      local bytes = folder.read(path .. "/b/1.png")
      for _, bad in ipairs{ bytes:sub(1, 60), "", "no picture", bytes:sub(1, 40) ..
          ("\255"):rep(30) .. bytes:sub(71) } do
        folder.write(path .. "/b/1.png", bad)
        for _, workers in ipairs{ 0, 1, 3 } do
          local loader = data.DataLoader{ vision.ImageFolderDataset(path), batch_size = 4,
            num_workers = workers }
          local e = assert.raises("format", function()
            for _ in loader do end
          end)
          assert.equal("2", e.argument)
          assert.matches("b/1.png", e.message, 1, true)
        end
      end
      os.remove(path .. "/b/1.png")
      local set = vision.ImageFolderDataset(path)
      os.remove(path .. "/b/2.png")
      local e = assert.raises("io", function()
        for _ in data.DataLoader{ set, batch_size = 4, num_workers = 2 } do end
      end)
      assert.equal("2", e.argument)
    end)
  end)
end)


describe("a file of pictures", function()
  local function write(path, label)
    local writer = ty.recordio.MXIndexedRecordIO(path .. ".idx", path .. ".rec", "w")
    for i = 0, 3 do
      writer:write_idx(i, ty.recordio.pack_img({ 0, label(i), i, 0 }, picture(6, 5, i),
        { img_fmt = ".png" }))
    end
    writer:close()
    return path .. ".rec"
  end

  it("is read by workers as by the script", function()
    folder.with(function(path)
      local set = vision.ImageRecordDataset(write(path .. "/one", function(i) return i + 0.5 end))
      assert.equal(1.5, set[1][2])
      for x, t in data.DataLoader{ set, batch_size = 4, num_workers = 2 } do
        assert.near({ 0.5, 1.5, 2.5, 3.5 }, t)
        assert.equal(set[3][1]:tostring_raw(), x[3]:tostring_raw())
      end
      set = vision.ImageRecordDataset(write(path .. "/two", function(i) return { i, 7 } end))
      assert.near({ 2, 7 }, set[2][2])
      for _, t in data.DataLoader{ set, batch_size = 2, num_workers = 1 } do
        assert.shape({ 2, 2 }, t)
      end
      set = vision.ImageRecordDataset{ write(path .. "/three", function(i) return i end),
        transform = function(x, t) return x:astype("float32"), t * 2 end }
      for x, t in data.DataLoader{ set, batch_size = 4, num_workers = 1 } do
        assert.equal("float32", x.dtype)
        assert.near({ 0, 2, 4, 6 }, t)
      end
    end)
  end)

  it("names the sample whose label has another shape", function()
    folder.with(function(path)
      local set = vision.ImageRecordDataset(write(path .. "/one", function(i)
        return i < 2 and i or { 1, 2, 3 }
      end))
      for _, workers in ipairs{ 0, 2 } do
        local e = assert.raises("shape", function()
          for _ in data.DataLoader{ set, batch_size = 4, num_workers = workers } do end
        end)
        assert.equal("2", e.argument)
        assert.matches("field 1 is float32 (3,), that of sample 0 of the same batch float32 "
          .. "(a number)", e.message, 1, true)
      end
    end)
  end)

  it("names the sample of a damaged record", function()
    folder.with(function(path)
      local name = write(path .. "/one", function(i) return i end)
      local bytes = folder.read(name)
      local function refused(text)
        folder.write(name, text)
        for _, workers in ipairs{ 0, 2 } do
          local ok, e = pcall(function()
            for _ in data.DataLoader{ vision.ImageRecordDataset(name), batch_size = 4,
                num_workers = workers } do end
          end)
          assert.is_false(ok)
          assert.equal("format", e.code)
          assert.matches("^%d$", e.argument)
        end
      end
      refused(bytes:sub(1, -20))
      refused(bytes:sub(1, 3))
      refused("")
      refused(bytes:gsub("PNG", "GNP"))
      refused(bytes:sub(1, 8) .. "\255\255\255\255" .. bytes:sub(13))
      os.remove(path .. "/one.idx")
      assert.raises("io", vision.ImageRecordDataset, name)
    end)
  end)
end)


describe("transforms", function()
  local x = picture(8, 7, 0)

  it("refuse options that cannot be", function()
    local bad = {
      { "Resize", 0 }, { "Resize", -150 }, { "Resize", { -15, 20 } }, { "Resize", { "a" } },
      { "Resize", { 1, 2, 3 } }, { "Resize", { size = 3, interpolation = 7 } },
      { "CropResize", 0, 0, 2, 2, { -25, 25 } },
      { "CenterCrop", 0.5 }, { "CropResize", -1, 0, 2, 2 }, { "RandomFlipLeftRight", 2 },
      { "RandomBrightness", -1 }, { "RandomLighting", -0.1 },
      { "Normalize", { mean = { 1, 2, 3, 4 } } },
      { "Normalize", 0, 0 }, { "RandomRotation", { 5, -5 } }, { "RandomApply", {}, 3 },
      { "Rotate", { 3, zoom_in = true, zoom_out = true } },
      { "RandomCrop", { 4, pad = { 1, 2 } } },
      { "RandomResizedCrop", { 4, scale = { 2, 1 } } },
      { "RandomResizedCrop", { 4, scale = 3 } },
    }
    for _, row in ipairs(bad) do
      local ok, e = pcall(transforms[row[1]], unpack(row, 2))
      assert.is_false(ok, row[1])
      assert.equal("value", e.code, row[1] .. ": " .. tostring(e))
    end
    assert.raises("name", transforms.Resize, { 3, keep = true })
    assert.raises("type", transforms.Compose, { transforms.ToTensor(), 3 })
    assert.raises("name", function() return transforms.Resise end)
  end)

  it("name the option, its value and what it may be", function()
    for _, row in ipairs{
        { "Resize", { { 4, interpolation = 7 } }, "interpolation is 7, expected 0 to 4" },
        { "CropResize", { -1, 0, 2, 2 }, "a place (x or y) is -1" },
        { "CropResize", { 0, 0, 0, 2 }, "a size is 0" },
        { "RandomResizedCrop", { 4, { 0, 2 } }, "scale is {0, 2}" },
        { "RandomResizedCrop", { 4, { 0.1, 1 }, { 2, 1 } }, "ratio is {2, 1}" },
        { "Rotate", { 3, true, true }, "zoom_in and zoom_out exclude each other" },
        { "RandomRotation", { { 1, 3 }, false, false, 3 }, "rotate_with_proba is 3" } } do
      local e = assert.raises("value", transforms[row[1]], unpack(row[2]))
      assert.truthy(tostring(e):find(row[3], 1, true), tostring(e))
    end
  end)

  it("refuse images that do not fit", function()
    assert.raises("shape", transforms.CropResize(5, 5, 4, 4), x)
    assert.raises("shape", transforms.Normalize({ 0, 0, 0 }), transforms.ToTensor()(nd.zeros{ 2, 2,
      2 }))
    local set = data.ArrayDataset(nd.zeros({ 2, 4, 4, 2 }, { dtype = "uint8" }))
    for _, t in ipairs{ transforms.RandomHue(0.1), transforms.CropResize(3, 3, 2, 2),
        transforms.Compose{ transforms.ToTensor(), transforms.Normalize(0, 1) } } do
      local e = assert.raises("shape", function()
        for _ in data.DataLoader{ set:transform_first(t), batch_size = 2, num_workers = 1 } do end
      end)
      assert.equal("0", e.argument)
    end
  end)

  it("turn images as ty.image does", function()
    local y = transforms.ToTensor()(x)
    for _, o in ipairs{ {}, { zoom_in = true }, { zoom_out = true } } do
      local want = ty.image.imrotate(y, 33, o)
      assert.near(want, transforms.Rotate(33, o)(y), 1e-4)
    end
    assert.raises("dtype", transforms.Rotate(33), x)
  end)

  it("hand other inputs on", function()
    local a, b, c = transforms.ToTensor()(x, 5, "text")
    assert.shape({ 3, 8, 7 }, a)
    assert.equal(5, b)
    assert.equal("text", c)
    assert.equal(5, select(2, transforms.Compose{ transforms.CenterCrop(3),
      transforms.ToTensor() }(x, 5)))
    local set = data.ArrayDataset(picture(8, 7, 1):reshape{ 1, 8, 7, 3 }, nd.ones{ 1 })
    for y, t in data.DataLoader{ set:transform(transforms.ToTensor()), batch_size = 1 } do
      assert.shape({ 1, 3, 8, 7 }, y)
      assert.near({ 1 }, t)
    end
  end)

  it("are put together in a list", function()
    local a, b = transforms.CenterCrop(4), transforms.ToTensor()
    for _, c in ipairs{ transforms.Compose{ a, b }, transforms.Compose({ a, b }),
        transforms.Compose():add(a, b), transforms.Compose(a, b) } do
      assert.equal(2, c:len())
      assert.equal(b, c[2])
      assert.equal(2, #c)
      assert.shape({ 3, 4, 4 }, c(x))
    end
  end)

  it("take sizes as width and height", function()
    assert.shape({ 4, 6, 3 }, transforms.Resize({ 6, 4 })(x))
    assert.shape({ 4, 6, 3 }, transforms.CenterCrop({ 6, 4 })(x))
    assert.shape({ 4, 6, 3 }, transforms.RandomResizedCrop({ 6, 4 })(x))
    assert.shape({ 4, 6, 3 }, transforms.RandomCrop{ { 6, 4 }, pad = 3 }(x))
    assert.shape({ 6, 5, 3 }, transforms.Resize{ 5, keep_ratio = true }(picture(6, 5, 0)))
  end)

  it("take batches where the operators do", function()
    local batch = nd.stack{ x, x }
    assert.shape({ 2, 3, 8, 7 }, transforms.ToTensor()(batch))
    assert.shape({ 2, 4, 4, 3 }, transforms.Resize(4)(batch))
    assert.shape({ 2, 4, 4, 3 }, transforms.CenterCrop(4)(batch))
    assert.shape({ 2, 4, 4, 3 }, transforms.RandomResizedCrop(4)(batch))
  end)

  it("draw from ty.random outside loaders", function()
    local t = transforms.Compose{ transforms.RandomFlipLeftRight(),
      transforms.RandomResizedCrop(4), transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1) }
    ty.random.seed(1)
    local a, b = t(x):tostring_raw(), t(x):tostring_raw()
    ty.random.seed(1)
    assert.equal(a, t(x):tostring_raw())
    assert.not_equal(a, b)
  end)

  it("draw the same hybridized or not", function()
    local image = nd.random.randint(0, 256, { shape = { 6, 5, 3 } })
    for name, options in pairs{ RandomFlipLeftRight = {}, RandomFlipTopBottom = {},
        RandomBrightness = { 0.4 }, RandomContrast = { 0.4 }, RandomSaturation = { 0.4 },
        RandomHue = { 0.4 }, RandomColorJitter = { 0.3, 0.3, 0.3, 0.2 },
        RandomLighting = { 0.3 } } do
      for _, dtype in ipairs{ "uint8", "float32" } do
        local input, results = image:astype(dtype), {}
        for i, active in ipairs{ false, true } do
          local transform = transforms[name](options)
          transform:hybridize(active)
          transform(input)
          ty.random.seed(8)
          results[i] = { transform(input), transform(input) }
        end
        for k = 1, 2 do assert.near(results[1][k], results[2][k], 1e-3) end
      end
    end
  end)

  it("are traced where they are hybrid", function()
    local block = transforms.HybridCompose{ transforms.ToTensor(), transforms.Normalize(0.5, 2) }
    assert.near(transforms.Normalize(0.5, 2)(transforms.ToTensor()(x)), block(x))
    local y = transforms.ToTensor()(ty.sym.Variable "data")
    assert.same({ "data" }, y:list_arguments())
    assert.raises("type", transforms.HybridCompose, { transforms.CenterCrop(3) })
    assert.raises("unsupported", transforms.CenterCrop(3), ty.sym.Variable "data")
  end)

  it("run classes of one's own in Lua", function()
    local Mine = transforms.ToTensor:extend("Mine")
    function Mine:forward(v)
      return transforms.ToTensor.forward(self, v) * 2
    end
    local set = data.ArrayDataset(x:reshape{ 1, 8, 7, 3 }):transform_first(Mine())
    for y in data.DataLoader{ set, batch_size = 1, num_workers = 1 } do
      assert.near(transforms.ToTensor()(x) * 2, y[0])
    end
    local seen = 0
    local block = transforms.ToTensor()
    block:register_forward_hook(function() seen = seen + 1 end)
    for _ in data.DataLoader{ data.ArrayDataset(x:reshape{ 1, 8, 7, 3 }):transform_first(block),
        batch_size = 1, num_workers = 1 } do end
    assert.equal(1, seen)
  end)
end)
