-- tycho --inspect, --convert, --run.

local device = require "spec.support.device"
local folder = require "spec.support.folder"
local gguf = require "spec.support.gguf"
local models = require "spec.support.onnx_models"
local p = require "spec.support.pytorch"
local shell = require "spec.support.shell"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local V = ty.sym.Variable

local function has(text, output)
  assert.truthy(output:find(text, 1, true), output)
end

local function ok(arguments)
  local output, status = shell.tycho(arguments)
  assert.equal(0, status, output)
  return output
end

local function fails(status, text, arguments)
  local output, got = shell.tycho(arguments)
  assert.equal(status, got, output)
  has(text, output)
  return output
end

-- Writes a checkpoint: y = relu(W x + b) for 3 inputs, 2 outputs; returns the path of its symbol.
local function checkpoint(dir)
  local net = ty.sym.FullyConnected{ data = V "data", num_hidden = 2, name = "fc" }
  ty.model.save_checkpoint(dir .. "/m", 3, ty.sym.relu{ net, name = "relu" },
    { fc_weight = ty.nd.array{ { 1, 0, 0 }, { 0, -1, 0 } }, fc_bias = ty.nd.array{ 10, 1 } }, {})
  return dir .. "/m-symbol.json"
end

-- Writes the same network for Torch7, inside a table.
local function torch_file(dir)
  local linear = t7.object("nn.Linear", { weight = t7.tensor("Float", { 2, 3 },
    { 1, 0, 0, 0, -1, 0 }), bias = t7.tensor("Float", { 2 }, { 10, 1 }) })
  local net = t7.object("nn.Sequential", { modules = { linear, t7.object("nn.ReLU",
    { threshold = 0, val = 0 }) } })
  folder.write(dir .. "/net.t7", t7.bytes{ best = { net = net }, epoch = 7 })
  return dir .. "/net.t7"
end

-- Writes the same network as ONNX.
local function onnx_file(dir, options)
  local net, params = ty.model.load_checkpoint(checkpoint(dir):match("^(.*)%-symbol"), 3)
  ty.onnx.export_model{ net, params, { data = { 1, 3 } }, dir .. "/net.onnx",
    dynamic = options.dynamic }
  return dir .. "/net.onnx"
end

describe("--inspect", function()
  it("shows a network", function()
    folder.with(function(dir)
      local path = checkpoint(dir)
      local output = ok("--inspect " .. path .. " --shape data=4,3")
      has("format     MXNet's graph", output)
      has("inputs     data                     4x3", output)
      has("outputs    relu_output              4x2", output)
      has("operators  2: 1 FullyConnected, 1 relu", output)
      has("parameters 8 in 2 arrays (2 float32), 32 B", output)
      has("operations 56 for one run", output)               -- 2 x 4 x 2 x 3 and 4 x 2
      has(" B planned for one run", output)
      output = ok("--inspect " .. path)
      has("data                     shape not known", output)
      has("--shape NAME=SIZES", output)
      has("fc(FullyConnected)", ok("--inspect " .. path .. " --shape data=4,3 --all"))
    end)
  end)

  it("shows a file of Torch7, and the network in it", function()
    folder.with(function(dir)
      local path = torch_file(dir)
      local output = ok("--inspect " .. path)
      has("format     Torch7", output)
      has("keys       best, epoch (--at KEY chooses)", output)
      has("nn.Linear 1, nn.ReLU 1, nn.Sequential 1, torch.FloatTensor 2", output)
      output = ok("--inspect " .. path .. " --at best.net --shape data=4,3")
      has("outputs    relu0_output             4x2", output)
      fails(1, "has nothing at 'none'", "--inspect " .. path .. " --at best.none")
    end)
  end)

  it("shows a network in ONNX, and what its nodes are where sizes are open", function()
    folder.with(function(dir)
      local path = onnx_file(dir, {})
      local output = ok("--inspect " .. path)
      has("format     ONNX", output)
      has("metadata   ir_version = 8\n           opset = 17\n           producer = Tycho", output)
      has("inputs     data                     1x3", output)
      has("parameters 8 in 2 arrays (2 float32), 32 B", output)
      has(" B planned for one run", output)
      path = onnx_file(dir, { dynamic = { data = { 0 } } })
      has(" 4x2\n", ok("--inspect " .. path .. " --shape data=4,3"))
      folder.write(dir .. "/x.onnx", "no network")
      local text = fails(1, "x.onnx", "--inspect " .. dir .. "/x.onnx")
      assert.is_nil(text:find("format ", 1, true), text)
    end)
  end)

  it("shows arrays and what a file says of itself", function()
    folder.with(function(dir)
      folder.write(dir .. "/x.gguf", gguf.bytes{ { "general.license", gguf.TEXT, "mit" },
        { "a.key", gguf.U32, 7 }, { "tokens", gguf.LIST, { gguf.TEXT, { "a", "b" } } },
        tensors = { { "w", { 2, 32 }, 8, ("\0"):rep(68) } } })
      local output = ok("--inspect " .. dir .. "/x.gguf")
      has("format     GGUF", output)
      has("metadata   general.license = mit\n           a.key = 7\n           tokens = 2 entries",
        output)
      has("elements   64, 256 B as arrays", output)
      has("names      w                                                float32 2x32", output)
      folder.write(dir .. "/x.pth", p.archive{ { "w", p.tensor{ class = "HalfStorage", n = 2,
        size = { 2 }, stride = { 1 } } }, storages = { ["0"] = "\0\0\0\0" } })
      has("format     PyTorch's arrays", ok("--inspect " .. dir .. "/x.pth"))
      ty.nd.save(dir .. "/x.npy", ty.nd.ones{ 2, 3 })
      has("format     NumPy's arrays", ok("--inspect " .. dir .. "/x.npy"))
      ty.nd.save(dir .. "/x.params", { ty.nd.ones{ 2, 3 } })
      has("format     MXNet's arrays", ok("--inspect " .. dir .. "/x.params"))
      folder.write(dir .. "/x.txt", "no array")
      local text = fails(1, "this is not a file of arrays", "--inspect " .. dir .. "/x.txt")
      assert.is_nil(text:find("format ", 1, true), text)
    end)
  end)

  it("of many arrays shows some, with --all all", function()
    folder.with(function(dir)
      local dict = {}
      for i = 1, 50 do
        dict["x" .. i] = ty.nd.ones{ 1 }
      end
      ty.nd.save(dir .. "/x.safetensors", dict)
      has("and 10 more (--all)", ok("--inspect " .. dir .. "/x.safetensors"))
      has("x50 ", ok("--inspect " .. dir .. "/x.safetensors --all"))
    end)
  end)
end)

describe("--convert", function()
  it("writes a network as a network", function()
    folder.with(function(dir)
      local path = torch_file(dir)
      has("out-symbol.json: a network", ok(("--convert %s %s/out-symbol.json --at best.net \z
        --shape data=4,3"):format(path, dir)))
      local net, args = ty.model.load_checkpoint(dir .. "/out", 0)
      args.data = ty.nd.array{ { 1, 2, 3 } }
      local exe = net:bind{ ctx = ty.cpu(), args = device.placed(args, ty.cpu()) }
      assert.same({ { 11, 0 } }, exe:forward()[1]:totable())
    end)
  end)

  it("writes arrays as arrays", function()
    folder.with(function(dir)
      folder.write(dir .. "/x.pth", p.archive{ { "w", p.tensor{ class = "BFloat16Storage", n = 1,
        size = { 1 }, stride = { 1 } } }, { "none", p.tensor{ class = "FloatStorage", n = 0,
        size = { 0 }, stride = { 1 } } }, storages = { ["0"] = "\128\63" } })
      for _, ending in ipairs{ "params", "npz", "safetensors" } do
        has(": 1 arrays", ok(("--convert %s/x.pth %s/y.%s"):format(dir, dir, ending)))
        local x = ty.nd.load(dir .. "/y." .. ending).w
        assert.equal(ending == "npz" and "float32" or "bfloat16", x.dtype)
        assert.equal(1, x:asscalar())
      end
      has(": 2 arrays", ok(("--convert %s %s/p.params"):format(checkpoint(dir), dir)))
      assert.same({ 10, 1 }, ty.nd.load(dir .. "/p.params")["arg:fc_bias"]:totable())
      has(": 2 arrays", ok(("--convert %s %s/p.npz"):format(checkpoint(dir), dir)))
      assert.same({ 10, 1 }, ty.nd.load(dir .. "/p.npz").fc_bias:totable())
    end)
  end)

  it("says what cannot be", function()
    folder.with(function(dir)
      ty.nd.save(dir .. "/x.npz", { x = ty.nd.ones{ 1 } })
      fails(1, "holds arrays and no network", ("--convert %s/x.npz %s/y-symbol.json")
        :format(dir, dir))
      fails(1, "the ending of the file", ("--convert %s/x.npz %s/y.txt"):format(dir, dir))
      fails(1, "NAME-symbol.json", ("--convert %s %s/y.json"):format(checkpoint(dir), dir))
      fails(1, "cannot become", ("--convert %s/x.npz %s/y.t7"):format(dir, dir))
      fails(1, "No such file", ("--convert %s/none.npz %s/y.npz"):format(dir, dir))
    end)
  end)
end)

describe("--convert with ONNX", function()
  it("writes a network, and reads it", function()
    folder.with(function(dir)
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ { 1, 2, 3 } })
      local function result(model)
        ok(("--run %s/%s --input %s/x.npy --output %s/y.npy"):format(dir, model, dir, dir))
        return ty.nd.load(dir .. "/y.npy")[1]:totable()
      end
      fails(1, "--shape data=", ("--convert %s %s/a.onnx"):format(checkpoint(dir), dir))
      has("a.onnx: a network", ok(("--convert %s %s/a.onnx --shape data=1,3")
        :format(checkpoint(dir), dir)))
      ok(("--convert %s/a.onnx %s/b.onnx"):format(dir, dir))
      ok(("--convert %s/b.onnx %s/c-symbol.json"):format(dir, dir))
      ok(("--convert %s %s/d.onnx --at best.net --shape data=1,3"):format(torch_file(dir), dir))
      for _, model in ipairs{ "a.onnx", "b.onnx", "c-symbol.json", "d.onnx" } do
        assert.same({ { 11, 0 } }, result(model), model)
      end
      has(": 2 arrays", ok(("--convert %s/a.onnx %s/w.safetensors"):format(dir, dir)))
    end)
  end)

  it("runs one whose sizes are open on what it is given", function()
    folder.with(function(dir)
      local path = onnx_file(dir, { dynamic = { data = { 0 } } })
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ { 1, 2, 3 }, { 0, -1, 0 } })
      ok(("--run %s --input %s/x.npy --output %s/y.npy"):format(path, dir, dir))
      assert.same({ { 11, 0 }, { 10, 2 } }, ty.nd.load(dir .. "/y.npy")[1]:totable())
    end)
  end)
end)

-- Writes the same network as ONNX, with an input of another name, for `rows` rows; nil: for any
-- number.
local function image_file(dir, rows)
  local net = ty.sym.FullyConnected{ data = V "image", num_hidden = 2, name = "fc" }
  ty.onnx.export_model{ ty.sym.relu{ net, name = "relu" }, { fc_weight = ty.nd.array{ { 1, 0, 0 },
    { 0, -1, 0 } }, fc_bias = ty.nd.array{ 10, 1 } }, { image = { rows or 4, 3 } },
    dir .. "/net.onnx", dynamic = not rows and { image = { 0 } } or nil }
  return dir .. "/net.onnx"
end

describe("files of ONNX", function()
  it("are shown", function()
    folder.with(function(dir)
      local output = ok("--inspect " .. image_file(dir, 4))
      has("format     ONNX", output)
      has("inputs     image                    4x3", output)
      has("4x2", output)
      has("parameters 8 in 2 arrays (2 float32), 32 B", output)
      has("5x2", ok("--inspect " .. image_file(dir) .. " --shape image=5,3"))
      has("5x2", ok("--inspect " .. image_file(dir) .. " --shape data=5,3"))
    end)
  end)

  it("that are no network without shapes, or at all, say why", function()
    folder.with(function(dir)
      local path = dir .. "/m.onnx"
      folder.write(path, models.bytes{ nodes = { { "Size", { "x" }, { "y" } } }, outputs = { "y" },
        inputs = { x = { "batch", 2 } } })
      local output = ok("--inspect " .. path)
      has("inputs     x                        float32 batchx2", output)
      has("network    none: ", output)
      has("outputs    y", output)
      fails(1, "has 2 dimensions", "--inspect " .. path .. " --shape x=1,2,1")
      folder.write(path, models.bytes{ nodes = { { "Nothing", { "x" }, { "y" } } },
        outputs = { "y" }, inputs = { x = { 2 } } })
      has("there is no converter for this operator", ok("--inspect " .. path))
      folder.write(path, "no network")
      fails(1, "a field of an unknown type", "--inspect " .. path)
    end)
  end)

  it("are written and read", function()
    folder.with(function(dir)
      has("out.onnx: a network", ok(("--convert %s %s/out.onnx --shape data=4,3")
        :format(checkpoint(dir), dir)))
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ { 1, 2, 3 } })
      ok(("--run %s --input %s/x.npy --output %s/y.npy"):format(image_file(dir), dir, dir))
      assert.same({ { 11, 0 } }, ty.nd.load(dir .. "/y.npy")[1]:totable())
      has("back-symbol.json: a network", ok(("--convert %s %s/back-symbol.json"):format(
        image_file(dir, 1), dir)))
      has("[[11.  0.]]", ok(("--run %s/back-symbol.json --input %s/x.npy"):format(dir, dir)))
      has(": 2 arrays", ok(("--convert %s %s/p.safetensors"):format(image_file(dir, 1), dir)))
    end)
  end)

  it("get inputs of the types that they say", function()
    folder.with(function(dir)
      local path = dir .. "/m.onnx"
      folder.write(path, models.bytes{ nodes = { { "Gather", { "w", "ids" }, { "y" } } },
        outputs = { "y" }, inputs = { ids = { 2, type = 7 } },
        constants = { w = ty.nd.array{ { 1, 2 }, { 3, 4 } } } })
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ 1, 0 })
      has("[[3. 4.]", ok(("--run %s --input %s/x.npy"):format(path, dir)))
    end)
  end)
end)

describe("--run", function()
  it("runs a network on arrays of files", function()
    folder.with(function(dir)
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ { 1, 2, 3 } })
      ok(("--run %s --input %s/x.npy --output %s/y.npy"):format(checkpoint(dir), dir, dir))
      assert.same({ { 11, 0 } }, ty.nd.load(dir .. "/y.npy")[1]:totable())
      ok(("--run %s --at best.net --input data=%s/x.npy --output %s/z.npz")
        :format(torch_file(dir), dir, dir))
      assert.same({ { 11, 0 } }, ty.nd.load(dir .. "/z.npz").relu0_output:totable())
      has("[[11.  0.]]", ok(("--run %s --input image=%s/x.npy --ctx cpu"):format(checkpoint(dir),
        dir)))
    end)
  end)

  it("needs no labels", function()
    folder.with(function(dir)
      local net = ty.sym.SoftmaxOutput{ data = V "data", name = "softmax" }
      ty.model.save_checkpoint(dir .. "/m", 0, net, {}, {})
      ty.nd.save(dir .. "/x.npy", ty.nd.zeros{ 1, 2 })
      has("[[0.5 0.5]]", ok(("--run %s/m-symbol.json --input %s/x.npy"):format(dir, dir)))
    end)
  end)

  it("says what is missing", function()
    folder.with(function(dir)
      local path = checkpoint(dir)
      ty.nd.save(dir .. "/x.npy", ty.nd.array{ { 1, 2 } })
      ty.nd.save(dir .. "/two.npz", { data = ty.nd.ones{ 1, 3 }, other = ty.nd.ones{ 1 } })
      fails(2, "--input is missing", "--run " .. path)
      fails(1, "fc_weight", ("--run %s --input %s/x.npy"):format(path, dir))
      fails(1, "no input 'other'", ("--run %s --input %s/two.npz"):format(path, dir))
      fails(1, "holds arrays", ("--run %s/x.npy --input %s/x.npy"):format(dir, dir))
    end)
  end)
end)

describe("a command line", function()
  it("that is wrong is explained", function()
    fails(2, "usage: tycho --inspect", "--inspect")
    fails(2, "unknown option '--none'", "--inspect x --none")
    fails(2, "a value is missing", "--inspect x --shape")
    fails(2, "is no shape", "--inspect x --shape data")
    fails(2, "is no device", "--run x --input y --ctx tpu")
    fails(2, "1 files are named, 2 are needed", "--convert x")
    has("usage: tycho --run", ok("--run --help"))
    has("--inspect FILE", ok("--help"))
    -- words that look like options of the program are files here
    fails(1, "No such file", "--inspect xl.t7")
  end)
end)
