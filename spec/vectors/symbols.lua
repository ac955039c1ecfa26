-- training/symbols.json: building graphs, names, attributes, lists, inference, graph text.

local json = require "spec.support.json"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local null = vectors.null
local actions = {}

-- Returns JSON values as Lua options have them.
local function plain(v)
  if v == null then
    return ty.null
  elseif type(v) ~= "table" then
    return v
  end
  local t = {}
  for key, value in pairs(v) do
    t[key] = plain(value)
  end
  return t
end

local function keep(world, step, object)
  if step.as then
    world.objects[step.as] = object
  end
end

local function named(world, names)
  local symbols = {}
  for key, name in pairs(names or {}) do
    symbols[key] = world.objects[name]
  end
  return symbols
end

local function initializer(v)
  if type(v) ~= "table" then
    return v
  end
  return ty.init[v.class](plain(v.args))
end

function actions.variable(world, step)
  local options = plain(step.args or {})
  options.init = step.args and step.args.init and initializer(step.args.init)
  options[1] = step.name
  keep(world, step, ty.sym.Variable(options))
end

function actions.op(world, step)
  local options = plain(step.params or {})
  for i, name in ipairs(step.inputs) do
    options[i] = world.objects[name]
  end
  for key, symbol in pairs(named(world, step.named)) do
    options[key] = symbol
  end
  options.name, options.attr = step.name, step.attr
  keep(world, step, ty.sym[step.op](options))
end

local INFIX = {
  ["+"] = function(a, b) return a + b end,
  ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end,
  ["/"] = function(a, b) return a / b end,
  ["%"] = function(a, b) return a % b end,
  ["**"] = function(a, b) return a ^ b end,
}
local COMPARE = { ["=="] = "eq", ["!="] = "ne", [">"] = "gt", [">="] = "ge",
  ["<"] = "lt", ["<="] = "le" }
local MIRRORED = { ["=="] = "eq", ["!="] = "ne", [">"] = "lt", [">="] = "le",
  ["<"] = "gt", ["<="] = "ge" }

function actions.infix(world, step)
  local function side(v)
    return type(v) == "string" and world.objects[v] or plain(v)
  end
  local a, b, operator = side(step.left), side(step.right), step.operator
  if INFIX[operator] then
    keep(world, step, INFIX[operator](a, b))
  elseif type(step.left) == "string" then
    keep(world, step, a[COMPARE[operator]](a, b))
  else
    keep(world, step, b[MIRRORED[operator]](b, a))
  end
end

function actions.negate(world, step) keep(world, step, -world.objects[step.of]) end
function actions.abs(world, step) keep(world, step, ty.sym.abs(world.objects[step.of])) end
function actions.group(world, step) keep(world, step, ty.sym.Group(named(world, step.members))) end
function actions.internals(world, step)
  keep(world, step, world.objects[step.of]:get_internals())
end
function actions.copy(world, step) keep(world, step, world.objects[step.of]:copy()) end
function actions.load(world, step) keep(world, step, vectors.symbol(step.json)) end

function actions.children(world, step)
  local children = world.objects[step.of]:get_children()
  keep(world, step, children)
  return children or "none"
end

function actions.index(world, step)
  local key = type(step.key) == "number" and step.key + 1 or step.key
  keep(world, step, world.objects[step.of]:output(key))
end

function actions.slice(world, step)
  local from, to, by = unpack(plain(step.range))
  keep(world, step, world.objects[step.of]:output(ty.slice(from, to, by)))
end

function actions.compose(world, step)
  local options = named(world, step.named)
  for i, name in ipairs(step.inputs or {}) do
    options[i] = world.objects[name]
  end
  options.name = step.name
  keep(world, step, world.objects[step.of](options))
end

function actions.set_attr(world, step) world.objects[step.of]:_set_attr(plain(step.attrs)) end

function actions.enter(world, step)
  local scope
  if step.scope == "names" then
    scope = ty.name.NameManager()
  elseif step.scope == "prefix" then
    scope = ty.name.Prefix(step.arg)
  else
    scope = ty.AttrScope(plain(step.arg))
  end
  scope:enter()
  table.insert(world.exits, scope)
end

function actions.leave(world) table.remove(world.exits):exit() end

function actions.arguments(world, step) return world.objects[step.of]:list_arguments() end
function actions.auxiliary(world, step) return world.objects[step.of]:list_auxiliary_states() end
function actions.inputs(world, step) return world.objects[step.of]:list_inputs() end
function actions.outputs(world, step) return world.objects[step.of]:list_outputs() end
function actions.name(world, step) return world.objects[step.of].name or "none" end
function actions.length(world, step) return #world.objects[step.of] end
function actions.text(world, step) return tostring(world.objects[step.of]) end
function actions.attr_dict(world, step) return world.objects[step.of]:attr_dict() end
function actions.list_attr(world, step) return world.objects[step.of]:list_attr() end
function actions.debug_str(world, step) return world.objects[step.of]:debug_str() end
function actions.json(world, step) return json.decode(world.objects[step.of]:tojson()) end
function actions.json_text(world, step) return world.objects[step.of]:tojson() end

function actions.attr(world, step)
  local text = world.objects[step.of]:attr(step.key)
  if step.result == nil and text ~= nil then
    error("got " .. text .. ", want nothing", 0)
  end
  return text
end

-- Makes inferred shapes as incomplete as the reference's: partial inference may know more here,
-- which is not compared.
local function coarsen(got, want)
  for k, list in ipairs(want) do
    for i, shape in ipairs(type(list) == "table" and list or {}) do
      local mine = type(got[k]) == "table" and got[k][i]
      if type(mine) == "table" and type(shape) == "table" then
        if #shape == 0 then got[k][i] = {} end
        for d, size in ipairs(shape) do
          if size == 0 then mine[d] = 0 end
        end
      end
    end
  end
  return got
end

local function infer(what)
  return function(world, step)
    local options = plain(step.shapes or step.types or {})
    for i, v in ipairs(step.inputs or {}) do
      options[i] = plain(v)
    end
    local symbol = world.objects[step.of]
    local method = "infer_" .. what .. (step.partial and "_partial" or "")
    local args, outs, auxs = symbol[method](symbol, options)
    local result = { args or null, outs or null, auxs or null }
    return step.partial and step.result and what == "shape"
      and coarsen(result, step.result) or result
  end
end

actions.infer_shape, actions.infer_type = infer("shape"), infer("type")

function actions.eval(world, step)
  local options = { ctx = ty.cpu() }
  for name, key in pairs(step.args) do
    options[name] = world.array(key)
  end
  return world.objects[step.of]:eval(options)
end

return {
  needs = { "tycho.symbol" },
  define = function()
    local cases, release = steps.cases("symbols", actions)
    teardown(release)
    for _, case in ipairs(cases) do
      it(case.name, function()
        if case.initialisers and not package.searchpath("tycho.initializer", package.path) then
          pending("module tycho.initializer is missing")
        elseif case.unknown then
          pending(("operator %s is not registered"):format(case.unknown))
        end
        case.run()
      end)
    end
  end,
}
