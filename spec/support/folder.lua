-- Files for specs: temporary folders, reading and writing of whole files.

local lfs = require "lfs"

local folder = {}

--- Calls f with the path of an empty folder, which is removed when f returns.
function folder.with(f)
  local path = os.tmpname()
  os.remove(path)
  assert(lfs.mkdir(path))
  local ok, e = pcall(f, path)
  os.execute("rm -r " .. path)
  if not ok then
    error(e, 0)
  end
end

function folder.read(path)
  local file = assert(io.open(path, "rb"))
  local bytes = file:read("*a")
  file:close()
  return bytes
end

function folder.write(path, bytes)
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
end

return folder
