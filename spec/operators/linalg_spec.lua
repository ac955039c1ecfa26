-- Operators of linear algebra: known values, identities on random stacks, gradients through
-- symmetric matrices, refusals.
local ty = require "tycho"
local noise = require("spec.support.arrays").noise
local shell = require "spec.support.shell"
require "spec.helper"

local nd, sym, linalg = ty.nd, ty.sym, ty.nd.linalg
local V = sym.Variable

local function double(t) return nd.array(t, {dtype = "float64"}) end

-- Returns n ones on the diagonals of a stack, times factor.
local function eye(shape, factor)
  local n = shape[#shape]
  local x =
    (nd.eye(n, {dtype = "float64"}) * (factor or 1)):reshape(#shape == 3 and {1, n, n} or {n, n})
  return nd.broadcast_add(nd.zeros(shape, {dtype = "float64"}), x)
end

-- Returns well-conditioned matrices.
local function regular(shape, seed) return noise(shape, seed) * 0.4 + eye(shape, 2) end

-- Returns symmetric matrices a a^T.
local function gram(a) return linalg.gemm2(a, a, {transpose_b = true}) end

-- Returns positive definite matrices.
local function definite(shape, seed) return gram(noise(shape, seed)) + eye(shape, 0.5) end

local function product(a, b, options) return linalg.gemm2(a, b, options) end

local SHAPES = {{1, 1}, {2, 2}, {5, 5}, {40, 40}, {1, 3, 3}, {7, 4, 4}}

local function each(f)
  for i, shape in ipairs(SHAPES) do f(shape, i) end
end

describe("factors of Cholesky", function()
  it("have known values", function()
    local a = double{{4, 2}, {2, 5}}
    assert.near({{2, 0}, {1, 2}}, linalg.potrf(a))
    assert.near({{2, 1}, {0, 2}}, linalg.potrf(a, {lower = false}))
    assert.near({{5 / 16, -2 / 16}, {-2 / 16, 4 / 16}}, linalg.potri(double{{2, 0}, {1, 2}}))
    -- one triangle is read
    assert.near({{2, 0}, {1, 2}}, linalg.potrf(nd.array{{4, 99}, {2, 5}}), 1e-6)
  end)

  it("multiply to the matrix and invert it", function()
    each(function(shape, seed)
      local a = definite(shape, seed)
      local l, u = linalg.potrf(a), linalg.potrf(a, {lower = false})
      assert.near(a, product(l, l, {transpose_b = true}), 1e-10)
      assert.near(a, product(u, u, {transpose_a = true}), 1e-10)
      assert.near(linalg.inverse(a), linalg.potri(l), 1e-8)
      assert.near(linalg.inverse(a), linalg.potri(u, {lower = false}), 1e-8)
    end)
  end)

  it("of large matrices are made in blocks", function()
    local n = 2100
    ty.random.seed(1)
    local r = nd.random.uniform{shape = {n, n}}
    local a = nd.dot{r, r, transpose_b = true} + nd.eye{n} * n
    local most = a:max():asscalar()
    for _, lower in ipairs{true, false} do
      local l = linalg.potrf(a, {lower = lower})
      local again = nd.dot{l, l, transpose_a = not lower, transpose_b = lower}
      assert.is_true((again - a):abs():max():asscalar() < 1e-5 * most)
      assert.equal(0, lower and l:get(2, 2099) or l:get(2099, 2))
    end
    local bad = nd.eye{n}
    bad["2090, 2090"] = -1
    assert.raises("run", function() linalg.potrf(bad):wait_to_read() end)
  end)

  it("are refused where there are none", function()
    local e = assert.raises("run", function()
      linalg.potrf(double{{{1, 0}, {0, 1}}, {{1, 2}, {2, 1}}}):wait_to_read()
    end)
    assert.is_truthy(tostring(e):find("matrix 1 is not positive definite", 1, true), tostring(e))
    e = assert.raises("run", function() linalg.potri(double{{1, 0}, {1, 0}}):wait_to_read() end)
    assert.is_truthy(tostring(e):find("its diagonal has a zero", 1, true), tostring(e))
  end)
end)

describe("triangles", function()
  it("solve what they multiplied", function()
    each(function(shape, seed)
      local a, b = regular(shape, seed), noise(shape, seed + 50)
      for _, transpose in ipairs{false, true} do
        for _, rightside in ipairs{false, true} do
          for _, lower in ipairs{false, true} do
            local options = {transpose = transpose, rightside = rightside, lower = lower}
            local y = linalg.trmm(a, b, options)
            local l = linalg.maketrian(linalg.extracttrian(a, {lower = lower}), {lower = lower})
            local want = rightside and product(b, l, {transpose_b = transpose})
              or product(l, b, {transpose_a = transpose})
            assert.near(want, y, 1e-10)
            assert.near(b, linalg.trsm(a, y, options), 1e-7)
            options.alpha = -2
            assert.near(-2 * y, linalg.trmm(a, b, options), 1e-10)
            assert.near(-2 * b, linalg.trsm(a, y, options), 1e-7)
          end
        end
      end
    end)
  end)

  it("take sides that are no squares", function()
    local l, b = double{{1, 0}, {2, 3}}, double{{1, 2, 3}, {4, 5, 6}}
    assert.near({{1, 2, 3}, {14, 19, 24}}, linalg.trmm(l, b))
    assert.near(b, linalg.trsm(l, linalg.trmm(l, b)), 1e-12)
    assert.near({{5, 6}, {14, 15}}, linalg.trmm(l, double{{1, 2}, {4, 5}}, {rightside = true}))
  end)
end)

describe("whole matrices", function()
  it("have orthonormal rows and a triangle", function()
    for i, shape in ipairs{{1, 1}, {2, 5}, {4, 4}, {40, 60}, {3, 2, 4}} do
      local a = noise(shape, i)
      local q, l = unpack(linalg.gelqf(a))
      local square = {unpack(shape)}
      square[#shape] = shape[#shape - 1]
      assert.near(a, product(l, q), 1e-12)
      assert.near(eye(square), gram(q), 1e-12)
      assert.near(l, linalg.maketrian(linalg.extracttrian(l)), 0)
    end
  end)

  it("have eigenvectors with a sign", function()
    local u, l = unpack(linalg.syevd(double{{2, 1}, {1, 2}}))
    assert.near({1, 3}, l, 1e-12)
    assert.near(math.sqrt(0.5), math.abs(u[0][0]:asscalar()), 1e-12)
    each(function(shape, seed)
      local a = definite(shape, seed)
      local vectors, values = unpack(linalg.syevd(a))
      local n = shape[#shape]
      local scaled = nd.broadcast_mul(vectors,
        values:reshape(#shape == 3 and {shape[1], n, 1} or {n, 1}))
      assert.near(product(vectors, a), scaled, 1e-9)
      assert.near(eye(shape), gram(vectors), 1e-9)
      local most, least = nd.max(vectors, {axis = #shape - 1}), nd.min(vectors, {axis = #shape - 1})
      assert.is_true(nd.min(most + least):asscalar() >= -1e-12)
    end)
  end)

  it("have inverses and determinants", function()
    assert.near({{-2, 1}, {1.5, -0.5}}, linalg.inverse(double{{1, 2}, {3, 4}}), 1e-12)
    assert.near({-2}, linalg.det(double{{1, 2}, {3, 4}}), 1e-12)
    assert.near({1, -1, 0},
      linalg.det(double{{{1, 0}, {0, 1}}, {{0, 1}, {1, 0}}, {{1, 2}, {2, 4}}}), 1e-12)
    local sign, log = unpack(linalg.slogdet(double{{{1, 2}, {3, 4}}, {{1, 2}, {2, 4}}}))
    assert.near({-1, 0}, sign)
    assert.near({math.log(2), -math.huge}, log, 1e-12)
    each(function(shape, seed)
      local a = regular(shape, seed)
      local s, l = unpack(linalg.slogdet(a))
      assert.near(eye(shape), product(a, linalg.inverse(a)), 1e-10)
      assert.near(linalg.det(a), s * nd.exp(l), 1e-6, 1e-9)
    end)
  end)

  it("are NaN if an entry is", function()
    for _, n in ipairs{1, 2, 3, 8, 33, 70} do
      for i = 0, n * n - 1, n + 1 do                   -- some libraries lose it on the diagonal
        local a = regular({n, n}, i + 1)
        a:data()[i] = 0 / 0
        local inverse, det = linalg.inverse(a), linalg.det(a)
        assert.equal(n * n, nd.sum(inverse:ne(inverse)):asscalar())
        assert.equal(1, nd.sum(det:ne(det)):asscalar())
      end
    end
  end)

  it("are refused where there is nothing to find", function()
    local e = assert.raises("run", function() linalg.inverse(nd.zeros{2, 2}):wait_to_read() end)
    assert.is_truthy(tostring(e):find("matrix 0 is singular: it has no inverse", 1, true),
      tostring(e))
    e = assert.raises("run", function()
      linalg.syevd(double{{0 / 0, 1}, {1, 1}})[1]:wait_to_read()
    end)
    assert.is_truthy(tostring(e):find("matrix 0 has no eigenvalues", 1, true), tostring(e))
  end)

  it("name the first of several that are bad", function()
    local a = eye{300, 3, 3}
    for _, i in ipairs{299, 123, 200} do a:data()[i * 9] = 0 end
    local e = assert.raises("run", function() linalg.inverse(a):wait_to_read() end)
    assert.is_truthy(tostring(e):find("matrix 123 is", 1, true), tostring(e))
  end)
end)

describe("diagonals and triangles", function()
  local a = double{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}

  it("are taken out", function()
    assert.near({1, 5, 9}, linalg.extractdiag(a))
    assert.near({2, 6}, linalg.extractdiag(a, {offset = 1}))
    assert.near({7}, linalg.extractdiag(a, {offset = -2}))
    assert.near({1, 4, 5, 7, 8, 9}, linalg.extracttrian(a))
    assert.near({1, 2, 5, 3, 6, 9}, linalg.extracttrian(a, {lower = false}))
    assert.near({2, 3, 6}, linalg.extracttrian(a, {offset = 1}))
    assert.near({4, 7, 8}, linalg.extracttrian(a, {offset = -1}))
    assert.near({math.log(45)}, linalg.sumlogdiag(a))
  end)

  it("are put back", function()
    assert.near({{1, 0}, {0, 2}}, linalg.makediag(double{1, 2}))
    assert.near({{0, 0, 0}, {1, 0, 0}, {0, 2, 0}}, linalg.makediag(double{1, 2}, {offset = -1}))
    assert.near({{1, 2}, {0, 3}}, linalg.maketrian(double{1, 2, 3}, {lower = false}))
    for offset = -2, 2 do
      for _, lower in ipairs{false, true} do
        local x = noise{2, 6}
        local options = {offset = offset, lower = lower}
        assert.near(x, linalg.extracttrian(linalg.maketrian(x, options), options), 0)
      end
      local x = noise{2, 3, 4}
      assert.near(x,
        linalg.extractdiag(linalg.makediag(x, {offset = offset}), {offset = offset}), 0)
    end
  end)

  it("keep every element type", function()
    for _, dtype in ipairs{"float16", "float32", "uint8", "int32", "int64"} do
      local x = nd.array({{1, 2}, {3, 4}}, {dtype = dtype})
      assert.equal(dtype, linalg.extractdiag(x).dtype)
      assert.near({1, 3, 4}, linalg.extracttrian(x))
    end
  end)
end)

describe("gradients through symmetric matrices agree with differences:", function()
  -- Returns a function of m that is symmetric and positive definite: m m^T + c I.
  local function spd(c) return sym.broadcast_add(sym.linalg.syrk(V"m"), V"c" * c) end
  -- Returns all outputs of a symbol in one row.
  local function row(s)
    local parts = {}
    for i = 1, #s do parts[i] = sym.reshape(s[i], {shape = {-1}}) end
    return #parts == 1 and parts[1] or sym.concat{parts[1], parts[2], dim = 0}
  end
  local function agrees(s, shape, seed)
    ty.test_utils.check_numeric_gradient{ sym = row(s),
      location = {m = noise(shape, seed), c = eye(shape)}, grad_nodes = {"m"},
      numeric_eps = 1e-5, rtol = 1e-4, atol = 1e-6, dtype = "float64" }
  end
  local half = sym.broadcast_add(V"m" * 0.3, V"c" * 2)
  local CASES = {
    potrf = function() return sym.linalg.potrf(spd(1)) end,
    ["potrf, upper"] = function() return sym.linalg.potrf(spd(1), {lower = false}) end,
    potri = function() return sym.linalg.potri(half) end,
    ["potri, upper"] = function() return sym.linalg.potri(half, {lower = false}) end,
    inverse = function() return sym.linalg.inverse(half) end,
    det = function() return sym.linalg.det(half) end,
    slogdet = function() return sym.linalg.slogdet(half)[2] end,
    gelqf = function() return sym.linalg.gelqf(half) end,
    syevd = function() return sym.linalg.syevd(spd(0)) end,
    ["trsm twice"] = function()
      return sym.linalg.trsm(half, sym.linalg.trsm(half, V"c"), {transpose = true})
    end,
  }
  for name, make in pairs(CASES) do
    it(name, function()
      for i, shape in ipairs{{2, 2}, {4, 4}, {3, 3, 3}} do agrees(make(), shape, i + 10) end
    end)
  end

  it("singular matrices have gradient 0 of determinants", function()
    for _, name in ipairs{"det", "slogdet"} do
      local g = nd.ones{2, 2, 2}
      local a = nd.array{{{1, 2}, {2, 4}}, {{1, 0}, {0, 1}}}
      local exe = sym.linalg[name](V"a"):bind{ctx = ty.cpu(), args = {a = a}, args_grad = {a = g}}
      exe:forward{is_train = true}
      exe:backward(name == "det" and {nd.ones{2}} or {nd.ones{2}, nd.ones{2}})
      assert.near({{{0, 0}, {0, 0}}, {{1, 0}, {0, 1}}}, g)
    end
  end)
end)

describe("shapes", function()
  it("follow from both sides", function()
    local function outputs(s, shape) return select(2, s:infer_shape{A = shape}) end
    local arguments, solved = sym.linalg.trsm(V"A", V"B"):infer_shape{B = {2, 3, 4}}
    assert.same({{2, 3, 3}, {2, 3, 4}}, arguments)
    assert.same({{2, 3, 4}}, solved)
    assert.same({{2, 4, 4}}, outputs(sym.linalg.syrk(V"A", {transpose = true}), {2, 3, 4}))
    assert.same({{1}, {1}}, outputs(sym.linalg.slogdet(V"A"), {3, 3}))
    assert.same({{5, 3, 3}, {5, 3}}, outputs(sym.linalg.syevd(V"A"), {5, 3, 3}))
  end)

  it("are refused in words", function()
    local BAD = {
      {"potrf", {{2, 3}}, "expected square matrices, got 2 rows and 3 columns"},
      {"det", {{4}}, "two dimensions or more, got 1"},
      {"gelqf", {{3, 2}}, "at most as many rows as columns, got 3 and 2"},
      {"trmm", {{2, 2}, {3, 3}}, "3 rows meet a matrix A of side 2"},
      {"maketrian", {{4}}, "4 numbers do not fill a triangle: expected 1, 3, 6, 10"},
      {"extractdiag", {{2, 2}}, "no diagonal at offset 2", {offset = 2}},
    }
    for _, case in ipairs(BAD) do
      local inputs = {}
      for i, shape in ipairs(case[2]) do inputs[i] = nd.ones(shape) end
      for key, value in pairs(case[4] or {}) do inputs[key] = value end
      local e = assert.raises("shape", function() return linalg[case[1]](inputs) end)
      assert.is_truthy(tostring(e):find(case[3], 1, true), tostring(e))
    end
  end)

  it("names are those of files", function()
    assert.same({"x_output0", "x_output1"}, sym.linalg.gelqf{V"A", name = "x"}:list_outputs())
    assert.same({"x_output0"}, sym.linalg_det{V"A", name = "x"}:list_outputs())
    assert.equal("_linalg_inverse", ty.op.info("_npi_inv").name)
  end)
end)


describe("a product of a few rows", function()
  local function random(...) return ty.nd.random.uniform{-1, 1, shape = {...}} end

  it("with a matrix that is stored by rows is the sum of its rows", function()
    ty.random.seed(2)
    for m = 1, 9 do
      for _, size in ipairs{ {129, 130}, {300, 128}, {7, 5000}, {64, 4100}, {1031, 257} } do
        local k, n = unpack(size)
        for _, dtype in ipairs{"float32", "float64"} do
          local a, b = random(m, k):astype(dtype), random(k, n):astype(dtype)
          local want = ty.nd.dot{a:astype("float64"), ty.nd.transpose(b):astype("float64"),
            transpose_b = true}
          local bound = dtype == "float32" and 1e-6 * k or 1e-14 * k
          assert.near(want, ty.nd.dot(a, b):astype("float64"), bound, 0)
          assert.near(want, ty.nd.dot{ty.nd.transpose(a), b, transpose_a = true}:astype("float64"),
            bound, 0)
        end
      end
    end
  end)

  it("has equal bits with any number of threads", function()
    shell.with_file([[
      local ty = require "tycho"
      ty.random.seed(4)
      for _, size in ipairs{ {1, 700, 1000}, {3, 300, 4999} } do
        local m, k, n = unpack(size)
        local a, b = ty.nd.random.normal{shape = {m, k}}, ty.nd.random.normal{shape = {k, n}}
        for _, x in ipairs(ty.nd.dot(a, b):reshape{-1}:totable()) do print(("%a"):format(x)) end
      end]], function(path)
      local one, status = shell.run(("TYCHO_THREADS=1 %s %s"):format(shell.program, path))
      assert.equal(0, status, one)
      for _, threads in ipairs{2, 3} do
        assert.equal(one,
          (shell.run(("TYCHO_THREADS=%d %s %s"):format(threads, shell.program, path))))
      end
    end)
  end)

  it("is added to a gradient", function()
    local a, b, g = random(2, 200), random(300, 200), random(2, 300)
    local x, w = ty.sym.Variable("x"), ty.sym.Variable("w")
    local exe = ty.sym.dot{x, w, transpose_b = true}:bind{ctx = ty.cpu(), args = {x = a, w = b},
      args_grad = {x = ty.nd.ones{2, 200}}, grad_req = {x = "add", w = "null"}}
    exe:forward(true)
    exe:backward(g)
    assert.near(ty.nd.dot(g, b) + 1, exe.grad_dict.x, 1e-4, 0)
  end)
end)
