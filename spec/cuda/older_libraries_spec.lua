-- CUDA libraries that lack a function, as older versions do: each function in turn, on copies of
-- the stand-in's libraries in which it is renamed. The driver, NVRTC and NCCL are then refused with
-- the function's name; the work of cublasLt, cuDNN and cuSOLVER is done on the host.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local stand_in = require "spec.support.stand_in"

local CUDASIM = "build/cudasim/"
local LIBRARIES = { "libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9",
  "libcusolver.so.12", "libnccl.so.2", "include" }

-- Returns the functions that a header of native/cuda lists in a macro.
local function read_functions(header, macro)
  local text = folder.read("native/cuda/" .. header)
  local rows = text:match("#define " .. macro .. "%(_%)(.-[^\\])\n")
  local names = {}
  for name in rows:gmatch('"([%w_]+)"') do
    names[#names + 1] = name
  end
  return names
end

-- Runs a script with a folder of the stand-in's libraries, one of which has no such function.
local function without(library, name, script)
  local output
  folder.with(function(path)
    for _, file in ipairs(LIBRARIES) do
      if file ~= library then
        lfs.link(lfs.currentdir() .. "/" .. CUDASIM .. file, path .. "/" .. file, true)
      end
    end
    local bytes, found = folder.read(CUDASIM .. library):gsub("%z" .. name .. "%z",
      "\0" .. ("_"):rep(#name) .. "\0")
    assert(found > 0, name)
    folder.write(path .. "/" .. library, bytes)
    output = stand_in.run(script, { TYCHO_CUDA_PATH = path, CUDA_HOME = "" })
  end)
  return output
end

local OPEN = [[
print(select(2, pcall(require("tycho").nd.ones, {2, ctx = require("tycho").gpu(0)})))
]]

local STORE = [[
print(select(2, pcall(require("tycho").kv.create, "nccl")))
]]

-- a product, a convolution and a factor, then where they were made
local USE = [[
local ty = require "tycho"
local x, sym = ty.nd.array({{2, 0}, {0, 4}}, {ctx = ty.gpu(0)}), ty.sym
local ones = ty.nd.ones{1, 1, 3, 3, ctx = ty.gpu(0)}
print(ty.nd.dot(x, x):sum():asscalar(), ty.nd.linalg_inverse{x}:sum():asscalar(),
  ty.nd.Convolution{ones, ones, kernel = {3, 3}, num_filter = 1, no_bias = true}:asscalar())
local function at(symbol, shape)
  local text = symbol:simple_bind{ctx = ty.gpu(0), x = shape}:program()
  io.write(text:find("on the host", 1, true) and "host " or "gpu ")
end
at(sym.dot{sym.Variable("x"), sym.Variable("x")}, {2, 2})
at(sym.Convolution{data = sym.Variable("x"), kernel = {3, 3}, num_filter = 1}, {1, 1, 3, 3})
at(sym.linalg_inverse{sym.Variable("x")}, {2, 2})
]]

local function solver_functions()
  local names = read_functions("cusolver.h", "SOLVER_FUNCTIONS")
  for _, name in ipairs(read_functions("cusolver.h", "SOLVER_TYPED")) do
    names[#names + 1] = "cusolverDnS" .. name
    names[#names + 1] = "cusolverDnD" .. name
  end
  return names
end

describe("a library of CUDA without one of its functions", function()
  if not stand_in.exists() then
    it("any of it", function() pending("there is no build/cudasim: make cudasim") end)
    return
  end

  -- Defines a spec with the first and the last function, and a slow one with all others.
  local function each(name, functions, f)
    it(name, function()
      f(functions[1])
      f(functions[#functions])
    end)
    it(name .. ", each of them #slow", function()
      for i = 2, #functions - 1 do f(functions[i]) end
    end)
  end

  each("is too old where it is the driver", read_functions("driver.h", "CU_FUNCTIONS"),
    function(name)
      assert.matches("gpu(0) does not exist: the CUDA driver is too old: it has no " .. name .. ";",
        without("libcuda.so.1", name, OPEN), 1, true)
    end)

  each("is too old where it is NVRTC", read_functions("driver.h", "NVRTC_FUNCTIONS"),
    function(name)
      assert.matches("gpu(0) does not exist: NVRTC is too old: it has no " .. name .. ";",
        without("libnvrtc.so.13", name, OPEN), 1, true)
    end)

  each("is too old where it is NCCL", read_functions("nccl.h", "NCCL_FUNCTIONS"), function(name)
    assert.matches("NCCL is too old: it has no " .. name .. "\n",
      without("libnccl.so.2", name, STORE), 1, true)
  end)

  for _, case in ipairs{
    { "libcublasLt.so.13", "cublasLt", read_functions("cublaslt.h", "LT_FUNCTIONS"),
      "host gpu host " },
    { "libcudnn.so.9", "cuDNN", read_functions("cudnn.h", "DNN_FUNCTIONS"), "gpu host gpu " },
    { "libcusolver.so.12", "cuSOLVER", solver_functions(), "gpu gpu host " },
  } do
    each("is not used where it is " .. case[2], case[3], function(name)
      assert.equal(name .. " 20\t0.75\t9\n" .. case[4],
        name .. " " .. without(case[1], name, USE))
    end)
  end
end)
