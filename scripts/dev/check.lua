-- Checks what compilers do not: sizes, style, globals, the rockspec, the public header.
--
--   luajit scripts/dev/check.lua  prints one line per finding and a count; exit status 1 if there
--                                 is any
--   luajit scripts/dev/check.lua --rockspec   writes the list of Lua modules into the rockspec
--
-- Run from the root of a checkout; needs luajit, gcc, g++ and clang in the path (a
-- missing compiler is not asked).

local FILE_LINES, FUNCTION_LINES, COLUMNS = 800, 60, 140

local findings = 0

local function report(place, ...)
  findings = findings + 1
  print(place .. ": " .. string.format(...))
end

local function lines_of(path)
  local list = {}
  for line in io.lines(path) do
    list[#list + 1] = line
  end
  return list
end

local function output_of(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo $?"))
  local text, status = pipe:read("*a"):match("^(.-)(%d+)%s*$")
  pipe:close()
  return text, tonumber(status)
end

-- all source files of the checkout, sorted
local function sources()
  local list = {}
  local find =
    io.popen([[find native runtime scripts spec -name '*.[chl]*' -o -name '*.sh' | sort]])
  for path in find:lines() do
    if path:match("%.[ch]$") or path:match("%.cu$") or path:match("%.lua$")
        or path:match("%.sh$") then
      list[#list + 1] = path
    end
  end
  find:close()
  return list
end

-- -- sizes and style ------------------------------------------------------------------------------

-- A function opens in the first column and closes with } or end there.
local function opens(path, line)
  if path:match("%.lua$") then
    return line:match("^local%s+function") or line:match("^function")
      or line:match("^[%w_.]+%s*=%s*function")
  end
  return line:match("^[%a_].*%)%s*{?%s*$") and not line:match(";%s*$") and not line:match("^#")
end

local function check_sizes(path, lines)
  if #lines > FILE_LINES then
    report(path, "%d lines, at most %d", #lines, FILE_LINES)
  end
  local start
  for i, line in ipairs(lines) do
    if not start and opens(path, line) and not line:match("end%)?$") then
      start = i
    elseif start and (line:match("^}") or line:match("^end")) then
      if i - start + 1 > FUNCTION_LINES then
        report(path .. ":" .. start, "a function of %d lines, at most %d",
          i - start + 1, FUNCTION_LINES)
      end
      start = nil
    end
  end
end

local function columns(line)
  return select(2, line:gsub("[^\128-\191]", ""))        -- characters of UTF-8
end

local function check_style(path, lines)
  for i, line in ipairs(lines) do
    local place = path .. ":" .. i
    if line:find("\t", 1, true) then
      report(place, "a tab")
    elseif line:find("[ \r]$") then
      report(place, "white space at the end")
    elseif columns(line) > COLUMNS then
      report(place, "%d columns, at most %d", columns(line), COLUMNS)
    end
  end
end

-- -- Lua ------------------------------------------------------------------------------------------

local FORBIDDEN = {                      -- in runtime/lua: pattern, the only file allowed, reason
  { "ffi%.cdef", "ffi.lua", "only ffi.lua declares C" },
  { "ffi%.load", "ffi.lua", "only ffi.lua loads libraries" },
  { "collectgarbage%s*%(%s*\"[^c]", "gc.lua", "only gc.lua drives the collector" },
  { "collectgarbage%s*%(%s*%)", "gc.lua", "only gc.lua drives the collector" },
  { "os%.exit", "none", "a module never ends the process" },
  { "ffi%.gc%([^)]*function", "none", "finalisers are C functions" },
}

local function check_modules(path, lines)
  if not path:match("^runtime/lua/") then
    return
  end
  local name = path:match("[^/]*$")
  for i, line in ipairs(lines) do
    local code = line:gsub("%-%-.*$", "")
    for _, rule in ipairs(FORBIDDEN) do
      if code:find(rule[1]) and name ~= rule[2] then
        report(path .. ":" .. i, rule[3])
      end
    end
  end
end

local function check_globals(path)
  local text, status = output_of(("luajit -bl '%s'"):format(path))
  if status ~= 0 then
    report(path, "does not compile: %s", text:match("[^\n]*"))
    return
  end
  for name in text:gmatch("GSET[^;\n]*;%s*\"([^\"]+)\"") do
    report(path, "writes the global '%s'", name)
  end
end

-- -- the rockspec ---------------------------------------------------------------------------------

local ROCKSPEC = "tycho-scm-1.rockspec"

local function module_lines()
  local list = {}
  for _, path in ipairs(sources()) do
    local module = path:match("^runtime/lua/(.*)%.lua$")
    if module then
      list[#list + 1] = ('      ["%s"] = "%s",'):format(module:gsub("/", "."), path)
    end
  end
  return table.concat(list, "\n")
end

local function rockspec_text()
  local file = assert(io.open(ROCKSPEC))
  local text = file:read("*a")
  file:close()
  local head, tail = text:match("^(.-\n    lua = {\n).-(      %[\"tycho%.tycho\"%].*)$")
  return text, head .. module_lines() .. "\n" .. tail
end

local function check_rockspec()
  local have, want = rockspec_text()
  if have ~= want then
    report(ROCKSPEC,
      "its list of modules is not that of runtime/lua; scripts/dev/check.lua --rockspec writes it")
  end
end

local function write_rockspec()
  local _, want = rockspec_text()
  local file = assert(io.open(ROCKSPEC, "w"))
  file:write(want)
  file:close()
end

-- -- the public header ----------------------------------------------------------------------------

local READERS = {
  { "gcc", "gcc -std=c11 -fsyntax-only -x c native/tycho.h" },
  { "clang", "clang -std=c11 -fsyntax-only -x c native/tycho.h" },
  { "g++", "g++ -fsyntax-only -x c++ native/tycho.h" },
  { "luajit",
    "luajit -e 'local t = io.open(\"native/tycho.h\"):read(\"*a\"):gsub(\"#[^\\n]*\", \"\") \z
      require(\"ffi\").cdef(t)'" },
}

local function check_header()
  for _, reader in ipairs(READERS) do
    if select(2, output_of("command -v " .. reader[1])) == 0 then
      local text, status = output_of(reader[2])
      if status ~= 0 then
        report("native/tycho.h", "%s does not read it: %s", reader[1],
          text:match("[^\n]*error[^\n]*") or text)
      end
    end
  end
end

-- -- all ------------------------------------------------------------------------------------------

if arg[1] == "--rockspec" then
  write_rockspec()
  return
end

for _, path in ipairs(sources()) do
  local lines = lines_of(path)
  check_sizes(path, lines)
  check_style(path, lines)
  check_modules(path, lines)
  if path:match("%.lua$") then
    check_globals(path)
  end
end
check_rockspec()
check_header()
print(("%d findings"):format(findings))
os.exit(findings == 0 and 0 or 1)
