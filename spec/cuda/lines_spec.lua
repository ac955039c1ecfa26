-- Transposes, running sums, orders of lines and sums of rows that indices name, on a GPU beside the
-- CPU's, on the stand-in whose checker watches every access: lengths around those of warps, blocks
-- and tiles, half types, NaN and -0; in as few launches, and as few bytes, as there can be.

local devices = require "spec.support.devices_agree"

local SCRIPT = devices.COSTS .. [[

-- Compares f(x) on both devices, which may differ by at most `bound` of the greatest number; checks
-- the launches on the GPU, fills among them, and, if `bytes` are given, these.
local function nearly(name, x, f, bound, launches, bytes)
  local lists, n, moved = {}, 0, 0
  for i, ctx in ipairs{here, there} do
    local own = x:as_in_context(ctx)
    ty.waitall()
    costs()
    local y = f(own, ctx)
    ty.waitall()
    for read, written in costs():gmatch("\t(%d+)\t(%d+)\n") do
      n, moved = n + 1, moved + read + written
    end
    lists[i] = y:as_in_context(here):astype("float64"):reshape{-1}:totable()
  end
  local worst, greatest = 0, 1
  for i, a in ipairs(lists[1]) do
    local b = lists[2][i]
    local far = (a == b or a ~= a and b ~= b) and 0 or math.abs(a - b)
    worst = far <= worst and worst or far
    if a == a and a ~= 1 / 0 then greatest = math.max(greatest, math.abs(a)) end
  end
  local good = #lists[1] == #lists[2] and worst / greatest <= bound
  good = good and (not launches or n == launches) and (not bytes or moved == bytes)
  print(name .. " of " .. x.dtype .. " " .. table.concat(x.shape, " x "), good and "equal"
    or ("different: %g, %d launches, %d bytes"):format(worst, n, moved))
end

local BOUND = {float32 = 1e-6, float64 = 1e-14, float16 = 2e-3, bfloat16 = 2e-2}
]]

local TRANSPOSES = SCRIPT .. [[
for _, dtype in ipairs{"float32", "float64", "float16", "uint8"} do
  local size = ({float32 = 4, float64 = 8, float16 = 2, uint8 = 1})[dtype]
  for _, case in ipairs{
    {{33, 65}, {1, 0}}, {{128, 64}, {1, 0}}, {{31, 130}, {1, 0}}, {{2, 33, 40}, {0, 2, 1}},
    {{2, 2}, {1, 0}}, {{1, 40}, {1, 0}}, {{66, 3, 68}, {2, 1, 0}}, {{2, 9, 3, 8}, {0, 3, 2, 1}},
    {{12, 10, 8}, {1, 0, 2}}, {{1, 2, 3}, {2, 0, 1}},
  } do
    local x = (pattern(case[1], here, "float32") * 37 + 40):astype(dtype)
    local moved = 2 * size * x.size
    -- what moves nothing is a copy
    nearly("transpose", x, function(y) return ty.nd.transpose{y, axes = case[2]} end, 0, 1, moved)
  end
end
]]

local SUMS = SCRIPT .. [[
for _, dtype in ipairs{"float32", "float64", "float16", "bfloat16", "int32"} do
  -- rows of a thread each, of a warp each, and in tiles, whose state is filled first
  for _, case in ipairs{
    {{1, 1}, 1, 1}, {{3, 2}, 1, 1}, {{3, 8}, 1, 1}, {{3, 9}, 1, 1}, {{2, 31}, 1, 1},
    {{2, 33}, 1, 1}, {{2, 1024}, 1, 1}, {{2, 1025}, 1, 2}, {{1, 9000}, 1, 2}, {{70, 3}, 0, 1},
    {{1100, 2}, 0, 2}, {{4, 2, 3}, 1, 1},
  } do
    local x = dtype == "int32" and (pattern(case[1], here, "float32") * 37):astype(dtype)
      or pattern(case[1], here, dtype)
    local function sums(y) return ty.nd.cumsum{y, axis = case[2]} end
    nearly("running sums", x, sums, BOUND[dtype] or 0, case[3])
    if dtype == "float16" or dtype == "float32" then
      nearly("their gradients", x, function(y)
        y:attach_grad()
        local z = ty.autograd.record(function() return sums(y) end)
        z:backward(y)
        return y.grad
      end, BOUND[dtype])
    end
  end
end
nearly("running sums as float64", pattern({2, 1032}, here, "float16"), function(y)
  return ty.nd.cumsum{y, axis = 1, dtype = "float64"}
end, 1e-14)
nearly("how often there was one", pattern({2, 50}, here, "float32"), function(y)
  return ty.nd.cumsum{y:gt(0):astype("bool"), axis = 1}
end, 0)
]]

local ORDERS = SCRIPT .. [[
local function values(shape, dtype)
  local x = pattern(shape, here, "float32")
  if not dtype:find "float" then return (x * 37):astype(dtype) end
  x = x:reshape{-1}
  if x.size > 6 then
    x["2:5"] = ty.nd.array({{0 / 0, -0.0, 0}}, here):reshape{3}
    x["6:7"] = 0 / 0
  end
  return x:reshape(shape):astype(dtype)
end

-- Returns how many launches an order takes, of lines of n elements of so many bytes, of which k are
-- asked for.
local function count_launches(n, k, size)
  if n <= 2048 then return 1 end
  return k <= 512 and 2 or 2 + size
end

-- Checks the orders of a type. up: each direction takes kernels of its own.
local function orders(dtype, size, up, shapes)
  for _, shape in ipairs(shapes) do
    local x, axis = values(shape, dtype), shape[2] == 4 and 0 or 1
    local n = shape[axis + 1]
    nearly("argsort", x, function(y)
      return ty.nd.argsort{y, axis = axis, is_ascend = up, dtype = "int32"}
    end, 0, count_launches(n, n, size))
    local k = n > 100 and 7 or 1
    nearly("topk", x, function(y)
      return ty.nd.topk{y, axis = axis, k = k, is_ascend = up, dtype = "int32"}
    end, 0, count_launches(n, k, size))
  end
end

orders("float32", 4, false, {{3, 1}, {3, 2}, {2, 32}, {2, 33}, {75, 4}, {1, 257}, {2, 1025},
  {2, 2049}, {1, 4500}})
orders("float16", 2, true, {{3, 2}, {2, 33}, {2, 2049}})
orders("bfloat16", 2, false, {{2, 33}})
orders("int8", 1, false, {{2, 31}, {2, 2049}})
orders("int64", 8, true, {{2, 33}, {2, 2049}})
nearly("sort", values({2, 1024}, "float64"), function(y) return ty.nd.sort(y) end, 0, 1)
local x = values({2, 2500}, "float32")
nearly("topk 2400", x, function(y) return ty.nd.topk{y, k = 2400, ret_typ = "value"} end, 0, 6)
nearly("topk as mask", x, function(y) return ty.nd.topk{y, k = 300, ret_typ = "mask"} end, 0, 3)
nearly("gradient of topk", x, function(y)
  y:attach_grad()
  local z = ty.autograd.record(function() return ty.nd.topk{y, k = 7, ret_typ = "value"} end)
  z:backward()
  return y.grad
end, 0)
]]

local DUPLICATES = SCRIPT .. [[
-- indices of which many are equal; 33 rows are two chunks, 2100 need passes
for _, case in ipairs{{1, 3}, {2, 3}, {32, 8}, {33, 8}, {70, 200}, {2100, 1}} do
  for _, dtype in ipairs(case[2] == 8 and {"float32", "float16"} or {"float32"}) do
    local n, width = case[1], case[2]
    local list = {}
    for i = 1, n do list[i] = i % 3 == 0 and 4 or i * i % 13 - 1 end
    local g = pattern({n, width}, here, dtype)
    for _, req in ipairs{"write", "add"} do
      local runs = {}
      local function run(head, ctx)
        local net = ty.sym.Embedding{data = ty.sym.Variable("i"), weight = ty.sym.Variable("w"),
          input_dim = 11, output_dim = width}
        local exe = net:simple_bind{ctx = ctx, shapes = {i = {n}, w = {11, width}},
          grad_req = {i = "null", w = req}, type_dict = {w = dtype, i = "float32"}}
        ty.nd.array({list}, here):reshape{n}:copyto(exe.arg_dict.i)
        exe.grad_dict.w[":"] = 1
        exe:forward{is_train = true}
        exe:backward{head}
        return exe.grad_dict.w
      end
      nearly("sums of rows, " .. req, g, run, 3 * BOUND[dtype])
      for i = 1, 2 do
        runs[i] = run(g:as_in_context(there), there):as_in_context(here)
      end
      print("again", ty.nd.abs(runs[1] - runs[2]):max():asscalar() == 0 and "equal" or "different")
    end
  end
end
for axis = 0, 2 do
  nearly("gradient of take", pattern({3, 5, 70}, here, "float32"), function(y, ctx)
    y:attach_grad()
    local i = ty.nd.array({{2, 0, 2, 1, 2, 2, 0, 9}}, here):reshape{8}:as_in_context(ctx)
    local z = ty.autograd.record(function() return ty.nd.take{y, i, axis = axis} * 0.3 end)
    z:backward()
    return y.grad
  end, 1e-6)
end
nearly("gradient of gather_nd", pattern({3, 5, 6}, here, "float32"), function(y, ctx)
  y:attach_grad()
  local list = {}
  for i = 1, 200 do list[i] = i % (i <= 100 and 3 or 2) end
  local i = ty.nd.array({list}, here):reshape{2, 100}:as_in_context(ctx)
  local z = ty.autograd.record(function() return ty.nd.gather_nd{y, i} * 0.3 end)
  z:backward()
  return y.grad
end, 1e-6)
]]

local PACKS = SCRIPT .. [[
local function layer(name, x, options, bound, launches)
  for read = 1, 2 do
    nearly(name .. (read == 2 and ", gradient" or ""), x, function(y, ctx)
      ty.random.seed(7)
      local call = {data = ty.sym.Variable("x")}
      for k, v in pairs(options) do call[k] = v end
      local exe = ty.sym[name](call):simple_bind{ctx = ctx, x = y.shape, type_dict = {x = y.dtype}}
      y:copyto(exe.arg_dict.x)
      local z = exe:forward{is_train = true}[1]
      if read == 1 then return z end
      exe:backward{pattern(z.shape, ctx, z.dtype)}
      return exe.grad_dict.x
    end, bound)
  end
end

for _, dtype in ipairs{"float32", "float16"} do
  -- reduced neighbours, kept ones, and what is no multiple of a pack
  for _, case in ipairs{{{3, 64}, 1}, {{3, 1032}, 1}, {{5, 7}, 1}, {{40, 24}, 0}, {{3, 8, 16}, 1}} do
    local x = pattern(case[1], here, dtype)
    for _, name in ipairs{"sum", "max"} do
      nearly(name, x, function(y) return ty.nd[name]{y, axis = case[2]} end, BOUND[dtype])
    end
  end
  layer("Pooling", pattern({2, 3, 8, 8}, here, dtype), {pool_type = "avg", global_pool = true},
    BOUND[dtype])
  layer("Pooling", pattern({2, 3, 5, 7}, here, dtype), {pool_type = "max", global_pool = true}, 0)
  layer("Pooling", pattern({1, 6, 4, 16}, here, dtype),
    {pool_type = "max", kernel = {2, 2}, stride = {2, 2}, layout = "NHWC"}, 0)
  layer("Dropout", pattern({8, 16}, here, dtype), {p = 0.4}, 0)
  layer("Dropout", pattern({3, 7}, here, dtype), {p = 0.4}, 0)
end
nearly("sum", pattern({2, 65536}, here, "float16"), function(y)
  return ty.nd.sum{y, axis = 0}
end, 2e-3)
]]

describe("lines on a GPU", function()
  it("are transposed in one launch that reads and writes each element once", function()
    devices.agree(pending, TRANSPOSES, 40)
  end)

  it("have running sums, in one launch but for a fill", function()
    devices.agree(pending, SUMS, 86)
  end)

  it("are ordered, equal elements as they come", function()
    devices.agree(pending, ORDERS, 38)
  end)

  it("are reduced, pooled and dropped in packs of 16 bytes", function()
    devices.agree(pending, PACKS, 41)
  end)

  it("are added to rows that many of them name, equally on each run", function()
    devices.agree(pending, DUPLICATES, 36)
  end)
end)
