--- Gradients of operators expressed by other operators. `rules.find(op)` returns one of two kinds
-- of functions, both called with a step (Visit of `autograd.higher`).
--
-- - A rule returns the gradients by input; a missing one is zero.
-- - An expansion computes the outputs from the step's inputs by other operators, up to constants,
--   and returns them; their gradients are then computed in the same way.
--
-- @module tycho.autograd.rules

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local formula = require "tycho.autograd.rules.formula"
local registry = require "tycho.op.registry"

local C, check = native.C, native.check

local rules = {}

local FAMILIES = {                       -- searched in this order
  require "tycho.autograd.rules.plain", require "tycho.autograd.rules.linear",
  require "tycho.autograd.rules.elementwise", require "tycho.autograd.rules.reduction",
  require "tycho.autograd.rules.normalization", require "tycho.autograd.rules.index",
  require "tycho.autograd.rules.linalg", require "tycho.autograd.rules.vision",
  require "tycho.autograd.rules.loss",
}

-- Operators ---------------------------------------------------------------------------------------

local text = ffi.new("const char *[1]")

-- Returns the core's description of an operator's gradient: formulas, or words such as "zero".
local function describe_gradient(op)
  check(C.ty_op_gradient(op, text))
  return native.text(text[0])
end


-- Rule of operators for which the gradient of each input is the head gradient.
local function pass_gradient(s)
  local grads = {}
  for i in ipairs(s.x) do
    grads[i] = s.wanted[i] and s.g[1] or nil
  end
  return grads
end


local known = {}                         -- name of an operator -> its row

-- Returns a new row: rule and expand may be nil; zero: whether the gradients are always zero; loss:
-- whether there are gradients without head gradients.
local function look_up_operator(op)
  local found, how = {}, describe_gradient(op)
  local texts = formula.texts(how)
  for _, family in ipairs(FAMILIES) do
    found.rule = found.rule or family.rules and family.rules[op]
    found.expand = found.expand or family.expansions and family.expansions[op]
  end
  if not found.expand then
    found.rule = found.rule or texts and formula.rule(texts)
      or how == "the head gradient itself" and pass_gradient or nil
  end
  found.zero = how == "zero"
  found.loss = registry.find(op).is_loss
  return found
end


-- Returns { rule, expand, zero, loss } of an operator; each operator is looked up once.
local function get_row(op)
  known[op] = known[op] or look_up_operator(op)
  return known[op]
end


--- Returns the rule or the expansion of an operator; both are nil if there is none.
-- @string op name
-- @treturn ?function rule
-- @treturn ?function expansion
function rules.find(op)
  return get_row(op).rule, get_row(op).expand
end


--- Returns whether the gradients of an operator are always zero.
-- @tparam ?string op name; nil: a function of Lua
function rules.is_zero(op)
  return op ~= nil and get_row(op).zero
end


--- Returns whether an operator has gradients without head gradients, as losses do.
-- @tparam ?string op name; nil: a function of Lua
function rules.is_loss(op)
  return op ~= nil and get_row(op).loss
end


-- Parameters --------------------------------------------------------------------------------------

-- Operators whose parameters are rounded to float32, as in the reference.
local SINGLE = { LeakyReLU = true, hard_sigmoid = true, clip = true, _contrib_quadratic = true }

local CONSTANTS = { True = true, ["true"] = true, False = false, ["false"] = false }


-- Returns the value of a parameter's text; nil for None. kind: its type in the registry.
local function parse_value(kind, v)
  if v == nil or v == "None" then
    return nil
  elseif kind:find("^boolean") then
    return v == "1" or CONSTANTS[v] == true
  elseif kind:find("tuple", 1, true) then
    local list = {}
    for number in v:gmatch("[^%s,()%[%]]+") do
      list[#list + 1] = tonumber(number) or nil
    end
    return list
  end
  return tonumber(v) or v
end


--- Returns the parameters of an operator as values: numbers, booleans, lists, strings; nil for
-- None.
-- @string op name
-- @tparam table attrs strings by name; missing ones have their defaults
-- @treturn table values by name
function rules.parameters(op, attrs)
  local p = {}
  for _, param in ipairs(registry.find(op).params) do
    local v = parse_value(param.type, attrs[param.name] or param.default)
    p[param.name] = SINGLE[op] and type(v) == "number" and tonumber(ffi.cast("float", v)) or v
  end
  return p
end


--- Returns the value of a parameter as formulas use it: a choice as its position, from 0, a boolean
-- as 0 or 1.
function rules.number(op, name, v)
  if type(v) == "boolean" then
    return v and 1 or 0
  end
  local choices = registry.find(op).by_name[name].type:match("^one of (%S+)")
  local position = 0
  for choice in (choices or ""):gmatch("[^|]+") do
    if choice == v then
      return position
    end
    position = position + 1
  end
  return v
end


return rules
