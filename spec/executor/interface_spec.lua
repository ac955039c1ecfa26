-- Executors as programs in C make and ask them: what Symbol:bind and its like check before they
-- call, and what no method of Lua asks for.

local ffi = require "ffi"
local interface = require "spec.support.interface"

local C, fails, make, takes = interface.C, interface.fails, interface.make, interface.takes
local op, var, tensor, numbers = interface.op, interface.var, interface.tensor, interface.numbers

-- Returns the arrays of a bind by name: {name, value, grad, req}.
local function binds(list)
  local a = ffi.new("ty_bind[?]", #list + 1)
  for i, b in ipairs(list) do
    a[i - 1].name, a[i - 1].value, a[i - 1].grad, a[i - 1].req = b[1], b[2], b[3], b[4] or 0
  end
  return a, #list
end

local function wants(list)
  local w = ffi.new("ty_want[?]", #list + 1)
  for i, x in ipairs(list) do
    local d = w[i - 1].desc
    w[i - 1].name, d.dtype, d.ndim = x[1], x.dtype or C.TY_NODTYPE, #(x.shape or {})
    for k, size in ipairs(x.shape or {}) do
      d.dim[k - 1] = size
    end
    w[i - 1].req, w[i - 1].device = x.req or 0, x.device or -1
    w[i - 1].grad_device, w[i - 1].shared = x.grad_device or -1, x.shared or 0
  end
  return w, #list
end

-- Returns a bind structure, and the objects that it refers to, which must live as long.
local function bind(g, heads, args, fields)
  local spec = ffi.new("ty_bind_spec", fields or {})
  local head, nhead = interface.entries(heads)
  local list, n = binds(args)
  spec.head, spec.nhead, spec.arg, spec.narg = head, nhead, list, n
  return spec, { head, list, args, fields }
end

local function bound(g, heads, args, fields)
  local spec, held = bind(g, heads, args, fields)
  return make("ty_exec", "ty_exec_bind", g, spec), held
end

local function simple(g, heads, want, fields)
  local spec = ffi.new("ty_simple_spec", fields or {})
  local head, nhead = interface.entries(heads)
  local list, n = wants(want)
  spec.head, spec.nhead, spec.want, spec.nwant = head, nhead, list, n
  return spec, { head, list, fields }
end

local function array(name, e, ...)
  local out, arguments = ffi.new("ty_tensor *[1]"), { ... }
  arguments[#arguments + 1] = out
  takes(name, e, unpack(arguments))
  return out[0]
end

local function names(e, what)
  local list, n, found = ffi.new("const char *const *[1]"), ffi.new("int[1]"), {}
  takes("ty_exec_names", e, what, list, n)
  for i = 1, n[0] do
    found[i] = ffi.string(list[0][i - 1])
  end
  return found
end

local out = ffi.new("ty_exec *[1]")

describe("binding from C", function()
  local g = interface.graph()
  local x = var(g, "x")
  local y = op(g, "relu", "y", { x })

  local function refused(code, text, args, fields, heads)
    local spec, held = bind(g, heads or { y }, args, fields)
    fails(code, text, "ty_exec_bind", g, spec, out)
    return held
  end

  it("needs an array for each variable, and heads", function()
    refused("name", "bind: no array was given for argument 'x'", {})
    refused("name", "bind: no array was given for argument 'x'", { { "z", tensor{ 2 } } })
    refused("name", "bind: no array was given for argument 'x'", { { "x" } })
    refused("name", "bind: no array was given for argument 'x'", {}, { flags = C.TY_DRY_RUN })
    refused("value", "bind: the symbol has no outputs", { { "x", tensor{ 2 } } }, nil, {})
    local detail = ffi.new("ty_failure")
    refused("name", "bind: no array was given for argument 'x'", {})
    takes("ty_error_detail", detail)
    assert.equal("x", ffi.string(detail.argument))
    assert.equal("argument", ffi.string(detail.expected))
    assert.equal("nothing", ffi.string(detail.got))
    fails("value", "simple_bind: the symbol has no outputs", "ty_exec_simple_bind", g,
      ffi.new("ty_simple_spec"), out)
  end)

  it("needs gradients like their arguments, and a request that is one", function()
    for _, req in ipairs{ -1, 2, 4 } do
      refused("value", ("bind: grad_req of 'x' is %d; expected null (0), write (1) or add (3)")
        :format(req), { { "x", tensor{ 2 }, tensor{ 2 }, req } })
      local spec = simple(g, { y }, { { "x", shape = { 2 }, req = req } })
      fails("value", ("simple_bind: grad_req of 'x' is %d; expected null (0), write (1) or add \z
        (3)"):format(req), "ty_exec_simple_bind", g, spec, out)
    end
    for _, case in ipairs{
      { "shape", { 3 }, C.TY_F32, "float32 (3,)" },
      { "shape", { 2, 1 }, C.TY_F32, "float32 (2, 1)" },
      { "shape", { 3 }, C.TY_F64, "float64 (3,)" }, { "dtype", { 2 }, C.TY_F64, "float64 (2,)" },
    } do
      refused(case[1], ("bind: the gradient array of 'x' is %s, but the argument is float32 (2,)")
        :format(case[4]), { { "x", tensor{ 2 }, tensor(case[2], nil, case[3]), C.TY_WRITE } })
    end
    local e = bound(g, { y }, { { "x", tensor({ 2 }, { 1, 2 }), tensor{ 3 } } }) -- not asked for
    assert.is_true(array("ty_exec_grad", e, "x") == nil)
  end)

  it("without memory for dry runs: outputs that are arguments have no array", function()
    local spec, held = simple(g, { x, y }, { { "x", shape = { 2 } } }, { flags = C.TY_DRY_RUN })
    local e, t = make("ty_exec", "ty_exec_simple_bind", g, spec), ffi.new("ty_tensor *[1]")
    fails("state", "output 0 is an argument without array (dry_run)", "ty_exec_output", e, 0, t)
    takes("ty_exec_output", e, 1, t)
    assert.is_true(array("ty_exec_arg", e, "x") == nil and #held > 0)
    for _, call in ipairs{ { "forward", 1, 0 }, { "backward", 3, nil, 0, 0 }, { "event", 1 },
      { "event_tensor", 3, 0, 0, nil }, { "partial_forward", 3, 0, 0, nil }, { "resume", 0 },
      { "rows", 2, 0, nil } } do
      fails("state", call[1] .. ": this executor was bound with dry_run and has no memory; bind it \z
        again without", "ty_exec_" .. call[1], e, unpack(call, 3, 2 + call[2]))
    end
  end)
end)

describe("an executor, asked from C,", function()
  local g = interface.graph()
  local x = var(g, "x")
  local y = op(g, "relu", "y", { x })
  local z = op(g, "FullyConnected", "z", { y, var(g, "w") }, { "num_hidden", "1", "no_bias", "1" })

  local function example()
    return bound(g, { x, z }, { { "x", tensor({ 1, 2 }, { -1, 2 }), tensor{ 1, 2 }, C.TY_WRITE },
      { "w", tensor({ 1, 2 }, { 3, 4 }) } })
  end

  it("names its arguments, states and outputs", function()
    local e = example()
    for _ = 1, 2 do                                       -- from the second time on remembered
      assert.same({ "x", "w" }, names(e, C.TY_ARG))
      assert.same({}, names(e, C.TY_AUX))
      assert.same({ "x", "z_output" }, names(e, C.TY_OUT))
    end
    local t = ffi.new("ty_tensor *[1]")
    for what, name in pairs{ argument = "arg", ["auxiliary state"] = "aux" } do
      fails("name", ("the executor has no %s 'y'"):format(what), "ty_exec_" .. name, e, "y", t)
    end
    fails("name", "the executor has no argument 'y'", "ty_exec_grad", e, "y", t)
  end)

  it("times its instructions from the first question on", function()
    local e, n = example(), ffi.new("int[1]")
    takes("ty_exec_profile", e, nil, n)
    local count = n[0]
    assert.is_true(count > 1)
    takes("ty_exec_forward", e, 0)
    takes("ty_wait", -1)
    local sample = ffi.new("ty_sample[?]", count)
    sample[1].bytes = -1
    n[0] = 1
    takes("ty_exec_profile", e, sample, n)                -- room for one
    assert.equal(count, n[0])
    assert.equal(-1, tonumber(sample[1].bytes))
    takes("ty_exec_profile", e, sample, n)
    local found, ns = {}, 0
    for i = 0, count - 1 do
      found[ffi.string(sample[i].node)] = ("%s %d"):format(ffi.string(sample[i].op),
        tonumber(sample[i].bytes))
      ns = ns + tonumber(sample[i].ns)
    end
    assert.equal("relu 16", found.y)
    assert.equal("FullyConnected 20", found.z)
    assert.is_true(ns > 0)
    local stats = ffi.new("ty_stats")
    takes("ty_exec_stats", e, stats)
    assert.equal(ns, tonumber(stats.ns))
    assert.equal(count, tonumber(stats.instructions))
  end)

  it("has no event while none waits", function()
    local e, t = example(), ffi.new("ty_tensor *[1]")
    fails("state", "event: none is waiting", "ty_exec_event", e, ffi.new("ty_event"))
    fails("state", "event_tensor: no event is waiting", "ty_exec_event_tensor", e, 0, 0, t)
    fails("state", "resume: there is no run to go on with", "ty_exec_resume", e)
    takes("ty_exec_monitor", e, C.TY_MON_ALL)
    local event, seen = ffi.new("ty_event"), {}
    local code = C.ty_exec_forward(e, 0)
    fails("state", "event: none is waiting", "ty_exec_event", e, nil)
    fails("state", "event_tensor: no event is waiting", "ty_exec_event_tensor", e, 0, 0, nil)
    while code == C.TY_EV_MONITOR do
      takes("ty_exec_event", e, event)
      seen[#seen + 1] = ffi.string(event.name)
      local part, count = event.is_input ~= 0 and C.TY_ARG or C.TY_OUT,
        event.is_input ~= 0 and event.nin or event.nout
      for _, i in ipairs{ -1, 7 } do
        fails("index", ("event_tensor: %d of %d"):format(i, part == C.TY_OUT and 1
          or ffi.string(event.node) == "z" and 2 or 1), "ty_exec_event_tensor", e, part, i, t)
      end
      assert.is_true(count >= 0)
      code = C.ty_exec_resume(e)
    end
    assert.equal(0, code)
    assert.truthy(table.concat(seen, " "):find("z_output", 1, true))
  end)

  it("runs nodes one by one, from any", function()
    local e, left = example(), ffi.new("int[1]")
    for step, want in ipairs{ 3, 2, 1, 0 } do
      takes("ty_exec_partial_forward", e, 0, step - 1, left)
      assert.equal(want, left[0])
    end
    assert.same({ 8 }, numbers(array("ty_exec_output", e, 1)))
    takes("ty_exec_partial_forward", e, 0, 4, left)
    assert.equal(0, left[0])
    takes("ty_exec_forward", e, 0)
    takes("ty_exec_partial_forward", e, 0, 2, left)       -- after a run of the other variant
    assert.equal(1, left[0])
  end)

  it("takes another graph for reshapes if it is as large", function()
    local e, other = example(), interface.graph()
    var(other, "x")
    fails("value", "regraph: 1 nodes, expected 4", "ty_exec_regraph", e, other)
    takes("ty_exec_regraph", e, g)
  end)

  it("refuses gradients of heads that do not fit", function()
    local e = example()
    local heads = ffi.new("ty_tensor *[3]")
    fails("state", "backward: call forward first", "ty_exec_backward", e, heads, 2, 1)
    takes("ty_exec_forward", e, 1)
    fails("shape", "backward: 3 head gradients for 2 outputs", "ty_exec_backward", e, heads, 3, 1)
    local ok, bad = tensor({ 1, 1 }, { 2 }), tensor{ 1, 3 }
    heads[1] = bad
    fails("shape", "backward: the gradient of output z_output has shape (1, 3), but the output has \z
      (1, 1)", "ty_exec_backward", e, heads, 2, 1)
    heads[1] = nil
    local given = tensor({ 1, 2 }, { 10, 10 })
    heads[0] = given
    for n = 1, 2 do
      fails("value", "backward: output 1 (z) is no loss, so its gradient must be given in \z
        out_grads", "ty_exec_backward", e, heads, n, 1)
    end
    heads[0], heads[1] = nil, ok
    fails("value", "backward: output 0 (x) is no loss, so its gradient must be given in out_grads",
      "ty_exec_backward", e, heads, 2, 1)
    heads[0] = given
    takes("ty_exec_backward", e, heads, 2, 1)
    assert.same({ 10, 18 }, numbers(array("ty_exec_grad", e, "x")))
  end)
end)

describe("flags of a bind from C", function()
  local function example(flags)
    local g = interface.graph()
    local x = var(g, "x")
    local a = op(g, "log", "a", { x })
    local b = op(g, "exp", "b", { a })
    return bound(g, { op(g, "relu", "c", { b }) }, { { "x", tensor({ 2 }, { 3, 0.5 }) } },
      { flags = flags })
  end

  local function instructions(e)
    local stats = ffi.new("ty_stats")
    takes("ty_exec_stats", e, stats)
    return tonumber(stats.instructions)
  end

  local function planned(e)
    local memory = ffi.new("ty_memory")
    takes("ty_exec_memory", e, memory)
    return tonumber(memory.planned)
  end

  it("leave nodes apart, and each value its own place", function()
    for flags, want in pairs{ [0] = 1, [C.TY_NOFUSE] = 3, [C.TY_NOFUSE + C.TY_NOSHARE] = 3 } do
      local e = example(flags)
      assert.equal(want, instructions(e))
      takes("ty_exec_forward", e, 0)
      local y = numbers(array("ty_exec_output", e, 0))
      assert.is_true(math.abs(y[1] - 3) < 1e-5 and math.abs(y[2] - 0.5) < 1e-6)
    end
    assert.is_true(planned(example(C.TY_NOFUSE + C.TY_NOSHARE)) > planned(example(C.TY_NOFUSE)))
  end)

  it("look for the first bad number", function()
    for _, flags in ipairs{ C.TY_CHECK, C.TY_CHECK + C.TY_NOFUSE } do
      local e = example(flags)
      local x = array("ty_exec_arg", e, "x")
      takes("ty_exec_forward", e, 0)
      takes("ty_wait", -1)
      takes("ty_tensor_write", x, ffi.new("float[2]", { 1, -1 }), 8)
      takes("ty_exec_forward", e, 0)
      local y = array("ty_exec_output", e, 0)
      fails("run", "log a: element 1 of its output is nan; inputs: input 0 in [-1, 1]",
        "ty_tensor_read", y, ffi.new("float[2]"), 8)
    end
  end)
end)

describe("simple_bind from C", function()
  local g = interface.graph()
  local x = var(g, "x")
  local norm = op(g, "BatchNorm", "norm", { x })
  local SHAPE = { 2, 3, 2, 2 }

  local function made(want, fields)
    local spec, held = simple(g, { norm }, want, fields)
    return make("ty_exec", "ty_exec_simple_bind", g, spec), held
  end

  local function same(a, b)
    return C.ty_tensor_same(a, b) == 1
  end

  it("makes variables of the inputs that are not given, with the node's attributes", function()
    local e = made{ { "x", shape = SHAPE } }
    assert.same({ "x", "norm_gamma", "norm_beta" }, names(e, C.TY_ARG))
    assert.same({ "norm_moving_mean", "norm_moving_var" }, names(e, C.TY_AUX))
    local plain = interface.graph()
    op(plain, "FullyConnected", "", { var(plain, "x") }, { "num_hidden", "2", "__lr_mult__", "3" })
    local node, n = ffi.new("ty_node"), ffi.new("int[1]")
    takes("ty_graph_size", plain, n)
    assert.equal(4, n[0])
    for i, name in ipairs{ "weight", "bias" } do
      takes("ty_graph_node", plain, i, node)
      assert.equal(name, ffi.string(node.name))
      assert.equal("__lr_mult__", ffi.string(node.attr[0].key))
    end
    fails("value", "relu r: expected 1 inputs, got 2", "ty_graph_op", plain, "relu", "r", nil, 0,
      interface.entries{ { 0, 0 }, { 0, 0 } }, 2, ffi.new("ty_entry[1]"))
    takes("ty_graph_op", plain, "relu", nil, nil, 0, interface.entries{ { 0, 0 } }, 1,
      ffi.new("ty_entry[1]"))
    takes("ty_graph_size", plain, n)
    takes("ty_graph_node", plain, n[0] - 1, node)
    assert.equal("", ffi.string(node.name))
  end)

  it("shares arrays with an executor, as asked", function()
    local buffer = make("ty_bag", "ty_bag_new")
    local first = made({ { "x", shape = SHAPE, req = 1 }, { "norm_gamma", req = 1 } },
      { buffer = buffer })
    -- asked to share, with no other executor: arrays of its own, and not the buffer's
    local alone = made({ { "x", shape = SHAPE }, { "norm_gamma", shared = 1 } },
      { buffer = buffer })
    assert.is_true(same(array("ty_exec_arg", first, "x"), array("ty_exec_arg", alone, "x")))
    assert.is_false(same(array("ty_exec_arg", first, "norm_gamma"),
      array("ty_exec_arg", alone, "norm_gamma")))
    assert.is_false(same(array("ty_exec_aux", first, "norm_moving_mean"),
      array("ty_exec_aux", alone, "norm_moving_mean")))
    local second = made({ { "x", shape = SHAPE }, { "norm_gamma", shared = 1, req = 1 } },
      { buffer = buffer, shared = first })
    for _, name in ipairs{ "arg", "grad" } do
      assert.is_true(same(array("ty_exec_" .. name, first, "norm_gamma"),
        array("ty_exec_" .. name, second, "norm_gamma")))
    end
    assert.is_true(same(array("ty_exec_aux", first, "norm_moving_mean"),
      array("ty_exec_aux", second, "norm_moving_mean")))
    -- no buffer: nothing is shared but the pool
    local third = made({ { "x", shape = SHAPE }, { "norm_gamma", shared = 1 } }, { shared = first })
    assert.is_false(same(array("ty_exec_arg", first, "norm_gamma"),
      array("ty_exec_arg", third, "norm_gamma")))
    local pool, own = ffi.new("ty_pool *[2]"), make("ty_pool", "ty_pool_new")
    takes("ty_exec_pool", first, pool)
    takes("ty_exec_pool", third, pool + 1)
    assert.is_true(pool[0] == pool[1])
    local fourth = made({ { "x", shape = SHAPE } }, { shared = first, pool = own })
    takes("ty_exec_pool", fourth, pool)
    assert.is_true(pool[0] == own)
    local spec, held = bind(g, { norm }, { { "x", tensor(SHAPE) }, { "norm_gamma", tensor{ 3 } },
      { "norm_beta", tensor{ 3 } } }, { shared = first, pool = own })
    local aux = binds{ { "norm_moving_mean", tensor{ 3 } }, { "norm_moving_var", tensor{ 3 } } }
    spec.aux, spec.naux, held.aux = aux, 2, aux
    takes("ty_exec_pool", make("ty_exec", "ty_exec_bind", g, spec), pool)
    assert.is_true(pool[0] == own)
  end)

  it("refuses shared arrays that do not fit", function()
    local buffer = make("ty_bag", "ty_bag_new")
    local first = made({ { "x", shape = SHAPE }, { "norm_gamma" } }, { buffer = buffer })
    local function refused(code, text, want, fields)
      local spec, held = simple(g, { norm }, want, fields)
      fails(code, text, "ty_exec_simple_bind", g, spec, out)
      return held
    end
    refused("dtype", "simple_bind: shared_buffer holds 'x' as float32, but float64 is needed",
      { { "x", shape = SHAPE, dtype = C.TY_F64 } }, { buffer = buffer })
    refused("dtype", "simple_bind: 'norm_gamma' cannot be shared with shared_exec: the dtypes \z
      differ", { { "x", shape = { 9, 3, 2, 2 }, dtype = C.TY_F64 }, { "norm_gamma", shared = 1 } },
      { buffer = make("ty_bag", "ty_bag_new"), shared = first })
    refused("shape", "simple_bind: 'norm_gamma' cannot be shared with shared_exec: the shapes \z
      differ", { { "x", shape = { 2, 4, 2, 2 } }, { "norm_gamma", shared = 1 } },
      { buffer = buffer, shared = first })
    refused("name", "simple_bind: 'grad of norm_gamma' cannot be shared with shared_exec: it has \z
      no such array", { { "x", shape = SHAPE }, { "norm_gamma", shared = 1, req = 1 } },
      { buffer = buffer, shared = first })
    local h = interface.graph()
    local other = bound(h, { op(h, "relu", "r", { var(h, "norm_gamma") }) },
      { { "norm_gamma", tensor{ 3 } } })
    refused("name", "the executor has no argument 'x'", { { "x", shape = SHAPE, shared = 1 } },
      { buffer = buffer, shared = other })
    refused("name", "the executor has no auxiliary state 'norm_moving_mean'",
      { { "x", shape = SHAPE } }, { buffer = buffer, shared = other })
    refused("name", "there is no argument 'y'; arguments are: x, norm_gamma, norm_beta, \z
      norm_moving_mean, norm_moving_var", { { "y", shape = SHAPE } })
  end)

  it("places arrays where each is asked to be", function()
    local h = interface.graph()
    local a = ffi.new("ty_entry[1]")
    takes("ty_graph_var", h, "a", interface.attrs{ "__ctx_group__", "left" }, 1, a)
    local b = var(h, "b")
    local sum = op(h, "elemwise_add", "sum", { a[0], b }, { "__ctx_group__", "right" })
    local places = ffi.new("ty_place[2]", { { "left", 1, 0 }, { "right", 2, 0 } })
    local spec, held = simple(h, { sum }, { { "a", shape = { 2 }, device = -1 },
      { "b", shape = { 2 }, device = 3, req = 1, grad_device = 2 } },
      { place = places, nplace = 2 })
    local e, d = make("ty_exec", "ty_exec_simple_bind", h, spec), ffi.new("ty_desc")
    local function device(name, argument)
      takes("ty_tensor_desc", array("ty_exec_" .. name, e, argument), d)
      return d.device
    end
    assert.same({ 1, 3, 2, 2 }, { device("arg", "a"), device("arg", "b"), device("grad", "b"),
      device("output", 0) })
    assert.is_true(#held > 0)
    -- reshape stays on these devices
    local want, n = wants{ { "a", shape = { 1 } }, { "b", shape = { 1 } } }
    local function reshape(fields)
      fields.want, fields.nwant = want, n
      return ffi.new("ty_reshape_spec", fields)
    end
    local same_places = ffi.new("ty_place[2]", { { "left", 1, 0 }, { "right", 2, 0 } })
    for _, fields in ipairs{ { device = -1 }, { device = 0 },
      { device = 0, place = same_places, nplace = 2 } } do
      takes("ty_tensor_desc", array("ty_exec_output", make("ty_exec", "ty_exec_reshape", e,
        reshape(fields)), 0), d)
      assert.same({ 1, 2 }, { tonumber(d.dim[0]), d.device })
    end
    local moved = ffi.new("ty_place[2]", { { "left", 1, 0 }, { "right", 3, 0 } })
    local renamed = ffi.new("ty_place[2]", { { "left", 1, 0 }, { "write", 2, 0 } })
    for _, fields in ipairs{ { device = 1 }, { device = 0, place = same_places, nplace = 1 },
      { device = 0, place = moved, nplace = 2 }, { device = 0, place = renamed, nplace = 2 } } do
      fails("device", "reshape: the devices are those of the executor; bind again to change them",
        "ty_exec_reshape", e, reshape(fields), out)
    end
    -- arrays stay where they are needed
    local wrong, kept = simple(h, { sum }, { { "a", shape = { 2 } }, { "b", shape = { 2 }, req = 1,
      grad_device = 1 } }, {})
    fails("device", "bind: gradient array of 'b' is on cpu(1), but cpu(0) is needed here; use \z
      as_in_context or group2ctx", "ty_exec_simple_bind", h, wrong, out)
    wrong, kept[4] = simple(h, { sum }, { { "a", shape = { 2 }, device = 1 },
      { "b", shape = { 2 } } }, {})
    fails("device", "bind: array of 'a' is on cpu(1), but cpu(0) is needed here; use \z
      as_in_context or group2ctx", "ty_exec_simple_bind", h, wrong, out)
  end)
end)

describe("the text of a graph", function()
  it("has the heads that are asked for", function()
    local g = interface.graph()
    local x = var(g, "x")
    local r = op(g, "relu", "r", { x })
    local text, again = ffi.new("const char *[1]"), ffi.new("const char *[1]")
    takes("ty_graph_text", g, interface.entries{ r }, 1, text)
    local own = ffi.string(text[0])
    local read = make("ty_graph", "ty_graph_parse", own)
    local head, n = ffi.new("const ty_entry *[1]"), ffi.new("int[1]")
    takes("ty_graph_heads", read, head, n)
    assert.equal(1, n[0])
    takes("ty_graph_text", read, head[0], 1, text)        -- its own heads
    assert.equal(own, ffi.string(text[0]))
    takes("ty_graph_text", read, interface.entries{ { 0, 0 } }, 1, text)
    takes("ty_graph_text", read, interface.entries{ { 1, 0 }, { 0, 0 } }, 2, again)
    local other = make("ty_graph", "ty_graph_parse", ffi.string(text[0]))
    takes("ty_graph_size", other, n)
    assert.equal(1, n[0])
    assert.truthy(ffi.string(again[0]):find('"heads": [[1, 0, 0], [0, 0, 0]]', 1, true))
    fails("index", "head 1 is node -1 of 2", "ty_graph_text", read, interface.entries{ { 0, 0 },
      { -1, 0 } }, 2, text)
    takes("ty_graph_text", read, head[0], 1, text)
    assert.equal(own, ffi.string(text[0]))
  end)
end)
