--- A typeface made of pen strokes, for drawings made of pixels.
--
--     for _, stroke in ipairs(font.strokes("loss", 12)) do ... end   -- {{x, y}, ...}, y grows down
--     font.width("loss", 12)
--
-- A glyph consists of its width and its strokes. A stroke is a sequence of points, each of two
-- hexadecimal digits (x, y). Capitals reach from 0 to the base line at 9, small letters begin at 3,
-- descenders end at c. "~" before a stroke rounds its corners; a stroke that ends at its first
-- point is closed.
--
-- @module tycho.viz.font

local font = {}

local EM = 12.5                                          -- glyph units of the size of the typeface
local SPACE = 2.4                                        -- glyph units between letters
local BASE = 9

local BOWL = "~0353590903"
local O = "~006063666909060300"

local GLYPHS = {
  [" "] = { 2 }, ["!"] = { 0, "0006", "0809" }, ['"'] = { 2, "0003", "2023" },
  ["#"] = { 6, "2019", "5049", "0363", "0666" }, ["$"] = { 5, "~5250000454590907", "303a" },
  ["%"] = { 8, "7019", "~0030340400", "~5585895955" }, ["&"] = { 6, "~691310404204095965" },
  ["'"] = { 0, "0003" }, ["("] = { 2, "~2003072a" }, [")"] = { 2, "~0023270a" },
  ["*"] = { 4, "2024", "0143", "0341" }, ["+"] = { 6, "3339", "0666" }, [","] = { 1, "18190b" },
  ["-"] = { 3, "0636" }, ["."] = { 0, "0809" }, ["/"] = { 3, "3009" },
  ["0"] = { 5, "~005053565909060300" }, ["1"] = { 5, "123039" },
  ["2"] = { 5, "~0200505409", "0959" },
  ["3"] = { 5, "~0200505424", "~2454590907" }, ["4"] = { 5, "49400656" },
  ["5"] = { 5, "501004", "~042353590907" }, ["6"] = { 5, "~50100206", BOWL },
  ["7"] = { 5, "005019" }, ["8"] = { 5, "~0050540400", "~0454590904" },
  ["9"] = { 5, "~0656500006", "~09495753" }, [":"] = { 0, "0304", "0809" },
  [";"] = { 1, "1314", "18190b" }, ["<"] = { 5, "530659" }, ["="] = { 5, "0454", "0757" },
  [">"] = { 5, "035609" }, ["?"] = { 4, "~020040432426", "2829" },
  ["@"] = { 8, "~3363673733", "~6367878000090989" },
  A = { 6, "093069", "1656" }, B = { 6, "290900", "0020", "~20505424", "0424", "~24646929" },
  C = { 6, "~6260000306096967" }, D = { 6, "290900", "0020", "~206063666929" },
  E = { 5, "50000959", "0444" }, F = { 5, "500009", "0444" },
  G = { 6, "~6160000306096965", "6535" },
  H = { 6, "0009", "6069", "0464" }, I = { 0, "0009" }, J = { 4, "4046", "~46490906" },
  K = { 5, "0009", "5005", "2359" }, L = { 5, "000959" }, M = { 8, "0900488089" },
  N = { 6, "09006960" }, O = { 6, O }, P = { 6, "090030", "~30606535", "3505" },
  Q = { 6, O, "4769" },
  R = { 6, "090030", "~30606535", "3505", "3569" }, S = { 5, "~5250000454590907" },
  T = { 6, "0060", "3039" }, U = { 6, "0005", "~05096965", "6560" }, V = { 6, "003960" },
  W = { 8, "0029406980" }, X = { 6, "0069", "0960" }, Y = { 6, "003460", "3439" },
  Z = { 6, "00600969" }, ["["] = { 2, "20000a2a" }, ["\\"] = { 3, "0039" },
  ["]"] = { 2, "00202a0a" },
  ["^"] = { 4, "032043" }, _ = { 5, "0a5a" }, ["`"] = { 1, "0012" },
  a = { 5, BOWL, "5359" }, b = { 5, "0009", BOWL }, c = { 5, "~545303095958" },
  d = { 5, "5059", BOWL }, e = { 5, "0656", "~565303095958" }, f = { 3, "~301013", "1319", "0333" },
  g = { 5, BOWL, "5359", "~595c1c0b" }, h = { 5, "0009", "~06035356", "5659" },
  i = { 0, "0309", "0001" }, j = { 2, "232a", "~2a2c0c", "2021" },
  k = { 5, "0009", "4307", "2559" },
  l = { 2, "0007", "~070929" }, m = { 8, "0309", "~06034346", "4649", "~46438386", "8689" },
  n = { 5, "0309", "~06035356", "5659" }, o = { 5, BOWL }, p = { 5, "030c", BOWL },
  q = { 5, "535c", BOWL }, r = { 3, "0309", "~060333" }, s = { 4, "~4443030646490908" },
  t = { 3, "1117", "~171939", "0333" }, u = { 5, "0306", "~06095956", "5359" }, v = { 4, "032943" },
  w = { 8, "0329436983" }, x = { 4, "0349", "0943" }, y = { 4, "0329", "431c0c" },
  z = { 4, "03430949" }, ["{"] = { 2, "~20101405161a2a" }, ["|"] = { 0, "000a" },
  ["}"] = { 2, "~00101425161a0a" }, ["~"] = { 5, "~06144845" },
  ["…"] = { 6, "0809", "3839", "6869" },
  ["–"] = { 5, "0656" }, ["×"] = { 5, "0459", "0954" }, ["°"] = { 3, "~0030330300" },
}
local UNKNOWN = { 5, "0050590900" }

local ROUNDS = 3                                         -- how often corners are cut

-- Returns points with each corner cut off at a quarter of its sides; repetition leads to a
-- quadratic B-spline.
local function cut_corners(points, closed)
  local out = {}
  if not closed then
    out[1] = points[1]
  end
  for i = 1, #points - 1 do
    local a, b = points[i], points[i + 1]
    local first, last = i == 1 and not closed, i == #points - 1 and not closed
    if not first then
      out[#out + 1] = { 0.75 * a[1] + 0.25 * b[1], 0.75 * a[2] + 0.25 * b[2] }
    end
    if not last then
      out[#out + 1] = { 0.25 * a[1] + 0.75 * b[1], 0.25 * a[2] + 0.75 * b[2] }
    end
  end
  out[#out + 1] = closed and out[1] or points[#points]
  return out
end


local function make_stroke(text)
  local points = {}
  for x, y in text:gmatch("(%x)(%x)") do
    points[#points + 1] = { tonumber(x, 16), tonumber(y, 16) }
  end
  local a, b = points[1], points[#points]
  for _ = 1, text:sub(1, 1) == "~" and ROUNDS or 0 do
    points = cut_corners(points, a[1] == b[1] and a[2] == b[2])
  end
  return points
end


local ready = {}                                         -- glyph -> its parsed strokes

local function find_strokes(glyph)
  if not ready[glyph] then
    ready[glyph] = {}
    for i = 2, #glyph do
      ready[glyph][i - 1] = make_stroke(glyph[i])
    end
  end
  return ready[glyph]
end


local function letters(text)
  return text:gmatch("[%z\1-\127\194-\244][\128-\191]*")
end


--- Returns the width of a text, in the unit of its size.
-- @string text
-- @number size of the face
function font.width(text, size)
  local units = 0
  for letter in letters(text) do
    units = units + (GLYPHS[letter] or UNKNOWN)[1] + SPACE
  end
  return math.max(0, units - SPACE) * size / EM
end


--- Returns the strokes of a text whose base line begins at 0, 0. Letters outside ASCII are drawn as
-- boxes, except for a few that have glyphs.
-- @string text
-- @number size of the face
-- @treturn table list of strokes, lists of {x, y}
function font.strokes(text, size)
  local list, at, scale = {}, 0, size / EM
  for letter in letters(text) do
    local glyph = GLYPHS[letter] or UNKNOWN
    for _, stroke in ipairs(find_strokes(glyph)) do
      local points = {}
      for i, point in ipairs(stroke) do
        points[i] = { (at + point[1]) * scale, (point[2] - BASE) * scale }
      end
      list[#list + 1] = points
    end
    at = at + glyph[1] + SPACE
  end
  return list
end


return font
