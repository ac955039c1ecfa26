-- Random calls of all operators: a result or an error object, never a crash. They run in a separate
-- process, with TYCHO_MEM_LIMIT at 1 GB. TYCHO_FUZZ is the number of calls (3000 by default),
-- TYCHO_FUZZ_SEED the seed of their choice (1).
local shell = require "spec.support.shell"
require "spec.helper"

local CALLS, SEED = tonumber(os.getenv("TYCHO_FUZZ")) or 3000,
  tonumber(os.getenv("TYCHO_FUZZ_SEED")) or 1

local function last_call(path)
  local file = io.open(path)
  local text = file and file:read("*a") or ""
  if file then file:close() end
  return text
end

describe("random calls", function()
  it(("give results or error objects (%d of seed %d)"):format(CALLS, SEED), function()
    shell.with_file("", function(trace)
      local output, status =
        shell.run(("TYCHO_MEM_LIMIT=1000000000 %s spec/support/fuzz.lua %d %d 1 %s")
          :format(shell.program, CALLS, SEED, trace))
      assert.is_true(status == 0,
        ("status %s after %s\n%s"):format(status, last_call(trace), output:sub(-3000)))
      local results, errors = output:match("(%d+) results, (%d+) error objects, 0 failures")
      assert.is_true(tonumber(results) > CALLS / 3 and tonumber(errors) > CALLS / 10, output)
    end)
  end)
end)
