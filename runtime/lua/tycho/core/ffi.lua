--- The bridge to the native engine: the only file that touches `ffi.cdef` and `ffi.load`.
--
-- The declarations are the text of `native/tycho.h` without its `#` lines, so there is one
-- description of the interface. The library is searched at `TYCHO_LIB`, in the running program, in
-- the folder of this file, on `package.cpath` (`tycho.libtycho`), in `build/` of the checkout, and
-- by the system's loader (`libtycho.so.0`); the header next to the library and in `native/` of the
-- checkout.
--
--     local native = require "tycho.core.ffi"
--     local C, check = native.C, native.check
--     local out = ffi.new("ty_graph *[1]")
--     check(C.ty_graph_new(out), "Symbol:tojson")
--     local graph = native.own(out[0], C.ty_graph_free)
--
-- Handles are freed by C functions only (a Lua error in a finaliser would surface in unrelated
-- code).
--
-- @module tycho.core.ffi

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local Error = require "tycho.core.error"

local native = {}

local ABI = 2                            -- TY_ABI of the header these modules were written for
local SONAME = "libtycho.so.0"           -- name of the library in packages of distributions
local HERE = debug.getinfo(1, "S").source:match("^@(.*/)core/") or "./"
local ROOT = HERE .. "../../../"                 -- of a checkout: HERE is runtime/lua/tycho/

if not ffi.abi("gc64") and ffi.abi("64bit") then
  error("tycho needs a LuaJIT 2.1 built with GC64; this one would limit Lua to 2 GB of memory", 0)
end


local function read(path)
  local file = io.open(path, "rb")
  local text = file and file:read("*a")
  if file then
    file:close()
  end
  return text
end


local function exists(path)
  local file = path and io.open(path, "rb")
  if file then
    file:close()
  end
  return file ~= nil
end


-- Returns the paths at which the library is searched, in order of preference.
local function library_paths()
  local paths = { HERE .. "libtycho.so", ROOT .. "build/libtycho.so" }
  local chosen = os.getenv("TYCHO_LIB")
  if chosen and chosen ~= "" then
    table.insert(paths, 1, chosen:find("/", 1, true) and chosen or "./" .. chosen)
  end
  local found = package.searchpath("tycho.libtycho", package.cpath)
  if found then
    table.insert(paths, #paths, found)
  end
  return paths
end


local function header_paths(library)
  local paths, folder = { HERE .. "tycho.h", ROOT .. "native/tycho.h" }, library:match("^(.*/)")
  if folder then
    table.insert(paths, 1, folder .. "tycho.h")
    table.insert(paths, folder .. "../native/tycho.h")
  end
  return paths
end


local function declare(library)
  if pcall(ffi.typeof, "ty_desc") then
    return                                       -- this module was loaded before in the same state
  end
  local paths = header_paths(library)
  for _, path in ipairs(paths) do
    local text = read(path)
    if text then
      ffi.cdef((text:gsub("[^\n]*", function(line) return line:match("^%s*#") and "" or nil end)))
      return
    end
  end
  error("tycho: tycho.h was not found; looked in:\n  " .. table.concat(paths, "\n  "), 0)
end


local function in_program()
  return pcall(function() return ffi.C.ty_abi end)
end


-- Limits how long threads that wait for each other spin, to microseconds instead of milliseconds:
-- on a busy machine the default of the OpenMP runtime costs more than the work. The runtime reads
-- the variable when it is loaded; a value that is set already is kept.
local function calm_threads()
  pcall(ffi.cdef, "int setenv(const char *name, const char *value, int overwrite);")
  ffi.C.setenv("GOMP_SPINCOUNT", "1000", 0)
end


-- Returns what to do if no library was found; `reasons`: lines, one per path that was tried.
local function advice(reasons)
  local prefix = HERE:match("^(.*)/share/lua/5%.1/tycho/$") or "PREFIX"
  return ([[
tycho: libtycho.so cannot be loaded. In a checkout, make builds it; an installed one is found by
  export LUA_PATH='%s/share/lua/5.1/?.lua;%s/share/lua/5.1/?/init.lua;;'
  export TYCHO_LIB=%s/lib/lua/5.1/tycho/libtycho.so
Tried:
]]):format(prefix, prefix, prefix) .. table.concat(reasons, "\n")
end


local function load_library()
  calm_threads()
  local paths, reasons = library_paths(), {}
  table.insert(paths, SONAME)
  for _, path in ipairs(paths) do
    if path == SONAME or exists(path) then
      local ok, library = pcall(ffi.load, path)
      if ok then
        declare(path)
        return library, path
      end
      if type(library) ~= "string" then
        error(library, 0)                        -- asked to stop meanwhile
      end
      reasons[#reasons + 1] = "  " .. library
    else
      reasons[#reasons + 1] = "  " .. path .. ": no such file"
    end
  end
  declare("")
  if in_program() then
    return ffi.C, "the program"
  end
  error(advice(reasons), 0)
end


-- The library's functions and constants, and where it was found.
native.C, native.path = load_library()

local C = native.C

if C.ty_abi() ~= ABI or C.TY_ABI ~= ABI then
  error(("tycho: %s has interface number %d, these Lua modules need %d; \z
    rebuild or reinstall both together"):format(
    native.path, C.ty_abi(), ABI), 0)
end


--- Returns a C text as a Lua string; nil for NULL.
function native.text(s)
  if s == nil then
    return nil
  end
  return ffi.string(s)
end

local text = native.text


--- Returns a handle that is freed with the last reference to it.
-- @param pointer the object that a C function made
-- @param free the C function that frees it
function native.own(pointer, free)
  return ffi.gc(pointer, free)
end


local attr_array = ffi.typeof("ty_attr[?]")

--- Returns attributes as an array of `ty_attr`. The caller must keep both tables until the C call
-- returns, since the array points to their strings.
-- @tparam {string,...} keys attribute names, in the order of the array
-- @tparam table dict values by name, all text
-- @treturn ty_attr array
function native.attrs(keys, dict)
  local list = attr_array(#keys + 1)
  for i = 1, #keys do
    local to, key = list[i - 1], keys[i]
    to.key, to.value = key, dict[key]
  end
  return list
end


local attr_capacity, attr_list = 32, attr_array(32)

--- Returns attributes in any order, in an array that the next call of this function overwrites.
-- @tparam table dict values by name, all text; the caller must keep it until the C call returns
-- @treturn ty_attr array
-- @treturn int number of attributes
function native.put_attrs(dict)
  local n = 0
  for key, value in pairs(dict) do
    if n == attr_capacity then
      local more = attr_array(2 * n)
      ffi.copy(more, attr_list, n * ffi.sizeof("ty_attr"))
      attr_capacity, attr_list = 2 * n, more
    end
    local to = attr_list[n]
    to.key, to.value = key, value
    n = n + 1
  end
  return attr_list, n
end


-- Returns "(2, ?)" as {2, 0}, with 0 for an unknown size; other texts are returned unchanged.
local function read_shape(s)
  local inner = s and s:match("^%(([%d%s,?]*)%)$")
  if not inner then
    return s
  end
  local shape = {}
  for entry in inner:gmatch("[%d?]+") do
    shape[#shape + 1] = tonumber(entry) or 0
  end
  return inner == "?" and {} or shape
end


local function split(names)
  local list = {}
  for name in names:gmatch("[^,%s]+") do
    if name ~= "..." then
      list[#list + 1] = name
    end
  end
  return list
end


-- Moves the inputs of a failed node from the end of the core's message, " (inputs: data (2, 3),
-- weight (?))", to `e.shapes`. Does nothing without that ending: a node in a body has reported its
-- inputs already.
local function take_inputs(e)
  local message, list = e.message:match("^(.*) %(inputs: (.*)%)$")
  if not message then
    return
  end
  local shapes = {}
  for name, shape in list:gmatch("([%w_]+) (%([%d%s,?]*%))") do
    shapes[#shapes + 1] = { name = name, shape = read_shape(shape) }
  end
  if shapes[1] then
    e.message, e.shapes = message, shapes
  end
end


local function add_names(e)
  local names = split(e.expected)
  if e.code == "shape" then
    e.candidates, e.expected = names, nil                -- undecided arguments, in order
  else
    e.candidates, e.expected, e.got = Error.nearest(e.argument or "", names), nil, nil
    -- the candidates say it
    e.message = e.message:gsub("; it takes: .*$", ""):gsub("; nearest: .*$", "")
  end
end


local function read_symbol(name)
  return C[name]
end


-- Returns whether a function of the core has this short name ("reshape" for ty_exec_reshape), with
-- which its messages begin.
local function is_core_function(name)
  return pcall(read_symbol, name) or pcall(read_symbol, "ty_" .. name)
    or pcall(read_symbol, "ty_exec_" .. name)
end


-- Drops the name in front of the core's message if the error's text has it elsewhere: the names of
-- operator and node are at its end, and the public function is named instead of the core's.
local function drop_name(e)
  local name, rest = e.message:match("^([%w_][^:]-): (.+)$")
  if not name then
    return
  end
  local op, node = e.op, e.node
  local method = e.func and e.func:match("[%w_]+$")
  if name == op or name == node or op and node and name == op .. " " .. node or name == method
      or e.func and name:find("^[%w_]+$") and is_core_function(name) then
    e.message = rest
  end
end


--- Returns the last failure of the core as an error object.
-- @int code its status
-- @string func the public function that was called
-- @tparam[opt] table extra fields that override the core's
function native.failure(code, func, extra)
  local f = ffi.new("ty_failure")
  C.ty_error_detail(f)
  local e = {
    code = tonumber(code), func = func, op = text(f.op), node = text(f.node),
    argument = text(f.argument), where = text(f.where), expected = read_shape(text(f.expected)),
    got = read_shape(text(f.got)), message = text(f.message) or text(C.ty_error()) or "failed",
  }
  e.code = Error.CODES[e.code] or "internal"
  take_inputs(e)
  if type(e.expected) == "string"
      and (e.code == "name" or e.code == "shape" and e.got == "unknown") then
    add_names(e)
  end
  for key, value in pairs(extra or {}) do
    e[key] = value
  end
  drop_name(e)
  return Error.new(e)
end


--- Raises the core's failure as an error object if a status is not 0.
-- @int code status of a call; 0 and events (negative) pass
-- @string func the public function that was called: "Symbol:infer_shape"
-- @tparam[opt] table extra further fields of the error
-- @treturn int the code
function native.check(code, func, extra)
  if code > 0 then
    error(native.failure(code, func, extra), 0)
  end
  return code
end


--- Returns whether a file descriptor (1: output, 2: errors) is a terminal.
function native.is_terminal(descriptor)
  pcall(ffi.cdef, "int isatty(int descriptor);")
  return ffi.C.isatty(descriptor) == 1
end


local ASK_SIZE = 0x5413                  -- TIOCGWINSZ

--- Returns the columns and lines of the terminal of a file descriptor; nil if it is no terminal.
function native.terminal_size(descriptor)
  pcall(ffi.cdef, "int ioctl(int descriptor, unsigned long request, ...);")
  local size = ffi.new("uint16_t[4]")    -- lines, columns, pixels
  if ffi.C.ioctl(descriptor, ASK_SIZE, size) == 0 and size[0] > 0 and size[1] > 0 then
    return size[1], size[0]
  end
end


--- Sleeps for some seconds, or until a signal comes.
-- @number seconds
function native.sleep(seconds)
  pcall(ffi.cdef, "int poll(void *list, unsigned long count, int milliseconds);")
  ffi.C.poll(nil, 0, seconds * 1000)
end


local KINDS = {
  tensors = "tensor", graphs = "graph", executors = "exec", pools = "pool", iters = "iter",
  bytes = "bytes", tapes = "recorded", nodes = "history",
}

--- Returns the numbers of live native objects: `{tensors, graphs, executors, pools, iters, bytes,
-- tapes, nodes}`. Tapes are results of recorded calls, nodes are recorded calls and variables.
function native.live()
  local counts = {}
  for name, kind in pairs(KINDS) do
    counts[name] = tonumber(C.ty_live(kind))
  end
  return counts
end


return native
