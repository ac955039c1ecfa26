--- Metrics of numbers and probabilities: errors, cross entropy, perplexity, correlation, mean
-- of outputs; see `metric/init.lua`.
--
-- @module tycho.metric.regression

local base = require "tycho.metric.base"
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"

local kinds = {}

local read, split, check_counts, fail_shape =
  base.read, base.split, base.check_counts, base.fail_shape


-- Errors ------------------------------------------------------------------------------------------

local function as_column(x)
  return #x._shape == 1 and x:reshape{ x._shape[1], 1 } or x
end


-- Returns whether two arrays of these shapes may be subtracted.
local function broadcasts(a, b)
  for i = 0, math.min(#a, #b) - 1 do
    local m, n = a[#a - i], b[#b - i]
    if m ~= n and m ~= 1 and n ~= 1 then
      return false
    end
  end
  return true
end


-- Returns label and pred as pointers and their length, or, where their shapes differ, a pointer to
-- label - pred, nil and its length: vectors become columns, and shapes broadcast. Raises E(shape)
-- if they do not broadcast.
local function difference(label, pred, func)
  local a, b = read(label, func), read(pred, func)
  if tables.same(a.shape, b.shape) then
    return a.p, b.p, a.n
  end
  a, b = as_column(a.array):astype("float64"), as_column(b.array):astype("float64")
  if not broadcasts(a._shape, b._shape) then
    fail_shape(func, label.shape, pred.shape)
  end
  local d = read(a - b, func)
  return d.p, nil, d.n
end


local function mean_absolute(p, q, n)
  local sum = 0
  for i = 0, n - 1 do
    sum = sum + math.abs(q and p[i] - q[i] or p[i])
  end
  return sum / n
end


local function mean_square(p, q, n)
  local sum = 0
  for i = 0, n - 1 do
    local d = q and p[i] - q[i] or p[i]
    sum = sum + d * d
  end
  return sum / n
end


-- Returns the mean over updates of a batch's error.
local function error_metric(class_name, name, measure)
  local Kind, func = base.kind(class_name, name), class_name .. ":update"
  function Kind:_update(labels, preds)
    labels, preds = check_counts(labels, preds, func)
    for i = 1, #labels do
      self:_add(measure(difference(labels[i], preds[i], func)), 1)
    end
  end
  return Kind
end


--- Mean absolute error of a batch, averaged over batches.
kinds.MAE = error_metric("MAE", "mae", mean_absolute)
--- Mean squared error of a batch, averaged over batches.
kinds.MSE = error_metric("MSE", "mse", mean_square)
--- Root of the mean squared error of a batch, averaged over batches.
kinds.RMSE = error_metric("RMSE", "rmse", function(p, q, n)
  return math.sqrt(mean_square(p, q, n))
end)


-- Probabilities -----------------------------------------------------------------------------------

local EPS = { "eps", "number", 1e-12 }

-- Returns the sum of -log(p + eps) over rows, p being the probability of the row's label; negative
-- labels count from the end.
local function log_loss(label, pred, eps, func)
  local rows, n = pred.shape[1], pred.shape[2]
  if #pred.shape ~= 2 or label.n ~= rows then
    fail_shape(func, label.array.shape, pred.array.shape)
  end
  local sum = 0
  for r = 0, rows - 1 do
    local c = label.p[r]
    c = c < 0 and math.ceil(c) + n or math.floor(c)
    if not (c >= 0 and c < n) then
      Error.raise{ code = "index", func = func, argument = "labels",
        expected = ("%d to %d"):format(-n, n - 1), got = tonumber(label.p[r]),
        message = ("row %d has a label that is no class"):format(r) }
    end
    sum = sum - math.log(pred.p[r * n + c] + eps)
  end
  return sum, rows
end


local function entropy_metric(class_name, name, ...)
  local Kind, func = base.kind(class_name, name, { EPS }, ...), class_name .. ":update"
  function Kind:_update(labels, preds)
    labels, preds = check_counts(labels, preds, func)
    for i = 1, #labels do
      self:_add(log_loss(read(labels[i], func), read(preds[i], func), self.eps, func))
    end
  end
  return Kind
end


--- Mean of -log of the label's probability. Option eps = 1e-12, added to it.
kinds.CrossEntropy = entropy_metric("CrossEntropy", "cross-entropy", "ce")
--- As CrossEntropy.
kinds.NegativeLogLikelihood = entropy_metric("NegativeLogLikelihood", "nll-loss", "nll_loss")


--- exp of the mean of -log of the labels' probabilities, which count as at least 1e-10.
-- Options ignore_label (samples with this label are skipped; `ty.null`: none), axis = -1 of the
-- classes. Predictions are matrices.
kinds.Perplexity = base.kind("Perplexity", "perplexity", {
  { "ignore_label", "number|null" }, { "axis", "integer", -1 },
})

function kinds.Perplexity._value(_, sum, count)
  return math.exp(sum / count)
end


-- Returns the sum and the number of the elements that count in one pair.
local function compute_perplexity(self, label, pred, axis, ignore)
  local outer, size, inner = split(pred.shape, axis)
  if #pred.shape ~= 2 or label.n ~= pred.n / pred.shape[#pred.shape]
      or label.n ~= outer * inner then
    fail_shape("Perplexity:update", label.array.shape, pred.array.shape)
  end
  local sum, n, most = 0, 0, -1
  for o = 0, outer - 1 do
    for i = 0, inner - 1 do
      local v = label.p[o * inner + i]
      if v ~= ignore then
        local c = math.max(0, math.min(math.floor(v), size - 1))
        local p = pred.p[(o * size + c) * inner + i]
        sum, n = sum - math.log(p < 1e-10 and 1e-10 or p), n + 1
        most = math.max(most, tonumber(v))
      end
    end
  end
  self:_check_label(most, size)
  return sum, n
end


function kinds.Perplexity:_update(labels, preds)
  labels, preds = check_counts(labels, preds, "Perplexity:update")
  local sum, count = 0, 0
  for i = 1, #labels do
    local s, n = compute_perplexity(self, read(labels[i], "Perplexity:update"),
      read(preds[i], "Perplexity:update"), self.axis, self.ignore_label)
    sum, count = sum + s, count + n
  end
  self:_add(sum, count)
end


-- Correlation -------------------------------------------------------------------------------------

--- Pearson's correlation of predictions and labels. "macro": of each batch, averaged; "micro": of
-- all samples since the last full reset, where the global value is not kept. Option
-- average = "macro" or "micro".
kinds.PearsonCorrelation = base.kind("PearsonCorrelation", "pearsonr",
  { { "average", { "macro", "micro" }, "macro" } }, "pearsonr")
kinds.PearsonCorrelation.may_be_nan = true               -- of values that are all equal

-- Returns the moments of two lists of n numbers: n, means x and y, sums of squared deviations xx
-- and yy, and the sum of their products xy.
local function moments(a, b, n)
  local m = { n = n, x = 0, y = 0, xx = 0, yy = 0, xy = 0 }
  for i = 0, n - 1 do
    m.x, m.y = m.x + a[i] / n, m.y + b[i] / n
  end
  for i = 0, n - 1 do
    local dx, dy = a[i] - m.x, b[i] - m.y
    m.xx, m.yy, m.xy = m.xx + dx * dx, m.yy + dy * dy, m.xy + dx * dy
  end
  return m
end


-- Returns the moments of two sets of samples together (Chan, Golub, LeVeque 1979).
local function join(p, q)
  local n = p.n + q.n
  local dx, dy, f = q.x - p.x, q.y - p.y, p.n * q.n / n
  return { n = n, x = p.x + dx * q.n / n, y = p.y + dy * q.n / n, xx = p.xx + q.xx + dx * dx * f,
    yy = p.yy + q.yy + dy * dy * f, xy = p.xy + q.xy + dx * dy * f }
end


local function coefficient(m)
  return m.xy / math.sqrt(m.xx * m.yy)
end


function kinds.PearsonCorrelation:reset()
  kinds.PearsonCorrelation.super.reset(self)
  self._moments = nil
end


function kinds.PearsonCorrelation:_update(labels, preds)
  labels, preds = check_counts(labels, preds, "PearsonCorrelation:update")
  for i = 1, #labels do
    local label, pred = read(labels[i], "PearsonCorrelation:update"),
      read(preds[i], "PearsonCorrelation:update")
    if not tables.same(label.shape, pred.shape) then
      fail_shape("PearsonCorrelation:update", label.array.shape, pred.array.shape)
    end
    local m = moments(pred.p, label.p, label.n)
    if self.average == "macro" then
      self:_add(coefficient(m), 1)
    else
      self._moments = self._moments and join(self._moments, m) or m
      self:_add(0, 1)
    end
  end
end


function kinds.PearsonCorrelation:get()
  if self.average == "micro" and self.num_inst > 0 then
    return self.name, coefficient(self._moments)
  end
  return kinds.PearsonCorrelation.super.get(self)
end


-- Outputs themselves ------------------------------------------------------------------------------

--- The mean of all elements of the predictions; labels are ignored.
kinds.Loss = base.kind("Loss", "loss")

function kinds.Loss:_update(_, preds)
  _, preds = check_counts(preds, preds)
  for _, pred in ipairs(preds) do
    local v, sum = read(pred, "Loss:update"), 0
    for i = 0, v.n - 1 do
      sum = sum + v.p[i]
    end
    self:_add(sum, v.n)
  end
end


--- As Loss.
kinds.Torch = base.kind("Torch", "torch")
--- As Loss.
kinds.Caffe = base.kind("Caffe", "caffe")
kinds.Torch._update, kinds.Caffe._update = kinds.Loss._update, kinds.Loss._update


return kinds
