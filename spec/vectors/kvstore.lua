-- training/kvstore.json: sums, updaters, optimizers and compression of the stores of one process.

local device = require "spec.support.device"
local faults = require "spec.support.faults"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

if ty.num_gpus() > 0 and pcall(ty.kv.create, "nccl") then
  faults.kvstore = { errors = { [12] = "the reference had no NCCL; here it is found" } }
end

local value = vectors.value
local actions = {}

-- Returns the array of a key or {key, ctx}, or a list of these.
local function make_values(world, v)
  if type(v) == "string" then
    return world.array(v)
  elseif v.key then
    return world.array(v.key):as_in_context(device.of(v.ctx[1], v.ctx[2]))
  end
  local list = {}
  for i, inner in ipairs(v) do
    list[i] = make_values(world, inner)
  end
  return list
end

-- Returns an output array of [shape, ctx], or a list of these.
local function make_outputs(v)
  if type(v[1]) == "table" and type(v[1][1]) == "number" then
    return ty.nd.zeros(v[1], { ctx = device.of(v[2][1], v[2][2]) })
  end
  local list = {}
  for i, inner in ipairs(v) do
    list[i] = make_outputs(inner)
  end
  return list
end

function actions.create(world, step)
  world.store = ty.kv.create(step.type)
end

function actions.type(world)
  return world.store.type
end

function actions.rank(world)
  return { world.store.rank, world.store.num_workers }
end

function actions.init(world, step)
  world.store:init(step.key, make_values(world, step.value))
end

function actions.push(world, step)
  world.pushed = make_values(world, step.value)
  world.store:push(step.key, world.pushed)
end

function actions.write_pushed(world, step)
  for _, x in ipairs(ty.is_a(world.pushed, ty.nd.NDArray) and { world.pushed } or world.pushed) do
    x:fill(step.number)
  end
end

function actions.pull(world, step)
  local out = make_outputs(step.out)
  world.store:pull(step.key, { out = out })
  return out
end

function actions.broadcast(world, step)
  local out = make_outputs(step.out)
  world.store:broadcast(step.key, make_values(world, step.value), out)
  return out
end

function actions.pushpull(world, step)
  local given, out = make_values(world, step.value), value(step.out) and make_outputs(step.out)
  world.store:pushpull(step.key, given, { out = out })
  return { out = out, value = step.result.value and given }
end

local updaters = {}

function updaters.add(_, received, stored)
  stored:add_(received)
end

-- Updates by the key. Names reach an updater as bytes in the reference; the recorder's function
-- counted these as 0.
function updaters.key(key, received, stored)
  stored:add_(received * (type(key) == "number" and key or 0))
end

function actions.set_updater(world, step)
  world.keys = {}
  function updaters.scaled(key, received, stored)
    world.keys[#world.keys + 1] = key
    stored:mul_(0.5):add_(received * 2)
  end
  world.store:_set_updater(updaters[step.updater])
end

-- Compares keys; those that are text are recorded as bytes of Python.
function actions.updater_keys(world, step)
  assert.equal(#step.result, #world.keys)
  for i, row in ipairs(step.result) do
    assert.equal(tostring(row[2]):match("^b'(.*)'$") or tostring(row[2]), tostring(world.keys[i]))
  end
  return step.result
end

function actions.set_optimizer(world, step)
  world.store:set_optimizer(ty.optimizer.create(step.optimizer, step.args))
end

function actions.states(world)
  local result = {}
  for key in pairs(world.store._updater.states_synced) do
    local state = world.store._updater.states[key]
    result[tostring(key)] = state == nil and ty.null or state
  end
  return result
end

function actions.compression(world, step)
  world.store:set_gradient_compression(step.params)
end

function actions.capable(world, step)
  return world.store:is_capable(step.what)
end

function actions.save_states(world)
  world.store:save_optimizer_states(os.tmpname())
end

function actions.barrier(world)
  world.store:_barrier()
end

return {
  needs = { "tycho.kvstore" },
  define = function()
    local cases, release = steps.cases("kvstore", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, case.run)
    end
  end,
}
