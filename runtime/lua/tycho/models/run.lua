--- Runs networks on arrays in files. For `models/command.lua`.
--
-- @module tycho.models.run

local iterate = require "tycho.core.iterate"
local next, pairs = iterate.next, iterate.pairs
local context = require "tycho.core.context"
local Error = require "tycho.core.error"
local formats = require "tycho.models.formats"
local nd = require "tycho.ndarray"
local types = require "tycho.core.types"
require "tycho.executor.executor"

local FUNC = "tycho --run"

local run = {}

local LABEL = "_label$"                                  -- inputs of losses, which may be missing


-- Adds the arrays of one `--input` to `inputs` by name: "x.npy" (its name is data), "name=x.npy",
-- or a file of several named arrays.
local function read_input(text, inputs)
  local name, path = text:match("^([%w_.:/-]-)=(.+)$")
  local dict, names = nd.load(path or text)
  if not names then
    inputs[name or "data"] = dict[1]
    return
  end
  for _, key in ipairs(names) do
    inputs[name and #names == 1 and name or key] = dict[key]
  end
end


local function list_shapes(inputs)
  local shapes = {}
  for name, x in pairs(inputs) do
    shapes[name] = x.shape
  end
  return shapes
end


-- Renames a single array to the name of a single input.
local function name_lone_input(names, inputs)
  local given = next(inputs)
  if #names == 1 and given and next(inputs, given) == nil and given ~= names[1] then
    inputs[names[1]], inputs[given] = inputs[given], nil
  end
end


-- Renames the only array with an unknown name to the only argument that is neither a parameter nor
-- given. Other unknown names are E(name), other missing arguments E(value).
local function match_names(net, arg_params, inputs)
  local open, known = {}, {}
  for _, name in ipairs(net:list_arguments()) do
    known[name] = true
    if arg_params[name] == nil and inputs[name] == nil and not name:find(LABEL) then
      open[#open + 1] = name
    end
  end
  local others = {}
  for name in pairs(inputs) do
    others[#others + 1] = not known[name] and name or nil
  end
  if #others == 1 and #open == 1 then
    inputs[open[1]], inputs[others[1]] = inputs[others[1]], nil
    open = {}
  elseif others[1] then
    Error.raise{ code = "name", func = FUNC, argument = others[1], got = others[1],
      expected = table.concat(open, ", "),
      message = ("the network has no input '%s'"):format(others[1]) }
  end
  if open[1] then
    Error.raise{ code = "value", func = FUNC, argument = open[1],
      message = ("the input '%s' is missing: --input %s=FILE"):format(open[1], open[1]) }
  end
end


-- Returns the floating-point type of the parameters, to which inputs without a type are converted.
local function find_dtype(arg_params)
  for _, x in pairs(arg_params) do
    if types.REAL[x.dtype] then
      return x.dtype
    end
  end
  return "float32"
end


-- Binds the network with its parameters and inputs. Labels that are not given become zeros; no
-- output depends on them.
local function bind_network(net, arg_params, aux_params, described, inputs, ctx)
  local usual, shapes, arrays = find_dtype(arg_params), net:infer_shape(list_shapes(inputs)), {}
  if not shapes then
    Error.raise{ code = "shape", func = FUNC,
      message = "the shapes of the network do not follow from those of its inputs" }
  end
  for i, name in ipairs(net:list_arguments()) do
    local dtype = described[name] and described[name].dtype or usual
    local x = arg_params[name] or inputs[name] and inputs[name]:astype(dtype)
      or nd.zeros(shapes[i], { dtype = dtype })
    arrays[name] = x:as_in_context(ctx)
  end
  local states = {}
  for _, name in ipairs(net:list_auxiliary_states()) do
    states[name] = aux_params[name] and aux_params[name]:as_in_context(ctx)
  end
  return net:bind{ ctx = ctx, args = arrays, aux_states = states, grad_req = "null" }
end


local function save(path, net, outputs)
  if path:find("%.npy$") and #outputs > 1 then
    Error.raise{ code = "value", func = FUNC, argument = path,
      message = ("the network has %d outputs: --output FILE.npz holds several"):format(#outputs) }
  end
  local list = {}
  for i, name in ipairs(net:list_outputs()) do
    list[i] = { name, outputs[i] }
  end
  nd.save(path, path:find("%.npy$") and outputs[1] or list)
end


--- Runs a network.
-- @string path of the network
-- @tparam table options inputs: list of `--input` texts; output: path, nil: nothing is written; at:
--   keys to a network inside the file; ctx: a Context
-- @treturn {NDArray,...} the outputs
-- @treturn {string,...} their names
function run.run(path, options)
  local format, inputs = formats.of(path, FUNC), {}
  if not format.network then
    Error.raise{ code = "unsupported", func = FUNC, argument = path,
      message = ("'%s' (%s) holds arrays and no network"):format(path, format.name) }
  end
  for _, text in ipairs(options.inputs) do
    read_input(text, inputs)
  end
  if format.inputs then
    name_lone_input(format.inputs(path), inputs)
  end
  local net, arg_params, aux_params, described =
    format.network(path, { shapes = list_shapes(inputs), at = options.at })
  match_names(net, arg_params, inputs)
  local ctx = options.ctx or context.cpu()
  local exe = bind_network(net, arg_params, aux_params, described or {}, inputs, ctx)
  local outputs = exe:forward()
  for i = 1, #outputs do
    outputs[i]:wait_to_read()
  end
  if options.output then
    save(options.output, net, outputs)
  end
  return outputs, net:list_outputs()
end


return run
