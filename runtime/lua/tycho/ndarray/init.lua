--- Arrays: the namespace `ty.nd` and the class `ty.nd.NDArray`.
--
-- Work is queued: a call returns at once, and reading a value (`totable`, `asscalar`, printing,
-- saving) waits and raises failures of the queued work. Axes and element indices count from 0;
-- lists that functions take or return from 1.
--
--     local x = ty.nd.array{{1, 2}, {3, 4}}
--     x[0]                          -- view of row 0            x["0, 1:2"], x[{0, ty.slice(1, 2)}]
--     x[":, 1"] = 7                 -- assignment               x:add_(1)   -- in place
--     (x + 1):sum{axis = 1}         -- operators and methods    ty.nd.exp(x)
--     x.shape, x.dtype, x.context   -- fields                   x:totable()
--
-- The parts: `ndarray.class` (object, fields, scope), `call` (calling operators), `transfer`
-- (numbers in and out), `create`, `math` (arithmetic), `shape` (shapes and copies),
-- `index_key`, `index`, `gather` (keys), `print`, `files`, `operators` (one function per
-- operator), `control` (loops), `random`.
--
-- @module tycho.ndarray

require "tycho.core.luajit"
local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Class = require "tycho.core.class"
local Error = require "tycho.core.error"
local files = require "tycho.ndarray.files"
local gc = require "tycho.core.gc"
local namespace = require "tycho.core.namespace"
local transfer = require "tycho.ndarray.transfer"
local values = require "tycho.core.values"
local variance = require "tycho.op.variance"
local index = require "tycho.ndarray.index"
local create = require "tycho.ndarray.create"
local math_of = require "tycho.ndarray.math"
local native = require "tycho.core.ffi"
local operators = require "tycho.ndarray.operators"
local registry = require "tycho.op.registry"
require "tycho.ndarray.shape"

local nd = { NDArray = class.NDArray, scope = class.scope, save = files.save, load = files.load,
  load_frombuffer = files.load_frombuffer }
local NDArray, fields = class.NDArray, class.fields


-- The class ---------------------------------------------------------------------------------------

setmetatable(NDArray, { __index = Class, __tostring = function()
  return "<class NDArray>"
end, __call = function()
  Error.raise{ code = "type", func = "NDArray",
    message = "arrays are made by ty.nd.array, zeros, empty and operators" }
end })


local function member_names()
  local names = registry.names(true)
  for name in pairs(fields) do
    names[#names + 1] = name:sub(1, 1) ~= "_" and name or nil
  end
  for name in pairs(NDArray) do
    names[#names + 1] = name:sub(1, 1) ~= "_" and name or nil
  end
  return names
end


local function is_name(key)
  return key:find("^[%a_][%w_]*$") and key ~= "None"
end


-- Raises E(type) if a method of a block or of another object is running with the array as `self`:
-- it was called with a dot.
local function check_colon(x)
  for level = 3, 5 do
    local running = debug.getinfo(level, "n")
    if not running then
      return                                             -- the script's own lines are fewer
    end
    local name, value = debug.getlocal(level, 1)
    if name == "self" and rawequal(value, x) then
      local method = running.name or "method"
      Error.raise{ code = "type", func = method, expected = "an object in front of the colon",
        got = Error.kind(x), message = ("methods take a colon: x:%s(...), not x.%s(...)"):format(
          method, method) .. "; a block is called by itself: net(...)" }
    end
  end
end


-- Returns the value of a text key that is not a member so far: an element or slice, nil for a
-- private field, or an operator as method, which becomes a member. Raises E(name) for other names.
local function find_member(x, key)
  if not is_name(key) then
    return index.get(x, key)
  elseif key:sub(1, 1) == "_" then
    return nil                                           -- private fields that are not set
  end
  local method = operators.method(key)
  if not method then
    check_colon(x)
    Error.unknown{ func = "NDArray", argument = key, what = "property or method",
      names = member_names() }
  end
  rawset(NDArray, key, method)
  return method
end


function NDArray.__index(x, key)
  if type(key) ~= "string" then
    return index.get(x, key)
  end
  local value = rawget(NDArray, key)
  if value ~= nil then
    return value
  end
  local field = fields[key]
  if field then
    return field(x, key)
  end
  return find_member(x, key)
end


function NDArray.__newindex(x, key, v)
  if type(key) ~= "string" or not is_name(key) then
    index.set(x, key, v)
  elseif fields[key] or rawget(NDArray, key) ~= nil then
    Error.raise{ code = "state", func = "NDArray", argument = key,
      message = ("'%s' is read-only"):format(key) }
  else
    Error.unknown{ func = "NDArray", argument = key, what = "property", names = member_names() }
  end
end


-- The namespace -----------------------------------------------------------------------------------

for _, part in ipairs{ create, math_of } do
  for name, f in pairs(part) do
    nd[name] = f
  end
end


--- Waits for all devices; raises the first failure that has not been reported.
function nd.waitall()
  gc.finish()
  native.check(native.C.ty_wait(-1), "nd.waitall")
end


--- Returns an array as it is; nested tables and numbers become an array of `dtype` on the CPU (not
-- for users).
-- @param v
-- @string[opt="float32"] dtype
-- @string func for errors
function nd._as_array(v, dtype, func)
  if class.is_array(v) then
    return v
  end
  return transfer.from_table(v, args.DTYPES[dtype or "float32"], func)
end


nd.linalg = operators.namespace("nd.linalg", { "_linalg_" })
nd.image = operators.namespace("nd.image", { "_image_" })
nd.sparse = namespace.refused("nd.sparse", "sparse storage is not part of Tycho")


-- the dtype in which arrays of integers are divided: float32 holds all 8-bit integers exactly
local THROUGH = { uint8 = "float32", int8 = "float32", int32 = "float64", int64 = "float64" }

-- The variance of integers is float32.
variance(nd, NDArray, "array", "nd.", function(x, axes, keepdims)
  local through = THROUGH[x.dtype]
  local result = nd.moments{ through and x:astype(through) or x, axes = axes,
    keepdims = keepdims }[2]
  return through and result:astype("float32") or result
end)


-- Returns `nd.where`. A number as a choice becomes an array of it.
local function where_function()
  local operator = operators.named("where")
  return require("tycho.op.where")(operator, "array", "nd.where", function(like, v, dtype)
    return nd.full{ like.shape, v, dtype = dtype or like.dtype, ctx = like.context }
  end)
end

--- Returns the elements of x where the condition, this array, is not 0, and those of y elsewhere;
-- both may be numbers.
function NDArray.where(condition, x, ...)
  if not values.is_plain(x) then
    return nd.where(condition, x, ...)
  end
  local call = { condition, unpack(x) }
  for key, value in pairs(x) do
    if type(key) == "string" then
      call[key] = value
    end
  end
  return nd.where(call)
end


-- Parts that are loaded on first use, since the collector visits all loaded code.
local PARTS = {}

function PARTS.random()
  return require "tycho.ndarray.random"
end

-- Returns a number as an array of one element on the device of the weight; an array copied there.
local function make_scale(v, weight)
  if type(v) == "number" then
    return nd.full{ { 1 }, v, ctx = weight.context }
  end
  return v:as_in_context(weight.context)
end

function PARTS.contrib()
  local control, zipfian = require "tycho.ndarray.control", require "tycho.op.zipfian"
  local updates = require "tycho.op.updates"
  updates(control, "array", "nd.contrib.", { scale = make_scale, operator = function(name, func)
    return operators.maker(registry.find(name), func)
  end })
  return operators.namespace("nd.contrib", { "_contrib_" },
    zipfian(control, "array", "nd.contrib.", nd.random.uniform))
end

function PARTS.imdecode()
  return require "tycho.ndarray.imdecode"
end

PARTS._imdecode = PARTS.imdecode
PARTS.where = where_function

for _, name in ipairs{ "set_printoptions", "get_printoptions" } do
  PARTS[name] = function()
    return require("tycho.ndarray.print")[name]
  end
end

-- Defines methods that load their module at the first call; the module replaces them by its own
-- functions. If the module was loaded before this file, the methods exist already.
local function load_late(module, names)
  if package.loaded[module] then
    return
  end
  for _, name in ipairs(names) do
    NDArray[name] = function(...)
      require(module)
      return NDArray[name](...)
    end
  end
end

load_late("tycho.ndarray.print", { "__tostring", "text", "summary" })
load_late("tycho.ndarray.gradients", { "attach_grad", "backward" })


local function accepted()
  local names = registry.names(true)
  for name in pairs(PARTS) do
    names[#names + 1] = name:sub(1, 1) ~= "_" and name or nil
  end
  return names
end

local missing = namespace.missing("nd", "operator", nd, accepted)

local function find(_, key)
  local part = PARTS[key]
  local value = part and part() or type(key) == "string" and operators.named(key) or missing(key)
  rawset(nd, key, value)
  return value
end


return setmetatable(nd, { __index = find })
