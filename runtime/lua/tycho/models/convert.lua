--- Conversion of a file to another format. For `models/command.lua`.
--
-- @module tycho.models.convert

local pairs = require("tycho.core.iterate").pairs
local Error = require "tycho.core.error"
local formats = require "tycho.models.formats"
local tables = require "tycho.core.tables"

local FUNC = "tycho --convert"

local convert = {}


-- Returns parameters as sorted {name, array} pairs; names have the prefixes of a parameter file if
-- the path ends in ".params".
local function list_arrays(path, arg_params, aux_params)
  local prefixed, list = path:find("%.params$") ~= nil, {}
  for kind, params in pairs{ arg = arg_params, aux = aux_params } do
    for name, x in pairs(params) do
      list[#list + 1] = { prefixed and kind .. ":" .. name or name, x }
    end
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end


-- Returns the given shapes and, for other inputs, complete shapes from the file.
local function known_shapes(inputs, given)
  local shapes = tables.copy(given)
  for name, input in pairs(inputs or {}) do
    local open = #input.shape == 0
    for _, size in ipairs(input.shape) do
      open = open or size < 1
    end
    shapes[name] = shapes[name] or not open and input.shape or nil
  end
  return shapes
end


-- Returns the {name, array} pairs without those that have no array because it has no elements.
local function with_elements(list)
  local kept = {}
  for _, pair in ipairs(list) do
    kept[#kept + 1] = pair[2] ~= nil and pair or nil
  end
  return kept
end


--- Writes a file's contents in the format that the ending of another path names: a network as a
-- network if the format supports it, else its arrays.
-- @string from path
-- @string to path
-- @tparam table options shapes: input name -> sizes, which some formats need, and which ONNX files
--   contain; at: keys to a network inside the file
-- @treturn string a description of the written file
function convert.convert(from, to, options)
  local source, target = formats.of(from, FUNC), formats.by_ending(to, FUNC)
  if source.network then
    local net, arg_params, aux_params, inputs = source.network(from, options)
    if target.save_network then
      target.save_network(to, net, arg_params, aux_params, known_shapes(inputs, options.shapes))
      return "a network"
    elseif target.save_arrays then
      local list = list_arrays(to, arg_params, aux_params)
      target.save_arrays(to, list)
      return ("%d arrays"):format(#list)
    end
  elseif target.save_arrays then
    local list = with_elements((source.arrays(from)))
    target.save_arrays(to, list)
    return ("%d arrays"):format(#list)
  end
  Error.raise{ code = "unsupported", func = FUNC, argument = to,
    message = (target.save_network and "'%s' (%s) holds arrays and no network"
      or "'%s' (%s) cannot become a file of this ending"):format(from, source.name) }
end


return convert
