-- A training that is cut in two gives, bit for bit, what it gives in one: the
-- second half runs in a new process.

local shell = require "spec.support.shell"

local function train(kind, optimizer, epochs, prefix, resume)
  local output, status = shell.tycho(("spec/support/resume.lua %s %s %d %s %s"):format(kind,
    optimizer, epochs, prefix, resume and "resume" or ""))
  assert.equal(0, status, output)
  assert.truthy(output:find("weight %x+"), output)
  return output
end

describe("a training in two processes", function()
  for _, kind in ipairs{ "module", "bucketing", "devices", "compressed" } do
    for _, optimizer in ipairs{ "sgd", "adam" } do
      it(("ends where one in a single process ends: %s, %s"):format(kind, optimizer), function()
        local prefix = os.tmpname()
        local whole = train(kind, optimizer, 10, prefix .. "whole")
        local half = train(kind, optimizer, 5, prefix .. "half")
        assert.are_not.equal(whole, half)
        assert.is_true(whole == train(kind, optimizer, 10, prefix .. "half", true),
          "the parameters differ")
        for _, name in ipairs{ "", "whole.state", "half.state" } do
          os.remove(prefix .. name)
        end
      end)
    end
  end
end)
