-- Gradient requests: names that match no argument are refused wherever a request can be given, and
-- arguments whose gradients are the same value each get a separate array.

local ty = require "tycho"

local FC = ty.sym.FullyConnected{ ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
local LOSS = ty.sym.SoftmaxOutput{ FC, name = "softmax" }

local BINDINGS = {
  Module = function(grad_req)
    local mod = ty.mod.Module{ symbol = LOSS }
    mod:bind{ data_shapes = { { "data", { 2, 3 } } }, grad_req = grad_req,
      label_shapes = { { "softmax_label", { 2 } } } }
  end,
  bind = function(grad_req)
    local args = { data = ty.nd.ones{ 2, 3 }, fc_weight = ty.nd.ones{ 2, 3 },
      fc_bias = ty.nd.ones(2) }
    return FC:bind{ ctx = ty.cpu(), args = args, args_grad = { fc_weight = ty.nd.zeros{ 2, 3 } },
      grad_req = grad_req }
  end,
  simple_bind = function(grad_req)
    return FC:simple_bind{ ctx = ty.cpu(), data = { 2, 3 }, grad_req = grad_req }
  end,
}

describe("grad_req", function()
  for name, bind in pairs(BINDINGS) do
    it("of " .. name .. " takes names of arguments only", function()
      bind{ fc_weight = "write", data = "null" }
      local ok, e = pcall(bind, { fc_wieght = "write" })
      assert.is_false(ok)
      assert.equal("name", e.code)
      assert.equal("fc_wieght", e.argument)
      assert.falsy(tostring(e):find("DataParallel", 1, true))
      assert.equal("fc_weight", e.candidates[1])
    end)
  end

  it("of pairs goes by name, too", function()
    local e = BINDINGS.simple_bind{ { "fc_bias", "add" } }
    assert.is_nil(e.grad_dict.fc_weight)
    assert.is_not_nil(e.grad_dict.fc_bias)
    assert.error(function() BINDINGS.simple_bind{ { "fc_bais", "add" } } end)
  end)
end)

-- Networks of a, b and c in which gradients of several arguments are one value, or views of one.
local V = ty.sym.Variable
local SHARED = {
  difference = function() return V"a" - (V"b" + V"c") end,
  negative = function() return ty.sym.negative(V"a" + V"b" + V"c") end,
  function_of_sum = function() return ty.sym.sin(V"a" + (V"b" + V"c")) end,
  product = function()
    return ty.sym.dot(V"a" + V"b" + V"c", ty.sym.ones{ shape = { 3, 3 }, dtype = "float64" })
  end,
  view = function()
    return ty.sym.sin(V"a" + V"b" + ty.sym.reshape{ ty.sym.identity(V"c"), shape = { 2, 3 } })
  end,
  part = function()
    local sum = V"a" + V"b"
    return ty.sym.sin(sum + V"c") * ty.sym.square(sum)
  end,
}

local function gradients(symbol, req)
  local args, grads = {}, {}
  for i, name in ipairs{ "a", "b", "c" } do
    args[name] = ty.nd.full({ 2, 3 }, i / 4, { dtype = "float64" })
    grads[name] = ty.nd.full({ 2, 3 }, 100 * i, { dtype = "float64" })
  end
  local exe = symbol:bind{ ctx = ty.cpu(), args = args, args_grad = grads, grad_req = req }
  exe:forward(true)
  exe:backward(ty.nd.full({ 2, 3 }, 7, { dtype = "float64" }))
  local found = {}
  for name, g in pairs(grads) do found[name] = g:totable()[2][3] end
  return found
end

describe("gradients that are one value", function()
  for name, symbol in pairs(SHARED) do
    it(("are added to or written one by one: %s"):format(name), function()
      local want = gradients(symbol(), "write")
      for code = 0, 26 do
        local req = {}
        for i, argument in ipairs{ "a", "b", "c" } do
          req[argument] = ({ "write", "add", "null" })[math.floor(code / 3 ^ (i - 1)) % 3 + 1]
        end
        local got = gradients(symbol(), req)
        for i, argument in ipairs{ "a", "b", "c" } do
          local start = req[argument] ~= "write" and 100 * i or 0
          local part = req[argument] ~= "null" and want[argument] or 0
          assert.near(start + part, got[argument], 1e-9, 0)
        end
      end
    end)
  end
end)

describe("sums of gradients to which products add their parts", function()
  local function product(x, i)
    return ty.sym.FullyConnected{ x, V("w" .. i), num_hidden = 3, no_bias = true }
  end

  -- Returns the sum of `first` and of twelve products of each other input.
  local function sum_of_products(first, ...)
    local list = { first }
    for k, x in ipairs{ ... } do
      for i = 1, 12 do list[#list + 1] = product(x, 20 * k + i) end
    end
    return ty.sym.add_n(list)
  end

  local function run(symbol, req, monitored)
    local args, grads, requests = {}, {}, {}
    for i, name in ipairs(symbol:list_arguments()) do
      local rows = {}
      for r = 1, 3 do rows[r] = { math.sin(9 * i + r), math.cos(5 * i + r), math.sin(i - r) } end
      args[name] = ty.nd.array(rows, { dtype = "float64" })
      grads[name] = ty.nd.full({ 3, 3 }, 100 * i, { dtype = "float64" })
      requests[name] = type(req) == "string" and req or req[i % #req + 1]
    end
    local exe = symbol:bind{ ctx = ty.cpu(), args = args, args_grad = grads, grad_req = requests }
    if monitored then exe:set_monitor_callback(function() end) end
    local head = ty.nd.array({ { 1, 2, 3 }, { 4, 5, 6 }, { 7, 8, 10 } }, { dtype = "float64" })
    local kept = head:copy()
    exe:forward(true)
    exe:backward(head)
    assert.near(kept, head, 0)
    return grads
  end

  local q, r, t = V"q", V"r", V"t"
  local row = { shape = { 9 } }
  local NETWORKS = {
    ["an argument's gradient is the first part"] = sum_of_products(product(q + r, 1), r),
    ["a view of an argument's gradient is the first part"] = sum_of_products(
      product((q:reshape(row) + r:reshape(row)):reshape{ shape = { 3, 3 } }, 1), r),
    ["an argument's gradient is the last part"] = ty.sym.add_n{
      sum_of_products(product(r, 1), r), product(q + r, 2) },
    ["a sum is the first part of another"] = sum_of_products(product(r, 1), q + r, r),
    ["a sum of a sum"] = sum_of_products(product(r, 1), r, q + r, (q + r) + t),
    ["a head gradient is the first part"] = sum_of_products(
      r:reshape(row):reshape{ shape = { 3, 3 } }, r),
  }
  for what, symbol in pairs(NETWORKS) do
    it("leave other gradients alone: " .. what, function()
      for _, req in ipairs{ "write", "add", { "write", "add" }, { "add", "write" } } do
        local got, want = run(symbol, req), run(symbol, req, true)
        for name, g in pairs(want) do assert.near(g, got[name], 1e-9, 0) end
      end
    end)
  end
end)

describe("arrays of a bind", function()
  it("are a list or have names, not both, which would lose some", function()
    local x, w, b = ty.nd.ones{ 2, 3 }, ty.nd.ones{ 2, 3 }, ty.nd.ones(2)
    local e = assert.raises("type", FC.bind, FC, { ctx = ty.cpu(), args = { x, w, fc_bias = b } })
    assert.equal("args", e.argument)
    e = assert.raises("type", FC.bind, FC, { ctx = ty.cpu(), args = { x, w, b },
      args_grad = { x, w, b, fc_bias = b } })
    assert.equal("args_grad", e.argument)
    assert.is_truthy(FC:bind{ ctx = ty.cpu(), args = { x, w, b } })
  end)
end)
