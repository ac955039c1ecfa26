-- Commands.

local shell = {}

-- Returns what a command prints, errors included, and its exit status.
function shell.output(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo $?"))
  local text, status = pipe:read("*a"):match("^(.-)(%d+)%s*$")
  pipe:close()
  return text, tonumber(status)
end

return shell
