-- Heads that are one value, and heads that only equal each other.

local ty = require "tycho"

-- Returns the gradient of the variable when each letter of `heads` is a head: one letter is one
-- node, all nodes are equal. The gradient of head i is 10^(i - 1), that of the operator is 1.
local function gradient(heads)
  local a, node, list, given = ty.sym.Variable("a"), {}, {}, {}
  for name in heads:gmatch(".") do
    node[name] = node[name] or ty.sym.sin(a)
    list[#list + 1] = node[name]
    given[#given + 1] = ty.nd.array{ 10 ^ #given }
  end
  local exe = ty.sym.Group(list):simple_bind{ ctx = ty.cpu(), a = { 1 } }
  exe:forward(true)
  exe:backward(given)
  return exe.grad_dict.a:asscalar()
end

local function eager_gradient(heads)
  local a, node, list, given = ty.nd.zeros{ 1 }, {}, {}, {}
  a:attach_grad()
  ty.autograd.record(function()
    for name in heads:gmatch(".") do
      node[name] = node[name] or ty.nd.sin(a)
      list[#list + 1] = node[name]
      given[#given + 1] = ty.nd.array{ 10 ^ #given }
    end
  end)
  ty.autograd.backward(list, given)
  return a.grad:asscalar()
end

describe("heads", function()
  it("that are one value: the last one's gradient counts, beside equal heads too", function()
    for _, case in ipairs{
      { "ss", 10 }, { "st", 11 }, { "sst", 110 }, { "tst", 110 }, { "stt", 101 },
      { "stst", 1100 }, { "sttu", 1101 }, { "stuut", 11001 },
    } do
      assert.are.equal(case[2], gradient(case[1]), case[1])
      assert.are.equal(case[2], eager_gradient(case[1]), case[1])
    end
  end)
end)
