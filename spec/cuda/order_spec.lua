-- Order between two GPUs, on the stand-in, whose streams run late and mixed by chance: the devices
-- wait for each other, and what failed on one is reported by what another made of it.

local stand_in = require "spec.support.stand_in"

local ORDER = [[
local ty = require "tycho"
local ffi = require "ffi"
ffi.cdef "uint64_t cudasim_waits(void);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
local first, second = ty.gpu(0), ty.gpu(1)
local a, b = ty.nd.ones({4}, {ctx = first}), ty.nd.ones({4}, {ctx = second})
for step = 1, 40 do
  a:mul_(0.5)
  a:copyto(b)                          -- b waits for a
  b:add_(step)
  b:copyto(a)                          -- a for b, twice
end
local want = 1
for step = 1, 40 do
  want = want * 0.5 + step
end
print(math.abs(a:sum():asscalar() - 4 * want) < 1e-3, driver.cudasim_waits() > 0)
]]

local LATE = [[
local ty = require "tycho"
local first, second = ty.gpu(0), ty.gpu(1)
ty.nd.ones({4}, {ctx = first}):copyto(ty.nd.ones({4}, {ctx = second})):wait_to_read()
local table_ = ty.nd.ones({3, 2}, {ctx = first})
for i = 1, 3 do
  local rows = ty.nd.take(table_, ty.nd.array({0, i == 2 and 7 or 1}, {ctx = first}),
    {mode = "raise"})
  local there = rows:as_in_context(second) * 2 + 1
  print(i, pcall(function() return there:sum():asscalar() end))
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("is that of the program", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("order between two GPUs", function()
  for seed = 1, 4 do
    it("is that of the program, seed " .. seed, function()
      local text, status = stand_in.run(ORDER,
        { CUDASIM_DEVICES = 2, CUDASIM_STRICT = 1, CUDASIM_SEED = seed })
      assert.equal("true\ttrue\n", text)
      assert.equal(0, status)
    end)
  end

  it("is kept without events, too", function()
    local plan = {}
    for n = 1, 60 do
      plan[n] = ("cuStreamWaitEvent:%d:999"):format(n)
    end
    local text = stand_in.run(ORDER,
      { CUDASIM_DEVICES = 2, CUDASIM_FAIL = "cuEventRecord:9:999," .. table.concat(plan, ",") })
    assert.matches("^true\t", text)
  end)

  it("carries failures that come out late", function()
    local text = stand_in.run(LATE, { CUDASIM_DEVICES = 2 })
    assert.matches("1\ttrue\t12\n2\tfalse\t.*index 7 at position 1 is out of range", text)
    assert.matches("3\ttrue\t12\n$", text)
  end)
end)
