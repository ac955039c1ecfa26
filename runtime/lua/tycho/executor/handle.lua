--- Handles of the core's executors: creation, access, and errors of failed calls.
--
-- @module tycho.executor.handle

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"
local gc = require "tycho.core.gc"
local graph = require "tycho.symbol.graph"
local inference = require "tycho.symbol.inference"

local C = native.C

local handle = {}

local exec_out = ffi.typeof("ty_exec *[1]")


--- Raises E(state) for an executor that was freed.
-- @string func for errors
function handle.fail_freed(func)
  Error.raise{ code = "state", func = func, message = "the executor was freed" }
end


local function fail_object(exe, func)
  Error.raise{ code = "type", func = func, argument = "self", expected = "an Executor",
    got = Error.kind(exe), message = ("methods take a colon, exe:%s(...), not a dot")
      :format(func:match("[%w_]+$")) }
end


--- Returns the `ty_exec *` of an executor that was not freed.
-- @param exe Executor
-- @string func for errors
function handle.of(exe, func)
  if type(exe) ~= "table" then
    fail_object(exe, func)
  end
  return rawget(exe, "_handle") or handle.fail_freed(func)
end


-- Returns whether a function that a run waits for is still running. If it has yielded from its
-- coroutine, it may never be resumed, so its run counts as ended.
local function at_work(thread)
  local status = thread == "main" and "normal" or coroutine.status(thread)
  return status == "running" or status == "normal"
end


--- Returns the `ty_exec *` of an executor; raises an error if this is called from a function that a
-- run of it waits for: a monitor's callback, an operator written in Lua.
-- @param exe Executor
-- @string func for errors
function handle.idle(exe, func)
  local pointer, waits_for = handle.of(exe, func), rawget(exe, "_waits_for")
  if waits_for and at_work(waits_for) then
    Error.raise{ code = "state", func = func,
      message = "a run of this executor waits for the function that this is called from: \z
        a monitor's callback, or an operator written in Lua, can neither run nor free it" }
  end
  return pointer
end


--- Calls a function in Lua that a run of an executor waits for.
-- @param exe Executor
-- @tparam function f
-- @return what pcall(f, ...) returns
function handle.wait_for(exe, f, ...)
  rawset(exe, "_waits_for", coroutine.running() or "main")
  return (function(...)
    rawset(exe, "_waits_for", nil)
    return ...
  end)(pcall(f, ...))
end


local function fail(code, func, sym, given, prefix)
  local e = native.failure(code, func)
  if e.code == "memory" then
    e.expected = tonumber(e.expected) or e.expected
  end
  e.message = (prefix or "") .. e.message
  error(inference.explain(e, graph.of(sym, func), given), 0)
end


--- Returns a new handle; if the core runs out of memory, garbage is collected and the call
-- repeated. Errors state where the shapes of the failed node's inputs come from, and for a memory
-- budget that is too small the smallest possible one as a number.
-- @tparam function try `try(out) -> code` calls the core
-- @string func for errors
-- @param sym the symbol
-- @tparam table given set of the names that were given
-- @string[opt] prefix of the message
function handle.make(try, func, sym, given, prefix)
  local out = exec_out()
  local code = try(out)
  if code == C.TY_EMEMORY then
    gc.release()
    code = try(out)
  end
  if code > 0 then
    fail(code, func, sym, given, prefix)
  end
  return native.own(out[0], C.ty_exec_free)
end


return handle
