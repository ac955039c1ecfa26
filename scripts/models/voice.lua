--- Finds speech in a recording with Silero VAD, a small network whose weights are in a safetensors
-- file.
--
--   pip download --no-deps silero-vad && unzip -q silero_vad-*.whl -d silero
--   tycho scripts/models/voice.lua --folder silero/silero_vad/data --file speech.wav
--   tycho scripts/models/voice.lua --help
--
-- The recording must have 16,000 samples of 16 bits a second and one channel.

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local wav = require "wav"

local sym, V = ty.sym, ty.sym.Variable

local RATE = 16000                                       -- samples of a second
local PIECE, BEFORE, AFTER = 512, 64, 64                 -- samples of a piece; before and after it
local WINDOW, BINS, HOP = 256, 129, 128                  -- of the short-time Fourier transform
local WIDTH = 128
local SPEECH = 0.5                                       -- least probability of speech

local parser = common.parser("Says where in a recording there is speech.")
parser:option("--folder", "folder with silero_vad_16k.safetensors"):count(1)
parser:option("--file", "WAV file"):count(1)
parser:option("--plot", "SVG file to draw the odds into")
local options = common.parse(parser, {})


-- The network; names of variables are those of the file -------------------------------------------

local function convolution(x, name, filters, stride)
  return sym.relu(sym.Convolution{ data = x, weight = V(name .. ".weight"),
    bias = V(name .. ".bias"), num_filter = filters, kernel = { 3 }, stride = { stride },
    pad = { 1 } })
end

-- Returns a network: pieces (count, samples) -> probabilities of speech (count, 1). The recurrent
-- layer runs over the pieces.
local function network(length)
  local x = sym.Pad{ data = V("data"):reshape{ -1, 1, 1, length }, mode = "reflect",
    pad_width = { 0, 0, 0, 0, 0, 0, 0, AFTER } }:reshape{ -1, 1, length + AFTER }
  x = sym.Convolution{ data = x, weight = V "stft_conv.weight", num_filter = 2 * BINS,
    kernel = { WINDOW }, stride = { HOP }, no_bias = true }
  local real = x:slice_axis{ axis = 1, begin = 0, ["end"] = BINS }
  local imaginary = x:slice_axis{ axis = 1, begin = BINS, ["end"] = 2 * BINS }
  x = sym.sqrt(sym.square(real) + sym.square(imaginary))
  x = convolution(convolution(x, "conv1", WIDTH, 1), "conv2", 64, 2)
  x = convolution(convolution(x, "conv3", 64, 2), "conv4", WIDTH, 1)
  x = sym.RNN{ data = x:reshape{ -1, 1, WIDTH }, parameters = V "parameters",
    state = V "state", state_cell = V "state_cell", state_size = WIDTH, num_layers = 1,
    mode = "lstm" }
  return sym.sigmoid(sym.FullyConnected{ data = sym.relu(x):reshape{ -1, WIDTH },
    weight = V "final_conv.weight", bias = V "final_conv.bias", num_hidden = 1 })
end

local function compute_odds(list)
  local pieces = {}
  for from = 1, #list, PIECE do
    local piece = {}
    for i = 1, BEFORE + PIECE do
      piece[i] = list[from - BEFORE + i - 1] or 0
    end
    pieces[#pieces + 1] = piece
  end
  local weights, flat = ty.nd.load(options.folder .. "/silero_vad_16k.safetensors"), {}
  for i, name in ipairs{ "weight_ih", "weight_hh", "bias_ih", "bias_hh" } do
    flat[i] = weights["lstm_cell." .. name]:reshape{ -1 }
  end
  weights.data, weights.parameters = ty.nd.array(pieces), ty.nd.concat{ dim = 0, unpack(flat) }
  weights.state, weights.state_cell = ty.nd.zeros{ 1, 1, WIDTH }, ty.nd.zeros{ 1, 1, WIDTH }
  weights["final_conv.weight"] = weights["final_conv.weight"]:reshape{ 1, WIDTH }
  local net, args = network(BEFORE + PIECE), {}
  for i, name in ipairs(net:list_arguments()) do
    args[i] = weights[name]
  end
  return net:bind{ ctx = ty.cpu(), args = args, grad_req = "null" }:forward()[1]
end

local odds = compute_odds(wav.read(options.file, RATE)):reshape{ -1 }:totable()
local start, spoken = nil, 0
for i = 1, #odds + 1 do
  local speaks = (odds[i] or 0) >= SPEECH
  if speaks and not start then
    start = i
  elseif start and not speaks then
    print(("speech from %6.2f to %6.2f s"):format((start - 1) * PIECE / RATE,
      (i - 1) * PIECE / RATE))
    spoken, start = spoken + (i - start) * PIECE / RATE, nil
  end
end
print(("%.1f s of speech in %.1f s"):format(spoken, #odds * PIECE / RATE))
if options.plot then
  ty.viz.plot{ odds, file = options.plot }
end
