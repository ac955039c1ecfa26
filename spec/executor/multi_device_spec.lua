-- Two devices end where one ends: by data (a part of each batch each), by model
-- (a part of the network each).

local ty = require "tycho"

local ROWS, STEPS = 32, 8

local function in_group(name, f)
  return ty.AttrScope{ ctx_group = name }:with(f)
end

local function network()
  local x = in_group("low", function()
    local h = ty.sym.Convolution{ data = ty.sym.Variable("data"), num_filter = 6,
      kernel = { 3, 3 }, name = "conv" }
    return ty.sym.Pooling{ data = ty.sym.Activation{ data = h, act_type = "tanh" },
      kernel = { 2, 2 }, stride = { 2, 2 }, pool_type = "avg" }
  end)
  return in_group("high", function()
    local h = ty.sym.FullyConnected{ data = ty.sym.Flatten{ data = x },
      num_hidden = 20, name = "fc1" }
    h = ty.sym.FullyConnected{ data = ty.sym.Activation{ data = h, act_type = "relu" },
      num_hidden = 5, name = "fc2" }
    return ty.sym.SoftmaxOutput{ data = h, name = "softmax" }
  end)
end

local function train(optimizer, options)
  ty.random.seed(3)
  local data, label = ty.nd.random.normal{ shape = { ROWS, 1, 12, 12 } },
    ty.nd.random.randint(0, 5, { shape = { ROWS } })
  local module = ty.mod.Module{ symbol = network(), context = options.context,
    group2ctxs = options.groups }
  module:bind{ data_shapes = { { "data", { ROWS, 1, 12, 12 } } },
    label_shapes = { { "softmax_label", { ROWS } } } }
  module:init_params{ initializer = ty.init.Xavier() }
  module:init_optimizer{ kvstore = options.kvstore, optimizer = optimizer,
    optimizer_params = { learning_rate = 0.01 } }
  for _ = 1, STEPS do
    module:forward_backward{ data = { data }, label = { label:astype("float32") } }
    module:update()
  end
  return module:get_params()
end

-- Returns the length of the difference as a share of the length, of the parameter where it is
-- largest.
local function distance(a, b)
  local worst = 0
  for name, x in pairs(a) do
    worst = math.max(worst, (x - b[name]):norm():asscalar() / x:norm():asscalar())
  end
  return worst
end

describe("two devices", function()
  local one, two = ty.cpu(0), { ty.cpu(0), ty.cpu(1) }

  for _, kvstore in ipairs{ "local", "device" } do
    for _, optimizer in ipairs{ "sgd", "nag", "rmsprop" } do
      it(("with parts of the batch learn what one learns: %s, %s"):format(optimizer, kvstore),
        function()
          local want = train(optimizer, { context = one })
          local got = train(optimizer, { context = two, kvstore = kvstore })
          assert.is_true(distance(want, got) <= 1e-6, tostring(distance(want, got)))
        end)
    end
  end

  for _, optimizer in ipairs{ "adam", "sgd", "lars" } do
    it("with parts of the network learn what one learns, to the bit: " .. optimizer, function()
      local want = train(optimizer, { context = one })
      local got = train(optimizer, { context = one,
        groups = { low = ty.cpu(1), high = ty.cpu(0) } })
      assert.are.equal(0, distance(want, got))
    end)
  end
end)
