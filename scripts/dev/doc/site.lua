-- What surrounds a page of the documentation: the sidebar with its search, the neighbours, the
-- style (light, dark, narrow), and the colours of Lua code. `scripts/dev/doc.lua` calls it.

local site = {}

local STYLE = [[
:root { --ink: #1d242b; --paper: #fff; --soft: #f3f5f7; --line: #d5dae0; --link: #1a5fb4;
  --word: #8b2f97; --text: #21702f; --note: #66707a; color-scheme: light }
:root[data-theme=dark] { --ink: #dde3e9; --paper: #15191d; --soft: #20262c; --line: #39424b;
  --link: #7ab4f5; --word: #d59be0; --text: #8fcf9a; --note: #929da8; color-scheme: dark }
* { box-sizing: border-box }
body { margin: 0; display: flex; color: var(--ink); background: var(--paper);
  font: 16px/1.5 Helvetica, Arial, sans-serif }
main { flex: 1; min-width: 0; max-width: 56em; padding: 1em 2em 3em; overflow-wrap: break-word }
aside { width: 15em; flex: none; height: 100vh; position: sticky; top: 0; overflow-y: auto;
  padding: 1em; border-right: 1px solid var(--line); font-size: 15px }
aside a { display: block; padding: .15em .4em } aside a.here { background: var(--soft) }
aside input { width: 100%; padding: .3em; margin: .5em 0; font: inherit }
pre, code { font: 14px/1.4 monospace; background: var(--soft) }
pre { padding: .7em; overflow-x: auto } code { padding: 0 .2em }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border: 1px solid var(--line); padding: .25em .6em; text-align: left;
  vertical-align: top }
a { color: var(--link); text-decoration: none } a:hover { text-decoration: underline }
img { max-width: 100%; background: #fff }
.next { display: flex; justify-content: space-between; margin-top: 3em }
.word { color: var(--word) } .text { color: var(--text) } .note { color: var(--note) }
@media (max-width: 700px) { body { display: block } main { padding: 1em }
  aside { width: auto; height: auto; position: static; border: 0;
    border-bottom: 1px solid var(--line) } aside a { display: inline-block } }
]]

-- The theme is the system's until the switch is used; headings and operators are what is searched.
local SCRIPT = [[
(function () {
  var root = document.documentElement, kept = null;
  try { kept = localStorage.getItem("theme"); } catch (e) { kept = null; }
  var dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = kept || (dark ? "dark" : "light");
  document.addEventListener("DOMContentLoaded", function () {
    document.getElementById("theme").onclick = function () {
      root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch (e) { kept = null; }
    };
    var found = document.getElementById("found");
    document.getElementById("search").oninput = function () {
      var words = this.value.toLowerCase().split(" ").filter(Boolean);
      found.textContent = "";
      if (!words.length) { return; }
      SEARCH.filter(function (entry) {
        var text = (entry[0] + " " + entry[1]).toLowerCase();
        return words.every(function (word) { return text.indexOf(word) >= 0; });
      }).slice(0, 20).forEach(function (entry) {
        var link = document.createElement("a");
        link.href = entry[2];
        link.textContent = entry[0] + " (" + entry[1] + ")";
        found.appendChild(link);
      });
    };
  });
})();
]]

local KEYWORDS = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat \z
    return then true until while"):gmatch("%a+") do
  KEYWORDS[word] = true
end


--- Characters that HTML reads otherwise.
function site.escape(text)
  return (text:gsub("[&<>\"]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;",
    ['"'] = "&quot;" }))
end


local function span(class, text)
  return ('<span class="%s">%s</span>'):format(class, site.escape(text))
end


-- The token that begins at i: its class (nil: plain) and its last character.
local function token(code, i)
  local c = code:sub(i, i)
  if code:find("^%-%-", i) then
    return "note", (code:find("\n", i, true) or #code + 1) - 1
  elseif code:find("^%[%[", i) then
    return "text", select(2, code:find("]]", i, true)) or #code
  elseif c == '"' or c == "'" then
    local last = i + 1
    while last < #code and code:sub(last, last) ~= c do
      last = last + (code:sub(last, last) == "\\" and 2 or 1)
    end
    return "text", last
  end
  local word = code:match("^[%a_][%w_]*", i)
  return word and KEYWORDS[word] and "word" or nil, i + #(word or c) - 1
end


--- Lua code as HTML.
function site.lua(code)
  local out, i = {}, 1
  while i <= #code do
    local class, last = token(code, i)
    local text = code:sub(i, last)
    out[#out + 1] = class and span(class, text) or site.escape(text)
    i = last + 1
  end
  return table.concat(out)
end


local function sidebar(list, here)
  local out = {}
  for _, page in ipairs(list) do
    out[#out + 1] = ('<a%s href="%s">%s</a>'):format(page == here and ' class="here"' or "",
      page.file, site.escape(page.title))
  end
  out[#out + 1] = '<a href="reference/index.html">Lua modules</a>'
  return table.concat(out, "\n")
end


local function neighbour(page, text)
  return page and ('<a href="%s">%s</a>'):format(page.file, text:format(site.escape(page.title)))
    or "<span></span>"
end


--- A whole page.
-- @tparam {table,...} list all pages: file, title, body
-- @int i which one
function site.page(list, i)
  local page = list[i]
  return table.concat({
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>" .. site.escape(page.title) .. "</title>",
    '<link rel="stylesheet" href="style.css"><script src="search.js"></script>',
    '<script src="site.js"></script></head><body>',
    '<aside><button id="theme" type="button">light / dark</button>',
    '<input id="search" type="search" placeholder="Search" aria-label="Search">',
    '<div id="found"></div><nav>', sidebar(list, page), "</nav></aside>",
    "<main>", page.body, '<div class="next">' .. neighbour(list[i - 1], "← %s")
      .. neighbour(list[i + 1], "%s →") .. "</div></main></body></html>\n",
  }, "\n")
end


-- The index: heading, page, address.
local function search_index(list)
  local rows = {}
  for _, page in ipairs(list) do
    for id, text in page.body:gmatch('<h%d id="([^"]*)">(.-)</h%d>') do
      text = text:gsub("<[^>]*>", ""):gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&amp;", "&")
      rows[#rows + 1] = ("[%q, %q, %q]"):format(text, page.title, page.file .. "#" .. id)
    end
  end
  return "var SEARCH = [\n" .. table.concat(rows, ",\n") .. "\n];\n"
end


--- The files that all pages share, by name.
function site.shared(list)
  return { ["style.css"] = STYLE, ["site.js"] = SCRIPT, ["search.js"] = search_index(list) }
end


return site
