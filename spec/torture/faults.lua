-- Runs in a build with MODE=torture: each scenario (scenarios.lua, scenarios_graphs.lua,
-- scenarios_models.lua) once for each call that passes a door of native/base and is made to fail,
-- once alone and once with all calls after it. Each time the error, if there is one, is of a kind
-- that the fault may have; the next try gives the same bits and leaves no file half written; and
-- nothing stays open or alive.
--
--   build/torture/tycho spec/torture/faults.lua LIBRARY MOST [SCENARIO...]
--
-- MOST: so many calls of a scenario per fault, evenly spread; `all`: each one. `operators` are a
-- scenario each (operators.lua), of which only memory fails.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local operators = require "spec.torture.operators"
local scenarios = { require "spec.torture.scenarios", require "spec.torture.scenarios_graphs",
  require "spec.torture.scenarios_models" }
local ty = require "tycho"

ffi.cdef "int64_t ty_torture(int gate, int64_t at, int lasting, int fault);"
local C = ffi.load(arg[1])

local MEMORY, SYSTEM, LUA = 0, 1, 2
local ENOMEM, EINTR, EIO, ENOSPC, EDQUOT, SHORT = 12, 4, 5, 28, 122, -1

-- `errors`: codes that may come; no word: none may. A call that is interrupted once is made again
-- by the door (for ever, if all were); one that the C library makes for a stream is an error of it.
local FAULTS = {
  { name = "no memory", gate = MEMORY, fault = ENOMEM, errors = { memory = true } },
  { name = "no memory from here on", gate = MEMORY, fault = ENOMEM, lasting = true,
    errors = { memory = true } },
  { name = "Lua has no memory", gate = LUA, fault = ENOMEM, errors = { memory = true } },
  { name = "Lua has no memory from here on", gate = LUA, fault = ENOMEM, lasting = true,
    errors = { memory = true } },
  { name = "EIO", gate = SYSTEM, fault = EIO, errors = { io = true, memory = true } },
  { name = "EIO from here on", gate = SYSTEM, fault = EIO, lasting = true,
    errors = { io = true, memory = true } },
  { name = "ENOSPC", gate = SYSTEM, fault = ENOSPC, errors = { io = true, memory = true } },
  { name = "ENOSPC from here on", gate = SYSTEM, fault = ENOSPC, lasting = true,
    errors = { io = true, memory = true } },
  { name = "EDQUOT", gate = SYSTEM, fault = EDQUOT, errors = { io = true, memory = true } },
  { name = "EDQUOT from here on", gate = SYSTEM, fault = EDQUOT, lasting = true,
    errors = { io = true, memory = true } },
  { name = "ENOMEM of the system", gate = SYSTEM, fault = ENOMEM,
    errors = { io = true, memory = true } },
  { name = "EINTR", gate = SYSTEM, fault = EINTR, errors = { io = true, memory = true } },
  { name = "short count", gate = SYSTEM, fault = SHORT, errors = { io = true } },
  { name = "short counts from here on", gate = SYSTEM, fault = SHORT, lasting = true,
    errors = { io = true } },
}

local MOST = tonumber(arg[2]) or math.huge
local MOST_OF_LUA = 400                                  -- it allocates everywhere
-- an operator is a small scenario: so many times fewer of its calls
local SHARE = tonumber(os.getenv("TORTURE_SHARE")) or 100

-- Returns the code of an error. That of a thread or a device may have a text around it.
local function code_of(e)
  if type(e) == "string" and e:find("not enough memory", 1, true) then return "memory" end
  return type(e) == "table" and e.code or tostring(e)
end

-- Returns whether an error may be caused by the fault, and has a message. A scenario may exclude
-- codes in `spares`.
local function may_come(e, scenario, fault)
  local code = code_of(e)
  local spared = fault.gate == SYSTEM and scenario.spares and scenario.spares[code]
  return fault.errors[code] and not spared and #tostring(e) > #code
end

local function names_in(path)
  local names = {}
  for name in lfs.dir(path) do
    names[#names + 1] = name
  end
  table.sort(names)
  return table.concat(names, " ")
end

local function open_files()
  local count = 0
  for _ in lfs.dir("/proc/self/fd") do
    count = count + 1
  end
  return count
end

-- Returns how many objects of each kind are alive. Programs that recorded calls keep for the next
-- ones are freed first: a failure in the middle makes others, within a bound.
local function count_alive()
  for _ = 1, 3 do
    collectgarbage()
  end
  ty.nd.waitall()
  C.ty_lazy_trim()
  local counts = ty.live()
  counts.files = open_files()
  return counts
end

local function describe_counts(counts)
  local words = {}
  for kind, count in pairs(counts) do
    words[#words + 1] = tostring(count) .. " " .. kind
  end
  table.sort(words)
  return table.concat(words, ", ")
end

-- Returns how many objects `after` has more than `before`, of all kinds together, and whether any
-- kind has more. Fewer is no leak: the scenario's last undisturbed run may have left something to
-- the collector that had not gone when `before` was counted.
local function compare_counts(before, after)
  local objects, more = 0, false
  for kind, count in pairs(after) do
    local difference = tonumber(count) - tonumber(before[kind] or 0)
    if kind ~= "bytes" then
      objects = objects + difference
    end
    more = more or difference > 0
  end
  return objects, more
end

local failed, wrong, lost = 0, 0, 0

local function complain(scenario, fault, at, what)
  wrong = wrong + 1
  print(("%s: %s, call %d: %s"):format(scenario.name, fault.name, at, tostring(what)))
end

-- Runs a scenario while calls fail, those of Lua, too.
local function disturbed(scenario, path, fault, at)
  C.ty_torture(fault.gate, at, fault.lasting and 1 or 0, fault.fault)
  return scenario.run(path)
end

-- Lets one call fail, then none; checks the error and that the scenario works afterwards.
local function try(scenario, path, fault, at, expected)
  local ok, e = pcall(disturbed, scenario, path, fault, at)
  C.ty_torture(fault.gate, 0, 0, 0)
  if not ok then
    failed = failed + 1
    if not may_come(e, scenario, fault) then
      complain(scenario, fault, at, e)
    end
  elseif e ~= expected.value and not scenario.prints then
    complain(scenario, fault, at, "another value without an error")
  end
  ok, e = pcall(ty.nd.waitall)                           -- what failed and was not read
  if not ok and not may_come(e, scenario, fault) then
    complain(scenario, fault, at, e)
  end
  ok, e = pcall(scenario.run, path)
  if not ok or e ~= expected.value then
    complain(scenario, fault, at, ok and "another value afterwards" or e)
  elseif names_in(path) ~= expected.names then
    complain(scenario, fault, at, "files are left: " .. names_in(path))
  end
end

local function count_calls(scenario, path, gate)
  C.ty_torture(gate, 0, 0, 0)
  scenario.run(path)
  return tonumber(C.ty_torture(gate, 0, 0, 0))
end

-- The library has given a handle, and Lua has no memory to hold it: it is lost, with what belongs
-- to it.
local LOST_AT_ONCE = 4

local function check_alive(scenario, fault, tried, before)
  local after = count_alive()
  local objects, more = compare_counts(before, after)
  if fault.gate == LUA then
    lost = lost + objects
    more = objects > tried * LOST_AT_ONCE
  end
  if more then
    complain(scenario, fault, tried,
      describe_counts(before) .. " before, " .. describe_counts(after) .. " after")
  end
end

-- Turns LuaJIT's compiler off: its machine code crashes when an allocation of its own fails
-- (doc/reliability.md), for which luajit.lua tests.
local function interpret()
  if os.getenv("TORTURE_COMPILED") then return end
  jit.off()
  jit.flush()
end

local function fail_calls(scenario, path, fault, most, expected)
  local total = count_calls(scenario, path, fault.gate)
  local n = math.min(total, most)
  for i = 0, n - 1 do
    try(scenario, path, fault, 1 + math.floor(i * total / n), expected)
  end
  return n
end

local function fail_and_count(scenario, path, fault, most, expected)
  local before = count_alive()
  local n = fail_calls(scenario, path, fault, most, expected)
  check_alive(scenario, fault, n, before)
  return n
end

local function undisturbed(scenario, path)
  scenario.run(path)
  return { value = scenario.run(path), names = names_in(path) }
end

-- Returns how many calls were made to fail.
local function run(scenario, path)
  local expected, tried = undisturbed(scenario, path), 0
  for _, fault in ipairs(FAULTS) do
    local of_lua = fault.gate == LUA
    if of_lua then interpret() end
    if fault.gate == MEMORY or not scenario.only_memory then
      tried = tried + fail_and_count(scenario, path, fault,
        of_lua and math.min(MOST / 2, MOST_OF_LUA) or MOST, expected)
    end
    jit.on()
  end
  return tried
end

-- Tries all operators. Objects are counted once for all, since a collection takes longer than an
-- operator.
local function run_operators(path)
  local tried, before = 0, count_alive()
  for _, operator in ipairs(operators) do
    local expected = undisturbed(operator, path)
    for _, fault in ipairs(FAULTS) do
      if fault.gate == MEMORY then
        tried = tried + fail_calls(operator, path, fault, math.ceil(MOST / SHARE), expected)
      end
    end
  end
  check_alive({ name = "operators" }, FAULTS[1], tried, before)
  return tried
end

local wanted = {}
for i = 3, #arg do
  wanted[arg[i]] = true
end

local function run_wanted(name, f)
  if #arg < 3 or wanted[name] then
    folder.with(function(path)
      print(("%-12s %5d calls made to fail"):format(name, f(path)))
    end)
  end
end

for _, list in ipairs(scenarios) do
  for _, scenario in ipairs(list) do
    run_wanted(scenario.name, function(path) return run(scenario, path) end)
  end
end
run_wanted("operators", run_operators)
print(("%d errors, %d wrong, %d objects lost by Lua"):format(failed, wrong, lost))
os.exit(wrong == 0 and failed > 0 and 0 or 1)
