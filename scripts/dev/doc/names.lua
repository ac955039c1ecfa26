-- The page of foreign names as Markdown, from the table that errors and the prompt's help use.
--
--     local page = names.page()       file, title, text

local attrs = require "tycho.core.attrs"
local foreign = require "tycho.core.foreign"
local translation = require "tycho.prompt.translation"

local names = {}

local INTRODUCTION = [[
# Names of PyTorch and NumPy

What names of PyTorch, NumPy, Keras and Torch7 are called here. Errors about unknown names read this
table, and so does the prompt: `?torch.cat`, `?state_dict`. Capital letters and underscores make no
difference. [Coming from Python](from_python.md) says what differs in the language.
]]


local function row(word, text)
  local parts = {}
  for name in (text or ""):gmatch("%S+") do
    parts[#parts + 1] = "`" .. translation.written(name) .. "`"
  end
  local instead = foreign.instead(word)
  return ("| `%s` | %s | %s |"):format(word, table.concat(parts, ", "), instead or "")
end


--- Returns the page.
function names.page()
  local out, shown = { INTRODUCTION }, {}
  for _, topic in ipairs(foreign.TOPICS) do
    out[#out + 1] = ("## %s\n\n| There | Here | |\n|---|---|---|"):format(topic[1])
    for _, word in ipairs(attrs.keys(topic[2])) do
      local text, plain = topic[2][word], foreign.plain(word)
      local same = foreign.plain(foreign.last(text:match("^%S+"))) == plain
      out[#out + 1] = not same and row(word, text) or nil
      shown[plain] = true
    end
    out[#out + 1] = ""
  end
  out[#out + 1] = "## Without a counterpart\n\n| There | | Instead |\n|---|---|---|"
  for _, word in ipairs(attrs.keys(foreign.INSTEAD)) do
    out[#out + 1] = not shown[foreign.plain(word)] and row(word) or nil
  end
  return { file = "names", title = "Names of PyTorch and NumPy", text = table.concat(out, "\n") }
end


return names
