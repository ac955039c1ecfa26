-- README's two commands on a bare Debian 13, whose libraries are newer than those of Debian 12; the
-- Debian packages on both.

local shell = require "spec.support.shell"

-- Returns the output of a command of chroot.sh, which must succeed; nil if it cannot be run.
local function in_chroot(words)
  if select(2, shell.run("[ $(id -u) -eq 0 ] && command -v debootstrap unshare")) ~= 0 then
    pending("debootstrap and root")
    return nil
  end
  local output, status = shell.run("sh scripts/dev/chroot.sh " .. words .. " < /dev/null")
  assert.equal(0, status, output:sub(-4000))
  return output
end

describe("A bare Debian 13", function()
  it("builds, trains and passes all tests #slow", function()
    local output = in_chroot("trixie")
    if output then
      assert.is_truthy(output:find("\ntest perplexity "), output:sub(-4000))
      assert.is_truthy(output:find("\n%d+ passed, 0 failed"), output:sub(-4000))
    end
  end)
end)

describe("Debian packages", function()
  for _, suite in ipairs{ "bookworm", "trixie" } do
    it("are built, accepted by lintian, and run in a bare " .. suite .. " #slow", function()
      local output = in_chroot(suite .. " deb")
      if output then
        local tail = output:match("the packages in a bare system(.*)$")
        assert.is_truthy(tail:find("\n6\n"), tail:sub(-4000))
        assert.is_truthy(tail:find("\naccuracy 0.9"), tail:sub(-4000))
        local version = "\n2\n" .. require("tycho").version .. "\n"
        assert.is_truthy(tail:find(version, 1, true), tail:sub(-4000))
        if suite == "bookworm" then                      -- which has OpenResty's LuaJIT
          assert.is_truthy(tail:find("\n3\n"), tail:sub(-4000))
          assert.is_truthy(tail:find("\nworker 6\n"), tail:sub(-4000))
          assert.is_truthy(tail:find("\nrefused: [^\n]*is a fork of one that had used the engine"),
            tail:sub(-4000))
        end
      end
    end)
  end
end)
