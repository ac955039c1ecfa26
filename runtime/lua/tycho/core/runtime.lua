--- Features of this build and this machine.
--
--     for _, f in ipairs(ty.runtime.Features()) do print(f.name, f.enabled) end
--     ty.runtime.is_enabled("CUDA")
--
-- @module tycho.runtime

local pairs = require("tycho.core.iterate").pairs
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"

local runtime = {}

local C = native.C


-- Returns the platform's rows: label -> text.
local function rows()
  local list = {}
  for label, what in native.text(C.ty_platform()):gmatch("([^\n]-)%s%s+([^\n]*)") do
    list[label] = what
  end
  return list
end


-- Returns whether a row reports a feature as available.
local function there(row)
  return row ~= nil and not row:find("^no%f[%W]") and not row:find("^off%f[%W]")
    and not row:find("^none%f[%W]")
end


local function has_word(row, word)
  return row ~= nil and (" " .. row .. " "):find(" " .. word .. " ", 1, true) ~= nil
end


-- name (the reference's, if it has the feature) -> function that tests it in the rows
local FEATURES = {
  BLAS_OPEN    = function(r) return there(r.BLAS) and r.BLAS:find("OpenBLAS", 1, true) ~= nil end,
  CPU_AVX      = function(r) return has_word(r.features, "avx") end,
  CPU_AVX2     = function(r) return has_word(r.features, "avx2") end,
  CPU_AVX512   = function(r) return has_word(r.features, "avx512f") end,
  CPU_SSE4_2   = function(r) return has_word(r.features, "sse4.2") end,
  CUDA         = function() return C.ty_devices(C.TY_GPU) > 0 end,
  CUDNN        = function(r) return C.ty_devices(C.TY_GPU) > 0 and there(r.cuDNN) end,
  DIST_KVSTORE = function(r) return there(r.MPI) end,
  INT64_TENSOR_SIZE = function() return true end,
  JPEG         = function(r) return there(r.JPEG) end,
  LAPACK       = function(r) return there(r.LAPACK) end,
  MKLDNN       = function(r) return there(r.oneDNN) end,
  NCCL         = function(r) return C.ty_devices(C.TY_GPU) > 0 and there(r.NCCL) end,
  OPENMP       = function(r)
    return r.threads ~= nil and not r.threads:find("without OpenMP", 1, true)
  end,
  PNG          = function(r) return there(r.PNG) end,
  PROFILER     = function() return true end,
}


-- Features of the reference that no build of Tycho has, or that are not tested.
local ABSENT = {}
for name in ("BLAS_APPLE BLAS_ATLAS BLAS_MKL CAFFE CPU_SSE CPU_SSE2 CPU_SSE3 CPU_SSE4A CPU_SSE4_1 \z
    CUDA_RTC CXX14 DEBUG F16C JEMALLOC OPENCV SIGNAL_HANDLER SSE TCMALLOC TENSORRT \z
    TVM_OP"):gmatch("%S+") do
  ABSENT[name] = true
end


--- Returns the features in order of name: a list of `{name, enabled}`.
function runtime.Features()
  local names, list = {}, {}
  for name in pairs(FEATURES) do
    names[#names + 1] = name
  end
  table.sort(names)
  local found = rows()
  for i, name in ipairs(names) do
    list[i] = { name = name, enabled = FEATURES[name](found) }
  end
  return list
end


--- Returns whether a feature is available; false for features that only the reference has.
-- @string name
function runtime.is_enabled(name)
  local key = type(name) == "string" and name:upper() or name
  local test = FEATURES[key]
  if ABSENT[key] then
    return false
  elseif not test then
    Error.unknown{ func = "runtime.is_enabled", argument = tostring(name),
      what = "feature", among = FEATURES }
  end
  return test(rows())
end


return namespace.close(runtime, "runtime", "function")
