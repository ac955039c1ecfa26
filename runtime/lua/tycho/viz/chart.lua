--- Paints charts: panels with axes, curves, bars, a legend.
--
-- A chart is a table: `title`, `x_label`, `y_label`, `x_log`, `y_log`, `x_range`, `y_range`, `ends`
-- (whether each curve's last value is written beside its end) and `panels`, lists of curves. A
-- curve has `name`, `colour`, `x` and `y` (lists of numbers of equal length) and `style`: "line",
-- "points" or "bars"; for bars `x` has one number more, the edges.
--
-- @module tycho.viz.chart

local scale = require "tycho.viz.scale"

local chart = {}

local FACE, TITLE = 12, 16                               -- sizes of the typeface
local ROW = 16                                           -- distance of lines of text
local SIDE, GAP = 16, 8                                  -- margin of the chart; margin of texts
local X_PART, Y_PART = 56, 42                            -- least pixels between ticks
local SAMPLE = 18                                        -- length of a line in the legend
local MOST_DISCS = 30                                    -- most points of a line that has discs
local MOST_POINTS = 1000                                 -- lines of more points are thinned
local TEXT, DARK, GRID, AXIS = "#444444", "#111111", "#e6e6e6", "#999999"
local COLOURS = { "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555" }

local LABEL = { size = FACE, colour = TEXT }
local MIDDLE = { size = FACE, colour = TEXT, align = "middle" }
local RIGHT = { size = FACE, colour = TEXT, align = "right" }
local UPWARDS = { size = FACE, colour = TEXT, align = "middle", turned = true }
local HEADING = { size = TITLE, colour = DARK, bold = true }


--- Returns the colour of the i-th curve, from 1.
function chart.colour(i)
  return COLOURS[(i - 1) % #COLOURS + 1]
end


local function finite(value, log)
  return value == value and math.abs(value) < math.huge and not (log and value <= 0)
end


-- Returns the lowest and the highest value of curves on an axis, "x" or "y"; 0 and 1 if there are
-- no values.
local function extent(curves, axis, log)
  local low, high = math.huge, -math.huge
  for _, curve in ipairs(curves) do
    if axis == "y" and curve.style == "bars" and not log then
      low, high = math.min(low, 0), math.max(high, 0)
    end
    for _, value in ipairs(curve[axis]) do
      if finite(value, log) then
        low, high = math.min(low, value), math.max(high, value)
      end
    end
  end
  if low > high then
    return log and 0.1 or 0, 1
  end
  return low, high
end


-- Returns whether all x values are whole numbers and no curve has bars.
local function all_whole(curves)
  for _, curve in ipairs(curves) do
    for _, x in ipairs(curve.x) do
      if x ~= math.floor(x) or curve.style == "bars" then
        return false
      end
    end
  end
  return true
end


local function widest(canvas, texts)
  local width = 0
  for _, text in ipairs(texts) do
    width = math.max(width, canvas:text_width(text, FACE))
  end
  return width
end


-- Scales ------------------------------------------------------------------------------------------

local function y_scale(spec, panel, from, to)
  local low, high = extent(panel, "y", spec.y_log)
  local range = spec.y_range
  return (spec.y_log and scale.log or scale.linear)(range and range[1] or low,
    range and range[2] or high, from, to, math.max(1, math.floor((from - to) / Y_PART)),
    { fixed = range ~= nil })
end


-- Returns the x axis with as many ticks as have room for their texts. Lines fill the width; points
-- keep a distance from its ends.
local function x_scale(spec, canvas, curves, from, to)
  local low, high = extent(curves, "x", spec.x_log)
  local range = spec.x_range
  if range then
    low, high = range[1], range[2]
  end
  local fixed = range ~= nil
  for _, curve in ipairs(curves) do
    fixed = fixed or curve.style ~= "points"
  end
  local new, whole = spec.x_log and scale.log or scale.linear, all_whole(curves)
  for parts = math.max(1, math.floor((to - from) / X_PART)), 1, -1 do
    local x = new(low, high, from, to, parts, { whole = whole, fixed = fixed })
    local needed = widest(canvas, x.texts) + 2 * GAP
    if parts == 1 or (#x.ticks - 1) * needed <= to - from then
      return x
    end
  end
end


-- Returns the x axis and its right end, which is moved left if the last tick's text would reach
-- beyond the chart.
local function x_scale_within(spec, canvas, curves, left, right, width)
  local x = x_scale(spec, canvas, curves, left, right)
  local last = #x.ticks
  if last > 0 then
    local over = x.at(x.ticks[last]) + canvas:text_width(x.texts[last], FACE) / 2 + GAP / 2 - width
    if over > 0 then
      right = right - over
      x = x_scale(spec, canvas, curves, left, right)
    end
  end
  return x, right
end


-- Legend ------------------------------------------------------------------------------------------

-- Returns the rows of the legend, lists of {curve, x}, and the right end of the longest row.
local function legend_rows(canvas, panel, left, right)
  local rows, x, last = {}, math.huge, 0
  for _, curve in ipairs(panel) do
    if curve.name then
      local width = SAMPLE + 6 + canvas:text_width(curve.name, FACE)
      if x + width > right then
        rows[#rows + 1], x = {}, left
      end
      table.insert(rows[#rows], { curve = curve, x = x })
      last = math.max(last, x + width)
      x = x + width + SIDE
    end
  end
  return rows, last
end


local function paint_legend(canvas, rows, top)
  for i, row in ipairs(rows) do
    local base = top + i * ROW - 4
    for _, entry in ipairs(row) do
      local x, curve = entry.x, entry.curve
      if curve.style == "points" then
        canvas:disc(x + SAMPLE / 2, base - 4, 3, curve.colour)
      else
        canvas:line({ { x, base - 4 }, { x + SAMPLE, base - 4 } }, curve.colour, 3)
      end
      canvas:text(x + SAMPLE + 6, base, curve.name, LABEL)
    end
  end
end


-- Curves ------------------------------------------------------------------------------------------

-- Returns the points of a curve in pixels, as runs; values that cannot be drawn separate runs.
local function split_runs(spec, curve, x, y)
  local runs, run, count = {}, nil, 0
  for i, value in ipairs(curve.y) do
    if finite(value, spec.y_log) and finite(curve.x[i], spec.x_log) then
      if not run then
        run = {}
        runs[#runs + 1] = run
      end
      run[#run + 1] = { x.at(curve.x[i]), y.at(value) }
      count = count + 1
    else
      run = nil
    end
  end
  return runs, count
end


-- Returns a run with only the first, lowest, highest and last point of each column of pixels, so
-- that long curves look the same in smaller files.
local function thinned(run)
  local thin, first = {}, 1
  while first <= #run do
    local column, last, low, high = math.floor(run[first][1]), first, first, first
    while run[last + 1] and math.floor(run[last + 1][1]) == column do
      last = last + 1
      low = run[last][2] > run[low][2] and last or low
      high = run[last][2] < run[high][2] and last or high
    end
    local kept = { first, math.min(low, high), math.max(low, high), last }
    for k, i in ipairs(kept) do
      thin[#thin + 1] = i ~= kept[k - 1] and run[i] or nil
    end
    first = last + 1
  end
  return thin
end


-- Returns the part of a segment within a rectangle, as two fractions of its length; nil if there is
-- none. Source: Y.-D. Liang, B. A. Barsky, A new concept and method for line clipping, 1984.
local function clip_segment(a, b, area)
  local dx, dy, from, to = b[1] - a[1], b[2] - a[2], 0, 1
  local sides = { { -dx, a[1] - area.left }, { dx, area.right - a[1] }, { -dy, a[2] - area.top },
    { dy, area.bottom - a[2] } }
  for _, side in ipairs(sides) do
    local p, q = side[1], side[2]
    if p < 0 then
      from = math.max(from, q / p)
    elseif p > 0 then
      to = math.min(to, q / p)
    elseif q < 0 then
      return nil
    end
  end
  if from <= to then
    return { a[1] + from * dx, a[2] + from * dy }, { a[1] + to * dx, a[2] + to * dy }, from, to
  end
end


local function clip_runs(runs, area)
  local clipped = {}
  for _, run in ipairs(runs) do
    local open
    for i = 2, #run do
      local a, b, from, to = clip_segment(run[i - 1], run[i], area)
      if a and (not open or from > 0) then
        open = { a }
        clipped[#clipped + 1] = open
      end
      if a then
        open[#open + 1] = b
      end
      open = a and to == 1 and open or nil
    end
  end
  return clipped
end


local function within(point, area)
  return point[1] >= area.left - 0.5 and point[1] <= area.right + 0.5
    and point[2] >= area.top - 0.5 and point[2] <= area.bottom + 0.5
end


local function paint_curve(canvas, spec, curve, x, y, area)
  local runs, count = split_runs(spec, curve, x, y)
  if curve.style == "line" then
    local inside = (spec.x_range or spec.y_range) and clip_runs(runs, area) or runs
    for _, run in ipairs(inside) do
      canvas:line(#run > MOST_POINTS and thinned(run) or run, curve.colour, 2)
    end
  end
  for _, run in ipairs(runs) do
    local marked = curve.style == "points" or count <= MOST_DISCS or #run == 1
    for _, point in ipairs(marked and run or {}) do
      if within(point, area) then
        canvas:disc(point[1], point[2], 3, curve.colour)
      end
    end
  end
end


local function paint_bars(canvas, spec, curve, x, y)
  local base = y.at(math.max(y.low, spec.y_log and y.low or math.min(0, y.high)))
  for i, value in ipairs(curve.y) do
    if finite(value, spec.y_log) and value ~= 0 then
      local left, right, top = x.at(curve.x[i]), x.at(curve.x[i + 1]), y.at(value)
      local space = right - left > 4 and 1 or 0
      canvas:rect(left + space / 2, math.min(top, base), right - left - space,
        math.abs(base - top), curve.colour)
    end
  end
end


-- Returns x and y of the last point that can be drawn.
local function last_value(spec, curve)
  for i = #curve.y, 1, -1 do
    if finite(curve.y[i], spec.y_log) and finite(curve.x[i], spec.x_log) then
      return curve.x[i], curve.y[i]
    end
  end
end


-- Returns the last value of each curve as a label: {colour, x, y, text}.
local function end_labels(spec, panel, y)
  local labels = {}
  for _, curve in ipairs(spec.ends and panel or {}) do
    local at, value = last_value(spec, curve)
    if at then
      labels[#labels + 1] = { colour = curve.colour, x = at, y = y.at(value),
        text = scale.text(value, (y.step or value) / 100) }
    end
  end
  return labels
end


-- Draws the labels at the ends of curves; overlapping labels are moved apart.
local function paint_ends(canvas, labels, x)
  table.sort(labels, function(a, b) return a.y < b.y end)
  for i, label in ipairs(labels) do
    label.y = math.max(label.y, i > 1 and labels[i - 1].y + ROW or 0)
    canvas:text(x.at(label.x) + GAP, label.y + 4, label.text,
      { size = FACE, colour = label.colour, bold = true })
  end
end


-- Panels ------------------------------------------------------------------------------------------

local function paint_axes(canvas, area, x, y)
  for i, tick in ipairs(y.ticks) do
    canvas:line({ { area.left, y.at(tick) }, { area.right, y.at(tick) } }, GRID)
    canvas:text(area.left - GAP, y.at(tick) + 4, y.texts[i], RIGHT)
  end
  for i, tick in ipairs(x.ticks) do
    canvas:line({ { x.at(tick), area.bottom }, { x.at(tick), area.bottom + 5 } }, AXIS)
    canvas:text(x.at(tick), area.bottom + 19, x.texts[i], MIDDLE)
  end
  canvas:line({ { area.left, area.top }, { area.left, area.bottom }, { area.right, area.bottom } },
    AXIS)
end


local function list_texts(labels)
  local texts = {}
  for i, label in ipairs(labels) do
    texts[i] = label.text
  end
  return texts
end


-- Returns the panels, with the rectangle and the scale of each, and the left and right end of the
-- curves. Margins fit their contents and are equal in all panels.
local function plan(canvas, spec, width, top, height)
  local panels, left, right = {}, 0, SIDE
  for i, panel in ipairs(spec.panels) do
    local rows, last = legend_rows(canvas, panel, SIDE, width - SIDE)
    local first = top + (i - 1) * height + (i > 1 and GAP or 0)
    local area = { top = first + #rows * ROW + (#rows > 0 and 1.5 or 1) * GAP,
      bottom = top + i * height - (spec.x_label and i == #spec.panels and 2 or 1) * ROW - GAP }
    local y = y_scale(spec, panel, area.bottom, area.top)
    local labels = end_labels(spec, panel, y)
    left = math.max(left, widest(canvas, y.texts))
    right = math.max(right, widest(canvas, list_texts(labels)) + 2 * GAP)
    panels[i] = { curves = panel, rows = rows, legend = last + SIDE, top = first, area = area,
      y = y, labels = labels }
  end
  left = SIDE + left + GAP + (spec.y_label and ROW + GAP / 2 or 0)
  return panels, left, width - right
end


local function paint_panel(canvas, spec, panel, x)
  paint_legend(canvas, panel.rows, panel.top)
  paint_axes(canvas, panel.area, x, panel.y)
  for _, curve in ipairs(panel.curves) do
    local paint = curve.style == "bars" and paint_bars or paint_curve
    paint(canvas, spec, curve, x, panel.y, panel.area)
  end
  paint_ends(canvas, panel.labels, x)
end


local function all_curves(panels)
  local all = {}
  for _, panel in ipairs(panels) do
    for _, curve in ipairs(panel) do
      all[#all + 1] = curve
    end
  end
  return all
end


--- Paints a chart.
-- @tparam table spec the chart; see the top of the file
-- @param canvas
-- @number width
-- @number height
-- @treturn number the width that its texts need, in pixels
function chart.paint(spec, canvas, width, height)
  local top, need = GAP, width
  if spec.title then
    canvas:text(SIDE, GAP + TITLE, spec.title, HEADING)
    top = GAP + TITLE + GAP
    need = math.max(need, 2 * SIDE + canvas:text_width(spec.title, TITLE) * 1.06)   -- bold
  end
  local panels, left, right = plan(canvas, spec, width, top, (height - top) / #spec.panels)
  local x
  x, right = x_scale_within(spec, canvas, all_curves(spec.panels), left, right, width)
  for _, panel in ipairs(panels) do
    panel.area.left, panel.area.right = left, right
    paint_panel(canvas, spec, panel, x)
    need = math.max(need, panel.legend)
    if spec.y_label then
      canvas:text(SIDE + 4, (panel.area.top + panel.area.bottom) / 2, spec.y_label, UPWARDS)
    end
  end
  if spec.x_label then
    canvas:text((left + right) / 2, height - GAP, spec.x_label, MIDDLE)
    need = math.max(need, left + canvas:text_width(spec.x_label, FACE) + SIDE)
  end
  return need
end


return chart
