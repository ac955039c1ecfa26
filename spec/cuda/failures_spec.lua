-- What a GPU may refuse in the middle of a step, on the stand-in: the error names operator and
-- node, the next step works where the device still does, and memory comes back.

local stand_in = require "spec.support.stand_in"

local STEPS = [[
local ty = require "tycho"
local g = ty.gpu(0)
local net = ty.sym.FullyConnected{data = ty.sym.Variable("x"), num_hidden = 4, name = "fc"}
net = ty.sym.tanh{data = net, name = "squash"}
local exe = net:simple_bind{ctx = g, x = {2, 8}}
for i = 1, 3 do
  local good, e = pcall(function()
    exe:forward{is_train = true}
    exe:backward{ty.nd.ones{2, 4, ctx = g}}
    exe.grad_dict.fc_weight:wait_to_read()
    return exe.outputs[1]:totable()
  end)
  print("step", i, good or e)
end
]]

local VIEWS = [[
local ty = require "tycho"
ty.Context("gpu(0)"):enter()
local rows = ty.nd.array{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}
local one = ty.nd.array{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}
for i = 0, 2 do
  print(table.concat(ty.nd.dot(rows[i]:reshape{1, 3}, one):totable()[1], " "))
end
]]

local describe_there = stand_in.exists() and describe or function(name)
  describe(name, function()
    it("runs", function()
      pending("no build/cudasim: make cudasim")
    end)
  end)
end

describe_there("a step on a GPU", function()
  local function steps(fail)
    return (stand_in.run(STEPS, { CUDASIM_FAIL = fail }))
  end

  it("says which node's product failed, and goes on", function()
    local text = steps("cublasLtMatmul:1")
    assert.matches("step\t1\t[^\n]*cublasLt: a product of 2 x 4 x 8 fails with status 13", text)
    assert.matches("operator FullyConnected, node fc", text, 1, true)
    assert.matches("step\t2\ttrue\nstep\t3\ttrue", text)
  end)

  it("says which node's kernel did not compile, and goes on", function()
    local text = steps("nvrtcCompileProgram:1")
    assert.matches("step\t1\t[^\n]*does not compile[^\n]*operator tanh, node squash", text)
    assert.matches("step\t2\ttrue\nstep\t3\ttrue", text)
  end)

  it("fails for good on a device that is lost", function()
    local text = steps("cublasLtMatmul:4:719")
    assert.matches("step\t1\ttrue", text)
    assert.matches("step\t2\t[^\n]*CUDA_ERROR_LAUNCH_FAILED, 719", text)
    assert.matches("step\t3\t[^\n]*CUDA_ERROR_LAUNCH_FAILED, 719", text)
  end)

  it("leaves nothing undone without a failure", function()
    local text, status = stand_in.run(STEPS, { CUDASIM_STRICT = 1 })
    assert.matches("step\t1\ttrue\nstep\t2\ttrue\nstep\t3\ttrue", text)
    assert.equal(0, status)
  end)
end)

describe_there("a product on a GPU", function()
  it("takes views that lie at any element", function()
    local text, status = stand_in.run(VIEWS, { CUDASIM_STRICT = 1 })
    assert.equal("1 2 3\n4 5 6\n7 8 9\n", text)
    assert.equal(0, status)
  end)
end)
