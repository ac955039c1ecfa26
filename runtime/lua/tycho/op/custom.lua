--- Operators written in Lua (`ty.operator`): `CustomOp` computes, `CustomOpProp` describes.
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
-- The core never calls Lua: a run stops where such an operator stands, executor.lua runs it
-- here, and the run goes on. What inference needs is asked from the description and put into the
-- graph as texts (native/operators/control/custom.c). All lists of arrays are 1-based; arrays
-- are valid until the method returns.
--
-- @module tycho.operator

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local arrays = require "tycho.ndarray.class"
local attrs = require "tycho.core.attrs"
local Class = require "tycho.core.class"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"
local values = require "tycho.core.values"

local C, check = native.C, native.check

local operator = {}

local registered = {}                                    -- op_type -> class of descriptions
local PRIVATE = "^__custom_"


-- What users extend -------------------------------------------------------------------------------

--- Computes; one object per node of an executor, so it may keep what it likes between calls.
local CustomOp = Class:extend("CustomOp")
operator.CustomOp = CustomOp

--- Writes the outputs.
-- @bool is_train
-- @tparam {string,...} req "write" or "null" per output
-- @tparam {NDArray,...} in_data read-only
-- @tparam {NDArray,...} out_data to be written
-- @tparam {NDArray,...} aux auxiliary states, may be changed
function CustomOp:forward(is_train, req, in_data, out_data, aux)   -- luacheck: ignore self
  Error.raise{ code = "unsupported", func = "CustomOp:forward",
    message = "the class does not define it" }
end


--- Writes the gradients of the inputs; here: zeros.
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


--- Writes src into dst as req says: "null" nothing, "write" and "inplace" the value, "add" the sum.
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


--- Describes an operator: names, shapes, dtypes, what backward reads. Made with the node's
-- further attributes, all text.
local CustomOpProp = Class:extend("CustomOpProp")
operator.CustomOpProp = CustomOpProp

--- @tparam[opt] table options need_top_grad (true): backward reads the gradients of the outputs
function CustomOpProp:init(options)
  self.need_top_grad = not values.is_plain(options) or options.need_top_grad ~= false
end


--- @treturn {string,...}
function CustomOpProp:list_arguments() return { "data" } end             -- luacheck: ignore self
--- @treturn {string,...}
function CustomOpProp:list_outputs() return { "output" } end             -- luacheck: ignore self
--- @treturn {string,...}
function CustomOpProp:list_auxiliary_states() return {} end              -- luacheck: ignore self


--- Shapes of all inputs, outputs and auxiliary states. Called when the first input's shape is
-- known; a shape that is not known yet is `{}`.
-- @tparam {shape,...} in_shapes of list_arguments
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


--- Dtypes of all inputs, outputs and auxiliary states; here: the first input's everywhere.
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


--- Which of the given ids backward reads.
-- @tparam {integer,...} out_grad
-- @tparam {integer,...} in_data
-- @tparam {integer,...} out_data
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


--- The object that computes; called once per executor and node.
-- @param ctx Context
-- @tparam {shape,...} shapes of the inputs
-- @tparam {string,...} dtypes of the inputs
function CustomOpProp:create_operator(ctx, shapes, dtypes)   -- luacheck: ignore self
  Error.raise{ code = "unsupported", func = "CustomOpProp:create_operator",
    message = "the class does not define it" }
end


local REGISTER = args.form("operator.register", { { "name", "text" }, { "prop", "any" } })

--- Makes a class of descriptions known as `op_type = name`; a later one of the same name replaces
-- it.
-- @string name
-- @tparam CustomOpProp prop a class that extends CustomOpProp
-- @return the class
function operator.register(...)
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

-- An error inside a user's method, as E(run) with the original as its cause.
local function fail(method, name, where, cause)
  local interrupted = Class.is_a(cause, Error) and cause.code == "interrupted"
  error(interrupted and cause or Error.new{ code = "run", func = "Custom", op = "Custom",
    node = name, where = where, cause = cause,
    message = ("%s of a Lua operator failed: %s"):format(method, tostring(cause)) }, 0)
end


local function guarded(method, name, where, f, ...)
  local results = { pcall(f, ...) }
  if not results[1] then
    fail(method, name, where, results[2])
  end
  return unpack(results, 2, table.maxn(results))
end


-- A description for a node's attributes.
local function describe(dict, func, name)
  local kind = dict.op_type
  local class = kind and registered[kind]
  if not kind then
    Error.raise{ code = "value", func = func, op = "Custom", node = name, argument = "op_type",
      expected = "a registered name",
      got = "nothing", message = "required parameter op_type is missing" }
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
  return guarded("the constructor", name, nil, class, options)
end


local function numbered(list, from)
  local ids = {}
  for i = 1, #list do
    ids[i] = from + i - 1
  end
  return ids
end


-- What backward reads as the core's text: "g0 i1 o0 i2!".
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


--- The attributes that the core needs to know a node's ports, for a node's
-- own attributes (not for users).
-- @tparam table dict
-- @string func for errors
-- @string name of the node
function operator._ports(dict, func, name)
  local prop = describe(dict, func, name)
  local ins, outs, auxs = prop:list_arguments(), prop:list_outputs(), prop:list_auxiliary_states()
  local inputs = { unpack(ins) }
  for _, aux in ipairs(auxs) do
    inputs[#inputs + 1] = aux .. "!"
  end
  local hidden = { __custom_in__ = table.concat(inputs, " "),
    __custom_out__ = table.concat(outs, " ") }
  hidden.__custom_reads__ = guarded("declare_backward_dependency", name, nil,
    reads_text, prop, ins, outs, auxs)
  return hidden
end


--- A node's attributes together with those of `_ports` (not for users).
function operator._known(dict, func)
  local all = operator._ports(dict, func, "")
  for key, value in pairs(dict) do
    all[key] = value
  end
  return all
end


--- Attributes without those of `_ports` (not for users).
function operator._own(dict)
  local own = {}
  for key, value in pairs(dict) do
    own[key] = not key:find(PRIVATE) and value or nil
  end
  return own
end


-- Inference ---------------------------------------------------------------------------------------

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


-- A list of a known length from what a method returned.
local function counted(list, n, method, what, name, where)
  if not values.is_plain(list) or #list ~= n then
    Error.raise{ code = "value", func = "Custom", op = "Custom", node = name, where = where,
      argument = what, expected = n, got = values.is_plain(list) and #list or Error.kind(list),
      message = method .. " returned a list of the wrong length" }
  end
  list.n = n
  return list
end


-- Asks for shapes (or dtypes) of everything; nil while too little is known.
local function ask(n, prop, method, ins, complete, word)
  local nargs, nouts, nauxs = #prop:list_arguments(), #prop:list_outputs(),
    #prop:list_auxiliary_states()
  local ok, a, b, c = pcall(prop[method], prop, ins)
  if not ok then
    return complete and fail(method, n.name, n.where, a) or nil
  end
  a = counted(a, nargs, method, "inputs", n.name, n.where)
  b = counted(b, nouts, method, "outputs", n.name, n.where)
  c = counted(c or {}, nauxs, method, "auxiliary states", n.name, n.where)
  return joined({ a, c, b }, word)
end


local function infer_node(n, prop, descs, first, default)
  local shapes, types, complete, typed = {}, {}, true, true
  for i = 1, #prop:list_arguments() do
    local entry = n.inputs[i]
    local d = descs[first[entry[1]] + entry[2]]
    shapes[i], types[i] = arrays.shape_of(d), args.DTYPE_NAMES[d.dtype] or default
    complete = complete and tables.is_known(shapes[i])
    typed = typed and types[i] ~= nil
  end
  local none = #prop:list_arguments() == 0
  return {
    __custom_shapes__ = (none or tables.is_known(shapes[1]))
      and ask(n, prop, "infer_shape", shapes, complete, shape_word) or nil,
    __custom_types__ = (none or types[1]) and ask(n, prop, "infer_type", types, typed, type_word)
      or nil,
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


--- Whether a list of nodes has operators written in Lua (not for users).
function operator._used(order)
  for _, n in ipairs(order) do
    if n.op == "Custom" then
      return true
    end
  end
  return false
end


--- Builds a graph whose Lua operators know their shapes, as far as they follow from
-- what is given (not for users).
-- @tparam table built as symbol_graph makes it
-- @tparam cdata wants `ty_want[]`
-- @int count of them
-- @tparam function rebuild rebuild(hints) -> built; hints: node -> attributes
-- @string func for errors
-- @string[opt] default the dtype of what stays unknown: an executor is to be made
function operator._resolve(built, wants, count, rebuild, func, default)
  local first, total = node.firsts(built.order)
  local hints, props, assumed = {}, {}, nil
  for _ = 1, 2 * #built.order + 2 do
    local descs, changed = ffi.new("ty_desc[?]", total + 1), false
    check(C.ty_graph_infer(built.handle, wants, count, 1, descs), func)
    for _, n in ipairs(built.order) do
      if n.op == "Custom" then
        props[n] = props[n] or describe(n.attrs, func, n.name)
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


-- Running -----------------------------------------------------------------------------------------

-- The object of a node in an executor, made when first needed.
local function object_of(exe, name, dict, ins)
  local objects = rawget(exe, "_custom") or {}
  rawset(exe, "_custom", objects)
  if not objects[name] then
    local prop = describe(dict, "Custom", name)
    local shapes, types = {}, {}
    for i = 1, #prop:list_arguments() do
      shapes[i], types[i] = ins[i] and ins[i].shape or {}, ins[i] and ins[i].dtype
    end
    objects[name] = { prop = prop, op = guarded("create_operator", name, nil, prop.create_operator,
      prop, ins[1] and ins[1].context or context.current_context(), shapes, types) }
  end
  return objects[name]
end


-- Tensor i (from 0) of the waiting event, or nil where nobody wants it.
local function event_array(handle, part, i)
  local out = ffi.new("ty_tensor *[1]")
  if C.ty_exec_event_tensor(handle, part, i, out) ~= 0 then
    return nil
  end
  return arrays.share(out[0])
end


local function event_arrays(handle, part, n)
  local list = { n = n }
  for i = 1, n do
    list[i] = event_array(handle, part, i - 1)
  end
  return list
end


-- Arrays to write: a place for what nobody wants, so that every entry can be assigned to.
local function fill(list, from, n, like)
  local req, out = {}, {}
  for i = 1, n do
    local x = list[from + i]
    req[i] = x and "write" or "null"
    out[i] = x or like(i)
  end
  return out, req
end


local function zeros_like(x)
  local nd = require "tycho.ndarray"
  return x and nd.zeros(x.shape, { dtype = x.dtype, ctx = x.context }) or nd.zeros{ 1 }
end


local function run_forward(object, name, where, is_train, ins, outs)
  local nargs = #object.prop:list_arguments()
  local out, req = fill(outs, 0, outs.n, function() return zeros_like(ins[1]) end)
  guarded("forward", name, where, object.op.forward, object.op, is_train, req,
    { unpack(ins, 1, nargs) }, out, { unpack(ins, nargs + 1, ins.n) })
end


-- Sorts what backward reads by the text that declared it.
local function read_inputs(reads, ins, nargs)
  local heads, data, out, aux = {}, {}, {}, {}
  local at = 0
  for kind, k, mark in reads:gmatch("([gio])(%d+)(!?)") do
    at, k = at + 1, tonumber(k) + 1
    local list = kind == "g" and heads or kind == "o" and out or mark == "!" and aux or data
    list[mark == "!" and k - nargs or k] = ins[at]
  end
  return heads, data, out, aux
end


local function run_backward(object, name, where, hidden, ins, grads)
  local nargs = #object.prop:list_arguments()
  local heads, data, out, aux = read_inputs(hidden.__custom_reads__, ins, nargs)
  local grad, req = fill(grads, 0, nargs, function(i) return zeros_like(data[i] or ins[1]) end)
  guarded("backward", name, where, object.op.backward, object.op, req, heads, data, out, grad, aux)
end


local function node_named(exe, name)
  for _, n in ipairs(exe._symbol_nodes or {}) do
    if n.name == name then
      return n
    end
  end
end


-- Custom nodes of the executor's symbol by name.
local function custom_nodes(exe)
  if not rawget(exe, "_symbol_nodes") then
    local list = {}
    for _, n in ipairs(node.walk(exe._symbol._entries)) do
      list[#list + 1] = n.op == "Custom" and n or nil
    end
    rawset(exe, "_symbol_nodes", list)
  end
  return exe._symbol_nodes
end


local function finish(lists)
  for _, list in ipairs(lists) do
    for i = 1, list.n do
      local x = list[i]
      if x then
        x:wait_to_read()         -- what comes next in the run does not know this view of its memory
        arrays.drop(x)
      end
    end
  end
end


--- Runs the operator that an executor's run has stopped at (not for users).
-- @param exe Executor
-- @tparam cdata event `ty_event`
function operator._run(exe, event)
  custom_nodes(exe)
  local name = native.text(event.node)
  local backward, is_train = event.kind % 2 == 1, event.kind >= 2
  local n = node_named(exe, backward and name:gsub("_backward$", "") or name)
  local hidden = operator._ports(n.attrs, "Custom", n.name)
  local handle = rawget(exe, "_handle")
  local ins, outs = event_arrays(handle, C.TY_ARG, event.nin),
    event_arrays(handle, C.TY_OUT, event.nout)
  local object = object_of(exe, n.name, n.attrs, ins)
  if backward then
    run_backward(object, n.name, n.where, hidden, ins, outs)
  else
    run_forward(object, n.name, n.where, is_train, ins, outs)
  end
  finish{ outs, ins }
end


-- On arrays ---------------------------------------------------------------------------------------

local function infer_all(prop, dict, method, ins, func)
  local a, b, c = guarded(method, "", nil, prop[method], prop, ins)
  counted(a, #prop:list_arguments(), method, "inputs", dict.op_type, func)
  return counted(b, #prop:list_outputs(), method, "outputs", dict.op_type, func), c
end


--- `ty.nd.Custom`: runs forward at once, in training mode if `is_train = true` (not
-- for users: use ty.nd.Custom).
-- @tparam {NDArray,...} inputs arguments, then auxiliary states
-- @tparam table dict attributes as text
-- @string func for errors
function operator._call(inputs, dict, func)
  local nd = require "tycho.ndarray"
  local prop = describe(dict, func, "")
  local nargs, nauxs = #prop:list_arguments(), #prop:list_auxiliary_states()
  if #inputs ~= nargs + nauxs then
    Error.raise{ code = "value", func = func, op = "Custom", expected = nargs + nauxs,
      got = #inputs, message = ("'%s' has %d inputs"):format(dict.op_type, nargs + nauxs) }
  end
  local shapes, types, outs, req = {}, {}, {}, {}
  for i = 1, nargs do
    shapes[i], types[i] = inputs[i].shape, inputs[i].dtype
  end
  local ctx = inputs[1] and inputs[1].context or context.current_context()
  local out_shapes, out_types = infer_all(prop, dict, "infer_shape", shapes, func),
    infer_all(prop, dict, "infer_type", types, func)
  for i, shape in ipairs(out_shapes) do
    outs[i], req[i] = nd.zeros(shape, { dtype = out_types[i], ctx = ctx }), "write"
  end
  local op = guarded("create_operator", "", nil, prop.create_operator, prop, ctx, shapes, types)
  guarded("forward", "", nil, op.forward, op, false, req, { unpack(inputs, 1, nargs) }, outs,
    { unpack(inputs, nargs + 1, nargs + nauxs) })
  return #outs == 1 and outs[1] or outs
end


return operator
