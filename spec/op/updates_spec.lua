-- adamw_update and related updates (runtime/lua/tycho/op/updates.lua): wrappers of the operators
-- with an underscore, called with a number for the scale and with lists.
local ty = require "tycho"
local trials = require "spec.support.trials"
require "spec.helper"

local nd, contrib = ty.nd, ty.nd.contrib

local function refused(code, words, f, ...)
  local e = assert.raises(code, f, ...)
  assert.is_truthy(tostring(e):find(words, 1, true), tostring(e))
end

-- Returns weights, gradients, means, variances of n parameters; the same at each call.
local function arrays(n, half)
  local random, lists = trials.random(3), { {}, {}, {}, {}, {} }
  for i = 1, n do
    for k = 1, 4 do
      lists[k][i] = trials.fill(nd.zeros{ i + 1 }, random, k == 4 and 0.1 or -1, 1)
    end
    lists[5][i] = lists[1][i]
    if half then
      for k = 1, 2 do lists[k][i] = lists[k][i]:astype("float16") end
    end
  end
  return lists
end

local function weight_of(lists, i)
  return lists[1][i], lists[2][i], lists[3][i], lists[4][i]
end

describe("adamw_update", function()
  it("takes the scale as a number or an array, and parameters by place or name", function()
    local want
    for _, scale in ipairs{ 0.5, nd.array{ 0.5 } } do
      local w, g, m, v = weight_of(arrays(1), 1)
      local y = contrib.adamw_update(w, g, m, v, scale, 0.1, 0.7, { wd = 0.01 })
      local a, b, c, d = weight_of(arrays(1), 1)
      want = nd._adamw_update{ a, b, c, d, nd.array{ 0.5 }, lr = 0.1, eta = 0.7, wd = 0.01 }
      assert.same(want:totable(), y:totable())
      assert.same(c:totable(), m:totable())
      assert.same(d:totable(), v:totable())
    end
    local w, g, m, v = weight_of(arrays(1), 1)
    contrib.adamw_update{ weight = w, grad = g, mean = m, var = v, rescale_grad = 0.5, lr = 0.1,
      eta = 0.7, wd = 0.01, out = w }
    assert.same(want:totable(), w:totable())
  end)

  it("has a master copy", function()
    local w, g, m, v = weight_of(arrays(1), 1)
    local half, master = w:astype("float16"), w:copy()
    local y = contrib.mp_adamw_update{ half, g:astype("float16"), m, v, master, 2, lr = 0.1,
      eta = 1 }
    assert.equal("float16", y.dtype)
    assert.same(master:astype("float16"):totable(), y:totable())
    assert.not_same(w:totable(), master:totable())
  end)

  it("of symbols takes a number, too", function()
    local V = ty.sym.Variable
    local a = ty.sym.contrib.adamw_update{ V "w", V "g", V "m", V "v", 2, lr = 0.1, eta = 1,
      name = "step" }
    assert.equal("step", a.name)
    assert.same({ "w", "g" }, a:list_arguments())
    local b = ty.sym.contrib.mp_adamw_update(V "w", V "g", V "m", V "v", V "w32", V "s", 0.1, 1)
    assert.same({ "w", "g", "s" }, b:list_arguments())
    assert.same({ "m", "v", "w32" }, b:list_auxiliary_states())
    local e = a:simple_bind{ ctx = ty.current_context(), w = { 2 }, g = { 2 }, grad_req = "null" }
    local w, g, m, v = weight_of(arrays(1), 1)
    e.arg_dict.w[":"], e.arg_dict.g[":"] = w, g
    e.aux_dict.m[":"], e.aux_dict.v[":"] = m, v
    assert.near(contrib.adamw_update(w, g, m, v, 2, 0.1, 1), e:forward()[1], 1e-6)
  end)
end)

describe("updates of many weights", function()
  local LISTS = { lrs = { 0.1, 0.2, 0.3 }, wds = { 0, 0.1, 0.2 }, etas = { 1, 0.5, 2 } }

  for _, half in ipairs{ false, true } do
    it("are those of one weight: " .. (half and "multi_mp_adamw_update" or "multi_adamw_update"),
      function()
        local x, y = arrays(3, half), arrays(3, half)
        local many = half and contrib.multi_mp_adamw_update or contrib.multi_adamw_update
        local call = { x[1], x[2], x[3], x[4], lrs = LISTS.lrs, wds = LISTS.wds, etas = LISTS.etas,
          rescale_grad = 0.5, beta1 = 0.8, out = x[1] }
        call[5] = half and x[5] or nil
        many(call)
        for i = 1, 3 do
          local inputs = { weight_of(y, i) }
          inputs[5] = half and y[5][i] or nil
          inputs.rescale_grad, inputs.beta1, inputs.out = 0.5, 0.8, y[1][i]
          inputs.lr, inputs.eta, inputs.wd = LISTS.lrs[i], LISTS.etas[i], LISTS.wds[i]
          local one = half and contrib.mp_adamw_update or contrib.adamw_update
          one(inputs)
          for k = 1, 5 do
            assert.near(y[k][i]:astype("float32"), x[k][i]:astype("float32"), 1e-6)
          end
        end
      end)

    local lamb = half and "multi_mp_lamb_update" or "multi_lamb_update"
    it("are the operator's: " .. lamb, function()
      local x, y, line = arrays(3, half), arrays(3, half), {}
      local call = { x[1], x[2], x[3], x[4], step_count = { 1, 2, 3 }, lrs = LISTS.lrs,
        wds = LISTS.wds, lower_bound = 0.1, out = x[1] }
      call[5] = half and x[5] or nil
      contrib[lamb](call)
      for i = 1, 3 do
        for k = 1, half and 5 or 4 do line[#line + 1] = y[k][i] end
      end
      line.learning_rates, line.wds, line.step_count = LISTS.lrs, LISTS.wds, { 1, 2, 3 }
      line.lower_bound, line.num_tensors, line.out = 0.1, 3, y[1]
      nd["_" .. lamb](line)
      for i = 1, 3 do
        for k = 1, 5 do assert.same(y[k][i]:totable(), x[k][i]:totable()) end
      end
    end)
  end

  it("say which list does not fit", function()
    local w, g, m, v = unpack(arrays(2))
    local function call(more)
      local t = { w, g, m, v, 1, lrs = { 1, 1 }, wds = { 0, 0 }, etas = { 1, 1 } }
      for key, value in pairs(more) do t[key] = value end
      return contrib.multi_adamw_update(t)
    end
    assert.equal(2, #call{})
    assert.equal(2, #call{ size = 2 })
    local e = assert.raises("value", call, { [2] = { g[1] } })
    assert.equal("grads", e.argument)
    refused("value", "lrs: expected one number per weight", call, { lrs = { 1 } })
    refused("value", "the list of weights is empty", call, { {}, {}, {}, {} })
    refused("name", "unknown argument 'beta'", call, { beta = 0.5 })
    refused("value", "'eta' is missing", contrib.adamw_update, w[1], g[1], m[1], v[1], 1, 0.1)
    refused("type", "'grad'", contrib.adamw_update, w[1], 3, m[1], v[1], 1, 0.1, 1)
  end)
end)
