--- Recognises the types of files by their contents, with Magika, a network for 200 types.
--
--   pip download --no-deps magika && unzip -q magika-*.whl -d magika
--   tycho scripts/models/file_type.lua --folder magika/magika/models/standard_v3_3 scripts/*.lua
--   tycho scripts/models/file_type.lua --help
--
-- The folder contains the network in ONNX (model.onnx) and the names of the types
-- (config.min.json).

package.path = (arg[0]:match("^.*/") or "./") .. "../lib/?.lua;" .. package.path

local ty = require "tycho"
local common = require "common"
local json = require "tycho.core.json"
local read = require("tycho.core.files").read

local BLOCK = 4096                                       -- bytes that are read from each end
local SURE = 0.5                                         -- least probability for a name

local parser = common.parser("Says what files are by their bytes.")
parser:option("--folder", "folder with model.onnx and config.min.json"):count(1)
parser:argument("files", "files to look at"):args("+")
local options = common.parse(parser, {})

-- Appends bytes as numbers; missing ones are padded in front of or after the bytes.
local function add_bytes(list, text, count, padding, in_front)
  local missing = count - #text
  for i = 1, count do
    local at = in_front and i - missing or i
    list[#list + 1] = text:byte(at < 1 and #text + 1 or at) or padding
  end
end

-- Returns the network's input: the beginning and the end of a text without white space around it.
local function looked_at(text, config)
  local list = {}
  local head = text:sub(1, BLOCK):gsub("^%s+", ""):sub(1, config.beg_size)
  local tail = text:sub(-BLOCK):gsub("%s+$", ""):sub(-config.end_size)
  add_bytes(list, head, config.beg_size, config.padding_token, false)
  add_bytes(list, tail, config.end_size, config.padding_token, true)
  return list
end


local config = json.parse(read(options.folder .. "/config.min.json", "file_type"), "file_type")
local rows = {}
for i, path in ipairs(options.files) do
  rows[i] = looked_at(read(path, "file_type"), config)
end
local input = ty.nd.array(rows, { dtype = "int32" })
local net = ty.onnx.load{ options.folder .. "/model.onnx", shapes = { bytes = input.shape } }
net:forward({ data = { input } }, false)
local odds = net:get_outputs()[1]
local best, most = odds:argmax{ axis = 1 }:totable(), odds:max{ axis = 1 }:totable()
for i, path in ipairs(options.files) do
  local kind = config.target_labels_space[best[i] + 1]
  print(("%-40s %-12s %5.1f %%"):format(path, most[i] < SURE and kind .. "?" or kind,
    100 * most[i]))
end
