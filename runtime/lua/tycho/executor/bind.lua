--- `Symbol:bind`: an executor on given arrays.
--
--     bind(sym, { ctx = ty.cpu(), args = {...} })
--
-- returns the parts of an Executor: handle, snapshot (of the symbol), ctx, grad_req, group2ctx
-- (copies), names {arguments, auxiliary, outputs}, dry_run, and lists of arrays, in which `ty.null`
-- is no array: args, grads (nil: bound without args_grad), auxs.
--
-- @module tycho.executor.bind

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local bind_args = require "tycho.executor.bind_args"
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local handles = require "tycho.executor.handle"
local null = require("tycho.core.values").null

local C, check = native.C, native.check

local want_array, bind_array, bind_spec =
  ffi.typeof("ty_want[?]"), ffi.typeof("ty_bind[?]"), ffi.typeof("ty_bind_spec")


local BIND = args.form("Symbol:bind", {
  { "ctx", "context?" }, { "args", "table?" }, { "args_grad", "table?" },
  { "grad_req", "text|table|null", "write" }, { "aux_states", "table?" }, { "group2ctx", "dict?" },
  { "shared_exec", "executor?" }, { "force_mirroring", "boolean?" }, { "memory_budget", "number?" },
  { "dry_run", "boolean", false }, { "precision", "text?" },
})


local function check_misplaced(a, names)
  for _, what in ipairs{ "args", "args_grad", "aux_states" } do
    if a[what] and #a[what] == 0 then
      BIND:check_dict(what, a[what], what == "aux_states" and names.auxiliary or names.arguments)
    end
  end
end


local function fill_binds(names, list, grads, reqs)
  local binds = bind_array(#names + 1)
  for i, name in ipairs(names) do
    local b, value, grad = binds[i - 1], list[i], grads[i]
    b.name = name
    b.value = value and value._h
    b.grad = grad and grad._h
    b.req = reqs[i] or C.TY_NULL
  end
  return binds
end


-- Writes shapes and types of the given arrays into the core's `want` structs, from position `at`
-- (from 0) on; returns the next position.
local function put_wants(names, list, wants, at)
  for i, name in ipairs(names) do
    if list[i] then
      wants[at].name = name
      check(C.ty_tensor_desc(list[i]._h, wants[at].desc))
      at = at + 1
    end
  end
  return at
end


-- Returns the graph of a symbol with its heads. Operators written in Lua infer their shapes from
-- the given arrays.
local function resolved(sym, names, list, auxs, func)
  local built = graph.of(sym, func)
  if not graph.is_custom(built) then
    return built
  end
  local wants = want_array(#names.arguments + #names.auxiliary + 1)
  local count = put_wants(names.auxiliary, auxs, wants, put_wants(names.arguments, list, wants, 0))
  return graph.resolved(sym, wants, count, func, "float32")
end


local function names_given(names, list)
  local set = {}
  for i, name in ipairs(names) do
    set[name] = list[i] ~= nil or nil
  end
  return set
end


local function filled(list, n)
  for i = 1, n do
    list[i] = list[i] == nil and null or list[i]
  end
  return list
end


local function fail_missing(names, func)
  Error.raise{ code = "value", func = func, argument = "args",
    expected = "a list or dictionary of NDArrays", got = "nothing",
    candidates = names.arguments, message = "'args' is missing" }
end


-- Returns the given arguments, gradients and auxiliary states, in order.
local function read_arrays(a, names, func)
  local arguments, needed = names.arguments, not a.dry_run
  check_misplaced(a, names)
  if not a.args and needed and #arguments > 0 then
    fail_missing(names, func)
  end
  return bind_args.arrays(a.args or {}, arguments, "args", func, needed),
    bind_args.arrays(a.args_grad or {}, a.args_grad and arguments or {}, "args_grad", func),
    bind_args.arrays(a.aux_states or {}, names.auxiliary, "aux_states", func, needed)
end


-- Raises E(name) if two variables share an array for their gradients, unless both requests are
-- "add": one gradient would overwrite the other.
local function check_gradients(names, grads, reqs, func)
  local owner = {}                                       -- array -> position of its first variable
  for i, name in ipairs(names) do
    local x = reqs[i] ~= C.TY_NULL and grads[i] or nil
    local k = x and owner[x]
    if k and (reqs[i] == C.TY_WRITE or reqs[k] == C.TY_WRITE) then
      Error.raise{ code = "name", func = func, argument = name,
        expected = "an array for each variable, in a list, or grad_req = 'add'",
        got = "one array for two", message = names[k] == name
          and ("two variables are called '%s', and the gradient of one would be lost"):format(name)
          or ("'%s' and '%s' have one array for their gradients, and one would be lost")
            :format(names[k], name) }
    elseif x then
      owner[x] = k or i
    end
  end
end


--- Binds arrays; see the top of the file.
-- @param sym the symbol
-- @param ... arguments of `Symbol:bind`
return function(sym, ...)
  local a, func, names = BIND(...), "Symbol:bind", graph.names(sym)
  a.ctx = a.ctx or context.current_context()
  local list, grads, auxs = read_arrays(a, names, func)
  local built = resolved(sym, names, list, auxs, func)
  local reqs = bind_args.requests(a.grad_req, names.arguments, func)
  check_gradients(names.arguments, grads, reqs, func)
  local binds = fill_binds(names.arguments, list, grads, a.args_grad and reqs or {})
  local aux_binds = fill_binds(names.auxiliary, auxs, {}, {})
  local spec = bind_spec()
  bind_args.put_common(spec, a, built, func)
  spec.arg, spec.narg, spec.aux, spec.naux = binds, #names.arguments, aux_binds, #names.auxiliary
  local handle = handles.make(function(out)
    return C.ty_exec_bind(built.handle, spec, out)
  end, func, sym, names_given(names.arguments, list))
  local made = bind_args.result(handle, sym, a, names)
  made.args, made.auxs = filled(list, #names.arguments), filled(auxs, #names.auxiliary)
  made.grads = a.args_grad and filled(grads, #names.arguments)
  return made
end
