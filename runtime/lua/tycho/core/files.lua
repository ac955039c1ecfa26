--- Whole files: read at once, written all or nothing.
--
--     files.write("run/m.state", bytes, "Module:save_state")
--     files.write_parts("x.npy", { header, { pointer, size } }, "nd.save")
--     local bytes = files.read("run/m.state", "Module:load_state")
--     local state = files.parse("run/m.state", "Module:load_state", function(bytes) return ... end)
--
-- @module tycho.core.files

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local Error = require "tycho.core.error"

local C = native.C

local files = {}


--- Writes parts one after the other into a file beside its place, syncs it and moves it there, so
-- that a crash or a full disk leaves the old one whole.
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


--- The bytes of a file.
-- @string path
-- @string func for errors; E(io)
function files.read(path, func)
  local file, why = io.open(path, "rb")
  local bytes, reason
  if file then
    bytes, reason = file:read("*a")
    file:close()
  end
  if bytes then
    return bytes
  end
  -- the system puts a path before it
  reason = (reason or why or "unknown reason"):gsub("^.*: ", "")
  Error.raise{ code = "io", func = func, argument = path,
    message = ("cannot read the file: %s: %s"):format(path, reason) }
end


--- What f makes of a file's bytes. What is wrong with them is reported as an error in the file.
-- @string path
-- @string func for errors; E(io), or what f raises
-- @tparam function f of the bytes
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
