-- Event files: framing, each kind of content read back by a decoder of our own and, where Python
-- has it, by TensorBoard's; bad arguments, disks that are full or read-only; a training's files.

local folder = require "spec.support.folder"
local lfs = require "lfs"
local protobuf = require "spec.support.protobuf"
local record = require "tycho.tensorboard.record"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local function u64(bytes)
  local n = 0
  for i = 8, 1, -1 do
    n = n * 256 + bytes:byte(i)
  end
  return n
end

-- Returns the events of a file; asserts that its framing is right.
local function read_events(path)
  local bytes, at, list = folder.read(path), 1, {}
  while at <= #bytes do
    local head = bytes:sub(at, at + 7)
    assert.equal(record.checksum(head), bytes:sub(at + 8, at + 11))
    local content = bytes:sub(at + 12, at + 11 + u64(head))
    assert.equal(u64(head), #content)
    assert.equal(record.checksum(content), bytes:sub(at + 12 + #content, at + 15 + #content))
    list[#list + 1] = protobuf.read(content)
    at = at + 16 + #content
  end
  return list
end

-- Returns {step, value} of each value of all summaries by tag.
local function read_values(path)
  local found = {}
  for _, event in ipairs(read_events(path)) do
    for _, bytes in ipairs(event[5] and protobuf.read(event[5]).all[1] or {}) do
      local v = protobuf.read(bytes)
      found[v[1]] = found[v[1]] or {}
      table.insert(found[v[1]], { step = event[2], value = v })
    end
  end
  return found
end

local function network()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 3, name = "fc1" }
  net = ty.sym.FullyConnected{ net, num_hidden = 2, name = "fc2" }
  return ty.sym.SoftmaxOutput{ net, name = "softmax" }
end

local function write_all(dir)
  local writer = ty.tensorboard.Writer{ dir = dir }
  writer:add_scalar("loss", 0.5, 7)
  writer:add_scalar("loss", ty.nd.array{ 0.25 }, 8)
  writer:add_scalars("two", { a = 1, b = 2 }, 3)
  writer:add_histogram("h", { 0, 1, 1, 2, 4, 0 / 0, 1 / 0 }, 2, { bins = 4 })
  writer:add_image("grey", ty.nd.ones{ 4, 6 }, 1)
  writer:add_image("first", ty.nd.zeros{ 3, 4, 6 }:astype "uint8", 1)
  writer:add_image("chart", ty.viz.plot{ { 1, 2 } }, 1)
  writer:add_text("note", "**bold** \195\164", 5)
  writer:add_graph(network(), { data = { 4, 5 } })
  writer:add_hparams({ rate = 0.5, name = "sgd", nesterov = false }, { "loss" })
  writer:close()
  return writer
end

describe("a record", function()
  it("has the checksums of RFC 3720", function()
    assert.equal(0xE3069283, record.crc("123456789"))
    assert.equal(0x8A9136AA, record.crc(("\0"):rep(32)))
    assert.equal(0x62A8AB43, record.crc(("\255"):rep(32)))
    assert.equal(0, record.crc(""))
  end)

  it("masks them as TensorFlow does", function()
    -- the first record of an event file that TensorFlow's own writer gives for these bytes
    assert.equal("\24\0\0\0\0\0\0\0\163\127\75\34", record.frame(("x"):rep(24)):sub(1, 12))
  end)
end)

describe("a writer's file", function()
  local found, events, writer, dir

  setup(function()
    dir = os.tmpname()
    os.remove(dir)
    writer = write_all(dir .. "/runs/a")
    found, events = read_values(writer.path), read_events(writer.path)
  end)
  teardown(function() shell.run("rm -r " .. dir) end)

  it("begins with its version, and has times that rise", function()
    assert.equal("brain.Event:2", events[1][3])
    assert.truthy(math.abs(events[1][1] - os.time()) < 60)
    for i = 2, #events do
      assert.truthy(events[i][1] >= events[i - 1][1])
    end
  end)

  it("has scalars", function()
    assert.same({ 7, 0.5 }, { found.loss[1].step, found.loss[1].value[2] })
    assert.same({ 8, 0.25 }, { found.loss[2].step, found.loss[2].value[2] })
    assert.same({ 1, 2, 3 }, { found["two/a"][1].value[2], found["two/b"][1].value[2],
      found["two/a"][1].step })
  end)

  it("has histograms without what is no number", function()
    local h = protobuf.read(found.h[1].value[5])
    assert.same({ 0, 4, 5, 8, 22 }, { h[1], h[2], h[3], h[4], h[5] })
    assert.same({ 1, 2, 3, 4 }, protobuf.doubles(h[6]))
    assert.same({ 1, 2, 1, 1 }, protobuf.doubles(h[7]))
  end)

  it("has images as PNG", function()
    for tag, size in pairs{ grey = { 4, 6, 1 }, first = { 4, 6, 3 }, chart = { 306, 720, 3 } } do
      local image = protobuf.read(found[tag][1].value[4])
      assert.same(size, { image[1], image[2], image[3] })
      local flag = size[3] == 1 and 0 or 1
      assert.shape(size, ty.image.imdecode(image[4], { flag = flag }))
    end
    local grey = protobuf.read(found.grey[1].value[4])
    assert.equal(255, ty.image.imdecode(grey[4], { flag = 0 }):min():asscalar())
  end)

  it("has texts for the plugin of texts", function()
    local note = found.note[1]
    assert.equal(5, note.step)
    assert.equal("text", protobuf.read(protobuf.read(note.value[9])[1])[1])
    local tensor = protobuf.read(note.value[8])
    assert.same({ 7, "**bold** \195\164" }, { tensor[1], tensor[8] })
  end)

  it("has the network with its shapes", function()
    local nodes = {}
    for _, event in ipairs(events) do
      for _, bytes in ipairs(event[4] and protobuf.read(event[4]).all[1] or {}) do
        local n = protobuf.read(bytes)
        nodes[n[1]] = { op = n[2], inputs = n.all[3] or {}, attributes = {} }
        for _, entry in ipairs(n.all[5] or {}) do
          local pair = protobuf.read(entry)
          nodes[n[1]].attributes[pair[1]] = protobuf.read(pair[2])
        end
      end
    end
    local fc = nodes["fc2/FullyConnected"]
    assert.same({ "fc1/FullyConnected", "fc2/weight", "fc2/bias" }, fc.inputs)
    assert.equal("2", fc.attributes.num_hidden[2])
    local shape = protobuf.read(protobuf.read(fc.attributes._output_shapes[1])[7])
    assert.same({ 4, 2 }, { protobuf.read(shape.all[2][1])[1], protobuf.read(shape.all[2][2])[1] })
    assert.equal("Placeholder", nodes.data.op)
    assert.equal("Variable", nodes["fc1/weight"].op)
  end)

  it("has hyper-parameters", function()
    local start = found["_hparams_/session_start_info"][1].value
    local data = protobuf.read(protobuf.read(protobuf.read(start[9])[1])[2])
    local given = {}
    for _, entry in ipairs(protobuf.read(data[3]).all[1]) do
      local pair = protobuf.read(entry)
      local value = protobuf.read(pair[2])
      given[pair[1]] = value[2] or value[3] or value[4] == 1
    end
    assert.same({ rate = 0.5, name = "sgd", nesterov = false }, given)
    assert.truthy(found["_hparams_/session_end_info"])
  end)

  it("is what TensorBoard reads", function()
    local python = os.getenv("TYCHO_TENSORBOARD_PYTHON") or "python3"
    local output, status = shell.run(("%s spec/support/tensorboard_read.py %s 2>/dev/null")
      :format(python, writer.dir))
    if status ~= 0 then
      return pending("no Python with tensorboard (TYCHO_TENSORBOARD_PYTHON names one)")
    end
    for _, line in ipairs{ "scalar loss 7 0.5", "scalar two/b 3 2", "histogram h 2 0 4 5 4 5",
        "image chart 1 720 306 PNG", "text note 5 **bold** \195\164", "metrics loss",
        "node fc2/FullyConnected FullyConnected fc1/FullyConnected,fc2/weight,fc2/bias",
        "hparam name sgd", "hparam nesterov False", "hparam rate 0.5" } do
      assert.truthy(output:find(line, 1, true), line .. " in\n" .. output)
    end
  end)
end)

describe("a writer", function()
  local function with_writer(f)
    folder.with(function(path)
      local writer = ty.tensorboard.Writer{ dir = path }
      f(writer)
      writer:close()
    end)
  end

  it("refuses what it cannot write, and names it", function()
    with_writer(function(w)
      assert.raises("type", w.add_scalar, w, "x", "one")
      assert.raises("value", w.add_scalar, w, "", 1)
      assert.raises("value", w.add_scalar, w, "x", 1, -1)
      assert.raises("value", w.add_scalar, w, "x", 1, 0.5)
      assert.raises("name", w.add_scalar, w, { tag = "x", value = 1, steps = 2 })
      assert.equal("b", assert.raises("type", w.add_scalars, w, "x", { b = {} }).argument)
      assert.equal("values[2]", assert.raises("type", w.add_histogram, w, "x",
        { 1, "2" }).argument)
      assert.raises("shape", w.add_image, w, "x", ty.nd.ones{ 2, 4, 4 })
      assert.raises("type", w.add_image, w, "x", { 1 })
      assert.raises("type", w.add_graph, w, ty.nd.ones{ 1 })
      assert.raises("name", w.add_graph, w, network(), { dta = { 1, 2 } })
      assert.equal("x", assert.raises("type", w.add_hparams, w, { x = {} }).argument)
      assert.raises("type", w.add_hparams, w, {}, { 1 })
      assert.same({ "brain.Event:2" }, { read_events(w.path)[1][3], read_events(w.path)[2] })
    end)
    assert.raises("value", ty.tensorboard.Writer, { dir = "" })
    assert.raises("name", function() return ty.tensorboard.Writter end)
  end)

  it("writes histograms of nothing and of one value", function()
    with_writer(function(w)
      w:add_histogram("none", { 0 / 0 })
      w:add_histogram("one", ty.nd.full({ 2, 3 }, 7):astype "int32")
      w:flush()
      local found = read_values(w.path)
      local none, one = protobuf.read(found.none[1].value[5]), protobuf.read(found.one[1].value[5])
      assert.same({ 0, 0, 0, 0 }, { none[1], none[2], none[3], protobuf.doubles(none[7])[1] })
      assert.same({ 7, 7, 6, 6 }, { one[1], one[2], one[3], protobuf.doubles(one[7])[1] })
    end)
  end)

  it("is closed once", function()
    with_writer(function(w)
      w:close()
      w:close()
      assert.raises("state", w.add_scalar, w, "x", 1)
      assert.raises("state", w.flush, w)
    end)
  end)

  it("has a file of its own", function()
    folder.with(function(path)
      local a, b = ty.tensorboard.Writer{ path }, ty.tensorboard.Writer{ path }
      assert.are_not.equal(a.path, b.path)
      a:close()
      b:close()
    end)
  end)

  it("says that a place is no folder", function()
    folder.with(function(path)
      folder.write(path .. "/file", "")
      local e = assert.raises("io", ty.tensorboard.Writer, { dir = path .. "/file/run" })
      assert.truthy(e.message:find(path .. "/file", 1, true))
      assert.raises("io", ty.tensorboard.Writer, { dir = path .. "/file" })
    end)
  end)
end)

local SCRIPT = [[
  local ty = require "tycho"
  local disk = %q
  if %q == "read-only" then
    os.execute("mount -o remount,ro " .. disk)
    print(select(2, pcall(ty.tensorboard.Writer, { dir = disk })).message)
    return
  end
  local w = ty.tensorboard.Writer{ dir = disk }
  local ok, e = pcall(function()
    for i = 1, 1e5 do w:add_text("t", ("x"):rep(1000), i) end
  end)
  print(ok, e.code, e.message)
  print(pcall(w.add_scalar, w, "x", 1))
  local board = ty.callback.TensorBoard{ dir = disk, on_error = "warn" }
  board:close()
]]

local MOUNTED = "unshare --user --map-root-user --mount \z
  sh -c 'mount -t tmpfs -o size=64k none %s && %s'"

describe("a disk", function()
  for what, want in pairs{ full = "No space left", ["read-only"] = "Read%-only file system" } do
    it("that is " .. what .. " is an error that says so", function()
      folder.with(function(path)
        local disk = path .. "/disk"
        lfs.mkdir(disk)
        if select(2, shell.run(MOUNTED:format(disk, "true"))) ~= 0 then
          return pending("no disk can be mounted here")
        end
        folder.write(path .. "/script.lua", SCRIPT:format(disk, what))
        local output, status = shell.run(MOUNTED:format(disk, shell.program .. " " .. path
          .. "/script.lua"))
        assert.equal(0, status, output)
        assert.truthy(output:find(want), output)
        if what == "full" then
          assert.truthy(output:find("false\tio", 1, true), output)
          assert.truthy(output:find("the writer is closed", 1, true), output)
          assert.truthy(output:find("the training continues without event files", 1, true), output)
        end
      end)
    end)
  end
end)

describe("callback.TensorBoard", function()
  local level = ty.log.level
  setup(function() ty.log.level = "warning" end)
  teardown(function() ty.log.level = level end)

  it("writes curves of batches and validations, histograms and the network", function()
    folder.with(function(path)
      local board = ty.callback.TensorBoard{ dir = path, period = 2, hparams = { rate = 0.5 } }
      local it_ = ty.io.NDArrayIter{ ty.random.normal{ shape = { 12, 5 } }, ty.nd.zeros(12),
        batch_size = 3 }
      local mod = ty.mod.Module{ symbol = network() }
      mod:fit{ train_data = it_, eval_data = it_, num_epoch = 2,
        optimizer_params = { learning_rate = 0.5 },
        batch_end_callback = { ty.callback.Speedometer(3, 2), board },
        epoch_end_callback = board, eval_end_callback = board }
      board:close()
      assert.equal(8, board.step)
      local found = read_values(board.writer.path)
      local steps = {}
      for i, entry in ipairs(found["train/accuracy"]) do
        steps[i] = entry.step
        assert.truthy(entry.value[2] >= 0 and entry.value[2] <= 1)
      end
      assert.same({ 0, 2, 4, 6 }, steps)
      assert.equal(0.5, found["train/learning_rate"][1].value[2])
      assert.same({ 4, 8 }, { found["validation/accuracy"][1].step,
        found["validation/accuracy"][2].step })
      local h = protobuf.read(found["parameters/fc1_weight"][2].value[5])
      assert.equal(15, h[3])
      assert.near(mod:get_params().fc1_weight:max():asscalar(), h[2])
      local graphs = 0
      for _, event in ipairs(read_events(board.writer.path)) do
        graphs = graphs + (event[4] and 1 or 0)
      end
      assert.equal(1, graphs)
      assert.truthy(found["_hparams_/session_start_info"])
    end)
  end)

  it("serves a FeedForward, too", function()
    folder.with(function(path)
      local board = ty.callback.TensorBoard{ dir = path, period = 1 }
      local net = ty.model.FeedForward{ network(), num_epoch = 1, numpy_batch_size = 3 }
      net:fit{ X = ty.random.normal{ shape = { 6, 5 } }, y = ty.nd.zeros(6),
        batch_end_callback = board, epoch_end_callback = board }
      board:close()
      local found = read_values(board.writer.path)
      assert.equal(2, #found["train/accuracy"])
      assert.truthy(found["parameters/fc1_weight"])
    end)
  end)

  it("goes on at the step of a resumed training", function()
    folder.with(function(path)
      local board = ty.callback.TensorBoard{ dir = path }
      board{ epoch = 3, nbatch = 0, locals = { train_data = { num_data = 10, batch_size = 4 } } }
      assert.equal(10, board.step)
      board:close()
    end)
  end)

  it("refuses options that it does not have", function()
    assert.raises("name", ty.callback.TensorBoard, { dir = "x", histogram = true })
    assert.raises("value", ty.callback.TensorBoard, { })
    assert.equal(nil, lfs.attributes("x"))
  end)
end)
