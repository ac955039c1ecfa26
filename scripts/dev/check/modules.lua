-- Checks of Lua modules: no globals, certain calls in one file only, complete module names.

local bytecode = require "jit.bc"
local source = require "check.source"

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

-- Checks a module of runtime/lua.
function modules.check(report, path)
  for i, line in ipairs(source.read(path).names) do
    for _, rule in ipairs(FORBIDDEN) do
      if line:find(rule[1]) and not path:find(rule[2], 1, true) then
        report(path, i, rule[3])
      end
    end
  end
end

-- Returns the instructions of a function and of its inner functions, as text.
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

-- Checks any Lua file: it must compile and write no global variable.
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

return modules
