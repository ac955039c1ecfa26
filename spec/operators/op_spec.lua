-- The registry: names, what it tells of an operator, how many there are.
local ty = require "tycho"
local catalogue = require "spec.operators.catalogue"
local shell = require "spec.support.shell"
require "spec.helper"

describe("the registry", function()
  it("has every name once", function()
    local seen, own = {}, {}
    for _, name in ipairs(ty.op.list()) do
      assert.is_nil(own[name], name)
      own[name] = true
    end
    for name in pairs(own) do
      for _, alias in ipairs(ty.op.info(name).aliases) do
        assert.is_nil(own[alias], alias)
        assert.is_nil(seen[alias], alias)
        seen[alias] = true
        assert.equal(name, ty.op.info(alias).name)
      end
    end
  end)

  it("knows inputs, outputs and parameters", function()
    local info = ty.op.info("linalg_trsm")
    assert.equal("_linalg_trsm", info.name)
    assert.same({"A", "B"}, info.inputs)
    assert.same({"output"}, info.outputs)
    assert.equal("alpha", info.params[4].name)
    assert.equal("1", info.params[4].default)
    for _, name in ipairs(ty.op.list()) do
      local other = ty.op.info(name)
      assert.is_truthy(other.tier == 0 or other.doc:match("%.$"), name)
    end
  end)

  it("counts operators by tier", function()
    local count, by_hand = ty.op.count(), {[0] = 0, 0, 0, 0}
    for _, name in ipairs(ty.op.list()) do
      local tier = ty.op.info(name).tier
      by_hand[tier] = by_hand[tier] + 1
    end
    for tier = 0, 3 do assert.equal(by_hand[tier], count[tier]) end
    assert.equal(#ty.op.list(), count.total)
  end)

  it("has what the reference's catalogue has in its first two tiers, and nothing else there",
    function()
      for tier, names in ipairs(catalogue) do
        local listed, missing, more = {}, {}, {}
        for _, name in ipairs(names) do
          listed[name] = true
          local ok, info = pcall(ty.op.info, name)
          if not ok or info.name ~= name or info.tier ~= tier then missing[#missing + 1] = name end
        end
        for _, name in ipairs(ty.op.list()) do
          if ty.op.info(name).tier == tier and not listed[name] then more[#more + 1] = name end
        end
        assert.equal(catalogue.left_out[tier], table.concat(missing, " "))
        assert.equal("", table.concat(more, " "))
        assert.equal(#names - #missing, ty.op.count()[tier])
        assert.equal(#names, ty.op.count().of[tier])
      end
    end)

  it("prints the count", function()
    local output = shell.tycho([[-e 'require("tycho").op.count()']])
    assert.is_truthy(output:match("total = %d+"), output)
  end)
end)
