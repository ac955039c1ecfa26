-- Losses: values against their formulas in Lua, weights, gradients against differences, hybridized
-- and not, mistakes.

local ty = require "tycho"
local support = require "spec.support.gluon"

local loss, nd = ty.gluon.loss, ty.nd
local form = support.form

-- Returns rows of numbers as float64.
local function array(t)
  return nd.array(t, { dtype = "float64" })
end

-- Returns the mean of f over the elements of rows, a list with one number per row.
local function means(p, t, f)
  local list = {}
  for i = 1, #p do
    local sum = 0
    for k = 1, #p[i] do sum = sum + f(p[i][k], t[i][k]) end
    list[i] = sum / #p[i]
  end
  return list
end

local P = { { 0.5, -1.2, 2 }, { 0.1, 0.7, -0.4 } }
local T = { { 1, 0.3, -0.5 }, { 0.2, 0.9, 0.4 } }
local SIGNS = { { 1, -1, 1 }, { -1, 1, -1 } }
local BITS = { { 1, 0, 1 }, { 0, 1, 0 } }
local exp, log, max, abs = math.exp, math.log, math.max, math.abs

local function cross(x, z) return max(x, 0) - x * z + log(1 + exp(-abs(x))) end

describe("the value of", function()
  --    name                    options          labels  value of an element
  local ELEMENTS = {
    { "L2Loss",                 {},              T,     function(p, t) return (t - p) ^ 2 / 2 end },
    { "L2Loss",                 { weight = 3 },  T,
      function(p, t) return 3 * (t - p) ^ 2 / 2 end },
    { "L1Loss",                 {},              T,     function(p, t) return abs(t - p) end },
    { "L1Loss",                 { weight = 2 },  T,     function(p, t) return 2 * abs(t - p) end },
    { "HuberLoss",              { rho = 0.6 },   T,     function(p, t)
      local d = abs(t - p)
      return d > 0.6 and d - 0.3 or d * d / 1.2
    end },
    { "HingeLoss",              { margin = 0.8 }, SIGNS,
      function(p, t) return max(0, 0.8 - p * t) end },
    { "SquaredHingeLoss",       {},              SIGNS,
      function(p, t) return max(0, 1 - p * t) ^ 2 end },
    { "LogisticLoss",           {},              SIGNS,
      function(p, t) return log(1 + exp(-p * t)) end },
    { "LogisticLoss",           { label_format = "binary" }, BITS, cross },
    { "SigmoidBCELoss",         {},              BITS,  cross },
  }
  for i, case in ipairs(ELEMENTS) do
    it(("%s is the mean of each sample (%d)"):format(case[1], i), function()
      local f = loss[case[1]](case[2])
      local p, t = array(P), array(case[3])
      local want = means(P, case[3], case[4])
      assert.near(want, f(p, t), 1e-6)
      f:hybridize()
      assert.near(want, f(p, t), 1e-6)
      ty.test_utils.check_gradient{ function(x) return f(x, t) end, p, rtol = 1e-4 }
      local w = array{ { 2 }, { 0.5 } }
      assert.near({ want[1] * 2, want[2] * 0.5 }, f(p, t, w), 1e-6)
    end)
  end

  it("SigmoidBCELoss with weights of positives and of probabilities", function()
    local weight = array{ 2, 3, 0.5 }
    local function factor(k) return ({ 2, 3, 0.5 })[k] end
    local want, from = {}, {}
    local prob = { { 0.2, 0.9, 0.6 }, { 0.4, 0.3, 0.7 } }
    for i = 1, 2 do
      local a, b = 0, 0
      for k = 1, 3 do
        local x, z, q = P[i][k], BITS[i][k], prob[i][k]
        a = a + x - x * z + (1 + z * (factor(k) - 1)) * (log(1 + exp(-abs(x))) + max(-x, 0))
        b = b - (factor(k) * z * log(q) + (1 - z) * log(1 - q))
      end
      want[i], from[i] = a / 3, b / 3
    end
    local f, g = loss.SigmoidBCELoss(), loss.SigmoidBCELoss{ from_sigmoid = true }
    for _ = 1, 2 do
      assert.near(want, f(array(P), array(BITS), nil, weight), 1e-6)
      assert.near(from, g(array(prob), array(BITS), nil, weight), 1e-6)
      f:hybridize()
      g:hybridize()
    end
  end)

  it("SoftmaxCELoss is the negative logarithm of the label's probability", function()
    local want = {}
    for i, class in ipairs{ 2, 0 } do
      local sum = 0
      for k = 1, 3 do sum = sum + exp(P[i][k]) end
      want[i] = -log(exp(P[i][class + 1]) / sum)
    end
    local label = array{ 2, 0 }
    local one_hot = array{ { 0, 0, 1 }, { 1, 0, 0 } }
    local f, dense = loss.SoftmaxCELoss(), loss.SoftmaxCELoss{ sparse_label = false }
    local logits = loss.SoftmaxCELoss{ from_logits = true }
    for _ = 1, 2 do
      assert.near(want, f(array(P), label), 1e-6)
      assert.near(want, dense(array(P), one_hot), 1e-6)
      assert.near(want, logits(nd.log_softmax(array(P)), label), 1e-6)
      f:hybridize()
      dense:hybridize()
      logits:hybridize()
    end
    ty.test_utils.check_gradient{ function(x) return f(x, label) end, array(P), rtol = 1e-4 }
    local across = loss.SoftmaxCELoss{ axis = 1 }
    assert.shape({ 2 }, across(form{ 2, 3, 4 }, array{ { 0, 1, 2, 0 }, { 2, 2, 1, 0 } }))
  end)

  it("KLDivLoss is the sum over the classes", function()
    local q = { { 0.2, 0.3, 0.5 }, { 0.6, 0.2, 0.2 } }
    local f = loss.KLDivLoss{ from_logits = false }
    local want = {}
    for i = 1, 2 do
      local sum, kl = 0, 0
      for k = 1, 3 do sum = sum + exp(P[i][k]) end
      for k = 1, 3 do kl = kl + q[i][k] * (log(q[i][k]) - log(exp(P[i][k]) / sum)) end
      want[i] = kl
    end
    assert.near(want, f(array(P), array(q)), 1e-6)
    assert.near(want, loss.KLDivLoss()(nd.log_softmax(array(P)), array(q)), 1e-6)
  end)

  it("PoissonNLLLoss is one number", function()
    local f = loss.PoissonNLLLoss()
    local sum = 0
    for i = 1, 2 do
      for k = 1, 3 do sum = sum + exp(P[i][k]) - abs(T[i][k]) * P[i][k] end
    end
    local t = nd.abs(array(T))
    assert.near(sum / 6, f(array(P), t):asscalar(), 1e-6)
    local full = loss.PoissonNLLLoss{ from_logits = false, compute_full = true }
    local p, n = array{ { 3, 1.5, 2 } }, array{ { 2, 0, 1 } }
    local want = (3 - 2 * log(3) + 2 * log(2) - 2 + 0.5 * log(4 * math.pi)
      + 1.5 + 2 - log(2)) / 3
    for _ = 1, 2 do
      assert.near(want, full(p, n):asscalar(), 1e-6)
      full:hybridize()
    end
    ty.test_utils.check_gradient{ function(x) return full(x, n) end, p, rtol = 1e-4 }
  end)

  it("TripletLoss compares squared distances", function()
    local f = loss.TripletLoss{ margin = 2 }
    local a, b, c = array{ { 0, 0 }, { 1, 1 } }, array{ { 1, 0 }, { 1, 1 } },
      array{ { 0, 2 }, { 3, 3 } }
    assert.near({ 0, 0 }, f(a, b, c))
    assert.near({ 5, 10 }, f(a, c, b))
  end)

  it("CosineEmbeddingLoss is by the label", function()
    local f = loss.CosineEmbeddingLoss{ margin = 0.5 }
    local a, b = array{ { 1, 0 }, { 1, 1 }, { 1, 0 } }, array{ { 1, 1 }, { 1, 1 }, { 0, 1 } }
    local half = math.sqrt(0.5)
    for _ = 1, 2 do
      assert.near({ { 1 - half }, { 0.5 }, { 0 } }, f(a, b, array{ 1, -1, -1 }), 1e-6)
      f:hybridize()
    end
    assert.near({ { 0 } }, f(array{ { 0, 0 } }, array{ { 1, 2 } }, array{ -1 }))
  end)

  it("SDMLLoss is the divergence from smoothed labels", function()
    local f = loss.SDMLLoss{ smoothing_parameter = 0.2 }
    local a, b = form({ 3, 4 }, "float64", 1), form({ 3, 4 }, "float64", 2)
    local x, y, want = a:totable(), b:totable(), {}
    for i = 1, 3 do
      local apart, sum = {}, 0
      for k = 1, 3 do
        apart[k] = 0
        for c = 1, 4 do apart[k] = apart[k] + (x[i][c] - y[k][c]) ^ 2 end
        sum = sum + exp(-apart[k])
      end
      want[i] = 0
      for k = 1, 3 do
        local label = i == k and 0.8 or 0.1
        want[i] = want[i] + label * (log(label) + apart[k] + log(sum))
      end
    end
    for _ = 1, 2 do
      assert.near(want, f(a, b), 1e-9)
      f:hybridize()
    end
    ty.test_utils.check_gradient{ function(p, q) return f(p, q) end, { a, b }, rtol = 1e-4 }
  end)

  it("CTCLoss is that of the only alignment", function()
    local f = loss.CTCLoss()
    local p = nd.array{ { { 1, 0, 0 } } }
    local sum = exp(1) + 2
    assert.near({ -log(exp(1) / sum) }, f(p, nd.array{ { 0 } }), 1e-5)
    local long = form({ 2, 4, 3 }, "float32")
    local lengths, labels = nd.array{ 4, 2 }, nd.array{ { 0, 1 }, { 1, 0 } }
    local with = f(long, labels, lengths, nd.array{ 2, 1 })
    local alone = f(long["1:2, 0:2"], nd.array{ { 1 } })
    assert.near(with:totable()[2], alone:totable()[1], 1e-5)
    f:hybridize()
    assert.near(with, f(long, labels, lengths, nd.array{ 2, 1 }), 1e-5)
    local g = loss.CTCLoss{ layout = "TNC", label_layout = "TN", weight = 2 }
    assert.near(with * 2, g(long:swapaxes{ dim1 = 0, dim2 = 1 }, labels.T, lengths,
      nd.array{ 2, 1 }), 1e-5)
  end)
end)


describe("a loss", function()
  it("takes the mean over the axes that are not batch_axis", function()
    local f = loss.L1Loss{ batch_axis = 1 }
    local p, t = array(P), array(T)
    local want = {}
    for k = 1, 3 do want[k] = (abs(P[1][k] - T[1][k]) + abs(P[2][k] - T[2][k])) / 2 end
    assert.near(want, f(p, t), 1e-9)
    assert.shape({ 2 }, loss.L2Loss()(form{ 2, 3, 4 }, form{ 2, 3, 4 }))
  end)

  it("gives labels the shape of predictions", function()
    assert.near({ 0.5, 2 }, loss.L2Loss()(array{ { 1 }, { 2 } }, array{ 0, 0 }))
    assert.raises("shape", loss.L2Loss(), array(P), array{ 1, 2, 3, 4 })
  end)

  it("of one's own has weight and batch_axis from the options", function()
    local Own = loss.Loss:extend("Own")
    function Own:init(gamma)
      self.gamma = gamma
    end
    function Own:forward(p) return ty.F.mean{ p * self.weight, axis = self.batch_axis } end
    local f = Own(2, { weight = 3, batch_axis = 1 })
    assert.equal(2, f.gamma)
    assert.near({ 6, 9 }, f(array{ { 2, 2 }, { 3, 3 } }))
    assert.is_nil(Own(2).weight)
    assert.equal(0, Own(2).batch_axis)
    assert.equal("Own(batch_axis=1, w=3.0)", tostring(f))
    assert.raises("type", Own, { weight = "x" })
  end)

  it("has names and texts as the reference", function()
    ty.name.NameManager():with(function()
      assert.equal("l2loss0_", loss.L2Loss().prefix)
      assert.equal("softmaxcrossentropyloss0_", loss.SoftmaxCELoss().prefix)
    end)
    assert.equal("L2Loss(batch_axis=0, w=1.0)", tostring(loss.L2Loss()))
    assert.equal("L1Loss(batch_axis=0, w=None)", tostring(loss.L1Loss()))
    assert.equal("HuberLoss(batch_axis=1, w=0.5)",
      tostring(loss.HuberLoss{ weight = 0.5, batch_axis = 1 }))
  end)

  it("frees what it makes on the way", function()
    local pred, label = form({ 3, 4 }, "float32"):attach_grad(), form({ 3, 4 }, "float32")
    local classes = nd.array{ 0, 2, 1 }
    local function arrays_left(f, ...)
      ty.waitall()                                       -- what is queued holds arrays, too
      local before = ty.live().tensors
      local l = ty.autograd.record(f, ...)
      ty.waitall()
      local left = ty.live().tensors - before
      l:backward()
      return left
    end
    for _, case in ipairs{ { loss.SoftmaxCELoss(), classes }, { loss.L2Loss(), label },
        { loss.HuberLoss(), label }, { loss.SigmoidBCELoss{ weight = 2 }, label } } do
      local f, target = case[1], case[2]
      local function call() return f(pred, target) end
      arrays_left(call)
      collectgarbage()
      collectgarbage("stop")
      local left = arrays_left(call)
      collectgarbage("restart")
      assert.equal(1, left, tostring(f))
    end
  end)

  it("names the input that is missing", function()
    local x = nd.ones{ 2, 3 }
    for name, inputs in pairs{ L2Loss = { "pred", "label" }, PoissonNLLLoss = { "pred", "target" },
        SoftmaxCELoss = { "pred", "label" }, TripletLoss = { "pred", "positive", "negative" },
        SDMLLoss = { "x1", "x2" }, CosineEmbeddingLoss = { "input1", "input2", "label" } } do
      for i, argument in ipairs(inputs) do
        local given = { x, x, x }
        given[i] = nil
        local e = assert.raises("type", function() loss[name]()(unpack(given, 1, 3)) end)
        assert.equal(argument, e.argument)
        assert.equal(argument ~= "label" and argument ~= "target",
          e.message:find("return its result", 1, true) ~= nil)
      end
    end
  end)

  it("names labels of another size", function()
    local function refused(name, argument, text, ...)
      local inputs = { ... }
      local ok, e = pcall(function() return loss[name]()(unpack(inputs)) end)
      assert.is_false(ok)
      assert.same({ "shape", argument }, { e.code, e.argument })
      assert.truthy(e.message:find(text, 1, true), e.message)
    end
    local pred, few = nd.ones{ 10, 3 }, nd.ones(9)
    for _, name in ipairs{ "L2Loss", "L1Loss", "HuberLoss", "HingeLoss", "SquaredHingeLoss",
        "LogisticLoss", "SigmoidBCELoss" } do
      refused(name, "label", "as many elements", pred, few)
    end
    refused("PoissonNLLLoss", "target", "as many elements", pred, few)
    refused("TripletLoss", "negative", "as many elements", pred, pred, few)
    refused("SoftmaxCELoss", "label", "does not fit 'pred' of shape (10, 3)", pred, few)
    refused("SoftmaxCELoss", "label", "'pred' is the first argument", few, pred)
  end)


  it("says that one-hot labels need sparse_label = false", function()
    local pred = array(P)
    for _, axis in ipairs{ -1, 1 } do
      local f = loss.SoftmaxCELoss{ axis = axis }
      local e = assert.raises("shape", f, pred, array{ { 0, 1, 0 }, { 1, 0, 0 } })
      assert.matches("sparse_label = false", tostring(e), 1, true)
    end
    for _, label in ipairs{ array{ 1, 0 }, array{ { 1 }, { 0 } } } do
      assert.same({ 2 }, loss.SoftmaxCELoss()(pred, label).shape)
    end
    assert.same({ 2 }, loss.SoftmaxCELoss()(array{ { 1 }, { 2 } }, array{ { 0 }, { 0 } }).shape)
  end)

  it("names the input that is missing, or that is no array", function()
    local LAST = { TripletLoss = "negative", CosineEmbeddingLoss = "label", SDMLLoss = "x2",
      PoissonNLLLoss = "target" }
    local x = ty.nd.ones{ 2, 3 }
    for _, name in ipairs{ "L1Loss", "L2Loss", "HuberLoss", "HingeLoss", "SquaredHingeLoss",
        "LogisticLoss", "SoftmaxCELoss", "SigmoidBCELoss", "KLDivLoss", "PoissonNLLLoss", "CTCLoss",
        "TripletLoss", "CosineEmbeddingLoss", "SDMLLoss" } do
      local middle = (name == "TripletLoss" or name == "CosineEmbeddingLoss") and x or nil
      for _, bad in ipairs{ 1, { 1, 2 }, false } do
        local l = loss[name]()
        local e
        if middle then
          e = assert.raises("type", l, x, middle, bad or nil)
        else
          e = assert.raises("type", l, x, bad or nil)
        end
        assert.equal(LAST[name] or "label", e.argument)
        assert.equal("loss." .. l.class_name, e.func)
      end
    end
  end)

  it("refuses unknown options and words", function()
    assert.raises("value", loss.CTCLoss, { layout = "TCN" })
    assert.raises("value", loss.CTCLoss, { label_layout = "X" })
    assert.raises("value", loss.LogisticLoss, { label_format = "other" })
    assert.raises("name", loss.L2Loss, { weigth = 2 })
    assert.raises("name", function() return loss.L3Loss() end)
    assert.raises("type", loss.HuberLoss, { rho = "x" })
  end)
end)
