-- Every element-wise operator prints itself as CUDA source, and NVRTC compiles
-- it. No GPU is needed for that.
local ffi = require "ffi"
local ty = require "tycho"
local native = require "tycho.core.ffi"

local function load_nvrtc()
  local places = {"libnvrtc.so", "libnvrtc.so.12", "libnvrtc.so.13"}
  local list =
    io.popen("ls -d /usr/local/cuda*/lib64/libnvrtc.so /usr/lib/*/libnvrtc.so* 2>/dev/null")
  for path in list:lines() do
    places[#places + 1] = path
  end
  list:close()
  for _, path in ipairs(places) do
    local ok, library = pcall(ffi.load, path)
    if ok then
      return library
    end
  end
end

pcall(ffi.cdef, [[
  typedef struct nvrtc_program_handle *nvrtcProgram;
  int nvrtcCreateProgram(nvrtcProgram *, const char *source, const char *name, int, const char *const *, const char *const *);
  int nvrtcCompileProgram(nvrtcProgram, int, const char *const *options);
  int nvrtcGetProgramLogSize(nvrtcProgram, size_t *);
  int nvrtcGetProgramLog(nvrtcProgram, char *);
  int nvrtcDestroyProgram(nvrtcProgram *);
]])

local function read_log(nvrtc, program)
  local size = ffi.new("size_t[1]")
  nvrtc.nvrtcGetProgramLogSize(program, size)
  local text = ffi.new("char[?]", size[0] + 1)
  nvrtc.nvrtcGetProgramLog(program, text)
  return ffi.string(text)
end

local function compile(nvrtc, name, source)
  local program, options =
    ffi.new("nvrtcProgram[1]"), ffi.new("const char *[1]", {"--gpu-architecture=compute_80"})
  assert.equal(0, nvrtc.nvrtcCreateProgram(program, source, name .. ".cu", 0, nil, nil))
  local code = nvrtc.nvrtcCompileProgram(program[0], 1, options)
  local log = code ~= 0 and read_log(nvrtc, program[0])
  nvrtc.nvrtcDestroyProgram(program)
  assert.equal(0, code, name .. ": " .. tostring(log) .. "\n" .. source)
end

describe("CUDA source", function()
  local source = ffi.new("const char *[1]")

  it("is printed for element-wise operators and refused for others", function()
    assert.equal(0, native.C.ty_op_cuda("elemwise_add", source))
    assert.is_truthy(ffi.string(source[0]):find("__global__", 1, true))
    assert.is_true(native.C.ty_op_cuda("FullyConnected", source) > 0)
  end)

  it("compiles for every row", function()
    if (os.getenv("SANITIZER") or "") ~= "" then
      pending("a foreign compiler is not run under a sanitizer")
      return
    end
    local nvrtc = load_nvrtc()
    if not nvrtc then
      pending("NVRTC is not installed")
      return
    end
    local n = 0
    for _, name in ipairs(ty.op.list()) do
      if native.C.ty_op_cuda(name, source) == 0 then
        compile(nvrtc, name, ffi.string(source[0]))
        n = n + 1
      end
    end
    assert.is_true(n > 100, "only " .. n .. " rows")
  end)
end)
