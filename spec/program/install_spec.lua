-- Installing: what make installs and takes away, what a plain luajit needs, releases, and the
-- advice of setup.sh. Nothing is built but one object file.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

local BUILD = shell.program:match("^(.*)/[^/]*$")

local function run(format, ...)
  local output, status = shell.run(format:format(...))
  assert.equal(0, status, output)
  return output
end

-- Runs make with the existing build, as if it were up to date.
local function make(words)
  return run("make --no-print-directory -o all BUILD=%s %s", BUILD, words)
end

local function has(output, text)
  assert.is_truthy(output:find(text, 1, true), ("'%s' is missing in\n%s"):format(text, output))
end

describe("make", function()
  it("shows a short line per file, with V=1 the command", function()
    folder.with(function(path)
      local object = path .. "/native/base/version.o"
      assert.equal("  CC  native/base/version.c\n",
        run("make --no-print-directory BUILD=%s %s", path, object))
      os.remove(object)
      local whole = run("make --no-print-directory BUILD=%s V=1 %s", path, object)
      has(whole, "-c native/base/version.c")
    end)
  end)

  it("says how a plain luajit finds what it installs, and takes it away again", function()
    if (os.getenv("SANITIZER") or "") ~= "" then
      pending("a sanitized library")
      return
    end
    folder.with(function(path)
      local log = make("install PREFIX=" .. path)
      local exports = log:match("(  export LUA_PATH=[^\n]*\n  export TYCHO_LIB=[^\n]*\n)")
      assert.is_truthy(exports, log)
      local luajit = [[luajit -e 'print(require("tycho").nd.ones(2):sum():asscalar())']]
      assert.equal("2\n", run("cd / && unset TYCHO_LIB\n%s%s", exports, luajit))
      local modules = path .. "/share/lua/5.1/tycho"
      assert.equal(run("cd runtime/lua/tycho && find . -name '*.lua' | sort"),
        run("cd %s && find . -name '*.lua' -not -path './scripts/*' | sort", modules))
      local complaint, status = shell.run(("cd / && unset TYCHO_LIB\n%s%s"):format(
        exports:match("[^\n]*\n"), luajit))
      assert.equal(1, status)
      has(complaint, "libtycho.so cannot be loaded")
      has(complaint, exports)
      make("uninstall PREFIX=" .. path)
      assert.equal("", run("find %s -not -type d", path))
    end)
  end)

  it("makes a release: an archive, and a rock of it with its version", function()
    folder.with(function(path)
      run("make --no-print-directory DIST=%s dist", path)
      local version = require("tycho").version
      local name = "tycho-" .. version
      local list = run("tar -tzf %s/%s.tar.gz", path, name)
      for _, file in ipairs{"README.md", "Makefile", "native/tycho.h", "runtime/lua/tycho/init.lua",
          "scripts/setup.sh", "spec/helper.lua", "tycho-scm-1.rockspec", name .. "-1.rockspec"} do
        has("\n" .. list, ("\n%s/%s\n"):format(name, file))
      end
      assert.is_nil(list:find("/build/", 1, true))
      local rockspec = folder.read(path .. "/" .. name .. "-1.rockspec")
      has(rockspec, ('version = "%s-1"'):format(version))
      has(rockspec, name .. ".zip")
      assert.equal(name .. "-1.rockspec\n" .. name .. ".zip\n",
        run("zipinfo -1 %s/%s-1.src.rock", path, name))
      local function sorted(format)
        return run("{ " .. format .. "; } | grep -v '/$' | LC_ALL=C sort", path, name)
      end
      assert.equal(sorted("tar -tzf %s/%s.tar.gz"), sorted("zipinfo -1 %s/%s.zip"))
    end)
  end)

  it("makes a rock that LuaRocks installs without a network #slow", function()
    folder.with(function(path)
      run("make --no-print-directory DIST=%s/dist dist", path)
      run("cd %s && MAKEFLAGS=-j2 unshare -n luarocks --lua-version 5.1 install --tree tree \z
        dist/*.src.rock", path)
      assert.equal("2\n",
        run("cd / && env -i %s/tree/bin/tycho -e 'ty.nd.ones(2):sum():asscalar()'", path))
    end)
  end)
end)

describe("setup.sh", function()
  -- Returns output and exit status where there are no other programs than those of `programs`: name
  -- -> the body of a script.
  local function setup(programs, words)
    local output, status
    folder.with(function(path)
      run("ln -s $(command -v dirname) %s/dirname", path)
      for name, body in pairs(programs) do
        folder.write(path .. "/" .. name, "#!/bin/sh\n" .. body .. "\n")
      end
      output, status = shell.run(([[
        sh=$(command -v sh)
        chmod +x %s/*
        PATH=%s $sh scripts/setup.sh %s < /dev/null]]):format(path, path, words))
    end)
    return output, status
  end

  it("says what to install, without sudo where there is none", function()
    local programs = {id = "echo 1000", ["dpkg-query"] = "exit 1"}
    local output, status = setup(programs, "doc")
    assert.equal(1, status)
    has(output, "\n  apt-get update && apt-get install ")
    programs.sudo = "exit 1"
    output, status = setup(programs, "doc")
    assert.equal(1, status)
    has(output, "\n  sudo apt-get update && sudo apt-get install ")
  end)

  it("skips the tests on aarch64 where nothing can be fetched, and says what is missing", function()
    local output, status = setup({
      id = "echo 1000",
      ["dpkg-query"] = "exit 1",
      sh = 'exec /bin/sh "$@"',
      sed = 'exec /bin/sed "$@"',
      make = "[ $1 = arm64-test ] && exec sh scripts/dev/arm64.sh test",
    }, "arm64")
    assert.equal(0, status, output)
    has(output, "aarch64: skipped, no aarch64-linux-gnu-gcc")
    has(output, "\n0 passed, 0 failed, 1 skipped\n")
  end)

  it("says where the pages are", function()
    local output, status = setup({["dpkg-query"] = "echo installed", make = "exit 0"}, "doc")
    assert.equal(0, status, output)
    has(output, "/build/doc; begin with index.html")
  end)
end)
