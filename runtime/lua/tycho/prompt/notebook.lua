--- Additions to the Jupyter kernel ILua, which the program makes when ILua starts it.
--
-- ILua runs an interpreter on its script `interp.lua`, which later requires ILua's modules for
-- printing results and for JSON; here they are replaced. Results look as at the prompt. A drawing
-- is written to a file and shown as its path, since ILua can only show text. Error objects are
-- shown as their text, and completion knows the members of namespaces and objects.
--
-- @module tycho.prompt.notebook

local Error = require "tycho.core.error"
local members = require "tycho.prompt.members"
local show = require "tycho.prompt.show"

local notebook = {}

local DRAWINGS = { Drawing = true, Graph = true, Picture = true }  -- classes of ty.viz

local drawings = 0                                       -- number of files written by this kernel


-- Writes a drawing to a file in the working folder and returns its path.
local function draw(drawing)
  drawings = drawings + 1
  local path = ("drawing_%d.svg"):format(drawings)
  drawing:save(path)
  return path
end


--- Returns a result of a cell as text.
-- @param value
-- @treturn string
function notebook.text(value)
  local class = type(value) == "table" and getmetatable(value)
  local name = type(class) == "table" and rawget(class, "class_name")
  return DRAWINGS[name] and draw(value) or show(value)
end


-- Returns the value of a path in the kernel's environment, or nil. ILua does this without pcall,
-- but namespaces raise an error for unknown names.
local function follow(env, path)
  local value = env
  for _, name in ipairs(path) do
    local ok, found = pcall(function() return value[name] end)
    if not ok or found == nil then
      return nil
    end
    value = found
  end
  return value
end


-- Returns the kernel's table of variables, which is a local variable of its script, two calls up.
local function kernel_environment()
  for i = 1, 60 do
    local name, value = debug.getlocal(3, i)
    if name == "dynamic_env" then
      return value
    end
  end
  return _G
end


local NOTHING = { "no variable has this name" }          -- a path without a value

-- Returns ILua's JSON module with changed messages about completion and help: answers to a
-- completion list the names found here.
local function with_completion(json)
  local names
  return setmetatable({
    decode = function(text)
      local message = json.decode(text)
      local path = (message.type == "complete" or message.type == "info")
        and message.payload.breadcrumbs
      local value = path and follow(kernel_environment(), path)
      names = message.type == "complete" and (value ~= nil and members.list(value) or {}) or nil
      if path and (names or value == nil) then
        message.payload.breadcrumbs = NOTHING
      end
      return message
    end,
    encode = function(message)
      if names and message.type == "complete" then
        message.payload = names
      end
      return json.encode(message)
    end,
  }, { __index = json })
end


-- Returns a traceback function that accepts error objects, and leaves out frames of the library and
-- of ILua.
local function with_own_frames(traceback)
  return function(e, ...)
    local text = traceback(Error.is_error(e) and tostring(e) or e, ...)
    if type(text) ~= "string" then
      return text
    end
    return (text:gsub("\n\t([^\n]*)", function(frame)
      return frame:find("^%(ilua%)") and "\n\t" .. frame or ""
    end):gsub("\nstack traceback:$", ""))
  end
end


-- Loads a module of ILua under its usual name.
local function load_beside(name)
  local path = assert(package.searchpath(name, package.path))
  return assert(loadfile(path))(name)
end


--- Prepares the Lua state for ILua's script, which runs next. `ty` and `help(name)` become globals.
function notebook.start()
  package.preload["ext.inspect"] = function()
    return setmetatable({ inspect = notebook.text }, {
      __call = function(_, value) return notebook.text(value) end })
  end
  package.preload["ext.json"] = function(name) return with_completion(load_beside(name)) end
  rawset(debug, "traceback", with_own_frames(debug.traceback))   -- ILua's error handler
  rawset(_G, "ty", require "tycho")
  rawset(_G, "help", function(name)
    print((require("tycho.prompt.manual").text(name)))
  end)
end


return notebook
