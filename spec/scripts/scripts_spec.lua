-- What people run: every training script ends well and has learned something, goes on from its
-- checkpoint, logs and plots; from any folder.

local folders = require "spec.support.folder"
local json = require "tycho.core.json"
local shell = require "spec.support.shell"

-- script (and options), pattern of the figure in the last line of output, least and
-- most of it: quick, and in full
local SCRIPTS = {
  { "train_mnist",          "^accuracy (%S+)",          quick = { 0.95, 1 },    full = { 0.99, 1 } },
  { "train_cifar10",        "^accuracy (%S+)",          quick = { 0.4, 1 },     full = { 0.9, 1 } },
  { "fine_tune",            "^accuracy (%S+)",          quick = { 0.4, 1 },     full = { 0.55, 1 } },
  { "autoencoder",          "([%d.]+) %% explained",    quick = { 70, 100 },    full = { 80, 100 } },
  { "matrix_factorization", "^error (%S+)",             quick = { 0.29, 0.5 },  full = { 0.29, 0.45 } },
  { "multi_device",         "([%d.]+) of the LSTM",     quick = { 0.9, 1 },     full = { 0.99, 1 } },
  { "char_rnn",             "^([%d.]+) bits",           quick = { 1, 4.5 },     full = { 1, 3 } },
  { "lstm_bucketing",       "^test perplexity (%S+)",   quick = { 1, 400 },     full = { 1, 120 } },
  { "lstm_bucketing --fused", "^test perplexity (%S+)", quick = { 1, 400 },     full = { 1, 120 } },
  { "seq2seq_reverse",      "^accuracy ([%d.]+)",       quick = { 0.4, 1 },     full = { 0.95, 1 } },
  { "score",                "^accuracy (%S+)",          quick = { 0.95, 1 },    full = { 0.95, 1 } },
  { "predict",              "^(%d+) of %d+ right",      quick = { 4, 5 },       full = { 9, 10 } },
}

local read, in_folder = folders.read, folders.with

local SECONDS = 120              -- of processor time that a script may take without arguments

-- what a script prints on standard output, without its log
local function run(script, words)
  local name, more = script:match("^(%S+)%s*(.*)$")
  local output, status = shell.tycho(("scripts/%s.lua %s %s 2>/dev/null"):format(name, more, words))
  assert.equal(0, status, output)
  return output
end

-- the same, with the seconds of processor time that it took
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
    it(entry[1] .. " learns in a few seconds", function()
      check_figure(entry, run(entry[1], "--quick"), entry.quick)
    end)

    it(entry[1] .. " learns what it says #slow", function()
      local output, seconds = timed(entry[1])
      check_figure(entry, output, entry.full)
      assert.is_true(seconds < SECONDS, ("%s took %.0f seconds"):format(entry[1], seconds))
    end)
  end

  it("all explain themselves", function()
    for _, entry in ipairs(SCRIPTS) do
      local name = entry[1]:match("^%S+")
      local help = run(name, "--help")
      assert.truthy(help:find("Usage: " .. name .. ".lua", 1, true)
        and help:find("--quick", 1, true), help)
    end
  end)

  for _, case in ipairs{ { "train_mnist", 4, "" }, { "matrix_factorization", 6, "" },
      { "autoencoder", 2, "" }, { "fine_tune", 4, "--layer stage2_unit1_conv1_output" },
      { "train_cifar10", 2, "--train 100 --test 50 --drops 1" } } do
    local script, epochs, words = unpack(case)
    it(script .. " goes on from its checkpoint bit by bit, logs and plots all of it", function()
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

  it("two devices learn what one learns", function()
    local worst =
      last_line(run("multi_device", "--quick")):match("parameters differ by (%S+) at most")
    assert.is_true(tonumber(worst) <= 1e-6, worst)
  end)

  it("mistakes are told", function()
    for words, text in pairs{
      ["train_mnist.lua --resume"] = "--resume needs --checkpoint",
      ["train_mnist.lua --checkpoint nowhere/m --resume"] = "there is no file nowhere/m.state",
      ["train_cifar10.lua --depth 21"] = "the depth of a ResNet is 6 n + 2",
      ["train_cifar10.lua --data nowhere"] = "nowhere/data_batch_1.bin: No such file",
      ["score.lua nowhere/m"] = "there is no file nowhere/m-0001.params",
      ["multi_device.lua --devices 'cpu(0)'"] = "--devices names at least two",
      ["autoencoder.lua --rates 1"] = "unknown option '--rates'",
    } do
      local output, status = shell.tycho("scripts/" .. words)
      assert.truthy(status ~= 0 and output:find(text, 1, true), words .. ": " .. output)
    end
  end)
end)
