--- Operators of the domain ai.onnx.ml with numeric inputs and outputs: trees, linear models,
-- preprocessing (not for users); see onnx/ops_math.lua.
--
-- @module tycho.onnx.ops_ml

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local tables = require "tycho.core.tables"
local value = require "tycho.onnx.value"

local ops = {}

local op = value.op


-- Returns the samples as rows of real numbers.
local function make_rows(x)
  local y = value.REAL[x.dtype] and x or x:cast("float32")
  return #y.shape == 1 and y:unsqueeze(0) or y
end


local TRANSFORMS = {
  NONE = function(x) return x end,
  LOGISTIC = function(x) return x:map("sigmoid") end,
  SOFTMAX = function(x) return x:map("softmax", {}, { axis = 1 }) end,
}

local function choose_transform(n) return n:choice("post_transform", "NONE", TRANSFORMS) end


-- Rows --------------------------------------------------------------------------------------------

function ops.Scaler(n, x)
  local y = make_rows(x)
  return (y - value.list(n:list("offset", { 0 }), y.dtype))
    * value.list(n:list("scale", { 1 }), y.dtype)
end

function ops.Binarizer(n, x) return x:greater(n:float("threshold", 0)):cast(x.dtype) end

local NORMS = { MAX = "max", L1 = "sum", L2 = "sum" }

function ops.Normalizer(n, x)
  local y, norm = make_rows(x), n:text("norm", "MAX")
  local size = (norm == "L2" and y * y or norm == "L1" and y:map("abs") or y)
    :reduce(n:choice("norm", "MAX", NORMS), { 1 }, true)
  size = norm == "L2" and size:map("sqrt") or size
  return y / value.where(size:equal(0), value.scalar(1, y.dtype), size)
end

function ops.ArrayFeatureExtractor(_, x, indices)
  local shape = #x.shape > 1 and tables.copied(x.shape) or { 1 }
  shape[#shape] = indices:is_constant() and value.product(indices.shape) or -1
  return op("take", { x, indices:reshape{ shape[#shape] } }, { axis = #x.shape - 1,
    mode = "clip" }):reshape(shape)
end

function ops.LinearRegressor(n, x)
  local y, targets = make_rows(x), n:int("targets", 1)
  local weights = n:list("coefficients") or value.damaged("attribute 'coefficients' is missing")
  local bias = n:list("intercepts")
  local features = #weights / targets
  if targets < 1 or features ~= math.floor(features) then
    value.damaged("%d coefficients for %d targets", #weights, targets)
  end
  y = value.matmul(y, value.list(weights, y.dtype, { targets, features }):transpose{ 1, 0 })
  return choose_transform(n)(bias and y + value.list(bias, y.dtype) or y)
end


-- Trees -------------------------------------------------------------------------------------------

local MOST_LEVELS = 256                  -- most levels of a tree

-- Comparisons of a node: the operator, and whether the branches are swapped.
local MODES = { BRANCH_LEQ = { "lesser_equal" }, BRANCH_LT = { "lesser" },
  BRANCH_GT = { "lesser_equal", true }, BRANCH_GTE = { "lesser", true } }

-- Returns the attribute `name`, a list with one entry for each of `count` nodes.
local function read_list(n, name, count)
  local list = n:list(name)
  if not list or #list ~= count then
    value.damaged("attribute '%s' has %d entries instead of %d", name, list and #list or 0, count)
  end
  return list
end

-- Returns the trees of a node: lists by node `feature`, `threshold`, `yes`, `no` and `missing` (the
-- node at which a row continues, from 0; a leaf leads to itself), the comparison `compare` (nil:
-- all nodes are leaves), `roots`, `count`, `track` (whether `missing` differs from `no`),
-- find_position(tree, number).
local function read_trees(n)
  local modes = n.attrs.nodes_modes
  if n.attrs.nodes_values_as_tensor or type(modes) ~= "table" then
    n:refuse("thresholds in float64, or nodes without a mode")
  end
  local count = #modes
  local function read(name) return read_list(n, name, count) end
  local trees, numbers = read "nodes_treeids", read "nodes_nodeids"
  local above, below = read "nodes_truenodeids", read "nodes_falsenodeids"
  local tracks = n:list("nodes_missing_value_tracks_true", {})
  local positions, seen = {}, {}
  local t = { feature = tables.copied(read "nodes_featureids"), yes = {}, no = {}, missing = {},
    threshold = read "nodes_values", roots = {}, count = count }
  local function make_key(tree, number) return ("%d %d"):format(tree, number) end
  for i = 1, count do
    positions[make_key(trees[i], numbers[i])] = i - 1
    if not seen[trees[i]] then
      seen[trees[i]] = true
      t.roots[#t.roots + 1] = i - 1
    end
  end
  t.find_position = function(tree, number)
    return positions[make_key(tree, number)]
      or value.damaged("tree %d has no node %d", tree, number)
  end
  for i = 1, count do
    if modes[i] == "LEAF" then
      t.yes[i], t.no[i], t.missing[i], t.feature[i] = i - 1, i - 1, i - 1, 0
    else
      local mode = MODES[modes[i]] or n:refuse("nodes of mode '%s'", tostring(modes[i]))
      local yes, no = t.find_position(trees[i], above[i]), t.find_position(trees[i], below[i])
      t.missing[i] = tracks[i] == 1 and yes or no
      t.yes[i], t.no[i] = mode[2] and no or yes, mode[2] and yes or no
      t.track = t.track or t.missing[i] ~= t.no[i]
      if t.compare and t.compare ~= mode[1] then
        n:refuse("nodes of different modes")
      end
      t.compare = mode[1]
    end
  end
  return t
end

-- Returns the number of levels below the roots; raises an error if a node has two parents.
local function count_levels(t)
  local at, levels, visited = t.roots, 0, 0
  while true do
    local deeper = {}
    for _, i in ipairs(at) do
      visited = visited + 1
      if t.yes[i + 1] ~= i or t.no[i + 1] ~= i then
        deeper[#deeper + 1], deeper[#deeper + 2] = t.yes[i + 1], t.no[i + 1]
      end
    end
    if visited > t.count then
      value.damaged("a node of a tree is reached twice")
    elseif #deeper == 0 then
      return levels
    end
    at, levels = deeper, levels + 1
    if levels > MOST_LEVELS then
      value.refuse("trees of more than %d levels", MOST_LEVELS)
    end
  end
end

-- Returns the positions (rows, trees) of the leaves in which the rows of x end.
local function find_leaves(t, x)
  local function make_table(list, dtype) return value.list(list, dtype or "int64") end
  local feature, threshold = make_table(t.feature), make_table(t.threshold, x.dtype)
  local yes, no, missing = make_table(t.yes), make_table(t.no), make_table(t.missing)
  local function look_up(list, at) return (op("take", { list, at }, { mode = "clip" })) end
  local at = make_table(t.roots)
  local levels = count_levels(t)
  if levels == 0 then                    -- all trees are leaves
    at = op("zeros_like", { x:part(1, 0, 1) }):cast("int64") + at
  end
  for level = 1, levels do
    local columns = look_up(feature, at)
    local v = level == 1 and op("take", { x, columns }, { axis = 1, mode = "clip" })
      or op("_contrib_take_along_axis", { x, columns }, { axis = 1 })
    local test = value.binary(t.compare, v, look_up(threshold, at)):truth()
    local next_at = value.where(test, look_up(yes, at), look_up(no, at))
    if t.track then
      local known = value.binary("equal", v, v):truth()
      next_at = value.where(known, next_at, look_up(missing, at))
    end
    at = next_at
  end
  return at
end


-- Returns the sums (rows, outputs) of the values in the leaves; `kind` is "target" or "class".
local function sum_leaves(n, x, kind, outputs, reduction)
  local t = read_trees(n)
  local weights = n:list(kind .. "_weights") or n:refuse("weights in float64")
  local trees = read_list(n, kind .. "_treeids", #weights)
  local numbers, ids = read_list(n, kind .. "_nodeids", #weights), read_list(n, kind .. "_ids",
    #weights)
  value.spend(t.count * outputs, "the weights of leaves")
  local list = {}
  for i = 1, t.count * outputs do
    list[i] = 0
  end
  for i, w in ipairs(weights) do
    if ids[i] < 0 or ids[i] >= outputs then
      value.damaged("output %d of %d", ids[i], outputs)
    end
    local at = t.find_position(trees[i], numbers[i]) * outputs + ids[i] + 1
    list[at] = list[at] + w
  end
  local leaves = find_leaves(t, x)
  local y = op("take", { value.list(list, x.dtype, { t.count, outputs }), leaves },
    { axis = 0, mode = "clip" })
  return y:reduce(reduction, { 1 }, false)
end


local AGGREGATES = { SUM = "sum", AVERAGE = "mean", MIN = "min", MAX = "max" }

function ops.TreeEnsembleRegressor(n, x)
  local outputs, y = n:int("n_targets", 1), make_rows(x)
  local reduction, base = n:choice("aggregate_function", "SUM", AGGREGATES), n:list("base_values")
  if outputs > 1 and (reduction == "min" or reduction == "max") then
    n:refuse("aggregate_function of several targets that is no sum")
  end
  local sums = sum_leaves(n, y, "target", outputs, reduction)
  return choose_transform(n)(base and sums + value.list(base, sums.dtype) or sums)
end


-- Returns the labels of the classes with the largest scores.
local function choose_labels(scores, labels)
  local at = op("argmax", { scores }, { axis = 1, dtype = "int64" })
  return (op("take", { value.list(labels, "int64"), at }, { mode = "clip" }))
end

-- Returns the labels of a classifier; names are E(unsupported).
local function read_labels(n, name)
  return n:list(name) or n:refuse("labels that are text")
end

function ops.TreeEnsembleClassifier(n, x)
  local labels, y = read_labels(n, "classlabels_int64s"), make_rows(x)
  local ids, single, positive = n:list("class_ids", {}), #labels == 2, true
  for i, w in ipairs(n:list("class_weights", {})) do
    single, positive = single and ids[i] == ids[1], positive and w >= 0
  end
  local base = n:list("base_values")
  local scores = sum_leaves(n, y, "class", #labels, "sum")
  if single then                         -- leaves have scores of the second class
    local score = scores:part(1, ids[1] or 0, (ids[1] or 0) + 1)
    score = base and score + base[#base] or score
    local logistic = n:text("post_transform", "NONE") == "LOGISTIC"
    local other = positive and not logistic and -score + 1 or -score
    scores = value.concat({ other, score }, 1)
    local label = value.where(score:greater(positive and 0.5 or 0):truth(),
      value.scalar(labels[2], "int64"), value.scalar(labels[1], "int64"))
    return label:squeeze(1), logistic and scores:map("sigmoid") or scores
  end
  scores = base and scores + value.list(base, scores.dtype) or scores
  return choose_labels(scores, labels), choose_transform(n)(scores)
end


function ops.LinearClassifier(n, x)
  local labels, y = read_labels(n, "classlabels_ints"), make_rows(x)
  local weights, bias = n:list("coefficients", {}), n:list("intercepts")
  local rows = bias and #bias or #labels
  local features = #weights / rows
  if rows ~= #labels or features ~= math.floor(features) or #labels < 2 then
    n:refuse("%d coefficients and %d intercepts for %d classes", #weights, rows, #labels)
  end
  local scores = value.matmul(y, value.list(weights, y.dtype, { rows, features }):transpose{ 1, 0 })
  scores = bias and scores + value.list(bias, y.dtype) or scores
  return choose_labels(scores, labels), choose_transform(n)(scores)
end


return ops
