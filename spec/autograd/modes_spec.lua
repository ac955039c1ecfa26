-- Recording and training: scopes, their ends, the forms for prompts.
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local autograd = ty.autograd

local function state()
  return { autograd.is_recording(), autograd.is_training() }
end

local OFF = { false, false }

describe("modes:", function()
  after_each(function() assert.same(OFF, state()) end)

  it("both flags are off at first", function()
    assert.same(OFF, state())
  end)

  it("each scope sets its flags, hands on results and puts back what it found", function()
    local function run(scope, ...)
      local recording, training, more = scope(...)
      assert.equal("more", more)
      assert.same(OFF, state())
      return { recording, training }
    end
    local function f() return autograd.is_recording(), autograd.is_training(), "more" end
    assert.same({ true, true }, run(autograd.record, f))
    assert.same({ true, false }, run(autograd.record, false, f))
    assert.same({ false, false }, run(autograd.pause, f))
    assert.same({ false, true }, run(autograd.pause, true, f))
    assert.same({ false, true }, run(autograd.train_mode, f))
    assert.same({ false, false }, run(autograd.predict_mode, f))
  end)

  it("scopes nest", function()
    autograd.record(function()
      autograd.pause(function()
        assert.same({ false, false }, state())
        autograd.record(false, function() assert.same({ true, false }, state()) end)
      end)
      autograd.predict_mode(function() assert.same({ true, false }, state()) end)
      autograd.train_mode(function() assert.same({ true, true }, state()) end)
      assert.same({ true, true }, state())
    end)
  end)

  it("a coroutine leaves those alone that began where its own was", function()
    local inside = coroutine.wrap(function()
      autograd.train_mode(function() coroutine.yield() end)
      return "done"
    end)
    autograd.record(inside)                              -- ends what the coroutine began, too
    autograd.record(function()
      autograd.pause(function()
        assert.equal("done", inside())
        assert.same({ false, false }, state())
      end)
      assert.same({ true, true }, state())
    end)
  end)

  it("an error comes out unchanged, and the flags are put back", function()
    local e = {}
    for _, scope in ipairs{ autograd.record, autograd.pause, autograd.train_mode,
        autograd.predict_mode } do
      local ok, got = pcall(scope, function() error(e) end)
      assert.is_false(ok)
      assert.equal(e, got)
      assert.same(OFF, state())
    end
  end)

  it("without a function they are scopes", function()
    local s = autograd.record()
    assert.same({ true, true }, s:with(state))
    s:enter()
    assert.same({ true, true }, state())
    s:enter()
    s:exit()
    assert.same({ true, true }, state())
    s:exit()
    assert.raises("state", s.exit, s)
    assert.same({ true, false }, autograd.record(false):with(state))
    assert.same({ false, true }, autograd.pause(true):with(state))
    assert.same({ false, true }, autograd.train_mode():with(state))
    assert.same({ false, false }, autograd.predict_mode():with(state))
  end)

  it("take train_mode by name before, behind and around the function", function()
    for _, scope in ipairs{ autograd.record, autograd.pause } do
      local on = scope == autograd.record
      for _, train in ipairs{ true, false } do
        local options = { train_mode = train }
        assert.same({ on, train }, scope(options, state))
        assert.same({ on, train }, scope(state, options))
        assert.same({ on, train }, scope{ state, train_mode = train })
        assert.same({ train_mode = train }, options)
      end
      assert.same({ on, on }, scope{ state })
      assert.equal("train", assert.raises("name", scope, { train = true }, state).argument)
      assert.raises("type", scope, { train_mode = true }, state, 3)
      assert.raises("type", scope, { train_mode = true }, 3)
    end
  end)

  it("take train_mode by name, too", function()
    assert.same({ true, false }, autograd.record{ train_mode = false, f = state })
    assert.same({ true, true }, autograd.record{ f = state })
    assert.same({ false, true }, autograd.pause{ train_mode = true }:with(state))
    assert.same({ false, false }, autograd.pause{}:with(state))
    assert.raises("name", autograd.record, { training = false })
    assert.same(OFF, state())
  end)

  it("refuse what is no function", function()
    for _, scope in ipairs{ autograd.record, autograd.pause, autograd.train_mode,
        autograd.predict_mode } do
      assert.raises("type", scope, 3)
    end
    assert.raises("type", autograd.record, true, "f")
    assert.raises("type", autograd.pause, true, "f")
    local function f() error("called") end
    for _, scope in ipairs{ autograd.record, autograd.pause } do
      assert.equal("train_mode", assert.raises("type", scope, f, false).argument)
      assert.raises("type", scope, f, ty.nd.ones{ 1 })
      assert.raises("type", scope, true, f, 1)
    end
    for _, scope in ipairs{ autograd.train_mode, autograd.predict_mode } do
      assert.raises("type", scope, true, f)
      assert.raises("type", scope, f, true)
      assert.raises("type", scope, true)
    end
  end)

  it("flags are set by hand, which returns what they were", function()
    assert.is_false(autograd.set_recording(true))
    assert.is_true(autograd.set_recording(false))
    assert.is_false(autograd.set_training(true))
    assert.is_true(autograd.set_training(false))
    assert.is_false(autograd.set_training{ on = true })
    assert.is_true(autograd.set_training(false))
    for _, set in ipairs{ autograd.set_recording, autograd.set_training } do
      assert.raises("type", set, 1)
      assert.raises("type", set, "false")
      assert.raises("value", set)
    end
    assert.is_false(autograd.is_recording() or autograd.is_training())
  end)
end)

describe("begin and finish:", function()
  it("push and pop", function()
    autograd.begin()
    assert.same({ true, true }, state())
    autograd.begin(false)
    assert.same({ true, false }, state())
    autograd.finish()
    autograd.begin{ train_mode = false }
    assert.same({ true, false }, state())
    autograd.finish()
    assert.raises("type", autograd.begin, 3)
    assert.same({ true, true }, state())
    autograd.finish()
    assert.same(OFF, state())
    assert.raises("state", autograd.finish)
  end)

  it("an error in between changes nothing", function()
    autograd.begin()
    pcall(ty.nd.dot, 1, 2)
    assert.is_false(pcall(error, "x"))
    assert.same({ true, true }, state())
    autograd.finish()
  end)

  it("a scope closes what was begun inside of it", function()
    autograd.pause(function() autograd.begin() end)
    assert.same(OFF, state())
    assert.raises("state", autograd.finish)
    assert.is_false(pcall(autograd.pause, function() autograd.begin() error("x") end))
    assert.same(OFF, state())
    assert.raises("state", autograd.finish)
  end)

  it("a scope inside does not finish what is outside", function()
    autograd.begin()
    autograd.pause(function() assert.raises("state", autograd.finish) end)
    autograd.finish()
    assert.same(OFF, state())
  end)

  local function script(text)
    local out
    shell.with_file('local ty = require "tycho"\n' .. text, function(path)
      out = shell.tycho(path)
    end)
    return out
  end

  it("a script that ends in between warns, with the line", function()
    local out = script("ty.autograd.begin()")
    assert.matches("autograd%.finish", out)
    assert.matches(":2", out)
    assert.equal("", script("ty.autograd.begin() ty.autograd.finish()"))
  end)
end)
