--- What this build and this machine can do (contract 3.13).
--
--     for _, f in ipairs(ty.runtime.Features()) do print(f.name, f.enabled) end
--     ty.runtime.is_enabled("CUDA")
--
-- @module tycho.runtime

local native = require "tycho.ffi"
local Error = require "tycho.error"

local runtime = {}

local C = native.C


local function platform()
  return native.text(C.ty_platform()):lower()
end


-- Whether the platform's text has a line about something and does not say that it is missing.
local function found(word)
  for row in platform():gmatch("[^\n]+") do
    if row:find(word, 1, true) then
      return not (row:find("not found", 1, true) or row:find("no ", 1, true) or row:find("none", 1, true)
        or row:find("without", 1, true))
    end
  end
  return false
end


-- name -> how it is found out; the reference's names where it has the thing
local FEATURES = {
  CUDA = function() return C.ty_devices(C.TY_GPU) > 0 end,
  CUDNN = function() return C.ty_devices(C.TY_GPU) > 0 and found("cudnn") end,
  NCCL = function() return C.ty_devices(C.TY_GPU) > 0 and found("nccl") end,
  CPU_AVX2 = function() return found("avx2") end,
  CPU_AVX512 = function() return found("avx512") end,
  F16C = function() return found("avx2") end,
  OPENMP = function() return found("openmp") end,
  BLAS_OPEN = function() return found("openblas") end,
  LAPACK = function() return found("openblas") end,
  MKLDNN = function() return found("onednn") end,
  DIST_KVSTORE = function() return found("mpi") end,
  INT64_TENSOR_SIZE = function() return true end,
  SIGNAL_HANDLER = function() return true end,
}


--- Features in order of name: a list of `{name, enabled}`, which is also reachable by name.
function runtime.Features()
  local names, list = {}, {}
  for name in pairs(FEATURES) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    list[i] = { name = name, enabled = FEATURES[name]() }
  end
  return list
end


--- Whether a feature is there.
-- @string name
function runtime.is_enabled(name)
  local test = FEATURES[type(name) == "string" and name:upper() or name]
  if not test then
    local names = {}
    for known in pairs(FEATURES) do
      names[#names + 1] = known
    end
    Error.unknown{ func = "runtime.is_enabled", argument = tostring(name), what = "feature", names = names }
  end
  return test()
end


return runtime
