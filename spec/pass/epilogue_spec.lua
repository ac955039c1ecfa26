-- What kernels do of their neighbours (native/pass/epilogue.c): which nodes are taken over, and the
-- same bits as node by node. Losses are in linear_loss_spec.lua.

local device = require "spec.support.device"
local ty = require "tycho"

local shell = require "spec.support.shell"

local sym = ty.sym
local V = sym.Variable

-- Nodes in front of an activation called "act".
local FRONT = {
  FullyConnected = function() return sym.FullyConnected{V"x", num_hidden = 5, name = "n"} end,
  product = function()
    return sym.Convolution{V"x", num_filter = 5, kernel = {3, 3}, name = "n"}
  end,
  panels = function()
    return sym.Convolution{V"x", num_filter = 5, kernel = {2, 2}, name = "n"}
  end,
  rows = function()
    return sym.Convolution{V"x", num_filter = 4, num_group = 4, kernel = {2, 2}, name = "n"}
  end,
  Deconvolution = function()
    return sym.Deconvolution{V"x", num_filter = 3, kernel = {2, 2}, name = "n"}
  end,
  BatchNorm = function() return sym.BatchNorm{V"x", fix_gamma = false, name = "n"} end,
}
local SHAPE = {2, 4, 3, 3}

local function bound(net, shape, dtype)
  local types, requests = {}, {}
  for _, name in ipairs(net:list_arguments()) do
    requests[name] = name == "label" and "null" or "write"
    local wide = dtype == "float16" and (name:find"gamma" or name:find"beta")
    types[name] = wide and "float32" or dtype
  end
  local exe = net:simple_bind{ctx = ty.cpu(), x = shape, type_dict = types, grad_req = requests}
  ty.random.seed(3)
  for _, name in ipairs(net:list_arguments()) do
    exe.arg_dict[name][":"] =
      ty.nd.random.normal{shape = exe.arg_dict[name].shape}:astype(types[name])
  end
  return exe
end

local function results(exe)
  exe:forward(true)
  local y = exe.outputs[1]
  exe:backward(y * 2 + 1)
  local list = {y:astype("float64"):totable()}
  for name, g in pairs(exe.grad_dict) do list[name] = g:astype("float64"):totable() end
  return list
end

-- Compares with a run node by node, and gives the program.
local function compare(net, shape, dtype)
  local exe, plain = bound(net, shape, dtype), bound(net, shape, dtype)
  plain:set_monitor_callback(function() end)
  assert.same(results(plain), results(exe))
  return exe:program()
end

local function shows(program, nodes)
  assert(program:find(nodes, 1, true), ("no %s in\n%s"):format(nodes, program))
end

local function lacks(program, nodes)
  assert(not program:find(nodes, 1, true), ("%s in\n%s"):format(nodes, program))
end

describe("a relu", function()
  setup(device.leave)
  teardown(device.come_back)
  for kind, front in pairs(FRONT) do
    for _, dtype in ipairs{"float32", "float64", "float16"} do
      it(("after %s of %s is done by its kernel"):format(kind, dtype), function()
        shows(compare(sym.relu{front(), name = "act"}, SHAPE, dtype), "[n act]")
        shows(compare(sym.Activation{front(), act_type = "relu", name = "act"}, SHAPE, dtype),
          "[n act]")
      end)
    end
  end

  it("stays apart where others see what is before it", function()
    local n = FRONT.FullyConnected()
    lacks(compare(sym.relu{n, name = "act"} + n, {2, 4}, "float32"), "[n act]")
    local both = sym.Group{sym.relu{n, name = "act"}, n}
    lacks(both:simple_bind{ctx = ty.cpu(), x = {2, 4}}:program(), "[n act]")
  end)
end)

describe("a relu after plain loops", function()
  setup(device.leave)
  teardown(device.come_back)
  it("is done by them", function()
    local output, status = shell.run("TYCHO_DISABLE=gemm,dnnl " .. shell.program .. [[ -e '
      local ty = require "tycho"
      for _, name in ipairs{"FullyConnected", "Convolution", "Deconvolution"} do
        local options = {ty.sym.Variable"x", name = "n", kernel = {2, 2}, num_filter = 3}
        if name == "FullyConnected" then options = {options[1], name = "n", num_hidden = 3} end
        local net = ty.sym.relu{ty.sym[name](options), name = "act"}
        local exe = net:simple_bind{ctx = ty.cpu(), x = {2, 2, 3, 3}, grad_req = "null"}
        for _, a in pairs(exe.arg_dict) do a[":"] = ty.nd.random.normal{shape = a.shape} end
        exe:forward()
        print(exe.outputs[1]:min():asscalar(), exe.outputs[1]:max():asscalar() > 0)
        print(exe:program():match"reference.-(%[n act%])")
      end']])
    assert.equal(0, status, output)
    assert.equal(("0\ttrue\n[n act]\n"):rep(3), output)
  end)
end)

describe("an activation that rounds", function()
  setup(device.leave)
  teardown(device.come_back)
  it("stays apart", function()
    for _, act in ipairs{"sigmoid", "tanh", "softrelu", "softsign"} do
      local net = sym.Activation{FRONT.FullyConnected(), act_type = act, name = "act"}
      lacks(compare(net, {2, 4}, "float32"), "[n act]")
    end
  end)
end)

describe("a gelu", function()
  setup(device.leave)
  teardown(device.come_back)

  -- Returns the outputs of a forward run, fused and node by node, and the program.
  local function inferred(net, rows, dtype)
    local list, program = {}, nil
    for k = 1, 2 do
      local exe = net:simple_bind{ctx = ty.cpu(), x = {rows, 33}, grad_req = "null",
        type_dict = {x = dtype}}
      if k == 2 then exe:set_monitor_callback(function() end) end
      ty.random.seed(3)
      for _, name in ipairs(net:list_arguments()) do
        local x = exe.arg_dict[name]
        x[":"] = ty.nd.random.normal{shape = x.shape}:astype(x.dtype)
      end
      exe:forward(false)
      list[k] = exe.outputs[1]:astype("float64"):totable()
      program = program or exe:program()
    end
    assert.same(list[2], list[1])
    return program
  end

  local function net(columns)
    return sym.LeakyReLU{sym.FullyConnected{V"x", num_hidden = columns, name = "n"},
      act_type = "gelu", name = "act"}
  end

  it("after FullyConnected of float32 is done by its kernel, with the same bits", function()
    for _, rows in ipairs{1, 5, 70} do
      for _, columns in ipairs{1, 7, 32, 100} do
        shows(inferred(net(columns), rows, "float32"), "[n act]")
      end
    end
  end)

  it("stays apart in other types, and where a gradient reads its input", function()
    for _, dtype in ipairs{"float64", "float16", "bfloat16"} do
      lacks(inferred(net(7), 5, dtype), "[n act]")
    end
    lacks(compare(net(7), {2, 4}, "float32"), "[n act]")
  end)

  it("is done by plain loops", function()
    local output, status = shell.run("TYCHO_DISABLE=gemm " .. shell.program .. [[ -e '
      local ty = require "tycho"
      local net = ty.sym.FullyConnected{ty.sym.Variable"x", num_hidden = 3, name = "n"}
      net = ty.sym.LeakyReLU{net, act_type = "gelu", name = "act"}
      local exe = net:simple_bind{ctx = ty.cpu(), x = {2, 4}, grad_req = "null"}
      for _, a in pairs(exe.arg_dict) do a[":"] = 1 end
      exe:forward()
      print(("%.5f"):format(exe.outputs[1]:max():asscalar()))
      print(exe:program():match"reference.-(%[n act%])")']])
    assert.equal(0, status, output)
    assert.equal("5.00000\n[n act]\n", output)
  end)
end)

describe("the gradient of a relu", function()
  setup(device.leave)
  teardown(device.come_back)
  it("is taken by that of a normalisation in front of it", function()
    local x = sym.relu{FRONT.BatchNorm(), name = "act"}
    local net = sym.FullyConnected{x, num_hidden = 2, name = "fc"}
    shows(compare(net, SHAPE, "float32"), "[n_backward act_backward]")
    lacks(compare(net, SHAPE, "float64"), "[n_backward act_backward]")
  end)

  it("is taken by that of max pooling after it, of other pooling not", function()
    local function pool(kind, x)
      return sym.Pooling{x, kernel = {2, 2}, stride = {2, 2}, pool_type = kind, name = "p"}
    end
    local function net(kind)
      local x = sym.Convolution{V"x", num_filter = 3, kernel = {3, 3}, name = "n"}
      return pool(kind, sym.relu{x, name = "act"})
    end
    shows(compare(net("max"), {2, 2, 8, 8}, "float32"), "[p_backward act_backward]")
    lacks(compare(net("avg"), {2, 2, 8, 8}, "float32"), "[p_backward act_backward]")
    lacks(compare(net("sum"), {2, 2, 8, 8}, "float32"), "[p_backward act_backward]")
    local before = pool("max", sym.relu{FRONT.BatchNorm(), name = "act"})
    lacks(compare(before, {2, 2, 8, 8}, "float32"), "[p_backward act_backward]")
  end)
end)

describe("the gradient of picked elements", function()
  setup(device.leave)
  teardown(device.come_back)

  -- Returns pick of log_softmax of a product; labels are in range or not.
  local function net(pick, soft)
    pick, soft = pick or {}, soft or {}
    pick[1] = sym.log_softmax{sym.FullyConnected{V"x", num_hidden = 7, flatten = false, name = "n"},
      name = "soft", axis = soft.axis, temperature = soft.temperature}
    pick[2], pick.name = V"label", "pick"
    return sym.pick(pick)
  end

  local TAKEN = "[soft_backward pick_backward]"

  it("is taken by that of log_softmax, with the same bits", function()
    for _, dtype in ipairs{"float32", "float64"} do
      for _, shape in ipairs{{5, 4}, {1, 4}, {2, 3, 4}} do
        shows(compare(net(), shape, dtype), TAKEN)
        shows(compare(net({keepdims = true}), shape, dtype), TAKEN)
        shows(compare(net({axis = #shape - 1}, {temperature = 0.5}), shape, dtype), TAKEN)
      end
    end
  end)

  it("is not where rows are on another axis, where others read it, nor the index's", function()
    local exe = net():simple_bind{ctx = ty.cpu(), x = {5, 4}, grad_req = "write"}
    lacks(exe:program(), TAKEN)
    lacks(compare(net({axis = 1}, {axis = 1}), {2, 3, 4}, "float32"), TAKEN)
    lacks(compare(net({axis = 1}), {2, 3, 4}, "float32"), TAKEN)
    lacks(compare(net({mode = "wrap"}), {5, 4}, "float32"), TAKEN)
    lacks(compare(net(), {5, 4}, "float16"), TAKEN)
    local soft = sym.log_softmax{FRONT.FullyConnected(), name = "soft"}
    lacks(compare(sym.pick{soft, V"label", name = "pick"} + sym.sum{soft, axis = 1}, {5, 4},
      "float32"), TAKEN)
  end)

  it("is in the place of the logarithms", function()
    local program = compare(net(), {100, 4}, "float32")
    local at = program:match("(p%+0x%x+)[^\n]*%[soft%]")
    assert.equal(at, program:match("(p%+0x%x+)[^\n]*%[soft_backward pick_backward%]"))
  end)
end)

describe("a gradient that is added to an array at the end", function()
  setup(device.leave)
  teardown(device.come_back)

  -- Returns gradients of all arguments after two steps; apart: node by node.
  local function added(net, shapes, apart)
    local exe = net:simple_bind{ctx = ty.cpu(), grad_req = "add", shapes = shapes}
    if apart then exe:set_monitor_callback(function() end) end
    ty.random.seed(3)
    for _, name in ipairs(net:list_arguments()) do
      exe.arg_dict[name][":"] = ty.nd.random.normal{shape = exe.arg_dict[name].shape}
    end
    local list = {}
    for step = 1, 2 do
      exe:forward(true)
      exe:backward(exe.outputs[1] * 2 + step)
    end
    for name, g in pairs(exe.grad_dict) do list[name] = g:totable() end
    return list
  end

  local function product(x, name)
    return sym.FullyConnected{x, num_hidden = 4, flatten = false, no_bias = true, name = name}
  end

  local x, v = V"x", V"v"
  local soft = sym.log_softmax(product(x, "n"))
  local NETWORKS = {
    ["an index's"] = {sym.pick{soft, v, keepdims = true}, {3, 1}},
    ["an index's, with the pick's result squared"] =
      {sym.square(sym.pick{soft, v, keepdims = true}), {3, 1}},
    ["before a product, part of a sum"] = {product(x + v, "n") + product(x, "m"), {3, 4}},
    ["after a product, part of a sum"] = {product(x, "m") + product(v + x, "n"), {3, 4}},
    ["of a relu after a product"] = {sym.relu(product(x, "n") + v) * v, {3, 4}},
    ["of a relu before a product"] = {product(sym.relu(x + v), "n") + v, {3, 4}},
    ["of a tanh before a product"] = {product(sym.tanh(x) + v, "n"), {3, 4}},
    ["of products one after the other"] = {product(product(x, "n") + v, "m") + v, {3, 4}},
  }
  for what, case in pairs(NETWORKS) do
    it("is the one of a run node by node: " .. what, function()
      local shapes = {x = {3, 4}, v = case[2]}
      assert.same(added(case[1], shapes, true), added(case[1], shapes))
    end)
  end
end)
