-- Arrays in files that are read when they are first needed (native/tensor/file_arrays.c).

local device = require "spec.support.device"
local ty = require "tycho"
local ffi = require "ffi"
local files = require "tycho.ndarray.file_arrays"
local folder = require "spec.support.folder"
local native = require "tycho.core.ffi"

local V = ty.sym.Variable

-- Returns the bytes of float32 numbers.
local function floats(list)
  return ffi.string(ffi.new("float[?]", #list, list), 4 * #list)
end

local function counted(n)
  local list = {}
  for i = 1, n do
    list[i] = i - 1
  end
  return floats(list)
end

local function with_file(bytes, f)
  folder.with(function(dir)
    folder.write(dir .. "/x.bin", bytes)
    f(dir .. "/x.bin")
  end)
end

local function live_bytes() return tonumber(native.C.ty_live("bytes")) end

describe("an array of a file", function()
  setup(device.leave)                                    -- files are read into memory of the CPU
  teardown(device.come_back)
  it("has the file's numbers, wherever they begin", function()
    with_file("abc" .. counted(12), function(path)
      local file = files.open(path, "spec")
      assert.equal(51, file.size)
      assert.equal("abc", file:read(0, 3))
      local x = file:array{ at = 3, shape = { 3, 4 }, dtype = "float32" }
      assert.same({ 3, 4 }, x.shape)
      assert.same({ { 0, 1, 2, 3 }, { 4, 5, 6, 7 }, { 8, 9, 10, 11 } }, x:totable())
    end)
  end)

  it("takes no memory before it is used", function()
    with_file(("\0"):rep(2 ^ 22), function(path)
      collectgarbage()                                   -- what goes meanwhile would count against
      collectgarbage()
      ty.waitall()
      local before = live_bytes()
      local x = files.open(path, "spec"):array{ at = 0, shape = { 2 ^ 20 }, dtype = "float32" }
      assert.equal(before, live_bytes())
      assert.equal(0, x[5]:asscalar())
      assert.is_true(live_bytes() - before >= 2 ^ 22)
    end)
  end)

  local uses = {
    ["an operator"] = function(x) return (x + 1):totable() end,
    ["a view"] = function(x) return (x["1:3"]:reshape{ 2 } * 1):totable() end,
    ["a copy"] = function(x) return x:copy():totable() end,
    ["a write of a part"] = function(x) x[1] = 9 return x:totable() end,
    ["a write from the host"] = function(x) x["2:"] = { 7, 8 } return x:totable() end,
    ["an executor"] = function(x)
      return (V("x") * 2):bind{ ctx = ty.cpu(), args = { x } }:forward()[1]:totable()
    end,
    ["another type"] = function(x) return x:astype("int32"):totable() end,
    ["a store"] = function(x)
      local store, out = ty.kv.create("local"), ty.nd.zeros(4)
      store:init(1, x)
      store:pull(1, { out = out })
      return out:totable()
    end,
    ["a pointer"] = function(x) return { x:data()[3] } end,
    ["out ="] = function(x) ty.nd.broadcast_add(x, x, { out = x }) return x:totable() end,
  }
  local results = {
    ["an operator"] = { 1, 2, 3, 4 }, ["a view"] = { 1, 2 }, ["a copy"] = { 0, 1, 2, 3 },
    ["a write of a part"] = { 0, 9, 2, 3 }, ["a write from the host"] = { 0, 1, 7, 8 },
    ["an executor"] = { 0, 2, 4, 6 }, ["another type"] = { 0, 1, 2, 3 },
    ["a store"] = { 0, 1, 2, 3 }, ["a pointer"] = { 3 }, ["out ="] = { 0, 2, 4, 6 },
  }
  for name, use in pairs(uses) do
    it("is read for " .. name, function()
      with_file(counted(4), function(path)
        local x = files.open(path, "spec"):array{ at = 0, shape = { 4 }, dtype = "float32" }
        assert.same(results[name], use(x))
      end)
    end)
  end

  it("may have any strides", function()
    with_file(counted(12), function(path)
      local file = files.open(path, "spec")
      local function rows(at, shape, strides)
        return file:array{ at = at, shape = shape, strides = strides, dtype = "float32" }:totable()
      end
      assert.same({ { 0, 4, 8 }, { 1, 5, 9 } }, rows(0, { 2, 3 }, { 1, 4 }))
      assert.same({ { 5, 5 }, { 9, 9 } }, rows(20, { 2, 2 }, { 4, 0 }))
      assert.same({ 11, 10, 9 }, rows(44, { 3 }, { -1 }))
      assert.same({ { 0, 1 } }, rows(0, { 1, 2 }, { 2 ^ 62, 1 }))
    end)
  end)

  it("may be big-endian, and of every type", function()
    with_file("\0\0\1\2\63\128\0\0", function(path)
      local file = files.open(path, "spec")
      local function one(at, dtype)
        return file:array{ at = at, shape = { 1 }, dtype = dtype, swapped = true }:asscalar()
      end
      assert.equal(258, one(0, "int32"))
      assert.equal(1, one(4, "float32"))
    end)
    with_file("\0\1\2\255", function(path)
      local x = files.open(path, "spec"):array{ at = 0, shape = { 4 }, dtype = "bool" }
      assert.same({ 0, 1, 1, 1 }, x:astype("int32"):totable())
    end)
  end)

  it("outlives what else is known of the file", function()
    with_file(counted(2), function(path)
      local x = files.open(path, "spec"):array{ at = 0, shape = { 2 }, dtype = "float32" }
      os.remove(path)
      collectgarbage()
      collectgarbage()
      assert.same({ 0, 1 }, x:totable())
      folder.write(path, "")
    end)
  end)

  it("that is after the file's end is refused", function()
    with_file(counted(4), function(path)
      local file = files.open(path, "spec")
      local function refused(t)
        t.dtype = "float32"
        local e = assert.raises("format", file.array, file, t)
        assert.equal(path, e.argument)
      end
      refused{ at = 4, shape = { 4 } }
      refused{ at = 17, shape = { 1 } }
      refused{ at = -4, shape = { 1 } }
      refused{ at = 0, shape = { 2, 2 }, strides = { 3, 1 } }
      refused{ at = 0, shape = { 2 }, strides = { -1 } }
      refused{ at = 0, shape = { 3 }, strides = { 2 ^ 62 } }
      assert.raises("format", file.read, file, 10, 7)
    end)
  end)

  it("of a file that has become shorter is an error of each use", function()
    with_file(counted(2 ^ 16), function(path)
      local x = files.open(path, "spec"):array{ at = 0, shape = { 2 ^ 16 }, dtype = "float32" }
      folder.write(path, counted(4))
      local ways = {
        function() return x:totable() end,
        function() return (x + 1):totable() end,
        function() return V("x"):bind{ ctx = ty.cpu(), args = { x } } end,
      }
      for _, use in ipairs(ways) do
        local e = assert.raises("io", use)
        assert.truthy(e.message:find("has become shorter", 1, true), e.message)
      end
      folder.write(path, counted(2 ^ 16))
      assert.equal(7, x[7]:asscalar())
    end)
  end)

  it("of what is no file is refused", function()
    assert.raises("io", files.open, "/no/such/file", "spec")
    assert.raises("io", files.open, "/tmp", "spec")
    assert.raises("io", files.open, "/dev/zero", "spec")
  end)
end)
