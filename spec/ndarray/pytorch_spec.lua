-- Files of torch.save: arrays by name, and nothing that is in them is run.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local p = require "spec.support.pytorch"
local ty = require "tycho"

local function floats(...)
  local list = { ... }
  return ffi.string(ffi.new("float[?]", #list, list), 4 * #list)
end

local function load(bytes) return ty.nd.load_frombuffer(bytes) end

local function vector(t)
  t = t or {}
  return p.tensor{ class = t.class or "FloatStorage", key = t.key, n = t.n or 4, offset = t.offset,
    size = t.size or { 4 }, stride = t.stride or { 1 }, dtype = t.dtype }
end

local FOUR = { ["0"] = floats(1, 2, 3, 4) }

local function refused(code, text, bytes)
  local e = assert.raises(code, load, bytes)
  assert.truthy(e.message:find(text, 1, true), e.message)
end

describe("a file of torch.save", function()
  it("has arrays by name, in order", function()
    local dict, names = load(p.archive{ { "b", vector() }, { "a", vector{ size = { 2, 2 },
      stride = { 2, 1 } } }, storages = FOUR })
    assert.same({ "b", "a" }, names)
    assert.same({ 1, 2, 3, 4 }, dict.b:totable())
    assert.same({ { 1, 2 }, { 3, 4 } }, dict.a:totable())
  end)

  it("has views of any strides on one storage", function()
    local dict = load(p.archive{
      { "turned", vector{ size = { 2, 2 }, stride = { 1, 2 } } },
      { "part", vector{ size = { 2 }, stride = { 2 }, offset = 1 } },
      { "wide", vector{ size = { 2, 2 }, stride = { 0, 1 } } },
      { "one", vector{ size = {}, stride = {}, offset = 3 } },
      { "none", vector{ size = { 0, 2 }, stride = { 2, 1 } } },
      { "again", vector{ size = { 2 }, stride = { 2 }, offset = 1 } },
      storages = FOUR })
    assert.same({ { 1, 3 }, { 2, 4 } }, dict.turned:totable())
    assert.same({ 2, 4 }, dict.part:totable())
    assert.same({ { 1, 2 }, { 1, 2 } }, dict.wide:totable())
    assert.same({ 4 }, dict.one:totable())
    assert.is_nil(dict.none)
    assert.is_true(dict.again:same_memory(dict.part))
  end)

  it("has all types of elements", function()
    local rows = {
      { "DoubleStorage", "\0\0\0\0\0\0\240\63", "float64", 1 },
      { "HalfStorage", "\0\60", "float16", 1 }, { "BFloat16Storage", "\128\63", "bfloat16", 1 },
      { "LongStorage", ("\255"):rep(8), "int64", -1 }, { "IntStorage", "\5\0\0\0", "int32", 5 },
      { "ShortStorage", "\254\255", "int32", -2 },
      { "CharStorage", "\255", "int8", -1 }, { "ByteStorage", "\255", "uint8", 255 },
      { "BoolStorage", "\7", "bool", 1 },
    }
    for _, row in ipairs(rows) do
      local x = load(p.archive{ { "x", vector{ class = row[1], n = 1, size = { 1 } } },
        storages = { ["0"] = row[2] } }).x
      assert.equal(row[3], x.dtype)
      assert.equal(row[4], x:asscalar())
    end
    for dtype, row in pairs{ float8_e4m3fn = { "\56", "float32", 1 },
        uint16 = { "\255\255", "int32", 65535 }, bfloat16 = { "\128\63", "bfloat16", 1 } } do
      local x = load(p.archive{ { "x", vector{ class = "UntypedStorage", n = #row[1], size = { 1 },
        dtype = dtype } }, storages = { ["0"] = row[1] } }).x
      assert.equal(row[2], x.dtype)
      assert.equal(row[3], x:asscalar())
    end
  end)

  it("has containers in containers, whose names are joined", function()
    local inner = p.dict(p.text "weight", vector(), p.text "epoch", p.int(3))
    local dict, names = load(p.archive{ { "model", inner },
      { "list", p.list(p.text "x", vector(), "N") }, { "none", "N" }, storages = FOUR })
    assert.same({ "model.weight", "list.1" }, names)
    assert.same({ 1, 2, 3, 4 }, dict["list.1"]:totable())
    dict = load(p.archive{ body = vector(), storages = FOUR })
    assert.same({ 1, 2, 3, 4 }, dict["0"]:totable())
  end)

  it("may be a module: its parameters, buffers and modules", function()
    local function module(...) return p.global("m", "Net") .. ")\129" .. p.dict(...) .. "b" end
    local function ordered(...)
      return p.call(p.global("collections", "OrderedDict"), p.list(...))
    end
    local inner = module(p.text "_parameters", p.dict(p.text "weight",
      p.call(p.global("torch._utils", "_rebuild_parameter"), vector(), "\136", "N")),
      p.text "_buffers", "}", p.text "_modules", "}")
    local dict, names = load(p.archive{ body = module(p.text "_parameters", "}", p.text "_buffers",
      p.dict(p.text "mean", vector()), p.text "_modules",
      ordered(p.tuple(p.text "fc", inner)), p.text "training", "\136"), storages = FOUR })
    assert.same({ "mean", "fc.weight" }, names)
    assert.same({ 1, 2, 3, 4 }, dict["fc.weight"]:totable())
  end)

  it("may have arrays of other kinds, which are left out with a warning", function()
    local sink, texts = ty.log.sink, {}
    ty.log.sink = function(_, text) texts[#texts + 1] = text end
    local ok, dict = pcall(load, p.archive{ { "w", vector() },
      { "n", p.call(p.global("numpy.core.multiarray", "_reconstruct"), p.int(0)) },
      { "m", p.call(p.global("torch._utils", "_rebuild_meta_tensor_no_storage"), p.int(0)) },
      { "other", p.call(p.global("decimal", "Decimal"), p.text "1") }, storages = FOUR })
    ty.log.sink = sink
    assert.is_true(ok, dict)
    assert.same({ 1, 2, 3, 4 }, dict.w:totable())
    assert.is_nil(dict.n)
    assert.equal(2, #texts)
    assert.matches("'n' is left out; .*numpy.core.multiarray._reconstruct", texts[1])
    assert.matches("'m' is left out; .*_rebuild_meta_tensor", texts[2])
  end)

  it("may be big-endian", function()
    local dict = load(p.archive{ { "x", vector{ n = 1, size = { 1 } } },
      storages = { ["0"] = "\63\128\0\0" }, more = { { "archive/byteorder", "big" } } })
    assert.equal(1, dict.x:asscalar())
    dict = load(p.older{ { "x", vector{ n = 1, size = { 1 } } }, big_endian = true,
      storages = { { "0", 1, "\63\128\0\0" } } })
    assert.equal(1, dict.x:asscalar())
  end)

  it("may be of the older form", function()
    local dict, names = load(p.older{ { "b", vector{ key = "7" } }, { "a", vector{ key = "5", n = 2,
      size = { 2 } } }, storages = { { "5", 2, floats(8, 9) }, { "7", 4, floats(1, 2, 3, 4) } } })
    assert.same({ "b", "a" }, names)
    assert.same({ 1, 2, 3, 4 }, dict.b:totable())
    assert.same({ 8, 9 }, dict.a:totable())
    -- a storage that is a part of another
    local view = p.call(p.global("torch._utils", "_rebuild_tensor"), p.storage{
      class = "FloatStorage", n = 4, view = p.tuple(p.text "v", p.int(2), p.int(2)) }, p.int(0),
      p.ints{ 2 }, p.ints{ 1 })
    dict = load(p.older{ { "x", view }, storages = { { "0", 4, floats(1, 2, 3, 4) } } })
    assert.same({ 3, 4 }, dict.x:totable())
    local module = p.tuple(p.text "module", p.global("m", "Net"), p.text "net.py", p.text "source")
      .. "Q)\129" .. p.dict(p.text "_parameters", p.dict(p.text "w", vector())) .. "b"
    dict = load(p.older{ body = module, storages = { { "0", 4, floats(1, 2, 3, 4) } } })
    assert.same({ 1, 2, 3, 4 }, dict.w:totable())
  end)

  it("is read from its file when an array is used", function()
    folder.with(function(dir)
      local n = 2 ^ 18
      folder.write(dir .. "/x.pth", p.archive{ { "x", vector{ n = n, size = { n } } },
        storages = { ["0"] = ("\0\0\128\63"):rep(n) } })
      collectgarbage()
      collectgarbage()
      ty.waitall()
      local before = ty.live().bytes
      local x = ty.nd.load(dir .. "/x.pth").x
      assert.is_true(ty.live().bytes <= before)
      assert.equal(1, x[n - 1]:asscalar())
      folder.write(dir .. "/y.pth", p.archive{ { "x", vector() }, storages = FOUR })
      x = ty.nd.load(dir .. "/y.pth").x
      folder.write(dir .. "/y.pth", "")
      assert.raises("io", x.totable, x)
    end)
  end)

  it("gives its whole object", function()
    folder.with(function(dir)
      folder.write(dir .. "/x.pth", p.archive{ { "w", vector() }, { "lr", p.float(0.5) },
        { "args", p.global("argparse", "Namespace") .. ")\129" .. p.dict(p.text "a", p.int(1))
          .. "b" },
        storages = FOUR })
      local object = ty.pytorch.load(dir .. "/x.pth")
      assert.equal(0.5, object.lr)
      assert.same({ 1, 2, 3, 4 }, object.w:totable())
      assert.equal("argparse.Namespace", object.args.class_name)
      assert.equal(1, object.args.state.a)
      assert.same({ "w", "lr", "args" }, ty.pytorch.keys(object))
      assert.raises("io", ty.pytorch.load, dir .. "/none.pth")
      folder.write(dir .. "/x.bin", "abc")
      assert.raises("format", ty.pytorch.load, dir .. "/x.bin")
      ty.nd.save(dir .. "/x.npz", { w = ty.nd.ones{ 2 } })
      assert.matches("without the file data.pkl",
        assert.raises("format", ty.pytorch.load, dir .. "/x.npz").message)
    end)
  end)
end)

describe("a file of torch.save that cannot be read", function()
  it("says what it is", function()
    refused("unsupported", "TorchScript", p.archive{ { "x", vector() }, storages = FOUR,
      more = { { "archive/constants.pkl", "" } } })
    refused("unsupported", "quantized tensors", p.archive{
      { "x", vector{ class = "QInt8Storage" } }, storages = FOUR })
    refused("unsupported", "quantized tensors", p.archive{ { "x", p.call(p.global("torch._utils",
      "_rebuild_qtensor"), p.int(1)) } })
    refused("unsupported", "sparse tensors", p.archive{ { "x", p.call(p.global("torch._utils",
      "_rebuild_sparse_tensor"), p.int(1)) } })
    refused("unsupported", "ComplexFloatStorage", p.archive{ { "x",
      vector{ class = "ComplexFloatStorage" } }, storages = FOUR })
  end)

  local rows = {
    { "with a storage that is missing", "storage '0' is missing", { { "x", vector() } } },
    { "with a storage that is short", "bytes instead of 16", { { "x", vector() },
      storages = { ["0"] = "abc" } } },
    { "with a tensor past its storage", "elements 1 to 4 of a storage", { { "x",
      vector{ offset = 1 } }, storages = FOUR } },
    { "with a far stride", "of a storage of 16 bytes", { { "x", vector{ size = { 2 },
      stride = { 2 ^ 31 - 1 } } }, storages = FOUR } },
    { "with a negative stride", "the stride of a tensor has number -1", { { "x",
      vector{ stride = { -1 } } }, storages = FOUR } },
    { "with a negative offset", "offset number -1", { { "x", vector{ offset = -1 } },
      storages = FOUR } },
    { "with other strides than sizes", "1 sizes, 2 strides", { { "x", vector{ stride = { 1, 1 } } },
      storages = FOUR } },
    { "with a huge expansion", "over a storage", { { "x", vector{ size = { 2 ^ 30, 2 ^ 30 },
      stride = { 0, 0 } } }, storages = FOUR } },
    { "with a dictionary for a storage", "the storage of a tensor is", { { "x",
      p.call(p.global("torch._utils", "_rebuild_tensor"), p.dict(p.text "bytes", p.int(16)),
        p.int(0), p.ints{ 4 }, p.ints{ 1 }) }, storages = FOUR } },
    { "that refers to something else", "no storage", { { "x", p.int(4) .. "Q" } } },
    { "with a pickle that ends", "nothing is on the stack", { body = "(" } },
  }
  for _, row in ipairs(rows) do
    it("is refused: " .. row[1], function() refused("format", row[2], p.archive(row[3])) end)
  end

  it("is refused where it is another file", function()
    folder.with(function(dir)
      folder.write(dir .. "/x.pkl", "\128\4}.")
      local e = assert.raises("format", ty.pytorch.load, dir .. "/x.pkl")
      assert.truthy(e.message:find("no file of torch.save", 1, true), e.message)
    end)
  end)

  it("is refused wherever it may end", function()
    for _, whole in ipairs{ p.archive{ { "x", vector() }, storages = FOUR },
        p.older{ { "x", vector() }, storages = { { "0", 4, FOUR["0"] } } } } do
      for n = 0, #whole - 1 do
        local ok, e = pcall(load, whole:sub(1, n))
        assert.is_true(not ok and ty.is_error(e) and e.code == "format", tostring(e))
      end
    end
  end)

  it("is refused where containers never end", function()
    refused("format", "containers", p.archive{ body = ("]("):rep(100) .. "N" .. ("e"):rep(100) })
    -- each list has the one before twice: 2^30 lists
    local body = "]q\0(N" .. "e"
    for i = 1, 30 do
      local before = "h" .. string.char(i - 1)
      body = body .. "](" .. before .. before .. "eq" .. string.char(i)
    end
    refused("format", "containers", p.archive{ body = body })
    -- a list in itself ends
    assert.same({}, load(p.archive{ body = "]q\0h\0a" }))
  end)
end)
