--- How gradients of operators are computed by other operators: `rules.find(op)` gives one of two
-- kinds of functions of a step (see `autograd.higher`).
--
-- - A rule returns the gradients by input; what is not there is zero.
-- - An expansion returns outputs that have the operator's derivatives (constants may differ), made
--   of the step's inputs by other operators; their gradients are walked in turn.
--
-- @module tycho.autograd.rules

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local formula = require "tycho.autograd.rules.formula"
local registry = require "tycho.op.registry"

local C, check = native.C, native.check

local rules = {}

local FAMILIES = {                       -- the first one that knows an operator counts
  require "tycho.autograd.rules.plain", require "tycho.autograd.rules.linear",
  require "tycho.autograd.rules.elementwise", require "tycho.autograd.rules.reduction",
  require "tycho.autograd.rules.normalization", require "tycho.autograd.rules.index",
  require "tycho.autograd.rules.linalg", require "tycho.autograd.rules.vision",
  require "tycho.autograd.rules.loss",
}

-- Operators ---------------------------------------------------------------------------------------

local text = ffi.new("const char *[1]")

local function description(op)
  check(C.ty_op_gradient(op, text))
  return native.text(text[0])
end


local function pass_on(s)
  local grads = {}
  for i in ipairs(s.x) do
    grads[i] = s.wanted[i] and s.g[1] or nil
  end
  return grads
end


local known = {}                         -- name -> { rule, expansion, zero, loss }

local function look_up(op)
  local found, how = {}, description(op)
  local texts = formula.texts(how)
  for _, family in ipairs(FAMILIES) do
    found.rule = found.rule or family.rules and family.rules[op]
    found.expand = found.expand or family.expansions and family.expansions[op]
  end
  if not found.expand then
    found.rule = found.rule or texts and formula.rule(texts)
      or how == "the head gradient itself" and pass_on or nil
  end
  found.zero = how == "zero"
  found.loss = registry.find(op).is_loss
  return found
end


local function row(op)
  known[op] = known[op] or look_up(op)
  return known[op]
end


--- Returns the rule or the expansion of an operator; both nil: there is none.
function rules.find(op)
  return row(op).rule, row(op).expand
end


--- Returns whether no gradient goes through an operator. op nil: a function of Lua.
function rules.is_zero(op)
  return op ~= nil and row(op).zero
end


--- Returns whether an operator has gradients where no head gradient comes.
function rules.is_loss(op)
  return op ~= nil and row(op).loss
end


-- Parameters --------------------------------------------------------------------------------------

-- operators whose numbers are rounded to single precision, as files of the reference have them
local SINGLE = { LeakyReLU = true, hard_sigmoid = true, clip = true, _contrib_quadratic = true }

local CONSTANTS = { True = true, ["true"] = true, False = false, ["false"] = false }


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


--- Returns the parameters of an operator as values: numbers, booleans, lists, texts; nil for None.
function rules.parameters(op, attrs)
  local p = {}
  for _, param in ipairs(registry.find(op).params) do
    local v = parse_value(param.type, attrs[param.name] or param.default)
    p[param.name] = SINGLE[op] and type(v) == "number" and tonumber(ffi.cast("float", v)) or v
  end
  return p
end


--- Returns a parameter as formulas read it: of a choice its position, of a boolean 0 or 1.
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
