--- A drawn network: its boxes and arrows, as DOT text for Graphviz and as SVG.
--
-- A Graph has `nodes` ({name, label, tip, attrs}), `edges` ({tail, head, label, from, to}: tail and
-- head name the node that reads and the node that produces, from and to are their numbers; `to` is
-- nil for a hidden parameter, which Graphviz draws as an oval), `title`, `format`, `source`.
--
-- @module tycho.viz.graph

local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local layout = require "tycho.viz.layout"
local svg = require "tycho.viz.svg"

local viz_graph = {}

local Graph = Class:extend("Graph")
viz_graph.Graph = Graph

local MARGIN, TITLE = 24, 28                             -- pixels
local FACE, SMALL = 12, 10
local WIDTH, HEIGHT = 96, 40                     -- size of a box without attributes
local MOST = 36                                  -- most characters of a line
local INCH = 72                                  -- pixels of an inch, the unit of DOT

-- DOT ---------------------------------------------------------------------------------------------

local function quoted(text)
  return '"' .. tostring(text):gsub('[\\"]', "\\%0"):gsub("\n", "\\n") .. '"'
end


local function attribute_list(label, dict)
  local parts = { "label=" .. quoted(label) }
  for _, key in ipairs(attrs.keys(dict)) do
    parts[#parts + 1] = key .. "=" .. quoted(dict[key])
  end
  return "[" .. table.concat(parts, " ") .. "]"
end


local ARROW = { arrowtail = "open", dir = "back" }
viz_graph.ARROW = ARROW

local function dot_text(graph)
  local lines = { "digraph " .. quoted(graph.title) .. " {" }
  for _, n in ipairs(graph.nodes) do
    lines[#lines + 1] = ("\t%s %s"):format(quoted(n.name), attribute_list(n.label, n.attrs))
  end
  for _, e in ipairs(graph.edges) do
    lines[#lines + 1] = ("\t%s -> %s %s"):format(quoted(e.tail), quoted(e.head),
      attribute_list(e.label, ARROW))
  end
  return table.concat(lines, "\n") .. "\n}\n"
end


--- Initializes a graph; `ty.viz.plot_network` makes graphs.
-- @tparam table parts nodes, edges, title, format
function Graph:init(parts)
  self.nodes, self.edges, self.title, self.format =
    parts.nodes, parts.edges, parts.title, parts.format
  self.source = dot_text(self)
end


function Graph.__tostring(self)
  return ("<Graph %s: %d boxes, %d arrows>"):format(self.title, #self.nodes, #self.edges)
end


-- SVG ---------------------------------------------------------------------------------------------

local function shortened(text)
  return #text > MOST and text:sub(1, MOST - 1) .. "…" or text
end


local function split_lines(label)
  local lines = {}
  for line in (label .. "\n"):gmatch("(.-)\n") do
    lines[#lines + 1] = shortened(line)
  end
  return lines
end


-- Returns an attribute in inches as pixels; nil if it is not a positive number.
local function inches(dict, key)
  local length = tonumber(dict and dict[key])
  return length and length > 0 and length * INCH
end


-- Returns the boxes to lay out: first parameters that only edges name, then the nodes; the box of
-- each such parameter by name; and the number of these parameters.
local function make_boxes(graph)
  local list, number = {}, {}
  for _, e in ipairs(graph.edges) do
    if not e.to and not number[e.head] then
      list[#list + 1] = { name = e.head, label = e.head, tip = e.head,
        attrs = { shape = "oval", fillcolor = "none" } }
      number[e.head] = #list
    end
  end
  local before = #list
  for i, n in ipairs(graph.nodes) do
    list[before + i] = n
  end
  return list, number, before
end


local function box_sizes(graph, boxes)
  local widths, height = {}, inches(graph.size, "height") or HEIGHT
  for i, box in ipairs(boxes) do
    widths[i] = inches(graph.size, "width") or WIDTH
    for _, line in ipairs(split_lines(box.label)) do
      widths[i] = math.max(widths[i], svg.text_width(line, FACE) + 16)
    end
  end
  return widths, height
end


-- Returns the width that each box needs beside it for a label, if several arrows leave it, and the
-- first edge of each box, which has the label.
local function label_sides(graph, boxes, edges)
  local count, sides, said = {}, {}, {}
  for i, edge in ipairs(edges) do
    count[edge[1]] = (count[edge[1]] or 0) + 1
    said[edge[1]] = said[edge[1]] or i
  end
  for v = 1, #boxes do
    local label = (count[v] or 0) > 1 and graph.edges[said[v]].label or ""
    sides[v] = label ~= "" and svg.text_width(label, SMALL) + 5 or 0
  end
  return sides, said
end


-- Returns the layout of a graph.
local function planned(graph)
  local boxes, hidden, before = make_boxes(graph)
  local edges = {}
  for i, e in ipairs(graph.edges) do
    edges[i] = { e.to and e.to + before or hidden[e.head], e.from + before }
  end
  local widths, height = box_sizes(graph, boxes)
  local sides, said = label_sides(graph, boxes, edges)
  local plan = layout.plan{ widths = widths, sides = sides, height = height, edges = edges }
  plan.boxes, plan.widths, plan.box_height, plan.ends, plan.sides, plan.said =
    boxes, widths, height, edges, sides, said
  return plan
end


-- Returns the path of an edge as text; its curves are vertical at every point.
local function format_path(points)
  local n, parts =
    svg.number, { ("M%s %s"):format(svg.number(points[1][1]), svg.number(points[1][2])) }
  for k = 2, #points do
    local x0, y0, x1, y1 = points[k - 1][1], points[k - 1][2], points[k][1], points[k][2]
    local half = n((y0 + y1) / 2)
    parts[k] = math.abs(x1 - x0) < 0.05 and ("L%s %s"):format(n(x1), n(y1))
      or ("C%s %s %s %s %s %s"):format(n(x0), half, n(x1), half, n(x1), n(y1))
  end
  return table.concat(parts, " ")
end


local function draw_edges(page, plan)
  for _, points in ipairs(plan.routes) do
    local last = points[#points]
    local x, y = last[1], last[2]
    last[2] = y - 6                                      -- end inside the arrow head
    page:put("path",
      { d = format_path(points), fill = "none", stroke = "#7a8490", ["stroke-width"] = 1.2 })
    last[2] = y
    page:put("path",
      { fill = "#7a8490", d = ("M%s %s l-3.5 -8 l7 0 z"):format(svg.number(x), svg.number(y)) })
  end
end


local LABEL = { ["font-size"] = SMALL, fill = "#555f6b" }
local LABEL_LEFT = { ["font-size"] = SMALL, fill = "#555f6b", ["text-anchor"] = "end" }

-- Draws the labels of edges: below the box, on the side that its arrow does not take; beside the
-- box if several arrows leave it.
local function draw_labels(page, graph, plan)
  for i, e in ipairs(graph.edges) do
    local box, points = plan.ends[i][1], plan.routes[i]
    local bottom = plan.y[box] + plan.box_height / 2
    if plan.sides[box] == 0 then
      local left = points[2][1] > points[1][1] + 0.5
      page:text(points[1][1] + (left and -6 or 6), bottom + SMALL + 3, e.label,
        left and LABEL_LEFT or LABEL)
    elseif plan.said[box] == i then
      page:text(plan.x[box] + plan.widths[box] / 2 + 5, bottom - 3, e.label, LABEL)
    end
  end
end


local function draw_box(page, box, x, y, width, height)
  local bare, round =
    box.attrs.fillcolor == "none", box.attrs.shape == "oval" or box.attrs.shape == "ellipse"
  page:put("rect", { x = x - width / 2, y = y - height / 2, width = width, height = height,
    rx = round and height / 2 or 6, fill = bare and "#ffffff" or box.attrs.fillcolor, stroke = bare
      and "#b4bcc4" or "#4a5560", ["stroke-dasharray"] = bare and "3 2" or nil }, box.tip)
  local lines = split_lines(box.label)
  for i, line in ipairs(lines) do
    page:text(x, y + FACE * 0.35 + (i - (#lines + 1) / 2) * (FACE + 3), line,
      { ["text-anchor"] = "middle", fill = "#1d242b",
        ["font-weight"] = i == 1 and #lines > 1 and "bold" or nil, ["pointer-events"] = "none" })
  end
end


--- Returns the drawing as SVG: inputs at the top, outputs at the bottom, shapes of outputs (without
-- the batch axis) below the boxes. It needs no other program.
-- @treturn string SVG text
function Graph:svg()
  local plan = planned(self)
  local right = 0
  for i, e in ipairs(self.edges) do                      -- space for labels at the right
    right = math.max(right, plan.routes[i][1][1] + 6 + svg.text_width(e.label, SMALL) - plan.width)
  end
  local width = math.max(plan.width + right, svg.text_width(self.title, FACE + 2)) + 2 * MARGIN
  local page = svg.page(math.ceil(width), math.ceil(plan.height) + 2 * MARGIN + TITLE)
  page:text(MARGIN, MARGIN + 4, self.title,
    { ["font-size"] = FACE + 2, ["font-weight"] = "bold", fill = "#1d242b" })
  page[#page + 1] = ('<g transform="translate(%d %d)">'):format(MARGIN, MARGIN + TITLE)
  draw_edges(page, plan)
  draw_labels(page, self, plan)
  for i, box in ipairs(plan.boxes) do
    draw_box(page, box, plan.x[i], plan.y[i], plan.widths[i], plan.box_height)
  end
  page[#page + 1] = "</g>"
  return page:done()
end


local WRITERS = {
  dot = function(graph) return graph.source end,
  svg = function(graph) return graph:svg() end,
}
WRITERS.gv = WRITERS.dot


--- Writes the graph to a file: `.dot` or `.gv` (for Graphviz) or `.svg`.
-- @string[opt] path the graph's format is added if it has no ending; default: the title
-- @treturn string the path written
function Graph:save(path)
  path = path or self.title
  if type(path) ~= "string" then
    Error.raise{ code = "type", func = "Graph:save", argument = "path", expected = "text",
      got = Error.kind(path), message = "bad 'path'" }
  end
  local ending = path:match("%.([^./]+)$")
  if not ending then
    ending = self.format
    path = path .. "." .. ending
  end
  if not WRITERS[ending] then
    Error.raise{ code = "value", func = "Graph:save", argument = path,
      expected = "a name that ends in .svg, .dot or .gv", got = "." .. ending,
      message = ("cannot write a graph as .%s; save it as .dot and let Graphviz convert it")
        :format(ending) }
  end
  files.write(path, WRITERS[ending](self), "Graph:save")
  return path
end


return viz_graph
