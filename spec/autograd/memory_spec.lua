-- How long graphs live, what interruptions and a lack of memory leave.
local device = require "spec.support.device"
local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local C = native.C
local autograd, nd = ty.autograd, ty.nd

-- Collects garbage and waits, since queued work holds arrays until it has run.
local function collect()
  collectgarbage()
  collectgarbage()
  ty.waitall()
end

local function live()
  collect()
  local l = ty.live()
  return { l.tapes, l.nodes }
end

-- Asserts that nothing made since is alive. (Earlier objects may be gone.) A device releases arrays
-- a moment after it has reported that it is done.
local function assert_gone(before)
  local now
  for _ = 1, 20 do
    now = live()
    if now[1] <= before[1] and now[2] <= before[2] then break end
  end
  assert.is_true(now[1] <= before[1] and now[2] <= before[2],
    ("%d tapes, %d nodes; before %d, %d"):format(now[1], now[2], unpack(before)))
end

local function variable(values)
  return nd.array(values):attach_grad()
end

describe("a graph", function()
  it("lives as long as an array that came out of it", function()
    local x = variable{ 1, 2 }
    local before = live()
    local z
    do
      local y = autograd.record(function() return nd.exp(x) end)
      z = autograd.record(function() return y * y end)
    end
    local now = live()
    assert.is_true(now[1] > before[1] and now[2] > before[2])
    z:backward{ retain_graph = true }
    assert.near(nd.exp(x * 2) * 2, x.grad, 1e-4)
    z = nil                                              -- luacheck: ignore
    assert_gone(before)
  end)

  it("is freed by backward at once; its arrays keep their values", function()
    local x = variable{ 1, 2 }
    local before = live()
    local y, z = autograd.record(function()
      local y = x * x
      return y, y * 3
    end)
    z:backward()
    assert.same({ 1, 4 }, y:totable())
    assert.same({ 3, 12 }, z:totable())
    local now = live()
    assert.is_true(now[2] <= before[2] + 2)              -- what the two arrays say of themselves
    y, z = nil, nil                                      -- luacheck: ignore
    assert_gone(before)
  end)

  it("is not held by variables", function()
    local x = variable{ 1 }
    local before = live()
    autograd.record(function() return x * x * x end)
    assert_gone(before)
  end)

  it("keeps its own reference of an array that is freed", function()
    local x = variable{ 1, 2 }
    local h, y = autograd.record(function()
      local h = nd.exp(x)
      return h, h * h
    end)
    h:free()
    y:backward()
    assert.near(nd.exp(x * 2) * 2, x.grad, 1e-4)
  end)

  -- Which of the loop's arrays the collector has left when calls run is what their program writes,
  -- so that a GPU's kernels depend on it: here it runs at fixed steps.
  it("may be long", function()
    local x, kept = variable{ 1 }, {}
    finally(function() collectgarbage("restart") end)
    local function record()
      kept.y = autograd.record(function()
        local y = x
        for i = 1, 20000 do
          if i % 5000 == 1 then
            collectgarbage()
            collectgarbage("stop")
          end
          y = y + 1
        end
        return y
      end)
      collectgarbage("restart")
    end
    record()
    kept.y:backward()
    assert.same({ 1 }, x.grad:totable())
    record()
    local before = live()
    kept.y = nil
    assert.is_true(live()[2] < before[2] - 19000)
  end)

  it("of create_graph goes with its gradients", function()
    local x = variable{ 1, 2 }
    local before = live()
    local function run()
      local y = autograd.record(function() return nd.dot(x, nd.tanh(x)) end)
      local dx = autograd.grad(y, x, { create_graph = true })
      autograd.grad(dx, x, { create_graph = true }):backward()
    end
    run()
    assert_gone(before)
  end)

  -- A trace keeps the functions that it calls, and their upvalues: in a new process, because LuaJIT
  -- no longer compiles for one closure once a few of its kind were made.
  it("is not held by what the compiler made of its gradients", function()
    shell.with_file([[
      local ty = require "tycho"
      local nd, autograd = ty.nd, ty.autograd
      local Twice = autograd.Function:extend("Twice")
      function Twice:forward(x) return x * 2 end
      function Twice:backward(dy) return dy * 2 end
      local w = nd.array{ 1, 2 }:attach_grad()
      local function run()
        local y = autograd.record(function()
          return nd.dot(w, nd.tanh(w)) + nd._linalg_gemm2(nd.sigmoid(w):reshape{ 1, 2 },
            w:reshape{ 2, 1 }, { alpha = 2 }):reshape{ 1 }
        end)
        local dw = autograd.grad(y, w, { create_graph = true })
        autograd.grad(dw, w, { create_graph = true }):backward()
        autograd.record(function() return Twice()(w * w) end):backward()
      end
      jit.opt.start("hotloop=2", "hotexit=1")
      local most = 0
      for _ = 1, 6 do
        run()
        collectgarbage()
        collectgarbage()
        ty.waitall()
        most = math.max(most, ty.live().tapes)
      end
      print(most .. " tapes")
    ]], function(path)
      for _ = 1, 5 do
        assert.equal("0 tapes", (shell.run(shell.program .. " " .. path):gsub("%s+$", "")))
      end
    end)
  end)

  it("of functions goes with them, and what they saved", function()
    local Keep = autograd.Function:extend("Keep")
    local kept = setmetatable({}, { __mode = "k" })
    function Keep:forward(x)
      self:save_for_backward(x)
      kept[self] = true
      return x * 2
    end
    function Keep:backward(dy) return dy * 2 end
    local x = variable{ 1 }
    local before = live()
    for _ = 1, 10 do
      autograd.record(function() return Keep()(x) end)
    end
    assert_gone(before)
    autograd.record(function() return Keep()(x) end)     -- one call, and the old objects are gone
    collect()
    local count = 0
    for _ in pairs(kept) do
      count = count + 1
    end
    assert.is_true(count <= 1)
  end)
end)

it("a loop that records and never calls backward runs in bounded memory", function()
  local x = nd.ones{ 256, 1024 }:attach_grad()           -- 1 MiB
  local most = 0
  for _ = 1, 300 do
    autograd.record(function() return nd.exp(nd.tanh(x)) end)
    most = math.max(most, ty.live().bytes)
  end
  assert.is_true(most < 200 * 2 ^ 20, ("%d MiB"):format(most / 2 ^ 20))
end)

describe("Ctrl-C", function()
  local function interrupted(f, ...)
    C.ty_interrupt(1)
    local ok, e = pcall(f, ...)
    C.ty_interrupt(0)
    return ok, e
  end

  it("comes out of the call that runs; scopes put the flags back", function()
    if device.is_gpu then return pending("a launch is not stopped") end
    local x = nd.ones{ 600, 600 }:attach_grad()
    x:wait_to_read()
    local ok, e = interrupted(autograd.record, function()
      return nd.dot(x, x):sum():asscalar()
    end)
    assert.is_false(ok)
    assert.equal("interrupted", e.code)
    assert.is_false(autograd.is_recording())
    assert.is_false(autograd.is_training())
  end)

  it("in a backward leaves parameters whole, and the next step is right", function()
    if device.is_gpu then return pending("a launch is not stopped") end
    local x, w = nd.ones{ 600, 600 }, nd.ones{ 600, 600 }:attach_grad()
    local y = autograd.record(function() return nd.dot(x, w):sum() end)
    y:wait_to_read()
    local ok, e = interrupted(function()
      y:backward()
      w.grad:wait_to_read()
    end)
    assert.is_false(ok)
    assert.equal("interrupted", e.code)
    assert.near(nd.ones{ 600, 600 }, w)
    autograd.record(function() return nd.dot(x, w):sum() end):backward()
    assert.near(nd.full({ 600, 600 }, 600), w.grad, 1e-3)
  end)
end)


-- Kernels keep a weight in their own layout while its address and version stay. Freed bytes are
-- given to the next array of the size, and equal scripts write arrays equally often.
describe("a weight at the address of one that is gone", function()
  local function weights(i)
    return nd.full({ 16, 16 }, i)
  end

  it("is the one that gradients are computed from", function()
    for i = 1, 6 do
      local x, w = nd.ones{ 8, 16 }:attach_grad(), weights(i)
      local y = autograd.record(function()
        return nd.FullyConnected{ x, w, num_hidden = 16, no_bias = true }
      end)
      y:backward()
      assert.near(nd.full({ 8, 16 }, 16 * i), x.grad)
      for _, z in ipairs{ x, w, y } do
        z:free()
      end
    end
  end)

  it("is the one that a convolution reads", function()
    for i = 1, 6 do
      local x, w = nd.ones{ 2, 8, 12, 12 }:attach_grad(), nd.full({ 8, 8, 3, 3 }, i)
      local y = autograd.record(function()
        return nd.Convolution{ x, w, kernel = { 3, 3 }, num_filter = 8, no_bias = true }
      end)
      y:backward()
      assert.near(nd.full({ 2, 8, 10, 10 }, 72 * i), y)
      assert.near(nd.full({ 8, 8 }, 72 * i), x.grad["1, 0, 2:10, 2:10"], 1e-3)
      for _, z in ipairs{ x, w, y } do
        z:free()
      end
    end
  end)

  it("is the one that a normalised convolution reads in a program without gradients", function()
    for i = 1, 6 do
      local x, w, mean = nd.ones{ 2, 8, 12, 12 }, nd.full({ 8, 8, 3, 3 }, i), nd.full({ 8 }, i)
      local one, zero = nd.ones{ 8 }, nd.zeros{ 8 }
      local shift = nd.zeros{ 1 }:attach_grad()
      local y = autograd.record(false, function()
        local z = nd.Convolution{ x + shift, w, kernel = { 3, 3 }, num_filter = 8,
          no_bias = true }
        return nd.BatchNorm{ z, one, zero, mean, one, eps = 1e-8 }
      end)
      assert.near(nd.full({ 2, 8, 10, 10 }, 71 * i), y, 1e-3)
      for _, z in ipairs{ x, w, mean, one, zero, y } do
        z:free()
      end
    end
  end)
end)


-- A CPU is slower than a script that calls one program after the other.
describe("results that the script has dropped", function()
  setup(device.leave)                                    -- on a GPU they are not bounded
  teardown(device.come_back)
  it("are few until their runs have ended, also of programs that differ", function()
    local ROWS, WIDTH, PROGRAMS, MIB = 200, 512, 60, 2 ^ 20
    local w, list, most = nd.ones{ WIDTH, WIDTH }:attach_grad(), {}, 0
    for i = 1, PROGRAMS do
      list[i] = nd.ones{ ROWS + i, WIDTH }
    end
    collect()
    -- sees a result before backward, so that it is made, and drops it after
    local function step(x)
      local y
      local loss = autograd.record(function()
        y = nd.dot(nd.dot(x, w), w)
        return y:sum()
      end)
      loss:backward()
    end
    for pass = 1, 2 do
      local before = tonumber(ty.live().bytes)
      for i = 1, PROGRAMS do
        step(list[i])
        collectgarbage()
        if pass == 2 then
          most = math.max(most, tonumber(ty.live().bytes) - before)
        end
      end
      ty.waitall()
    end
    -- 4 MiB on their way, two results beyond them, gradients and values inside
    assert.is_true(most < 8 * MIB, ("%.1f MiB"):format(most / MIB))
  end)
end)
