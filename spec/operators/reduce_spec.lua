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

  -- Of these types they are those of int64, cut to the type. Loops of bytes have vectors of 16, 32
  -- or 64, sums of at most 32,768 elements in 32 bits, rows that are counted up to 256.
  local function numbers(x) return x:reshape{ -1 }:totable() end

  -- Returns what an integer mean makes of sums in its type.
  local function divided(sums, count)
    local p = numbers(sums)
    for i, v in ipairs(p) do
      p[i] = v < 0 and math.ceil(v / count) or math.floor(v / count)
    end
    return p
  end

  local function compare_reductions(x, wide, count)
    for _, name in ipairs{ "sum", "nansum", "prod", "nanprod", "max", "min", "_square_sum" } do
      local got = ty.nd[name]{ x, axis = 1 }
      same(numbers(ty.nd[name]{ wide, axis = 1 }:astype(got.dtype)), numbers(got), name)
    end
    for _, name in ipairs{ "argmax", "argmin" } do
      same(numbers(ty.nd[name]{ wide, axis = 1, dtype = "int64" }),
        numbers(ty.nd[name]{ x, axis = 1, dtype = "int64" }), name)
    end
    if x.dtype == "bool" then return end
    for ord = 1, 2 do
      same(numbers(ty.nd.norm{ wide, axis = 1, ord = ord }:astype(x.dtype)),
        numbers(ty.nd.norm{ x, axis = 1, ord = ord }), "norm")
    end
    local mean, variance = unpack(ty.nd.moments{ x, axes = { 1 }, keepdims = true })
    same(divided(ty.nd.sum{ x, axis = 1 }, count), numbers(mean), "mean")
    local apart = ty.nd.broadcast_sub{ wide, mean:astype("int64") }
    same(divided(ty.nd.sum{ apart * apart, axis = 1 }:astype(x.dtype), count),
      numbers(variance), "variance")
  end

  local shapes = { { 1, 1, 1 }, { 1, 2, 2 }, { 7, 15, 1 }, { 7, 16, 1 }, { 5, 33, 1 },
    { 5, 129, 1 }, { 2, 5000, 1 }, { 2, 70000, 1 }, { 3, 700, 5 }, { 2, 300, 10 }, { 2, 200, 63 },
    { 2, 70, 77 }, { 3, 9, 64 }, { 1, 600, 200 }, { 1, 9, 5003 }, { 1, 600000, 2 } }
  for _, dtype in ipairs{ "uint8", "int8", "int32", "bool" } do
    for _, s in ipairs(shapes) do
      it(("of %s, %d x %d x %d, are those of int64"):format(dtype, unpack(s)), function()
        local n = s[1] * s[2] * s[3]
        local few = filled(s, "int64")
        local bytes = (ty.nd.arange{ 0, n, dtype = "int64" } * 7919 % 251 - 128):reshape(s)
        local least = ty.nd.full{ shape = s, val = -128, dtype = "int64" }
        for _, values in ipairs{ few, bytes, least } do
          local x = values:astype(dtype)
          compare_reductions(x, x:astype("int64"), s[2])
        end
      end)
    end
  end

  for _, dtype in ipairs{ "uint8", "int8", "int32" } do
    for _, s in ipairs{ { 1, 1, 1 }, { 3, 4, 5 }, { 70, 3, 1 }, { 2, 3, 2500 }, { 2, 2500, 1 },
        { 3000, 2, 1 } } do
      it(("of %s, %d x %d x %d, have gradients of int64"):format(dtype, unpack(s)), function()
        local x = filled(s, "int64")
        x = dtype == "uint8" and ty.nd.abs(x % 3) or x % 5 - 2
        for _, name in ipairs{ "sum", "mean", "nansum", "prod", "nanprod", "max", "min", "norm",
            "_square_sum" } do
          local got = {}
          for _, type in ipairs{ dtype, "int64" } do
            local out = ty.sym[name]{ ty.sym.Variable("x"), axis = 1, keepdims = true }
            local grad = ty.nd.zeros{ shape = s, dtype = type }
            local exe = out:bind{ ctx = ty.cpu(), args = { x = x:astype(type) },
              args_grad = { x = grad } }
            exe:forward(true)
            exe:backward(ty.nd.full{ shape = { s[1], 1, s[3] }, val = 7, dtype = type })
            got[type] = grad
          end
          same(numbers(got.int64:astype(dtype)), numbers(got[dtype]), name)
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
