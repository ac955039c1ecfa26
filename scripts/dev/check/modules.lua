-- What holds for modules of Lua: no globals, things that one file alone does, names written out,
-- the rockspec's list of them, of the scripts and of the pages.

local bytecode = require "jit.bc"
local source = require "check.source"

local ROCKSPEC = "tycho-scm-1.rockspec"

local modules = {}

local FORBIDDEN = {                                      -- pattern, the only file allowed, reason
  { "ffi%.cdef", "core/ffi.lua", "only core/ffi.lua declares C" },
  { "ffi%.load", "core/ffi.lua", "only core/ffi.lua loads libraries" },
  { "collectgarbage%s*%(%s*\"[^c]", "core/gc.lua", "only core/gc.lua drives the collector" },
  { "collectgarbage%s*%(%s*%)", "core/gc.lua", "only core/gc.lua drives the collector" },
  { "os%.exit", "none", "a module never ends the process" },
  { "ffi%.gc%([^)]*function", "none", "finalisers are C functions" },
  { "[\"']tycho%.[%w_.]*[\"']%s*%.%.", "none",
    "a module's name put together is not seen here: write it out" },
}

-- A module of runtime/lua.
function modules.check(report, path)
  for i, line in ipairs(source.read(path).names) do
    for _, rule in ipairs(FORBIDDEN) do
      if line:find(rule[1]) and not path:find(rule[2], 1, true) then
        report(path, i, rule[3])
      end
    end
  end
end

-- Returns the instructions of a function and of those in it, as text.
local function listing(f)
  local parts = {}
  local function write(_, ...)
    for i = 1, select("#", ...) do
      parts[#parts + 1] = (select(i, ...))
    end
  end
  bytecode.dump(f, { write = write, flush = function() end }, true)
  return table.concat(parts)
end

-- Any file of Lua.
function modules.check_globals(report, path)
  local f, complaint = loadfile(path)
  if not f then
    report(path, 1, "does not compile: %s", complaint)
    return
  end
  for name in listing(f):gmatch("GSET[^;\n]*;%s*\"([^\"]+)\"") do
    report(path, 1, "writes the global '%s'", name)
  end
end

-- -- the rockspec ---------------------------------------------------------------------------------

-- Lines for files below a root; prefix: of their names as modules. LuaRocks keeps the name of a
-- file that is no Lua.
local function add_lines(list, root, prefix, paths)
  for _, path in ipairs(paths) do
    local name = path:sub(#root + 2):gsub("%.%w+$", ""):gsub("/", ".")
    list[#list + 1] = ('      ["%s%s"] = "%s",'):format(prefix, name, path)
  end
end

local SCRIPT_FOLDERS = { [""] = true, ["lib/"] = true, ["models/"] = true }

local function module_lines()
  local list, scripts = {}, {}
  for _, path in ipairs(source.find("scripts", { lua = true, t7 = true })) do
    local folder = path:match("^scripts/(.-)[^/]*$")
    scripts[#scripts + 1] = SCRIPT_FOLDERS[folder] and path or nil
  end
  add_lines(list, "runtime/lua", "", source.find("runtime/lua", { lua = true }))
  add_lines(list, "scripts", "tycho.scripts.", scripts)
  add_lines(list, "doc", "tycho.doc.", source.find("doc", { md = true }))
  return table.concat(list, "\n")
end

local function rockspec_text()
  local file = assert(io.open(ROCKSPEC))
  local text = file:read("*a")
  file:close()
  local head, header, tail =
    text:match("^(.-\n    lua = {\n).-(      %[\"tycho%.tycho\"%][^\n]*).-(\n    },\n.*)$")
  return text, head .. module_lines() .. "\n" .. header .. tail
end

function modules.check_rockspec(report)
  local have, want = rockspec_text()
  if have ~= want then
    report(ROCKSPEC, 1, "not the modules, scripts and pages: luajit %s --rockspec writes them",
      arg[0])
  end
end

function modules.write_rockspec()
  local _, want = rockspec_text()
  local file = assert(io.open(ROCKSPEC, "w"))
  file:write(want)
  file:close()
end

return modules
