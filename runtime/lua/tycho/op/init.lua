--- The registry of operators, and operators written as formulas.
--
--     ty.op.list()                                names of all operators
--     ty.op.info("Convolution")                   name, doc, inputs, outputs, params, ...
--     ty.op.count()                               number of operators
--     ty.op.pointwise{name = "swish2", args = {"a"}, formula = "a / (1 + exp(-a))", grad = {"..."}}
--
-- @module tycho.op

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local namespace = require "tycho.core.namespace"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local Error = require "tycho.core.error"
local registry = require "tycho.op.registry"

local op = {}

local C, check = native.C, native.check


--- Returns the names of all operators, sorted, without aliases.
function op.list()
  local names = registry.names()
  table.sort(names)
  return names
end


local function words(ports)
  local list = {}
  for word in ports:gmatch("%S+") do
    list[#list + 1] = word
  end
  return list
end


--- Returns the registry's description of an operator.
-- @string name name or alias
-- @treturn table name, aliases, doc, gradient (in words; for an element-wise operator its
--   formulas), inputs and outputs (port texts: "x!" is changed in place, "[x]" is hidden, "x*n" is
--   repeated as often as parameter n says), params (`{name, type, default, doc}`; default nil:
--   required), added (whether `op.pointwise` added it)
function op.info(name)
  local schema = type(name) == "string" and registry.find(name)
  if not schema then
    Error.unknown{ func = "op.info", argument = tostring(name), what = "operator",
      names = registry.names(true) }
  end
  local params, gradient = {}, ffi.new("const char *[1]")
  check(C.ty_op_gradient(schema.name, gradient), "op.info")
  for i, p in ipairs(schema.params) do
    params[i] = { name = p.name, type = p.type, default = p.default, doc = p.doc }
  end
  return { name = schema.name, aliases = { unpack(schema.aliases) }, doc = schema.doc,
    inputs = words(schema.inputs), outputs = words(schema.outputs), params = params,
    added = schema.added, gradient = native.text(gradient[0]) }
end


--- Returns the number of operators, and of those that `op.pointwise` added.
-- @treturn table `{total = all, added = at run time}`
function op.count()
  local count = { total = 0, added = 0 }
  for _, name in ipairs(registry.names()) do
    count.total = count.total + 1
    count.added = count.added + (registry.find(name).added and 1 or 0)
  end
  return count
end


local POINTWISE = args.form("op.pointwise", {
  { "name", "text" }, { "args", "list" }, { "formula", "text" }, { "grad", "list?" },
  { "params", "table?" }, { "doc", "text", "" },
})


-- Returns parameters such as {"slope", beta = 1} as text: "slope beta=1".
local function param_text(params)
  local list = {}
  for i, name in ipairs(params or {}) do
    list[i] = name
  end
  for name, value in pairs(params or {}) do
    if type(name) == "string" then
      list[#list + 1] = name .. "=" .. tostring(value)
    end
  end
  return table.concat(list, " ")
end


--- Adds an element-wise operator: `ty.sym.NAME`, `ty.nd.NAME` and the method `x:NAME()`. It is
-- fused like built-in ones. A name that exists is E(name).
-- @tparam table row name; args (names of the inputs, `a b c ...`); formula (of the inputs and `$p`
--   parameters); grad (for each input a formula, in which `y` is the output and `g` the head
--   gradient; at most 6); params (names, or name = default); doc
function op.pointwise(...)
  local a = POINTWISE(...)
  if registry.find(a.name) then
    Error.raise{ code = "name", func = "op.pointwise", argument = a.name,
      message = ("there is an operator '%s' already"):format(a.name) }
  end
  local grad = ffi.new("const char *[8]")
  for i, formula in ipairs(a.grad or {}) do
    if i > 6 or type(formula) ~= "string" then
      Error.raise{ code = type(formula) == "string" and "value" or "type", func = "op.pointwise",
        argument = "grad", got = Error.kind(formula), expected = "at most 6 formulas",
        message = "bad 'grad'" }
    end
    grad[i - 1] = formula
  end
  check(C.ty_op_pointwise(a.name, table.concat(a.args, " "), param_text(a.params), a.formula, grad,
    a.doc), "op.pointwise", { op = a.name })
end


return namespace.close(op, "op", "function")
