-- Messages when a part of CUDA is missing, too old or out of range, on the stand-in.

local folder = require "spec.support.folder"
local lfs = require "lfs"
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

local PLATFORM = "%s TYCHO_CUDA_PATH=%s " .. shell.program .. " --platform"

-- Runs f with a folder in which names are links to files of the stand-in.
local function with_links(links, f)
  folder.with(function(path)
    for name, file in pairs(links) do
      lfs.link(("%s/build/cudasim/%s"):format(lfs.currentdir(), file), path .. "/" .. name, true)
    end
    f(path)
  end)
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
    assert.matches("it comes with nvidia%-driver and libcuda1 %(Debian%)", text)
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
      "^0\n.*the CUDA driver serves CUDA 11.8; at least 12%.0 is needed, driver 525 or newer "
      .. "%(nvidia%-driver on Debian" },
    { "there are no devices", { CUDASIM_DEVICES = 0 }, 0,
      "^0\n.*gpu%(0%) does not exist: .*no CUDA%-capable device is detected "
      .. "%(CUDA_ERROR_NO_DEVICE, 100%); nvidia%-smi says what there is, CUDA_VISIBLE_DEVICES" },
    { "the index is too large", { CUDASIM_DEVICES = 2 }, 2,
      "^2\n.*gpu%(2%) does not exist: there are 2 here; use gpu%(i%) with a smaller i, or cpu" },
    { "the device lacks what pools need", { CUDASIM_VIRTUAL_MEMORY = 0 }, 0,
      "^1\n.*gpu%(0%), .*, has no virtual memory management, which growing pools need" },
    { "another process has the device alone", { CUDASIM_MODE = "exclusive" }, 0,
      "^1\n.*gpu%(0%), cudasim, cannot be opened: it is in exclusive mode, and another process has "
      .. "it %(nvidia%-smi %-i 0 %-c DEFAULT, as root, shares it%)" },
    { "the device takes no process", { CUDASIM_MODE = "prohibited" }, 0,
      "^1\n.*gpu%(0%), cudasim, cannot be opened: its compute mode prohibits it" },
    { "others have all of its memory", { CUDASIM_TAKEN = 2 ^ 40 }, 0,
      "^1\n.*gpu%(0%), cudasim, has no memory left for one more process; nvidia%-smi lists" },
    { "the toolkit's stub in the driver's place", { CUDASIM_FAIL = "cuDeviceGetAttribute:1:34" }, 0,
      "^1\n.*%(unknown, 34%); libcuda is the toolkit's stub" },
    { "the driver was updated", { CUDASIM_FAIL = "cuDeviceGetAttribute:1:803" }, 0,
      "^1\n.*%(unknown, 803%); the driver's library and kernel module are of two versions" },
    { "the device is too old", { CUDASIM_ARCH = 35 }, 0,
      "^1\n.*gpu%(0%), .*, has compute capability 3.5; at least 5.0 is needed" },
  } do
    it("is said: " .. case[1], function()
      assert.matches(case[4], (use(case[2], case[3])))
    end)
  end

  it("is said: a library without what is needed", function()
    with_links({ ["libcuda.so.1"] = "libnvrtc.so.13" }, function(path)
      assert.matches("^0\n.*the CUDA driver is too old: it has no cuInit",
        (use{ TYCHO_CUDA_PATH = path }))
    end)
  end)

  it("is said: no compiler of kernels", function()
    with_links({ ["libcuda.so.1"] = "libcuda.so.1" }, function(path)
      shell.with_file(USE:gsub("INDEX", 0), function(script)
        local text = stand_in.run_alone(("TYCHO_CUDA_PATH=%s %s %s"):format(path, shell.program,
          script))
        if not text then
          pending("the system's libraries of CUDA cannot be hidden")
          return
        end
        assert.matches("^0\n.*NVRTC, the compiler of CUDA's toolkit 12 or 13, was not found; tried "
          .. "libnvrtc.so.13, libnvrtc.so.12 in " .. path:gsub("%p", "%%%0") .. ".*; it comes with "
          .. "nvidia%-cuda%-nvrtc %(pip; [^\n]*%) or cuda%-nvrtc%-13%-0 %(apt", text)
      end)
    end)
  end)

  it("is said: how much of a device's memory others have left", function()
    local text = stand_in.run([[
      local ty = require "tycho"
      print(select(2, pcall(ty.nd.ones, {1e6, ctx = ty.gpu(0)})))
    ]], { CUDASIM_MEMORY = 2 ^ 30, CUDASIM_TAKEN = 2 ^ 30 - 1e6 })
    assert.matches("out of memory; gpu%(0%) with 1073741824 bytes, 1%d%d%d%d%d%d free: 4%d+ bytes "
      .. "wanted", (text:gsub("9%d%d%d%d%d free", "1000000 free")))
  end)

  -- Returns the text of tycho --platform with these files of the stand-in and none of the system's.
  local function platform(files, settings, f)
    local text
    with_links(files, function(path)
      if f then f(path) end
      text = stand_in.run_alone(PLATFORM:format(settings, path))
    end)
    if not text then pending("the system's libraries of CUDA cannot be hidden") end
    return text
  end

  it("is said: a library of another major version, and which package has the right one", function()
    local text = platform({ ["libcuda.so.1"] = "libcuda.so.1",
      ["libnvrtc.so.13"] = "libnvrtc.so.13", ["libcudnn.so.8"] = "libcudnn.so.9",
      ["libcublasLt.so.11"] = "libcublasLt.so.13" }, "")
    if not text then return end
    assert.matches("\ncuDNN       no: libcudnn.so.9 in [^\n]*; there is libcudnn.so.8, another "
      .. "major version; it comes with nvidia%-cudnn%-cu13 %(pip; TYCHO_CUDA_PATH names the "
      .. "folder%) or libcudnn9%-cuda%-13 %(apt, from NVIDIA's repository%)\n", text)
    assert.matches("\ncublasLt    no: libcublasLt.so.13, libcublasLt.so.12 in [^\n]*; there is "
      .. "libcublasLt.so.11, another major version; it comes with nvidia%-cublas %(pip", text)
    assert.matches("\nNCCL        no: NCCL, which adds over several GPUs, was not found; tried "
      .. "libnccl.so.2 in [^\n]*; it comes with nvidia%-nccl%-cu13 %(pip", text)
  end)

  it("is said: a library of a toolkit that the driver does not serve", function()
    local text = platform({ ["libcuda.so.1"] = "libcuda.so.1",
      ["libnvrtc.so.12"] = "libnvrtc.so.12", ["libcublasLt.so.13"] = "libcublasLt.so.13" },
      "CUDASIM_DRIVER=12040")
    if not text then return end
    assert.matches("\ncublasLt    no: libcublasLt.so.12 in [^\n]*; there is libcublasLt.so.13, "
      .. "which needs a driver that serves CUDA 13; it comes with nvidia%-cublas%-cu12 %(pip", text)
  end)

  it("is said: a library that does not load", function()
    local text = platform({ ["libcuda.so.1"] = "libcuda.so.1",
      ["libnvrtc.so.13"] = "libnvrtc.so.13" }, "", function(path)
        folder.write(path .. "/libcudnn.so.9", "this is no library")
      end)
    if not text then return end
    assert.matches("\ncuDNN       no: [^\n]*/libcudnn.so.9 does not load: [^\n]*/libcudnn.so.9: "
      .. "[^\n;]+; it comes with", text)
  end)

  it("is found in any of the folders of TYCHO_CUDA_PATH", function()
    with_links({ ["libcuda.so.1"] = "libcuda.so.1" }, function(first)
      local files = { ["libcublasLt.so.13"] = "libcublasLt.so.13",
        ["libnvrtc.so.13"] = "libnvrtc.so.13" }
      with_links(files, function(second)
        local text = shell.run(PLATFORM:format("", ("/nowhere:%s::%s:"):format(first, second)))
        assert.matches("CUDA        1 device\n", text)
        assert.matches("cublasLt    [^\n]*" .. second:gsub("%p", "%%%0") .. "/libcublasLt", text)
      end)
    end)
  end)

  it("is in the output of tycho --platform", function()
    local there = shell.run(PLATFORM:format("TYCHO_DISABLE=cudnn CUDASIM_DRIVER=12040",
      "build/cudasim"))
    assert.matches("CUDA        1 device\n", there)
    assert.matches("            driver of CUDA 12.4, NVRTC 12.0\n", there)
    assert.matches("cublasLt    %d+%.%d+%.%d+, build/cudasim/libcublasLt.so.12\n", there)
    assert.matches("cuDNN       no: TYCHO_DISABLE switches it off\n", there)
    assert.matches("cuSOLVER    build/cudasim/libcusolver.so.11\n", there)
    assert.matches("gpu%(0%)      cudasim, compute capability 9.0, 4 processors, 4.0 GiB of memory",
      there)
    assert.matches("CUDA        no: gpu%(0%) does not exist: the CUDA driver serves CUDA 11.8",
      (shell.run(PLATFORM:format("CUDASIM_DRIVER=11080", "build/cudasim"))))
    assert.matches("gpu%(0%)      no: gpu%(0%), cudasim, cannot be opened: it is in exclusive mode",
      (shell.run(PLATFORM:format("CUDASIM_MODE=exclusive", "build/cudasim"))))
  end)
end)
