-- Runs as programs in C see them: what stops them, what may not be changed meanwhile, steps that
-- copy and add gradients, parts that are skipped, nodes that become one, too many devices.

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"

local C, fails, make, takes = interface.C, interface.fails, interface.make, interface.takes
local op, var, tensor, numbers = interface.op, interface.var, interface.tensor, interface.numbers

-- Returns an executor over arrays by name: {name, value, grad, req}; flags as in tycho.h.
local function bound(g, heads, args, flags)
  local a = ffi.new("ty_bind[?]", #args)
  for i, b in ipairs(args) do
    a[i - 1].name, a[i - 1].value, a[i - 1].grad, a[i - 1].req = b[1], b[2], b[3], b[4] or 0
  end
  local head, n = interface.entries(heads)
  local spec = ffi.new("ty_bind_spec", { head = head, nhead = n, arg = a, narg = #args,
    flags = flags or 0 })
  return make("ty_exec", "ty_exec_bind", g, spec), { head, a, args }
end

local function output(e, i)
  local out = ffi.new("ty_tensor *[1]")
  takes("ty_exec_output", e, i, out)
  return out[0]
end

describe("a run", function()
  local function square()
    local g = interface.graph()
    local x = var(g, "x")
    local grad = tensor({ 2 }, { 7, 7 })
    local e, held = bound(g, { op(g, "square", "y", { x }) },
      { { "x", tensor({ 2 }, { 3, 4 }), grad, 1 } })
    held.grad = grad
    return e, held
  end

  it("begins only where no stop is requested", function()
    local e, held = square()
    local heads, given = ffi.new("ty_tensor *[1]"), tensor({ 2 }, { 1, 1 })
    heads[0] = given
    takes("ty_interrupt", 1)
    local forward, left = C.ty_exec_forward(e, 1), ffi.new("int[1]")
    local message = ffi.string(C.ty_error())
    local partial = C.ty_exec_partial_forward(e, 1, 0, left)
    takes("ty_interrupt", 0)
    assert.equal(12, forward)
    assert.equal("interrupted", message)
    assert.equal(12, partial)
    takes("ty_exec_forward", e, 1)
    takes("ty_wait", -1)
    takes("ty_interrupt", 1)
    local backward = C.ty_exec_backward(e, heads, 1, 1)
    message = ffi.string(C.ty_error())
    takes("ty_interrupt", 0)
    assert.equal(12, backward)
    assert.equal("interrupted", message)
    assert.same({ 7, 7 }, numbers(held.grad))             -- as it was
    takes("ty_exec_backward", e, heads, 1, 1)
    assert.same({ 6, 8 }, numbers(held.grad))
  end)

  it("shows values that are read-only", function()
    local e = square()
    takes("ty_exec_monitor", e, C.TY_MON_ALL)
    local seen, code = {}, C.ty_exec_forward(e, 0)
    local shown, event = ffi.new("ty_tensor *[1]"), ffi.new("ty_event")
    while code == C.TY_EV_MONITOR do
      takes("ty_exec_event", e, event)
      takes("ty_exec_event_tensor", e, event.is_input ~= 0 and C.TY_ARG or C.TY_OUT, 0, shown)
      seen[#seen + 1] = ffi.string(event.name)
      if event.is_input ~= 0 then
        local input, other = ffi.new("ty_tensor *[1]"), tensor({ 2 }, { 1, 1 })
        input[0] = other
        fails("state", "relu: out is read-only", "ty_call", "relu", nil, 0, input, 1, shown, 1)
        local two = ffi.new("ty_tensor *[2]")
        two[0], two[1] = shown[0], other
        local attrs, n = interface.attrs{ "lr", "1" }
        fails("state", "signum_update: mom is read-only and would be changed", "ty_call",
          "signum_update", attrs, n, ffi.new("ty_tensor *[3]", { other, other, shown[0] }), 3,
          ffi.new("ty_tensor *[1]", { other }), 1)
        assert.same({ 3, 4 }, numbers(shown[0]))
      end
      code = C.ty_exec_resume(e)
    end
    assert.equal(0, code)
    assert.is_true(#seen >= 2)
  end)

  it("copies and adds gradients that several arguments share, and says so", function()
    local g = interface.graph()
    local x, w = var(g, "x"), var(g, "w")
    local dx, dw = tensor({ 2 }, { 1, 1 }), tensor({ 2 }, { 1, 1 })
    local e, held = bound(g, { op(g, "square", "y", { op(g, "elemwise_add", "sum", { x, w }) }) }, {
      { "x", tensor({ 2 }, { 1, 2 }), dx, C.TY_WRITE },
      { "w", tensor({ 2 }, { 3, 4 }), dw, C.TY_ADD } })
    local heads, given = ffi.new("ty_tensor *[1]"), tensor({ 2 }, { 1, 10 })
    heads[0] = given
    local n = ffi.new("int[1]")
    takes("ty_exec_profile", e, nil, n)
    for _ = 1, 2 do
      takes("ty_exec_forward", e, 1)
      takes("ty_exec_backward", e, heads, 1, 1)
    end
    assert.same({ 8, 120 }, numbers(dx))
    assert.same({ 17, 241 }, numbers(dw))
    local sample, found = ffi.new("ty_sample[?]", n[0]), {}
    takes("ty_exec_profile", e, sample, n)
    for i = 0, n[0] - 1 do
      found[i + 1] = ("%s %s"):format(ffi.string(sample[i].op), ffi.string(sample[i].node))
    end
    local list = table.concat(found, ", ")
    assert.truthy(list:find("square y", 1, true), list)
    assert.truthy(list:find("copy ", 1, true), list)
    assert.is_true(#held > 0)
  end)
end)

describe("a shared buffer", function()
  it("gives arrays that are large enough, on the device, and gets the others", function()
    local g = interface.graph()
    local head = interface.entries{ op(g, "relu", "y", { var(g, "x") }) }
    local buffer, want = make("ty_bag", "ty_bag_new"), ffi.new("ty_want[1]")
    want[0].name, want[0].device, want[0].grad_device = "x", -1, -1
    want[0].desc.dtype, want[0].desc.ndim = C.TY_F32, 1
    local function argument(n, device)
      want[0].desc.dim[0] = n
      local e = make("ty_exec", "ty_exec_simple_bind", g, ffi.new("ty_simple_spec", { head = head,
        nhead = 1, want = want, nwant = 1, device = device, buffer = buffer }))
      local found, held = ffi.new("ty_tensor *[1]"), ffi.new("ty_tensor *[1]")
      takes("ty_exec_arg", e, "x", found)
      takes("ty_bag_get", buffer, "x", held)
      local d = ffi.new("ty_desc")
      takes("ty_tensor_desc", held[0], d)
      return found[0], C.ty_tensor_same(found[0], held[0]) == 1, tonumber(d.dim[0]), d.device, e
    end
    local function gives(want_same, want_size, want_device, n, device)
      local _, same, size, at = argument(n, device)
      assert.same({ want_same, want_size, want_device }, { same, size, at })
    end
    gives(true, 4, 0, 4, 0)                               -- made, and put there
    gives(true, 4, 0, 4, 0)
    gives(false, 4, 0, 3, 0)                              -- a view of the first elements
    gives(true, 6, 0, 6, 0)                               -- larger: in its place
    gives(true, 2, 1, 2, 1)                               -- elsewhere: in its place
  end)
end)

describe("a monitored run", function()
  local function events(e, train)
    local seen, event, code = {}, ffi.new("ty_event"), C.ty_exec_forward(e, train or 0)
    while code == C.TY_EV_MONITOR do
      takes("ty_exec_event", e, event)
      seen[#seen + 1] = ffi.string(event.name)
      code = C.ty_exec_resume(e)
    end
    return seen, code, code ~= 0 and ffi.string(C.ty_error()) or nil
  end

  it("ends where a node fails", function()
    local g = interface.graph()
    local x, i = var(g, "x"), var(g, "i")
    local taken = op(g, "take", "rows", { op(g, "square", "s", { x }), i }, { "mode", "raise" })
    local index = tensor({ 1 }, { 1 })
    local e = bound(g, { op(g, "exp", "y", { taken }) }, { { "x", tensor({ 2, 1 }, { 0, 2 }) },
      { "i", index } })
    takes("ty_exec_monitor", e, C.TY_MON_OUT)
    local seen, code = events(e)
    assert.same({ "s_output", "rows_output", "y_output" }, seen)
    assert.equal(0, code)
    takes("ty_tensor_write", index, ffi.new("float[1]", { 7 }), 4)
    local message
    seen, code, message = events(e)
    assert.same({ "s_output" }, seen)
    assert.is_true(code > 0)
    assert.equal("index 7 at position 0 is out of range; expected 0 to 1", message)
    fails("state", "event: none is waiting", "ty_exec_event", e, ffi.new("ty_event"))
    takes("ty_tensor_write", index, ffi.new("float[1]", { 0 }), 4)
    assert.equal(3, #events(e))
    assert.same({ 1 }, numbers(output(e, 0)))
  end)

  it("names the first 64 inputs of a node", function()
    local g = interface.graph()
    local inputs, args = {}, {}
    for k = 1, 70 do
      inputs[k] = var(g, "x" .. k)
      args[k] = { "x" .. k, tensor({ 1 }, { k }) }
    end
    local e = bound(g, { op(g, "add_n", "y", inputs) }, args)
    takes("ty_exec_monitor", e, C.TY_MON_ALL)
    local seen = events(e)
    assert.equal(2 * 64 + 1, #seen)
    assert.equal("x1", seen[1])
    assert.equal("x64", seen[127])
    assert.equal("y_output", seen[129])
    assert.same({ 70 * 71 / 2 }, numbers(output(e, 0)))
  end)

  it("passes over what does not run, node by node too", function()
    local x, p = ty.sym.Variable("x"), ty.sym.Variable("p")
    local net = ty.sym.contrib.cond(ty.sym.sum(p):gt(0), function() return ty.sym.exp(x) end,
      function() return ty.sym.sin(x) end)
    for _, case in ipairs{ { 1, math.exp(0.5) }, { -1, math.sin(0.5) } } do
      local e = net:simple_bind{ ctx = ty.cpu(0), x = { 1 }, p = { 1 } }
      e.arg_dict.x[":"], e.arg_dict.p[":"] = 0.5, case[1]
      local step, left = 0, ffi.new("int[1]", 1)
      while left[0] > 0 do
        takes("ty_exec_partial_forward", e._handle, 0, step, left)
        step = step + 1
      end
      assert.is_true(step > 2)
      assert.is_true(math.abs(e.outputs[1]:asscalar() - case[2]) < 1e-6)
      local seen = {}
      e:set_monitor_callback(function(name) seen[#seen + 1] = name end)
      assert.is_true(math.abs(e:forward()[1]:asscalar() - case[2]) < 1e-6)
      assert.truthy(table.concat(seen, " "):find("_cond%d+_output"))
    end
  end)
end)

describe("a program", function()
  it("makes one of nodes that differ in annotations only", function()
    local function instructions(first, second)
      local g = interface.graph()
      local x, y = var(g, "x"), var(g, "y")
      local function norm(name, more)
        local attrs = { "ord", "1" }
        for _, word in ipairs(more) do
          attrs[#attrs + 1] = word
        end
        return op(g, "norm", name, { x }, attrs)
      end
      local e = bound(g, { op(g, "elemwise_mul", "z", { op(g, "elemwise_add", "s",
        { norm("a", first), norm("b", second) }), y }) }, { { "x", tensor({ 2 }, { 3, -4 }) },
        { "y", tensor({ 1 }, { 2 }) } })
      takes("ty_exec_forward", e, 0)
      assert.same({ 28 }, numbers(output(e, 0)))
      local stats = ffi.new("ty_stats")
      takes("ty_exec_stats", e, stats)
      return tonumber(stats.instructions)
    end
    local one = instructions({}, {})
    assert.equal(one + 1, instructions({}, { "__ctx_group__", "other" }))
    for _, pair in ipairs{ { { "__a__", "1" }, {} }, { {}, { "__a__", "1" } },
      { { "__a__", "1" }, { "__a__", "2" } }, { { "__a__", "1" }, { "__z__", "1", "__y__", "2" } },
      { { "keepdims", "0" }, { "keepdims", "0", "__z__", "1" } } } do
      assert.equal(one, instructions(pair[1], pair[2]))
    end
    for _, pair in ipairs{ { { "keepdims", "0" }, {} }, { {}, { "keepdims", "0" } },
      { { "__force_mirroring__", "1" }, {} }, { { "__force_mirroring__", "1" },
        { "__force_mirroring__", "0" } } } do
      assert.equal(one + 1, instructions(pair[1], pair[2]))
    end
  end)

  it("recomputes what says so, in any of Python's words", function()
    for _, case in ipairs{ { "True", true }, { "true", true }, { "1", true }, { "False", false },
      { "0", false }, { "yes", false }, { "", false } } do
      local g = interface.graph()
      local x = var(g, "x")
      local a = op(g, "exp", "a", { x }, { "__force_mirroring__", case[1] })
      local y = op(g, "FullyConnected", "y", { a, var(g, "w") },
        { "num_hidden", "1", "no_bias", "1" })
      local dw = tensor({ 1, 2 })
      local e = bound(g, { y }, { { "x", tensor({ 1, 2 }, { 0, 1 }), tensor{ 1, 2 }, 1 },
        { "w", tensor({ 1, 2 }, { 2, 3 }), dw, 1 } })
      local text = ffi.new("const char *[1]")
      takes("ty_exec_print", e, text)
      assert.equal(case[2], ffi.string(text[0]):find("a_mirror", 1, true) ~= nil, case[1])
      local heads, given = ffi.new("ty_tensor *[1]"), tensor({ 1, 1 }, { 1 })
      heads[0] = given
      takes("ty_exec_forward", e, 1)
      takes("ty_exec_backward", e, heads, 1, 1)
      local list = numbers(dw)
      assert.is_true(math.abs(list[1] - 1) < 1e-6 and math.abs(list[2] - math.exp(1)) < 1e-5)
    end
  end)

  it("shows what runs only where a condition holds", function()
    local x, p = ty.sym.Variable("x"), ty.sym.Variable("p")
    local net = ty.sym.contrib.cond(ty.sym.sum(p):gt(0), function()
      return ty.sym.FullyConnected{ x, ty.sym.Variable("w"), no_bias = true, num_hidden = 2 }
    end, function() return x end)
    local e = net:simple_bind{ ctx = ty.cpu(0), x = { 2, 2 }, p = { 1 }, w = { 2, 2 } }
    local text = e:program()
    assert.truthy(text:find("  if %d+\n"), text)
  end)

  it("has devices, but not too many", function()
    local g = interface.graph()
    local x = var(g, "x")
    local function network(n)
      local places, y = ffi.new("ty_place[?]", n), x
      local kept = {}
      for i = 1, n do
        kept[i] = "group" .. i
        places[i - 1].group, places[i - 1].device = kept[i], i
        y = op(g, "exp", "y" .. i, { y }, { "__ctx_group__", kept[i] })
      end
      local want = ffi.new("ty_want[1]")
      want[0].name, want[0].desc.dtype, want[0].desc.ndim, want[0].device = "x", C.TY_F32, 1, -1
      want[0].desc.dim[0], want[0].grad_device = 2, -1
      local head = interface.entries{ y }
      return ffi.new("ty_simple_spec", { head = head, nhead = 1, want = want, nwant = 1,
        place = places, nplace = n }), { kept, want, places, head }
    end
    local spec, held = network(15)
    local e = make("ty_exec", "ty_exec_simple_bind", g, spec)
    takes("ty_exec_forward", e, 0)
    takes("ty_wait", -1)
    g = interface.graph()
    x = var(g, "x")
    spec, held[5] = network(17)
    fails("device", "one executor may use 16 devices at most", "ty_exec_simple_bind", g, spec,
      ffi.new("ty_exec *[1]"))
  end)
end)
