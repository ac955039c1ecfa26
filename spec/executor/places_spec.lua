-- Each thing that a function may do with the engine (an error, a collection, binding again, a
-- reshape, a run of the module that calls it or of another one, the end of the program) in each
-- place where the engine calls one: it works, or is refused by an error that says so, and the same
-- module trains afterwards.

local places = require "spec.support.places"
local shell = require "spec.support.shell"
local ty = require "tycho"

local WAITS, BEFORE = "waits for the function", "call forward first"

-- Whose run waits for the function cannot run; what is bound anew has not run yet.
local REFUSED = {
  monitor = { forward = WAITS, rebind = BEFORE },
  operator_forward = { forward = WAITS, rebind = BEFORE },
  operator_backward = { forward = WAITS },
}

local function check(place, action)
  local ok, e, times = places.run(place, action)
  local refusal = action == "error" and places.text or (REFUSED[place] or {})[action]
  assert.is_true(times > 0)
  if ok and place == "finalizer" then return end          -- newer LuaJITs print an error of it
  assert.equal(refusal == nil, ok, tostring(e))
  if refusal then
    assert.truthy(tostring(e):find(refusal, 1, true), tostring(e))
    assert.is_true(ty.is_error(e) or action == "error")
  end
end

local function check_exit(place, action)
  local output, status = shell.tycho(("-e 'require(\"spec.support.places\").run(%q, %q)'")
    :format(place, action))
  assert.equal("", output)
  assert.equal(places.status, status)
end

for place in pairs(places.PLACES) do
  describe("called from " .. place, function()
    for action in pairs(places.ACTIONS) do
      it(action, function()
        local ends = action:find("^exit")
        return (ends and check_exit or check)(place, action)
      end)
    end
  end)
end
