-- The text of every error is part of the product: spec/core/mistakes.txt pins it.
-- TYCHO_WRITE_MISTAKES=1 writes the file anew; read the difference before you keep it.
local ty = require "tycho"
local mistakes = require "spec.core.mistakes"

local FILE = "spec/core/mistakes.txt"

-- Returns an error's text without places in files that move and without what the machine lacks.
local function text_of(e)
  local text = tostring(e):gsub("[^%s]*spec/core/mistakes%.lua:%d+", "mistakes.lua")
    :gsub("/[^%s]*/spec/", "spec/")
  text = text:gsub("(gpu%(0%) does not exist: ).-(; use)", "%1...%2")
  return (text:gsub("%s+$", ""))
end

local function answer(f)
  local found
  ty.name.NameManager():with(function()
    local ok, e = pcall(f)
    found = ok and "no error" or ty.is_error(e) and text_of(e)
      or "not an error object: " .. tostring(e)
  end)
  return found
end

local function read_golden()
  local golden, name, lines = {}, nil, {}
  local function keep()
    if name then golden[name] = (table.concat(lines, "\n"):gsub("%s+$", "")) end
  end
  for line in io.lines(FILE) do
    if line:sub(1, 3) == "== " then
      keep()
      name, lines = line:sub(4), {}
    else
      lines[#lines + 1] = line
    end
  end
  keep()
  return golden
end

if os.getenv("TYCHO_WRITE_MISTAKES") == "1" then
  local f = assert(io.open(FILE, "wb"))
  for _, m in ipairs(mistakes) do f:write("== ", m[1], "\n", answer(m[2]), "\n\n") end
  f:close()
end

local device = require "spec.support.device"

describe("mistakes get an answer:", function()
  setup(device.leave)
  teardown(device.come_back)
  local golden = read_golden()
  it("at least sixty of them", function() assert.is_true(#mistakes >= 60) end)
  for _, m in ipairs(mistakes) do
    it(m[1], function()
      if m[1] == "device that does not exist" and ty.num_gpus() > 0 then pending("it exists") end
      assert.equal(golden[m[1]], answer(m[2]))
    end)
  end
end)
