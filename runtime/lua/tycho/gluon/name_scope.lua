--- Prefixes of blocks: each scope counts the blocks that are made inside it, by hint ("dense").
--
-- The prefix of a block that is made in the scope of another one begins with that one's prefix:
-- "net0_dense1_". Outside all scopes the current name manager counts (`ty.name`).
--
-- @module tycho.gluon.name_scope

local Class = require "tycho.core.class"
local names = require "tycho.symbol.name"
local scope = require "tycho.core.scope"

local name_scope = {}

local KIND = "gluon.name_scope"

-- An entry of the stack of scopes: prefix, parameters, and counts by hint.
local Counter = Class:extend("NameScope")
scope.make(Counter, KIND)

function Counter:init(prefix, params)
  self.prefix, self.params, self.counts = prefix, params, {}
end


--- The scope of a block: `s:with(f)`, `s:enter()`, `s:exit()`. The prefixes of blocks that are made
-- inside begin with the block's, and so do the names of operators, counted from 0. The scope of a
-- block whose prefix is "" does nothing.
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


--- Restores the scope that was current before `enter`.
function Scope:exit()
  if self._counter then
    self._counter:exit()
    table.remove(self._entered):exit()
  end
end


-- Calls a function, or an object that can be called, such as a class.
local function call_value(f, ...)
  return f(...)
end


-- Calls f with the counter on the stack of scopes.
local function call_counted(counter, f, ...)
  return counter:with(call_value, f, ...)
end


--- Runs f inside the scope. The arguments of f are passed on, so that no closure is needed: a
-- LuaJIT trace would keep its upvalues.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function Scope:with(f, ...)
  if not self._counter then
    return f(...)
  end
  return names.Prefix(self._counter.prefix):with(call_counted, self._counter, f, ...)
end


--- Returns the current scope.
-- @treturn ?table prefix, params, counts (hint -> number); nil outside of all scopes
function name_scope.current()
  return scope.current(KIND)
end


--- Returns the next prefix for a hint, without the scope's, and counts it: "dense0_".
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
