-- The tour of the source and the architecture name files and functions: all of them exist.
require "spec.helper"

local function read(path)
  local file = io.open(path)
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end

-- All files of the tree by path, and by name for those that a page names without a folder.
local paths = {}
local pipe = io.popen("find native runtime spec scripts doc -type f")
for path in pipe:lines() do
  paths[path], paths[path:match("[^/]*$")] = path, path
end
pipe:close()

-- Returns the text of a file named on a page, below one of the folders that pages leave out.
local function find(name)
  local path = paths[name] or paths["native/" .. name] or paths["runtime/lua/tycho/" .. name]
  return path and read(path)
end

local FILE = "`([%w_/]+%.%l+)`"
local KINDS = { c = true, h = true, inc = true, lua = true, md = true, sh = true, svg = true }

-- Returns everything that a page names, as { file, function or nil }: the functions in brackets
-- after a file are in that file.
local function named(page)
  local list = {}
  local text = read(page):gsub("```.-```", "")
  for file in text:gmatch(FILE) do
    if KINDS[file:match("%l+$")] then
      list[#list + 1] = { file }
    end
  end
  for file, brackets in text:gmatch(FILE .. "%**%s*(%b())") do
    for name in brackets:gmatch("`([%w_:.]+)`") do
      list[#list + 1] = { file, name }
    end
  end
  return list
end

for _, page in ipairs{ "doc/source_tour.md", "ARCHITECTURE.md" } do
  describe(page, function()
    it("names files that exist, and functions that are in them", function()
      local missing, files, functions = {}, 0, 0
      for _, item in ipairs(named(page)) do
        local text = find(item[1])
        local name = item[2] and item[2]:gsub("%p", "%%%0")
        local is_file = name and KINDS[item[2]:match("%.(%l+)$")]
        if not text then
          missing[#missing + 1] = item[1]
        elseif name and not is_file and not text:find("%f[%w_]" .. name .. "%f[^%w_]") then
          missing[#missing + 1] = item[1] .. ": " .. item[2]
        end
        files = files + (item[2] and 0 or 1)
        functions = functions + (item[2] and 1 or 0)
      end
      assert.equal("", table.concat(missing, "\n"))
      assert.is_true(files >= 15, files)
      assert.is_true(functions >= 5 or page ~= "doc/source_tour.md", functions)
    end)
  end)
end

-- Returns the set of all words of the tree and of the Makefile, without pages, and of names of
-- specs.
local function list_words()
  local words = {}
  for word in read("Makefile"):gmatch("[%a_][%w_]*") do
    words[word] = true
  end
  for path in pairs(paths) do
    words[path:match("([%w_]*)_spec%.lua$") or ""] = true
    if path:find("/", 1, true) and not path:find "%.md$" then
      for word in read(path):gmatch("[%a_][%w_]*") do
        words[word] = true
      end
    end
  end
  return words
end

it("the architecture names functions and fields that there are", function()
  local words, missing, count = list_words(), {}, 0
  for name in read("ARCHITECTURE.md"):gsub("```.-```", ""):gmatch("`(%l[%l%d]*_[%l%d_]+)`") do
    missing[#missing + 1] = not words[name] and name or nil
    count = count + 1
  end
  assert.equal("", table.concat(missing, " "))
  assert.is_true(count >= 100, count)
end)

it("the tour has twenty stops", function()
  local _, stops = ("\n" .. read("doc/source_tour.md")):gsub("\n%d+%. ", "")
  assert.equal(20, stops)
end)

it("the operator in C that the page on operators shows compiles", function()
  local block = read("doc/writing_an_operator.md"):match("```c\n(.-)```")
  local path = os.tmpname() .. ".c"
  local file = assert(io.open(path, "w"))
  file:write(block)
  file:close()
  local compiler = io.popen("gcc -std=c11 -D_GNU_SOURCE -Inative -Wall -Werror -fsyntax-only "
    .. path .. " 2>&1")
  local said = compiler:read("*a")
  compiler:close()
  os.remove(path)
  assert.equal("", said)
end)
