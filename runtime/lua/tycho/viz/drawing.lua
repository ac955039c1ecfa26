--- A drawing that can be painted on any canvas: SVG, pixels, or a terminal's characters.
--
-- `paint(canvas, width, height)` draws it in that size. It may return the width and the height that
-- it needs; if these are larger, it is painted again on a canvas of that size.
--
-- @module tycho.viz.drawing

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local codec = require "tycho.ndarray.image_codec"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local raster = require "tycho.viz.raster"
local svg_canvas = require "tycho.viz.svg_canvas"
local values = require "tycho.core.values"

-- Options of drawings.
args.types.range = { text = "{low, high}", check = function(v)
  local ok = values.is_plain(v) and #v == 2 and type(v[1]) == "number" and type(v[2]) == "number"
  return ok and v[1] < v[2], v, nil, ok and "value" or "type"
end }
args.types.pixels = { text = "pixels, 100 to 10000", check = function(v)
  local ok = type(v) == "number"
  return ok and v >= 100 and v <= 10000, v, nil, ok and "value" or "type"
end }

local Drawing = Class:extend("Drawing")


--- Initializes a drawing; `ty.viz.plot`, `ty.viz.histogram` and `ty.viz.image_grid` make drawings.
-- @tparam table parts what (a name), width, height (pixels), paint (see above)
function Drawing:init(parts)
  self.what, self.width, self.height, self.paint =
    parts.what, parts.width, parts.height, parts.paint
end


function Drawing.__tostring(self)
  return ("<Drawing: %s, %d x %d>"):format(self.what, self.width, self.height)
end


-- Paints on a canvas that is large enough and returns it; `new(width, height)` makes a canvas.
function Drawing:painted(new, width, height)
  local canvas = new(width, height)
  local wide, high = self.paint(canvas, width, height)
  wide, high = math.ceil(math.max(wide or 0, width)), math.ceil(math.max(high or 0, height))
  if wide > width or high > height then
    canvas = new(wide, high)
    self.paint(canvas, wide, high)
  end
  return canvas
end


--- Returns the drawing as SVG.
-- @treturn string
function Drawing:svg()
  return self:painted(svg_canvas.new, self.width, self.height):done()
end


local SCALE = { "scale", "number", 1 }

local function check_scale(scale, func)
  if not (scale > 0 and scale <= 16) then
    Error.raise{ code = "value", func = func, argument = "scale",
      expected = "a number above 0, at most 16", got = scale, message = "bad 'scale'" }
  end
end


local PIXELS = args.form("Drawing:pixels", { "*", SCALE })

--- Returns the drawing as an array of pixels.
-- @tparam[opt] table options scale (pixels per unit of width and height, 1)
-- @treturn NDArray (height, width, 3) uint8
function Drawing:pixels(...)
  local a = PIXELS(...)
  check_scale(a.scale, "Drawing:pixels")
  return self:painted(function(width, height)
    return raster.new(width, height, a.scale)
  end, self.width, self.height):array()
end


local WRITERS = {
  svg = function(drawing) return drawing:svg() end,
  png = function(drawing, scale)
    return codec.encode(drawing:pixels{ scale = scale }, nil, "png", "Drawing:save")
  end,
}

local SAVE = args.form("Drawing:save", { { "path", "path" }, "*", SCALE })

--- Writes the drawing to a file that ends in `.svg` or `.png`.
-- @string path
-- @tparam[opt] table options scale (of PNG: pixels per unit of width and height, 1)
-- @treturn string the path
function Drawing:save(...)
  local a = SAVE(...)
  check_scale(a.scale, "Drawing:save")
  local ending = (a.path:match("%.([^./]+)$") or ""):lower()
  if not WRITERS[ending] then
    Error.raise{ code = "value", func = "Drawing:save", argument = a.path,
      expected = "a name that ends in .svg or .png", got = ending ~= "" and "." .. ending
        or "no ending", message = "there is no such format of drawings" }
  end
  files.write(a.path, WRITERS[ending](self, a.scale), "Drawing:save")
  return a.path
end


return Drawing
