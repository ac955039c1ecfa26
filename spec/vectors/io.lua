-- training/io.json: iterators over arrays, iterators around iterators, descriptions of inputs.

local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value
local actions = {}

local function source(world, key, as_table)
  local function read(name)
    local x = world.array(name)
    return as_table and x:totable() or x
  end
  if value(key) == nil then
    return nil
  elseif type(key) == "string" then
    return read(key)
  elseif #key == 1 then
    return read(key[1])
  end
  local result = {}
  for name, array in pairs(key) do
    result[name] = as_table and world.array(array):astype("float32") or read(array)
  end
  return result
end

local function refused(step, what)
  local ok, e = pcall(ty.io.NDArrayIter, what)
  assert.is_true(not ok and ty.is_error(e),
    "step must be refused by us: " .. tostring(step.last_batch_handle))
end

-- Makes an iterator. The reference accepts labels of a wrong length and unknown words; here they
-- are refused when the iterator is made.
function actions.ndarray_iter(world, step)
  local data, label = source(world, step.data, step.numpy), source(world, step.label, step.numpy)
  local options = { data = data, label = label, batch_size = step.batch_size,
    data_name = step.data_name, label_name = step.label_name, layout = step.layout,
    last_batch_handle = step.last_batch_handle }
  world.objects[step.as] = nil
  if not step.error and world.case.name == "errors"
      and (label or step.last_batch_handle == "wrap") then
    refused(step, options)
  else
    world.objects[step.as] = ty.io.NDArrayIter(options)
  end
end

local function batch_table(batch)
  return { data = batch.data, label = batch.label, pad = batch.pad, index = batch.index }
end

local function of(world, step)
  return world.objects[step.of]
end

function actions.epoch(world, step)
  local it, list = of(world, step), {}
  if not it then                                         -- refused before
    step.result = nil
    return step.error and ty.Error.raise{ code = "shape", message = "refused before" }
  end
  for batch in it do
    list[#list + 1] = batch_table(batch)
    if #list == step.at_most then
      break
    end
  end
  return list
end

-- Returns the next batch; raises an error at the end of an epoch, as the reference does, where ours
-- returns nil.
function actions.next(world, step)
  local it = of(world, step)
  local batch = it and it:next()
  if not batch then
    ty.Error.raise{ code = "state", message = "the end" }
  end
  return batch_table(batch)
end

function actions.step(world, step)
  local it = of(world, step)
  if not it:iter_next() then
    return { more = false }
  end
  return { more = true, data = it:getdata(), label = it:getlabel(),
    pad = it:getpad(), index = it:getindex() }
end

function actions.reset(world, step)
  of(world, step):reset()
end

function actions.hard_reset(world, step)
  of(world, step):hard_reset()
end

function actions.num_data(world, step)
  return of(world, step).num_data
end

function actions.cursor(world, step)
  return of(world, step).cursor
end

local function desc_row(d)
  return { d.name, d.shape, d.dtype, d.layout or vectors.null }
end

local function rows(list)
  local result = {}
  for i, d in ipairs(list) do
    result[i] = desc_row(d)
  end
  return result
end

function actions.provide(world, step)
  local it = of(world, step)
  return { data = rows(it.provide_data), label = rows(it.provide_label),
    batch_size = it.batch_size }
end

function actions.resize_iter(world, step)
  world.objects[step.as] = ty.io.ResizeIter(of(world, step), step.size,
    { reset_internal = step.reset_internal })
end

function actions.prefetching_iter(world, step)
  local iters = {}
  for i, name in ipairs(type(step.of) == "table" and step.of or { step.of }) do
    iters[i] = world.objects[name]
  end
  world.objects[step.as] = ty.io.PrefetchingIter(iters, {
    rename_data = value(step.rename_data), rename_label = value(step.rename_label) })
end

function actions.desc(_, step)
  local d = ty.io.DataDesc(step.name, step.shape, step.dtype,
    step.layout == vectors.null and ty.null or step.layout)
  return { name = d.name, shape = d.shape, fields = desc_row(d), length = #d,
    equal = step.other and d:equals(step.other) }
end

function actions.batch_axis(_, step)
  return ty.io.DataDesc.get_batch_axis(value(step.layout))
end

function actions.desc_list(_, step)
  return rows(ty.io.DataDesc.get_list(step.shapes, step.types))
end

function actions.batch_text(world, step)
  local function list(keys)
    local result = {}
    for i, key in ipairs(keys or {}) do
      result[i] = world.array(key)
    end
    return keys and result
  end
  return tostring(ty.io.DataBatch{ data = list(step.data), label = list(value(step.label)) })
end

return {
  needs = { "tycho.io" },
  define = function()
    local cases, release = steps.cases("io", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
