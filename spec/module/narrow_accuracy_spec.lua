-- What bfloat16 and int8 cost a LeNet on digits that are drawn (scripts/train_mnist.lua).

local ty = require "tycho"

describe("narrow types", function()
  it("keep a LeNet's accuracy #slow", function()
    local path = package.path
    package.path = "scripts/lib/?.lua;" .. path
    local images, networks = require "images", require "networks"
    package.path = path
    local function nothing() end
    local quiet = { info = nothing, warning = nothing, debug = nothing, error = nothing }
    ty.random.seed(1)
    local x, y = images.load(nil, { 1, 28, 28 }, 10000, 1)
    local train, test = images.split(x, y, { train = 8000, test = 2000, batch = 100 })

    local function accuracy(options)
      ty.random.seed(1)
      train:reset()
      test:reset()
      local m = ty.mod.Module{ networks.lenet{ classes = 10 }, logger = quiet }
      options = options or {}
      options.train_data, options.num_epoch, options.initializer = train, 4, ty.init.Xavier()
      options.optimizer_params = { learning_rate = 0.1, momentum = 0.9 }
      m:fit(options)
      test:reset()
      return m:score(test, "acc")[1][2], m
    end

    local exact, m = accuracy()
    local medium = accuracy{ precision = "medium" }
    ty.amp.init()
    local mixed = accuracy()
    ty.amp.off()
    print(("float32 %.4f, medium %.4f, bfloat16 %.4f"):format(exact, medium, mixed))
    assert.is_true(exact >= 0.985 and medium >= 0.985 and mixed >= 0.985)

    local arg, aux = m:get_params()
    for _, mode in ipairs{ "naive", "entropy" } do
      train:reset()
      local q, qarg, qaux = ty.contrib.quantization.quantize_model{ sym = m.symbol,
        arg_params = arg, aux_params = aux, calib_mode = mode, calib_data = train,
        num_calib_examples = 500 }
      test:reset()
      local int8 = ty.mod.Module{ q, logger = quiet }
      int8:bind{ data_shapes = test.provide_data, label_shapes = test.provide_label,
        for_training = false }
      int8:set_params(qarg, qaux)
      local score = int8:score(test, "acc")[1][2]
      print(("int8, %s: %.4f"):format(mode, score))
      assert.is_true(score >= exact - 0.005)
    end
  end)
end)
