--- Finds where in a block an error occurs: the line in the user's forward, and the built-in layer.
--
-- A forward that ends in a tail call, `return self.fc(x)`, is no longer on the stack while `fc`
-- runs. The library's function that called forward, a runner, is still there: its first local is
-- the block, through which forward is found; forward's bytecode contains the line of the tail call
-- (of several the last one).
--
-- @module tycho.gluon.location

local Error = require "tycho.core.error"
local recording = require "tycho.ndarray.recording"
local util = require "jit.util"

local band, getinfo, getlocal = bit.band, debug.getinfo, debug.getlocal

local location = {}

local runners = {}                       -- set of functions that call a block's forward


-- Returns the opcode of a function's last instruction.
local function last_operation(f)
  local pc, found = 1, nil
  while util.funcbc(f, pc) do
    found = band((util.funcbc(f, pc)), 0xff)
    pc = pc + 1
  end
  return found
end

local TAIL_CALLS = {
  [last_operation(function(f) return f() end)] = true,
  [last_operation(function(f, g) return f(g()) end)] = true,
}


-- Returns the source line of a function's last tail call, "file.lua:12", or nil if it has none.
local function find_tail_call(f)
  local pc, line = 1, nil
  while util.funcbc(f, pc) do
    if TAIL_CALLS[band((util.funcbc(f, pc)), 0xff)] then
      line = util.funcinfo(f, pc).currentline
    end
    pc = pc + 1
  end
  return line and Error.user_file(f) .. ":" .. line
end


-- Returns the line of the tail call by which the user's forward left the stack, "file.lua:12"; nil
-- if it has none or belongs to the library. level: of a runner on the stack.
local function find_line(level)
  local _, block = getlocal(level, 1)
  local forward = type(block) == "table" and block.forward
  return type(forward) == "function" and Error.user_file(forward) and find_tail_call(forward) or nil
end


--- Returns its arguments. A runner passes the results of forward through it: otherwise the call of
-- forward would be a tail call, which would remove the runner from the stack.
function location.results(...)
  return ...
end


-- Ends the attribution that location.recorded began; returns the results of pcall, or raises its
-- error.
local function release_results(ok, ...)
  recording.release()
  if not ok then
    error((...), 0)
  end
  return ...
end


-- Attributes calls to a line again, and returns the results.
local function hold_again(line, ...)
  recording.hold(line)
  return ...
end


-- Forward -> whether it belongs to the library. A cache, since LuaJIT does not compile the look-up
-- of a function's file.
local is_library = setmetatable({}, { __mode = "k" })

-- Finds out whether a forward belongs to the library, and stores the answer.
local function note_library(forward)
  is_library[forward] = type(forward) == "function" and not Error.user_file(forward)
  return is_library[forward]
end


--- Declares that a forward of the library calls a function of the script, so that the calls in this
-- function have their own lines.
-- @tparam function forward
function location.runs_script(forward)
  is_library[forward] = false
end


--- Runs a block's forward while calls are recorded. All calls of a built-in block are attributed to
-- the line that called the block. If the core needs a line already (`recording.is_line_wanted`), it
-- is found here, where the stack is not deep yet; otherwise when the first call needs one.
-- @tparam function forward
-- @param ... its arguments
-- @return its results
function location.recorded(forward, ...)
  local is_own = is_library[forward]
  if is_own == nil then
    is_own = note_library(forward)
  end
  if is_own == (recording.held or false) or not recording.lines then
    return forward(...)
  elseif is_own then
    recording.hold(recording.is_line_wanted() and recording.script_line() or false)
    return release_results(pcall(forward, ...))
  end
  -- after an error, the caller that held the line releases it
  return hold_again(recording.release(), forward(...))
end


--- Registers a runner: a function that calls a block's forward.
-- @tparam function f its first argument is the block; it must not call forward by a tail call
-- @treturn function f
function location.runner(f)
  runners[f], Error.runners[f] = true, find_line
  return f
end


-- Returns the name of the built-in layer that runs at a level of the stack or further out; nil if
-- there is none.
function Error.running(level)
  level = level + 1
  while true do
    local info = getinfo(level, "f")
    if not info then
      return nil
    elseif runners[info.func] then
      local _, block = getlocal(level, 1)
      local is_own = type(block) == "table" and type(block.forward) == "function"
        and not Error.user_file(block.forward)
      return is_own and block.name or nil
    end
    level = level + 1
  end
end


-- Returns the block, among this one, its children and `best`, with the longest prefix that the name
-- begins with; nil if there is none.
local function find_owner(block, name, best)
  local prefix = block.prefix
  if name:sub(1, #prefix) == prefix and (not best or #prefix > #best.prefix) then
    best = block
  end
  for _, child in ipairs(block:children()) do
    best = find_owner(child.block, name, best)
  end
  return best
end


--- Returns the name of the built-in layer that made a node of a trace.
-- @tparam Block block that was traced
-- @string name of the node
-- @treturn ?string nil if a forward of the script made it
function location.find_layer(block, name)
  local owner = find_owner(block, name)
  return owner and owner.prefix ~= "" and not Error.user_file(owner.forward) and owner.name or nil
end


return location
