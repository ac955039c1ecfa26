-- The list of passes (native/pass/passes.c): its files, and the table in ARCHITECTURE.md.

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function passes()
  local list = {}
  for name, f in read("native/pass/passes.c"):gmatch('\n  { "([%l ]+)", +(pass_[%l_]+),') do
    list[#list + 1] = { name = name, run = f }
  end
  return list
end

describe("the list of passes", function()
  it("has functions of files that say first what they do", function()
    local files = {}
    for path in io.popen("ls native/pass/*.c"):lines() do
      local text = read(path)
      for f in text:gmatch("\nint (pass_[%l_]+)%(") do
        files[f] = path
        assert(text:find("^/%* " .. path:match("[^/]+$"):gsub("%.", "%%.") .. " %- "), path)
      end
    end
    local n = 0
    for _, pass in ipairs(passes()) do
      assert(files[pass.run], pass.run .. " is defined nowhere")
      files[pass.run] = nil
      n = n + 1
    end
    assert.equal(14, n)
    assert.is_nil(next(files), "a pass that is not in the list")
  end)

  it("is in ARCHITECTURE.md in the same order", function()
    local text, at = read("ARCHITECTURE.md"), 1
    for _, pass in ipairs(passes()) do
      local from = text:find("\n| " .. pass.name .. " | ", at, true)
      assert(from, ("no row '%s' after the one before"):format(pass.name))
      at = from + 1
    end
  end)
end)
