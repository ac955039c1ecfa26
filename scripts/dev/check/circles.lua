-- Rooms whose files do not use each other's symbols in a circle, as object files show it.

local rooms = require "check.rooms"

local circles = {}

local FREE = {
  base = true, comm = true, device = true, image = true, imperative = true, io = true, op = true,
  pointwise = true, tensor = true,
}

-- Whether a call from file to file belongs to the circles that are looked for.
function circles.counts(arrow)
  local room = rooms.of(arrow.file)
  return room and room.house == rooms.native and FREE[room.name] and room == rooms.of(arrow.target)
end

return circles
