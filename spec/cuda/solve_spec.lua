-- Factors of matrices by cuSOLVER, on the stand-in: values, gradients and errors are those of the
-- CPU; each call that fails is reported, and the next one works.

local stand_in = require "spec.support.stand_in"

local BOTH = [[
local ty = require "tycho"
local sym, cpu, gpu = ty.sym, ty.cpu(0), ty.gpu(0)
ty.random.seed(3, cpu)
local NAMES = {"det", "slogdet", "inverse", "gelqf", "syevd", "potri"}
local function matrices(name, shape, dtype)
  local x = ty.nd.random.uniform{-1, 1, shape = shape, dtype = dtype, ctx = cpu}
  local n = shape[#shape]
  local one = ty.nd.eye{n, dtype = dtype, ctx = cpu}
  if #shape == 3 then
    one = one:expand_dims(0)
  end
  if name == "gelqf" then
    return x
  end
  if name == "syevd" then                                -- eigenvalues far apart
    one = ty.nd.broadcast_mul(one, ty.nd.arange{0, n, dtype = dtype, ctx = cpu})
  end
  return ty.nd.broadcast_add(x * 0.3, one * 2)
end
-- Returns outputs and the gradient, as lists of arrays on the CPU.
local function results(name, a, ctx, bound)
  local net = sym.linalg[name](sym.Variable("a"))
  local exe = net:simple_bind{ctx = ctx, a = a.shape, type_dict = {a = a.dtype}}
  exe.arg_dict.a[":"] = a
  exe:forward{is_train = true}
  local list, heads = {}, {}
  for i, out in ipairs(exe.outputs) do
    list[i] = out:as_in_context(cpu)
    heads[i] = (ty.nd.arange{0, out.size, ctx = cpu}:reshape(out.shape) % 5 / 5 + 0.2)
      :astype(a.dtype):as_in_context(ctx)
  end
  exe:backward(heads)
  list[#list + 1] = exe.grad_dict.a:as_in_context(cpu)
  return list
end
]]

local VALUES = BOTH .. [[
for _, name in ipairs(NAMES) do
  for _, case in ipairs{{{3, 3}, "float64"}, {{4, 5, 5}, "float32"}, {{1, 1, 1}, "float32"}} do
    local shape, dtype = case[1], case[2]
    if name == "gelqf" and shape[#shape] > 1 then
      shape[#shape] = shape[#shape] + 2
    end
    local a = matrices(name, shape, dtype)
    local got, want = results(name, a, gpu), results(name, a, cpu)
    for i, x in ipairs(want) do
      local off = (got[i] - x):abs():max():asscalar() / math.max(x:abs():max():asscalar(), 1)
      if not (off < (dtype == "float64" and 1e-10 or 2e-4)) then
        print(name, dtype, i, off)
      end
    end
  end
end
print("compared")
]]

-- What is wrong with a matrix; NaN.
local BAD = BOTH .. [[
local a = ty.nd.broadcast_add(ty.nd.zeros{4, 2, 2, ctx = cpu}, ty.nd.eye{2, ctx = cpu}:expand_dims(0))
a[":"] = a
local singular, nan = a:copy(), a:copy()
singular[{1}] = 0
singular[{3}] = 0
nan[{2, 0, 0}] = 0 / 0
local function show(x, name, ctx)
  local good, y = pcall(function()
    local y = ty.nd.linalg[name](x:as_in_context(ctx))
    local texts = {}
    for i, part in ipairs(type(y) == "table" and not y.shape and y or {y}) do
      texts[i] = tostring(part:as_in_context(cpu) + 0)          -- -0 is 0
    end
    return table.concat(texts, "\n")
  end)
  return good and y:gsub("[^\n]*NDArray[^\n]*", "") or tostring(y):match("matrix[^\n%[]*")
end
for _, name in ipairs{"det", "slogdet", "inverse", "syevd"} do
  for what, x in pairs{singular = singular, nan = nan} do
    if name ~= "syevd" or what == "nan" then
      local got, want = show(x, name, gpu), show(x, name, cpu)
      if got ~= want then
        print(name, what, got, "not", want)
      end
      if name == "inverse" and what == "singular" or name == "syevd" then
        print(got)
      end
    end
  end
end
]]

-- A call that fails is reported, and the next one works.
local FAILS = BOTH .. [[
local ffi = require "ffi"
ffi.cdef "void cudasim_fail(const char *);"
local driver = ffi.load(os.getenv("TYCHO_CUDA_PATH") .. "/libcuda.so.1")
for _, case in ipairs{{"det", "getrf"}, {"inverse", "getrs"}, {"gelqf", "geqrf"}, {"gelqf", "orgqr"},
    {"syevd", "syevd"}} do
  local a = matrices(case[1], {2, 3, 3}, "float64"):as_in_context(gpu)
  local function life()
    local y = ty.nd.linalg[case[1] ](a)
    ty.nd.waitall()
    return y
  end
  driver.cudasim_fail("cusolverDnD" .. case[2] .. ":2:7")
  local good, e = pcall(life)
  driver.cudasim_fail("")
  print(case[2], not good and tostring(e):match("cuSOLVER: [^\n%[]*") or e, (pcall(life)))
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("are the CPU's", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("factors of matrices on a GPU", function()
  it("and their gradients are the CPU's", function()
    local text, status = stand_in.run(VALUES, { CUDASIM_STRICT = 1 })
    assert.equal("compared\n", text)
    assert.equal(0, status)
  end)

  it("say what is wrong with a matrix, as the CPU does", function()
    local text, status = stand_in.run(BAD, { CUDASIM_STRICT = 1 })
    assert.equal("matrix 1 is singular: it has no inverse \n"
      .. "matrix 2 has no eigenvalues that can be found: an entry is NaN or infinite, or "
      .. "the search does not converge \n", text)
    assert.equal(0, status)
  end)

  it("name the call that fails, and work again", function()
    local text = stand_in.run(FAILS)
    local lines = {}
    for _, call in ipairs{ "getrf", "getrs", "geqrf", "orgqr", "syevd" } do
      lines[#lines + 1] = ("%s\tcuSOLVER: %s fails with status 7 \ttrue\n"):format(call, call)
    end
    assert.equal(table.concat(lines), text)
  end)

  it("are made on the host where there is no cuSOLVER", function()
    local text, status = stand_in.run(VALUES, { CUDASIM_STRICT = 1, TYCHO_DISABLE = "cusolver" })
    assert.equal("compared\n", text)
    assert.equal(0, status)
  end)
end)
