-- README and the pages of doc/: every block of Lua runs and prints what the page says.

local Session = require "tycho.prompt"
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

describe("scripts/dev/doc.lua", function()
  it("writes pages whose links and pictures exist, and every operator", function()
    local folder = os.tmpname()
    local output, status =
      shell.run(("rm -f %s && %s scripts/dev/doc.lua %s"):format(folder, shell.program, folder))
    assert(status == 0, output)
    for path in io.popen("ls " .. folder .. "/*.html"):lines() do
      local file = io.open(path)
      local text = file:read("*a")
      file:close()
      assert.is_falsy(text:find("[\1\2\3]"), path)
      assert.is_truthy(text:find('class="here"', 1, true), path)
      for _, name in ipairs{ "index", "first_hour", "operators", "performance" } do
        assert.is_truthy(text:find(('<a[^>]* href="%s%%.html"'):format(name)), path .. name)
      end
      for target in text:gmatch('[hs]re?[fc]="([^"#:]+)"') do
        local found = target:find("^reference/") or target == "LICENSE"
          or io.open(folder .. "/" .. target)
        assert.is_truthy(found, path .. ": " .. target)
      end
      if path:find("operators.html", 1, true) then
        for _, name in ipairs(require("tycho").op.list()) do
          assert.is_truthy(text:find(">" .. name .. "</h2>", 1, true), name)
        end
        for id in text:gmatch('href="#([^"]*)"') do
          assert.is_truthy(text:find('id="' .. id .. '"', 1, true), id)
        end
      end
    end
    local index = assert(io.open(folder .. "/search.js")):read("*a")
    for page, id in index:gmatch(', "([%w_]+%.html)#([^"]*)"%]') do
      local text = assert(io.open(folder .. "/" .. page)):read("*a")
      assert.is_truthy(text:find('id="' .. id .. '"', 1, true), page .. "#" .. id)
    end
    assert.is_truthy(index:find('"FullyConnected", "Operators", "operators.html#fullyconnected"',
      1, true))
    shell.run("rm -rf " .. folder)
  end)

  it("colours Lua and keeps every character of it", function()
    local site = dofile("scripts/dev/doc/site.lua")
    local code = 'local s = "a \\" -- b" .. [[do]] -- end <i>\nfor x in y do end_ = 1 end'
    local html = site.lua(code)
    local plain = html:gsub("<[^>]*>", ""):gsub("&lt;", "<"):gsub("&gt;", ">")
      :gsub("&quot;", '"')
    assert.equal(code, plain)
    assert.is_truthy(html:find('<span class="word">local</span>', 1, true))
    assert.is_truthy(html:find('<span class="note">-- end &lt;i&gt;</span>', 1, true))
    assert.is_falsy(html:find('<span class="word">end_', 1, true))
  end)
end)

local list = { "README.md" }
for path in io.popen("ls doc/*.md"):lines() do
  list[#list + 1] = path
end

describe("page", function()
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
