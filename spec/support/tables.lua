-- Recorded tables (training/TOPIC.json whose cases have `expect` instead of steps): one test per
-- case.
--
--     local cases, release = tables.cases("lr_schedulers", function(world, case)
--       return { values = ... }
--     end)
--     teardown(release)
--     for _, case in ipairs(cases) do it(case.name, case.run) end
--
-- The function's result is compared with case.expect; a case with expect.error must be refused with
-- an error object whose text contains the parts in case.says. The world has array(key), a new copy
-- of an input array.

local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local tables = {}

local function new_world(topic, case, recorded)
  local world = { case = case, rtol = case.rtol or topic.rtol, atol = case.atol or topic.atol }
  function world.recorded(key)
    return recorded[case.name .. "/" .. key]
      or error("the recording has no array " .. case.name .. "/" .. key, 0)
  end
  function world.array(key)
    return world.recorded(key):copy()
  end
  return world
end

local function check_refusal(case, ok, result)
  if ok or not ty.is_error(result) then
    error("must be refused (" .. case.expect.error .. "): " .. tostring(result), 0)
  end
  for _, piece in ipairs(case.says or {}) do
    if not tostring(result):find(piece, 1, true) then
      error("the error does not say '" .. piece .. "': " .. tostring(result), 0)
    end
  end
end

local function traced(e)
  local slip = type(e) == "string" and e:match("^[^\n]-%.lua:%d+:")
  return slip and debug.traceback(e, 2) or e
end

local function run_case(world, case, f)
  local ok, result = xpcall(function() return f(world, case) end, traced)
  if case.expect.error then
    check_refusal(case, ok, result)
  elseif not ok then
    error(tostring(result), 0)
  else
    steps.same(result, case.expect, world, case.name)
  end
end

--- Returns the cases of a topic that the filter selects, as { name, run, case }.
-- @string name topic
-- @tparam function f f(world, case): returns a value to compare with case.expect
-- @treturn table cases
-- @treturn function frees the topic's arrays
function tables.cases(name, f)
  local topic, recorded = vectors.json("training/" .. name .. ".json"), nil
  local list = {}
  for _, case in ipairs(topic.cases) do
    if vectors.wanted(name, case.name) then
      list[#list + 1] = { name = case.name, case = case, run = function()
        recorded = recorded or vectors.arrays("training/" .. name .. ".params")
        run_case(new_world(topic, case, recorded), case, f)
      end }
    end
  end
  return list, function() recorded = nil end
end

return tables
