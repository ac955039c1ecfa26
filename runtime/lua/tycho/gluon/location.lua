--- Where an error in a block happened: the line in the user's forward, the built-in layer.
--
-- A forward that ends in `return self.fc(x)` is no longer on the stack while `fc` runs. So the
-- library's function that called it stays there, and gives the line of the tail call; of several
-- the last one.
--
-- @module tycho.gluon.location

local Error = require "tycho.core.error"
local recording = require "tycho.ndarray.recording"
local util = require "jit.util"

local band, getinfo, getlocal = bit.band, debug.getinfo, debug.getlocal

local location = {}

local runners = {}                       -- functions that call a block's forward


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
local function tail_call(f)
  local pc, line = 1, nil
  while util.funcbc(f, pc) do
    if TAIL_CALLS[band((util.funcbc(f, pc)), 0xff)] then
      line = util.funcinfo(f, pc).currentline
    end
    pc = pc + 1
  end
  return line and Error.user_file(f) .. ":" .. line
end


-- Returns the line of the tail call by which the user's forward called on; `level` is that of a
-- runner on the stack. Returns nil if the forward is the library's.
local function find(level)
  local _, block = getlocal(level, 1)
  local forward = type(block) == "table" and block.forward
  return type(forward) == "function" and Error.user_file(forward) and tail_call(forward) or nil
end


--- Returns its arguments. A call of it after forward keeps the caller on the stack.
function location.results(...)
  return ...
end


local function release(ok, ...)
  recording.release()
  if not ok then
    error((...), 0)
  end
  return ...
end


local function hold_again(line, ...)
  recording.hold(line)
  return ...
end


-- function -> whether it is the library's; asking for its file is never compiled
local own = setmetatable({}, { __mode = "k" })

local function find_own(forward)
  own[forward] = type(forward) == "function" and not Error.user_file(forward)
  return own[forward]
end


--- Declares that a forward of the library runs a function of the script, whose calls have lines of
-- their own.
-- @tparam function forward
function location.runs_script(forward)
  own[forward] = false
end


--- Runs a block's forward while calls are recorded. All calls of a built-in block are attributed to
-- the line that called the block. It is found before they are made if the core asks for one then,
-- as for the first call of a step: here the stack is not deep. Otherwise it is found once, if one
-- of them needs it.
-- @tparam function forward
-- @param ... its arguments
-- @return its results
function location.recorded(forward, ...)
  local is_own = own[forward]
  if is_own == nil then
    is_own = find_own(forward)
  end
  if is_own == (recording.held or false) or not recording.lines then
    return forward(...)
  elseif is_own then
    recording.hold(recording.is_line_wanted() and recording.script_line() or false)
    return release(pcall(forward, ...))
  end
  return hold_again(recording.release(), forward(...))   -- after an error the holder releases it
end


--- Registers a function that runs a block's forward; its first argument is the block.
-- @tparam function f must not call forward by a tail call
-- @treturn function f
function location.runner(f)
  runners[f], Error.runners[f] = true, find
  return f
end


-- Returns the name of the built-in layer that is running.
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


-- Returns the block whose prefix is the longest that a name begins with.
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


--- Returns the name of the built-in layer that made a node of a trace, or nil.
-- @tparam Block block that was traced
-- @string name of the node
function location.find_layer(block, name)
  local owner = find_owner(block, name)
  return owner and owner.prefix ~= "" and not Error.user_file(owner.forward) and owner.name or nil
end


return location
