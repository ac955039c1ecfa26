-- Buckets: any order costs the largest, parameters of some buckets only, one
-- numbering for the optimizer's states.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"
local ty = require "tycho"
require "spec.helper"

local function sym_gen(key)
  local h = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 64, flatten = false,
    no_bias = true, name = "wide" .. (key > 20 and 2 or 1) }
  h = ty.sym.FullyConnected{ data = ty.sym.sum{ h, axis = 1 }, num_hidden = 1,
    no_bias = true, name = "last" }
  return ty.sym.MakeLoss{ h, name = "loss" }, { "data" }, nil
end

local function batch(key)
  return ty.io.DataBatch{ data = { ty.nd.ones{ 2, key, 3 } }, bucket_key = key,
    provide_data = { { "data", { 2, key, 3 } } } }
end

local function bound(default)
  local m = ty.mod.BucketingModule{ sym_gen = sym_gen, default_bucket_key = default }
  m:bind{ data_shapes = { { "data", { 2, default, 3 } } } }
  m:init_params{ initializer = ty.init.Constant(0.1) }
  return m
end

local function step(m, key)
  m:forward_backward(batch(key))
  m:update()
end

describe("BucketingModule", function()
  it("needs the memory of the largest bucket, in any order", function()
    local pools = {}
    for i, order in ipairs{ { 10, 80, 5 }, { 5, 10, 80 }, { 80, 5, 10 } } do
      local m = bound(order[1])
      for _, key in ipairs(order) do
        m:forward_backward(batch(key))
      end
      local memory = m:memory()
      pools[i] = memory.pool
      assert.is_true(memory.pool <= 1.02 * memory.largest, memory.pool .. " of " .. memory.largest)
      assert.is_true(memory.planned > memory.largest)
    end
    assert.are.equal(pools[1], pools[2])
    assert.are.equal(pools[1], pools[3])
  end)

  it("keeps each parameter's momentum under one number, whatever bucket comes", function()
    local function weights(order)
      local m = bound(order[1])
      m:init_optimizer{ optimizer_params = { learning_rate = 0.001, momentum = 0.9, wd = 0 } }
      for _, key in ipairs(order) do
        step(m, key)
      end
      local args = m:get_params()
      return { args.wide1_weight, args.wide2_weight, args.last_weight }
    end
    local mixed, small, large = weights{ 5, 30, 5, 30 }, weights{ 5, 5 }, weights{ 30, 30 }
    assert.is_true(mixed[2] ~= nil and small[2] == nil and large[1] == nil)
    assert.are_not.same(small[3]:totable(), mixed[3]:totable())
  end)

  it("resumes in a fresh module that meets its buckets in another order", function()
    local path = os.tmpname()
    local m = bound(5)
    m:init_optimizer{ optimizer = "adam" }
    step(m, 5)
    step(m, 30)
    m:save_state(path)
    step(m, 30)
    local n = bound(30)
    n:init_optimizer{ optimizer = "adam" }
    n:prepare(batch(5))
    n:load_state(path)
    step(n, 30)
    for name, x in pairs(m:get_params()) do
      assert.are.equal(x:tostring_raw(), n:get_params()[name]:tostring_raw(), name)
    end
    os.remove(path)
  end)

  it("gives a late parameter the value that was set before, or the initializer's", function()
    local m = bound(5)
    m:set_params({ wide1_weight = ty.nd.ones{ 64, 3 }, last_weight = ty.nd.ones{ 1, 64 },
      wide2_weight = ty.nd.full({ 64, 3 }, 2) }, {})
    m:forward(batch(30))
    assert.near({ { 30 * 3 * 2 * 64 }, { 30 * 3 * 2 * 64 } }, m:get_outputs()[1], 1e-2)
    local n = bound(5)
    n:forward(batch(30))
    assert.near(0.1, n:get_params().wide2_weight:totable()[1][1])
  end)

  it("hands on the parameters of buckets that it has not met", function()
    local m = bound(10)
    m:init_optimizer()
    step(m, 30)
    local want = m:get_params().wide2_weight:copy()
    folder.with(function(path)
      m:save_checkpoint(path .. "/m", 1)
      m:save_state(path .. "/s")
      local function check(fresh)
        assert.are.same(want:totable(), fresh:get_params().wide2_weight:totable())
        fresh:save_params(path .. "/p")
        assert.are.same(want:totable(),
          ty.nd.load(path .. "/p")["arg:wide2_weight"]:totable())
        fresh:save_checkpoint(path .. "/m", 2)
        assert.are.same(want:totable(),
          ty.nd.load(path .. "/m-0002.params")["arg:wide2_weight"]:totable())
        fresh:set_params(fresh:get_params())
        local arg_params, aux_params = fresh:get_params()
        fresh:set_params(arg_params, aux_params, { allow_missing = true })
        fresh:forward(batch(30), false)
        assert.are.same(want:totable(), fresh:get_params().wide2_weight:totable())
      end
      local loaded = ty.mod.BucketingModule.load{ path .. "/m", 1, sym_gen = sym_gen,
        default_bucket_key = 10 }
      loaded:bind{ data_shapes = { { "data", { 2, 10, 3 } } } }
      check(loaded)
      for _, file in ipairs{ "/s", "/t" } do
        local resumed = bound(10)
        resumed:init_optimizer()
        resumed:load_state(path .. file)
        resumed:save_state(path .. "/t")
        check(resumed)
      end
      -- names of other networks, which a first training begins with, are not its own
      local begun = ty.mod.BucketingModule{ sym_gen = sym_gen, default_bucket_key = 10 }
      begun:bind{ data_shapes = { { "data", { 2, 10, 3 } } } }
      local given = { other_weight = ty.nd.ones{ 1 } }
      for name, x in pairs((m:get_params())) do
        given[name] = x
      end
      begun:init_params{ arg_params = given, aux_params = {} }
      assert.is_nil(begun:get_params().other_weight)
    end)
  end)

  it("tells apart lists that look alike, and one that the caller changes", function()
    local asked = {}
    local function gen(key)
      asked[#asked + 1] = key
      return ty.sym.identity(ty.sym.Variable "data") * #asked, { "data" }, nil
    end
    local m = ty.mod.BucketingModule{ sym_gen = gen, default_bucket_key = 0 }
    m:bind{ data_shapes = { { "data", { 1 } } }, for_training = false }
    m:init_params()
    local function run(key)
      m:forward(ty.io.DataBatch{ data = { ty.nd.ones{ 1 } }, bucket_key = key,
        provide_data = { { "data", { 1 } } } }, false)
      return m:get_outputs()[1]:asscalar()
    end
    local key = { 5, "a" }
    local known = run(key)
    assert.equal(known, run(key))
    key[1] = 7
    assert.equal(known + 1, run(key))
    key[1] = 5
    assert.equal(known, run(key))
    assert.equal(known + 2, run{ "a,sb" })
    assert.equal(known + 3, run{ "a", "b" })
    assert.equal(known + 4, run{ 0.1 + 0.2 })
    assert.equal(known + 5, run{ 0.3 })
    assert.equal(known + 5, run{ 0.3 })
  end)

  it("refuses keys that are no lists", function()
    local options = { sym_gen = sym_gen, default_bucket_key = { width = 3 } }
    local e = assert.raises("type", ty.mod.BucketingModule, options)
    assert.matches("field 'width'", tostring(e))
    assert.raises("type", ty.mod.BucketingModule, sym_gen, { logger = ty.log })
    options.default_bucket_key = { 1, [3] = 2 }
    assert.raises("type", ty.mod.BucketingModule, options)
    options.default_bucket_key = { 1, { true } }
    assert.raises("type", ty.mod.BucketingModule, options)
  end)

  it("takes lists as keys", function()
    local function generate(key) return sym_gen(key[1]) end
    local m = ty.mod.BucketingModule{ sym_gen = generate, default_bucket_key = { 5, 1 } }
    m:bind{ data_shapes = { { "data", { 2, 5, 3 } } } }
    m:init_params()
    m:switch_bucket({ 6, 1 }, { { "data", { 2, 6, 3 } } })
    m:switch_bucket{ bucket_key = { 5, 1 } }
    assert.are.same({ 2, 5, 3 }, m.data_shapes[1].shape)
  end)

  it("compiles nothing while it binds a bucket, and goes on compiling after it, or after an error",
    function()
      local status
      local m = ty.mod.BucketingModule{ default_bucket_key = 5, sym_gen = function(key)
        status = jit.status()
        return key < 9 and sym_gen(key) or nil, { "data" }
      end }
      m:bind{ data_shapes = { { "data", { 2, 5, 3 } } } }
      m:init_params()
      local before = jit.status()
      finally(function() jit[before and "on" or "off"]() end)
      for _, wanted in ipairs{ true, false } do
        jit[wanted and "on" or "off"]()
        m:switch_bucket(wanted and 6 or 7, { { "data", { 2, wanted and 6 or 7, 3 } } })
        assert.are.equal(false, status)
        assert.are.equal(wanted, (jit.status()))
        local ok, err = pcall(m.switch_bucket, m, 9, { { "data", { 2, 9, 3 } } })
        assert.is_false(ok)
        assert.are.equal("type", err.code)
        assert.are.equal(wanted, (jit.status()))
      end
    end)

  for _, mode in ipairs{ "switch", "predict", "train" } do
    it("takes no more memory however often buckets change: " .. mode, function()
      if (os.getenv("SANITIZER") or "") ~= "" then
        pending("a sanitizer keeps freed memory for a while")
        return
      end
      local output, status = shell.tycho(("spec/support/switching.lua %s 500 10000"):format(mode))
      assert.equal(0, status, output)
      local kb, files, ratio = output:match("(%S+)%s+(%S+)%s+(%S+)")
      assert.is_true(tonumber(kb) <= 1024, output)
      assert.is_true(tonumber(files) <= 2, output)
      assert.is_true(tonumber(ratio) <= 1.02, output)
    end)
  end
end)
