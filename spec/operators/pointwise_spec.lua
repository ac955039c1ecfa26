-- Element-wise operators against the formulas of spec/operators/cases_pointwise.lua: at
-- numbers, zeros, infinities and NaN, in all floating types, between neighbours that are fused
-- with them, and in integer types.
local attrs = require "tycho.core.attrs"
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local cases = require "spec.operators.cases_pointwise"
require "spec.helper"

local BOUNDS = {float64 = 1e-12, float32 = 1e-6, float16 = 2e-3, bfloat16 = 1e-2}
local LARGEST = {float64 = 1e300, float32 = 1e38, float16 = 65504, bfloat16 = 1e38}

local function agrees(want, got, dtype)
  if want ~= want then return got ~= got end
  if want == got then return true end
  if math.abs(want) > LARGEST[dtype] then return math.abs(got) > LARGEST[dtype] / 4 end
  return math.abs(want - got)
    <= BOUNDS[dtype] * math.max(math.abs(want), dtype == "float64" and 1e-4 or 1e-2)
end

local function check(name, dtype, wants, got, describe_point)
  for i, want in ipairs(wants) do
    if not agrees(want, got[i], dtype) then
      error(("%s in %s at %s: %.17g, expected %.17g")
        :format(name, dtype, describe_point(i), got[i], want), 0)
    end
  end
end

-- Returns the result of the operator alone on arrays, then in an executor with neighbours.
local function evaluations(name, params, inputs)
  local options = {}
  for k, v in pairs(params or {}) do options[k] = v end
  for k, x in ipairs(inputs) do options[k] = x end
  local alone = ty.nd[name](options)
  local spec = {ctx = ty.cpu(), args = {}, grad_req = "null"}
  for k, x in ipairs(inputs) do
    options[k], spec.args["x" .. k] = ty.sym.negative{ty.sym.negative{ty.sym.Variable("x" .. k)}}, x
  end
  local fused = ty.sym.negative{ty.sym.negative{ty.sym[name](options)}}:bind(spec):forward()[1]
  return {arrays.list(alone), arrays.list(fused)}
end

local function in_all_types(name, params, columns, wants)
  for dtype in pairs(BOUNDS) do
    local inputs = {}
    for k, column in ipairs(columns) do
      inputs[k] = ty.nd.array(column, {dtype = "float64"}):astype(dtype)
    end
    for _, got in ipairs(evaluations(name, params, inputs)) do
      check(name, dtype, wants, got, function(i)
        local point = {}
        for k, column in ipairs(columns) do point[k] = tostring(column[i]) end
        return table.concat(point, ", ")
      end)
    end
  end
end

local function squares()
  local a, b = {}, {}
  for _, x in ipairs(cases.grid) do
    for _, y in ipairs(cases.grid) do a[#a + 1], b[#b + 1] = x, y end
  end
  return a, b
end

describe("element-wise operators at numbers, infinities and NaN:", function()
  for _, name in ipairs(attrs.keys(cases.unary)) do
    it(name, function()
      local wants = {}
      for i, a in ipairs(cases.grid) do wants[i] = cases.unary[name](a) end
      in_all_types(name, cases.params[name], {cases.grid}, wants)
    end)
  end
  for _, name in ipairs(attrs.keys(cases.binary)) do
    it(name, function()
      local a, b = squares()
      local wants = {}
      for i in ipairs(a) do wants[i] = cases.binary[name](a[i], b[i]) end
      in_all_types(name, nil, {a, b}, wants)
    end)
  end
  for _, name in ipairs(attrs.keys(cases.scalar)) do
    it(name, function()
      for _, s in ipairs(cases.grid) do
        local wants = {}
        for i, a in ipairs(cases.grid) do wants[i] = cases.scalar[name](a, s) end
        in_all_types(name, {scalar = s}, {cases.grid}, wants)
      end
    end)
  end
end)

-- -- integers -------------------------------------------------------------------------------------

local WHOLE = {int8 = -3, int32 = -3, int64 = -3, uint8 = 0}  -- the least value that is tried
local EXACT = "abs sign negative square relu floor ceil round rint trunc fix _copy zeros_like \z
  ones_like logical_not BlockGrad"
local PAIRS = "add sub mul mod maximum minimum equal not_equal greater greater_equal lesser \z
  lesser_equal logical_and logical_or logical_xor"

local function whole_columns(least)
  local a, b = {}, {}
  for x = least, 3 do
    for y = least, 3 do a[#a + 1], b[#b + 1] = x, y end
  end
  return a, b
end

-- Returns a number as the type stores it: unsigned ones wrap around.
local function stored(v, dtype) return dtype == "uint8" and v % 256 or v end

local function check_whole(name, dtype, a, f, arguments)
  local got = arrays.list(ty.nd[name](arguments))
  for i in ipairs(a) do
    assert.equal(stored(f(i), dtype), got[i], ("%s in %s, element %d"):format(name, dtype, i))
  end
end

describe("element-wise operators on integers:", function()
  for dtype, least in pairs(WHOLE) do
    it(dtype, function()
      local a, b = whole_columns(least)
      local x, y = ty.nd.array(a, {dtype = dtype}), ty.nd.array(b, {dtype = dtype})
      for name in EXACT:gmatch("%S+") do
        check_whole(name, dtype, a, function(i) return cases.unary[name](a[i]) end, {x})
      end
      for name in PAIRS:gmatch("%S+") do
        local f = cases.binary["broadcast_" .. name]
        check_whole("broadcast_" .. name, dtype, a, function(i) return f(a[i], b[i]) end, {x, y})
      end
      for s = 1, 3 do                                     -- scalars are cut to whole numbers first
        check_whole("_plus_scalar", dtype, a, function(i)
          return a[i] + s
        end, {x, scalar = s + 0.7})
        check_whole("_mod_scalar", dtype, a, function(i)
          return cases.binary._mod(a[i], s)
        end, {x, scalar = s})
        check_whole("_div_scalar", dtype, a, function(i)
          return cases.unary.trunc(a[i] / s)
        end, {x, scalar = s})
      end
    end)
  end
end)


describe("gradients of broadcast operands", function()
  -- numbers that half types have: x of 5 in two rows, y of 2 in three columns
  local SUMS = {_npi_fmod = {6, -12}, broadcast_mul = {12, 30}, broadcast_power = {60, nil}}
  for _, dtype in ipairs{"float64", "float32", "float16", "bfloat16"} do
    it("are sums in " .. dtype, function()
      for name, want in pairs(SUMS) do
        local z = ty.sym[name]{lhs = ty.sym.Variable("x"), rhs = ty.sym.Variable("y")}
        local exe = z:simple_bind{ctx = ty.cpu(), grad_req = "write",
          type_dict = {x = dtype, y = dtype}, x = {2, 1}, y = {1, 3}}
        exe.arg_dict.x[{}] = 5
        exe.arg_dict.y[{}] = 2
        exe:forward(true)
        exe:backward(ty.nd.ones{2, 3}:astype(dtype))
        for i, operand in ipairs{"x", "y"} do
          local got = exe.grad_dict[operand]:astype("float64"):sum():asscalar()
          assert.equal(want[i] or got, got, name .. " of " .. operand)
        end
      end
    end)
  end
end)
