-- Calls of operators on arrays: a call like one before is recognised instead of read
-- (ndarray/call_cache.lua), and so it is in the core (imperative/call_cache.c). Neither may show:
-- every form is called again, with other values between.
local ty = require "tycho"
local autograd, nd = ty.autograd, ty.nd

local function list(x) return x:astype("float64"):reshape{-1}:totable() end

-- Asserts that f() and f() again, twice, are equal.
local function stays(f)
  local first = list(f())
  for _ = 1, 2 do assert.same(first, list(f())) end
  return first
end

local function catch_code(f, ...)
  local ok, e = pcall(f, ...)
  assert.is_false(ok)
  return e.code, (tostring(e):gsub("[^\n]*%.lua:%d+[^\n]*", ""))
end

describe("a call made again", function()
  local x = nd.arange{24}:reshape{2, 3, 4}
  local small = nd.array{{1, -2}, {3, -4}}

  it("keeps its inputs while the collector runs", function()
    local recording = require "tycho.ndarray.recording"
    local note_line = recording.note_line
    local v = nd.ones{2, 3}
    v:attach_grad()
    local function stacked()
      return ty.autograd.record(function()
        return nd.stack(v * 2, v * 3, v * 4, {axis = 0}), (v * 5):stack(v * 6, v * 7, {axis = 0})
      end)
    end
    stacked()
    for _ = 1, 20 do
      recording.note_line = function()                   -- between the inputs and the call
        collectgarbage()
        collectgarbage()
        note_line()
      end
      local ok, a, b = pcall(stacked)
      recording.note_line = note_line
      assert.is_true(ok, a)
      assert.same({2, 3, 4, 5, 6, 7}, {a[0]:max():asscalar(), a[1]:max():asscalar(),
        a[2]:max():asscalar(), b[0]:max():asscalar(), b[1]:max():asscalar(), b[2]:max():asscalar()})
    end
  end)

  it("has every form", function()
    local want = stays(function() return nd.sum{data = x, axis = 1} end)
    assert.same(want, stays(function() return nd.sum{x, axis = 1} end))
    assert.same(want, stays(function() return nd.sum{x, 1} end))
    assert.same(want, stays(function() return nd.sum(x, 1) end))
    assert.same(want, stays(function() return nd.sum(x, {axis = 1}) end))
    assert.same(want, stays(function() return nd.sum(x, {1}) end))
    assert.same(want, stays(function() return nd.sum{axis = {1}, data = x} end))
    assert.same(want, stays(function() return nd.sum{axis = "1", data = x} end))
    assert.same(want, stays(function() return x:sum{axis = 1} end))
    assert.same(want, stays(function() return x:sum(1) end))
    assert.same(want, stays(function() return x:sum{1} end))
    assert.same(want, stays(function() return x:sum({axis = 1}, nil) end))
    assert.same(want, stays(function() return x:sum{axis = 1LL} end))
    assert.same({276}, stays(function() return x:sum{axis = ty.null} end))
    assert.same({0, 1, 2, 3}, stays(function()
      return nd.slice_axis{x:reshape{-1}, axis = 0, begin = 0, end_ = 4}
    end))
    assert.same({0, 1, 2, 3}, stays(function()
      return nd.slice_axis{x:reshape{-1}, axis = 0, begin = 0, ["end"] = 4}
    end))
    assert.same({1, -2, 3, -4, 1, -2, 3, -4}, stays(function()
      return nd.concat{small, small, dim = 0}
    end))
    assert.same({1, -2, 1, -2, 3, -4, 3, -4}, stays(function()
      return nd.concat(small, small, {dim = 1})
    end))
    assert.same({2, -4, 6, -8}, stays(function()
      return nd.broadcast_add{rhs = small, lhs = small}
    end))
  end)

  it("takes nil at the end for absent", function()
    assert.same({1, 0, 3, 0}, stays(function() return nd.relu(small, nil) end))
    assert.same({1, 0, 3, 0}, stays(function() return small:relu(nil) end))
    assert.same({1, 3, -2, -4}, stays(function() return small:transpose({1, 0}, nil) end))
    assert.same({-1, -1}, stays(function() return nd.sum({small, axis = 1}, nil) end))
    assert.same({0, 0}, stays(function() return nd.clip(small[1], 0, 0, nil, nil) end))
    assert.same({4, 1}, small:reshape({4, 1}, nil).shape)
    assert.same({4, 1}, small:reshape(4, 1, nil).shape)
    assert.same({2, 3}, nd.random.randn(2, 3, nil).shape)
    assert.same({2, 2}, small:broadcast_like(small, nil).shape)
    assert.equal("type", (catch_code(nd.relu, small, 1, nil)))
  end)

  it("takes an empty table at the end for no options, where no parameter takes a table", function()
    assert.same({1, 0, 3, 0}, stays(function() return nd.relu(small, {}) end))
    assert.same({2, -4, 6, -8}, stays(function() return nd.add_n(small, small, {}) end))
    assert.same({2, -4, 6, -8}, stays(function() return nd.ElementWiseSum({small, small}, {}) end))
    assert.same({1, -2, 1, -2, 3, -4, 3, -4}, stays(function()
      return nd.Concat({small, small}, {})
    end))
    assert.same({2, 2, 2}, nd.stack({small, small}, {}).shape)
    assert.same({1, 0, 1, 0}, stays(function() return nd.clip(small, 0, 1, {}) end))
    assert.same({1, -2, 3, -4}, stays(function() return small:clip(-9, 9, {}) end))
    assert.equal("value", (catch_code(nd.add_n, {}, {})))
    assert.equal("type", (catch_code(nd.add_n, {small, small, {}})))
    assert.same({1, -2, 3, -4}, stays(function() return nd.reverse(small, {}) end))   -- its axes
    assert.equal("value", (catch_code(nd.reverse, small)))
  end)

  it("sees other values, shapes, dtypes and numbers of inputs", function()
    for _ = 1, 3 do
      for axis = 0, 2 do
        assert.same(x.shape[axis + 1], x.size / nd.sum{x, axis = axis}.size)
        assert.same(276, nd.sum{nd.sum{x, axis = axis}}:asscalar())
      end
      for _, dtype in ipairs{"int32", "float64", "float32"} do
        assert.equal(dtype, nd.sum{data = small:astype(dtype), axis = 0}.dtype)
      end
      for n = 1, 4 do
        local inputs = {dim = 0}
        for i = 1, n do inputs[i] = small end
        assert.same({2 * n, 2}, nd.concat(inputs).shape)
      end
      assert.same({1, 0, 3, 0}, list(nd.clip{small, a_min = 0, a_max = 9}))
      assert.same({1, -2, 2, -4}, list(nd.clip(small, -9, 2)))
      assert.same({true, false}, {nd.sum{x, axis = 0, keepdims = true}.ndim == 3,
        nd.sum{x, axis = 0, keepdims = false}.ndim == 3})
    end
  end)

  it("survives more values than are kept", function()
    for i = 1, 1500 do
      assert.equal(math.min(i / 8, 100),
        nd.clip{nd.array{1e6}, a_min = 0, a_max = math.min(i / 8, 100)}:asscalar())
    end
  end)

  it("writes into out, in place too, and says what does not fit", function()
    local out = nd.zeros{2, 2}
    for _ = 1, 3 do
      assert.equal(out, nd.clip{data = small, a_min = 0, a_max = 2, out = out})
      assert.same({1, 0, 2, 0}, list(out))
      local y = small:copy()
      nd.softmax{data = y, axis = 1, out = y}
      assert.is_near(1 / (1 + math.exp(-3)), y[{0, 0}]:asscalar(), 1e-6)
      nd.transpose{data = y, out = y}            -- may not work in place: a copy goes between
      assert.is_near(1 / (1 + math.exp(3)), y[{1, 0}]:asscalar(), 1e-6)
      assert.equal("shape",
        (catch_code(nd.clip, {data = small, a_min = 0, a_max = 2, out = nd.zeros{3}})))
      assert.equal("dtype", (catch_code(nd.clip,
        {data = small, a_min = 0, a_max = 2, out = nd.zeros({2, 2}, {dtype = "int32"})})))
    end
  end)

  it("gives several outputs as a list, each time new arrays", function()
    local y = nd.array{ { 1, 2, 3 }, { 4, 5, 6 } }
    local before
    for i = 1, 4 do
      local parts = nd.split{ y + i, num_outputs = 3, axis = 1 }
      assert.same({ { 3 + i }, { 6 + i } }, parts[3]:totable())
      assert.equal(3, #parts)
      assert.is_true(parts[1] ~= before)
      before = parts[1]
      assert.same({ { 1, 4 } }, y:split{ num_outputs = 3, axis = 1, squeeze_axis = true }[1]
        :reshape{ 1, 2 }:totable())
      assert.equal(2, #y:split{ num_outputs = 2, axis = 0 })
    end
    local out = { nd.zeros{ 2, 1 }, nd.zeros{ 2, 1 }, nd.zeros{ 2, 1 } }
    for _ = 1, 2 do
      nd.split{ y, num_outputs = 3, axis = 1, out = out }
      assert.same({ { 2 }, { 5 } }, out[2]:totable())
    end
    for _ = 1, 2 do
      assert.raises("shape", nd.split, { y, num_outputs = 2, axis = 1 })
    end
  end)

  it("makes its mistakes again, in the same words", function()
    local freed = nd.zeros{2}
    freed:free()
    nd.sum{x, axis = 1}
    local mistakes = {
      name = {{nd.sum, {x, axes = 1}}, {nd.sum, {x, data = x}}, {nd.clip, {x, 0, 1, a_min = 0}}},
      type = {{nd.sum, {data = 5}}, {nd.sum, {x, axis = {x}}}, {nd.concat, {x, dim = 0, data = x}},
        {nd.sum, {x, axis = 1, [x] = 1}}, {nd.sum, {data = x, axis = 1, [2.5] = 1}}},
      value = {{nd.sum, {axis = 1}}, {nd.broadcast_add, {lhs = x}}, {nd.sum, {x, axis = 7}},
        {nd.clip, {x, a_min = 0}}, {nd.relu, {nil, x}}},
      state = {{nd.sum, {freed, axis = 0}}},
      device = {{nd.broadcast_add, {x, x:as_in_context(ty.cpu(1))}}},
    }
    for code, calls in pairs(mistakes) do
      for _, c in ipairs(calls) do
        local got, text = catch_code(c[1], c[2])
        assert.equal(code, got, text)
        for _ = 1, 2 do assert.same({got, text}, {catch_code(c[1], c[2])}) end
      end
    end
  end)

  it("names the input in whose place a number or a table stands", function()
    local matrix = ty.nd.ones{ 2, 3 }
    for _, case in ipairs{
      { "index", function() return ty.nd.pick(matrix, 1, { axis = 1 }) end },
      { "index", function() return ty.nd.pick(matrix, 1) end },
      { "rhs", function() return matrix:dot{ { 1, 2 } } end },
      { "rhs", function() return ty.nd.batch_dot{ matrix, true } end },
      { "indices", function() return matrix:take{ 0, 1 } end },
      { "indices", function() return matrix:take(1, { mode = "wrap" }) end },
    } do
      for _ = 1, 2 do
        local e = assert.raises("type", case[2])
        assert.equal(case[1], e.argument)
      end
    end
    assert.shape({ 2 }, (ty.nd.pick(matrix, 1, { index = ty.nd.ones(2) })))
    assert.shape({ 2, 3 }, (ty.nd.softmax(matrix, 1)))
    assert.shape({ 2, 2 }, (ty.nd.FullyConnected(matrix, matrix, 2, { no_bias = true })))
  end)

  it("says which parameter asks for an input that is too many", function()
    local matrix, lengths = ty.nd.ones{ 2, 3 }, ty.nd.array{ 1, 2, 1 }
    local function variable(name) return ty.sym.Variable(name) end
    for _, case in ipairs{ { ty.nd, matrix, lengths },
        { ty.sym, variable "matrix", variable "lengths" } } do
      local e = assert.raises("type", case[1].SequenceMask, case[2], case[3])
      assert.matches("use_sequence_length = true adds sequence_length$", e.message)
      e = assert.raises("type", case[1].exp, case[2], case[3])
      assert.falsy(e.message:find("use_", 1, true))
    end
  end)

  it("names the entry of a list that is no input", function()
    local matrix = ty.nd.ones{ 2, 3 }
    for _, join in ipairs{ ty.nd.concat, ty.nd.stack, ty.nd.add_n } do
      for _, case in ipairs{ { 2, { matrix, 3 } }, { 1, { "a", matrix } },
          { 2, { matrix, nil, matrix } }, { 3, { matrix, matrix, { 1, 2 } } } } do
        local e = assert.raises("type", join, case[2], {})
        assert.equal("bad entry " .. case[1] .. " in the list of inputs", e.message)
      end
      assert.raises("value", join, {}, {})
      local e = assert.raises("type", join, matrix, 3)
      assert.equal("bad argument 2: all are inputs, and parameters go by name", e.message)
    end
    local name = ty.sym.Variable "name"
    assert.equal("an NDArray", assert.raises("type", ty.sym.concat, { name, matrix }, {}).got)
  end)

  it("draws anew, and measures contents anew", function()
    local a, b = nd.random.uniform{shape = {8}}, nd.random.uniform{shape = {8}}
    assert.are_not.same(list(a), list(b))
    local data = nd.array{1, 2, 3}
    for _ = 1, 2 do
      assert.same({2}, list(nd.contrib.boolean_mask(data, nd.array{0, 1, 0})))
      assert.same({1, 3}, list(nd.contrib.boolean_mask(data, nd.array{1, 0, 1})))
    end
  end)

  it("keeps states apart that it changes", function()
    local w, mean, var = nd.ones{3}, nd.zeros{3}, nd.zeros{3}
    for i = 1, 3 do
      nd.adam_update{weight = w, grad = nd.ones{3}, mean = mean, var = var, out = w,
        lr = 0.1 * i, beta1 = 0.5}
    end
    assert.is_near(1 - 0.5 ^ 3, mean[{0}]:asscalar(), 1e-6)
    assert.is_near(1 - 0.999 ^ 3, var[{0}]:asscalar(), 1e-6)
  end)

  it("holds no array", function()
    collectgarbage()
    collectgarbage()
    ty.waitall()
    local before = ty.live().tensors
    for _ = 1, 3 do nd.sum{data = nd.ones{5, 5}, axis = 0, out = nd.zeros{5}} end
    ty.waitall()
    collectgarbage()
    collectgarbage()
    assert.is_true(ty.live().tensors <= before)
  end)

  it("that fails later names its own line, whichever ran before", function()
    local rows = nd.arange{12}:reshape{6, 2}
    local ways = {
      function(i) return nd.take(rows, i, {mode = "raise"}), debug.getinfo(1, "l").currentline end,
      function(i) return nd.take(rows, i, {mode = "raise"}), debug.getinfo(1, "l").currentline end,
      function(i) return nd.linalg.potrf(nd.diag(2 - i)), debug.getinfo(1, "l").currentline end,
      function(i) return nd.linalg.potrf(nd.diag(3 - i)), debug.getinfo(1, "l").currentline end,
    }
    local good, bad = nd.array{0, 1}, nd.array{1, 9}
    for _, run in ipairs{function(way, i) return way(i) end, function(way, i)
      return autograd.record(function() return way(i) end)
    end} do
      for _, order in ipairs{{1, 2, 3, 4}, {4, 3, 2, 1}} do
        for _, i in ipairs(order) do
          ways[i % 4 + 1](good):wait_to_read()
          run(ways[i], good):wait_to_read()
          local _, line = ways[i](good)
          local y = run(ways[i], bad)
          local e = assert.raises("run", y.wait_to_read, y)
          assert.equal("spec/ndarray/call_spec.lua:" .. line, e.where:match("spec/.*"))
        end
      end
    end
  end)
end)
