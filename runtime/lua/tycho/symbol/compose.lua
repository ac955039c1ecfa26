--- Calls of symbols: `s{variable = symbol, name = "new"}`.
--
-- @module tycho.symbol.compose

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local node = require "tycho.symbol.node"
local values = require "tycho.core.values"

local is_symbol = args.types.symbol.check

local function is_atomic(self)
  local n = node.only(self._entries)
  return n and n.op and #n.inputs == 0 and #n.ports.inputs > 0
end


local function single(x, argument, func)
  if not is_symbol(x) or #x._entries ~= 1 then
    Error.raise{ code = "type", func = func, argument = argument,
      expected = "a Symbol with one output", message = ("bad '%s'"):format(argument),
      got = is_symbol(x) and #x._entries .. " outputs" or Error.kind(x) }
  end
  return x._entries[1]
end


-- Replaces the variables of the given names; all of them must exist.
local function replaced(self, inputs, func)
  local used, order = {}, node.walk(self._entries)
  local entries, clone = node.copy(self._entries, function(n)
    local x = not n.op and inputs[n.name]
    if x then
      used[n.name] = true
      return { single(x, n.name, func) }
    end
  end, order)
  node.renumber(order, clone)
  for key in pairs(inputs) do
    if not used[key] then
      Error.unknown{ func = func, argument = key, what = "variable", names = self:list_inputs() }
    end
  end
  return entries
end


local function rename(entries, name, func)
  if name == nil then
    return
  elseif type(name) ~= "string" then
    Error.raise{ code = "type", func = func, argument = "name", expected = "text",
      got = Error.kind(name), message = "bad 'name'" }
  end
  for _, entry in ipairs(entries) do
    entry[1].name = name
  end
end


--- Entries of a copy of a symbol's graph, with variables replaced.
-- @param self the symbol
-- @string func for errors
-- @tparam table t symbols by variable, and `name` for the copy's heads
return function(self, func, t, ...)
  if not values.is_plain(t) or values.count(...) > 0 or #t > 0 then
    Error.raise{ code = "type", func = func, got = Error.kind(t),
      message = is_atomic(self) and "give the inputs by name"
        or "this symbol has inputs already; replace its variables by name: s{data = x}" }
  end
  local inputs = {}
  for key, x in pairs(t) do
    inputs[key] = key ~= "name" and x or nil
  end
  local entries = replaced(self, inputs, func)
  rename(entries, t.name, func)
  return entries
end
