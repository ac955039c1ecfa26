-- Files of the real Torch7 with what they compute, where these are recorded: TYCHO_TORCH7, else
-- ../shared/t7. Its program reads each file and compares.

local shell = require "spec.support.shell"

local root = os.getenv("TYCHO_TORCH7") or "../shared/t7"

-- Recorded with values that the classes do not give: the head gradient of the last layer was
-- overwritten by a backward in place before it was written down; image statistics were taken for
-- running averages, which their class never uses.
local CONTRADICTED = { "act_leakyrelu", "style", "instancenorm" }

describe("recorded files of Torch7", function()
  local there = io.open(root .. "/run.lua")
  if there then
    there:close()
  end
  for _, kind in ipairs{ "models", "values", "refused", "corrupt" } do
    it("are read as recorded: " .. kind, function()
      if not there then
        pending("no recorded files in " .. root)
      end
      local text = shell.run(("%s %s/run.lua -v '^%s/' 2>&1"):format(
        shell.program, root, kind))
      local short = text:match("short: ([^\n]*)\n?$") or text
      for _, name in ipairs(kind == "models" and CONTRADICTED or {}) do
        short = (" " .. short):gsub(" " .. name, "", 1):gsub("^ ", "")
      end
      assert.equal(kind == "models" and "" or "none", short, text)
    end)
  end
end)
