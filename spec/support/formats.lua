-- A file of each format that the library reads: { name =, size =, write = function(path, n), read =
-- function(path) }. `n` is the number of units in the file, `size` the number for a file of some
-- hundred kilobytes, `small` that for some hundred bytes. `large`: bytes of a large file, if making
-- one takes long. `read` returns the shapes of the contents as text. Further files have the same
-- path with an ending.

local bit = require "bit"
local folder = require "spec.support.folder"
local gguf = require "spec.support.gguf"
local pytorch = require "spec.support.pytorch"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local function rows(n, line)
  local text = {}
  for i = 1, n do
    text[i] = line:format(i % 10, i % 7, i)
  end
  return table.concat(text)
end

local function read_all(it)
  local text
  for batch in it do
    text = table.concat(batch.data[1].shape, "x")
  end
  it:free()
  return text
end

local function images_by(iterator)
  return function(path)
    return read_all(ty.io[iterator]{ path_imgrec = path, data_shape = { 3, 16, 16 },
      batch_size = 10, preprocess_threads = 1 })
  end
end

local function list_shapes(arrays)
  local texts = {}
  for _, x in pairs(arrays) do
    texts[#texts + 1] = x == ty.null and "null" or table.concat(x.shape, "x")
  end
  table.sort(texts)
  return table.concat(texts, " ")
end

-- Returns the text of a chain in the form in which symbols are written (except for line breaks in
-- long lists).
local function network(n)
  local node = '    {\n      "op": "%s", \n      "name": "%s", \n      "inputs": [%s]\n    }'
  local nodes, starts = { node:format("null", "data", "") }, { 0, 1 }
  for i = 1, n do
    nodes[i + 1] = node:format("relu", "r" .. i, ("[%d, 0, 0]"):format(i - 1))
    starts[i + 2] = i + 1
  end
  return ('{\n  "nodes": [\n%s\n  ], \n  "arg_nodes": [0], \n  "node_row_ptr": [%s], \n'
    .. '  "heads": [[%d, 0, 0]], \n  "attrs": {"mxnet_version": ["int", 10901]}\n}')
    :format(table.concat(nodes, ", \n"), table.concat(starts, ", "), n)
end

local function many(n)
  local dict = {}
  for i = 1, n do
    dict["x" .. i] = ty.nd.ones{ 3 }
  end
  return dict
end

local function arrays(ending)
  return { name = ending, size = 2000, small = 2,
    write = function(path, n) ty.nd.save(path, many(n)) end,
    read = function(path) return list_shapes(ty.nd.load(path)) end }
end

-- Returns n PyTorch tensors of 3 floats; in an archive each has a storage, in the older form all
-- share one.
local function torch_entries(n)
  local list = {}
  for i = 1, n do
    list[i] = { "x" .. i, pytorch.tensor{ class = "FloatStorage", n = 3, size = { 3 },
      stride = { 1 } } }
  end
  return list
end

local ONES = ("\0\0\128\63"):rep(3)

local function torch_archive(n)
  local entries = torch_entries(n)
  entries.storages = { ["0"] = ONES }
  return pytorch.archive(entries)
end

local function torch_older(n)
  local entries = torch_entries(n)
  entries.storages = { { "0", 3, ONES } }
  return pytorch.older(entries)
end

local function gguf_file(n)
  local tensors = {}
  for i = 1, n do
    tensors[i] = { "x" .. i, { 3 }, 0, ONES }
  end
  return gguf.bytes{ { "general.name", gguf.TEXT, "x" }, tensors = tensors }
end

local function torch7_file(n)
  local list = {}
  for i = 1, n do
    list[i] = t7.object("nn.Mul", { weight = t7.tensor("Float", { 3 }, { 1, 2, 3 }) })
  end
  return list
end

-- Returns the shapes in a file of Torch7 as text. A damaged file may contain anything.
local function torch7_shapes(path)
  local texts, object = {}, ty.torch7.load(path)
  for i, module in ipairs(type(object) == "table" and object or {}) do
    local weight = type(module) == "table" and rawget(module, "weight")
    texts[i] = ty.torch7.typename(weight) == "torch.FloatTensor"
      and table.concat(weight.shape, "x") or "?"
  end
  return table.concat(texts, " ")
end

-- Returns a format of arrays with the usual reader, for the bytes that `make` returns.
local function read_as_arrays(name, make)
  return { name = name, size = 2000, small = 2,
    write = function(path, n) folder.write(path, make(n)) end,
    read = function(path) return list_shapes(ty.nd.load(path)) end }
end

-- Returns a number as 4 bytes, big-endian, as in idx files.
local function word(n)
  return string.char(bit.rshift(n, 24), bit.band(bit.rshift(n, 16), 255),
    bit.band(bit.rshift(n, 8), 255), bit.band(n, 255))
end

local function noise(height, width)
  return ty.nd.random.uniform{ low = 0, high = 255, shape = { height, width, 3 } }:astype("uint8")
end

local function picture(pixels)
  return pixels < 1000 and noise(1, pixels) or noise(pixels / 1000, 1000)
end

local function write_records(path, n, record)
  local w = ty.recordio.MXRecordIO(path, "w")
  for i = 1, n do
    w:write(record(i))
  end
  w:close()
end

local function updater_with(n)
  local updater = ty.optimizer.get_updater(ty.optimizer.create("sgd", { momentum = 0.9 }))
  for i = 1, n do
    updater(i, ty.nd.ones{ 3 }, ty.nd.ones{ 3 })
  end
  return updater
end

local formats = {
  arrays "params", arrays "npz", arrays "safetensors",
  { name = "npy", size = 500000, small = 6,
    write = function(path, n) ty.nd.save(path, ty.nd.ones{ n }) end,
    read = function(path) return list_shapes(ty.nd.load(path)) end },
  read_as_arrays("pth", torch_archive), read_as_arrays("pt", torch_older),
  read_as_arrays("gguf", gguf_file),
  { name = "t7", size = 2000, small = 1,
    write = function(path, n) folder.write(path, t7.bytes(torch7_file(n))) end,
    read = torch7_shapes },
  { name = "json", size = 1500, small = 2, large = 2 ^ 25,
    write = function(path, n) folder.write(path, network(n)) end,
    read = function(path) ty.sym.load(path) end },
  { name = "csv", size = 20000, small = 4,
    write = function(path, n) folder.write(path, rows(n, "%d,%d,%d\n")) end,
    read = function(path)
      return read_all(ty.io.CSVIter{ data_csv = path, data_shape = { 3 }, batch_size = 100 })
    end },
  { name = "libsvm", size = 20000, small = 4,
    write = function(path, n) folder.write(path, rows(n, "%d %d:1 9:%d\n")) end,
    read = function(path)
      return read_all(ty.io.LibSVMIter{ data_libsvm = path, data_shape = { 10 }, batch_size = 100 })
    end },
  { name = "idx", size = 10000, small = 5,
    write = function(path, n)
      folder.write(path, "\0\0\8\3" .. word(n) .. word(4) .. word(4) .. ("abcdefghijklmnop"):rep(n))
      folder.write(path .. ".labels", "\0\0\8\1" .. word(n) .. ("\1"):rep(n))
    end,
    read = function(path)
      return read_all(ty.io.MNISTIter{ image = path, label = path .. ".labels", batch_size = 5,
        input_shape = { 1, 4, 4 }, silent = true })
    end },
  { name = "rec", size = 20000, small = 3,
    write = function(path, n)
      write_records(path, n, function(i) return "record " .. i end)
    end,
    read = function(path)
      local r = ty.recordio.MXRecordIO(path, "r")
      while r:read() do end                              -- luacheck: ignore 542
      r:close()
    end },
  { name = "images", size = 50, small = 1,
    write = function(path, n)
      write_records(path, n, function(i)
        return ty.recordio.pack_img(ty.recordio.IRHeader{ 0, 1, i, 0 }, noise(16, 16),
          { img_fmt = i % 2 == 0 and ".png" or ".jpg", quality = i % 2 == 0 and 3 or 90 })
      end)
    end,
    read = images_by "ImageRecordIter" },
  { name = "boxes", size = 50, small = 1,
    write = function(path, n)
      write_records(path, n, function(i)
        return ty.recordio.pack_img(
          ty.recordio.IRHeader{ 0, { 2, 5, i % 3, 0.1, 0.1, 0.6, 0.7 }, i, 0 }, noise(16, 16),
          { img_fmt = ".png", quality = 3 })
      end)
    end,
    read = images_by "ImageDetRecordIter" },
  { name = "png", size = 10000, small = 42,
    write = function(path, n) ty.image.imwrite(path, picture(n)) end,
    read = function(path) return list_shapes{ ty.image.imread(path) } end },
  { name = "jpg", size = 10000, small = 42,
    write = function(path, n) ty.image.imwrite(path, picture(n)) end,
    read = function(path) return list_shapes{ ty.image.imread(path) } end },
  { name = "states", size = 500, small = 1, large = 2 ^ 20,
    write = function(path, n) folder.write(path, updater_with(n):get_states()) end,
    read = function(path) updater_with(0):set_states(folder.read(path)) end },
}

--- Returns the format with this name.
function formats.called(name)
  for _, format in ipairs(formats) do
    if format.name == name then return format end
  end
end

formats.word = word

return formats
