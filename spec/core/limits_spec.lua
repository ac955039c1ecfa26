-- More than the machine has: refused with a text, never begun.
local device = require "spec.support.device"
local shell = require "spec.support.shell"
local ty = require "tycho"

describe("memory", function()
  setup(device.leave)
  teardown(device.come_back)
  it("beyond the device's is refused", function()
    for _, make in ipairs{ty.nd.zeros, ty.nd.ones, ty.nd.empty} do
      local e = assert.raises("memory", make, {2 ^ 20, 2 ^ 21})
      assert.is_truthy(tostring(e):find("cpu%(0%) with %d+ bytes: 8796093022208 bytes wanted"))
    end
    local x = ty.sym.Variable("x")
    assert.raises("memory", function()
      return ty.sym.broadcast_add{x, ty.sym.Reshape{x, shape = {1, -1}}}
        :simple_bind{ctx = ty.cpu(), x = {2 ^ 21, 1}}
    end)
    assert.equal(3, ty.nd.ones(3):sum():asscalar())
  end)

  it("of images with too much padding is refused", function()
    local x = ty.nd.ones{1, 1, 4, 4}
    for _, padding in ipairs{2 ^ 30, 2 ^ 31 - 1} do
      local e = assert.raises("shape", ty.nd.Correlation,
        {data1 = x, data2 = x, pad_size = padding})
      assert.is_truthy(tostring(e):find("%(1, %d+, %d+, 1%) is too large"))
    end
    assert.raises("memory", ty.nd.Correlation, {data1 = x, data2 = x, pad_size = 2 ^ 17})
  end)

  it("that a module of C does not get is not the module's absence", function()
    local cjson = package.loaded.cjson
    package.loaded.cjson = nil
    package.preload.cjson = function() error("cjson.so: failed to map segment") end
    local ok, e = pcall(ty.nd.load_frombuffer, "\2\0\0\0\0\0\0\0{}")
    package.preload.cjson, package.loaded.cjson = nil, cjson
    assert.is_false(ok)
    assert.equal("memory", e.code)
  end)
end)

-- Some builds of OpenBLAS (0.3.29) ask again and again while they are loaded, before any code of
-- ours runs.
describe("little address space", function()
  local LIMITED = "ulimit -v 2000000; OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=2 timeout 20 "

  it("makes an array that does not fit an error of memory, and what fits goes on", function()
    if (os.getenv("SANITIZER") or "") ~= "" then
      pending("a sanitizer reserves terabytes")
      return
    end
    local said, status = shell.run(LIMITED .. [[luajit -e 'require("ffi").load("openblas")']])
    if status ~= 0 then
      pending("OpenBLAS alone does not load in little address space: "
        .. (status == 124 and "it does not end" or said))
      return
    end
    shell.with_file([[
      local ty = require "tycho"
      local ok, e = pcall(ty.nd.ones, {3, 2 ^ 28})
      print(ok, e.code, ty.nd.ones{1000, 100}:sum():asscalar())]], function(path)
      assert.equal("false\tmemory\t100000\n", (shell.run(LIMITED .. shell.program .. " " .. path)))
    end)
  end)
end)
