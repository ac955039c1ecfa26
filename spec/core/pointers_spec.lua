-- Functions of graphs, executors and operators refuse each null pointer that they need, the others
-- given, and indices past either end, with a text that says who was called.

local ffi = require "ffi"
local interface = require "spec.support.interface"

local fails = interface.fails

-- Returns an executor of "net", y = relu(x + b), bound to arrays with gradients.
local function example()
  local g = interface.graph()
  local x, b = interface.var(g, "x"), interface.var(g, "b")
  local sum = interface.op(g, "elemwise_add", "sum", { x, b })
  local y = interface.op(g, "relu", "y", { sum })
  local a = ffi.new("ty_bind[2]")
  local held = { interface.tensor({ 2 }, { -1, 2 }), interface.tensor({ 2 }, { 0, 1 }),
    interface.tensor({ 2 }, { 0, 0 }) }
  a[0].name, a[0].value, a[0].grad, a[0].req = "x", held[1], held[3], 1
  a[1].name, a[1].value = "b", held[2]
  local head = interface.entries{ y }
  local spec = ffi.new("ty_bind_spec", { head = head, nhead = 1, arg = a, narg = 2 })
  held.exec = interface.make("ty_exec", "ty_exec_bind", g, spec)
  held.spec, held.head, held.arg = spec, head, a
  return g, held.exec, held
end

describe("a null pointer", function()
  local g, e, held = example()
  local entry, text, number = ffi.new("ty_entry[1]"), ffi.new("const char *[1]"), ffi.new("int[1]")
  local graph, exec, tensor = ffi.new("ty_graph *[1]"), ffi.new("ty_exec *[1]"),
    ffi.new("ty_tensor *[1]")
  local names, entries = ffi.new("const char *const *[1]"), ffi.new("const ty_entry *[1]")
  local simple, reshape = ffi.new("ty_simple_spec"), ffi.new("ty_reshape_spec")
  local node, desc = ffi.new("ty_node"), ffi.new("ty_desc[8]")

  -- name, text, the pointers that are needed (their positions), all arguments
  local CALLS = {
    { "graph_new", "graph_new: null argument", { 1 }, graph },
    { "graph_var", "graph_var: null argument", { 1, 2, 5 }, g, "v", nil, 0, entry },
    { "graph_subgraph", "graph_subgraph: a graph and another graph are needed", { 1, 2 }, g, g },
    { "graph_op", "graph_op: null argument", { 1, 8 }, g, "relu", "r", nil, 0, entry, 1, entry },
    { "graph_infer", "graph_infer: null argument", { 1, 5 }, g, nil, 0, 1, desc },
    { "graph_text", "graph_text: null argument", { 1, 2, 4 }, g, held.head, 1, text },
    { "graph_parse", "graph_parse: null argument", { 1, 2 }, "{}", graph },
    { "graph_load", "graph_load: null argument", { 1, 2 }, "nothing.json", graph },
    { "graph_version", "graph_version: null argument", { 1, 2 }, g, number },
    { "graph_heads", "graph_heads: null argument", { 1, 2, 3 }, g, entries, number },
    { "graph_size", "graph_size: null argument", { 1, 2 }, g, number },
    { "graph_node", "graph_node: null argument", { 1, 3 }, g, 0, node },
    { "graph_body", "graph_body: null argument", { 1, 4 }, g, 0, 0, graph },
    { "exec_bind", "bind: null argument", { 1, 2, 3 }, g, held.spec, exec },
    { "exec_simple_bind", "simple_bind: null argument", { 1, 2, 3 }, g, simple, exec },
    { "exec_reshape", "reshape: null argument", { 1, 2, 3 }, e, reshape, exec },
    { "exec_outputs", "outputs: null argument", { 1, 2 }, e, number },
    { "exec_output", "output: null argument", { 1, 3 }, e, 0, tensor },
    { "exec_arg", "arg: null argument", { 1, 2, 3 }, e, "x", tensor },
    { "exec_grad", "grad: null argument", { 1, 2, 3 }, e, "x", tensor },
    { "exec_aux", "aux: null argument", { 1, 2, 3 }, e, "x", tensor },
    { "exec_names", "names: null argument", { 1, 3, 4 }, e, 0, names, number },
    { "exec_print", "debug_str: null argument", { 1, 2 }, e, text },
    { "exec_program", "program: null argument", { 1, 2 }, e, text },
    { "exec_optimized", "optimized: null argument", { 1, 2 }, e, graph },
    { "exec_memory", "memory: null argument", { 1, 2 }, e, ffi.new("ty_memory") },
    { "exec_value", "value: null argument", { 1, 3 }, e, 0, ffi.new("ty_value") },
    { "exec_regraph", "regraph: null argument", { 1, 2 }, e, g },
    { "exec_stats", "stats: null argument", { 1, 2 }, e, ffi.new("ty_stats") },
    { "exec_profile", "profile: null argument", { 1, 3 }, e, nil, number },
    { "exec_pool", "pool: null argument", { 1, 2 }, e, ffi.new("ty_pool *[1]") },
    { "exec_partial_forward", "partial_forward: null argument", { 4 }, e, 0, 0, number },
    { "op_gradient", "op_gradient: null argument", { 1, 2 }, "relu", text },
    { "op_find", "op_find: null argument", { 1, 2 }, "relu", number },
    { "op_ports", "op_ports: null argument", { 1, 5, 6 }, "relu", nil, 0, -1, text, text },
    { "op_cuda", "op_cuda: null argument", { 2 }, "relu", text },
    { "op_gpu", "op_gpu: null argument", { 3 }, "relu", 0, text },
    { "op_row", "op_row: null argument", { 1, 2 }, "relu", text },
    { "op_pointwise", "op_pointwise: name, inputs and formula are needed", { 1, 2, 4 },
      "spec_none", "a", nil, "a", nil, nil },
  }

  for _, call in ipairs(CALLS) do
    it("is refused by ty_" .. call[1], function()
      for _, position in ipairs(call[3]) do
        local arguments = { unpack(call, 4, 12) }
        arguments[position] = nil
        fails("type", call[2], "ty_" .. call[1], unpack(arguments, 1, table.maxn(call) - 3
          + (call[1] == "op_pointwise" and 2 or 0)))
      end
    end)
  end

  it("is refused among an array's inputs and places for outputs", function()
    local x, out = ffi.new("ty_tensor *[1]", held[1]), ffi.new("ty_tensor *[1]")
    fails("type", "relu: no room for outputs", "ty_call", "relu", nil, 0, x, 1, nil, 1)
    fails("type", "relu: input data is missing", "ty_call", "relu", nil, 0,
      ffi.new("ty_tensor *[1]"), 1, out, 1)
    fails("value", "relu: it has 1 outputs, room for 0 was given", "ty_call", "relu", nil, 0, x, 1,
      nil, 0)
  end)
end)

describe("an index", function()
  local g, e = example()
  local node, graph, tensor = ffi.new("ty_node"), ffi.new("ty_graph *[1]"),
    ffi.new("ty_tensor *[1]")
  local names, number = ffi.new("const char *const *[1]"), ffi.new("int[1]")

  it("of a graph's node, input, head or body is one that is there", function()
    local text = ffi.new("const char *[1]")
    for _, i in ipairs{ -1, 4, 2 ^ 31 - 1 } do
      fails("index", ("node %d of a graph with 4"):format(i), "ty_graph_node", g, i, node)
      fails("index", ("subgraph 0 of node %d of a graph with 4"):format(i), "ty_graph_body", g, i,
        0, graph)
      fails("index", ("head 0 is node %d of 4"):format(i), "ty_graph_text", g,
        interface.entries{ { i, 0 } }, 1, text)
      for _, entry in ipairs{ { i, 0 }, { 0, -1 }, { 0, 1 } } do
        fails("index", ("relu r: input 0 is output %d of node %d, which does not exist"):format(
          entry[2], entry[1]), "ty_graph_op", g, "relu", "r", nil, 0, interface.entries{ entry }, 1,
          ffi.new("ty_entry[1]"))
        fails("index", ("head 0 is output %d of node %d, which does not exist"):format(entry[2],
          entry[1]), "ty_exec_bind", g, ffi.new("ty_bind_spec", { nhead = 1,
            head = interface.entries{ entry } }), ffi.new("ty_exec *[1]"))
      end
    end
    fails("index", "subgraph -1 of node 0 of a graph with 4", "ty_graph_body", g, 0, -1, graph)
    interface.takes("ty_graph_body", g, 0, 0, graph)
    assert.is_true(graph[0] == nil)
  end)

  it("of an executor's output, list or value is one that is there", function()
    local rows = ffi.new("int64_t[1]")
    for _, i in ipairs{ -1, 1, 2 ^ 31 - 1 } do
      fails("index", ("output %d; expected 0 to 0"):format(i), "ty_exec_output", e, i, tensor)
      fails("index", ("rows: output %d of 1"):format(i), "ty_exec_rows", e, i, rows)
    end
    fails("index", "rows: output 0 of 1", "ty_exec_rows", e, 0, nil)
    fails("index", "value -1; expected 0 or more", "ty_exec_value", e, -1, ffi.new("ty_value"))
    fails("index", "value: there is no value 100; the program has 1, counted from 0",
      "ty_exec_value", e, 100, ffi.new("ty_value"))
    for _, what in ipairs{ -1, 3 } do
      fails("value", ("names: %d; expected TY_ARG, TY_AUX or TY_OUT"):format(what),
        "ty_exec_names", e, what, names, number)
      fails("value", ("monitor: mode %d; expected TY_MON_OFF, TY_MON_OUT or TY_MON_ALL"):format(
        what), "ty_exec_monitor", e, what)
    end
    fails("index", "partial_forward: step -1; expected 0 to 3", "ty_exec_partial_forward", e, 0, -1,
      number)
  end)

  it("of an operator or parameter is one that is there", function()
    local n = interface.C.ty_op_count()
    local info, param, text = ffi.new("ty_opinfo"), ffi.new("ty_param"), ffi.new("const char *[1]")
    for _, i in ipairs{ -1, n } do
      local message = ("operator %d of %d"):format(i, n)
      fails("index", message, "ty_op_info", i, info)
      fails("index", message, "ty_op_names_inputs", i, ffi.new("int[1]"))
      fails("index", message, "ty_op_param", i, 0, param)
      fails("index", message, "ty_op_alias", i, text)
    end
    for name, arguments in pairs{ ty_op_info = {}, ty_op_names_inputs = {}, ty_op_param = { 0 },
        ty_op_alias = {} } do
      fails("index", "operator 0 of " .. n, name, 0, unpack(arguments, 1, #arguments + 1))
    end
    local dropout, relu = ffi.new("int[1]"), ffi.new("int[1]")
    interface.takes("ty_op_find", "Dropout", dropout)
    interface.takes("ty_op_find", "relu", relu)
    interface.takes("ty_op_param", dropout[0], 0, param)
    assert.equal("p", ffi.string(param.name))
    for _, k in ipairs{ -1, 100 } do
      fails("index", "Dropout has fewer parameters", "ty_op_param", dropout[0], k, param)
    end
    fails("index", "relu has fewer parameters", "ty_op_param", relu[0], 0, param)
  end)
end)

describe("an operator", function()
  it("that is none is refused by whoever is asked of it", function()
    local text, number = ffi.new("const char *[1]"), ffi.new("int[1]")
    for name, arguments in pairs{
      ty_op_gradient = { "relo", text }, ty_op_find = { "relo", number },
      ty_op_cuda = { "relo", text }, ty_op_gpu = { "relo", 0, text },
      ty_call = { "relo", ffi.new("ty_attr[1]"), 0, ffi.new("ty_tensor *[1]"), 0,
        ffi.new("ty_tensor *[1]"), 1 },
      ty_op_ports = { "relo", ffi.new("ty_attr[1]"), 0, -1, text, text },
      ty_graph_op = { interface.graph(), "relo", "r", ffi.new("ty_attr[1]"), 0,
        ffi.new("ty_entry[1]"), 0, ffi.new("ty_entry[1]") },
    } do
      assert.is_true(interface.C[name](unpack(arguments)) ~= 0, name)
      assert.truthy(ffi.string(interface.C.ty_error()):find("there is no operator 'relo'; \z
        nearest: relu, ", 1, true), name)
      arguments[name == "ty_graph_op" and 2 or 1] = ""
      assert.is_true(interface.C[name](unpack(arguments)) ~= 0, name)
      assert.truthy(ffi.string(interface.C.ty_error()):find("there is no operator ''; ", 1, true))
    end
  end)
end)
