-- The pages of operators, as Markdown, from the registry: one page for each family.
--
--     local pages = operators.pages()       each: file, title, text
--     operators.address("FullyConnected")   "operators_layers.html#fullyconnected", or nil

local ty = require "tycho"
local markdown = require "doc.markdown"
local operator = require "tycho.prompt.operator"

local operators = {}

-- file, title, the patterns of names; the first family that fits a name has it
local FAMILIES = {
  { "updates", "Updates of weights", "update" },
  { "samplers", "Random numbers", "^_random_", "^_sample_" },
  { "linalg", "Linear algebra", "linalg" },
  { "images", "Operators on images", "image" },
  { "creation", "Arrays from nothing", "^_zeros", "^_ones", "^_full", "^_arange", "^_eye",
    "^_linspace" },
  { "layers", "Layers and losses", "^%u" },
  { "contrib", "Contributed operators", "^_contrib" },
  { "internal", "Internal operators", "^_" },
  { "math", "Operators on arrays", "" },
}
local ORDER = { "layers", "math", "linalg", "images", "contrib", "samplers", "updates", "creation",
  "internal" }


local function find_family(name)
  for _, family in ipairs(FAMILIES) do
    for i = 3, #family do
      if name:find(family[i]) then
        return family
      end
    end
  end
end


local function file_of(name)
  return "operators_" .. find_family(name)[1]
end


-- Returns a text inside a table's cell.
local function cell(text)
  return (text:gsub("|", "/"):gsub("\n", " "))
end


-- Returns "--> 2x3" for the results of a call on arrays; "" if they are not known.
local function result_text(shapes)
  local list = {}
  for i, shape in ipairs(shapes or {}) do
    list[i] = table.concat(shape, "x")
  end
  local text = table.concat(list, ", ")
  return text:find("%d") and not text:find("%f[%d]0%f[%D]") and "   --> " .. text or ""
end


local function add_examples(out, info)
  local lines = {}
  for i, example in ipairs(operator.examples(info)) do
    lines[i] = example.text .. result_text(example.shapes)
  end
  if lines[1] then
    out[#out + 1] = "```lua\n" .. table.concat(lines, "\n") .. "\n```\n"
  end
end


local function add_operator(out, info)
  out[#out + 1] = "## " .. info.name .. "\n"
  out[#out + 1] = "```call\n" .. operator.signature(info) .. "\n```\n"
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
  out[#out + 1] = ("Gradient: %s.\n"):format(gradient)
  add_examples(out, info)
  if info.aliases[1] then
    out[#out + 1] = "Other names: `" .. table.concat(info.aliases, "`, `") .. "`\n"
  end
end


-- Returns the names of a family as links.
local function make_links(names)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = ("[%s](%s.html#%s)"):format(name, file_of(name), markdown.anchor(name))
  end
  return table.concat(list, " · ")
end


local function by_family()
  local names = {}
  for _, name in ipairs(ty.op.list()) do
    local id = find_family(name)[1]
    names[id] = names[id] or {}
    table.insert(names[id], name)
  end
  return names
end


local function family_page(family, names)
  local out = { "# " .. family[2] .. "\n", make_links(names) .. "\n" }
  for _, name in ipairs(names) do
    add_operator(out, ty.op.info(name))
  end
  return { file = "operators_" .. family[1], title = family[2], text = table.concat(out, "\n") }
end


--- Returns the page that lists all operators, and a page for each family.
function operators.pages()
  local names, known, pages = by_family(), {}, {}
  for _, family in ipairs(FAMILIES) do
    known[family[1]] = family
  end
  local out = { "# Operators\n", ("%d operators. Each is a function of `ty.sym` and `ty.nd`, and \z
    a method of symbols and arrays where it has an input. Examples run as they are; after an arrow \z
    are the shapes of the results. `?name` at the prompt says the same.\n")
    :format(#ty.op.list()) }
  for i, id in ipairs(ORDER) do
    out[#out + 1] = ("## %s\n\n%s\n"):format(known[id][2], make_links(names[id]))
    pages[i + 1] = family_page(known[id], names[id])
  end
  pages[1] = { file = "operators", title = "Operators", text = table.concat(out, "\n") }
  return pages
end


local addresses                                          -- name or other name -> address

--- Returns where an operator is described.
-- @string name with or without "ty.sym." or "ty.nd."
function operators.address(name)
  if not addresses then
    addresses = {}
    for _, known in ipairs(ty.op.list()) do
      local where = ("%s.html#%s"):format(file_of(known), markdown.anchor(known))
      addresses[known] = where
      for _, other in ipairs(ty.op.info(known).aliases) do
        addresses[other] = addresses[other] or where
      end
    end
  end
  local plain = name:match("^ty%.[sn][yd]m?%.([%w_%.]+)")
  local last = (plain or name):match("^([%w_]+)[%({]?.-$")
  local contrib = plain and plain:match("^contrib%.([%w_]+)")
  local within = plain and plain:match("^[%a_]+%.([%w_]+)")
  return contrib and addresses["_contrib_" .. contrib]
    or within and (addresses["_" .. plain:gsub("%.", "_")] or addresses[plain:gsub("%.", "_")])
    or last and (plain or last:find("^%u") or last:find("_")) and addresses[last] or nil
end


return operators
