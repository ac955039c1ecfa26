-- What shapes and types of a graph are inferred from: what the caller gives, what variables say of
-- themselves; what is said where it is not enough or does not agree.

local ty = require "tycho"
local ffi = require "ffi"
local interface = require "spec.support.interface"
require "spec.helper"

local C, fails, takes = interface.C, interface.fails, interface.takes

local function want(name, shape, dtype)
  local w = ffi.new("ty_want[1]")
  w[0].name, w[0].desc.dtype, w[0].desc.ndim = name, dtype or C.TY_NODTYPE, #shape
  for i, n in ipairs(shape) do
    w[0].desc.dim[i - 1] = n
  end
  return w
end

-- Returns a graph of one sum over variables of which the first has attributes.
local function chain(n, attrs)
  local g = interface.graph()
  local list, count = interface.attrs(attrs or {})
  local entries = {}
  for i = 1, n do
    local e = ffi.new("ty_entry[1]")
    takes("ty_graph_var", g, ("variable_number_%d"):format(i), i == 1 and list or nil,
      i == 1 and count or 0, e)
    entries[i] = ffi.new("ty_entry", e[0])
  end
  if n > 0 then
    interface.op(g, "add_n", "sum", entries)
  end
  return g
end

describe("inference", function()
  it("names what it cannot know, up to ten", function()
    for n, text in pairs{ [2] = "variable_number_1, variable_number_2",
      [12] = "variable_number_1, variable_number_2, variable_number_3, variable_number_4, \z
        variable_number_5, variable_number_6, variable_number_7, variable_number_8, \z
        variable_number_9, variable_number_10, ..." } do
      local g, out = chain(n), ffi.new("ty_desc[20]")
      fails("shape", "the shapes of these cannot be inferred from what was given: " .. text
        .. "; give the shape of more arguments", "ty_graph_infer", g, nil, 0, 0, out)
      local w = want("variable_number_2", { 3 })
      fails("dtype", "the dtypes of these cannot be inferred from what was given: " .. text
        .. "; give the dtype of more arguments (type_dict)", "ty_graph_infer", g, w, 1, 0, out)
      takes("ty_graph_infer", g, w, 1, 1, out)            -- in part
      assert.equal(3, tonumber(out[n].dim[0]))
      assert.equal(C.TY_NODTYPE, out[n].dtype)
    end
  end)

  it("knows no other names than those of variables", function()
    local out = ffi.new("ty_desc[100]")
    fails("name", "there is no argument 'z'; arguments are: none", "ty_graph_infer", chain(0),
      want("z", { 1 }), 1, 0, out)
    fails("name", "there is no argument 'sum'; arguments are: variable_number_1", "ty_graph_infer",
      chain(1), want("sum", { 1 }), 1, 0, out)
    local names = {}
    for i = 1, 90 do
      names[i] = ("variable_number_%d"):format(i)
      if #table.concat(names, ", ") >= 400 then
        break
      end
    end
    fails("name", "there is no argument 'z'; arguments are: " .. table.concat(names, ", "),
      "ty_graph_infer", chain(90), want("z", { 1 }), 1, 0, out)
  end)

  it("takes what a variable says of itself, if it can be read and nothing else is given", function()
    local function inferred(attrs, given)
      local out = ffi.new("ty_desc[3]")
      takes("ty_graph_infer", chain(1, attrs), given, given and 1 or 0, 1, out)
      local shape = {}
      for i = 0, out[1].ndim - 1 do
        shape[i + 1] = tonumber(out[1].dim[i])
      end
      return { shape = shape, dtype = out[1].dtype }
    end
    local none = { shape = {}, dtype = C.TY_NODTYPE }
    assert.same({ shape = { 2, 3 }, dtype = C.TY_F64 },
      inferred{ "__shape__", "(2, 3)", "__dtype__", "1" })
    assert.same({ shape = { 0, 3 }, dtype = C.TY_NODTYPE }, inferred{ "__shape__", "(-1, 3)" })
    for _, shape in ipairs{ "()", "(2, x)", "", "(" .. ("1, "):rep(17) .. ")" } do
      assert.same(none, inferred{ "__shape__", shape })
    end
    for _, dtype in ipairs{ "99", "-1", "9" } do
      assert.same(none, inferred{ "__dtype__", dtype })
    end
    local says = { "__shape__", "(2, 3)", "__dtype__", "1" }
    assert.same({ shape = { 5 }, dtype = C.TY_I32 },
      inferred(says, want("variable_number_1", { 5 }, C.TY_I32)))
    assert.same({ shape = { 2, 3 }, dtype = C.TY_I32 },
      inferred(says, want("variable_number_1", {}, C.TY_I32)))
  end)

  it("warns of two variables with one name once", function()
    local g = interface.graph()
    local a, b = interface.var(g, "a"), interface.var(g, "a")
    interface.op(g, "elemwise_add", "sum", { a, b })
    local out = ffi.new("ty_desc[3]")
    takes("ty_graph_infer", g, want("a", { 4 }, C.TY_F32), 1, 0, out)
    assert.same({ 4, 4, 4 }, { tonumber(out[0].dim[0]), tonumber(out[1].dim[0]),
      tonumber(out[2].dim[0]) })
  end)

  it("refuses shapes and types that do not agree, with what was given", function()
    local x, y = ty.sym.Variable("x"), ty.sym.Variable("y")
    local net = ty.sym.elemwise_add{ x, y, name = "sum" }
    local e = assert.raises("shape", net.infer_shape, net, { x = { 2, 3 }, y = { 3, 2 } })
    assert.equal("sum", e.node)
    assert.truthy(e.message:find("shape of rhs is (3, 2), but (2, 3) is needed here", 1, true),
      e.message)
    assert.falsy(e.message:find("broadcast", 1, true), e.message)
    e = assert.raises("dtype", net.infer_type, net, { x = "float32", y = "int32" })
    assert.truthy(e.message:find("dtype of rhs is int32, but float32 is needed here", 1, true),
      e.message)
  end)

  it("names the operator that takes shapes which broadcast", function()
    local a, b, shapes = ty.sym.Variable("a"), ty.sym.Variable("b"), {
      { { 2, 3 }, { 1, 3 } }, { { 2, 1 }, { 2, 3 } }, { { 2, 3 }, { 3 } }, { { 1 }, { 4, 5, 6 } },
    }
    local nets = { add = a + b, sub = a - b, mul = a * b, div = a / b, mod = a % b, power = a ^ b,
      equal = a:eq(b), not_equal = a:ne(b), greater = a:gt(b), greater_equal = a:ge(b),
      lesser = a:lt(b), lesser_equal = a:le(b), maximum = ty.sym.maximum(a, b),
      minimum = ty.sym.minimum(a, b), hypot = ty.sym.hypot(a, b),
      logical_and = ty.sym._logical_and(a, b) }
    for name, net in pairs(nets) do
      for _, pair in ipairs(shapes) do
        local e = assert.raises("shape", net.infer_shape, net, { a = pair[1], b = pair[2] })
        local text = ("; broadcast_%s takes these shapes"):format(name)
        assert.truthy(e.message:find(text, 1, true), e.message)
        local other = ty.sym["broadcast_" .. name](a, b)
        assert.truthy((other:infer_shape{ a = pair[1], b = pair[2] }))
      end
    end
    local e = assert.raises("shape", ty.nd.elemwise_add, ty.nd.ones{ 2, 3 }, ty.nd.ones{ 1, 3 })
    assert.truthy(e.message:find("broadcast_add takes these shapes", 1, true), e.message)
    e = assert.raises("shape", ty.nd.add_n, ty.nd.ones{ 2, 3 }, ty.nd.ones{ 1, 3 })
    assert.falsy(e.message:find("broadcast", 1, true), e.message)
  end)
end)
