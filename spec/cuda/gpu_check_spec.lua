-- scripts/dev/gpu_check.sh: what it says where there is no GPU, its parts by name, how long they
-- may take, and that the sentences which it changes are there.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local stand_in = require "spec.support.stand_in"

local SCRIPT = "scripts/dev/gpu_check.sh"
local TEXT = folder.read(SCRIPT)

local function check(settings, path, words)
  return shell.run(("%s sh %s %s %s"):format(settings, SCRIPT, path, words or ""))
end

describe("The check on a GPU", function()
  it("says why nothing runs without one", function()
    folder.with(function(path)
      local text, status = check("TYCHO_DISABLE=cuda", path)
      assert.equal(1, status)
      assert.matches("no part can run: .*gpu%(0%) does not exist: TYCHO_DISABLE", text)
      assert.matches("no part can run", folder.read(path .. "/summary"))
    end)
  end)

  it("takes eight minutes at most", function()
    local sum = 0
    for parts, seconds in TEXT:gmatch("\n    ([%l |]+)%) echo (%d+) ;;") do
      local _, more = parts:gsub("|", "")
      sum = sum + (1 + more) * seconds
    end
    assert.equal(480, sum)
  end)

  it("names sentences that stand where it says", function()
    local n = 0
    for file, old in TEXT:gsub("\\\n%s+", ""):gmatch("\n  change %l+ (%S+) (%b\"\")") do
      old = old:sub(2, -2):gsub("\\`", "`")
      assert.is_truthy(folder.read(file):find(old, 1, true), old .. " is not in " .. file)
      n = n + 1
    end
    assert.is_true(n >= 5)
  end)

  it("knows its parts by name", function()
    folder.with(function(path)
      local text, status = check("", path, "no_such_part")
      assert.equal(2, status)
      assert.matches("no part is called no_such_part", text)
    end)
  end)

  it("runs a part by itself and says what changes", function()
    if not stand_in.exists() then
      pending("no build/cudasim: make cudasim")
      return
    end
    folder.with(function(path)
      local text, status = check("TYCHO_CUDA_PATH=build/cudasim", path, "platform")
      assert.equal(0, status, text)
      assert.matches("^platform: passed, %d+ s\n$", folder.read(path .. "/summary"))
      assert.matches("CUDA        1 device", folder.read(path .. "/platform.log"))
      assert.matches("doc/gpu.md\n  %- %*%*What ran on a GPU so far: nothing%.%*%*\n  %+ [^\n]*: "
        .. "platform; failed: none", folder.read(path .. "/changes"))
      assert.is_nil(text:find("bench.log", 1, true))
    end)
  end)
end)
