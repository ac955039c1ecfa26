-- The registry: names, what it says of an operator, how many there are.
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
      assert.is_truthy(other.added or other.doc:match("%.$"), name)
    end
  end)

  it("counts operators, and lists those that were added", function()
    local count = ty.op.count()
    assert.equal(#ty.op.list(), count.total)
    local output = shell.tycho([[-e '
      local op = require("tycho").op
      op.pointwise{name = "twice", args = {"a"}, formula = "2 * a"}
      local count = op.count()
      print(op.info("twice").added, op.info("square").added, count.total, count.added)']])
    assert.equal(("true\tfalse\t%d\t1\n"):format(count.total - count.added + 1), output)
  end)

  it("has what the catalogue has, and nothing else", function()
    local listed, more = {}, {}
    for tier, names in ipairs(catalogue) do
      local missing = {}
      for _, name in ipairs(names) do
        assert.is_nil(listed[name], name)
        listed[name] = true
        local ok, info = pcall(ty.op.info, name)
        if not ok or info.name ~= name then missing[#missing + 1] = name end
      end
      assert.equal(catalogue.left_out[tier], table.concat(missing, " "))
    end
    for _, name in ipairs(ty.op.list()) do
      if not listed[name] and not ty.op.info(name).added then more[#more + 1] = name end
    end
    assert.equal("", table.concat(more, " "))
  end)

  it("prints the count", function()
    local output = shell.tycho([[-e 'require("tycho").op.count()']])
    assert.is_truthy(output:match("total = %d+"), output)
  end)
end)
