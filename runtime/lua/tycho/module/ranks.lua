--- Training on several ranks with `fit`: each rank takes its share of the batches, values that are
-- shown or that decide are those of all ranks, and rank 0 alone writes files and logs.
--
-- @module tycho.module.ranks

local Class = require "tycho.core.class"
local data_of = require "tycho.io.data"
local log = require "tycho.core.log"
local native = require "tycho.core.ffi"
local random = require "tycho.ndarray.seed"
local comm = require "tycho.kvstore.comm"

local ranks = {}

-- Batches -----------------------------------------------------------------------------------------

--- An iterator that takes, of each `size` consecutive batches, the one with this rank's number. An
-- incomplete last group is dropped, so that all ranks get equally many batches.
-- @type RankIter
local RankIter = data_of.DataIter:extend("RankIter")
ranks.RankIter = RankIter

--- @tparam DataIter inner must give the same batches on all ranks
-- @tparam Group group
function RankIter:init(inner, group)
  RankIter.super.init(self, { batch_size = inner.batch_size })
  self._inner, self._group = inner, group
  self.provide_data, self.provide_label = inner.provide_data, inner.provide_label
  self.default_bucket_key = inner.default_bucket_key
end


function RankIter:next()
  local own
  for r = 0, self._group.size - 1 do
    if r == self._group.rank then
      own = self._inner:next()
      if own == nil then
        return nil
      end
    elseif not self._inner:iter_next() then
      return nil
    end
  end
  return own
end


function RankIter:reset()
  self._inner:reset()
end


function RankIter:state()
  return self._inner:state()
end


function RankIter:set_state(state)
  self._inner:set_state(state)
end


--- This rank's share of the data if each rank has its own iterator. One may be a batch longer than
-- another, so all ranks agree before each batch whether every one has it.
-- @type AgreedIter
local AgreedIter = RankIter:extend("AgreedIter")

function AgreedIter:next()
  local batch = self._inner:next()
  local here = self._group:gather(batch and "1" or "0")
  return not table.concat(here):find("0", 1, true) and batch or nil
end


-- Ranks -------------------------------------------------------------------------------------------

local Ranks = Class:extend("Ranks")

function Ranks:init(kv)
  self._kv, self._group = kv, kv._group
end


--- Returns the number of ranks.
function Ranks:count()
  return self._group.size
end


--- Returns whether this process logs and writes files; only rank 0 does.
function Ranks:speaks()
  return self._group.rank == 0
end


-- Checks that all ranks train the same (version, symbol, parameters, epochs), and copies rank 0's
-- random state of cpu(0), by which iterators shuffle, to all.
local function agree(self, module, a)
  local shapes = {}
  local args = module:get_params()
  for name, x in pairs(args) do
    shapes[#shapes + 1] = ("%s %s %s"):format(name, table.concat(x.shape, "x"), x.dtype)
  end
  table.sort(shapes)
  self._kv:check_same("version", native.text(native.C.ty_version()))
  self._kv:check_same("symbol", module.symbol:tojson())
  self._kv:check_same("parameters", table.concat(shapes, "\n"))
  self._kv:check_same("epochs", ("%d to %d"):format(a.begin_epoch, a.num_epoch))
  local state = random.get_state()["cpu(0)"]             -- used by iterators to shuffle
  local first = self._group:gather(state.seed .. " " .. state.counter)[1]
  local seed, counter = first:match("(%S+) (%S+)")
  random.set_state{ ["cpu(0)"] = { seed = seed, counter = counter } }
end


--- Prepares a training for its first epoch; returns the iterator of this rank's batches. Ranks
-- other than 0 log only warnings.
function Ranks:begin(module, a)
  agree(self, module, a)
  if not self:speaks() and log.level == "info" then
    log.level = "warning"
  end
  local inner, group = a.train_data, self._group
  local own = (inner.num_parts or 1) > 1
  log:info(("%d ranks: %s"):format(group.size, own
    and "each reads its part of the data, as its iterator's options say"
    or "each takes one of so many batches in a row; what is left at an epoch's end is dropped"))
  return own and AgreedIter(inner, group) or RankIter(inner, group)
end


local SUMS = { "sum_metric", "num_inst", "global_sum_metric", "global_num_inst" }

-- Adds to the list the metrics, also inside composite ones, whose values are sums over samples.
local function simple_metrics(metric, list)
  for _, inner in ipairs(metric.metrics or {}) do
    simple_metrics(inner, list)
  end
  if not metric.metrics and type(metric.sum_metric) == "number" then
    list[#list + 1] = metric
  end
  return list
end


--- Sums a metric over all ranks. A metric whose value is not a sum over samples keeps this rank's
-- value.
function Ranks:reduce(metric)
  local list, own = simple_metrics(metric, {}), {}
  for _, m in ipairs(list) do
    for _, key in ipairs(SUMS) do
      own[#own + 1] = ("%.17g"):format(m[key])
    end
  end
  local sums = {}
  for _, text in ipairs(self._group:gather(table.concat(own, " "))) do
    local i = 0
    for number in text:gmatch("%S+") do
      i = i + 1
      sums[i] = (sums[i] or 0) + tonumber(number)
    end
  end
  for i, m in ipairs(list) do
    for k, key in ipairs(SUMS) do
      m[key] = sums[(i - 1) * #SUMS + k]
    end
  end
end


--- Returns rank 0's values, since decisions must be the same on all ranks.
function Ranks:share(list)
  local numbers = {}
  for i, pair in ipairs(list) do
    numbers[i] = ("%.17g"):format(pair[2])
  end
  local i = 0
  for number in self._group:gather(table.concat(numbers, " "))[1]:gmatch("%S+") do
    i = i + 1
    list[i] = { list[i][1], tonumber(number) }
  end
  return list
end


--- Returns whether `here` is true on all ranks.
function Ranks:all(here)
  return not table.concat(self._group:gather(here and "1" or "0")):find("0", 1, true)
end


--- Sets the text that is shown if a rank ends early: the epoch and file to continue from.
function Ranks.note(_, path)
  comm.note(path)
end


--- Returns the Ranks of a module's store; nil if there is only one rank.
function ranks.of(module)
  local kv = module:_stores()[1]
  if kv and kv._group and kv.num_workers > 1 then
    return Ranks(kv)
  end
end


return ranks
