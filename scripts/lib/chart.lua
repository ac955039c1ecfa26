--- Line charts as SVG text.
--
--     chart.write("curve.svg", {title = "digits", x_label = "epoch",
--       curves = {{name = "train", points = {{0, 0.8}, {1, 0.9}}}}})
--
-- Curves of one size share a panel; a curve of another size (a loss beside an accuracy)
-- gets a panel of its own below.

local files = require "tycho.core.files"

local chart = {}

local WIDTH, PANEL = 720, 300                    -- least pixels of the picture; a panel's height
local LETTER = 7.5                               -- pixels of a letter, rather too many
local LEFT, RIGHT, TOP, BOTTOM = 64, 96, 58, 40  -- margins around the lines
local GAP = 15                                   -- least distance of two labels
local ALIKE = 5                                  -- one panel's largest values differ by less
local COLOURS = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"}

local STYLE = [[
<style>
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #444 }
  .title { font-size: 16px; font-weight: 600; fill: #111 }
  .grid { stroke: #e6e6e6 } .axis { stroke: #999 }
  .curve { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }
  .value { font-weight: 600 }
</style>]]

local function escape(text)
  return (tostring(text):gsub("[&<>\"]",
    {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}))
end

-- shortest text that tells values of this step apart
local function number_text(value, step)
  local places = math.max(0, math.ceil(-math.log10(step) - 1e-9))
  return (("%%.%df"):format(math.min(places, 8))):format(value)
end


-- Scales ------------------------------------------------------------------------------------------

-- the smallest of 1, 2, 5 times a power of ten that cuts a range into at most n parts
local function nice_step(range, n, whole)
  local power = 10 ^ math.floor(math.log10(range / n))
  for _, factor in ipairs{1, 2, 5, 10} do
    local step = factor * power
    if range / step <= n * (1 + 1e-9) and not (whole and step < 1) then
      return step
    end
  end
  return math.max(1, 10 * power)
end

local function extent(curves, axis)
  local low, high = math.huge, -math.huge
  for _, curve in ipairs(curves) do
    for _, point in ipairs(curve.points) do
      low, high = math.min(low, point[axis]), math.max(high, point[axis])
    end
  end
  return low, high
end

-- Values low .. high -> pixels from .. to, with ticks; y scales end on ticks.
local function new_scale(low, high, from, to, n, whole)
  if high - low < 1e-9 * math.max(1, math.abs(high)) then
    local margin = whole and 1 or math.max(math.abs(high) * 0.1, 1e-3)
    low, high = whole and low or low - margin, high + margin
  end
  local step = nice_step(high - low, n, whole)
  if not whole then
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
  end
  local ticks = {}
  for i = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) do
    ticks[#ticks + 1] = i * step + 0                    -- + 0: no minus zero
  end
  return {ticks = ticks, step = step, at = function(v)
    return from + (v - low) / (high - low) * (to - from)
  end}
end


-- Parts of a panel --------------------------------------------------------------------------------

local function add(out, ...)
  out[#out + 1] = string.format(...)
end

local function draw_axes(out, x, y, top, x_label)
  local right, bottom = WIDTH - RIGHT, top + PANEL - BOTTOM
  for _, tick in ipairs(y.ticks) do
    add(out, '<line class="grid" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>', LEFT,
      y.at(tick), right, y.at(tick))
    add(out, '<text x="%d" y="%.1f" text-anchor="end">%s</text>', LEFT - 8, y.at(tick) + 4,
      number_text(tick, y.step))
  end
  for _, tick in ipairs(x.ticks) do
    add(out, '<line class="axis" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>', x.at(tick),
      bottom, x.at(tick), bottom + 5)
    add(out, '<text x="%.1f" y="%d" text-anchor="middle">%s</text>', x.at(tick), bottom + 19,
      number_text(tick, x.step))
  end
  add(out, '<path class="axis" fill="none" d="M%d %dV%dH%d"/>', LEFT, top + TOP, bottom, right)
  if x_label then
    add(out, '<text x="%.1f" y="%d" text-anchor="middle">%s</text>', (LEFT + right) / 2,
      bottom + 35, escape(x_label))
  end
end

local function draw_curve(out, curve, x, y)
  local path = {}
  for i, point in ipairs(curve.points) do
    path[i] = ("%s%.1f %.1f"):format(i == 1 and "M" or "L", x.at(point[1]), y.at(point[2]))
  end
  add(out, '<path class="curve" stroke="%s" d="%s"/>', curve.colour, table.concat(path))
  for _, point in ipairs(#curve.points <= 30 and curve.points or {}) do
    add(out, '<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>', x.at(point[1]),
      y.at(point[2]), curve.colour)
  end
end

-- Returns where it ends.
local function draw_legend(out, curves, top)
  local x = LEFT
  for _, curve in ipairs(curves) do
    add(out, '<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="3"/>', x, top + 40,
      x + 18, top + 40, curve.colour)
    add(out, '<text x="%d" y="%d">%s</text>', x + 24, top + 44, escape(curve.name))
    x = x + 44 + LETTER * #curve.name
  end
  return x
end

-- Each curve's last value beside its end; labels that would meet move apart. Returns where the
-- longest ends.
local function draw_labels(out, curves, x, y)
  local labels, right = {}, 0
  for i, curve in ipairs(curves) do
    local last = curve.points[#curve.points]
    labels[i] = {x = x.at(last[1]) + 8, y = y.at(last[2]) + 4, colour = curve.colour,
                 text = curve.name .. " " .. number_text(last[2], y.step / 100)}
  end
  table.sort(labels, function(a, b) return a.y < b.y end)
  for i = 2, #labels do
    labels[i].y = math.max(labels[i].y, labels[i - 1].y + GAP)
  end
  for _, label in ipairs(labels) do
    add(out, '<text class="value" x="%.1f" y="%.1f" style="fill:%s">%s</text>', label.x, label.y,
      label.colour, escape(label.text))
    right = math.max(right, label.x + LETTER * #label.text)
  end
  return right
end


-- The picture -------------------------------------------------------------------------------------

-- Curves whose largest values are alike come together.
local function panels_of(curves)
  local panels = {}
  for i, curve in ipairs(curves) do
    local _, high = extent({curve}, 2)
    local size, home = math.max(math.abs(high), 1e-9), nil
    for _, panel in ipairs(panels) do
      home = home or (size < ALIKE * panel.size and panel.size < ALIKE * size and panel or nil)
    end
    if not home then
      home = {size = size}
      panels[#panels + 1] = home
    end
    table.insert(home,
      {name = curve.name, points = curve.points, colour = COLOURS[(i - 1) % #COLOURS + 1]})
  end
  return panels
end

-- Returns how wide the picture must be.
local function draw_panel(out, panel, top, low, high, x_label)
  local x = new_scale(low, high, LEFT, WIDTH - RIGHT, 10, true)
  local y_low, y_high = extent(panel, 2)
  local y = new_scale(y_low, y_high, top + PANEL - BOTTOM, top + TOP, 6)
  draw_axes(out, x, y, top, x_label)
  for _, curve in ipairs(panel) do
    draw_curve(out, curve, x, y)
  end
  return math.max(draw_legend(out, panel, top), draw_labels(out, panel, x, y))
end

--- The SVG text of a chart.
-- @tparam table spec `title`, `x_label`, `curves`: list of {name, points = {{x,
--   y}, ...}}; x are whole numbers
-- @treturn string
function chart.text(spec)
  local out, curves, width = {}, {}, WIDTH
  for _, curve in ipairs(spec.curves) do
    curves[#curves + 1] = #curve.points > 0 and curve or nil
  end
  local panels = panels_of(curves)
  local height = math.max(1, #panels) * PANEL + 6
  add(out, "%s", STYLE)
  add(out, '<rect width="100%%" height="100%%" fill="#fff"/>')
  add(out, '<text class="title" x="%d" y="24">%s</text>', LEFT, escape(spec.title or ""))
  local low, high = extent(curves, 1)
  for i, panel in ipairs(panels) do
    width = math.max(width,
      draw_panel(out, panel, (i - 1) * PANEL, low, high, i == #panels and spec.x_label))
  end
  table.insert(out, 1,
    ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">')
      :format(width, height, width, height))
  add(out, "</svg>\n")
  return table.concat(out, "\n")
end

--- Writes the chart to a file.
-- @string path
-- @tparam table spec see `text`
function chart.write(path, spec)
  files.write(path, chart.text(spec), "chart.write")
end

return chart
