-- The time of readers grows with the file, not with its square: four times the bytes in at most
-- ten times the processor's time, the least of three tries.

local folder = require "spec.support.folder"
local ty = require "tycho"

local TRIES, MOST = 3, 10

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

-- `size`: of the smaller file, in what it consists of.
local FORMATS = {
  arrays "params", arrays "npz", arrays "safetensors",
  { name = "json", size = 1500, write = function(path, n) folder.write(path, network(n)) end,
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
  { name = "rec", size = 20000,
    write = function(path, n)
      local w = ty.recordio.MXRecordIO(path, "w")
      for i = 1, n do
        w:write("record " .. i)
      end
      w:close()
    end,
    read = function(path)
      local r = ty.recordio.MXRecordIO(path, "r")
      while r:read() do end                              -- luacheck: ignore 542
      r:close()
    end },
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
