-- Copies between views of one array, and into arrays that are not to be written.

local device = require "spec.support.device"
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local ty = require "tycho"

local C = native.C

local function desc(dtype, n)
  return ffi.new("ty_desc", { dtype = dtype, device = C.TY_CPU, ndim = 1, dim = { n } })
end

local function made(make, ...)
  local out = ffi.new("ty_tensor *[1]")
  local list = { ... }
  list[#list + 1] = out
  native.check(make(unpack(list)), "made")
  return ffi.gc(out[0], C.ty_tensor_free)
end

-- Copies `n` elements of `from` to `to` inside an array of the numbers 1 to 8, both counted from 0.
local function moved(n, from, from_type, to, to_type)
  local x = made(C.ty_tensor_new, desc(C.TY_I32, 8))
  local numbers = ffi.new("int32_t[8]", 1, 2, 3, 4, 5, 6, 7, 8)
  native.check(C.ty_tensor_write(x, numbers, 32), "write")
  local src = made(C.ty_tensor_view, x, desc(from_type, n), 4 * from)
  local dst = made(C.ty_tensor_view, x, desc(to_type, n), 4 * to)
  native.check(C.ty_tensor_copy(dst, src), "copy")
  native.check(C.ty_tensor_read(x, numbers, 32), "read")
  local list = {}
  for i = 0, 7 do
    list[i + 1] = numbers[i]
  end
  return list, ffi.cast("float *", numbers)
end

describe("a copy", function()
  setup(device.leave)
  teardown(device.come_back)

  it("between views that overlap gives what was there before", function()
    local int = C.TY_I32
    assert.same({ 1, 2, 1, 2, 3, 4, 7, 8 }, (moved(4, 0, int, 2, int)))
    assert.same({ 3, 4, 5, 6, 5, 6, 7, 8 }, (moved(4, 2, int, 0, int)))
    assert.same({ 5, 6, 7, 8, 5, 6, 7, 8 }, (moved(4, 4, int, 0, int)))
    assert.same({ 1, 2, 3, 4, 1, 2, 3, 4 }, (moved(4, 0, int, 4, int)))
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8 }, (moved(4, 2, int, 2, int)))
  end)

  it("to another type does so too, in its place as well", function()
    for _, to in ipairs{ 0, 1, 2, 4 } do
      local list, floats = moved(4, 1, C.TY_I32, to, C.TY_F32)
      for i = 0, 7 do
        if i >= to and i < to + 4 then
          assert.equal(i - to + 2, floats[i])
        else
          assert.equal(i + 1, list[i + 1])
        end
      end
    end
  end)

  it("into what a monitor shows is refused", function()
    local seen = 0
    local exe = (ty.sym.Variable("x") * 2):simple_bind{ ty.cpu(), x = { 3 } }
    exe:set_monitor_callback(function(_, x)
      seen = seen + 1
      local e = assert.raises("state", function() ty.nd.ones{ 3 }:copyto(x) end)
      assert.truthy(tostring(e):find("read-only", 1, true))
      assert.raises("state", function() x[":"] = 1 end)
    end)
    exe:forward()
    assert.equal(1, seen)
    assert.same({ 0, 0, 0 }, exe.outputs[1]:totable())
  end)
end)
