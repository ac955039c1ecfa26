-- Every line of spec/operators/cases_samplers.lua: mean and variance, and a test of the whole law,
-- Kolmogorov and Smirnov's where it is continuous, chi-square where it is discrete, each at the
-- level 0.001; seeds are fixed. Then: no number depends on threads.
local ty = require "tycho"
local cases = require "spec.operators.cases_samplers"
local shell = require "spec.support.shell"
local trials = require "spec.support.trials"
require "spec.helper"

local N = 20000

-- Returns the mean, the variance, and the variance of (x - mean)^2.
local function moments(x)
  local mean, variance, fourth = 0, 0, 0
  for _, v in ipairs(x) do mean = mean + v / #x end
  for _, v in ipairs(x) do
    variance, fourth = variance + (v - mean) ^ 2 / #x, fourth + (v - mean) ^ 4 / #x
  end
  return mean, variance, fourth - variance ^ 2
end

local function check_moments(x, law)
  local mean, variance, spread = moments(x)
  local off = math.abs(mean - law.mean) / math.sqrt(law.variance / #x)
  if off > 4 then
    error(("mean %g, expected %g: %.1f deviations"):format(mean, law.mean, off), 0)
  end
  off = math.abs(variance - law.variance) / math.max(math.sqrt(spread / #x), law.variance / #x)
  if off > 4.5 then
    error(("variance %g, expected %g: %.1f deviations"):format(variance, law.variance, off), 0)
  end
end

-- Checks the largest distance between the cumulative frequencies and the law.
local function check_continuous(x, law)
  table.sort(x)
  local most = 0
  for i, v in ipairs(x) do
    local p = law.cdf(v)
    most = math.max(most, i / #x - p, p - (i - 1) / #x)
  end
  local statistic = most * math.sqrt(#x)
  if statistic > 1.95 then
    error(("Kolmogorov-Smirnov: %.3f, at most 1.95"):format(statistic), 0)
  end
end

-- Returns Wilson and Hilferty's approximation of the quantile at 0.999.
local function chi_square_bound(freedom)
  local s = 2 / (9 * freedom)
  return freedom * (1 - s + 3.09 * math.sqrt(s)) ^ 3
end

-- Returns bins of at least five expected numbers; the last one holds the rest.
local function bins(law, n)
  local list, sum, from, k = {}, 0, law.first, law.first
  local left = 1
  repeat
    sum = sum + law.pmf(k)
    if sum * n >= 5 and (left - sum) * n >= 5 then
      list[#list + 1] = {from = from, to = k, p = sum}
      left, sum, from = left - sum, 0, k + 1
    end
    k = k + 1
  until left * n < 10 or k > law.first + 10000
  list[#list + 1] = {from = from, to = math.huge, p = left}
  return list
end

local function check_discrete(x, law)
  local list, statistic, counts = bins(law, #x), 0, {}
  for _, v in ipairs(x) do
    assert.equal(v, math.floor(v))
    assert.is_true(v >= law.first)
    counts[v] = (counts[v] or 0) + 1
  end
  for _, bin in ipairs(list) do
    local count = 0
    for v, c in pairs(counts) do if v >= bin.from and v <= bin.to then count = count + c end end
    statistic = statistic + (count - bin.p * #x) ^ 2 / (bin.p * #x)
  end
  local bound = chi_square_bound(#list - 1)
  if statistic > bound then
    error(("chi-square: %.2f in %d bins, at most %.2f"):format(statistic, #list, bound), 0)
  end
  for v in pairs(counts) do
    if law.pmf(v) == 0 then error(("%g was drawn, which cannot be"):format(v), 0) end
  end
end

describe("random numbers follow their law:", function()
  for line, key in trials.lines(cases) do
    it(key, function()
      ty.random.seed(trials.seed("law", key))
      local x = line[2](N)
      check_moments(x, line[3]);
      (line[3].cdf and check_continuous or check_discrete)(x, line[3])
    end)
  end
end)

describe("counts whose rate overflows", function()
  it("are no endless search", function()
    ty.random.seed(1)
    local rate =
      ty.nd.random_generalized_negative_binomial{mu = 1e30, alpha = 1e308, shape = {8}}:totable()
    for _, x in ipairs(rate) do assert.truthy(x >= 0) end
    local failures =
      ty.nd.random_negative_binomial{k = 3, p = 1e-320, shape = {8}, dtype = "float64"}:totable()
    for _, x in ipairs(failures) do assert.equal(math.huge, x) end
  end)
end)

describe("random numbers in half types", function()
  for _, name in ipairs{"uniform", "normal", "gamma", "exponential", "poisson", "negative_binomial",
      "generalized_negative_binomial"} do
    it(name, function()
      for _, dtype in ipairs{"float16", "bfloat16"} do
        local options = name == "negative_binomial" and {k = 3, p = 0.5} or {}
        local function draw(of)
          ty.random.seed(3)
          options[1] = ty.nd.zeros({1000}, {dtype = of})
          return ty.nd["_random_" .. name .. "_like"](options)
        end
        assert.equal(dtype, draw(dtype).dtype)
        assert.near(draw("float32"):astype(dtype):astype("float32"),
          draw(dtype):astype("float32"), 0, 0.01)
      end
    end)
  end
end)

describe("one seed gives the same numbers", function()
  it("on every run, and others after another seed", function()
    for i, line in ipairs(cases) do
      ty.random.seed(i)
      local first = line[2](50)
      local second = line[2](50)
      ty.random.seed(i)
      assert.same(first, line[2](50))
      assert.same(second, line[2](50))
    end
  end)

  it("with any number of threads and any instruction set", function()
    local function output(environment)
      local text, status =
        shell.run(environment .. " " .. shell.program .. " spec/support/draws.lua")
      assert.equal(0, status, text)
      return text
    end
    local one = output("TYCHO_THREADS=1")
    assert.is_true(select(2, one:gsub("\n", "")) > 26)
    assert.equal(one, output("TYCHO_THREADS=2"))
    assert.equal(one, output("TYCHO_THREADS=5"))
    assert.equal(one, output("TYCHO_THREADS=2 TYCHO_CPU=baseline"))
  end)

  it("in an executor, between other nodes or not", function()
    local function draw(symbol)
      ty.random.seed(5)
      return symbol:bind{ctx = ty.cpu(), args = {}}:forward()[1]:totable()
    end
    local plain = draw(ty.sym._random_normal{shape = {100}, name = "x"})
    assert.same(plain, draw(ty.sym._random_normal{shape = {100}, name = "x"}))
    local doubled = draw(ty.sym._random_normal{shape = {100}, name = "x"} * 2)
    for k, v in ipairs(plain) do assert.near(2 * v, doubled[k], 1e-6) end
  end)
end)

describe("samples without repetition", function()
  it("are all different in a row", function()
    local x, tries = unpack(ty.nd._sample_unique_zipfian{range_max = 30, shape = {50, 20}})
    for row, values in ipairs(x:totable()) do
      local seen = {}
      for _, v in ipairs(values) do
        assert.is_nil(seen[v])
        assert.is_true(v >= 0 and v < 30)
        seen[v] = true
      end
      assert.is_true(tries:totable()[row] >= 20)
    end
  end)
end)

describe("a sample's logarithm", function()
  it("comes with it, and its gradient goes to the probability that was drawn", function()
    local s = ty.sym._sample_multinomial{ty.sym.Variable("p"), shape = {4}, get_prob = true}
    local exe = s:simple_bind{ctx = ty.cpu(), p = {2, 3}, type_dict = {p = "float32"}}
    exe.arg_dict.p[":"] = {{0.5, 0.25, 0.25}, {0.125, 0.125, 0.75}}
    local out = exe:forward{is_train = true}
    local index, log, p = out[1]:totable(), out[2]:totable(), exe.arg_dict.p:totable()
    exe:backward{ty.nd.zeros({2, 4}, {dtype = "int32"}), ty.nd.ones{2, 4}}
    local want = {{0, 0, 0}, {0, 0, 0}}
    for row = 1, 2 do
      for k = 1, 4 do
        local i = index[row][k] + 1
        assert.near(math.log(p[row][i]), log[row][k], 1e-6)
        want[row][i] = want[row][i] + 1 / p[row][i]
      end
    end
    assert.near(want, exe.grad_dict.p, 1e-5)
  end)
end)
