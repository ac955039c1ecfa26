-- What is said where something of CUDA is missing, too old or out of range, on the stand-in.

local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local USE = [[
local ty = require "tycho"
print(ty.num_gpus())
print(select(2, pcall(ty.nd.ones, {2, ctx = ty.gpu(INDEX)})))
print(ty.nd.ones{2, ctx = ty.cpu(0)}:sum():asscalar())
]]

local function use(settings, index)
  return stand_in.run(USE:gsub("INDEX", index or 0), settings)
end

-- Runs f with a folder in which names are links to files of the stand-in.
local function with_links(links, f)
  local here = shell.run("pwd"):gsub("%s+$", "")
  local folder = shell.run("mktemp -d"):gsub("%s+$", "")
  for name, file in pairs(links) do
    shell.run(("ln -s %s/build/cudasim/%s %s/%s"):format(here, file, folder, name))
  end
  local ok, e = pcall(f, folder)
  shell.run("rm -rf " .. folder)
  if not ok then error(e, 0) end
end

describe("without a GPU", function()
  it("the CPU works and a GPU's use says that there is no driver", function()
    local text, status = use{ TYCHO_CUDA_PATH = "/nowhere" }
    if not text:find("^0\n") then
      pending("there is a driver")
      return
    end
    assert.matches("nd.ones: gpu%(0%) does not exist: the CUDA driver was not found; tried "
      .. "libcuda.so.1, libcuda.so in /nowhere %(TYCHO_CUDA_PATH%), the system's folders", text)
    assert.matches("use cpu%(i%), or ask ty.num_gpus%(%) first", text)
    assert.matches("\n2\n$", text)
    assert.equal(0, status)
  end)

  it("is what TYCHO_DISABLE makes of every machine", function()
    local text = use{ TYCHO_DISABLE = "cuda" }
    assert.matches("^0\n.*gpu%(0%) does not exist: TYCHO_DISABLE switches CUDA off", text)
  end)
end)

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is said", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("what is missing of CUDA", function()
  for _, case in ipairs{
    { "the driver is too old", { CUDASIM_DRIVER = 11080 }, 0,
      "^0\n.*the CUDA driver serves CUDA 11.8; at least 12%.%d is needed" },
    { "there are no devices", { CUDASIM_DEVICES = 0 }, 0,
      "^0\n.*gpu%(0%) does not exist: .*no CUDA%-capable device" },
    { "the index is too large", { CUDASIM_DEVICES = 2 }, 2,
      "^2\n.*gpu%(2%) does not exist: there are 2 here; use gpu%(i%) with a smaller i, or cpu" },
    { "the device lacks what pools need", { CUDASIM_VIRTUAL_MEMORY = 0 }, 0,
      "^1\n.*gpu%(0%), .*, has no virtual memory management, which growing pools need" },
    { "the device is too old", { CUDASIM_ARCH = 35 }, 0,
      "^1\n.*gpu%(0%), .*, has compute capability 3.5; at least 5.0 is needed" },
  } do
    it("is said: " .. case[1], function()
      assert.matches(case[4], (use(case[2], case[3])))
    end)
  end

  it("is said: a library without what is needed", function()
    with_links({ ["libcuda.so.1"] = "libnvrtc.so.13" }, function(folder)
      assert.matches("^0\n.*the CUDA driver is too old: it has no cuInit",
        (use{ TYCHO_CUDA_PATH = folder }))
    end)
  end)

  it("is said: no compiler of kernels", function()
    with_links({ ["libcuda.so.1"] = "libcuda.so.1" }, function(folder)
      local text = use{ TYCHO_CUDA_PATH = folder, CUDA_HOME = "" }
      if text:find("^1\n") then
        pending("the system has NVRTC")
        return
      end
      assert.matches("^0\n.*NVRTC, the compiler of CUDA's toolkit 12 or 13, was not found; tried "
        .. "libnvrtc.so.13, libnvrtc.so.12 in " .. folder:gsub("%p", "%%%0"), text)
    end)
  end)

  it("stands in tycho --platform", function()
    local line = "%s TYCHO_CUDA_PATH=%s " .. shell.program .. " --platform"
    local there = shell.run(line:format("TYCHO_DISABLE=cudnn CUDASIM_DRIVER=12040",
      "build/cudasim"))
    assert.matches("CUDA        1 device\n", there)
    assert.matches("            driver of CUDA 12.4, NVRTC 12.0\n", there)
    assert.matches("cublasLt    build/cudasim/libcublasLt.so.12\n", there)
    assert.matches("cuDNN       no: TYCHO_DISABLE switches it off\n", there)
    assert.matches("cuSOLVER    build/cudasim/libcusolver.so.11\n", there)
    assert.matches("CUDA        no: gpu%(0%) does not exist: the CUDA driver serves CUDA 11.8",
      (shell.run(line:format("CUDASIM_DRIVER=11080", "build/cudasim"))))
  end)
end)
