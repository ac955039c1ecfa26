--- Writes drawings as SVG text, with the few elements that they need.
--
--     local page = svg.page(200, 100)
--     page:put("rect", { x = 10, y = 10, width = 80, height = 30, fill = "#8dd3c7" },
--       "tip shown by a viewer")
--     page:text(50, 25, "conv1", { ["text-anchor"] = "middle" })
--     local bytes = page:done()
--
-- Lengths are pixels, y grows downwards. Attributes are sorted by name, so equal drawings have
-- equal text.
--
-- @module tycho.viz.svg

local pairs = require("tycho.core.iterate").pairs
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"

local svg = {}

local Page = Class:extend("Page")

local ESCAPES = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }


--- Returns a text with the special characters of XML escaped; control characters become spaces.
function svg.escape(text)
  return (tostring(text):gsub('[&<>"]', ESCAPES):gsub("%c", " "))
end


--- Returns a number as text with at most one decimal: "12.5", "3".
function svg.number(x)
  return (("%.1f"):format(x):gsub("%.0$", ""):gsub("^%-0$", "0"))
end


--- Returns the approximate width of a text, in pixels, in the sans-serif typeface of the page.
-- @string text
-- @number size of the typeface in pixels
function svg.text_width(text, size)
  return #text:gsub("[\128-\191]", "") * size * 0.6
end


local function open_tag(name, dict)
  local parts = { "<" .. name }
  for _, key in ipairs(attrs.keys(dict)) do
    local value = dict[key]
    parts[#parts + 1] = (' %s="%s"'):format(key,
      type(value) == "number" and svg.number(value) or svg.escape(value))
  end
  return table.concat(parts)
end


--- Adds an element; viewers show `tip` when the pointer rests on it.
-- @string name
-- @tparam table dict attributes; numbers are rounded to tenths of a pixel
-- @string[opt] tip
function Page:put(name, dict, tip)
  local tag = open_tag(name, dict)
  self[#self + 1] = tip and ("%s><title>%s</title></%s>"):format(tag, svg.escape(tip), name)
    or tag .. "/>"
end


--- Adds a line of text whose base line begins at x, y (or is centred there, see text-anchor).
function Page:text(x, y, text, dict)
  local all = { x = x, y = y }
  for key, value in pairs(dict or {}) do
    all[key] = value
  end
  self[#self + 1] = ("%s>%s</text>"):format(open_tag("text", all), svg.escape(text))
end


--- Returns the SVG text.
function Page:done()
  return table.concat(self, "\n") .. "\n</svg>\n"
end


--- Returns a white page.
-- @number width
-- @number height
function svg.page(width, height)
  local page = Page()
  page[1] = open_tag("svg", {
    xmlns = "http://www.w3.org/2000/svg", width = width, height = height,
    viewBox = ("0 0 %s %s"):format(svg.number(width), svg.number(height)),
    ["font-family"] = "Helvetica, Arial, sans-serif", ["font-size"] = 12,
  }) .. ">"
  page:put("rect", { width = "100%", height = "100%", fill = "#ffffff" })
  return page
end


return svg
