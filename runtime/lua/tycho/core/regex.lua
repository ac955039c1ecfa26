--- Regular expressions for names (not for users): alternatives `a|b`, groups, classes `[a-z]` and
-- `[^0-9]`, `\d \w \s` and their opposites, `.`, the anchors `^ $ \b`, lookahead `(?=a)` and
-- `(?!a)`, repetition `* + ? {m,n}`.
--
--     local fits = regex.matcher([[fc\d+_(weight|bias)]], "monitor.Monitor", "pattern")
--     fits("fc12_bias")                     --> true: a match begins at the start and may end early
--
-- A pattern becomes a program of a machine that is in a set of states at once (Thompson's method):
-- matching takes time in proportion to the text, and again for each position at which a lookahead
-- is tested. Other syntax, Lua's `%` classes too, is E(value).
--
-- @module tycho.core.regex

local Class = require "tycho.core.class"
local Error = require "tycho.core.error"

local regex = {}

local MOST = 10000                                       -- instructions of a program


local function make_set(lua_class)
  local set = {}
  for b = 0, 255 do
    set[b] = string.char(b):find(lua_class) ~= nil or nil
  end
  return set
end

local CLASSES = { d = "%d", D = "%D", s = "%s", S = "%S", w = "[%w_]", W = "[^%w_]" }

-- class -> byte -> true, made when a pattern first has the class
local SETS = setmetatable({}, { __index = function(sets, name)
  local class = CLASSES[name]
  sets[name] = class and make_set(class)
  return rawget(sets, name)
end })
local ANY = make_set "[^\n]"
local CONTROL = { n = "\n", t = "\t", r = "\r", f = "\f", v = "\v" }


local function is_start(_, i)
  return i == 1
end


local function is_end(text, i)
  return i > #text
end


local function is_edge(text, i)
  local before, after = i > 1 and text:byte(i - 1), text:byte(i)
  return (SETS.w[before] or false) ~= (after and SETS.w[after] or false)
end


local function is_no_edge(text, i)
  return not is_edge(text, i)
end

local ANCHORS = { A = is_start, Z = is_end, b = is_edge, B = is_no_edge }


-- Programs ----------------------------------------------------------------------------------------

-- A program is a list of { set = bytes }, { anchor = f }, { to = at, other = at or nil }; its
-- end is a match. What the parser returns for a part of the pattern appends its instructions.

local function put(program, instruction)
  program[#program + 1] = instruction
  return instruction
end


local function single(instruction)
  return function(program)
    program[#program + 1] = instruction
    return #program <= MOST
  end
end


local function sequence(parts)
  return function(program)
    for _, emit in ipairs(parts) do
      if not emit(program) then
        return false
      end
    end
    return true
  end
end


local function either(branches)
  return function(program)
    local ends = {}
    for i, emit in ipairs(branches) do
      local fork = i < #branches and put(program, { to = #program + 2 })
      if not emit(program) then
        return false
      end
      if fork then
        ends[i] = put(program, {})
        fork.other = #program + 1
      end
    end
    for _, jump in ipairs(ends) do
      jump.to = #program + 1
    end
    return #program <= MOST
  end
end


-- Returns an emitter that repeats `emit` from `least` to `most` times; `most` nil: without limit.
-- The emitter returns false if the program would get too long.
local function repeated(emit, least, most)
  return function(program)
    local forks = {}
    for i = 1, most or least + 1 do
      local at = #program + 1
      if i > least then
        forks[#forks + 1] = put(program, { to = at + 1 })
      end
      if not emit(program) then
        return false
      elseif #program < at then                       -- nothing, however often
        return true
      elseif i > least and not most then
        put(program, { to = at })
      end
    end
    for _, fork in ipairs(forks) do
      fork.other = #program + 1
    end
    return true
  end
end


-- The parser --------------------------------------------------------------------------------------

local Parser = Class:extend("regex parser")

local fits                                               -- the machine's, below

function Parser:init(pattern, func, argument)
  self.pattern, self.i, self.func, self.argument = pattern, 1, func, argument
end


function Parser:refuse(what)
  Error.raise{ code = "value", func = self.func, argument = self.argument,
    message = ("pattern '%s': %s; patterns are regular expressions with a|b ( ) [a-z] . \\d \\w \z
      \\s \\b ^ $ * + ? {m,n}"):format(self.pattern, what) }
end


-- Reads the text that a Lua pattern matches at the current position.
function Parser:take(lua_pattern)
  local found, last = self.pattern:match("^(" .. lua_pattern .. ")()", self.i)
  self.i = last or self.i
  return found
end


-- Returns a character, or a set for a class such as \d.
function Parser:escape()
  local c = self:take(".") or self:refuse("it ends in a backslash")
  if SETS[c] then
    return nil, SETS[c]
  elseif c:find("%w") and not CONTROL[c] then
    self:refuse(("'\\%s' is not known"):format(c))
  end
  return CONTROL[c] or c
end


-- Returns a character as it is written, or a set, inside [ ] and outside.
function Parser:character()
  local c = self:take(".")
  if c == "\\" then
    return self:escape()
  elseif c == "%" then
    self:refuse(("'%s' belongs to Lua's patterns; write '\\d' for a digit, '\\%%' for the sign")
      :format(self.pattern:sub(self.i - 1, self.i)))
  end
  return c
end


function Parser:class()
  local set, negated = {}, self:take("%^")
  repeat
    local first, whole = self:character()
    if not first and not whole then
      self:refuse("a '[' is not closed")
    end
    local last = first and self.pattern:find("^%-[^%]]", self.i) and self:take("%-")
      and (self:character() or self:refuse("a range ends in a class")) or first
    for b in pairs(whole or {}) do
      set[b] = true
    end
    for b = first and first:byte() or 1, last and last:byte() or 0 do
      set[b] = true
    end
    if first and last < first then
      self:refuse(("the range '%s-%s' is empty"):format(first, last))
    end
  until self:take("%]")
  local opposite = {}
  for b = 0, 255 do
    opposite[b] = not set[b] or nil
  end
  return single{ set = negated and opposite or set }
end


-- Reads the pattern after "(?=" or "(?!". Returns an emitter that consumes no text.
function Parser:look(wanted)
  local program = {}
  if not self:alternatives()(program) then
    self:refuse("it repeats too much")
  elseif not self:take("%)") then
    self:refuse("a '(' is not closed")
  end
  return single{ anchor = function(text, i) return fits(program, text, i) == wanted end }
end


function Parser:group()
  local look = self:take("%?[=!]")
  if look then
    return self:look(look == "?=")
  elseif self:take("%?") and not (self:take(":") or self:take("P<[%a_][%w_]*>")) then
    self:refuse(("'(?%s' is not known"):format(self:take(".") or ""))
  end
  local inside = self:alternatives()
  return self:take("%)") and inside or self:refuse("a '(' is not closed")
end


function Parser:atom()
  if self:take("%(") then
    return self:group()
  elseif self:take("%[") then
    return self:class()
  elseif self:take("%^") then
    return single{ anchor = is_start }
  elseif self:take("%$") then
    return single{ anchor = is_end }
  elseif self:take("%.") then
    if self.pattern:find("^%-", self.i) then
      self:refuse("'.-' belongs to Lua's patterns; write '.*?', or '.\\-' for the sign")
    end
    return single{ set = ANY }
  end
  local anchor = self:take("\\[AZbB]")
  if anchor then
    return single{ anchor = ANCHORS[anchor:sub(2)] }
  end
  local stray = self:take("[*+?{}%]]")
  if stray then
    self:refuse(("nothing is there for '%s'; write '\\%s' for the sign"):format(stray, stray))
  end
  local c, set = self:character()
  return single{ set = set or { [c:byte()] = true } }
end


local QUANTIFIERS = { ["*"] = { 0 }, ["+"] = { 1 }, ["?"] = { 0, 1 } }

-- Reads a quantifier. Returns the smallest and largest number of repetitions; nothing if there is
-- no quantifier.
function Parser:quantifier()
  local sign = self:take("[*+?]")
  if sign then
    return unpack(QUANTIFIERS[sign], 1, 2)
  end
  local braces = self:take("{%d*,?%d*}")
  if braces then
    local least, comma, most = braces:match("{(%d*)(,?)(%d*)}")
    most = tonumber(comma == "" and least or most)
    least = tonumber(least) or 0
    if braces == "{}" or most and most < least or math.max(least, most or 0) > MOST then
      self:refuse(("'%s' is no number of times"):format(braces))
    end
    return least, most
  end
end


function Parser:piece()
  local emit = self:atom()
  local least, most = self:quantifier()
  if not least then
    return emit
  end
  self:take("%?")                                        -- as few as will do: the same answer
  if self:take("[*+]") then
    self:refuse("two repetitions follow each other")
  end
  return repeated(emit, least, most)
end


function Parser:alternatives()
  local branches = {}
  repeat
    local parts = {}
    while self.pattern:find("^[^|)]", self.i) do
      parts[#parts + 1] = self:piece()
    end
    branches[#branches + 1] = sequence(parts)
  until not self:take("|")
  return either(branches)
end


local function compile(pattern, func, argument)
  local parser, program = Parser(pattern, func, argument), {}
  local emit = parser:alternatives()
  if parser.i <= #pattern then
    parser:refuse("a ')' has no '('")
  elseif not emit(program) then
    parser:refuse("it repeats too much")
  end
  return program
end


-- The machine -------------------------------------------------------------------------------------

-- Adds to a list the instructions with a set that are reached from `at` without reading. Returns
-- true if the end of the program is reached.
local function reach(program, list, seen, at, text, i)
  local stack = { at }
  while stack[1] do
    at = table.remove(stack)
    local instruction = program[at]
    if not instruction then
      return true
    elseif not seen[at] then
      seen[at] = true
      if instruction.set then
        list[#list + 1] = at
      elseif instruction.to then
        stack[#stack + 1], stack[#stack + 2] = instruction.to, instruction.other
      elseif instruction.anchor(text, i) then
        stack[#stack + 1] = at + 1
      end
    end
  end
end


-- Returns whether a match begins at the byte `from`.
function fits(program, text, from)
  local list = {}
  local done = reach(program, list, {}, 1, text, from)
  for i = from, #text do
    local byte, following, seen = text:byte(i), {}, {}
    if done then
      return true
    end
    for _, at in ipairs(list) do
      if program[at].set[byte] then
        done = reach(program, following, seen, at + 1, text, i + 1) or done
      end
    end
    list = following
  end
  return done or false
end


--- Returns a function that says whether a text fits a pattern from its start.
-- @tparam string|function pattern a function is returned as it is
-- @string func the public function that takes it, for errors
-- @string argument its parameter
-- @treturn function text -> boolean
function regex.matcher(pattern, func, argument)
  if type(pattern) == "function" then
    return pattern
  end
  local program = compile(pattern, func, argument)
  return function(text)
    return fits(program, text, 1)
  end
end


return regex
