--- Arguments and results of blocks: flat lists of tensors, and the structure that they had.
--
-- A structure is text: "." for a tensor, "_" for nothing, "(" and ")" around a list.
--
-- @module tycho.gluon.nested

local Error = require "tycho.core.error"
local NDArray = require("tycho.ndarray").NDArray
local Symbol = require("tycho.symbol.symbol").Symbol
local values = require "tycho.core.values"

local getmetatable = getmetatable

local nested = {}


local function is_tensor(v)
  local class = getmetatable(v)
  return class == NDArray or class == Symbol
end


local function put(v, flat, texts, func)
  if is_tensor(v) then
    flat[#flat + 1] = v
    texts[#texts + 1] = "."
  elseif v == nil or v == values.null then
    texts[#texts + 1] = "_"
  elseif values.is_plain(v) and not values.has_names(v) then
    texts[#texts + 1] = "("
    for i = 1, table.maxn(v) do
      put(v[i], flat, texts, func)
    end
    texts[#texts + 1] = ")"
  else
    Error.raise{ code = "type", func = func, expected = "arrays, symbols, nil and lists of them",
      got = Error.kind(v), message = "a block that is traced takes tensors only; numbers and \z
        options are fields of the block" }
  end
end


--- Returns the tensors among values, and their structure.
-- @int n how many values
-- @tparam table list the values
-- @string func for errors
-- @treturn {NDArray|Symbol,...}
-- @treturn string
function nested.flatten(n, list, func)
  local flat, texts = {}, {}
  for i = 1, n do
    put(list[i], flat, texts, func)
  end
  return flat, table.concat(texts)
end


-- Reads values up to the end of a list. `at` counts the tensors that are read, `from` is the place
-- in the structure. Returns the values, how many there are, and both places after them.
local function read(flat, structure, at, from)
  local list, n = {}, 0
  while from <= #structure do
    local c = structure:sub(from, from)
    from = from + 1
    if c == ")" then
      break
    end
    n = n + 1
    if c == "." then
      at = at + 1
      list[n] = flat[at]
    elseif c == "(" then
      local inner, _
      inner, _, at, from = read(flat, structure, at, from)
      list[n] = inner
    end
  end
  return list, n, at, from
end


--- Returns the values of a structure from its tensors.
-- @tparam table flat
-- @string structure
-- @treturn table the values
-- @treturn int how many there are
function nested.regroup(flat, structure)
  local list, n = read(flat, structure, 0, 1)
  return list, n
end


return nested
