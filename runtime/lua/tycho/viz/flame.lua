--- Where a network's time goes, by layer: boxes as wide as their share (part of `ty.viz`).
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
local PAD = 4                            -- beside the text of a box
local LEAST = 1                          -- pixels; narrower boxes are not drawn
local LIGHT = 0.55                       -- colours are that far from white: texts stay legible
local BACKWARD = "_backward$"


-- Tree --------------------------------------------------------------------------------------------

local function find_child(parent, name)
  local child = parent.by_name[name]
  if not child then
    child = { name = name, total = 0, by_name = {}, children = {} }
    parent.by_name[name] = child
    table.insert(parent.children, child)
  end
  return child
end


-- Returns the parts of a layer's name: "stage1", "unit2", "conv1". A leading underscore is not a
-- part.
local function split_name(name)
  local parts = {}
  for part in name:gmatch("_*[^_]+") do
    parts[#parts + 1] = #parts == 0 and part or part:match("[^_]+$")
  end
  return parts
end


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


-- Joins a box with its only child of the same width, repeatedly: "stage1_unit1". The last box,
-- which is an operator, stays.
local function join(box)
  local only = box.children[1]
  while #box.children == 1 and only.total == box.total and only.children[1] do
    box.name, box.children = box.name .. "_" .. only.name, only.children
    only = box.children[1]
  end
end


-- Sorts boxes, widest first, and returns their depth.
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


--- Returns the tree of layers: `{name, total, children}`, times in nanoseconds, widest first.
-- @tparam {table,...} rows as `profiler.sums` gives them
-- @treturn table
-- @treturn int its depth
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


-- Returns the longest beginning of a text that fits; empty if two letters do not.
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

--- Returns a drawing of the time of a network: forward and backward, below them layers by the parts
-- of their names ("stage1_unit2_conv1"), below these operators and kernels. Operators that run as
-- one are with the first of them.
--
--     ty.profiler.set_config{ aggregate_stats = true }
--     ty.profiler.set_state("run")
--     mod:score(train, "acc")
--     ty.profiler.set_state("stop")
--     ty.viz.flame():save("flame.svg")
--
-- @tparam[opt] table rows as `ty.profiler.sums` gives them, which are taken by default
-- @tparam[opt] table options title, width (960 pixels)
-- @treturn Drawing
-- @raise E(state) where nothing was profiled
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
