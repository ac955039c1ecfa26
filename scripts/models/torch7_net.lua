--- Runs a network that Lua Torch saved, and continues its training. The default is an untrained
-- LeNet for digits of 16 x 16 pixels, which Torch wrote on a GPU in ascii format (cudnn,
-- CudaTensors).
--
--   tycho scripts/models/torch7_net.lua
--   tycho scripts/models/torch7_net.lua --file net.t7 --shape 1,3,224,224
--   tycho scripts/models/torch7_net.lua --help
--
-- It needs only the file: no Torch and no GPU.

local here = arg[0]:match("^.*/") or "./"
package.path = here .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local digits = require "digits"

local SIZE, BATCH = 16, 100

local parser = common.parser("Runs a network that Lua Torch saved, and trains it further.")
parser:option("--file", "file of torch.save; default: a LeNet, which is trained")
parser:option("--shape", "sizes of the input of another file, such as 1,3,224,224")
common.count(parser, "--train", "digits to draw and train on", 4000)
common.count(parser, "--epochs", "times to go through them", 4)
parser:flag("--quick", "few digits")
local options = common.parse(parser, { train = 2000, epochs = 3 })
local path = options.file or here .. "lenet.t7"


-- What is in the file -----------------------------------------------------------------------------

local function show(module, depth)
  local fields = {}
  for _, name in ipairs{ "nInputPlane", "nOutputPlane", "kW", "kH", "dW", "dH" } do
    fields[#fields + 1] = module[name] and name .. " " .. module[name]
  end
  local weight = module.weight
  fields[#fields + 1] = weight and "weight " .. table.concat(weight.shape, "x")
  print((("  "):rep(depth) .. ty.torch7.typename(module) .. "  " .. table.concat(fields, ", "))
    :match("^(.-)%s*$"))
  for _, inner in ipairs(module.modules or {}) do
    show(inner, depth + 1)
  end
end

local object = ty.torch7.load(path)
show(object, 0)

if options.file then
  local shape = {}
  for size in (options.shape or parser:error("--shape is missing")):gmatch("%d+") do
    shape[#shape + 1] = tonumber(size)
  end
  local net, args, auxs = ty.torch7.import_model{ object, shapes = { data = shape } }
  args.data = ty.nd.random.uniform{ shape = shape }
  print(net:bind{ ctx = ty.cpu(), args = args, aux_states = auxs }:forward()[1])
  return
end


-- Training it on digits that are drawn here -------------------------------------------------------

-- Returns an iterator over drawn digits; classes of Torch count from 1.
local function batches(n, seed)
  local images, labels = digits.draw(n, seed)
  return ty.io.NDArrayIter{ batch_size = BATCH, label_name = "label", label = labels + 1,
    data = ty.nd.contrib.AdaptiveAvgPooling2D{ images, output_size = SIZE } }
end

-- The criterion is also one of Torch's; the outputs are its loss and the network's output.
local net, args, auxs = ty.torch7.import_model{ object,
  shapes = { data = { BATCH, 1, SIZE, SIZE }, label = { BATCH } },
  criterion = "nn.ClassNLLCriterion" }
local train, test = batches(options.train, 1), batches(1000, 2)
local module = ty.mod.Module{ symbol = net, label_names = { "label" } }
module:bind{ data_shapes = train.provide_data, label_shapes = train.provide_label }
module:set_params(args, auxs, { allow_missing = false })
module:init_optimizer{ optimizer = "adam", optimizer_params = { learning_rate = 0.003,
  rescale_grad = 1 } }

local function accuracy()
  local right, n = 0, 0
  test:reset()
  for batch in test do
    module:forward(batch, false)
    local guess = module:get_outputs()[2]:argmax{ axis = 1 } + 1
    right, n = right + guess:eq(batch.label[1]):sum():asscalar(), n + BATCH
  end
  return right / n
end

print(("before: accuracy %.3f"):format(accuracy()))
for epoch = 1, options.epochs do
  local loss, n = 0, 0
  train:reset()
  for batch in train do
    module:forward_backward(batch)
    module:update()
    loss, n = loss + module:get_outputs()[1]:asscalar(), n + 1
  end
  print(("epoch %d: loss %.3f"):format(epoch, loss / n))
end
print(("accuracy %.3f on 1000 digits that it has not seen"):format(accuracy()))
