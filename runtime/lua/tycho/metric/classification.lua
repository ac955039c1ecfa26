--- Metrics of predicted classes: Accuracy, TopKAccuracy, F1, MCC, PCC; see `metric/init.lua`.
-- Labels are truncated to integers, classes count from 0. A prediction with NaN has no largest
-- class and counts as wrong.
--
-- @module tycho.metric.classification

local pairs = require("tycho.core.iterate").pairs
local ffi = require "ffi"
local base = require "tycho.metric.base"
local Error = require "tycho.core.error"
local tables = require "tycho.core.tables"

local kinds = {}

local read, split, check_counts, fail_shape =
  base.read, base.split, base.check_counts, base.fail_shape


local function truncate(v)
  return v < 0 and math.ceil(v) or math.floor(v)
end


local NAN = 0 / 0

-- Returns the index, from 0, of the largest of n numbers that are `step` apart, the first of equal
-- ones; NaN if one of them is NaN.
local function argmax(p, n, step)
  local best, most = 0, p[0]
  for c = 0, n - 1 do
    local v = p[c * step]
    if v > most then
      best, most = c, v
    elseif v ~= v then
      return NAN
    end
  end
  return best
end


local function largest(p, n)
  local most = -math.huge
  for i = 0, n - 1 do
    most = p[i] > most and p[i] or most
  end
  return tonumber(most)
end


local function any_nan(p, n)
  for i = 0, n - 1 do
    if p[i] ~= p[i] then
      return true
    end
  end
  return false
end


--- Returns the classes with the largest values along an axis, as doubles in C memory, and their
-- number. Records NaN, and a label that is not a class.
local function predicted(self, label, pred, axis, func)
  local outer, size, inner = split(pred.shape, axis)
  if not size then
    Error.raise{ code = "shape", func = func, argument = "preds", expected = "an axis " .. axis,
      got = pred.array.shape, message = ("predictions have no axis %d"):format(axis) }
  end
  local n = outer * inner
  local classes = ffi.new("double[?]", n)
  for o = 0, outer - 1 do
    for i = 0, inner - 1 do
      classes[o * inner + i] = argmax(pred.p + (o * size * inner + i), size, inner)
    end
  end
  self.has_nan = self.has_nan or any_nan(classes, n)
  self:_check_label(largest(label.p, label.n), size)
  return classes, n
end


-- Accuracy ----------------------------------------------------------------------------------------

--- The share of right predictions. If predictions have another shape than labels, the class is
-- the index of the largest value along `axis`. Option axis = 1.
kinds.Accuracy = base.kind("Accuracy", "accuracy", { { "axis", "integer", 1 } }, "acc")

local function count_equal(a, b, n)
  local equal = 0
  for i = 0, n - 1 do
    if truncate(a[i]) == truncate(b[i]) then
      equal = equal + 1
    end
  end
  return equal
end

-- Returns a label as readable elements, and the predicted classes for it with their number: the
-- positions of the largest values along an axis, or the predictions themselves if these have the
-- label's shape.
local function compared(self, label, pred, axis, func)
  label, pred = read(label, func), read(pred, func)
  local classes, n = pred.p, pred.n
  if not tables.same(label.shape, pred.shape) then
    classes, n = predicted(self, label, pred, axis, func)
  end
  if label.n ~= n then
    fail_shape(func, label.n, n)
  end
  return label, classes, n
end

function kinds.Accuracy:_update(labels, preds)
  labels, preds = check_counts(labels, preds, "Accuracy:update")
  for i = 1, #labels do
    local label, classes, n = compared(self, labels[i], preds[i], self.axis,
      "Accuracy:update")
    self:_add(count_equal(label.p, classes, n), n)
  end
end


--- The share of labels among the k most likely classes. Option top_k, above 1 and
-- at most the number of classes; the metric's name ends in it.
kinds.TopKAccuracy = base.kind("TopKAccuracy", "top_k_accuracy", { { "top_k", "integer", 1 } },
  "top_k_accuracy", "top_k_acc")
local init_top = kinds.TopKAccuracy.init

function kinds.TopKAccuracy:init(...)
  init_top(self, ...)
  if self.top_k <= 1 then
    Error.raise{ code = "value", func = "metric.TopKAccuracy", argument = "top_k",
      expected = "above 1", got = self.top_k, message = "use Accuracy where top_k is 1" }
  end
  local suffix = "_" .. self.top_k
  if self.name:sub(-#suffix) ~= suffix then              -- one made of a configuration has it
    self.name = self.name .. suffix
  end
end


-- Returns whether fewer than k classes of a row are more likely than c; of equal classes the later
-- one counts as more likely.
local function is_among(p, n, c, k)
  if not (c >= 0 and c < n) then
    return false
  end
  local v, above = p[c], 0
  for j = 0, n - 1 do
    if p[j] > v or p[j] == v and j > c then
      above = above + 1
    end
  end
  return above < k
end


-- Updates with predictions of one dimension: the labels are compared with the order of the values.
-- Hits are added to the local sum only.
local function update_order(self, label, pred)
  local order = {}
  for i = 1, pred.n do
    order[i] = i - 1
  end
  table.sort(order, function(a, b)
    return pred.p[a] < pred.p[b] or pred.p[a] == pred.p[b] and a < b
  end)
  for i = 1, pred.n do
    self.sum_metric = self.sum_metric + (order[i] == truncate(label.p[i - 1]) and 1 or 0)
  end
  self:_add(0, pred.n)
end


local function update_rows(self, label, pred)
  local rows, n = pred.shape[1], pred.shape[2]
  if self.top_k > n then
    Error.raise{ code = "value", func = "TopKAccuracy:update", argument = "top_k",
      expected = "at most " .. n, got = self.top_k, message = "there are fewer classes than top_k" }
  elseif label.n < rows then
    fail_shape("TopKAccuracy:update", label.n, rows)
  end
  local hits, nan = 0, any_nan(pred.p, pred.n)
  for r = 0, rows - 1 do
    local row = pred.p + r * n
    local hit = is_among(row, n, truncate(label.p[r]), self.top_k) and not (nan and any_nan(row, n))
    hits = hits + (hit and 1 or 0)
  end
  self.has_nan = self.has_nan or nan
  self:_check_label(largest(label.p, rows), n)
  self:_add(hits, rows)
end


function kinds.TopKAccuracy:_update(labels, preds)
  labels, preds = check_counts(labels, preds, "TopKAccuracy:update")
  for i = 1, #labels do
    local label, pred = read(labels[i], "TopKAccuracy:update"),
      read(preds[i], "TopKAccuracy:update")
    if #pred.shape > 2 or label.shape[1] ~= pred.shape[1] then
      fail_shape("TopKAccuracy:update", label.array.shape, pred.array.shape)
    end
    (#pred.shape == 1 and update_order or update_rows)(self, label, pred)
  end
end


-- Two classes -------------------------------------------------------------------------------------

local AVERAGE = { "average", { "macro", "micro" }, "macro" }

local function new_counts()
  return { tp = 0, fp = 0, tn = 0, fn = 0 }
end


local function check_binary(label, func)
  local seen, n = {}, 0
  for i = 0, label.n - 1 do
    local c = truncate(label.p[i])
    if not seen[c] then
      seen[c], n = true, n + 1
    end
    if n > 2 then
      Error.raise{ code = "value", func = func, argument = "labels", expected = "two classes",
        got = "more", message = "the metric is for two classes" }
    end
  end
end


-- Adds a pair's hits and misses to several counts; class 1 is the positive one.
local function count_binary(self, label, pred, counts, func)
  if label.shape[1] ~= pred.shape[1] then
    fail_shape(func, label.array.shape, pred.array.shape)
  end
  local classes, n = predicted(self, label, pred, 1, func)
  if label.n ~= n then
    fail_shape(func, label.n, n)
  end
  check_binary(label, func)
  for i = 0, n - 1 do
    local right, positive = truncate(label.p[i]) == 1, classes[i] == 1
    if classes[i] ~= classes[i] then
      positive = not right
    end
    local key = positive and (right and "tp" or "fp") or (right and "fn" or "tn")
    for _, c in ipairs(counts) do
      c[key] = c[key] + 1
    end
  end
end


local function total(c)
  return c.tp + c.fp + c.tn + c.fn
end


-- Returns a metric of hits and misses. "macro": the mean of the updates' scores;
-- "micro": the score of all samples.
local function binary(class_name, name, score)
  local Kind = base.kind(class_name, name, { AVERAGE })
  local func = class_name .. ":update"

  function Kind:reset()
    Kind.super.reset(self)
    self._local, self._global = new_counts(), new_counts()
  end

  function Kind:reset_local()
    Kind.super.reset_local(self)
    self._local = new_counts()
  end

  function Kind:_update(labels, preds)
    labels, preds = check_counts(labels, preds, func)
    local fresh = self.average == "macro" and new_counts()
    local counts = fresh and { fresh } or { self._local, self._global }
    for i = 1, #labels do
      count_binary(self, read(labels[i], func), read(preds[i], func), counts, func)
    end
    if fresh then
      self:_add(score(fresh), 1)
      return
    end
    self.num_inst, self.global_num_inst = total(self._local), total(self._global)
    self.sum_metric = score(self._local) * self.num_inst
    self.global_sum_metric = score(self._global) * self.global_num_inst
  end

  return Kind
end


local function ratio(a, b)
  return b > 0 and a / b or 0
end


--- The harmonic mean of precision and recall. Option average = "macro" or "micro".
kinds.F1 = binary("F1", "f1", function(c)
  local precision, recall = ratio(c.tp, c.tp + c.fp), ratio(c.tp, c.tp + c.fn)
  return ratio(2 * precision * recall, precision + recall)
end)


--- Matthews' correlation coefficient; sums of 0 are left out of the denominator. Option
-- average = "macro" or "micro".
kinds.MCC = binary("MCC", "mcc", function(c)
  if total(c) == 0 then
    return 0
  end
  local product = 1
  for _, term in ipairs{ c.tp + c.fp, c.tp + c.fn, c.tn + c.fp, c.tn + c.fn } do
    product = term ~= 0 and product * term or product
  end
  return (c.tp * c.tn - c.fp * c.fn) / math.sqrt(product)
end)


-- Many classes ------------------------------------------------------------------------------------

--- The correlation of predicted and true classes, from their confusion matrix.
kinds.PCC = base.kind("PCC", "pcc")
kinds.PCC.may_be_nan = true                              -- with one class only

local function new_matrix()
  return { n = 0 }                                       -- [predicted][label] = count; n of all
end

function kinds.PCC:reset()
  kinds.PCC.super.reset(self)
  self._local, self._global = new_matrix(), new_matrix()
end

function kinds.PCC:reset_local()
  kinds.PCC.super.reset_local(self)
  self._local = new_matrix()
end


-- Returns row and column sums, and the diagonal's sum.
local function margins(m)
  local x, y, diagonal = {}, {}, 0
  for predicted_class, row in pairs(m) do
    for label, count in pairs(type(row) == "table" and row or {}) do
      x[predicted_class], y[label] = (x[predicted_class] or 0) + count, (y[label] or 0) + count
      diagonal = diagonal + (predicted_class == label and count or 0)
    end
  end
  return x, y, diagonal
end


local function correlation(m)
  local x, y, diagonal = margins(m)
  local xx, yy, xy = 0, 0, diagonal * m.n
  for _, count in pairs(x) do
    xx = xx + count * (m.n - count)
  end
  for class, count in pairs(y) do
    yy = yy + count * (m.n - count)
    xy = xy - count * (x[class] or 0)
  end
  if xx == 0 or yy == 0 then
    return 0 / 0
  end
  return xy / math.sqrt(xx * yy)
end


local function note(m, predicted_class, label)
  predicted_class = predicted_class == predicted_class and predicted_class or "none"
  local row = m[predicted_class]
  if not row then
    row = {}
    m[predicted_class] = row
  end
  row[label] = (row[label] or 0) + 1
  m.n = m.n + 1
end


function kinds.PCC:_update(labels, preds)
  labels, preds = check_counts(labels, preds, "PCC:update")
  for i = 1, #labels do
    local label, classes, n = compared(self, labels[i], preds[i], 1, "PCC:update")
    for k = 0, n - 1 do
      local class = truncate(label.p[k])
      note(self._local, truncate(classes[k]), class)
      note(self._global, truncate(classes[k]), class)
    end
  end
  self:_add(0, 1)
  self.sum_metric = correlation(self._local) * self.num_inst
  self.global_sum_metric = correlation(self._global) * self.global_num_inst
end

-- Interpreted, since compiled loops over its growing tables sometimes gave wrong counts.
require("jit").off(kinds.PCC._update, true)
require("jit").off(margins)
require("jit").off(correlation)
require("jit").off(note)


return kinds
