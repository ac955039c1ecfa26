-- Checks what compilers do not: rooms and arrows between them, doors to the system, names, sizes,
-- style, globals of Lua, the public header.
--
--   luajit scripts/dev/check.lua [BUILD]                 a line per finding; exit status 1 if any
--   luajit scripts/dev/check.lua --rooms [BUILD]         the same, of rooms and arrows alone
--   luajit scripts/dev/check.lua --picture FILE [BUILD]  draws the rooms
--
-- Run from the root of a checkout; BUILD (default: build) is the folder of the objects that make
-- compiled. Needs luajit, readelf, gcc, g++ and clang in the path (a missing compiler is skipped).

package.path = arg[0]:match("^.*/") .. "?.lua;" .. package.path

local doors = require "check.doors"
local graph = require "check.graph"
local layers = require "check.layers"
local modules = require "check.modules"
local names = require "check.names"
local picture = require "check.picture"
local shell = require "check.shell"
local source = require "check.source"
local style = require "check.style"
local words = require "check.words"

local PICTURE = "doc/rooms.svg"                          -- for ARCHITECTURE.md

local findings = 0

local function report(path, line, ...)
  findings = findings + 1
  print(("%s:%d: "):format(path, line) .. string.format(...))
end

-- -- rooms ----------------------------------------------------------------------------------------

local C = source.find("native runtime", { c = true, h = true, inc = true, cu = true })
local LUA = source.find("runtime/lua", { lua = true })

local function joined(...)
  local all = {}
  for _, list in ipairs { ... } do
    for _, x in ipairs(list) do
      all[#all + 1] = x
    end
  end
  return all
end

-- Returns arrows of C, arrows of Lua, global symbols of C, and uses of other libraries in C.
local function read_arrows(build)
  local calls, globals, objects, foreign = graph.symbols(C, build)
  if objects == 0 then
    io.stderr:write(build, " holds no objects of native/: run make first, or name the folder\n")
    os.exit(1)
  end
  return joined(graph.includes(C), calls), graph.requires(LUA), globals, foreign
end

local function check_rooms(build)
  local c, lua, globals, foreign = read_arrows(build)
  layers.check_places(report, joined(C, LUA))
  layers.check(report, c)
  layers.check(report, lua)
  doors.check(report, foreign)
  local file = io.open(PICTURE)
  if not file or file:read("*a") ~= picture.svg(joined(c, lua)) then
    report(PICTURE, 1, "is not how the rooms are: luajit %s --picture %s %s draws it", arg[0],
      PICTURE, build)
  end
  return globals
end

local function draw(path, build)
  local c, lua = read_arrows(build)
  local file = assert(io.open(path, "w"))
  file:write(picture.svg(joined(c, lua)))
  file:close()
end

-- -- the public header ----------------------------------------------------------------------------

local READ = [[local t = io.open("native/tycho.h"):read("*a"):gsub("#[^\n]*", "") ffi.cdef(t)]]
local READERS = {
  { "gcc", "gcc -std=c11 -fsyntax-only -x c native/tycho.h" },
  { "clang", "clang -std=c11 -fsyntax-only -x c native/tycho.h" },
  { "g++", "g++ -fsyntax-only -x c++ native/tycho.h" },
  { "luajit", "luajit -e 'ffi = require \"ffi\" " .. READ .. "'" },
}

local function check_header()
  for _, reader in ipairs(READERS) do
    if select(2, shell.output("command -v " .. reader[1])) == 0 then
      local text, status = shell.output(reader[2])
      if status ~= 0 then
        local complaint = text:match("[^\n]*error[^\n]*") or text
        report("native/tycho.h", 1, "%s does not read it: %s", reader[1], complaint)
      end
    end
  end
end

-- -- all ------------------------------------------------------------------------------------------

local LANGUAGES = { c = true, h = true, lua = true, sh = true }

local function check_files()
  for _, path in ipairs(LUA) do
    modules.check(report, path)
    words.check(report, path)
  end
  for _, path in ipairs(C) do
    words.check(report, path)
    names.check_statics(report, path)
  end
  for _, path in ipairs(joined(C, source.find("runtime/lua scripts spec", LANGUAGES))) do
    style.check(report, path)
    if path:match("%.lua$") then
      modules.check_globals(report, path)
    end
  end
  check_header()
end

local mode = (arg[1] or ""):match("^%-%-%l+$")
local build = arg[mode and (mode == "--picture" and 3 or 2) or 1] or "build"

if mode == "--picture" then
  draw(arg[2], build)
  return
elseif mode == "--rooms" then
  check_rooms(build)
else
  names.check_globals(report, check_rooms(build))
  names.check_types(report, source.find("native", { c = true, h = true, inc = true }))
  check_files()
end

print(("%d findings"):format(findings))
os.exit(findings == 0 and 0 or 1)
