--- Libraries of a CUDA toolkit for checks that need no GPU.
local ffi = require "ffi"

local cuda_library = {}

--- Returns the output lines of a command.
function cuda_library.lines(command)
  local list, pipe = {}, io.popen(command)
  for line in pipe:lines() do
    list[#list + 1] = line
  end
  pipe:close()
  return list
end

--- Returns the first library that can be loaded; nil if there is none.
-- @tparam {string,...} names names in the system's search path
-- @string pattern pattern of paths in a toolkit's folders
function cuda_library.load(names, pattern)
  local find = "ls -d /usr/local/cuda*/lib*/%s 2>/dev/null"
  for _, path in ipairs(cuda_library.lines(find:format(pattern))) do
    names[#names + 1] = path
  end
  for _, name in ipairs(names) do
    local ok, library = pcall(ffi.load, name)
    if ok then
      return library
    end
  end
end

return cuda_library
