--- Nodes of a graph that is not built yet: plain Lua tables, and the walks over them.
--
-- A node is `{op, name, attrs, inputs, ports, where, bodies, custom, serial}`; a variable has no
-- `op`; serial numbers are in the order in which a script made the operators. An entry is
-- `{node, k}`: output k (from 0) of a node. A symbol is a list of entries (symbol.lua). Symbols
-- share nodes; only `set_attr` changes an attribute of a node in use, and counts it in `edits`, by
-- which the native graphs of symbols know that they are out of date. Tables of attributes are never
-- changed, so nodes share them. Walks are depth-first, inputs before readers, left to right: all
-- lists have this order. They are loops without recursion, so a graph may be deep.
--
-- @module tycho.symbol.node

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local attrs = require "tycho.core.attrs"
local named = require "tycho.core.dict"
local Error = require "tycho.core.error"
local registry = require "tycho.op.registry"
local tracing = require "tycho.symbol.tracing"

local node = {}

--- Counts the changes of attributes of existing nodes.
node.edits = 0

local VARIABLE = { inputs = {}, outputs = { "" }, mutated = {}, nvisible = 1 }


--- Returns one table from several tables of attributes; later ones take precedence.
function node.merged(...)
  local all = {}
  for i = 1, select("#", ...) do
    for key, value in pairs(select(i, ...) or {}) do
      all[key] = value
    end
  end
  return all
end


--- Returns a variable.
-- @string name its name
-- @tparam table dict attributes, all text
-- @string where "file.lua:12"
function node.variable(name, dict, where)
  return { name = name, attrs = dict, inputs = {}, ports = VARIABLE, where = where }
end


local custom_used = false

--- Returns whether an operator written in Lua was ever part of a symbol.
function node.has_custom()
  return custom_used
end


local made = 0                           -- nodes of operators so far

--- Returns the node of an operator, which has no inputs yet.
-- @tparam table schema of the registry
-- @string name
-- @tparam table dict attributes, all text
-- @int nin number of inputs if variadic, -1 otherwise
-- @string func for errors
-- @string where
function node.operator(schema, name, dict, nin, func, where)
  local hidden
  if schema.name == "Custom" then
    custom_used, hidden = true, require("tycho.op.custom")._ports(dict, func, name)
  end
  local ports = registry.ports(schema.name, hidden and node.merged(dict, hidden) or dict,
    nin, func, name)
  made = made + 1
  local n = { op = schema.name, name = name, attrs = dict, inputs = {}, ports = ports,
    where = where, custom = hidden, serial = made }
  if schema.draws then
    tracing.note_draw(n)
  end
  return n
end


--- Returns the name of output k (from 0): "fc1_output"; a variable's own name.
function node.output_name(n, k)
  if not n.op then
    return n.name
  end
  return (n.name ~= "" and n.name .. "_" or "") .. n.ports.outputs[k + 1]
end


--- Returns the node that all entries belong to, or nil.
-- @tparam {entry,...} entries
function node.only(entries)
  local n = entries[1][1]
  for _, entry in ipairs(entries) do
    if entry[1] ~= n then
      return nil
    end
  end
  return n
end


--- Returns all nodes that entries reach, inputs before readers.
-- @tparam {entry,...} entries
-- @treturn {node,...} in order
-- @treturn table node -> position in the list, from 1
function node.walk(entries)
  local order, position = {}, {}
  local stack, at, depth = {}, {}, 0
  for _, entry in ipairs(entries) do
    if not position[entry[1]] then
      depth, stack[1], at[1] = 1, entry[1], 1
      position[entry[1]] = 0
    end
    while depth > 0 do
      local n = stack[depth]
      local input = n.inputs[at[depth]]
      if not input then
        order[#order + 1] = n
        position[n] = #order
        depth = depth - 1
      else
        at[depth] = at[depth] + 1
        if not position[input[1]] then
          depth = depth + 1
          stack[depth], at[depth], position[input[1]] = input[1], 1, 0
        end
      end
    end
  end
  return order, position
end


--- Copies a node with other inputs.
-- @tparam node n
-- @tparam {entry,...} inputs
-- @treturn node
function node.with_inputs(n, inputs)
  return { op = n.op, name = n.name, attrs = n.attrs, inputs = inputs, ports = n.ports,
    where = n.where, bodies = n.bodies, custom = n.custom, serial = n.serial }
end


--- Returns the entries of a copy of the graph. If `replace(node, moved)` returns a list of entries,
-- these replace the node's outputs; `moved(entry)` is the copy's entry for one of an input.
-- @tparam {entry,...} entries
-- @tparam[opt] function replace
-- @tparam[opt] {node,...} order the walk from the entries
-- @treturn {entry,...}
-- @treturn table node -> its copy
function node.copy(entries, replace, order)
  local clone, replaced = {}, {}  -- node -> its copy, or the entries that replace its outputs
  local function moved(entry)
    local outputs = replaced[entry[1]]
    return outputs and outputs[entry[2] + 1] or { clone[entry[1]], entry[2] }
  end
  for _, n in ipairs(order or node.walk(entries)) do
    replaced[n] = replace and replace(n, moved)
    if not replaced[n] then
      local inputs = {}
      for i, input in ipairs(n.inputs) do
        inputs[i] = moved(input)
      end
      clone[n] = node.with_inputs(n, inputs)
    end
  end
  local list = {}
  for i, entry in ipairs(entries) do
    list[i] = moved(entry)
  end
  return list, clone
end


--- Returns the operators among nodes in the order in which a script made them; in the order given
-- where that is not known, or where one reads a later one, as after a rewrite of the graph.
-- @tparam {node,...} order a node after those that it reads
-- @treturn {node,...}
function node.as_made(order)
  local operators, known = {}, true
  for _, n in ipairs(order) do
    if n.op then
      operators[#operators + 1] = n
      known = known and n.serial ~= nil
      for _, input in ipairs(n.inputs) do
        local from = input[1].serial
        known = known and not (from and from > n.serial)
      end
    end
  end
  if known then
    table.sort(operators, function(a, b) return a.serial < b.serial end)
  end
  return operators
end


--- Numbers the operators of a copy as made now, in the order of the originals.
-- @tparam {node,...} order the walk that `copy` was given or made
-- @tparam table clone node -> its copy, from `copy`
function node.renumber(order, clone)
  for _, n in ipairs(node.as_made(order)) do
    if clone[n] then
      made = made + 1
      clone[n].serial = made
    end
  end
end


--- Returns the first value of each node in the list of all values, from 0, and their number.
-- @tparam {node,...} order
-- @treturn table node -> index of its first value
-- @treturn int
function node.firsts(order)
  local first, at = {}, 0
  for _, n in ipairs(order) do
    first[n] = at
    at = at + #n.ports.outputs
  end
  return first, at
end


--- Returns the set of variables that nodes change: the auxiliary states.
-- @tparam {node,...} order
function node.mutated(order)
  local set = {}
  for _, n in ipairs(order) do
    for i, input in ipairs(n.inputs) do
      if n.ports.mutated[i] then
        set[input[1]] = true
      end
    end
  end
  return set
end


--- Returns the versions of the variables that nodes read: each operator that changes a variable, in
-- order, increments its version.
-- @tparam {node,...} order
-- @treturn table node -> list of versions, one per input
function node.versions(order)
  local counter, list = {}, {}
  for _, n in ipairs(order) do
    local versions = {}
    for i, input in ipairs(n.inputs) do
      local v = input[1]
      if n.ports.mutated[i] then
        counter[v] = (counter[v] or 0) + 1
      end
      versions[i] = counter[v] or 0
    end
    list[n] = versions
  end
  return list
end


--- Sets an attribute of an existing node.
function node.set_attr(n, key, value)
  n.attrs = node.merged(n.attrs, { [key] = value })
  node.edits = node.edits + 1
end


--- Returns the attributes, with each hidden one under both spellings.
function node.shown_attrs(n)
  local dict = named{}
  for key, value in pairs(n.attrs) do
    dict[key] = value
    local bare = attrs.bare(key)
    if bare then
      dict[bare] = value
    end
  end
  return dict
end


-- Initialisers that operators give to the variables of their inputs: operator ->
-- position (from 1) -> its description
local ZERO, ONE = '["zero", {}]', '["one", {}]'
local INITIALISERS = {
  BatchNorm                  = { [4] = ZERO, [5] = ONE },
  BatchNorm_v1               = { [4] = ZERO, [5] = ONE },
  _contrib_SyncBatchNorm     = { [4] = ZERO, [5] = ONE },
  LeakyReLU                  = { [2] = '["Constant", {"value": 0.25}]' },
  UpSampling                 = { [2] = '["bilinear", {}]' },
  IdentityAttachKLSparseReg  = { [2] = ZERO },
}

-- Sets `__init__` of input variables that have usual initializers. A variable that was made for
-- this node is in no graph yet, so its attributes are replaced directly.
local function set_initialisers(n, given)
  if n.op == "UpSampling" and n.attrs.sample_type ~= "bilinear" then
    return
  end
  for i, init in pairs(INITIALISERS[n.op]) do
    local v = n.inputs[i] and n.inputs[i][1]
    if v and not v.op and not v.attrs.__init__ then
      if given[i] then
        node.set_attr(v, "__init__", init)
      else
        v.attrs = node.merged(v.attrs, { __init__ = init })
      end
    end
  end
end


--- Connects an operator's node: given inputs in position, variables `<node>_<input>` with the
-- node's attributes for others.
-- @tparam table n the node
-- @tparam table given position (from 1) -> entry
-- @string func for errors
function node.connect(n, given, func)
  for i, name in ipairs(n.ports.inputs) do
    local entry = given[i]
    if not entry then
      local full = (n.name ~= "" and n.name .. "_" or "") .. name
      entry = { node.variable(full, n.attrs, n.where), 0 }
    elseif n.ports.mutated[i] and entry[1].op then
      Error.raise{ code = "type", func = func, op = n.op, node = n.name, argument = name,
        where = n.where, expected = "a variable", got = "an output of " .. entry[1].op,
        message = ("'%s' is changed by the operator, so it must be a variable"):format(name) }
    end
    n.inputs[i] = entry
  end
  if INITIALISERS[n.op] then
    set_initialisers(n, given)
  end
end


return node
