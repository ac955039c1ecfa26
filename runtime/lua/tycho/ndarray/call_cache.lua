--- Calls like ones that were made before: their form is recognised, not read.
--
-- The first call of a kind goes the long way (`registry.read_call`). What came of its parameters is
-- then filed in a tree by the names and values that the caller wrote, in the order in which they
-- stand in the caller's table: two steps of look-up per parameter find the attributes again, ready
-- for the core. Arrays take the places that their names or positions say. Whatever is unusual (a
-- mistake, a Context, a list of outputs) is not recognised, and so is read.
--
--     local book = known.book(schema)                       -- nil: calls of this operator are
--                                                           always read
--     local form, out = known.find(book, self, whole, ...)  -- nil: read it
--     known.file(book, c, flat, self, whole, ...)           -- after c was read and has run
--
-- @module tycho.ndarray.call_cache

local ffi = require "ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local call = require "tycho.ndarray.call"
local class = require "tycho.ndarray.class"
local values = require "tycho.core.values"

local NDArray, null, put_input = class.NDArray, values.null, call.put_input
local getmetatable, next, select, type = getmetatable, next, select, type

local known = {}

local MOST = 512                                         -- nodes of a tree; then it is grown anew
local MOST_INPUTS = 60                                   -- `call.put_input` has room for 64
local OUT = true


-- Books -------------------------------------------------------------------------------------------

--- What recognising the calls of an operator needs: `keys[name]` is the place of an input, the name
-- of a parameter or OUT; `params` are names by position; `root` and `size` are the tree.
-- @tparam table schema
-- @treturn table nil: its calls depend on more than their arguments
function known.book(schema)
  if schema.name == "Custom" or schema.by_name.ctx then
    return nil
  end
  local book = { keys = { out = OUT }, params = {}, root = {}, size = 0 }
  for place, name in ipairs(schema.variadic and {} or schema.input_names) do
    book.keys[name] = place
  end
  for i, p in ipairs(schema.params) do
    if book.keys[p.name] then
      return nil
    end
    book.params[i], book.keys[p.name] = p.name, p.name
    if args.plain_name(p.name .. "_") == p.name then
      book.keys[p.name .. "_"] = p.name
    end
  end
  return book
end


-- The tree: node[parameter][value] is a node, node[number of inputs] a form -----------------------

-- A list of numbers or truths as text; nil for any other table.
local function list_text(t)
  if getmetatable(t) ~= nil then
    return nil
  end
  local n = 0
  for _, v in next, t do
    if type(v) ~= "number" and type(v) ~= "boolean" then
      return nil
    end
    n = n + 1
  end
  return n == #t and attrs.text(t) or nil
end
jit.off(list_text)


local function grown(book, node, name, value)
  local branch = node[name] or {}
  node[name] = branch
  branch[value] = branch[value] or {}
  book.size = book.size + 1
  return branch[value]
end


local function step(book, node, name, value, grow)
  local kind = type(value)
  if kind == "table" and value ~= null then
    value = list_text(value)
  elseif kind == "cdata" or kind == "function" or value ~= value then
    value = nil
  end
  if value == nil then
    return nil
  end
  local branch = node[name]
  local found = branch and branch[value]
  return found or grow and grown(book, node, name, value) or nil
end


-- Puts the inputs into their places and follows the parameters: node, number of inputs, out. nil:
-- not recognised. Never compiled, so that it may use the standard `next` (see `core/iterate.lua`).
local function walk(book, grow, first, list, n, options)
  local node, keys, count, used = book.root, book.keys, 0, 0
  if first then
    put_input(0, first)
    count = 1
  end
  while used < n and getmetatable(list[used + 1]) == NDArray do
    put_input(count, list[used + 1])
    used, count = used + 1, count + 1
  end
  for i = used + 1, n do
    node = book.params[i - used] and step(book, node, book.params[i - used], list[i], grow)
    if not node then
      return nil
    end
  end
  local positional, last, out = count, count, nil
  for key, value in next, options do
    local what = keys[key]
    if type(key) == "number" then
      if key > n or list ~= options then
        return nil
      end
    elseif type(what) == "string" then
      node = step(book, node, what, value, grow)
      if not node then
        return nil
      end
    elseif what == nil or getmetatable(value) ~= NDArray then
      return nil
    elseif what == OUT then
      out = value
    elseif what <= positional then
      return nil
    else
      put_input(what - 1, value)
      count, last = count + 1, what > last and what or last
    end
  end
  if last ~= count then
    return nil
  end
  return node, count, out
end
jit.off(walk)


local NOTHING = {}

local function follow(book, grow, first, whole, ...)
  local n, list = select("#", ...), ...
  if n > MOST_INPUTS then
    return nil
  elseif n == 1 and type(list) == "table" and getmetatable(list) == nil then
    n = #list
    if n > (whole and 0 or MOST_INPUTS) then
      return nil
    end
    return walk(book, grow, first, list, n, list)
  end
  list = { ... }
  local last = list[n]
  if type(last) == "table" and getmetatable(last) == nil and #last == 0 then
    return walk(book, grow, first, list, n - 1, last)
  end
  return walk(book, grow, first, list, n, NOTHING)
end


--- The form of a call that was made before; its inputs are then in place for `call.known`.
-- @tparam table book
-- @tparam NDArray first the object of a method, or nil
-- @tparam boolean whole rule R2: a table's array part is the first parameter
-- @param ... arguments
-- @treturn table the form, and `out`
function known.find(book, first, whole, ...)
  local node, count, out = follow(book, false, first, whole, ...)
  return node and node[count], out
end


local function agrees(book, c, count)
  for name, x in next, c.named do
    if c.inputs[book.keys[name]] ~= x then
      return false
    end
  end
  return count == c.count and count <= MOST_INPUTS and next(c.attrs) == nil and c.options.ctx == nil
end
jit.off(agrees)


--- Files what a call came to.
-- @tparam table book
-- @tparam table c the call that was read (op/registry.lua), inputs in place
-- @tparam {string,...} flat attributes, names and texts by turns
-- @tparam NDArray first as for `find`
-- @tparam boolean whole as for `find`
-- @param ... as for `find`
function known.file(book, c, flat, first, whole, ...)
  if book.size > MOST then
    book.root, book.size = {}, 0
  end
  local node, count = follow(book, true, first, whole, ...)
  if not node or not agrees(book, c, count) then
    return
  end
  local attr = ffi.new("ty_attr[?]", #flat / 2 + 1)
  for i = 1, #flat / 2 do
    attr[i - 1].key, attr[i - 1].value = flat[2 * i - 1], flat[2 * i]
  end
  node[count] = { op = c.schema.name, attr = attr, nattr = #flat / 2, nin = count, texts = flat }
end


return known
