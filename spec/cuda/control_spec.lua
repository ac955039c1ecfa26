-- Control flow on a GPU, on the stand-in whose checker watches every access: nothing that was
-- skipped is read, forward or backward.

local stand_in = require "spec.support.stand_in"

local SCRIPT = [[
local ty = require "tycho"
local V, contrib, there = ty.sym.Variable, ty.sym.contrib, ty.gpu(0)

local function gradients(net, values)
  local args, grads, heads = {}, {}, {}
  for name, v in pairs(values) do
    args[name] = ty.nd.array({ v }, there)
    grads[name] = ty.nd.zeros({ 1 }, there)
  end
  local exe = net:bind{ ctx = there, args = args, args_grad = grads }
  exe:forward{ is_train = true }
  for i, out in ipairs(exe.outputs) do
    heads[i] = ty.nd.ones(out.shape, there)
  end
  exe:backward(heads)
  for name in pairs(values) do
    print(name, grads[name]:asscalar())
  end
end

-- after the last step the body would divide by zero
local rows, ends = contrib.while_loop{ cond = function(i)
  return ty.sym.sum(i):gt(0)
end, func = function(i, w)
  return w / i, { i - 1, w * i }
end, loop_vars = { V"i", V"w" }, max_iterations = 4 }
gradients(ty.sym.Group{ rows, ends[2] }, { i = 2, w = 3 })

-- two gradients meet in either branch, one of which holds a choice of its own
local a, b = V"a", V"b"
local inner = function() return contrib.cond(ty.sym.sum(b):gt(9), function()
  return a * a
end, function() return a * b + a end) end
gradients(contrib.cond(ty.sym.sum(a):gt(0), inner, function()
  return ty.sym.log(a) * a
end), { a = 2, b = 5 })
]]

describe("control flow on a GPU", function()
  it("reads nothing that was skipped", function()
    if not stand_in.exists() then
      pending("needs `make cudasim`")
      return
    end
    local text, status = stand_in.run(SCRIPT, { CUDASIM_CHECK = "1" })
    assert.is_falsy(text:find("cudasim:", 1, true), text)
    assert.equal(0, status)
    assert.truthy(text:find("w\t4.5\n", 1, true), text)    -- w/2 + (2 w)/1 + 2 * 1 * w
    assert.truthy(text:find("a\t6\n", 1, true), text)
    assert.truthy(text:find("b\t2\n", 1, true), text)
  end)
end)
