-- Writes the documentation: README.md and the guides of doc/, the reference of classes and
-- functions, the operators, as HTML.
--
--   build/tycho scripts/dev/doc.lua [folder]    from the root of a checkout; the folder is
--                                               build/doc
--   build/tycho scripts/dev/doc.lua --pictures  draws the pictures of the pages anew, by what they
--                                               show: minutes
--   build/tycho scripts/dev/doc.lua --silent    lists the options of which nothing is said
--   build/tycho scripts/dev/doc.lua --find query ...
--                                               what the search of the pages finds: a line for each
--                                               section with query, rank, address, title

package.path = "scripts/dev/?.lua;" .. package.path

local entries = require "doc.entries"
local markdown = require "doc.markdown"
local names = require "doc.names"
local operators = require "doc.operators"
local reference = require "doc.reference"
local search = require "doc.search"
local site = require "doc.site"
local read = require("tycho.core.files").read

-- Files -------------------------------------------------------------------------------------------

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


-- Pages -------------------------------------------------------------------------------------------

-- Guides in the order in which they are read; those that are not named come last.
local GUIDES = { "first_hour", "gluon", "from_python", "from_pytorch", "notebook", "indices",
  "autograd", "data", "images", "initializers", "optimizers", "metrics", "watching", "debugging",
  "saving", "fine_tuning", "cells", "attention", "bucketing", "reinforcement", "devices",
  "scale_out", "gpu", "executors", "writing_an_operator", "editors", "deployment", "embedding",
  "models_of_others", "handing_on", "gallery" }

local DEVELOPERS = { "ARCHITECTURE.md", "doc/source_tour.md", "doc/decisions.md",
  "doc/performance.md", "doc/reliability.md" }


local function guide_paths()
  local list, seen = {}, {}
  for _, path in ipairs(DEVELOPERS) do
    seen[path] = true
  end
  local known = {}
  for _, path in ipairs(files("doc/*.md")) do
    known[path] = true
  end
  for _, name in ipairs(GUIDES) do
    local path = "doc/" .. name .. ".md"
    list[#list + 1] = known[path] and path or nil
    seen[path] = true
  end
  for _, path in ipairs(files("doc/*.md")) do
    list[#list + 1] = not seen[path] and path or nil
  end
  return list
end


-- Returns a page of Markdown, not yet HTML.
local function read_page(path)
  local text = read(path, "doc")
  return { file = path == "README.md" and "index" or path:match("([^/]*)%.md$"),
    title = text:match("^# ([^\n]*)"), text = text }
end


local function map(list, f)
  local out = {}
  for i, x in ipairs(list) do
    out[i] = f(x)
  end
  return out
end


-- Returns a link's target: our own pages become HTML; other files are named from the checkout's
-- root.
local function target(link)
  return (link:gsub("^doc/", ""):gsub("^%.%./", ""):gsub("%.md", ".html"))
end


-- Returns where code leads from a page; `named` notes the pages of the reference that a guide
-- names.
local function links_from(page, named)
  return { target = target, code = function(code)
    local where = entries.address(code) or operators.address(code)
    local file = where and where:match("^(.-)%.html")
    if not file or file == page.file and not where:find("#") then
      return nil
    end
    if named then
      named[file] = named[file] or {}
      if named[file][#named[file]] ~= page then
        table.insert(named[file], page)
      end
    end
    return where
  end }
end


-- Weights of pages of the reference in the search: those that most queries mean; layers of which
-- the guides describe the cells; what few programs use.
local MAIN = { reference_module = 1.2, reference_ndarray = 1.2, reference_symbol = 1.2,
  reference_recurrent_layers = 0.5, reference_contrib_layers = 0.5, reference_either = 0.5,
  reference_precision = 0.5 }

-- Returns the reference, and the table of foreign names, which matches too many queries to come
-- first.
local function reference_pages()
  local list = { unpack(entries.pages()) }
  list[#list + 1] = names.page()
  list[#list].weight = 0.5
  return list
end


-- Returns all pages in groups, in the order of the sidebar, as HTML; weight: what the search gives
-- them.
local function groups()
  local list = {
    { title = "Start", weight = 2, pages = { read_page "README.md" } },
    { title = "Guides", weight = 4, pages = map(guide_paths(), read_page) },
    { title = "Reference", weight = 1, pages = reference_pages() },
    { title = "Operators", weight = 1, pages = operators.pages() },
    { title = "For developers", weight = 0.4, pages = map(DEVELOPERS, read_page) },
  }
  local named = {}
  for _, group in ipairs(list) do
    for _, page in ipairs(group.pages) do
      page.weight = page.weight or MAIN[page.file] or group.weight
      local guides = group.title == "Guides" and named or nil
      page.body = page.entries and reference.html(page, links_from(page), named[page.file] or {})
        or markdown.html(page.text, links_from(page, guides))
    end
  end
  return list
end


local function build(folder)
  assert(os.execute("mkdir -p '" .. folder .. "/gallery'") == 0)
  local list, all = groups(), {}
  for _, group in ipairs(list) do
    for _, page in ipairs(group.pages) do
      write(folder .. "/" .. page.file .. ".html", site.page(list, page))
      all[#all + 1] = page
    end
  end
  local find = read("scripts/dev/doc/find.js", "doc")
  write(folder .. "/search.js", search.script(search.index(all)) .. find)
  for _, path in ipairs(files("doc/*.svg doc/*.ipynb doc/gallery/*")) do
    write(folder .. "/" .. path:match("^doc/(.*)$"), read(path, "doc"))
  end
  for _, name in ipairs{ "site.js", "style.css" } do
    write(folder .. "/" .. name, read("scripts/dev/doc/" .. name, "doc"))
  end
  write(folder .. "/LICENSE", read("LICENSE", "doc"))
end


local function all_pages()
  local list = {}
  for _, group in ipairs(groups()) do
    for _, page in ipairs(group.pages) do
      list[#list + 1] = page
    end
  end
  return list
end


local what = ... or "build/doc"

if what == "--pictures" then
  require("doc.pictures").draw()
elseif what == "--silent" then
  print(table.concat(entries.silent(entries.pages()), "\n"))
elseif what == "--find" then
  local index = search.index(all_pages())
  for _, query in ipairs{ select(2, ...) } do
    for i, section in ipairs(search.find(index, query)) do
      print(("%s%d\t%s\t%s"):format(query .. "\t", i, section.address, section.title))
    end
  end
elseif what:sub(1, 1) == "-" then
  print("usage: build/tycho scripts/dev/doc.lua [folder] | --pictures | --silent | --find query...\n\n\z
    Writes the documentation into a folder, build/doc by default, draws its pictures anew, \z
    lists\nthe options of which nothing is said, or shows what the search of the pages finds.")
  os.exit(what == "--help" and 0 or 2)
else
  build(what)
end
