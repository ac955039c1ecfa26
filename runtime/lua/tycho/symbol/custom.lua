--- Shapes and dtypes of operators written in Lua (op/custom.lua) in a graph.
--
-- @module tycho.symbol.custom

local ffi = require "ffi"
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local class = require "tycho.ndarray.class"
local custom = require "tycho.op.custom"
local native = require "tycho.core.ffi"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"

local C, check = native.C, native.check

local inference = {}


local function joined(lists, text)
  local words = {}
  for _, list in ipairs(lists) do
    for i = 1, list.n do
      words[#words + 1] = text(list[i])
    end
  end
  return table.concat(words, " ")
end


local function shape_word(shape)
  return shape and #shape > 0 and table.concat(shape, ",") or "?"
end


local function type_word(name)
  return tostring(name and args.DTYPES[name] or C.TY_NODTYPE)
end


-- Calls infer_shape or infer_type of an operator's class. Returns the shapes or dtypes of all
-- inputs, states and outputs as text; nil if the method fails while inputs are unknown. complete:
-- whether all inputs are known, so that a failure is an error.
local function infer_text(n, prop, method, ins, complete, word)
  local nargs, nouts, nauxs = #prop:list_arguments(), #prop:list_outputs(),
    #prop:list_auxiliary_states()
  local ok, a, b, c = attempt(prop[method], prop, ins)
  if not ok then
    return complete and custom._fail(method, n.name, n.where, a) or nil
  end
  a = custom._counted(a, nargs, method, "inputs", n.name, n.where)
  b = custom._counted(b, nouts, method, "outputs", n.name, n.where)
  c = custom._counted(c or {}, nauxs, method, "auxiliary states", n.name, n.where)
  return joined({ a, c, b }, word)
end


local function infer_node(n, prop, descs, first, default)
  local shapes, types, complete, typed = {}, {}, true, true
  for i = 1, #prop:list_arguments() do
    local entry = n.inputs[i]
    local d = descs[first[entry[1]] + entry[2]]
    shapes[i], types[i] = class.shape_of(d), args.DTYPE_NAMES[d.dtype] or default
    complete = complete and tables.is_known(shapes[i])
    typed = typed and types[i] ~= nil
  end
  local none = #prop:list_arguments() == 0
  return {
    __custom_shapes__ = (none or tables.is_known(shapes[1]))
      and infer_text(n, prop, "infer_shape", shapes, complete, shape_word) or nil,
    __custom_types__ = (none or types[1])
      and infer_text(n, prop, "infer_type", types, typed, type_word) or nil,
  }
end


local function differs(a, b)
  for _, key in ipairs{ "__custom_shapes__", "__custom_types__" } do
    if a[key] ~= (b or {})[key] then
      return true
    end
  end
  return false
end


--- Returns whether a list of nodes has operators written in Lua.
function inference.has(order)
  for _, n in ipairs(order) do
    if n.op == "Custom" then
      return true
    end
  end
  return false
end


--- Returns a graph in which operators written in Lua have the shapes and dtypes that follow from
-- the given ones (not for users).
-- @tparam table built as `graph.of`
-- @tparam cdata wants `ty_want[]`
-- @int count of them
-- @tparam function rebuild rebuild(hints) -> built; hints: node -> attributes
-- @string func for errors
-- @string[opt] default the dtype for inputs whose dtype stays unknown
function inference.resolve(built, wants, count, rebuild, func, default)
  local first, total = node.firsts(built.order)
  local hints, props, assumed = {}, {}, nil
  for _ = 1, 2 * #built.order + 2 do
    local descs, changed = ffi.new("ty_desc[?]", total + 1), false
    check(C.ty_graph_infer(built.handle, wants, count, 1, descs), func)
    for _, n in ipairs(built.order) do
      if n.op == "Custom" then
        props[n] = props[n] or custom._describe(n.attrs, func, n.name)
        local found = infer_node(n, props[n], descs, first, assumed)
        changed = changed or differs(found, hints[n])
        hints[n] = found
      end
    end
    if not changed and assumed == default then
      break
    elseif not changed then
      assumed = default
    else
      built = rebuild(hints)
    end
  end
  return built
end


return inference
