--- Compiles sources of kernels with the real NVRTC, which needs no GPU.
--   luajit scripts/dev/nvrtc_check.lua FOLDER [ARCHITECTURE...]
-- Architectures are by default 80, 90 and 100.
-- FOLDER holds what CUDASIM_SOURCES=FOLDER has kept of a run on the stand-in (spec/cudasim).
-- Prints the logs of those that do not compile; ends with 1 then, and with 2 without NVRTC.
local cuda_library = require "scripts.dev.cuda_library"
local ffi = require "ffi"

local ARCHITECTURES = arg[2] and { unpack(arg, 2) } or { 80, 90, 100 }

ffi.cdef [[
typedef struct nvrtc_program *nvrtcProgram;
int nvrtcCreateProgram(nvrtcProgram *, const char *source, const char *name, int, const char *const *,
  const char *const *);
int nvrtcCompileProgram(nvrtcProgram, int, const char *const *options);
int nvrtcGetProgramLogSize(nvrtcProgram, size_t *);
int nvrtcGetProgramLog(nvrtcProgram, char *);
int nvrtcDestroyProgram(nvrtcProgram *);
]]

local function read_log(nvrtc, program)
  local size = ffi.new("size_t[1]")
  nvrtc.nvrtcGetProgramLogSize(program, size)
  local text = ffi.new("char[?]", size[0] + 1)
  nvrtc.nvrtcGetProgramLog(program, text)
  return ffi.string(text)
end


-- Returns the log, where it does not compile. The architecture in the options is replaced.
local function compile(nvrtc, path, architecture)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  local options = { "--gpu-architecture=sm_" .. architecture }
  for option in text:match("^//([^\n]*)"):gmatch("%S+") do
    if not option:find("^%-%-gpu%-architecture") then
      options[#options + 1] = option
    end
  end
  local program = ffi.new("nvrtcProgram[1]")
  assert(nvrtc.nvrtcCreateProgram(program, text, path, 0, nil, nil) == 0, "NVRTC takes no source")
  local list = ffi.new("const char *[?]", #options, options)
  local code = nvrtc.nvrtcCompileProgram(program[0], #options, list)
  local log = code ~= 0 and read_log(nvrtc, program[0])
  nvrtc.nvrtcDestroyProgram(program)
  return log or nil
end


local folder = assert(arg[1], "a folder of sources is needed")
local nvrtc = cuda_library.load({ "libnvrtc.so.13", "libnvrtc.so.12" }, "libnvrtc.so.1[23]")
if not nvrtc then
  print("NVRTC is not installed")
  os.exit(2)
end
local bad, paths = 0, cuda_library.lines(("ls '%s'/*.cu"):format(folder))
for _, path in ipairs(paths) do
  for _, architecture in ipairs(ARCHITECTURES) do
    local log = compile(nvrtc, path, architecture)
    if log then
      bad = bad + 1
      print(("%s, sm_%d: %s"):format(path, architecture, log))
    end
  end
end
print(("%d sources for %d architectures: %d do not compile"):format(#paths, #ARCHITECTURES, bad))
os.exit(bad > 0 and 1 or 0)
