--- Inference of the shapes and dtypes in a symbol's graph.
--
-- `inference.methods` are methods of Symbol (symbol/symbol.lua).
--
-- @module tycho.symbol.inference

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local attrs = require "tycho.core.attrs"
local class = require "tycho.ndarray.class"
local counted_from_1 = require "tycho.core.list"
local Error = require "tycho.core.error"
local graph = require "tycho.symbol.graph"
local log = require "tycho.core.log"
local node = require "tycho.symbol.node"
local values = require "tycho.core.values"

local C = native.C

local Symbol = {}                                        -- methods
local inference = { methods = Symbol }

local want_array, desc_array = ffi.typeof("ty_want[?]"), ffi.typeof("ty_desc[?]")


-- Arguments ---------------------------------------------------------------------------------------

-- Returns argument name -> value, for values in the order of the arguments; `ty.null` leaves one
-- out.
local function name_values(list, order, func)
  local names = graph.variable_names(order)
  if #list > #names then
    Error.raise{ code = "value", func = func, expected = #names, got = #list,
      message = ("the symbol has %d argument%s"):format(#names, #names == 1 and "" or "s") }
  end
  local dict = {}
  for i = 1, #list do
    if values.value(list[i]) ~= nil then
      dict[names[i]] = list[i]
    end
  end
  return dict
end


local function check_names(dict, order, func)
  local names, known = graph.variables(order), {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  for name in pairs(dict) do
    if not known[name] then
      Error.unknown{ func = func, argument = name, what = "argument", names = names }
    end
  end
end


--- Returns argument name -> value, for a list in the order of the arguments, or a table of names;
-- both together are E(value).
function inference.given(list, dict, order, func)
  if list and next(dict) then
    Error.raise{ code = "value", func = func, argument = (next(dict)),
      message = "arguments are given by position and by name; use one of them" }
  end
  dict = list and name_values(list, order, func) or dict
  check_names(dict, order, func)
  return dict
end


-- Sets the shape of a native description; an unknown one (`{}`) has no dimensions. A number is
-- E(type): it is more often a mistake than a shape of one dimension.
local function put_shape(desc, shape, name, func)
  local ok, sizes = args.types.shape.check(shape)
  ok = ok and type(shape) == "table"
  if not ok or #sizes > C.TY_MAXDIM then
    Error.raise{ code = ok and "shape" or "type", func = func, argument = name,
      got = Error.kind(shape),
      expected = ok and ("at most %d dimensions"):format(C.TY_MAXDIM)
        or "a shape (a list of sizes, 0 where unknown)",
      message = ("bad shape of '%s'"):format(name) }
  end
  desc.ndim = #sizes
  for i, size in ipairs(sizes) do
    desc.dim[i - 1] = size
  end
end


local function put_dtype(desc, dtype, name, func)
  local ok, _, expected, code = args.types.dtype.check(dtype)
  if not ok then
    Error.raise{ code = code or "type", func = func, argument = name, got = Error.kind(dtype),
      expected = expected or "a dtype such as \"float32\"",
      message = ("bad dtype of '%s'"):format(name) }
  end
  desc.dtype = args.DTYPES[dtype]
end


-- Inference ---------------------------------------------------------------------------------------

--- Adds to an error of the core where the shape of each input of the failed node comes from:
-- "given", "attribute", or "of" and the name of the node that made the input; nothing for a
-- variable whose shape is unknown.
-- @param e error object
-- @tparam table built the native graph, as `graph.of`
-- @tparam table given names whose shape or array was given
function inference.explain(e, built, given)
  for _, n in ipairs(e.shapes and built.order or {}) do
    if n.name == e.node and n.op then
      for i, shape in ipairs(e.shapes) do
        local entry = n.inputs[i]
        local input = entry and entry[1]
        shape.name = input and node.output_name(input, entry[2]) or shape.name
        shape.from = input and (given[input.name] and not input.op and "given"
          or input.attrs.__shape__ and not input.op and "attribute"
          or input.op and "of " .. input.name) or nil
      end
    end
  end
  return e
end


-- Infers shapes or dtypes from given ones.
-- @param symbol the symbol
-- @tparam table given argument name -> shape or dtype
-- @tparam function put called as put(desc, value, name, func): sets it in a native description
-- @string func for errors
-- @treturn cdata descriptions of all outputs of all nodes, in order
-- @treturn table the graph, as `graph.of`
-- @treturn table as `node.firsts`
local function infer(symbol, given, put, func)
  local names = attrs.keys(given)
  local wants = want_array(#names + 1)
  for i, name in ipairs(names) do
    local want = wants[i - 1]
    want.name, want.desc.dtype = name, C.TY_NODTYPE
    put(want.desc, given[name], name, func)
  end
  local built = graph.resolved(symbol, wants, #names, func)
  local first, total = node.firsts(built.order)
  local out = desc_array(total + 1)
  local code = C.ty_graph_infer(built.handle, wants, #names, 1, out)
  if code > 0 then
    error(inference.explain(native.failure(code, func), built, given), 0)
  end
  return out, built, first
end


local function dtype_of(desc)
  return args.DTYPE_NAMES[desc.dtype] or values.null
end


local function shape_known(desc)
  for i = 1, desc.ndim do
    if desc.dim[i - 1] == 0 then
      return false
    end
  end
  return desc.ndim > 0
end


local function dtype_known(desc)
  return desc.dtype ~= C.TY_NODTYPE
end

--- What is inferred: `put` sets it in a native description, `read` returns it from there, `known`
-- returns whether it is complete there; `what` is its name in warnings.
inference.SHAPES =
  { put = put_shape, known = shape_known, what = "shapes", read = function(desc)
    return counted_from_1(class.shape_of(desc))
  end }
inference.DTYPES =
  { put = put_dtype, read = dtype_of, known = dtype_known, what = "dtypes" }


local function warn_undecided(built, descs, first, kind, func)
  local names, more = {}, false
  for _, n in ipairs(built.order) do
    if not n.op and not kind.known(descs[first[n]]) then
      more = #names == 10
      names[#names + 1] = not more and n.name or nil
      if more then
        break
      end
    end
  end
  log:warning(("%s: the %s of these arguments cannot be inferred from what was given: %s%s")
    :format(func, kind.what, #names > 0 and table.concat(names, ", ")
      or "none, but outputs of operators are unknown", more and ", ..." or ""))
end


local function is_complete(built, descs, first, kind)
  for _, n in ipairs(built.order) do
    for k = 0, #n.ports.outputs - 1 do
      if not kind.known(descs[first[n] + k]) then
        return false
      end
    end
  end
  return true
end


local function fit_descs(shapes)
  for _, shape in pairs(shapes) do
    if #shape > C.TY_MAXDIM then
      return false
    end
  end
  return true
end


-- Returns an array of the given descriptions for `ty_graph_infer`, and their number. undecided:
-- nil, or the set of arguments whose dtypes do not follow from the given ones; they get float32.
local function make_wants(names, shapes, types, undecided)
  local wants, count = want_array(#names + 1), 0
  for _, name in ipairs(names) do
    local shape, dtype = shapes[name], types[name]
    if shape or undecided and undecided[name] then
      local want = wants[count]
      local desc = want.desc
      want.name, desc.ndim = name, shape and #shape or 0
      desc.dtype = dtype and args.DTYPES[dtype] or undecided and undecided[name]
        and C.TY_F32 or C.TY_NODTYPE
      for i = 1, shape and #shape or 0 do
        desc.dim[i - 1] = shape[i]
      end
      count = count + 1
    end
  end
  return wants, count
end


-- Returns shapes and dtypes of variables in order, and the arguments whose dtype is unknown; nil if
-- a shape is unknown.
local function read_variables(built, descs)
  local mutated, at = node.mutated(built.order), 0
  local found, undecided = { arguments = {}, auxiliary = {} }, nil
  for _, n in ipairs(built.order) do
    if not n.op then
      local desc, list = descs[at], mutated[n] and found.auxiliary or found.arguments
      list[#list + 1] = { name = n.name, shape = class.shape_of(desc),
        dtype = args.DTYPE_NAMES[desc.dtype] }
      if not shape_known(desc) then
        return nil
      elseif not dtype_known(desc) then
        undecided = undecided or {}
        undecided[n.name] = true
      end
    end
    at = at + #n.ports.outputs
  end
  return found, undecided
end


local function count_values(order)
  local count = 0
  for _, n in ipairs(order) do
    count = count + #n.ports.outputs
  end
  return count
end


local function are_dtypes_known(descs, count)
  for v = 0, count - 1 do
    if not dtype_known(descs[v]) then
      return false
    end
  end
  return true
end


local MOST_KEPT = 4096                   -- descriptions kept for the next inference: 576 KiB
local kept, nkept = nil, 0

-- Returns an array of at least n descriptions; the next call may return the same one.
local function take_descs(n)
  if n <= nkept then
    return kept
  end
  local descs = desc_array(n)
  if n <= MOST_KEPT then
    kept, nkept = descs, n
  end
  return descs
end


--- Returns shapes and dtypes of all variables, from those of the inputs, in one inference; float32
-- where a dtype does not follow.
-- @param symbol the symbol
-- @tparam table shapes by name
-- @tparam table types dtypes of the same names
-- @treturn ?table arguments and auxiliary, lists of `{name, shape, dtype}`; nil if the shapes
--   contradict each other, if a shape or dtype stays unknown, or for an operator written in Lua
function inference.find_variables(symbol, shapes, types)
  local built, names = graph.of(symbol, "Symbol"), graph.names(symbol).arguments
  if graph.is_custom(built) or not fit_descs(shapes) then
    return nil
  end
  local count = count_values(built.order)
  local descs, undecided, found = take_descs(count), nil, nil
  for _ = 1, 2 do
    local wants, nwant = make_wants(names, shapes, types, undecided)
    if C.ty_graph_infer(built.handle, wants, nwant, 1, descs) > 0 then
      return nil
    end
    found, undecided = read_variables(built, descs)
    if not found then
      return nil
    elseif not undecided then
      break
    end
  end
  return not undecided and are_dtypes_known(descs, count) and found or nil
end


--- Returns what is inferred of arguments, outputs and auxiliary states, as three lists; three nils
-- and a warning if it is incomplete.
-- @param symbol the symbol
-- @tparam table kind `inference.SHAPES` or `inference.DTYPES`
-- @tparam table given by argument name
-- @bool partial returns what is known, even if it is incomplete
-- @string func for errors
function inference.results(symbol, kind, given, partial, func)
  local descs, built, first = infer(symbol, given, kind.put, func)
  if not partial and not is_complete(built, descs, first, kind) then
    warn_undecided(built, descs, first, kind, func)
    return nil, nil, nil
  end
  local mutated, arguments, outputs, auxiliary = node.mutated(built.order), {}, {}, {}
  for _, n in ipairs(built.order) do
    if not n.op then
      local list = mutated[n] and auxiliary or arguments
      list[#list + 1] = kind.read(descs[first[n]])
    end
  end
  for i, entry in ipairs(symbol._entries) do
    outputs[i] = kind.read(descs[first[entry[1]] + entry[2]])
  end
  return counted_from_1(arguments), counted_from_1(outputs), counted_from_1(auxiliary)
end


-- Methods of symbols ------------------------------------------------------------------------------

local function infer_method(func, kind, partial)
  local form = args.form("Symbol:" .. func, { list = true, rest = "named", { "(list)", "list?" } })
  return function(self, ...)
    local a = form(...)
    local given = inference.given(a["(list)"], a.named, (graph.walk(self)), "Symbol:" .. func)
    return inference.results(self, kind, given, partial, "Symbol:" .. func)
  end
end

--- Returns `arg_shapes, out_shapes, aux_shapes`, inferred from shapes by argument name, or from a
-- list in argument order (`ty.null` leaves one out). A size of 0 is unknown. If shapes stay
-- unknown, it warns and returns three nils. A contradiction is E(`shape`), which names the node.
-- @function Symbol:infer_shape
Symbol.infer_shape = infer_method("infer_shape", inference.SHAPES, false)
--- Returns the same as `infer_shape` even if it is incomplete: `{}` for an unknown shape, 0 for an
-- unknown size.
-- @function Symbol:infer_shape_partial
Symbol.infer_shape_partial = infer_method("infer_shape_partial", inference.SHAPES, true)
--- Returns `arg_types, out_types, aux_types`, inferred from dtypes as `infer_shape` does it.
-- @function Symbol:infer_type
Symbol.infer_type = infer_method("infer_type", inference.DTYPES, false)
--- Returns the same as `infer_type` even if it is incomplete: `ty.null` for an unknown dtype.
-- @function Symbol:infer_type_partial
Symbol.infer_type_partial = infer_method("infer_type_partial", inference.DTYPES, true)


return inference
