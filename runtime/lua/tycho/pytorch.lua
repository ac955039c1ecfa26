--- Reads files of PyTorch with all their objects: `ty.pytorch`. `ty.nd.load` returns only the
-- arrays, by name.
--
-- @module tycho.pytorch

require "tycho.core.luajit"
local args = require "tycho.core.args"
local file_arrays = require "tycho.ndarray.file_arrays"
local namespace = require "tycho.core.namespace"
local pickle = require "tycho.ndarray.pickle"
local reader = require "tycho.ndarray.pytorch"
require "tycho.ndarray"

local pytorch = {}


local LOAD = args.form("pytorch.load", { { "path", "path" } })

--- Reads a file written by `torch.save`. Dictionaries and lists become tables, None becomes
-- `ty.null`, tensors become arrays that take memory on first use. Objects of other classes become
-- tables with `class_name`, and `args`, `state`, `items`, `entries` if the file has these. No code
-- in the file is run.
-- @string path E(io) if the file is missing, E(format) if it is damaged, E(unsupported) if it has
--   elements of a type that arrays cannot have
-- @return the object
function pytorch.load(...)
  return reader.object(file_arrays.open(LOAD(...).path, "pytorch.load"))
end


--- Returns the keys of a dictionary in the order of the file; nil for other values.
-- @tparam table t a table in the result of `load`
-- @treturn {any,...}
pytorch.keys = pickle.keys


return namespace.close(pytorch, "pytorch", "function")
