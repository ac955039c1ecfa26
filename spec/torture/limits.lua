-- Runs scenarios (scenarios.lua) where the process may not grow: its address space is limited to
-- what it has and a little more, from nothing until all of it fits. Each run either gives what it
-- gives without a limit, or ends with an error of memory; without the limit the next one gives the
-- same bits. What allocates by itself is under this too: LuaJIT, the stacks of threads, OpenBLAS,
-- oneDNN, the C library. `start` is the start of the program. Single allocations: faults.lua.
--
--   tycho spec/torture/limits.lua MOST [SCENARIO...]
--
-- MOST: so many limits of a scenario. Closes with one line of counts.

local ffi = require "ffi"
local lfs = require "lfs"
local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

ffi.cdef[[
struct limits_rlimit { unsigned long now, most; };
int getrlimit(int what, struct limits_rlimit *limit);
int setrlimit(int what, const struct limits_rlimit *limit);
]]

local ADDRESS_SPACE, PAGE = 9, 4096
local CLEAN = { "not enough memory", "out of memory", "cannot start the thread",
  "Cannot allocate memory", "failed to map segment", "cannot allocate memory",
  "Thread creation failed", "cannot allocate TLS data structures" }

-- In a process of its own -------------------------------------------------------------------------

local function limit_to(bytes)
  local limit = ffi.new("struct limits_rlimit")
  ffi.C.getrlimit(ADDRESS_SPACE, limit)
  limit.now = bytes or limit.most
  assert(ffi.C.setrlimit(ADDRESS_SPACE, limit) == 0)
end

local function used()
  local file = assert(io.open("/proc/self/statm"))
  local pages = file:read("*n")
  file:close()
  return pages * PAGE
end

local function is_clean(e)
  local text = tostring(e)
  if type(e) == "table" and e.code == "memory" then return true end
  for _, words in ipairs(CLEAN) do
    if text:find(words, 1, true) then return true end
  end
end

-- Loads all modules before a limit is set: a module that could not be loaded once is refused by Lua
-- from then on.
local function load_all()
  local files = io.popen("cd runtime/lua && find tycho/*/ -name '*.lua'")
  for file in files:lines() do
    require((file:gsub("%.lua$", ""):gsub("/init$", ""):gsub("/+", ".")))
  end
  files:close()
end

-- Runs a scenario under a limit, without LuaJIT's compiler, whose machine code crashes when an
-- allocation of its own fails (doc/reliability.md).
local function child(name, extra, path)
  jit.off()
  local scenario
  for _, s in ipairs(require("spec.torture.scenarios")) do
    scenario = s.name == name and s or scenario
  end
  load_all()
  collectgarbage()
  limit_to(used() + extra)
  local ok, value = pcall(scenario.run, path)
  limit_to(nil)
  pcall(require("tycho").nd.waitall)
  local expected = scenario.run(path)
  if ok and (value == expected or scenario.prints) then
    print("fits")
  elseif not ok and is_clean(value) and scenario.run(path) == expected then
    print("refused")
  else
    print(ok and "another value" or "another error: " .. tostring(value))
    os.exit(1)
  end
end

if arg[1] == "child" then
  child(arg[2], tonumber(arg[3]), arg[4])
  os.exit(0)
end

-- The one that starts them ------------------------------------------------------------------------

local refused, ended, tried, wrong = 0, 0, 0, 0

local function complain(name, extra, status, output)
  wrong = wrong + 1
  print(("%s, %d KiB more: status %s\n%s"):format(name, extra / 1024, status, output))
end

-- Returns the result of a child: "fits", "refused", or nothing if the process ended by itself.
local function try(name, extra)
  local output, status
  folder.with(function(path)
    output, status = shell.run(("timeout 120 %s spec/torture/limits.lua child %s %d %s")
      :format(shell.program, name, extra, path))
  end)
  tried = tried + 1
  if status == 0 and output:find("^fits") then return "fits" end
  if status == 0 then
    refused = refused + 1
  elseif status == 1 and is_clean(output) then
    ended = ended + 1
  else
    complain(name, extra, status, output)
  end
end

-- GOMP_SPINCOUNT is what the program would set before it starts itself again: one start, one
-- report.
local START = "ulimit -v %d; OPENBLAS_NUM_THREADS=1 GOMP_SPINCOUNT=1000 timeout 10 \z
  env LD_DEBUG=libs LD_DEBUG_OUTPUT=%s/loader %s -e 'ty.nd.ones{2}:sum()'"

-- Returns what ran when the program ended, or looped, before any of our code: the loader, or a
-- library that it was initialising; nil if our code had begun. OpenBLAS 0.3.29 asks for a buffer
-- again and again; libgfortran 14 fails while it fails. The loader's report is of the same process:
-- where addresses are random, another one ends in another place.
local function culprit(path)
  local name = "the loader"
  for file in lfs.dir(path) do
    for line in io.lines(file:find("^loader") and path .. "/" .. file or "/dev/null") do
      if line:find("transferring control", 1, true) then
        name = nil
      else
        name = line:match("calling init: %S-([^/%s]+)$") or name
      end
    end
  end
  return name and not name:find("tycho", 1, true) and name
end

-- Returns output and status of the program's start under a limit, and what ran when it ended.
local function try_start(kib)
  local output, status, blamed
  folder.with(function(path)
    output, status = shell.run(START:format(kib, path, shell.program))
    blamed = culprit(path)
  end)
  return output, status, blamed
end

-- Checks that a program that does not even start reports why: the linker with status 127, ours with
-- 1. OpenBLAS's own threads, one for each further processor, would ask for their buffers without
-- end.
local function start()
  local kib, status, reported = 40000, nil, {}
  while status ~= 0 and kib < 2 ^ 21 do
    local output, blamed
    output, status, blamed = try_start(kib)
    tried = tried + 1
    local clean = is_clean(output) and (status == 1 or status == 127)
    if status ~= 0 then ended = ended + 1 end
    if status ~= 0 and not clean and not blamed then
      complain("start", kib * 1024, status, output)
    elseif status ~= 0 and not clean and not reported[blamed] then
      reported[blamed] = true
      print(("start, %d KiB: %s fails before the program begins, status %d\n%s")
        :format(kib, blamed, status, output))
    end
    kib = kib + (status == 124 and 30000 or 5000)
  end
end

-- Doubles until it fits, then divides evenly what is below.
local function run(name, most)
  local extra = 64 * 1024
  while try(name, extra) ~= "fits" and extra < 2 ^ 33 do
    extra = extra * 2
  end
  for i = 1, most do
    try(name, math.floor(extra * i / (most + 1) / PAGE) * PAGE)
  end
end

local most, wanted = tonumber(arg[1]), {}
for i = 2, #arg do
  wanted[arg[i]] = true
end
for _, scenario in ipairs(require("spec.torture.scenarios")) do
  if #arg < 2 or wanted[scenario.name] then
    run(scenario.name, most)
  end
end
if #arg < 2 or wanted.start then start() end
print(("%d limits, %d errors, %d programs ended by an error, %d wrong")
  :format(tried, refused, ended, wrong))
os.exit(wrong == 0 and refused + ended > 0 and 0 or 1)
