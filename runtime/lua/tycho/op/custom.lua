--- Operators written in Lua, `ty.operator`: a `CustomOp` computes, a `CustomOpProp` describes it.
--
--     local Square, SquareProp = ty.operator.CustomOp:extend(), ty.operator.CustomOpProp:extend()
--     function Square:forward(_, req, ins, outs) self:assign(outs[1], req[1], ins[1] * ins[1]) end
--     function Square:backward(req, heads, ins, _, grads)
--       self:assign(grads[1], req[1], heads[1] * ins[1] * 2)
--     end
--     function SquareProp:create_operator() return Square{} end
--     ty.operator.register("square", SquareProp)
--     local y = ty.sym.Custom{x, op_type = "square"}
--
-- The results of the description's methods are stored in the graph as strings (symbol/custom.lua,
-- native/operators/control/custom.c). The core never calls Lua: a run stops at such an operator,
-- executor/custom.lua runs it, and the run continues. A call on arrays runs it at once
-- (ndarray/custom.lua). All lists of arrays count from 1; arrays are valid until the method
-- returns.
--
-- @module tycho.operator

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local namespace = require "tycho.core.namespace"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local custom = {}

local registered = {}                                    -- op_type -> class of descriptions
local PRIVATE = "^__custom_"


-- Base classes ------------------------------------------------------------------------------------

--- Computes outputs and gradients. There is one object for each node of an executor, so it may keep
-- state between calls.
local CustomOp = Class:extend("CustomOp")
custom.CustomOp = CustomOp

--- Writes the outputs.
-- @bool is_train
-- @tparam {string,...} req "write" or "null" per output
-- @tparam {NDArray,...} in_data read-only
-- @tparam {NDArray,...} out_data to be written
-- @tparam {NDArray,...} aux auxiliary states, which may be changed
function CustomOp:forward(is_train, req, in_data, out_data, aux)   -- luacheck: ignore self
  Error.raise{ code = "unsupported", func = "CustomOp:forward",
    message = "the class does not define it" }
end


--- Writes the gradients of the inputs. This one writes zeros.
-- @tparam {string,...} req "write" or "null" per input
-- @tparam {NDArray,...} out_grad
-- @tparam {NDArray,...} in_data
-- @tparam {NDArray,...} out_data
-- @tparam {NDArray,...} in_grad to be written
-- @tparam {NDArray,...} aux
function CustomOp:backward(req, out_grad, in_data, out_data, in_grad, aux)
  for i, g in ipairs(in_grad) do
    self:assign(g, req[i], 0)
  end
end


--- Writes src to dst as a request says: "write" and "inplace" replace the values, "add" adds to
-- them, "null" does nothing.
function CustomOp:assign(dst, req, src)                  -- luacheck: ignore self
  if req == "add" then
    dst[":"] = dst + src
  elseif req == "write" or req == "inplace" then
    dst[":"] = src
  elseif req ~= "null" then
    Error.raise{ code = "value", func = "CustomOp:assign", argument = "req",
      expected = "null, write, inplace or add", got = tostring(req), message = "bad 'req'" }
  end
end


--- Describes an operator: names, shapes, dtypes, and which arrays backward reads. It is constructed
-- with the node's further attributes, all strings.
local CustomOpProp = Class:extend("CustomOpProp")
custom.CustomOpProp = CustomOpProp

--- Whether backward reads the gradients of the outputs; false for a loss.
CustomOpProp.need_top_grad = true

--- @tparam[opt] table options need_top_grad = true
function CustomOpProp:init(options)
  if values.is_plain(options) and options.need_top_grad ~= nil then
    self.need_top_grad = options.need_top_grad
  end
end


--- Returns the names of the inputs.
-- @treturn {string,...}
function CustomOpProp:list_arguments() return { "data" } end             -- luacheck: ignore self
--- Returns the names of the outputs.
-- @treturn {string,...}
function CustomOpProp:list_outputs() return { "output" } end             -- luacheck: ignore self
--- Returns the names of the auxiliary states.
-- @treturn {string,...}
function CustomOpProp:list_auxiliary_states() return {} end              -- luacheck: ignore self


--- Returns the shapes of all inputs, outputs and auxiliary states. This one gives outputs and
-- states the first input's shape. It is called when the first input's shape is known; a shape that
-- is not known yet is `{}`.
-- @tparam {shape,...} in_shapes in the order of list_arguments
-- @treturn {shape,...} of the inputs
-- @treturn {shape,...} of the outputs
-- @treturn[opt] {shape,...} of the auxiliary states
function CustomOpProp:infer_shape(in_shapes)
  local outs, auxs = {}, {}
  for i = 1, #self:list_outputs() do
    outs[i] = in_shapes[1]
  end
  for i = 1, #self:list_auxiliary_states() do
    auxs[i] = in_shapes[1]
  end
  return in_shapes, outs, auxs
end


--- Returns the dtypes of all inputs, outputs and auxiliary states. This one returns the first
-- input's dtype for all.
function CustomOpProp:infer_type(in_types)
  local function all(names)
    local list = {}
    for i = 1, #names do
      list[i] = in_types[1]
    end
    return list
  end
  return all(self:list_arguments()), all(self:list_outputs()), all(self:list_auxiliary_states())
end


--- Returns the ids of the arrays that backward reads, from the given ones.
-- @tparam {integer,...} out_grad ids of the outputs' gradients
-- @tparam {integer,...} in_data ids of the inputs
-- @tparam {integer,...} out_data ids of the outputs
-- @treturn {integer,...}
function CustomOpProp:declare_backward_dependency(out_grad, in_data, out_data)
  local list = {}
  for _, part in ipairs{ self.need_top_grad and out_grad or {}, in_data, out_data } do
    for _, id in ipairs(part) do
      list[#list + 1] = id
    end
  end
  return list
end


--- Returns the object that computes; called once for each executor and node. A subclass must define
-- it.
-- @param ctx Context
-- @tparam {shape,...} shapes of the inputs
-- @tparam {string,...} dtypes of the inputs
function CustomOpProp:create_operator(ctx, shapes, dtypes)   -- luacheck: ignore self
  Error.raise{ code = "unsupported", func = "CustomOpProp:create_operator",
    message = "the class does not define it" }
end


local REGISTER = args.form("operator.register", { { "name", "text" }, { "prop", "any" } })

--- Registers a class of descriptions for `op_type = name`; it replaces an earlier class of that
-- name.
-- @string name
-- @tparam CustomOpProp prop a class that extends CustomOpProp
-- @return the class
function custom.register(...)
  local a = REGISTER(...)
  if type(a.prop) ~= "table" or type(rawget(a.prop, "class_name")) ~= "string"
      or type(a.prop.create_operator) ~= "function" then
    Error.raise{ code = "type", func = "operator.register", argument = "prop",
      expected = "a class that extends CustomOpProp", got = Error.kind(a.prop),
      message = "bad 'prop'" }
  end
  registered[a.name] = a.prop
  return a.prop
end


-- Descriptions ------------------------------------------------------------------------------------

--- Raises an error in a user's method as E(run) with the original error as its cause (not for
-- users).
function custom._fail(method, name, where, cause)
  local interrupted = Class.is_a(cause, Error) and cause.code == "interrupted"
  local first_line = tostring(cause):match("^[^\n]*")
  error(interrupted and cause or Error.new{ code = "run", func = "Custom", op = "Custom",
    node = name, where = where, cause = cause,
    message = ("%s of a Lua operator failed: %s"):format(method, first_line) }, 0)
end


--- Calls a user's method and returns its results; an error becomes E(run) (not for users).
-- @string method its name
-- @string name of the node
-- @tparam ?string where source line of the node, for errors
-- @tparam function f
-- @param ... its arguments
function custom._guarded(method, name, where, f, ...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if values.is_plain(v) and #v > 0 then
      counted_from_1(v)
    end
  end
  local results = { pcall(f, ...) }
  if not results[1] then
    custom._fail(method, name, where, results[2])
  end
  return unpack(results, 2, table.maxn(results))
end


--- Makes the operator of a description for given inputs (not for users).
-- @param prop
-- @string name of the node, "" for a call on arrays
-- @tparam Context ctx
-- @tparam {table,...} shapes of the arguments
-- @tparam {string,...} types of the arguments
function custom._make_operator(prop, name, ctx, shapes, types)
  local op = custom._guarded("create_operator", name, nil, prop.create_operator, prop, ctx, shapes,
    types)
  if type(op) ~= "table" or type(op.forward) ~= "function" then
    Error.raise{ code = "type", func = prop.class_name .. ":create_operator", op = "Custom",
      node = name, expected = "a CustomOp, as `return MyOperator()` gives", got = Error.kind(op),
      message = "create_operator returned no operator" }
  end
  return op
end


--- Makes the description for a node's attributes (not for users).
function custom._describe(dict, func, name)
  local kind = dict.op_type
  local class = kind and registered[kind]
  if not kind then
    Error.raise{ code = "value", func = func, op = "Custom", node = name, argument = "op_type",
      expected = "a registered name",
      got = "nothing", message = "parameter op_type is missing" }
  elseif not class then
    Error.unknown{ func = func, op = "Custom", node = name, argument = kind, what = "Lua operator",
      names = attrs.keys(registered) }
  end
  local options = {}
  for key, value in pairs(dict) do
    if key ~= "op_type" and key:sub(1, 2) ~= "__" then
      options[key] = value
    end
  end
  return custom._guarded("the constructor", name, nil, class, options)
end


local function numbered(list, from)
  local ids = {}
  for i = 1, #list do
    ids[i] = from + i - 1
  end
  return ids
end


-- Returns the arrays that backward reads, in the core's notation: "g0 i1 o0 i2!".
local function reads_text(prop, ins, outs, auxs)
  local tokens, names = {}, {}
  for k = 0, #outs - 1 do names[k] = "g" .. k end
  for k = 0, #ins - 1 do names[#outs + k] = "i" .. k end
  for k = 0, #outs - 1 do names[#outs + #ins + k] = "o" .. k end
  local ids = prop:declare_backward_dependency(numbered(outs, 0), numbered(ins, #outs),
    numbered(outs, #outs + #ins))
  for _, id in ipairs(ids) do
    tokens[#tokens + 1] = names[id]
  end
  for k = 1, #auxs do
    tokens[#tokens + 1] = ("i%d!"):format(#ins + k - 1)
  end
  return table.concat(tokens, " ")
end


--- Returns the list that a method returned, after a check of its length (not for users).
function custom._counted(list, n, method, what, name, where)
  if not values.is_plain(list) or #list ~= n then
    Error.raise{ code = "value", func = "Custom", op = "Custom", node = name, where = where,
      argument = what, expected = n, got = values.is_plain(list) and #list or Error.kind(list),
      message = method .. " returned a list of the wrong length" }
  end
  list.n = n
  return list
end


--- Returns the hidden attributes by which the core knows a node's ports (not for users).
-- @tparam table dict the node's own attributes
-- @string func for errors
-- @string name of the node
function custom._ports(dict, func, name)
  local prop = custom._describe(dict, func, name)
  local ins, outs, auxs = prop:list_arguments(), prop:list_outputs(), prop:list_auxiliary_states()
  local inputs = tables.copied(ins)
  for _, aux in ipairs(auxs) do
    inputs[#inputs + 1] = aux .. "!"
  end
  local hidden = { __custom_in__ = table.concat(inputs, " "),
    __custom_out__ = table.concat(outs, " ") }
  hidden.__custom_reads__ = custom._guarded("declare_backward_dependency", name, nil,
    reads_text, prop, ins, outs, auxs)
  return hidden
end


--- Returns a node's attributes and those of `_ports` in one table (not for users).
function custom._with_ports(dict, func)
  local all = custom._ports(dict, func, "")
  for key, value in pairs(dict) do
    all[key] = value
  end
  return all
end


--- Returns attributes without those of `_ports` (not for users).
function custom._own(dict)
  local own = {}
  for key, value in pairs(dict) do
    own[key] = not key:find(PRIVATE) and value or nil
  end
  return own
end


return namespace.close(custom, "operator", "class or function")
