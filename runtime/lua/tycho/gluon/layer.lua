--- Functions that built-in layers, losses and cells share: constructors whose arguments a form
-- reads (core/args.lua), checks, calls of operators, and texts in the reference's form.
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

-- The options of all blocks, which Block reads before `init` runs.
local COMMON = { "*", { "prefix", "any?" }, { "params", "any?" } }


--- Raises E(type) if a constructor got an array or a symbol.
-- @string func public name of the class, for errors
-- @param ... the constructor's arguments
function layer.refuse_tensors(func, ...)
  for i = 1, select("#", ...) do
    local given = select(i, ...)
    local meta = getmetatable(given)
    if meta == NDArray or meta == Symbol then
      Error.raise{ code = "type", func = func, expected = "options", got = Error.kind(given),
        message = ("this makes a block, which is called on arrays then: local block = %s(...); \z
          block(x)"):format(func) }
    end
  end
end


--- Returns a subclass whose `init` reads its arguments with a form and calls `set_up(self, a)`; a
-- has the arguments by name.
-- @tparam table base class
-- @string func public name for errors, "nn.Dense"; the part after its last dot is the class's name
-- @tparam table spec parameters of the form, without `prefix` and `params`
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
    layer.refuse_tensors(func, ...)
    class.set_up(self, form(...))
  end
  return class
end


-- Inner arrays ------------------------------------------------------------------------------------

-- Classes whose blocks store neither the array that they are given nor the one that they return.
local passing = {}


--- Declares that the blocks of a class make one new array from one array, and store neither.
-- Subclasses are not included.
-- @tparam table class
function layer.note_passing(class)
  passing[class] = true
end


--- Returns whether a block's class was declared with `note_passing`, and the block has no hooks
-- that might store arrays.
-- @tparam Block block
-- @treturn bool
function layer.is_passing(block)
  return passing[getmetatable(block)] and not rawget(block, "_hooked")
    and rawget(block, "forward") == nil
end


--- Calls a block for which `is_passing` is true on an array that only the caller has. If that array
-- is recorded, it is released: an array that exists when the program of the recorded calls is made
-- gets memory, and the operator that makes it is not fused with its readers.
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


--- Makes the forward of a class free the temporary arrays that it makes while recording is on.
-- Forward must not store any of them, nor pass one to a function of the script.
-- @tparam table class
-- @tparam[opt] function may called as may(object): returns whether this is allowed for the object;
--   default: for all objects
function layer.tidy(class, may)
  local forward = class.forward
  function class.forward(self, ...)
    if recording.on and (not may or may(self)) then
      return tidy(forward, self, ...)
    end
    return forward(self, ...)
  end
end


--- Applies an activation, if there is one, to an array that the caller has just made and does not
-- use afterwards.
-- @param act Block or nil
-- @param x array or symbol
-- @return the result; x without an activation
function layer.activated(act, x)
  if not act then
    return x
  end
  return layer.is_passing(act) and layer.pass_on(act, x) or act(x)
end


--- Returns a form's parameters followed by others.
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

-- The type of sizes along a layer's axes: one number for all axes, or a list with one for each.
args.types.sizes = { takes = args.types.shape.takes, text = "a number or a list of sizes",
  check = function(v)
    local ok, list, expected, code, got = args.types.shape.check(v)
    return ok, ok and type(v) == "number" and v or list, expected, code, got
  end }


--- Returns a size for each axis. A list whose length is not dims is E(value).
-- @string func public name of the layer, for errors
-- @string argument name of the argument, for errors
-- @tparam int|{int,...} sizes a value of the type "sizes"
-- @int dims number of axes
-- @treturn {int,...} dims sizes
function layer.sizes(func, argument, sizes, dims)
  if type(sizes) == "number" then
    local all = {}
    for axis = 1, dims do
      all[axis] = sizes
    end
    return all
  elseif #sizes ~= dims then
    Error.raise{ code = "value", func = func, argument = argument, got = sizes,
      expected = ("a number or %d number%s"):format(dims, dims > 1 and "s" or ""),
      message = ("bad '%s'"):format(argument) }
  end
  return sizes
end


--- Returns the number of channels in a group of a convolution; E(value) if the number of groups
-- does not divide that of the channels.
-- @string func public name of the layer, for errors
-- @string argument name of the channels' argument, for errors
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


--- Returns a word if it is accepted; others are E(value), which lists the accepted words.
-- @string func public name of the layer, for errors
-- @string argument name of the argument, for errors
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
    expected = Error.choice(accepted), candidates = Error.nearest(text, accepted),
    message = ("bad '%s'"):format(argument) }
end


--- Raises E(unsupported) for `sparse_grad = true`.
-- @string func public name of the layer, for errors
-- @bool given value of the argument
function layer.refuse_sparse(func, given)
  if given then
    Error.raise{ code = "unsupported", func = func, argument = "sparse_grad",
      message = "there is no sparse storage; leave sparse_grad out: the gradient is dense" }
  end
end


-- Nodes -------------------------------------------------------------------------------------------

--- Returns the name of a layer's node in a graph, without the prefix.
-- @param x the layer's input
-- @treturn ?string "fwd" for a symbol; nil for an array, whose calls have no names
function layer.node_name(x)
  return getmetatable(x) == Symbol and "fwd" or nil
end


local function return_nil() end


--- Returns the function that names the nodes of a cell's current step: "i2h" -> "t0_i2h".
-- @param cell
-- @param x the cell's input; for an array all names are nil
-- @treturn function
function layer.step_names(cell, x)
  if getmetatable(x) ~= Symbol then
    return return_nil
  end
  local step = ("t%d_"):format(cell._counter)
  return function(rest)
    return step .. rest
  end
end


-- Calls -------------------------------------------------------------------------------------------

--- Returns a function that calls an operator with one input. It avoids the table of arguments that
-- `F.tanh{ x, name = name }` would read in each call.
-- @string op name of an operator
-- @treturn function called as f(name of the node or nil, array or symbol)
function layer.unary(op)
  local on_arrays, on_symbols = nd[op], sym[op]
  return function(name, x)
    if getmetatable(x) == NDArray then
      return on_arrays(x)
    end
    return on_symbols{ x, name = name }
  end
end


--- Returns a function that calls an operator with two inputs.
-- @string op name of an operator
-- @treturn function called as f(name of the node or nil, x, y), both arrays or both symbols
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
  local result = cached(entry, entry.func, nil, x)       -- no tail call: the arrays must stay alive
  return result
end


--- Returns a function that calls an operator whose parameters depend on one value. The parameters
-- for each value are made once.
-- @string op name of an operator
-- @tparam function params_of called as params_of(value): returns the parameters by name
-- @treturn function called as f(value, x, y or nil), arrays or symbols
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


--- Returns a function that calls an operator with a weight and a bias, such as Convolution. The
-- parameters for a block are made at its first call.
-- @string op name of an operator
-- @tparam function params_of called as params_of(block): returns the parameters by name
-- @treturn function called as f(block, name of the node or nil, x, weight or nil, bias or nil)
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


--- Returns the dtype of a normalization's parameters and averages for data of a dtype; half types
-- are too narrow for them.
-- @string dtype
-- @treturn string
function layer.statistics_type(dtype)
  return (dtype == "float16" or dtype == "bfloat16") and "float32" or dtype
end


-- Results -----------------------------------------------------------------------------------------

--- Returns the outputs of an operator as a list.
-- @param result of the call: an array, a list of arrays, or a symbol with all outputs
-- @int n number of outputs
-- @treturn table n arrays or symbols
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

--- Returns a value in the reference's form: `(2, 2)`, `(3,)`, `True`, `None`, `1e-05`.
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


--- Returns a number as the reference writes a float: `1.0` for 1.
-- @number[opt] v nil: `None`
-- @treturn string
function layer.show_real(v)
  return type(v) == "number" and v == math.floor(v) and v - v == 0 and ("%.1f"):format(v)
    or layer.show(v)
end


--- Returns the sizes before and after a layer as text: `3 -> 4`, or `None -> 4`.
-- @param from number; 0 or nil: unknown
-- @param to number
-- @treturn string
function layer.mapping(from, to)
  return ("%s -> %s"):format(layer.show(from ~= 0 and from or nil), layer.show(to))
end


local function are_all(list, value)
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
-- @param bias its bias's parameter, or nil
-- @treturn string
function layer.convolution_text(self, weight, bias)
  local shape, show = weight.shape, layer.show
  return table.concat{ ("%s(%s, kernel_size=%s, stride=%s"):format(self.class_name,
    layer.mapping(shape[2], shape[1]), show(self._kernel), show(self._stride)),
    are_all(self._pad, 0) and "" or ", padding=" .. show(self._pad),
    are_all(self._dilate, 1) and "" or ", dilation=" .. show(self._dilate),
    self._groups == 1 and "" or ", groups=" .. show(self._groups),
    bias and "" or ", bias=False",
    self.act and ", " .. tostring(self.act) or "", ")" }
end


--- Sets the text between the parentheses in `tostring` of objects of a class and its subclasses.
-- @tparam table class
-- @func describe called as describe(object): returns the text
function layer.describe(class, describe)
  class.__tostring = describe
end


--- Indents all lines of a text except the first by two blanks.
-- @string text
-- @treturn string
function layer.indent(text)
  return (text:gsub("\n", "\n  "))
end


--- Returns the text of a container: its head, its lines, a closing parenthesis. Without lines there
-- is one empty line.
function layer.listed(head, lines)
  return head .. "\n" .. table.concat(lines, "\n") .. "\n)"
end


return layer
