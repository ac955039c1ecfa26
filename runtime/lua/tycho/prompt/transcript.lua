--- A session saved as a script: the lines that ran without error, in order.
--
--     local t = transcript.new()
--     transcript.add(t, "x = ty.nd.ones(3)")
--     transcript.add(t, "x:sum()")          -- an expression: the script prints it
--     files.write(path, transcript.text(t), ":save")
--
-- Variables of the session are globals of the script. If a line uses a result (`_`, `_2`), the
-- script stores its results as the prompt does.
--
-- @module tycho.prompt.transcript

local transcript = {}

local FIRST = "-- Written by :save of Tycho's prompt.\n"

-- A call without results counts as an expression, so nothing must be printed for it.
local SHOW = [[
local function _show(...)
  if select("#", ...) > 0 then
    print(...)
  end
end
]]

local RESULTS = [[
local results = {}

local function _keep(...)
  if (...) ~= nil then
    table.insert(results, 1, (...))
  end
  return ...
end

setmetatable(_G, { __index = function(_, name)
  return results[name == "_" and 1 or tonumber(tostring(name):match("^_(%d+)$"))]
end })
]]


--- Returns an empty transcript.
function transcript.new()
  return { texts = {}, uses_results = false }
end


local function is_expression(text)
  return loadstring("return " .. text .. "\n") ~= nil
end


--- Adds a text that ran without error.
-- @tparam table t
-- @string text the input; `;` after an expression prints nothing, `=` in front of it is dropped
function transcript.add(t, text)
  local bare = text:gsub("^%s*=", "")
  local expression = bare:gsub(";%s*$", "")
  t.uses_results = t.uses_results or (" " .. text):find("[^%w_.:]_%d*%f[^%w_]") ~= nil
  table.insert(t.texts, { text = is_expression(expression) and expression or text,
    expression = is_expression(expression), mute = bare ~= expression })
end


--- Adds a script that was run with `:run`.
-- @tparam table t
-- @string path
-- @tparam {string,...} words
function transcript.add_run(t, path, words)
  local list = { ("[0] = %q"):format(path) }
  for i, word in ipairs(words) do
    list[i + 1] = ("%q"):format(word)
  end
  table.insert(t.texts, { text = ("arg = { %s }\nassert(loadfile(arg[0]))(unpack(arg))")
    :format(table.concat(list, ", ")) })
end


-- Returns a text as a statement of the script; `keeps`: whether results are stored.
local function statement(item, keeps)
  if not item.expression then
    return item.text:find("^%s*%(") and "do " .. item.text .. "\nend" or item.text
  end
  local value = item.text .. (item.text:find("--", 1, true) and "\n" or "")
  if not item.mute then
    return keeps and "_show(_keep(" .. value .. "))" or "_show(" .. value .. ")"
  end
  return keeps and "_keep(" .. value .. ")" or "do local _ = " .. value .. " end"
end


--- Returns the script, which runs with `tycho FILE`.
-- @tparam table t
-- @treturn string
function transcript.text(t)
  local lines = { FIRST, 'ty = require "tycho"\n', SHOW }
  if t.uses_results then
    lines[#lines + 1] = RESULTS
  end
  for _, item in ipairs(t.texts) do
    lines[#lines + 1] = statement(item, t.uses_results)
  end
  return table.concat(lines, "\n") .. "\n"
end


--- Returns whether the text of a file was written by `:save`.
function transcript.is_own(text)
  return text:sub(1, #FIRST) == FIRST
end


return transcript
