-- Specs that start processes with mpirun; they are pending, with the reason, if that is impossible.

local lfs = require "lfs"
local shell = require "spec.support.shell"

local mpi = {}

--- Returns why processes cannot be started; nil if they can.
function mpi.missing()
  local _, status = shell.run("command -v mpirun")
  local library = lfs.attributes((shell.program:gsub("[^/]*$", "")) .. "libtycho_mpi.so")
  if status ~= 0 or not library then
    return "no MPI: install libopenmpi-dev and openmpi-bin, then make"
  end
  return (os.getenv("SANITIZER") or "") ~= "" and "MPI under a sanitizer" or nil
end

--- Returns an `it` for specs that need MPI; `it` and `pending` are those of the spec file.
-- @tparam[opt] function more called if MPI is installed: returns a reason to skip nevertheless
function mpi.it(it, pending, more)
  local why = mpi.missing() or more and more()
  return function(name, f)
    it(name, function()
      if why then
        pending(why)
        return
      end
      f()
    end)
  end
end

return mpi
