-- Ranks that are killed or stopped at random moments: the others end soon, with the rank's number
-- and the last checkpoint, and a restart goes on from there to where an undisturbed training ends.

local folder = require "spec.support.folder"
local mpi = require "spec.support.mpi"
local shell = require "spec.support.shell"

local RANKS, EPOCHS, LIMIT = 3, 40, 90                   -- LIMIT: seconds from the kill to the end

local function command(ranks, prefix)
  return ("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TYCHO_THREADS=1 \z
    TYCHO_COMM_PATIENCE=8 mpirun --oversubscribe -n %d %s spec/support/ranks.lua \z
    resumed %s %d"):format(ranks, shell.program, prefix, EPOCHS)
end

-- Runs the training to its end: the parameters, and all that was written. A launcher may bring the
-- log between them, in the middle of a line, so that it goes to a file.
local function run_training(words, prefix)
  local output = shell.run(("%s 2> %s.log"):format(words, prefix))
  local result = output:match("conv1_bias.-last_weight [^\n]*")
  return result, output .. folder.read(prefix .. ".log")
end

-- Runs the training and sends a signal to one of its ranks after a while, unless it has ended;
-- what was written, whether the rank was there to get it, and seconds from there to the end. A
-- process that is not the program yet is no rank: killed then, OpenMPI may end without its number.
local DISTURB = [[
{ exec %s; } > %s 2>&1 &
launcher=$!
sleep %.3f
victim=$(cut -d' ' -f%d /proc/$launcher/task/$launcher/children 2> /dev/null)
from=$(date +%%s)
hit=no
program=$(readlink /proc/${victim:-none}/exe)
[ "${program##*/}" = tycho ] && kill -%s $victim 2> /dev/null && hit=yes
wait $launcher
echo "$hit $? $(($(date +%%s) - from))"
]]

local function disturb(prefix, signal, rank, after)
  local path = prefix .. ".out"
  local words = shell.run(DISTURB:format(command(RANKS, prefix), path, after, rank + 1, signal))
  local hit, status, seconds = words:match("(%a+) (%d+) (%d+)%s*$")
  local file = assert(io.open(path))
  local output = file:read("*a")
  file:close()
  return { hit = hit == "yes", status = tonumber(status), seconds = tonumber(seconds),
    output = output }
end

local function check_end(run, rank)
  assert.is_true(run.seconds <= LIMIT, ("%d s: %s"):format(run.seconds, run.output))
  assert.truthy(run.output:find("rank " .. rank, 1, true), run.output)
  if run.output:find("asked to end", 1, true) then
    assert.truthy(run.output:find("the last checkpoint: ", 1, true), run.output)
  end
end

local function check(signal, times)
  folder.with(function(path)
    local from = os.time()
    local want, said = run_training(command(RANKS, path .. "/whole"), path .. "/whole")
    assert.truthy(want, said)
    local whole, hits, i = os.time() - from + 0.5, 0, 0
    while hits < times do
      i = i + 1
      local prefix, rank = path .. "/run" .. i, math.random(0, RANKS - 1)
      local run = disturb(prefix, signal, rank, math.random() * whole)
      if run.hit and run.status ~= 0 then
        hits = hits + 1
        check_end(run, rank)
      elseif not run.hit then
        whole = math.max(whole * 0.8, 0.5)               -- the machine had less to do meanwhile
      end
      local result, output = run_training(command(RANKS, prefix), prefix)
      assert.equal(want, result, output)
    end
  end)
end

-- The launcher is stopped, and the ranks are ended as it does it.
local STOP_LAUNCHER = [[
{ exec %s; } > %s 2>&1 &
launcher=$!
until grep -q 'Epoch.1.' %s || ! kill -0 $launcher; do sleep 0.05; done
kill -STOP $launcher
kill -TERM $(cat /proc/$launcher/task/$launcher/children)
wait $launcher
]]

-- Returns the output of three ranks of a script in which one may end before the others.
local function run_ending(ending)
  local text
  folder.with(function(path)
    folder.write(path .. "/script.lua", ([[
      local ffi = require "ffi"
      ffi.cdef "int kill(int, int); int getpid(void);"
      local kv = require("tycho").kv.create("dist_sync")
      if kv.rank == 1 then
        %s
      end
      kv:barrier()
    ]]):format(ending))
    text = shell.run(("env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun \z
      --oversubscribe -n 3 %s %s/script.lua 2>&1"):format(shell.program, path))
  end)
  return text
end

describe("ranks", function()
  local with_mpi = mpi.it(it, pending)

  with_mpi("that end without a word are named by a process that looks on, no others", function()
    local silent = "tycho: rank 1 %(process %d+%) has ended without a word"
    local text = run_ending("ffi.C.kill(ffi.C.getpid(), 9)")
    assert.truthy(text:find(silent), text)
    assert.is_nil(text:find("rank [02] %(process %d+%) has ended without a word"), text)
    text = run_ending("error('no more')")
    assert.truthy(text:find("rank 1 of 3: the script failed", 1, true), text)
    assert.is_nil(text:find("without a word", 1, true), text)
    text = run_ending("kv:barrier() os.exit(0)")
    assert.is_nil(text:find("without a word", 1, true), text)
  end)

  with_mpi("end a launcher that does not end when they have", function()
    folder.with(function(path)
      local output = path .. "/out"
      local words = command(RANKS, path .. "/x"):gsub("PATIENCE=8", "PATIENCE=2")
      shell.run(STOP_LAUNCHER:format(words:gsub(" 40$", " 4000"), output, output))
      local file = assert(io.open(output))
      local text = file:read("*a")
      file:close()
      assert.truthy(text:find("the launcher does not: it is ended too", 1, true), text)
    end)
  end)

  with_mpi("that lose one end and can go on: once", function() check("KILL", 1) end)
  with_mpi("that lose one end and can go on: 200 times #slow", function()
    check("KILL", 200)
  end)
  with_mpi("of which one stops end and can go on: 20 times #slow", function()
    check("STOP", 20)
  end)

  with_mpi("go on from a checkpoint of another number of ranks", function()
    folder.with(function(path)
      local prefix = path .. "/x"
      for _, run in ipairs{ { 2, " 3" }, { 4, " 5" } } do
        local result, output = run_training(command(run[1], prefix):gsub(" 40$", run[2]), prefix)
        assert.truthy(result, output)
      end
    end)
  end)
end)
