-- The cache of kernels on disk (native/cuda/compile.c): nobody else reads or chooses what is in it.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ty = require "tycho"
local x = ty.nd.ones({ 5 }, { ctx = ty.gpu(0) })
print((x * 3 + 1):sum():asscalar())]]

local function cubins(path)
  local names = {}
  for name in lfs.dir(path) do
    names[#names + 1] = name:find("%.cubin$") and name or nil
  end
  table.sort(names)
  return names
end

local function run(path)
  return (stand_in.run(SCRIPT, { TYCHO_CACHE = path .. "/deep/cache" }))
end

describe("the cache of kernels", function()
  if not stand_in.exists() then
    it("any of it", function() pending("there is no build/cudasim: make cudasim") end)
    return
  end

  it("is private, and writes and reads through no link", function()
    folder.with(function(path)
      assert.equal("20\n", run(path))
      local cache = path .. "/deep/cache"
      local names = cubins(cache)
      assert.is_true(#names > 0)
      assert.equal("rwx------", lfs.attributes(cache, "permissions"))
      for _, name in ipairs(names) do
        local file = cache .. "/" .. name
        assert.equal("rw-------", lfs.attributes(file, "permissions"))
        os.rename(file, path .. "/" .. name)
        folder.write(path .. "/other" .. name, "untouched")
        lfs.link(path .. "/other" .. name, file, true)
      end
      assert.equal("20\n", run(path))
      for _, name in ipairs(names) do
        assert.equal("file", lfs.symlinkattributes(cache .. "/" .. name, "mode"))
        assert.equal("untouched", folder.read(path .. "/other" .. name))
      end
    end)
  end)

  it("does not read what others may have written", function()
    folder.with(function(path)
      run(path)
      local cache = path .. "/deep/cache"
      local name = cubins(cache)[1]
      local before = lfs.attributes(cache .. "/" .. name)
      shell.run("chmod 0666 " .. cache .. "/" .. name)
      assert.equal("20\n", run(path))
      local after = lfs.attributes(cache .. "/" .. name)
      assert.equal("rw-------", after.permissions)            -- made anew
      assert.not_equal(before.ino, after.ino)
    end)
  end)
end)
