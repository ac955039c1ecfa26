-- Arrows of the code: which file includes, requires and calls which.
--
-- An arrow is { kind = "include" | "call" | "require", file =, line =, target = the other file,
-- what = the name used, by = the function or table that uses it }. Calls are read from object
-- files: a relocation shows which function uses which symbol of another file, independent of
-- macros. Tables of functions (operators, kernels) are used by data; the arrow then begins at the
-- table.

local source = require "check.source"

local graph = {}

local function exists(path)
  local file = io.open(path)
  return file and file:close()
end

-- -- includes -------------------------------------------------------------------------------------

local function folder_of(path)
  return path:match("^(.*/)") or ""
end

-- Returns the file that `#include "name"` in `path` reads; nil if the build makes it.
local function included_file(path, name)
  for _, folder in ipairs { folder_of(path), "native/" } do
    local file = folder .. name
    while file:find("[^/]+/%.%./") do
      file = file:gsub("[^/]+/%.%./", "", 1)
    end
    if exists(file) then
      return file
    end
  end
end

function graph.includes(files)
  local arrows = {}
  for _, path in ipairs(files) do
    for line, text in ipairs(source.read(path).names) do
      local name = text:match('^%s*#%s*include%s+"([^"]+)"')
      local target = name and included_file(path, name)
      if target then
        local arrow = { kind = "include", file = path, line = line, target = target, what = name }
        arrows[#arrows + 1] = arrow
      end
    end
  end
  return arrows
end

-- -- symbols --------------------------------------------------------------------------------------

-- Returns readelf's information about one object: sections by number, symbols, relocations by name
-- of the section.
local function new_object(path)
  return { path = path, sections = {}, symbols = {}, relocations = {} }
end

local function read_symbol(object, line)
  local value, size, kind, bind, section, name =
    line:match("^%s*%d+:%s+(%x+)%s+(%w+)%s+(%u+)%s+(%u+)%s+%u+%s+(%w+)%s+(%S+)")
  if section then
    object.symbols[#object.symbols + 1] = {
      name = name,
      value = tonumber(value, 16),
      size = tonumber(size),
      kind = kind,
      bind = bind,
      section = tonumber(section),
    }
  end
end

local function read_line(object, line, within)
  local section = line:match("^Relocation section '%.rela?(%.[^']+)'")
  if section then
    return not section:match("^%.debug") and section ~= ".eh_frame" and section
  elseif line:match("^Symbol table") then
    return "symbols"
  end
  local number, name = line:match("^%s*%[%s*(%d+)%]%s+(%S+)")
  if number then
    object.sections[name] = tonumber(number)
  elseif within == "symbols" then
    read_symbol(object, line)
  elseif within then
    local offset, symbol = line:match("^(%x+)%s+%x+%s+R_%S+%s+%x+%s+([%a_][%w_]*)")
    if offset then
      local relocation = { section = within, offset = tonumber(offset, 16), name = symbol }
      table.insert(object.relocations, relocation)
    end
  end
  return within
end

local function read_objects(paths)
  local objects, within = {}, nil
  local command = "readelf -W -S -s -r /dev/null " .. table.concat(paths, " ") .. " 2>/dev/null"
  local pipe = assert(io.popen(command))
  for line in pipe:lines() do
    local path = line:match("^File: (.*)$")
    if path then
      objects[#objects + 1], within = new_object(path), nil
    elseif #objects > 0 then
      within = read_line(objects[#objects], line, within)
    end
  end
  pipe:close()
  return objects
end

-- Returns the name of the function or table that contains a relocated place.
local function holder(object, relocation)
  local section = object.sections[relocation.section]
  for _, symbol in ipairs(object.symbols) do
    local has_body = symbol.kind == "FUNC" or symbol.kind == "OBJECT"
    local at = relocation.offset - symbol.value
    if has_body and symbol.section == section and at >= 0 and at < symbol.size then
      return symbol.name:match("^[^.]+")                 -- without the compiler's .part.0
    end
  end
end

-- Returns the line of an arrow. Object files do not contain it: it is the first line from the
-- beginning of the using function on that names the used symbol or, if the compiler has inlined the
-- function, the first one in the file.
function graph.line(arrow)
  if arrow.line then
    return arrow.line
  end
  local first
  local head, reached = "^[%a_].*%f[%w_]" .. (arrow.by or "") .. "%f[^%w_][^;]*$", not arrow.by
  for i, text in ipairs(source.read(arrow.file).code) do
    reached = reached or text:find(head)
    if text:find("%f[%w_]" .. arrow.what .. "%f[^%w_]") then
      first = first or i
      if reached then
        return i
      end
    end
  end
  return first or 1
end

-- Returns the objects of `files` below the folder `build`: path of the object -> source. Objects
-- without a source are outdated and left out.
local function find_objects(files, build)
  local sources, paths = {}, {}
  for _, path in ipairs(files) do
    sources[path:match("^(.*)%.c$") or path] = path
  end
  for _, object in ipairs(source.find(build, { o = true })) do
    local stem = object:sub(#build + 2):match("^(.-)%.[%w.]*$")
    if sources[stem] then
      paths[#paths + 1] = object
      paths[object] = sources[stem]
    end
  end
  return paths
end

local function add_call(arrows, seen, arrow)
  local key = table.concat({ arrow.file, arrow.by or "", arrow.what }, " ")
  if arrow.target ~= arrow.file and not seen[key] then
    seen[key] = true
    arrows[#arrows + 1] = arrow
  end
end

-- Callers outside native/ use the library through its interface.
local INTERFACE = "native/tycho.h"

-- Returns arrows of calls, the global symbols (list of { name =, file = }), the number of objects,
-- and uses of other libraries (list of { name =, file =, by = }). `build` contains native/*.o.
function graph.symbols(files, build)
  local sources = find_objects(files, build)
  local objects = read_objects(sources)
  local arrows, globals, defined, seen, foreign = {}, {}, {}, {}, {}
  for _, object in ipairs(objects) do
    for _, symbol in ipairs(object.symbols) do
      if symbol.section and symbol.bind ~= "LOCAL" and not defined[symbol.name] then
        defined[symbol.name] = sources[object.path]
        globals[#globals + 1] = { name = symbol.name, file = sources[object.path] }
      end
    end
  end
  for _, object in ipairs(objects) do
    for _, relocation in ipairs(object.relocations) do
      local target, file = defined[relocation.name], sources[object.path]
      if target then
        local through = file:find("^native/") and target or INTERFACE
        add_call(arrows, seen, {
          kind = "call", file = file, target = through,
          what = relocation.name, by = holder(object, relocation),
        })
      elseif file:find("^native/") then
        foreign[#foreign + 1] = {
          name = relocation.name, file = file, by = holder(object, relocation),
        }
      end
    end
  end
  return arrows, globals, #objects, foreign
end

-- -- requires -------------------------------------------------------------------------------------

local LUA = "runtime/lua/"

local function module_file(name)
  local stem = LUA .. (name:gsub("%.", "/"))
  for _, ending in ipairs { ".lua", "/init.lua" } do
    if exists(stem .. ending) then
      return stem .. ending
    end
  end
end

local function add_require(arrows, path, line, target, name)
  if target and target ~= path then
    local arrow = { kind = "require", file = path, line = line, target = target, what = name }
    arrows[#arrows + 1] = arrow
  end
end

-- Finds requires of our modules, also inside functions. A module name in quotes counts as a use,
-- whether it is passed to require directly, later or through a table; so does a path in native/.
function graph.requires(files)
  local arrows = {}
  for _, path in ipairs(files) do
    for line, text in ipairs(source.read(path).names) do
      for name in text:gmatch("[\"'](tycho[%w_.]*)[\"']") do
        add_require(arrows, path, line, module_file(name), name)
      end
      for name in text:gmatch("[\"'](native/[%w_./]*)[\"']") do
        add_require(arrows, path, line, exists(name) and name, name)
      end
    end
  end
  return arrows
end

-- -- circles --------------------------------------------------------------------------------------

-- Returns the shortest path from `start` back to itself as a list of arrows, or nil. `nexts[a]` is
-- a list of { name, arrow }.
local function way_back(nexts, start)
  local came, queue, at = {}, { start }, 1
  while queue[at] do
    local from = queue[at]
    for _, next in ipairs(nexts[from] or {}) do
      local to, arrow = next[1], next[2]
      if to == start then
        local way = { arrow }
        while from ~= start do
          table.insert(way, 1, came[from][2])
          from = came[from][1]
        end
        return way
      elseif not came[to] then
        came[to] = { from, arrow }
        queue[#queue + 1] = to
      end
    end
    at = at + 1
  end
end

-- Returns one arrow for each pair of names: name -> list of { name, arrow }, and all names with
-- arrows, sorted.
local function by_name(arrows, name_of)
  local nexts, names, seen = {}, {}, {}
  for _, arrow in ipairs(arrows) do
    local from, to = name_of(arrow.file), name_of(arrow.target)
    if from and to and from ~= to and not seen[from .. "\n" .. to] then
      seen[from .. "\n" .. to] = true
      if not nexts[from] then
        nexts[from] = {}
        names[#names + 1] = from
      end
      table.insert(nexts[from], { to, arrow })
    end
  end
  table.sort(names)
  return nexts, names
end

-- Returns the circles among arrows, each as a list of arrows; `name_of(file)` returns the node of a
-- file (nil: not counted).
function graph.circles(arrows, name_of)
  local nexts, names = by_name(arrows, name_of)
  local reported, circles = {}, {}
  for _, name in ipairs(names) do
    local way = not reported[name] and way_back(nexts, name)
    for _, arrow in ipairs(way or {}) do
      reported[name_of(arrow.file)] = true
    end
    circles[#circles + 1] = way or nil
  end
  return circles
end

return graph
