--- Recording and training: the two flags, and the scopes that set them.
--
-- A scope is a place on a stack, with the flags that were in force before it. Functions that run in
-- a scope restore these on errors, too, and close what was begun inside and not finished.
--
-- @module tycho.autograd.modes

local ffi = require "ffi"
local args = require "tycho.core.args"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local log = require "tycho.core.log"
local recording = require "tycho.ndarray.recording"

local set = recording.set

local modes = {}

-- { on, training, paused, begun } of the outer scopes: what each found
local stack, depth = {}, 0
local paused = false                     -- not recording, but inside of something recorded


local function push(on, training, begun)
  depth = depth + 1
  stack[depth] = { on = recording.on, training = recording.training, paused = paused,
    begun = begun }
  paused = not on and (paused or recording.on)
  set(on, training, paused)
end


-- Ends all scopes above a depth and restores the flags that were set there.
local function pop_to(at)
  local found = stack[at]
  if not found then
    return
  end
  for i = depth, at, -1 do
    stack[i] = nil
  end
  depth, paused = at - 1, found.paused
  set(found.on, found.training, paused)
end


local function leave(at, ok, ...)
  pop_to(at)
  if not ok then
    error((...), 0)
  end
  return ...
end


local function run(on, training, f, ...)
  push(on, training)
  return leave(depth, pcall(f, ...))
end


--- Runs f with both flags set, and restores them.
-- @bool on
-- @bool training
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
modes.run = run


-- Scopes as objects -------------------------------------------------------------------------------

--- A scope that is entered and left by hand, or around a function: `s:with(f)`, `s:enter()`,
-- `s:exit()`.
local Scope = Class:extend("AutogradScope")

function Scope:init(what, flags)
  self._what, self._flags, self._depths = what, flags, {}
end


function Scope:__tostring()
  return ("<autograd.%s>"):format(self._what)
end


--- Sets the flags until `exit`.
-- @return itself
function Scope:enter()
  push(self._flags())
  self._depths[#self._depths + 1] = depth
  return self
end


--- Restores the flags that `enter` found.
function Scope:exit()
  local at = table.remove(self._depths)
  if not at then
    Error.raise{ code = "state", func = "autograd." .. self._what .. ":exit",
      message = "the scope was not entered" }
  end
  pop_to(at)
end


--- Runs f in the scope.
-- @tparam function f
-- @param ... its arguments
-- @return the results of f
function Scope:with(f, ...)
  local on, training = self._flags()
  return run(on, training, f, ...)
end


-- The four words ----------------------------------------------------------------------------------

local function is_callable(f)
  local meta = type(f) == "table" and getmetatable(f)
  return type(f) == "function" or meta and meta.__call ~= nil
end


-- Returns train_mode and f from the arguments (f), (train_mode, f), (train_mode) or none; raises
-- E(type) if f is not callable.
local function read(word, default, first, second)
  local train, f = default, first
  if type(first) == "boolean" then
    train, f = first, second
  elseif first == nil then
    f = second
  end
  if f ~= nil and not is_callable(f) then
    Error.raise{ code = "type", func = "autograd." .. word, argument = "f",
      expected = "a function", got = Error.kind(f), message = "bad 'f'" }
  end
  return train, f
end


local function scoped(word, default)
  local function flags(train)
    return function()
      return word == "record", train
    end
  end
  return function(first, second)
    local train, f = read(word, default, first, second)
    if f then
      return run(word == "record", train, f)
    end
    return Scope(word, flags(train))
  end
end


--- Records what f does with variables (`attach_grad`), so that gradients of its results can be
-- computed: `y:backward()`. Training is on, unless the first argument is false. Without a function,
-- returns a scope: `s:enter()`, `s:exit()`, `s:with(f)`.
-- @function record
-- @bool[opt=true] train_mode
-- @tparam[opt] function f
-- @return the results of f
modes.record = scoped("record", true)


--- Runs f without recording it; training is off, unless the first argument is true.
-- @function pause
-- @bool[opt=false] train_mode
-- @tparam[opt] function f
-- @return the results of f
modes.pause = scoped("pause", false)


local function training_only(word, train)
  return function(f)
    local _, given = read(word, train, f)
    if given then
      return run(recording.on, train, given)
    end
    return Scope(word, function()
      return recording.on, train
    end)
  end
end

--- Runs f as in training: Dropout drops, BatchNorm uses its batch.
-- @function train_mode
-- @tparam[opt] function f
-- @return the results of f
modes.train_mode = training_only("train_mode", true)


--- Runs f as in prediction.
-- @function predict_mode
-- @tparam[opt] function f
-- @return the results of f
modes.predict_mode = training_only("predict_mode", false)


-- For prompts -------------------------------------------------------------------------------------

local watch                              -- warns when a script ends that has not finished

local function warn()
  local begun = stack[depth] and stack[depth].begun
  if begun and not begun:find("^prompt") then            -- the user sees it
    log:warning(("the script ends while recording is on: autograd.finish() belongs to "
      .. "autograd.begin() (%s)"):format(begun))
  end
end


local BEGIN = args.form("autograd.begin", { { "train_mode", "boolean", true } })

--- Turns recording on until `finish`, for code that runs line by line, as at the prompt. An error
-- in between changes nothing.
-- @bool[opt=true] train_mode
function modes.begin(...)
  local train_mode = BEGIN(...).train_mode
  local where = Error.caller()
  push(true, train_mode, where ~= "" and where or "prompt")
  watch = watch or ffi.gc(ffi.new("char[1]"), warn)       -- runs when the Lua state closes
end


--- Restores the flags that the last `begin` found.
function modes.finish()
  if depth == 0 or not stack[depth].begun then
    Error.raise{ code = "state", func = "autograd.finish",
      message = "nothing was begun here: autograd.begin() comes first" }
  end
  pop_to(depth)
end


-- Asking and setting ------------------------------------------------------------------------------

--- Returns whether calls are recorded.
-- @treturn bool
function modes.is_recording()
  return recording.on
end


--- Returns whether Dropout and its like behave as in training.
-- @treturn bool
function modes.is_training()
  return recording.training
end


--- Turns recording on or off.
-- @bool on
-- @treturn bool what it was
function modes.set_recording(on)
  local before = recording.on
  set(on and true or false, recording.training, paused)
  return before
end


--- Turns training on or off.
-- @bool on
-- @treturn bool what it was
function modes.set_training(on)
  local before = recording.training
  set(recording.on, on and true or false, paused)
  return before
end


return modes
