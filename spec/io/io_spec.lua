-- Iterators and record files: what the recorded cases do not reach, the native ones first of all.

local ty = require "tycho"

local files = {}

local function file(text)
  local path = os.tmpname()
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
  files[#files + 1] = path
  return path
end

local function numbers(n)
  local lines = {}
  for i = 1, n do
    lines[i] = i .. "," .. 10 * i
  end
  return file(table.concat(lines, "\n"))
end

local function first_column(batch)
  local list = {}
  for i, row in ipairs(batch.data[1]:totable()) do
    list[i] = row[1]
  end
  return list
end

local function epoch(it)
  local list, pads = {}, {}
  for batch in it do
    for _, v in ipairs(first_column(batch)) do
      list[#list + 1] = v
    end
    pads[#pads + 1] = batch.pad
  end
  it:reset()
  return list, pads
end

describe("io", function()
  teardown(function()
    for _, path in ipairs(files) do
      os.remove(path)
    end
  end)

  describe("a native iterator", function()
    it("goes on after borrowed samples", function()
      local rows = ty.io.CSVIter{ data_csv = numbers(7), data_shape = { 2 }, batch_size = 3 }
      local list, pads = epoch(rows)
      assert.same({ 1, 2, 3, 4, 5, 6, 7, 1, 2 }, list)
      assert.same({ 0, 0, 2 }, pads)
      assert.same({ 3, 4, 5, 6, 7, 1 }, (epoch(rows)))
    end)

    it("begins anew after a reset within an epoch", function()
      local rows = ty.io.CSVIter{ data_csv = numbers(7), data_shape = { 2 }, batch_size = 3 }
      rows:next()
      rows:reset()
      assert.same({ 1, 2, 3 }, first_column(rows:next()))
    end)

    it("says where it stands", function()
      local path = numbers(7)
      local options = { data_csv = path, data_shape = { 2 }, batch_size = 3 }
      local a, b = ty.io.CSVIter(options), ty.io.CSVIter(options)
      epoch(a)
      a:next()
      b:set_state(a:state())
      assert.same(first_column(a:next()), first_column(b:next()))
    end)

    it("reports a bad line with its number, after the batches before", function()
      local rows = ty.io.CSVIter{ data_csv = file("1,2\n3,4\n5,x\n"),
        data_shape = { 2 }, batch_size = 1 }
      rows:next()
      rows:next()
      local e = assert.raises("format", rows.next, rows)
      assert.is_truthy(tostring(e):find("line 3", 1, true))
    end)

    it("is gone after free", function()
      local rows = ty.io.CSVIter{ data_csv = numbers(3), data_shape = { 2 }, batch_size = 1 }
      local before = ty.live().iters
      rows:free()
      rows:free()
      assert.equal(before - 1, ty.live().iters)
      assert.raises("state", rows.next, rows)
    end)

    it("takes labels of its own file, and refuses too few", function()
      local data = numbers(2)
      local rows = ty.io.CSVIter{ data_csv = data, data_shape = { 2 },
        label_csv = file("7,8\n9,10\n"), label_shape = { 2 }, batch_size = 2 }
      assert.same({ { 7, 8 }, { 9, 10 } }, rows:next().label[1]:totable())
      assert.raises("format", ty.io.CSVIter,
        { data_csv = data, data_shape = { 2 }, label_csv = file("1\n"), batch_size = 2 })
    end)

    it("gives labels the data's integer type", function()
      for _, dtype in ipairs{ "int32", "int64", "float32", "float64" } do
        local rows = ty.io.CSVIter{ data_csv = file("123456789,2\n3,4\n"), data_shape = { 2 },
          label_csv = file("7\n8\n"), batch_size = 2, dtype = dtype }
        local batch, want = rows:next(), dtype:find("int") and dtype or "float32"
        assert.same({ dtype, want, want },
          { batch.data[1].dtype, batch.label[1].dtype, rows.provide_label[1].dtype })
        assert.same({ 7, 8 }, batch.label[1]:totable())
      end
    end)

    it("splits the samples of libsvm files into parts", function()
      local rows = ty.io.LibSVMIter{ data_libsvm = file("1 0:1\n2 0:2\n3 0:3\n4 0:4\n"),
        data_shape = { 1 }, batch_size = 1, num_parts = 2, part_index = 1 }
      assert.same({ 3, 4 }, (epoch(rows)))
      assert.raises("value", ty.io.LibSVMIter,
        { data_libsvm = file("1 0:1\n"), data_shape = { 1 }, batch_size = 1, round_batch = false })
    end)

    it("refuses a truncated record and a foreign idx file", function()
      assert.raises("format", ty.io.RawIter, { path = file("123"), shape = { 2 }, batch_size = 2 })
      local path = file("nothing of the kind")
      assert.raises("format", ty.io.MNISTIter, { image = path, label = path, batch_size = 1 })
    end)
  end)

  describe("a compressed file", function()
    local text = {}
    for i = 1, 40000 do
      text[i] = ("%d,%d\n"):format(i, i % 7)
    end
    text = table.concat(text)

    local function gzip(bytes)
      local path = file(bytes)
      local pipe = assert(io.popen("gzip -c " .. path))
      local packed = pipe:read("*a")
      pipe:close()
      return packed
    end

    local function values(path)
      local it = ty.io.CSVIter{ data_csv = path, data_shape = { 2 }, batch_size = 500 }
      local first = epoch(it)
      assert.same(first, epoch(it))                      -- read again from its beginning
      it:free()
      return first
    end

    it("gives what the plain one gives, in one member or several", function()
      local plain = values(file(text))
      assert.equal(40000, #plain)
      local half = text:find("\n20001,", 1, true)
      local a, b = gzip(text:sub(1, half)), gzip(text:sub(half + 1))
      assert.same(plain, values(file(gzip(text))))
      assert.same(plain, values(file(a .. b)))
      assert.same(plain, values(file(a .. b .. "padding")))
    end)

    it("that ends early or is damaged is an error that names it", function()
      local packed = gzip(text)
      local middle = math.floor(#packed / 2)
      for _, bytes in ipairs{ packed:sub(1, middle), packed:sub(1, middle) .. ("?"):rep(1000) } do
        local path = file(bytes)
        local e = assert.raises("format", values, path)
        assert.is_truthy(tostring(e):find(path, 1, true), tostring(e))
      end
    end)
  end)

  describe("MNISTIter", function()
    local images = file("\0\0\8\3\0\0\0\2\0\0\0\2\0\0\0\3" .. ("\64"):rep(12))
    local labels = file("\0\0\8\1\0\0\0\2\7\9")

    local function open(options)
      options.image, options.label, options.batch_size = images, labels, 2
      return ty.io.MNISTIter(options)
    end

    it("takes the shape of an image as it is", function()
      assert.same({ 2, 1, 2, 3 }, open{ data_shape = { 1, 2, 3 } }.provide_data[1].shape)
      assert.same({ 2, 6 }, open{ input_shape = 6, flat = true }:next().data[1].shape)
    end)

    it("refuses another shape", function()
      local e = assert.raises("shape", open, { input_shape = { 1, 3, 2 } })
      assert.equal("input_shape", e.argument)
      assert.raises("shape", open, { data_shape = { 6 } })
    end)
  end)

  describe("NDArrayIter", function()
    it("gives the rows in the order of the epoch", function()
      local options = { data = { 10, 11, 12, 13, 14 }, batch_size = 5 }
      assert.same({ 0, 1, 2, 3, 4 }, ty.io.NDArrayIter(options).idx:totable())
      options.shuffle = true
      local one, two = ty.io.NDArrayIter(options), ty.io.NDArrayIter(options)
      two:set_state(one:state())
      assert.same((one.idx + 10):totable(), one:next().data[1]:astype("int32"):totable())
      assert.same(one.idx:totable(), two.idx:totable())
      ty.scope(function() two:reset() end)
      assert.same((two.idx + 10):totable(), two:next().data[1]:astype("int32"):totable())
    end)

    it("resumes a shuffled epoch in another iterator", function()
      local function make()
        return ty.io.NDArrayIter{ data = ty.nd.arange(10):reshape{ 10, 1 }, batch_size = 3,
          shuffle = true, last_batch_handle = "roll_over" }
      end
      local a, b = make(), make()
      epoch(a)
      a:next()
      b:set_state(a:state())
      assert.same(first_column(a:next()), first_column(b:next()))
    end)

    it("shuffles alike after the same seed", function()
      local function order()
        ty.random.seed(5)
        return (epoch(ty.io.NDArrayIter{ data = ty.nd.arange(20):reshape{ 20, 1 },
          batch_size = 5, shuffle = true }))
      end
      assert.same(order(), order())
    end)
  end)

  describe("arrays", function()
    it("are refused in lists with gaps or with names beside them", function()
      local x = ty.nd.ones{ 4, 1 }
      for _, data in ipairs{ { x, w = x }, { x, [3] = x }, { { "a", x }, w = x } } do
        assert.raises("type", ty.io.NDArrayIter, { data = data, batch_size = 2 })
        assert.raises("type", ty.io.NDArrayIter, { data = x, label = data, batch_size = 2 })
      end
    end)
  end)

  describe("iterators around iterators", function()
    it("refuse the states of others", function()
      local function make()
        return ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 1 }, batch_size = 2 }
      end
      local resized, joined = ty.io.ResizeIter(make(), 3), ty.io.PrefetchingIter{ make(), make() }
      for _, it in ipairs{ resized, joined } do
        for _, state in ipairs{ 3, {}, make():state(), ty.io.PrefetchingIter(make()):state() } do
          assert.raises("value", it.set_state, it, state)
        end
        it:set_state(it:state())
      end
      assert.raises("value", resized.set_state, resized)
    end)
  end)

  describe("record files", function()
    it("name what is no text and no key", function()
      local e = assert.raises("type", ty.recordio.pack, { 0, 1, 0, 0 })
      assert.matches("'text'", tostring(e))
      local w = ty.recordio.MXIndexedRecordIO(os.tmpname(), os.tmpname(), "w")
      e = assert.raises("type", w.write_idx, w, "seven", "a record")
      assert.matches("seven", tostring(e))
      w:close()
    end)

    it("say what a full disk did not take, at the latest when they are closed", function()
      local w = ty.recordio.MXRecordIO("/dev/full", "w")
      w:write("a record")
      local e = assert.raises("io", w.close, w)
      assert.is_truthy(tostring(e):find("/dev/full", 1, true), tostring(e))
      w = ty.recordio.MXIndexedRecordIO("/dev/full", os.tmpname(), "w")
      w:write_idx(1, "a record")
      e = assert.raises("io", w.close, w)
      assert.equal("/dev/full", e.argument)
      w:close()
    end)

    it("keep every kind of bytes", function()
      local path, magic = os.tmpname(), "\10\35\215\206"
      files[#files + 1] = path
      local texts = { "", "a", magic, magic:rep(3), "x" .. magic, ("abcd" .. magic):rep(5) .. "z" }
      local w = ty.recordio.MXRecordIO(path, "w")
      for _, text in ipairs(texts) do
        w:write(text)
      end
      w:close()
      local r = ty.recordio.MXRecordIO(path, "r")
      for _, text in ipairs(texts) do
        assert.equal(text, r:read())
      end
      assert.is_nil(r:read())
    end)

    it("refuse what is cut off", function()
      local path = file("")
      local w = ty.recordio.MXRecordIO(path, "w")
      w:write("12345678")
      w:close()
      local f = assert(io.open(path, "rb"))
      local text = f:read("*a")
      f:close()
      local r = ty.recordio.MXRecordIO(file(text:sub(1, 12)), "r")
      assert.raises("format", r.read, r)
    end)
  end)

  it("numbers the words of a text", function()
    local corpus = ty.io.text(file("a b a\n\n c\n"))
    assert.same({ a = 0, b = 1, c = 2 }, corpus.vocab)
    assert.same({ "c" }, corpus:sentence(2))
    assert.equal(2, corpus:len())
  end)

  it("leaves a user's class its own options", function()
    local My = ty.io.DataIter:extend("My")
    function My:init(options)
      My.super.init(self, options)
      self.mark = options.mark
    end
    local it_ = My{ batch_size = 3, mark = 7 }
    assert.same({ 3, 7 }, { it_.batch_size, it_.mark })
    assert.raises("type", My, { batch_size = "three", mark = 7 })
    assert.raises("name", ty.io.DataIter, { batchsize = 3 })
  end)
end)


describe("wrong calls of iterators", function()
  local function tens()
    return ty.io.NDArrayIter{ data = ty.nd.ones{ 10, 3 }, batch_size = 4 }
  end

  it("ask for a batch before there is one", function()
    local path = os.tmpname()
    local written = assert(io.open(path, "w"))
    written:write(("1,2,3\n"):rep(4))
    written:close()
    for _, it in ipairs{ ty.io.ResizeIter(tens(), 1), ty.io.PrefetchingIter(tens()),
        ty.io.CSVIter{ data_csv = path, data_shape = { 3 }, batch_size = 4 } } do
      for _, method in ipairs{ "getdata", "getlabel", "getpad" } do
        local e = assert.raises("state", it[method], it)
        assert.truthy(e.func:find(method, 1, true) and e.message:find("iter_next", 1, true))
      end
      assert.is_true(it:iter_next())
      assert.equal(4, it:getdata()[1].shape[1])
    end
    os.remove(path)
  end)

  it("name the argument", function()
    local desc = ty.io.DataDesc
    assert.equal("layout", assert.raises("type", desc.get_batch_axis, 3).argument)
    for _, list in ipairs{ 3, "x", { 3 }, { { 3, { 1 } } } } do
      assert.equal("shapes", assert.raises("type", desc.get_list, list).argument)
      assert.equal("types", assert.raises("type", desc.get_list, {}, list).argument)
    end
    assert.raises("type", desc.get_list)
    assert.equal("size", assert.raises("value", ty.io.ResizeIter, tens(), -1).argument)
  end)

  it("describe the batches of buckets as these are, joined or not", function()
    local function buckets(sentences)
      return ty.rnn.BucketSentenceIter{ sentences, 1, buckets = { 2, 3 }, invalid_label = 0 }
    end
    local function shapes(it)
      local seen = {}
      for batch in it do
        local key = batch.bucket_key
        assert.are.same({ 1, key }, batch.provide_data[1].shape)
        assert.are.same({ 1, key }, batch.provide_label[1].shape)
        seen[#seen + 1] = batch.provide_data[1].name .. key
      end
      table.sort(seen)
      return seen
    end
    local function joined()
      return ty.io.PrefetchingIter(buckets{ { 1, 2 }, { 1, 2, 3 } },
        { rename_data = { { data = "words" } } })
    end
    assert.are.same({ "words2", "words3" }, shapes(joined()))
    assert.are.same({ 3, 3 }, { joined().default_bucket_key,
      ty.io.ResizeIter(joined(), 2).default_bucket_key })
    assert.are.same({ "data2", "data3" }, shapes(ty.io.ResizeIter(buckets{ { 1, 2 }, { 1, 2, 3 } },
      2)))
    local apart = ty.io.PrefetchingIter{ buckets{ { 1, 2 } }, buckets{ { 1, 2, 3 } } }
    assert.matches("bucket", tostring(assert.raises("state", apart.next, apart)))
  end)

  it("name what a joined iterator cannot rename", function()
    local function join(renames)
      return ty.io.PrefetchingIter(tens(), { rename_data = renames })
    end
    assert.equal("x", join{ { data = "x" } }.provide_data[1].name)
    local e = assert.raises("name", join, { { dat = "x" } })
    assert.equal("data", e.candidates[1])
    for _, renames in ipairs{ { 3 }, { { data = 3 } }, { { "data" } } } do
      assert.equal("rename_data", assert.raises("type", join, renames).argument)
    end
    assert.equal("rename_data", assert.raises("value", join, { {}, {} }).argument)
  end)
end)
