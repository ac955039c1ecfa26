--- Trains a small network, saves it in files of the reference's format, and runs these like another
-- user who only has the files and the program.
--
--   tycho scripts/models/own_net.lua
--   tycho scripts/models/own_net.lua --folder run
--   tycho scripts/models/own_net.lua --help

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local digits = require "digits"
local networks = require "networks"

local parser = common.parser("Trains a network and hands it on as files.")
parser:option("--folder", "folder for the files"):default("/tmp")
common.count(parser, "--train", "digits to draw and train on", 4000)
parser:flag("--quick", "few digits")
local options = common.parse(parser, { train = 2000 })

local TEST = 10
local prefix = options.folder .. "/digits"

-- The saved network ends in probabilities and has no label.
local images, labels = digits.draw(options.train, 1)
local net = networks.mlp{ classes = 10 }
local module = ty.mod.Module{ symbol = net }
module:fit{ train_data = ty.io.NDArrayIter{ data = images, label = labels, batch_size = 100 },
  num_epoch = 4, initializer = ty.init.Xavier(),
  optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
module:save_checkpoint(prefix, 0)

local x, y = digits.draw(TEST, 2)
ty.nd.save(prefix .. "-images.npy", x)

-- The rest does what another shell would do.
local first = 0
while arg[first - 1] do
  first = first - 1
end
local tycho = first < 0 and arg[first] or "tycho"

local function shell(command)
  print("$ tycho " .. command)
  assert(os.execute(tycho .. " " .. command) == 0)
end

shell(("--inspect %s-symbol.json --shape data=%d,1,28,28"):format(prefix, TEST))
shell(("--run %s-symbol.json --input %s-images.npy --output %s-odds.npy"):format(prefix, prefix,
  prefix))
shell(("--convert %s-symbol.json %s.safetensors"):format(prefix, prefix))

local odds = ty.nd.load(prefix .. "-odds.npy")[1]
print(("%d of %d digits right"):format(odds:argmax{ axis = 1 }:eq(y):sum():asscalar(), TEST))
