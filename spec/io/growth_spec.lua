-- What readers take grows with the file: four times the bytes in at most ten times the processor's
-- time (the least of three tries), and 64 MiB and four times the file's size of memory. Memory is
-- address space, which is limited to that while the file is read: what a header claims counts.

local bit = require "bit"
local ffi = require "ffi"
local device = require "spec.support.device"
local folder = require "spec.support.folder"
local ty = require "tycho"

local TRIES, MOST = 3, 10
local BASE, TIMES = 64 * 2 ^ 20, 4

ffi.cdef[[
struct growth_rlimit { unsigned long now, most; };
int getrlimit(int what, struct growth_rlimit *limit);
int setrlimit(int what, const struct growth_rlimit *limit);
int malloc_trim(size_t pad);
]]

local function rows(n, line)
  local text = {}
  for i = 1, n do
    text[i] = line:format(i % 10, i % 7, i)
  end
  return table.concat(text)
end

local function read_all(it)
  for _ in it do end                                     -- luacheck: ignore 542
  it:free()
end

local function network(n)
  local x = ty.sym.Variable("data")
  for i = 1, n do
    x = ty.sym.relu{ x, name = "r" .. i }
  end
  return x:tojson()
end

local function many(n)
  local dict = {}
  for i = 1, n do
    dict["x" .. i] = ty.nd.ones{ 3 }
  end
  return dict
end

local function arrays(ending)
  return { name = ending, size = 2000,
    write = function(path, n) ty.nd.save(path, many(n)) end,
    read = function(path) ty.nd.load(path) end }
end

-- Big-endian, as idx files have it.
local function word(n)
  return string.char(bit.rshift(n, 24), bit.band(bit.rshift(n, 16), 255),
    bit.band(bit.rshift(n, 8), 255), bit.band(n, 255))
end

local function noise(height, width)
  return ty.nd.random.uniform{ low = 0, high = 255, shape = { height, width, 3 } }:astype("uint8")
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

-- `size`: of the smaller file, in what it consists of. `large`: bytes, where a file takes long to
-- make.
local FORMATS = {
  arrays "params", arrays "npz", arrays "safetensors",
  { name = "npy", size = 500000,
    write = function(path, n) ty.nd.save(path, ty.nd.ones{ n }) end,
    read = function(path) ty.nd.load(path) end },
  { name = "json", size = 1500,
    write = function(path, n) folder.write(path, network(n)) end,
    read = function(path) ty.sym.load(path) end },
  { name = "csv", size = 20000,
    write = function(path, n) folder.write(path, rows(n, "%d,%d,%d\n")) end,
    read = function(path)
      read_all(ty.io.CSVIter{ data_csv = path, data_shape = { 3 }, batch_size = 100 })
    end },
  { name = "libsvm", size = 20000,
    write = function(path, n) folder.write(path, rows(n, "%d %d:1 9:%d\n")) end,
    read = function(path)
      read_all(ty.io.LibSVMIter{ data_libsvm = path, data_shape = { 10 }, batch_size = 100 })
    end },
  { name = "idx", size = 10000,
    write = function(path, n)
      folder.write(path, "\0\0\8\3" .. word(n) .. word(4) .. word(4) .. ("abcdefghijklmnop"):rep(n))
      folder.write(path .. ".labels", "\0\0\8\1" .. word(n) .. ("\1"):rep(n))
    end,
    read = function(path)
      read_all(ty.io.MNISTIter{ image = path, label = path .. ".labels", batch_size = 100,
        input_shape = { 1, 4, 4 }, silent = true })
    end },
  { name = "rec", size = 20000,
    write = function(path, n)
      write_records(path, n, function(i) return "record " .. i end)
    end,
    read = function(path)
      local r = ty.recordio.MXRecordIO(path, "r")
      while r:read() do end                              -- luacheck: ignore 542
      r:close()
    end },
  { name = "images", size = 50,
    write = function(path, n)
      write_records(path, n, function(i)
        return ty.recordio.pack_img(ty.recordio.IRHeader{ 0, 1, i, 0 }, noise(16, 16),
          { img_fmt = i % 2 == 0 and ".png" or ".jpg", quality = i % 2 == 0 and 3 or 90 })
      end)
    end,
    read = function(path)
      read_all(ty.io.ImageRecordIter{ path_imgrec = path, data_shape = { 3, 16, 16 },
        batch_size = 10, preprocess_threads = 1 })
    end },
  { name = "boxes", size = 50,
    write = function(path, n)
      write_records(path, n, function(i)
        return ty.recordio.pack_img(
          ty.recordio.IRHeader{ 0, { 2, 5, i % 3, 0.1, 0.1, 0.6, 0.7 }, i, 0 }, noise(16, 16),
          { img_fmt = ".png", quality = 3 })
      end)
    end,
    read = function(path)
      read_all(ty.io.ImageDetRecordIter{ path_imgrec = path, data_shape = { 3, 16, 16 },
        batch_size = 10, preprocess_threads = 1 })
    end },
  { name = "png", size = 10,
    write = function(path, n) ty.image.imwrite(path, noise(n, 1000)) end,
    read = function(path) ty.image.imread(path) end },
  { name = "jpg", size = 10,
    write = function(path, n) ty.image.imwrite(path, noise(n, 1000)) end,
    read = function(path) ty.image.imread(path) end },
  { name = "states", size = 500, large = 2 ^ 20,
    write = function(path, n) folder.write(path, updater_with(n):get_states()) end,
    read = function(path) updater_with(0):set_states(folder.read(path)) end },
}

local function seconds(format, path)
  local least = math.huge
  for _ = 1, TRIES do
    collectgarbage()
    local from = os.clock()
    format.read(path)
    least = math.min(least, os.clock() - from)
  end
  return least
end

local function used()
  local file = assert(io.open("/proc/self/statm"))
  local pages = file:read("*n")
  file:close()
  return pages * 4096
end

-- f() while the process may not grow by more than so many bytes.
local function within(bytes, f)
  local ADDRESS_SPACE = 9
  local limit = ffi.new("struct growth_rlimit")
  collectgarbage()
  ty.nd.waitall()
  ffi.C.malloc_trim(0)
  assert(ffi.C.getrlimit(ADDRESS_SPACE, limit) == 0)
  local before = limit.now
  limit.now = used() + bytes
  assert(ffi.C.setrlimit(ADDRESS_SPACE, limit) == 0)
  local ok, e = pcall(f)
  limit.now = before
  assert(ffi.C.setrlimit(ADDRESS_SPACE, limit) == 0)
  return ok, e
end

-- `least`: of bytes that the file has.
local function holds(format, least)
  folder.with(function(path)
    local small, file = path .. "/small." .. format.name, path .. "/a." .. format.name
    format.write(small, format.size)
    format.read(small)                                   -- threads and modules are there then
    format.write(file, format.size * math.ceil(least / #folder.read(small)))
    local bytes = BASE + TIMES * #folder.read(file)
    local ok, e = within(bytes, function() format.read(file) end)
    assert.is_true(ok, tostring(e))
  end)
end

-- Heads that promise more than follows.
local CLAIMS = {
  { "npy", "\147NUMPY\1\0\70\0{'descr': '<f4', 'fortran_order': False, 'shape': (4000000000,), }"
    .. (" "):rep(5) .. "\n" },
  { "safetensors", "\70\0\0\0\0\0\0\0"
    .. '{"x":{"dtype":"F32","shape":[4000000000],"data_offsets":[0,16000000000]}}' },
  { "boxes", "\10\35\215\206" .. "\24\0\0\0" .. "\0\0\16\0" .. ("\0"):rep(20) },
  { "idx", "\0\0\8\3" .. word(2 ^ 24) .. word(28) .. word(28) },
  { "png", "\137PNG\r\n\26\n" .. word(13) .. "IHDR" .. word(30000) .. word(30000) .. "\8\2\0\0\0" },
}

local function format_called(name)
  for _, format in ipairs(FORMATS) do
    if format.name == name then return format end
  end
end

-- address space is limited here, of which a GPU reserves much
describe("the memory of reading", function()
  setup(device.leave)
  teardown(device.come_back)

  if (os.getenv("SANITIZER") or "") ~= "" then
    it("stays below a limit", function() pending("no limit of address space under a sanitizer") end)
    return
  end

  it("would be noticed", function()
    local ok, e = within(BASE, function() return ty.nd.ones{ 2 ^ 26 } end)
    assert.is_false(ok)
    assert.equal("memory", e.code)
  end)

  for _, claim in ipairs(CLAIMS) do
    it("is not what a head claims: " .. claim[1], function()
      folder.with(function(path)
        local file = path .. "/a." .. claim[1]
        folder.write(file, claim[2])
        folder.write(file .. ".labels", "\0\0\8\1" .. word(2 ^ 24))
        local ok, e = within(BASE, function() format_called(claim[1]).read(file) end)
        assert.is_false(ok)
        assert.equal("format", e.code, tostring(e))
      end)
    end)
  end

  for _, format in ipairs(FORMATS) do
    it("is 64 MiB and four times the file at most: " .. format.name, function()
      holds(format, 2 ^ 17)
    end)
    it("is that of a large file too: " .. format.name .. " #slow", function()
      holds(format, format.large or 2 ^ 23)
    end)
  end
end)

describe("the time of reading", function()
  for _, format in ipairs(FORMATS) do
    it("grows with the file: " .. format.name .. " #slow", function()
      folder.with(function(path)
        local small, large = path .. "/small." .. format.name, path .. "/large." .. format.name
        format.write(small, format.size)
        format.write(large, 4 * format.size)
        local one, four = seconds(format, small), seconds(format, large)
        assert.is_true(four < MOST * math.max(one, 0.002),
          ("%s: %.4f s and, for four times as much, %.4f s"):format(format.name, one, four))
        if os.getenv("GROWTH") then print(format.name, one, four) end
      end)
    end)
  end
end)
