-- contrib.attention on a GPU beside the CPU's, values and gradients, on the stand-in whose checker
-- watches every access: every input, layout and packing, tiles of all shapes, few queries.

local devices = require "spec.support.devices_agree"

local SCRIPT = devices.SCRIPT .. [[
local sym = ty.sym
local BOUND = {float32 = 5e-6, float64 = 1e-12, float16 = 4e-3, bfloat16 = 3e-2}

-- Returns the output and the gradients of a step. how, may be nil: `round`: the type that inputs
-- and head gradient are rounded to, `sizes`: what they are multiplied by, by name.
local function step(ctx, shapes, options, dtype, req, how)
  how = how or {}
  local sizes = how.sizes or {}
  local names, types, given = {}, {}, {}
  for name in pairs(shapes) do
    names[#names + 1] = name
    local whole = name == "valid_length" or name == "offset" or name == "mask"
    types[name] = whole and "int32" or dtype
    given[name] = req and req[name] or whole and "null" or "write"
  end
  table.sort(names)
  local inputs = {}
  for k, v in pairs(options) do inputs[k] = v end
  for _, name in ipairs(names) do inputs[name] = sym.Variable(name) end
  local net = options.written and options.written(inputs) or sym.contrib.attention(inputs)
  local exe = net:simple_bind{ctx = ctx, shapes = shapes,
    type_dict = types, grad_req = given}
  for k, name in ipairs(names) do
    local x = exe.arg_dict[name]
    local n = x.size + 3 * k
    local values = pattern({n}, here, "float64"):slice{begin = {3 * k}, ["end"] = {n}}
    if name == "valid_length" or name == "offset" then values = ty.nd.abs(values) * 5 end
    if name == "mask" then values = values:gt(-0.5) end
    if types[name] == dtype then
      values = (values * (sizes[name] or 1)):astype(how.round or dtype)
    end
    values:reshape(x.shape):astype(x.dtype):copyto(x)
  end
  ty.random.seed(3)
  exe:forward(true)
  local y = exe.outputs[1]
  local head = ty.nd.square(pattern(y.shape, here, "float64")) - 0.5
  head = (head * (sizes.head or 1)):astype(how.round or dtype)
  exe:backward(head:astype(dtype):as_in_context(ctx))
  local out = {y}
  for _, name in ipairs(names) do
    if given[name] == "write" then out[#out + 1] = exe.grad_dict[name] end
  end
  return out, exe:program()
end

local function nearly(name, shapes, options, dtype, req)
  dtype = dtype or "float32"
  local mine = step(here, shapes, options, dtype, req)
  local theirs, program = step(there, shapes, options, dtype, req)
  local worst = farthest(mine, theirs)
  local runs = not program:find("on the host", 1, true)
    and (program:find("  tiles  ", 1, true) ~= nil) == (options.stays == nil)
  print(name, worst <= BOUND[dtype] and runs and "equal"
    or ("different: %g%s"):format(worst, runs and "" or ", by other steps"))
end

-- Compares half types on the GPU with float64 on the CPU, of the same rounded numbers: each array
-- to a share of its largest element.
local function exactly(name, shapes, options, sizes)
  for _, dtype in ipairs{"float16", "bfloat16"} do
    local mine = step(here, shapes, options, "float64", nil, {round = dtype, sizes = sizes})
    local theirs = step(there, shapes, options, dtype, nil, {sizes = sizes})
    local worst = farthest(mine, theirs)
    print(name .. ", " .. dtype, worst <= BOUND[dtype] and "equal" or "different: " .. worst)
  end
end

local function three(n, tq, tk, heads, kv, d, dv)
  return {query = {n, tq, heads * d}, key = {n, tk, kv * d}, value = {n, tk, kv * dv}}
end
local function with(shapes, more)
  for k, v in pairs(more) do shapes[k] = v end
  return shapes
end

nearly("plain", three(2, 37, 45, 2, 2, 8, 8), {heads = 2})
nearly("odd sizes", three(1, 33, 40, 2, 2, 5, 3), {heads = 2})
nearly("grouped, causal", three(2, 20, 41, 4, 2, 8, 12), {heads = 4, kv_heads = 2, causal = true})
nearly("window", three(1, 40, 40, 1, 1, 4, 4), {heads = 1, window = 6})
nearly("causal window, offset", with(three(2, 12, 40, 1, 1, 4, 4), {offset = {2}}),
  {heads = 1, causal = true, window = 9})
nearly("lengths", with(three(2, 12, 40, 1, 1, 4, 4), {valid_length = {2}}), {heads = 1})
nearly("mask", with(three(2, 12, 20, 2, 2, 4, 4), {mask = {2, 1, 12, 20}}), {heads = 2})
nearly("bias", with(three(2, 12, 20, 2, 2, 4, 4), {bias = {1, 2, 1, 20}}), {heads = 2}, nil,
  {bias = "null"})
nearly("few queries", three(2, 3, 70, 2, 1, 8, 8), {heads = 2, kv_heads = 1})
nearly("one query", three(1, 1, 70, 2, 2, 8, 8), {heads = 2, scale = 0.7})
nearly("wide heads", three(1, 20, 20, 1, 1, 96, 100), {heads = 1})
nearly("float64", three(1, 20, 20, 1, 1, 40, 40), {heads = 1}, "float64")
nearly("float16", three(1, 20, 20, 2, 2, 16, 16), {heads = 2}, "float16")
nearly("float16, few queries", three(1, 4, 20, 2, 2, 16, 16), {heads = 2}, "float16")
nearly("float16, tiles", three(1, 70, 150, 2, 1, 24, 40),
  {heads = 2, kv_heads = 1, causal = true}, "float16")
nearly("float16, odd sizes", three(2, 17, 33, 1, 1, 5, 3), {heads = 1, scale = 0.7}, "float16")
nearly("float16, widest heads", three(1, 9, 20, 1, 1, 128, 128), {heads = 1}, "float16")
nearly("bfloat16", three(1, 20, 70, 2, 2, 16, 16), {heads = 2, window = 30}, "bfloat16")
nearly("bfloat16, lengths, a mask and a bias", with(three(2, 12, 20, 2, 2, 8, 8),
  {valid_length = {2}, mask = {2, 1, 12, 20}, bias = {1, 2, 1, 20}}), {heads = 2}, "bfloat16",
  {bias = "null"})
nearly("float16, dropout", three(1, 20, 24, 2, 2, 16, 16), {heads = 2, dropout = 0.4}, "float16")
nearly("packed", {query_key_value = {20, 2, 2 * 3 * 4}},
  {heads = 2, layout = "TNC", packed = "qkv"})
nearly("keys with values", {query = {2, 9, 2 * 4}, key_value = {2, 20, 2 * 2 * 4}},
  {heads = 2, packed = "kv"})
nearly("heads first", {query = {2, 3, 9, 4}, key = {2, 3, 20, 4}, value = {2, 3, 20, 4}},
  {layout = "NHTC"})
nearly("dropout", three(1, 20, 24, 2, 2, 4, 4), {heads = 2, dropout = 0.4})

exactly("two tiles", three(2, 130, 70, 1, 1, 32, 16), {heads = 1})
exactly("causal, grouped", three(1, 70, 90, 4, 2, 16, 24), {heads = 4, kv_heads = 2, causal = true})
exactly("a window", three(1, 90, 90, 1, 1, 16, 16), {heads = 1, window = 9})
exactly("a causal window, offset", with(three(2, 20, 80, 1, 1, 8, 8), {offset = {2}}),
  {heads = 1, causal = true, window = 11})
exactly("lengths", with(three(2, 30, 70, 2, 1, 8, 16), {valid_length = {2}}),
  {heads = 2, kv_heads = 1})
exactly("a mask", with(three(2, 20, 40, 2, 2, 8, 8), {mask = {2, 1, 20, 40}}), {heads = 2})
exactly("odd sizes", three(2, 17, 33, 1, 1, 5, 3), {heads = 1, scale = 0.7})
exactly("widest heads", three(1, 20, 70, 1, 1, 128, 128), {heads = 1, scale = 0.03})
exactly("heads of 100", three(1, 70, 20, 1, 1, 100, 36), {heads = 1})
exactly("packed", {query_key_value = {20, 2, 2 * 3 * 16}},
  {heads = 2, layout = "TNC", packed = "qkv"})
exactly("heads first", {query = {2, 3, 9, 8}, key = {2, 3, 20, 8}, value = {2, 3, 20, 8}},
  {layout = "NHTC"})
-- slopes that float16 has no numbers for, whose sum it has
exactly("tiny slopes", three(1, 20, 600, 1, 1, 16, 16), {heads = 1, scale = 0.05},
  {query = 5e-4, key = 2000, head = 2e-5})

-- Compares devices where a value that no earlier query sees is infinite or NaN: it stays in the
-- rows of those that see it.
local function keeps_apart(dtype)
  local function run(ctx)
    local row = {}
    for j = 1, 16 do row[j] = j end
    local values = {}
    for i = 1, 20 do values[i] = {unpack(row)} end
    values[20][3], values[19][1] = math.huge, 0 / 0
    local value = ty.nd.array{values, ctx = here}:reshape{1, 20, 16}:astype(dtype)
    local ones = ty.nd.ones({1, 20, 16}, {ctx = ctx, dtype = dtype})
    local y = ty.nd.contrib.attention{query = ones, key = ones, heads = 1, causal = true,
      value = value:as_in_context(ctx)}
    return y:as_in_context(here):astype("float64"):reshape{-1}:totable()
  end
  local mine, theirs, different = run(here), run(there), 0
  for i, a in ipairs(mine) do
    local b = theirs[i]
    local same = a == b or (a ~= a and b ~= b) or math.abs(a - b) <= BOUND[dtype] * 16
    different = different + (same and 0 or 1)
  end
  local finite = math.abs(theirs[17 * 16 + 1] - 1) <= BOUND[dtype]
  print("infinities, " .. dtype, finite and different == 0 and "equal" or "different: " .. different)
end
keeps_apart("float16")
keeps_apart("bfloat16")

-- The same of gradients, where queries, keys, values and head gradients are infinite or NaN.
local function keeps_gradients_apart(dtype, name)
  local function run(ctx)
    local shapes, given = {1, 20, 16}, {}
    for k, of in ipairs{"query", "key", "value", "head"} do
      local x = pattern({320 + k}, here, "float64"):slice{begin = {k}, ["end"] = {320 + k}}
      local list = x:totable()
      if of == name then list[17 * 16 + 3], list[18 * 16 + 2] = math.huge, 0 / 0 end
      given[of] = ty.nd.array{list, ctx = here}:reshape(shapes):astype(dtype):as_in_context(ctx)
    end
    local net = sym.contrib.attention{query = sym.Variable "query", key = sym.Variable "key",
      value = sym.Variable "value", heads = 1, causal = true}
    local exe = net:simple_bind{ctx = ctx, shapes = {query = shapes, key = shapes, value = shapes},
      type_dict = {query = dtype, key = dtype, value = dtype}, grad_req = "write"}
    for _, of in ipairs{"query", "key", "value"} do given[of]:copyto(exe.arg_dict[of]) end
    exe:forward(true)
    exe:backward(given.head)
    local g = exe.grad_dict
    return all{g.query, g.key, g.value}:totable()
  end
  local mine, theirs, different, finite = run(here), run(there), 0, 0
  for i, a in ipairs(mine) do
    local b = theirs[i]
    local wild = a ~= a or math.abs(a) == math.huge
    finite = finite + (wild and 0 or 1)
    local same = wild and (b ~= b or math.abs(b) == math.huge)
      or math.abs(a - b) <= BOUND[dtype] * 16
    different = different + (same and 0 or 1)
  end
  print("gradients, " .. dtype .. ", " .. name, different == 0 and finite > 100 and finite < #mine
    and "equal" or ("different: %d, %d"):format(different, finite))
end
for _, name in ipairs{"query", "key", "value", "head"} do
  keeps_gradients_apart("float16", name)
  keeps_gradients_apart("bfloat16", name)
end

-- Returns attention as products and a softmax, as users write it.
local function self_attention(x)
  local contrib, options = sym.contrib, {heads = 2}
  local scores = contrib.interleaved_matmul_selfatt_qk(x.qkv, options)
  if x.bias then scores = sym.broadcast_add(scores, x.bias) end
  return contrib.interleaved_matmul_selfatt_valatt(x.qkv, sym.softmax(scores), options)
end
local function of_products(x)
  local scores = sym.batch_dot{x.query, x.key, transpose_b = true} * 0.3
  return sym.batch_dot{sym.softmax(scores), x.value}
end
local products = {query = {2, 5, 4}, key = {2, 7, 4}, value = {2, 7, 3}}
nearly("written", {qkv = {9, 2, 2 * 3 * 4}}, {written = self_attention})
nearly("written with a mask", {qkv = {9, 2, 2 * 3 * 4}, bias = {1, 9, 9}},
  {written = self_attention}, nil, {bias = "null"})
nearly("written with a bias that learns", {qkv = {9, 2, 2 * 3 * 4}, bias = {1, 9, 9}},
  {written = self_attention, stays = true})
nearly("written as products", products, {written = of_products})
nearly("of one key", {query = {1, 1, 4}, key = {1, 1, 4}, value = {1, 1, 3}},
  {written = of_products}, "float64")
nearly("written of wide heads", {query = {1, 3, 200}, key = {1, 4, 200}, value = {1, 4, 60}},
  {written = of_products, stays = true})
nearly("written in float16", products, {written = of_products}, "float16")
nearly("written in float64", products, {written = of_products}, "float64")
]]

local KERNELS = devices.COSTS .. [[
-- which kernels multiply, forward and backward
local function starts(dtype, queries, size)
  local x = ty.nd.ones({1, 20, size}, {ctx = there, dtype = dtype})
  local query = ty.nd.ones({1, queries, size}, {ctx = there, dtype = dtype})
  ty.waitall()
  costs()
  query:attach_grad()
  x:attach_grad()
  local y = ty.autograd.record(function()
    return ty.nd.contrib.attention{query = query, key = x, value = x, heads = 1}
  end)
  y:backward()
  ty.waitall()
  local names = {}
  for name in costs():gmatch "attend[%w_]*" do names[#names + 1] = name end
  return table.concat(names, " ")
end
local PLAIN = "attend attend_back_queries attend_back_keys"
local TENSOR = os.getenv("CUDASIM_ARCH") == "75" and PLAIN
  or "attend_tensor attend_back_queries_tensor attend_back_keys_tensor"
for _, case in ipairs{{"float16", 9, 16, TENSOR}, {"bfloat16", 9, 128, TENSOR},
  {"float32", 9, 16, PLAIN}, {"float16", 8, 16, PLAIN}} do
  local name = starts(case[1], case[2], case[3])
  print("kernel of " .. case[1] .. " × " .. case[2], name == case[4] and "equal"
    or "different: " .. tostring(name))
end
]]

-- Says of users' products with more than 2^20 scores whether the operator replaces them: where
-- products would be on tensor cores, it does where it is there, too.
local REPLACES = devices.SCRIPT .. [[
local sym = ty.sym
local function replaces(dtype, queries, keys, size)
  local scores = sym.batch_dot{sym.Variable "query", sym.Variable "key", transpose_b = true}
  local exe = sym.batch_dot{sym.softmax(scores), sym.Variable "value"}:simple_bind{ctx = there,
    shapes = {query = {1, queries, size}, key = {1, keys, size}, value = {1, keys, size}},
    type_dict = {query = dtype, key = dtype, value = dtype}, grad_req = "write"}
  return exe:program():find("  tiles  ", 1, true) ~= nil
end
local new, whole = os.getenv "CUDASIM_ARCH" ~= "75", os.getenv "TYCHO_PRECISION" ~= "high"
for _, case in ipairs{
  {"float16", 1025, 1024, 8, new}, {"bfloat16", 1025, 1024, 128, new},
  {"float16", 1024, 1024, 8, true}, {"float16", 1025, 1024, 129, false},
  {"float16", 9, 131072, 8, new}, {"float16", 8, 131073, 8, false},
  {"float32", 1025, 1024, 8, whole}, {"float32", 1024, 1024, 8, true},
  {"float64", 1025, 1024, 8, true}} do
  local same = replaces(case[1], case[2], case[3], case[4]) == case[5]
  print(case[1], case[2], case[3], case[4], same and "equal" or "different")
end
]]

describe("attention on a GPU", function()
  it("takes the place of products of many scores where it is on tensor cores", function()
    devices.agree(pending, REPLACES, 9)
    devices.agree(pending, REPLACES, 9, { CUDASIM_ARCH = "75" })
    devices.agree(pending, REPLACES, 9, { TYCHO_PRECISION = "high" })
  end)

  it("has the CPU's values and gradients", function()
    devices.agree(pending, SCRIPT, 66)
  end)

  it("multiplies half types on tensor cores where there are some", function()
    devices.agree(pending, KERNELS, 4)
    devices.agree(pending, KERNELS, 4, { CUDASIM_ARCH = "75" })
  end)
end)
