-- training/initialisers.json: what initializers fill, which hook a name gets, their text,
-- their equality, Module's use.

local arrays = require "spec.support.arrays"
local json = require "spec.support.json"
local tables = require "spec.support.tables"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local value = vectors.value

local function make_options(world, list)
  local options = {}
  for key, v in pairs(value(list) or {}) do
    options[key] = type(v) == "table" and v.array and world.array(v.array) or v
  end
  return options
end

local function build(world, spec)
  if spec.json then
    return ty.init.create(spec.json)
  elseif spec.create then
    return ty.init.create(spec.create, make_options(world, spec.args))
  elseif spec.class == "Mixed" then
    local list = {}
    for i, inner in ipairs(spec.inits) do
      list[i] = build(world, inner)
    end
    return ty.init.Mixed(spec.patterns, list)
  elseif spec.class == "Load" then
    local params = {}
    for name, key in pairs(spec.params) do
      params[name] = world.array(key)
    end
    local default = value(spec.default) and build(world, spec.default)
    return ty.init.Load(params, { default_init = default })
  end
  local options = make_options(world, spec.args)
  if spec.class == "FusedRNN" and value(spec.init) then
    options.init = build(world, spec.init)
  end
  return ty.init[spec.class](options)
end

local function target(case, name)
  return case.desc and ty.init.InitDesc(name, value(case.attrs) or {}) or name
end

-- Facts -------------------------------------------------------------------------------------------

local function moments(x)
  local v, n = arrays.numbers(x)
  local sum, squares, most = 0, 0, 0
  for i = 0, n - 1 do
    sum, squares, most = sum + v[i], squares + v[i] * v[i], math.max(most, math.abs(v[i]))
  end
  return sum / n, math.sqrt(squares / n - (sum / n) ^ 2), most, n
end

local facts = {}

function facts.uniform(x, fact)
  local mean, std, most, n = moments(x)
  local want = fact.bound / math.sqrt(3)
  assert.is_true(most <= fact.bound * (1 + 1e-6) and most > 0.9 * fact.bound, "bound")
  assert.is_true(math.abs(mean) < 5 * fact.bound / math.sqrt(3 * n), "mean")
  assert.is_true(math.abs(std - want) < 0.1 * want, "deviation")
end

function facts.normal(x, fact)
  local mean, std, most, n = moments(x)
  assert.is_true(math.abs(mean) < 5 * fact.std / math.sqrt(n), "mean")
  assert.is_true(math.abs(std - fact.std) < 0.1 * fact.std, "deviation")
  assert.is_true(most > 2.5 * fact.std, "tails")
end

function facts.orthogonal(x, fact)
  local m = x:reshape{ x.shape[1], -1 }
  local tall = m.shape[1] > m.shape[2]
  local product = ty.nd.dot{ m, m, transpose_a = tall, transpose_b = not tall }
  assert.near((ty.nd.eye(product.shape[1]) * fact.scale ^ 2):totable(), product, 1e-4)
end

-- Kinds -------------------------------------------------------------------------------------------

local kinds = {}

function kinds.fill(world, case)
  local init = build(world, case.init)
  local x = ty.nd.full(case.shape, 9)
  init(target(case, case.param), x)
  if case.facts then
    facts[case.facts.kind](x, case.facts)
    return { holds = true }
  end
  return { filled = x }
end

function kinds.dispatch(world, case)
  local init, table_of = build(world, case.init), {}
  for i, row in ipairs(case.expect.table or {}) do
    local x = ty.nd.full(case.shape, 9)
    local ok, e = pcall(init, target(case, row[1]), x)
    if type(row[2]) == "string" then
      assert.is_true(not ok and ty.is_error(e), row[1] .. " must be refused")
      table_of[i] = row
    else
      assert.is_true(ok, tostring(e))
      local flat = x:reshape{ -1 }:totable()
      table_of[i] = { row[1], type(row[2]) == "table" and flat or flat[1] }
      for _, v in ipairs(type(row[2]) == "number" and flat or {}) do
        assert.equal(flat[1], v)
      end
    end
  end
  return { table = table_of }
end

function kinds.dumps(world, case)
  return { dumps = json.decode(build(world, case.init):dumps()) }
end

function kinds.equal(world, case)
  return { equal = build(world, case.init):equals(build(world, case.other)) }
end

function kinds.module(world, case)
  local descs = {}
  for name, shape in pairs(case.shapes) do
    descs[#descs + 1] = { name, shape }
  end
  local m = ty.mod.Module{ symbol = vectors.symbol(case.symbol), label_names = ty.null }
  m:bind{ data_shapes = descs, for_training = false }
  m:init_params{ initializer = build(world, case.init) }
  local arg, aux = m:get_params()
  return { arg = arg, aux = aux }
end

return {
  needs = { "tycho.initializer" },
  define = function()
    local cases, release = tables.cases("initialisers", function(world, case)
      return kinds[case.kind](world, case)
    end)
    teardown(release)
    for _, row in ipairs(cases) do
      it(row.name, function()
        if row.case.kind == "module" and not package.searchpath("tycho.module", package.path) then
          pending("module tycho.module is missing")
        end
        row.run()
      end)
    end
  end,
}
