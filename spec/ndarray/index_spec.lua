-- Texts among the keys of an array, one axis each; numbers in a row where a list of them belongs.

local ty = require "tycho"
require "spec.helper"

describe("numbers in a row", function()
  local x = ty.nd.arange(0, 6):reshape(2, 3)

  it("are sizes, axes, repetitions", function()
    assert.same({ 3, 2 }, x:transpose(1, 0).shape)
    assert.near(x:transpose{ 1, 0 }, x:transpose(1, 0))
    assert.same({ 4, 3 }, x:tile(2, 1).shape)
    assert.same({ 2, 3 }, ty.nd.zeros(2, 3).shape)
  end)

  it("are followed by what else a creation takes", function()
    assert.equal("int32", ty.nd.array({ 1, 2 }, ty.cpu(), "int32").dtype)
    assert.equal("int32", ty.nd.ones({ 1, 2 }, nil, "int32").dtype)
    assert.same({ 2, 3 }, ty.nd.ones(2, 3, { dtype = "int32" }).shape)
  end)
end)

describe("a text in a list of keys", function()
  local x = ty.nd.arange(0, 12):reshape{ 3, 4 }

  it("is the slice of its axis", function()
    assert.near({ 0, 4, 8 }, x[{ ":", 0 }])
    assert.near({ { 4, 6 }, { 8, 10 } }, x[{ "1:", { 0, 2 } }])
    assert.near({ 3, 7, 11 }, x[{ "...", -1 }])
    local y = x:copy()
    y[{ "1", ":2" }] = 9
    assert.near({ { 0, 1, 2, 3 }, { 9, 9, 6, 7 }, { 8, 9, 10, 11 } }, y)
  end)

  it("leaves the list as it was", function()
    local keys = { ":", 0 }
    local _ = x[keys]
    assert.same({ ":", 0 }, keys)
  end)

  it("is refused where it is no slice, or several", function()
    for _, text in ipairs{ "a", "1:, 2", "" } do
      assert.raises("value", function() return x[{ text, 0 }] end)
    end
  end)
end)

describe("a key that selects everything", function()
  it("is the array itself where it is one slice without bounds, else a view", function()
    local x = ty.nd.ones{ 2, 3 }
    for key, itself in pairs{ [":"] = true, ["::1"] = true, ["..."] = false, ["0:"] = false,
      ["0:2"] = false, [":, :"] = false, [":, 0:3"] = false } do
      local y = x[key]
      assert.equal(itself, rawequal(x, y))
      y[":"] = 7
      assert.near({ { 7, 7, 7 }, { 7, 7, 7 } }, x)
      x[":"] = 1
    end
  end)

  it("has no history of its own where it was taken unrecorded", function()
    local x = ty.nd.array{ 1, 2 }
    x:attach_grad()
    local part = x["0:2"]
    ty.autograd.record(function()
      return part + x * 3
    end):backward()
    assert.near({ 3, 3 }, x.grad)
    part:attach_grad()
    assert.near({ 3, 3 }, x.grad)
  end)
end)
