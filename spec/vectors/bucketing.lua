-- training/bucketing.json: modules with a symbol for each key, in many orders
-- of keys; sentences in buckets.

local faults = require "spec.support.faults"
local modules = require "spec.support.modules"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

faults.bucketing = {
  larger_param_set_later = {
    [3] = "the reference refuses parameters that the first bucket lacks; here they are added" },
  different_params_momentum_device = {
    [12] = "the reference reads back only the current bucket's parameters and hands out old \z
      values of the others",
  },
}

local actions = setmetatable({}, { __index = modules.actions })

-- Returns the recorded table of symbols as a function of the key.
local function generator(world, which)
  local case = world.case
  return function(key)
    local row = case.sym_gen[which][("%d"):format(key)]
    if not row then
      ty.Error.raise{ code = "name", func = "sym_gen", argument = tostring(key),
        message = "there is no such bucket" }
    end
    return vectors.symbol(case.symbols[row.symbol]), row.data_names, vectors.value(row.label_names)
  end
end

function actions.bucketing(world, step)
  local options = {
    sym_gen = generator(world, step.sym_gen or "main"),
    default_bucket_key = step.default_bucket_key, context = modules.contexts(step.context),
    fixed_param_names = step.fixed_param_names, logger = modules.logger(),
  }
  if step.load then
    options.prefix, options.epoch = modules.folder(world) .. "/" .. step.load[1], step.load[2]
    world.objects[step.as] = ty.mod.BucketingModule.load(options)
  else
    world.objects[step.as] = ty.mod.BucketingModule(options)
  end
end

function actions.switch_bucket(world, step)
  world.objects[step.of]:switch_bucket(step.key, modules.descs(step.data),
    modules.descs(step.label))
end

function actions.prepare(world, step)
  world.objects[step.of]:prepare(modules.batch(world, step))
end

function actions.buckets(world, step)
  local m, keys = world.objects[step.of], {}
  for key in pairs(m._buckets) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return { keys = keys, current = m._curr_bucket_key, arguments = m.symbol:list_arguments() }
end

function actions.shares(world, step)
  local m = world.objects[step.of] or select(2, next(world.objects))
  local function find(place)
    local exe = m._buckets[place[1]]._exec_group.execs[1]
    return exe[place[2] .. "_dict"][place[3]]
  end
  return find(step.a):same_memory(find(step.b))
end

-- Sentences ---------------------------------------------------------------------------------------

-- Returns an iterator with the order of batches and of rows as without shuffling.
function modules.sentences(spec)
  return ty.rnn.BucketSentenceIter{ spec.sentences, spec.batch_size, buckets = spec.buckets,
    invalid_label = spec.invalid_label, data_name = spec.data_name, label_name = spec.label_name,
    dtype = spec.dtype, layout = spec.layout, shuffle = false }
end

function actions.sentence_iter(world, step)
  world.objects[step.as] = modules.sentences(step)
end

local function descs(list)
  local rows = {}
  for i, d in ipairs(list) do
    rows[i] = { d.name, d.shape }
  end
  return rows
end

local function batch_facts(batch)
  return { data = batch.data, label = batch.label, pad = batch.pad, bucket_key = batch.bucket_key,
    provide_data = descs(batch.provide_data), provide_label = descs(batch.provide_label) }
end

function actions.epoch(world, step)
  local list = {}
  for batch in world.objects[step.of] do
    list[#list + 1] = batch_facts(batch)
  end
  return list
end

-- Returns the next batch; raises an error at the end of an epoch, as the reference does, where ours
-- returns nil.
function actions.next(world, step)
  local batch = world.objects[step.of]:next()
  if not batch then
    ty.Error.raise{ code = "state", message = "the end" }
  end
  return batch_facts(batch)
end

function actions.reset(world, step)
  world.objects[step.of]:reset()
end

function actions.provide(world, step)
  local it = world.objects[step.of]
  return { data = descs(it.provide_data), label = descs(it.provide_label), buckets = it.buckets,
    layout = it.layout, default_bucket_key = it.default_bucket_key, batch_size = it.batch_size }
end

function actions.encode(_, step)
  local vocab
  if step.vocab then
    vocab = {}
    for word, id in pairs(step.vocab) do
      vocab[word] = id
    end
  end
  local coded, words = ty.rnn.encode_sentences(step.sentences,
    { vocab = vocab, invalid_label = step.invalid_label, invalid_key = step.invalid_key,
      start_label = step.start_label, unknown_token = step.unknown_token })
  local ids = {}
  for i, x in ipairs(coded) do
    ids[i] = x:totable()
  end
  return { ids = ids, vocab = words }
end

return {
  needs = { "tycho.module", "tycho.optimizer", "tycho.metric", "tycho.kvstore", "tycho.rnn" },
  define = function()
    local cases, release = steps.cases("bucketing", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
