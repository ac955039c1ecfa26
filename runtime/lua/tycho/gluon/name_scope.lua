--- Names of blocks: a scope counts the blocks that are made inside, one count per hint.
--
-- A block that is made in the scope of another begins its prefix with the other's. Outside of all
-- scopes the name manager in force counts (`ty.name`).
--
-- @module tycho.gluon.name_scope

local Class = require "tycho.core.class"
local names = require "tycho.symbol.name"
local scope = require "tycho.core.scope"

local name_scope = {}

local KIND = "gluon.name_scope"

-- What is on the stack: the counts of one block.
local Counter = Class:extend("NameScope")
scope.make(Counter, KIND)

function Counter:init(prefix, params)
  self.prefix, self.params, self.counts = prefix, params, {}
end


--- The scope of a block: `s:with(f)`, `s:enter()`, `s:exit()`. Blocks that are made inside get the
-- block's prefix, and so do operators, which are counted from 0. That of a block whose prefix is
-- "" does nothing.
local Scope = Class:extend("NameScope")
name_scope.Scope = Scope

--- @string prefix of the block
-- @param params its ParameterDict
function Scope:init(prefix, params)
  self._counter = prefix ~= "" and Counter(prefix, params) or nil
  self._entered = {}
end


--- Makes the scope current until `exit`.
-- @return itself
function Scope:enter()
  if self._counter then
    self._counter:enter()
    self._entered[#self._entered + 1] = names.Prefix(self._counter.prefix):enter()
  end
  return self
end


--- Makes the scope current that was when it was entered.
function Scope:exit()
  if self._counter then
    self._counter:exit()
    table.remove(self._entered):exit()
  end
end


-- Calls a function, or an object such as a class.
local function run(f, ...)
  return f(...)
end


local function run_counted(counter, f, ...)
  return counter:with(run, f, ...)
end


--- Runs f inside the scope. Passes arguments on, so that no closure is needed: a LuaJIT trace keeps
-- the functions that it calls, with their upvalues.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function Scope:with(f, ...)
  if not self._counter then
    return f(...)
  end
  return names.Prefix(self._counter.prefix):with(run_counted, self._counter, f, ...)
end


--- Returns the current scope: prefix, params, counts; or nil.
function name_scope.current()
  return scope.current(KIND)
end


--- Returns the next prefix for a hint, without that of the scope: "dense0_".
-- @string hint
-- @treturn string
function name_scope.next_prefix(hint)
  local current = name_scope.current()
  if not current then
    return names.current():get(nil, hint) .. "_"
  end
  local n = current.counts[hint] or 0
  current.counts[hint] = n + 1
  return hint .. n .. "_"
end


return name_scope
