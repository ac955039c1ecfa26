--- Sums over ranks that are delayed: a gate is a sum in a separate group, which one of its two
-- ranks has requested and the other one has not.

local comm = require "tycho.kvstore.comm"
local ffi = require "ffi"
local ty = require "tycho"

ffi.cdef "unsigned alarm(unsigned seconds);"

local gate = {}

--- Makes work that needs x wait until the returned function is called.
function gate.close(x)
  local near, far = unpack(comm.group(2))
  local y = ty.nd.zeros(x.shape, { ctx = far.context })
  near:sum{ x }
  return function()
    far:sum{ y }
  end
end

--- Sets an alarm before a test, which ends the process if the test hangs: a gate would stay closed.
function gate.watch()
  ffi.C.alarm(300)
end

--- Clears the alarm after a test.
function gate.leave()
  ffi.C.alarm(0)
end

return gate
