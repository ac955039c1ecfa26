-- Symbols (runtime/lua/tycho/symbol/*.lua): names, attributes, composition, places, files, control
-- flow.

local ty = require "tycho"

local V = ty.sym.Variable

local function fresh(f)
  return ty.name.NameManager():with(f)
end

local function mlp()
  local net = ty.sym.FullyConnected{ data = V("data"), num_hidden = 6, name = "fc" }
  net = ty.sym.Activation{ data = net, act_type = "relu", name = "relu" }
  return ty.sym.SoftmaxOutput{ data = net, name = "softmax" }
end

describe("names", function()
  it("count per function and manager", function()
    fresh(function()
      assert.equal("_plus0", (V("a") + V("b")).name)
      assert.equal("_mulscalar0", (2 * V("a")).name)
      assert.equal("_rminusscalar0", (1 - V("a")).name)
      fresh(function() assert.equal("_plus0", (V("a") + V("b")).name) end)
      assert.equal("_plus1", (V("a") + V("b")).name)
    end)
  end)

  it("are prefixed, variables of operators too", function()
    ty.name.Prefix("net_"):with(function()
      local s = ty.sym.FullyConnected{ V("d"), num_hidden = 1, name = "fc" }
      assert.same({ "d", "net_fc_weight", "net_fc_bias" }, s:list_arguments())
    end)
  end)

  it("come depth first", function()
    local a, b = V("a"), V("b")
    assert.same({ "b", "a" }, ((b + a) * (a + b)):list_arguments())
    assert.same({ "data", "fc_weight", "fc_bias", "softmax_label" }, mlp():list_arguments())
  end)
end)

describe("attributes", function()
  it("are inherited by the variables an operator makes", function()
    local s = ty.sym.FullyConnected{ V("d"), num_hidden = 2, name = "fc",
      attr = { __mood__ = "calm", lr_mult = "3" } }
    local dict = s:attr_dict()
    assert.same({ num_hidden = "2", __mood__ = "calm", __lr_mult__ = "3", lr_mult = "3" },
      dict.fc_weight)
    assert.is_nil(dict.d)
  end)

  it("of inputs are refused on the operator", function()
    local e = assert.raises("name", ty.sym.FullyConnected,
      { V("d"), num_hidden = 2, attr = { weight_lr_mult = "2" } })
    assert.truthy(e)
  end)

  it("of any name are kept by operators without parameters, in files too", function()
    local s = ty.AttrScope{ group = "4" }:with(function()
      return ty.sym.exp{ V("a"), attr = { mood = "calm" }, name = "e" }
    end)
    assert.same({ group = "4", mood = "calm" }, s:list_attr())
    assert.same(s:attr_dict(), ty.sym.load_json(s:tojson()):attr_dict())
    assert.equal(1, s:eval{ ctx = ty.cpu(), a = ty.nd.zeros{ 1 } }[1]:asscalar())
    local e = assert.raises("name", ty.sym.exp, { V("a"), mood = "calm" })
    assert.equal("mood", e.argument)
    assert.equal("mood", assert.raises("name", ty.nd.exp, { ty.nd.ones{ 1 }, mood = 1 }).argument)
    assert.raises("name", ty.sym.Activation, { V("a"), act_type = "relu", attr = { mood = "x" } })
  end)

  it("of nodes of one name are put together", function()
    local net = ty.sym.Activation{ V("a", { lr_mult = 2 }) * V("a", { wd_mult = 0 }),
      act_type = "relu", name = "n" }
    net = ty.sym.clip{ net, a_min = 0, a_max = 1, name = "n" }
    assert.same({ n = { act_type = "relu", a_min = "0", a_max = "1" },
      a = { __lr_mult__ = "2", lr_mult = "2", __wd_mult__ = "0", wd_mult = "0" } },
      net:attr_dict())
  end)

  it("reach scopes inside scopes", function()
    ty.AttrScope{ __a__ = "1", __b__ = "1" }:with(function()
      ty.AttrScope{ __b__ = "2" }:with(function()
        assert.same({ __a__ = "1", __b__ = "2" }, V("x"):list_attr())
      end)
    end)
  end)

  it("may change; graphs built before are not used again", function()
    local s = ty.sym.FullyConnected{ V("d"), num_hidden = 2, name = "fc" }
    assert.same({ 3, 2 }, select(2, s:infer_shape{ d = { 3, 4 } })[1])
    s:_set_attr{ num_hidden = "5" }
    assert.same({ 3, 5 }, select(2, s:infer_shape{ d = { 3, 4 } })[1])
  end)
end)

describe("outputs", function()
  it("are found by number and name", function()
    local g = ty.sym.Group{ V("a"), V("b") }
    assert.equal(2, #g)
    assert.equal("b", g[2].name)
    assert.equal("a", g["a"].name)
    assert.raises("index", function() return g[3] end)
    assert.raises("name", function() return g["c"] end)
  end)

  it("and fields are proposed for a name that is none", function()
    local e = assert.raises("name", function() return mlp().nam end)
    assert.equal("name", e.candidates[1])
  end)

  it("named like a method are reached by output()", function()
    assert.equal("sum", ty.sym.Group{ V("sum"), V("b") }:output("sum").name)
  end)

  it("of the inside", function()
    assert.equal("fc", mlp():get_internals()["fc_output"].name)
    assert.same({ "relu_output", "softmax_label" }, mlp():get_children():list_outputs())
    assert.is_nil(V("x"):get_children())
  end)
end)

describe("composition", function()
  it("replaces variables in a copy", function()
    local a, b = V("a"), V("b")
    local s = a * a + b
    assert.same({ "z", "b" }, s{ a = V("z") }:list_arguments())
    assert.same({ "a", "b" }, s:list_arguments())
    assert.raises("name", function() return s{ nope = a } end)
    assert.raises("type", function() return s(a) end)
  end)

  it("takes nil at the end of a call for absent", function()
    local a = V("a", nil)
    assert.same({ "a" }, ty.sym.Group({ ty.sym.relu(a, nil), a * 2 }, nil):list_arguments())
    assert.same({ "z" }, ty.sym.relu(a)({ a = V("z") }, nil):list_arguments())
    assert.same({ { 2, 3 } }, select(2, ty.sym.random.randn(2, 3, nil):infer_shape(nil)))
    assert.same({ { 2 } }, select(2, ty.sym.relu(a):infer_shape({ a = { 2 } }, nil)))
  end)

  it("takes an empty table at the end of an operator's arguments for no options", function()
    local list = {ty.sym.Variable "a", ty.sym.Variable "b"}
    for _, op in ipairs{"add_n", "ElementWiseSum", "Concat", "stack", "amp_multicast"} do
      local options = op == "amp_multicast" and {num_outputs = 2} or {}
      assert.same({"a", "b"}, ty.sym[op](list, options):list_arguments())
      assert.same({"a", "b"}, ty.sym[op](list[1], list[2], options):list_arguments())
    end
    assert.same({"a", "b"}, ty.sym.Group(list, {}):list_outputs())
    assert.same({"a"}, ty.sym.clip(list[1], 0, 1, {}):list_arguments())
    assert.equal("()", ty.sym.sum(list[1], {}):attr("axis"))   -- its first parameter takes a table
  end)

  it("leaves other symbols alone when done in place", function()
    local s = V("a") + 1
    local t = s * 2
    s:_compose{ a = V("z") }
    assert.same({ "z" }, s:list_arguments())
    assert.same({ "a" }, t:list_arguments())
  end)
end)

describe("places", function()
  local function line() return debug.getinfo(2, "l").currentline end
  local function ends_with(place, n) assert.truthy(place:find("symbol_spec%.lua:" .. n .. "$")) end

  it("are lines, of tail calls too", function()
    local there = line() + 1
    local function g(x) return ty.sym.FullyConnected{ x, num_hidden = 1 } end
    ends_with(g(V("x")):where(), there)
    ends_with((V("x") + 1):where(), line())
  end)

  it("of look-ups without a call keep nothing alive", function()
    local alive = setmetatable({}, { __mode = "k" })
    local function look()
      local object = {}
      alive[object] = true
      local function f() return object, ty.sym.FullyConnected end
      f()
    end
    look()
    for _ = 1, 2 do collectgarbage() end
    assert.is_nil(next(alive))
  end)

  it("come with errors of inference", function()
    local s = ty.sym.elemwise_add(V("l"), V("r"))
    local there = line() - 1
    local e = select(2, pcall(s.infer_shape, s, { l = { 2, 3 }, r = { 4, 5 } }))
    assert.equal("shape", e.code)
    assert.equal("elemwise_add", e.op)
    assert.same({ name = "l", shape = { 2, 3 }, from = "given" }, e.shapes[1])
    ends_with(e.where, there)
  end)
end)

describe("a file", function()
  it("comes back", function()
    local path = os.tmpname()
    mlp():save(path)
    local s = ty.sym.load(path)
    os.remove(path)
    assert.equal(mlp():tojson(), s:tojson())
    assert.equal(mlp():tojson(), s:copy():tojson())
  end)

  it("that is missing or no graph is refused", function()
    assert.equal("io", select(2, pcall(ty.sym.load, "/nowhere/at.json")).code)
    for _, text in ipairs{ "", "{", "[]", "{\"nodes\": []}", "\0",
        "{\"nodes\": 1, \"arg_nodes\": [], \"heads\": []}" } do
      assert.equal("format", select(2, pcall(ty.sym.load_json, text)).code)
    end
  end)

  it("that is a folder or no text is refused by name", function()
    local path = os.tmpname()
    local file = assert(io.open(path, "wb"))
    file:write(mlp():tojson(), "\0 ")
    file:close()
    local ok, e = pcall(ty.sym.load, path)
    os.remove(path)
    assert.is_false(ok)
    assert.same({ "format", path }, { e.code, e.argument })
    file = assert(io.open(path, "wb"))
    file:write("\8\7\18\7pytorch\26\0052.0.0")
    file:close()
    ok, e = pcall(ty.sym.load, path)
    os.remove(path)
    assert.is_false(ok)
    assert.same({ "format", path }, { e.code, e.argument })
    assert.truthy(e.message:find("this is not a network but an ONNX model", 1, true))
    ok, e = pcall(ty.sym.load, "/")
    assert.is_false(ok)
    assert.same({ "io", "/" }, { e.code, e.argument })
  end)

  it("gives nodes that its outputs share, in any order of access", function()
    local x = V("x")
    local text = ty.sym.Group{ x + 1, ty.sym.split{ x, num_outputs = 2, axis = 0 } }:tojson()
    for first = 1, 3 do
      local s = ty.sym.load_json(text)
      assert.equal(3, #s)
      assert.same({ "x" }, s[first]:list_arguments())
      assert.same({ "x" }, ty.sym.Group{ s[2], s[1], s[3] }:list_arguments())
      local y = s[1] * s[3]
      assert.same({ "x" }, y:list_arguments())
      local before = s[2]
      s:_compose{ x = V("z") }
      assert.same({ "z" }, s:list_arguments())
      assert.same({ "x" }, before:list_arguments())
      assert.same({ "x" }, y:list_arguments())
    end
  end)

  it("may be the first thing that is bound, composed, copied or asked", function()
    local text = mlp():tojson()
    local function read() return ty.sym.load_json(text) end
    local bound = read():simple_bind{ ctx = ty.cpu(), data = { 2, 3 } }
    assert.same(mlp():list_arguments(), bound._symbol:list_arguments())
    assert.equal(mlp().name, read().name)
    assert.equal(tostring(mlp()), tostring(read()))
    assert.equal(text, read():copy():tojson())
    assert.same(mlp():list_arguments(), read():list_arguments())
    assert.equal(#mlp():get_internals(), #read():get_internals())
    assert.equal("z", read(){ data = V("z") }:list_arguments()[1])
    assert.equal(1, #(read() + 1))
  end)

  it("carries the user's rows", function()
    ty.op.pointwise{ name = "spec_cube", args = { "a" }, formula = "a * a * a",
      grad = { "3 * g * a * a" } }
    local text = V("x"):spec_cube():tojson()
    assert.truthy(text:find("tycho_rows", 1, true))
    assert.equal(text, ty.sym.load_json(text):tojson())
    assert.equal("name",
      select(2, pcall(ty.sym.load_json, (text:gsub("a %* a %* a", "a * a")))).code)
  end)
end)

describe("a function of two operands", function()
  it("takes name and attr, and refuses other options", function()
    local a, b = V("a"), V("b")
    for _, f in ipairs{ "maximum", "minimum", "hypot", "pow", "power", "equal", "not_equal",
        "greater", "greater_equal", "lesser", "lesser_equal" } do
      local s = ty.sym[f](a, b, { name = "n", attr = { __k__ = "1" } })
      assert.equal("n", s.name)
      assert.equal("1", s:attr("__k__"))
      assert.equal("n", ty.sym[f]{ a, 2, name = "n" }.name)
      assert.same({ "b" }, ty.sym[f]{ lhs = 2, rhs = b }:list_arguments())
      assert.same({ "a", "b" }, ty.sym[f]{ left = a, right = b }:list_arguments())
      assert.equal("nmae", assert.raises("name", ty.sym[f], a, b, { nmae = "n" }).argument)
      assert.raises("type", ty.sym[f], a, b, 3)
      assert.raises("type", ty.sym[f], a)
    end
    assert.equal(8, ty.sym.pow(2, 3))
  end)
end)

describe("a deep graph", function()
  it("is walked without recursion", function()
    local s = V("x")
    for _ = 1, 20000 do
      s = s + 1
    end
    assert.same({ "x" }, s:list_arguments())
    assert.equal(20001, #s:get_internals())
    assert.same({ 2 }, select(2, s:infer_shape{ x = { 2 } })[1])
    assert.equal(s:tojson(), ty.sym.load_json(s:tojson()):tojson())
  end)
end)
