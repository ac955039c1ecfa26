--- Shows drawings in a terminal (part of `ty.viz`).
--
-- @module tycho.viz.show

local args = require "tycho.core.args"
local cells = require "tycho.viz.cells"
local Class = require "tycho.core.class"
local class = require "tycho.ndarray.class"
local Drawing = require "tycho.viz.drawing"
local Error = require "tycho.core.error"
local grid = require "tycho.viz.grid"
local native = require "tycho.core.ffi"
local raster = require "tycho.viz.raster"
local sixel = require "tycho.viz.sixel"

local show = {}

local WIDE, HIGH = 8, 16                                 -- pixels of a character, as in cells
local LINES = 18                                         -- of a chart, at most
local MOST = 110                                         -- columns


-- The terminal ----------------------------------------------------------------------------------

--- Returns whether a terminal shows sixels, by its answer to the request for its attributes:
-- attribute 4 means sixels.
function show.knows_sixels(answer)
  local list = (answer or ""):match("\27%[%?([%d;]*)c")
  return list ~= nil and (";" .. list .. ";"):find(";4;", 1, true) ~= nil
end


local function read_line(command)
  local pipe = io.popen(command)
  local line = pipe and pipe:read("*l")
  if pipe then
    pipe:close()
  end
  return line
end


-- Asks the terminal for its attributes; waits at most 0.2 seconds for each letter of the answer.
local function ask_attributes()
  local settings = read_line("stty -g </dev/tty 2>/dev/null")
  local to, from = io.open("/dev/tty", "w"), io.open("/dev/tty", "r")
  local answer = ""
  if settings and to and from then
    os.execute("stty -icanon -echo min 0 time 2 </dev/tty")
    to:write("\27[c")
    to:flush()
    repeat
      local letter = from:read(1)
      answer = answer .. (letter or "")
    until not letter or letter == "c"
    os.execute("stty " .. settings .. " </dev/tty")
  end
  for _, file in ipairs{ to or nil, from or nil } do
    file:close()
  end
  return answer
end


local is_sixel                                           -- nil: not asked yet

local function on_terminal()
  return io.output() == io.stdout and native.is_terminal(1)
end


-- Returns "sixel" if standard output is a terminal that shows sixels, else "blocks".
local function best_mode()
  if is_sixel == nil and on_terminal() then
    is_sixel = show.knows_sixels(ask_attributes())
  end
  return on_terminal() and is_sixel and "sixel" or "blocks"
end


local function best_colours()
  if not on_terminal() or os.getenv("NO_COLOR") or os.getenv("TERM") == "dumb" then
    return "none"
  end
  local depth = os.getenv("COLORTERM") or ""
  return (depth == "truecolor" or depth == "24bit") and "true" or "256"
end


-- show ------------------------------------------------------------------------------------------

local WRITERS = {
  sixel = function(drawing, a)
    local width = a.width and a.width * WIDE or drawing.width
    local height = a.height and a.height * HIGH or drawing.height
    return sixel.encode(drawing:painted(raster.new, width, height)) .. "\n"
  end,
  blocks = function(drawing, a)
    local columns, lines = native.terminal_size(1)
    local panels = math.max(1, math.floor(drawing.height / 300))
    local width = a.width or math.min(MOST, (columns or 80) - 1)
    local height = a.height or math.min(LINES, math.max(10, (lines or 24) - 2)) * panels
    local colours = a.colours == "auto" and best_colours() or a.colours
    return drawing:painted(cells.new, width * WIDE, height * HIGH):done(colours)
  end,
}

local SHOW = args.form("viz.show", {
  { "drawing", "any" }, "*", { "mode", { "auto", "sixel", "blocks" }, "auto" },
  { "width", "positive?" }, { "height", "positive?" },
  { "colours", { "auto", "none", "256", "true" }, "auto" },
})

--- Shows a drawing or images in the terminal: as pixels if it supports sixels, else as characters.
-- Output to a file or a pipe is characters without colours.
--
--     ty.viz.show(ty.viz.plot{ losses, title = "loss" })
--     ty.viz.show(batch.data[1])
--
-- @param drawing a result of `plot`, `histogram` or `image_grid`, or images for `image_grid`
-- @tparam[opt] table options mode ("auto", "sixel" or "blocks"); width and height in columns and
--   lines (default: those of the terminal, at most 110, and 18 for each panel); colours ("auto",
--   "none", "256" or "true")
function show.show(...)
  local a = SHOW(...)
  local drawing = a.drawing
  if class.is_array(drawing) or type(drawing) == "table" and class.is_array(drawing[1]) then
    drawing = grid.image_grid(drawing)
  elseif not Class.is_a(drawing, Drawing) then
    Error.raise{ code = "type", func = "viz.show", argument = "drawing",
      expected = "what viz.plot, histogram or image_grid returns, or images",
      got = Error.kind(drawing), message = "bad 'drawing'" }
  end
  io.write(WRITERS[a.mode == "auto" and best_mode() or a.mode](drawing, a))
end


return show
