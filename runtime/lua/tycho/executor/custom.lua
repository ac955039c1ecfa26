--- Runs operators written in Lua (op/custom.lua) at which an executor's run has stopped.
--
-- @module tycho.executor.custom

local ffi = require "ffi"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local custom = require "tycho.op.custom"
local create = require "tycho.ndarray.create"
local native = require "tycho.core.ffi"
local node = require "tycho.symbol.node"
local tables = require "tycho.core.tables"

local C = native.C


-- Returns the object of a node in an executor; makes it on first use.
local function find_object(exe, name, dict, ins)
  local objects = rawget(exe, "_custom") or {}
  rawset(exe, "_custom", objects)
  if not objects[name] then
    local prop = custom._describe(dict, "Custom", name)
    local shapes, types = {}, {}
    for i = 1, #prop:list_arguments() do
      shapes[i], types[i] = ins[i] and ins[i].shape or {}, ins[i] and ins[i].dtype
    end
    local ctx = ins[1] and ins[1].context or context.current_context()
    objects[name] = { prop = prop, op = custom._make_operator(prop, name, ctx, shapes, types) }
  end
  return objects[name]
end


-- Returns tensor i (from 0) of the waiting event, or nil if it is not requested.
local function event_array(handle, part, i)
  local out = ffi.new("ty_tensor *[1]")
  if C.ty_exec_event_tensor(handle, part, i, out) ~= 0 then
    return nil
  end
  return class.share(out[0])
end


local function event_arrays(handle, part, n)
  local list = { n = n }
  for i = 1, n do
    list[i] = event_array(handle, part, i - 1)
  end
  return list
end


local function zeros_like(x)
  return x and create.zeros(x.shape, { dtype = x.dtype, ctx = x.context }) or create.zeros{ 1 }
end


-- Returns the arrays to write and their requests. Those that are not requested are scratch arrays,
-- so that every entry can be assigned to; these have the shapes of `models`, or of `other` where a
-- model is missing.
local function fill(list, from, n, models, other)
  local req, out = {}, {}
  for i = 1, n do
    local x = list[from + i]
    req[i] = x and "write" or "null"
    out[i] = x or zeros_like(models[i] or other)
  end
  return out, req
end


local function run_forward(object, name, where, is_train, ins, outs)
  local nargs = #object.prop:list_arguments()
  local out, req = fill(outs, 0, outs.n, {}, ins[1])
  custom._guarded("forward", name, where, object.op.forward, object.op, is_train, req,
    tables.part(ins, 1, nargs), out, tables.part(ins, nargs + 1, ins.n))
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
  local grad, req = fill(grads, 0, nargs, data, ins[1])
  custom._guarded("backward", name, where, object.op.backward, object.op, req, heads, data, out,
    grad, aux)
end


local function node_named(exe, name)
  for _, n in ipairs(exe._symbol_nodes or {}) do
    if n.name == name then
      return n
    end
  end
end


-- Returns the custom nodes of the executor's symbol as a list, which is kept in the executor.
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
        class.drop(x)
      end
    end
  end
end


local function run(exe, event)
  custom_nodes(exe)
  local name = native.text(event.node)
  local backward, is_train = event.kind % 2 == 1, event.kind >= 2
  local n = node_named(exe, backward and name:gsub("_backward$", "") or name)
  local hidden = custom._ports(n.attrs, "Custom", n.name)
  local handle = rawget(exe, "_handle")
  local ins, outs = event_arrays(handle, C.TY_ARG, event.nin),
    event_arrays(handle, C.TY_OUT, event.nout)
  local object = find_object(exe, n.name, n.attrs, ins)
  if backward then
    run_backward(object, n.name, n.where, hidden, ins, outs)
  else
    run_forward(object, n.name, n.where, is_train, ins, outs)
  end
  finish{ outs, ins }
end


--- Runs the operator at which an executor's run has stopped. Scopes do not free arrays that it
-- makes.
-- @param exe Executor
-- @tparam cdata event `ty_event`
return function(exe, event)
  return class.outside(run, exe, event)
end
