-- Blocks: names, children, parameters, hooks, text.

local blocks = require "spec.support.blocks"
local ty = require "tycho"

local gluon, nd = ty.gluon, ty.nd
local Block, HybridBlock, Dense, Net = gluon.Block, gluon.HybridBlock, blocks.Dense, blocks.Net

-- Runs f with names counted from 0.
local function afresh(f)
  return function()
    ty.name.NameManager():with(f)
  end
end

-- Runs f, and returns the lines of the log.
local function logged(f)
  local lines, log = {}, require "tycho.core.log"
  local warning = log.warning
  rawset(log, "warning", function(_, text)
    lines[#lines + 1] = text
  end)
  local ok, e = pcall(f)
  rawset(log, "warning", warning)
  assert(ok, e)
  return lines
end


describe("names of blocks", function()
  it("count per hint in each scope", afresh(function()
    local a, b = Net(), Net()
    assert.equal("net0_", a.prefix)
    assert.equal("net1", b.name)
    assert.equal("net0_dense0_weight", a.a.weight.name)
    assert.equal("net1_dense1_bias", b.b.bias.name)
    assert.equal("dense0_", Dense(2).prefix)
  end))

  it("take the prefix that is given, from the only or the last argument", afresh(function()
    assert.equal("m_", Net{ prefix = "m_" }.prefix)
    local d = Dense(2, 3, { prefix = "d_" })
    assert.equal("d_weight", d.weight.name)
    assert.equal("net0_", Net().prefix)
    assert.raises("type", Net, { prefix = 3 })
    assert.raises("type", Net, { params = {} })
  end))

  it("have no scope with an empty prefix", afresh(function()
    local outer = Block{ prefix = "" }
    local inner = outer:name_scope(function() return Dense(1) end)
    assert.equal("dense0_", inner.prefix)
    assert.equal("", outer.name)
  end))

  it("go into a scope by hand, too, and out of it on errors", afresh(function()
    local outer = Block{ prefix = "o_" }
    local s = outer:name_scope()
    s:enter()
    assert.equal("o_dense0_", Dense(1).prefix)
    s:exit()
    pcall(function() outer:name_scope(function() error "x" end) end)
    assert.equal("dense0_", Dense(1).prefix)
    assert.equal("o_dense1_", s:with(Dense, 1).prefix)
  end))

  it("come from outside where the class is not scoped", afresh(function()
    local Open = Block:extend("Open")
    Open.scoped = false
    function Open:init() self.fc = Dense(2) end
    assert.equal("dense0_", Open().fc.prefix)
  end))

  it("are put back when init fails", afresh(function()
    local Bad = Block:extend("Bad")
    function Bad.init() error "no" end
    assert.is_false(pcall(Bad))
    assert.equal("dense0_", Dense(1).prefix)
  end))
end)


describe("classes of blocks", function()
  it("hand what they are called with to init", function()
    local seen
    local A = Block:extend("A")
    function A.init(_, ...) seen = { n = select("#", ...), ... } end
    A(1, nil, "x")
    assert.same({ n = 3, 1, nil, "x" }, seen)
    local t = { width = 2, prefix = "p_" }
    A(t)
    assert.equal(t, seen[1])
  end)

  it("extend each other", function()
    local A = HybridBlock:extend("Alpha")
    function A:init(n) self.n = n end
    local B = A:extend("Beta")
    function B:init(n) B.super.init(self, n + 1) end
    local b = B(1)
    assert.equal(2, b.n)
    assert.is_true(ty.is_a(b, A) and ty.is_a(b, Block))
    assert.equal("Alpha", A:extend().class_name)
    assert.equal(A.init, A:extend().init)
  end)

  it("have fields that are defaults of their objects", function()
    local A = Block:extend("A")
    A.size = 3
    local a = A()
    assert.equal(3, a.size)
    a.size = 4
    assert.equal(4, a.size)
    assert.equal(3, A().size)
    assert.is_nil(a.nothing)
  end)

  it("need a forward", function()
    local e = assert.raises("unsupported", Block:extend("Empty")(), nd.ones{ 1 })
    assert.matches("Empty:forward", tostring(e))
  end)

  it("hybrid_forward in the place of forward is an error that says how to rename it", function()
    local Old = HybridBlock:extend("Old")
    function Old:hybrid_forward(F, x) return F.relu(x) end
    local e = assert.raises("unsupported", Old(), nd.ones{ 1 })
    assert.matches("rename it to Old:forward(x)", e.message, 1, true)
  end)
end)


describe("children and parameters", function()
  it("are registered when they are assigned, in order", function()
    local net = Net()
    local list = net:children()
    assert.equal("a", list[1][1])
    assert.equal(net.a, list[1][2])
    assert.equal(net.b, list[2].block)
    net.a = Dense{ 5, prefix = "new_" }
    assert.equal("a", net:children()[1][1])
    net.b = nil
    assert.equal(1, #net:children())
    assert.is_nil(net.b)
  end)

  it("are not replaced by anything else", function()
    local net, d = Net(), Dense(1)
    assert.raises("type", function() net.a = 3 end)
    assert.raises("type", function() net.a = d.weight end)
    assert.raises("name", function() d.weight = gluon.Parameter("w") end)
    assert.raises("type", function() d.weight = Dense(1) end)
    assert.raises("state", function() net.prefix = "x_" end)
    d.weight = nil
    assert.is_nil(d.weight)
  end)

  it("are registered in place of a plain value, too", function()
    local net = Block()
    net.down = false
    assert.is_false(net.down)
    net.down = Dense(2)
    assert.equal(1, #net:children())
  end)

  it("must be hybrid in a HybridBlock", function()
    local net = Net()
    local e = assert.raises("type", function() net.plain = Block() end)
    assert.matches("HybridBlock", tostring(e))
    assert.raises("type", net.register_child, net, Block())
    assert.raises("type", net.register_child, net, 3)
  end)

  it("have numbers where no name is given", function()
    local net = Block()
    net:register_child(Dense(1))
    net:register_child(Dense(1))
    net:register_child(Dense(1), "last")
    assert.same({ "0", "1", "last" }, { net:children()[1].name, net:children()[2].name,
      net:children()[3].name })
  end)

  it("give their parameters once, own ones first", afresh(function()
    local Tied = Block:extend("Tied")
    function Tied:init()
      self.w = self.params:get("w", { shape = { 2 } })
      self.x = Dense(2)
      self.y = Dense{ 2, params = self.x.params }
    end
    local net = Tied()
    assert.same({ "tied0_w", "tied0_dense0_weight", "tied0_dense0_bias" },
      net:collect_params():keys())
    assert.equal(net.x.weight, net.y.weight)
    assert.equal(1, net.params:len())
  end))

  it("are found that were made without the dictionary", function()
    local net = Block()
    net.w = gluon.Parameter{ "mine", shape = { 1 } }
    assert.same({ "mine" }, net:collect_params():keys())
  end)

  it("of two blocks with one name are an error", function()
    local net = Block()
    net.a, net.b = Dense{ 1, prefix = "d_" }, Dense{ 2, prefix = "d_" }
    assert.raises("name", net.collect_params, net)
  end)

  it("are selected by expressions, lists and functions", afresh(function()
    local net = Net()
    assert.equal(2, net:collect_params(".*weight"):len())
    assert.equal(3, net:collect_params{ ".*weight", ".*dense1" }:len())
    assert.equal(4, net:collect_params(".*weight|.*bias"):len())
    assert.equal(0, net:collect_params("weight"):len())
    assert.equal(2, net:collect_params(function(n) return n:find "bias" end):len())
    assert.raises("value", net.collect_params, net, "%d")
    assert.raises("type", net.collect_params, net, 3)
  end))

  it("in plain tables are missed with one warning, which names the field", function()
    local net = Block()
    net.parts = { Dense(1), Dense(1) }
    local lines = logged(function()
      net:collect_params()
      net:collect_params()
    end)
    assert.equal(1, #lines)
    assert.matches("'parts'", lines[1])
    net:register_child(net.parts[1])
    net:register_child(net.parts[2])
    assert.equal(4, net:collect_params():len())
  end)

  it("in tables inside plain tables are missed likewise", function()
    local net = Block()
    net.branches = { left = { Dense(1), Dense(1) }, kept = {} }
    net.branches.kept.again = net.branches               -- tables may contain each other
    local lines = logged(function() net:collect_params() end)
    assert.equal(1, #lines)
    assert.matches("'branches'", lines[1])
    net = Block()
    net.numbers = { { 1, 2 }, name = "text" }
    assert.equal(0, #logged(function() net:collect_params() end))
  end)
end)


describe("all blocks at once", function()
  it("are visited children first", afresh(function()
    local names, net = {}, Net()
    assert.equal(net, net:apply(function(b) names[#names + 1] = b.name end))
    assert.same({ "net0_dense0", "net0_dense1", "net0" }, names)
  end))

  it("change their dtype", function()
    local net = Net()
    net:initialize()
    net(nd.ones{ 1, 2 })
    net:cast("float64")
    assert.equal("float64", net.a.weight:data().dtype)
    assert.equal("float64", net(nd.ones{ 1, 2 }:astype("float64")).dtype)
    assert.raises("dtype", net.cast, net, "float99")
  end)

  it("lose their gradients and their arrays", function()
    local net = Net()
    net:initialize()
    local y = ty.autograd.record(function() return net(nd.ones{ 1, 2 }) end)
    y:backward()
    net:zero_grad()
    assert.near({ 0, 0, 0 }, net.b.bias:grad())
    net:free()
    assert.raises("state", net, nd.ones{ 1, 2 })
    net:initialize()
    assert.shape({ 1, 3 }, net(nd.ones{ 1, 2 }))
  end)
end)


describe("arguments of methods of blocks", function()
  it("may be given by name", function()
    local net, names = Net(), {}
    assert.equal(2, net:collect_params{ select = ".*bias" }:len())
    net:register_child{ block = Dense(1), name = "last" }
    assert.equal("last", net:children()[3].name)
    net:apply{ f = function(b) names[#names + 1] = b.name end }
    assert.equal(4, #names)
    net:cast{ dtype = "float64" }
    assert.equal("float64", net.a.weight.dtype)
    for _, layer in ipairs{ gluon.nn.Embedding(2, 3), gluon.nn.BatchNorm(), gluon.rnn.LSTM(2) } do
      layer:cast{ dtype = "float64" }
      assert.equal("float64", layer:collect_params():values()[1].dtype)
    end
  end)

  it("of add may be a list", function()
    for _, class in ipairs{ gluon.nn.Sequential, gluon.nn.HybridSequential,
        gluon.nn.HybridConcurrent } do
      local net = class()
      assert.equal(net, net:add{ Dense(1), Dense(2) })
      assert.equal(net, net:add())
      assert.equal(3, net:add(Dense(3)):len())
      assert.raises("type", net.add, net, { 3 })
      assert.raises("type", net.add, net, Dense(1), 3)
      assert.raises("value", net.add, net, nil)
    end
    local stack = gluon.rnn.SequentialRNNCell()
    assert.equal(stack, stack:add(gluon.rnn.RNNCell(2), gluon.rnn.GRUCell(2)))
    assert.equal(2, stack:len())
    assert.raises("type", stack.add, stack)
    assert.raises("type", stack.add, stack, gluon.rnn.RNNCell(2), 3)
  end)

  it("of a wrong kind are refused, as are unknown names", function()
    local net = Net()
    assert.raises("type", net.register_child, net, Dense(1), Dense(2))
    assert.raises("name", net.collect_params, net, { selct = ".*bias" })
    for _, f in ipairs{ 3, "f" } do
      assert.raises("type", net.apply, net, f)
      assert.raises("type", net.name_scope, net, f)
      assert.raises("type", net.register_child, net, f)
    end
    assert.raises("value", net.apply, net)
    assert.raises("value", net.register_child, net)
    assert.raises("type", Block.extend, Block, 3)
    assert.raises("type", Block.extend, Block, {})
    local e = assert.raises("type", function() return gluon.HybridBlock.extend("Net") end)
    assert.matches("colon", e.message)
    e = assert.raises("type", function() return ty.io.DataIter.extend() end)
    assert.matches("colon", e.message)
    assert.raises("dtype", gluon.nn.Flatten().cast, gluon.nn.Flatten(), "float99")
    assert.raises("value", net.cast, net)
  end)
end)


describe("hooks of blocks", function()
  it("run before and after forward, until they are detached", function()
    local net, seen = Net(), {}
    net:initialize()
    local before = net:register_forward_pre_hook(function(b, inputs)
      seen[#seen + 1] = { b, #inputs }
    end)
    local after = net.b:register_forward_hook(function(b, inputs, outputs)
      seen[#seen + 1] = { b, #inputs, #outputs }
    end)
    net(nd.ones{ 1, 2 })
    assert.same({ { net, 1 }, { net.b, 1, 1 } }, seen)
    before:detach()
    net(nd.ones{ 1, 2 })
    assert.equal(3, #seen)
    after:detach()
    net(nd.ones{ 1, 2 })
    assert.equal(3, #seen)
    assert.raises("type", net.register_forward_hook, net, 3)
  end)

  it("may be detached and registered by a hook that runs", function()
    local net, seen = Net(), {}
    net:initialize()
    local handles = {}
    local function add(register, name, f)
      handles[name] = register(net, function()
        seen[#seen + 1] = name
        f()
      end)
    end
    for _, kind in ipairs{ "register_forward_pre_hook", "register_forward_hook" } do
      local register = net[kind]
      add(register, "once", function() handles.once:detach() end)
      add(register, "next", function() handles.last:detach() end)
      add(register, "last", function() end)
      add(register, "adds", function() add(register, "added", function() end) end)
      seen = {}
      net(nd.ones{ 1, 2 })
      assert.same({ "once", "next", "adds" }, seen)
      handles.adds:detach()
      seen = {}
      net(nd.ones{ 1, 2 })
      assert.same({ "next", "added" }, seen)
      handles.next:detach()
      handles.added:detach()
    end
  end)

  it("keep nil among inputs", function()
    local Two, got = Block:extend("Two"), nil
    function Two.forward(_, ...) got = select("#", ...) return 1, nil, 3 end
    local b = Two()
    b:register_forward_hook(function() end)
    assert.same({ 1, nil, 3 }, { b(nil, nd.ones{ 1 }, nil) })
    assert.equal(3, got)
  end)

  it("do not run for children while a block is traced", function()
    local net, n = Net(), 0
    net:initialize()
    net:hybridize()
    net.a:register_forward_hook(function() n = n + 1 end)
    net:register_forward_hook(function() n = n + 10 end)
    net(nd.ones{ 1, 2 })
    net(nd.ones{ 1, 2 })
    assert.equal(20, n)
  end)

  it("of operators get names and arrays", afresh(function()
    local net, seen = Net(), {}
    net:initialize()
    net:register_op_hook(function(name, x) seen[#seen + 1] = name .. " " .. x.shape[1] end)
    net(nd.ones{ 5, 2 })
    assert.same({ "net0_dense0_fwd_output 5", "net0_tanh0_output 5", "net0_dense1_fwd_output 5" },
      seen)
    seen = {}
    net:register_op_hook(function(name) seen[#seen + 1] = name end, { monitor_all = true })
    net:hybridize()
    net(nd.ones{ 5, 2 })
    assert.same({ "net0_dense0_fwd_data", "net0_dense0_fwd_weight", "net0_dense0_fwd_bias",
      "net0_dense0_fwd_output", "net0_tanh0_input0", "net0_tanh0_output", "net0_dense1_fwd_data",
      "net0_dense1_fwd_weight", "net0_dense1_fwd_bias", "net0_dense1_fwd_output" }, seen)
    assert.raises("type", net.register_op_hook, net, 1)
  end))

  it("of operators get inputs by name where the operator names them", afresh(function()
    local net, seen = gluon.nn.AvgPool1D{ prefix = "pool_" }, {}
    net:register_op_hook(function(name) seen[#seen + 1] = name end, { monitor_all = true })
    net(nd.ones{ 2, 3, 4 })
    assert.same({ "pool_fwd_data", "pool_fwd_output" }, seen)
  end))
end)


describe("texts of blocks", function()
  it("show children indented", afresh(function()
    local net = Block()
    net.fc = Dense(1)
    function Dense._describe() return "1" end
    assert.equal("Block(\n  (fc): Dense(1)\n)", tostring(net))
    Dense._describe = nil
  end))

  it("sum up layers, shapes and parameters", afresh(function()
    local net = Net()
    net:initialize()
    net(nd.ones{ 2, 5 })
    local text = require "tycho.gluon.summary"(net, nd.ones{ 2, 5 })
    assert.matches("Input%s+%(2, 5%)%s+0\n", text)
    assert.matches("Dense%-1%s+%(2, 4%)%s+24\n", text)
    assert.matches("Net%-3%s+%(2, 3%)%s+0\n", text)
    assert.matches("Total params: 39\n", text)
    assert.matches("Unique parameters in model: 39\n", text)
    net:hybridize()
    assert.raises("state", net.summary, net, nd.ones{ 2, 5 })
    net:hybridize(false)
    net.a.weight.grad_req = "null"
    assert.matches("Trainable params: 19\n", require "tycho.gluon.summary"(net, nd.ones{ 2, 5 }))
  end))

  it("refuse to sum up for what is no array", afresh(function()
    local summary, net = require "tycho.gluon.summary", Net()
    net:initialize()
    for _, input in ipairs{ net, ty.null, ty.cpu(), 3, "x" } do
      assert.raises("type", summary, net, input)
    end
  end))

  it("sum up layers while a hook of operators is there, which stays", afresh(function()
    local net, names = gluon.nn.HybridSequential{ gluon.nn.Dense(4), gluon.nn.Dense(3) }, {}
    net:initialize()
    local want = require "tycho.gluon.summary"(net, nd.ones{ 2, 5 })
    net:register_op_hook(function(name) names[#names + 1] = name end)
    assert.equal(want, require "tycho.gluon.summary"(net, nd.ones{ 2, 5 }))
    assert.matches("Dense%-2%s+%(2, 3%)%s+15\n", want)
    assert.same({}, names)
    assert.raises("shape", require "tycho.gluon.summary", net, nd.ones{ 2, 6 })
    net(nd.ones{ 2, 5 })
    assert.equal(2, #names)
  end))
end)


describe("what the reference's blocks have and these do not", function()
  it("says what to use instead", function()
    local net = Net()
    for _, name in ipairs{ "save", "load", "save_params", "load_params", "optimize_for" } do
      local e = assert.raises("unsupported", net[name], net, "x")
      assert.matches(name, tostring(e))
    end
    assert.raises("unsupported", net.a.weight.row_sparse_data, net.a.weight)
    assert.raises("unsupported", net.a.weight.list_row_sparse_data, net.a.weight)
  end)
end)
