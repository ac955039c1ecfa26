--- What built-in layers, losses and cells share: a constructor with a form, and texts as the
-- reference writes them.
--
--     local Dropout = layer.extend(HybridBlock, "nn.Dropout",
--       { { "rate", "number" }, { "axes", "shape", {} } })
--     function Dropout:set_up(a) self._rate = a.rate end
--
-- @module tycho.gluon.layer

local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local array_class = require "tycho.ndarray.class"
local call = require "tycho.ndarray.call"
local either = require "tycho.symbol.either"
local Error = require "tycho.core.error"
local recording = require "tycho.ndarray.recording"
local nd = require "tycho.ndarray"
local operators = require "tycho.ndarray.operators"
local sym = require "tycho.symbol.symbol"
local Symbol = sym.Symbol
local values = require "tycho.core.values"

local cached, put_input = call.cached, call.put_input
local release, tidy, NDArray = array_class.release, array_class.tidy, array_class.NDArray
local getmetatable, rawequal = getmetatable, rawequal

local layer = {}


-- Classes -----------------------------------------------------------------------------------------

-- What every block's constructor takes by name; the block has read them before `init` runs.
local COMMON = { "*", { "prefix", "any?" }, { "params", "any?" } }


--- Returns a subclass whose `init` reads the arguments of its form and calls `set_up(self, a)`.
-- @tparam table base
-- @string func public name, "nn.Dense"; the class is named by what follows the last dot
-- @tparam table spec parameters of its form
-- @treturn table class
function layer.extend(base, func, spec)
  local class = base:extend(func:match("[^.]+$"))
  local whole = { list = spec.list, advice = spec.advice }
  for _, entries in ipairs{ spec, COMMON } do
    for _, entry in ipairs(entries) do
      whole[#whole + 1] = entry
    end
  end
  local form = args.form(func, whole)
  function class:init(...)
    class.set_up(self, form(...))
  end
  return class
end


-- Inner arrays ------------------------------------------------------------------------------------

-- Classes whose blocks keep neither what they are given nor what they give.
local passing = {}


--- Declares that the blocks of a class make one new array of one, and keep neither. This does not
-- hold for derived classes.
-- @tparam table class
function layer.note_passing(class)
  passing[class] = true
end


--- Returns whether only the caller keeps what a block gets and returns.
-- @tparam Block block
-- @treturn bool
function layer.is_passing(block)
  return passing[getmetatable(block)] and not rawget(block, "_hooked")
    and rawget(block, "forward") == nil
end


--- Calls a passing block on an array that only the caller has, and releases that array if it is
-- recorded: an array that still exists when the program of the recorded calls is made gets its own
-- memory, and the operators next to it are not fused.
-- @tparam Block block
-- @param x array or symbol
-- @return the result
function layer.pass_on(block, x)
  local y = block(x)
  if recording.on and getmetatable(x) == NDArray and not rawequal(x, y) then
    release(x)
  end
  return y
end


--- Makes the forward of a class free the temporary arrays that it makes while it is recorded. It
-- must keep none, nor pass one to a function of the script.
-- @tparam table class
-- @tparam[opt] function may object -> whether that is so; all objects otherwise
function layer.tidy(class, may)
  local forward = class.forward
  function class.forward(self, ...)
    if recording.on and (not may or may(self)) then
      return tidy(forward, self, ...)
    end
    return forward(self, ...)
  end
end


--- Applies the activation, if there is one, to an array that the caller has just made.
-- @param act Block or nil
-- @param x array or symbol
-- @return the result
function layer.activated(act, x)
  if not act then
    return x
  end
  return layer.is_passing(act) and layer.pass_on(act, x) or act(x)
end


--- Returns a copy of a form's spec with more parameters after it.
-- @tparam table spec
-- @tparam table more
-- @treturn table
function layer.joined(spec, more)
  local list = {}
  for _, entries in ipairs{ spec, more } do
    for _, entry in ipairs(entries) do
      list[#list + 1] = entry
    end
  end
  return list
end


-- Checks ------------------------------------------------------------------------------------------

--- Returns a size per axis from a number or a list of sizes; another length is E(value).
-- @string func
-- @string argument
-- @tparam {int,...} sizes as the type "shape" gives them: a number is a list of one
-- @int dims
-- @treturn {int,...}
function layer.sizes(func, argument, sizes, dims)
  if #sizes == 1 and dims > 1 then
    local all = {}
    for axis = 1, dims do
      all[axis] = sizes[1]
    end
    return all
  elseif #sizes ~= dims then
    Error.raise{ code = "value", func = func, argument = argument, got = sizes,
      expected = ("a number or %d number%s"):format(dims, dims > 1 and "s" or ""),
      message = ("bad '%s'"):format(argument) }
  end
  return sizes
end


--- Returns the channels of a group of a convolution; E(value) where the groups do not divide them.
-- @string func
-- @string argument
-- @int channels
-- @int groups
-- @treturn int
function layer.per_group(func, argument, channels, groups)
  if channels % groups ~= 0 then
    Error.raise{ code = "value", func = func, argument = argument, got = channels,
      expected = ("a multiple of %d groups"):format(groups),
      message = ("bad '%s'"):format(argument) }
  end
  return channels / groups
end


--- Raises E(value) unless a text is one of those accepted.
-- @string func
-- @string argument
-- @string text
-- @tparam {string,...} accepted
-- @treturn string text
function layer.word(func, argument, text, accepted)
  for _, word in ipairs(accepted) do
    if word == text then
      return text
    end
  end
  Error.raise{ code = "value", func = func, argument = argument, got = Error.kind(text),
    expected = table.concat(accepted, " or "), candidates = Error.nearest(text, accepted),
    message = ("bad '%s'"):format(argument) }
end


--- Raises E(unsupported) for `sparse_grad = true`.
-- @string func
-- @bool given
function layer.refuse_sparse(func, given)
  if given then
    Error.raise{ code = "unsupported", func = func, argument = "sparse_grad",
      message = "there is no sparse storage; leave sparse_grad out: the gradient is dense" }
  end
end


-- Nodes -------------------------------------------------------------------------------------------

--- Returns the name of a layer's node in a graph, after the prefix; calls on arrays have none.
-- @param x the layer's input
-- @treturn ?string
function layer.node_name(x)
  return getmetatable(x) == Symbol and "fwd" or nil
end


local function no_name() end


--- Returns the names of a step's nodes: a function of what comes after "t0_", whose results are nil
-- for calls on arrays.
-- @param cell
-- @param x its input
-- @treturn function
function layer.step_names(cell, x)
  if getmetatable(x) ~= Symbol then
    return no_name
  end
  local step = ("t%d_"):format(cell._counter)
  return function(rest)
    return step .. rest
  end
end


-- Calls -------------------------------------------------------------------------------------------

--- Returns a function (name of the node, array or symbol) of an operator with one input. It hands
-- arrays on by position; the arguments of `F.tanh{ x, name = name }` would be read each time.
-- @string op
-- @treturn function
function layer.unary(op)
  local on_arrays, on_symbols = nd[op], sym[op]
  return function(name, x)
    if getmetatable(x) == NDArray then
      return on_arrays(x)
    end
    return on_symbols{ x, name = name }
  end
end


--- Returns a function (name of the node, two arrays or symbols) of an operator with two inputs.
-- @string op
-- @treturn function
function layer.binary(op)
  local on_arrays, on_either = nd[op], either[op]
  return function(name, a, b)
    if getmetatable(a) == NDArray and getmetatable(b) == NDArray then
      return on_arrays(a, b)
    end
    return on_either{ a, b, name = name }
  end
end


-- Calls a prepared operator on one to three arrays.
local function call_entry(entry, x, y, z)
  put_input(0, x)
  if y then
    put_input(1, y)
  end
  if z then
    put_input(2, z)
  end
  local result = cached(entry, entry.func, nil, x)       -- no tail call: the arrays stay alive
  return result
end


--- Returns a function (value, array or symbol, a second one or nil) of an operator whose parameters
-- depend on one value: those that `params_of(value)` gives when the value is first met.
-- @string op
-- @tparam function params_of
-- @treturn function
function layer.by_value(op, params_of)
  local entries = { {}, {} }                             -- by number of inputs, then by value
  return function(value, x, y)
    if getmetatable(x) ~= NDArray or y and getmetatable(y) ~= NDArray then
      local arguments = params_of(value)
      arguments[1], arguments[2] = x, y
      return either[op](arguments)
    end
    local nin = y and 2 or 1
    local entry = entries[nin][value]
    if not entry then
      entry = operators.prepare(op, params_of(value), nin)
      entries[nin][value] = entry
    end
    return call_entry(entry, x, y)
  end
end


--- Returns a function (block, name of the node, x, weight or nil, bias or nil) of an operator such
-- as Convolution. Its parameters are those that `params_of(block)` gives at the first call.
-- @string op
-- @tparam function params_of
-- @treturn function
function layer.weighted(op, params_of)
  local key = "_call_" .. op
  return function(block, name, x, weight, bias)
    if getmetatable(x) ~= NDArray or weight and getmetatable(weight) ~= NDArray then
      local arguments = params_of(block)
      arguments[1], arguments[2], arguments[3], arguments.name = x, weight, bias, name
      return either[op](arguments)
    end
    local entries = rawget(block, key)
    if not entries then
      entries = {}
      rawset(block, key, entries)
    end
    local nin = bias and 3 or weight and 2 or 1
    local entry = entries[nin]
    if not entry then
      entry = operators.prepare(op, params_of(block), nin)
      entries[nin] = entry
    end
    return call_entry(entry, x, weight, bias)
  end
end


-- Results -----------------------------------------------------------------------------------------

--- Returns the outputs of an operator as a list: arrays come as one or as a list, symbols as one
-- symbol.
-- @param result
-- @int n how many there are
-- @treturn table
function layer.outputs(result, n)
  if n == 1 and not values.is_plain(result) then
    return { result }
  elseif not either.is_symbol(result) then
    return result
  end
  local list = {}
  for i = 1, n do
    list[i] = result[i]
  end
  return list
end


-- Texts -------------------------------------------------------------------------------------------

--- Returns a value as the reference shows it: `(2, 2)`, `(3,)`, `True`, `None`, `1e-05`.
-- @param v list, boolean, number, text or nil
-- @treturn string
function layer.show(v)
  if v == nil then
    return "None"
  elseif type(v) == "boolean" then
    return v and "True" or "False"
  elseif type(v) == "table" and getmetatable(v) == nil then
    local parts = {}
    for i, each in ipairs(v) do
      parts[i] = layer.show(each)
    end
    return "(" .. table.concat(parts, ", ") .. (#v == 1 and ",)" or ")")
  elseif type(v) == "number" then
    return attrs.text(v)
  end
  return tostring(v)
end


--- Returns a number as the reference shows a float: `1.0` for 1.
-- @number[opt] v
-- @treturn string
function layer.show_real(v)
  return type(v) == "number" and v == math.floor(v) and v - v == 0 and ("%.1f"):format(v)
    or layer.show(v)
end


--- Returns the sizes before and after a layer as text: `None -> 4` while the first is unknown.
-- @param from number, 0 or nil: unknown
-- @param to
-- @treturn string
function layer.mapping(from, to)
  return ("%s -> %s"):format(layer.show(from ~= 0 and from or nil), layer.show(to))
end


local function all_are(list, value)
  for _, v in ipairs(list) do
    if v ~= value then
      return false
    end
  end
  return true
end


--- Returns the text of a convolution, from its private fields `_kernel`, `_stride`, `_pad`,
-- `_dilate`, `_groups` and its field `act`.
-- @param self the layer
-- @param weight its weight's parameter
-- @param bias its bias's, or nil
-- @treturn string
function layer.convolution_text(self, weight, bias)
  local shape, show = weight.shape, layer.show
  return table.concat{ ("%s(%s, kernel_size=%s, stride=%s"):format(self.class_name,
    layer.mapping(shape[2], shape[1]), show(self._kernel), show(self._stride)),
    all_are(self._pad, 0) and "" or ", padding=" .. show(self._pad),
    all_are(self._dilate, 1) and "" or ", dilation=" .. show(self._dilate),
    self._groups == 1 and "" or ", groups=" .. show(self._groups),
    bias and "" or ", bias=False",
    self.act and ", " .. tostring(self.act) or "", ")" }
end


--- Sets the text that `tostring` returns for objects of a class and of its subclasses.
-- @tparam table class
-- @func describe object -> text
function layer.describe(class, describe)
  class.__tostring = describe
end


--- Indents all lines of a text but the first by two blanks.
-- @string text
-- @treturn string
function layer.indent(text)
  return (text:gsub("\n", "\n  "))
end


return layer
