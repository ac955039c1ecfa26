-- Markdown pages as programs: the fenced blocks of a page, and a script with the same line numbers.
--
-- ```lua blocks are one program per page, in order. A ```text block after one is its output.
-- ```tycho blocks are sessions at the prompt: lines with a prompt sign are input, the others
-- output.

local pages = {}

-- Returns all fenced blocks: {kind, first line, list of lines, number of the lua block whose output
-- it is}.
function pages.blocks(path)
  local list, block, n, last = {}, nil, 0, nil
  for line in io.lines(path) do
    n = n + 1
    local kind = line:match("^```(%w*)")
    if kind and not block then
      block = { kind = kind, first = n + 1, lines = {} }
    elseif kind then
      list[#list + 1] = block
      block.of = block.kind == "text" and last and last.kind == "lua" and last or nil
      last, block = block, nil
    elseif block then
      table.insert(block.lines, line)
    end
  end
  return list
end

--- Returns the page's program: code keeps its line numbers; after each block a line of output names
-- the block that has ended.
function pages.script(list)
  local lines = {}
  for _, block in ipairs(list) do
    if block.kind == "lua" then
      for i, line in ipairs(block.lines) do
        lines[block.first + i - 1] = line
      end
      lines[block.first + #block.lines] = ("io.write('\\n<end %d>\\n')"):format(block.first)
    end
  end
  local last = 0
  for i in pairs(lines) do
    last = math.max(last, i)
  end
  for i = 1, last do
    lines[i] = lines[i] or ""
  end
  return table.concat(lines, "\n") .. "\n"
end

--- Returns the output of the blocks, by their first line.
function pages.outputs(text)
  local outputs = {}
  for output, first in text:gmatch("(.-)\n<end (%d+)>\n") do
    outputs[tonumber(first)] = output
  end
  return outputs
end

return pages
