-- Runs commands.

local shell = {}

-- Returns a command's output, including errors, and its exit status.
function shell.output(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo $?"))
  local text, status = pipe:read("*a"):match("^(.-)(%d+)%s*$")
  pipe:close()
  return text, tonumber(status)
end

return shell
