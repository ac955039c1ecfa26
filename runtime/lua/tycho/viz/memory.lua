--- A drawing of the memory plan of an executor.
--
-- Time runs from left to right, one column for each instruction, and offsets in the pool upwards. A
-- box is a value, from the instruction that makes it to the last one that reads it. Each device has
-- a separate panel. The line above the boxes shows the number of live bytes; its maximum is a lower
-- bound of any plan.
--
-- @module tycho.viz.memory

local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local svg = require "tycho.viz.svg"

local viz_memory = {}

local Picture = Class:extend("Picture")

local MIB = 1024 * 1024
-- pixels around the panels and between them
local LEFT, RIGHT, TOP, BOTTOM, BETWEEN = 76, 24, 84, 48, 40
local FACE = 10

-- Kinds in order of the legend
local KINDS = {
  { name = "output", colour = "#fdb462" },
  { name = "kept for backward", colour = "#80b1d3" },
  { name = "forward only", colour = "#8dd3c7" },
  { name = "backward", colour = "#fb8072" },
  { name = "scratch", colour = "#d9d9d9" },
}
local COLOUR = {}
for _, kind in ipairs(KINDS) do
  COLOUR[kind.name] = kind.colour
end


-- Contents ----------------------------------------------------------------------------------------

-- Returns the number of the first backward instruction; one past the last if there is none.
local function boundary(list)
  local first = math.huge
  for _, v in ipairs(list) do
    if v.op and v.op:sub(1, 10) == "_backward_" then
      first = math.min(first, v.first)
    end
  end
  return first
end


-- Returns the kind of a value for its colour; `turn` is the first backward instruction.
local function kind_of(v, outputs, turn)
  if v.name == v.node .. "_scratch" then
    return "scratch"
  elseif outputs[v.name] then
    return "output"
  elseif v.first >= turn then
    return "backward"
  end
  return v.last >= turn and "kept for backward" or "forward only"
end


local function name_set(list)
  local set = {}
  for _, name in ipairs(list) do
    set[name] = true
  end
  return set
end


-- Returns a key of a value's memory; an alias has the offset and lifetime of the value whose
-- storage it shares.
local function range_of(v)
  return table.concat({ v.device, v.offset, v.first, v.last }, " ")
end


-- Returns the values that have their own storage. If an alias is an output, its storage counts as
-- an output.
local function list_blocks(exe, memory)
  local outputs, turn, list, own = name_set(exe._symbol:list_outputs()),
    boundary(memory.values), {}, {}
  for _, v in ipairs(memory.values) do
    if not v.alias_of and v.bytes > 0 then
      local block = { name = v.name, bytes = v.bytes, offset = v.offset, first = v.first,
        last = v.last, device = v.device, kind = kind_of(v, outputs, turn) }
      list[#list + 1], own[range_of(v)] = block, block
    end
  end
  for _, v in ipairs(memory.values) do
    local block = v.alias_of and outputs[v.name] and own[range_of(v)]
    if block then
      block.kind = "output"
    end
  end
  return list, turn
end


-- Returns the number of instructions. Outputs live beyond the last one; their lifetime is cut
-- there.
local function count_steps(blocks)
  local steps = 1
  for _, b in ipairs(blocks) do
    steps = math.max(steps, b.first + 1, b.kind ~= "output" and b.last + 1 or 0)
  end
  for _, b in ipairs(blocks) do
    b.last = math.min(b.last, steps - 1)
  end
  return steps
end


local function by_device(blocks)
  local lists, devices = {}, {}
  for _, b in ipairs(blocks) do
    if not lists[b.device] then
      lists[b.device], devices[#devices + 1] = {}, b.device
    end
    table.insert(lists[b.device], b)
  end
  table.sort(devices)
  return lists, devices
end


-- Returns the number of live bytes at each instruction, from 0.
local function live_bytes(blocks, steps)
  local change, live, sum = {}, {}, 0
  for _, b in ipairs(blocks) do
    change[b.first] = (change[b.first] or 0) + b.bytes
    change[b.last + 1] = (change[b.last + 1] or 0) - b.bytes
  end
  for t = 0, steps - 1 do
    sum = sum + (change[t] or 0)
    live[t] = sum
  end
  return live
end


-- Scales ------------------------------------------------------------------------------------------

-- Returns a round distance of ticks, 1, 2 or 5 times a power of ten, for at most `count` intervals.
local function tick_step(range, count)
  local power = 10 ^ math.floor(math.log10(range / count))
  for _, factor in ipairs{ 1, 2, 5, 10 } do
    if range / (factor * power) <= count then
      return factor * power
    end
  end
end


local function mib_text(bytes)
  local mib = bytes / MIB
  return mib >= 100 and ("%.0f"):format(mib) or mib >= 1 and ("%.1f"):format(mib)
    or ("%.3g"):format(mib)
end


-- Sets the scales of a panel: `x` of an instruction, `y` of an offset, in pixels.
local function scales(panel, steps)
  panel.x = function(t) return LEFT + t * panel.width / steps end
  panel.y = function(bytes) return panel.top + panel.height - bytes * panel.height / panel.bytes end
end


-- Drawing -----------------------------------------------------------------------------------------

local function draw_axes(page, panel, steps)
  local grid, text =
    { stroke = "#e4e8ec" }, { fill = "#555f6b", ["font-size"] = FACE, ["text-anchor"] = "end" }
  local step = tick_step(panel.bytes / MIB, 6)
  for k = 0, math.floor(panel.bytes / MIB / step + 1e-9) do
    local y = panel.y(k * step * MIB)
    page:put("line", { x1 = LEFT, x2 = LEFT + panel.width, y1 = y, y2 = y, stroke = grid.stroke })
    page:text(LEFT - 6, y + 3.5, ("%.4g"):format(k * step), text)
  end
  text["text-anchor"] = "middle"
  local every = math.max(1, tick_step(steps, 12))
  for t = 0, steps - 1, every do
    page:text((panel.x(t) + panel.x(t + 1)) / 2,
      panel.top + panel.height + 14, ("%d"):format(t), text)
  end
  page:text(0, 0, panel.device .. ", MiB", { fill = "#555f6b", ["text-anchor"] = "middle",
    transform = ("translate(%d %d) rotate(-90)"):format(LEFT - 50, panel.top + panel.height / 2) })
end


local function block_tip(b)
  return ("%s: %s MiB (%d bytes) at offset %d, instructions %d to %d, %s"):format(b.name,
    mib_text(b.bytes), b.bytes, b.offset, b.first, b.last, b.kind)
end


local function box_of(panel, b)
  local x, y = panel.x(b.first), panel.y(b.offset + b.bytes)
  return x, y, panel.x(b.last + 1) - x, panel.y(b.offset) - y
end


local function draw_blocks(page, panel)
  for _, b in ipairs(panel.blocks) do
    local x, y, width, height = box_of(panel, b)
    page:put("rect", { x = x, y = y, width = width, height = height, fill = COLOUR[b.kind],
      stroke = "#ffffff", ["stroke-width"] = math.min(1, height / 4) }, block_tip(b))
  end
end


-- Draws names and sizes of values whose boxes are large enough.
local function draw_labels(page, panel)
  local dict = { ["font-size"] = FACE, fill = "#1d242b", ["pointer-events"] = "none" }
  for _, b in ipairs(panel.blocks) do
    local x, y, width, height = box_of(panel, b)
    local long = ("%s  %s MiB"):format(b.name, mib_text(b.bytes))
    local text = svg.text_width(long, FACE) + 12 <= width and long or b.name
    if height >= FACE + 2 and svg.text_width(text, FACE) + 12 <= width then
      page:text(x + 6, y + height / 2 + 3.5, text, dict)
    end
  end
end


local function draw_live(page, panel, steps)
  local live, parts = live_bytes(panel.blocks, steps), {}
  for t = 0, steps - 1 do
    local y = svg.number(panel.y(live[t]))
    parts[#parts + 1] = ("%s%s %sH%s"):format(t == 0 and "M" or "L", svg.number(panel.x(t)), y,
      svg.number(panel.x(t + 1)))
  end
  page:put("path", { d = table.concat(parts), fill = "none", stroke = "#1d242b",
    ["stroke-width"] = 1.2 }, "live bytes")
end


local function draw_turn(page, panel, turn, steps)
  if turn <= 0 or turn >= steps then
    return
  end
  local x = panel.x(turn)
  page:put("line", { x1 = x, x2 = x, y1 = panel.top - 6, y2 = panel.top + panel.height,
    stroke = "#4a5560", ["stroke-dasharray"] = "4 3" })
  page:text(x - 6, panel.top - 6, "forward",
    { ["text-anchor"] = "end", ["font-size"] = FACE, fill = "#555f6b" })
  page:text(x + 6, panel.top - 6, "backward", { ["font-size"] = FACE, fill = "#555f6b" })
end


local function draw_legend(page, blocks, y)
  local used, x = {}, LEFT
  for _, b in ipairs(blocks) do
    used[b.kind] = true
  end
  for _, kind in ipairs(KINDS) do
    if used[kind.name] then
      page:put("rect", { x = x, y = y - 10, width = 12, height = 12, rx = 2, fill = kind.colour })
      page:text(x + 18, y, kind.name, { fill = "#1d242b" })
      x = x + 36 + svg.text_width(kind.name, 12)
    end
  end
  page:put("line",
    { x1 = x, x2 = x + 16, y1 = y - 4, y2 = y - 4, stroke = "#1d242b", ["stroke-width"] = 1.2 })
  page:text(x + 22, y, "live bytes", { fill = "#1d242b" })
end


local function headline(memory)
  return ("planned %s MiB, lower bound %s MiB (ratio %.3f), without sharing %s MiB"):format(
    mib_text(memory.planned), mib_text(memory.lower_bound), memory.ratio, mib_text(memory.unshared))
end


-- Returns the panels, which share the height but are at least 60 pixels high, and the total height.
local function make_panels(blocks, memory, width, height, steps)
  local list, top, lists, devices = {}, TOP, by_device(blocks)
  local left = height - TOP - BOTTOM - BETWEEN * (#devices - 1)
  for i, device in ipairs(devices) do
    local bytes = memory.devices[device]
    list[i] = { device = device, blocks = lists[device], bytes = bytes,
      width = width - LEFT - RIGHT, top = top, height = math.max(60, left / #devices) }
    scales(list[i], steps)
    top = top + list[i].height + BETWEEN
  end
  return list, top - BETWEEN + BOTTOM
end


local function draw(exe, title, width, height)
  local memory = exe:memory()
  local blocks, turn = list_blocks(exe, memory)
  local steps = count_steps(blocks)
  local panels, full = make_panels(blocks, memory, width, height, steps)
  local page = svg.page(width, math.max(height, full))
  page:text(LEFT, 26, title, { ["font-size"] = 16, ["font-weight"] = "bold", fill = "#1d242b" })
  page:text(LEFT, 44, headline(memory), { fill = "#555f6b" })
  if not panels[1] then
    page:text(LEFT, TOP + 20, "nothing is planned: every value is a bound array",
      { fill = "#555f6b" })
    return page:done()
  end
  draw_legend(page, blocks, 64)
  for _, panel in ipairs(panels) do
    draw_axes(page, panel, steps)
    draw_blocks(page, panel)
    draw_turn(page, panel, turn, steps)
    draw_live(page, panel, steps)
    draw_labels(page, panel)
  end
  page:text(LEFT + panels[1].width / 2, panels[#panels].top + panels[#panels].height + 34,
    "instruction", { ["text-anchor"] = "middle", fill = "#555f6b" })
  return page:done()
end


-- The picture -------------------------------------------------------------------------------------

function Picture:init(text)
  self.text = text
end


--- Returns the SVG text.
function Picture:svg()
  return self.text
end


--- Writes the picture to a file.
-- @string path
function Picture:save(path)
  if type(path) ~= "string" then
    Error.raise{ code = "type", func = "Picture:save", argument = "path",
      expected = "a file name such as \"memory.svg\"",
      got = Error.kind(path), message = "bad 'path'" }
  end
  files.write(path, self.text, "Picture:save")
  return path
end


local function is_executor(v)
  local loaded = package.loaded["tycho.executor.executor"]
  return loaded ~= nil and Class.is_a(v, loaded.Executor), v,
    "an Executor, for instance from sym:simple_bind{...}"
end


local function extent(v)
  return type(v) == "number" and v >= 200 and v <= 20000, v, "200 to 20000 pixels",
    type(v) == "number" and "value" or "type"
end


local PLOT = args.form("viz.plot_memory", {
  { "exe", is_executor }, "*", { "title", "text", "Memory plan" }, { "width", extent, 1000 },
  { "height", extent, 560 },
})

--- Draws the memory plan of an executor, which may be bound with `dry_run`.
-- @tparam Executor exe
-- @tparam[opt] table options title, width and height (pixels)
-- @treturn Picture `:svg()` returns the text, `:save(path)` writes it
function viz_memory.plot(...)
  local a = PLOT(...)
  return Picture(draw(a.exe, a.title, a.width, a.height))
end


return viz_memory
