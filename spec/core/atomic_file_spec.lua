-- Writing a file all or nothing (native/base/atomic_file.c): what may happen meanwhile.

local ty = require "tycho"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local shell = require "spec.support.shell"

local function names_in(path)
  local names = {}
  for name in lfs.dir(path) do
    names[#names + 1] = name ~= "." and name ~= ".." and name or nil
  end
  table.sort(names)
  return names
end

local function save(path, value)
  ty.nd.save(path .. "/a.params", { a = ty.nd.full({ 3 }, value) })
end

-- Returns the command that runs lines of Lua in a process of its own.
local function running(lines)
  return ("%s -e '%s'"):format(shell.program, lines)
end

local function is_root()
  return shell.run("id -u"):match("%d+") == "0"
end

describe("a file that is written", function()
  it("leaves nothing beside it, and removes what the dead have left", function()
    folder.with(function(path)
      folder.write(path .. "/.tycho-4194300-7", "half")
      folder.write(path .. "/.tycho-notes", "mine")
      lfs.link(path .. "/.tycho-notes", path .. "/.tycho-4194300-8", true)
      folder.with(function(other) save(other, 1) end)    -- a folder is looked into when it is new
      save(path, 1)
      assert.same({ ".tycho-4194300-8", ".tycho-notes", "a.params" }, names_in(path))
    end)
  end)

  it("leaves alone files whose names only begin as its own", function()
    folder.with(function(path)
      local others = { ".tycho", ".tycho-", ".tycho-1", ".tycho-1-", ".tycho-1-2.bak", ".tycho-a-2",
        "tycho-1-2" }
      for _, name in ipairs(others) do
        folder.write(path .. "/" .. name, "mine")
      end
      folder.write(path .. "/.tycho-1-2", "half")
      folder.with(function(other) save(other, 1) end)
      save(path, 1)
      table.insert(others, #others, "a.params")
      assert.same(others, names_in(path))
    end)
  end)

  it("leaves files alone that are still being written", function()
    folder.with(function(path)
      local name = path .. "/.tycho-1-1"
      folder.write(name, "half")
      os.execute(("flock -x %s sh -c 'touch %s/ready; while [ -e %s/ready ]; do :; done' &")
        :format(name, path, path))
      while not lfs.attributes(path .. "/ready") do end
      save(path, 1)
      assert.same({ ".tycho-1-1", "a.params", "ready" }, names_in(path))
      os.remove(path .. "/ready")
    end)
  end)

  it("keeps its permissions; a private one is never another's to read", function()
    folder.with(function(path)
      save(path, 1)
      os.execute("chmod 600 " .. path .. "/a.params")
      save(path, 2)
      assert.equal("rw-------", lfs.attributes(path .. "/a.params").permissions)
      assert.equal(2, ty.nd.load(path .. "/a.params").a[0]:asscalar())
    end)
  end)

  it("goes where a link leads, and leaves the link", function()
    folder.with(function(path)
      lfs.mkdir(path .. "/far")
      save(path .. "/far", 1)
      lfs.link("far/a.params", path .. "/a.params", true)
      save(path, 2)
      assert.equal("link", lfs.symlinkattributes(path .. "/a.params").mode)
      assert.equal(2, ty.nd.load(path .. "/far/a.params").a[0]:asscalar())
    end)
  end)

  it("stays as it was where there is no room", function()
    folder.with(function(path)
      save(path, 1)
      local output, status = shell.run("ulimit -f 8; trap '' XFSZ; " .. running(
        ([=[local ty = require "tycho"
          local ok, e = pcall(ty.nd.save, "%s/a.params", { a = ty.nd.ones{ 100000 } })
          print(ok, e.code)]=]):format(path)))
      assert.equal(0, status, output)
      assert.truthy(output:find("false%s+io"), output)
      assert.same({ "a.params" }, names_in(path))
      assert.equal(1, ty.nd.load(path .. "/a.params").a[0]:asscalar())
    end)
  end)

  it("is an error where the folder is gone, or read-only", function()
    folder.with(function(path)
      local e = assert.raises("io", save, path .. "/gone", 1)
      assert.truthy(e.message:find(path .. "/gone/a.params", 1, true))
      if is_root() then return end
      os.execute("chmod 500 " .. path)
      assert.raises("io", save, path, 1)
      os.execute("chmod 700 " .. path)
    end)
  end)
end)

describe("two processes that write one file", function()
  it("leave one of both, whole", function()
    folder.with(function(path)
      local script = [[local ty = require "tycho"
        for i = 1, 150 do
          ty.nd.save("%s/a.params", { a = ty.nd.full({ 5000 }, %d) })
          local x = ty.nd.load("%s/a.params").a
          assert(x:min():asscalar() == x:max():asscalar())
        end]]
      local first = running(script:format(path, 1, path))
      local second = running(script:format(path, 2, path))
      local output, status = shell.run(("(%s & one=$!; %s; two=$?; wait $one && exit $two)")
        :format(first, second))
      assert.equal(0, status, output)
      assert.same({ "a.params" }, names_in(path))
    end)
  end)
end)
