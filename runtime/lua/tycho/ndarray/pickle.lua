--- Reads pickles of Python, protocols 0 to 5, without running anything: a machine that makes
-- numbers, texts, lists and tables, and descriptions of everything else. For `ndarray/pytorch.lua`.
--
-- Python's None is `ty.null`, tuples and sets are lists, dictionaries are tables; `pickle.keys`
-- gives their keys in order. Integers of more than 53 bits, and objects of classes that the caller
-- has no function for, are descriptions: tables with `class_name`, and `args`, `state`, `items` or
-- `entries` where the pickle has these.
--
-- @module tycho.ndarray.pickle

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local bit = require "bit"
local file_cursor = require "tycho.ndarray.file_cursor"
local values = require "tycho.core.values"

local pickle = {}

local null = values.null

-- What things cost in bytes, against what a file may take.
local TABLE_COST, MEMO_COST, SLOT_COST = 160, 40, 16
local BASE, TIMES = 64 * 2 ^ 20, 4
local LONGEST_LINE = 65536
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


--- Returns whether a value is a list of the pickle: no dictionary, and nothing that a function
-- returned.
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


-- Returns what was pushed since the last mark, as a list.
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


function Machine:list(members)
  self:pay(TABLE_COST)
  self:push(members or {})
end


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


function Machine:remembered(i)
  local v = self.memo[i]
  if v == nil then
    self:fail("nothing is in place %s of the memo", tostring(i))
  end
  self:push(v)
end


-- Returns an integer from its bytes of any number: little-endian, two's complement. One that a Lua
-- number does not hold exactly is an object with the bytes.
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


local function append(machine, target, list)
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

local function call(machine, f, arguments)
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


local function build(_, object, state)
  if pickle.is_described(object) then
    object.state = state
  end
end


function Machine:global(module, name)
  if type(module) ~= "string" or type(name) ~= "string" then
    self:fail("the name of a class is no text")
  end
  self:pay(TABLE_COST)
  self:push(setmetatable({ path = module .. "." .. name }, Global))
end


local function persistent(machine, id)
  machine:push(machine.persistent(id, machine))
end


-- Texts of protocol 0 -----------------------------------------------------------------------------

local ESCAPES = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"' }

local function unquoted(machine, s)
  local quote, inner = s:match("^(['\"])(.*)%1$")
  if not quote then
    machine:fail("a text without quotes")
  end
  inner = inner:gsub("\\x(%x%x)", function(hex) return string.char(tonumber(hex, 16)) end)
  return (inner:gsub("\\(.)", function(c) return ESCAPES[c] or "\\" .. c end))
end


local function number_of_line(machine, line)
  local v = line:find("^[-+]?%d") and tonumber((line:gsub("L$", "")))
  if not v then
    machine:fail("%q is no number", line)
  end
  return v
end


local SPECIAL = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }


-- The instructions --------------------------------------------------------------------------------

local RUN = {}

local function instruction(code, f)
  RUN[type(code) == "number" and code or code:byte()] = f
end

local function pushes(code, f)
  instruction(code, function(m) m:push(f(m)) end)
end

instruction("(", function(m) m:push(MARK) end)
instruction("0", function(m)
  if m.top > 0 and m.stack[m.top] == MARK then
    m.stack[m.top], m.top = nil, m.top - 1
  else
    m:pop()
  end
end)
instruction("1", function(m) m:pop_mark() end)
instruction("2", function(m) m:push(m:peek()) end)

pushes("N", function() return null end)
pushes(0x88, function() return true end)
pushes(0x89, function() return false end)
pushes("J", function(m) return m.cursor:i32() end)
pushes("K", function(m) return m.cursor:u8() end)
pushes("M", function(m) return m.cursor:u16() end)
pushes(0x8a, function(m) return m:integer(m.cursor:take(m.cursor:u8())) end)
pushes(0x8b, function(m) return m:integer(m.cursor:take(m.cursor:i32())) end)

pushes("I", function(m)
  local line = m:line()
  if line == "01" or line == "00" then
    return line == "01"
  end
  return number_of_line(m, line)
end)
pushes("L", function(m) return number_of_line(m, m:line()) end)
pushes("F", function(m)
  local line = m:line()
  return SPECIAL[line] or number_of_line(m, line)
end)

-- big-endian
pushes("G", function(m)
  local word = m.cursor:word(8)
  word.u64 = bit.bswap(word.u64)
  return file_cursor.double(word)
end)

for code, read in pairs{
  U = function(c) return c:u8() end, T = function(c) return c:i32() end,
  X = function(c) return c:u32() end, B = function(c) return c:u32() end,
  C = function(c) return c:u8() end, [0x8c] = function(c) return c:u8() end,
  [0x8d] = function(c) return c:u64() end, [0x8e] = function(c) return c:u64() end,
  [0x96] = function(c) return c:u64() end,
} do
  pushes(code, function(m)
    return m.cursor:take(read(m.cursor))
  end)
end

pushes("S", function(m) return unquoted(m, m:line()) end)
pushes("V", function(m) return m:line() end)

instruction("]", function(m) m:list() end)
instruction(")", function(m) m:list() end)
instruction(0x8f, function(m) m:list() end)
instruction("l", function(m) m:list(m:pop_mark()) end)
instruction("t", function(m) m:list(m:pop_mark()) end)
instruction(0x91, function(m) m:list(m:pop_mark()) end)
instruction(0x85, function(m) m:list{ m:pop() } end)
instruction(0x86, function(m)
  local b, a = m:pop(), m:pop()
  m:list{ a, b }
end)
instruction(0x87, function(m)
  local c, b, a = m:pop(), m:pop(), m:pop()
  m:list{ a, b, c }
end)

pushes("}", function(m)
  m:pay(TABLE_COST)
  return pickle.dictionary()
end)
pushes("d", function(m)
  local list, t = m:pop_mark(), pickle.dictionary()
  m:pay(TABLE_COST)
  set_items(m, t, list)
  return t
end)

instruction("a", function(m)
  local v = m:pop()
  append(m, m:peek(), { v })
end)
instruction("e", function(m)
  local list = m:pop_mark()
  append(m, m:peek(), list)
end)
instruction(0x90, function(m)
  local list = m:pop_mark()
  append(m, m:peek(), list)
end)
instruction("s", function(m)
  local v, key = m:pop(), m:pop()
  set_items(m, m:peek(), { key, v })
end)
instruction("u", function(m)
  local list = m:pop_mark()
  set_items(m, m:peek(), list)
end)

instruction("c", function(m)
  local module = m:line()
  m:global(module, m:line())
end)
instruction(0x93, function(m)
  local name, module = m:pop(), m:pop()
  m:global(module, name)
end)
pushes("R", function(m)
  local arguments, f = m:pop(), m:pop()
  return call(m, f, arguments)
end)
pushes(0x81, function(m)
  local arguments, class = m:pop(), m:pop()
  return call(m, class, arguments)
end)
pushes(0x92, function(m)
  local _, arguments, class = m:pop(), m:pop(), m:pop()
  return call(m, class, arguments)
end)
pushes("i", function(m)
  local module = m:line()
  m:global(module, m:line())
  local class = m:pop()
  return call(m, class, m:pop_mark())
end)
pushes("o", function(m)
  local list = m:pop_mark()
  local class = table.remove(list, 1)
  return call(m, class, list)
end)
instruction("b", function(m)
  local state = m:pop()
  build(m, m:peek(), state)
end)

instruction("P", function(m) persistent(m, m:line()) end)
instruction("Q", function(m) persistent(m, m:pop()) end)

instruction("g", function(m) m:remembered(tonumber(m:line())) end)
instruction("h", function(m) m:remembered(m.cursor:u8()) end)
instruction("j", function(m) m:remembered(m.cursor:u32()) end)
instruction("p", function(m) m:memoize(tonumber(m:line()), m:peek()) end)
instruction("q", function(m) m:memoize(m.cursor:u8(), m:peek()) end)
instruction("r", function(m) m:memoize(m.cursor:u32(), m:peek()) end)
instruction(0x94, function(m) m:memoize(m.memoized, m:peek()) end)

instruction(0x95, function(m)
  local n = m.cursor:u64()
  if n > m.cursor:left() then
    m:fail("a frame of %.0f bytes, %.0f are left", n, m.cursor:left())
  end
end)
instruction(0x80, function(m)
  local protocol = m.cursor:u8()
  if protocol > 5 then
    m:fail("protocol %d", protocol)
  end
end)

local STOP = ("."):byte()


--- Reads one pickle, which may be followed by something else.
-- @tparam table cursor as `file_cursor.new` gives, at its first byte; afterwards after it
-- @tparam table options functions: path of a class or function -> `f(arguments)`, which gives the
--   object; persistent: `f(id)` gives what is outside of the pickle
-- @return the object; E(format) for what is no pickle
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
