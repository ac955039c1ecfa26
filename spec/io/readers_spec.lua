-- What the readers of files give, epoch by epoch, and what they say of files that they cannot read
-- or cannot read again: raw records, tables, idx files.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local interface = require "spec.support.interface"
local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"
local ty = require "tycho"

local C = native.C

-- Returns the data of all batches of an epoch, one after the other, and the labels.
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

  it("has lines that end in any way, and perhaps a byte order mark", function()
    local rows = { "1,2", "3,4", "5,6", "7,8" }
    local mark = "\239\187\191"
    for _, bytes in ipairs{ table.concat(rows, "\n"), table.concat(rows, "\r\n") .. "\r\n",
        table.concat(rows, "\r"), table.concat(rows, "\r") .. "\r", table.concat(rows, "\n\r"),
        " \t\r\r\r\n\n" .. table.concat(rows, "\r\n \r\n"), "1,2\n3,4\r5,6\r\n7,8",
        table.concat(rows, ",\n") .. ",", table.concat(rows, ", \r\n") } do
      for _, before in ipairs{ "", mark } do
        with_file("x", before .. bytes, function(path)
          local it = ty.io.CSVIter{ data_csv = path, data_shape = { 2 }, batch_size = 2 }
          for _ = 1, 2 do
            assert.same({ 1, 2, 3, 4, 5, 6, 7, 8 }, (epoch(it)))
          end
        end)
      end
    end
    for _, bytes in ipairs{ "", mark, "\r", mark .. "\r\n" } do
      with_file("x", bytes, function(path)
        refused("the files do not hold one batch", ty.io.CSVIter,
          { data_csv = path, data_shape = { 1 }, batch_size = 1 })
      end)
    end
  end)

  it("has ends of lines on both sides of what is read at once", function()
    for _, ending in ipairs{ "\r", "\r\n", "\n" } do
      local n = 70000                                     -- some 400 KiB
      local lines = {}
      for i = 1, n do
        lines[i] = ("%05d"):format(i)
      end
      with_file("x", table.concat(lines, ending), function(path)
        local it = ty.io.CSVIter{ data_csv = path, data_shape = { 1 }, batch_size = 1000 }
        local data = epoch(it)
        assert.equal(n, #data)
        for i = 1, n do
          assert.equal(i, data[i])
        end
      end)
    end
  end)

  it("of CSV begins after a header", function()
    local function read(bytes, header, labels)
      local data, label
      with_file("x", bytes, function(path)
        folder.write(path .. ".label", labels or "")
        local it = ty.io.CSVIter{ data_csv = path, data_shape = { 2 }, batch_size = 1,
          header = header, label_csv = labels and path .. ".label" or nil }
        data, label = epoch(it)
        assert.equal(#data, #epoch(it))
      end)
      return data, label
    end
    for _, head in ipairs{ "width,height\n", "\239\187\191\"a b\",c\r\n", "\r\nx,\r", "info,nano\n",
        "a;b\n" } do
      assert.same({ 1, 2, 3, 4 }, (read(head .. "1,2\n3,4\n")))
      assert.same({ 1, 2, 3, 4 }, (read(head .. "1,2\n3,4\n", true)))
      refused(" is expected", read, head .. "1,2\n", false)
    end
    assert.same({ 3, 4 }, (read("1999,2000\n3,4\n", true)))
    assert.same({ 1999, 2000, 3, 4 }, (read("1999,2000\n3,4\n")))
    local values = read("inf,-inf\n3,4\n")
    assert.equal(math.huge, values[1])
    assert.equal(4, #values)
    assert.equal(4, #(read("nan, nan\n3,4\n")))
    local data, labels = read("a,b\n1,2\n3,4\n", nil, "label\n7\n8\n")
    assert.same({ 1, 2, 3, 4 }, data)
    assert.same({ 7, 8 }, labels)
    data, labels = read("a,b\n1,2\n3,4\n", nil, "7\n8\n")
    assert.same({ 1, 2, 3, 4 }, data)
    assert.same({ 7, 8 }, labels)
  end)

  it("of LibSVM passes over comments, weights and queries", function()
    local text = "\239\187\191# a file\r\n1 qid:3 0:1 2:2 # first\r\n \t# alone\r-1:0.5 1:3\r"
      .. "2 qid:4\t\n3:2 qid:5 0:7#x"
    with_file("x", text, function(path)
      local it = ty.io.LibSVMIter{ data_libsvm = path, data_shape = { 3 }, batch_size = 1 }
      for _ = 1, 2 do
        local data, labels = epoch(it)
        assert.same({ 1, 0, 2, 0, 3, 0, 0, 0, 0, 7, 0, 0 }, data)
        assert.same({ 1, -1, 2, 3 }, labels)
      end
      it = ty.io.LibSVMIter{ data_libsvm = path, data_shape = { 3 }, batch_size = 1, num_parts = 2,
        part_index = 1, label_libsvm = path, label_shape = { 3 } }
      local data, labels = epoch(it)
      assert.same({ 0, 0, 0, 7, 0, 0 }, data)
      assert.same({ 0, 0, 0, 7, 0, 0 }, labels)
    end)
  end)

  it("says where a line is wrong", function()
    for text, want in pairs{ ["1,2\n3\n"] = "line 2: 1 numbers, the shape needs 2",
      ["1,2\n3,\n"] = "line 2: 1 numbers, the shape needs 2",
      ["1,2,3\n"] = "line 1: more than the 2 numbers that the shape needs",
      ["1,2,,\n"] = "line 1: more than the 2 numbers that the shape needs",
      ["1,,2\n"] = "line 1: a number is expected", ["a,b\nc,d\n"] = "line 2: a number is expected",
      ["\r\r\n\n1,2\r3\r"] = "line 5: 1 numbers, the shape needs 2",
      ["\255\254\49\0"] = "is a text in UTF-16; save it as UTF-8",
      ["\254\255\0\49"] = "is a text in UTF-16; save it as UTF-8",
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
      ["1 1:x\n"] = "line 1: a number is expected after ':'",
      ["1:x 1:1\n"] = "line 1: a weight is expected after ':'",
      ["1 0:1 qid:2\n"] = "line 1: index:value is expected",
      ["# 1 0:1\nqid:2 0:1\n"] = "line 2: a label is expected" } do
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

  it("begins after as many samples as the option says, more than there are too", function()
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
