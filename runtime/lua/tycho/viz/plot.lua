--- Charts of numbers: curves and histograms (part of `ty.viz`).
--
-- @module tycho.viz.plot

local args = require "tycho.core.args"
local chart = require "tycho.viz.chart"
local class = require "tycho.ndarray.class"
local Drawing = require "tycho.viz.drawing"
local Error = require "tycho.core.error"
local pairs = require("tycho.core.iterate").pairs
local values = require "tycho.core.values"

local plot = {}

local WIDTH, HEIGHT = 720, 306                           -- default size in pixels
local ALIKE = 5                                          -- most ratio of the values in one panel


-- Arguments ---------------------------------------------------------------------------------------

local function refuse(func, argument, expected, got)
  Error.raise{ code = "type", func = func, argument = argument, expected = expected,
    got = Error.kind(got), message = ("bad '%s'"):format(argument) }
end


-- Returns the numbers of a list or of an array; other values raise E(type).
local function numbers(given, func, argument)
  if class.is_array(given) then
    return given:astype("float64"):reshape{ -1 }:totable()
  elseif not values.is_plain(given) then
    refuse(func, argument, "an array or a list of numbers", given)
  end
  local list = {}
  for i, value in ipairs(given) do
    list[i] = tonumber(value)
    if type(value) ~= "number" then
      refuse(func, ("%s[%d]"):format(argument, i), "a number", value)
    end
  end
  return list
end


local STYLES = { line = true, points = true }
local KEYS = { x = true, y = true, name = true, style = true }

local function check_keys(curve, func)
  for key in pairs(curve) do
    if not KEYS[key] then
      Error.unknown{ func = func, argument = tostring(key), what = "entry of a curve",
        names = { "x", "y", "name", "style" } }
    end
  end
end


-- Returns a curve {name, x, y, style} from the forms that users may give.
local function make_curve(given, name, func)
  local label = name and ("series '%s'"):format(name) or "series"
  if class.is_array(given) or given[1] ~= nil or next(given) == nil then
    given = { y = given, name = name }
  end
  check_keys(given, func)
  if given.y == nil then
    refuse(func, label, "a list of numbers, an array, or {x = ..., y = ..., name = ...}", given)
  end
  local curve = { name = given.name or name, style = given.style or "line",
    y = numbers(given.y, func, label), counted = given.x == nil }
  if not STYLES[curve.style] then
    Error.raise{ code = "value", func = func, argument = "style", expected = '"line" or "points"',
      got = given.style, message = "bad 'style'" }
  end
  curve.x = given.x ~= nil and numbers(given.x, func, label .. ".x") or {}
  for i = 1, given.x == nil and #curve.y or 0 do
    curve.x[i] = i - 1
  end
  if #curve.x ~= #curve.y then
    Error.raise{ code = "shape", func = func, argument = label, expected = #curve.y,
      got = #curve.x, message = "as many numbers in x as in y" }
  end
  return curve
end


-- Returns the curves of a list, or those of a table by name in alphabetical order.
local function make_curves(series, func)
  if class.is_array(series) or type(series[1]) == "number" or series.y ~= nil then
    return { make_curve(series, nil, func) }
  end
  local curves = {}
  for i, given in ipairs(series) do
    if type(given) ~= "table" then
      refuse(func, ("series[%d]"):format(i), "a curve", given)
    end
    curves[i] = make_curve(given, nil, func)
  end
  local dict, names = args.pairs_of(series)
  for _, name in ipairs(series[1] == nil and names or {}) do
    if type(dict[name]) ~= "table" then
      refuse(func, ("series '%s'"):format(name), "a list of numbers or an array", dict[name])
    end
    curves[#curves + 1] = make_curve(dict[name], name, func)
  end
  return curves
end


-- Returns the largest finite absolute value of a curve.
local function find_size(curve)
  local size = 1e-9
  for _, y in ipairs(curve.y) do
    size = math.max(size, math.abs(y) < math.huge and math.abs(y) or 0)
  end
  return size
end


-- Returns panels of curves whose largest values are of similar size.
local function make_panels(curves)
  local panels, sizes = {}, {}
  for _, curve in ipairs(curves) do
    local size, home = find_size(curve), nil
    for i = #panels, 1, -1 do
      home = size < ALIKE * sizes[i] and sizes[i] < ALIKE * size and i or home
    end
    home = home or #panels + 1
    panels[home], sizes[home] = panels[home] or {}, sizes[home] or size
    table.insert(panels[home], curve)
  end
  return panels
end


-- Options -----------------------------------------------------------------------------------------

-- Returns a drawing that paints a chart.
local function drawing(a, what, height)
  return Drawing{ what = what, width = a.width, height = a.height or height,
    paint = function(canvas, width, high)
      return chart.paint(a, canvas, width, high)
    end }
end


local function check_log(log, bounds, argument)
  if log and bounds and bounds[1] <= 0 then
    Error.raise{ code = "value", func = "viz.plot", argument = argument,
      expected = "numbers above 0", got = bounds[1],
      message = "a logarithmic axis has no such value" }
  end
end


-- Sets the axis labels that the caller did not give; an empty string means no label.
local function label_axes(a, curves)
  local counted = true
  for _, curve in ipairs(curves) do
    counted = counted and curve.counted
  end
  a.x_label = a.x_label or counted and "index" or "x"
  a.y_label = a.y_label or #curves == 1 and curves[1].name or "value"
  a.x_label, a.y_label = a.x_label ~= "" and a.x_label or nil, a.y_label ~= "" and a.y_label or nil
end


local PLOT = args.form("viz.plot", { list = true, dict = true,
  { "series", "array|table" }, "*", { "title", "text?" }, { "x_label", "text?" },
  { "y_label", "text?" }, { "x_range", "range?" }, { "y_range", "range?" },
  { "x_log", "boolean", false }, { "y_log", "boolean", false }, { "split", "boolean", false },
  { "ends", "boolean", false }, { "width", "pixels", WIDTH }, { "height", "pixels?" },
})

--- Returns a chart of curves. Values that cannot be drawn (NaN, infinity; on a logarithmic axis 0
-- and negative ones) leave a gap.
--
--     ty.viz.plot{ { 3, 2, 1.5 }, title = "loss" }
--     ty.viz.plot({ train = train, valid = valid }, { x_label = "epoch", y_label = "accuracy" })
--     ty.viz.plot{ { name = "classes", x = xs, y = ys, style = "points" } }:save("classes.png")
--
-- @param series a curve, a list of curves, or curves by name. A curve is a list of numbers or an
--   array, drawn over 0, 1, 2 ..., or {x = , y = , name = , style = "line" or "points"}
-- @tparam[opt] table options title; x_label (default "index", or "x" if x was given), y_label
--   (default: the name of a single curve, else "value"; "": no label); x_range, y_range ({low,
--   high}); x_log, y_log (false); split (false; true: curves with values of different size get
--   separate panels); ends (false; true: each curve's last value is written beside it); width (720)
--   and height (306 for each panel), pixels
-- @treturn Drawing
function plot.plot(...)
  local a = PLOT(...)
  check_log(a.x_log, a.x_range, "x_range")
  check_log(a.y_log, a.y_range, "y_range")
  local curves = make_curves(a.series, "viz.plot")
  for i, curve in ipairs(curves) do
    curve.colour = chart.colour(i)
  end
  label_axes(a, curves)
  a.panels = a.split and #curves > 0 and make_panels(curves) or { curves }
  return drawing(a, ("%d curve%s"):format(#curves, #curves == 1 and "" or "s"),
    #a.panels * HEIGHT)
end


-- Histograms --------------------------------------------------------------------------------------

-- Returns the lowest and the highest finite value, which differ.
local function bounds(list)
  local low, high = math.huge, -math.huge
  for _, value in ipairs(list) do
    if math.abs(value) < math.huge then
      low, high = math.min(low, value), math.max(high, value)
    end
  end
  if low > high then
    return 0, 1
  elseif low == high then
    return low - 0.5, high + 0.5
  end
  return low, high
end


-- Returns the number of values in each bin, and the edges of the bins.
local function counted(list, bins, low, high)
  local counts, edges = {}, {}
  for i = 1, bins + 1 do
    counts[i], edges[i] = 0, low + (i - 1) * (high - low) / bins
  end
  for _, value in ipairs(list) do
    if value >= low and value <= high then
      local bin = math.min(bins, math.floor((value - low) / (high - low) * bins) + 1)
      counts[bin] = counts[bin] + 1
    end
  end
  counts[bins + 1] = nil
  return counts, edges
end


-- Returns the numbers of a list, of an array, or of a list of these.
local function all_numbers(given, argument)
  if class.is_array(given) or type(given[1]) ~= "table" then
    return numbers(given, "viz.histogram", argument)
  end
  local all = {}
  for i, part in ipairs(given) do
    for _, value in ipairs(all_numbers(part, ("%s[%d]"):format(argument, i))) do
      all[#all + 1] = value
    end
  end
  return all
end


local HISTOGRAM = args.form("viz.histogram", { list = true,
  { "values", "array|table" }, "*", { "bins", "positive?" }, { "range", "range?" },
  { "title", "text?" }, { "x_label", "text", "value" }, { "y_label", "text", "count" },
  { "y_log", "boolean", false }, { "width", "pixels", WIDTH }, { "height", "pixels", HEIGHT },
})

local MOST_BINS = 60

--- Returns a chart of the distribution of values, as bars. NaN and infinities are left out.
--
--     ty.viz.histogram(mod:get_params().fc1_weight, { bins = 40, title = "fc1_weight" })
--
-- @param values an array of any shape, a list of numbers, or a list of these
-- @tparam[opt] table options bins (default: the square root of the number of values, at most 60),
--   range ({low, high}: other values are left out), title, x_label ("value"), y_label ("count"; "":
--   no label), y_log (false), width (720), height (306)
-- @treturn Drawing
function plot.histogram(...)
  local a = HISTOGRAM(...)
  local list = all_numbers(a.values, "values")
  local low, high = bounds(list)
  if a.range then
    low, high = a.range[1], a.range[2]
  end
  local bins = a.bins or math.max(1, math.min(MOST_BINS, math.ceil(math.sqrt(#list))))
  local counts, edges = counted(list, bins, low, high)
  a.x_label, a.y_label = a.x_label ~= "" and a.x_label or nil, a.y_label ~= "" and a.y_label or nil
  a.panels = { { { x = edges, y = counts, style = "bars", colour = chart.colour(1) } } }
  return drawing(a, ("histogram of %d values"):format(#list))
end


return plot
