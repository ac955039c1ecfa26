-- Ctrl-C at the prompt at random instants: each time it is back at the line, with all that it knew.

local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"

-- Some ten milliseconds of interpreted Lua, calls, programs that run, and collections.
local WORK = "function work() for i = 1, 20 do kept = kept + 1; \z
  local x = ty.nd.ones{ 40, 40 }; x = ty.nd.dot{ x, x } + i; x:sum():asscalar(); \z
  collectgarbage() end end"

local function session(presses)
  local t = terminal.open(shell.program, "TERM=xterm HOME=/nonexistent TYCHO_HISTORY=")
  t:expect("> ")
  t:send(WORK .. "\n")
  t:expect("> ")
  t:send("kept = 1\n")
  t:expect("> ")
  for i = 1, presses do
    t:send("work()\n")
    t:expect("work()")
    os.execute(("sleep %.3f"):format(math.random() * 0.05))
    t:send("\3")
    t:expect("^C")
    t:expect("> ")
    t:send(("print('line ' .. %d + kept * 0)\n"):format(i))
    t:expect(("line %d\r\n"):format(i))
    t:expect("> ")
  end
  t:send("work() print(kept > 20, ty.nd.ones{ 3 }:sum():asscalar())\n")
  t:expect("true\t3\r\n")
  assert.equal(0, t:close())
end

describe("Ctrl-C at the prompt", function()
  it("comes back to the line: 10 random instants", function() session(10) end)

  it("comes back to the line: 1,000 random instants #slow", function()
    for _ = 1, 20 do
      session(50)
    end
  end)
end)
