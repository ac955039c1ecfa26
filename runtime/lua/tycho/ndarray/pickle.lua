--- Reads pickles of Python, protocols 0 to 5, without running code of the pickle. Makes numbers,
-- texts, lists and tables, and descriptions of all other objects. For `ndarray/pytorch.lua`.
--
-- Python's None is `ty.null`, tuples and sets are lists, dictionaries are tables; `pickle.keys`
-- gives their keys in order. Integers of more than 53 bits, and objects of classes for which the
-- caller has no function, are descriptions: tables with `class_name`, and with `args`, `state`,
-- `items` or `entries` if the pickle has these.
--
-- @module tycho.ndarray.pickle

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local bit = require "bit"
local file_cursor = require "tycho.ndarray.file_cursor"
local values = require "tycho.core.values"

local pickle = {}

local null = values.null

-- Estimated bytes of parts of the result.
local TABLE_COST = 160                                   -- a table
local MEMO_COST = 40                                     -- a place of the memo, an entry of a table
local SLOT_COST = 16                                     -- a place of the stack or of a list
-- The result of a pickle of n bytes may take BASE + TIMES * n bytes.
local BASE, TIMES = 64 * 2 ^ 20, 4
local LONGEST_LINE = 65536                               -- bytes
local MOST_EXACT = 2 ^ 53                                -- integers that Lua's numbers hold

local MARK = {}                                          -- on the stack
local order = setmetatable({}, { __mode = "k" })         -- dictionary -> its keys

local Described = {}
Described.__index = Described

function Described.__tostring(object)
  return "<" .. object.class_name .. ">"
end

Described.class_name = "object"


--- Returns a description of an object.
-- @string class_name
function pickle.describe(class_name)
  return setmetatable({ class_name = class_name }, Described)
end


--- Returns whether a value is a description.
function pickle.is_described(v)
  return type(v) == "table" and getmetatable(v) == Described
end


--- Returns the keys of a dictionary in order; nil for other values.
function pickle.keys(t)
  return order[t]
end


--- Returns an empty dictionary.
function pickle.dictionary()
  local t = {}
  order[t] = {}
  return t
end


--- Sets an entry of a dictionary.
function pickle.set(t, key, value)
  if t[key] == nil then
    table.insert(order[t], key)
  end
  t[key] = value
end


--- Returns whether a value is a list of the pickle, not a dictionary or an object that a function
-- of the caller returned.
function pickle.is_list(v)
  return type(v) == "table" and getmetatable(v) == nil and order[v] == nil
end


-- Globals: names of classes and functions, which are not looked up in any Lua table.
local Global = {}
Global.__index = Global
Global.__tostring = function(g) return "<" .. g.path .. ">" end

local function is_global(v)
  return type(v) == "table" and getmetatable(v) == Global
end


--- Returns the path of a class or function, such as "torch.FloatStorage"; nil for other values.
function pickle.path(v)
  return is_global(v) and v.path or nil
end


-- The machine -------------------------------------------------------------------------------------

local Machine = {}
Machine.__index = Machine

function Machine:fail(text, ...)
  self.cursor:fail("bad pickle: " .. text, ...)
end


-- Counts bytes of memory of the result, and fails if they exceed the limit for the file's size.
function Machine:pay(cost)
  self.cost = self.cost + cost
  if self.cost > self.most then
    self:fail("it takes more memory than %d times its bytes", TIMES)
  end
end


function Machine:push(v)
  local top = self.top + 1
  if top > self.highest then
    self.highest = top
    self:pay(SLOT_COST)
  end
  self.stack[top], self.top = v, top
end


function Machine:pop()
  local v = self:peek()
  self.stack[self.top], self.top = nil, self.top - 1
  return v
end


function Machine:peek()
  local v = self.stack[self.top]
  if v == nil or v == MARK then
    self:fail("nothing is on the stack")
  end
  return v
end


-- Returns the values since the last mark as a list, and removes them from the stack.
function Machine:pop_mark()
  local at = self.top
  while at > 0 and self.stack[at] ~= MARK do
    at = at - 1
  end
  if at == 0 then
    self:fail("there is no mark")
  end
  local list = {}
  for i = at + 1, self.top do
    list[i - at] = self.stack[i]
  end
  for i = at, self.top do
    self.stack[i] = nil
  end
  self.top = at - 1
  return list
end


-- Reads a line, without its newline.
function Machine:line()
  local parts = {}
  while true do
    local byte = self.cursor:u8()
    if byte == 10 then
      return table.concat(parts)
    elseif #parts == LONGEST_LINE then
      self:fail("a line of more than %d bytes", LONGEST_LINE)
    end
    parts[#parts + 1] = string.char(byte)
  end
end


-- Pushes a list; lists, tuples and sets are the same here.
function Machine:list(members)
  self:pay(TABLE_COST)
  self:push(members or {})
end


-- Sets place i of the memo.
function Machine:memoize(i, v)
  if type(i) ~= "number" or i < 0 then
    self:fail("a place of the memo")
  end
  if self.memo[i] == nil then
    self:pay(MEMO_COST)
    self.memoized = self.memoized + 1
  end
  self.memo[i] = v
end


-- Pushes the value at place i of the memo.
function Machine:push_memo(i)
  local v = self.memo[i]
  if v == nil then
    self:fail("nothing is in place %s of the memo", tostring(i))
  end
  self:push(v)
end


-- Returns an integer from any number of bytes: little-endian, two's complement. An integer that a
-- Lua number cannot hold exactly becomes a description with the bytes.
function Machine:integer(bytes)
  local v, scale = 0, 1
  for i = 1, #bytes do
    v, scale = v + bytes:byte(i) * scale, scale * 256
  end
  if #bytes > 0 and bytes:byte(-1) >= 128 then
    v = v - scale
  end
  if math.abs(v) <= MOST_EXACT then
    return v
  end
  self:pay(TABLE_COST)
  local object = pickle.describe("int")
  object.bytes = bytes
  return object
end


-- Containers --------------------------------------------------------------------------------------

-- Sets entries of a dictionary or a description from a list: key, value, key, value ...
local function set_items(machine, target, list)
  if #list % 2 == 1 then
    machine:fail("a key without a value")
  end
  for i = 1, #list, 2 do
    local key, v = list[i], list[i + 1]
    if key ~= key then
      machine:fail("the key of a dictionary is NaN")
    elseif pickle.is_described(target) then
      target.entries = target.entries or pickle.dictionary()
      pickle.set(target.entries, key, v)
    elseif order[target] then
      pickle.set(target, key, v)
    else
      machine:fail("entries of what is no dictionary")
    end
    machine:pay(MEMO_COST)
  end
end


-- Appends values to a list or a description.
local function append_items(machine, target, list)
  local to = target
  if pickle.is_described(target) then
    target.items = target.items or {}
    to = target.items
  elseif not pickle.is_list(target) then
    machine:fail("members of what is no list")
  end
  for _, v in ipairs(list) do
    to[#to + 1] = v
    machine:pay(SLOT_COST)
  end
end


-- Calls and objects -------------------------------------------------------------------------------

-- Returns the result of the caller's function for a class or function; without one, a description.
local function call_global(machine, f, arguments)
  if not pickle.is_list(arguments) then
    machine:fail("arguments that are no tuple")
  end
  machine:pay(TABLE_COST)
  local known = is_global(f) and machine.functions[f.path]
  if known then
    return known(arguments, machine)
  end
  local object = pickle.describe(pickle.path(f) or "object")
  object.args = arguments
  return object
end


-- Sets the state of a description; ignored for objects that the caller has made.
local function set_state(_, object, state)
  if pickle.is_described(object) then
    object.state = state
  end
end


-- Pushes a class or function.
function Machine:push_global(module, name)
  if type(module) ~= "string" or type(name) ~= "string" then
    self:fail("the name of a class is no text")
  end
  self:pay(TABLE_COST)
  self:push(setmetatable({ path = module .. "." .. name }, Global))
end


-- Pushes an object that is stored outside of the pickle (a persistent id).
local function push_persistent(machine, id)
  machine:push(machine.persistent(id, machine))
end


-- Texts of protocol 0 -----------------------------------------------------------------------------

local ESCAPES = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }

-- Returns a text without its quotes and escapes.
local function remove_quotes(machine, s)
  local quote, inner = s:match("^(['\"])(.*)%1$")
  if not quote then
    machine:fail("a text without quotes")
  end
  inner = inner:gsub("\\x(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  return (inner:gsub("\\(.)", function(c) return ESCAPES[c] or "\\" .. c end))
end


-- Returns the number in a line.
local function parse_number(machine, line)
  local v = line:find("^[-+]?%d") and tonumber((line:gsub("L$", "")))
  if not v then
    machine:fail("%q is no number", line)
  end
  return v
end


local SPECIAL = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }


-- The instructions --------------------------------------------------------------------------------

-- Codes by the names of pickletools.py: a byte, as a number or its character.
local OPCODES = {
  MARK = "(", POP = "0", POP_MARK = "1", DUP = "2", NONE = "N", NEWTRUE = 0x88, NEWFALSE = 0x89,
  BININT = "J", BININT1 = "K", BININT2 = "M", LONG1 = 0x8a, LONG4 = 0x8b, INT = "I", LONG = "L",
  FLOAT = "F", BINFLOAT = "G", SHORT_BINSTRING = "U", BINSTRING = "T", BINUNICODE = "X",
  BINBYTES = "B", SHORT_BINBYTES = "C", SHORT_BINUNICODE = 0x8c, BINUNICODE8 = 0x8d,
  BINBYTES8 = 0x8e, BYTEARRAY8 = 0x96, STRING = "S", UNICODE = "V", EMPTY_LIST = "]",
  EMPTY_TUPLE = ")", EMPTY_SET = 0x8f, LIST = "l", TUPLE = "t", FROZENSET = 0x91, TUPLE1 = 0x85,
  TUPLE2 = 0x86, TUPLE3 = 0x87, EMPTY_DICT = "}", DICT = "d", APPEND = "a", APPENDS = "e",
  ADDITEMS = 0x90, SETITEM = "s", SETITEMS = "u", GLOBAL = "c", STACK_GLOBAL = 0x93,
  REDUCE = "R", NEWOBJ = 0x81, NEWOBJ_EX = 0x92, INST = "i", OBJ = "o", BUILD = "b",
  PERSID = "P", BINPERSID = "Q", GET = "g", BINGET = "h", LONG_BINGET = "j", PUT = "p",
  BINPUT = "q", LONG_BINPUT = "r", MEMOIZE = 0x94, FRAME = 0x95, PROTO = 0x80, STOP = ".",
}

local RUN = {}                                           -- code -> instruction

-- Defines an instruction.
local function instruction(name, f)
  local code = OPCODES[name]
  RUN[type(code) == "number" and code or code:byte()] = f
end

-- Defines an instruction that pushes what f returns.
local function pushes(name, f)
  instruction(name, function(m) m:push(f(m)) end)
end

instruction("MARK", function(m) m:push(MARK) end)
instruction("POP", function(m)
  if m.top > 0 and m.stack[m.top] == MARK then
    m.stack[m.top], m.top = nil, m.top - 1
  else
    m:pop()
  end
end)
instruction("POP_MARK", function(m) m:pop_mark() end)
instruction("DUP", function(m) m:push(m:peek()) end)

pushes("NONE", function() return null end)
pushes("NEWTRUE", function() return true end)
pushes("NEWFALSE", function() return false end)
pushes("BININT", function(m) return m.cursor:i32() end)
pushes("BININT1", function(m) return m.cursor:u8() end)
pushes("BININT2", function(m) return m.cursor:u16() end)
pushes("LONG1", function(m) return m:integer(m.cursor:take(m.cursor:u8())) end)
pushes("LONG4", function(m) return m:integer(m.cursor:take(m.cursor:i32())) end)

pushes("INT", function(m)
  local line = m:line()
  if line == "01" or line == "00" then
    return line == "01"
  end
  return parse_number(m, line)
end)
pushes("LONG", function(m) return parse_number(m, m:line()) end)
pushes("FLOAT", function(m)
  local line = m:line()
  return SPECIAL[line] or parse_number(m, line)
end)

-- big-endian
pushes("BINFLOAT", function(m)
  local word = m.cursor:word(8)
  word.u64 = bit.bswap(word.u64)
  return file_cursor.double(word)
end)

for name, read in pairs{
  SHORT_BINSTRING = function(c) return c:u8() end, BINSTRING = function(c) return c:i32() end,
  BINUNICODE = function(c) return c:u32() end, BINBYTES = function(c) return c:u32() end,
  SHORT_BINBYTES = function(c) return c:u8() end, SHORT_BINUNICODE = function(c) return c:u8() end,
  BINUNICODE8 = function(c) return c:u64() end, BINBYTES8 = function(c) return c:u64() end,
  BYTEARRAY8 = function(c) return c:u64() end,
} do
  pushes(name, function(m)
    return m.cursor:take(read(m.cursor))
  end)
end

pushes("STRING", function(m) return remove_quotes(m, m:line()) end)
pushes("UNICODE", function(m) return m:line() end)

instruction("EMPTY_LIST", function(m) m:list() end)
instruction("EMPTY_TUPLE", function(m) m:list() end)
instruction("EMPTY_SET", function(m) m:list() end)
instruction("LIST", function(m) m:list(m:pop_mark()) end)
instruction("TUPLE", function(m) m:list(m:pop_mark()) end)
instruction("FROZENSET", function(m) m:list(m:pop_mark()) end)
instruction("TUPLE1", function(m) m:list{ m:pop() } end)
instruction("TUPLE2", function(m)
  local b, a = m:pop(), m:pop()
  m:list{ a, b }
end)
instruction("TUPLE3", function(m)
  local c, b, a = m:pop(), m:pop(), m:pop()
  m:list{ a, b, c }
end)

pushes("EMPTY_DICT", function(m)
  m:pay(TABLE_COST)
  return pickle.dictionary()
end)
pushes("DICT", function(m)
  local list, t = m:pop_mark(), pickle.dictionary()
  m:pay(TABLE_COST)
  set_items(m, t, list)
  return t
end)

instruction("APPEND", function(m)
  local v = m:pop()
  append_items(m, m:peek(), { v })
end)
instruction("APPENDS", function(m)
  local list = m:pop_mark()
  append_items(m, m:peek(), list)
end)
instruction("ADDITEMS", function(m)
  local list = m:pop_mark()
  append_items(m, m:peek(), list)
end)
instruction("SETITEM", function(m)
  local v, key = m:pop(), m:pop()
  set_items(m, m:peek(), { key, v })
end)
instruction("SETITEMS", function(m)
  local list = m:pop_mark()
  set_items(m, m:peek(), list)
end)

instruction("GLOBAL", function(m)
  local module = m:line()
  m:push_global(module, m:line())
end)
instruction("STACK_GLOBAL", function(m)
  local name, module = m:pop(), m:pop()
  m:push_global(module, name)
end)
pushes("REDUCE", function(m)
  local arguments, f = m:pop(), m:pop()
  return call_global(m, f, arguments)
end)
pushes("NEWOBJ", function(m)
  local arguments, class = m:pop(), m:pop()
  return call_global(m, class, arguments)
end)
pushes("NEWOBJ_EX", function(m)
  local _, arguments, class = m:pop(), m:pop(), m:pop()
  return call_global(m, class, arguments)
end)
pushes("INST", function(m)
  local module = m:line()
  m:push_global(module, m:line())
  local class = m:pop()
  return call_global(m, class, m:pop_mark())
end)
pushes("OBJ", function(m)
  local list = m:pop_mark()
  local class = table.remove(list, 1)
  return call_global(m, class, list)
end)
instruction("BUILD", function(m)
  local state = m:pop()
  set_state(m, m:peek(), state)
end)

instruction("PERSID", function(m) push_persistent(m, m:line()) end)
instruction("BINPERSID", function(m) push_persistent(m, m:pop()) end)

instruction("GET", function(m) m:push_memo(tonumber(m:line())) end)
instruction("BINGET", function(m) m:push_memo(m.cursor:u8()) end)
instruction("LONG_BINGET", function(m) m:push_memo(m.cursor:u32()) end)
instruction("PUT", function(m) m:memoize(tonumber(m:line()), m:peek()) end)
instruction("BINPUT", function(m) m:memoize(m.cursor:u8(), m:peek()) end)
instruction("LONG_BINPUT", function(m) m:memoize(m.cursor:u32(), m:peek()) end)
instruction("MEMOIZE", function(m) m:memoize(m.memoized, m:peek()) end)

instruction("FRAME", function(m)
  local n = m.cursor:u64()
  if n > m.cursor:left() then
    m:fail("a frame of %.0f bytes, %.0f are left", n, m.cursor:left())
  end
end)
instruction("PROTO", function(m)
  local protocol = m.cursor:u8()
  if protocol > 5 then
    m:fail("protocol %d", protocol)
  end
end)

local STOP = OPCODES.STOP:byte()


--- Reads one pickle, which other data may follow.
-- @tparam table cursor as `file_cursor.new` gives, at the first byte; it is moved past the pickle
-- @tparam table options functions: path of a class or function -> `f(arguments)`, which returns the
--   object; persistent: `f(id)` returns the object with a persistent id
-- @return the object; E(format) if the data is not a pickle
function pickle.read(cursor, options)
  local m = setmetatable({ cursor = cursor, stack = {}, top = 0, highest = 0, memo = {},
    memoized = 0, cost = 0, most = BASE + TIMES * cursor:left(),
    functions = options.functions or {} }, Machine)
  m.persistent = options.persistent or function()
    m:fail("it refers to what is not there")
  end
  while true do
    local code = cursor:u8()
    if code == STOP then
      return m:pop()
    end
    local run = RUN[code]
    if not run then
      m:fail("there is no instruction %d", code)
    end
    run(m)
  end
end


return pickle
