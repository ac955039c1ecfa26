--- A chart of a network's time by layer: the width of a box is its share of the time (part of
-- `ty.viz`).
--
-- @module tycho.viz.flame

local args = require "tycho.core.args"
local chart = require "tycho.viz.chart"
local Drawing = require "tycho.viz.drawing"
local Error = require "tycho.core.error"
local pairs = require("tycho.core.iterate").pairs
local profiler = require "tycho.core.profiler"

local flame = {}

local FUNC = "viz.flame"
local WIDTH, ROW, SIDE, TITLE, FACE = 960, 22, 12, 16, 11   -- pixels
local PAD = 4                            -- margin of the text in a box
local LEAST = 1                          -- pixels; narrower boxes are not drawn
local LIGHT = 0.55                       -- share of the colour; the rest is white
local BACKWARD = "_backward$"


-- Tree --------------------------------------------------------------------------------------------

-- Returns the child of a name, which is made if needed.
local function find_child(parent, name)
  local child = parent.by_name[name]
  if not child then
    child = { name = name, total = 0, by_name = {}, children = {} }
    parent.by_name[name] = child
    table.insert(parent.children, child)
  end
  return child
end


-- Returns the parts of a layer's name: "stage1", "unit2", "conv1". A leading underscore belongs to
-- the first part.
local function split_name(name)
  local parts = {}
  for part in name:gmatch("_*[^_]+") do
    parts[#parts + 1] = #parts == 0 and part or part:match("[^_]+$")
  end
  return parts
end


-- Adds the time of a row to the boxes along its layer's name.
local function add_row(root, row)
  local first = row.node ~= "" and row.node:match("^%S+") or row.name
  local is_backward = first:find(BACKWARD) ~= nil
  local at = find_child(root, is_backward and "backward" or "forward")
  root.total, at.total = root.total + row.total, at.total + row.total
  for _, part in ipairs(split_name((first:gsub(BACKWARD, "")))) do
    at = find_child(at, part)
    at.total = at.total + row.total
  end
  at = find_child(at, row.kernel ~= "" and ("%s (%s)"):format(row.name, row.kernel) or row.name)
  at.total = at.total + row.total
end


-- Joins a box with its only child if both have the same time, repeatedly: "stage1_unit1". The
-- innermost box, an operator, is not joined.
local function join(box)
  local only = box.children[1]
  while #box.children == 1 and only.total == box.total and only.children[1] do
    box.name, box.children = box.name .. "_" .. only.name, only.children
    only = box.children[1]
  end
end


-- Sorts boxes, the largest first, and returns the depth of the tree.
local function arrange(box, is_layer)
  if is_layer then
    join(box)
  end
  table.sort(box.children, function(a, b)
    if a.total ~= b.total then
      return a.total > b.total
    end
    return a.name < b.name
  end)
  local deepest = 0
  for _, child in ipairs(box.children) do
    deepest = math.max(deepest, arrange(child, true))
  end
  return deepest + 1
end


--- Returns the tree of layers: `{name, total, children}`, times in nanoseconds, the largest first.
-- @tparam {table,...} rows the result of `profiler.sums`
-- @treturn table
-- @treturn int depth of the tree
function flame.tree(rows)
  local root = { name = "all", total = 0, by_name = {}, children = {} }
  for _, row in ipairs(rows) do
    if row.kind == "span" and row.category == "operator" and row.total > 0 then
      add_row(root, row)
    end
  end
  local deepest = 0
  for _, child in ipairs(root.children) do
    deepest = math.max(deepest, arrange(child, false))
  end
  table.sort(root.children, function(a, b) return a.name > b.name end)   -- forward first
  return root, deepest + 1
end


-- Painting ----------------------------------------------------------------------------------------

local function lightened(colour)
  return (colour:gsub("%x%x", function(pair)
    local v = tonumber(pair, 16)
    return ("%02x"):format(math.floor(255 - (255 - v) * LIGHT + 0.5))
  end))
end


local function colour_of(name)
  local sum = 0
  for i = 1, #name do
    sum = (sum * 31 + name:byte(i)) % 65521
  end
  return lightened(chart.colour(sum % 6 + 1))
end


-- Returns the longest beginning of a text that fits, with ".." if it is shortened; "" if not even
-- two letters fit.
local function fitted(canvas, text, width)
  if canvas:text_width(text, FACE) <= width then
    return text
  end
  for n = #text - 1, 2, -1 do
    local part = text:sub(1, n) .. ".."
    if canvas:text_width(part, FACE) <= width then
      return part
    end
  end
  return ""
end


local TEXT = { size = FACE, colour = "#222222" }

-- Paints a box and, below it, its children side by side.
local function paint_box(canvas, box, left, width, top, whole)
  if width < LEAST then
    return
  end
  canvas:rect(left, top, math.max(width - 1, LEAST), ROW - 1, colour_of(box.name))
  local text = ("%s  %.1f ms  %.1f %%"):format(box.name, box.total / 1e6, 100 * box.total / whole)
  canvas:text(left + PAD, top + ROW - 7, fitted(canvas, text, width - 2 * PAD), TEXT)
  local x = left
  for _, child in ipairs(box.children) do
    local wide = width * child.total / box.total
    paint_box(canvas, child, x, wide, top + ROW, whole)
    x = x + wide
  end
end


local FORM = args.form("viz.flame", { list = true,
  { "rows", "list?" }, "*", { "title", "text?" }, { "width", "pixels", WIDTH },
})

--- Returns a drawing of the time of a network. The top row is forward and backward; below are
-- layers by the parts of their names ("stage1_unit2_conv1"), and below these operators and kernels.
-- Time of operators that run as one counts for the first of them.
--
--     ty.profiler.set_config{ aggregate_stats = true }
--     ty.profiler.set_state("run")
--     mod:score(train, "acc")
--     ty.profiler.set_state("stop")
--     ty.viz.flame():save("flame.svg")
--
-- @tparam[opt] table rows the result of `ty.profiler.sums`, which is called by default
-- @tparam[opt] table options title, width (960 pixels)
-- @treturn Drawing
-- @raise E(state) if nothing was profiled
function flame.flame(...)
  local a = FORM(...)
  for i, row in ipairs(a.rows or {}) do
    for name, kind in pairs{ kind = "string", category = "string", name = "string",
        node = "string", kernel = "string", total = "number" } do
      if type(row) ~= "table" or type(row[name]) ~= kind then
        Error.raise{ code = "type", func = FUNC, argument = ("rows[%d]"):format(i),
          expected = "a row of profiler.sums", got = Error.kind(row),
          message = ("bad 'rows': '%s' is missing"):format(name) }
      end
    end
  end
  local root, depth = flame.tree(a.rows or profiler.sums())
  if root.total == 0 then
    Error.raise{ code = "state", func = FUNC,
      message = "no operator of an executor was profiled; run one between \z
        profiler.set_state('run') and profiler.set_state('stop')" }
  end
  local top = SIDE + (a.title and TITLE + SIDE or 0)
  return Drawing{ what = "flame", width = a.width, height = top + depth * ROW + SIDE,
    paint = function(canvas, width)
      if a.title then
        canvas:text(SIDE, SIDE + TITLE - 4, a.title, { size = TITLE, colour = "#111111",
          bold = true })
      end
      paint_box(canvas, root, SIDE, width - 2 * SIDE, top, root.total)
    end }
end


return flame
