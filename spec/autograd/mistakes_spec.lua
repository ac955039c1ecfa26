-- What autograd refuses: codes, texts, the script's lines. Writes in place.
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local autograd, nd = ty.autograd, ty.nd

local function variable(values, options)
  return nd.array(values, options):attach_grad()
end

-- Returns the line of the caller, so many lines further.
local function line(further)
  return "mistakes_spec.lua:" .. debug.getinfo(2, "l").currentline + (further or 0)
end

describe("backward called with a dot", function()
  it("says that methods take a colon", function()
    local x = variable{ 1 }
    local y = autograd.record(function() return x * 2 end)
    for _, first in ipairs{ false, 3, {} } do
      local e = assert.raises("type", y.backward, first or nil)
      assert.matches("x:backward(...)", tostring(e), 1, true)
    end
    assert.raises("type", y.backward)
    y:backward()
    assert.same({ 2 }, x.grad:totable())
  end)
end)


describe("gradients of no variable", function()
  it("are refused, and the variables' own gradients stay", function()
    local x = variable{ 1, 2 }
    for _, create_graph in ipairs{ false, true } do
      local y = autograd.record(function() return x * x end)
      local e = assert.raises("value", autograd.grad, y, {}, { create_graph = create_graph })
      assert.matches("'variables'", tostring(e))
    end
    assert.same({ 0, 0 }, x.grad:totable())
    assert.raises("value", autograd.backward, {})
  end)
end)


describe("backward of what was not recorded tells why:", function()
  local function why(x)
    return tostring(assert.raises("state", x.backward, x))
  end

  it("recording was off", function()
    assert.matches("recording was off", why(variable{ 1 } * 2))
  end)

  it("recording was paused", function()
    local x = variable{ 1 }
    local y = autograd.record(function()
      return autograd.pause(function() return x * 2 end)
    end)
    assert.matches("paused", why(y))
  end)

  it("it is detached", function()
    local x = variable{ 1 }
    local y = autograd.record(function() return (x * 2):detach() end)
    assert.matches("detached", why(y))
  end)

  it("no variable is among its inputs", function()
    local x = nd.array{ 1 }
    assert.matches("no variable", why(autograd.record(function() return x * 2 end)))
  end)

  it("all variables have grad_req null", function()
    local x = nd.array{ 1 }
    x:attach_grad{ grad_req = "null" }
    local y = autograd.record(function() return x * 2 end)
    assert.matches("null", why(y))
  end)
end)

describe("a graph that was freed", function()
  it("says that states are detached, where what a head is made of was freed", function()
    local w, state = nd.array{ 2 }:attach_grad(), nd.array{ 1 }
    local function step()
      local l = autograd.record(function()
        state = state * w
        return state + 1
      end)
      l:backward()
    end
    step()
    local e = assert.raises("state", step)
    assert.matches("cut by x:detach%(%)", e.message)
    assert.matches("mistakes_spec", e.message)
    state = state:detach()
    step()
    assert.near({ 4 }, w.grad)
  end)

  it("names the line of the first backward, and retain_graph", function()
    local x = variable{ 1 }
    local y = autograd.record(function() return x * x end)
    y:backward()
    local first = line(-1)
    local e = assert.raises("state", y.backward, y)
    assert.matches(first, tostring(e), 1, true)
    assert.matches("retain_graph", tostring(e), 1, true)
    assert.same({ 1 }, y:totable())
  end)

  it("is freed for other heads, too", function()
    local x = variable{ 1 }
    local y, z = autograd.record(function()
      local y = x * x
      return y, y * 3
    end)
    z:backward()
    assert.raises("state", y.backward, y)
    assert.raises("state", autograd.get_symbol, y)
  end)
end)

describe("arguments:", function()
  it("a variable that the heads do not reach", function()
    local x, other = variable{ 1 }, variable{ 1 }
    local y = autograd.record(function() return x * x end)
    local e = assert.raises("value", autograd.grad, y, { x, other })
    assert.equal("2", e.argument)
  end)

  it("heads and head gradients of different number", function()
    local x = variable{ 1 }
    local y = autograd.record(function() return x * x end)
    assert.raises("shape", autograd.backward, { y }, { nd.ones{ 1 }, nd.ones{ 1 } })
    assert.raises("shape", autograd.grad, { y }, x, { head_grads = {} })
  end)

  it("a head gradient of another shape, another type", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function() return x * x end)
    assert.raises("shape", y.backward, y, nd.ones{ 3 })
    assert.raises("shape", y.backward, y, nd.ones{ 2, 1 })
    assert.raises("dtype", y.backward, y, nd.ones({ 2 }, { dtype = "float64" }))
    y:backward()
  end)

  it("arrays on different devices in one operator, at the call", function()
    local x, y = variable{ 1 }, nd.array({ 1 }, { ctx = ty.cpu(2) })
    assert.raises("device", autograd.record, function() return x * y end)
    assert.is_false(autograd.is_recording())
  end)

  it("a head gradient on another device", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function() return x * x end)
    local there = nd.ones({ 2 }, { ctx = ty.cpu(2) })
    local e = assert.raises("device", y.backward, y, there)
    assert.matches("the head is on .*, its gradient on cpu%(2%)", e.message)
    assert.raises("device", autograd.grad, y, { x }, { head_grads = there, create_graph = true })
    y:backward()
    assert.same({ 2, 4 }, x.grad:totable())
  end)

  it("what is no array", function()
    assert.raises("type", autograd.backward, 3)
    assert.raises("value", autograd.backward, {})
    assert.raises("type", autograd.backward, { 3 })
    local x = variable{ 1 }
    local y = autograd.record(function() return x * x end)
    assert.raises("type", autograd.grad, y, 3)
    assert.raises("type", autograd.grad, y, x, { head_grads = { 3 } })
    assert.raises("name", autograd.grad, y, x, { create_graf = true })
  end)
end)

describe("the line of an error of backward", function()
  it("is that of the forward call: a value that was written since", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function() return x * x end)
    local at = line(-1)
    x[":"] = 5
    local written = line(-1)
    local e = assert.raises("state", y.backward, y)
    assert.matches(at, e.where, 1, true)
    assert.matches(written, tostring(e), 1, true)
  end)

  it("is that of the innermost frame of the script", function()
    local x = variable{ 1, 2 }
    local function net(v)
      return v * v
    end
    local at = line(-2)
    local y = autograd.record(function() return net(x):sum() end)
    x[":"] = 5
    assert.matches(at, assert.raises("state", y.backward, y).where, 1, true)
  end)

  it("is that of the backward where lines are switched off", function()
    local output
    shell.with_file([[local ty = require "tycho"
      local x = ty.nd.array{ 1 }:attach_grad()
      local y = ty.autograd.record(function() return x * x end)
      x[":"] = 5
      local ok, e = pcall(y.backward, y)
      print(e.code, e.where and e.where:match(":(%d+)"))]], function(path)
      output = shell.run(("TYCHO_LINES=0 %s %s"):format(shell.program, path))
        .. shell.tycho(path)
    end)
    assert.equal("state 5 state 3", (output:gsub("%s+", " "):gsub("%s$", "")))
  end)

  it("is that of the forward call: an operator without a gradient", function()
    local x = variable{ { 1, 2 }, { 3, 4 } }
    local y = autograd.record(function() return nd.khatri_rao(x, x) end)
    local at = line(-1)
    local e = assert.raises("unsupported", y.backward, y)
    assert.equal("khatri_rao", e.op)
    assert.matches(at, e.where, 1, true)
  end)
end)

-- In place ----------------------------------------------------------------------------------------

-- Each writes z, with y as the value.
local WRITES = {
  { "z[key] = y", function(z, y) z["0:1"] = y["0:1"] end },
  { "z:add_(y)", function(z, y) z:add_(y) end },
  { "z:mul_(y)", function(z, y) z:mul_(y) end },
  { "z:sub_(y)", function(z, y) z:sub_(y) end },
  { "z:div_(y)", function(z, y) z:div_(y) end },
}

describe("while recording", function()
  it("a variable or a recorded array is not written", function()
    for _, make in ipairs{ function(x) return x end, function(x) return x * 2 end } do
      autograd.record(function()
        local x, plain = make(variable{ 1, 2 }), nd.array{ 3, 4 }
        for _, write in ipairs(WRITES) do
          assert.raises("state", write[2], x, plain)
        end
        assert.raises("state", function() x[":"] = plain end)
        assert.raises("state", function() x[0] = 1 end)
        assert.raises("state", x.fill, x, 1)
        assert.raises("state", x.add_, x, 1)
        assert.raises("state", plain.copyto, plain, x)
        assert.raises("state", nd.exp, plain, { out = x })
      end)
    end
  end)

  it("a plain array does not take recorded values in place", function()
    local x = variable{ 1, 2 }
    autograd.record(function()
      local y = x * 2
      for _, write in ipairs(WRITES) do
        local z = nd.array{ 3, 4 }
        assert.raises("state", write[2], z, y)
        assert.same({ 3, 4 }, z:totable(), write[1])
      end
    end)
  end)

  it("a whole plain array becomes the result", function()
    for _, write in ipairs{
      function(z, y) z[":"] = y end,
      function(z, y) y:copyto(z) end,
      function(z, y) nd.identity(y, { out = z }) end,
    } do
      local x = variable{ 1, 2 }
      local z = nd.array{ 3, 4 }
      autograd.record(function() write(z, x * 3) end)
      assert.same({ 3, 6 }, z:totable())
      z:backward()
      assert.same({ 3, 3 }, x.grad:totable())
    end
  end)

  it("arrays without history are written as ever", function()
    variable{ 1 }
    autograd.record(function()
      local z, y = nd.array{ 1, 2 }, nd.array{ 3, 4 }
      z:add_(y)
      z[0] = 7
      z["1:2"] = y["0:1"]
      nd.exp(y, { out = y })
      z:mul_(2)
      assert.same({ 14, 6 }, z:totable())
    end)
  end)

  it("x.grad is written", function()
    local x = variable{ 1 }
    autograd.record(function()
      x.grad[":"] = 3
      x.grad:mul_(2)
    end)
    assert.same({ 6 }, x.grad:totable())
  end)
end)

describe("not recording", function()
  it("variables are written: that is how a weight is updated", function()
    local w = variable{ 1, 2 }
    for _ = 1, 3 do
      autograd.record(function() return w * w end):backward()
      w:sub_(w.grad * 0.25)
    end
    assert.same({ 0.125, 0.25 }, w:totable())
  end)

  -- forward, what it keeps, and whether a write of x (or of the result) spoils its gradient
  local NEEDS = {
    { "x * x", function(x) return x * x end, "input", true },
    { "x * 3", function(x) return x * 3 end, "input", false },
    { "x + x", function(x) return x + x end, "input", false },
    { "exp(x)", function(x) return nd.exp(x) end, "input", false },
    { "exp(x)", function(x) return nd.exp(x) end, "output", true },
    { "sin(x)", function(x) return nd.sin(x) end, "output", false },
    { "sin(x)", function(x) return nd.sin(x) end, "input", true },
    { "reshape", function(x) return x:reshape{ 2, 1 } end, "input", false },
    { "sum", function(x) return x:sum() end, "input", false },
  }
  for _, row in ipairs(NEEDS) do
    it(("a write of the %s of %s %s"):format(row[3], row[1],
        row[4] and "is refused by backward" or "does not matter"), function()
      local x = variable{ 1, 2 }
      local y = autograd.record(function() return row[2](x) end)
      local written = row[3] == "input" and x or y
      written[":"] = 5
      if row[4] then
        assert.raises("state", y.backward, y)
      else
        y:backward()
      end
    end)
  end

  it("a part that is written through a view counts", function()
    local x = variable{ { 1, 2 }, { 3, 4 } }
    local y = autograd.record(function() return x * x end)
    x[0]:set(0, 9)
    assert.raises("state", y.backward, y)
  end)

  it("asking whether two arrays share memory is no write", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function() return x * x end)
    assert.is_false(x:same_memory(nd.ones{ 2 }))
    assert.is_true(x:same_memory(x:detach()))
    y:backward()
  end)

  it("writes before the recording do not", function()
    local x = variable{ 1, 2 }
    x[":"] = 3
    local y = autograd.record(function() return x * x end)
    y:backward()
    assert.same({ 6, 6 }, x.grad:totable())
  end)
end)

it("moving averages are written by the operator itself", function()
  local x = nd.array{ { 1, 2 }, { 3, 6 } }:attach_grad()
  local gamma, beta = variable{ 1, 1 }, variable{ 0, 0 }
  local mean, var = nd.zeros{ 2 }, nd.ones{ 2 }
  local y = autograd.record(function()
    return nd.BatchNorm(x, gamma, beta, mean, var, { fix_gamma = false, momentum = 0.5 })
  end)
  y:backward()
  assert.same({ 1, 2 }, mean:totable())
end)
