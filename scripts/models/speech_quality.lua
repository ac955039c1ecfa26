--- Estimates how listeners would rate a recording of speech, with DNSMOS.
--
--   pip download --no-deps speechmos && unzip -q speechmos-*.whl -d speechmos
--   tycho scripts/models/speech_quality.lua --folder speechmos/speechmos/dnsmos_models
--     --file speech.wav
--   tycho scripts/models/speech_quality.lua --help
--
-- The recording must have 16,000 samples of 16 bits a second and one channel. Ratings are between
-- 1, bad, and 5, excellent (Reddy et al., 2022).

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local wav = require "wav"

local RATE = 16000                                       -- samples of a second
local LENGTH = 144160                                    -- samples that are rated at a time

-- Kinds of ratings, and the polynomial that converts the network's output to a rating.
local MARKS = {
  { "speech",     { -0.08397278, 1.22083953, 0.0052439 } },
  { "background", { -0.13166888, 1.60915514, -0.39604546 } },
  { "overall",    { -0.06766283, 1.11546468, 0.04602535 } },
}

local parser = common.parser("Says how good a recording of speech is.")
parser:option("--folder", "folder with sig_bak_ovr.onnx"):count(1)
parser:option("--file", "WAV file"):count(1)
parser:option("--plot", "SVG file to draw the marks of each second into")
local options = common.parse(parser, {})


-- Returns parts of a recording that start one second apart; a short recording is repeated.
local function cut_parts(samples)
  local n, parts = #samples, {}
  if n == 0 then
    error(options.file .. ": the recording is empty", 0)
  end
  for from = 0, math.max(n - LENGTH, 0), RATE do
    local part = {}
    for i = 1, LENGTH do
      part[i] = samples[(from + i - 1) % n + 1]
    end
    parts[#parts + 1] = part
  end
  return parts
end

local parts = ty.nd.array(cut_parts(wav.read(options.file, RATE)))
local net = ty.onnx.load{ options.folder .. "/sig_bak_ovr.onnx",
  shapes = { input_1 = { 1, LENGTH } } }
local curves = {}
for i = 0, parts:len() - 1 do
  net:forward({ data = { parts[("%d:%d"):format(i, i + 1)] } }, false)
  local out = net:get_outputs()[1]:totable()[1]
  for k, mark in ipairs(MARKS) do
    local a, x = mark[2], out[k]
    curves[k] = curves[k] or {}
    curves[k][i + 1] = (a[1] * x + a[2]) * x + a[3]
  end
end
local series = {}
for k, mark in ipairs(MARKS) do
  local sum = 0
  for _, y in ipairs(curves[k]) do
    sum = sum + y
  end
  print(("%-10s %.2f"):format(mark[1], sum / #curves[k]))
  series[mark[1]] = curves[k]
end
if options.plot then
  ty.viz.plot(series, { file = options.plot, x_label = "second", y_label = "mark" })
end
