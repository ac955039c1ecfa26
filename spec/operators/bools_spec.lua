-- bool arrays hold 0 and 1, whatever operators, gradients, files and callers write; reductions of
-- them count.
local native = require "tycho.core.ffi"
local ty = require "tycho"
local arrays = require "spec.support.arrays"
local trials = require "spec.support.trials"
require "spec.helper"

local nd, sym, V = ty.nd, ty.sym, ty.sym.Variable

local function check(what, x)
  if x.dtype ~= "bool" then return end
  for byte in arrays.bytes(x):gmatch(".") do
    if byte:byte() > 1 then error(("%s: a byte is %d"):format(what, byte:byte()), 0) end
  end
end

local function check_all(what, y)
  if y == nil then return end
  for i, x in ipairs(y.dtype and {y} or y) do check(("%s, output %d"):format(what, i), x) end
end

-- Returns zeros and, three times as often, ones.
local function bools(shape, random)
  local n, t = 1, {}
  for _, size in ipairs(shape) do n = n * size end
  for i = 1, n do t[i] = random(0, 3) > 0 and 1 or 0 end
  return nd.array(t, {dtype = "bool"}):reshape(shape)
end

-- Returns the options of an operator with inputs of bools, or variables.
local function make_options(params, shapes, input)
  local t = {}
  for key, v in pairs(params) do t[key] = v end
  if t.dtype then t.dtype = "bool" end
  if t.out then t.out = nd.zeros(t.out, {dtype = "bool"}) end
  for key, shape in pairs(shapes) do t[key] = input(key, shape) end
  return t
end

-- Runs the operator on arrays; returns false if it takes no bools.
local function call(what, line, params, shapes, random)
  local inputs = {}
  local options = make_options(params, shapes, function(key, shape)
    inputs[key] = bools(shape, random)
    return inputs[key]
  end)
  local ok, y = pcall(ty.nd[line[1]], options)
  if not ok then return false end
  check_all(what, y)
  for key, x in pairs(inputs) do check(what .. ", input " .. key, x) end
  if options.out then check(what .. ", out", options.out) end
  return true
end

-- Runs the operator in an executor, with gradients that are written and added to; returns false if
-- it takes no bools.
local function bind(what, line, params, shapes, random, req)
  local args, grads = {}, {}
  local options = make_options(params, shapes, function(key, shape)
    args["in_" .. key], grads["in_" .. key] = bools(shape, random), nd.ones(shape, {dtype = "bool"})
    return V("in_" .. key)
  end)
  options.out = nil
  local ok, exe = pcall(function()
    return sym[line[1]](options):bind{ctx = ty.cpu(), args = args, args_grad = grads,
      grad_req = req}
  end)
  if not ok then return false end
  exe:forward{is_train = true}
  check_all(what, exe.outputs)
  local heads = {}
  for i, y in ipairs(exe.outputs) do heads[i] = nd.ones(y.shape, {dtype = y.dtype}) end
  for _ = 1, 2 do
    if not pcall(exe.backward, exe, heads) then return false end
  end
  for key, g in pairs(grads) do check(("%s, %s gradient of %s"):format(what, req, key), g) end
  return true
end

describe("a bool array", function()
  it("holds 0 and 1, whatever operators and gradients write", function()
    local ran = {call = 0, write = 0, add = 0}
    for _, name in ipairs{"cases", "cases_values"} do
      for line, key in trials.lines(require("spec.operators." .. name)) do
        local random = trials.random(trials.seed("bools", key))
        for _ = 1, 3 do
          local shapes, params = line[2](random)
          ran.call = ran.call + (call(key, line, params, shapes, random) and 1 or 0)
          if not (line.options and line.options.imperative) then
            for _, req in ipairs{"write", "add"} do
              ran[req] = ran[req] + (bind(key, line, params, shapes, random, req) and 1 or 0)
            end
          end
        end
      end
    end
    for what, n in pairs(ran) do assert(n > 150, what .. ": " .. n) end
  end)

  it("holds them after many gradients of one element, too", function()
    for _, build in ipairs{
      function(x) return sym.broadcast_to{x, shape = {256}} end,
      function(x) return sym.tile{x, reps = {256}} end,
      function(x) return sym["repeat"]{x, repeats = 256} end,
      function(x) return sym.broadcast_mul{x, V"y"} end,
      function(x) return sym.take{x, sym.zeros{shape = {256}}} end,
      function(x) return sym.gather_nd{x, sym.zeros{shape = {1, 256}}} end,
    } do
      for _, req in ipairs{"write", "add"} do
        local grad = nd.zeros({1}, {dtype = "bool"})
        local args = {x = nd.ones({1}, {dtype = "bool"}), y = nd.ones({256}, {dtype = "bool"})}
        local exe = build(V"x"):bind{ctx = ty.cpu(), args = args, args_grad = {x = grad},
          grad_req = req}
        for _ = 1, 2 do
          local y = exe:forward{is_train = true}[1]
          exe:backward(nd.ones(y.shape, {dtype = y.dtype}))
          assert.equal(1, arrays.bytes(grad):byte())
        end
      end
    end
  end)

  it("holds them after sums of a store", function()
    for _, kind in ipairs{"local", "device"} do
      local kv, out = ty.kv.create(kind), nd.zeros({3}, {dtype = "bool"})
      kv:init(0, nd.zeros({3}, {dtype = "bool"}))
      kv:push(0, {nd.array({1, 0, 1}, {dtype = "bool"}), nd.array({1, 0, 0}, {dtype = "bool"})})
      kv:pull(0, {out = out})
      assert.equal("\1\0\1", out:tostring_raw())
    end
  end)

  it("gets them from bytes of callers and files", function()
    local want = "\0\1\1\1\1"
    local bytes = "\0\1\2\128\255"
    local x = nd.zeros({5}, {dtype = "bool"})
    native.check(native.C.ty_tensor_write(x.handle, bytes, 5), "spec")
    assert.equal(want, arrays.bytes(x))
    local path = os.tmpname()
    nd.save(path, {nd.ones({5}, {dtype = "bool"})})
    local file = assert(io.open(path, "rb"))
    local text = file:read("*a")
    file:close()
    local at = assert(text:find("\1\1\1\1\1", 1, true))
    file = assert(io.open(path, "wb"))
    file:write(text:sub(1, at - 1), bytes, text:sub(at + 5))
    file:close()
    local ok, loaded = pcall(nd.load, path)
    os.remove(path)
    assert.is_true(ok, tostring(loaded))
    assert.equal(want, arrays.bytes(loaded[1]))
  end)
end)

-- -- counts ---------------------------------------------------------------------------------------

-- Returns the reduction of ones and zeros by f, along axis (from 0; nil: all).
local function reduced(x, axis, f)
  local list, outer, n, inner = arrays.list(x), 1, x.size, 1
  if axis then
    n = x.shape[axis + 1]
    for i = 1, axis do outer = outer * x.shape[i] end
    for i = axis + 2, #x.shape do inner = inner * x.shape[i] end
  end
  local out = {}
  for o = 0, outer - 1 do
    for i = 0, inner - 1 do
      local count = 0
      for k = 0, n - 1 do count = count + list[(o * n + k) * inner + i + 1] end
      out[#out + 1] = f(count, n)
    end
  end
  return out
end

local COUNTS = {
  sum = {"int64", function(c) return c end},
  nansum = {"int64", function(c) return c end},
  _square_sum = {"int64", function(c) return c end},
  mean = {"float32", function(c, n) return c / n end},
  norm = {"float32", function(c) return math.sqrt(c) end},
  prod = {"bool", function(c, n) return c == n and 1 or 0 end},
  nanprod = {"bool", function(c, n) return c == n and 1 or 0 end},
  max = {"bool", function(c) return c > 0 and 1 or 0 end},
  min = {"bool", function(c, n) return c == n and 1 or 0 end},
}
local SHAPES = {{300}, {3, 5}, {1, 700}, {700, 1}, {5, 300, 3}, {9, 40000}, {40000, 9}, {200000}}

describe("reductions of bools", function()
  it("count in a type that holds the number", function()
    local random = trials.random(7)
    for _, shape in ipairs(SHAPES) do
      local x = bools(shape, random)
      if #shape > 1 then x["0"] = 1 end
      for name, want in pairs(COUNTS) do
        for axis = 0, #shape do
          local along = axis < #shape and axis or nil
          local y = nd[name]{x, axis = along}
          assert.equal(want[1], y.dtype, name)
          local text = ("%s of (%s), axis %s"):format(name, table.concat(shape, ", "),
            tostring(along))
          local got = arrays.list(y)
          for i, v in ipairs(reduced(x, along, want[2])) do
            local near = math.abs(got[i] - v) <= 1e-6 * v
            assert(near, ("%s: %g, expected %g"):format(text, got[i], v))
          end
        end
      end
    end
  end)

  it("count along an axis, by norm of order 1, and as moments", function()
    local x = nd.array({1, 0, 1, 1}, {dtype = "bool"})
    assert.equal("int64", nd.cumsum(x).dtype)
    assert.near({1, 1, 2, 3}, nd.cumsum(x):astype("float64"), 0)
    assert.near({1, 1, 1, 1}, nd.cumsum{x, dtype = "bool"}:astype("float64"), 0)
    assert.near({3}, nd.norm{x, ord = 1})
    local moments = nd.moments{x, axes = {0}}
    assert.equal("float32", moments[1].dtype)
    assert.near({0.75}, moments[1])
    assert.near({0.1875}, moments[2])
    assert.near({3}, nd.multi_sum_sq{x, num_arrays = 1})
  end)

  it("do so in executors, fused and plain, and hand gradients back", function()
    local random = trials.random(11)
    for name, want in pairs(COUNTS) do
      for _, plain in ipairs{true, false} do
        local x, grad = bools({4, 300}, random), nd.zeros({4, 300}, {dtype = "bool"})
        local mask = sym.logical_not{sym.logical_not{V"x"}}
        local exe = sym[name]{mask, axis = 1}:bind{ctx = ty.cpu(), args = {x = x},
          args_grad = {x = grad}}
        if plain then exe:set_monitor_callback(function() end) end
        local y = exe:forward{is_train = true}[1]
        assert.equal(want[1], y.dtype)
        assert.near(reduced(x, 1, want[2]), y:astype("float64"), 1e-5)
        exe:backward(nd.ones(y.shape, {dtype = y.dtype}))
        check(name, grad)
      end
    end
  end)

  it("have gradients that are not 0 where a mean's share is less than 1", function()
    local grad = nd.zeros({4}, {dtype = "bool"})
    local exe = sym.mean{V"x"}:bind{ctx = ty.cpu(), args = {x = nd.ones({4}, {dtype = "bool"})},
      args_grad = {x = grad}}
    exe:forward{is_train = true}
    exe:backward(nd.ones{1})
    assert.near({1, 1, 1, 1}, grad:astype("float32"), 0)
  end)
end)

describe("moments of integers", function()
  it("are integers", function()
    for _, dtype in ipairs{"int8", "uint8", "int32", "int64"} do
      local moments = nd.moments{nd.array({{1, 3}, {4, 8}}, {dtype = dtype}), axes = {1}}
      for i, want in ipairs{{2, 6}, {1, 4}} do
        assert.equal(dtype, moments[i].dtype)
        assert.near(want, moments[i]:astype("float64"), 0)
      end
    end
  end)
end)
