-- contrib.cache_append: what it writes, and networks that make one position at a time.
local noise = require("spec.support.arrays").noise
local ty = require "tycho"
require "spec.helper"

local nd, sym = ty.nd, ty.sym
local V = sym.Variable
local append = nd.contrib.cache_append

local function call(length, o)
  o = o or {}
  local a = { key = noise{ 2, 3, 4 }, value = noise{ 2, 3, 5 }, length = length,
    key_cache = nd.zeros({ 2, 8, 4 }, { dtype = "float64" }),
    value_cache = nd.zeros({ 2, 8, 5 }, { dtype = "float64" }) }
  for name, x in pairs(o) do
    a[name] = x
  end
  return append(a), a
end

describe("contrib.cache_append", function()
  it("writes after what is there", function()
    for _, dtype in ipairs{ "float32", "float64", "int32", "int64" } do
      local y, a = call(nd.array({ 0, 5 }, { dtype = dtype }))
      assert.same({ 3, 8 }, y:totable())
      assert.equal(dtype, y.dtype)
      for name, cache in pairs{ key = a.key_cache, value = a.value_cache } do
        assert.near(a[name][0], cache[{ 0, ":3" }], 0)
        assert.near(a[name][1], cache[{ 1, "5:" }], 0)
        assert.equal(0, nd.abs(cache[{ 0, "3:" }]):max():asscalar())
        assert.equal(0, nd.abs(cache[{ 1, ":5" }]):max():asscalar())
      end
    end
  end)

  it("takes any type of keys", function()
    local function zeros(n) return nd.zeros({ 2, n, 4 }, { dtype = "float16" }) end
    local y = append{ key = zeros(3) + 1, value = zeros(3) + 2, length = nd.array{ 0, 1 },
      key_cache = zeros(4), value_cache = zeros(4) }
    assert.same({ 3, 4 }, y:totable())
  end)

  it("refuses lengths that leave no place, and writes nothing then", function()
    for _, bad in ipairs{ { 0, 6 }, { -1, 0 }, { 0, 0 / 0 }, { 1e30, 0 } } do
      local e = assert.raises("run", function() return (call(nd.array(bad))):totable() end)
      assert.is_truthy(tostring(e):find("has no place for 3 more", 1, true), tostring(e))
    end
    local cache = nd.zeros({ 2, 8, 4 }, { dtype = "float64" })
    pcall(function() call(nd.array{ 0, 6 }, { key_cache = cache }):totable() end)
    local ok, sum = pcall(function() return nd.abs(cache):max():asscalar() end)
    assert.is_true(not ok or sum == 0)
  end)

  it("refuses what does not fit", function()
    local long = { key = noise{ 2, 9, 4 }, value = noise{ 2, 9, 5 } }
    assert.raises("shape", call, nd.array{ 0, 0 }, long)
    assert.raises("shape", call, nd.array{ 0 })
    assert.raises("dtype", call, nd.array({ 0, 0 }, { dtype = "float16" }))
    assert.raises("dtype", call, nd.array{ 0, 0 }, { key = nd.ones{ 2, 3, 4 } })
  end)

  it("makes a position without an allocation", function()
    local x = sym.FullyConnected{ data = V "data", num_hidden = 24, flatten = false, name = "qkv" }
    local parts = sym.split{ x, num_outputs = 3, axis = 2 }
    local keys, values, length = V "keys", V "values", V "length"
    local appended = sym.contrib.cache_append{ key = parts[2], value = parts[3], length = length,
      key_cache = keys, value_cache = values }
    local net = sym.softmax{ sym.contrib.attention{ query = parts[1], key = keys, value = values,
      valid_length = appended, heads = 2 } }
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 1, 1, 8 }, keys = { 1, 16, 8 },
      values = { 1, 16, 8 }, length = { 1 }, grad_req = "null" }
    exe.arg_dict.qkv_weight[":"] = 0.1
    exe:forward()[1]:wait_to_read()
    local before = exe:stats()
    for position = 1, 15 do
      exe.arg_dict.data[":"], exe.arg_dict.length[":"] = position, position
      exe:forward()[1]:wait_to_read()
    end
    local after = exe:stats()
    assert.equal(before.allocations, after.allocations)
    assert.equal(before.runs + 15, after.runs)
  end)

  it("makes positions one by one, as attention over all at once", function()
    local T, HEADS, KV, D = 40, 4, 2, 6
    local q, k, v = noise{ 2, T, HEADS * D }, noise{ 2, T, KV * D }, noise{ 2, T, KV * D }
    local want = nd.contrib.attention(q, k, v, { heads = HEADS, kv_heads = KV, causal = true })
    local keys, values, length = V "keys", V "values", V "length"
    local appended = sym.contrib.cache_append{ key = V "k", value = V "v", length = length,
      key_cache = keys, value_cache = values }
    local net = sym.contrib.attention{ query = V "q", key = keys, value = values,
      valid_length = appended, offset = length, causal = true, heads = HEADS, kv_heads = KV }
    for _, piece in ipairs{ 1, 8 } do
      local exe = net:simple_bind{ ctx = ty.cpu(), q = { 2, piece, HEADS * D },
        k = { 2, piece, KV * D }, v = { 2, piece, KV * D }, keys = { 2, T, KV * D },
        values = { 2, T, KV * D }, grad_req = "null",
        type_dict = { q = "float64", k = "float64", v = "float64", length = "int32" } }
      assert.same({ "keys", "values" }, net:list_auxiliary_states())
      exe.aux_dict.keys[":"], exe.aux_dict.values[":"] = 0 / 0, 0 / 0
      for at = 0, T - 1, piece do
        local rows = { ":", ("%d:%d"):format(at, at + piece) }
        exe.arg_dict.length[":"] = at
        local y = exe:forward{ q = q[rows], k = k[rows], v = v[rows] }[1]
        assert.near(want[rows], y, 1e-13, 1e-13)
      end
    end
  end)
end)
