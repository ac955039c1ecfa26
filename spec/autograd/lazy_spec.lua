-- Recorded calls that wait: what completes them, what is kept, what a script may not notice.
local class = require "tycho.ndarray.class"
local device = require "spec.support.device"
local native = require "tycho.core.ffi"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local autograd, nd = ty.autograd, ty.nd

local function variable(values)
  return nd.array(values):attach_grad()
end

local function waiting()
  return autograd.stats().pending
end

local function record(f)
  return autograd.record(f)
end

local EAGER = os.getenv("TYCHO_LAZY") == "0"

describe("recorded calls wait", function()
  before_each(function() ty.waitall() end)

  if EAGER then
    return pending("TYCHO_LAZY is 0")
  end

  it("until a value is read; all that waits runs then", function()
    local x = variable{ 1, 2 }
    local y, z = record(function() return x * 2, x + 1 end)
    assert.equal(2, waiting())
    assert.same({ 2 }, y.shape)
    assert.equal("float32", z.dtype)
    assert.equal(2, waiting())
    assert.same({ 2, 4 }, y:totable())
    assert.equal(0, waiting())
    assert.same({ 2, 3 }, z:totable())
  end)

  it("until waitall, and until backward", function()
    local x = variable{ 1, 2 }
    local y = record(function() return x * x end)
    ty.waitall()
    assert.equal(0, waiting())
    local z = record(function() return x * x end)
    z:backward()
    assert.equal(0, waiting())
    assert.same({ 2, 4 }, x.grad:totable())
    assert.same({ 1, 4 }, y:totable())
  end)

  it("not where their results are unreachable", function()
    local x = variable{ 1, 2 }
    record(function() return nil, x * 3 + 1 end)
    collectgarbage()
    collectgarbage()
    assert.equal(0, waiting())
  end)

  it("on, where a script frees what it has not used", function()
    local x = variable{ { 1, 2 }, { 3, 4 } }
    local before, y = autograd.stats(), nil
    record(function()
      local parts = nd.SliceChannel{ x, num_outputs = 2, axis = 1 }
      y = nd.tanh(parts[1])
      local view = nd.exp(x):reshape{ 4 }
      for _, each in ipairs{ nd.exp(x), parts[1], parts[2], view } do
        class.release(each)
      end
    end)
    assert.equal(before.flushes, autograd.stats().flushes)
    assert.near({ math.tanh(1), math.tanh(3) }, y:reshape{ 2 })
    assert.equal(before.flushes + 1, autograd.stats().flushes)
  end)

  it("before what they read is written, also through views and by an executor", function()
    local x, plain = variable{ 1, 2, 3 }, nd.array{ 4, 5, 6 }
    local y = record(function() return x * plain end)
    plain[1] = 0
    assert.same({ 4, 10, 18 }, y:totable())
    local part = record(function() return x["1:3"] * 2 end)
    x:add_(1)
    assert.same({ 4, 6 }, part:totable())
    local exe = (ty.sym.Variable("a") * 1):bind{ ctx = ty.cpu(), args = { nd.ones{ 3 } } }
    local out = exe:forward()[1]
    local z = record(function() return x * out end)
    exe.arg_dict.a[":"] = 7
    exe:forward()
    assert.same({ 2, 3, 4 }, z:totable())
  end)

  it("not with arrays whose address is known outside", function()
    local x, plain = variable{ 1, 2 }, nd.array{ 3, 4 }
    local p = plain:data()
    local y = record(function() return x * plain end)
    p[0] = 100
    assert.same({ 3, 8 }, y:totable())
    assert.equal(100, record(function() return x * plain end):totable()[1])
  end)

  it("in as many as TYCHO_LAZY_OPS says", function()
    local output, status
    shell.with_file([[
      local ty = require "tycho"
      local x = ty.nd.ones{ 2 }:attach_grad()
      local most = 0
      ty.autograd.record(function()
        local y = x
        for _ = 1, 100 do
          y = y + 1
          most = math.max(most, ty.autograd.stats().pending)
        end
        print(most, y:totable()[1])
      end)]], function(path)
      output, status = shell.run("TYCHO_LAZY_OPS=10 " .. shell.program .. " " .. path)
    end)
    assert.equal(0, status, output)
    assert.equal("10\t101", output:match("[^\n]+"))
  end)

  it("and fail at their line, beside what is good", function()
    local x, index = variable{ 1, 2 }, nd.array{ 0, 9 }
    local good, bad = record(function()
      return x + 1, nd.take{ x, index, mode = "raise" }
    end)
    local line = debug.getinfo(1, "l").currentline - 2
    local e = assert.raises("run", bad.totable, bad)
    if not device.is_gpu then                            -- whose failures are those of a segment
      assert.matches("lazy_spec.lua:" .. line, e.where, 1, true)
      assert.same({ 2, 3 }, good:totable())
    end
  end)

  it("and break what depends on a broken array only", function()
    local x, v = variable{ 1, 2 }, variable{ 5, 6 }
    ty.waitall()                                         -- a GPU's failure breaks all that runs
    local bad = record(function() return nd.take{ x, nd.array{ 0, 9 }, mode = "raise" } end)
    assert.raises("run", bad.totable, bad)
    local first, second, whole, loss
    record(function()
      local hidden = v * 3
      first = bad * hidden                               -- reads what only it reads
      whole = v + 1
      second = first + whole
      loss = (v * v):sum()
    end)
    loss:backward()
    assert.same({ 10, 12 }, v.grad:totable())
    assert.same({ 6, 7 }, whole:totable())
    assert.raises("run", first.totable, first)
    assert.raises("run", second.totable, second)
  end)
end)

describe("programs of recorded calls", function()
  local function count_misses(f, times)
    local misses = {}
    for i = 1, times do
      f(i)
      misses[i] = autograd.stats().misses
    end
    return misses[times] - misses[math.min(3, times)]
  end

  it("are kept by structure: numbers and arrays are those of each run", function()
    local w = variable{ 1, 2, 3 }
    assert.equal(0, count_misses(function(i)
      local x = nd.array{ i, 1, 2 }
      local y = record(function() return (w * x * (0.1 * i) / (i + 0.5) + i):sum() end)
      y:backward()
      assert.near(0.1 * i * i / (i + 0.5), w.grad:totable()[1], 1e-4)
      w:sub_(w.grad * (0.01 * i))
    end, 20))
  end)

  it("have calls with hundreds of outputs", function()
    local x = nd.arange(600):reshape{ 600, 1 }
    x:attach_grad()
    local y = record(function()
      local parts = nd.split{ x, num_outputs = 600, axis = 0 }
      return parts[300] * 2 + parts[600] * 3 + parts[1] * 5
    end)
    y:backward()
    assert.equal(299 * 2 + 599 * 3, y:asscalar())
    local g = x.grad:totable()
    assert.same({ 5, 2, 3 }, { g[1][1], g[300][1], g[600][1] })
    assert.equal(10, x.grad:sum():asscalar())
  end)

  it("are few where the depth changes from step to step", function()
    local w = variable{ 0.1, 0.2 }
    for _ = 1, 2 do
      for depth = 1, 8 do
        local y = record(function()
          local y = w
          for _ = 1, depth do y = nd.tanh(y * w) end
          return y:sum()
        end)
        y:backward()
      end
    end
    local before = autograd.stats().misses
    for i = 1, 30 do
      record(function()
        local y = w
        for _ = 1, i * 5 % 8 + 1 do y = nd.tanh(y * w) end
        return y:sum()
      end):backward()
    end
    assert.equal(before, autograd.stats().misses)
  end)

  it("are made anew where a loop that repeats sees fewer results", function()
    if EAGER then
      return pending("TYCHO_LAZY is 0")
    end
    local x = variable{ 1, 2, 3 }
    local held = {}
    local function step(keep)
      record(function()
        held[1] = x * 2
        held[2] = held[1]:exp()
        held[3] = held[2]:sin()
        held[4] = held[3]:sum()
      end)
      for k = 1, keep and 0 or 3 do
        class.release(held[k])
      end
      local y = held[4]
      y:backward()
      return { y:asscalar(), unpack(x.grad:totable()) }
    end
    local large = {}
    for i = 1, 3 do
      large[i] = step(true)
    end
    local before = autograd.stats()
    step(false)
    assert.equal(before.misses, autograd.stats().misses)
    local small = {}
    for i = 1, 4 do
      small[i] = step(false)
    end
    local after = autograd.stats()
    assert.equal(before.misses + 1, after.misses)
    assert.near(large[1], nd.array(small[4]))
    for i = 1, 6 do
      step(i % 2 == 0)
    end
    assert.equal(after.misses, autograd.stats().misses)
    assert.same(small[4], step(false))
  end)

  it("keep no large result that the script has only dropped, as long as steps are long", function()
    if EAGER then
      return pending("TYCHO_LAZY is 0")
    end
    local output, status = shell.run(shell.program .. [[ -e '
      local ty = require "tycho"
      local nd, autograd = ty.nd, ty.autograd
      local clock, at = os.clock, 0
      os.clock = function() at = at + 1000 return at end -- collections and steps of 1,000 seconds
      local w = nd.ones{64, 64}:attach_grad()
      local x = nd.ones{40000, 64}
      local held
      local function step(keep)
        local loss = autograd.record(function()
          local y = nd.dot(x, w)
          held = keep and y or nil
          return nd.mean(y)
        end)
        at = at + 1e6
        loss:backward()
      end
      step(false)
      local first = autograd.stats().misses
      ty.waitall()
      local bytes = ty.live().bytes
      for _ = 1, 4 do step(false) end
      ty.waitall()
      print(first, autograd.stats().misses, ty.live().bytes <= bytes)
      step(true)
      local sum = held:sum():asscalar()
      print(autograd.stats().misses, sum == 40000 * 64 * 64)
      local count, gc = 0, require "tycho.core.gc"
      local find = gc.find_dropped
      function gc.find_dropped() count = count + 1 return find() end
      for _ = 1, 40 do step(true) end
      print(count < 10)
    ']])
    assert.equal(0, status, output)
    assert.equal("1\t1\ttrue\n2\ttrue\ntrue\n", output)
  end)

  it("hold no array of the script", function()
    local before
    for i = 1, 3 do
      local w = nd.ones{ 1000 }:attach_grad()
      record(function() return (w * w):sum() end):backward()
      w = nil                                            -- luacheck: ignore
      collectgarbage()
      collectgarbage()
      ty.waitall()
      if i == 2 then before = ty.live() end
    end
    local after = ty.live()
    assert.is_true(after.tensors <= before.tensors)
    assert.is_true(after.nodes <= before.nodes)
  end)

  it("agree with calls that run at once, to the bit with each other", function()
    local output, status = shell.run(shell.program .. " spec/fuzz/recorded.lua 300 5000")
    assert.equal(0, status, output)
    assert.matches("0 differ", output)
  end)

  it("and their counts are set to 0 when asked", function()
    autograd.stats(true)
    local s = autograd.stats()
    assert.equal(0, s.hits + s.misses + s.flushes + s.ops)
    assert.equal(native.C.ty_lazy_enable(1) ~= 0, s.lazy)
  end)
end)

-- A run may be submitted before one with other arrays has ended: its task takes their addresses.
describe("runs of one program", function()
  before_each(function() ty.waitall() end)

  -- Returns the results and gradients of `count` steps on arrays of n elements, none of them read
  -- before all are submitted.
  local function run_steps(n, count, step)
    local results = {}
    for i = 1, count do
      local x = nd.full({ n }, i):attach_grad()
      local y = autograd.record(function() return step(x, i) end)
      y:backward()
      results[i] = { y, x.grad }
    end
    return results
  end

  for _, n in ipairs{ 1, 16, 2000, 20000 } do                -- below and above MOST_AHEAD
    it(("follow each other with arrays of their own, of %d elements"):format(n), function()
      local results = run_steps(n, 40, function(x, i) return nd.tanh(x * 0.01) * (x + i) end)
      for i, r in ipairs(results) do
        local y, dx = r[1], r[2]
        local t = math.tanh(i * 0.01)
        assert.near(t * 2 * i, y:max():asscalar(), 1e-5 * i)
        assert.near(t * 2 * i, y:min():asscalar(), 1e-5 * i)
        assert.near(0.01 * (1 - t * t) * 2 * i + t, dx:max():asscalar(), 1e-5 * i)
        assert.near(0.01 * (1 - t * t) * 2 * i + t, dx:min():asscalar(), 1e-5 * i)
      end
    end)
  end

  it("read what a run before them wrote", function()
    local x, w = variable{ 1, 2, 3 }, nd.array{ 1, 1, 1 }
    local kept = {}
    for i = 1, 30 do
      local y = autograd.record(function() return x * w + i end)
      y:backward()
      w = y * 0.5 - i * 0.5 + x.grad                      -- w' = x w / 2 + w
      kept[i] = w
    end
    local expected = { 1, 1, 1 }
    for i = 1, 30 do
      for k = 1, 3 do
        expected[k] = k * expected[k] / 2 + expected[k]
      end
      assert.near(expected, kept[i]:totable(), 1e-5 * expected[3])
    end
  end)

  it("are right after one that failed", function()
    local table_of = nd.array{ 10, 20, 30 }
    local function step(index)
      local i, x = nd.array{ index }, variable{ 2 }
      local y = autograd.record(function()
        return nd.take{ table_of, i, mode = "raise" } * x
      end)
      return y
    end
    for _ = 1, 3 do
      assert.same({ 40 }, step(1):totable())
    end
    local first, bad, after, last = step(0), step(7), step(2), step(1)
    if not device.is_gpu then                            -- whose failure breaks all that runs
      assert.same({ 60 }, after:totable())
      assert.same({ 20 }, first:totable())
      assert.same({ 40 }, last:totable())
    end
    assert.has_error(function() bad:totable() end)
    assert.same({ 60 }, step(2):totable())
  end)
end)
