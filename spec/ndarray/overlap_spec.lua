-- Calls on arrays whose result is given and overlaps what they read: the numbers are those of a
-- result elsewhere (native/imperative/call.c).

local ffi = require "ffi"
local interface = require "spec.support.interface"

local C, fails, takes = interface.C, interface.fails, interface.takes

-- Returns n elements from `first` on, as an array of its own; dtype: another type over the same
-- bytes.
local function view(x, first, shape, dtype)
  local d = ffi.new("ty_desc", { dtype = dtype or C.TY_F32, ndim = #shape })
  for i, n in ipairs(shape) do
    d.dim[i - 1] = n
  end
  return interface.make("ty_tensor", "ty_tensor_view", x, d, 4 * first)
end

local function call(op, attrs, inputs, outs)
  local list, n = interface.attrs(attrs)
  takes("ty_call", op, list, n, ffi.new("ty_tensor *[?]", #inputs, inputs), #inputs,
    ffi.new("ty_tensor *[?]", #outs, outs), #outs)
end

local function counted()
  return interface.tensor({ 8 }, { 1, 2, 3, 4, 5, 6, 7, 8 })
end

describe("a result over an input", function()
  it("a part of it further on or further back", function()
    for _ = 1, 2 do                                       -- the second call is remembered
      local x = counted()
      call("square", {}, { view(x, 0, { 4 }) }, { view(x, 2, { 4 }) })
      assert.same({ 1, 2, 1, 4, 9, 16, 7, 8 }, interface.numbers(x))
      x = counted()
      call("square", {}, { view(x, 2, { 4 }) }, { view(x, 0, { 4 }) })
      assert.same({ 9, 16, 25, 36, 5, 6, 7, 8 }, interface.numbers(x))
      x = counted()
      call("square", {}, { view(x, 0, { 4 }) }, { view(x, 4, { 4 }) }) -- beside it
      assert.same({ 1, 2, 3, 4, 1, 4, 9, 16 }, interface.numbers(x))
      call("square", {}, { view(x, 4, { 4 }) }, { view(x, 0, { 4 }) })
      assert.same({ 1, 16, 81, 256, 1, 4, 9, 16 }, interface.numbers(x))
      call("square", {}, { view(x, 0, { 2 }) }, { view(x, 0, { 2 }) })
      assert.same({ 1, 256, 81, 256, 1, 4, 9, 16 }, interface.numbers(x))
    end
  end)

  it("in another shape, and of operators that read elements more than once", function()
    local x = counted()
    call("transpose", {}, { view(x, 0, { 2, 4 }) }, { view(x, 0, { 4, 2 }) })
    assert.same({ 1, 5, 2, 6, 3, 7, 4, 8 }, interface.numbers(x))
    x = counted()
    call("transpose", {}, { view(x, 0, { 2, 2 }) }, { view(x, 0, { 2, 2 }) })
    assert.same({ 1, 3, 2, 4, 5, 6, 7, 8 }, interface.numbers(x))
    x = counted()
    call("broadcast_mul", {}, { view(x, 0, { 2, 2 }), view(x, 0, { 1, 2 }) },
      { view(x, 0, { 2, 2 }) })
    assert.same({ 1, 4, 3, 8, 5, 6, 7, 8 }, interface.numbers(x))
    x = counted()
    call("dot", {}, { view(x, 0, { 2, 2 }), view(x, 4, { 2, 2 }) }, { view(x, 4, { 2, 2 }) })
    assert.same({ 1, 2, 3, 4, 19, 22, 43, 50 }, interface.numbers(x))
    x = counted()
    call("SliceChannel", { "num_outputs", "2" }, { view(x, 0, { 2, 4 }) },
      { view(x, 4, { 2, 2 }), view(x, 0, { 2, 2 }) })
    assert.same({ 3, 4, 7, 8, 1, 2, 5, 6 }, interface.numbers(x))
  end)

  it("in another type", function()
    local x = counted()
    call("Cast", { "dtype", "int32" }, { x }, { view(x, 0, { 8 }, C.TY_I32) })
    local whole = ffi.new("int32_t[8]")
    takes("ty_tensor_read", x, whole, 32)
    for i = 0, 7 do
      assert.equal(i + 1, whole[i])
    end
  end)
end)

describe("a result that does not fit", function()
  it("is refused with what it is and what it should be", function()
    local x = ffi.new("ty_tensor *[1]", { counted() })
    local short, other = interface.tensor{ 7 }, interface.tensor({ 8 }, nil, C.TY_F64)
    local d = ffi.new("ty_desc", { dtype = C.TY_F32, ndim = 1, device = 1 })
    d.dim[0] = 8
    local far = interface.make("ty_tensor", "ty_tensor_new", d)
    for text, case in pairs{
      ["shape: relu: out has shape (7,), but the result has (8,)"] = short,
      ["dtype: relu: out is float64, but the result is float32"] = other,
      ["device: relu: all arrays must be on one device; out is on cpu(1), others on cpu(0); use \z
        as_in_context"] = far,
    } do
      fails(text:match("^%w+"), text:match(": (.*)"), "ty_call", "relu", nil, 0, x, 1,
        ffi.new("ty_tensor *[1]", { case }), 1)
    end
    fails("device", "elemwise_add: all arrays must be on one device; rhs is on cpu(1), others on \z
      cpu(0); use as_in_context", "ty_call", "elemwise_add", nil, 0,
      ffi.new("ty_tensor *[2]", { x[0], far }), 2, ffi.new("ty_tensor *[1]"), 1)
  end)
end)
