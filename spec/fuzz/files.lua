-- The readers that are written in Lua (npy, npz, safetensors, GGUF, PyTorch's files, Torch7's,
-- optimizer states, graphs as tables, headers of image records) are given damaged bytes: bits
-- turned, pieces taken out, doubled, exchanged between files, numbers of headers made large; states
-- get a checksum that is right. What is read is as large as its file allows, anything else is an
-- error object of a kind that says so.
--
--   tycho spec/fuzz/files.lua SECONDS [SEED]

local bit = require "bit"
local ffi = require "ffi"
local folder = require "spec.support.folder"
local models = require "spec.support.onnx_models"
local gguf = require "spec.support.gguf"
local pytorch = require "spec.support.pytorch"
local t7 = require "spec.support.torch7"
local ty = require "tycho"

local MOST_MEMORY, TIMES = 64 * 2 ^ 20, 4                -- see fuzz.h
local EXPECTED = { format = true, dtype = true, shape = true, type = true, unsupported = true, value = true }

ty.log.level = "error"
local seconds, seed = tonumber(arg[1]), tonumber(arg[2]) or os.time()
math.randomseed(seed)

local function written(name, value)
  local bytes
  folder.with(function(path)
    ty.nd.save(path .. "/" .. name, value)
    bytes = folder.read(path .. "/" .. name)
  end)
  return bytes
end

local function states()
  local updater = ty.optimizer.get_updater(ty.optimizer.create("adam"))
  updater(0, ty.nd.ones{ 2, 3 }, ty.nd.ones{ 2, 3 })
  return updater, updater:get_states()
end

-- Returns bytes with the Adler-32 checksum of what follows the head, as serialize.lua requires it.
local function with_checksum(bytes)
  if #bytes < 24 then
    return bytes
  end
  local a, b = 1, 0
  for i = 25, #bytes do
    a = (a + bytes:byte(i)) % 65521
    b = (b + a) % 65521
  end
  local sum, length = ffi.new("uint32_t[1]", b * 65536 + a), ffi.new("uint64_t[1]", #bytes - 24)
  return bytes:sub(1, 12) .. ffi.string(sum, 4) .. ffi.string(length, 8) .. bytes:sub(25)
end

local function graph()
  local net = ty.sym.FullyConnected{ ty.sym.Variable("data", { shape = { 2, 3 } }),
    num_hidden = 2, name = "fc" }
  return ty.sym.Group{ ty.sym.SliceChannel{ net, num_outputs = 2, name = "cut" },
    ty.sym.relu{ net, name = "relu" } }:tojson()
end

local function record(label)
  return ty.recordio.pack(ty.recordio.IRHeader{ 0, label, 7, 0 }, "bytes of an image")
end

local function onnx(nodes, constants)
  return models.bytes{ nodes = nodes, inputs = { x = { 1, 1, 3, 3 } }, outputs = { "y" },
    constants = constants }
end

local ONNX = {
  onnx({ { "Conv", { "x", "w" }, { "a" }, { pads = { 1, 1, 1, 1 }, kernel_shape = { 3, 3 } } },
    { "Shape", { "a" }, { "s" } }, { "Reshape", { "a", "s" }, { "b" } },
    { "Softmax", { "b" }, { "y" }, { axis = -1 } } }, { w = ty.nd.ones{ 1, 1, 3, 3 } }),
  onnx({ { "Scan", { "x" }, { "y" }, { num_scan_inputs = 1, body = { graph = { nodes = {
    { "Clip", { "row" }, { "out" } } }, inputs = { row = { 1, 3, 3 } }, outputs = { "out" } } } } } }),
  onnx({ { "Resize", { "x", "", "r" }, { "y" }, { mode = "cubic" } } },
    { r = ty.nd.array{ 1, 1, 2, 1.5 } }),
}

local scratch = os.tmpname()             -- a file for what is read from files alone

local function import(bytes)
  folder.write(scratch, bytes)
  local _, arguments = ty.onnx.import_model(scratch)
  return arguments
end

local x = ty.nd.arange(6):reshape{ 2, 3 }
local updater, state = states()

local FOUR = ffi.string(ffi.new("float[4]", { 1, 2, 3, 4 }), 16)

local function weight(more)
  local t = { class = "FloatStorage", n = 4, size = { 2, 2 }, stride = { 2, 1 } }
  for key, value in pairs(more or {}) do
    t[key] = value
  end
  return pytorch.tensor(t)
end

local torch_entries = { { "w", weight() },
  { "v", weight{ size = { 2 }, stride = { 2 }, offset = 1 } }, { "lr", pytorch.float(0.5) }, { "args", pytorch.global("m", "C") .. ")\129"
    .. pytorch.dict(pytorch.text "a", pytorch.list(pytorch.int(1), "N", "\136")) .. "b" } }
local archive, older = { storages = { ["0"] = FOUR } }, { storages = { { "0", 4, FOUR } } }
for i, entry in ipairs(torch_entries) do
  archive[i], older[i] = entry, entry
end

local function torch_net()
  local linear = t7.object("nn.Linear", { weight = t7.tensor("Float", { 2, 3 },
    { 1, 2, 3, 4, 5, 6 }), bias = t7.tensor("Float", { 2 }, { 1, 2 }) })
  local view = t7.object("nn.View", { size = t7.storage("Long", { 2, 1 }), numElements = 2 })
  return t7.object("nn.Sequential", { modules = { linear, t7.object("nn.ReLU", { threshold = 0,
    val = 0, inplace = true }), view } })
end

local torch_path = os.tmpname()

-- Reads an object and imports it.
local function load_torch(bytes)
  folder.write(torch_path, bytes)
  local object = ty.torch7.load(torch_path)
  local ok, e = pcall(ty.torch7.import_model, { object, shapes = { data = { 4, 3 } } })
  if not ok and not ty.is_error(e) then
    error(e, 0)
  end
end

-- What is read: `load` gives arrays or nil. `also`: a further code of errors.
local READERS = {
  { name = "npy", seeds = { written("a.npy", x), written("b.npy", x:astype("uint8")) } },
  { name = "npz", seeds = { written("a.npz", { x = x, y = ty.nd.ones(4) }) } },
  { name = "safetensors", seeds = { written("a.safetensors", { x = x, y = ty.nd.ones(4) }),
    written("b.safetensors", { z = x:astype("float16") }) } },
  { name = "gguf", seeds = { gguf.bytes{ { "general.name", gguf.TEXT, "x" },
    { "list", gguf.LIST, { gguf.U32, { 1, 2 } } }, tensors = { { "w", { 2, 2 }, 0, FOUR },
      { "q", { 1, 32 }, 8, ("\1"):rep(34) } } } } },
  { name = "torch zip", seeds = { pytorch.archive(archive) } },
  { name = "torch older", seeds = { pytorch.older(older) } },
  { name = "t7", also = "name", load = load_torch, seeds = { t7.bytes(torch_net()),
    t7.bytes(torch_net(), { format = "ascii" }), t7.bytes(torch_net(), { long = 4 }),
    t7.bytes{ 1, "two", { t7.tensor("Double", { 1 }, { 0.5 }) }, true } } },
  { name = "states", seeds = { state }, mended = with_checksum, also = "state", -- of others
    load = function(bytes) updater:set_states(bytes) end },
  { name = "graphs", seeds = { graph() }, also = "name",   -- unknown operators
    load = function(bytes) ty.sym.load_json(bytes):list_outputs() end },
  { name = "onnx", seeds = ONNX, also = "io", load = import },
  { name = "headers", seeds = { record(3), record{ 1, 2, 3 } }, load = ty.recordio.unpack },
}

local function place(s)
  return math.random(1, math.max(1, #s))
end

local NUMBERS = { "\0", "\255", "\127", "\255\255\255\255", "\0\0\0\128", "\255\255\255\255\255\255\255\127",
  "9999999999", "-1", "18446744073709551615", "(", ")", "{", "}", "[", "]", ",", "'", '"', ":" }

local CHANGES = {
  function(s)
    local i = place(s)
    return s:sub(1, i - 1) .. string.char(bit.bxor(s:byte(i) or 0, 2 ^ math.random(0, 7)))
      .. s:sub(i + 1)
  end,
  function(s)
    local i = place(s)
    return s:sub(1, i - 1) .. s:sub(i + math.random(1, 16))
  end,
  function(s)
    local i, n = place(s), math.random(1, 32)
    return s:sub(1, i) .. s:sub(i, i + n) .. s:sub(i + 1)
  end,
  function(s, other)
    local i, k, n = place(s), place(other), math.random(1, 64)
    return s:sub(1, i - 1) .. other:sub(k, k + n) .. s:sub(i + n)
  end,
  function(s)
    local i, n = place(s), NUMBERS[math.random(#NUMBERS)]
    return s:sub(1, i - 1) .. n .. s:sub(i + (math.random(2) == 1 and #n or 0))
  end,
  function(s) return s:sub(1, place(s)) end,
}

local function damaged(reader)
  local s = reader.seeds[math.random(#reader.seeds)]
  for _ = 1, math.random(1, 4) do
    local other = READERS[math.random(#READERS)]
    s = CHANGES[math.random(#CHANGES)](s, other.seeds[math.random(#other.seeds)])
  end
  return reader.mended and math.random(4) > 1 and reader.mended(s) or s
end

local function show(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local function give(reader, bytes)
  local before = ty.live().bytes
  local ok, e = pcall(reader.load or ty.nd.load_frombuffer, bytes)
  local taken = ty.live().bytes - before
  if not ok and not (ty.is_error(e) and (EXPECTED[e.code] or e.code == reader.also)) then
    return tostring(e)
  elseif taken > MOST_MEMORY + TIMES * #bytes then
    return ("%d bytes of arrays from %d bytes"):format(taken, #bytes)
  elseif ok and type(e) == "table" then
    for _, array in pairs(e) do
      if array ~= ty.null then
        tostring(array)
      end
    end
  end
end

local failed = 0
for _, reader in ipairs(READERS) do
  local runs, finding, bytes = 0, nil, nil
  local until_ = os.time() + seconds
  for _, seed_bytes in ipairs(reader.seeds) do
    finding = finding or give(reader, seed_bytes)
  end
  while not finding and os.time() <= until_ do
    bytes = damaged(reader)
    finding = give(reader, bytes)
    runs = runs + 1
    if runs % 100 == 0 then collectgarbage() end
  end
  if finding then
    failed = failed + 1
    print(("FAIL %s (seed %d): %s\n%s"):format(reader.name, seed, finding, show(bytes or "")))
  else
    print(("%s: %d inputs in %d s, no finding"):format(reader.name, runs, seconds))
  end
end
os.remove(scratch)
os.remove(torch_path)
print(("%d passed, %d failed, 0 skipped"):format(#READERS - failed, failed))
os.exit(failed == 0 and 0 or 1)
