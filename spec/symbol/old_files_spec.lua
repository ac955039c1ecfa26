-- Files of graphs that earlier versions of the reference engine wrote: missing auxiliary states,
-- keys in their old spelling, on the operator instead of on its weight; and what no writer writes,
-- but readers must take or refuse.

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"
require "spec.helper"

-- Returns a symbol file. version: 10901 for the present one, nil for a file that does not state it.
local function file(nodes, heads, version)
  return ('{"nodes": [%s], "arg_nodes": [], "heads": [%s]%s}'):format(table.concat(nodes, ", "),
    heads, version and (', "attrs": {"mxnet_version": ["int", %d]}'):format(version) or "")
end

local function node(op, name, inputs, attrs)
  return ('{"op": "%s", "name": "%s"%s, "inputs": [%s]}'):format(op, name,
    attrs and (', "attr": {%s}'):format(attrs) or "", inputs)
end

local function load_failing(text)
  local ok, e = pcall(ty.sym.load_json, text)
  assert.is_false(ok)
  return e.code, e.message
end

describe("an old file of a graph", function()
  it("gets the auxiliary states that it lacks", function()
    local text = file({ node("null", "x", ""), node("null", "g", ""), node("null", "b", ""),
      node("BatchNorm", "bn", "[0, 0], [1, 0], [2, 0]", '"momentum": "0.5", "lr_mult": "3"') },
      "[3, 0]")
    local net = ty.sym.load_json(text)
    assert.same({ "x", "g", "b" }, net:list_arguments())
    assert.same({ "bn_moving_mean", "bn_moving_var" }, net:list_auxiliary_states())
    local attrs = net:attr_dict()
    assert.same({ "3", "0.5", '["one", {}]' }, { attrs.bn_moving_var.__lr_mult__,
      attrs.bn_moving_var.momentum, attrs.bn_moving_var.__init__ })
    assert.equal('["zero", {}]', attrs.bn_moving_mean.__init__)
    assert.equal("3", attrs.bn.__lr_mult__)
    local again = net:tojson()
    assert.truthy(again:find("[3, 0, 0], [4, 0, 0]]", 1, true))          -- its own versions
    assert.equal(again, ty.sym.load_json(again):tojson())
    -- as counted, where the outputs are others
    assert.truthy(net:get_internals().bn_output:tojson():find("[3, 0, 1], [4, 0, 1]]", 1, true))
    assert.equal("format", (load_failing(text:gsub('"heads"', '"attrs": {"mxnet_version": \z
      ["int", 900]}, "heads"'))))
  end)

  it("has keys where they belong, the last word counts", function()
    local function of_weight(own, giver_first)
      local fc = node("FullyConnected", "fc", ("[%d, 0], [%d, 0]"):format(
        giver_first and 1 or 0, giver_first and 2 or 1), '"num_hidden": "2", "no_bias": "True", \z
        "weight_lr_mult": "5", "nothing_lr_mult": "6", "data_wd_mult": "7"')
      local nodes = { node("null", "x", ""), node("null", "w", "", own), fc }
      if giver_first then
        nodes = { fc, nodes[1], nodes[2] }
      end
      local e = select(2, pcall(ty.sym.load_json, file(nodes,
        giver_first and "[0, 0]" or "[2, 0]", 1000)))
      assert.equal("name", e.code)                       -- nothing_lr_mult is no parameter
      for i, text in ipairs(nodes) do
        nodes[i] = text:gsub(', "nothing_lr_mult": "6"', "")
      end
      local net = ty.sym.load_json(file(nodes, giver_first and "[0, 0]" or "[2, 0]", 1000))
      assert.equal("7", net:attr_dict().x.__wd_mult__)
      assert.is_nil(net:attr_dict().fc.__lr_mult__)
      return net:attr_dict().w.__lr_mult__
    end
    assert.equal("5", of_weight())
    assert.equal("5", of_weight('"lr_mult": "1"'))
    assert.equal("5", of_weight('"__lr_mult__": "1"'))
    assert.equal("1", of_weight('"lr_mult": "1"', true))
    assert.equal("5", of_weight('"__lr_mult__": "1"', true))
  end)

  it("gives initialisers to variables that have none", function()
    local function init(own, version)
      local net = ty.sym.load_json(file({ node("null", "x", ""), node("null", "s", "", own),
        node("LeakyReLU", "l", "[0, 0], [1, 0]", '"act_type": "prelu"') }, "[2, 0]", version))
      return (net:attr_dict().s or {}).__init__
    end
    assert.equal('["Constant", {"value": 0.25}]', init(nil, 903))
    assert.equal("own", init('"__init__": "own"', 903))
    assert.is_nil(init(nil, 904))
  end)

  it("hands out what several say of one variable, in their order, initialisers last", function()
    local function attrs(own, version, more)
      local nodes = { node("null", "x", ""), node("null", "s", "", own),
        node("LeakyReLU", "l", "[0, 0], [1, 0]", '"act_type": "prelu", "gamma_lr_mult": "2", \z
          "gamma_wd_mult": "3", "data_lr_mult": "4"'),
        node("LeakyReLU", "m", "[2, 0], [1, 0]", '"act_type": "prelu", "gamma_lr_mult": "5"') }
      local net = ty.sym.load_json(file(nodes, "[3, 0]" .. (more or ""), version))
      return net:attr_dict()
    end
    for _, own in ipairs{ '"__k__": "1"', '"lr_mult": "9"',
      '"__wd_mult__": "9", "__lr_mult__": "8"' } do
      local all = attrs(own, 903)
      assert.equal("5", all.s.__lr_mult__)
      assert.equal("3", all.s.__wd_mult__)
      assert.equal('["Constant", {"value": 0.25}]', all.s.__init__)
      assert.equal("4", all.x.__lr_mult__)
      assert.is_nil(all.l.__lr_mult__)
      assert.is_nil(all.m.gamma_lr_mult)
      all = attrs(own, 904)
      assert.equal("5", all.s.__lr_mult__)
      assert.is_nil(all.s.__init__)
    end
    assert.equal("own", attrs('"__init__": "own"', 903).s.__init__)
  end)

  it("keeps with an operator what it says of an input that is no variable", function()
    local nodes = { node("null", "x", ""), node("null", "w", ""), node("relu", "r", "[1, 0]"),
      node("FullyConnected", "fc", "[0, 0], [2, 0]", '"num_hidden": "2", "no_bias": "True", \z
        "lr_mult": "7"'),
      node("LeakyReLU", "l", "[3, 0], [2, 0]", '"act_type": "prelu"') }
    local all = ty.sym.load_json(file(nodes, "[4, 0]", 800)):attr_dict()
    assert.equal("7", all.fc.__lr_mult__)
    assert.is_nil((all.w or {}).__lr_mult__)
    assert.is_nil((all.w or {}).__init__)
    nodes[4] = nodes[4]:gsub('"lr_mult"', '"weight_lr_mult"')
    -- no parameter of the operator
    assert.equal("name", (load_failing(file(nodes, "[4, 0]", 800))))
    nodes[4] = node("FullyConnected", "fc", "[0, 0], [1, 0]", '"num_hidden": "two", \z
      "weight_lr_mult": "7"')                             -- its inputs are unknown
    assert.equal("name", (load_failing(file(nodes, "[4, 0]", 800))))
    nodes[4] = node("FullyConnectod", "fc", "[0, 0], [1, 0]", '"weight_lr_mult": "7", \z
      "lr_mult": "1"')
    assert.equal("name", (load_failing(file(nodes, "[4, 0]", 800))))
  end)

  it("reduces over everything where the axis is -1", function()
    local function axis(op, value, version)
      return ty.sym.load_json(file({ node("null", "x", ""),
        node(op, "a", "[0, 0]", ('"axis": "%s"'):format(value)) }, "[1, 0]", version)):attr("axis")
    end
    assert.is_nil(axis("argmax", "-1", 904))
    assert.is_nil(axis("argmin", "-1", 904))
    assert.equal("1", axis("argmax", "1", 904))
    assert.equal("-1", axis("argmax", "-1", 905))
    assert.equal("-1", axis("sum", "-1", 904))
  end)
end)

describe("the reader of graphs", function()
  local x = node("null", "x", "")

  it("takes what comes first, of fields and of attributes", function()
    local many = {}
    for i = 1, 40 do
      many[i] = ('"__k%d__": "%d"'):format(i % 20, i)
    end
    local text = file({ '{"op": "null", "op": "relu", "name": "x", "attrs": {"__k1__": "first"}, \z
      "attr": {' .. table.concat(many, ", ") .. '}, "param": {"__k0__": "last"}, "inputs": []}' },
      "[0, 0]", 10901)
    local attrs = ty.sym.load_json(text):attr_dict().x
    assert.equal("first", attrs.__k1__)
    assert.equal("20", attrs.__k0__)
    assert.equal("19", attrs.__k19__)
  end)

  it("knows escapes, of names too", function()
    local net = ty.sym.load_json(file({ node("null", 'a\\"b\\\\c\\nd\\te\\rf', "") }, "[0, 0]"))
    assert.same({ 'a"b\\c\nd\te\rf' }, net:list_arguments())
    assert.equal(net:tojson(), ty.sym.load_json(net:tojson()):tojson())
    local code, message = load_failing('{"nodes\\x": []}')
    assert.equal("format", code)
    assert.truthy(message:find("byte 8: expected one of the escapes", 1, true))
    assert.equal("format", (load_failing('{"nodes\n": []}')))
    assert.equal("format", (load_failing('{"nodes')))
  end)

  it("refuses what the nodes refer to in vain", function()
    for _, case in ipairs{
      { { x, node("relu", "r", "[7, 0]") }, "[1, 0]", "node r: input 0 is node 7 of 2" },
      { { x, node("relu", "r", "[0, 1]") }, "[1, 0]", "input 0 is output 1 of x, which has 1" },
      { { x, node("relu", "r", "[2, 0]"), node("relu", "s", "[1, 0]") }, "[2, 0]",
        "node s is, through its inputs, an input of itself" },
      { { x, node("relu", "r", "[1, 0]") }, "[0, 0]", "node r is, through its inputs" },
      { { x, node("relu", "r", "[0, 0], [0, 0]") }, "[1, 0]", "expected 1 inputs, got 2" },
      { { x }, "[1, 0]", "head 0 is node 1 of 1" },
      { { x }, "[0, 1]", "head 0 is output 1 of x, which has 1" },
      { { x }, "", "the graph has no heads" },
      { { x }, "[0]", "expected [node, output, version], got a list" },
      { { x }, "[0, 0, 0, 0]", "expected [node, output, version], got a list" },
      { { x }, "0", "expected [node, output, version], got a number" },
      { { x }, "[0, -1]", "expected the number of an output, got another number" },
      { { x }, "[0.5, 0]", "expected the number of a node, got another number" },
      { { x }, "[2147483647, 0]", "expected the number of a node, got another number" },
      { { x }, "[-1, 0]", "expected the number of a node, got another number" },
      { { x }, '["0", 0]', "expected the number of a node, got a text" },
      { { x }, "[0, []]", "expected the number of an output, got a list" },
      { { x }, "[0, 0, {}]", "expected a version, got an object" },
      { { x, node("relu", "r", '["x", 0]') }, "[1, 0]",
        "expected the number of a node, got a text" },
      { { x, node("relu", "s", "[0, 0]"), node("BatchNorm", "b", "[0, 0], [0, 0], [0, 0], [0, 0], \z
        [1, 0]") }, "[2, 0]", "the operator changes input moving_var: a variable is \z
        needed, got s" },
      { { x, node("relu", "r", "[0, 0]"), '{"op": "relu", "name": 7, "inputs": [[1, 0]]}' },
        "[1, 0]", "expected a text, got a number" },
      { { node("null", "x", "[0, 0]") }, "[0, 0]", "expected no inputs of a variable, got some" },
      { { '{"op": 1, "name": "x", "inputs": []}' }, "[0, 0]", "expected a text, got a number" },
      { { '{"op": "null", "name": "x", "inputs": {}}' }, "[0, 0]", "expected a list" },
      { { '{"op": "null", "inputs": []}' }, "[0, 0]", 'field "name" is missing' },
      { { '{"op": "null", "nick": "x"}' }, "[0, 0]", 'unknown field "nick"' },
      { { "7" }, "[0, 0]", "expected an object, got a number" },
      { { x, '{"op": "relu", "name": "r", "inputs": [[0, 0]], "attrs": {"a": 1}}' }, "[0, 0]",
        "expected a text, got a number" },
      { { x, '{"op": "relu", "name": "r", "inputs": [[0, 0]], "attrs": []}' }, "[0, 0]",
        "expected an object of texts, got a list" },
      { { x, '{"op": "relu", "name": "r", "inputs": [[0, 0]], "subgraphs": {}}' }, "[0, 0]",
        "expected a list of graphs, got an object" },
      { { x, '{"op": "relu", "name": "r", "inputs": [[0, 0]], "subgraphs": [1]}' }, "[0, 0]",
        "expected an object, got a number" },
    } do
      for _, version in ipairs{ 10901, 800 } do
        local code, message = load_failing(file(case[1], case[2], version))
        assert.equal("format", code, message)
        assert.truthy(message:find(case[3], 1, true), message)
      end
    end
  end)

  it("refuses arguments that are none, and attributes of another form", function()
    local text = file({ x, node("relu", "r", "[0, 0]") }, "[1, 0]", 10901)
    for from, to in pairs{
      ['"arg_nodes": %[%]'] = '"arg_nodes": [1]',
      ['nodes": %[%]'] = 'nodes": [2]',
      ['%["int", 10901%]'] = '["int"]',
      ["10901"] = '"10901"',
      ['%["int", 1'] = '["int", -1',
      ['"int", 10901'] = '"int", 0.5',
      ['"arg_nodes": %[()'] = '"arg_nodes": ["x"',
      ['"heads": %['] = '"heads": 1, "x": [',
      ['"attrs": {"mx'] = '"attrs": [], "attrs": {"mx',
      ['{"mxnet_version.*'] = '{"tycho_rows": ["str", 1]}}',
    } do
      local changed, n = text:gsub(from, to)
      assert.equal(1, n, from)
      assert.equal("format", (load_failing(changed)), from)
    end
    assert.equal("name", (load_failing(file({ x, node("relo", "r", "[0, 0]") }, "[1, 0]", 10901))))
  end)

  it("refuses what would take more memory than its text allows", function()
    local code, message = load_failing(file({ x }, ("[0, 0], "):rep(700000) .. "[0, 0]", 10901))
    assert.equal("format", code)
    assert.truthy(message:find("the graph would take more memory than 64 MiB and 4 times its text",
      1, true), message)
  end)

  it("counts the outputs of an operator written in Lua, which its file leaves out", function()
    local read, n = ffi.new("ty_node"), ffi.new("int[1]")
    for heads, want in pairs{ ["[1, 0]"] = 2, ["[1, 2]"] = 3, ["[2, 0]"] = 2,
      ["[1, 999]"] = 1000 } do
      local g = interface.make("ty_graph", "ty_graph_parse", file({ x, node("Custom", "c", "[0, 0]",
        '"op_type": "spec_unknown"'), node("relu", "r", "[1, 1]") }, heads, 10901))
      interface.takes("ty_graph_version", g, n)
      assert.equal(10901, n[0])
      interface.takes("ty_graph_node", g, 1, read)
      assert.equal(want, read.nout)
    end
    local text = file({ x, node("Custom", "c", "[0, 0]", '"op_type": "spec_unknown"') },
      "[1, 1000]", 10901)
    interface.fails("format", "head 0 is output 1000 of c, which has 1", "ty_graph_parse", text,
      ffi.new("ty_graph *[1]"))
  end)

  it("leaves out what no head reaches", function()
    local net = ty.sym.load_json(file({ x, node("relo", "r", "[0, 0]"), node("relu", "s", "[0, 0]"),
      node("relu", "t", "[2, 0]") }, "[2, 0]", 10901))
    assert.equal(2, #net:get_internals())
  end)
end)
