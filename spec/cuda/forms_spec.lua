-- The forms of a pointwise program (native/pointwise/cuda_source.c), each run on the stand-in under
-- its checker: packs with a remainder, one dense dimension, indices of 32 bits and of 64 bits. Only
-- arrays too large for a test machine would select 64 bits, so that source is launched here.

local devices = require "spec.support.devices_agree"
local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local LENGTHS = devices.SCRIPT .. [[
local function whole(shape, ctx, dtype)
  return ty.nd.floor((pattern(shape, here, "float32") + 1) * 16):astype(dtype):as_in_context(ctx)
end
for _, dtype in ipairs{"float32", "float64", "float16", "uint8", "int64"} do
  for _, n in ipairs{1, 1023, 1024, 1027, 4099} do
    compare(dtype .. " dense " .. n, function(ctx)
      return whole({n}, ctx, dtype) * 2 + whole({n}, ctx, dtype)
    end)
    compare(dtype .. " from anywhere " .. n, function(ctx) -- a row is as aligned as its length
      return whole({3, n}, ctx, dtype)[1] + whole({n}, ctx, dtype)
    end)
  end
  compare(dtype .. " one element for all", function(ctx)
    return ty.nd.broadcast_mul(whole({2050}, ctx, dtype), whole({1}, ctx, dtype) + 2)
  end)
  compare(dtype .. " broadcast", function(ctx)
    return ty.nd.broadcast_add(whole({4, 1, 5}, ctx, dtype), whole({1, 300, 5}, ctx, dtype))
  end)
end
]]

-- y (2, 3) = a (2, 1) + b (1, 3)
local WIDE = [==[
local ffi = require "ffi"
local ty = require "tycho"
local native = require "tycho.core.ffi"
ffi.cdef[[
typedef struct { long long count, dim[2], stride[3][2]; void *p[3]; } wide_args;
int nvrtcCreateProgram(void **, const char *, const char *, int, void *, void *);
int nvrtcCompileProgram(void *, int, const char *const *);
int nvrtcGetCUBINSize(void *, size_t *);
int nvrtcGetCUBIN(void *, char *);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *);
int cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(void *, size_t);
int cuMemcpyHtoD_v2(void *, const void *, size_t);
int cuMemcpyDtoH_v2(void *, void *, size_t);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
  void *, void **, void **);
]]
local folder = os.getenv("TYCHO_CUDA_PATH")
local driver, nvrtc = ffi.load(folder .. "/libcuda.so.1"), ffi.load(folder .. "/libnvrtc.so.13")
local function out(type, f, ...)
  local x = ffi.new(type .. "[1]")
  assert(f(x, ...) == 0)
  return x[0]
end
local text = ffi.new("const char *[1]")
assert(native.C.ty_op_cuda("broadcast_add", text) == 0)
assert(ffi.string(text[0]):find("i64 dim[2]; i64 stride[3][2]", 1, true))
local program = out("void *", nvrtc.nvrtcCreateProgram, text[0], "wide", 0, nil, nil)
local options = ffi.new("const char *[1]", {"--std=c++17"})
assert(nvrtc.nvrtcCompileProgram(program, 1, options) == 0)
local size = ffi.new("size_t[1]")
assert(nvrtc.nvrtcGetCUBINSize(program, size) == 0)
local image = ffi.new("char[?]", size[0])
assert(nvrtc.nvrtcGetCUBIN(program, image) == 0)
assert(driver.cuInit(0) == 0)
assert(driver.cuCtxSetCurrent(out("void *", driver.cuDevicePrimaryCtxRetain, 0)) == 0)
local kernel = out("void *", driver.cuModuleGetFunction,
  out("void *", driver.cuModuleLoadData, image), "broadcast_add_forward")
local function array(n, values)
  local p = out("void *", driver.cuMemAlloc_v2, 4 * n)
  if values then assert(driver.cuMemcpyHtoD_v2(p, ffi.new("float[?]", n, values), 4 * n) == 0) end
  return p
end
local y = array(6)
local args = ffi.new("wide_args", 6, {2, 3}, {{1, 0}, {0, 1}, {3, 1}},
  {array(2, {10, 20}), array(3, {1, 2, 3}), y})
local params = ffi.new("void *[1]", {args})
assert(driver.cuLaunchKernel(kernel, 2, 1, 1, 32, 1, 1, 0, nil, params, nil) == 0)
local got = ffi.new("float[6]")
assert(driver.cuMemcpyDtoH_v2(got, y, 24) == 0)
for i = 0, 5 do io.write(got[i], " ") end
]==]

describe("a pointwise program on a GPU", function()
  if not stand_in.exists() then
    it("any form of it", function() pending("there is no build/cudasim: make cudasim") end)
    return
  end

  it("is the CPU's in packs, one dimension and several", function()
    folder.with(function(path)
      local text, status = stand_in.run(LENGTHS, { CUDASIM_CHECK = 1, CUDASIM_SOURCES = path })
      assert.equal(0, status, text)
      assert.is_nil(text:match("[^\n]*different[^\n]*"))
      local _, equal = text:gsub("\tequal\n", "")
      assert.equal(5 * 12, equal)
      local sources = shell.run(("cat %s/*.cu"):format(path))
      assert.is_truthy(sources:find("pack<u16> v0 = ((const pack<u16> *)x.p[0])[q]", 1, true))
      assert.is_truthy(sources:find("int dim[3]; int stride[3][3]", 1, true))
    end)
  end)

  it("may have indices of 64 bits", function()
    local text, status = stand_in.run(WIDE, { CUDASIM_CHECK = 1, CUDASIM_STRICT = 1 })
    assert.equal("11 12 13 21 22 23 ", text)
    assert.equal(0, status)
  end)
end)
