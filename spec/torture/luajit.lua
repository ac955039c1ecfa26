-- The fault inside LuaJIT for which faults.lua turns the compiler off (doc/reliability.md): machine
-- code may crash where an allocation of Lua's fails. The same calls fail here, with the compiler
-- on. A run ends well or by that crash, and nothing else; with a LuaJIT that has no such crash, as
-- the last line then tells, faults.lua need not interpret.
--
--   build/torture/tycho spec/torture/luajit.lua LIBRARY

local shell = require "spec.support.shell"

local RUNS, SEGMENTATION = 3, 128 + 11

local crashed = 0
for run = 1, RUNS do
  local output, status = shell.run(("TORTURE_COMPILED=1 %s spec/torture/faults.lua %s 300 infer")
    :format(shell.program, arg[1]))
  crashed = crashed + (status == SEGMENTATION and 1 or 0)
  if status ~= 0 and status ~= SEGMENTATION then
    print(("run %d ends with status %d\n%s"):format(run, status, output))
    os.exit(1)
  end
end
print(("Lua has no memory, compiled: %d of %d runs end by LuaJIT's crash"):format(crashed, RUNS))
