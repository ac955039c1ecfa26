--- Converts modules of Torch7 to symbols: `ty.torch7.import_model`.
--
-- The object is traversed in the order in which Torch would run it, with symbols of known shapes as
-- tensors (`torch7/tensor.lua`); the classes of layers are in `torch7/layers_*.lua`.
--
-- @module tycho.torch7.import

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local criterions = require "tycho.torch7.criterions"
local graphs = require "tycho.torch7.layers_graph"
local containers = require "tycho.torch7.layers_tables"
local named = require "tycho.core.dict"
local Net = require "tycho.torch7.net"
local objects = require "tycho.torch7.objects"
local reader = require "tycho.torch7.reader"
local symbol = require "tycho.symbol.symbol"
local tables = require "tycho.core.tables"
local Tensor = require "tycho.torch7.tensor"
require "tycho.executor.executor"                          -- so that symbols can be bound
require "tycho.torch7.layers_simple"
require "tycho.torch7.layers_shapes"
require "tycho.torch7.layers_convolutions"
require "tycho.torch7.layers_pooling"
require "tycho.torch7.layers_normalization"
require "tycho.torch7.layers_recurrent"

local FUNC = "torch7.import_model"

local torch7 = {}


-- The dtype of a network --------------------------------------------------------------------------

local TYPES = {
  ["torch.FloatTensor"] = "float32", ["torch.CudaTensor"] = "float32",
  ["torch.DoubleTensor"] = "float64", ["torch.CudaDoubleTensor"] = "float64",
  ["torch.HalfTensor"] = "float16", ["torch.CudaHalfTensor"] = "float16",
}

local FLOATS = { float32 = true, float64 = true, float16 = true }

-- Fields whose arrays determine the dtype of a network; without any, the type that a module names
-- does.
local PARAMETERS = { "weight", "bias", "running_mean", "v" }

-- Calls f with an object and all objects inside it, and returns the first result that is not nil.
local function search_objects(root, f)
  local list, seen, at = { root }, { [root] = true }, 1
  while list[at] do
    local object = list[at]
    local found = f(object)
    if found then
      return found
    end
    local plain = not class.is_array(object)
    for _, value in pairs(plain and object or {}) do
      if type(value) == "table" and not seen[value] and not class.is_array(value) then
        seen[value] = true
        list[#list + 1] = value
      end
    end
    at = at + 1
  end
end


-- Returns the dtype of a network; float32 if nothing determines it.
local function find_dtype(object)
  local found = search_objects(object, function(part)
    for _, name in ipairs(objects.is(part) and PARAMETERS or {}) do
      local x = rawget(part, name)
      if class.is_array(x) and FLOATS[x.dtype] then
        return x.dtype
      end
    end
  end)
  return found or search_objects(object, function(part)
    return objects.is(part) and TYPES[rawget(part, "_type")]
  end) or "float32"
end


-- Inputs ------------------------------------------------------------------------------------------

-- Returns the form of a module's input: nil if it is a tensor or can be anything, else a list of
-- forms.
local find_form

local FORMS = {}

local function find_first_form(m)
  local list = m.modules
  return type(list) == "table" and objects.is(list[1]) and find_form(list[1]) or nil
end

FORMS["nn.ParallelTable"] = function(m)
  local forms = {}
  for i, inner in ipairs(m.modules or {}) do
    forms[i] = find_form(inner) or false
  end
  return forms
end

-- Returns the form of the common input of branches: that of the first branch that takes a table.
local function find_branch_form(m)
  for _, inner in ipairs(m.modules or {}) do
    local form = find_form(inner)
    if form then
      return form
    end
  end
end

FORMS["nn.ConcatTable"], FORMS["nn.Concat"], FORMS["nn.DepthConcat"] =
  find_branch_form, find_branch_form, find_branch_form

FORMS["nn.gModule"] = function(m)
  local forms, entries = {}, graphs.entries(m)
  local n = type(m.nInputs) == "number" and m.nInputs or 1
  if n < 2 or n > 1000 then
    return nil
  end
  for i = 1, n do
    local data = entries[i] and entries[i].data
    local inner = data and objects.is(data.module) and find_form(data.module)
    local below = entries[i] and not inner and graphs.entries{ innode = entries[i] }
    forms[i] = inner or below and #below > 0 and tables.part({}, 1, 0) or false
    for k = 1, below and #below or 0 do
      forms[i][k] = false
    end
  end
  return forms
end

local depth = 0

function find_form(m)
  local f = objects.is(m) and FORMS[objects.typename(m)] or find_first_form
  depth = depth + 1
  local form = depth < 100 and objects.is(m) and f(m) or nil
  depth = depth - 1
  return form
end


local function make_input_name(prefix, i)
  return i == 1 and prefix or prefix .. i
end


-- Returns the inputs in their order: "data", "data2" ... or "label", "label2" ... Raises E(shape)
-- for bad sizes.
local function make_inputs(net, shapes, prefix)
  local list = {}
  while shapes[make_input_name(prefix, #list + 1)] do
    local name = make_input_name(prefix, #list + 1)
    local ok, sizes = args.types.shape.check(shapes[name])
    if not ok or not tables.is_known(sizes) then
      Error.raise{ code = "shape", func = FUNC, argument = name, expected = "sizes above 0",
        got = Error.kind(shapes[name]), message = ("bad shape of '%s'"):format(name) }
    end
    net.arg_params[name] = nil
    list[#list + 1] = Tensor(symbol.Variable(name), tables.copied(sizes))
  end
  return list
end


-- Returns the number of tensors in a form.
local function count_leaves(form)
  local n = 0
  for _, inner in ipairs(form) do
    n = n + (inner and count_leaves(inner) or 1)
  end
  return n
end


-- Returns { {a, b}, {c, d} } for a ZipTable in front of two modules; nil for other modules or
-- counts.
local function zip_inputs(m, list)
  local first, second = m.modules[1], m.modules[2]
  local size = objects.typename(second) == "nn.ParallelTable" and type(second.modules) == "table"
    and #second.modules or 2
  local groups = {}
  if objects.typename(first) ~= "nn.ZipTable" or size == 0 or #list % size ~= 0 then
    return nil
  end
  for i = 1, #list, size do
    groups[#groups + 1] = tables.part(list, i, i + size - 1)
  end
  return groups
end


-- Returns nested tables in a form, with tensors of a list from `at` on, and the next position.
local function fill_form(form, list, at)
  local value = {}
  for i, inner in ipairs(form) do
    if inner then
      value[i], at = fill_form(inner, list, at)
    else
      value[i], at = list[at], at + 1
    end
  end
  return value, at
end


-- Returns the inputs in the module's form: a tensor or nested tables; a list if the form is
-- unknown.
local function arrange_inputs(m, list)
  local groups = #list > 2 and type(m.modules) == "table" and zip_inputs(m, list)
  if groups then
    return groups
  end
  local form = #list > 1 and find_form(m)
  if form and count_leaves(form) == #list then
    return (fill_form(form, list, 1))
  end
  return #list == 1 and list[1] or list
end


-- Raises an error for an unknown name of an input, or one whose predecessor is missing.
local function check_names(shapes)
  for name in pairs(shapes) do
    local number = type(name) == "string"
      and (name:match("^data(%d*)$") or name:match("^label(%d*)$"))
    local n = tonumber(number)
    if not number or number ~= "" and n < 2 then
      Error.raise{ code = "name", func = FUNC, argument = tostring(name),
        expected = "data, data2 ... of a network, label, label2 ... of a criterion",
        got = tostring(name), message = ("there is no input '%s'"):format(tostring(name)) }
    elseif number ~= "" and shapes[make_input_name(name:match("^%l+"), n - 1)] == nil then
      Error.raise{ code = "name", func = FUNC, argument = name,
        message = ("'%s' has no input before it"):format(name) }
    end
  end
end


-- Outputs -----------------------------------------------------------------------------------------

-- Returns the symbol of a network's output and its tensors; several outputs are a group.
local function list_outputs(y)
  local list = containers.flatten(y, {})
  if #list == 0 then
    Error.raise{ code = "value", func = FUNC, message = "the network gives an empty table" }
  end
  local syms = {}
  for i, x in ipairs(list) do
    local sym = x:get()
    -- a variable is not an output: an operator copies it
    syms[i] = sym:get_children() == nil and x:copy():get() or sym
  end
  return #syms == 1 and syms[1] or symbol.Group(syms), list
end


-- Raises an error if the core infers different shapes of the outputs.
local function check_shapes(sym, shapes, net, list)
  local given = {}
  for _, name in ipairs(sym:list_arguments()) do
    local x = net.arg_params[name]
    given[name] = x and x.shape or shapes[name]
  end
  local _, out = sym:infer_shape(given)
  for i, x in ipairs(list) do
    if not out or not tables.same(tables.copied(out[i]), x.shape) then
      Error.raise{ code = "internal", func = FUNC, expected = x.shape, got = out and out[i],
        message = ("output %d has another shape than the importer expects"):format(i) }
    end
  end
end


-- Returns the parameters that the symbol reads.
local function select_params(params, names)
  local dict = named{}
  for _, name in ipairs(names) do
    dict[name] = params[name]
  end
  return dict
end


-- The public function -----------------------------------------------------------------------------

local IMPORT = args.form(FUNC, {
  { "net", "any" }, "*", { "shapes", "dict" }, { "criterion", "any?" },
})

-- Returns the output of a network, or its loss if there is a criterion, for the arguments `a` of
-- the import.
local function build_network(net, a, object)
  local inputs = make_inputs(net, a.shapes, "data")
  local labels = make_inputs(net, a.shapes, "label")
  if #inputs == 0 then
    Error.raise{ code = "name", func = FUNC, argument = "shapes",
      message = "the shape of 'data' is missing" }
  end
  local loss = a.criterion
  local y
  if criterions.is(object) then
    y, loss = #inputs == 1 and inputs[1] or inputs, object
  else
    y = net:apply(object, arrange_inputs(object, inputs), "")
  end
  if loss == nil then
    return y
  elseif type(loss) == "string" then
    loss = setmetatable({}, objects.class(loss, 1))
  elseif not objects.is(loss) then
    Error.raise{ code = "type", func = FUNC, argument = "criterion",
      expected = "a criterion or the name of its class", got = Error.kind(loss),
      message = "this is no criterion" }
  end
  return criterions.loss(net, loss, y, labels, object ~= loss)
end


-- Imports a network: `ty.torch7.import_model`, see init.lua.
function torch7.import_model(...)
  local a = IMPORT(...)
  local object = type(a.net) == "string" and reader.read(a.net, FUNC) or a.net
  if not objects.is(object) then
    Error.raise{ code = "type", func = FUNC, argument = "net", expected = "a path or a module",
      got = objects.kind(object), message = "this is no network" }
  end
  check_names(a.shapes)
  local net = Net(find_dtype(object))
  local ok, y = pcall(build_network, net, a, object)
  if not ok then
    error(net:explain(y), 0)
  end
  local sym, list = list_outputs(y)
  check_shapes(sym, a.shapes, net, list)
  return sym, select_params(net.arg_params, sym:list_arguments()),
    select_params(net.aux_params, sym:list_auxiliary_states())
end


return torch7
