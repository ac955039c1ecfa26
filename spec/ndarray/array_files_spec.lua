-- Files of arrays made by hand: each version of a record, sparse ones, and what is said of records
-- that cannot be.

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local ty = require "tycho"

local C = native.C

-- Returns little-endian words.
local function u32(...)
  local words = {}
  for i = 1, select("#", ...) do
    words[i] = ffi.string(ffi.new("int32_t[1]", ffi.cast("int32_t", ffi.cast("int64_t",
      (select(i, ...))))), 4)
  end
  return table.concat(words)
end

local function u64(...)
  local words = {}
  for i = 1, select("#", ...) do
    words[i] = ffi.string(ffi.new("int64_t[1]", (select(i, ...))), 8)
  end
  return table.concat(words)
end

local function floats(...)
  return ffi.string(ffi.new("float[?]", select("#", ...), ...), 4 * select("#", ...))
end

local V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
local CPU, F32, I64 = u32(1, 0), u32(0), u32(6)

local function shape(...)
  return u32(select("#", ...)) .. u64(...)
end

local function list(records, names)
  local text = {}
  for i, name in ipairs(names or {}) do
    text[i] = u64(#name) .. name
  end
  return u64(0x112, 0, #records) .. table.concat(records) .. u64(#text) .. table.concat(text)
end

-- Returns a row_sparse array of 3 x 2 of which some rows are stored.
local function rows(numbers, stored, index_shape)
  return u32(V2, 1) .. shape(#numbers, 2) .. shape(3, 2) .. CPU .. F32 .. I64
    .. (index_shape or shape(#numbers)) .. floats(unpack(stored)) .. u64(unpack(numbers))
end

-- Returns a csr array of 2 x 3: values, starts of rows, columns.
local function csr(values, starts, columns, whole)
  return u32(V2, 2) .. shape(#values) .. (whole or shape(2, 3)) .. CPU .. F32
    .. I64 .. shape(#starts) .. I64 .. shape(#columns)
    .. floats(unpack(values)) .. u64(unpack(starts)) .. u64(unpack(columns))
end

-- Returns the text of the failure after the place.
local function refusal(bytes)
  local bag, named = ffi.new("ty_bag *[1]"), ffi.new("int[1]")
  assert.is_true(C.ty_params_parse(bytes, #bytes, bag, named) > 0)
  return (ffi.string(C.ty_error()):gsub("^buffer: ", ""):gsub("^byte %d+ of %d+: ", ""))
end

describe("a file of arrays", function()
  it("holds records of all versions", function()
    local old = u32(2, 1, 2) .. CPU .. F32 .. floats(1, 2)
    local first = u32(V1) .. shape(2) .. CPU .. F32 .. floats(3, 4)
    local second = u32(V2, 0) .. shape(2) .. CPU .. F32 .. floats(5, 6)
    local scalar = u32(V3, 0) .. shape() .. CPU .. F32 .. floats(7)
    local arrays = ty.nd.load_frombuffer(list{ old, first, second, scalar })
    assert.same({ { 1, 2 } }, arrays[1]:totable())
    assert.same({ 3, 4 }, arrays[2]:totable())
    assert.same({ 5, 6 }, arrays[3]:totable())
    assert.same({ 7 }, arrays[4]:totable())
  end)

  it("leaves out null and empty arrays that have names, and refuses others", function()
    local null, none = u32(V2, 0) .. shape(), u32(V3, 0) .. u32(-1)
    local empty = u32(V2, 0) .. shape(2, 0) .. CPU .. F32
    local sparse = u32(V2, 1) .. shape(0, 2) .. shape(0, 2) .. CPU .. F32 .. I64 .. shape(0)
    local one = u32(V2, 0) .. shape(1) .. CPU .. F32 .. floats(1)
    local arrays = ty.nd.load_frombuffer(list({ null, none, empty, sparse, one },
      { "a", "b", "c", "d", "e" }))
    assert.same({ 1 }, arrays.e:totable())
    assert.is_nil(arrays.a or arrays.b or arrays.c or arrays.d)
    for _, record in ipairs{ null, none, empty, sparse } do
      assert.equal("array 0 of the list has no elements", refusal(list{ record }))
    end
  end)

  it("holds sparse arrays, which are made dense", function()
    local arrays = ty.nd.load_frombuffer(list{ rows({ 2, 0 }, { 1, 2, 3, 4 }),
      csr({ 5, 6, 7 }, { 0, 1, 3 }, { 2, 0, 1 }) })
    assert.same({ { 3, 4 }, { 0, 0 }, { 1, 2 } }, arrays[1]:totable())
    assert.same({ { 0, 0, 5 }, { 6, 7, 0 } }, arrays[2]:totable())
  end)

  it("holds integers of other types, which are made wider", function()
    local function record(code, elements)
      return u32(V2, 0) .. shape(3) .. CPU .. u32(code) .. elements
    end
    local arrays = ty.nd.load_frombuffer(list{
      record(8, "\1\0\255\255\0\128"), record(9, "\1\0\255\255\0\128"),
      record(10, u32(1, -1, 2 ^ 31)), record(11, u64(1, 2 ^ 40, 3)) })
    assert.same({ 1, -1, -32768 }, arrays[1]:totable())
    assert.same({ 1, 65535, 32768 }, arrays[2]:totable())
    assert.same({ 1, 2 ^ 32 - 1, 2 ^ 31 }, arrays[3]:totable())
    assert.same({ 1, 2 ^ 40, 3 }, arrays[4]:totable())
    for i, dtype in ipairs{ "int32", "int32", "int64", "int64" } do
      assert.equal(dtype, arrays[i].dtype)
    end
    local sparse = u32(V2, 2) .. shape(2) .. shape(1, 3) .. CPU .. u32(9) .. u32(10) .. shape(2)
      .. u32(9) .. shape(2) .. "\255\255\2\0" .. u32(0, 2) .. "\0\0\2\0"
    assert.same({ { 65535, 0, 2 } }, ty.nd.load_frombuffer(list{ sparse })[1]:totable())
  end)

  it("gives bools of 0 and 1, whatever bytes it has", function()
    local record = u32(V2, 0) .. shape(4) .. CPU .. u32(7) .. "\0\1\2\255"
    assert.equal("\0\1\1\1", ty.nd.load_frombuffer(list{ record })[1]:tostring_raw())
  end)

  it("takes the extent of a sparse array from its indices", function()
    local stale = u32(V2, 2) .. shape(0) .. shape(2, 3) .. CPU .. F32 .. I64 .. shape(3) .. I64
      .. shape(5) .. floats(1, 2, 3, 4, 5) .. u64(0, 2, 5) .. u64(1, 2, 0, 1, 2)
    local shorter = u32(V2, 2) .. shape(7) .. shape(1, 3) .. CPU .. F32 .. I64 .. shape(2) .. I64
      .. shape(1) .. floats(9) .. u64(0, 1) .. u64(2)
    local zeros = u32(V2, 2) .. shape(0) .. shape(2, 3) .. CPU .. F32 .. I64 .. shape(0) .. I64
      .. shape(0)
    for _, before in ipairs{ shape(0), shape(0, 2), shape(1, 2), shape(3, 2) } do
      local stored = u32(V2, 1) .. before .. shape(3, 2) .. CPU .. F32 .. I64 .. shape(2)
        .. floats(1, 2, 3, 4) .. u64(0, 2)
      local arrays = ty.nd.load_frombuffer(list({ stale, shorter, stored, zeros },
        { "a", "b", "c", "d" }))
      assert.same({ { 0, 1, 2 }, { 3, 4, 5 } }, arrays.a:totable())
      assert.same({ { 0, 0, 9 } }, arrays.b:totable())
      assert.same({ { 1, 2 }, { 0, 0 }, { 3, 4 } }, arrays.c:totable())
      assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, arrays.d:totable())
    end
  end)

  it("is refused where a sparse array does not fit itself", function()
    for want, record in pairs{
      ["a row_sparse array lists row 3"] = rows({ 0, 3 }, { 1, 2, 3, 4 }),
      ["a row_sparse array lists row -1"] = rows({ 0, -1 }, { 1, 2, 3, 4 }),
      ["the file ends within the number of names: 4 bytes are missing"] = u32(V2, 1) .. shape(2, 2)
        .. shape(3, 2) .. CPU .. F32 .. I64 .. shape(2) .. floats(1, 2) .. u64(0, 1),
      ["a sparse array without a shape of what is stored"] = rows({ 0 }, { 1, 2 }, shape()),
      ["a csr array lists column 3"] = csr({ 5 }, { 0, 1, 1 }, { 3 }),
      ["a csr array lists column -1"] = csr({ 5 }, { 0, 1, 1 }, { -1 }),
      ["a csr array lacks starts of rows"] = csr({ 5 }, { 0, 1 }, { 0 }),
      ["row 0 of a csr array has no valid extent"] = csr({ 5 }, { 0, 2, 2 }, { 0 }),
      ["row 1 of a csr array has no valid extent"] = csr({ 5 }, { 0, 1, 0 }, { 0 }),
      ["a csr array is too large to be made dense"] = csr({ 5 }, { 0, 1, 1 }, { 0 },
        shape(2, 2 ^ 30)),
      ["a row_sparse array is too large to be made dense"] = u32(V2, 1) .. shape(1, 2)
        .. shape(2 ^ 40, 2) .. CPU .. F32 .. I64 .. shape(1) .. floats(1, 2) .. u64(0),
    } do
      assert.equal(want, refusal(list{ record }))
    end
    assert.equal("a csr array lacks starts of rows", refusal(list{ csr({ 5 }, { 0, 1, 1 }, { 0 },
      shape(2)) }))
    assert.equal("row 0 of a csr array has no valid extent", refusal(list{ csr({ 5 }, { -1, 1, 1 },
      { 0 }) }))
    assert.equal("a sparse array without a shape of what is stored", refusal(list{ u32(V2, 1)
      .. shape() .. shape(3, 2) .. CPU .. F32 .. I64 .. shape(1) .. floats(1, 2) .. u64(0) }))
  end)

  it("is refused where a record cannot be", function()
    local record = u32(V2, 0) .. shape(2) .. CPU .. F32 .. floats(5, 6)
    for want, bytes in pairs{
      ["an array begins with 0x00000011: neither a known version nor a number of dimensions"] =
        list{ u32(17) },
      ["unknown storage type 3"] = list{ u32(V2, 3) },
      ["unknown storage type -1"] = list{ u32(V2, -1) },
      ["an array of 17 dimensions; there are at most 16"] = list{ u32(V2, 0, 17) },
      ["an array of -2 dimensions"] = list{ u32(V3, 0, -2) },
      ["an array of -1 dimensions"] = list{ u32(V2, 0, -1) },
      ["dimension 1 of an array is negative"] = list{ u32(V2, 0, 2) .. u64(1, -1) },
      ["unknown type code 99"] = list{ u32(V2, 0) .. shape(1) .. CPU .. u32(99) },
      ["a uint64 of 18446744073709551615 does not fit into int64"] = list{ u32(V2, 0) .. shape(1)
        .. CPU .. u32(11) .. u64(-1) },
      ["the file ends within the elements of an array"] = list{ u32(V2, 0)
        .. shape(2 ^ 40, 2 ^ 40) .. CPU .. F32 },
      ["2 names for 1 arrays"] = list({ record }, { "a", "b" }),
      ["a name contains a zero byte"] = list({ record }, { "a\0b" }),
      ["1000 arrays cannot be in this file"] = u64(0x112, 0, 1000) .. record,
      ["a name of 1000 bytes"] = u64(0x112, 0, 1) .. record .. u64(1, 1000),
      ["this is not a file of arrays: it has not even a header"] = "\18\1",
      ["this is not a file of arrays: it does not begin with 0x112"] = "\18\1\1\0\0\0\0\0",
      ["the file ends within the header: 4 bytes are missing"] = u64(0x112, 0),
    } do
      assert.equal(want, refusal(bytes))
    end
    local pickle = "this is not a file of arrays but a Python pickle; pickles can run code and are \z
      not read"
    local other = "this is not a file of arrays: it has not even a header"
    local torch7 = "a Torch7 file (.t7); ty.torch7.load reads it"
    local tar = ("x"):rep(257) .. "ustar\0"
    for bytes, want in pairs{
      ["\128\2\138\10l\252\156F\249 j\168P\25.\128\2"] = "a PyTorch file (.pt, .pth); \z
        ty.nd.load reads it",
      ["\137HDF\r\n\26\n" .. ("\0"):rep(40)] = "an HDF5 file (Keras, h5py, MATLAB 7.3)",
      ["GGUF\3\0\0\0"] = "a GGUF file (llama.cpp); ty.nd.load reads it",
      ["\8\7\18\7pytorch\26\0052.0.0"] = "an ONNX model",
      ["\8\10:\4abcd"] = "an ONNX model",
      ["\8\1\18\200\1"] = "a TensorFlow SavedModel",
      ["\28\0\0\0TFL3\20\0"] = "a TensorFlow Lite model",
      ["\4\0\0\0\1\0\0\0\3\0\0\0V 1\17\0\0\0torch.FloatTensor"] = torch7,
      ["4\n1\n3\nV 1\n17\ntorch.FloatTensor\n"] = torch7,
      ["\3\0\0\0\1\0\0\0\2\0\0\0"] = torch7,
      ["MATLAB 5.0 MAT-file, Platform"] = "a MATLAB file (.mat)",
      ["\31\139\8\0"] = "a gzip file; decompress it first",
      ["\n#\215\206\10\0\0\0"] = "a file of records (.rec); ty.recordio reads it",
      ["\255\216\255\224\0"] = "a JPEG image; ty.image.imread reads it",
      ["{\n  \"nodes\": ["] = "JSON text; ty.sym.load reads a network",
      [tar] = "a tar archive; unpack it first",
    } do
      assert.equal("this is not a file of arrays but " .. want, refusal(bytes))
    end
    for bytes, want in pairs{ ["\128\2}"] = pickle, ["\128\5}"] = pickle, ["\128\1}"] = other,
      ["\128\6}"] = other, ["\128\2"] = other, ["\127\2}"] = other, [""] = other } do
      assert.equal(want, refusal(bytes))
    end
  end)
end)
