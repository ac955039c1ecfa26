-- README and the pages of doc/: every block of Lua runs and prints what the page says.

local Session = require "tycho.prompt"
local device = require "spec.support.device"
local pages = require "spec.support.pages"
local shell = require "spec.support.shell"

local function trimmed(text)
  return (text:gsub("[ \t]+\n", "\n"):gsub("^%s*\n", ""):gsub("%s+$", ""))
end

-- Runs the page's program in an empty folder.
local function run(path, list)
  local output, status
  shell.with_file(pages.script(list), function(script)
    output, status = shell.run(("(p=$(readlink -f %s); d=$(mktemp -d); cd $d; \z
      TYCHO_LOG=warning $p %s; s=$?; rm -rf $d; exit $s)")
      :format(shell.program, script))
  end)
  assert(status == 0, path .. ":\n" .. output)
  return pages.outputs(output)
end

-- Types the lines of a session; returns the session as it looks then.
local function typed(lines)
  local shown = {}
  local session = Session.new{ write = function(...)
    for i = 1, select("#", ...) do
      shown[#shown + 1] = tostring((select(i, ...)))
    end
  end }
  for _, line in ipairs(lines) do
    local sign, text = line:match("^(>>?) ?(.*)$")
    if sign then
      shown[#shown + 1] = line .. "\n"
      session:feed(text)
    end
  end
  return table.concat(shown)
end

local list = { "README.md" }
for path in io.popen("ls doc/*.md"):lines() do
  list[#list + 1] = path
end

describe("page", function()
  setup(device.leave)                                    -- sessions are shown on a CPU
  teardown(device.come_back)

  for _, path in ipairs(list) do
    it(path .. " runs and prints what it says", function()
      local blocks = pages.blocks(path)
      local outputs = run(path, blocks)
      for _, block in ipairs(blocks) do
        if block.of then
          assert.equal(trimmed(table.concat(block.lines, "\n")), trimmed(outputs[block.of.first]),
            path .. ":" .. block.first)
        elseif block.kind == "tycho" then
          assert.equal(trimmed(table.concat(block.lines, "\n")), trimmed(typed(block.lines)),
            path .. ":" .. block.first)
        end
      end
    end)

    it(path .. " links to what exists", function()
      local file = io.open(path)
      local text = file:read("*a")
      file:close()
      for target in text:gmatch("%]%(([^)#]+)%)") do
        local place = (path:match("^(.*/)") or "") .. target
        local found = io.open(place)
        assert.is_truthy(target:find("^https?:") or found, path .. ": " .. target)
        if found then
          found:close()
        end
      end
    end)
  end
end)
