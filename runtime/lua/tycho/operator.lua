-- The name that users require; see op/custom.lua. Recorded calls know such operators, too.
require "tycho.core.luajit"
local custom = require "tycho.op.custom"

function custom._record(...)
  return require "tycho.autograd.custom"(...)
end

return custom
