--- The formats of models and arrays, one row each, for `tycho --inspect`, `--convert` and `--run`.
--
-- A row has `name`; `endings`, by which the format of a file to write is found; `is_mine(head,
-- path)`, whether a file to read has this format; and functions for what the format supports:
--
-- - `network(path, options)`: returns symbol, arg_params, aux_params, and the inputs by name, as
--   {dtype, shape}, if the file has them. `options.shapes`: sizes by input name, possibly empty;
--   `options.at`: keys to the network inside the file.
-- - `inputs(path)`: returns names of the inputs, for files whose network cannot be read without
--   shapes.
-- - `metadata(path)`: returns the metadata of a network's file, by key.
-- - `arrays(path)`: returns a list of {name, array}, and metadata by key.
-- - `notes(path, options, e)`: returns a list of {label, text}, for files whose network needs
--   shapes that are not given; e: the error of `network`.
-- - `save_network(path, symbol, arg_params, aux_params, shapes)`, `save_arrays(path, list)`.
--
-- @module tycho.models.formats

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local array_files = require "tycho.ndarray.files"
local checkpoint = require "tycho.model.checkpoint"
local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local files = require "tycho.core.files"
local nd = require "tycho.ndarray"
local importer = require "tycho.onnx.importer"
local model_file = require "tycho.onnx.model_file"
local objects = require "tycho.torch7.objects"
local onnx = require "tycho.onnx"
local symbol = require "tycho.symbol.symbol"
local torch7 = require "tycho.torch7"

local formats = {}

local HEAD = 512                                         -- bytes by which formats are recognised
local LAST_EPOCH = 9999
local LABEL = "_label$"                                  -- inputs of losses, which are left out


--- Returns counts as text, the largest first: "3 Convolution, 2 Pooling".
-- @tparam table counts name -> number
function formats.tally(counts)
  local names = {}
  for name in pairs(counts) do
    names[#names + 1] = name
  end
  table.sort(names, function(a, b)
    return counts[a] > counts[b] or counts[a] == counts[b] and a < b
  end)
  for i, name in ipairs(names) do
    names[i] = ("%d %s"):format(counts[name], name)
  end
  return table.concat(names, ", ")
end


-- Checkpoints of the reference's kind ------------------------------------------------------------

local GRAPH = "-symbol.json"


-- Returns the path of the parameters that belong to a graph, those of the last epoch.
local function find_params(prefix)
  local folder, base = prefix:match("^(.*/)(.-)$")
  for epoch = LAST_EPOCH, 0, -1 do
    local path = checkpoint.file_name(prefix, epoch, "params")
    if files.exists(path) then
      return path
    end
  end
  Error.raise{ code = "io", func = "models", argument = prefix .. GRAPH,
    message = ("there are no parameters '%s-0000.params' in '%s'"):format(base or prefix,
      folder or ".") }
end


local mxnet = {
  name = "MXNet's graph", endings = { GRAPH, ".json" },
}

function mxnet.is_mine(head, path)
  return path:find("%.json$") ~= nil and head:find('^%s*{%s*"nodes"') ~= nil
end

function mxnet.network(path)
  local prefix = path:match("^(.*)%-symbol%.json$")
  local net = symbol.load(path)
  if not prefix then
    return net, {}, {}
  end
  return net, checkpoint.read_params(find_params(prefix), "models")
end

function mxnet.save_network(path, net, arg_params, aux_params)
  local prefix = path:match("^(.*)%-symbol%.json$")
  if not prefix then
    Error.raise{ code = "value", func = "models", argument = path, expected = "NAME" .. GRAPH,
      got = path, message = "a network is written as two files, NAME-symbol.json and "
        .. "NAME-0000.params" }
  end
  checkpoint.save_checkpoint(prefix, 0, net, arg_params, aux_params)
end


-- Torch7 ------------------------------------------------------------------------------------------

local t7 = { name = "Torch7", endings = { ".t7" } }

function t7.is_mine(head, path)
  return path:find("%.t7$") ~= nil or head:find("^[\3\4]%z%z%z[^%z]") ~= nil
    or head:find("^[34]\n%d+\n") ~= nil
end

-- Returns the network in a file: the object that the keys of `at`, "best_model" or "protos.rnn",
-- lead to, or the whole object.
local function choose_network(path, at)
  local object = torch7.load(path)
  for key in (at or ""):gmatch("[^.]+") do
    local value
    if type(object) == "table" then
      value = object[key]
      if value == nil then
        value = object[tonumber(key)]
      end
    end
    if value == nil then
      Error.raise{ code = "name", func = "models", argument = at, got = key,
        expected = type(object) == "table" and table.concat(objects.fields(object), ", ") or nil,
        message = ("'%s' has nothing at '%s'"):format(path, key) }
    end
    object = value
  end
  return object
end

function t7.network(path, options)
  return torch7.import_model{ choose_network(path, options.at), shapes = options.shapes }
end

-- Returns the kind of the object in a file, its keys, and its classes with the number of objects of
-- each.
function t7.notes(path, options)
  local object = choose_network(path, options.at)
  local counts, list, seen = {}, { object }, {}
  for _, value in ipairs(list) do
    if type(value) == "table" and not seen[value] then
      seen[value] = true
      local class = torch7.typename(value)
      if class then
        counts[class] = (counts[class] or 0) + 1
      end
      if not objects.origin(value) then
        for _, inner in pairs(value) do
          list[#list + 1] = inner
        end
      end
    end
  end
  local rows = { { "object", torch7.typename(object) or "a " .. type(object) } }
  if type(object) == "table" and not torch7.typename(object) then
    rows[2] = { "keys", table.concat(objects.fields(object), ", ") .. " (--at KEY chooses)" }
  end
  local names = {}
  for name in pairs(counts) do
    names[#names + 1] = name
  end
  table.sort(names)
  for i, name in ipairs(names) do
    names[i] = ("%s %d"):format(name, counts[name])
  end
  rows[#rows + 1] = { "classes", table.concat(names, ", ") }
  return rows
end


-- ONNX --------------------------------------------------------------------------------------------

local onnx_files = { name = "ONNX", endings = { ".onnx" } }

-- Returns whether a file is an ONNX model: by its ending or by its first field, which in practice
-- is the version of the format.
function onnx_files.is_mine(head, path)
  return path:find("%.onnx$") ~= nil or head:find("^\8[\1-\32][\18\26\34\42\50\58\66]") ~= nil
end

-- Returns sizes by the names of the file's inputs. If there is one input and one given size, they
-- match whatever the name.
local function input_shapes(path, shapes)
  local names, name = onnx_files.inputs(path), next(shapes)
  if #names == 1 and name and next(shapes, name) == nil then
    return { [names[1]] = shapes[name] }
  end
  return shapes
end

function onnx_files.network(path, options)
  local shapes = input_shapes(path, options.shapes)
  local r, inputs = importer.run({ path = path, shapes = shapes }, "models"), {}
  for _, input in ipairs(r.inputs) do
    inputs[input.name] = input
  end
  return r.symbol, r.arguments, r.auxiliary, inputs
end

function onnx_files.inputs(path)
  local names = {}
  for i, input in ipairs(onnx.get_model_metadata(path).input_tensor_data) do
    names[i] = input[1]
  end
  return names
end

function onnx_files.metadata(path)
  local m = onnx.get_model_metadata(path)
  local data = { ir_version = m.ir_version, opset = m.opsets[""] }
  local producer = ("%s %s"):format(m.producer_name or "", m.producer_version or "")
  data.producer = producer:find("%S") and producer:gsub("%s+$", "") or nil
  for domain, version in pairs(m.opsets) do
    if domain ~= "" then
      data["opset of " .. domain] = version
    end
  end
  for key, text in pairs(m.metadata) do
    data[key] = text
  end
  return data
end


-- Adds a row for each input or output of the model.
local function add_values(rows, label, values)
  for i, value in ipairs(values) do
    rows[#rows + 1] = { i == 1 and label or "", ("%-24s %s %s"):format(value[1], value[3] or "?",
      value[2] and table.concat(value[2], "x") or "of any shape") }
  end
end

function onnx_files.notes(path, _, e)
  local m, counts, rows = onnx.get_model_metadata(path), {}, {}
  add_values(rows, "inputs", m.input_tensor_data)
  add_values(rows, "outputs", m.output_tensor_data)
  local nodes = model_file.read(path, "models").graph.nodes
  for _, n in ipairs(nodes) do
    counts[n.op] = (counts[n.op] or 0) + 1
  end
  rows[#rows + 1] = { "operators", ("%d: %s"):format(#nodes, formats.tally(counts)) }
  rows[#rows + 1] = { "network", "none: " .. (Error.is_error(e) and e.message or tostring(e)) }
  return rows
end


function onnx_files.save_network(path, net, arg_params, aux_params, shapes)
  local params = {}
  for _, dict in ipairs{ arg_params, aux_params } do
    for name, x in pairs(dict) do
      params[name] = x
    end
  end
  for _, name in ipairs(net:list_arguments()) do
    if not params[name] and not shapes[name] and not name:find(LABEL) then
      Error.raise{ code = "shape", func = "models", argument = name,
        message = ("ONNX has the shapes of inputs, and that of '%s' is not known: \z
          --shape %s=1,3,224,224 gives it"):format(name, name) }
    end
  end
  onnx.export_model{ net, params, shapes, path }
end


-- Files of arrays ---------------------------------------------------------------------------------

local arrays = { name = "arrays", endings = { ".params", ".npz", ".npy", ".safetensors" } }

local NAMES = { npy = "NumPy's arrays", pytorch = "PyTorch's arrays", gguf = "GGUF",
  safetensors = "safetensors", sharded = "arrays in several files" }

function arrays.is_mine()
  return true
end

-- Returns the name of the format of a file of arrays.
function arrays.title(path)
  local _, _, _, name = array_files.read_other(file_arrays.open(path, "models"))
  return NAMES[name] or "MXNet's arrays"
end

function arrays.arrays(path)
  local dict, names, metadata = nd.load(path)
  local list = {}
  for i, name in ipairs(names or {}) do
    list[i] = { name, dict[name] }
  end
  for i, x in ipairs(names and {} or dict) do
    list[i] = { ("%d"):format(i - 1), x }
  end
  return list, metadata or {}
end

-- Writes arrays. NumPy's formats have no bfloat16; such arrays become float32.
function arrays.save_arrays(path, list)
  local numpy, written = path:find("%.np[yz]$") ~= nil, {}
  for i, pair in ipairs(list) do
    local x = pair[2]
    written[i] = { pair[1], numpy and x.dtype == "bfloat16" and x:astype("float32") or x }
  end
  nd.save(path, written)
end


-- All formats, in the order in which a file to read is matched.
formats.ROWS = { mxnet, t7, onnx_files, arrays }


--- Returns the format of a file to read.
-- @string path
-- @string func for errors; E(io) if the file cannot be read
-- @treturn table a row
function formats.of(path, func)
  local head = files.head(path, HEAD, func)
  for _, row in ipairs(formats.ROWS) do
    if row.is_mine(head, path) then
      return row
    end
  end
end


--- Returns the format of a file to write, by its ending.
-- @string path
-- @string func for errors; E(value) for an unknown ending
-- @treturn table a row
function formats.by_ending(path, func)
  local known = {}
  for _, row in ipairs(formats.ROWS) do
    for _, ending in ipairs(row.endings) do
      if path:sub(-#ending) == ending then
        return row
      end
      if row.save_network or row.save_arrays then
        known[#known + 1] = ending
      end
    end
  end
  Error.raise{ code = "value", func = func, argument = path, got = path,
    expected = table.concat(known, " "),
    message = "the ending of the file says what to write" }
end


return formats
