-- What of native/ and of the program ran, as gcov counted it: a line per file with its lines, the
-- branches that were taken, and whether that is less than wanted.
--
--   luajit scripts/dev/coverage.lua FOLDER LINES BRANCHES
--
-- FOLDER: a build with MODE=coverage, of which things have run. Fails where all files together
-- have fewer lines or branches than so many per cent. Folders `isa` are not counted: what stands
-- there is compiled once per instruction set, and a machine has only some.

local folder, least_lines, least_branches = arg[1], tonumber(arg[2]), tonumber(arg[3])

-- gcov writes per cent of the whole.
local function part(line, words)
  local percent, whole = line:match("^" .. words .. ":([%d.]+)%% of (%d+)")
  whole = tonumber(whole)
  return whole and math.floor(whole * tonumber(percent) / 100 + 0.5), whole
end

local function percent(some, all)
  return all == 0 and 100 or 100 * some / all
end

-- The last lines of gcov are about all files, its own names of which we leave out.
local function read_summary()
  local files, file = {}, nil
  local pipe = assert(io.popen(("find %s/native %s/runtime -name '*.gcno' | sort | \z
    xargs gcov -b -n -r -s $PWD 2>/dev/null"):format(folder, folder)))
  for line in pipe:lines() do
    local name = line:match("^File '(.*)'$")
    if name then
      local ours = name:find("^native/") or name:find("^runtime/")
      local counts = ours and not name:find("/isa/", 1, true)
      file = counts and { name = name, lines = 0, all_lines = 0, taken = 0, branches = 0 } or nil
      files[#files + 1] = file
    elseif file then
      local lines, all_lines = part(line, "Lines executed")
      local taken, branches = part(line, "Taken at least once")
      if lines and file.all_lines == 0 then file.lines, file.all_lines = lines, all_lines end
      if taken then file.taken, file.branches = taken, branches end
    end
  end
  pipe:close()
  return files
end

local files = read_summary()
table.sort(files, function(a, b) return a.name < b.name end)

local sum = { lines = 0, all_lines = 0, taken = 0, branches = 0 }
for _, f in ipairs(files) do
  for key in pairs(sum) do
    sum[key] = sum[key] + f[key]
  end
  local lines, branches = percent(f.lines, f.all_lines), percent(f.taken, f.branches)
  print(("%-44s %6.1f %% of %5d lines %6.1f %% of %5d branches%s"):format(f.name, lines,
    f.all_lines, branches, f.branches,
    (lines < least_lines or branches < least_branches) and "  *" or ""))
end
local lines, branches = percent(sum.lines, sum.all_lines), percent(sum.taken, sum.branches)
print(("%d files: %.1f %% of %d lines, %.1f %% of %d branches"):format(#files, lines,
  sum.all_lines, branches, sum.branches))
os.exit(#files > 0 and lines >= least_lines and branches >= least_branches and 0 or 1)
