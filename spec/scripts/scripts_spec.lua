-- What people run: every training script ends well and has learned something, goes on from its
-- checkpoint, logs and plots; from any folder.

local folders = require "spec.support.folder"
local json = require "tycho.core.json"
local list_folder = require("tycho.ndarray.folder").list
local shell = require "spec.support.shell"
local ty = require "tycho"

-- script (and options), pattern of the figure in the last line of output, least and
-- most of it: quick, and in full
local SCRIPTS = {
  { "train_mnist",          "^accuracy (%S+)",          quick = { 0.95, 1 },    full = { 0.99, 1 } },
  { "mnist_gluon",          "^accuracy (%S+)",          quick = { 0.95, 1 },    full = { 0.99, 1 } },
  { "train_cifar10",        "^accuracy (%S+)",          quick = { 0.4, 1 },     full = { 0.9, 1 } },
  { "fine_tune",            "^accuracy (%S+)",          quick = { 0.4, 1 },     full = { 0.55, 1 } },
  { "detect",               "^found (%S+)",             quick = { 0.3, 1 },     full = { 0.75, 1 } },
  { "gan",                  "^(%d+) of 10 digits",      quick = { 5, 10 },      full = { 7, 10 } },
  { "gan_gluon",            "^(%d+) of 10 digits",      quick = { 5, 10 },      full = { 7, 10 } },
  { "cartpole_gluon",       "^([%d.]+) of 500 pushes",  quick = { 150, 500 },   full = { 450, 500 } },
  { "autoencoder",          "([%d.]+) %% explained",    quick = { 70, 100 },    full = { 80, 100 } },
  { "matrix_factorization", "^error (%S+)",             quick = { 0.29, 0.5 },  full = { 0.29, 0.45 } },
  { "multi_device",         "([%d.]+) of the LSTM",     quick = { 0.9, 1 },     full = { 0.99, 1 } },
  { "char_rnn",             "^([%d.]+) bits",           quick = { 1, 4.5 },     full = { 1, 3 } },
  { "transformer_gluon",    "^([%d.]+) bits",           quick = { 1, 4.5 },     full = { 1, 3 } },
  { "gpt",                  "^([%d.]+) bits",           quick = { 1, 4.5 },     full = { 1, 3.5 } },
  { "lstm_bucketing",       "^test perplexity (%S+)",   quick = { 1, 400 },     full = { 1, 120 } },
  { "lstm_bucketing --fused", "^test perplexity (%S+)", quick = { 1, 400 },     full = { 1, 120 } },
  { "seq2seq_reverse",      "^accuracy ([%d.]+)",       quick = { 0.4, 1 },     full = { 0.95, 1 } },
  { "score",                "^accuracy (%S+)",          quick = { 0.95, 1 },    full = { 0.95, 1 } },
  { "predict",              "^(%d+) of %d+ right",      quick = { 4, 5 },       full = { 9, 10 } },
}

-- Some ten times slower: modules, iterators, optimizers and checkpoints have specs of their own, so
-- a convolution, a detector and a fused RNN stand for what trains here.
local SANITIZED = (os.getenv("SANITIZER") or "") ~= ""
local STAND_FOR_ALL = { train_mnist = true, detect = true, ["lstm_bucketing --fused"] = true }

local read, in_folder = folders.read, folders.with

-- Defines a spec with `it`; under a sanitizer it is pending if others cover the same.
local function it_learns(script, name, f)
  it(name, SANITIZED and not STAND_FOR_ALL[script] and function()
    pending("others stand for it under a sanitizer")
  end or f)
end

local SECONDS = 120              -- of processor time that a script may take without arguments

-- Returns what a script prints on standard output, without its log.
local function run(script, words)
  local name, more = script:match("^(%S+)%s*(.*)$")
  local output, status = shell.tycho(("scripts/%s.lua %s %s 2>/dev/null"):format(name, more, words))
  assert.equal(0, status, output)
  return output
end

-- Returns the same, with the seconds of processor time that it took.
local function timed(script)
  local output = run(script, '; status=$?; times; (exit $status)')
  local rest, user, sys = output:match("^(.*)\n[^\n]+\n(%S+) (%S+)%s*$")
  local function seconds(text)
    local minutes, rest_of = text:match("^(%d+)m([%d.]+)s$")
    return 60 * minutes + rest_of
  end
  return rest, seconds(user) + seconds(sys)
end

local function last_line(output)
  return output:match("([^\n]*)\n*$")
end

local function check_figure(entry, output, bounds)
  local figure = tonumber((last_line(output):match(entry[2])))
  assert.is_true(figure ~= nil and figure >= bounds[1] and figure <= bounds[2],
    ("%s: want %g to %g in: %s"):format(entry[1], bounds[1], bounds[2], last_line(output)))
end

describe("scripts:", function()
  for _, entry in ipairs(SCRIPTS) do
    it_learns(entry[1], entry[1] .. " learns in a few seconds", function()
      check_figure(entry, run(entry[1], "--quick"), entry.quick)
    end)

    it(entry[1] .. " learns what it says #slow", function()
      local output, seconds = timed(entry[1])
      check_figure(entry, output, entry.full)
      assert.is_true(seconds < SECONDS, ("%s took %.0f seconds"):format(entry[1], seconds))
    end)
  end

  -- the scripts above learn in a few seconds with the same words and --quick
  it("every command of the gallery is one of these, with options that it has", function()
    local known, count = {}, 0
    for _, name in ipairs{ "im2rec", "multi_host", "comm_bench", "scale_model" } do
      known[name] = true
    end
    for _, entry in ipairs(SCRIPTS) do
      known[entry[1]:match("^%S+")] = true
    end
    for block in read("doc/gallery.md"):gmatch("\n```sh\n(.-)\n```") do
      for name, words in (block .. "\n"):gmatch("build/tycho scripts/([%w_]+)%.lua *([^\n]*)\n") do
        assert.truthy(known[name], name)
        run(name, words .. " --help")
        known[name], count = "named", count + 1
      end
    end
    for name, what in pairs(known) do
      assert.are.equal("named", what, name)
    end
    assert.is_true(count >= 11)
  end)

  it("all explain themselves", function()
    for _, entry in ipairs(SCRIPTS) do
      local name = entry[1]:match("^%S+")
      local help = run(name, "--help")
      assert.truthy(help:find("Usage: " .. name .. ".lua", 1, true)
        and help:find("--quick", 1, true), help)
      if help:find("--epochs", 1, true) then
        assert.truthy(help:find("--gpus", 1, true), help)
      end
    end
    assert.truthy(run("multi_host", "--help"):find("--gpus", 1, true))
  end)

  for _, script in ipairs{ "train_mnist", "gan", "multi_device" } do
    it_learns(script, script .. " writes event files", function()
      in_folder(function(folder)
        run(script, "--quick --tensorboard " .. folder .. "/run")
        local names = list_folder(folder .. "/run", "spec")
        assert.equal(1, #names)
        local bytes = read(folder .. "/run/" .. names[1].name)
        assert.truthy(bytes:find("brain.Event:2", 1, true))
        assert.truthy(bytes:find("epoch/", 1, true))
        assert.equal(script == "train_mnist", bytes:find("parameters/fc1_weight", 1, true) ~= nil)
      end)
    end)
  end

  for _, case in ipairs{ { "train_mnist", 4, "" }, { "matrix_factorization", 6, "" },
      { "mnist_gluon", 4, "" },
      { "transformer_gluon", 2, "--data README.md --length 16 --width 32 --write 0" },
      { "autoencoder", 2, "" }, { "fine_tune", 4, "--layer stage2_unit1_conv1_output" },
      { "train_cifar10", 2, "--train 100 --test 50 --drops 1" } } do
    local script, epochs, words = unpack(case)
    local name = script .. " goes on from its checkpoint bit by bit, logs and plots all of it"
    it_learns(script, name, function()
      in_folder(function(folder)
        words = "--quick --epochs %d --checkpoint %s/%s " .. words
        run(script, words:format(epochs, folder, "whole"))
        local log = (" --log %s/log --plot %s/plot.svg"):format(folder, folder)
        run(script, words:format(epochs / 2, folder, "half") .. log)
        run(script, words:format(epochs, folder, "half") .. " --resume" .. log)
        local file = ("-%04d.params"):format(epochs)
        assert.is_true(read(folder .. "/whole" .. file) == read(folder .. "/half" .. file),
          "the parameters differ")
        local n = 0
        for line in io.lines(folder .. "/log") do
          local row = json.parse(line)
          assert.are.same({ n, "number", "number" },
            { row.epoch, type(row.train), type(row.valid) })
          n = n + 1
        end
        assert.are.equal(epochs, n)
        local plot = read(folder .. "/plot.svg")
        assert.truthy(plot:find("^<svg") and plot:find("</svg>%s*$"))
        assert.are.equal(2 * epochs, select(2, plot:gsub("<circle", "")))
      end)
    end)
  end

  it("saved networks are scored and used, from another folder", function()
    in_folder(function(folder)
      local here = io.popen("pwd"):read("*l")
      local program = shell.program:match("^/") and shell.program or here .. "/" .. shell.program
      local function there(script, words)
        local output, status = shell.run(("cd %s && %s %s/scripts/%s.lua %s 2>/dev/null")
          :format(folder, program, here, script, words))
        assert.equal(0, status, output)
        return last_line(output)
      end
      there("train_mnist", "--quick --network lenet --epochs 2 --checkpoint m")
      local accuracy = tonumber((there("score", "m"):match("^accuracy (%S+) of m, epoch 2")))
      assert.is_true(accuracy > 0.9)
      assert.is_true(tonumber((there("score", "m 1"):match("^accuracy (%S+) of m, epoch 1"))) <= 1)
      assert.truthy(there("predict", "m --images 3"):find("^%d of 3 right by m, epoch 2"))
      assert.truthy(there("fine_tune",
        "--quick --base m --base-epoch 2 --layer tanh3_output --epochs 3"):find("^accuracy"))
    end)
  end)

  it("a fine-tuned network is scored and used on the classes that it learned", function()
    in_folder(function(folder)
      local prefix = folder .. "/ft"
      local tuned = tonumber((last_line(run("fine_tune", "--quick --checkpoint " .. prefix))
        :match("^accuracy (%S+)")))
      local scored = tonumber((last_line(run("score", prefix .. " --quick"))
        :match("^accuracy (%S+) of .* on 500 images")))
      assert.is_true(math.abs(tuned - scored) < 0.15, ("%g, %g"):format(tuned, scored))
      local seen, classes = {}, { ring = true, frame = true, cross = true, columns = true,
        dots = true }
      for name in run("predict", prefix .. " --images 10"):gmatch("image %d %((%a+)%)") do
        assert.is_true(classes[name], name)
        seen[#seen + 1] = name
      end
      assert.are.equal(10, #seen)
    end)
  end)

  it("models of text and sequences are used by other programs", function()
    in_folder(function(folder)
      local prefix = folder .. "/m"
      run("seq2seq_reverse", "--quick --longest 4 --checkpoint " .. prefix)
      local reverse = ty.mod.Module.load(prefix, 4, { data_names = { "source" },
        label_names = {} })
      reverse:bind{ data_shapes = { { "source", { 1, 4 } } }, for_training = false }
      assert.same({ { 13, 4, 9, 2, 1 }, { 20, 21, 3, 1, 1 } },
        reverse:predict(ty.nd.array{ { 2, 9, 4, 13 }, { 0, 3, 21, 20 } }):totable())
      run("char_rnn", "--quick --checkpoint " .. prefix)
      local states = { "lstm_l0_begin_state_0", "lstm_l0_begin_state_1" }
      local char = ty.mod.Module.load(prefix, 1, { state_names = states, label_names = {} })
      char:bind{ data_shapes = { { "data", { 1, 1 } } }, for_training = false }
      char:set_states{ value = 0 }
      char:forward{ data = { ty.nd.array{ { 5 } } } }
      local outputs = char:get_outputs()
      assert.are.equal(#read(prefix .. ".characters"), outputs[1].shape[2])
      assert.near(1, outputs[1]:sum():asscalar(), 1e-5)
      char:set_states{ states = { outputs[2], outputs[3] } }
    end)
  end)

  it("records are written beside their place and moved there when complete", function()
    in_folder(function(folder)
      local images = folder .. "/images"
      os.execute("mkdir " .. images)
      for i = 1, 3 do
        ty.image.imwrite(("%s/%d.png"):format(images, i),
          ty.nd.full({ 4, 4, 3 }, 50 * i, { dtype = "uint8" }))
      end
      local function im2rec(words)
        return shell.tycho(("scripts/im2rec.lua %s"):format(words))
      end
      im2rec(("%s/d %s --list"):format(folder, images))
      local output, status = im2rec(("%s/d %s"):format(folder, images))
      assert.are.equal(0, status, output)
      local before = { read(folder .. "/d.rec"), read(folder .. "/d.idx") }
      output, status = im2rec(("%s/d %s/nowhere"):format(folder, folder))
      assert.truthy(status ~= 0 and output:find("d.rec is left as it was", 1, true), output)
      assert.are.same(before, { read(folder .. "/d.rec"), read(folder .. "/d.idx") })
      assert.is_nil(io.open(folder .. "/d.rec.part"))
      os.remove(images .. "/2.png")
      os.execute(("echo mine > %s/other; ln -s other %s/d.rec.part"):format(folder, folder))
      output, status = im2rec(("%s/d %s"):format(folder, images))
      assert.truthy(status ~= 0 and output:find("d.rec: 2 images", 1, true), output)
      assert.equal("mine\n", read(folder .. "/other"))     -- nothing is written through a link
    end)
  end)

  it("two devices learn what one learns", function()
    local worst =
      last_line(run("multi_device", "--quick")):match("parameters differ by (%S+) at most")
    assert.is_true(tonumber(worst) <= 1e-6, worst)
  end)

  it("mistakes are reported", function()
    for words, text in pairs{
      ["train_mnist.lua --resume"] = "--resume needs --checkpoint",
      ["train_mnist.lua --checkpoint nowhere/m --resume"] = "there is no file nowhere/m.state",
      ["train_mnist.lua --checkpoint nowhere/m"] =
        "--checkpoint: cannot write to nowhere/m: No such file or directory",
      ["multi_device.lua --plot p.gif"] = "--plot takes a name that ends in .svg or .png",
      ["multi_device.lua --plot nowhere/p.svg"] = "--plot: cannot write to nowhere/p.svg",
      ["char_rnn.lua --log nowhere/log"] = "--log: cannot write to nowhere/log",
      ["train_mnist.lua --epochs two"] = "--epochs takes a whole number of at least 1, not 'two'",
      ["train_mnist.lua --batch 1.5"] = "--batch takes a whole number of at least 1, not '1.5'",
      ["gpt.lua --rate inf"] = "--rate takes a number of at least 0, not 'inf'",
      ["train_mnist.lua --rate=-1"] = "--rate takes a number of at least 0, not '-1'",
      ["char_rnn.lua --dropout 2"] = "--dropout takes a number of 0 to 0.99, not '2'",
      ["char_rnn.lua --data nowhere"] = "--data: there is no nowhere",
      ["lstm_bucketing.lua --buckets 10,b"] = "--buckets takes numbers from 1 between commas",
      ["predict.lua --shape 3,32"] = "--shape takes channels,height,width",
      ["predict.lua --quick --file README.md"] = "--file README.md: ",
      ["fine_tune.lua --base nowhere/m"] = "--base: there is no file nowhere/m-0001.params",
      ["im2rec.lua a b --resize big"] = "--resize takes a whole number of at least 0, not 'big'",
      ["dev/doc.lua --nothing"] = "usage: build/tycho scripts/dev/doc.lua",
      ["autoencoder.lua --gpus all"] = "--gpus takes numbers, as 0,1, not all",
      ["train_cifar10.lua --depth 21"] = "the depth of a ResNet is 6 n + 2",
      ["train_cifar10.lua --data spec"] = "spec/data_batch_1.bin: No such file",
      ["gan_gluon.lua --gpus 0,1"] = "--gpus: this script trains on one GPU, not on 0,1",
      ["transformer_gluon.lua --heads 3"] = "--width 128 is not a multiple of --heads 3",
      ["score.lua nowhere/m"] = "there is no file nowhere/m-0001.params",
      ["multi_device.lua --devices 'cpu(0)'"] = "--devices names at least two",
      ["autoencoder.lua --rates 1"] = "unknown option '--rates'",
    } do
      local output, status = shell.tycho("scripts/" .. words)
      output = output:gsub("%s+", " ")
      assert.truthy(status ~= 0 and output:find(text, 1, true), words .. ": " .. output)
    end
  end)
end)
