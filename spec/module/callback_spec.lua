-- Callbacks: what the recorded cases do not reach.

local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"

local BAR = [[
local ty = require "tycho"
local bar = ty.callback.ProgressBar(4, 8)
for nbatch = 1, 4 do bar{ nbatch = nbatch } end
ty.log:info("the end")
]]

local FIT = [[
local ty = require "tycho"
local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
local it = ty.io.NDArrayIter{ ty.nd.ones{ 4, 3 }, ty.nd.zeros(4), batch_size = 2 }
local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" } }
m:fit{ train_data = it, eval_data = it, num_epoch = 2,
  batch_end_callback = ty.callback.Speedometer(2, 1),
  eval_end_callback = ty.callback.LogValidationMetricsCallback() }
]]

describe("a log of a fit", function()
  it("has each epoch once, with a callback that logs the same", function()
    shell.with_file(FIT, function(path)
      local output = shell.tycho(path)
      for epoch = 0, 1 do
        for _, what in ipairs{ "Train%-accuracy=", "Validation%-accuracy=", "Time cost=" } do
          local _, times = output:gsub("Epoch%[" .. epoch .. "%] " .. what, "")
          assert.are.equal(1, times, output)
        end
      end
    end)
  end)
end)

describe("ProgressBar", function()
  it("is drawn again in its place on a terminal", function()
    shell.with_file(BAR, function(path)
      local t = terminal.open(("%s %s"):format(shell.program, path), "TERM=xterm")
      t:expect("[==------] 25%")
      local between = t:expect("[========] 100%")
      assert.is_nil(between:find("\n", 1, true))
      assert.are.equal(3, select(2, between:gsub("\r", "")))
      assert.truthy(t:expect("the end"):find("\n", 1, true))
      t:close()
    end)
  end)

  it("is a line per ten per cent in a file, in each epoch", function()
    shell.with_file([[
      local bar = require("tycho").callback.ProgressBar(1000, 10)
      for epoch = 1, 2 do
        for nbatch = 0, 1000 do bar{ nbatch = nbatch } end
      end]], function(path)
      local output = shell.tycho(path)
      local _, lines = output:gsub("\n", "\n")
      assert.are.equal(20, lines)
      for tenth = 1, 10 do
        assert.are.equal(2, select(2, output:gsub((" %d%%%%\n"):format(
          10 * tenth), "")))
      end
    end)
  end)

  it("is lines in a file", function()
    shell.with_file(BAR, function(path)
      local output = shell.tycho(path)
      assert.are.equal("INFO: [==------] 25%\nINFO: [====----] 50%\nINFO: [======--] 75%\nINFO: \z
        [========] 100%\nINFO: the end\n", output)
    end)
  end)
end)

describe("what cannot be called", function()
  local ty = require "tycho"

  it("is refused as a callback before the first batch", function()
    local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
    local it = ty.io.NDArrayIter{ ty.nd.ones{ 4, 3 }, ty.nd.zeros(4), batch_size = 2 }
    local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" } }
    local calls = 0
    local function count() calls = calls + 1 end
    for _, name in ipairs{ "batch_end_callback", "epoch_end_callback", "eval_end_callback" } do
      for _, wrong in ipairs{ 3, { "x" } } do
        local options = { train_data = it, num_epoch = 1, [name] = wrong }
        local e = assert.raises("type", m.fit, m, options)
        assert.equal(name, e.argument)
      end
      m:fit{ train_data = it, eval_data = it, num_epoch = 1, [name] = { count } }
      m:fit{ train_data = it, eval_data = it, num_epoch = 1, [name] = count }
    end
    assert.equal(8, calls)
    assert.equal("score_end_callback",
      assert.raises("type", m.score, m, { it, "acc", score_end_callback = 3 }).argument)
  end)
end)
