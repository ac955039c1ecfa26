-- Operators that a GPU runs on the host, over copies of their operands: the list (hosted.lua) is
-- that of the registry, name by name. Who writes a kernel strikes its operator; who adds an
-- operator without one says so there.

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local hosted = require "spec.cuda.hosted"

local function how(name, backward)
  local text = ffi.new("const char *[1]")
  assert.equal(0, native.C.ty_op_gpu(name, backward, text))
  return ffi.string(text[0])
end

local function found()
  local list, info = {}, ffi.new("ty_opinfo")
  for i = 0, native.C.ty_op_count() - 1 do
    native.C.ty_op_info(i, info)
    local name, parts = ffi.string(info.name), {}
    parts[1] = how(name, 0) == "host" and "forward" or nil
    parts[#parts + 1] = how(name, 1) == "host" and "gradient" or nil
    list[name] = parts[1] and table.concat(parts, ", ")
  end
  return list
end

describe("operators without a kernel for a GPU", function()
  it("are those listed", function()
    assert.same(hosted, found())
  end)

  it("are distinguished from formulas, kernels and what runs nowhere", function()
    assert.equal("formula", how("exp", 0))
    assert.equal("formula", how("exp", 1))
    assert.equal("kernel", how("FullyConnected", 0))
    assert.equal("kernel", how("FullyConnected", 1))
    assert.equal("nothing", how("Custom", 0))
    assert.equal("nothing", how("argmax", 1))
    assert.is_true(native.C.ty_op_gpu("no_such_operator", 0, ffi.new("const char *[1]")) ~= 0)
  end)
end)
