--- Scopes: `X:with(f, ...)` enters X, runs f(...), leaves X (on error too) and returns f's results.
--
-- A class becomes a scope by `scope.make(Class, kind)`: its instances get `with`, `enter` and
-- `exit`. Each kind has one stack. A class may define `entered(self, outer)`, whose result is what
-- is on the stack instead of the object.
--
-- @module tycho.core.scope

local Error = require "tycho.core.error"

local scope = {}

local stacks = {}


local function find_stack(kind)
  stacks[kind] = stacks[kind] or { }
  return stacks[kind]
end


--- Returns the innermost entered object of a kind, or nil.
function scope.current(kind)
  local stack = find_stack(kind)
  local top = stack[#stack]
  return top and top.value
end


local function pop(kind, object, func)
  local stack = find_stack(kind)
  local top = stack[#stack]
  if not top or top.object ~= object then
    Error.raise{ code = "state", func = func,
      message = top and ("leaves in the wrong order: %s was entered last")
        :format(tostring(top.object)) or "leaves a scope that was not entered" }
  end
  stack[#stack] = nil
end


-- Removes an entry of a stack, and those above it: entered inside the scope and not left. Does
-- nothing if it is gone: a coroutine may end its scope after the one around it has ended.
local function unwind(stack, at, entry)
  if stack[at] ~= entry then
    return
  end
  for i = #stack, at, -1 do
    stack[i] = nil
  end
end


local function leave(stack, at, entry, ok, ...)
  unwind(stack, at, entry)
  if not ok then
    error((...), 0)
  end
  return ...
end


--- Gives a class `with`, `enter` and `exit`.
-- @param class the class
-- @string kind name of the stack
function scope.make(class, kind)
  local name = class.class_name

  function class:enter()
    local stack = find_stack(kind)
    local value = self.entered and self:entered(scope.current(kind)) or self
    stack[#stack + 1] = { object = self, value = value }
    return self
  end

  function class:exit()
    pop(kind, self, name .. ":exit")
  end

  function class:with(f, ...)
    if type(f) ~= "function" then
      Error.raise{ code = "type", func = name .. ":with", argument = "f", expected = "a function",
        got = Error.kind(f), message = "bad 'f'" }
    end
    self:enter()
    local stack = find_stack(kind)
    local at = #stack
    return leave(stack, at, stack[at], pcall(f, ...))
  end
end


return scope
