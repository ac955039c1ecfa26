-- Coverage of native/ and of the program, as counted by gcov: for each file its lines, the branches
-- that were taken, and whether the numbers are below the wanted ones.
--
--   luajit scripts/dev/coverage.lua FOLDER LINES BRANCHES [FILE...]
--
-- FOLDER: a build with MODE=coverage that has been run. Fails if all files together have a smaller
-- percentage of lines or branches than LINES and BRANCHES. For given files of native/, lines that
-- did not run are shown (`-`), and lines with a branch that was not taken (`?`).
--
-- A branch is one outcome of a condition in the source (nothing is optimised or inlined): each
-- operand of `&&` and `||`, each `case`. A function that exists several times, from a macro for
-- each type or from a header that many files include, counts once, and its branch counts as taken
-- if one of them took it. Folders `isa` are not counted: their files are compiled once for each
-- instruction set, and a machine supports only some.

local folder, least_lines, least_branches = arg[1], tonumber(arg[2]), tonumber(arg[3])
local here = io.popen("pwd -P"):read("*l") .. "/"

-- {[name of a file] = {[line number] = {ran =, [number of branches] = list of booleans: taken}}}
local files = {}

-- Returns gcov's name of a file, relative to this folder: some compilers write absolute paths.
local function name_of(file)
  local name = file:match('"file": "([^"]*)"')
  return name:sub(1, #here) == here and name:sub(#here + 1) or name
end

local function counts(name)
  return (name:find("^native/") or name:find("^runtime/")) and not name:find("/isa/", 1, true)
end

local function entry(of, key)
  of[key] = of[key] or {}
  return of[key]
end

local function add_line(lines, text)
  local number = tonumber(text:match('"line_number": (%d+)'))
  local line = entry(lines, number)
  line.ran = line.ran or not text:find('"count": 0, "line_number"', 1, true)
  local branches = {}
  for count in text:match('"branches": (%b[])'):gmatch('"count": (%d+)') do
    branches[#branches + 1] = count ~= "0"
  end
  local taken = entry(line, #branches)
  for i, yes in ipairs(branches) do
    taken[i] = taken[i] or yes
  end
end

-- Each output line is the information of one object file, including headers.
local pipe = assert(io.popen(("find %s/native %s/runtime -name '*.gcno' | sort | \z
  xargs gcov -b -r -s $PWD --json-format --stdout 2>/dev/null"):format(folder, folder)))
for object in pipe:lines() do
  for file in object:match('"files": (%b[])'):gmatch("%b{}") do
    local name = name_of(file)
    if counts(name) then
      for line in file:match('"lines": (%b[])'):gmatch("%b{}") do
        add_line(entry(files, name), line)
      end
    end
  end
end
pipe:close()

local function percent(some, all)
  return all == 0 and 100 or 100 * some / all
end

local function count_branches(line)
  local taken, all = 0, 0
  for name, list in pairs(line) do
    for _, yes in ipairs(name == "ran" and {} or list) do
      taken, all = taken + (yes and 1 or 0), all + 1
    end
  end
  return taken, all
end

local names, sum = {}, { lines = 0, all_lines = 0, taken = 0, branches = 0 }
for name, lines in pairs(files) do
  names[#names + 1] = name
  local f = { lines = 0, all_lines = 0, taken = 0, branches = 0 }
  for _, line in pairs(lines) do
    local taken, branches = count_branches(line)
    f.lines, f.all_lines = f.lines + (line.ran and 1 or 0), f.all_lines + 1
    f.taken, f.branches = f.taken + taken, f.branches + branches
  end
  for key in pairs(sum) do
    sum[key] = sum[key] + f[key]
  end
  lines.text = ("%-44s %6.1f %% of %5d lines %6.1f %% of %5d branches%s"):format(name,
    percent(f.lines, f.all_lines), f.all_lines, percent(f.taken, f.branches), f.branches,
    (percent(f.lines, f.all_lines) < least_lines
      or percent(f.taken, f.branches) < least_branches) and "  *" or "")
end
table.sort(names)

local function show(name)
  local number = 0
  for text in io.lines(name) do
    number = number + 1
    local line = files[name][number]
    if line then
      local taken, branches = count_branches(line)
      if not line.ran or taken < branches then
        print(("%s %s:%d: %s"):format(line.ran and "?" or "-", name, number, text))
      end
    end
  end
end

for _, name in ipairs(names) do
  if #arg == 3 then print(files[name].text) end
end
for i = 4, #arg do
  show(arg[i])
end
local lines, branches = percent(sum.lines, sum.all_lines), percent(sum.taken, sum.branches)
print(("%d files: %.1f %% of %d lines, %.1f %% of %d branches"):format(#names, lines,
  sum.all_lines, branches, sum.branches))
os.exit(#names > 0 and lines >= least_lines and branches >= least_branches and 0 or 1)
