--- Adapts a trained network to new classes with few examples: keeps its lower
-- layers and replaces its head.
--
--   tycho scripts/fine_tune.lua                            trains a ResNet on five kinds of
--                                                          pictures, then adapts it to five others
--   tycho scripts/fine_tune.lua --base run/m --base-epoch 4 --layer tanh3_output --data folder
--   tycho scripts/fine_tune.lua --base run/m --layer list  prints where it can be cut
--   tycho scripts/fine_tune.lua --free                     trains the lower layers, too
--   tycho scripts/fine_tune.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local images = require "images"
local networks = require "networks"

local parser =
  common.parser("Puts a new head on a trained network and trains it with few examples.")
parser:option("--base",
  "prefix of the checkpoint to begin with; default: a ResNet-8 is trained first")
common.count(parser, "--base-epoch", "epoch of that checkpoint", 1, 0)
parser:option("--layer", "output to cut at; \"list\" prints all of them"):default("flatten_output")
parser:option("--data",
  "folder with idx files or CIFAR-10's binary files; default: images drawn here")
common.count(parser, "--train", "examples of the new task", 60)
common.count(parser, "--test", "images to test on", 1000)
parser:flag("--free", "train the lower layers, too, instead of keeping them as they are")
common.training(parser, {epochs = 20, batch = 20, rate = 0.02, momentum = 0.9})
local options = common.parse(parser, {epochs = 15, test = 400})

-- Returns the images of every other class, even or odd, under labels from 0.
local function every_other(x, y, first)
  local rows = {}
  for i, label in ipairs(y:totable()) do
    rows[#rows + 1] = label % 2 == first and i - 1 or nil
  end
  rows = ty.nd.array(rows, {dtype = "int32"})
  return x:take(rows), (y:take(rows) - first) / 2
end


-- The base ----------------------------------------------------------------------------------------

-- Returns a ResNet that knows the pictures of even labels.
local function train_base()
  local x, y = images.load(nil, {3, 32, 32}, options.quick and 1600 or 4000, options.seed + 500)
  x, y = every_other(x, y, 0)
  local data = ty.io.NDArrayIter{data = x, label = y, batch_size = 20, shuffle = true}
  local net = networks.resnet{depth = 8, classes = 5}
  local module = ty.mod.Module{symbol = net, context = common.devices(options)}
  module:fit{train_data = data, num_epoch = 4, optimizer = "nag",
             initializer = ty.init.Xavier{rnd_type = "gaussian", factor_type = "in", magnitude = 2},
             optimizer_params = {learning_rate = 0.1, momentum = 0.9, wd = 0.0001}}
  return net, module:get_params()
end

local function base()
  if options.base then
    local path = ty.model.file_name(options.base, options.base_epoch, "params")
    local file = io.open(path) or parser:error("--base: there is no file " .. path)
    file:close()
    return ty.model.load_checkpoint(options.base, options.base_epoch)
  end
  print("training a ResNet-8 on discs, squares, triangles, rows and checkers")
  return train_base()
end


-- The new network ---------------------------------------------------------------------------------

-- Returns images, labels from 0 and the names of the classes.
local function new_task(shape)
  local n, names = 2 * (options.train + options.test), {}
  local x, y = images.load(options.data, shape, n, options.seed)
  local first, step = 0, 1
  if not options.data then
    first, step = 1, 2
    x, y = every_other(x, y, first)
  end
  for label = 0, y:max():asscalar() do
    names[label + 1] = images.class_name(first + step * label, shape, options.data)
  end
  return x, y, names
end

local function find_index(list, wanted)
  for i, value in ipairs(list) do
    if value == wanted then
      return i
    end
  end
end

-- Returns the lower layers with a new head, and the names of the parameters of these layers.
local function with_new_head(net, names)
  local features = net:get_internals()[options.layer]
  local kept = {}
  for _, name in ipairs(features:list_arguments()) do
    kept[#kept + 1] = name ~= "data" and name or nil
  end
  return networks.head(ty.sym.Flatten{data = features}, #names, "new_head", names), kept
end

local function optimizer_params(rate)
  return {learning_rate = rate, momentum = options.momentum}
end

-- Returns the same network, trained from scratch on the same examples.
local function from_scratch(net, train, test)
  local module = ty.mod.Module{symbol = net, context = common.devices(options)}
  train:reset()
  module:fit{train_data = train, num_epoch = options.epochs, initializer = ty.init.Xavier(),
             optimizer_params = optimizer_params(options.rate)}
  test:reset()
  return module:score(test, "acc")[1][2]
end

ty.random.seed(options.seed)
local old, parameters, states = base()
if options.layer == "list" then
  print(table.concat(old:get_internals():list_outputs(), "\n"))
  return
end
if not find_index(old:get_internals():list_outputs(), options.layer) then
  parser:error(("--layer: the network has no %s; --layer list prints what it has")
    :format(options.layer))
end
local shape = assert(networks.input_shape(old), "the network does not say what images it takes")
local x, y, names = new_task(shape)
local train, test = images.split(x, y, options)
local net, kept = with_new_head(old, names)

local level = ty.log.level
ty.log.level = "warning"
local scratch = from_scratch(net, train, test)
ty.log.level = level
print(("fine-tuning with %d examples: a new head above %s%s"):format(options.train, options.layer,
  options.free and "; all layers learn" or ""))
ty.random.seed(options.seed)
local module = ty.mod.Module{symbol = net, context = common.devices(options),
  fixed_param_names = not options.free and kept or nil}
train:reset()
local tuned = common.fit(options, module, {
  train_data = train, eval_data = test, eval_metric = "acc", initializer = ty.init.Xavier(),
  arg_params = parameters, aux_params = states, allow_missing = true,
  optimizer_params = optimizer_params(options.rate),
})
print(("accuracy %.4f after fine-tuning on %d examples; %.4f from scratch")
  :format(tuned, options.train, scratch))
