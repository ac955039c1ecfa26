--- Whole files: read at once, written all or nothing.
--
--     files.write("run/m.state", bytes, "Module:save_state")
--     local bytes = files.read("run/m.state", "Module:load_state")
--
-- @module tycho.files

local Error = require "tycho.error"

local files = {}


local function fail(func, path, what, why)
  local reason = (why or "unknown reason"):gsub("^.*: ", "")   -- the system puts a path before it
  Error.raise{ code = "io", func = func, argument = path, message = ("cannot %s the file: %s: %s"):format(what, path, reason) }
end


--- Writes a file beside its place and moves it there, so that a crash or a full disk leaves the old one whole.
-- @string path
-- @string bytes
-- @string func for errors; E(io)
function files.write(path, bytes, func)
  local partial = path .. ".partial"
  local file, why = io.open(partial, "wb")
  if not file then
    fail(func, path, "write", why)
  end
  local ok, reason = file:write(bytes)
  local closed, late = file:close()
  if ok and closed then
    ok, reason = os.rename(partial, path)
  end
  if not (ok and closed) then
    os.remove(partial)
    fail(func, path, "write", reason or late)
  end
end


--- The bytes of a file.
-- @string path
-- @string func for errors; E(io)
function files.read(path, func)
  local file, why = io.open(path, "rb")
  if not file then
    fail(func, path, "read", why)
  end
  local bytes, reason = file:read("*a")
  file:close()
  return bytes or fail(func, path, "read", reason)
end


return files
