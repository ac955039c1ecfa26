-- gluon.data.DataLoader: batches, threads, the last incomplete batch.

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local ty = require "tycho"
local device = require "spec.support.device"

local data, nd = ty.gluon.data, ty.nd
local transforms = data.vision.transforms

local C = native.C

local function images(n)
  return (nd.arange(n * 7 * 6 * 3) % 251):reshape{ n, 7, 6, 3 }:astype("uint8")
end

local function labels(n)
  return nd.arange(n):astype("int32")
end

-- Returns all bytes of some epochs.
local function read_bytes(make, workers, options)
  ty.random.seed(5)
  local list = {}
  local a = { make(), batch_size = 3, shuffle = true, num_workers = workers }
  for key, value in pairs(options or {}) do
    a[key] = value
  end
  local loader = data.DataLoader(a)
  for _ = 1, 2 do
    for x, t in loader do
      list[#list + 1] = x:tostring_raw()
      list[#list + 1] = t and t:tostring_raw() or ""
    end
  end
  return table.concat(list)
end

pcall(ffi.cdef, "int usleep(unsigned us);")

-- Waits until no thread of a loader runs.
local function threads_end()
  for _ = 1, 6000 do                                     -- a minute
    if C.ty_loader_threads() == 0 then
      return true
    end
    ffi.C.usleep(10000)
  end
  return false
end

-- Returns the labels of the first batch; leaves the loop there.
local function read_first(loader)
  local labels_of
  for _, t in loader do
    labels_of = t
    if labels_of ~= 0 then
      break
    end
  end
  return labels_of
end

local CHAINS = {
  flips = function()
    return transforms.Compose{ transforms.RandomFlipLeftRight(), transforms.RandomFlipTopBottom(),
      transforms.ToTensor() }
  end,
  crops = function()
    return transforms.Compose{ transforms.RandomCrop{ 6, pad = 2 },
      transforms.RandomResizedCrop{ 4, scale = { 0.3, 1 } }, transforms.CenterCrop(3) }
  end,
  colours = function()
    return transforms.Compose{ transforms.RandomColorJitter(0.3, 0.3, 0.3, 0.1),
      transforms.RandomLighting(0.1), transforms.RandomGray(), transforms.ToTensor(),
      transforms.Normalize({ 0.4, 0.5, 0.6 }, { 0.2, 0.3, 0.4 }) }
  end,
  factors = function()
    return transforms.Compose{ transforms.Cast(), transforms.RandomBrightness(0.2),
      transforms.RandomContrast(0.2), transforms.RandomSaturation(0.2), transforms.RandomHue(0.1) }
  end,
  choices = function()
    return transforms.Compose{ transforms.RandomApply({ transforms.RandomBrightness(0.2),
      transforms.RandomFlipLeftRight() }, 0.4), transforms.ToTensor(),
      transforms.RandomRotation{ { -30, 30 }, rotate_with_proba = 0.7 } }
  end,
}


describe("a loader", function()
  setup(device.leave)                                    -- the threads read arrays of the host
  teardown(device.come_back)

  it("stacks, and keeps the dtype of the arrays that numbers come from", function()
    local set = data.ArrayDataset(images(5), labels(5))
    for _, workers in ipairs{ 0, 2 } do
      local sizes = {}
      for x, t in data.DataLoader{ set, batch_size = 2, num_workers = workers } do
        assert.equal("uint8", x.dtype)
        assert.equal("int32", t.dtype)
        sizes[#sizes + 1] = x:len()
      end
      assert.same({ 2, 2, 1 }, sizes)
    end
    for x, t in data.DataLoader{ set:transform(function(a, b) return a, b / 2 end),
        batch_size = 5 } do
      assert.equal("uint8", x.dtype)
      assert.near({ 0, 0.5, 1, 1.5, 2 }, t)
      assert.equal("float32", t.dtype)
    end
    for _, t in data.DataLoader{ set:transform_first(function(a) return a end):take(2),
        batch_size = 5 } do
      assert.equal("int32", t.dtype)
    end
  end)

  it("gives lists field by field, and other values in lists", function()
    local set = data.SimpleDataset{ 1, 2, 3, 4 }:transform(function(v)
      return { v, nd.full({ 2 }, v) }, tostring(v)
    end)
    for fields, texts in data.DataLoader{ set, batch_size = 2, num_workers = 1 } do
      assert.shape({ 2 }, fields[1])
      assert.shape({ 2, 2 }, fields[2])
      assert.equal("string", type(texts[1]))
    end
  end)

  it("calls a function for batches", function()
    local set = data.SimpleDataset{ 1, 2, 3 }
    for _, workers in ipairs{ 0, 2 } do
      local got = {}
      for x, n in data.DataLoader{ set, batch_size = 2, num_workers = workers,
          batchify_fn = function(list) return nd.array(list) * 2, #list end } do
        got[#got + 1] = { x:totable(), n }
      end
      assert.same({ { { 2, 4 }, 2 }, { { 6 }, 1 } }, got)
    end
    for x in data.DataLoader{ data.SimpleDataset{ { 1, 2 }, { 3, 4 } }, batch_size = 2,
        batchify_fn = data.batchify.pad() } do
      assert.near({ { 1, 2 }, { 3, 4 } }, x)
    end
    local images_of = data.ArrayDataset(images(4)):transform_first(transforms.ToTensor())
    for x in data.DataLoader{ images_of, batch_size = 4, num_workers = 1,
        batchify_fn = function(list) return list[1].dtype, #list end } do
      assert.equal("float32", x)
    end
  end)

  it("refuses contradictions", function()
    local set = data.SimpleDataset{ 1, 2, 3 }
    local s = data.SequentialSampler(3)
    local function refused(code, options)
      options[1] = set
      assert.raises(code, data.DataLoader, options)
    end
    refused("value", {})
    refused("value", { batch_size = 0 })
    refused("value", { batch_size = 2, shuffle = true, sampler = s })
    refused("value", { batch_size = 2, batch_sampler = data.BatchSampler(s, 2) })
    refused("value", { shuffle = true, batch_sampler = data.BatchSampler(s, 2) })
    refused("value", { last_batch = "keep", batch_sampler = data.BatchSampler(s, 2) })
    refused("value", { batch_size = 2, last_batch = "other" })
    refused("value", { batch_size = 2, num_workers = -1 })
    refused("value", { batch_size = 2, prefetch = -1 })
    refused("value", { batch_size = 2, timeout = 0 })
    refused("name", { batch_size = 2, workers = 1 })
    assert.raises("type", data.DataLoader, { 3, batch_size = 2 })
  end)

  it("refuses samples of different shapes, naming the first one", function()
    local set = data.SimpleDataset{ 1, 1, 2, 1, 3 }:transform(function(n) return nd.ones{ n } end)
    for _, workers in ipairs{ 0, 1, 3 } do
      for _ = 1, 5 do
        local e = assert.raises("shape", function()
          for _ in data.DataLoader{ set, batch_size = 5, num_workers = workers } do end
        end)
        assert.equal("2", e.argument)
      end
    end
  end)

  it("refuses numbers that a sampler makes up", function()
    local Wrong = data.Sampler:extend("Wrong")
    function Wrong:len() return 3 end
    function Wrong:iter()
      local i = -1
      return function()
        i = i + 1
        return i < 4 and 2 * i or nil
      end
    end
    for _, workers in ipairs{ 0, 2 } do
      local n = 0
      local e = assert.raises("index", function()
        for _ in data.DataLoader{ data.ArrayDataset(images(5)), batch_size = 2, sampler = Wrong(),
            num_workers = workers } do
          n = n + 1
        end
      end)
      assert.equal("6", e.argument)
      assert.equal(1, n)
    end
  end)
end)


describe("workers", function()
  setup(device.leave)                                    -- the threads read arrays of the host
  teardown(device.come_back)

  for name, chain in pairs(CHAINS) do
    it("change nothing: " .. name, function()
      local set = data.ArrayDataset(images(8), labels(8)):transform_first(chain())
      local function make() return set end
      local one = read_bytes(make, 0)
      assert.equal(one, read_bytes(make, 0))
      assert.equal(one, read_bytes(make, 1))
      assert.equal(one, read_bytes(make, 3))
      assert.equal(one, read_bytes(make, 2, { prefetch = 1 }))
      assert.equal(one:sub(1, #one / 2) == one:sub(#one / 2 + 1), false)
    end)

    it("change nothing around functions: " .. name, function()
      local first, last = chain(), transforms.Cast("float64")
      local set = data.ArrayDataset(images(8), labels(8)):transform_first(
        transforms.RandomFlipLeftRight()):transform(function(x, t)
          return x, t + ty.random.uniform{ shape = { 1 } }:asscalar()
        end):transform_first(first):shard(2, 1):transform_first(last)
      local function make() return set end
      local one = read_bytes(make, 0)
      assert.equal(one, read_bytes(make, 1))
      assert.equal(one, read_bytes(make, 3))
    end)
  end

  it("change nothing of data sets in Lua and of batch functions", function()
    local Own = data.Dataset:extend("Own")
    function Own:len() return 9 end
    function Own:get(i)
      return nd.random.uniform{ shape = { 2 } } + i, i
    end
    local function make() return Own() end
    local function batch(list)
      local x = {}
      for k, sample in ipairs(list) do
        x[k] = sample[1]
      end
      return nd.stack(x) * ty.random.uniform{ shape = { 1 } }:asscalar()
    end
    local one = read_bytes(make, 0)
    assert.equal(one, read_bytes(make, 2))
    one = read_bytes(make, 0, { batchify_fn = batch })
    assert.equal(one, read_bytes(make, 3, { batchify_fn = batch }))
  end)

  it("leave the script's random numbers alone", function()
    local set = data.ArrayDataset(images(8)):transform_first(transforms.Compose{
      transforms.RandomFlipLeftRight() }):transform_first(function(x)
        return x + ty.random.uniform{ shape = { 1 } }:asscalar()
      end)
    local function run(workers)
      ty.random.seed(1)
      local list = {}
      for _ in data.DataLoader{ set, batch_size = 3, num_workers = workers } do
        list[#list + 1] = ty.random.uniform{ shape = { 1 } }:asscalar()
      end
      return list
    end
    assert.same(run(0), run(2))
    ty.random.seed(1)
    local before = ty.random.get_state()
    for _ in data.DataLoader{ data.ArrayDataset(images(4)), batch_size = 2 } do end
    assert.same(before, ty.random.get_state())
  end)

  it("give transforms the values that they have alone", function()
    local x = images(1)
    local set = data.ArrayDataset(x):transform_first(transforms.Compose{ transforms.Resize(9),
      transforms.CenterCrop{ { 5, 4 } }, transforms.CropResize(1, 0, 3, 3, 6),
      transforms.ToTensor(), transforms.Normalize(0.3, 0.7) })
    local want = ty.F.image.resize{ x[0], size = { 9 }, interp = 1 }
    want = ty.image.center_crop(want, { 5, 4 }, 1)
    want = ty.F.image.crop{ want, x = 1, y = 0, width = 3, height = 3 }
    want = ty.F.image.resize{ want, size = { 6 }, interp = 1 }
    want = ty.F.image.normalize{ ty.F.image.to_tensor(want), mean = { 0.3 }, std = { 0.7 } }
    for got in data.DataLoader{ set, batch_size = 1, num_workers = 1 } do
      assert.equal(want:tostring_raw(), got[0]:tostring_raw())
    end
  end)

  it("hand errors out in their turn, with the sample's number", function()
    for _, workers in ipairs{ 0, 2 } do
      local set = data.SimpleDataset{ 1, 2, 3, 4, 5 }:transform(function(v)
        if v == 4 then
          error(ty.Error.new{ code = "value", message = "no four" })
        end
        return v
      end)
      local n = 0
      local e = assert.raises("value", function()
        for x in data.DataLoader{ set, batch_size = 2, num_workers = workers } do
          n = n + x:len()
        end
      end)
      assert.equal(2, n)
      assert.equal("3", e.argument)
      assert.matches("sample 3: no four", e, 1, true)
    end
  end)

  it("name the sample whose function fails in Lua, or in an operator", function()
    local function failing(f)
      return data.SimpleDataset{ 1, 2, 3 }:transform(function(v) return v == 2 and f() or v end)
    end
    for _, workers in ipairs{ 0, 2 } do
      local function run(f)
        for _ in data.DataLoader{ failing(f), batch_size = 2, num_workers = workers } do
        end
      end
      local e = assert.raises("run", run, function() error("bad file", 0) end)
      assert.equal("1", e.argument)
      assert.matches("sample 1: bad file", e, 1, true)
      e = assert.raises("shape", run, function() return ty.nd.ones{ 2 } + ty.nd.ones{ 3 } end)
      assert.equal("1", e.argument)
      assert.matches("sample 1: .*does not broadcast", e)
      local own = {}
      local ok, err = pcall(run, function() error(own) end)
      assert.is_false(ok)
      assert.equal(own, err)
    end
  end)

  it("let a loop be left, and begin anew", function()
    local loader = data.DataLoader{ data.ArrayDataset(images(40), labels(40)), batch_size = 4,
      num_workers = 2 }
    for _ = 1, 20 do
      assert.near({ 0, 1, 2, 3 }, read_first(loader))
    end
    local n = 0
    for x in loader do
      n = n + x:len()
    end
    assert.equal(40, n)
    local a, b = loader:iter(), loader:iter()
    for _ = 1, 10 do
      local _, s = a()
      local _, t = b()
      assert.equal(s:tostring_raw(), t:tostring_raw())
    end
    assert.is_nil(a())
    assert.is_nil(a())
  end)

  it("serve loops inside of loops over the same loader", function()
    for _, workers in ipairs{ 0, 2 } do
      local loader = data.DataLoader{ data.ArrayDataset(labels(12)), batch_size = 4,
        num_workers = workers }
      local seen = {}
      for x in loader do
        seen[#seen + 1] = x[0]:asscalar()
        for y in loader do
          seen[#seen + 1] = y[0]:asscalar()
          if x[0]:asscalar() == 4 then
            break
          end
        end
      end
      assert.same({ 0, 0, 4, 8, 4, 0, 8, 0, 4, 8 }, seen)
    end
  end)

  it("serve loops inside of each other over batches of texts", function()
    local loader = data.DataLoader{ data.SimpleDataset{ "a", "b" }, batch_size = 1,
      batchify_fn = function(list) return list[1] end }
    local seen = {}
    for x in loader do
      for y in loader do
        seen[#seen + 1] = x .. y
      end
    end
    assert.same({ "aa", "ab", "ba", "bb" }, seen)
  end)

  it("keep three loops that were left, or wait for others, and name one too many", function()
    local loader = data.DataLoader{ data.ArrayDataset(labels(12)), batch_size = 4,
      num_workers = 2 }
    local first = {}
    for i = 1, 4 do
      first[i] = loader(nil, nil)
    end
    assert.equal(3, #loader._loops)
    for i = 4, 2, -1 do
      assert.equal(4, loader(nil, first[i])[0]:asscalar())
    end
    assert.raises("state", loader, nil, first[1])
    loader:free()
    assert.equal(0, #loader._loops)
    assert.is_nil(loader(nil, first[2]))
  end)

  it("end the loop in which the loader is freed", function()
    local loader = data.DataLoader{ data.ArrayDataset(labels(12)), batch_size = 4,
      num_workers = 2 }
    local n = 0
    for _ in loader do
      n = n + 1
      loader:free()
    end
    assert.equal(1, n)
  end)

  it("leave no threads and no memory", function()
    local set = data.ArrayDataset(images(60), labels(60)):transform_first(CHAINS.colours())
    local function use(how)
      local loader = data.DataLoader{ set, batch_size = 4, num_workers = 3 }
      for _ in loader do
        if how == "break" then
          break
        elseif how == "error" then
          error("stop", 0)
        end
      end
    end
    use "whole"
    assert.is_true(threads_end())
    collectgarbage()
    collectgarbage()
    ty.waitall()
    local before = ty.live()
    for _ = 1, 5 do
      for _, how in ipairs{ "whole", "break", "error" } do
        pcall(use, how)
      end
    end
    assert.is_true(threads_end())
    collectgarbage()
    collectgarbage()
    ty.waitall()
    local after = ty.live()
    for _, what in ipairs{ "iters", "tensors", "bytes" } do
      assert.is_true(after[what] <= before[what], what)
    end
  end)

  it("end by themselves where a loop was left", function()
    local loader = data.DataLoader{ data.ArrayDataset(images(60)), batch_size = 4,
      num_workers = 3 }
    read_first(loader)
    assert.is_true(threads_end())
    local n = 0
    for x in loader do
      n = n + x:len()
      threads_end()
    end
    assert.equal(60, n)
  end)

  for _, case in ipairs{ { "while they work", 0 }, { "with batches that are ready", 100000 } } do
    local when, delay_us = case[1], case[2]

    it("stop when they are asked to " .. when, function()
      local loader = data.DataLoader{ data.ArrayDataset(images(60)):transform_first(
        CHAINS.crops()), batch_size = 4, num_workers = 2 }
      local n = 0
      local ok, e = pcall(function()
        for x in loader do
          n = n + x:len()
          ffi.C.usleep(delay_us)
          C.ty_interrupt(1)
        end
      end)
      C.ty_interrupt(0)
      assert.is_false(ok)
      assert.equal("interrupted", e.code)
      assert.equal(4, n)
      assert.equal(0, C.ty_loader_threads())
      n = 0
      for x in loader do
        n = n + x:len()
      end
      assert.equal(60, n)
    end)
  end

  it("are waited for so long and no longer", function()
    local slow = data.DataLoader{ data.ArrayDataset((nd.zeros{ 2, 900, 900, 3 }):astype("uint8"))
      :transform_first(transforms.Compose{ transforms.Resize{ 3000, interpolation = 4 },
        transforms.RandomColorJitter(0.2, 0.2, 0.2, 0.2) }), batch_size = 1, num_workers = 1,
      timeout = 0.1 }
    local e = assert.raises("run", function()
      for _ in slow do end
    end)
    assert.equal("timeout", e.argument)
  end)

  it("refuse samples and batches that are nil, which would end a loop", function()
    local rows = data.ArrayDataset(nd.arange(10):reshape{ 10, 1 }, nd.arange(10))
    local Empty = data.Dataset:extend("Empty")
    function Empty.len() return 4 end
    function Empty.get() end
    local function nothing() end
    local some = data.SimpleDataset{ 1, 2, 3 }:transform(function(x)
      if x ~= 2 then return x end
    end)
    assert.raises("value", rows.transform, rows, nothing, false)
    for workers = 0, 2, 2 do
      for _, options in ipairs{ { rows:transform(nothing) }, { rows:transform_first(nothing) },
          { Empty() }, { some }, { rows, batchify_fn = nothing } } do
        options.batch_size, options.num_workers = 1, workers
        local e = assert.raises("value", function()
          for _ in data.DataLoader(options) do end
        end)
        assert.equal(options.batchify_fn and "batchify_fn" or options[1] == some and "1" or "0",
          e.argument)
      end
    end
  end)

  it("read arrays that are still being computed", function()
    local x = nd.ones{ 64, 64 }
    for _ = 1, 5 do
      x = nd.dot(x, x) / 64
    end
    for row in data.DataLoader{ data.ArrayDataset(x), batch_size = 64, num_workers = 2 } do
      assert.equal(64 * 64, row:sum():asscalar())
    end
  end)
end)
