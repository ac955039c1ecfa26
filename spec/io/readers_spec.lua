-- What the readers of files give, epoch by epoch, and what they say of files that they cannot read
-- or cannot read again: raw records, tables, idx files.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local interface = require "spec.support.interface"
local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"
local ty = require "tycho"

local C = native.C

-- The data of all batches of an epoch, one after the other, and the labels.
local function epoch(it)
  local data, labels, pads = {}, {}, {}
  for batch in it do
    for _, v in ipairs(batch.data[1]:reshape{ -1 }:totable()) do
      data[#data + 1] = v
    end
    for _, v in ipairs(batch.label[1]:reshape{ -1 }:totable()) do
      labels[#labels + 1] = v
    end
    pads[#pads + 1] = batch.pad
  end
  it:reset()
  return data, labels, pads
end

local function with_file(name, bytes, f)
  folder.with(function(path)
    folder.write(path .. "/" .. name, bytes)
    f(path .. "/" .. name, path)
  end)
end

local function message(f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  return tostring(e)
end

local function refused(want, f, ...)
  local text = message(f, ...)
  assert.is_truthy(text:find(want, 1, true), text)
end

describe("RawIter", function()
  it("gives records with the labels before them, each epoch", function()
    with_file("x", "\1\2\10\20\3\4\30\40\5\6\50\255", function(path)
      local it = ty.io.RawIter{ path = path, shape = { 2 }, label_bytes = 2, batch_size = 2 }
      for _ = 1, 2 do
        local data, labels, pads = epoch(it)
        assert.same({ 10, 20, 30, 40, 50, 255, 10, 20 }, data)
        assert.same({ 1, 2, 3, 4, 5, 6, 1, 2 }, labels)
        assert.same({ 0, 1 }, pads)
        it = ty.io.RawIter{ path = path, shape = { 2 }, label_bytes = 2, batch_size = 2 }
      end
      it = ty.io.RawIter{ path = path, shape = { 4 }, batch_size = 2, round_batch = false }
      for _ = 1, 3 do
        local data, labels, pads = epoch(it)
        assert.same({ 1, 2, 10, 20, 3, 4, 30, 40, 5, 6, 50, 255, 0, 0, 0, 0 }, data)
        assert.same({ 0, 0, 0, 0 }, labels)
        assert.same({ 0, 1 }, pads)
      end
    end)
  end)

  it("reads numbers of any type", function()
    with_file("x", "\0\0\128\63\0\0\0\192", function(path)
      local function read(dtype)
        return (epoch(ty.io.RawIter{ path = path, shape = { 2 }, dtype = dtype,
          batch_size = 1 }))
      end
      assert.same({ 1, -2 }, read("float32"))
      assert.same({ 1065353216, -1073741824 }, read("int32"))
      assert.same({ 0, 0, -128, 63, 0, 0, 0, -64 }, read("int8"))
    end)
  end)

  it("names a file that ends within a record, in its labels too", function()
    with_file("x", "\1\2\10\20\3", function(path)
      local function open(options)
        options.path, options.shape, options.batch_size = path, { 2 }, 1
        return function() epoch(ty.io.RawIter(options)) end
      end
      refused("ends within a record: 1 of 4 bytes", open{ label_bytes = 2 })
      refused("ends within a record: 1 of 2 bytes", open{})
    end)
  end)
end)

describe("a table", function()
  it("of numbers that float32 cannot hold is read as float64", function()
    with_file("x", "16777217,0.1\n", function(path)
      local options = { data_csv = path, data_shape = { 2 }, batch_size = 1, dtype = "float64" }
      assert.same({ 16777217, 0.1 }, (epoch(ty.io.CSVIter(options))))
      options.dtype = nil
      assert.same({ 16777216, 0.1 - (0.1 - tonumber(ffi.new("float", 0.1))) },
        (epoch(ty.io.CSVIter(options))))
    end)
  end)

  it("in parts has the labels of its part, each epoch", function()
    folder.with(function(path)
      folder.write(path .. "/x", "0 0:1\n0 0:2\n\n0 0:3\n0 0:4\n0 0:5\n")
      folder.write(path .. "/y", "0 0:10\n0 0:20\n0 0:30\n \n0 0:40\n0 0:50\n")
      for part, want in ipairs{ { 1, 2 }, { 3, 4, 5 } } do
        local it = ty.io.LibSVMIter{ data_libsvm = path .. "/x", label_libsvm = path .. "/y",
          data_shape = { 1 }, label_shape = { 1 }, batch_size = 1, num_parts = 2,
          part_index = part - 1 }
        for _ = 1, 2 do
          local data, labels = epoch(it)
          assert.same(want, data)
          for i, v in ipairs(want) do
            assert.equal(10 * v, labels[i])
          end
        end
      end
    end)
  end)

  it("says where a line is wrong", function()
    for text, want in pairs{ ["1,2\n3\n"] = "line 2: 1 numbers, the shape needs 2",
      ["1,2\n3,\n"] = "line 2: 1 numbers, the shape needs 2",
      ["1,2,3\n"] = "line 1: more than the 2 numbers that the shape needs",
      ["1;2\n"] = "line 1: a comma is expected", ["x,2\n"] = "line 1: a number is expected" } do
      with_file("x", text, function(path)
        refused(want, function()
          epoch(ty.io.CSVIter{ data_csv = path, data_shape = { 2 }, batch_size = 1 })
        end)
      end)
    end
    for text, want in pairs{ ["1 0:1\nx 0:1\n"] = "line 2: a label is expected",
      ["1 0=1\n"] = "line 1: index:value is expected", ["1 -1:1\n"] = "line 1: a negative index",
      ["1 2:1\n"] = "line 1: an index outside the shape",
      ["1 1:x\n"] = "line 1: a number is expected after ':'" } do
      with_file("x", text, function(path)
        refused(want, function()
          epoch(ty.io.LibSVMIter{ data_libsvm = path, data_shape = { 2 }, batch_size = 1 })
        end)
      end)
    end
  end)

  it("whose labels are damaged is an error, also in parts", function()
    folder.with(function(path)
      folder.write(path .. "/x", "0 0:1\n0 0:2\n0 0:3\n0 0:4\n")
      shell.run(("gzip < %s/x > %s/y && truncate -s -9 %s/y"):format(path, path, path))
      for part = 0, 1 do
        refused("unexpected end of file", function()
          epoch(ty.io.LibSVMIter{ data_libsvm = path .. "/x", label_libsvm = path .. "/y",
            data_shape = { 1 }, batch_size = 2, num_parts = 2, part_index = part })
        end)
      end
      refused("unexpected end of file", function()
        epoch(ty.io.LibSVMIter{ data_libsvm = path .. "/y", data_shape = { 1 }, batch_size = 2,
          num_parts = 2 })
      end)
    end)
  end)

  it("that cannot be read twice is an error where a second epoch begins", function()
    folder.with(function(path)
      local options = { data_csv = path .. "/pipe", data_shape = { 1 }, batch_size = 3 }
      os.execute(("mkfifo %s/pipe; printf '1\\n2\\n3\\n' > %s/pipe &"):format(path, path))
      local it = ty.io.CSVIter(options)
      it:next()
      refused("pipe' from its beginning: Illegal seek", it.reset, it)
      it:free()
      options.data_csv = path .. "/other"
      os.execute(("mkfifo %s/other; printf '1\\n2\\n' > %s/other &"):format(path, path))
      refused("other' from its beginning: Illegal seek", ty.io.CSVIter, options)
    end)
  end)
end)

describe("an iterator", function()
  local int = ffi.new("int[1]")

  local function open(kind, options)
    return ffi.gc(assert(interface.iterator(kind, options)), C.ty_iter_free)
  end

  local function row(it)
    local out, value = ffi.new("ty_tensor *[1]"), ffi.new("float[1]")
    native.check(C.ty_iter_next(it, -1, int), "next")
    if int[0] == 0 then
      return "the end"
    end
    native.check(C.ty_iter_data(it, 0, out), "data")
    native.check(C.ty_tensor_read(out[0], value, 4), "read")
    return value[0]
  end

  it("begins behind as many samples as it is told, more than there are too", function()
    with_file("x", "1\n2\n3\n", function(path)
      for skip, want in pairs{ [0] = 1, 2, 3, "the end", 2, 3, "the end", 2 } do
        assert.equal(want, row(open("csv", { data_csv = path, data_shape = "(1,)",
          skip_samples = tostring(skip) })))
      end
    end)
    for text, want in pairs{ [""] = "the files of the iterator are empty",
      ["1\nx\n"] = "line 2: a number is expected" } do
      with_file("x", text, function(path)
        refused(want, open, "csv", { data_csv = path, data_shape = "(1,)", skip_samples = "2" })
      end)
    end
  end)

  it("that has no batch yet says so to who does not wait", function()
    with_file("x", ("1,"):rep(400000) .. "1\n", function(path)
      local it = open("csv", { data_csv = path, data_shape = "(400001,)" })
      native.check(C.ty_iter_next(it, 0, int), "next")
      assert.equal(-1, int[0])
      native.check(C.ty_iter_next(it, 20000, int), "next")
      assert.equal(1, int[0])
      native.check(C.ty_iter_next(it, 20000, int), "next")
      assert.equal(0, int[0])
    end)
  end)

  it("drops an incomplete batch of idx files, and reads parts of them", function()
    folder.with(function(path)
      local images, labels = { "\0\0\8\3\0\0\0\5\0\0\0\1\0\0\0\2" }, { "\0\0\8\1\0\0\0\5" }
      for i = 1, 5 do
        images[i + 1], labels[i + 1] = string.char(i, 128 + i), string.char(10 * i)
      end
      folder.write(path .. "/x", table.concat(images))
      folder.write(path .. "/y", table.concat(labels))
      local options = { image = path .. "/x", label = path .. "/y", shuffle = false, flat = true,
        batch_size = 2 }
      assert.same({ 10, 20, 30, 40 }, select(2, epoch(ty.io.MNISTIter(options))))
      options.num_parts, options.part_index, options.batch_size = 2, 1, 1
      local data, seen = epoch(ty.io.MNISTIter(options))
      assert.same({ 30, 40, 50 }, seen)
      assert.same({ 3 / 256, 131 / 256, 4 / 256, 132 / 256, 5 / 256, 133 / 256 }, data)
      folder.write(path .. "/x", images[1] .. "\1\2\3")
      refused("is truncated: 1 bytes are missing", ty.io.MNISTIter, options)
      options.part_index = 0
      options.num_parts = 1
      refused("is truncated: 7 bytes are missing", ty.io.MNISTIter, options)
    end)
  end)
end)
