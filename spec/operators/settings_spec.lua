-- Each line of two tables of operators gives the same values, and gradients, whatever the settings
-- choose: kernels of an older processor, products by a library, watched numbers, recomputed nodes.

local shell = require "spec.support.shell"

local SCRIPT = [[
for _, operator in ipairs(require "spec.torture.operators") do
  io.write("=", operator.name, "\n", operator.run(), "\n")
end
]]

local SETTINGS = { "TYCHO_CPU=baseline", "TYCHO_DISABLE=gemm,dnnl",
  "TYCHO_SYNC=1 TYCHO_CHECK_NUMERICS=1", "TYCHO_MIRROR=1" }
local LEAST = 300                        -- operators

-- Returns {name, values as text} of each operator.
local function values(setting, script, least)
  local output, status
  shell.with_file(script, function(path)
    output, status = shell.run(("%s %s %s"):format(setting, shell.program, path))
  end)
  assert.equal(0, status, output)
  local list = {}
  for name, text in output:gmatch("=([^\n]*)\n([^=]*)") do
    list[#list + 1] = { name, text }
  end
  assert.is_true(#list >= least, output)
  return list
end

local function difference(got, want)
  local words = want:gmatch("%S+")
  for word in got:gmatch("%S+") do
    local other = words() or "nothing"
    local a, b = tonumber(word), tonumber(other)
    local near = a and b and math.abs(a - b) <= 1e-5 * (1 + math.abs(b))
    if word ~= other and not near then return word .. " and not " .. other end
  end
  return words()
end

describe("operators give the same values with", function()
  local want

  for _, setting in ipairs(SETTINGS) do
    it(setting, function()
      want = want or values("", SCRIPT, LEAST)
      local wrong = {}
      for i, pair in ipairs(values(setting, SCRIPT, LEAST)) do
        assert.equal(want[i][1], pair[1])
        local what = difference(pair[2], want[i][2])
        if what then wrong[#wrong + 1] = pair[1] .. ": " .. what end
      end
      assert.same({}, wrong)
    end)
  end
end)

-- Networks whose layers are large enough for the kernels that settings choose among: values, and
-- gradients of all arguments together and of each alone.
local LAYERS = [[
local ty = require "tycho"
local sym, nd, V = ty.sym, ty.nd, ty.sym.Variable
local function conv(x, name, n, k, more)
  local options = {data = x, num_filter = n, kernel = {k, k}, pad = {(k - 1) / 2, (k - 1) / 2},
    name = name}
  for key, v in pairs(more or {}) do options[key] = v end
  return sym.Convolution(options)
end
local nets = {
  {{1, 32, 12, 12}, conv(sym.relu{conv(V"data", "a", 64, 3)}, "b", 32, 3, {no_bias = true})},
  {{2, 32, 13, 11}, conv(conv(V"data", "a", 48, 1), "b", 32, 3, {stride = {2, 2}})},
  {{2, 32, 12, 12}, conv(conv(V"data", "a", 32, 3, {num_group = 32}), "b", 16, 1)},
  {{2, 16, 12, 12}, conv(V"data", "a", 32, 3, {num_group = 4, dilate = {2, 2}})},
  {{3, 16, 5, 5}, sym.Convolution{data = V"data", num_filter = 8, kernel = {5, 5}, name = "a"}},
  {{2, 16, 9, 9}, sym.Deconvolution{data = V"data", num_filter = 24, kernel = {3, 3},
    stride = {2, 2}, no_bias = false, name = "a"}},
  {{40, 70}, sym.FullyConnected{sym.tanh{sym.FullyConnected{V"data", num_hidden = 90,
    name = "a"}}, num_hidden = 33, name = "b"}},
}
local large = {
  winograd = {{4, 64, 24, 24}, conv(V"data", "a", 64, 3)},
  loss = {{40, 3}, sym.SoftmaxOutput{sym.FullyConnected{V"data", num_hidden = 30000, name = "a"},
    V"label", name = "b"}},
}
if os.getenv("LARGE") then nets = {large[os.getenv("LARGE")]} end
local function show(x)
  local whole = nd.sum{nd.abs{x}}:asscalar()
  io.write((" %.7g %.7g"):format(whole, nd.sum{x}:asscalar() / whole))
end
for i, net in ipairs(nets) do
  for _, dtype in ipairs{"float32", not os.getenv("LARGE") and "float64" or nil} do
    local names = net[2]:list_arguments()
    io.write("=layers ", i, " ", dtype, "\n")
    for only = 0, os.getenv("LARGE") and 0 or #names do
      local req = {}
      for k, name in ipairs(names) do req[name] = (only == 0 or only == k) and "write" or "null" end
      local exe = net[2]:simple_bind{ctx = ty.cpu(), data = net[1], type_dict = {data = dtype},
        grad_req = req}
      for k, x in ipairs(exe.arg_arrays) do
        x[":"] = nd.sin{nd.arange{0, x.size, dtype = "float64"} * (0.7 + k)}:reshape(x.shape)
          :astype(dtype)
      end
      show(exe:forward(true)[1])
      exe:backward(nd.cos{nd.arange{0, exe.outputs[1].size, dtype = "float64"}}
        :reshape(exe.outputs[1].shape):astype(dtype))
      for _, name in ipairs(names) do
        if exe.grad_dict[name] then show(exe.grad_dict[name]) end
      end
    end
    io.write("\n")
  end
end
]]

local function check_large(which, settings)
  local large = values("LARGE=" .. which, LAYERS, 1)
  for _, setting in ipairs(settings) do
    local got = values(("LARGE=%s %s"):format(which, setting), LAYERS, 1)
    assert.is_nil(difference(got[1][2], large[1][2]), setting)
  end
end

describe("layers give the same values and gradients with", function()
  local want
  for _, setting in ipairs{"TYCHO_CPU=baseline", "TYCHO_CPU=avx2", "TYCHO_DISABLE=gemm,dnnl",
    "TYCHO_WINOGRAD=0 TYCHO_DISABLE=dnnl"} do
    it(setting, function()
      want = want or values("", LAYERS, 14)
      for i, pair in ipairs(values(setting, LAYERS, 14)) do
        assert.is_nil(difference(pair[2], want[i][2]), pair[1])
      end
    end)
  end

  it("the instruction sets that Winograd's transforms are made for, and without", function()
    check_large("winograd", {"TYCHO_CPU=baseline", "TYCHO_CPU=avx2", "TYCHO_WINOGRAD=0"})
  end)

  it("plain loops after a loss that is never whole", function()
    check_large("loss", {"TYCHO_DISABLE=gemm"})
  end)
end)
