-- A part of the tests on aarch64, emulated: scripts/dev/arm64.sh says what it needs.

local shell = require "spec.support.shell"

describe("aarch64", function()
  it("passes a part of the tests under qemu #slow", function()
    local text, status = shell.run("make --no-print-directory arm64-test")
    local lacks = text:match("aarch64: skipped, ([^\n]*)")
    if lacks then
      pending(lacks)
    end
    local passed, failed = text:match("(%d+) passed, (%d+) failed, %d+ skipped%s*$")
    assert.equal(0, status, text)
    assert.equal("0", failed, text)
    assert.is_true(tonumber(passed) > 0, text)
  end)
end)
