-- Runs scripts on the stand-in for CUDA (spec/cudasim), each in a separate process.

local shell = require "spec.support.shell"

local stand_in = {}

local FOLDER = "build/cudasim"

--- Returns whether `make cudasim` was called.
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
    -- settings of `make test-gpu` are for its own process
    local command = "unset CUDASIM_STREAMS CUDASIM_GUARD CUDASIM_SPOIL; own=$(mktemp -d); \z
      export %s; %s %s; s=$?; rm -rf \"$own\"; (exit $s)"
    output, status = shell.run(command:format(table.concat(words, " "), shell.program, path))
  end)
  return output, status
end

-- Returns the folders in which the system searches for CUDA libraries.
local function system_folders()
  local list, text = {}, shell.run("/sbin/ldconfig -p")
  for name, folder in text:gmatch("(%S+) %([^\n]* => ([^\n]*)/[^/\n]*\n") do
    if name:find("^lib.*%.so") and (name:find("nvrtc") or name:find("cudnn") or name:find("nccl")
        or name:find("libcu")) and folder:find("cuda", 1, true) and not list[folder] then
      list[folder] = true
      list[#list + 1] = folder
    end
  end
  return list
end

--- Runs a command where the system's own libraries of CUDA are hidden, which takes root; nil where
--- that cannot be done.
function stand_in.run_alone(command)
  local lines = { "export CUDA_HOME=" }
  for _, folder in ipairs(system_folders()) do
    lines[#lines + 1] = ("mount -t tmpfs tmpfs '%s'"):format(folder)
  end
  local text, status
  shell.with_file(table.concat(lines, " && ") .. " && echo alone && " .. command, function(path)
    text, status = shell.run((#lines > 1 and "unshare --mount sh " or "sh ") .. path)
  end)
  local output = text:match("^alone\n(.*)$")
  return output, output and status
end

return stand_in
