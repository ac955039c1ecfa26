-- What rewrites of graphs with known parameters share: simplification of imported networks and
-- quantization (not for users).
--
-- A rewrite has a table g: entries (the outputs), params (name -> array; new ones are added), func
-- (for errors). `rewriting.run` calls its rule for each operator, inputs before readers, so that a
-- rule sees its inputs as earlier calls left them, through `g.moved(entry)`.

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local node = require "tycho.symbol.node"
local registry = require "tycho.op.registry"
local tables = require "tycho.core.tables"

local rewriting = {}

-- Terms of a product of 8-bit integers, 255 x 128 each, that are certain to fit 32 bits.
rewriting.MOST_TERMS = 65792

-- Rows and terms of a group from which its product in 8-bit integers is worth its start.
local FEW_ROWS, FEW_TERMS = 8, 64

-- Warns of names of nodes to leave out that no operator of the network has. They are no error,
-- since one list may serve several networks. `excluded` may be nil; func is the caller's name.
function rewriting.warn_of_unknown(entries, excluded, func)
  if not excluded then
    return
  end
  local names, known = {}, {}
  for _, n in ipairs(node.walk(entries)) do
    if n.op then
      names[#names + 1], known[n.name] = n.name, true
    end
  end
  for _, name in ipairs(excluded) do
    if not known[name] then
      local nearest, is_like = Error.nearest(tostring(name), names, 1)
      local hint = is_like and ("; did you mean '%s'?"):format(nearest[1]) or ""
      log:warning(("%s: excluded_sym_names has '%s', but no operator of the network is named so%s")
        :format(func, tostring(name), hint))
    end
  end
end


-- Returns how often each output is read: node -> output -> count.
local function count_readers(entries, order)
  local readers = {}
  local function add(entry)
    local of = readers[entry[1]] or {}
    of[entry[2]] = (of[entry[2]] or 0) + 1
    readers[entry[1]] = of
  end
  for _, n in ipairs(order) do
    for _, entry in ipairs(n.inputs) do
      add(entry)
    end
  end
  for _, entry in ipairs(entries) do
    add(entry)
  end
  return readers
end


-- Replaces outputs of operators in g.entries. rule(g, n) returns the entries that replace those of
-- n, or nil. Returns whether a rule has replaced any.
function rewriting.run(g, rule)
  local order = node.walk(g.entries)
  g.readers, g.names = count_readers(g.entries, order), {}
  for _, n in ipairs(order) do
    g.names[n.name] = true
  end
  local changed = false
  g.entries = node.copy(g.entries, function(n, moved)
    if not n.op then
      return { { n, 0 } }
    end
    g.moved = moved
    local made = rule(g, n)
    changed = changed or made ~= nil
    return made
  end, order)
  return changed
end


-- Returns whether an output has one reader.
function rewriting.is_only_read(g, entry)
  return g.readers[entry[1]][entry[2]] == 1
end


-- Returns the output of a new node.
function rewriting.operator(g, op, name, attrs, inputs, where)
  local made = node.operator(registry.find(op), name, attrs, -1, g.func, where)
  node.connect(made, inputs, g.func)
  return { made, 0 }
end


-- Returns `name`, or one like it, that no other node or parameter has.
function rewriting.free_name(g, name)
  while g.names[name] or g.params[name] do
    name = name .. "_"
  end
  g.names[name] = true
  return name
end


-- Returns the entry of a new parameter.
function rewriting.new_parameter(g, name, x)
  name = rewriting.free_name(g, name)
  g.params[name] = x
  local shape = table.concat(x.shape, ", ")
  local dict = { __dtype__ = tostring(x._dtype), __shape__ = ("(%s,)"):format(shape) }
  return { node.variable(name, dict), 0 }
end


-- Returns whether the products of a layer are large enough for kernels of 8-bit integers; those of
-- a depthwise convolution are not. shape: of the weight, whose first axis counts rows.
function rewriting.has_large_groups(shape, groups)
  local terms = tables.product(shape) / shape[1]
  return groups == 1 or shape[1] / groups >= FEW_ROWS and terms >= FEW_TERMS
end


-- Returns the array of an entry that is a parameter; nil: it is none.
function rewriting.parameter_of(g, entry)
  return not entry[1].op and g.params[entry[1].name] or nil
end


return rewriting
