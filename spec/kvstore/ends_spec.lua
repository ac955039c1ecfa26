-- Processes over MPI: how they end together, one alone, and what a process needs to be one of them.

local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"

local RUN = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
  timeout 120 mpirun --oversubscribe -n %d %s %s 2>&1"

describe("processes over MPI", function()
  local with_mpi = mpi.it(it, pending)

  with_mpi("end together when one asks for it, which says why", function()
    for text, said in pairs{ ["\"had enough\""] = "had enough; the last checkpoint: epoch 7",
      [""] = "ended by the script; the last checkpoint: none was written" } do
      local output, status = shell.run(RUN:format(2, shell.program, ("-e \z
        'local kv = require(\"tycho\").kv.create(\"dist_sync\") \z
         local C = require(\"tycho.core.ffi\").C C.ty_comm_note(\"epoch 7\") \z
         if not (%s) then C.ty_comm_note(nil) end kv:barrier() \z
         if kv.rank == 1 then kv._group:abort(%s) end kv:barrier()'"):format(text == "" and "nil" or text,
        text)))
      assert.are_not.equal(0, status)
      assert.truthy(output:find("rank 1 of 2: " .. said, 1, true), output)
    end
  end)

  with_mpi("may be one alone, without a launcher", function()
    local output, status = shell.run(("%s -e 'local world = \z
      require(\"tycho.kvstore.comm\").world() local x = require(\"tycho\").nd.array{ 1, 2 } \z
      world:sum{ x } local ffi, C = require(\"ffi\"), require(\"tycho.core.ffi\").C \z
      local again = ffi.new(\"ty_comm *[1]\") assert(C.ty_comm_open(\"mpi\", 1, again) == 0) \z
      C.ty_comm_free(again[0]) \z
      print(world.rank, world.size, x:totable()[2], again[0] == world._h) error(\"alone\")' \z
      2>&1"):format(shell.program))
    assert.truthy(output:find("0\t1\t2\ttrue\n", 1, true), output)
    assert.falsy(output:find("the script failed", 1, true), output)
    assert.are_not.equal(0, status)
  end)

  with_mpi("need a library of theirs that can be opened and is of this version", function()
    local open = "%s %s -e 'local ffi, C = require(\"ffi\"), require(\"tycho.core.ffi\").C \z
      print(C.ty_comm_open(\"mpi\", 0, ffi.new(\"ty_comm *[1]\")), ffi.string(C.ty_error()))'"
    local function refusal(setting)
      return (shell.run(open:format(setting, shell.program)))
    end
    assert.truthy(refusal("TYCHO_MPI=/nowhere.so"):find("8\tMPI cannot be used: \z
      /nowhere.so: cannot open shared object file: No such file or directory. Its library is \z
      built where MPI", 1, true))
    assert.equal("8\tlibtycho_mpi.so is not of this version: build both together\n",
      refusal("TYCHO_MPI=libm.so.6"))
  end)
end)
