--- Views of networks: tables, drawings, memory plans. They need no other program.
--
--     ty.viz.print_summary(net, {shape = {data = {1, 784}}})
--     ty.viz.plot_network(net, {shape = {data = {1, 784}}}):save("net.svg")
--     ty.viz.plot_memory(exe):save("memory.svg")
--
-- @module tycho.viz

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local flame = require "tycho.viz.flame"
local grid = require "tycho.viz.grid"
local log = require "tycho.core.log"
local memory = require "tycho.viz.memory"
local node = require "tycho.symbol.node"
local plot = require "tycho.viz.plot"
local registry = require "tycho.op.registry"
local show = require "tycho.viz.show"
local summary = require "tycho.viz.summary"
local values = require "tycho.core.values"
local viz_graph = require "tycho.viz.graph"
local written = require "tycho.core.written"

local viz = {}

-- print_summary -----------------------------------------------------------------------------------

local function four_ends(v)
  local ok = values.is_plain(v) and #v == 4
  for i = 1, 4 do
    ok = ok and type(v[i]) == "number" and v[i] > 0 and v[i] >= (v[i - 1] or 0)
  end
  return ok, v, "four rising numbers: where the columns end",
    type(v) == "table" and "value" or "type"
end


local LENGTH = 120                                       -- columns of a summary

-- Returns the default length of a line, at most the width of the terminal.
local function usual_length()
  return math.min(LENGTH, native.is_terminal(1) and native.terminal_size(1) or LENGTH)
end


local SUMMARY = args.form("viz.print_summary", {
  { "symbol", "symbol" }, "*", { "shape", "dict?" }, { "line_length", "positive?" },
  { "positions", four_ends, { 0.44, 0.64, 0.74, 1 } },
})

--- Prints a summary of the model, a table of its layers, and returns it as text.
--
-- Parameters are counted from inferred shapes, each once: at the first layer that reads it.
-- @tparam Symbol symbol
-- @tparam[opt] table options shape (argument name -> shape; needed if the variables do not have
--   shapes), line_length (characters; default: 120, at most the terminal's width), positions (ends
--   of the four columns: characters, or fractions of the line)
-- @treturn string the table; E(shape) if the given shapes do not determine all others
function viz.print_summary(...)
  local a = SUMMARY(...)
  local text = summary.text(summary.rows(a.symbol, a.shape, "viz.print_summary"),
    a.line_length or usual_length(), a.positions)
  io.write(text)
  written.text = text
  return text
end


-- plot_network ------------------------------------------------------------------------------------

local COLOURS = { "#8dd3c7", "#fb8072", "#ffffb3", "#bebada", "#80b1d3",
  "#fdb462", "#b3de69", "#fccde5" }
local KIND = {
  null = 1, Convolution = 2, FullyConnected = 2, Activation = 3, LeakyReLU = 3, BatchNorm = 4,
  Pooling = 5, Concat = 6, Flatten = 6, Reshape = 6, Softmax = 7,
}
local DEFAULTS = { shape = "box", fixedsize = "true", width = "1.3",
  height = "0.8034", style = "filled" }
local PARAMETER_ENDINGS = { "_weight", "_bias", "_beta", "_gamma", "_moving_var", "_moving_mean",
  "_running_var", "_running_mean" }

-- Returns an attribute of a node, or its default.
local function attribute(n, key)
  if n.attrs[key] then
    return n.attrs[key]
  end
  for _, p in ipairs(registry.find(n.op).params) do
    if p.name == key then
      return p.default
    end
  end
  return ""
end


local function times(text)
  local list = {}
  for size in text:gmatch("%d+") do
    list[#list + 1] = size
  end
  return list[1] and table.concat(list, "x") or "1"
end


-- Returns the kernel and the stride of a node: "3x3/1x1".
local function window(n)
  return times(attribute(n, "kernel")) .. "/" .. times(attribute(n, "stride"))
end


-- Labels of boxes by operator; other boxes show the node's name.
local LABELS = {
  Convolution    = function(n)
    return ("Convolution\n%s, %s"):format(window(n), attribute(n, "num_filter"))
  end,
  FullyConnected = function(n) return "FullyConnected\n" .. attribute(n, "num_hidden") end,
  Activation     = function(n) return "Activation\n" .. attribute(n, "act_type") end,
  LeakyReLU      = function(n) return "LeakyReLU\n" .. attribute(n, "act_type") end,
  Pooling        = function(n)
    return ("Pooling\n%s, %s"):format(attribute(n, "pool_type"), window(n))
  end,
  Custom         = function(n) return attribute(n, "op_type") end,
}


local function is_parameter(n)
  for _, ending in ipairs(PARAMETER_ENDINGS) do
    if not n.op and n.name:sub(-#ending) == ending then
      return true
    end
  end
  return false
end


local function format_tip(n)
  local lines = { n.op and ("%s (%s)"):format(n.name, n.op) or n.name }
  for _, key in ipairs(attrs.keys(n.attrs)) do
    lines[#lines + 1] = attrs.is_annotation(key) and nil or key .. " = " .. n.attrs[key]
  end
  return table.concat(lines, ", ")
end


local function make_box(n, node_attrs)
  local dict = {}
  for key, value in pairs(DEFAULTS) do
    dict[key] = value
  end
  for key, value in pairs(node_attrs) do
    dict[key] = attrs.text(value)
  end
  dict.fillcolor = COLOURS[KIND[n.op or "null"] or 8]
  dict.shape = n.op and dict.shape or "oval"
  return { name = n.name, label = LABELS[n.op] and LABELS[n.op](n) or n.name,
    attrs = dict, tip = format_tip(n) }
end


-- Returns the label of an edge, "4x8x8 float32", or what is known of it.
local function edge_label(entry, shapes, dtypes)
  local name, parts = node.output_name(entry[1], entry[2]), {}
  if shapes then
    parts[1] = summary.without_batch(shapes[name])
  end
  if dtypes and values.value(dtypes[name]) then
    parts[#parts + 1] = dtypes[name]
  end
  return (table.concat(parts, " "):gsub("^ ", ""))
end


local function warn_duplicates(order)
  local seen, twice = {}, {}
  for _, n in ipairs(order) do
    if seen[n.name] then
      twice[#twice + 1] = "'" .. n.name .. "'"
    end
    seen[n.name] = true
  end
  if twice[1] then
    log:warning("viz.plot_network: several nodes are called " .. table.concat(twice, ", ")
      .. "; Graphviz draws nodes of one name as one")
  end
end


local function make_boxes(order, node_attrs)
  local nodes, number = {}, {}
  for _, n in ipairs(order) do
    if not is_parameter(n) then
      nodes[#nodes + 1] = make_box(n, node_attrs)
      number[n] = #nodes
    end
  end
  return nodes, number
end


local function make_edges(order, number, hide, shapes, dtypes)
  local edges = {}
  for _, n in ipairs(order) do
    for _, input in ipairs(n.inputs) do
      if number[input[1]] or not hide then
        edges[#edges + 1] = { tail = n.name, head = input[1].name, from = number[n],
          to = number[input[1]], label = edge_label(input, shapes, dtypes) }
      end
    end
  end
  return edges
end


local PLOT = args.form("viz.plot_network", {
  { "symbol", "symbol" }, "*", { "title", "text", "plot" },
  { "save_format", { "svg", "dot", "gv" }, "svg" }, { "shape", "dict?" }, { "dtype", "dict?" },
  { "node_attrs", "dict", {} }, { "hide_weights", "boolean", true },
})

--- Returns a drawing of a network: an arrow leads from each node to those that read it.
--
-- `g.source` is DOT text for Graphviz, `g:svg()` a drawing that needs no Graphviz, `g:save(path)`
-- writes either by the path's ending. Two nodes of the same name are warned of: Graphviz would draw
-- them as one (`g:svg()` does not).
-- @tparam Symbol symbol
-- @tparam[opt] table options title, save_format ("svg" or "dot", the ending that `save` adds),
--   shape and dtype (argument name -> shape or dtype; arrows are then labelled), node_attrs
--   (Graphviz attributes; width and height, in inches, also count for `g:svg()`), hide_weights
--   (true: no weights, biases and statistics)
-- @treturn Graph
function viz.plot_network(...)
  local a, func = PLOT(...), "viz.plot_network"
  local order = node.walk(a.symbol._entries)
  local shapes, dtypes = summary.shapes(a.symbol, a.shape, func),
    summary.dtypes(a.symbol, a.dtype, func)
  warn_duplicates(order)
  local nodes, number = make_boxes(order, a.node_attrs)
  local graph = viz_graph.Graph{ nodes = nodes, edges = make_edges(order, number, a.hide_weights,
    shapes, dtypes), title = a.title, format = a.save_format }
  graph.size = a.node_attrs
  return graph
end


-- plot_memory -------------------------------------------------------------------------------------

--- Draws the memory plan of an executor: instructions from left to right, bytes of the pool
-- upwards, a box for each value from the instruction that makes it to the last one that reads it.
-- @function viz.plot_memory
-- @see tycho.viz.memory.plot
viz.plot_memory = memory.plot


-- plot, histogram, image_grid ---------------------------------------------------------------------

--- Draws a chart of curves.
-- @function viz.plot
-- @see tycho.viz.plot.plot
viz.plot = plot.plot

--- Draws how often values occur, as bars.
-- @function viz.histogram
-- @see tycho.viz.plot.histogram
viz.histogram = plot.histogram

--- Draws a network's time by layer, after a profile.
-- @function viz.flame
-- @see tycho.viz.flame.flame
viz.flame = flame.flame

--- Draws images side by side.
-- @function viz.image_grid
-- @see tycho.viz.grid.image_grid
viz.image_grid = grid.image_grid

--- Shows a drawing in the terminal.
-- @function viz.show
-- @see tycho.viz.show.show
viz.show = show.show


return namespace.close(viz, "viz", "function")
