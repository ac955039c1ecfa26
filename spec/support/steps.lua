-- Recorded sequences (training/TOPIC.json): runs the steps of a case in order in one world of named
-- objects.
--
-- A topic is a table of actions; action(world, step) performs the step and returns its result,
-- which is compared with step.result. Fields of the world: objects (by name), case, array(key) (a
-- new copy of an input array). A step with `error` must be refused with an error object; `says`
-- lists parts of its text; the world must not change.

local faults = require "spec.support.faults"
local vectors = require "spec.support.vectors"
local ty = require "tycho"

local steps = {}

local function is_array(x)
  return type(x) == "table" and not not getmetatable(x)
end

local function is_nothing(x)
  return x == nil or x == vectors.null or x == ty.null
end

local NUMBERS = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge }

local function same_number(got, want, world, path)
  local close = got == want or got ~= got and want ~= want
    or math.abs(got - want) <= world.atol + world.rtol * math.abs(want)
  if not close then
    error(("%s: got %.9g, want %.9g"):format(path, got, want), 0)
  end
end

--- Raises an error unless a result agrees with the recorded one. Texts of equal numbers agree,
-- since Lua has no integers.
function steps.same(got, want, world, path)
  if is_nothing(want) then
    if not is_nothing(got) then
      error(("%s: got %s, want nothing"):format(path, tostring(got)), 0)
    end
  elseif type(want) == "table" and want.array then
    vectors.compare(path, got, world.recorded(want.array), world.rtol, world.atol)
  elseif type(want) == "table" then
    if type(got) ~= "table" or is_array(got) then
      error(("%s: got %s, want %s"):format(path, tostring(got), vectors.text(want)), 0)
    end
    for key, value in pairs(want) do
      steps.same(got[key], value, world, path .. "." .. tostring(key))
    end
    for key, value in pairs(got) do
      if want[key] == nil and not is_nothing(value) then
        error(("%s.%s: got %s, want nothing there"):format(path, tostring(key), tostring(value)), 0)
      end
    end
  elseif type(got) == "number" and (type(want) == "number" or NUMBERS[want]) then
    same_number(got, NUMBERS[want] or want, world, path)
  elseif got ~= want
      and not (type(got) == "string" and tonumber(got) and tonumber(got) == tonumber(want)) then
    error(("%s: got %s, want %s"):format(path, tostring(got), tostring(want)), 0)
  end
end

local function check_refusal(step, ok, result, path)
  if ok then
    if step.loose then
      return
    end
    error(("%s: must be refused (%s), came back with %s")
      :format(path, step.error, tostring(result)), 0)
  elseif not ty.is_error(result) then
    error(("%s: not an error object: %s"):format(path, tostring(result)), 0)
  end
  for _, piece in ipairs(step.says or {}) do
    if not tostring(result):find(piece, 1, true) then
      error(("%s: the error does not say '%s': %s"):format(path, piece, tostring(result)), 0)
    end
  end
end

local function run_step(actions, world, step, path)
  local action = actions[step["do"]]
  if not action then
    error("no action for " .. path, 0)
  elseif step.error then
    local ok, result = pcall(action, world, step)
    check_refusal(step, ok, result, path)
    return
  end
  local ok, result = xpcall(function() return action(world, step) end, function(e)
    local slip = type(e) == "string" and e:match("^[^\n]-%.lua:%d+:")
    return slip and debug.traceback(e, 2) or tostring(e)
  end)
  if not ok then
    error(path .. ": " .. tostring(result), 0)
  elseif step.result ~= nil then
    steps.same(result, step.result, world, path)
  end
end

local function new_world(topic, case, arrays)
  local world = { objects = {}, case = case, rtol = case.rtol or topic.rtol,
    atol = case.atol or topic.atol, exits = {} }
  function world.recorded(key)
    local array = arrays[case.name .. "/" .. key]
    if not array then
      error("the recording has no array " .. case.name .. "/" .. key, 0)
    end
    return array
  end
  function world.array(key)
    return world.recorded(key):as_in_context(ty.cpu()):copy()
  end
  return world
end

--- Runs one case in a fresh name scope.
function steps.run(topic, case, arrays, actions)
  local world = new_world(topic, case, arrays)
  ty.name.NameManager():with(function()
    local ok, e = pcall(function()
      for i, step in ipairs(case.steps) do
        if not faults.of(topic.topic, case.name, i - 1) then
          run_step(actions, world, step, ("step %d (%s)"):format(i - 1, step["do"]))
        end
      end
    end)
    while #world.exits > 0 do
      table.remove(world.exits):exit()
    end
    if not ok then
      error(e, 0)
    end
  end)
end

-- Returns whether `ty.sym` has an operator or another function with that name.
local function is_function(name)
  return (pcall(function() return ty.sym[name] end))
end

-- Returns the first operator of a case that the engine does not know; nil if it knows all.
local function unknown_operator(case)
  local graphs = { case.symbol }
  for _, graph in pairs(case.symbols or {}) do
    graphs[#graphs + 1] = graph
  end
  for _, graph in ipairs(graphs) do
    local name = vectors.unknown_operator(graph)
    if name then
      return name
    end
  end
  for _, step in ipairs(case.steps) do
    if step["do"] == "op" and not is_function(step.op) then
      return step.op
    end
  end
end

local function uses_initialisers(case)
  for _, step in ipairs(case.steps) do
    if type(step.args) == "table" and type(step.args.init) == "table" then
      return true
    end
  end
end

--- Returns the cases of a topic that the filter selects, as { name, run, unknown, initialisers }:
-- `unknown` is an operator that is missing, `initialisers` whether the case uses initializers.
-- @treturn table cases
-- @treturn function frees the topic's arrays
function steps.cases(name, actions)
  local topic, arrays = vectors.json("training/" .. name .. ".json"), nil
  local list = {}
  for _, case in ipairs(topic.cases) do
    if vectors.wanted(name, case.name) then
      list[#list + 1] = {
        name = case.name, unknown = unknown_operator(case), initialisers = uses_initialisers(case),
        run = function()
          arrays = arrays or vectors.arrays("training/" .. name .. ".params")
          steps.run(topic, case, arrays, actions)
        end,
      }
    end
  end
  return list, function() arrays = nil end
end

return steps
