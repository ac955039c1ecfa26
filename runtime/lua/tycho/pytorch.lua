--- Files of PyTorch as they are: `ty.pytorch`. `ty.nd.load` gives the arrays alone, by name.
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

--- Reads what `torch.save` wrote. Dictionaries and lists are tables, None is `ty.null`, numbers and
-- texts are Lua's, tensors are arrays that take memory when they are first used. Objects of any
-- other class are descriptions: tables with `class_name`, and `args`, `state`, `items`, `entries`
-- where the file has these. Nothing in the file is run.
-- @string path missing E(io), damaged E(format), of elements that arrays cannot have E(unsupported)
-- @return the object
function pytorch.load(...)
  return reader.object(file_arrays.open(LOAD(...).path, "pytorch.load"))
end


--- The keys of a dictionary in the order of the file; nil for what is none.
-- @tparam table t of an object that `load` gave
-- @treturn {any,...}
pytorch.keys = pickle.keys


return namespace.close(pytorch, "pytorch", "function")
