-- Which libraries are chosen if there are several, and what is compiled for architectures that
-- NVRTC does not know: toolkits 12 and 13, on the stand-in.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

-- a formula, a product and a factor; then the toolkit's libraries that the process has
local USE = [[
local ty = require "tycho"
local x = ty.nd.array({{2, 0}, {0, 4}}, {ctx = ty.gpu(0)})
print((ty.nd.dot(x * 2 + 1, x) + ty.nd.linalg_inverse{x}):sum():asscalar())
local found = {}
for line in io.lines("/proc/self/maps") do
  local name = line:match("/lib(n?[vc]%w+%.so%.1[123])$")
  if name then found[name] = true end
end
for _, name in ipairs{"nvrtc.so.13", "nvrtc.so.12", "cublasLt.so.13", "cublasLt.so.12",
  "cusolver.so.12", "cusolver.so.11"} do
  if found[name] then io.write(name, " ") end
end
]]

local TEXT = [[
local ty = require "tycho"
print(select(2, pcall(function()
  return (ty.nd.ones({4}, {ctx = ty.gpu(0)}) * 3 + 1):sum():asscalar()
end)))
]]

-- Runs f with a folder of links to these files of the stand-in.
local function with_links(names, f)
  folder.with(function(path)
    local from = shell.run("pwd"):gsub("%s+$", "") .. "/build/cudasim/"
    for _, name in ipairs(names) do
      shell.run(("ln -s %s%s %s/%s"):format(from, name, path, name))
    end
    f(path)
  end)
end

describe("libraries of CUDA", function()
  if not stand_in.exists() then
    it("any of it", function() pending("there is no build/cudasim: make cudasim") end)
    return
  end

  it("are toolkit 13's where the driver serves it, else toolkit 12's", function()
    local values = "52.75\n"
    assert.equal(values .. "nvrtc.so.13 cublasLt.so.13 cusolver.so.12 ", (stand_in.run(USE)))
    assert.equal(values .. "nvrtc.so.12 cublasLt.so.12 cusolver.so.11 ",
      (stand_in.run(USE, { CUDASIM_DRIVER = 12040 })))
  end)

  it("are those of TYCHO_CUDA_PATH, whatever the system has", function()
    with_links({ "libcuda.so.1", "libnvrtc.so.12", "libcublasLt.so.12", "libcusolver.so.11",
      "include" }, function(path)
      assert.equal("52.75\nnvrtc.so.12 cublasLt.so.12 cusolver.so.11 ",
        (stand_in.run(USE, { TYCHO_CUDA_PATH = path, LD_LIBRARY_PATH = "build/cudasim" })))
    end)
  end)

  it("of toolkit 13 are not enough for a driver that serves CUDA 12", function()
    with_links({ "libcuda.so.1", "libnvrtc.so.13", "include" }, function(path)
      local text = stand_in.run(TEXT,
        { TYCHO_CUDA_PATH = path, CUDA_HOME = "", CUDASIM_DRIVER = 12040 })
      if text == "16\n" then
        pending("the system has NVRTC")
        return
      end
      assert.matches("NVRTC, the compiler of CUDA's toolkit 12, which the driver serves, was not "
        .. "found; tried libnvrtc.so.12 in ", text, 1, true)
    end)
  end)

  for _, case in ipairs{
    { 90, 13000, "sm_90" }, { 101, 13000, "compute_100" }, { 125, 13000, "compute_121" },
    { 70, 12040, "sm_70" }, { 110, 12040, "compute_103" },
  } do
    it(("compile %s for architecture %d of CUDA %d"):format(case[3], case[1], case[2]), function()
      folder.with(function(path)
        local text = stand_in.run(TEXT,
          { CUDASIM_ARCH = case[1], CUDASIM_DRIVER = case[2], CUDASIM_SOURCES = path })
        assert.equal("16\n", text)
        assert.matches("//[^\n]*%-%-gpu%-architecture=" .. case[3] .. " ",
          (shell.run(("cat %s/*.cu"):format(path))))
      end)
    end)
  end

  it("are done without where they are missing", function()
    local text = stand_in.run(USE, { TYCHO_DISABLE = "cublaslt,cusolver" })
    assert.equal("52.75\nnvrtc.so.13 ", text)
    text = stand_in.run([[
      local ty = require "tycho"
      print(ty.sym.FullyConnected{data = ty.sym.Variable("x"), num_hidden = 4, name = "fc"}
        :simple_bind{ctx = ty.gpu(0), x = {2, 3}}:program())
    ]], { TYCHO_DISABLE = "cublaslt" })
    assert.matches("%[fc%]  on the host, over copies  not cublaslt: cublasLt was not found", text)
  end)

  it("say which architectures NVRTC no longer knows", function()
    assert.matches("gpu%(0%), .*, has compute capability 7.0; NVRTC 13.0 compiles for 7.5 or more",
      (stand_in.run(TEXT, { CUDASIM_ARCH = 70 })))
  end)
end)
