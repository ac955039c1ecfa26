-- Arrays in several files with an index, and safetensors that are read when they are used.

local folder = require "spec.support.folder"
local json = require "tycho.core.json"
local pytorch = require "spec.support.pytorch"
local ty = require "tycho"

-- Processor time that a folder may take to open, the least of some tries: a hundredth is usual, and
-- under a sanitizer ten times as much.
local SANITIZED = (os.getenv("SANITIZER") or "") ~= ""
local SECONDS, TRIES = SANITIZED and 2.5 or 0.25, 5

local function make_index(map)
  local list = {}
  for name, file in pairs(map) do
    list[#list + 1] = { name, file }
  end
  return json.text(json.object{ { "metadata", { total_size = 8 } },
    { "weight_map", json.object(list) } })
end

local function refused(dir, index, text, code)
  folder.write(dir .. "/m.safetensors.index.json", index)
  local e = assert.raises(code or "format", ty.nd.load, dir .. "/m.safetensors.index.json")
  assert.truthy(e.message:find(text, 1, true), e.message)
end

describe("an index of several files", function()
  it("has the arrays of all", function()
    folder.with(function(dir)
      ty.nd.save(dir .. "/1.safetensors", { a = ty.nd.array{ 1, 2 }, other = ty.nd.array{ 9 } })
      ty.nd.save(dir .. "/2.safetensors", { b = ty.nd.array{ 3 } })
      local path = dir .. "/m.safetensors.index.json"
      folder.write(path, make_index{ a = "1.safetensors", b = "2.safetensors" })
      local dict, names, metadata = ty.nd.load(path)
      assert.same({ "a", "b" }, names)
      assert.same({ 1, 2 }, dict.a:totable())
      assert.same({ 3 }, dict.b:totable())
      assert.equal(8, metadata.total_size)
    end)
  end)

  it("may name arrays without elements, which are not there", function()
    folder.with(function(dir)
      local header = '{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'
      folder.write(dir .. "/1.safetensors", string.char(#header) .. ("\0"):rep(7) .. header)
      folder.write(dir .. "/2.bin", pytorch.archive{ { "v", pytorch.tensor{ class = "FloatStorage",
        n = 0, size = { 0 }, stride = { 1 } } }, storages = { ["0"] = "" } })
      folder.write(dir .. "/m.index.json", make_index{ x = "1.safetensors", v = "2.bin" })
      local dict, names = ty.nd.load(dir .. "/m.index.json")
      assert.same({}, names)
      assert.is_nil(dict.x)
    end)
  end)

  -- 10 GB of holes, which take no room on a disk
  it("opens at once whatever its files hold, and reads what is used", function()
    folder.with(function(dir)
      local FILES, ARRAYS, COUNT = 5, 50, 10 ^ 7
      local map = {}
      for k = 1, FILES do
        local entries = {}
        for i = 1, ARRAYS do
          local name = ("layer%d.weight%d"):format(k, i)
          map[name] = k .. ".safetensors"
          entries[i] = { name, json.object{ { "dtype", "F32" }, { "shape", { COUNT } },
            { "data_offsets", { 4 * COUNT * (i - 1), 4 * COUNT * i } } } }
        end
        local header = json.text(json.object(entries))
        local file = assert(io.open(("%s/%d.safetensors"):format(dir, k), "wb"))
        file:write(string.char(#header % 256, math.floor(#header / 256), 0, 0, 0, 0, 0, 0), header)
        file:seek("cur", 4 * COUNT * ARRAYS - 4)
        file:write("\0\0\128\63")
        file:close()
      end
      folder.write(dir .. "/m.index.json", make_index(map))
      collectgarbage()
      collectgarbage()
      ty.nd.waitall()
      local before, seconds, dict, names = ty.live().bytes, math.huge, nil, nil
      for _ = 1, TRIES do
        local start = os.clock()
        dict, names = ty.nd.load(dir .. "/m.index.json")
        seconds = math.min(seconds, os.clock() - start)
      end
      assert.equal(FILES * ARRAYS, #names)
      assert.is_true(ty.live().bytes <= before)
      assert.is_true(seconds < SECONDS, seconds)
      assert.equal(1, dict["layer3.weight50"][COUNT - 1]:asscalar())
      assert.is_true(ty.live().bytes - before < 2 * 4 * COUNT)
    end)
  end)

  it("that does not fit is refused", function()
    folder.with(function(dir)
      ty.nd.save(dir .. "/1.safetensors", { a = ty.nd.array{ 1, 2 } })
      refused(dir, make_index{ a = "../1.safetensors" }, "not one beside the index")
      refused(dir, make_index{ a = "/etc/passwd" }, "not one beside the index")
      refused(dir, make_index{ a = ".." }, "not one beside the index")
      refused(dir, make_index{ a = "1.safetensors", b = "1.safetensors" }, "'b' is not in")
      refused(dir, make_index{ a = "none.safetensors" }, "none.safetensors", "io")
      refused(dir, "{}", "no 'weight_map'")
      refused(dir, "{", "bad JSON")
      refused(dir, '{"weight_map": {"a": 3}}', "not one beside the index")
    end)
  end)
end)

describe("a safetensors file", function()
  it("takes memory for the arrays that are used", function()
    folder.with(function(dir)
      local path, n = dir .. "/x.safetensors", 2 ^ 18
      ty.nd.save(path, { a = ty.nd.ones{ n }, b = ty.nd.zeros{ n } })
      collectgarbage()
      collectgarbage()
      ty.nd.waitall()
      local before = ty.live().bytes
      local dict = ty.nd.load(path)
      assert.is_true(ty.live().bytes <= before)
      assert.equal(1, dict.a[n - 1]:asscalar())
      local used = ty.live().bytes - before
      assert.is_true(used >= 4 * n and used < 8 * n, used)
    end)
  end)

  it("has 8-bit floats and unsigned integers, converted", function()
    local rows = { { "F8_E4M3", "\56", "float32", 1 }, { "F8_E5M2", "\60", "float32", 1 },
      { "U16", "\255\255", "int32", 65535 }, { "I16", "\254\255", "int32", -2 },
      { "U32", "\255\255\255\255", "int64", 2 ^ 32 - 1 },
      { "U64", "\1\0\0\0\0\0\0\0", "int64", 1 } }
    for _, row in ipairs(rows) do
      local header = ('{"x":{"dtype":"%s","shape":[],"data_offsets":[0,%d]}}')
        :format(row[1], #row[2])
      local x = ty.nd.load_frombuffer(string.char(#header) .. ("\0"):rep(7) .. header .. row[2]).x
      assert.equal(row[3], x.dtype)
      assert.equal(row[4], x:asscalar())
    end
  end)

  it("may have arrays without elements, which are not there", function()
    local header = '{"x":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},'
      .. '"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    local dict, names = ty.nd.load_frombuffer(string.char(#header) .. ("\0"):rep(7) .. header
      .. "\0\0\128\63")
    assert.is_nil(dict.x)
    assert.equal(1, dict.y:asscalar())
    assert.same({ "y" }, names)
  end)

  it("says what it says of itself", function()
    local header = '{"__metadata__":{"format":"pt"}}'
    local _, _, metadata = ty.nd.load_frombuffer(string.char(#header) .. ("\0"):rep(7) .. header)
    assert.same({ format = "pt" }, metadata)
  end)
end)
