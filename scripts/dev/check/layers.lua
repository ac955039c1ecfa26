-- Finds forbidden arrows: those that lead up or sideways, those that use a private header, and
-- circles.

local graph = require "check.graph"
local rooms = require "check.rooms"

local ROOMS = "scripts/dev/check/rooms.lua"

local layers = {}

local VERB = { include = "includes", call = "uses", require = "requires" }

local REMEDY = {
  include = "include something lower, or move what is needed down",
  call = "move what is used down, or let the upper room hand it in (a registration, a callback)",
  require = "move what is needed down, or let the upper room register itself below",
}

-- -- arrows ---------------------------------------------------------------------------------------

-- Returns the objection to an arrow from one room to another; nil if it is allowed.
local function objection(from, to)
  if from.house ~= to.house then
    return "knows tycho.h only, not"
  elseif to.floor > from.floor then
    return "is below"
  elseif to.floor == from.floor then
    return "is beside"
  elseif from.only and not from.only[to.name] then
    return "is not to know"
  end
end

local function report_direction(report, arrow, from, to, why)
  local user = arrow.by and arrow.by .. " " or ""
  local owner = arrow.kind == "call" and " of " .. arrow.target or ""
  report(arrow.file, graph.line(arrow), "%s%s %s%s, but room %s %s %s: %s", user, VERB[arrow.kind],
    arrow.what, owner, from.name, why, to.name, REMEDY[arrow.kind])
end

local function is_public(room, path)
  for _, header in ipairs(room.public) do
    if path == room.path .. header then
      return true
    end
  end
end

local function report_private(report, arrow, from, to)
  report(arrow.file, arrow.line, "room %s includes %s, which is private to room %s: include one of "
    .. "its public headers (%s), or add it to them in %s", from.name, arrow.what, to.name,
    table.concat(to.public, ", "), ROOMS)
end

local function check_arrow(report, arrow)
  local from, to = rooms.of(arrow.file), rooms.of(arrow.target)
  if not from or not to or from == to or to == rooms.interface then
    return
  end
  local why = objection(from, to)
  if why then
    report_direction(report, arrow, from, to, why)
  elseif arrow.kind == "include" and not is_public(to, arrow.target) then
    report_private(report, arrow, from, to)
  end
end

-- -- circles --------------------------------------------------------------------------------------

local function check_circles(report, arrows, what, name_of)
  for _, circle in ipairs(graph.circles(arrows, name_of)) do
    local parts = {}
    for i, arrow in ipairs(circle) do
      parts[i] = ("%s -> %s (%s:%d %s %s)"):format(name_of(arrow.file), name_of(arrow.target),
        arrow.file, graph.line(arrow), VERB[arrow.kind], arrow.what)
    end
    report(circle[1].file, graph.line(circle[1]), "a circle of %s: %s; one of these must go", what,
      table.concat(parts, ", "))
  end
end

local function room_name(path)
  local room = rooms.of(path)
  return room and room.house and room.name
end

local function itself(path)
  return path
end

-- -- all ------------------------------------------------------------------------------------------

-- Reports forbidden arrows of one house. Files may not include or require each other in a circle,
-- nor call each other in a circle within a room.
function layers.check(report, arrows)
  local files, calls = {}, {}
  for _, arrow in ipairs(arrows) do
    check_arrow(report, arrow)
    local room = rooms.of(arrow.file)
    if arrow.kind ~= "call" then
      files[#files + 1] = arrow
    elseif room and room == rooms.of(arrow.target) then
      calls[#calls + 1] = arrow
    end
  end
  check_circles(report, arrows, "rooms", room_name)
  check_circles(report, files, "files", itself)
  check_circles(report, calls, "calls", itself)
end

-- Checks that every file is in a room, that every room has a file, and that every public header
-- exists.
function layers.check_places(report, files)
  local used, public = {}, {}
  for _, path in ipairs(files) do
    local room = rooms.of(path)
    if room then
      used[room] = true
      public[path] = true
    else
      report(path, 1, "is in no room: move it into one, or add its room to " .. ROOMS)
    end
  end
  rooms.each(function(room)
    if not used[room] then
      report(ROOMS, 1, "room %s is empty: take it off the list", room.name)
    end
    for _, header in ipairs(room.public or {}) do
      if not public[room.path .. header] then
        report(ROOMS, 1, "room %s has no header %s: take it off the list", room.name, header)
      end
    end
  end)
end

return layers
