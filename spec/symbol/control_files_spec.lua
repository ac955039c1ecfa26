-- Control flow from files that say what no loop can be: places of variables that are not there,
-- bodies too many or too few, counts that do not agree. Refused when shapes are asked for.

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"
require "spec.helper"

local V, contrib, Group = ty.sym.Variable, ty.sym.contrib, ty.sym.Group

local function foreach_loop()
  local outs, state = contrib.foreach(function(x, s) return x * V("w"), s + x end, V("x"), V("s"))
  return Group{ outs, state }
end

local function while_loop()
  local outs, vars = contrib.while_loop{ cond = function(i) return ty.sym.sum(i):lt(V("most")) end,
    func = function(i, s) return s, { i + 1, s + i * V("w") } end, loop_vars = { V("i"), V("s") },
    max_iterations = 5 }
  return Group{ outs, vars[1], vars[2] }
end

local function choice()
  return contrib.cond(ty.sym.sum(V("p")), function() return V("a") * 2 end,
    function() return V("b") * V("c") end)
end

local SHAPES = { foreach = { x = { 3, 2 }, s = { 2 }, w = { 2 } },
  while_loop = { i = { 1 }, s = { 1 }, w = { 1 }, most = { 1 } },
  cond = { p = { 1 }, a = { 2 }, b = { 2 }, c = { 2 } } }
local MADE = { foreach = foreach_loop, while_loop = while_loop, cond = choice }

-- Returns the file of a loop with other words in it; changes: {key or text = new value, ...}.
local function changed(text, changes)
  for key, value in pairs(changes) do
    local from, to = key, value
    if key:find("^[%w_]+$") then
      from, to = ('"%s": "[^"]*"'):format(key), ('"%s": "%s"'):format(key, value)
    end
    local n
    text, n = text:gsub(from, function() return to end, 1)
    assert.equal(1, n, key)
  end
  return text
end

-- Returns the file without the k-th body, or with it twice.
local function without_body(text, first)
  local list = text:match('"subgraphs": (%b[])')
  local bodies = {}
  for body in list:sub(2, -2):gmatch("%b{}") do
    bodies[#bodies + 1] = body
  end
  local kept = first and { unpack(bodies, 2) } or { bodies[1], unpack(bodies) }
  local at, to = text:find(list, 1, true)
  return text:sub(1, at - 1) .. "[" .. table.concat(kept, ", ") .. "]" .. text:sub(to + 1)
end

local function refused(kind, text, code, message)
  local net = ty.sym.load_json(text)
  local shapes = { ctx = ty.cpu() }
  for name, shape in pairs(SHAPES[kind]) do
    shapes[name] = shape
  end
  for _, asked in ipairs{ function() return net:infer_shape(SHAPES[kind]) end,
    function() return net:simple_bind(shapes) end } do
    local ok, e = pcall(asked)
    assert.is_false(ok, message)
    assert.truthy(e.message:find(message, 1, true), e.message .. " -- " .. message)
    assert.equal(code, e.code)
    assert.equal("_" .. kind, e.op)
    assert.equal("_" .. kind .. "0", (e.node:gsub("%d+", "0")))
  end
end

local CASES = {
  foreach = {
    { { in_data_locs = "[3]" }, "in_data_locs" }, { { in_data_locs = "[-2]" }, "in_data_locs" },
    { { in_state_locs = "[3]" }, "in_state_locs" }, { { in_state_locs = "[-2]" }, "in_state_locs" },
    { { remain_locs = "[3]" }, "remain_locs" }, { { remain_locs = "[-1]" }, "remain_locs" },
    { { remain_locs = "[]" }, "num_args" }, { { in_data_locs = "[0, 0]" }, "num_args" },
    { { num_out_data = "0" }, "num_out_data" }, { { num_out_data = "2" }, "num_out_data" },
    { { num_outputs = "3", num_out_data = "2" }, "num_outputs" },
    { { ['"heads": %[%[2, 0, 0%], %[4, 0, 0%]%]'] =
      '"heads": [[2, 0, 0], [4, 0, 0], [4, 0, 0]]' }, "num_outputs" },
    { { in_data_locs = "[2]" }, "the places of their variables" },
    { { remain_locs = "[0]" }, "the places of their variables" },
  },
  while_loop = {
    { { cond_input_locs = "[0, 4]" }, "cond_input_locs" },
    { { cond_input_locs = "[-1, 1]" }, "cond_input_locs" },
    { { cond_input_locs = "[0]" }, "cond_input_locs" },
    { { cond_input_locs = "[0, 1, 1]" }, "cond_input_locs" },
    { { func_input_locs = "[2, 0, 4]" }, "func_input_locs" },
    { { func_input_locs = "[2, 0, -1]" }, "func_input_locs" },
    { { func_input_locs = "[2, 0]" }, "func_input_locs" },
    { { func_var_locs = "[1, 3]" }, "func_var_locs" },
    { { func_var_locs = "[-1, 0]" }, "func_var_locs" },
    { { func_var_locs = "[1]" }, "num_out_data" }, { { num_out_data = "0" }, "num_out_data" },
    { { num_outputs = "4", num_out_data = "2" }, "num_outputs" },
    { { ['"heads": %[%[(%d+), 0, 0%]%]'] = '"heads": [[3, 0, 0], [3, 0, 0]]' }, "num_outputs" },
  },
  cond = {
    { { cond_input_locs = "[4]" }, "cond_input_locs" }, { { cond_input_locs = "[]" }, "cond_input_locs" },
    { { then_input_locs = "[-1]" }, "then_input_locs" },
    { { then_input_locs = "[1, 2]" }, "then_input_locs" },
    { { else_input_locs = "[2]" }, "else_input_locs" },
    { { else_input_locs = "[2, 9]" }, "else_input_locs" },
    { { ['"heads": %[%[(%d+), 0, 0%]%]'] = '"heads": [[0, 0, 0], [0, 0, 0]]' }, "cond_input_locs" },
    { { num_outputs = "2" }, "then_input_locs" },
  },
}
local BODIES = { foreach = 1, while_loop = 2, cond = 3 }

for kind, cases in pairs(CASES) do
  describe("a file with " .. kind, function()
    it("is read as it was written", function()
      local net = MADE[kind]()
      local again = ty.sym.load_json(net:tojson())
      assert.equal(net:tojson(), again:tojson())
      assert.same({ net:infer_shape(SHAPES[kind]) }, { again:infer_shape(SHAPES[kind]) })
    end)

    it("is refused where its bodies and their places do not fit", function()
      local text = MADE[kind]():tojson()
      for _, case in ipairs(cases) do
        refused(kind, changed(text, case[1]), "format", "its bodies and " .. case[2]
          .. " do not fit together")
      end
    end)

    it("is refused with other numbers of bodies", function()
      local text, n = MADE[kind]():tojson(), BODIES[kind]
      refused(kind, without_body(text, true), "value",
        ("%d bodies, expected %d; build it with ty.sym.contrib"):format(n - 1, n))
      refused(kind, without_body(text), "value",
        ("%d bodies, expected %d; build it with ty.sym.contrib"):format(n + 1, n))
    end)
  end)
end

-- Returns a file in which a body's variable has a shape.
local function with_shape(text, name, shape, which)
  local to = 0
  for _ = 1, which or 1 do
    local at
    at, to = text:find('"name": "' .. name .. '[^"]*", *\n *"attrs": {"__subgraph_name__"', to + 1)
    assert.truthy(at, name)
  end
  return text:sub(1, to):gsub('"__subgraph_name__"$', ('"__shape__": "%s", "__subgraph_name__"')
    :format(shape)) .. text:sub(to + 1)
end

describe("what a body says of shapes", function()
  local function disagrees(net, shapes, op)
    local ok, e = pcall(net.infer_shape, net, shapes)
    assert.is_false(ok, net:tojson())
    assert.equal("shape", e.code)
    if op then assert.equal(op, e.op, e.message) end
    local given = { ctx = ty.cpu() }
    for name, shape in pairs(shapes) do given[name] = shape end
    assert.raises("shape", net.simple_bind, net, given)
  end

  it("agrees with what is around a loop over rows", function()
    local text = foreach_loop():tojson()
    for name, shape in pairs{ ["x%-"] = "(7,)", ["s%-"] = "(2, 1)", w = "(3,)" } do
      -- the variable in the body, of w after the one around
      local inside = with_shape(text, name, shape, name == "w" and 2 or 1)
      disagrees(ty.sym.load_json(inside), SHAPES.foreach, "_foreach")
      local right = with_shape(text, name, "(2,)", name == "w" and 2 or 1)
      assert.same({ SHAPES.foreach.x, SHAPES.foreach.s, SHAPES.foreach.w },
        (ty.sym.load_json(right):infer_shape(SHAPES.foreach)))
    end
    local outs, state = contrib.foreach(function(x, s) return x * 2, s + x end, V("x"), V("s"))
    disagrees(outs + V("y"), { x = { 3, 2 }, s = { 2 }, y = { 3, 5 } })
    disagrees(state + V("y"), { x = { 3, 2 }, s = { 2 }, y = { 5 } })
    outs, state = contrib.foreach(function(x, s)
      return x, ty.sym.concat{ s, s, dim = 0 }
    end, V("x"), V("s"))
    disagrees(Group{ outs, state }, { x = { 3, 2 }, s = { 2 } }, "_foreach")
  end)

  it("agrees with what is around a loop with a condition", function()
    local text = while_loop():tojson()
    for _, name in ipairs{ "most", "w" } do
      disagrees(ty.sym.load_json(with_shape(text, name, "(3,)", 2)), SHAPES.while_loop,
        "_while_loop")
    end
    local shapes = { i = { 1 }, s = { 1 }, w = { 1 }, most = { 1 }, y = { 5, 2 } }
    disagrees(while_loop()[1] + V("y"), shapes)
    shapes.y = { 2 }
    disagrees(while_loop()[2] + V("y"), shapes)
    local outs, vars = contrib.while_loop{ cond = function(i) return ty.sym.sum(i):lt(3) end,
      func = function(i) return i, ty.sym.concat{ i, i, dim = 0 } end, loop_vars = V("i"),
      max_iterations = 2 }
    disagrees(Group{ outs, vars }, { i = { 1 } }, "_while_loop")
  end)

  it("agrees with what is around a choice, and the other branch", function()
    local text = choice():tojson()
    disagrees(ty.sym.load_json(with_shape(text, "a", "(3,)", 2)), SHAPES.cond, "_cond")
    disagrees(choice(), { p = { 1 }, a = { 2 }, b = { 3 }, c = { 3 } })
    disagrees(choice() + V("y"), { p = { 1 }, a = { 2 }, b = { 2 }, c = { 2 }, y = { 4 } })
    local e = assert.raises("dtype", function()
      contrib.cond(ty.sym.sum(V("p")), function() return V("a") end, function() return V("b") end)
        :infer_type{ a = "float32", b = "int32" }
    end)
    assert.equal("_cond", e.op)
  end)
end)

describe("a loop", function()
  it("runs at least once and at most 100000 times", function()
    local text = while_loop():tojson()
    local shapes = { ctx = ty.cpu(), i = { 1 }, s = { 1 }, w = { 1 }, most = { 1 } }
    local e = assert.raises("value", function()
      ty.sym.load_json(changed(text, { max_iterations = "100001" })):simple_bind(shapes)
    end)
    assert.truthy(e.message:find("100001 iterations; expected 1 to 100000", 1, true), e.message)
    e = assert.raises("value", ty.sym.load_json, (changed(text, { max_iterations = "0" })))
    assert.truthy(e.message:find("max_iterations", 1, true), e.message)
    local _, state = contrib.foreach(function(x, s) return {}, s + x end, V("x"), V("s"))
    local none = changed(state:tojson(), { in_data_locs = "[]", remain_locs = "[0]",
      in_state_locs = "[1]" })
    e = assert.raises("value", function()
      ty.sym.load_json(none):simple_bind{ ctx = ty.cpu(), x = { 2 }, s = { 2 } }
    end)
    assert.truthy(e.message:find("0 iterations; expected 1 to 100000", 1, true), e.message)
  end)

  local NODE = '{"nodes": [{"op": "null", "name": "x", "inputs": []}, {"op": "%s", "name": "c", \z
    "attrs": {%s}, "inputs": [[0, 0, 0]]%s}], "arg_nodes": [0], "heads": [[1, 0, 0]]}'
  local BODY = '{"nodes": [{"op": "null", "name": "x", "inputs": []}], "arg_nodes": [0], \z
    "heads": [[0, 0, 0]]}'

  it("by itself, without bodies, is none", function()
    local net = ty.sym.load_json(NODE:format("_cond", '"num_args": "4", "num_outputs": "1", \z
      "cond_input_locs": "[0]", "then_input_locs": "[0]", "else_input_locs": "[0]"', ""))
    for _, asked in ipairs{ function() net:infer_shape{ x = { 1 } } end,
      function() net:simple_bind{ ctx = ty.cpu(), x = { 1 } } end } do
      local e = assert.raises("value", asked)
      assert.truthy(e.message:find("0 bodies, expected 3", 1, true), e.message)
    end
  end)

  it("is what bodies are for, and no other operator", function()
    for n = 1, 3 do
      local text = NODE:format("relu", "", ', "subgraphs": [' .. BODY .. (", " .. BODY):rep(n - 1)
        .. "]")
      local e = assert.raises("value", ty.sym.load_json, text)
      assert.truthy(e.message:find("it has no bodies, but was given " .. n, 1, true), e.message)
      assert.equal("relu c", e.op .. " " .. e.node)
    end
    local g, body = interface.graph(), interface.graph()
    local x = interface.var(g, "x")
    interface.var(body, "y")
    interface.takes("ty_graph_subgraph", g, body)
    interface.fails("value", "relu c: it has no bodies, but was given 1", "ty_graph_op", g, "relu",
      "c", nil, 0, interface.entries{ x }, 1, ffi.new("ty_entry[1]"))
    interface.op(g, "relu", "c", { x })                   -- they were for the one that was refused
    -- what C makes has no heads, so it is no body yet
    interface.takes("ty_graph_subgraph", g, body)
    interface.op(g, "_foreach", "f", { x }, { "num_args", "2", "num_outputs", "1", "num_out_data",
      "1", "in_data_locs", "(0,)", "in_state_locs", "()", "remain_locs", "()" })
    interface.fails("format", "_foreach f: _foreach f: its bodies and their outputs do not fit \z
      together (inputs: data0 (?))", "ty_graph_infer", g, nil, 0, 1, ffi.new("ty_desc[9]"))
    interface.fails("type", "graph_subgraph: a graph and another graph are needed",
      "ty_graph_subgraph", g, g)
  end)
end)
