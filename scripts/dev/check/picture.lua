-- Draws both houses as SVG: rooms as boxes on their floors, arrows from a room to the rooms that it
-- knows. Arrows that follow from others are left out. An arrow that leads up is red; there should
-- be none.
--
-- An arrow leads straight down if no box is in its way. Otherwise, to the next floor, it uses a
-- line that all such arrows to one room share; to lower floors it goes around the house on the
-- left.

local rooms = require "check.rooms"

local WIDTH, HOUSE, WALL = 1200, 522, 44 -- of all, of a house, of tycho.h
local BOX, STOREY, TOP = 46, 70, 56      -- heights: box, floor, above the roof
local MARGIN, GAP, HEAD = 30, 10, 7      -- around, between boxes, of arrow heads
local LANE = 10                          -- between shared lines
local TWELFTH = HOUSE / 12

local picture = {}

-- -- what is known --------------------------------------------------------------------------------

-- Returns known[a][b]: room a knows room b. The library itself is known through tycho.h only.
local function known_rooms(arrows)
  local known = {}
  for _, arrow in ipairs(arrows) do
    local from, to = rooms.of(arrow.file), rooms.of(arrow.target)
    local is_own = to == rooms.interface and arrow.file:find("^native/")
    if from and to and from ~= to and not is_own then
      known[from] = known[from] or {}
      known[from][to] = true
    end
  end
  return known
end

local function is_up(from, to)
  return from.house == to.house and to.floor >= from.floor
end

-- Returns whether `from` knows `to` through a third room.
local function follows(known, from, to)
  local function reaches(room)
    for next in pairs(known[room] or {}) do
      if not is_up(room, next) and (next == to or reaches(next)) then
        return true
      end
    end
  end
  for between in pairs(known[from]) do
    if between ~= to and not is_up(from, between) and reaches(between) then
      return true
    end
  end
end

-- Returns the arrows to draw, in the order of the floors: list of { from =, to = }.
local function drawn_arrows(known)
  local list = {}
  rooms.each(function(from)
    local function add(to)
      if (known[from] or {})[to] and (is_up(from, to) or not follows(known, from, to)) then
        list[#list + 1] = { from = from, to = to }
      end
    end
    rooms.each(add)
    add(rooms.interface)
  end)
  return list
end

-- -- ways -----------------------------------------------------------------------------------------

local function place_sideways()
  for i, house in ipairs(rooms.houses) do
    house.x = i == 1 and MARGIN or WIDTH - MARGIN - HOUSE
  end
  rooms.each(function(room)
    local at = room.at or { 0, 12 }
    room.left = room.house.x + at[1] * TWELFTH + GAP / 2
    room.right = room.house.x + (at[1] + at[2]) * TWELFTH - GAP / 2
  end)
  rooms.interface.left = (WIDTH - WALL) / 2
  rooms.interface.right = rooms.interface.left + WALL
end

local function rooms_between(from, to)
  local list = {}
  rooms.each(function(room)
    if room.house == from.house and room.floor < from.floor and room.floor > to.floor then
      list[#list + 1] = room
    end
  end)
  return list
end

-- Returns the middle of the widest straight way down without a box; nil if there is none.
local function free_way(from, to)
  local left, right = math.max(from.left, to.left), math.min(from.right, to.right)
  local between, starts = rooms_between(from, to), { left }
  for _, room in ipairs(between) do
    starts[#starts + 1] = room.right + GAP / 2
  end
  local best, width = nil, 2 * HEAD
  for _, start in ipairs(starts) do
    local stop = right
    for _, room in ipairs(between) do
      if room.right > start and room.left < stop then
        stop = room.left - GAP / 2
      end
    end
    if start >= left and stop - start > width then
      best, width = (start + stop) / 2, stop - start
    end
  end
  return best
end

-- Gives each arrow `x`, its way straight down, or gives the room that it leads to a `lane`, the
-- number of the line that such arrows share, counted from the floor above. lanes[house][floor] is
-- the number of lines below each floor.
local function find_ways(arrows)
  local lanes = { [rooms.lua] = {}, [rooms.native] = {} }
  for _, arrow in ipairs(arrows) do
    local from, to = arrow.from, arrow.to
    if from.house == to.house and not is_up(from, to) then
      arrow.x = free_way(from, to)
      if not arrow.x and from.floor == to.floor + 1 then
        local count = lanes[from.house]
        if not to.lane then
          count[from.floor] = (count[from.floor] or 0) + 1
          to.lane = count[from.floor]
        end
      end
    end
  end
  return lanes
end

-- Returns the place at a room's edge where a shared line begins or ends: farthest from its other
-- arrows.
local function free_end(arrows, side, room)
  local best, width = nil, -1
  for x = room.left + GAP, room.right - GAP do
    local nearest = math.min(x - room.left, room.right - x)
    for _, arrow in ipairs(arrows) do
      if arrow[side] == room and arrow.x then
        nearest = math.min(nearest, math.abs(arrow.x - x))
      end
    end
    if nearest > width then
      best, width = x, nearest
    end
  end
  return best
end

local function find_ends(arrows)
  for _, arrow in ipairs(arrows) do
    local from, to = arrow.from, arrow.to
    arrow.shares = to.lane and not arrow.x and from.floor == to.floor + 1
    if arrow.shares then
      arrow.start = free_end(arrows, "from", from)
      arrow.stop = free_end(arrows, "to", to)
    end
  end
end

-- Sets the heights of the floors, from the ground up; returns the height of the ground.
local function place_upright(lanes)
  local height = 0
  for _, house in ipairs(rooms.houses) do
    local y = 0
    for floor in ipairs(house) do
      y = y + (floor > 1 and (lanes[house][floor] or 0) * LANE or 0)
      house[floor].up = y + (floor - 1) * STOREY
    end
    height = math.max(height, house[#house].up + BOX)
  end
  local ground = TOP + height
  rooms.each(function(room)
    room.bottom = ground - room.house[room.floor].up
    room.top = room.bottom - BOX
  end)
  local wall = rooms.interface
  wall.top, wall.bottom = ground - rooms.native[#rooms.native].up - BOX, ground
  return ground
end

-- -- drawing --------------------------------------------------------------------------------------

local function path(kind, ...)
  local text = ("M%.0f %.0f"):format(...)
  for i = 3, select("#", ...), 2 do
    text = text .. (" L%.0f %.0f"):format(select(i, ...))
  end
  return ('  <path class="%s" d="%s"/>'):format(kind, text)
end

local function to_interface(from, to)
  local y = (from.top + from.bottom) / 2
  if from.right < to.left then
    return path("arrow", from.right, y, to.left - HEAD, y)
  end
  return path("arrow", from.left, y, to.right + HEAD, y)
end

-- Returns the line of an arrow: down to the shared line, along it, and down to the room.
local function along_lane(from, to, start, stop)
  local y = from.bottom + to.lane * LANE
  local turn = ('  <circle class="turn" cx="%.0f" cy="%.0f" r="2.5"/>'):format(start, y)
  return path("arrow", start, from.bottom, start, y, stop, y, stop, to.top - HEAD) .. "\n" .. turn
end

local function around(from, to)
  local x = from.house.x - GAP
  local y, y_to = (from.top + from.bottom) / 2, (to.top + to.bottom) / 2
  return path("arrow", from.left, y, x, y, x, y_to, to.left - HEAD, y_to)
end

local function draw_arrow(arrow)
  local from, to = arrow.from, arrow.to
  if to == rooms.interface then
    return to_interface(from, to)
  elseif is_up(from, to) then
    return path("up", from.left + 20, from.top, to.left + 40, to.bottom + HEAD)
  elseif arrow.x then
    return path("arrow", arrow.x, from.bottom, arrow.x, to.top - HEAD)
  elseif arrow.shares then
    return along_lane(from, to, arrow.start, arrow.stop)
  end
  return around(from, to)
end

local function draw_room(room)
  local x, width = room.left, room.right - room.left
  local middle = x + width / 2
  return ([[
  <rect class="room" x="%.0f" y="%.0f" width="%.0f" height="%d" rx="5"/>
  <text class="name" x="%.0f" y="%.0f">%s</text>
  <text class="is" x="%.0f" y="%.0f">%s</text>]]):format(x, room.top, width, BOX,
    middle, room.top + 20, room.name, middle, room.top + 37, room.is)
end

local function draw_interface()
  local room = rooms.interface
  local x, y = (room.left + room.right) / 2, (room.top + room.bottom) / 2
  return ([[
  <rect class="wall" x="%.0f" y="%.0f" width="%d" height="%.0f" rx="5"/>
  <g transform="translate(%.0f %.0f) rotate(-90)">
    <text class="name" x="0" y="-3">%s</text>
    <text class="is" x="0" y="14">%s</text>
  </g>]]):format(room.left, room.top, WALL, room.bottom - room.top, x, y, room.name, room.is)
end

local HEADER = [[
<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"
  viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif">
  <title>The rooms of Tycho: each knows only what is below</title>
  <style>
    .paper { fill: #fdfcf9 } .ground { stroke: #8a8577; stroke-width: 2 }
    .room { fill: #eef3f7; stroke: #7d93a6 } .wall { fill: #f6ecd9; stroke: #b59a68 }
    .title { font-size: 16px; fill: #555; text-anchor: middle }
    .name { font-size: 14px; font-weight: bold; fill: #1d2b36; text-anchor: middle }
    .is { font-size: 11.5px; fill: #4c5a65; text-anchor: middle }
    .arrow { fill: none; stroke: #6b7a86; stroke-width: 1.4; marker-end: url(#head) }
    .turn { fill: #6b7a86 }
    .up { fill: none; stroke: #c0392b; stroke-width: 2; marker-end: url(#up) }
  </style>
  <defs>
    <marker id="head" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="8" markerHeight="8"
      orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8" fill="#6b7a86"/></marker>
    <marker id="up" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="8" markerHeight="8"
      orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0 L8 4 L0 8" fill="#c0392b"/></marker>
  </defs>
  <rect class="paper" width="%d" height="%d"/>]]

-- Returns the text of the picture for the arrows of both houses.
function picture.svg(arrows)
  local drawn = drawn_arrows(known_rooms(arrows))
  place_sideways()
  local ground = place_upright(find_ways(drawn))
  find_ends(drawn)
  local height = ground + MARGIN
  local lines = {
    HEADER:format(WIDTH, height, WIDTH, height, WIDTH, height),
    path("ground", MARGIN, ground + 5, WIDTH - MARGIN, ground + 5),
  }
  for _, house in ipairs(rooms.houses) do
    local title = '  <text class="title" x="%.0f" y="32">%s</text>'
    lines[#lines + 1] = title:format(house.x + HOUSE / 2, house.title)
  end
  for _, arrow in ipairs(drawn) do
    lines[#lines + 1] = draw_arrow(arrow)
  end
  rooms.each(function(room)
    lines[#lines + 1] = draw_room(room)
  end)
  lines[#lines + 1] = draw_interface()
  return table.concat(lines, "\n") .. "\n</svg>\n"
end

return picture
