--- Compile units of a rock (packaging/units.mk): each includes several files of native/, which
-- saves the compiler most of their headers and its own start. Equal names in two files of a unit
-- would clash, so a unit contains files of one folder whose names differ.
--   luajit scripts/dev/units.lua write FILE FOLDER COMMAND SOURCES
--       divides the sources into units, and writes them
--   luajit scripts/dev/units.lua check FILE FOLDER COMMAND SOURCES
--          fails if a source has no unit or two, if a unit does not compile, or if the compiler
--       reads a different text of a file in its unit than of the file alone
-- FOLDER is for the files of units, COMMAND is the compiler with its flags, as one argument. Run
-- from the root of a checkout.

package.path = arg[0]:match("^.*/") .. "?.lua;" .. package.path

local shell = require "check.shell"

-- Most lines of a unit, so that two cores share about fifty units.
local MOST_LINES = 4500

local function read_file(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function count_lines(path)
  return select(2, read_file(path):gsub("\n", ""))
end

-- Returns the variables that a file defines without a value: C silently merges two of one name.
local function unset_variables(path)
  local set = {}
  for line in ("\n" .. read_file(path)):gmatch("\nstatic [^\n(=]*;") do
    for name in line:gsub("%b[]", ""):gmatch("([%w_]+)%s*[;,]") do
      set[name] = true
    end
  end
  return set
end

local function shares_name(a, b)
  for name in pairs(a) do
    if b[name] then
      return true
    end
  end
  return false
end

local function unit_path(folder, name)
  return ("%s/%s.c"):format(folder, name)
end

-- Writes the file of a unit as the Makefile does.
local function write_unit(folder, name, files)
  assert(os.execute(("mkdir -p '%s' && sh packaging/unit.sh %s > '%s'"):format(folder,
    table.concat(files, " "), unit_path(folder, name))) == 0)
end

-- Returns the compiler's messages about a unit, and whether it compiles.
local function try_unit(command, folder, name, files)
  write_unit(folder, name, files)
  local text, status = shell.output(("%s -w -fmax-errors=0 -fno-diagnostics-show-caret -I. \z
    -fsyntax-only '%s'"):format(command, unit_path(folder, name)))
  return text, status == 0
end

-- -- writing --------------------------------------------------------------------------------------

local function mark_clash(clashes, a, b)
  clashes[a] = clashes[a] or {}
  clashes[b] = clashes[b] or {}
  clashes[a][b], clashes[b][a] = true, true
end

-- Marks pairs of files of a unit whose names clash according to the compiler's messages.
local function read_clashes(clashes, files, text)
  local known = {}
  for _, path in ipairs(files) do
    known[path] = true
  end
  local reader, found
  for line in text:gmatch("[^\n]+") do
    for path in line:gmatch("native/[%w_/]+%.c") do
      if known[path] then
        if line:find(" note: ", 1, true) and reader and path ~= reader then
          mark_clash(clashes, reader, path)
          found = true
        elseif not line:find(" note: ", 1, true) then
          reader = path
        end
        break
      end
    end
  end
  if not found then                                      -- in a header: move the file
    for _, path in ipairs(files) do
      if path ~= reader then
        mark_clash(clashes, reader, path)
      end
    end
  end
end

-- Returns the folder of native/ that a file's unit belongs to.
local function folder_of(path)
  return path:match("^native/(%w+)/")
end

-- Puts each file into the first unit of its folder that has space and no equal names.
local function divide_sources(sources, facts, clashes)
  local units, of = {}, {}
  local function fits(unit, path)
    for _, other in ipairs(unit.files) do
      if clashes[path] and clashes[path][other]
          or shares_name(facts[path].unset, facts[other].unset) then
        return false
      end
    end
    return unit.lines + facts[path].lines <= MOST_LINES
  end
  for _, path in ipairs(sources) do
    local folder = folder_of(path)
    of[folder] = of[folder] or {}
    local target
    for _, unit in ipairs(of[folder]) do
      if fits(unit, path) then
        target = unit
        break
      end
    end
    if not target then
      target = { files = {}, lines = 0, name = ("%s_%d"):format(folder, #of[folder] + 1) }
      table.insert(of[folder], target)
      table.insert(units, target)
    end
    table.insert(target.files, path)
    target.lines = target.lines + facts[path].lines
  end
  return units
end

-- Returns units that compile: the sources are divided again while one clashes.
local function find_units(sources, folder, command)
  local facts, clashes, taken = {}, {}, {}
  for _, path in ipairs(sources) do
    facts[path] = { lines = count_lines(path), unset = unset_variables(path) }
  end
  while true do
    local units, done = divide_sources(sources, facts, clashes), true
    for _, unit in ipairs(units) do
      local key = table.concat(unit.files, " ")
      if #unit.files > 1 and not taken[key] then
        local text, good = try_unit(command, folder, unit.name, unit.files)
        taken[key] = good
        if not good then
          read_clashes(clashes, unit.files, text)
          done = false
        end
      end
    end
    if done then
      return units
    end
  end
end

-- Writes the units, the largest first, so that no large one is compiled alone at the end.
local function write_list(path, units)
  table.sort(units, function(a, b)
    return a.lines > b.lines or a.lines == b.lines and a.name < b.name
  end)
  local file = assert(io.open(path, "w"))
  file:write("# Files that a rock compiles together: written by `make units`, checked by \z
    `make check-units`. A file that is in\n# no unit is compiled alone.\n\n")
  for _, unit in ipairs(units) do
    if #unit.files > 1 then
      file:write(("UNIT_NAMES += %s\nUNIT_%s = \\\n  %s\n\n"):format(unit.name, unit.name,
        table.concat(unit.files, " \\\n  ")))
    end
  end
  file:close()
end

-- -- checking -------------------------------------------------------------------------------------

local function read_list(path)
  local units = {}
  for name, files in read_file(path):gsub("\\\n", ""):gmatch("\nUNIT_([%l%d_]+) = ([^\n]*)") do
    local unit = { name = name, files = {} }
    for file in files:gmatch("%S+") do
      table.insert(unit.files, file)
    end
    table.insert(units, unit)
  end
  return units
end

-- Returns the preprocessed text of each .c file of native/, without its headers, by its path.
local function own_texts(command, path)
  local pipe = assert(io.popen(("%s -w -I. -E '%s' 2>&1"):format(command, path)))
  local texts, current = {}, nil
  for line in pipe:lines() do
    local marked = line:match('^# %d+ "([^"]*)"')
    if marked then
      current = marked:match("native/[%w_/]+%.c$")
    elseif current then
      local text = texts[current] or {}
      texts[current] = text
      for word in line:gmatch("%S+") do
        text[#text + 1] = word
      end
    end
  end
  pipe:close()
  for name, text in pairs(texts) do
    texts[name] = table.concat(text, " ")
  end
  return texts
end

local function check_list(path, sources, folder, command)
  local findings, unit_of, known = 0, {}, {}
  local function report(...)
    findings = findings + 1
    print(path .. ": " .. string.format(...))
  end
  for _, source in ipairs(sources) do
    known[source] = true
  end
  for _, unit in ipairs(read_list(path)) do
    local files, unset = {}, {}
    for _, file in ipairs(unit.files) do
      if unit_of[file] then
        report("%s is in %s and in %s", file, unit_of[file], unit.name)
      end
      unit_of[file] = unit.name
      if known[file] then                                -- oneDNN's only where it is installed
        table.insert(files, file)
      elseif not io.open(file) then
        report("%s of %s is not there", file, unit.name)
      end
    end
    local text, good = try_unit(command, folder, unit.name, files)
    if not good then
      report("%s does not compile: run `make units`\n%s", unit.name, text)
    else
      local texts = own_texts(command, unit_path(folder, unit.name))
      for _, file in ipairs(files) do
        local mine = unset_variables(file)
        for other, set in pairs(unset) do
          if shares_name(mine, set) then
            report("%s and %s have a variable of one name", other, file)
          end
        end
        unset[file] = mine
        if texts[file] ~= own_texts(command, file)[file] then
          report("%s is another text in %s than alone: a macro of another file", file, unit.name)
        end
      end
    end
  end
  return findings
end

local action, path, folder, command = unpack(arg, 1, 4)
local sources = { unpack(arg, 5) }
if action == "write" then
  write_list(path, find_units(sources, folder, command))
else
  os.exit(check_list(path, sources, folder, command) == 0 and 0 or 1)
end
