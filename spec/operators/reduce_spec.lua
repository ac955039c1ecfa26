-- Reductions of arrays that are large enough to be cut into parts or into wide blocks of columns,
-- against plain loops. Whole numbers, so that every order of addition gives the same bits.

local ty = require "tycho"

-- Returns an array, and its elements from 0.
local function filled(shape, dtype)
  local p, n = {}, shape[1] * shape[2] * shape[3]
  for i = 0, n - 1 do
    p[i] = (i * 7919 + math.floor(i / 13)) % 17 - 5
  end
  local values = {}
  for i = 1, n do
    values[i] = p[i - 1]
  end
  return ty.nd.array{ values, dtype = dtype }:reshape(shape), p
end

-- Returns the sum and the greatest element over the middle axis of outer x middle x inner.
local function looped(p, outer, middle, inner)
  local sums, most = {}, {}
  for o = 0, outer - 1 do
    for c = 0, inner - 1 do
      local s, m = 0, -math.huge
      for r = 0, middle - 1 do
        local v = p[(o * middle + r) * inner + c]
        s, m = s + v, math.max(m, v)
      end
      sums[#sums + 1], most[#most + 1] = s, m
    end
  end
  return sums, most
end

local function same(wanted, got, what)
  assert.are.equal(#wanted, #got, what)
  for i, v in ipairs(wanted) do
    if v ~= got[i] then
      error(("%s, result %d: %.17g instead of %.17g"):format(what, i - 1, got[i], v))
    end
  end
end

describe("large reductions", function()
  for _, s in ipairs{ { 1, 3000, 100 }, { 1, 200, 1031 }, { 1, 101, 4000 }, { 1, 97, 5003 },
      { 1, 40000, 7 }, { 3, 1111, 90 }, { 300, 701, 1 }, { 1, 262144, 1 }, { 2, 9, 20011 } } do
    for _, dtype in ipairs{ "float32", "float64" } do
      it(("over axis 1 of %d x %d x %d, %s"):format(s[1], s[2], s[3], dtype), function()
        local x, p = filled(s, dtype)
        local sums, most = looped(p, unpack(s))
        same(sums, ty.nd.sum{ x, axis = 1 }:reshape{ -1 }:totable(), "sum")
        same(most, ty.nd.max{ x, axis = 1 }:reshape{ -1 }:totable(), "max")
        local total = 0
        for _, v in ipairs(sums) do
          total = total + v
        end
        same({ total }, ty.nd.sum(x):totable(), "sum of all")
      end)
    end
  end

  -- Types whose elements become int64 a part at a time: results are int64's, cut to the type.
  for _, dtype in ipairs{ "uint8", "int8", "int32", "bool" } do
    for _, s in ipairs{ { 1, 1, 1 }, { 1, 2, 2 }, { 2, 5000, 1 }, { 3, 700, 5 },
        { 1, 9, 5003 } } do
      it(("of %s, %d x %d x %d, are those of int64"):format(dtype, unpack(s)), function()
        local x = filled(s, "int64"):astype(dtype)
        local wide = x:astype("int64")
        for _, name in ipairs{ "sum", "nansum", "prod", "max", "min", "_square_sum" } do
          local got = ty.nd[name]{ x, axis = 1 }
          local wanted = ty.nd[name]{ wide, axis = 1 }:astype(got.dtype)
          same(wanted:reshape{ -1 }:totable(), got:reshape{ -1 }:totable(), name)
        end
        for _, name in ipairs{ "argmax", "argmin" } do
          same(ty.nd[name]{ wide, axis = 1, dtype = "int64" }:reshape{ -1 }:totable(),
            ty.nd[name]{ x, axis = 1, dtype = "int64" }:reshape{ -1 }:totable(), name)
        end
      end)
    end
  end

  it("add to what is there", function()
    local x, p = filled({ 1, 2000, 130 }, "float32")
    local sums = looped(p, 1, 2000, 130)
    local exe =
      ty.sym.sum{ ty.sym.Variable("x"), axis = 1 }:bind{ ctx = ty.cpu(), args = { x = x } }
    same(sums, exe:forward(false)[1]:reshape{ -1 }:totable(), "sum")
    local y = ty.sym.broadcast_to{ ty.sym.Variable("v"), shape = { 1, 2000, 130 } }
    local grad = ty.nd.ones{ 1, 1, 130 }
    local back = y:bind{ ctx = ty.cpu(), args = { v = ty.nd.zeros{ 1, 1, 130 } },
      args_grad = { v = grad }, grad_req = "add" }
    back:forward(true)
    back:backward(x)
    local got = grad:reshape{ -1 }:totable()
    for i, v in ipairs(sums) do
      sums[i] = v + 1
    end
    same(sums, got, "gradient")
  end)
end)
