-- Data sets, samplers and batchify: gluon.data without threads and pictures.

local ty = require "tycho"

local data, nd = ty.gluon.data, ty.nd

local function numbers(iterator)
  local list = {}
  for i in iterator do
    list[#list + 1] = type(i) == "table" and table.concat(i, "+") or i
  end
  return table.concat(list, " ")
end

local function samples(set)
  local list = {}
  for i = 0, set:len() - 1 do
    list[#list + 1] = set[i]
  end
  return list
end


describe("a data set", function()
  it("numbers samples from 0, several values in a list", function()
    local set = data.ArrayDataset(nd.arange(6):reshape{ 3, 2 }, nd.array({ 7, 8, 9 },
      { dtype = "int32" }))
    assert.equal(3, set:len())
    local x, t = set:get(1)
    assert.near({ 2, 3 }, x)
    assert.equal(8, t)
    assert.equal(2, #set[1])
    assert.equal(9, set[2][2])
  end)

  it("refuses samples that are not there", function()
    local sets = { data.ArrayDataset(nd.zeros{ 3, 2 }), data.SimpleDataset{ 1, 2, 3 } }
    sets[3], sets[4] = sets[2]:take(2), sets[2]:transform(function(v) return v end)
    for _, set in ipairs(sets) do
      for _, i in ipairs{ -1, set:len(), 0.5 } do
        local e = assert.raises("index", function() return set[i] end)
        assert.equal(tostring(i), e.argument)
        assert.raises("index", set.get, set, i)
      end
    end
  end)

  it("takes arrays of one length", function()
    local e = assert.raises("shape", data.ArrayDataset, nd.zeros{ 3 }, nd.zeros{ 4 })
    assert.equal("2", e.argument)
    assert.raises("type", data.ArrayDataset, nd.zeros{ 3 }, 4)
    assert.raises("value", data.ArrayDataset)
  end)

  it("takes lists and data sets beside arrays", function()
    local inner = data.SimpleDataset{ 1, 2, 3 }:transform(function(v) return v * v end)
    local set = data.ArrayDataset(nd.arange(3), { "a", "b", "c" }, inner)
    assert.same({ 2, "c", 9 }, set[2])
    assert.same({ 1, 2 }, data.ArrayDataset({ 1, 2, 3 }, { 2, 3, 4 })[0])
    assert.equal(3, data.ArrayDataset({ 1, 2, 3 })[2])
  end)

  it("of one's own has get and len", function()
    local Own = data.Dataset:extend("Own")
    local e = assert.raises("unsupported", function() return Own():len() end)
    assert.matches("Own", e.message)
    function Own:init(n) self.n = n end
    function Own:len() return self.n end
    function Own:get(i) return i, i + 1, nil end
    assert.same({ 2, 3 }, Own(4)[2])
    assert.raises("name", function() return Own(4).nothing end)
  end)

  it("is changed lazily or at once", function()
    local calls = 0
    local set = data.ArrayDataset(nd.arange(3), nd.arange(3))
    local function double(a, b)
      calls = calls + 1
      return a * 2, b
    end
    local lazy = set:transform(double)
    assert.equal(0, calls)
    assert.same({ 4, 2 }, lazy[2])
    local now = set:transform{ double, lazy = false }
    assert.equal(4, calls)
    assert.same({ 4, 2 }, now[2])
    assert.same({ 4, 2 }, set:transform_first(function(a) return a * 2, 77 end)[2])
    assert.equal(4, calls)
  end)

  it("is filtered, sharded, taken from and sampled", function()
    local set = data.SimpleDataset{ 1, 2, 3, 4, 5 }
    assert.same({ 3, 4, 5 }, samples(set:filter(function(v) return v > 2 end)))
    assert.same({ 1, 2 }, samples(set:shard(3, 0)))
    assert.same({ 5 }, samples(set:shard(3, 2)))
    assert.same({ 1, 2, 3, 4, 5 }, samples(set:take()))
    assert.same({ 2, 3 }, samples(set:sample(data.SequentialSampler(2, 1))))
    assert.same({ 4 }, samples(set:filter(function(v) return v > 2 end):shard(3, 1)))
    assert.raises("value", set.shard, set, 2, 2)
    assert.raises("value", set.shard, set, 2, -1)
    assert.raises("value", set.take, set, -1)
    assert.raises("index", set.sample, set, data.SequentialSampler(6))
    assert.raises("type", set.sample, set, { 1, 2 })
  end)

  it("of records needs an index", function()
    local stem = os.tmpname()
    os.remove(stem)
    local writer = ty.recordio.MXIndexedRecordIO(stem .. ".idx", stem .. ".rec", "w")
    for i = 0, 2 do
      writer:write_idx(i, "record " .. i)
    end
    writer:close()
    assert.same({ "record 0", "record 1", "record 2" },
      samples(data.RecordFileDataset(stem .. ".rec")))
    os.remove(stem .. ".idx")
    local e = assert.raises("io", data.RecordFileDataset, stem .. ".rec")
    assert.equal(stem .. ".idx", e.argument)
    os.remove(stem .. ".rec")
  end)
end)


describe("samplers", function()
  it("begin anew in each loop", function()
    local s = data.SequentialSampler(4, 2)
    assert.equal("2 3 4 5", numbers(s))
    s(nil, nil)
    assert.equal("2 3 4 5", numbers(s))
    assert.equal(4, s:len())
  end)

  it("draw orders from ty.random", function()
    local s = data.RandomSampler(20)
    assert.raises("state", function()
      for _ in s do
        for _ in s do end
      end
    end)
    ty.random.seed(3)
    local a, b = numbers(s), numbers(s)
    assert.not_equal(a, b)
    ty.random.seed(3)
    assert.equal(a, numbers(s))
    local list = {}
    for i in s do
      list[#list + 1] = i
    end
    table.sort(list)
    assert.equal(0, list[1])
    assert.equal(19, list[20])
  end)

  it("make batches with three kinds of ends", function()
    local function batches(mode)
      return data.BatchSampler(data.SequentialSampler(7), 3, mode)
    end
    assert.equal("0+1+2 3+4+5 6", numbers(batches "keep"))
    assert.equal("0+1+2 3+4+5", numbers(batches "discard"))
    local s = batches "rollover"
    assert.equal(2, s:len())
    assert.equal("0+1+2 3+4+5", numbers(s))
    assert.equal("6+0+1 2+3+4", numbers(s))
    assert.equal(3, s:len())
    assert.equal("5+6+0 1+2+3 4+5+6", numbers(s))
    assert.equal(2, s:len())
    assert.raises("value", batches, "other")
    assert.raises("type", data.BatchSampler, { 1, 2 }, 2)
    assert.raises("type", data.FilterSampler, function() return true end, 3)
  end)

  it("go through in strides", function()
    local Interval = require("tycho.gluon.contrib.data").IntervalSampler
    assert.equal("0 3 6 1 4 2 5", numbers(Interval(7, 3)))
    assert.equal("0 3 6", numbers(Interval{ 7, 3, rollover = false }))
    assert.equal(3, Interval{ 7, 3, rollover = false }:len())
    assert.raises("value", Interval, 3, 4)
    assert.raises("unsupported", function()
      return require("tycho.gluon.contrib.data").text.WikiText2
    end)
    assert.raises("unsupported", data.DataLoaderV1)
  end)

  it("of one's own have iter and len", function()
    local Odd = data.Sampler:extend("Odd")
    function Odd:init(n) self.n = n end
    function Odd:len() return math.floor(self.n / 2) end
    function Odd:iter()
      local i = -1
      return function()
        i = i + 2
        return i < self.n and i or nil
      end
    end
    assert.equal("1 3 5", numbers(Odd(7)))
    assert.equal("1+3 5", numbers(data.BatchSampler(Odd(7), 2)))
    assert.raises("unsupported", function() return data.Sampler():len() end)
  end)
end)


describe("batchify", function()
  local batchify = data.batchify

  it("stacks arrays, numbers and lists", function()
    assert.near({ { 1, 1 }, { 2, 2 } }, batchify.stack{ nd.full({ 2 }, 1), nd.full({ 2 }, 2) })
    assert.equal("float32", batchify.stack({ 1, 2 }).dtype)
    local fields = batchify.stack{ { 1, nd.ones{ 2 } }, { 2, nd.ones{ 2 } } }
    assert.shape({ 2 }, fields[1])
    assert.shape({ 2, 2 }, fields[2])
    local a, b = batchify.default{ { 1, 2 }, { 3, 4 }, { 5, 6 } }
    assert.near({ 1, 3, 5 }, a)
    assert.near({ 2, 4, 6 }, b)
    assert.raises("shape", batchify.stack, { nd.zeros{ 2 }, nd.zeros{ 3 } })
    assert.raises("type", batchify.stack, { nd.zeros{ 2 }, 3 })
    assert.raises("value", batchify.stack, {})
  end)

  it("stacks more arrays than a call takes", function()
    local list = {}
    for i = 1, 9000 do
      list[i] = nd.full({ 1 }, 1)
    end
    assert.equal(9000, batchify.stack(list):sum():asscalar())
  end)

  it("pads to the longest", function()
    local f = batchify.pad{ val = -1 }
    assert.near({ { 1, 2, 3 }, { 4, -1, -1 } }, f{ { 1, 2, 3 }, { 4 } })
    local x = f{ nd.ones{ 2, 1 }, nd.ones{ 1, 3 } }
    assert.near({ { { 1, -1, -1 }, { 1, -1, -1 } }, { { 1, 1, 1 }, { -1, -1, -1 } } }, x)
    assert.raises("shape", batchify.pad(0), { nd.ones{ 2, 1 }, nd.ones{ 1, 3 } })
    assert.raises("shape", f, { nd.ones{ 2, 1 }, nd.ones{ 1 } })
    assert.raises("value", batchify.pad(2), { nd.ones{ 2, 1 } })
  end)

  it("takes a function for each value", function()
    local f = batchify.group(batchify.pad(), batchify.stack)
    local x, t = f{ { nd.ones{ 2 }, 5 }, { nd.ones{ 3 }, 6 } }
    assert.shape({ 2, 3 }, x)
    assert.near({ 5, 6 }, t)
    assert.raises("value", f, { { 1, 2, 3 } })
    assert.raises("type", batchify.group, 3)
  end)
end)
