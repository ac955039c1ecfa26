-- What a training shows while it runs: lines of epochs, the live line of a terminal, and the file
-- that `tycho --top` reads.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local progress = require "tycho.module.progress"
local shell = require "spec.support.shell"
local terminal = require "spec.support.terminal"
local top_file = require "tycho.module.top_file"
local ty = require "tycho"
local units = require "tycho.core.units"
require "spec.helper"

local PATIENCE = 1200                                    -- times 0.05 s

-- A training that waits in the batch whose number is arg[1] for a file arg[2], and then goes on.
local SCRIPT = [[
local ty = require "tycho"
local stop, wait = tonumber(arg[1]), arg[2]
local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
local it = ty.io.NDArrayIter{ ty.nd.ones{ 20, 3 }, ty.nd.zeros(20), batch_size = 2 }
local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ net, name = "softmax" } }
local n = 0
m:fit{ train_data = it, eval_data = it, num_epoch = 2, progress = arg[3] == nil,
  batch_end_callback = function()
    n = n + 1
    if n < stop + 3 then os.execute("sleep 0.3") end
    while n == stop + 3 and not io.open(wait) do os.execute("sleep 0.05") end
    if arg[3] == "fail" and n == stop + 4 then error("broken") end
  end }
]]

local function network()
  return ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2,
    name = "fc" }, name = "softmax" }
end

local function data()
  return ty.io.NDArrayIter{ ty.nd.ones{ 4, 3 }, ty.nd.zeros(4), batch_size = 2 }
end

describe("numbers of a training", function()
  it("are short", function()
    assert.same({ "0 s", "0.4 s", "10 s", "1:05", "1:00:00" }, { units.duration(0),
      units.duration(0.4), units.duration(10), units.duration(65),
      units.duration(3600) })
    assert.same({ "12 B", "1.5 kB", "310 MB", "2.0 GB" }, { units.bytes(12),
      units.bytes(1536), units.bytes(310 * 2 ^ 20), units.bytes(2 ^ 31) })
    assert.same({ "1.5 samples/s", "1234 samples/s" }, { units.rate(1.5),
      units.rate(1234.4) })
  end)

  it("have the memory of the process", function()
    assert.truthy(progress.memory() > 2 ^ 20)
  end)
end)

describe("fit with progress", function()
  it("writes one line for each epoch", function()
    local lines, was, level = {}, ty.log.sink, ty.log.level
    ty.log.sink, ty.log.level = function(_, text) lines[#lines + 1] = text end, "info"
    local ok, e = pcall(function()
      ty.mod.Module{ symbol = network() }:fit{ train_data = data(), eval_data = data(),
        num_epoch = 2, progress = true }
    end)
    ty.log.sink, ty.log.level = was, level
    assert.truthy(ok, e)
    assert.equal(2, #lines)
    for i, line in ipairs(lines) do
      assert.truthy(line:find(("^epoch %d/2  accuracy [%%d.]+  val%%-accuracy [%%d.]+  \z
        [%%d.]+ samples/s  [%%d.]+ s  [%%d.]+ MB$"):format(i)), line)
    end
  end)

  it("draws a line in a terminal, and erases it before the epoch's", function()
    folder.with(function(path)
      folder.write(path .. "/s.lua", SCRIPT)
      folder.write(path .. "/go", "")
      local t = terminal.open(("%s %s/s.lua 0 %s/go"):format(shell.program, path, path),
        "TERM=xterm")
      t:expect("\repoch 1/2  batch 1/10")
      local live = t:expect("\r\27[KINFO: epoch 1/2")
      assert.truthy(live:find("accuracy", 1, true), live)
      assert.truthy(live:find("ETA", 1, true), live)
      assert.truthy(live:find("MB", 1, true), live)
      assert.is_nil(live:find("\n", 1, true))
      t:expect("INFO: epoch 2/2")
      t:close()
    end)
  end)

  it("draws no line where standard output is none", function()
    folder.with(function(path)
      folder.write(path .. "/s.lua", SCRIPT)
      folder.write(path .. "/go", "")
      local t = terminal.open(("sh -c \"%s %s/s.lua 0 %s/go | cat\""):format(shell.program, path,
        path), "TERM=xterm")
      local before = t:expect("INFO: epoch 1/2")
      assert.is_nil(before:find("batch", 1, true), before)
      t:close()
    end)
  end)
end)

describe("tycho --top", function()
  local path, home

  -- Starts the training; returns its process.
  local function start(what)
    folder.write(path .. "/s.lua", SCRIPT)
    shell.run(("TYCHO_TOP=1 TYCHO_TOP_DIR=%s %s %s/s.lua 1 %s/go %s >%s/log 2>&1 & echo $! >%s/pid")
      :format(home, shell.program, path, path, what or "quiet", path, path))
    local pid = tonumber(folder.read(path .. "/pid"))
    for _ = 1, PATIENCE do
      local ok, text = pcall(folder.read, ("%s/%d"):format(home, pid))
      if ok and text:find("batch=", 1, true) and text:find("rate=", 1, true) then
        return pid
      end
      os.execute("sleep 0.05")
    end
    error("no file of the training: " .. folder.read(path .. "/log"))
  end

  local function look(words)
    return shell.run(("TYCHO_TOP_DIR=%s %s --top %s"):format(home, shell.program, words or ""))
  end

  local function ended(pid)
    for _ = 1, PATIENCE do
      if select(2, shell.run("kill -0 " .. pid)) ~= 0 then
        return
      end
      os.execute("sleep 0.05")
    end
    error("the training does not end")
  end

  before_each(function()
    path = os.tmpname()
    os.remove(path)
    lfs.mkdir(path)
    home = path .. "/top"
  end)
  after_each(function() os.execute("rm -r " .. path) end)

  it("shows a training that runs, and its end", function()
    local pid = start()
    local text, status = look(pid)
    assert.equal(0, status, text)
    for _, want in ipairs{ "process " .. pid, "s.lua  trains", "epoch   1 of 2, batch %d of 10",
        "rate    [%d.]+ samples/s", "accuracy ", "ETA     ", "memory  [%d.]+ MB" } do
      assert.truthy(text:find(want), want .. " in\n" .. text)
    end
    assert.truthy(look():find("process " .. pid, 1, true))
    assert.equal("rwx------", lfs.attributes(home, "permissions"))
    folder.write(path .. "/go", "")
    ended(pid)
    assert.truthy(look(pid):find("is done", 1, true))
    assert.equal("no training of this user runs with TYCHO_TOP=1\n", (look()))
  end)

  it("says that a training was killed, and the next one removes its file", function()
    local pid = start()
    os.execute("kill -9 " .. pid)
    ended(pid)
    local text = look(pid)
    assert.truthy(text:find("has ended without a word", 1, true), text)
    assert.truthy(text:find("seen ", 1, true), text)
    local other = start()
    assert.is_nil(lfs.attributes(("%s/%d"):format(home, pid)))
    folder.write(path .. "/go", "")
    ended(other)
  end)

  it("shows a FeedForward, too", function()
    folder.write(path .. "/s.lua", [[
      local ty = require "tycho"
      local net = ty.sym.SoftmaxOutput{ ty.sym.FullyConnected{ ty.sym.Variable "data",
        num_hidden = 2 }, name = "softmax" }
      local m = ty.model.FeedForward{ net, num_epoch = 2, numpy_batch_size = 2 }
      m:fit{ X = ty.nd.ones{ 4, 3 }, y = ty.nd.zeros(4) }]])
    shell.run(("TYCHO_TOP=1 TYCHO_TOP_DIR=%s %s %s/s.lua"):format(home, shell.program, path))
    local name = shell.run("ls " .. home):match("%d+")
    local text = look(name)
    assert.truthy(text:find("is done", 1, true), text)
    assert.truthy(text:find("epoch   2 of 2, batch 2 of 2", 1, true), text)
  end)

  it("says that a training has failed", function()
    local pid = start("fail")
    folder.write(path .. "/go", "")
    ended(pid)
    assert.truthy(look(pid):find("has failed", 1, true))
  end)

  it("takes another process of the same number for none", function()
    lfs.mkdir(home)
    os.execute("chmod 700 " .. home)
    local own = tonumber(io.open("/proc/self/stat"):read("*n"))
    folder.write(("%s/%d"):format(home, own), ("tycho-top 1\npid=%d\nstart=1\nscript=x\ntime=0\n\z
      state=trains\nepoch=0\nepochs=1\nbatch=1\n"):format(own))
    assert.truthy(look(own):find("has ended without a word", 1, true))
  end)

  it("refuses files that are damaged, and folders of others", function()
    lfs.mkdir(home)
    os.execute("chmod 700 " .. home)
    local own = tonumber(io.open("/proc/self/stat"):read("*n"))
    local file = ("%s/%d"):format(home, own)
    for _, text in ipairs{ "", "tycho-top 2\nepoch=1\n", "tycho-top 1\nepoch=1\n",
        ("\255"):rep(100000) } do
      folder.write(file, text)
      local output, status = look(own)
      assert.equal(1, status)
      assert.truthy(output:find("no file of a training", 1, true)
        or output:find("is damaged", 1, true), output)
    end
    os.execute("chmod 755 " .. home)
    local output, status = look(own)
    assert.equal(1, status)
    assert.truthy(output:find("open to other users", 1, true), output)
  end)

  it("says what it cannot show", function()
    local output, status = look("999999999")
    assert.same({ 1, true }, { status, output:find("there is no process", 1, true) ~= nil })
    output, status = look("1")
    assert.equal(1, status)
    assert.truthy(output:find("TYCHO_TOP=1", 1, true) or output:find("another user", 1, true))
    for _, words in ipairs{ "x", "-3", "1 2", "--often" } do
      output, status = look(words)
      assert.equal(2, status)
      assert.truthy(output:find("usage:", 1, true))
    end
    assert.equal(0, select(2, look("--help")))
  end)

  it("does not stop a training whose file cannot be written", function()
    folder.write(home, "")
    folder.write(path .. "/go", "")
    folder.write(path .. "/s.lua", SCRIPT)
    local output, status = shell.run(("TYCHO_TOP=1 TYCHO_TOP_DIR=%s %s %s/s.lua 0 %s/go quiet")
      :format(home, shell.program, path, path))
    assert.equal(0, status, output)
    assert.equal(1, select(2, output:gsub("will not see this training", "")), output)
    assert.is_nil(top_file.asked() or nil)
  end)
end)
