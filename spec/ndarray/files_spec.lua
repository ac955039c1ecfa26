-- Arrays in files of other programs: NumPy's, safetensors.

local folder = require "spec.support.folder"
local array_files = require "tycho.ndarray.files"
local ty = require "tycho"

local read, write = folder.read, folder.write

local TYPES = { "float32", "float64", "float16", "uint8", "int8", "int32", "int64", "bool" }

local function in_file(ending, f)
  folder.with(function(path) f(path .. "/x" .. ending) end)
end

local function make_bytes(hex)
  return (hex:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

-- Returns a .npy file as NumPy writes it; versions 2 and 3 have a long header.
local function npy(descr, order, shape, elements, version)
  local text = ("{'descr': %s, 'fortran_order': %s, 'shape': %s, }"):format(descr, order, shape)
  local long = version and version > 1
  text = text .. (" "):rep(-((long and 12 or 10) + #text + 1) % 64) .. "\n"
  return "\147NUMPY" .. string.char(version or 1, 0, #text % 256, math.floor(#text / 256))
    .. (long and "\0\0" or "") .. text .. elements
end

-- Returns a safetensors file of one array; more: further entries of its header.
local function safetensors(code, n, elements, more)
  local header = ('{"w": {"dtype": "%s", "shape": [%d], "data_offsets": [0, %d]}%s}')
    :format(code, n, #elements, more or "")
  return string.char(#header) .. ("\0"):rep(7) .. header .. elements
end

-- Of another program: deflated, sizes in 64-bit fields, an array without dimensions.
local ARCHIVE = make_bytes(table.concat{
  "504b03042d0000000800000021007c9cdea2ffffffffffffffff08001400776964652e6e7079010010009800000000",
  "00000058000000000000009bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a2aea3a09e965f5452949817",
  "9f5f94920a12774bcc294e058a17672416a402f91a463a0ac69a3a0ab50a64032e0686067b060606072002e206205e",
  "00c4071c00504b030414000000080000002150c15fdddc4a000000c0010000090000007a65726f732e6e70799bec17",
  "ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9369a1aea3a09e965f54529498179f5f94920a12774bcc294e058a17",
  "672416a402f91a26063a9a3a0ab50ae4032e865140110000504b03041400000008009512765d35b43a934700000088",
  "0000000a0000007363616c61722e6e70799bec17ea1b10c9c850c650ad9e925a9c5ca46ea5a06e9366a1aea3a09e96",
  "5f54529498179f5f94920a12774bcc294e058a17672416a402f91a9a3a0ab50a14012e063060710000504b01022d03",
  "2d0000000800000021007c9cdea25800000098000000080000000000000000000000800100000000776964652e6e70",
  "79504b0102140314000000080000002150c15fdddc4a000000c0010000090000000000000000000000800192000000",
  "7a65726f732e6e7079504b010214031400000008009512765d35b43a9347000000880000000a000000000000000000",
  "00008001030100007363616c61722e6e7079504b05060000000003000300a5000000720100000000",
})

describe("arrays in a file that ends in", function()
  for _, ending in ipairs{ ".npz", ".safetensors" } do
    it(ending .. " come back: all types, shapes and names", function()
      in_file(ending, function(path)
        local dict = { ["a name"] = ty.nd.arange(24):reshape{ 2, 3, 4 } }
        for _, dtype in ipairs(ending == ".npz" and TYPES or { "bfloat16", unpack(TYPES) }) do
          dict[dtype] = ty.nd.array({ 1, 0, 3 }, { dtype = dtype })
        end
        ty.nd.save(path, dict)
        local loaded, names = ty.nd.load(path)
        local count = 0
        for name, x in pairs(dict) do
          count = count + 1
          assert.are.equal(x.dtype, loaded[name].dtype)
          assert.are.same(x.shape, loaded[name].shape)
          assert.are.equal(x:tostring_raw(), loaded[name]:tostring_raw())
        end
        assert.are.equal(count, #names)
        local again = ty.nd.load_frombuffer(read(path))
        assert.are.equal(dict["a name"]:tostring_raw(), again["a name"]:tostring_raw())
        local before = read(path)
        ty.nd.save(path, dict)
        assert.are.equal(before, read(path))
      end)
    end)
  end

  it(".npy is one array", function()
    in_file(".npy", function(path)
      for _, dtype in ipairs(TYPES) do
        local x = ty.nd.array({ { 1, 0, 3 }, { 4, 5, 6 } }, { dtype = dtype })
        ty.nd.save(path, x)
        local list = ty.nd.load(path)
        assert.are.equal(1, #list)
        assert.are.equal(x:tostring_raw(), list[1]:tostring_raw())
        assert.are.equal(0, (#read(path) - #x:tostring_raw()) % 64)
      end
      assert.raises("value", ty.nd.save, path, { ty.nd.ones(1), ty.nd.ones(2) })
      local e = assert.raises("dtype", ty.nd.save, path, ty.nd.ones({ 2 }, { dtype = "bfloat16" }))
      assert.truthy(tostring(e):find("astype", 1, true))
      ty.nd.save(path, { only = ty.nd.ones(2) })
      assert.are.same({ 1, 1 }, ty.nd.load(path)[1]:totable())
    end)
  end)

  it("a view writes its own elements", function()
    in_file(".npz", function(path)
      local x = ty.nd.arange(12):reshape{ 4, 3 }
      ty.nd.save(path, { x["1:3"] })
      assert.are.same({ { 3, 4, 5 }, { 6, 7, 8 } }, ty.nd.load(path).arr_0:totable())
    end)
  end)
end)

describe("of another program", function()
  it("come both orders of bytes and of dimensions, long headers, scalars", function()
    local function load(...)
      return ty.nd.load_frombuffer(npy(...))[1]
    end
    assert.are.same({ { 1, 3 }, { 2, 4 } }, load("'|u1'", "True", "(2, 2)", "\1\2\3\4"):totable())
    assert.are.same({ 258, 1 }, load("'>i4'", "False", "(2,)", "\0\0\1\2\0\0\0\1"):totable())
    assert.are.same({ 7 }, load('"<i4"', "False", "()", "\7\0\0\0", 2):totable())
  end)

  it("come archives that are deflated", function()
    local dict, names = ty.nd.load_frombuffer(ARCHIVE)
    assert.are.same({ "wide", "zeros", "scalar" }, names)
    assert.are.same({ { 1, 2, 3 }, { 4, 5, 6 } }, dict.wide:totable())
    assert.are.same({ 40 }, dict.zeros.shape)
    assert.are.equal("int64", dict.zeros.dtype)
    assert.are.equal(2.5, dict.scalar:asscalar())
  end)

  it("lose no array of a list with gaps, or with names beside it", function()
    in_file(".params", function(path)
      local x = ty.nd.ones(1)
      for _, data in ipairs{ { x, w = x }, { x, [3] = x }, { [0] = x, x },
          { { "a", x }, w = x } } do
        local e = assert.raises("type", ty.nd.save, path, data)
        assert.equal("data", e.argument)
        assert.is_nil(io.open(path))
      end
      ty.nd.save(path, { x, x })
      assert.equal(2, #ty.nd.load(path))
    end)
  end)

  it("come parameters whose checksum looks like the brace of a safetensors header", function()
    in_file(".params", function(path)
      array_files.save_checked(path, { w = ty.nd.array({ 424 }, { ctx = ty.cpu(0) }) })
      assert.are.equal("{", read(path):sub(9, 9))
      assert.are.same({ 424 }, ty.nd.load(path).w:totable())
      assert.are.same({ 424 }, ty.nd.load_frombuffer(read(path)).w:totable())
    end)
  end)

  it("come parameters: what they mean is in their names", function()
    in_file(".safetensors", function(path)
      local header = '{"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "shape": [2], \z
        "data_offsets": [2, 10]}, '
        .. '"s": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]}}'
      write(path,
        string.char(#header) .. ("\0"):rep(7) .. header .. "\128\63" .. "\0\0\0\64\0\0\128\63")
      local dict, names = ty.nd.load(path)
      assert.are.same({ "s", "w" }, names)
      assert.are.same({ 2, 1 }, dict.w:totable())
      assert.are.equal(1, dict.s:astype("float32"):asscalar())
    end)
  end)

  it("types that arrays cannot have are refused by name", function()
    for descr, kind in pairs{ ["'<c8'"] = "complex numbers", ["'<c16'"] = "complex numbers",
        ["'<f16'"] = "floats of 80", ["'<U4'"] = "texts", ["'|S3'"] = "byte strings",
        ["'|O'"] = "pickled objects", ["'<M8[ns]'"] = "dates", ["'<m8[us]'"] = "times",
        ["'|V8'"] = "structures", ["[('a', '<f4')]"] = "structures",
        ["'<x4'"] = "an unknown type" } do
      local e = assert.raises("dtype", ty.nd.load_frombuffer,
        npy(descr, "False", "(1,)", "\0\0\0\0"))
      assert.truthy(tostring(e):find(kind, 1, true), tostring(e))
    end
    local e = assert.raises("dtype", ty.nd.load_frombuffer, safetensors("C64", 1, "\0"))
    assert.are.equal("w", e.argument)
  end)

  it("integers of types that arrays do not have become wider ones", function()
    for _, case in ipairs{
      { "<i2", "I16", "int32", "\255\255\0\128\1\0", { -1, -32768, 1 } },
      { "<u2", "U16", "int32", "\255\255\0\128\1\0", { 65535, 32768, 1 } },
      { "<u4", "U32", "int64", "\255\255\255\255\0\0\0\128\1\0\0\0", { 2 ^ 32 - 1, 2 ^ 31, 1 } },
      { "<u8", "U64", "int64", ("\0"):rep(5) .. "\1\0\0\3" .. ("\0"):rep(15), { 2 ^ 40, 3, 0 } },
    } do
      local descr, code, dtype, elements, want = unpack(case)
      for _, bytes in ipairs{ npy("'" .. descr .. "'", "False", "(3,)", elements),
          safetensors(code, 3, elements) } do
        local loaded = ty.nd.load_frombuffer(bytes)
        local x = loaded.w or loaded[1]
        assert.are.equal(dtype, x.dtype)
        assert.are.same(want, x:totable())
      end
    end
    local turned = ty.nd.load_frombuffer(npy("'>u2'", "False", "(1,)", "\1\2"))[1]
    assert.are.same({ 258 }, turned:totable())
    local large = ("\255"):rep(8)
    for _, f in ipairs{
      function() ty.nd.load_frombuffer(npy("'<u8'", "False", "(1,)", large)) end,
      function() ty.nd.load_frombuffer(safetensors("U64", 1, large)).w:totable() end,
    } do
      local e = assert.raises("value", f)
      assert.truthy(e.message:find("18446744073709551615", 1, true), e.message)
    end
  end)

  it("bools are 0 and 1, whatever bytes stand for them", function()
    local elements = "\0\1\2\255"
    for _, bytes in ipairs{ npy("'|b1'", "False", "(4,)", elements),
        safetensors("BOOL", 4, elements) } do
      local loaded = ty.nd.load_frombuffer(bytes)
      assert.are.equal("\0\1\1\1", (loaded.w or loaded[1]):tostring_raw())
    end
  end)

  it("shapes come as Python 2 writes them, and headers of version 3", function()
    local x = ty.nd.load_frombuffer(npy("'<f4'", "True", "(2L, 1L, 2L)",
      "\0\0\128\63\0\0\0\64\0\0\64\64\0\0\128\64"))[1]
    assert.are.same({ { { 1, 3 } }, { { 2, 4 } } }, x:totable())
    x = ty.nd.load_frombuffer(npy("'<f2'", "False", "(1,)", "\0\60", 3))[1]
    assert.are.equal("float16", x.dtype)
    assert.are.same({ 1 }, x:totable())
  end)

  it("arrays without elements are left out of files with names, and refused in others", function()
    local e = assert.raises("format", ty.nd.load_frombuffer, npy("'<f4'", "False", "(0, 3)", ""))
    assert.truthy(tostring(e):find("no elements: its shape is (0, 3)", 1, true), tostring(e))
    local dict, names = ty.nd.load_frombuffer(safetensors("F32", 0, "", ', "b": {"dtype": "U8", \z
      "shape": [1], "data_offsets": [0, 1]}') .. "\7")
    assert.are.same({ "b" }, names)
    assert.are.same({ 7 }, dict.b:totable())
  end)

  it("a list counts from 1, and says so", function()
    local list = ty.nd.load_frombuffer(npy("'|u1'", "False", "(1,)", "\7"))
    assert.are.equal(1, #list)
    local e = assert.raises("index", function() return list[0] end)
    assert.truthy(tostring(e):find("count from 1", 1, true))
  end)

  it("archives that are not NumPy's are named", function()
    local function archive(name)
      local head = "\20\0\0\0\0\0\0\0\33\0" .. ("\0"):rep(12) .. string.char(#name) .. "\0\0\0"
      local first = "PK\3\4" .. head .. name
      local index = "PK\1\2\20\0" .. head .. ("\0"):rep(14) .. name
      return first .. index .. "PK\5\6\0\0\0\0\1\0\1\0" .. string.char(#index) .. "\0\0\0"
        .. string.char(#first) .. "\0\0\0\0\0"
    end
    for name, want in pairs{
      ["model.weights.h5"] = "a Keras model (.keras)",
      ["word/document.xml"] = "an archive of other files: 'word/document.xml'",
    } do
      in_file(".npz", function(path)
        write(path, archive(name))
        for _, f in ipairs{ function() return ty.nd.load(path) end,
            function() return ty.nd.load_frombuffer(read(path)) end } do
          local e = assert.raises("format", f)
          assert.truthy(tostring(e):find("not a file of arrays but " .. want, 1, true), tostring(e))
        end
      end)
    end
  end)
end)

describe("damaged files", function()
  local function samples()
    local list = { ARCHIVE, npy("'<f4'", "False", "(2,)", ("\0"):rep(8)) }
    for _, ending in ipairs{ ".npz", ".safetensors" } do
      in_file(ending, function(path)
        ty.nd.save(path, { a = ty.nd.ones{ 2, 3 }, b = ty.nd.zeros{ 4 } })
        list[#list + 1] = read(path)
      end)
    end
    return list
  end

  it("are refused wherever they end", function()
    for _, bytes in ipairs(samples()) do
      for n = 9, #bytes - 1 do
        assert.raises("format", ty.nd.load_frombuffer, bytes:sub(1, n))
      end
    end
  end)

  it("give arrays or an error object, whatever byte is wrong", function()
    for _, bytes in ipairs(samples()) do
      for at = 1, #bytes do
        for _, change in ipairs{ 1, 128, 255 } do
          local other = bytes:sub(1, at - 1) .. string.char((bytes:byte(at) + change) % 256)
            .. bytes:sub(at + 1)
          local ok, e = pcall(ty.nd.load_frombuffer, other)
          assert.is_true(ok or ty.is_error(e), tostring(e))
        end
      end
    end
  end)

  it("are named", function()
    in_file(".npz", function(path)
      write(path, ARCHIVE:sub(1, 200))
      local e = assert.raises("format", ty.nd.load, path)
      assert.truthy(tostring(e):find(path, 1, true))
      assert.are.equal(path, e.argument)
    end)
  end)
end)
