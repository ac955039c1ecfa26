-- The scripts that train on several processes, measure messages, and predict.

local folder = require "spec.support.folder"
local json = require "tycho.core.json"
local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"

local function run(command)
  local output, status = shell.run(command)
  assert.equal(0, status, output)
  return output
end

local function ranks(n, words)
  return run(("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
    timeout 120 mpirun --oversubscribe -n %d %s %s"):format(n, shell.program, words))
end

local function write(path, value)
  local file = assert(io.open(path, "w"))
  file:write(json.text(value))
  file:close()
end

local function model(path, words)
  return run(("%s scripts/scale_model.lua --alone %s/alone --step %s/step --link %s/link %s")
    :format(shell.program, path, path, path, words))
end

describe("scripts for several ranks:", function()
  local with_mpi = mpi.it(it, pending)

  for _, name in ipairs{ "lenet", "resnet", "lm" } do
    with_mpi("multi_host trains " .. name, function()
      local output = ranks(2, "scripts/multi_host.lua --quick --model " .. name)
      assert.truthy(output:find(name .. ", 2 ranks, batches of 8: ", 1, true), output)
      assert.truthy(output:match("messages per step: comm [%d.]+ ms, exposed [%d.]+ ms"), output)
    end)
  end

  with_mpi("what they write is what scale_model reads", function()
    folder.with(function(path)
      local words = "scripts/multi_host.lua --quick --model lenet --write " .. path
      run(("%s %s/alone"):format(shell.program, words))
      ranks(2, words .. "/step")
      local output = ranks(2, "scripts/comm_bench.lua --quick --write " .. path .. "/link")
      -- a slope that the noise of a busy machine hides is "for any size"
      assert.truthy(output:match("all%-reduce: [%d.]+ us [%+f]"), output)
      output = model(path, "--ranks 2,8")
      assert.truthy(output:match("\n +2  as measured"), output)
      assert.truthy(output:match("\n +8  as measured"), output)
    end)
  end)

  it("comm_bench refuses to measure messages of one rank", function()
    local output, status = shell.tycho("scripts/comm_bench.lua --quick")
    if output:find("MPI", 1, true) and not output:find("one rank", 1, true) then
      return pending("there is no MPI")
    end
    assert.are.equal(1, status)
    assert.truthy(output:find("mpirun -n 2", 1, true), output)
    assert.is_nil(output:find("MB/s", 1, true))
  end)

  it("scale_model adds what computing does not hide", function()
    folder.with(function(path)
      write(path .. "/alone", { model = "net", batch = 8, seconds = 0.1 })
      write(path .. "/step", { ranks = 2, seconds = 0.12, exposed = 0.02, computing = 0.1,
        messages = { { bytes = 1e6, ready = 0.05 }, { bytes = 25e6, ready = 0.09 } } })
      write(path .. "/link", { ranks = 2, sum = { upto = 1e6,
        small = { latency = 1e-4, bandwidth = 1e8 },
        large = { latency = 1e-3, bandwidth = 1e9 } } })
      local output = model(path, "--ranks 2")            -- 90 + 1 + 25 + 10 of updates
      assert.truthy(output:match("\n +2  as measured +126%.000 +26%.000 +79%.4 %%"), output)
      -- 90 + 3 * 0.03 + 14 * 0.002 + 25 + 2 * 7 / 8 * 25e6 / 1.25e9 * 1000 + 10
      output = model(path, "--ranks 8 --gigabits 10")
      assert.truthy(output:match("\n +8  10 Gbit/s +160%.118 +60%.118 +62%.5 %%"), output)
      -- 90 + 3 * 0.03 + 8 * 0.002 + 2 * 25 + 2 / 2 * 25e6 / 1.25e9 * 1000 + 10
      output = model(path, "--ranks 8 --gigabits 10 --per-host 4")
      assert.truthy(output:match("\n +8  10 Gbit/s +170%.106 +70%.106 +58%.8 %%"), output)
    end)
  end)

  it("scale_model takes the messages' processor time from computing", function()
    folder.with(function(path)
      write(path .. "/alone", { model = "net", batch = 8, seconds = 0.1 })
      write(path .. "/step", { ranks = 2, seconds = 0.12, exposed = 0.02, computing = 0.1,
        messages = { { bytes = 1e6, ready = 0.05 }, { bytes = 1e7, ready = 0.06 },
          { bytes = 1e6, ready = 0.09 } } })
      local function link(bandwidth)
        local function line(b) return { latency = 1e-3, bandwidth = b } end
        local sum = line(1e9)
        sum.processor = line(bandwidth)
        write(path .. "/link", { ranks = 2, sum = { upto = 0, small = sum, large = sum } })
      end
      -- 2 and 11 ms, of a core 1.25 and 3.5 of them: the sums are there before the last gradients,
      -- and then there are 90 + 4.75 ms, 2 of the last message, 10 of updates
      link(4e9)
      local output = model(path, "--ranks 2")
      assert.truthy(output:match("\n +2  as measured +106%.750 +6%.750 +93%.7 %%"), output)
      output = model(path, "--ranks 2 --spare 1")
      assert.truthy(output:match("\n +2  as measured +102%.000 +2%.000 +98%.0 %%"), output)
      -- all of them on a core, half of it beside computing
      link(1e9)
      output = model(path, "--ranks 2")
      assert.truthy(output:match("\n +2  as measured +115%.000 +15%.000 +87%.0 %%"), output)
    end)
  end)
end)
