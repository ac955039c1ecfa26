-- The cache of kernels on disk (native/cuda/compile.c): other users do not read or write it.

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

  -- 32 bytes: "TYCHOCU1", lengths of key and image, hash of the image; then both
  it("is not believed where a file is damaged, and is made whole", function()
    folder.with(function(path)
      run(path)
      local file = path .. "/deep/cache/" .. cubins(path .. "/deep/cache")[1]
      local whole = folder.read(file)
      local nkey = whole:byte(9) + 256 * whole:byte(10) + 65536 * whole:byte(11)
      local function with(at, bytes)
        return whole:sub(1, at - 1) .. bytes .. whole:sub(at + #bytes)
      end
      for what, bytes in pairs{
        ["another kind"] = with(1, "TYCHOCU0"), ["another length of the key"] = with(9, "\1"),
        ["a huge image"] = with(24, "\1"), ["another key"] = with(40, "\1"),
        ["another hash"] = with(25, "\1\1"),
        ["another image"] = with(#whole, "\1\1"):sub(1, #whole),
        ["no header"] = whole:sub(1, 20), ["half a key"] = whole:sub(1, 60),
        ["half an image"] = whole:sub(1, 32 + nkey + 100), ["nothing"] = "",
      } do
        folder.write(file, bytes)
        shell.run("chmod 0600 " .. file)
        assert.equal(what .. " 20\n", what .. " " .. run(path))
        assert.is_true(folder.read(file) == whole, what)
      end
      -- a folder in its place cannot be replaced: the kernel is compiled each time
      os.remove(file)
      assert(lfs.mkdir(file))
      assert.equal("20\n", run(path))
      assert.equal("directory", lfs.attributes(file, "mode"))
    end)
  end)

  -- so an edit of a comment leaves the kernels that are there in use
  it("knows kernels by their source without comments, empty lines and numbers of lines", function()
    folder.with(function(path)
      run(path)
      local cache = path .. "/deep/cache"
      local files = 0
      for _, name in ipairs(cubins(cache)) do
        local whole = folder.read(cache .. "/" .. name)
        local nkey = whole:byte(9) + 256 * whole:byte(10) + 65536 * whole:byte(11)
        local key = whole:sub(33, 32 + nkey)
        assert.is_nil(key:find("//", 1, true))
        assert.is_nil(key:find("/*", 1, true))
        assert.is_nil(key:find("\n[ \t]*\n"))
        for number, file in key:gmatch("\n#line (%d+) \"([^\"\n]+)\"\n") do
          assert.equal("1", number)
          files = files + (file:find("%.cuh?$") and 1 or 0)
        end
        assert.is_truthy(key:find("__global__", 1, true))
      end
      assert.is_true(files > 0)
    end)
  end)

  it("is where the settings say, or nowhere", function()
    folder.with(function(path)
      local function cached(settings, at)
        shell.with_file(SCRIPT, function(script)
          assert.equal("20\n", (shell.run(("unset TYCHO_CACHE XDG_CACHE_HOME HOME; \z
            TYCHO_CUDA_PATH=build/cudasim CUDASIM_CACHE=build/cudasim/cache %s %s %s")
            :format(settings, shell.program, script))))
        end)
        return lfs.attributes(path .. at, "mode") == "directory" and #cubins(path .. at) > 0
      end
      local xdg, home = "XDG_CACHE_HOME=" .. path .. "/xdg ", "HOME=" .. path .. "/home "
      assert.is_true(cached("TYCHO_CACHE=" .. path .. "/own " .. xdg .. home, "/own"))
      assert.is_true(cached(xdg .. home, "/xdg/tycho"))
      assert.is_true(cached(home, "/home/.cache/tycho"))
      assert.is_false(cached("TYCHO_CACHE= " .. xdg .. home, "/nowhere"))
      assert.is_false(cached("", "/nowhere"))
      folder.write(path .. "/file", "untouched")
      assert.is_false(cached("TYCHO_CACHE=" .. path .. "/file", "/file"))
      assert.equal("untouched", folder.read(path .. "/file"))
      assert.is_false(cached("TYCHO_CACHE=" .. path .. "/" .. ("long/"):rep(900), "/long"))
    end)
  end)
end)
