-- How exactly a GPU multiplies float32 (core/precision.lua): "high" and "medium" allow TF32, whose
-- operands have ten bits of a fraction. The word is an executor's, a module's, a context's, a
-- scope's or the environment's. On the stand-in, which rounds operands as TF32 does.

local stand_in = require "spec.support.stand_in"

-- `narrow(y)` says whether y, products of NUMBER by 1, lost the last of its twelve bits.
local COMMON = [[
local ty = require "tycho"
local gpu, sym, V = ty.gpu(0), ty.sym, ty.sym.Variable
gpu:enter()
local NUMBER = 1 + 2 ^ -12

local function narrow(y)
  local least, most = y:min():asscalar(), y:max():asscalar()
  assert(least == most and (least == 1 or least == NUMBER), least .. " " .. most)
  return least == 1 and "narrow" or "whole"
end

local function fill(exe)
  for name, x in pairs(exe.arg_dict) do x[":"] = name == "x" and NUMBER or 1 end
  return exe
end

local function said(exe)
  return select(2, exe:program():gsub("products of TF32", ""))
end

local function product(options, req)
  local net = sym.FullyConnected{V "x", weight = V "w", num_hidden = 1, no_bias = true}
  options.ctx, options.x, options.grad_req = options.ctx or gpu, {1, 1}, req or "null"
  return fill(net:simple_bind(options))
end

local function result(exe)
  exe:forward()
  return narrow(exe.outputs[1])
end
]]

-- For each kind of product and each word: the result of inference, how many of its steps say TF32;
-- result and gradient of w in training, and how many steps say it there.
local KINDS = COMMON .. [[
local one, image = {1, 1}, {1, 1, 1, 1}
local once = {weight = V "w", num_filter = 1, kernel = {1, 1}, no_bias = true}
local function convolution(make, ...)
  local options = {...}
  for key, v in pairs(once) do options[key] = v end
  return make(options)
end
for _, case in ipairs{
  {"FullyConnected", sym.FullyConnected{V "x", weight = V "w", num_hidden = 1, no_bias = true},
    {x = one}},
  {"dot", sym.dot(V "x", V "w"), {x = one, w = one}},
  {"batch_dot", sym.batch_dot(V "x", V "w"), {x = {2, 1, 1}, w = {2, 1, 1}}},
  {"gemm", sym.linalg.gemm{V "x", V "w", V "c", beta = 0}, {x = one, w = one, c = one}},
  {"gemm2", sym.linalg.gemm2{V "x", V "w"}, {x = one, w = one}},
  {"Convolution", convolution(sym.Convolution, V "x"), {x = image}},
  {"Deconvolution", convolution(sym.Deconvolution, V "x"), {x = image}},
  {"deformable", convolution(sym.contrib.DeformableConvolution, V "x", V "offset" * 0),
    {x = image, offset = {1, 2, 1, 1}}},
  {"attention", sym.contrib.interleaved_matmul_selfatt_valatt{V "x", V "w", heads = 1},
    {x = {1, 1, 3}, w = {1, 1, 1}}},
} do
  local list = {}
  for _, word in ipairs{"highest", "high", "medium"} do
    for _, req in ipairs{"null", "write"} do
      local exe = fill(case[2]:simple_bind{ctx = gpu, shapes = case[3], grad_req = req,
        precision = word})
      exe:forward(req == "write")
      list[#list + 1] = narrow(exe.outputs[1])
      if req == "write" then
        exe:backward{ty.nd.ones_like(exe.outputs[1])}
        list[#list + 1] = narrow(exe.grad_dict.w)
      end
      list[#list + 1] = said(exe)
    end
  end
  print(case[1], table.concat(list, " "))
end
]]

-- Recurrent layers and the loss over slabs: whether results and gradients differ from "highest".
local WHOLE_LAYERS = COMMON .. [[
for _, case in ipairs{
  {"RNN", sym.RNN{V "x", V "w", V "state", V "cell", state_size = 8, num_layers = 1, mode = "lstm"},
    {x = {3, 2, 8}}},
  {"cross entropy", sym.contrib.linear_cross_entropy{V "x", V "w", V "b", V "label",
    num_hidden = 9}, {x = {4, 8}, label = {4}}},
} do
  local list, exact = {}, nil
  for _, word in ipairs{"highest", "highest", "high", "medium"} do
    local exe = case[2]:simple_bind{ctx = gpu, shapes = case[3], precision = word}
    ty.random.seed(5)
    for _, name in ipairs(case[2]:list_arguments()) do
      local x = exe.arg_dict[name]
      x[":"] = ty.nd.random.uniform{low = -1, high = 1, shape = x.shape}
      if name == "label" then x[":"] = 1 end
    end
    exe:forward(true)
    exe:backward{ty.nd.ones_like(exe.outputs[1])}
    local y = ty.nd.concat{exe.outputs[1]:reshape{-1}, exe.grad_dict.x:reshape{-1},
      exe.grad_dict.w:reshape{-1}, dim = 0}
    local gap = exact and (y - exact):abs():max():asscalar() or 0
    exact = exact or y
    assert(gap < 0.05)
    list[#list + 1] = ("%s %d"):format(gap > 0 and "rounded" or "exact", said(exe))
  end
  print(case[1] .. ": " .. table.concat(list, ", "))
end
]]

-- Each way to say it, under TYCHO_PRECISION.
local WAYS = COMMON .. [[
local function module(options)
  local net = sym.FullyConnected{V "x", weight = V "w", num_hidden = 1, no_bias = true}
  local m = ty.mod.Module{net, data_names = {"x"}, label_names = {}, context = gpu}
  options.data_shapes, options.for_training = {{"x", {1, 1}}}, false
  m:bind(options)
  m:init_params{arg_params = {w = ty.nd.ones{1, 1}}}
  m:forward{data = {ty.nd.array{{NUMBER}}}}
  return narrow(m:get_outputs()[1])
end
local function array() return ty.nd.array{{NUMBER}} end
local function call() return narrow(ty.nd.dot(array(), ty.nd.ones{1, 1})) end
local function within(word, f) return ty.precision(word):with(f) end
local function bound() return result(product{}) end

print("none", bound(), module{}, call())
for _, word in ipairs{"highest", "high", "medium"} do
  print(word, result(product{precision = word}), module{precision = word}, within(word, bound),
    within(word, function() return module{} end), within(word, call))
  local net = sym.FullyConnected{V "x", weight = V "w", num_hidden = 1, no_bias = true}
  local exe = net:bind{ctx = gpu, args = {x = array(), w = ty.nd.ones{1, 1}}, precision = word}
  local ctx = ty.gpu(0)
  ctx:set_precision(word)
  print("", result(exe), result(product{ctx = ctx}))
  ctx:set_precision "highest"
end
local ctx = ty.gpu(0)
ctx:set_precision "high"
print("first", result(product{ctx = ctx, precision = "highest"}),
  within("highest", function() return result(product{ctx = ctx}) end),
  within("high", function() return result(product{precision = "highest"}) end),
  within("highest", function() return within("medium", call) end))
-- an executor keeps what held when it was bound
local exe = within("high", function() return product{} end)
print("kept", result(exe), within("highest", function() return result(exe) end))
]]

-- Recorded calls: the products of a loop under two words, and their gradients under a third.
local RECORDED = COMMON .. [[
local w = ty.nd.ones{1, 1}
w:attach_grad()
local x = ty.nd.array{{NUMBER}}
for _, words in ipairs{{"highest", "high", "highest"}, {"high", "highest", "medium"},
  {"highest", "highest", "high"}, {"high", "high", "highest"}} do
  local list = {}
  for step = 1, 4 do
    local a, b
    ty.autograd.record(function()
      ty.precision(words[1]):with(function() a = ty.nd.dot(x, w) end)
      ty.precision(words[2]):with(function() b = ty.nd.dot(x, w) end)
    end)
    ty.precision(words[3]):with(function() ty.autograd.backward{a, b} end)
    list[step] = ("%s %s %s"):format(narrow(a), narrow(b), narrow(w.grad / 2))
    assert(list[step] == list[1], list[step])
  end
  print(list[1])
end
]]

-- Programs of both kinds in turns, whose steps are recorded from their second run on.
local TURNS = COMMON .. [[
local exact, quick = product({precision = "highest"}, "write"), product({precision = "high"}, "write")
local twin = product({precision = "high"}, "write")
for run = 1, 6 do
  local list = {}
  for i, exe in ipairs{exact, quick, twin} do
    exe:forward(true)
    exe:backward{ty.nd.ones{1, 1}}
    list[i] = narrow(exe.outputs[1]) .. " " .. narrow(exe.grad_dict.w)
  end
  print(table.concat(list, ", "))
end
]]

-- What the word decides besides: channels last, and which attention takes the place of products.
local PASSES = COMMON .. [[
local net = sym.Convolution{sym.Convolution{V "x", kernel = {3, 3}, num_filter = 4}, kernel = {3, 3},
  num_filter = 4}
local scores = sym.batch_dot{V "query", V "key", transpose_b = true}
local attention = sym.batch_dot{sym.softmax(scores), V "value"}
for _, word in ipairs{"highest", "high", "medium"} do
  local last = net:simple_bind{ctx = gpu, x = {1, 4, 9, 9}, grad_req = "null", precision = word}
  local tiles = attention:simple_bind{ctx = gpu, grad_req = "null", precision = word,
    shapes = {query = {1, 1025, 8}, key = {1, 1024, 8}, value = {1, 1024, 8}}}
  print(word, last:program():find("channels last", 1, true) ~= nil,
    tiles:program():find("  tiles  ", 1, true) ~= nil)
end
]]

local function run(script, settings)
  settings = settings or {}
  settings.CUDASIM_STRICT = "1"
  settings.TYCHO_PRECISION = settings.TYCHO_PRECISION or "highest"
  local text, status = stand_in.run(script, settings)
  assert.equal(0, status, text)
  return text
end

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is there", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("precision on a GPU", function()
  it("holds for every kind of product, its gradients, and what the program says", function()
    local exact, narrow = "whole 0 whole whole 0 ", "narrow 1 narrow narrow 2"
    local want = exact .. narrow .. " " .. narrow
    for line in run(KINDS):gmatch "[^\n]+" do
      local name, got = line:match "^(.-)\t(.*)$"
      assert.equal(want, got, name)
    end
  end)

  it("holds for recurrent layers and losses over slabs", function()
    assert.equal([[
RNN: exact 0, exact 0, rounded 2, rounded 2
cross entropy: exact 0, exact 0, rounded 1, rounded 1
]], run(WHOLE_LAYERS))
  end)

  it("may be said in every way, the first of which counts", function()
    local function rest(word, value)
      return ("%s\t%s\n\t%s\n"):format(word, (value .. "\t"):rep(4) .. value,
        value .. "\t" .. value)
    end
    local warning = { low = "WARNING: TYCHO_PRECISION is 'low', expected highest, high or medium: "
      .. "products stay in float32\n" }
    for environment, value in pairs{ highest = "whole", high = "narrow", medium = "narrow",
      low = "whole" } do
      assert.equal((warning[environment] or "")
        .. ("none\t%s\t%s\t%s\n"):format(value, value, value) .. rest("highest", "whole")
        .. rest("high", "narrow") .. rest("medium", "narrow")
        .. "first\twhole\twhole\twhole\tnarrow\nkept\tnarrow\tnarrow\n",
        run(WAYS, { TYCHO_PRECISION = environment }))
    end
  end)

  for _, lazy in ipairs{ "1", "0" } do
    it("is that of the scope in which a call is recorded, TYCHO_LAZY=" .. lazy, function()
      assert.equal("whole narrow whole\nnarrow whole narrow\nwhole whole narrow\n"
        .. "narrow narrow whole\n", run(RECORDED, { TYCHO_LAZY = lazy }))
    end)
  end

  for _, graphs in ipairs{ "1", "0" } do
    it("stays each program's own, TYCHO_GRAPHS=" .. graphs, function()
      assert.equal(("whole whole, narrow narrow, narrow narrow\n"):rep(6),
        run(TURNS, { TYCHO_GRAPHS = graphs }))
    end)
  end

  it("decides over channels last and attention", function()
    assert.equal("highest\tfalse\ttrue\nhigh\ttrue\tfalse\nmedium\ttrue\tfalse\n", run(PASSES))
  end)

  it("has ways of cublasLt and cuDNN of its own, timed and kept apart", function()
    local folder = require "spec.support.folder"
    local lfs = require "lfs"
    folder.with(function(path)
      local script = COMMON .. [[
        local y = sym.Convolution{V "x", weight = V "w", kernel = {1, 1}, num_filter = 2,
          no_bias = true}
        y = sym.FullyConnected{y, num_hidden = 3, no_bias = true}
        y:simple_bind{ctx = gpu, x = {2, 2, 2, 2}, grad_req = "null"}:forward()
        ty.waitall()
      ]]
      -- how many choices there are after a run in that precision
      local function count(word)
        run(script, { TYCHO_TUNE = "1", TYCHO_CACHE = path, CUDASIM_TICK = "1000",
          TYCHO_PRECISION = word })
        local n = 0
        for name in lfs.dir(path) do n = n + (name:find "%.choice$" and 1 or 0) end
        return n
      end
      local exact = count "highest"
      local both = count "high"
      assert.is_true(exact >= 2 and both >= exact + 2, exact .. " " .. both)
      assert.equal(both, count "medium")
      assert.equal(both, count "highest")
    end)
  end)
end)
