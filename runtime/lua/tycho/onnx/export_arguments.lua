--- Arguments of `ty.onnx.export_model`, converted for the exporter (not for users).
--
-- @module tycho.onnx.export_arguments

local pairs = require("tycho.core.iterate").pairs
local checkpoint = require "tycho.model.checkpoint"
local Error = require "tycho.core.error"
local export = require "tycho.onnx.exporter"
local files = require "tycho.core.files"
local array_files = require "tycho.ndarray.files"
local graph = require "tycho.symbol.graph"
local symbol = require "tycho.symbol.symbol"
local values = require "tycho.core.values"


-- Returns the symbol and the parameters, which are given or read from files; raises E(io).
local function read_network(a, func)
  if type(a.symbol) ~= "string" then
    return a.symbol, a.params
  elseif type(a.params) == "number" then
    local net, arguments, auxiliary = checkpoint.load_checkpoint(a.symbol, a.params)
    for name, x in pairs(auxiliary) do
      arguments[name] = x
    end
    return net, arguments
  end
  local path = files.exists(a.symbol) and a.symbol or a.symbol .. "-symbol.json"
  if not files.exists(path) then
    Error.raise{ code = "io", func = func, argument = a.symbol,
      message = ("there is neither a file '%s' nor '%s'"):format(a.symbol, path) }
  end
  return symbol.load(path), a.params
end


-- Returns parameters that are given or in a file, as name -> array, without the prefixes "arg:" and
-- "aux:".
local function load_arrays(params, func)
  if type(params) == "string" then
    params = array_files.load(params)
  elseif params ~= nil and not values.is_plain(params) then
    Error.raise{ code = "type", func = func, argument = "params", got = Error.kind(params),
      expected = "a table of arrays, or a path", message = "bad 'params'" }
  end
  local arrays = {}
  for name, x in pairs(params or {}) do
    arrays[(tostring(name):gsub("^a[ru][gx]:", ""))] = x
  end
  return arrays
end


-- Returns input -> sizes, from a table of this form or from a list of shapes in the order of the
-- inputs.
local function list_shapes(given, net, params, func)
  if given == nil or given[1] == nil then
    return given or {}
  end
  local shapes, at = {}, 0
  local list = type(given[1]) == "number" and { given } or given
  for _, name in ipairs(graph.variables((graph.walk(net)))) do
    if not params[name] and at < #list then
      at = at + 1
      shapes[name] = list[at]
    end
  end
  if at < #list then
    Error.raise{ code = "value", func = func, argument = "input_shapes", expected = at, got = #list,
      message = ("input_shapes has %d shapes, but the network has %d inputs"):format(#list, at) }
  end
  return shapes
end


return function(a, func)
  local net, params = read_network(a, func)
  params = load_arrays(params, func)
  local shapes = list_shapes(a.input_shapes, net, params, func)
  for name in pairs(a.dynamic or {}) do
    if not shapes[name] then
      Error.raise{ code = "name", func = func, argument = name,
        message = ("'dynamic' names '%s', for which input_shapes has no shape"):format(name) }
    end
  end
  export.run({ symbol = net, params = params, shapes = shapes, dtypes = a.input_types or {},
    file = a.file, opset = a.opset, dynamic = a.dynamic or {}, name = "network" }, func)
end
