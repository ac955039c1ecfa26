-- Doors: functions of the C library that only one file of native/ may use: those for memory and the
-- system, so that a test can let each of their calls fail (native/base/gate.h), and those that read
-- and write numbers in the program's locale. Uses are read from the symbols of object files.

local graph = require "check.graph"

local doors = {}

local MEMORY = { file = "native/base/memory.c", door = "native/base/memory.h" }
local NUMBERS = { file = "native/base/number.c", door = "native/base/number.h" }
local SYSTEM = { file = "native/base/system.c", door = "native/base/system.h" }

local DOOR_OF = {}
for door, names in pairs {
  [MEMORY] = "malloc calloc realloc reallocarray aligned_alloc memalign valloc strdup strndup "
    .. "asprintf vasprintf getline getdelim open_memstream",
  [NUMBERS] = "strtod strtof strtold strtod_l strtof_l strtold_l atof vprintf vfprintf "
    .. "vdprintf vsprintf vsnprintf",
  [SYSTEM] = "open openat creat read pread readv write pwrite writev fsync fdatasync close rename "
    .. "renameat link mkdir mkstemp mkostemp tmpfile truncate ftruncate realpath fopen fdopen "
    .. "freopen opendir scandir gzopen gzdopen posix_memalign mmap mremap mprotect "
    .. "pthread_create thrd_create dlopen dlmopen fork execv popen system",
} do
  for name in names:gmatch("%S+") do
    DOOR_OF[name] = door
  end
end

-- The gate's streams read and write for the C library.
local GATE = "native/base/gate.c"

-- Returns the source name of a symbol: for "__read_chk", "open64", "__open_2".
local function written(name)
  name = name:gsub("^__", ""):gsub("_chk$", ""):gsub("_2$", ""):gsub("64$", "")
  return name
end

-- Reports calls of these functions from other files than the one that may use them. `foreign`: from
-- graph.symbols.
function doors.check(report, foreign)
  local reported = {}
  for _, use in ipairs(foreign) do
    local name = written(use.name)
    local door = DOOR_OF[name]
    local key = use.file .. name
    if door and use.file ~= door.file and use.file ~= GATE and not reported[key] then
      reported[key] = true
      report(use.file, graph.line { file = use.file, what = name, by = use.by },
        "%s calls %s past the door: use what %s has for it", use.by or "a table", name, door.door)
    end
  end
end

return doors
