-- README's two commands on a bare Debian 13, whose libraries are newer than those of Debian 12.

local shell = require "spec.support.shell"

describe("A bare Debian 13", function()
  it("builds, trains and passes all tests #slow", function()
    if select(2, shell.run("[ $(id -u) -eq 0 ] && command -v debootstrap unshare")) ~= 0 then
      pending("debootstrap and root")
      return
    end
    local output, status = shell.run("sh scripts/dev/chroot.sh trixie < /dev/null")
    assert.equal(0, status, output:sub(-4000))
    assert.is_truthy(output:find("\ntest perplexity "), output:sub(-4000))
    assert.is_truthy(output:find("\n%d+ passed, 0 failed"), output:sub(-4000))
  end)
end)
