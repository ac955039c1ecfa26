--- Saved networks for the scripts that use them: `score.lua`, `predict.lua`.
--
--     saved.options(parser)                -- adds the checkpoint, --data, --shape, --batch, --seed
--     local model = saved.load(options, parser)
--                                          -- {net, arg_params, aux_params, shape, classes, name}
--     local x, y = saved.images(model, options, 100)
--     local module = saved.module(model, test)
--
-- Without a checkpoint a small network is first trained on digits, so that the scripts run
-- anywhere.

local ty = require "tycho"
local common = require "common"
local digits = require "digits"
local images = require "images"
local networks = require "networks"

local saved = {}

local DRAWN_CLASSES = 10                                  -- of digits and of pictures

--- Adds the options that name a saved network and its images.
function saved.options(parser)
  parser:argument("prefix", "prefix of a checkpoint: PREFIX-symbol.json, PREFIX-0004.params; \z
    default: a network trained now"):args("?")
  parser:argument("epoch", "epoch of the checkpoint; default: the last one")
    :args("?"):convert(common.to_number("epoch", 0, nil, true))
  parser:option("--data",
    "folder with idx files or CIFAR-10's binary files; default: images drawn here")
  common.counts(parser, "--shape",
    "channels,height,width of an image, for a network that does not say")
  common.count(parser, "--batch", "images of a step", 100)
  common.count(parser, "--seed", "of drawn images", 7, 0)
end

local function exists(path)
  local file = io.open(path, "rb")
  return file ~= nil and file:close()
end

-- Returns the last saved epoch. Epochs may have gaps, but gaps of more than a thousand are not
-- found.
local function last_epoch(prefix, parser)
  local last
  for epoch = 0, 9999 do
    if exists(ty.model.file_name(prefix, epoch, "params")) then
      last = epoch
    elseif epoch > (last or 0) + 1000 then
      break
    end
  end
  return last
    or parser:error("there is no file " .. prefix .. "-0001.params, or of another epoch")
end

-- Trains a small network for a few seconds and returns it in the form of `load`.
local function trained_now()
  print("no checkpoint is named: training a small network on digits first")
  local x, y = digits.draw(2000, 1)
  local net = networks.mlp{}
  local module = ty.mod.Module{symbol = net, context = ty.cpu()}
  ty.random.seed(1)
  module:fit{train_data = ty.io.NDArrayIter{data = x, label = y, batch_size = 100, shuffle = true},
    num_epoch = 4, initializer = ty.init.Xavier(),
    optimizer_params = {learning_rate = 0.1, momentum = 0.9}}
  local arg_params, aux_params = module:get_params()
  return {net = net, arg_params = arg_params, aux_params = aux_params, name = "the network"}
end

--- Returns a saved network or, without a checkpoint, one that is trained now.
-- @tparam table options the options of `saved.options`
-- @param parser of argparse, for error messages
-- @treturn table {net, arg_params, aux_params, shape = {channels, height, width}, classes (names,
--   if the network states them), name}
function saved.load(options, parser)
  local model
  if options.prefix then
    local epoch = options.epoch or last_epoch(options.prefix, parser)
    local path = ty.model.file_name(options.prefix, epoch, "params")
    if not exists(path) then
      parser:error("there is no file " .. path)
    end
    local net, arg_params, aux_params = ty.model.load_checkpoint(options.prefix, epoch)
    model = {net = net, arg_params = arg_params, aux_params = aux_params,
      name = ("%s, epoch %d"):format(options.prefix, epoch)}
  else
    model = trained_now()
  end
  if options.shape and #options.shape ~= 3 then
    parser:error("--shape takes channels,height,width")
  end
  model.shape = options.shape or networks.input_shape(model.net)
    or parser:error("the network does not say what images it takes: name them, as --shape 3,32,32")
  model.classes = networks.class_names(model.net)
  return model
end

--- Returns images of the classes that a network knows, drawn or from the folder.
-- @tparam table model
-- @tparam table options the options of `saved.options`
-- @int n the largest number
-- @treturn NDArray images
-- @treturn NDArray labels
function saved.images(model, options, n)
  local all = model.classes and math.ceil(n * DRAWN_CLASSES / #model.classes) or n
  local x, y = images.load(options.data, model.shape, all, options.seed)
  x, y = images.known(x, y, model.classes, model.shape, options.data)
  local function first(part)
    return part:slice_axis{axis = 0, begin = 0, end_ = math.min(n, part:len())}
  end
  return first(x), first(y)
end

--- Returns the name of a network's class for output.
-- @int label from 0
function saved.class_name(model, options, label)
  return model.classes and model.classes[label + 1]
    or images.class_name(label, model.shape, options.data)
end

--- Returns a module of the network that is bound for inference.
-- @tparam table model
-- @tparam DataIter data
function saved.module(model, data)
  local module = ty.mod.Module{symbol = model.net, context = ty.cpu()}
  module:bind{data_shapes = data.provide_data, label_shapes = data.provide_label,
    for_training = false}
  module:set_params(model.arg_params, model.aux_params)
  return module
end

return saved
