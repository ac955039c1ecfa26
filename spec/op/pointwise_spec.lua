-- Operators that users add as rows of text: ty.op.pointwise, ty_op_pointwise, and rows in files.

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"
require "spec.helper"

local C = interface.C
local V = ty.sym.Variable

local function row(fields)
  local grad = ffi.new("const char *[6]")
  for i = 1, 6 do
    grad[i - 1] = fields.grad and fields.grad[i] or nil
  end
  return C.ty_op_pointwise(fields.name, fields.args or "a", fields.params, fields.formula or "a",
    fields.grad and grad, fields.doc), fields
end

local function definition(name)
  local text = ffi.new("const char *[1]")
  interface.takes("ty_op_row", name, text)
  return text[0] ~= nil and ffi.string(text[0]) or nil
end

describe("a row of text", function()
  it("is an operator of several inputs, which broadcast, and numbers", function()
    ty.op.pointwise{ name = "spec_mix", args = { "left", "right" }, params = { "t", bias = 0.5 },
      formula = "$t * a + (1 - $t) * b * b + $bias",
      grad = { "g * $t", "g * (1 - $t) * 2 * b" }, doc = "Mixes." }
    local x, y = ty.nd.array{ { 1 }, { 2 } }, ty.nd.array{ 3, 4, 5 }
    assert.near({ { 7.5, 12.75, 19.5 }, { 7.75, 13, 19.75 } },
      ty.nd.spec_mix{ left = x, right = y, t = 0.25 })
    assert.near({ { 8, 13.25, 20 } }, ty.nd.spec_mix{ ty.nd.array{ { 1 } }, y, t = 0.25, bias = 1 })
    local info = ty.op.info("spec_mix")
    assert.same({ "left", "right" }, info.inputs)
    assert.same({ "t", "bias" }, { info.params[1].name, info.params[2].name })
    assert.equal("0.5", info.params[2].default)
    assert.equal("Mixes.", info.doc)
    local e = assert.raises("shape", ty.nd.spec_mix, { ty.nd.ones{ 2, 2 }, y, t = 1 })
    assert.truthy(e.message:find("right: 3 does not broadcast with 2", 1, true), e.message)
    assert.truthy(assert.raises("value", ty.nd.spec_mix, { x, y }).message:find("t", 1, true))
    local net = ty.sym.spec_mix{ V("x"), V("y"), t = 0.25 }
    ty.test_utils.check_numeric_gradient{ net, { x = ty.nd.array({ { 1 }, { 2 } }),
      y = ty.nd.array({ 3, 4, 5 }) }, numeric_eps = 1e-2, rtol = 1e-2, atol = 1e-2 }
    assert.same({ { 2, 3 } }, (select(2, net:infer_shape{ x = { 2, 1 }, y = { 3 } })))
    assert.is_nil((select(2, net:infer_shape_partial{ x = { 2, 1 } }))[1][1])
  end)

  it("has zero gradients where it gives none", function()
    assert.equal(0, row{ name = "spec_half", args = "a b", formula = "a * b", grad = { nil, "g" } })
    local x, dx, dy = ty.nd.array{ 2, 3 }, ty.nd.ones(2), ty.nd.zeros(2)
    local e = ty.sym.spec_half{ V("x"), V("y") }:bind{ ctx = ty.cpu(),
      args = { x = x, y = x }, args_grad = { x = dx, y = dy } }
    e:forward{ is_train = true }
    e:backward(ty.nd.array{ 5, 6 })
    assert.near({ 0, 0 }, dx)
    assert.near({ 5, 6 }, dy)
    local how = ffi.new("const char *[1]")
    interface.takes("ty_op_gradient", "spec_half", how)
    assert.equal("b: g", ffi.string(how[0]))
    assert.equal(0, row{ name = "spec_flat" })
    interface.takes("ty_op_gradient", "spec_flat", how)
    assert.equal("zero", ffi.string(how[0]))
  end)

  it("is refused where it says nothing that can be computed", function()
    local long = ("x"):rep(127)
    for _, case in ipairs{
      { { name = "" }, "'' is no name for an operator", "name" },
      { { name = "2x" }, "'2x' is no name for an operator", "name" },
      { { name = "a-b" }, "'a-b' is no name for an operator", "name" },
      { { args = "" }, "an operator needs at least one input", "args" },
      { { args = " , " }, "an operator needs at least one input", "args" },
      { { args = "a 1" }, "'1' is no name for an input", "args" },
      { { args = "a,b c,d e f,g" }, "more than 6 inputs (g)", "args" },
      { { args = "a b a" }, "two inputs are called 'a'", "args" },
      { { args = "a x" .. long }, "'" .. long:sub(1, 40) .. "...' is no name for an input",
        "args" },
      { { params = "$p" }, "'$p' is no name for a parameter", "params" },
      { { params = "p =1" }, "'' is no name for a parameter", "params" },
      { { params = "p q=1 p=2" }, "two parameters are called 'p'", "params" },
      { { params = "p=" }, "the default of 'p' is no number", "params" },
      { { params = "p=1x" }, "the default of 'p' is no number", "params" },
      { { params = "p=" .. ("1"):rep(130) }, "the default of 'p' is no number", "params" },
      { { params = "a b c d e f g h i j k l m n o p q" }, "more than 16 parameters (q)", "params" },
    } do
      local fields = case[1]
      fields.name = fields.name or "spec_refused"
      assert.equal(1, (row(fields)), case[2])
      assert.equal("op_pointwise: " .. case[2], ffi.string(C.ty_error()))
      local detail = ffi.new("ty_failure")
      interface.takes("ty_error_detail", detail)
      assert.equal(case[3], ffi.string(detail.argument))
    end
    for text, fields in pairs{
      ["formula 'b', column 1: there is no variable 'b'"] = { formula = "b" },
      ["formula 'y', column 1: there is no variable 'y'"] = { formula = "y" },
      ["formula '$p', column 2: there is no parameter 'p'"] = { formula = "$p", params = "q" },
      ["formula 'g * c', column 5: there is no variable 'c'"] = { grad = { "g * c" } },
    } do
      fields.name = "spec_refused"
      assert.equal(1, (row(fields)), text)
      assert.equal(text, ffi.string(C.ty_error()))
    end
    assert.is_nil(definition("spec_refused"))
  end)

  it("is there once, and nothing else is called so", function()
    assert.equal(0, row{ name = "spec_once", params = "p=1", formula = "a + $p", doc = "Adds." })
    assert.equal(0, row{ name = "spec_once", params = "p=1", formula = "a + $p", doc = "Adds." })
    for _, other in ipairs{ { params = "p=1", formula = "a + $p" },
      { params = "p=2", formula = "a + $p", doc = "Adds." }, { formula = "a", doc = "Adds." } } do
      other.name = "spec_once"
      assert.equal(3, (row(other)))
      assert.equal("op_pointwise: there is an operator 'spec_once' already, with other formulas",
        ffi.string(C.ty_error()))
    end
    for _, name in ipairs{ "relu", "_relu", "elemwise_add" } do
      if pcall(ty.op.info, name) then
        assert.equal(3, (row{ name = name }))
        assert.equal(("op_pointwise: there is an operator '%s' already, with other code"):format(
          name), ffi.string(C.ty_error()))
      end
    end
  end)

  it("takes as many inputs and parameters as there may be", function()
    assert.equal(0, (row{ name = "spec_six", args = "a,b,c d e f",
      formula = "a+b+c+d+e+f + $p1 + $p16",
      params = "p1=1 p2=2 p3=3 p4=4 p5=5 p6=6 p7=7 p8=8 p9 p10 p11 p12 p13 p14 p15 p16=1e1" }))
    local x, given = ty.nd.ones(3), {}
    for i = 1, 6 do given[i] = x end
    for i = 9, 15 do given["p" .. i] = i end
    assert.near({ 17, 17, 17 }, ty.nd.spec_six(given))
  end)

  it("goes through files, whatever stands in its texts", function()
    ty.op.pointwise{ name = "spec_lines", args = { "a" }, params = { p = 2 },
      formula = "a *\n\t$p", grad = { "g *\n$p" }, doc = "One line,\nanother,\r\n\tand a third." }
    local text = ty.sym.spec_lines{ V("x"), name = "l" }:tojson()
    local again = ty.sym.load_json(text)
    assert.equal(text, again:tojson())
    assert.equal("spec_lines\ta\tp=2\ta *  $p\tg * $p\t\t\t\t\t\tOne line, another,   and a third.",
      definition("spec_lines"))
    local e = again:simple_bind{ ctx = ty.cpu(), x = { 2 } }
    e.arg_dict.x[":"] = 3
    assert.near({ 6, 6 }, e:forward()[1])
  end)
end)

describe("a graph with rows", function()
  it("carries each once, those of bodies too", function()
    for k = 1, 3 do
      assert.equal(0, (row{ name = "spec_carried" .. k, formula = "a + " .. k }))
    end
    local x = ty.sym.spec_carried1{ ty.sym.spec_carried2{ ty.sym.spec_carried1{ V("x") } } }
    local outs = ty.sym.contrib.foreach(function(y, s)
      return ty.sym.spec_carried3{ ty.sym.spec_carried2{ y } }, s
    end, x, V("s"))
    local text = outs:tojson()
    local rows = text:match('"tycho_rows": %["str", "(.-)"%]')
    local names = {}
    for name in rows:gsub("\\n", "\n"):gmatch("([%w_]+)\\t[^\n]*") do
      if name:find("^spec_carried") then names[#names + 1] = name end
    end
    table.sort(names)
    assert.same({ "spec_carried1", "spec_carried2", "spec_carried3" }, names)
    assert.equal(text, ty.sym.load_json(text):tojson())
  end)

  it("may be empty", function()
    local text = ffi.new("const char *[1]")
    interface.takes("ty_graph_text", interface.graph(), nil, 0, text)
    assert.equal('{"nodes":[],"arg_nodes":[],"node_row_ptr":[0],"heads":[],"attrs":\z
      {"mxnet_version":["int",10901]}}', (ffi.string(text[0]):gsub("%s", "")))
    interface.fails("format", "the graph has no heads", "ty_graph_parse", ffi.string(text[0]),
      ffi.new("ty_graph *[1]"))
  end)
end)

describe("rows in a file", function()
  local function file(rows)
    return ('{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], \z
      "heads": [[0, 0, 0]], "attrs": {"mxnet_version": ["int", 10901], "tycho_rows": ["str", "%s"]}}')
      :format(rows)
  end

  local function line(name, formula, doc)
    return ([[%s\ta\t\t%s\tg\t\t\t\t\t\t%s]]):format(name, formula, doc or "")
  end

  it("become operators", function()
    local net = ty.sym.load_json(file(line("spec_file_a", "a + 1") .. [[\n\n]]
      .. line("spec_file_b", "a + 2", "Two.") .. [[\n]]))
    assert.same({ "x" }, net:list_arguments())
    assert.near({ 4, 5 }, ty.nd.spec_file_a{ ty.nd.spec_file_b{ ty.nd.array{ 1, 2 } } })
    assert.equal("Two.", ty.op.info("spec_file_b").doc)
    assert.equal("", ty.op.info("spec_file_a").doc)
  end)

  it("are refused where they are no definitions", function()
    for _, case in ipairs{
      { "format", "spec_file_c", "tycho_rows: a definition with 1 fields; expected 11" },
      { "format", line("spec_file_c", "a"):sub(1, -7), "a definition with 8 fields; expected 11" },
      { "value", line("spec_file_c", "a + b"), "there is no variable 'b'" },
      { "value", line("spec-file", "a"), "'spec-file' is no name for an operator" },
      { "name", line("relu", "a"), "there is an operator 'relu' already, with other code" },
      { "value", line("spec_file_c", "b") .. [[\n]] .. line("spec_file_d", "a"), "variable 'b'" },
    } do
      local ok, e = pcall(ty.sym.load_json, file(case[2]))
      assert.is_false(ok)
      assert.equal(case[1], e.code, case[3])
      assert.truthy(e.message:find(case[3], 1, true), e.message)
    end
    assert.is_nil(definition("spec_file_c"))
    assert.is_nil(definition("spec_file_d"))
  end)
end)
