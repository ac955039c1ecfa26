-- Processes whose address space ends (limits.lua): Lua, stacks of threads, OpenBLAS, oneDNN.

local shell = require "spec.support.shell"

local function run(words)
  if (os.getenv("SANITIZER") or "") ~= "" then
    pending("a sanitizer reserves terabytes")
    return
  end
  local output, status = shell.run(shell.program .. " spec/torture/limits.lua " .. words)
  assert.equal(0, status, output)
end

describe("what does not fit into the address space", function()
  it("is an error of memory, and the next try gives the same bits", function()
    run("0 step matrices prompt start")
  end)

  it("is that everywhere #slow", function() run("40") end)
end)
