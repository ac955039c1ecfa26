-- Shows the contents of a file with a model or arrays: `tycho --inspect FILE`.

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local file_arrays = require "tycho.ndarray.file_arrays"
local flops = require "tycho.symbol.flops"
local formats = require "tycho.models.formats"
local graph = require "tycho.symbol.graph"
local tables = require "tycho.core.tables"
local units = require "tycho.core.units"
require "tycho.executor.executor"

local inspect = {}

local FUNC = "tycho --inspect"
local tally = formats.tally
local LABEL = "%-11s"
local SHOWN, WIDTH = 40, 60                              -- rows of a list; columns of a text


local short = units.count


-- Returns a number of bytes as text: "228 B", "1.5 kB".
local function bytes_text(n)
  return short(n):gsub("(%d)$", "%1 ") .. "B"
end


local function shape_text(shape)
  return shape and table.concat(shape, "x") or "?"
end


-- Writes a label and a text of one or several lines.
local function row(write, label, text)
  for line in (text .. "\n"):gmatch("(.-)\n") do
    write((LABEL:format(label) .. line):gsub("%s+$", "") .. "\n")
    label = ""
  end
end


-- Arrays ------------------------------------------------------------------------------------------

local function bytes_of(x)
  return x._size * class.BYTES[x._dtype]
end


local function value_text(v)
  if class.is_array(v) then
    return ("%d numbers"):format(v.size)
  elseif type(v) == "table" then
    return ("%d entries"):format(#v)
  end
  local text = tostring(v):gsub("%s+", " ")
  return #text > WIDTH and text:sub(1, WIDTH):gsub("[\192-\255][\128-\191]*$", "") .. "..." or text
end


-- Writes a file's metadata, the licence first.
local function metadata(write, data, all)
  local names = {}
  for name in pairs(data) do
    names[#names + 1] = tostring(name)
  end
  table.sort(names, function(a, b)
    local x, y = a:lower():find("licen[sc]e") ~= nil, b:lower():find("licen[sc]e") ~= nil
    return x and not y or x == y and a < b
  end)
  for i, name in ipairs(names) do
    if i > SHOWN and not all then
      return row(write, "", ("and %d more (--all)"):format(#names - SHOWN))
    end
    row(write, i == 1 and "metadata" or "", name .. " = " .. value_text(data[name]))
  end
end


-- Returns the number of elements and bytes of arrays, and counts by element type.
local function count_totals(list)
  local elements, bytes, types = 0, 0, {}
  for _, pair in ipairs(list) do
    local x = pair[2]
    if class.is_array(x) then
      elements, bytes = elements + x._size, bytes + bytes_of(x)
      types[x.dtype] = (types[x.dtype] or 0) + 1
    end
  end
  return elements, bytes, types
end


local function show_arrays(write, list, data, options)
  local elements, bytes, types = count_totals(list)
  row(write, "arrays", ("%d: %s"):format(#list, tally(types)))
  row(write, "elements", ("%s, %s as arrays"):format(short(elements), bytes_text(bytes)))
  metadata(write, data, options.all)
  for i, pair in ipairs(list) do
    if i > SHOWN and not options.all then
      return row(write, "", ("and %d more (--all)"):format(#list - SHOWN))
    end
    local x = pair[2]
    row(write, i == 1 and "names" or "", ("%-48s %s"):format(pair[1], class.is_array(x)
      and x.dtype .. " " .. shape_text(x.shape) or "without elements"))
  end
end


-- Networks ----------------------------------------------------------------------------------------

-- Returns the shapes of all outputs by node, and whether all are known.
local function all_shapes(net, given)
  local inside = net:get_internals()
  local _, outs = inside:infer_shape_partial(given)
  local shapes, known = {}, true
  for i, entry in ipairs(inside._entries) do
    shapes[entry[1]] = shapes[entry[1]] or {}
    local shape = outs and outs[i]
    known = known and shape ~= nil and tables.is_known(shape)
    shapes[entry[1]][entry[2] + 1] = shape and tables.copied(shape) or {}
  end
  return shapes, known
end


-- Returns the number of operations of one run.
local function operations(net, shapes)
  local total = 0
  for _, n in ipairs((graph.walk(net))) do
    if n.op then
      local ins = {}
      for i, input in ipairs(n.inputs) do
        ins[i] = shapes[input[1]] and shapes[input[1]][input[2] + 1] or { 0, 0 }
      end
      total = total + flops.of(n.op, n.attrs, ins, shapes[n] or {})
    end
  end
  return total
end


local function operator_counts(net)
  local counts = {}
  for _, n in ipairs((graph.walk(net))) do
    if n.op then
      counts[n.op] = (counts[n.op] or 0) + 1
    end
  end
  return counts
end


-- Returns the names of the arguments that are not parameters.
local function input_names(net, arg_params)
  local names = {}
  for _, name in ipairs(net:list_arguments()) do
    if arg_params[name] == nil then
      names[#names + 1] = name
    end
  end
  return names
end


-- Returns the shapes of parameters together with the given shapes, and the parameters' types.
local function list_known(net, arg_params, shapes)
  local given, types = {}, {}
  for _, name in ipairs(net:list_arguments()) do
    local x = arg_params[name]
    given[name] = x and x.shape or shapes[name]
    types[name] = x and x.dtype or nil
  end
  return given, types
end


-- Returns the bytes that the memory plan of one run needs.
local function plan_memory(net, given, types)
  local exe = net:simple_bind{ ctx = context.cpu(), grad_req = "null", dry_run = true,
    shapes = given, type_dict = types }
  local memory = exe:memory()
  exe:free()
  return memory.planned
end


local function show_network(write, net, arg_params, aux_params, options)
  local given, types = list_known(net, arg_params, options.shapes)
  local shapes, known = all_shapes(net, given)
  local outs = {}
  for i, name in ipairs(input_names(net, arg_params)) do
    for n, list in pairs(shapes) do
      if not n.op and n.name == name then
        row(write, i == 1 and "inputs" or "", ("%-24s %s"):format(name,
          tables.is_known(list[1]) and shape_text(list[1]) or "shape not known"))
      end
    end
  end
  for i, entry in ipairs(net._entries) do
    outs[i] = shapes[entry[1]][entry[2] + 1]
  end
  for i, name in ipairs(net:list_outputs()) do
    row(write, i == 1 and "outputs" or "", ("%-24s %s"):format(name,
      tables.is_known(outs[i]) and shape_text(outs[i]) or "shape not known"))
  end
  local counts, layers = operator_counts(net), 0
  for _, n in pairs(counts) do
    layers = layers + n
  end
  row(write, "operators", ("%d: %s"):format(layers, tally(counts)))
  local list = {}
  for _, params in ipairs{ arg_params, aux_params } do
    for name, x in pairs(params) do
      list[#list + 1] = { name, x }
    end
  end
  local elements, bytes, kinds = count_totals(list)
  row(write, "parameters", ("%s in %d arrays (%s), %s"):format(short(elements), #list,
    tally(kinds), bytes_text(bytes)))
  if known then
    row(write, "operations", short(operations(net, shapes)) .. " for one run")
    row(write, "memory", ("%s planned for one run, beside parameters and inputs")
      :format(bytes_text(plan_memory(net, given, types))))
  else
    row(write, "", "--shape NAME=SIZES gives what is not known: --shape data=1,3,224,224")
  end
  if options.all then
    require("tycho.viz").print_summary(net, { shape = known and given or nil })
  end
end


-- The command -------------------------------------------------------------------------------------

-- Writes a description of a file.
-- @string path
-- @tparam table options shapes: input name -> sizes; at: keys to a network inside the file; all:
--   whether every array and layer is shown
-- @tparam function write writes a string
function inspect.show(path, options, write)
  local format = formats.of(path, FUNC)
  local list, data
  if not format.network then
    list, data = format.arrays(path)
  elseif format.metadata then
    data = format.metadata(path)
  end
  row(write, "file", path)
  row(write, "format", format.title and format.title(path) or format.name)
  row(write, "size", bytes_text(file_arrays.open(path, FUNC).size))
  if format.network then
    local ok, net, arg_params, aux_params = pcall(format.network, path, options)
    metadata(write, data or {}, options.all)
    if ok then
      return show_network(write, net, arg_params, aux_params, options)
    elseif not format.notes or next(options.shapes) ~= nil then
      error(net, 0)
    end
    for _, note in ipairs(format.notes(path, options, net)) do
      row(write, note[1], note[2])
    end
    return row(write, "", "--shape data=1,3,224,224 gives the shapes that the layers depend on")
  end
  show_arrays(write, list, data, options)
end


return inspect
