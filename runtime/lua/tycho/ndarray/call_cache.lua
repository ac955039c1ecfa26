--- The cache of call signatures: the arguments of a repeated call are looked up instead of read.
--
-- The first call with a signature is read in full (`registry.read_call`). Its entry, the attributes
-- as the core takes them, is then stored in the operator's cache: a prefix tree (trie) over the
-- names and values of the parameters as the caller wrote them, in the order of the
-- caller's table. A later call takes two look-ups per parameter. The signature has the number of
-- inputs; the search sets them with `call.put_input`. Unusual calls (a mistake, a Context,
-- a list of outputs) are not found and are read in full.
--
--     local cache = call_cache.new(schema)                         -- nil: calls are always read
--     local entry, out = call_cache.find(cache, self, whole, ...)  -- nil: read it
--     call_cache.add(cache, c, flat, self, whole, ...)             -- after c was read and has run
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

local call_cache = {}

local MOST_NODES = 512                                   -- of a tree; then it is emptied
local MOST_INPUTS = 60                                   -- `call.put_input` takes 64
local OUT = 0                                            -- the position of `out`


--- Returns an empty cache for an operator: `arrays[name]` is the position of an input, or OUT;
-- `names[name]` is the name of a parameter, `params[i]` that of one given by position; `root` and
-- `size` are the tree.
-- @tparam table schema
-- @treturn ?table nil: its calls depend on more than their arguments
function call_cache.new(schema)
  if schema.name == "Custom" or schema.by_name.ctx then
    return nil
  end
  local cache = { arrays = { out = OUT }, names = {}, params = {}, root = {}, size = 0 }
  for position, name in ipairs(schema.variadic and {} or schema.input_names) do
    cache.arrays[name] = position
  end
  for i, p in ipairs(schema.params) do
    if cache.arrays[p.name] or cache.names[p.name] then
      return nil
    end
    cache.params[i], cache.names[p.name] = p.name, p.name
    if args.bare_name(p.name .. "_") == p.name then
      cache.names[p.name .. "_"] = p.name
    end
  end
  return cache
end


-- The tree: node[parameter][value] is a node, node[number of inputs] an entry ---------------------

-- Returns a list of numbers or booleans as text; nil for any other table.
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


local function add_child(cache, node, name, value)
  local children = node[name] or {}
  node[name] = children
  children[value] = children[value] or {}
  cache.size = cache.size + 1
  return children[value]
end


-- Returns the node of a value that is not in the tree: for a list the node of its text; with `grow`
-- a new node; else nil.
local function child(cache, node, name, value, grow)
  local kind = type(value)
  if kind == "table" and value ~= null then
    value = list_text(value)
  elseif kind == "cdata" or kind == "function" or value ~= value then
    value = nil
  end
  if value == nil then
    return nil
  end
  local children = node[name]
  local found = children and children[value]
  return found or grow and add_child(cache, node, name, value) or nil
end


local NOTHING = {}

-- Sets the inputs with `call.put_input` and follows the parameters. Returns node, number of inputs,
-- out; nil if the call is not found. Never compiled, so that it may use the standard `next` (see
-- `core/iterate.lua`).
local function walk(cache, grow, first, list, n, options)
  local arrays, names, node, count, used = cache.arrays, cache.names, cache.root, 0, 0
  if options ~= list and options ~= NOTHING and next(options) == nil then
    return nil                                           -- {}: a parameter, or no keywords
  end
  if first then
    put_input(0, first)
    count = 1
  end
  while used < n and getmetatable(list[used + 1]) == NDArray do
    put_input(count, list[used + 1])
    used, count = used + 1, count + 1
  end
  for i = used + 1, n do
    local name, value = cache.params[i - used], list[i]
    local children = node[name]
    node = children and children[value] or name and child(cache, node, name, value, grow)
    if not node then
      return nil
    end
  end
  local positional, last, out = count, count, nil
  for key, value in next, options do
    local position = arrays[key]
    if position then
      if getmetatable(value) ~= NDArray then
        return nil
      elseif position == OUT then
        out = value
      elseif position <= positional then
        return nil
      else
        put_input(position - 1, value)
        count, last = count + 1, position > last and position or last
      end
    elseif names[key] then
      local name = names[key]
      local children = node[name]
      node = children and children[value] or child(cache, node, name, value, grow)
      if not node then
        return nil
      end
    elseif type(key) ~= "number" or key > n or list ~= options then
      return nil
    end
  end
  if last ~= count then
    return nil
  end
  return node, count, out
end
jit.off(walk)


-- Follows a call whose only argument is a table without a metatable: options, a list, or both.
local function follow_table(cache, grow, first, whole, t)
  local n = t[1] ~= nil and #t or 0                      -- `#` is slower for a table of names
  if n > (whole and 0 or MOST_INPUTS) then
    return nil
  end
  return walk(cache, grow, first, t, n, t)
end


local function follow(cache, grow, first, whole, ...)
  local n, list = select("#", ...), ...
  if n > MOST_INPUTS then
    return nil
  elseif n == 1 and type(list) == "table" and getmetatable(list) == nil then
    return follow_table(cache, grow, first, whole, list)
  end
  list = { ... }
  local last = list[n]
  if type(last) == "table" and getmetatable(last) == nil and #last == 0 then
    return walk(cache, grow, first, list, n - 1, last)
  end
  return walk(cache, grow, first, list, n, NOTHING)
end


--- Returns the entry of a call that was made before, and sets its inputs for `call.cached`.
-- @tparam table cache
-- @tparam NDArray first the object of a method, or nil
-- @tparam boolean whole rule R2: a table's array part is the first parameter
-- @param ... arguments
-- @treturn ?table the entry; nil if the call is not found
-- @treturn ?NDArray `out`
function call_cache.find(cache, first, whole, ...)
  local node, count, out = follow(cache, false, first, whole, ...)
  return node and node[count], out
end


--- Works as `find`, but faster, for a call whose only argument is a table without a metatable.
-- @tparam table cache
-- @tparam NDArray first as for `find`
-- @tparam boolean whole as for `find`
-- @tparam table t the argument
-- @treturn ?table the entry; nil if the call is not found
-- @treturn ?NDArray `out`
function call_cache.find_table(cache, first, whole, t)
  local node, count, out = follow_table(cache, false, first, whole, t)
  return node and node[count], out
end


-- Returns whether the search has understood a call in the same way as `registry.read_call`.
local function agrees(cache, c, count)
  for name, x in next, c.named do
    if c.inputs[cache.arrays[name]] ~= x then
      return false
    end
  end
  return count == c.count and count <= MOST_INPUTS and next(c.attrs) == nil and c.options.ctx == nil
end
jit.off(agrees)


--- Returns an entry for `call.cached`.
-- @string op
-- @tparam {string,...} flat attributes, names and texts by turns
-- @int nin number of inputs
-- @int nout number of outputs
-- @treturn table
function call_cache.entry(op, flat, nin, nout)
  local attr = ffi.new("ty_attr[?]", #flat / 2 + 1)
  for i = 1, #flat / 2 do
    attr[i - 1].key, attr[i - 1].value = flat[2 * i - 1], flat[2 * i]
  end
  return { op = op, attr = attr, nattr = #flat / 2, nin = nin, nout = nout, texts = flat }
end


--- Stores the result of reading a call.
-- @tparam table cache
-- @tparam table c the call that was read (op/registry.lua), inputs in place
-- @tparam {string,...} flat attributes, names and texts by turns
-- @tparam NDArray first as for `find`
-- @tparam boolean whole as for `find`
-- @param ... as for `find`
function call_cache.add(cache, c, flat, first, whole, ...)
  if cache.size > MOST_NODES then
    cache.root, cache.size = {}, 0
  end
  local node, count = follow(cache, true, first, whole, ...)
  if not node or not agrees(cache, c, count) then
    return
  end
  node[count] = call_cache.entry(c.schema.name, flat, count, c.nout)
end


return call_cache
