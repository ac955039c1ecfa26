--- Gradients of element-wise operators from the core's formulas (native/op/formula.h), which
-- `ty.op.info(op).gradient` shows. They are computed by calls on arrays, so they can be recorded.
--
-- @module tycho.autograd.rules.formula

local Error = require "tycho.core.error"
local class = require "tycho.ndarray.class"
local nd = require "tycho.ndarray"
local pairs = require("tycho.core.iterate").pairs

local is_array = class.is_array

local formula = {}

-- Functions ---------------------------------------------------------------------------------------

-- Returns a function that applies `on_array` to an array and `on_number` to a number.
local function make_unary(on_array, on_number)
  return function(x)
    return is_array(x) and on_array(x) or not is_array(x) and on_number(x)
  end
end


-- Returns the distribution function of the normal distribution at an array. Below -1, where 1 +
-- erf(x) cancels, it is computed as gelu(x) / x.
local function normcdf(x)
  local low = nd.minimum(x, -1)
  return nd.where(nd.lesser(x, -1), nd.LeakyReLU{ low, act_type = "gelu" } / low,
    0.5 * (1 + nd.erf(x * math.sqrt(0.5))))
end


local function fill_like(v, like)
  return is_array(v) and v or nd.ones_like(like) * v
end


local function select_where(condition, yes, no)
  if not is_array(condition) then
    return condition ~= 0 and yes or no
  end
  local shape = nd.zeros_like(condition + yes * 0 + no * 0)
  return nd.where(condition + shape, fill_like(yes, shape) + shape, fill_like(no, shape) + shape)
end


-- Functions of formulas whose operator has another name, or that need several operators.
local FUNCTIONS = {
  step = function(x) return nd.greater(x, 0) end,
  isnan = function(x) return nd.not_equal(x, x) end,
  isreal = function() return 1 end,
  isinf = function(x) return nd.equal(nd.abs(x), 1 / 0) end,
  isfinite = function(x) return nd.lesser(nd.abs(x), 1 / 0) end,
  softrelu = function(x) return nd.Activation{ x, act_type = "softrelu" } end,
  neg = function(x) return -x end,
  max = nd.maximum, min = nd.minimum, pow = nd.power, hypot = nd.hypot, xor = nd.logical_xor,
  mod = nd.modulo,
  clip = function(x, low, high) return nd.maximum(nd.minimum(x, high), low) end,
  where = select_where,
  square = function(x) return x * x end,
  sqrt = make_unary(nd.sqrt, math.sqrt), exp = make_unary(nd.exp, math.exp),
  log = make_unary(nd.log, math.log),
  abs = make_unary(nd.abs, math.abs), floor = make_unary(nd.floor, math.floor),
  asin = nd.arcsin, acos = nd.arccos, atan = nd.arctan,
  asinh = nd.arcsinh, acosh = nd.arccosh, atanh = nd.arctanh,
  lgamma = nd.gammaln, tgamma = nd.gamma, fabs = nd.abs, sign = nd.sign, normcdf = normcdf,
}
FUNCTIONS.select = FUNCTIONS.where

local INFIX = {
  { "||", 1, nd.logical_or }, { "&&", 2, nd.logical_and }, { "==", 3, nd.equal },
  { "!=", 3, nd.not_equal }, { "<=", 4, nd.lesser_equal }, { ">=", 4, nd.greater_equal },
  { "<", 4, nd.lesser }, { ">", 4, nd.greater },
  { "+", 5, function(a, b) return a + b end }, { "-", 5, function(a, b) return a - b end },
  { "*", 6, function(a, b) return a * b end }, { "/", 6, function(a, b) return a / b end },
}

local CONSTANTS = { pi = math.pi, inf = 1 / 0, nan = 0 / 0 }


-- Reading -----------------------------------------------------------------------------------------

-- Parses a formula to a function of env, a table of the values of letters and parameters ("$name").
-- The grammar is that of native/pointwise/parse.c.
local Parser = {}
Parser.__index = Parser


function Parser:take(pattern)
  local found, rest = self.text:match("^%s*(" .. pattern .. ")()", self.at)
  self.at = rest or self.at
  return found
end


function Parser:expect(pattern)
  return self:take(pattern) or Error.raise{ code = "internal", func = "autograd.grad",
    message = ("cannot read the formula '%s' at %d"):format(self.text, self.at) }
end


function Parser:arguments()
  local list = {}
  repeat
    list[#list + 1] = self:either()
  until not self:take(",")
  self:expect("%)")
  return list
end


function Parser:call(name)
  local f, args = FUNCTIONS[name] or nd[name], self:arguments()
  return function(env)
    local values = {}
    for i, arg in ipairs(args) do
      values[i] = arg(env)
    end
    return f(unpack(values))
  end
end


function Parser:atom()
  if self:take("%(") then
    local inner = self:either()
    self:expect("%)")
    return inner
  end
  local name = self:take("%$[%w_]+") or self:take("%l%f[^%w_]") or self:take("%a[%w_]*")
  local constant = CONSTANTS[name] or not name and tonumber((self:take("[%d.]+[eE][+-]?%d+")
    or self:expect("[%d.]+")))
  if constant then
    return function() return constant end
  elseif #name > 1 and name:sub(1, 1) ~= "$" and self:take("%(") then
    return self:call(name)
  end
  return function(env) return env[name] end
end


function Parser:unary()
  if self:take("%-") then
    local x = self:unary()
    return function(env) return -x(env) end
  elseif self:take("!%f[^!=]") then
    local x = self:unary()
    return function(env) return nd.equal(x(env), 0) end
  end
  return self:atom()
end


function Parser:binary(above)
  local left = self:unary()
  while true do
    local row
    for _, r in ipairs(INFIX) do
      row = row or self.text:match("^%s*" .. r[1]:gsub("%p", "%%%0"), self.at) and r
    end
    if not row or row[2] <= above then
      return left
    end
    self:expect((row[1]:gsub("%p", "%%%0")))
    local a, b, f = left, self:binary(row[2]), row[3]
    left = function(env) return f(a(env), b(env)) end
  end
end


function Parser:either()
  local condition = self:binary(0)
  if not self:take("%?") then
    return condition
  end
  local yes = self:either()
  self:expect(":")
  local no = self:either()
  return function(env)
    local c = condition(env)
    if not is_array(c) then                              -- computes only the chosen branch
      return c ~= 0 and yes(env) or no(env)
    end
    return select_where(c, yes(env), no(env))
  end
end


function Parser:formula()
  local assigned = {}
  local letter = self:take("%l%s*=%f[^=]")
  while letter do
    assigned[#assigned + 1] = { letter:sub(1, 1), self:either() }
    self:expect(";")
    letter = self:take("%l%s*=%f[^=]")
  end
  local result = self:either()
  return function(env)
    env = setmetatable({}, { __index = env })
    for _, a in ipairs(assigned) do
      env[a[1]] = a[2](env)
    end
    return result(env)
  end
end


local parsed = {}                        -- text -> function

--- Returns a formula as a function of its letters and parameters. One that cannot be parsed is
-- E(internal).
-- @string text
-- @treturn function of a table: "a" to "f", "y", "g" and "$name" -> array or number
function formula.read(text)
  parsed[text] = parsed[text] or setmetatable({ text = text, at = 1 }, Parser):formula()
  return parsed[text]
end


-- As rules ----------------------------------------------------------------------------------------

-- Metatable of the env of a step, { step = s }: looks up letters and parameters in the step. All
-- steps share it, since a LuaJIT trace keeps the function that it finds there, with its upvalues.
local Environment = {}


function Environment.__index(env, name)
  local s = rawget(env, "step")
  if name == "g" then
    return s.g[1]
  elseif name == "y" then
    return s.y[1]
  elseif name:sub(1, 1) == "$" then
    return s:number(name:sub(2))
  end
  return s.x[name:byte() - ("a"):byte() + 1]
end


-- Returns whether a formula calls digamma, for which no operator exists.
local function reads_digamma(text)
  return text:find("%f[%w_]digamma%f[^%w_]") or text:find("%f[%w_]psi%f[^%w_]")
end


--- Returns the rule of an element-wise operator.
-- @tparam {string,...} texts formulas of gradients by input; an empty one means zero
-- @treturn function a rule
function formula.rule(texts)
  return function(s)
    local env, grads = setmetatable({ step = s }, Environment), {}
    for i, text in pairs(texts) do
      if s.wanted[i] and reads_digamma(text) then
        s:unsupported("create_graph: the gradient reads digamma, which is no operator")
      elseif s.wanted[i] and text ~= "" then
        grads[i] = s:reduced(fill_like(formula.read(text)(env), s.x[i]), i)
      end
    end
    return grads
  end
end


--- Returns the formulas of gradients by input, from the core's text: "a: g * b; b: g * a".
-- @string description
-- @treturn ?{string,...} nil if the text has no formulas
function formula.texts(description)
  if not description:find("^%l: ") then
    return nil
  end
  local texts, at = {}, 1
  while at do
    local letter, start = description:match("^(%l): ()", at)
    local stop, following = description:find("; %l: ", start)
    texts[letter:byte() - ("a"):byte() + 1] = description:sub(start, stop and stop - 1)
    at = following and stop + 2
  end
  return texts
end


return formula
