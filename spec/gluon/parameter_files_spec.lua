-- Files of parameters.

local blocks = require "spec.support.blocks"
local ty = require "tycho"
local device = require "spec.support.device"

local gluon, nd = ty.gluon, ty.nd
local Dense, Net = blocks.Dense, blocks.Net

local function keys(path)
  local dict, names = nd.load(path)
  local list = {}
  for i, name in ipairs(names) do
    list[i] = name
  end
  table.sort(list)
  return list, dict
end

local function filled(class, ...)
  local net = class(...)
  net:initialize()
  net(nd.ones{ 1, 5 })
  blocks.fill(net)
  return net
end


describe("files of parameters", function()
  setup(device.leave)                                    -- contexts are CPUs by name
  teardown(device.come_back)

  local path

  before_each(function() path = os.tmpname() end)
  after_each(function() os.remove(path) end)

  it("are read and written with options by name or in the reference's order", function()
    local two, one = { ty.cpu(0), ty.cpu(1) }, { ty.cpu(1) }
    local function contexts(net)
      return net.a.weight:list_ctx()
    end
    filled(Net):save_parameters(path, true)
    for _, case in ipairs{ { one, ty.cpu(1) }, { one, { ctx = ty.cpu(1) } }, { two, two },
        { two, { ctx = two } }, { two, two, { allow_missing = true } },
        { one, ty.cpu(1), true, true, true, "saved" }, { { ty.cpu() }, {} },
        { { ty.cpu() }, nil, false, { ignore_extra = true } } } do
      local net = Net()
      net:load_parameters(path, unpack(case, 2, table.maxn(case)))
      assert.same(case[1], contexts(net))
    end
    local net = filled(Net)
    local d = net:collect_params()
    d:save(path, net.prefix)
    for _, options in ipairs{ { ty.cpu(), false, false, net.prefix },
        { { restore_prefix = net.prefix } }, { nil, { restore_prefix = net.prefix } },
        { nil, false, false, net.prefix, true, "saved" } } do
      d:load(path, unpack(options, 1, table.maxn(options)))
    end
    net:hybridize()
    net(nd.ones{ 1, 5 })
    local symbol, params = net:export(path, 3)
    assert.matches("%-0003%.params$", params)
    for _, case in ipairs{ { one, ty.cpu(1) }, { one, { ctx = ty.cpu(1) } }, { two, two },
        { one, ty.cpu(1), true, true } } do
      local b = gluon.SymbolBlock.imports(symbol, "data", params, unpack(case, 2))
      assert.same(case[1], b:collect_params():values()[1]:list_ctx())
    end
    os.remove(symbol)
    os.remove(params)
    assert.raises("type", net.load_parameters, net, path, "cpu(1)")
  end)

  it("are named by structure, and fill a block that was not initialized", function()
    local net, x = filled(Net), blocks.numbers{ 2, 5 }
    net:save_parameters(path)
    assert.same({ "a.bias", "a.weight", "b.bias", "b.weight" }, (keys(path)))
    local other = Net()
    other:load_parameters(path)
    assert.near(net(x), other(x), 0)
    assert.same({ 4, 5 }, other.a.weight.shape)
    local away = Net()
    away:load_parameters(path, { ctx = { ty.cpu(0), ty.cpu(1) } })
    assert.near(net(x), away(x:as_in_context(ty.cpu(1))), 0)
  end)

  it("are not changed by what is missing, extra or of another shape or dtype", function()
    filled(Net):save_parameters(path)
    local Three = gluon.Block:extend("Three")
    function Three:init() self.a, self.c = Dense(4), Dense(1) end
    local net = Three()
    net:initialize()
    net.a(nd.ones{ 1, 5 })
    local before = net.a.weight:data():copy()
    local e = assert.raises("name", net.load_parameters, net, path)
    assert.same({ "c.bias", "c.weight" }, e.missing)
    assert.same({ "b.bias", "b.weight" }, e.extra)
    assert.matches("allow_missing", tostring(e))
    assert.matches("ignore_extra", tostring(e))
    assert.raises("name", net.load_parameters, net, path, { allow_missing = true })
    assert.raises("name", net.load_parameters, net, path, { ignore_extra = true })
    assert.near(before, net.a.weight:data(), 0)
    net:load_parameters(path, { allow_missing = true, ignore_extra = true })
    local wide = Net(6)
    wide:initialize()
    e = assert.raises("shape", wide.load_parameters, wide, path)
    assert.equal("a.weight", e.argument)
    assert.same({ "a.weight", "a.bias" }, e.mismatch)
    local double = Net()
    double:cast("float64")
    e = assert.raises("dtype", double.load_parameters, double, path)
    assert.matches("cast_dtype", tostring(e))
    assert.equal(double.a.bias.dtype, "float64")
    assert.same({ "a.weight", "a.bias", "b.weight", "b.bias" }, e.mismatch)
    assert.matches("others differ, too: 'a.bias'", e.message)
    double:load_parameters(path, { cast_dtype = true })
    assert.equal("float64", double.a.weight:data().dtype)
    double:load_parameters(path, { cast_dtype = true, dtype_source = "saved" })
    assert.equal("float32", double.a.weight:data().dtype)
    assert.raises("value", double.load_parameters, double, path, { dtype_source = "other" })
    assert.raises("device", double.load_parameters, double, path, { ctx = ty.cpu(3) })
  end)

  it("are E(io) and E(format) where there is no such file", function()
    local net = Net()
    assert.raises("io", net.load_parameters, net, path .. ".none")
    nd.save(path, { nd.ones{ 1 } })
    assert.raises("format", net.load_parameters, net, path)
    local f = io.open(path, "wb")
    f:write("not an array")
    f:close()
    assert.raises("format", net.load_parameters, net, path)
    assert.raises("io", net.save_parameters, filled(Net), "/no/such/folder/x.params")
  end)

  it("hold shared parameters once, if asked to", function()
    local Tied = gluon.Block:extend("Tied")
    function Tied:init()
      self.x = Dense(5)
      self.y = Dense{ 5, params = self.x.params }
    end
    function Tied:forward(x) return self.y(self.x(x)) end
    local net = filled(Tied)
    net:save_parameters(path)
    assert.equal(4, #keys(path))
    net:save_parameters(path, { deduplicate = true })
    assert.same({ "y.bias", "y.weight" }, (keys(path)))
    local other = Tied()
    other:load_parameters(path)
    assert.near(net.y.weight:data(), other.y.weight:data(), 0)
  end)

  it("of a dictionary are named by parameter, less a prefix", function()
    local net = filled(Net, { prefix = "m_" })
    local d = net:collect_params()
    d:save(path, { strip_prefix = "m_" })
    assert.same({ "dense0_bias", "dense0_weight", "dense1_bias", "dense1_weight" }, (keys(path)))
    local other = Net{ prefix = "o_" }
    other:collect_params():load(path, { restore_prefix = "o_" })
    assert.near(net.a.weight:data(), other.a.weight:data(), 0)
    local third = Net{ prefix = "t_" }
    third:load_parameters(path)
    assert.near(net.a.weight:data(), third.a.weight:data(), 0)
    assert.raises("value", d.save, d, path, { strip_prefix = "x_" })
    assert.raises("value", d.load, d, path, { restore_prefix = "x_" })
    assert.raises("name", d.load, d, path)
  end)

  it("of export are known by their names", function()
    local net = filled(Net, { prefix = "m_" })
    net:hybridize()
    net(nd.ones{ 1, 5 })
    local symbol_file, params_file = net:export(path)
    local other = Net{ prefix = "m_" }
    other:load_parameters(params_file)
    assert.near(net.a.weight:data(), other.a.weight:data(), 0)
    local third = Net{ prefix = "t_" }
    assert.raises("name", third.load_parameters, third, params_file)
    os.remove(symbol_file)
    os.remove(params_file)
  end)

  it("of a network without parameters hold none, and are loaded", function()
    local net = gluon.nn.HybridSequential()
    net:add(gluon.nn.Flatten())
    net:save_parameters(path)
    net:load_parameters(path)
    net:collect_params():save(path)
    net:collect_params():load(path)
    net:hybridize()
    net(nd.ones{ 2, 3 })
    local symbol, params = net:export(path)
    local block = gluon.SymbolBlock.imports(symbol, "data", params)
    assert.same({ 2, 3 }, block(nd.ones{ 2, 3 }).shape)
    os.remove(symbol)
    os.remove(params)
    local err = assert.raises("name", function() Dense(2):load_parameters(path) end)
    assert.same({ "bias", "weight" }, err.missing)
  end)

  it("hold the mean over devices", function()
    local d = gluon.ParameterDict()
    local p = d:get("w", { shape = { 1 } })
    d:initialize{ init = "zeros", ctx = { ty.cpu(0), ty.cpu(1) } }
    p:list_data()[2][":"] = 4
    d:save(path)
    local _, dict = keys(path)
    assert.near({ 2 }, dict.w)
  end)
end)
