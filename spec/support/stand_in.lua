-- Runs scripts on the stand-in for CUDA (spec/cudasim), each in a process of its own.

local shell = require "spec.support.shell"

local stand_in = {}

local FOLDER = "build/cudasim"

--- Whether `make cudasim` was called.
function stand_in.exists()
  local file = io.open(FOLDER .. "/libcublasLt.so.13")
  return file ~= nil and file:close()
end

--- Runs a script with settings such as { CUDASIM_FAIL = "cuMemAlloc:3" }; returns its output and
--- status.
function stand_in.run(script, settings)
  local words = { "TYCHO_CACHE=$own TYCHO_CUDA_PATH=" .. FOLDER }
  for name, value in pairs(settings or {}) do
    words[#words + 1] = ("%s='%s'"):format(name, value)
  end
  local output, status
  shell.with_file(script, function(path)
    -- what `make test-gpu` sets is for its own process
    local command = "unset CUDASIM_STREAMS CUDASIM_GUARD CUDASIM_SPOIL; own=$(mktemp -d); \z
      export %s; %s %s; s=$?; rm -rf \"$own\"; (exit $s)"
    output, status = shell.run(command:format(table.concat(words, " "), shell.program, path))
  end)
  return output, status
end

return stand_in
