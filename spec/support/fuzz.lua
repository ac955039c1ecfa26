-- Random calls of operators: each gives a result or an error object. Run by
-- spec/operators/fuzz_spec.lua, or by hand:
--
--   tycho spec/support/fuzz.lua CALLS [SEED [FIRST [TRACE]]]  calls FIRST .. FIRST + CALLS - 1 of a
--                                                             seed
--
-- A call depends only on its seed and number, so FIRST repeats a call that went wrong. Calls are
-- written to the file TRACE before they are made; after a crash the last one is found there. The
-- output ends with one line of counts; the status is 1 after a failure: an error that is not an
-- error object.

package.path = "./?.lua;" .. package.path
local ty = require "tycho"
local is_array = require("tycho.ndarray.class").is_array

-- correct calls: lines of the tables of cases
local cases = {}
for _, name in ipairs{ "spec.operators.cases", "spec.operators.cases_values" } do
  for _, line in ipairs(require(name)) do
    if not (line.options and line.options.imperative) then cases[#cases + 1] = line end
  end
end

local CALLS, SEED, FIRST, TRACE = tonumber(arg[1]) or 1000, tonumber(arg[2]) or 1,
  tonumber(arg[3]) or 1, arg[4]

-- -- chance ---------------------------------------------------------------------------------------

local state
local function step()
  state = (state * 16807) % 2147483647
  return state
end
local function start(i)
  state = (SEED * 1000003 + i * 7919) % 2147483646 + 1
  for _ = 1, 3 do step() end
end
local function whole(a, b) return a + step() % (b - a + 1) end
local function chance(p) return step() / 2147483647 < p end
local function one(list) return list[whole(1, #list)] end

-- Returns a random integer for the table of cases: r(a, b); r() is a number from 0 to 1.
local function r(a, b) return a and whole(a, b) or step() / 2147483647 end

-- -- attributes -----------------------------------------------------------------------------------

-- Extreme sizes. Sizes between small ones and these would only take time.
local FAR = { 2 ^ 31, 2 ^ 31 - 1, -2 ^ 31, 2 ^ 40, -2 ^ 40, 2 ^ 62, -2 ^ 63, 2 ^ 63, 65537 }
local JUNK = { "", "x", "()", "None", "1.5", "nan", "-", "(1,", "[1, 2, 3]", "1e999", "True",
  "(None, 2)", "0x10", "99999999999999999999" }
local DTYPES = { "float32", "float64", "float16", "bfloat16", "uint8", "int8",
  "int32", "int64", "bool" }

local function integer()
  if chance(0.03) then return chance(0.5) and one(FAR) or ("%.0f"):format(one(FAR)) end
  return chance(0.8) and whole(0, 4) or whole(-9, 9)
end

local function number()
  return chance(0.8) and whole(-4, 8) / 4
    or one{ 0, 1e-30, 1e30, -1e30, 1 / 0, -1 / 0, 0 / 0, 3e38, 1e308 }
end

local function list(f, most)
  local t = {}
  for i = 1, whole(0, most) do t[i] = f() end
  return t
end

local function dims()
  if chance(0.5) then
    local t, n = {}, whole(1, 3)
    for i = 1, n do t[i] = whole(chance(0.2) and 0 or 1, 3) end
    return t
  end
  return list(integer, 5)
end

local function value(kind)
  kind = kind:gsub(" or None$", "")
  local words = kind:match("^one of (.*)")
  if chance(0.02) then return one(JUNK) end
  if words then
    local choices = {}
    for word in words:gmatch("[^|]+") do choices[#choices + 1] = word end
    return one(choices)
  end
  if kind:find("^int") then return integer() end
  if kind:find("^float") or kind:find("^double") then return number() end
  if kind:find("^bool") then return chance(0.5) end
  if kind:find("^dtype") then return one(DTYPES) end
  if kind:find("^Shape") then return dims() end
  if kind:find("tuple of floats") then return list(number, 5) end
  if kind:find("tuple of ints") then return list(integer, 5) end
  return one(JUNK)
end

local function attributes(info)
  local t = {}
  for _, p in ipairs(info.params) do
    if chance(p.default == nil and 0.97 or 0.3) then t[p.name] = value(p.type) end
  end
  return t
end

-- -- arrays ---------------------------------------------------------------------------------------

local function rank() return chance(0.9) and whole(1, 4) or whole(1, 9) end

local function shape()
  local s = {}
  for i = 1, rank() do s[i] = chance(0.02) and 0 or chance(0.3) and 1 or whole(1, 5) end
  return s
end

-- Returns the same shape, or one that differs a little.
local function near(s)
  local t = { unpack(s) }
  if chance(0.6) then return t end
  if chance(0.4) then t[whole(1, #t)] = whole(1, 5)
  elseif chance(0.3) then t[#t] = nil
  elseif chance(0.3) then t[#t + 1] = whole(1, 4)
  elseif chance(0.5) then return { t[2] or 1 }
  else return shape() end
  return #t > 0 and t or { 1 }
end

local ODD = { 0, -1, 1e9, -1e9, 1e30, -1e30, 1 / 0, -1 / 0, 0 / 0, 2 ^ 31, -2 ^ 31, 255, 1e-40 }

-- Fills x with small numbers, sometimes with whole ones, like indices, sometimes with special ones
-- among them.
local function fill(x)
  local values, n = {}, x.size
  local indices, odd = chance(0.5), chance(0.3) and 0.2 or 0
  for i = 1, n do
    values[i] = chance(odd) and one(ODD) or indices and whole(-1, 4) or whole(-200, 200) / 100
  end
  ty.nd.array(values, { dtype = "float64" }):astype(x.dtype):reshape(x.shape):copyto(x)
end

local function array(s, dtype)
  local x = ty.nd.zeros(s, { dtype = dtype })
  fill(x)
  return x
end

local function dtype()
  return chance(0.7) and "float32" or one(DTYPES)
end

-- -- calls ----------------------------------------------------------------------------------------

local function make_text(t)
  local parts, keys = {}, {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, k in ipairs(keys) do
    local v = t[k]
    parts[#parts + 1] = (type(k) == "number" and "" or k .. " = ")
      .. (type(v) == "table" and make_text(v) or tostring(v))
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function log_call(i, ...)
  if not TRACE then return end
  local file = assert(io.open(TRACE, "w"))
  file:write("call ", i, ": ", ...)
  file:close()
end

local function wait(outputs)
  for _, x in pairs(is_array(outputs) and { outputs } or outputs or {}) do
    if is_array(x) then x:wait_to_read() end
  end
end

-- Returns the names of an operator's inputs; nil and the parameter that counts them if it takes any
-- number of inputs.
local function ports(info)
  local names = {}
  for _, port in ipairs(info.inputs) do
    local name, count = port:gsub("!", ""):match("^(.-)%*?([%w_]*)$")
    if port:find("*", 1, true) then return nil, port:match("%*([%w_]+)") end
    names[#names + 1] = name .. count
  end
  return names
end

-- Calls an operator on arrays of similar shapes.
local function call_arrays(i, info)
  local names = ports(info)
  local options, s, kind = attributes(info), shape(), dtype()
  local shapes, inputs = {}, {}
  local n = names and math.max(#names - (chance(0.1) and 1 or 0), math.min(#names, 1))
    or whole(1, 4)
  for k = 1, n do
    shapes[k] = k == 1 and s or near(s)
    inputs[k] = array(shapes[k], chance(0.9) and kind or dtype())
  end
  log_call(i, "nd.", info.name, make_text(options), " on ", make_text(shapes), " ", kind)
  for k, v in pairs(options) do inputs[k] = v end
  wait(ty.nd[info.name](inputs))
end

-- Runs an executor forward and backward.
local function run(exe)
  for _, x in ipairs(exe.arg_arrays) do if chance(0.8) then fill(x) end end
  for _, x in ipairs(exe.aux_arrays) do if chance(0.3) then fill(x) end end
  wait(exe:forward{ is_train = chance(0.8) })
  local heads = {}
  for k, y in ipairs(exe.outputs) do heads[k] = array(y.shape, y.dtype) end
  exe:backward(heads)
  wait(exe.grad_arrays)
end

-- Runs a graph of one node; the shapes of some inputs are given, the others are inferred.
local function call_symbol(i, info)
  local names, counter = ports(info)
  local options, s, kind, shapes, types = attributes(info), shape(), dtype(), {}, {}
  local inputs = {}
  if not names then
    names = {}
    for k = 1, whole(1, 4) do names[k] = "in" .. k end
    if counter then options[counter] = nil end
  end
  for k, name in ipairs(names) do
    inputs[k] = ty.sym.Variable(name)
    if k == 1 or chance(0.3) then
      shapes[name], types[name] = k == 1 and s or near(s), chance(0.9) and kind or dtype()
    end
  end
  log_call(i, "sym.", info.name, make_text(options), " on ", make_text(shapes), " ",
    make_text(types))
  for k, v in pairs(options) do inputs[k] = v end
  local symbol = ty.sym[info.name](inputs)
  local spec = { ctx = ty.cpu(), type_dict = types, grad_req = chance(0.9) and "write" or "add" }
  for name, one_shape in pairs(shapes) do spec[name] = one_shape end
  run(symbol:simple_bind(spec))
end

-- Returns another value of a parameter; whole numbers are often extreme, alone or in an otherwise
-- unchanged list.
local function changed(p, was)
  local kind = p.type
  if kind:find("^int") and chance(0.5) then return one(FAR) end
  if type(was) == "table" and #was > 0 and (kind:find("^Shape") or kind:find("ints"))
      and chance(0.5) then
    local t = { unpack(was) }
    t[whole(1, #t)] = one(FAR)
    return t
  end
  return value(kind)
end

-- Makes a correct call from the table of cases with one change.
local function call_case(i)
  local case = one(cases)
  local shapes, params, _, _, fixed = case[2](r)
  local info = ty.op.info(case[1])
  local options, inputs, given, kind = {}, {}, {}, chance(0.5) and "float32" or dtype()
  for k, v in pairs(params) do options[k] = v end
  if chance(0.5) and #info.params > 0 then
    local p = one(info.params)
    options[p.name] = changed(p, options[p.name])
  end
  for k, s in pairs(shapes) do
    local name = type(k) == "number" and "in" .. k or k
    inputs[k] = ty.sym.Variable(name)
    given[name] = chance(0.3) and near(s) or s
    options[k] = nil
  end
  log_call(i, "case ", case[1], make_text(options), " on ", make_text(given), " ", kind)
  local types, req = {}, {}
  for name in pairs(given) do
    types[name], req[name] = kind, fixed and fixed[name] and "null" or "write"
  end
  for k, v in pairs(options) do inputs[k] = v end
  local spec = { ctx = ty.cpu(), type_dict = types, grad_req = req }
  for name, s in pairs(given) do spec[name] = s end
  run(ty.sym[case[1]](inputs):simple_bind(spec))
end

-- -- the loop -------------------------------------------------------------------------------------

local names = {}
for _, name in ipairs(ty.op.list()) do
  if not ty.op.info(name).added then names[#names + 1] = name end
end

local results, errors, failures = 0, 0, 0
for i = FIRST, FIRST + CALLS - 1 do
  start(i)
  local call = one{ call_arrays, call_arrays, call_symbol, call_symbol, call_case }
  local ok, e = pcall(call, i, ty.op.info(one(names)))
  if ok then results = results + 1
  elseif ty.is_error(e) then errors = errors + 1
  else
    failures = failures + 1
    print(("call %d of seed %d: %s"):format(i, SEED, tostring(e)))
  end
end
print(("%d calls, %d results, %d error objects, %d failures")
  :format(CALLS, results, errors, failures))
os.exit(failures == 0 and 0 or 1)
