-- A training that saves its state after each step, and is killed again and again, and resumed: each
-- step's loss and the end are bit for bit those of an undisturbed one; its folder always has
-- a state that loads, or none yet.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local shell = require "spec.support.shell"

local STEPS = 200
local STATUS = { KILL = 137, TERM = 143, INT = 130, PIPE = 141 }

local function command(prefix, resume)
  return ("%s spec/support/resume.lua steps adam %d %s %s"):format(shell.program, STEPS, prefix,
    resume and "resume" or "")
end

-- Returns what a run printed: text by step, and the parameters; the last line may be cut.
local function losses_in(output)
  local losses = {}
  for step, loss in output:gmatch("loss (%d+) (%S+)\n") do
    losses[tonumber(step)] = loss
  end
  return losses, (output:gsub("loss [^\n]*\n", ""))
end

local function check_losses(output, whole)
  for step, loss in pairs((losses_in(output))) do
    assert.equal(whole[step], loss, "the loss of step " .. step)
  end
end

-- Runs it until it ends, with a signal after up to `most` seconds, each time `growth` as much; its
-- parameters, and how often it died. `whole`: losses.
local function finish(prefix, most, growth, signal, whole)
  local deaths = 0
  while true do
    local script = command(prefix, lfs.attributes(prefix .. ".state"))
    local output, status = shell.run(("timeout --preserve-status -k 20 -s %s %.3f %s")
      :format(signal, math.random() * most, script))
    check_losses(output, whole)
    if status == 0 then return select(2, losses_in(output)), deaths end
    assert.equal(STATUS[signal], status, output)
    assert.is_falsy(output:find("traceback", 1, true), output)
    deaths = deaths + 1
    most = most * growth                                 -- a busy machine may need longer
  end
end

local function left_over(path)
  local names = {}
  for name in lfs.dir(path) do
    if name:find("^%.tycho") then names[#names + 1] = name end
  end
  return names
end

local function check(kills, signal)
  folder.with(function(path)
    local output = shell.run(command(path .. "/whole"))
    local losses, whole = losses_in(output)
    assert.equal(STEPS, #losses + 1)
    assert.truthy(whole:find("weight %x+"), output)
    local deaths, run = 0, 0
    while deaths < kills do
      run = run + 1
      local parameters, died = finish(path .. "/run" .. run, 0.4, kills < 10 and 1.3 or 1.02,
        signal, losses)
      assert.is_true(parameters == whole, "the parameters differ")
      assert.same({}, left_over(path))
      deaths = deaths + died
    end
  end)
end

describe("a training that is killed", function()
  it("ends as without it: a few times", function() check(5, "KILL") end)
  it("ends as without it: 1,000 times #slow", function() check(1000, "KILL") end)
end)

-- 1,000 instants and a few over the three signals.
describe("a training that is asked to end", function()
  for _, signal in ipairs{ "TERM", "INT", "PIPE" } do
    it("does so in order, and is resumed: SIG" .. signal .. ", a few times", function()
      check(5, signal)
    end)
    it("does so in order, and is resumed: SIG" .. signal .. ", 334 times #slow", function()
      check(334, signal)
    end)
  end

  it("by a reader that has gone: its first line ends it", function()
    folder.with(function(path)
      local losses, whole = losses_in(shell.run(command(path .. "/whole")))
      local state = path .. "/run.state"
      local output = shell.run(([[{ trap '' PIPE; while echo 2>/dev/null; do :; done
        trap - PIPE; TYCHO_LOG=info %s 2>&1; echo "status $?" > %s/status; } | true
        cat %s/status]]):format(command(path .. "/run"), path, path))
      assert.equal("status 141\n", output)
      assert.same({}, left_over(path))
      local rest = shell.run(command(path .. "/run", lfs.attributes(state)))
      check_losses(rest, losses)
      assert.is_true(select(2, losses_in(rest)) == whole, "the parameters differ")
    end)
  end)
end)
