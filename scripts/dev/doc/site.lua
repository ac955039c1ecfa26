-- The frame of a page of the documentation: the sidebar with its search, the neighbouring pages.
-- The style and the script in this folder are copied with the pages.
--
--        site.page(groups, page)     a complete page; groups: { title, pages = {page, ...} }
--
-- A page: file, title, body.

local colours = require "doc.colours"

local site = {}

local escape = colours.escape


local function sidebar(groups, here)
  local out = {}
  for _, group in ipairs(groups) do
    out[#out + 1] = "<h2>" .. escape(group.title) .. "</h2>"
    for _, page in ipairs(group.pages) do
      out[#out + 1] = ('<a%s href="%s.html">%s</a>'):format(page == here
        and ' class="here" aria-current="page"' or "", page.file, escape(page.title))
    end
  end
  return table.concat(out, "\n")
end


local function neighbour(page, kind, text)
  return page and ('<a class="%s" href="%s.html">%s</a>')
    :format(kind, page.file, text:format(escape(page.title))) or "<span></span>"
end


-- Returns the previous and the next page.
local function around(groups, here)
  local before, found
  for _, group in ipairs(groups) do
    for _, page in ipairs(group.pages) do
      if found then
        return before, page
      elseif page == here then
        found = true
      else
        before = page
      end
    end
  end
  return before
end


--- Returns a complete page.
function site.page(groups, page)
  local before, after = around(groups, page)
  return table.concat({
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>" .. escape(page.title) .. " · Tycho</title>",
    '<link rel="icon" href="data:,"><link rel="stylesheet" href="style.css">',
    '<script src="search.js" defer></script><script src="site.js"></script></head><body>',
    '<aside><div class="bar"><a class="brand" href="index.html">Tycho</a>',
    '<button id="theme" type="button" aria-label="light or dark">◐</button>',
    '<button id="menu" type="button" aria-label="pages">☰</button></div>',
    '<input id="search" type="search" placeholder="Search ( / )" aria-label="Search"',
    'autocomplete="off"><div id="found"></div>',
    '<nav id="nav">', sidebar(groups, page), "</nav></aside>",
    "<main>", page.body, '<div class="next">' .. neighbour(before, "back", "← %s")
      .. neighbour(after, "on", "%s →") .. "</div></main></body></html>\n",
  }, "\n")
end


return site
