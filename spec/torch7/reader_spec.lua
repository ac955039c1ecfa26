-- Files of torch.save: ty.torch7.load.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local FORMATS = { binary = {}, ["binary with short longs"] = { long = 4 },
  ascii = { format = "ascii" } }

local function load_bytes(bytes)
  local value
  folder.with(function(dir)
    folder.write(dir .. "/x.t7", bytes)
    value = ty.torch7.load(dir .. "/x.t7")
    -- arrays are read when they are first used, and the file goes away
    local list, seen = { value }, {}
    for _, v in ipairs(list) do
      if type(v) == "table" and not seen[v] then
        seen[v] = true
        if (ty.torch7.typename(v) or ""):find("^torch%.%u%l+Tensor") then
          v:totable()
        else
          for _, inner in pairs(v) do
            list[#list + 1] = inner
          end
        end
      end
    end
  end)
  return value
end

local function refused(bytes, text)
  folder.with(function(dir)
    folder.write(dir .. "/x.t7", bytes)
    local e = assert.raises("format", ty.torch7.load, dir .. "/x.t7")
    assert.equal(dir .. "/x.t7", e.argument)
    assert.truthy(e.message:find(text, 1, true), e.message)
  end)
end

for name, options in pairs(FORMATS) do
  describe("a file of torch.save, " .. name .. ",", function()
    local function read(value) return load_bytes(t7.bytes(value, options)) end

    it("has numbers, texts and booleans", function()
      assert.equal(0.1, read(0.1))
      assert.equal(-2 ^ 53, read(-2 ^ 53))
      assert.equal(math.huge, read(math.huge))
      local nan = read(0 / 0)
      assert.is_true(nan ~= nan)
      assert.equal("a\nb\0c ", read("a\nb\0c "))
      assert.equal("", read(""))
      assert.is_true(read(true))
      assert.is_nil(read(nil))
    end)

    it("has tables with any keys, and references", function()
      local key, list = { 7 }, { 1, "two", false }
      local t = read{ list = list, again = list, [0.5] = "half", [true] = 1, [key] = "key",
        empty = {} }
      assert.same({ 1, "two", false }, t.list)
      assert.equal(t.list, t.again)
      assert.equal("half", t[0.5])
      assert.equal(1, t[true])
      assert.same({}, t.empty)
      for k, v in pairs(t) do
        if type(k) == "table" then
          assert.same({ 7 }, k)
          assert.equal("key", v)
        end
      end
    end)

    it("has cycles", function()
      local t = {}
      t.self, t[t] = t, "key"
      local got = read(t)
      assert.equal(got, got.self)
      assert.equal("key", got[got])
    end)

    it("has tensors of all types", function()
      local kinds = { Float = { "float32", 1.5 }, Double = { "float64", 0.1 },
        Long = { "int64", -7 }, Int = { "int32", -2 ^ 31 }, Short = { "int32", -300 },
        Byte = { "uint8", 255 }, Char = { "int8", -128 }, Cuda = { "float32", 2.5 },
        CudaDouble = { "float64", 3 } }
      for kind, row in pairs(kinds) do
        local x = read(t7.tensor(kind, { 2, 1 }, { row[2], 1 }))
        assert.equal(row[1], x.dtype)
        assert.same({ { row[2] }, { 1 } }, x:totable())
        assert.equal("torch." .. kind .. "Tensor", ty.torch7.typename(x))
      end
    end)

    it("has views of one storage", function()
      local s = t7.storage("Float", { 1, 2, 3, 4, 5, 6 })
      local function view(sizes, strides, offset)
        return t7.tensor("Float", sizes, nil, { storage = s, strides = strides, offset = offset })
      end
      local t = read{ whole = view({ 2, 3 }, { 3, 1 }, 1), turned = view({ 3, 2 }, { 1, 3 }, 1),
        column = view({ 2 }, { 3 }, 2), wide = view({ 2, 2 }, { 1, 0 }, 5), storage = s }
      assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t.whole:totable())
      assert.same({ { 1, 4 }, { 2, 5 }, { 3, 6 } }, t.turned:totable())
      assert.same({ 2, 5 }, t.column:totable())
      assert.same({ { 5, 5 }, { 6, 6 } }, t.wide:totable())
      assert.same({ 1, 2, 3, 4, 5, 6 }, t.storage:totable())
    end)

    it("has tensors and storages without elements", function()
      local t = read{ a = t7.tensor("Float", {}, {}), b = t7.tensor("Float", {}),
        c = t7.storage("Long", {}), after = 1 }
      assert.equal(ty.null, t.a)
      assert.equal(ty.null, t.b)
      assert.equal("torch.LongStorage", ty.torch7.typename(t.c))
      assert.equal(1, t.after)
    end)

    it("has objects as tables of their fields", function()
      local inner = t7.object("my.Inner", { __index = 1, __gc = "x" }, 2)
      local t = read{ t7.object("os.exit", { a = inner, b = inner }), "after" }
      assert.equal("os.exit", ty.torch7.typename(t[1]))
      assert.equal(t[1].a, t[1].b)
      assert.equal("my.Inner", ty.torch7.typename(t[1].a))
      assert.equal(1, rawget(t[1].a, "__index"))
      assert.equal("my.Inner {__gc, __index = 1}", tostring(t[1].a))
      assert.equal("after", t[2])
      assert.is_nil(ty.torch7.typename(t))
      assert.is_nil(ty.torch7.typename(3))
    end)

    it("of an old Torch has no versions", function()
      local x = read(t7.object("nn.Tanh", { a = 1 }, 0))
      assert.equal("nn.Tanh", ty.torch7.typename(x))
      assert.equal(1, x.a)
    end)

    it("has classes that write two objects", function()
      local gpu = t7.object("nn.GPU", { device = 1 }, 2)
      gpu.header = { "header" }
      local parallel = t7.object("nn.DataParallelTable", { x = 2 }, 3)
      parallel.header = { 1, 2 }
      local t = read{ gpu, parallel, t7.object("nn.DataParallelTable", { x = 3 }, 1), "after" }
      assert.equal(1, t[1].device)
      assert.equal(2, t[2].x)
      assert.same({ 1, 2 }, t[2].gpuAssignments)
      assert.equal(3, t[3].x)
      assert.equal("after", t[4])
    end)

    it("has hashes and lists of tds", function()
      local hash = t7.raw(function(w)
        w:int(4) w:int(100)
        w:int(3) w:text("V 1") w:int(8) w:text("tds.Hash")
        w:long(1) w:object("key") w:object("value")
      end)
      local list = t7.raw(function(w)
        w:int(4) w:int(101)
        w:int(3) w:text("V 1") w:int(7) w:text("tds.Vec")
        w:long(2) w:object("a") w:object("b")
      end)
      local t = read{ hash, list }
      assert.equal("value", t[1].key)
      assert.equal("b", t[2][2])
    end)

    it("has functions, which are not read", function()
      local mark = os.tmpname()
      os.remove(mark)
      local source = ("io.open(%q, 'w'):close()"):format(mark)
      local function func(tag)
        return t7.raw(function(w)
          w:int(tag)
          if tag > 6 then w:int(100 + tag) end
          w:int(#source) w:text(source)
          w:object{ "upvalue" }
        end)
      end
      local t = read{ func(6), func(7), func(8), "after" }
      for i = 1, 3 do
        assert.equal("table", type(t[i]))
        assert.equal("function", ty.torch7.typename(t[i]))
      end
      assert.equal("after", t[4])
      assert.is_nil(io.open(mark))
    end)

    it("cut anywhere is refused", function()
      local whole = t7.bytes({ a = t7.object("nn.X", { w = t7.tensor("Float", { 2 }, { 1, 2 }) }),
        b = "text" }, options)
      folder.with(function(dir)
        local step = options.format and 0 or 1
        for n = 0, #whole - 2 do
          -- an ascii number that is cut is another number
          if step == 1 or whole:sub(n, n):find("%s") then
            folder.write(dir .. "/x.t7", whole:sub(1, n))
            assert.raises("format", ty.torch7.load, dir .. "/x.t7")
          end
        end
      end)
    end)
  end)
end

describe("a damaged file of torch.save", function()
  local function tensor(sizes, strides, offset, storage)
    return t7.bytes(t7.tensor("Float", sizes, nil, { strides = strides, offset = offset,
      storage = storage or t7.storage("Float", { 1, 2, 3, 4 }) }))
  end

  local rows = {
    ["with an unknown type"] = { "\9\0\0\0", "is no type of an object" },
    ["that is empty"] = { "", "is empty" },
    ["that is another one"] = { "PK\3\4" .. ("\0"):rep(30), "is this a file of torch.save?" },
    ["with a long text"] = { "\2\0\0\0\255\255\255\127abc", "are announced" },
    ["with a negative text"] = { "\2\0\0\0\255\255\255\255", "a text of -1 bytes" },
    ["with a large table"] = { "\3\0\0\0\1\0\0\0\255\255\255\127", "a table of 2147483647" },
    ["with a key that is nil"] = { "\3\0\0\0\1\0\0\0\1\0\0\0" .. ("\0"):rep(8), "is nil" },
    ["with a boolean of 2"] = { "\5\0\0\0\2\0\0\0", "a boolean of 2" },
    ["with a negative size"] = { tensor({ -1 }, { 1 }), "a size of -1" },
    ["with a negative stride"] = { tensor({ 2 }, { -1 }, 2), "a stride of -1" },
    ["with an offset of 0"] = { tensor({ 2 }, { 1 }, 0), "elements -1 to 0" },
    ["with a far stride"] = { tensor({ 2 }, { 4 }), "elements 0 to 4 of a storage of 4" },
    ["with a huge expansion"] = { tensor({ 2 ^ 40 }, { 0 }), "over a storage of 4" },
    ["with another storage"] = { tensor({ 2 }, { 1 }, 1, t7.storage("Double", { 1, 2 })),
      "is a torch.DoubleStorage" },
    ["without a storage"] = { t7.bytes(t7.tensor("Float", { 2 })), "is nothing" },
    ["with 17 dimensions"] = { t7.bytes(t7.tensor("Float",
      { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 1 })), "of 17 dimensions" },
    ["with fields that are a number"] = { t7.bytes(t7.object("nn.X", 5)), "are number 5" },
    ["with a word for a number"] = { "1\nabc\n", "is no number" },
    ["with a storage that is a part of itself"] = { t7.bytes(t7.raw(function(w)
      w:int(4) w:int(1) w:int(3) w:text("V 1") w:int(17) w:text("torch.FloatTensor")
      w:int(1) w:long(2) w:long(1) w:long(1)
      w:int(4) w:int(1)
    end)), "is a part of itself" },
  }
  for name, row in pairs(rows) do
    it("is refused: " .. name, function() refused(row[1], row[2]) end)
  end

  it("that is missing is an error of the system", function()
    assert.raises("io", ty.torch7.load, "/no/such/file.t7")
  end)
end)

describe("a large file of torch.save", function()
  it("may be as deep as it likes", function()
    local parts, n = {}, 100000
    local function int(v) return ffi.string(ffi.new("int32_t[1]", v), 4) end
    for i = 1, n do
      parts[i] = int(3) .. int(i) .. int(1) .. int(5) .. int(1)
    end
    local t = load_bytes(table.concat(parts) .. int(0))
    for _ = 1, n do
      t = t[true]
    end
    assert.is_nil(t)
  end)

  it("takes memory for what is used", function()
    folder.with(function(dir)
      local n = 2 ^ 20
      folder.write(dir .. "/x.t7", t7.bytes(t7.raw(function(w)
        w:int(4) w:int(1) w:int(3) w:text("V 1") w:int(17) w:text("torch.FloatTensor")
        w:int(1) w:long(n) w:long(1) w:long(1)
        w:int(4) w:int(2) w:int(3) w:text("V 1") w:int(18) w:text("torch.FloatStorage")
        w:long(n)
        w:put(("\0\0\128\63"):rep(n))
      end)))
      collectgarbage()
      collectgarbage()
      ty.waitall()
      local before = ty.live().bytes
      local x = ty.torch7.load(dir .. "/x.t7")
      assert.is_true(ty.live().bytes <= before)
      assert.equal(1, x[n - 1]:asscalar())
      assert.is_true(ty.live().bytes >= before + 4 * n)
    end)
  end)
end)
