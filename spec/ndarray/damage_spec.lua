-- Damaged files in Tycho's formats: one bit is flipped, or the end is missing. Arrays that are read
-- nevertheless have the shapes and types that were written.

local array_files = require "tycho.ndarray.files"
local device = require "spec.support.device"
local ty = require "tycho"
local folder = require "spec.support.folder"

local bit = require "bit"

-- Iterates over every file that differs from these bytes in one bit.
local function flipped(bytes)
  local at, shift = 1, -1
  return function()
    shift = shift + 1
    if shift == 8 then at, shift = at + 1, 0 end
    if at > #bytes then return nil end
    local byte = bit.bxor(bytes:byte(at), bit.lshift(1, shift))
    return bytes:sub(1, at - 1) .. string.char(byte) .. bytes:sub(at + 1)
  end
end

-- Returns the bytes of a file that f(path) writes.
local function written(f)
  local bytes
  folder.with(function(path)
    f(path .. "/file")
    bytes = folder.read(path .. "/file")
  end)
  return bytes
end

local function network()
  local h = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 24, name = "fc1" }
  h = ty.sym.FullyConnected{ ty.sym.Activation{ h, act_type = "relu" }, num_hidden = 8,
    name = "fc2" }
  return ty.sym.SoftmaxOutput{ h, name = "softmax" }
end

local function checkpoint()
  local x = ty.nd.random.normal
  return written(function(path)
    array_files.save_checked(path, { ["arg:fc1_weight"] = x{ shape = { 24, 26 } },
      ["arg:fc1_bias"] = x{ shape = { 24 } }, ["arg:fc2_weight"] = x{ shape = { 8, 24 } },
      ["arg:fc2_bias"] = x{ shape = { 8 } } })
  end)
end

describe("a checkpoint of 4 KB", function()
  it("is refused whichever bit is another", function()
    local bytes = checkpoint()
    assert.is_true(#bytes > 3500 and #bytes < 4500, #bytes .. " bytes")
    assert.equal(4, select(2, pcall(function()
      local n = 0
      for _ in pairs(ty.nd.load_frombuffer(bytes)) do n = n + 1 end
      return n
    end)))
    for damaged in flipped(bytes) do
      local ok, e = pcall(ty.nd.load_frombuffer, damaged)
      assert.is_false(ok)
      assert.is_true(ty.is_error(e))
    end
  end)

  it("is refused wherever it ends", function()
    local bytes = checkpoint()
    for n = 0, #bytes - 1 do
      assert.raises("format", ty.nd.load_frombuffer, bytes:sub(1, n))
    end
  end)

  it("says that it is damaged, and where", function()
    local bytes = checkpoint()
    folder.with(function(path)
      path = path .. "/net-0001.params"
      folder.write(path, bytes:sub(1, -100) .. "\1" .. bytes:sub(-98))
      local e = assert.raises("format", ty.nd.load, path)
      assert.truthy(tostring(e):find("checksum", 1, true))
      assert.truthy(tostring(e):find(path, 1, true))
    end)
  end)

  it("without a checksum, as the reference writes it, is read", function()
    local bytes = checkpoint()
    local plain = bytes:sub(1, 8) .. ("\0"):rep(8) .. bytes:sub(17)
    assert.same({ 24, 26 }, ty.nd.load_frombuffer(plain)["arg:fc1_weight"].shape)
  end)

  it("has one where a Module saves it, and none where arrays are saved", function()
    folder.with(function(path)
      ty.model.save_checkpoint(path .. "/net", 1, network(), { w = ty.nd.ones{ 2 } }, {})
      ty.nd.save(path .. "/arrays", { w = ty.nd.ones{ 2 } })
      assert.not_equal(("\0"):rep(8), folder.read(path .. "/net-0001.params"):sub(9, 16))
      assert.equal(("\0"):rep(8), folder.read(path .. "/arrays"):sub(9, 16))
    end)
  end)

  it("has one where it goes through a link, none where it goes through a pipe", function()
    folder.with(function(path)
      os.execute(("mkfifo %s/pipe; cat %s/pipe > %s/copy &"):format(path, path, path))
      local arrays = { x = ty.nd.ones{ 2 } }
      array_files.save_checked(path .. "/pipe", arrays)
      array_files.save_checked(path .. "/plain", arrays)
      os.execute(("ln -s plain %s/link; while [ ! -s %s/copy ]; do :; done"):format(path, path))
      array_files.save_checked(path .. "/link", arrays)
      assert.equal(("\0"):rep(8), folder.read(path .. "/copy"):sub(9, 16))
      assert.not_equal(("\0"):rep(8), folder.read(path .. "/plain"):sub(9, 16))
      assert.same({ 2 }, ty.nd.load(path .. "/copy").x.shape)
    end)
  end)
end)

describe("the states of an optimizer", function()
  it("are refused whichever bit is another, and wherever they end", function()
    local updater = ty.optimizer.get_updater(ty.optimizer.create("adam"))
    updater(0, ty.nd.ones{ 2, 3 }, ty.nd.ones{ 2, 3 })
    local bytes = updater:get_states()
    for damaged in flipped(bytes) do
      assert.raises("format", updater.set_states, updater, damaged)
    end
    for n = 0, #bytes - 1 do
      assert.raises("format", updater.set_states, updater, bytes:sub(1, n))
    end
  end)
end)

describe("a graph's file", function()
  it("is a graph or an error object", function()
    -- without its version, which is reported wherever it is newer
    local bytes = network():tojson():gsub(',%s*"attrs": {"mxnet_version".-}', "")
    for damaged in flipped(bytes) do
      local ok, net = pcall(ty.sym.load_json, damaged)
      assert.is_true(ok and #net:list_outputs() > 0 or ty.is_error(net), tostring(net))
    end
  end)
end)

describe("a file of records", function()
  it("gives records no longer than it, or an error object", function()
    folder.with(function(path)
      path = path .. "/file.rec"
      local file = ty.recordio.MXRecordIO{ uri = path, flag = "w" }
      file:write("hello")
      file:write("")
      file:write("\10\35\215\206 with the magic word \10\35\215\206")
      file:close()
      local bytes = folder.read(path)
      local function check(damaged)
        folder.write(path, damaged)
        local reader = ty.recordio.MXRecordIO{ uri = path, flag = "r" }
        local ok, e = pcall(function()
          local total, record = 0, reader:read()
          while record do
            total, record = total + #record, reader:read()
          end
          assert(total <= #bytes)
        end)
        reader:close()
        assert.is_true(ok or ty.is_error(e), tostring(e))
      end
      for damaged in flipped(bytes) do check(damaged) end
      for n = 0, #bytes - 1 do check(bytes:sub(1, n)) end
    end)
  end)
end)

-- LuaJIT keeps its values in the bits of NaNs. What a file brings must never become one.
describe("a NaN with chosen bits", function()
  local ffi = require "ffi"
  setup(device.leave)                                    -- it is written through a pointer
  teardown(device.come_back)
  local TEXT_AT = "\64\65\65\65\0\128\253\255"              -- a text at 0x41414140
  local NOTHING = "\255\255\255\255"                        -- becomes nil as a float64

  local function nan(x) return type(x) == "number" and x ~= x end

  local function doubles()
    local head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }"
    head = head .. (" "):rep(117 - #head) .. "\n"
    return ty.nd.load_frombuffer("\147NUMPY\1\0" .. string.char(#head, 0) .. head .. TEXT_AT
      .. "\0\0\0\0\0\0\240\63")[1]
  end

  local function floats()
    local x = ty.nd.ones(2)
    ffi.copy(x:data(), NOTHING, 4)
    return x
  end

  it("is a number in tables, elements and texts", function()
    for _, x in ipairs{ doubles(), floats() } do
      local t = x:totable()
      assert.is_true(nan(t[1]) and t[2] == 1)
      assert.is_true(nan(x:slice{ begin = 0, end_ = 1 }:asscalar()))
      assert.is_truthy(tostring(x):find("nan", 1, true))
    end
  end)

  it("keeps its bits in arrays and files", function()
    assert.equal(TEXT_AT, doubles():tostring_raw():sub(1, 8))
  end)

  it("is a number in metrics", function()
    for _, x in ipairs{ doubles(), floats() } do
      for _, name in ipairs{ "mse", "mae", "loss" } do
        local metric = ty.metric.create(name)
        metric:update({ x }, { x })
        assert.is_true(nan(select(2, metric:get())), name)
      end
      assert.equal(TEXT_AT, doubles():tostring_raw():sub(1, 8))
    end
  end)

  it("is a number in labels of records", function()
    local one = ty.recordio.pack(ty.recordio.IRHeader{ 0, 1, 0, 0 }, "x")
    assert.is_true(nan(ty.recordio.unpack(one:sub(1, 4) .. NOTHING .. one:sub(9)).label))
    local two = ty.recordio.pack(ty.recordio.IRHeader{ 0, { 1, 2 }, 0, 0 }, "x")
    local label = ty.recordio.unpack(two:sub(1, 24) .. NOTHING .. two:sub(29)).label
    assert.is_true(nan(label[1]) and label[2] == 2)
  end)

  it("is a number in states", function()
    local serialize = require "tycho.ndarray.serialize"
    local bytes = serialize.encode{ 1.5 }
    local at = assert(bytes:find("n\0\0\0\0\0\0\248\63", 1, true))
    local body = bytes:sub(25, at) .. TEXT_AT .. bytes:sub(at + 9)
    local a, b = 1, 0
    for i = 1, #body do
      a = (a + body:byte(i)) % 65521
      b = (b + a) % 65521
    end
    local sum = ffi.new("uint32_t[1]", b * 65536 + a)
    local read = serialize.decode(bytes:sub(1, 12) .. ffi.string(sum, 4) .. bytes:sub(17, 24)
      .. body, "spec")
    assert.is_true(nan(read[1]))
  end)
end)
