-- States of modules: they keep their values over batches of other sizes.

local ty = require "tycho"

local CONTEXTS = { one = { ty.cpu(0) }, several = { ty.cpu(0), ty.cpu(1) } }

local function net()
  return ty.sym.BlockGrad{ ty.sym.Variable("data") + ty.sym.Variable("st") }
end

local function module(contexts)
  local m = ty.mod.Module{ symbol = net(), label_names = {}, state_names = { "st" },
    context = contexts }
  m:bind{ data_shapes = { { "data", { 4, 3 } } } }
  m:init_params()
  return m
end

-- Returns column 0 of the module's output for zeros.
local function seen(m, rows, key)
  m:forward(ty.io.DataBatch{ data = { ty.nd.zeros{ rows, key or 3 } }, bucket_key = key }, false)
  return m:get_outputs()[1]:slice_axis{ axis = 1, begin = 0, ["end"] = 1 }:reshape{ -1 }:totable()
end

local function column(list)
  return ty.nd.broadcast_to{ ty.nd.array(list):reshape{ -1, 1 }, shape = { #list, 3 } }
end

for name, contexts in pairs(CONTEXTS) do
  describe("states on " .. name, function()
    it("are the number that they were set to, for all sizes", function()
      local m = module(contexts)
      assert.are.same({ 0, 0 }, seen(m, 2))
      m:set_states{ value = 2 }
      for _, rows in ipairs{ 4, 2, 7, 4, 9, 3 } do
        for _, x in ipairs(seen(m, rows)) do
          assert.are.equal(2, x)
        end
      end
      m:set_states{ value = 5 }
      for _, rows in ipairs{ 4, 9, 2 } do
        for _, x in ipairs(seen(m, rows)) do
          assert.are.equal(5, x)
        end
      end
      assert.shape({ 2, 3 }, m:get_states()[1])
    end)

    it("are the arrays that were given, for fewer rows the first ones", function()
      local m = module(contexts)
      assert.are.same({ 0, 0, 0, 0, 0, 0 }, seen(m, 6))
      m:reshape{ { "data", { 4, 3 } } }
      m:set_states{ states = { column{ 1, 2, 3, 4 } } }
      assert.are.same({ 1, 2, 3, 4 }, seen(m, 4))
      for _ = 1, 2 do
        assert.are.same({ 1, 2 }, seen(m, 2))
        assert.are.same({ 1, 2, 3, 4 }, seen(m, 4))
        assert.are.same({ 1, 2, 3 }, seen(m, 3))
      end
      assert.are.same({ 1, 2 }, seen(m, 2))
      assert.are.same({ 1, 2 }, m:get_states()[1]:slice_axis{ axis = 1, begin = 0,
        ["end"] = 1 }:reshape{ -1 }:totable())
    end)

    it("are missing for more rows than were given", function()
      local m = module(contexts)
      m:set_states{ states = { column{ 1, 2, 3, 4 } } }
      local e = assert.raises("state", m.forward, m, { data = { ty.nd.zeros{ 6, 3 } } }, false)
      assert.are.same({ "st", 4, 6 }, { e.argument, e.expected[1], e.got[1] })
      assert.truthy(e.message:find("set_states", 1, true))
      m:reshape{ { "data", { 6, 3 } } }
      m:set_states{ states = { column{ 1, 2, 3, 4, 5, 6 } } }
      assert.are.same({ 1, 2, 3, 4, 5, 6 }, seen(m, 6))
      assert.are.same({ 1, 2, 3, 4 }, seen(m, 4))
    end)

    it("are refused in another shape", function()
      local m = module(contexts)
      for _, rows in ipairs{ 2, 6 } do
        local x = column(ty.nd.arange(0, rows):totable())
        local e = assert.raises("shape", m.set_states, m, { states = { x } })
        assert.are.equal("st", e.argument)
      end
      assert.are.equal("st", assert.raises("type", m.set_states, m, { states = { 1 } }).argument)
    end)
  end)
end

describe("states", function()
  it("are common to buckets", function()
    local m = ty.mod.BucketingModule{ default_bucket_key = 3, state_names = { "st" },
      sym_gen = function(key)
        local part = ty.sym.slice_axis{ ty.sym.Variable("data"), axis = 1, begin = 0, ["end"] = 3 }
        return ty.sym.BlockGrad{ part + ty.sym.Variable("st") + key * 0 }, { "data" }
      end }
    m:bind{ data_shapes = { { "data", { 4, 3 } } } }
    m:init_params()
    m:set_states{ value = 3 }
    for _, case in ipairs{ { 4, 3 }, { 4, 5 }, { 6, 7 }, { 4, 3 }, { 9, 5 } } do
      for _, x in ipairs(seen(m, case[1], case[2])) do
        assert.are.equal(3, x)
      end
    end
    m:set_states{ value = 1 }
    assert.are.equal(1, seen(m, 4, 3)[4])
    assert.are.equal(1, seen(m, 6, 7)[6])
  end)
end)
