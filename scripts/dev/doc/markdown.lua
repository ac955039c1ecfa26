-- Converts Markdown to HTML: headings, paragraphs, fenced and indented code, tables, lists,
-- numbered lists, links, pictures, `code`, **bold**.
--
--     local text, id = markdown.html(source, links), markdown.anchor("A heading")
--
-- `links.target(link)` returns the address of a link; `links.code(code)` the address for a piece of
-- code, or nil. Both are optional.

local colours = require "doc.colours"

local markdown = {}

local escape = colours.escape


--- Returns the anchor of a heading.
function markdown.anchor(text)
  return (text:lower():gsub("[^%w_]+", "-"):gsub("^%-", ""):gsub("%-$", ""))
end


local function code_span(code, links)
  local address = links.code and links.code(code)
  local html = "<code>" .. escape(code) .. "</code>"
  return address and ('<a href="%s">%s</a>'):format(address, html) or html
end


--- Returns the text of one paragraph as HTML.
function markdown.spans(text, links)
  local kept = {}
  local function keep(html)
    kept[#kept + 1] = html
    return "\1" .. #kept .. "\2"
  end
  local target = links.target or function(link) return link end
  text = text:gsub("!%[(.-)%]%((.-)%)", function(label, link)
    return keep(('<img alt="%s" src="%s">'):format(escape(label), target(link)))
  end)
  text = text:gsub("%[([^%]\n]-)%]%((.-)%)", function(label, link)
    return keep(('<a href="%s">'):format(target(link))) .. label .. keep("</a>")
  end)
  text = text:gsub("`([^`]+)`", function(code) return keep(code_span(code, links)) end)
  text = escape(text):gsub("%*%*(.-)%*%*", "<b>%1</b>")
  return (text:gsub("\1(%d+)\2", function(i) return kept[tonumber(i)] end))
end


-- Blocks ------------------------------------------------------------------------------------------
-- Each function reads lines from i on and returns the next line's number; nil for another kind of
-- block.

local blocks = {}


local function code_block(kind, code, links)
  local text = table.concat(code, "\n"):gsub("%s+$", "")
  return ('<pre class="%s">%s</pre>'):format(kind, colours.html(kind, text, links.code))
end


function blocks.code(lines, i, out, links)
  if not lines[i]:find("^```") then
    return nil
  end
  local kind, code = lines[i]:match("^```(%w*)"), {}
  repeat
    i = i + 1
    code[#code + 1] = lines[i] and not lines[i]:find("^```") and lines[i] or nil
  until not lines[i] or lines[i]:find("^```")
  out[#out + 1] = code_block(kind, code, links)
  return i + 1
end


function blocks.indented(lines, i, out, links)
  if not lines[i]:find("^    %S") then
    return nil
  end
  local code = {}
  while lines[i] and (lines[i]:find("^    ") or not lines[i]:find("%S")) do
    code[#code + 1] = lines[i]:sub(5)
    i = i + 1
  end
  out[#out + 1] = code_block(links.indented or "text", code, links)
  return i
end


function blocks.heading(lines, i, out, links)
  local marks, text = lines[i]:match("^(#+)%s+(.*)$")
  if marks then
    local id = markdown.anchor(text)
    out[#out + 1] = ('<h%d id="%s">%s<a class="self" href="#%s" aria-label="link">#</a></h%d>')
      :format(#marks, id, markdown.spans(text, { target = links.target }), id, #marks)
    return i + 1
  end
end


-- Returns the cells of a table's row. A bar inside `code` does not separate cells.
local function row(line, tag, links)
  line = line:gsub("`[^`]*`", function(code) return (code:gsub("|", "\3")) end)
  local parts = {}
  for cell in line:gsub("^|", ""):gmatch("([^|]*)|") do
    cell = cell:gsub("\3", "|"):match("^%s*(.-)%s*$")
    parts[#parts + 1] = ("<%s>%s</%s>"):format(tag, markdown.spans(cell, links), tag)
  end
  return "<tr>" .. table.concat(parts) .. "</tr>"
end


function blocks.table(lines, i, out, links)
  if not lines[i]:find("^|") then
    return nil
  end
  local options = lines[i]:find("| Type | Default |", 1, true)
  out[#out + 1] = ('<div class="wide"><table%s>'):format(options and ' class="options"' or "")
  if lines[i]:find("[^|%s]") then
    out[#out + 1] = row(lines[i], "th", links)
  end
  i = i + 2                                              -- skip the line of dashes
  while lines[i] and lines[i]:find("^|") do
    out[#out + 1] = row(lines[i], "td", links)
    i = i + 1
  end
  out[#out + 1] = "</table></div>"
  return i
end


-- Returns a rule for items that begin with a mark; indented lines belong to the item above them.
local function make_list(mark, tag)
  return function(lines, i, out, links)
    if not lines[i]:find(mark) then
      return nil
    end
    out[#out + 1] = "<" .. tag .. ">"
    while lines[i] and lines[i]:find(mark) do
      local item = { (lines[i]:gsub(mark, "")) }
      i = i + 1
      while lines[i] and lines[i]:find("^  +%S") do
        item[#item + 1] = lines[i]:match("^%s+(.*)$")
        i = i + 1
      end
      out[#out + 1] = "<li>" .. markdown.spans(table.concat(item, "\n"), links) .. "</li>"
    end
    out[#out + 1] = "</" .. tag .. ">"
    return i
  end
end

blocks.list, blocks.numbers = make_list("^%- ", "ul"), make_list("^%d+%. ", "ol")


local function ends_paragraph(line)
  return not line:find("%S") or line:find("^[#|]") or line:find("^```") or line:find("^%- ")
end


function blocks.paragraph(lines, i, out, links)
  local text = {}
  while lines[i] and not ends_paragraph(lines[i]) do
    text[#text + 1] = lines[i]
    i = i + 1
  end
  local html = text[1] and markdown.spans(table.concat(text, "\n"), links)
  local alone = html and html:find("^<img [^>]*>$")
  out[#out + 1] = html and ("<p%s>%s</p>"):format(alone and ' class="picture"' or "", html)
  return text[1] and i or i + 1
end

local ORDER = { "code", "indented", "heading", "table", "list", "numbers", "paragraph" }


--- Returns a page or a part of one as HTML.
-- @string text
-- @tparam table links see above; `indented`: the language of indented code
function markdown.html(text, links)
  local lines, out, i = {}, {}, 1
  for line in (text .. "\n"):gmatch("(.-)\r?\n") do
    lines[#lines + 1] = line
  end
  while lines[i] do
    for _, name in ipairs(ORDER) do
      local after = blocks[name](lines, i, out, links)
      if after then
        i = after
        break
      end
    end
  end
  return table.concat(out, "\n")
end


return markdown
