--- Networks of Torch7, as `torch.save` wrote them: `ty.torch7`.
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

--- Reads a file of `torch.save`, binary or as text. Tables, numbers, texts and booleans become
-- those of Lua, tensors and storages NDArrays (`ty.null` where they have no elements), objects of
-- classes tables of their fields, functions nothing. An object to which the file refers twice is
-- one value. Arrays take memory when they are first used.
-- @string path a file that is missing is E(`io`), one that is damaged E(`format`)
-- @return the object in the file
function torch7.load(...)
  return reader.read(LOAD(...).path, "torch7.load")
end


--- Returns a network of Torch7 as a symbol and its parameters, for evaluation and training. Inputs
-- are called `data`, `data2` ..., outputs are in the same order: depth first, where they are
-- tables of tables. A weight that several modules share is one argument. Parameters keep the
-- precision of the file. A criterion becomes a loss of `data` and `label`.
-- @param net path, or an object that `load` returned: a module or a criterion
-- @tparam table options shapes: name of an input -> its sizes, on which layers depend; criterion:
--   an object whose loss follows the network, or the name of its class, "nn.ClassNLLCriterion"
-- @treturn Symbol
-- @treturn table arg_params: name -> array on cpu(0)
-- @treturn table aux_params: name -> array on cpu(0)
-- @raise E(`unsupported`) for a class that cannot be imported, E(`io`) and E(`format`) for the
--   file, E(`value`), E(`shape`), E(`type`) for a module that does not fit its input; the error
--   names the class of the module and its position in the network
function torch7.import_model(...)
  -- loaded when it is first needed, since each garbage collection visits loaded code
  torch7.import_model = require("tycho.torch7.import").import_model
  return torch7.import_model(...)
end


--- Returns the class that a value had in its file.
-- @param value anything
-- @treturn ?string such as "nn.Linear" or "torch.FloatTensor"; nil for other values
torch7.typename = objects.typename


return namespace.close(torch7, "torch7", "function")
