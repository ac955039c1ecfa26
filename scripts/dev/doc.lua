-- Writes the documentation: the pages of doc/ and README.md as HTML, and the operator
-- reference from the registry.
--
--   build/tycho scripts/dev/doc.lua [folder]    from the root of a checkout; the folder is
--                                               build/doc
--   build/tycho scripts/dev/doc.lua --pictures  runs the code of doc/executors.md in doc/, which
--                                               draws its pictures anew
--
-- `make doc` calls this, then LDoc for the reference of the Lua modules in
-- folder/reference. The Markdown that is understood: headings, paragraphs, fenced code,
-- tables, lists, links, pictures, `code`, **bold**.

local ty = require "tycho"
local operator = require "tycho.prompt.operator"

local site = dofile("scripts/dev/doc/site.lua")

-- -- Markdown -------------------------------------------------------------------------------------

local escape = site.escape

-- Pages of ours become HTML; what lies beside the pages is named from the checkout's root.
local function target(link)
  return (link:gsub("^doc/", ""):gsub("%.md", ".html"))
end

local function spans(text)
  local kept = {}
  text = escape(text):gsub("`([^`]+)`", function(code)
    kept[#kept + 1] = "<code>" .. code .. "</code>"
    return "\1" .. #kept .. "\2"
  end)
  text = text:gsub("!%[(.-)%]%((.-)%)", function(label, link)
    return ('<img alt="%s" src="%s">'):format(label, target(link))
  end)
  text = text:gsub("%[(.-)%]%((.-)%)", function(label, link)
    return ('<a href="%s">%s</a>'):format(target(link), label)
  end)
  text = text:gsub("%*%*(.-)%*%*", "<b>%1</b>")
  return (text:gsub("\1(%d+)\2", function(i) return kept[tonumber(i)] end))
end

local function anchor(text)
  return (text:lower():gsub("[^%w_]+", "-"))
end

-- Cells of a table's row. A bar inside `code` separates nothing.
local function cells(line)
  line = line:gsub("`[^`]*`", function(code) return (code:gsub("|", "\3")) end)
  local list = {}
  for cell in line:gsub("^|", ""):gmatch("([^|]*)|") do
    list[#list + 1] = spans((cell:gsub("\3", "|"):match("^%s*(.-)%s*$")))
  end
  return list
end

local function row(line, tag)
  local parts = {}
  for i, cell in ipairs(cells(line)) do
    parts[i] = ("<%s>%s</%s>"):format(tag, cell, tag)
  end
  return "<tr>" .. table.concat(parts) .. "</tr>"
end

-- Each reads lines from i on and returns the next line's number, or nil if they are something else.
local blocks = {}

function blocks.code(lines, i, out)
  if not lines[i]:find("^```") then
    return nil
  end
  local kind, code = lines[i]:match("^```(%w*)"), {}
  repeat
    i = i + 1
    code[#code + 1] = lines[i] and not lines[i]:find("^```") and lines[i] or nil
  until not lines[i] or lines[i]:find("^```")
  local text = table.concat(code, "\n")
  out[#out + 1] = "<pre>" .. (kind == "lua" and site.lua(text) or escape(text)) .. "</pre>"
  return i + 1
end

function blocks.heading(lines, i, out)
  local marks, text = lines[i]:match("^(#+)%s+(.*)$")
  if marks then
    out[#out + 1] = ('<h%d id="%s">%s</h%d>'):format(#marks, anchor(text), spans(text), #marks)
    return i + 1
  end
end

function blocks.table(lines, i, out)
  if not lines[i]:find("^|") then
    return nil
  end
  out[#out + 1] = "<table>"
  if lines[i]:find("[^|%s]") then
    out[#out + 1] = row(lines[i], "th")
  end
  i = i + 2                                              -- the line of dashes says nothing more
  while lines[i] and lines[i]:find("^|") do
    out[#out + 1] = row(lines[i], "td")
    i = i + 1
  end
  out[#out + 1] = "</table>"
  return i
end

function blocks.list(lines, i, out)
  if not lines[i]:find("^%- ") then
    return nil
  end
  out[#out + 1] = "<ul>"
  while lines[i] and lines[i]:find("^%- ") do
    local item = lines[i]:sub(3)
    i = i + 1
    while lines[i] and lines[i]:find("^  %S") do
      item = item .. lines[i]:sub(2)
      i = i + 1
    end
    out[#out + 1] = "<li>" .. spans(item) .. "</li>"
  end
  out[#out + 1] = "</ul>"
  return i
end

function blocks.paragraph(lines, i, out)
  local text = {}
  while lines[i] and lines[i]:find("%S") and not lines[i]:find("^[#|]")
      and not lines[i]:find("^```") do
    text[#text + 1] = lines[i]
    i = i + 1
  end
  out[#out + 1] = text[1] and "<p>" .. spans(table.concat(text, "\n")) .. "</p>" or nil
  return text[1] and i or i + 1
end

local ORDER = { "code", "heading", "table", "list", "paragraph" }

local function html(text)
  local lines, out, i = {}, {}, 1
  for line in (text .. "\n"):gmatch("(.-)\r?\n") do
    lines[#lines + 1] = line
  end
  while lines[i] do
    for _, name in ipairs(ORDER) do
      local after = blocks[name](lines, i, out)
      if after then
        i = after
        break
      end
    end
  end
  return table.concat(out, "\n")
end

-- -- the operators --------------------------------------------------------------------------------

-- A text inside a table's cell.
local function cell(text)
  return (text:gsub("|", "/"):gsub("\n", " "))
end

local function operator_page(out, info)
  out[#out + 1] = "## " .. info.name .. "\n"
  out[#out + 1] = "`" .. operator.signature(info) .. "`\n"
  out[#out + 1] = info.doc .. "\n"
  if info.params[1] then
    out[#out + 1] = "| Parameter | Type | Default | |\n|---|---|---|---|"
    for _, p in ipairs(info.params) do
      local default = operator.default(p)
      out[#out + 1] = ("| `%s` | %s | %s | %s |"):format(p.name, cell(operator.type_text(p)),
        default and "`" .. default .. "`" or "required", cell(p.doc))
    end
    out[#out + 1] = ""
  end
  local gradient = info.gradient:find(": ", 1, true) and "`" .. info.gradient .. "`"
    or info.gradient
  out[#out + 1] = ("Gradient: %s. Example: `%s`\n"):format(gradient, operator.example(info))
  if info.aliases[1] then
    out[#out + 1] = "Other names: `" .. table.concat(info.aliases, "`, `") .. "`\n"
  end
end

local FAMILIES = {                                       -- the first pattern that fits a name
  { "Updates of weights", "update" }, { "Random numbers", "^_random_" },
  { "Random numbers", "^_sample_" }, { "Linear algebra", "linalg" }, { "Images", "image" },
  { "Arrays from nothing", "^_zeros" }, { "Layers and losses", "^%u" },
  { "Contributed", "^_contrib" }, { "Behind the scenes", "^_" }, { "Arrays", "" },
}

local function family_of(name)
  for _, family in ipairs(FAMILIES) do
    if name:find(family[2]) then
      return family[1]
    end
  end
end

local function operators()
  local names, families, order = ty.op.list(), {}, {}
  for _, name in ipairs(names) do
    local family = family_of(name)
    if not families[family] then
      families[family] = {}
      order[#order + 1] = family
    end
    table.insert(families[family], ("[%s](#%s)"):format(name, anchor(name)))
  end
  table.sort(order)
  local out = { "# Operators\n", ("%d operators. Each is a function of `ty.sym` and `ty.nd`, \z
    and a method of symbols and arrays "
    .. "where it has an input. `?name` at the prompt says the same.\n"):format(#names) }
  for _, family in ipairs(order) do
    out[#out + 1] = "**" .. family .. ":** " .. table.concat(families[family], " · ") .. "\n"
  end
  for _, name in ipairs(names) do
    operator_page(out, ty.op.info(name))
  end
  return table.concat(out, "\n")
end

-- -- all of it ------------------------------------------------------------------------------------

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function files(pattern)
  local list = {}
  for path in io.popen("ls " .. pattern):lines() do
    list[#list + 1] = path
  end
  return list
end

-- Guides in the order in which they are read; what is not named comes behind them.
local GUIDES = { "first_hour", "indices", "executors", "bucketing", "from_python",
  "writing_an_operator" }

local DEVELOPERS = { "ARCHITECTURE.md", "doc/source_tour.md", "doc/decisions.md",
  "doc/performance.md" }

-- The paths of all pages in the order of the sidebar.
local function ordered()
  local list, seen = { "README.md" }, {}
  for _, name in ipairs(GUIDES) do
    list[#list + 1] = "doc/" .. name .. ".md"
  end
  for _, path in ipairs(list) do
    seen[path] = true
  end
  for _, path in ipairs(DEVELOPERS) do
    seen[path] = true
  end
  for _, path in ipairs(files("doc/*.md")) do
    list[#list + 1] = not seen[path] and path or nil
  end
  list[#list + 1] = "operators"
  for _, path in ipairs(DEVELOPERS) do
    list[#list + 1] = path
  end
  return list
end

local function page_of(path)
  local text = path == "operators" and operators() or read(path)
  local name = path == "README.md" and "index" or path:match("([^/]*)%.md$") or path
  return { file = name .. ".html", title = text:match("^# ([^\n]*)"), body = html(text) }
end

local function pages(folder)
  assert(os.execute("mkdir -p '" .. folder .. "'") == 0)
  local list = {}
  for i, path in ipairs(ordered()) do
    list[i] = page_of(path)
  end
  for i, page in ipairs(list) do
    write(folder .. "/" .. page.file, site.page(list, i))
  end
  for name, text in pairs(site.shared(list)) do
    write(folder .. "/" .. name, text)
  end
  for _, path in ipairs(files("doc/*.svg")) do
    write(folder .. "/" .. path:match("[^/]*$"), read(path))
  end
end

-- The code of a page, alone.
local function code_of(path)
  local out = {}
  for block in read(path):gmatch("\n```lua\n(.-)\n```") do
    out[#out + 1] = block
  end
  return table.concat(out, "\n")
end

local function pictures()
  local text = code_of("doc/executors.md"):gsub(":save%(\"", ":save(\"doc/")
  assert(loadstring(text))()
end

local what = ... or "build/doc"

if what == "--pictures" then
  pictures()
elseif what:sub(1, 1) == "-" then
  print("usage: build/tycho scripts/dev/doc.lua [folder] | --pictures\n\n\z
    Writes the documentation into a folder, build/doc by default, or draws its pictures anew.")
  os.exit(what == "--help" and 0 or 2)
else
  pages(what)
end
