--- The flags "recording" and "training", and the scopes that set them.
--
-- A scope is an entry of a stack, with the flags that were set before it. A function that runs
-- another one in a scope restores these flags, also after an error, and ends scopes that the other
-- function has left open.
--
-- @module tycho.autograd.modes

local ffi = require "ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local recording = require "tycho.ndarray.recording"
local values = require "tycho.core.values"

local set = recording.set

local modes = {}

-- Scopes: { at, on, training, paused, begun }: position in the stack, the flags before the scope,
-- and where `begin` was called.
local stack, depth = {}, 0
local paused = false                     -- off in a scope inside a recording one


-- Begins a scope with the given flags and returns it. begun: source line of a call of `begin`, nil
-- for other scopes.
local function push_scope(on, training, begun)
  depth = depth + 1
  local scope = { at = depth, on = recording.on, training = recording.training, paused = paused,
    begun = begun }
  stack[depth] = scope
  paused = not on and (paused or recording.on)
  set(on, training, paused)
  return scope
end


-- Ends a scope and all scopes above it, and restores the flags before it. Does nothing if the scope
-- has ended, which happens if a coroutine continues after its enclosing scope ended.
local function pop_scopes(scope)
  if stack[scope.at] ~= scope then
    return
  end
  for i = depth, scope.at, -1 do
    stack[i] = nil
  end
  depth, paused = scope.at - 1, scope.paused
  set(scope.on, scope.training, paused)
end


-- Ends a scope, and returns the results of pcall or raises its error.
local function leave_scope(scope, ok, ...)
  pop_scopes(scope)
  if not ok then
    error((...), 0)
  end
  return ...
end


local function run_scoped(on, training, f, ...)
  return leave_scope(push_scope(on, training), pcall(f, ...))
end


--- Runs f with the given flags and restores the earlier ones, also after an error.
-- @bool on whether calls are recorded
-- @bool training
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
modes.run = run_scoped


-- Scopes as objects -------------------------------------------------------------------------------

--- A scope as an object: for a function, `s:with(f)`, or by hand, `s:enter()` and `s:exit()`.
local Scope = Class:extend("AutogradScope")

function Scope:init(what, flags)
  self._what, self._flags, self._entered = what, flags, {}
end


function Scope:__tostring()
  return ("<autograd.%s>"):format(self._what)
end


--- Sets the flags until `exit`.
-- @return itself
function Scope:enter()
  self._entered[#self._entered + 1] = push_scope(self._flags())
  return self
end


--- Restores the flags before the last `enter`; without one it is E(`state`).
function Scope:exit()
  local scope = table.remove(self._entered)
  if not scope then
    Error.raise{ code = "state", func = "autograd." .. self._what .. ":exit",
      message = "the scope was not entered; call enter first" }
  end
  pop_scopes(scope)
end


--- Runs f in the scope.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function Scope:with(f, ...)
  local on, training = self._flags()
  return run_scoped(on, training, f, ...)
end


-- record, pause, train_mode, predict_mode ---------------------------------------------------------

local function is_callable(f)
  local meta = type(f) == "table" and getmetatable(f)
  return type(f) == "function" or meta and meta.__call ~= nil
end


local function fail_type(word, argument, expected, got, advice)
  Error.raise{ code = "type", func = "autograd." .. word, argument = argument, expected = expected,
    got = Error.kind(got), message = ("bad '%s'%s"):format(argument, advice or "") }
end


-- Raises E(type) if f cannot be called, or if another argument follows it.
local function check_function(word, f, following, argument)
  if f ~= nil and not is_callable(f) then
    fail_type(word, "f", "a function", f)
  elseif following ~= nil then
    fail_type(word, argument, "nothing after the function", following, argument == "train_mode"
      and "; it comes before the function" or "; the function is called without arguments")
  end
  return f
end


local BY_NAME = {}
for _, word in ipairs{ "record", "pause" } do
  BY_NAME[word] = args.form("autograd." .. word, { { "train_mode", "boolean?" },
    { "f", "function?" } })
end


-- Returns a table of options that includes the function before or after the table, or the one in
-- the table's array part.
local function join(options, f)
  local a = {}
  for key, value in pairs(options) do
    a[key] = value
  end
  if f == nil and is_callable(a[1]) and a[2] == nil then
    f, a[1] = a[1], nil
  end
  a.f = f == nil and a.f or f
  return a
end


-- Returns train_mode and f from the arguments (f), (train_mode, f), (train_mode) or none, or from a
-- table with these names and f before, after or inside it; raises E(type) for others.
local function read_arguments(word, default, first, second, third)
  if is_callable(first) and values.is_plain(second) then
    first, second = second, first
  end
  if values.is_plain(first) then
    local joined = second == nil or is_callable(second)
    local a = BY_NAME[word](joined and join(first, second) or first, not joined and second or third)
    return a.train_mode == nil and default or a.train_mode or false, a.f
  elseif type(first) == "boolean" then
    return first, check_function(word, second, third, "arguments")
  elseif first == nil then
    return default, check_function(word, second, third, "arguments")
  end
  return default, check_function(word, first, second,
    type(second) == "boolean" and "train_mode" or "arguments")
end


-- Returns the function `record` or `pause`. default: its train_mode.
local function make_scope_function(word, default)
  local function flags(train)
    return function()
      return word == "record", train
    end
  end
  return function(...)
    local train, f = read_arguments(word, default, ...)
    if f then
      return run_scoped(word == "record", train, f)
    end
    return Scope(word, flags(train))
  end
end


--- Runs f and records its calls on variables (`attach_grad`) and on results of such calls, so that
-- gradients can be computed: `y:backward()`.
-- @function record
-- @bool[opt=true] train_mode whether operators such as Dropout run in training mode; may be omitted
-- @tparam[opt] function f anything else is E(`type`)
-- @return the results of f; without f a scope: `s:with(f)`, `s:enter()`, `s:exit()`
modes.record = make_scope_function("record", true)


--- Runs f without recording its calls.
-- @function pause
-- @bool[opt=false] train_mode as for `record`
-- @tparam[opt] function f
-- @return the results of f; without f a scope
modes.pause = make_scope_function("pause", false)


-- Returns the function `train_mode` or `predict_mode`.
local function make_training_function(word, train)
  return function(f, following)
    if check_function(word, f, following, "arguments") then
      return run_scoped(recording.on, train, f)
    end
    return Scope(word, function()
      return recording.on, train
    end)
  end
end

--- Runs f in training mode: Dropout drops, BatchNorm uses the statistics of the batch. Recording is
-- not changed.
-- @function train_mode
-- @tparam[opt] function f
-- @return the results of f; without f a scope
modes.train_mode = make_training_function("train_mode", true)


--- Runs f in prediction mode: Dropout does nothing, BatchNorm uses its moving averages. Recording
-- is not changed.
-- @function predict_mode
-- @tparam[opt] function f
-- @return the results of f; without f a scope
modes.predict_mode = make_training_function("predict_mode", false)


-- For prompts -------------------------------------------------------------------------------------

local exit_guard                         -- object whose finalizer calls warn_of_begin

-- Warns at the end of a script if a `begin` has no `finish`; the prompt shows it to the user
-- anyway.
local function warn_of_begin()
  local begun = stack[depth] and stack[depth].begun
  if begun and not begun:find("^prompt") then
    log:warning(("the script ends while recording is on: autograd.finish() is missing for \z
      autograd.begin() (%s)"):format(begun))
  end
end


local BEGIN = args.form("autograd.begin", { { "train_mode", "boolean", true } })

--- Turns recording on until `finish`, for code that runs line by line, as at the prompt. An error
-- in between does not turn it off.
-- @bool[opt=true] train_mode as for `record`
function modes.begin(...)
  local train_mode = BEGIN(...).train_mode
  local where = Error.caller()
  push_scope(true, train_mode, where ~= "" and where or "prompt")
  exit_guard = exit_guard or ffi.gc(ffi.new("char[1]"), warn_of_begin)
end


--- Restores the flags before the last `begin`; without one it is E(`state`).
function modes.finish()
  if depth == 0 or not stack[depth].begun then
    Error.raise{ code = "state", func = "autograd.finish",
      message = "autograd.begin() was not called in this scope; call it first" }
  end
  pop_scopes(stack[depth])
end


-- Asking and setting ------------------------------------------------------------------------------

--- Returns whether calls are recorded.
-- @treturn bool
function modes.is_recording()
  return recording.on
end


--- Returns whether training mode is on.
-- @treturn bool
function modes.is_training()
  return recording.training
end


local RECORDING = args.form("autograd.set_recording", { { "on", "boolean" } })
local TRAINING = args.form("autograd.set_training", { { "on", "boolean" } })

--- Turns recording on or off.
-- @bool on
-- @treturn bool whether it was on
function modes.set_recording(...)
  local on, before = RECORDING(...).on, recording.on
  set(on, recording.training, paused)
  return before
end


--- Turns training mode on or off.
-- @bool on
-- @treturn bool whether it was on
function modes.set_training(...)
  local on, before = TRAINING(...).on, recording.training
  set(recording.on, on, paused)
  return before
end


return modes
