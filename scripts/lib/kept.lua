--- Saves the training of a gluon network after each epoch, and resumes it.
--
--     kept.save("run/m", 3, net, trainer)
--     -- run/m-0003.params    parameters by structure, as `net:load_parameters` reads them
--     -- run/m-0003.trainer   what the optimizer remembers
--     -- run/m.state          the number of epochs
--     local epoch = kept.load("run/m", net, trainer)
--
-- A script that seeds each epoch by its number draws the same numbers after a pause, so a resumed
-- training gives bit-equal results.

local files = require "tycho.core.files"
local ty = require "tycho"

local kept = {}

local function names(prefix, epoch)
  return ty.model.file_name(prefix, epoch, "params"), ("%s-%04d.trainer"):format(prefix, epoch)
end

--- Writes the state of the training after some epochs. The number of epochs is written last: until
-- then the files of the epoch before are valid.
-- @string prefix
-- @int epoch
-- @param net a gluon.Block
-- @param trainer
function kept.save(prefix, epoch, net, trainer)
  local parameters, states = names(prefix, epoch)
  net:save_parameters(parameters)
  trainer:save_states(states)
  files.write(prefix .. ".state", epoch .. "\n", "kept.save")
end

--- Reads the files that `save` wrote last.
-- @string prefix
-- @param net a gluon.Block
-- @param trainer
-- @tparam {Context,...} devices
-- @treturn int number of completed epochs
function kept.load(prefix, net, trainer, devices)
  local path = prefix .. ".state"
  local epoch = tonumber(files.read(path, "kept.load"):match("^(%d+)%s*$"))
  assert(epoch, path .. ": not the number of an epoch")
  local parameters, states = names(prefix, epoch)
  net:load_parameters{parameters, ctx = devices}
  trainer:load_states(states)
  ty.log:info(("epoch %d: resumed from %s"):format(epoch, path))
  return epoch
end

return kept
