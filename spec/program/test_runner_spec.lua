-- scripts/dev/test.sh: programs of another processor, time limits, counts.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

-- Returns what test.sh writes of a program, a shell script without permission to be executed, and
-- its exit status. `environment`: assignments before the command.
local function test(environment, script)
  local output, status
  folder.with(function(path)
    folder.write(path .. "/one_test", script)
    output, status = shell.run(("%s sh scripts/dev/test.sh %s/one_test"):format(environment, path))
    output = output:gsub(path:gsub("%p", "%%%0"), "")
  end)
  return output, status
end

describe("test.sh", function()
  it("starts programs by what TYCHO_RUNNER says, and adds counts", function()
    local output, status = test("TYCHO_RUNNER=sh", "echo word; echo '3 passed, 0 failed'")
    assert.equal("/one_test\nword\n3 passed, 0 failed, 0 skipped\n", output)
    assert.equal(0, status)
  end)

  it("names a program that takes longer than TYCHO_LIMIT", function()
    local output, status = test("TYCHO_RUNNER=sh TYCHO_LIMIT=1", "exec sleep 60")
    assert.equal("/one_test\nFAIL /one_test: ended after 1 seconds\n"
      .. "0 passed, 1 failed, 0 skipped\n", output)
    assert.equal(1, status)
  end)

  it("names a program without counts", function()
    local output, status = test("TYCHO_RUNNER=sh", "exit 7")
    assert.equal("/one_test\nFAIL /one_test: no result, exit status 7\n"
      .. "0 passed, 1 failed, 0 skipped\n", output)
    assert.equal(1, status)
  end)
end)
