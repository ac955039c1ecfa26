--- Files that are read at once and written atomically.
--
--     files.write("run/m.state", bytes, "Module:save_state")
--     files.write_parts("x.npy", { header, { pointer, size } }, "nd.save")
--     local bytes = files.read("run/m.state", "Module:load_state")
--     for line in files.lines("text.txt", "io.text") do ... end
--     local state = files.parse("run/m.state", "Module:load_state", function(bytes) return ... end)
--
-- @module tycho.core.files

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"

local C = native.C
local ENOENT = 2

local files = {}


--- Writes parts one after the other to a temporary file, syncs it and renames it to `path`, so that
-- a crash or a full disk leaves the old file intact.
-- @string path
-- @tparam table parts texts, or `{pointer, bytes}`
-- @string func for errors; E(io)
function files.write_parts(path, parts, func)
  local from, sizes = ffi.new("const void *[?]", #parts + 1), ffi.new("size_t[?]", #parts + 1)
  for i, part in ipairs(parts) do
    local is_text = type(part) == "string"
    from[i - 1], sizes[i - 1] = ffi.cast("const char *", is_text and part or part[1]),
      is_text and #part or part[2]
  end
  native.check(C.ty_file_write(path, from, sizes, #parts), func, { argument = path })
end


--- Writes a file as `write_parts` does.
-- @string path
-- @string bytes
-- @string func for errors; E(io)
function files.write(path, bytes, func)
  files.write_parts(path, { bytes }, func)
end


local function cannot_read(path, why, func)
  -- the system puts a path before it
  local reason = (why or "unknown reason"):gsub("^.*: ", "")
  Error.raise{ code = "io", func = func, argument = path,
    message = ("cannot read the file: %s: %s"):format(path, reason) }
end


--- Makes a folder and the missing folders above it. An existing folder stays.
-- @string path
-- @string func for errors; E(io)
-- @bool[opt=false] private other users may not read it; an existing folder that belongs to
--   another user, or that others may read, is E(io)
function files.make_folder(path, func, private)
  native.check(C.ty_folder_make(path, private and 1 or 0), func, { argument = path })
end


--- Returns whether there is a file at this path, even if it cannot be opened.
-- @string path
-- @treturn bool
function files.exists(path)
  local file, _, code = io.open(path, "rb")
  if file then
    file:close()
  end
  return file ~= nil or code ~= ENOENT
end


-- Returns the beginning of a text, without a byte order mark.
local function after_mark(text, path, func)
  if text:find("^\255\254") or text:find("^\254\255") then
    Error.raise{ code = "format", func = func, argument = path,
      message = ("'%s' is a text in UTF-16; save it as UTF-8"):format(path) }
  end
  return (text:gsub("^\239\187\191", ""))
end


-- Iterates over the texts between line feeds, without a carriage return before the line feed.
local function feeds(path, func)
  local file, why = io.open(path, "rb")
  local first = true
  if not file then
    cannot_read(path, why, func)
  end
  return function()
    local line, reason = file:read("*l")
    if reason then
      cannot_read(path, reason, func)
    elseif not line then
      file:close()
      return nil
    end
    line = first and after_mark(line, path, func) or line
    first = false
    return line:sub(-1) == "\r" and line:sub(1, -2) or line
  end
end


--- Iterates over the lines of a text, without their ends, which are a line feed, a carriage return
-- or both, and without a byte order mark.
-- @string path
-- @string func for errors; E(io), E(format): UTF-16
function files.lines(path, func)
  local next_feed = feeds(path, func)
  local text, at = nil, 1                                -- several lines with carriage returns
  return function()
    if not text then
      text, at = next_feed(), 1
      if not text or not text:find("\r", 1, true) then
        local line = text
        text = nil
        return line
      end
    end
    local stop = text:find("\r", at, true)
    local line = text:sub(at, stop and stop - 1)
    at = stop and stop + 1
    text = stop and text
    return line
  end
end


-- Returns the result of `file:read(amount)`; nil at the end of the file.
local function read_some(path, amount, func)
  local file, why = io.open(path, "rb")
  if not file then
    cannot_read(path, why, func)
  end
  local bytes, reason = file:read(amount)
  file:close()
  return bytes or reason and cannot_read(path, reason, func)
end


--- Returns the bytes of a file.
-- @string path
-- @string func for errors; E(io)
function files.read(path, func)
  return read_some(path, "*a", func)
end


--- Returns the first bytes of a file, or all if it is shorter.
-- @string path
-- @int most number of bytes
-- @string func for errors; E(io)
function files.head(path, most, func)
  return read_some(path, most, func) or ""
end


--- Calls f with a file's bytes. An error of f is raised again with the file's path.
-- @string path
-- @string func for errors; E(io), or the error of f
-- @tparam function f called with the bytes
-- @return the results of f
function files.parse(path, func, f)
  local bytes = files.read(path, func)
  return (function(ok, e, ...)
    if ok then
      return e, ...
    elseif Error.is_error(e) and e.code == "format" then
      e.func, e.argument = func, path
      e.message = e.message:find(path, 1, true) and e.message
        or ("'%s': %s"):format(path, e.message)
    end
    error(e, 0)
  end)(pcall(f, bytes))
end


return files
