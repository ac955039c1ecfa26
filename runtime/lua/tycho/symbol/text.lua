--- Texts of a graph: `debug_str` as the reference writes it, and a tree for the prompt.
--
-- @module tycho.symbol.text

local attrs = require "tycho.core.attrs"
local node = require "tycho.symbol.node"

local symbol_text = {}


local function entry_text(entry)
  return entry[1].name .. "(" .. entry[2] .. ")"
end


local function node_lines(n, versions, lines)
  if not n.op then
    lines[#lines + 1] = "Variable:" .. n.name
    return
  end
  lines[#lines + 1] = ("-"):rep(20)
  lines[#lines + 1] = ("Op:%s, Name=%s"):format(n.op, n.name)
  lines[#lines + 1] = "Inputs:"
  for i, input in ipairs(n.inputs) do
    lines[#lines + 1] = ("\targ[%d]=%s%s"):format(i - 1, entry_text(input),
      input[1].op and "" or " version=" .. versions[i])
  end
  local keys = attrs.keys(n.attrs)
  if keys[1] then
    lines[#lines + 1] = "Attrs:"
    for _, key in ipairs(keys) do
      lines[#lines + 1] = ("\t%s=%s"):format(key, n.attrs[key])
    end
  end
end


--- Returns the nodes in depth-first order with their inputs and attributes; indices from 0.
-- @tparam {entry,...} entries
function symbol_text.debug_str(entries)
  local head = entries[1][1]
  if #entries == 1 and not head.op then
    return "Variable:" .. head.name .. "\n"
  elseif #entries == 1 and #head.inputs == 0 then
    return "AtomicFunctor  Op:" .. head.op .. "\n"
  end
  local lines = { "Symbol Outputs:" }
  for i, entry in ipairs(entries) do
    lines[#lines + 1] = ("\toutput[%d]=%s"):format(i - 1, entry_text(entry))
  end
  local order = node.walk(entries)
  local versions = node.versions(order)
  for _, n in ipairs(order) do
    node_lines(n, versions[n], lines)
  end
  return table.concat(lines, "\n") .. "\n"
end


local function label(n)
  if not n.op then
    return n.name
  end
  local parts = {}
  for _, key in ipairs(attrs.keys(n.attrs)) do
    if not attrs.is_annotation(key) then
      parts[#parts + 1] = key .. "=" .. n.attrs[key]
    end
  end
  return ("%s  %s%s"):format(n.name, n.op,
    parts[1] and "{" .. table.concat(parts, ", ") .. "}" or "")
end


--- Returns a tree: the heads, and below each node its inputs.
-- @tparam {entry,...} entries
function symbol_text.draw(entries)
  local lines, seen = {}, {}
  local stack = {}               -- what is still to be shown: {node, line start, start below}
  for i = #entries, 1, -1 do
    stack[#stack + 1] = { entries[i][1], "", "" }
  end
  while #stack > 0 do
    local n, start, below = unpack(table.remove(stack))
    local again = seen[n] and #n.inputs > 0
    lines[#lines + 1] = start .. label(n) .. (again and "  (above)" or "")
    seen[n] = true
    for i = again and 0 or #n.inputs, 1, -1 do
      local last = i == #n.inputs
      stack[#stack + 1] = { n.inputs[i][1], below .. (last and "`- " or "|- "),
        below .. (last and "   " or "|  ") }
    end
  end
  return table.concat(lines, "\n") .. "\n"
end


return symbol_text
