-- Folders: made with those above them, kept from other users, listed.

local files = require "tycho.core.files"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local listing = require "tycho.ndarray.folder"
local native = require "tycho.core.ffi"
require "spec.helper"

describe("a folder", function()
  it("is made with those above it, once", function()
    folder.with(function(path)
      files.make_folder(path .. "/a/b/c", "f")
      files.make_folder(path .. "/a/b/c/", "f")
      assert.equal("directory", lfs.attributes(path .. "/a/b/c", "mode"))
    end)
  end)

  it("is no file's child, and no file", function()
    folder.with(function(path)
      folder.write(path .. "/file", "")
      local e = assert.raises("io", files.make_folder, path .. "/file", "f")
      assert.equal(path .. "/file", e.argument)
      assert.raises("io", files.make_folder, path .. "/file/x", "f")
      assert.raises("io", listing.list, path .. "/file", "f")
      assert.raises("io", listing.list, path .. "/none", "f")
      assert.equal(native.C.TY_ETYPE, native.C.ty_folder_make("", 0))
    end)
  end)

  it("is private to its user, or refused", function()
    folder.with(function(path)
      files.make_folder(path .. "/own", "f", true)
      assert.equal("rwx------", lfs.attributes(path .. "/own", "permissions"))
      files.make_folder(path .. "/own", "f", true)
      lfs.mkdir(path .. "/open")
      os.execute("chmod 755 " .. path .. "/open")
      local e = assert.raises("io", files.make_folder, path .. "/open", "f", true)
      assert.truthy(e.message:find("open to other users", 1, true))
      lfs.link(path .. "/own", path .. "/link", true)
      e = assert.raises("io", files.make_folder, path .. "/link", "f", true)
      assert.truthy(e.message:find("is a link", 1, true))
      if os.execute("chown 1 " .. path .. "/own 2>/dev/null") == 0 then
        e = assert.raises("io", files.make_folder, path .. "/own", "f", true)
        assert.truthy(e.message:find("belongs to another user", 1, true))
      end
    end)
  end)

  it("is listed in order", function()
    folder.with(function(path)
      local function names()
        local list = {}
        for i, entry in ipairs(listing.list(path, "f")) do
          list[i] = entry.name .. (entry.folder and "/" or "")
        end
        return list
      end
      assert.same({}, names())
      lfs.mkdir(path .. "/b")
      for _, name in ipairs{ "c.txt", "a", ".hidden", "new\nline" } do
        folder.write(path .. "/" .. name, "")
      end
      lfs.link("b", path .. "/d", true)
      lfs.link("nowhere", path .. "/e", true)
      assert.same({ ".hidden", "a", "b/", "c.txt", "d/", "e", "new\nline" }, names())
    end)
  end)
end)
