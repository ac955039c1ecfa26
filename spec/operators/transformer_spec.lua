-- Parts of today's language models: values of contrib.RMSNorm, contrib.rotary_embedding,
-- contrib.swiglu against what other operators and Lua give.
local ty = require "tycho"
local noise = require("spec.support.arrays").noise
require "spec.helper"

local nd = ty.nd
local contrib = nd.contrib
local F64 = { dtype = "float64" }

local function refused(code, words, f, ...)
  local e = assert.raises(code, f, ...)
  assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
end

describe("contrib.RMSNorm", function()
  it("divides by the root of the mean of squares", function()
    for _, axis in ipairs{ -1, 0, 1 } do
      local x = noise{ 3, 40, 7 }
      local size = x.shape[axis < 0 and 3 or axis + 1]
      local shape = { 1, 1, 1 }
      shape[axis < 0 and 3 or axis + 1] = size
      local gamma = noise{ size }
      local mean = nd.mean(x * x, { axis = axis, keepdims = true })
      local want = nd.broadcast_mul(nd.broadcast_div(x, nd.sqrt(mean + 0.01)), gamma:reshape(shape))
      assert.near(want, contrib.RMSNorm(x, gamma, { axis = axis, eps = 0.01 }), 1e-13)
    end
  end)

  it("has an epsilon of 1e-6 and keeps half types", function()
    local x = nd.zeros({ 1, 4 }, F64) + 1e-3
    local want = 1e-3 / math.sqrt(1e-6 + 1e-6)
    assert.near(nd.full({ 1, 4 }, want, F64), contrib.RMSNorm(x, nd.ones({ 4 }, F64)), 1e-12)
    local half = contrib.RMSNorm(nd.ones({ 2, 4 }, { dtype = "bfloat16" }),
      nd.ones({ 4 }, { dtype = "bfloat16" }))
    assert.equal("bfloat16", half.dtype)
    assert.near(nd.ones{ 2, 4 }, half:astype "float32", 1e-2)
  end)

  it("refuses a gain of another size", function()
    refused("shape", "gamma", contrib.RMSNorm, nd.ones{ 2, 4 }, nd.ones{ 3 })
  end)
end)

describe("contrib.swiglu", function()
  it("is gate sigmoid(gate) data", function()
    local a, b = noise{ 3, 50 }, noise{ 3, 50 }
    assert.near(a * nd.sigmoid(a) * b, contrib.swiglu(a, b), 1e-14)
  end)
end)

describe("contrib.rotary_embedding", function()
  -- Returns x (N, H, T, size) with the numbers of each head rotated by the angles of its position.
  local function turned(x, o)
    local n, heads, length, size = unpack(x.shape)
    local t, flat = x:totable(), {}
    local all = o.size or size
    for b = 1, n do
      for h = 1, heads do
        for k = 1, length do
          local row = t[b][h][k]
          local y = {}
          for i = 1, size do
            y[i] = row[i]
          end
          local position = (k - 1 + (o.offset and o.offset[b] or 0)) * (o.scale or 1)
          for i = 0, all / 2 - 1 do
            local first = o.interleaved and 2 * i + 1 or i + 1
            local second = o.interleaved and 2 * i + 2 or i + 1 + all / 2
            local angle = position * (o.base or 10000) ^ (-2 * i / all)
            y[first] = row[first] * math.cos(angle) - row[second] * math.sin(angle)
            y[second] = row[first] * math.sin(angle) + row[second] * math.cos(angle)
          end
          for i = 1, size do
            flat[#flat + 1] = y[i]
          end
        end
      end
    end
    return nd.array(flat, F64):reshape{ n, heads, length, size }
  end

  -- Joins heads to (N, T, H * size).
  local function joined(x)
    local n, heads, length, size = unpack(x.shape)
    return nd.transpose(x, { axes = { 0, 2, 1, 3 } }):reshape{ n, length, heads * size }
  end

  it("turns pairs by angles that grow with the position", function()
    for _, o in ipairs{ {}, { interleaved = true }, { size = 4 }, { size = 4, interleaved = true },
      { base = 50, scale = 0.25 }, { offset = { 0, 1000 } }, { offset = { 70, -3 }, size = 2 } } do
      local x = noise{ 2, 3, 150, 8 }
      local want = turned(x, o)
      local options = { layout = "NHTC", base = o.base, scale = o.scale, size = o.size,
        interleaved = o.interleaved, offset = o.offset and nd.array(o.offset, F64) }
      local function with(data, layout)
        options.data, options.layout, options.heads = data, layout, layout ~= "NHTC" and 3 or nil
        return contrib.rotary_embedding(options)
      end
      assert.near(want, with(x, "NHTC"), 1e-12)
      assert.near(joined(want), with(joined(x), "NTC"), 1e-12)
      local function swapped(y) return nd.transpose(joined(y), { axes = { 1, 0, 2 } }) end
      assert.near(swapped(want), with(swapped(x), "TNC"), 1e-12)
    end
  end)

  it("keeps products of queries and keys that are as far apart", function()
    local q, k = noise{ 1, 1, 16 }, noise{ 1, 1, 16 }
    local function product(i, j)
      local a = contrib.rotary_embedding{ data = q, offset = nd.array({ i }, F64) }
      local b = contrib.rotary_embedding{ data = k, offset = nd.array({ j }, F64) }
      return nd.sum(a * b):asscalar()
    end
    assert.near(product(3, 1), product(503, 501), 1e-11)
  end)

  it("turns more pairs than are held at a time", function()
    local x = noise{ 1, 1, 3, 2100 }
    assert.near(turned(x, {}), contrib.rotary_embedding(x, { layout = "NHTC" }), 1e-12)
  end)

  it("refuses what has no pairs", function()
    refused("shape", "3 of 3 numbers of a head cannot turn in pairs", contrib.rotary_embedding,
      nd.ones{ 1, 2, 6 }, { heads = 2 })
    refused("shape", "6 of 4 numbers", contrib.rotary_embedding, nd.ones{ 1, 2, 8 },
      { heads = 2, size = 6 })
    refused("shape", "8 numbers cannot be divided into 3 heads", contrib.rotary_embedding,
      nd.ones{ 1, 2, 8 }, { heads = 3 })
  end)

  it("refuses a base that has no powers, and a factor that is no number", function()
    for _, o in ipairs{ { base = 0 }, { base = -2 }, { base = 0 / 0 }, { base = 1 / 0 },
      { scale = 0 / 0 } } do
      local e = assert.raises("value", contrib.rotary_embedding, nd.ones{ 1, 2, 8 }, o)
      assert.equal(next(o), e.argument)
    end
  end)
end)
