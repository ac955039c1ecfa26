--- Networks of Torch7 in files of `torch.save`: `ty.torch7`.
--
--     local object = ty.torch7.load("net.t7")
--     local net, args, auxs = ty.torch7.import_model{"net.t7", shapes = {data = {1, 3, 224, 224}}}
--
-- @module tycho.torch7

require "tycho.core.luajit"
local args = require "tycho.core.args"
local namespace = require "tycho.core.namespace"
local objects = require "tycho.torch7.objects"
local reader = require "tycho.torch7.reader"

local torch7 = {}


local LOAD = args.form("torch7.load", { { "path", "path" } })

--- Reads a file of `torch.save` in binary or ascii format. Tables, numbers, strings and booleans
-- become those of Lua; tensors and storages become NDArrays (`ty.null` if they have no elements);
-- objects of classes become tables of their fields; functions are dropped. An object to which the
-- file refers twice becomes one value. Arrays take memory on first use.
-- @string path E(`io`) if the file is missing, E(`format`) if it is damaged
-- @return the object in the file
function torch7.load(...)
  return reader.read(LOAD(...).path, "torch7.load")
end


--- Returns a network of Torch7 as a symbol and its parameters, for evaluation and training. Inputs
-- are called `data`, `data2` ...; inputs and outputs in nested tables are numbered depth first. A
-- weight that several modules share is one argument. Parameters keep the precision of the file. A
-- criterion becomes a loss of `data` and `label`.
-- @param net path, or an object that `load` returned: a module or a criterion
-- @tparam table options shapes: name of an input -> its sizes, on which layers depend; criterion:
--   an object whose loss is appended to the network, or the name of its class,
--   "nn.ClassNLLCriterion"
-- @treturn Symbol
-- @treturn table arg_params: name -> array on cpu(0)
-- @treturn table aux_params: name -> array on cpu(0)
-- @raise E(`unsupported`) for a class that cannot be imported, E(`io`) and E(`format`) for the
--   file, E(`value`), E(`shape`), E(`type`) for a module that does not fit its input; the error
--   names the class of the module and its position in the network
function torch7.import_model(...)
  -- loaded on first use, since each garbage collection visits loaded code
  torch7.import_model = require("tycho.torch7.import").import_model
  return torch7.import_model(...)
end


--- Returns the class that a value had in its file.
-- @param value anything
-- @treturn ?string such as "nn.Linear" or "torch.FloatTensor"; nil for other values
torch7.typename = objects.typename


return namespace.close(torch7, "torch7", "function")
