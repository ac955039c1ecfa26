-- User-defined functions (autograd.Function) and operators written in Lua, on arrays.
local ty = require "tycho"
require "spec.helper"

local autograd, nd = ty.autograd, ty.nd

local function variable(values, options)
  return nd.array(values, options):attach_grad()
end

local log

-- y = k x^2, z = x, with notes of what runs
local Square = autograd.Function:extend("Square")
function Square:init(k) self.k = k end
function Square:forward(x)
  log[#log + 1] = { "forward", autograd.is_recording() }
  self:save_for_backward(x)
  return x * x * self.k
end
function Square:backward(dy)
  log[#log + 1] = { "backward", autograd.is_recording() }
  return dy * self.saved_tensors[1] * 2 * self.k
end

before_each(function() log = {} end)

describe("a function", function()
  it("runs once forward and once back, with recording off", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function() return Square(3)(x) + x end)
    y:backward()
    assert.same({ 7, 13 }, x.grad:totable())
    assert.same({ { "forward", false }, { "backward", false } }, log)
  end)

  it("not recording, only computes", function()
    assert.same({ 3, 12 }, Square(3)(nd.array{ 1, 2 }):totable())
    assert.same({ { "forward", false } }, log)
    local x = variable{ 1 }
    local y = Square(3)(x)
    assert.raises("state", y.backward, y)
  end)

  it("runs back in program order, the last first", function()
    local order = {}
    local Note = autograd.Function:extend("Note")
    function Note:init(name) self.name = name end
    function Note:forward(x) return x * 1 end
    function Note:backward(dy)
      order[#order + 1] = self.name
      return dy
    end
    local x = variable{ 1 }
    local y = autograd.record(function()
      local a = Note("a")(x)
      local b = Note("b")(x)
      local c = Note("c")(a * b)
      return Note("d")(c + a)
    end)
    y:backward()
    assert.same({ "d", "c", "b", "a" }, order)
    assert.same({ 3 }, x.grad:totable())
  end)

  it("adds up where one array is two inputs, or a head", function()
    local Product = autograd.Function:extend("Product")
    function Product:forward(a, b)
      self:save_for_backward(a, b)
      return a * b
    end
    function Product:backward(dy)
      local a, b = unpack(self.saved_tensors)
      return dy * b, dy * a
    end
    local x = variable{ 3 }
    autograd.record(function() return Product()(x, x) end):backward()
    assert.same({ 6 }, x.grad:totable())
    local y, z = autograd.record(function()
      local y = x * 2
      return y, Product()(y, y)
    end)
    autograd.backward{ y, z }
    assert.same({ 2 + 2 * 2 * 6 }, x.grad:totable())
  end)

  it("takes several arrays and gives several; nil is zero, unused ones come as zeros", function()
    local Two, heads = autograd.Function:extend("Two"), nil
    function Two:forward(a, b) return a * 2, b * 3 end
    function Two:backward(da, db)
      heads = { da:totable(), db:totable() }
      return da * 2, nil
    end
    local a, b = variable{ 1, 2 }, variable{ 3, 4 }
    local y = autograd.record(function()
      local first = Two()(a, b)
      return first
    end)
    y:backward()
    assert.same({ { 1, 1 }, { 0, 0 } }, heads)
    assert.same({ 2, 2 }, a.grad:totable())
    assert.same({ 0, 0 }, b.grad:totable())
  end)

  it("keeps arrays in saved_tensors", function()
    local f = Square(1)
    f(nd.array{ 4 })
    assert.same({ 4 }, f.saved_tensors[1]:totable())
  end)

  it("one object serves one call", function()
    local f = Square(1)
    f(nd.array{ 1 })
    assert.raises("state", f, nd.array{ 1 })
  end)

  it("refuses wrong gradients", function()
    local Bad = autograd.Function:extend("Bad")
    function Bad:init(f) self.f = f end
    function Bad:forward(x) return x * 1 end
    function Bad:backward(dy) return self.f(dy) end
    local function code(want, f)
      local x = variable{ 1, 2 }
      local y = autograd.record(function() return Bad(f)(x) end)
      return assert.raises(want, y.backward, y)
    end
    code("value", function() end)
    code("value", function(dy) return dy, dy end)
    assert.matches("Bad:backward", tostring(code("shape", function() return nd.ones{ 3 } end)))
    code("type", function() return 3 end)
  end)

  it("refuses what is no array, and forward without results", function()
    assert.raises("type", Square(1), 3)
    local None = autograd.Function:extend("None")
    function None:forward() end
    assert.raises("value", None(), nd.array{ 1 })
    assert.raises("unsupported", autograd.Function:extend("Empty")(), nd.array{ 1 })
  end)

  it("is refused with symbols while a block is traced", function()
    local Net = ty.gluon.HybridBlock:extend("Net")
    function Net:forward(x) return Square(2)(x) end
    local net = Net()
    assert.same({ 2 }, net(nd.array{ 1 }):totable())
    net:hybridize()
    local e = assert.raises("unsupported", net, nd.array{ 1 })
    assert.matches("CustomOp", e.message)
    assert.matches("block '" .. net.name .. "'", e.message)
    assert.raises("type", Square(2), ty.sym.Variable("x"))
  end)

  it("an error inside comes out unchanged", function()
    local e = {}
    local Fails = autograd.Function:extend("Fails")
    function Fails:init(where) self.where = where end
    function Fails:forward(x)
      if self.where == "forward" then error(e) end
      return x * 1
    end
    function Fails:backward() error(e) end
    local ok, got = pcall(autograd.record, function() return Fails("forward")(nd.array{ 1 }) end)
    assert.is_false(ok)
    assert.equal(e, got)
    assert.is_false(autograd.is_recording())
    local x = variable{ 1 }
    local y = autograd.record(function() return Fails("backward")(x) end)
    ok, got = pcall(y.backward, y)
    assert.is_false(ok)
    assert.equal(e, got)
    assert.is_false(autograd.is_recording())
  end)

  it("under create_graph backward is recorded", function()
    local x = variable({ 1, 2 }, { dtype = "float64" })
    local y = autograd.record(function() return Square(3)(x) * x end)
    local dx = autograd.grad(y, x, { create_graph = true })
    assert.same({ 9, 36 }, dx:totable())
    assert.same({ { "forward", false }, { "backward", true } }, log)
    dx:backward()
    assert.same({ 18, 36 }, x.grad:totable())
  end)

  it("results that were saved have their history under create_graph", function()
    local Exp = autograd.Function:extend("Exp")
    function Exp:forward(x)
      local y = nd.exp(x)
      self:save_for_backward(y)
      return y
    end
    function Exp:backward(dy) return dy * self.saved_tensors[1] end
    local x = variable({ 1, 2 }, { dtype = "float64" })
    local y = autograd.record(function() return Exp()(x) end)
    local dx = autograd.grad(y, x, { create_graph = true })
    dx:backward()
    assert.near(nd.exp(x), x.grad, 1e-12)
  end)

  it("keeps what it saved, whether the script frees its arrays or not", function()
    local x = variable{ 1, 2 }
    local y, grad = autograd.record(function()
      local a = x * 3
      local y = Square(1)(a)
      a:free()
      return y * 1
    end), x.grad
    x:free()
    y:backward()
    assert.same({ 18, 36 }, grad:totable())
  end)

  it("whose graph was freed is refused", function()
    local x = variable{ 1 }
    local y, z = autograd.record(function()
      local y = Square(1)(x)
      return y, y * 2
    end)
    z:backward()
    assert.raises("state", z.backward, z)
    assert.raises("state", y.backward, y)
    assert.raises("state", autograd.grad, y, x, { create_graph = true })
  end)

  it("many of them, one after the other", function()
    local x = variable{ 1 }
    local y = autograd.record(function()
      local y = x
      for _ = 1, 200 do
        y = Square(0.5)(y + 1) - y
      end
      return y
    end)
    y:backward()
    assert.equal(400, #log)
  end)

  it("has no symbol", function()
    local x = variable{ 1 }
    local y = autograd.record(function() return Square(1)(x) end)
    assert.raises("unsupported", autograd.get_symbol, y)
  end)
end)

-- Operators written in Lua ------------------------------------------------------------------------

local Cube, CubeProp = ty.operator.CustomOp:extend("Cube"),
  ty.operator.CustomOpProp:extend("CubeProp")
function Cube:forward(is_train, req, ins, outs, aux)
  log[#log + 1] = { "forward", is_train, autograd.is_recording() }
  self:assign(outs[1], req[1], ins[1] * ins[1] * ins[1])
  aux[1][":"] = aux[1] + 1
end
function Cube:backward(req, heads, ins, outs, grads)
  log[#log + 1] = { "backward", outs[1]:totable() }
  self:assign(grads[1], req[1], heads[1] * ins[1] * ins[1] * 3)
end
function CubeProp.list_auxiliary_states() return { "count" } end
function CubeProp.create_operator() return Cube() end
ty.operator.register("spec_recorded_cube", CubeProp)

describe("nd.Custom", function()
  local function cube(x, count)
    return nd.Custom(x, count or nd.zeros(x.shape, { dtype = x.dtype }),
      { op_type = "spec_recorded_cube" })
  end

  it("keeps its inputs and results, whether the script frees its arrays or not", function()
    local x = variable{ 1, 2 }
    local y = autograd.record(function()
      local a = x * 2
      local cubes = cube(a)
      local y = cubes * 1
      a:free()
      cubes:free()
      return y
    end)
    y:backward()
    assert.same({ 24, 96 }, x.grad:totable())
  end)

  it("is recorded", function()
    local x, count = variable{ 1, 2 }, nd.zeros{ 2 }
    local y = autograd.record(function() return cube(x * 2, count) * 1 end)
    y:backward()
    assert.same({ 24, 96 }, x.grad:totable())
    assert.same({ 1, 1 }, count:totable())
    assert.same({ { "forward", true, false }, { "backward", { 8, 64 } } }, log)
  end)

  it("runs in training mode where that is on", function()
    cube(nd.array{ 1 })
    autograd.train_mode(function() cube(nd.array{ 1 }) end)
    assert.same({ "forward", false, false }, log[1])
    assert.same({ "forward", true, false }, log[2])
  end)

  it("has gradients of gradients where backward is made of operators", function()
    local x = variable({ 1, 2 }, { dtype = "float64" })
    local y = autograd.record(function() return cube(x) end)
    local dx = autograd.grad(y, x, { create_graph = true })
    dx:backward()
    assert.same({ 3, 12 }, dx:totable())
    assert.same({ 6, 12 }, x.grad:totable())
  end)

  it("an error in backward is E(run), with its cause", function()
    local Fails, FailsProp = ty.operator.CustomOp:extend("Fails"),
      ty.operator.CustomOpProp:extend("FailsProp")
    function Fails:forward(_, req, ins, outs) self:assign(outs[1], req[1], ins[1]) end
    function Fails.backward() error("never") end
    function FailsProp.create_operator() return Fails() end
    ty.operator.register("spec_recorded_fails", FailsProp)
    local x = variable{ 1 }
    local y = autograd.record(function()
      return nd.Custom(x, { op_type = "spec_recorded_fails" })
    end)
    local e = assert.raises("run", y.backward, y)
    assert.matches("never", tostring(e.cause))
    assert.matches("function_spec.lua", e.where, 1, true)
  end)
end)
