-- The recorded cases of the reference engine, one test per case, topic by topic
-- (spec/vectors/*.lua). A topic file returns { needs = {modules}, define = function() ...
-- end }; `define` describes its tests. What is missing, the folder, a module or an
-- operator, makes a visible skip.

local vectors = require "spec.support.vectors"

local TOPICS = "spec/vectors"

local function missing(modules)
  for _, name in ipairs(modules or {}) do
    if not package.loaded[name] and not package.searchpath(name, package.path) then
      return name
    end
  end
end

local function define(file)
  local topic = setfenv(assert(loadfile(TOPICS .. "/" .. file)), getfenv(1))()
  local module = missing(topic.needs)
  if module then
    it("everything", function() pending("module " .. module .. " is missing") end)
  else
    topic.define()
  end
end

describe("recorded", function()
  if not vectors.exists() then
    it("cases", function() pending("the folder of recorded cases is missing: " .. vectors.root) end)
    return
  end
  local files = {}
  for file in require("lfs").dir(TOPICS) do
    if file:match("%.lua$") and not file:match("_spec%.lua$") then
      files[#files + 1] = file
    end
  end
  table.sort(files)
  for i, file in ipairs(files) do
    -- operators are by far the most, and part themselves
    local here = file == "operators.lua" or vectors.in_part(i)
    describe(file:match("^(.*)%.lua$"), function()
      if here then define(file) end
    end)
  end
  if not vectors.in_part(1) then
    return
  end
  describe("left out, a fault of the reference:", function()
    require("spec.support.faults").each(function(name, reason)
      it(name, function() pending(reason) end)
    end)
  end)
end)
