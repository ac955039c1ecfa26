-- Names that a namespace does not have (runtime/lua/tycho/core/namespace.lua).

local ty = require "tycho"
require "spec.helper"

local VALUES = { null = true, newaxis = true, ellipsis = true }
local INNER = { "nd.random", "nd.linalg", "nd.image", "nd.contrib", "sym.random", "sym.linalg",
  "sym.image", "sym.contrib" }

-- Returns all names of `ty` that hold a table of functions and classes, as its own error lists
-- them.
local function namespaces()
  local list = { [""] = ty }
  local accepted = assert.raises("name", function() return ty.no_such_name end).names
  for _, name in ipairs(accepted) do
    local value = not name:find(".", 1, true) and not VALUES[name] and ty[name]
    if type(value) == "table" and not rawget(value, "class_name") then
      list["." .. name] = value
    end
  end
  for _, path in ipairs(INNER) do
    local outer, inner = path:match("(%w+)%.(%w+)")
    list["." .. path] = ty[outer][inner]
  end
  return list
end

describe("an unknown name", function()
  it("is an error in every namespace", function()
    local count = 0
    for path, namespace in pairs(namespaces()) do
      local ok, e = pcall(function() return namespace.no_such_name end)
      assert.is_false(ok, "ty" .. path .. ".no_such_name is nil")
      assert.is_true(ty.is_error(e), tostring(e))
      assert.equal("name", e.code)
      assert.truthy(e.message:find("'no_such_name'", 1, true), e.message)
      assert.is_true(#e.candidates > 0, "ty" .. path .. " suggests nothing")
      count = count + 1
    end
    assert.is_true(count > 40, count .. " namespaces")
  end)

  it("suggests what is spelled alike, also what is found only when it is asked for", function()
    local cases = {
      [function() return ty.random.mulitnomial end] = "multinomial",
      [function() return ty.mon.Monitr end] = "Monitor",
      [function() return ty.test_utils.assert_almost_eq end] = "assert_almost_equal",
      [function() return ty.recordio.MXRecordio end] = "MXRecordIO",
      [function() return ty.profiler.set_stat end] = "set_state",
      [function() return ty.model.FeedForwrd end] = "FeedForward",
      [function() return ty.mod.Modul end] = "Module",
      [function() return ty.sym.linalg.syvd end] = "syevd",
      [function() return ty.nd.contrib.box_nsm end] = "box_nms",
      [function() return ty.rnd.unifrom end] = "uniform",
    }
    for f, wanted in pairs(cases) do
      local e = assert.raises("name", f)
      assert.equal(wanted, e.candidates[1])
      assert.truthy(e.message:find("did you mean '" .. wanted .. "'?", 1, true), e.message)
    end
  end)

  it("is none where Lua itself asks, nor for keys that are no text", function()
    for path, namespace in pairs(namespaces()) do
      assert.is_nil(namespace.__call, path)
      assert.is_nil(namespace[1], path)
    end
  end)

  it("leaves what may be absent", function()
    assert.is_nil(ty.log.sink)
  end)

  it("in a namespace of what is not part of Tycho says so", function()
    assert.raises("unsupported", function() return ty.nd.sparse.zeros end)
    assert.raises("unsupported", function() return ty.sym.sparse.dot end)
  end)
end)
