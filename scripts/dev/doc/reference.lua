-- Converts a page of the reference to HTML; its contents come from `doc/entries.lua`.
--
--        reference.html(page, links, guides)   links as in doc/markdown.lua

local escape = require("doc.colours").escape
local markdown = require "doc.markdown"

local reference = {}

-- Returns a comment as HTML; "E(shape)" is expanded to an error with that code.
local function prose(lines, links)
  local text = table.concat(lines, "\n"):gsub("E%((%l+)%)", "error `%1`")
  return markdown.html(text, links)
end


local function option_row(p, links)
  local default = p.required and "required" or p.default
    and "<code>" .. escape(p.default) .. "</code>" or ""
  return ("<tr><td><code>%s</code></td><td>%s</td><td>%s</td><td>%s</td></tr>"):format(
    escape(p.name), escape(p.type), default,
    markdown.spans(p.text:gsub("E%((%l+)%)", "error `%1`"), links))
end


local function options_html(item, links)
  if not item.options[1] then
    return ""
  end
  local rows = { '<div class="wide"><table class="options"><tr><th>Option</th><th>Type</th>'
    .. "<th>Default</th><th></th></tr>" }
  for _, p in ipairs(item.options) do
    rows[#rows + 1] = option_row(p, links)
  end
  rows[#rows + 1] = "</table></div>"
  return table.concat(rows, "\n")
end


local function results_html(item, links)
  local out = {}
  for i, r in ipairs(item.results) do
    local kind = r.type ~= "" and "<code>" .. escape(r.type) .. "</code>" or ""
    local text = r.text ~= "" and markdown.spans(r.text, links) or ""
    out[i] = kind .. (kind ~= "" and text ~= "" and ", " or "") .. text
  end
  return out[1] and '<p class="result">Returns ' .. table.concat(out, "; ") .. ".</p>" or ""
end


local function list_html(word, list, links)
  local parts = {}
  for i, item in ipairs(list) do
    parts[i] = ('<a href="%s"><code>%s</code></a>'):format(item.address, escape(item.name))
  end
  return parts[1] and ("<p>%s %s.</p>"):format(word, table.concat(parts, ", ")) or ""
end


local function entry_html(item, links)
  local level = item.kind == "class" and 2 or 3
  local out = {
    ('<section class="%s"><h%d id="%s">%s<a class="self" href="#%s" aria-label="link">#</a></h%d>')
      :format(item.kind, level, item.id, escape(item.title), item.id, level),
    item.call and '<pre class="call">' .. escape(item.call) .. "</pre>" or "",
    prose(item.lines, links), options_html(item, links), results_html(item, links),
    item.base and list_html("Further options are those of", { item.base }, links) or "",
    item.inherited and list_html("It also has", item.inherited, links) or "", "</section>",
  }
  return table.concat(out, "\n")
end


-- Returns the titles of entries as links, a paragraph for each class.
local function contents(page, links)
  local out = {}
  for _, item in ipairs(page.entries) do
    local text = item.kind == "method" and item.title:match("[:.][%w_]+$")
      or item.title:gsub("^ty%.[%w_]+%.", "")
    out[#out + 1] = (item.kind == "class" and "</p><p><b>" or "") .. ('<a href="#%s">%s</a>')
      :format(item.id, escape(text)) .. (item.kind == "class" and "</b>" or "")
  end
  return '<div class="contents"><p>' .. table.concat(out, " ") .. "</p></div>"
end


--- Returns a page as HTML.
-- @tparam table page
-- @tparam table links
-- @tparam {table,...} guides that refer to the page: file, title
function reference.html(page, links, guides)
  links.indented = "lua"
  local named = {}
  for i, guide in ipairs(guides) do
    named[i] = ('<a href="%s.html">%s</a>'):format(guide.file, escape(guide.title))
  end
  local out = { ('<h1 id="%s">%s</h1>'):format(page.file, escape(page.title)),
    prose({ page.intro }, links),
    named[1] and '<p class="guides">In guides: ' .. table.concat(named, " · ") .. "</p>" or "",
    contents(page, links) }
  for _, item in ipairs(page.entries) do
    out[#out + 1] = entry_html(item, links)
  end
  return table.concat(out, "\n")
end


return reference
