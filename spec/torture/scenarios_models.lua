-- What spec/torture/faults.lua lets fail, of files of other engines; see scenarios.lua. The files
-- are written once, by the first run, in which nothing fails.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local gguf = require "spec.support.gguf"
local lfs = require "lfs"
local pytorch = require "spec.support.pytorch"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local text_of = require("spec.support.arrays").text

local FOUR = ffi.string(ffi.new("float[4]", { 1, 2, 3, 4 }), 16)

-- Returns the path of a file whose bytes `make` returns; it is written once.
local function file(path, make)
  if not lfs.attributes(path) then
    folder.write(path, make())
  end
  return path
end

local function join_texts(arrays, names)
  local texts = {}
  for i, name in ipairs(names) do
    texts[i] = text_of(arrays[name])
  end
  return table.concat(texts, " ")
end

local function torch_net()
  local s = t7.storage("Float", { 1, 2, 3, 4, 5, 6, 7, 8 })
  local linear = t7.object("nn.Linear", { bias = t7.tensor("Float", { 2 }, nil, { storage = s,
    offset = 7 }), weight = t7.tensor("Float", { 2, 3 }, nil,
      { storage = s, strides = { 1, 2 } }) })
  return t7.object("nn.Sequential", { modules = { linear, t7.object("nn.ReLU", { threshold = 0,
    val = 0, inplace = true }), t7.object("nn.LogSoftMax") } })
end

local function torch7(format)
  return function(path)
    path = file(path .. "/net.t7", function() return t7.bytes(torch_net(), { format = format }) end)
    local net, args = ty.torch7.import_model{ path, shapes = { data = { 1, 3 } } }
    args.data = ty.nd.array{ { 0.1, 0.2, 0.3 } }
    return text_of(net:bind{ ctx = ty.cpu(), args = args }:forward()[1])
  end
end

local function weight(more)
  local t = { class = "FloatStorage", n = 4, size = { 2, 2 }, stride = { 2, 1 } }
  for key, value in pairs(more or {}) do
    t[key] = value
  end
  return pytorch.tensor(t)
end

local function torch_entries(storages)
  return { { "w", weight() }, { "v", weight{ size = { 2 }, stride = { 2 } } },
    { "s", weight{ class = "ShortStorage", key = "1", n = 2, size = { 2 }, stride = { 1 } } },
    storages = storages }
end

local function archive(path)
  path = file(path .. "/x.pth", function()
    return pytorch.archive(torch_entries{ ["0"] = FOUR, ["1"] = "\1\0\255\255" })
  end)
  return join_texts(ty.nd.load(path), { "w", "v", "s" })
end

local function older(path)
  path = file(path .. "/x.pt", function()
    return pytorch.older(torch_entries{ { "0", 4, FOUR }, { "1", 2, "\1\0\255\255" } })
  end)
  return join_texts(ty.nd.load(path), { "w", "v", "s" })
end

local function blocks(path)
  path = file(path .. "/x.gguf", function()
    return gguf.bytes{ { "general.name", gguf.TEXT, "x" },
      { "n", gguf.LIST, { gguf.U32, { 1, 2 } } },
      tensors = { { "w", { 2, 2 }, 0, FOUR }, { "q", { 1, 32 }, 8, "\0\56" .. ("\1"):rep(32) } } }
  end)
  return join_texts(ty.nd.load(path), { "w", "q" })
end

local function shards(path)
  local header = '{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
  file(path .. "/1.safetensors", function()
    return string.char(#header) .. ("\0"):rep(7) .. header .. FOUR
  end)
  path = file(path .. "/m.safetensors.index.json", function()
    return '{"weight_map": {"a": "1.safetensors"}}'
  end)
  return join_texts(ty.nd.load(path), { "a" })
end

return {
  { name = "torch7", run = torch7() }, { name = "torch7 ascii", run = torch7("ascii") },
  { name = "pytorch", run = archive }, { name = "pytorch older", run = older },
  { name = "gguf", run = blocks }, { name = "shards", run = shards },
}
