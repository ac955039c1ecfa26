-- Names of PyTorch, NumPy and Torch7 in the place of ours (runtime/lua/tycho/core/foreign.lua).

local ty = require "tycho"
require "spec.helper"

local x = ty.nd.ones{ 2, 3 }
local data = ty.sym.Variable "data"

-- ours, and what somebody writes who knows another library
local CASES = {
  { "reshape", function() return x:view(6) end },
  { "copy", function() return x:clone() end },
  { "asscalar", function() return x:item() end },
  { "totable", function() return x:asnumpy() end },
  { "expand_dims", function() return x:unsqueeze(0) end },
  { "as_in_context", function() return x:cuda() end },
  { "FullyConnected", function() return ty.sym.Linear{ data, num_hidden = 2 } end },
  { "Convolution", function() return ty.sym.Conv2d{ data } end },
  { "num_filter", function()
    return ty.sym.Convolution{ data, out_channels = 3, kernel = { 3, 3 } }
  end },
  { "kernel", function() return ty.sym.Convolution{ data, num_filter = 3, kernel_size = 3 } end },
  { "num_hidden", function() return ty.sym.FullyConnected{ data, out_features = 3 } end },
  { "learning_rate", function() return ty.optimizer.SGD{ lr = 0.1 } end },
  { "wd", function() return ty.optimizer.SGD{ weight_decay = 0.1 } end },
  { "axis", function() return x:sum{ dim = 0 } end },
  { "lt", function() return x:lesser(1) end },
  { "ge", function() return x:greater_equal(1) end },
  { "eq", function() return x:equal(1) end },
  { "ne", function() return x:not_equal(1) end },
  { "lesser", function() return ty.nd.less(x, 1) end },
  { "lt", function() return x:less(1) end },
  { "fill", function() return x:zero() end },
  { "dim", function() return ty.sym.Concat{ data, data, axis = 1 } end },
  { "BatchNorm", function() return ty.sym.BN{ data } end },
  { "Variable", function() return ty.sym.Placeholder("x") end },
  { "mul_", function() return x:mul(2) end },
  { "nd.array", function() return ty.Tensor end },
  { "nd", function() return ty.np end },
  { "nd.zeros", function() return ty.zeros end },
  { "mod.Module", function() return ty.Module end },
  { "sym.Variable", function() return ty.Variable end },
  { "random.seed", function() return ty.manual_seed end },
  { "FactorScheduler", function() return ty.lr_scheduler.StepLR end },
  { "do_checkpoint", function() return ty.callback.ModelCheckpoint end },
  { "print_summary", function() return ty.viz.summary end },
  { "msraprelu", function() return ty.init.create("he") end },
  { "pool_type", function() return ty.sym.Pooling{ data, kernel = { 2, 2 }, type = "max" } end },
}

describe("a name of another library", function()
  for _, case in ipairs(CASES) do
    local ours, f = unpack(case)
    it("teaches " .. ours, function()
      local e = assert.raises("name", f)
      assert.equal(ours, e.candidates[1])
      assert.truthy(e.message:find(("did you mean '%s'?"):format(ours), 1, true), e.message)
    end)
  end

  it("teaches element types", function()
    assert.equal("float32", assert.raises("dtype", x.astype, x, "float").candidates[1])
    assert.equal("int64",
      assert.raises("dtype", ty.nd.ones, { 2 }, { dtype = "long" }).candidates[1])
  end)

  it("stands back where its counterpart is not accepted", function()
    local e = assert.raises("name", function() return ty.sym.Activation{ data, lr = 1 } end)
    assert.not_equal("learning_rate", e.candidates[1])
  end)
end)
