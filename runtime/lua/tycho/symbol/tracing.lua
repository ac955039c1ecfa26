--- The block that is being traced, which `gluon` sets, and symbols and `ty.F` ask for (not for
-- users).
--
-- @module tycho.symbol.tracing

local Error = require "tycho.core.error"

local tracing = {}

local names, depth = {}, 0               -- of the blocks whose forward runs with symbols


--- Returns the name of the block whose forward runs with symbols; nil: none does.
-- @treturn ?string
function tracing.current()
  return names[depth]
end


--- Runs f while a block is traced.
-- @string name of the block
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function tracing.run(name, f, ...)
  depth = depth + 1
  names[depth] = name
  local at = depth
  local function leave(ok, ...)
    for i = depth, at, -1 do
      names[i] = nil
    end
    depth = at - 1
    if not ok then
      error((...), 0)
    end
    return ...
  end
  return leave(pcall(f, ...))
end


local drawing                            -- nodes of the trace under way that take random numbers


--- Records the node of an operator that takes random numbers, if a block is being traced.
-- @tparam table n
function tracing.note_draw(n)
  if drawing then
    drawing[#drawing + 1] = n
  end
end


--- Calls f, and lists the nodes of operators that take random numbers which it makes.
-- @tparam function f
-- @param ... its arguments
-- @treturn {node,...} in the order in which they were made
-- @return the results of f
function tracing.list_draws(f, ...)
  local before, list = drawing, {}
  drawing = list
  local function leave(ok, ...)
    drawing = before
    if not ok then
      error((...), 0)
    end
    return list, ...
  end
  return leave(pcall(f, ...))
end


--- Returns whether arrays have a field or method; the runner of traces replaces it.
-- @string key
-- @treturn bool
function tracing.is_of_arrays()
  return false
end


--- Raises E(`unsupported`) for a field that arrays have and symbols do not, if a block is being
-- traced.
-- @string key field or method
function tracing.refuse(key)
  if depth > 0 then
    Error.raise{ code = "unsupported", func = "Symbol", argument = key,
      message = ("'%s' is known of arrays only, and the forward of block '%s' is being traced with \z
        symbols; hybridize(false) runs it with arrays, and so does a gluon.Block")
        :format(key, names[depth]) }
  end
end


--- Raises E(`unsupported`) for an index of elements, which symbols have not, if a block is being
-- traced.
-- @param key as it is written between the brackets
function tracing.refuse_part(key)
  if depth > 0 then
    local is_text = type(key) == "string" and key:sub(1, 1) ~= "{"
    Error.raise{ code = "unsupported", func = "Symbol", argument = tostring(key),
      message = ("x[%s] takes rows or elements of arrays only, and the forward of block '%s' is \z
        being traced with symbols, of which x[1] is the first output; x:slice_axis{...}, \z
        x:slice{...} and x:take(...) serve both, hybridize(false) runs it with arrays, and so \z
        does a gluon.Block"):format(is_text and ("%q"):format(key) or tostring(key), names[depth]) }
  end
end


return tracing
