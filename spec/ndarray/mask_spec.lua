-- Masks as keys of arrays (runtime/lua/tycho/ndarray/mask.lua).

local ty = require "tycho"
require "spec.helper"

local nd = ty.nd

local function mask(values)
  return nd.array(values):astype "bool"
end

describe("a bool array as a key", function()
  local x = nd.array{ { 1, 2, 3 }, { 4, 5, 6 } }

  it("selects where it is true", function()
    assert.same({ 2, 4, 6 }, x[mask{ { 0, 1, 0 }, { 1, 0, 1 } }]:totable())
    assert.same({ 5, 6 }, x[x:gt(4):astype "bool"]:totable())
  end)

  it("selects rows, or places of one axis among other keys", function()
    assert.same({ { 4, 5, 6 } }, x[mask{ 0, 1 }]:totable())
    assert.same({ { 1, 3 }, { 4, 6 } }, x[{ ty.slice(), mask{ 1, 0, 1 } }]:totable())
    assert.same({ { 1, 3 }, { 4, 6 } }, x[{ ty.ellipsis, mask{ 1, 0, 1 } }]:totable())
    assert.same({ 4, 6 }, x[{ 1, mask{ 1, 0, 1 } }]:totable())
  end)

  it("is written through", function()
    local y = x:copy()
    y[y:gt(2):astype "bool"] = 0
    assert.same({ { 1, 2, 0 }, { 0, 0, 0 } }, y:totable())
    y[mask{ { 1, 1, 0 }, { 0, 0, 0 } }] = { 7, 8 }
    assert.same({ { 7, 8, 0 }, { 0, 0, 0 } }, y:totable())
    y[y:gt(100):astype "bool"] = 5
    assert.same({ { 7, 8, 0 }, { 0, 0, 0 } }, y:totable())
  end)

  it("is refused where it selects nothing or does not fit", function()
    assert.raises("index", function() return x[mask{ 0, 0 }] end)
    local e = assert.raises("shape", function() return x[mask{ 1, 0, 1 }] end)
    assert.same({ 3 }, e.got)
    assert.same({ 2 }, e.expected)
    e = assert.raises("shape", function() return x[{ ty.slice(), mask{ 1, 0 } }] end)
    assert.same({ 3 }, e.expected)
  end)
end)

describe("a float array as a key", function()
  it("of 0 and 1 in the array's own shape is refused with a word on masks", function()
    local x = nd.array{ 1, 2, 3 }
    local e = assert.raises("type", function() return x[x:gt(1)] end)
    assert.truthy(e.message:find("boolean_mask", 1, true))
    assert.raises("type", function() x[x:gt(1)] = 0 end)
  end)

  it("holds indices otherwise", function()
    local x = nd.array{ 1, 2, 3 }
    assert.same({ 3, 1, 1 }, x[nd.array{ 2, 0, 0 }]:totable())
    assert.same({ 2, 1 }, x[nd.array{ 1, 0 }]:totable())
    assert.same({ 1, 2, 2 }, x[nd.array({ 0, 1, 1 }, { dtype = "int32" })]:totable())
  end)
end)
