-- Trainers over ranks: as threads of this process, and as processes that mpirun starts.

local autograd = require("tycho").autograd
local comm = require "tycho.kvstore.comm"
local dist = require "tycho.kvstore.dist"
local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"
local ty = require "tycho"

local gluon = ty.gluon


describe("Trainers of ranks that are threads", function()
  for _, on_store in ipairs{ true, false } do
    it("begin with the values of rank 0 and make the same steps, the store updating: "
        .. tostring(on_store), function()
      local trainers, params = {}, {}
      for r, group in ipairs(comm.group(2)) do
        local kv = dist.DistStore("dist_sync", group)
        local p = gluon.Parameter{ "w", shape = { 2 } }
        p:initialize{ init = ty.init.Constant(r), ctx = kv._home }
        params[r] = p
        trainers[r] = gluon.Trainer({ p }, "sgd", { learning_rate = 0.5 },
          { kvstore = kv, update_on_kvstore = on_store })
      end
      for r, t in ipairs(trainers) do
        autograd.record(function() return params[r]:data() * r end):backward()
        t:step(2)
      end
      -- 1 - 0.5 * (1 + 2) / 2
      assert.near({ 0.25, 0.25 }, params[1]:data())
      assert.near({ 0.25, 0.25 }, params[2]:data())
    end)
  end
end)


describe("Trainers of processes over MPI", function()
  local with_mpi = mpi.it(it, pending)
  local RUN = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
    timeout 120 mpirun --oversubscribe -n %d %s %s"

  for _, case in ipairs{ "sgd store", "adam store", "sgd halves" } do
    with_mpi("train as one process with as many contexts does: " .. case, function()
      local words = "spec/support/gluon_ranks.lua " .. case
      local one = shell.run(("TYCHO_THREADS=1 %s %s one 2"):format(shell.program, words))
      assert.truthy(one:find("net_dense0_weight", 1, true), one)
      local both = shell.run(RUN:format(2, shell.program, words) .. " 2> /dev/null")
      assert.equal(one, both)
    end)
  end
end)
