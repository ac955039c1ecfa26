--- Operators of ONNX on sequences (not for users); see onnx/ops_math.lua.
--
-- A sequence is a value whose field `items` lists its values. Its length is known at import, so it
-- needs no nodes.
--
-- @module tycho.onnx.ops_sequence

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local MOST_ITEMS = 65536


-- Returns the list of a sequence's values; another value is E(format).
local function items_of(v)
  return v and v.items or value.damaged("its input is no sequence")
end

-- Returns the place in a list, from 1, of a position that counts from 0 or, if negative, from the
-- end.
local function find_position(position, count, most)
  local at = position:number("the position")
  if at < -count or at > most or at ~= math.floor(at) then
    value.damaged("position %g of %d", at, count)
  end
  return (at < 0 and at + count or at) + 1
end

-- Returns a sequence of the values in a list.
local function make_sequence(list)
  if #list > MOST_ITEMS then
    value.refuse("a sequence of more than %d arrays", MOST_ITEMS)
  end
  value.spend(#list, "a sequence")
  return value.sequence(list)
end


function ops.SequenceEmpty() return value.sequence{} end

function ops.SequenceConstruct(_, ...) return make_sequence{ ... } end

function ops.SequenceLength(_, sequence) return value.scalar(#items_of(sequence), "int64") end

function ops.SequenceAt(_, sequence, position)
  local list = items_of(sequence)
  return list[find_position(position, #list, #list - 1)]
end

function ops.SequenceInsert(_, sequence, x, position)
  local list = tables.copied(items_of(sequence))
  table.insert(list, position and find_position(position, #list, #list) or #list + 1, x)
  return make_sequence(list)
end

function ops.SequenceErase(_, sequence, position)
  local list = tables.copied(items_of(sequence))
  if #list == 0 then
    value.damaged("an empty sequence")
  end
  table.remove(list, position and find_position(position, #list, #list - 1) or #list)
  return make_sequence(list)
end


function ops.ConcatFromSequence(n, sequence)
  local list, apart = items_of(sequence), n:flag("new_axis")
  if #list == 0 then
    value.damaged("an empty sequence")
  end
  local axis = n:axis(nil, #list[1].shape + (apart and 1 or 0))
  local parts = {}
  for i, v in ipairs(list) do
    parts[i] = apart and v:unsqueeze(axis) or v
  end
  return value.concat(parts, axis)
end


function ops.SplitToSequence(n, x, split)
  local axis = n:axis(0, #x.shape)
  local size, sizes = n:sizes(x, "its input")[axis + 1], {}
  if split and #split.shape > 0 then
    sizes = split:numbers("split")
  else
    local each = split and split:number("split") or 1
    if each < 1 or size / each > MOST_ITEMS then
      n:refuse("parts of %g elements, of %d", each, size)
    end
    for at = 0, size - 1, each do
      sizes[#sizes + 1] = math.min(each, size - at)
    end
  end
  local list = x:cut(axis, sizes)
  if not split and not n:flag("keepdims", true) then
    for i, v in ipairs(list) do
      list[i] = v:squeeze(axis)
    end
  end
  return make_sequence(list)
end


-- Converts the body separately for each item.
function ops.SequenceMap(n, sequence, ...)
  local graph, more, lists = n:graph("body"), { ... }, {}
  for i = 1, #items_of(sequence) do
    local given = { sequence.items[i] }
    for k, v in ipairs(more) do
      given[k + 1] = v.items and (v.items[i] or value.damaged("sequences of different lengths"))
        or v
    end
    for k, v in ipairs(n.import:run_body(graph, given, n.scope)) do
      lists[k] = lists[k] or {}
      lists[k][i] = v
    end
  end
  for k = 1, n.count do
    lists[k] = make_sequence(lists[k] or {})
  end
  return unpack(lists)
end


return ops
