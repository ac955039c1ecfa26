-- Runs programs in specs.

-- TYCHO_RUNNER starts programs for another processor, such as "qemu-aarch64 -L folder".
local runner = os.getenv("TYCHO_RUNNER")
local shell = {
  program = (runner and runner .. " " or "") .. (os.getenv("TYCHO_PROGRAM") or "build/tycho"),
}

--- Runs a command; returns its output on both streams and its exit status.
function shell.run(command)
  local pipe = assert(io.popen("{ " .. command .. "\n} 2>&1; echo \"=$?\""))
  local text = pipe:read("*a")
  pipe:close()
  local output, status = text:match("^(.*)=(%d+)%s*$")
  return output, tonumber(status)
end

--- Runs the program `tycho` with arguments, without a preloaded sanitizer library.
function shell.tycho(arguments)
  return shell.run(("%s %s"):format(shell.program, arguments))
end

--- Calls f with the path of a file that contains a text and is removed when f returns.
function shell.with_file(text, f)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  local ok, e = pcall(f, path)
  os.remove(path)
  if not ok then
    error(e, 0)
  end
end

return shell
