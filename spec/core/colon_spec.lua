-- A method that is called with a dot where a colon belongs is reported.

local methods = require "tycho.core.methods"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local function names_object(parameter)
  return parameter == "self" or parameter == "_"
end


-- Returns the set of names of an object's methods: public functions of its classes whose first
-- parameter is the object. `extend` belongs to classes.
local function members_of(object)
  local names, class = {}, getmetatable(object)
  while class and class.super do
    for name, f in pairs(class) do
      if type(f) == "function" and not name:find("^_") and name ~= "init"
          and names_object(debug.getlocal(methods.inner(f), 1)) then
        names[name] = true
      end
    end
    class = class.super
  end
  return names
end


describe("a dot where a colon belongs", function()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 4 } }
  local mod = ty.mod.Module{ symbol = net, label_names = {} }

  local layer = ty.gluon.nn.Dense(2)

  local CALLS = {
    ["fit of a module"]   = function() mod.fit{ num_epoch = 1 } end,
    ["bind of a module"]  = function() mod.bind{ data_shapes = {} } end,
    ["inference"]         = function() net.infer_shape{ data = { 3, 4 } } end,
    ["names of a symbol"] = function() net.list_arguments() end,
    ["forward"]           = function() exe.forward(true) end,
    ["backward"]          = function() exe.backward() end,
    ["an operator"]       = function() ty.nd.ones(2).sum() end,
    ["a binary operator"] = function() ty.nd.ones(2).dot() end,
    ["astype"]            = function() ty.nd.ones(2).astype("int32") end,
    ["forward of a block"] = function() layer.forward(ty.nd.ones{ 1, 2 }) end,
    ["summary of a block"] = function() layer.summary(ty.nd.ones{ 1, 2 }) end,
    ["a class"]           = function() ty.gluon.HybridBlock.extend("Net") end,
    ["add"]               = function() ty.gluon.nn.HybridSequential().add(layer) end,
    ["add of a stack"]    = function() ty.gluon.rnn.SequentialRNNCell().add(layer) end,
  }
  local iter = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 2 }, batch_size = 2 }
  local resized = ty.io.ResizeIter(iter, 1)
  local record = ty.recordio.MXRecordIO("/dev/null", "r")
  local x = ty.nd.ones{ 2 }

  for what, object in pairs{ module = mod, iterator = iter, ["iterator around one"] = resized,
      record = record, store = ty.kv.create(), metric = ty.metric.create("acc"),
      optimizer = ty.optimizer.create("adam"), updater = ty.optimizer.get_updater(
        ty.optimizer.create("sgd")), initializer = ty.init.Zero(),
      monitor = ty.monitor.Monitor(1), ["augmenter"] = ty.image.CastAug(),
      ["recurrent cell"] = ty.rnn.LSTMCell(2) } do
    for name in pairs(members_of(object)) do
      for kind, first in pairs{ nothing = false, number = 3, table = {}, array = x } do
        CALLS[("%s of a %s, %s"):format(name, what, kind)] =
          function() object[name](first or nil) end
      end
    end
  end

  -- of gluon, but for what each layer or sample calls
  local gluon = ty.gluon
  local SPARED = { data = true, forward = true, get = true }
  local set = gluon.data.ArrayDataset(ty.nd.ones{ 4, 2 })
  CALLS["data of a parameter"] = function() layer.weight.data() end
  for what, object in pairs{ block = gluon.nn.HybridSequential{ layer }, parameter = layer.weight,
      dictionary = layer:collect_params(), loss = gluon.loss.L2Loss(), set = set,
      trainer = gluon.Trainer(layer:collect_params(), "sgd"), cell = gluon.rnn.LSTMCell(2),
      recurrent = gluon.rnn.LSTM(2), sampler = gluon.data.RandomSampler(3),
      loader = gluon.data.DataLoader(set, 2),
      handler = gluon.contrib.estimator.CheckpointHandler{ model_dir = "." } } do
    for name in pairs(members_of(object)) do
      for kind, first in pairs{ nothing = false, number = 3, array = x } do
        CALLS[("%s of a %s, %s"):format(name, what, kind)] = not SPARED[name]
          and function() object[name](first or nil) end or nil
      end
    end
  end

  for what, call in pairs(CALLS) do
    it("is named: " .. what, function()
      local ok, e = pcall(call)
      assert.is_false(ok)
      assert.truthy(ty.is_error(e) and e.message:find("colon", 1, true), tostring(e))
    end)
  end

  it("is named by the program where Lua itself stops inside the library", function()
    local say = "ty = require 'tycho' "
    local output = shell.tycho(("-e %q"):format(say .. "ty.nd.ones(2).asscalar()"))
    assert.truthy(output:find("methods take a colon", 1, true), output)
    output = shell.tycho(("-e %q"):format(say .. "x = nil; x.y = 1"))
    assert.falsy(output:find("colon", 1, true), output)
  end)

  it("is looked for no further than the script's own lines go", function()
    shell.with_file("local x = require('tycho').nd.ones{ 2 }\nx:no_such_method()\n", function(path)
      local output = shell.tycho(path)
      assert.truthy(output:find("unknown property or method 'no_such_method'", 1, true), output)
    end)
  end)
end)
