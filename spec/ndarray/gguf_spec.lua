-- Files of llama.cpp: arrays by name, blocks dequantized, metadata.

local ffi = require "ffi"
local gguf = require "spec.support.gguf"
local ty = require "tycho"

local F32, F16, Q4_0, Q2_K, I16 = 0, 1, 2, 10, 25

local function floats(...)
  local list = { ... }
  return ffi.string(ffi.new("float[?]", #list, list), 4 * #list)
end

local function refused(code, text, bytes)
  local e = assert.raises(code, ty.nd.load_frombuffer, bytes)
  assert.truthy(e.message:find(text, 1, true), e.message)
end

describe("a GGUF file", function()
  it("has arrays, the last axis the fastest", function()
    local dict, names = ty.nd.load_frombuffer(gguf.bytes{ tensors = {
      { "b", { 2, 3 }, F32, floats(1, 2, 3, 4, 5, 6) }, { "a", { 1 }, F16, "\0\60" },
      { "c", { 2 }, I16, "\254\255\1\0" } } })
    assert.same({ "b", "a", "c" }, names)
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, dict.b:totable())
    assert.equal("float16", dict.a.dtype)
    assert.same({ -2, 1 }, dict.c:totable())
  end)

  it("has blocks of quantized elements, as floats", function()
    -- scale 0.5, all elements 8 + 1
    local dict = ty.nd.load_frombuffer(gguf.bytes{ align = 64,
      { "general.alignment", gguf.U32, 64 },
      tensors = { { "q", { 1, 32 }, Q4_0, "\0\56" .. ("\153"):rep(16) } } })
    assert.equal("float32", dict.q.dtype)
    assert.equal(16, dict.q:sum():asscalar())
  end)

  it("has metadata of all types", function()
    local _, _, meta = ty.nd.load_frombuffer(gguf.bytes{
      { "u8", gguf.U8, 255 }, { "i8", gguf.I8, -1 }, { "u16", gguf.U16, 65535 },
      { "i16", gguf.I16, -2 }, { "u32", gguf.U32, 2 ^ 32 - 1 }, { "i32", gguf.I32, -3 },
      { "f32", gguf.F32, 0.5 }, { "f64", gguf.F64, 0.1 }, { "yes", gguf.BOOL, 1 },
      { "no", gguf.BOOL, 0 }, { "u64", gguf.U64, 2 ^ 40 }, { "i64", gguf.I64, -2 ^ 40 },
      { "name", gguf.TEXT, "tiny" }, { "tokens", gguf.LIST, { gguf.TEXT, { "a", "", "b" } } },
      { "lists", gguf.LIST, { gguf.LIST, { { gguf.I32, { 1, 2 } }, { gguf.I32, {} } } } } })
    assert.same({ 255, -1, 65535, -2, 2 ^ 32 - 1, -3, 0.5, 0.1, true, false, 2 ^ 40, -2 ^ 40,
      "tiny" }, { meta.u8, meta.i8, meta.u16, meta.i16, meta.u32, meta.i32, meta.f32, meta.f64,
        meta.yes, meta.no, meta.u64, meta.i64, meta.name })
    assert.same({ "a", "", "b" }, meta.tokens)
    assert.same({ { 1, 2 }, {} }, meta.lists)
  end)

  it("has long lists of numbers as arrays", function()
    local list = {}
    for i = 1, 2000 do
      list[i] = i
    end
    local _, _, meta = ty.nd.load_frombuffer(gguf.bytes{ { "n", gguf.LIST, { gguf.U16, list } } })
    assert.equal("int32", meta.n.dtype)
    assert.equal(2000, meta.n[1999]:asscalar())
  end)

  it("has NaNs that Lua may read", function()
    local raw = gguf.bytes{ { "x", gguf.I64, -1 } }
    local bytes = raw:gsub("\11\0\0\0(" .. ("\255"):rep(8) .. ")", "\12\0\0\0%1")
    local _, _, meta = ty.nd.load_frombuffer(bytes)
    assert.is_true(meta.x ~= meta.x)
  end)
end)

describe("a GGUF file that cannot be read", function()
  local function with(shape, kind, bytes, more)
    local t = { tensors = { { "w", shape, kind, bytes } } }
    for key, value in pairs(more or {}) do
      t.tensors[1][key] = value
    end
    return gguf.bytes(t)
  end

  it("is refused by its reason", function()
    refused("unsupported", "the tensor 'w' is of type Q2_K", with({ 256 }, Q2_K, ("\0"):rep(84)))
    refused("unsupported", "is of type 99", with({ 1 }, 99, ""))
    refused("format", "no blocks of 32", with({ 2, 16 }, Q4_0, ("\0"):rep(18)))
    refused("format", "are asked for", with({ 100 }, F32, "abcd"))
    refused("format", "are asked for", with({ 1 }, F32, "abcd", { offset = 2 ^ 50 }))
    refused("format", "has a size of 0", with({ 0 }, F32, ""))
    refused("format", "has a size of", with({ 2 ^ 50 }, F32, ""))
    refused("format", "version 1 of GGUF", gguf.bytes{ version = 1 })
    refused("format", "big-endian", "GGUF\0\0\0\3" .. ("\0"):rep(16))
    refused("format", "things are announced", gguf.bytes{ count = 2 ^ 40 })
    refused("format", "the alignment is 0", gguf.bytes{ { "general.alignment", gguf.U32, 0 } })
    refused("format", "no type 77", (gguf.bytes{ { "k", gguf.U8, 1 } }
      :gsub("k\0\0\0\0", "k\77\0\0\0")))
    local deep = { gguf.LIST, { { gguf.I32, {} } } }
    for _ = 1, 10 do
      deep = { gguf.LIST, { deep } }
    end
    refused("format", "lists are more than", gguf.bytes{ { "k", gguf.LIST, deep } })
  end)

  it("is refused wherever its header may end", function()
    local whole = gguf.bytes{ { "k", gguf.TEXT, "value" }, { "l", gguf.LIST, { gguf.I32, { 1 } } },
      tensors = { { "w", { 2 }, F32, floats(1, 2) } } }
    for n = 4, #whole - 25 do
      local ok, e = pcall(ty.nd.load_frombuffer, whole:sub(1, n))
      assert.is_true(not ok and ty.is_error(e) and e.code == "format", tostring(e))
    end
  end)
end)
