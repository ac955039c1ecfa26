-- Where nodes of one network run: groups with devices (group2ctx), nodes without a group, values
-- that cross, states, control flow.

local ty = require "tycho"

local V, Group, contrib = ty.sym.Variable, ty.sym.Group, ty.sym.contrib

local function in_group(name, f)
  return ty.AttrScope{ ctx_group = name }:with(f)
end

local PLACES = { low = ty.cpu(1), high = ty.cpu(2) }

-- Asserts that outputs and gradients (of ones) for values by name are the same on one device and on
-- several.
local function alike(net, values, groups)
  local all = {}
  for k, places in ipairs{ false, groups or PLACES } do
    local given = { ctx = ty.cpu(0), group2ctx = places or nil }
    for name, v in pairs(values) do
      given[name] = v.shape
    end
    local e = net:simple_bind(given)
    e:copy_params_from(values, {}, true)
    local found, heads = {}, {}
    for i, y in ipairs(e:forward{ is_train = true }) do
      found[i], heads[i] = y:totable(), ty.nd.ones(y.shape, { ctx = y.context })
    end
    e:backward(heads)
    for name, g in pairs(e.grad_dict) do
      found[name] = g:totable()
    end
    for name, x in pairs(e.aux_dict) do
      found[name] = x:totable()
    end
    all[k] = { found, e }
  end
  assert.same(all[1][1], all[2][1])
  return all[2][2]
end

-- Returns how often a result of SliceChannel is copied to another device.
local function copies(e)
  return select(2, e:program():gsub("%[slicechannel%d+_%d_copy%]", ""))
end

local function normal(...) return ty.nd.random.normal{ shape = { ... } } end

describe("a network with groups", function()
  it("computes what it computes on one device", function()
    local x = in_group("low", function() return ty.sym.tanh{ V("x") * V("a"), name = "t" } end)
    local y = in_group("high", function() return ty.sym.sigmoid(x * V("b")) end)
    alike(Group{ y, x, ty.sym.exp(y) + x },
      { x = normal(3, 4), a = normal(3, 4), b = normal(3, 4) })
  end)

  it("copies a value once for each device that reads it", function()
    local x = in_group("low", function() return ty.sym.SliceChannel{ V("x"), num_outputs = 2 } end)
    local v = V("v")
    local y = in_group("high", function()
      return ty.sym.FullyConnected{ x[1], V("w"), no_bias = true, num_hidden = 2 }
        + ty.sym.FullyConnected{ x[1], v, no_bias = true, num_hidden = 2 }
    end)
    local values = { x = normal(2, 4), w = normal(2, 2), v = normal(2, 2) }
    local e = y:simple_bind{ ctx = ty.cpu(0), group2ctx = PLACES, x = { 2, 4 }, grad_req = "null" }
    assert.equal(1, copies(e))
    local z = in_group("high", function()
      return y + ty.sym.FullyConnected{ x[2], v, no_bias = true, num_hidden = 2 }
    end)
    e = z:simple_bind{ ctx = ty.cpu(0), group2ctx = PLACES, x = { 2, 4 }, grad_req = "null" }
    assert.equal(2, copies(e))
    alike(Group{ y, z }, values)
  end)

  it("places what has no group with what it reads, or with what reads it", function()
    local y = in_group("high", function() return ty.sym.exp{ V("x"), name = "y" } end)
    local e = alike(ty.sym.log{ y + 9, name = "z" }, { x = normal(3) })
    assert.equal("cpu(2)", tostring(e.outputs[1].context))
    local alone = ty.sym.log{ V("u"), name = "z" }
    e = alike(Group{ alone, y }, { x = ty.nd.ones(3), u = ty.nd.ones(3) })
    assert.equal("cpu(0)", tostring(e.outputs[1].context))
    assert.equal("cpu(2)", tostring(e.outputs[2].context))
    -- no node has a group: the device of the executor
    e = alike(alone, { u = ty.nd.ones(3) })
    assert.equal("cpu(0)", tostring(e.outputs[1].context))
  end)

  it("brings gradients to their arrays, wherever they are made", function()
    local sum = in_group("low", function()
      return ty.sym.exp(ty.sym.BlockGrad{ V("x") }) + V("w")
    end)
    local net = in_group("high", function() return sum * V("v") end)
    local values = { x = normal(3), w = normal(3), v = normal(3), free = normal(3) }
    -- of x it is zero, of w what comes from v's device, free has no group
    local e = alike(net * V("free"), values)
    assert.same({ 0, 0, 0 }, e.grad_dict.x:totable())
    assert.equal("cpu(1)", tostring(e.grad_dict.x.context))
    assert.equal("cpu(1)", tostring(e.grad_dict.w.context))
    assert.equal("cpu(0)", tostring(e.grad_dict.free.context))
    -- Binds gradients that are added to their arrays.
    local function bound(g)
      return net:bind{ ctx = ty.cpu(0), group2ctx = PLACES, args = { x = values.x:copyto(ty.cpu(1)),
        w = values.w:copyto(ty.cpu(1)), v = ty.nd.ones(3, { ctx = ty.cpu(2) }) },
        args_grad = { w = g }, grad_req = { w = "add" } }
    end
    local g = ty.nd.ones(3, { ctx = ty.cpu(1) })
    e = bound(g)
    for _ = 1, 2 do
      e:forward{ is_train = true }
      e:backward(ty.nd.full({ 3 }, 5, { ctx = ty.cpu(2) }))
    end
    assert.same({ 11, 11, 11 }, g:totable())
    assert.raises("device", function() bound(ty.nd.ones(3, { ctx = ty.cpu(3) })) end)
  end)

  it("needs a device for each group", function()
    local x = in_group("other", function() return ty.sym.exp{ V("x"), name = "y" } end)
    local e = assert.raises("device", function()
      x:simple_bind{ ctx = ty.cpu(0), group2ctx = PLACES, x = { 3 } }
    end)
    assert.truthy(e.message:find("belongs to ctx group 'other', but group2ctx names no device \z
      for it", 1, true), e.message)
    -- without group2ctx a group says nothing
    assert.equal(1, #x:simple_bind{ ctx = ty.cpu(0), x = { 3 } }.outputs)
  end)

  it("keeps states with the operator that changes them", function()
    local y = in_group("low", function()
      return ty.sym.BatchNorm{ V("x"), name = "bn", fix_gamma = false }
    end)
    local net = in_group("high", function() return ty.sym.exp(y) end)
    local e = net:simple_bind{ ctx = ty.cpu(0), group2ctx = PLACES, x = { 4, 3 } }
    assert.equal("cpu(1)", tostring(e.aux_dict.bn_moving_mean.context))
    local function arrays(names, shapes, ctx)
      local list = {}
      for i, name in ipairs(names) do
        list[name] = ty.nd.ones(shapes[i], { ctx = ctx })
      end
      return list
    end
    local shapes, _, states = net:infer_shape{ x = { 4, 3 } }
    local failure = assert.raises("device", function()
      net:bind{ ctx = ty.cpu(0), group2ctx = PLACES,
        args = arrays(net:list_arguments(), shapes, ty.cpu(1)),
        aux_states = arrays(net:list_auxiliary_states(), states, ty.cpu(2)) }
    end)
    assert.truthy(failure.message:find("auxiliary state bn_moving_mean is on another device than the \z
      operator that changes it", 1, true), failure.message)
    assert.equal("bn", failure.node)
  end)

  it("runs a choice whose branches are elsewhere", function()
    local x = in_group("low", function() return ty.sym.tanh(V("x")) end)
    local w, p = in_group("low", function() return V("w"), V("p") end)
    local y = contrib.cond(ty.sym.sum(p):gt(0), function() return x * w end,
      function() return x + w end)
    local net = in_group("high", function() return ty.sym.exp{ y, name = "e" } end)
    for _, which in ipairs{ 1, -1 } do
      alike(net, { x = normal(3), w = normal(3), p = ty.nd.array{ which } })
    end
  end)

  it("runs a loop over rows of what is elsewhere, with states", function()
    local outs, state = in_group("low", function()
      local w = V("w")
      return contrib.foreach(function(row, s)
        return ty.sym.BatchNorm{ row, name = "bn", momentum = 0.5, fix_gamma = false } * s, s + w
      end, ty.sym.tanh(V("x")), V("s"))
    end)
    local net = in_group("high", function() return ty.sym.exp{ outs, name = "e" } end)
    local moved = alike(Group{ net, state }, { x = normal(2, 3, 4), w = normal(3, 4),
      s = normal(3, 4), bn_gamma = normal(4), bn_beta = normal(4) })
    assert.is_true(moved.aux_dict.bn_moving_mean:abs():max():asscalar() > 0)
  end)
end)
