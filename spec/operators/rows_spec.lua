-- The fast loops of sums and softmax in float32 against the same in float64, element by element, on
-- random shapes: ends that fill no vector, one element, long rows, strided columns, in place.
local ty = require "tycho"
local shell = require "spec.support.shell"
local nd = ty.nd

local SIZES = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 40, 63, 64, 65, 100, 400, 1000, 1001,
  2047, 2080, 4096, 4097, 9001}

local function near(got, want, bound, what)
  local e = nd.max{(got:astype("float64") - want):abs() - bound}:asscalar()
  assert(e <= 0, what .. ": " .. e .. " beyond the bound")
end

local function random(shape) return nd.random.uniform{low = -3, high = 3, shape = shape} end

describe("a sum", function()
  it(
    "over either axis is that of float64, but for two roundings of each term and one of the result",
    function()
      ty.random.seed(11)
      for i, n in ipairs(SIZES) do
        local x = random{1 + i % 9, n}
        local wide = x:astype("float64")
        for axis = 0, 1 do
          for _, name in ipairs{"sum", "mean"} do
            local want, terms = nd[name]{wide, axis = axis}, nd[name]{wide:abs(), axis = axis}
            local what = ("%s of %d x %d, axis %d"):format(name, x.shape[1], n, axis)
            near(nd[name]{x, axis = axis}, want,
              terms * 2 ^ -23 + want:abs() * 2 ^ -24 + 1e-12 * n, what)
          end
        end
        near(x:reshape{-1, 1, x.shape[1]}:sum{axis = {0, 1}},
          wide:reshape{-1, 1, x.shape[1]}:sum{axis = {0, 1}}, 1e-4, "narrow columns")
      end
    end)

  it("counts exactly, and is no less exact where there are many terms", function()
    assert.equal(2 ^ 22, nd.ones{2 ^ 22}:sum():asscalar())
    local x = nd.full{{2 ^ 11, 2 ^ 12}, 0.1}
    for _, shape in ipairs{{-1}, {2 ^ 11, 2 ^ 12}, {2 ^ 21, 4}} do
      for axis = 0, #shape - 1 do
        local y = x:reshape(shape)
        local s = y:sum{axis = axis}
        near(s, y:astype("float64"):sum{axis = axis}, s:astype("float64") * 2 ^ -22, "many terms")
      end
    end
  end)

  it("has the same bits for any number of threads", function()
    local text = [[local ty = require "tycho"
      ty.random.seed(3)
      local x = ty.nd.random.normal{shape = {70, 30011}}
      for axis = 0, 1 do
        local s = x:sum{axis = axis}:totable()
        for i = 1, 70 do print(("%a"):format(s[i])) end
      end
      print(("%a"):format(ty.nd.softmax{x, axis = 1}:sum{axis = 1}:max():asscalar()))]]
    shell.with_file(text, function(path)
      local one, status = shell.run(("TYCHO_THREADS=1 %s %s"):format(shell.program, path))
      assert.equal(0, status, one)
      for _, n in ipairs{2, 3} do
        assert.equal(one, (shell.run(("TYCHO_THREADS=%d %s %s"):format(n, shell.program, path))))
      end
    end)
  end)
end)

describe("a copy", function()
  it("of more than the caches hold is exact, on any boundary", function()
    local n = 2 ^ 24 + 13
    local x, y = nd.random.uniform{shape = {n}, dtype = "float32"}, nd.zeros{n}
    x:copyto(y)
    assert.equal(0, (x - y):abs():max():asscalar())
    assert.equal(0, (x - nd.identity(x)):abs():max():asscalar())
    for _, at in ipairs{{1, 2}, {3, 0}, {0, 5}} do
      local part = n - 6
      y[":"] = 7
      x[{ty.slice(at[1], at[1] + part)}]:copyto(y[{ty.slice(at[2], at[2] + part)}])
      local want = x[{ty.slice(at[1], at[1] + part)}]
      assert.equal(0, (want - y[{ty.slice(at[2], at[2] + part)}]):abs():max():asscalar())
      assert.equal(7, y[{at[2] + part}]:asscalar())
    end
  end)
end)

describe("a softmax", function()
  local function check(name, x, options)
    local wide, what = x:astype("float64"), ("%s of %s"):format(name, table.concat(x.shape, " x "))
    local function call(data, out)
      local t = {data = data, out = out}
      for k, v in pairs(options) do t[k] = v end
      return nd[name](t)
    end
    local want = call(wide)
    local log = name == "log_softmax" and want or nd.clip{nd.log(want), -200, 0}
    local error = log:abs() * 2 ^ -22 + 1e-6             -- of the exponent
    local bound = name == "log_softmax" and error or want * error + 1e-37
    near(call(x), want, bound, what)
    call(x, x)
    near(x, want, bound, what .. " in place")
  end

  it("is that of float64", function()
    ty.random.seed(12)
    for i, n in ipairs(SIZES) do
      for _, name in ipairs{"softmax", "log_softmax", "softmin"} do
        check(name, random{1 + i % 5, n} * 8, {axis = 1})
        check(name, random{n % 300 + 1, 1 + i % 70} * 8, {axis = 0})
        check(name, random{2, n}, {axis = 1, temperature = 0.05})
      end
    end
  end)

  it("of minus infinity and of NaN", function()
    for _, n in ipairs{3, 20, 33, 200} do
      local x = nd.zeros{2, n}
      x[{0, 0}] = -1 / 0
      x[{1, 1}] = 0 / 0
      local y = nd.softmax{x, axis = 1}
      assert.equal(0, y[{0, 0}]:asscalar())
      assert.is_near(1 / (n - 1), y[{0, n - 1}]:asscalar(), 1e-6)
      for i = 0, n - 1 do assert.is_true(y[{1, i}]:asscalar() ~= y[{1, i}]:asscalar()) end
      x[{0, 0}] = -1e30
      assert.equal(0, nd.softmax{x, axis = 1}[{0, 0}]:asscalar())
    end
  end)
end)
