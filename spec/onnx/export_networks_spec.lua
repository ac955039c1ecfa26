-- Whole networks as ONNX files: recorded ones, those of the scripts, control flow, recurrent
-- layers, attention, detection; read back, and run by ONNX Runtime, where Python has it.
package.path = package.path .. ";scripts/lib/?.lua"
local lfs = require "lfs"
local files = require "spec.support.onnx_files"
local filler = require "spec.support.filler"
local folder = require "spec.support.folder"
local networks = require "networks"
local shell = require "spec.support.shell"
local ty = require "tycho"
local vectors = require "spec.support.vectors"
require "spec.helper"

local BOUND = 1e-4
local OPSETS = { 17, 23 }                                -- the default, and what came since
local V, contrib = ty.sym.Variable, ty.sym.contrib

local python = files.python()
local kept, keep = files.kept_folder()

-- Checks a network whose arrays are random, for shapes of its inputs.
local function check(name, symbol, shapes, options)
  options = options or {}
  local arrays, states, inputs = {}, {}, {}
  local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = shapes, grad_req = "null" }
  ty.random.seed(5)
  for argument, x in pairs(exe.arg_dict) do
    arrays[argument] = options.arrays and options.arrays[argument]
      or ty.nd.random.uniform{ -0.5, 0.5, shape = x.shape }
    inputs[argument] = shapes[argument] ~= nil
  end
  for state, x in pairs(exe.aux_dict) do
    states[state] = ty.nd.random.uniform{ 0.5, 1, shape = x.shape }
  end
  for argument in pairs(arrays) do
    inputs[argument] = inputs[argument] or nil
  end
  if options.not_read then
    local ok, e = pcall(files.round_trip, symbol, arrays, states, inputs, { keep = keep(name) })
    assert.is_false(ok)
    assert.matches(options.not_read, e.message)
    return
  end
  for _, opset in ipairs(options.opset and { options.opset } or OPSETS) do
    local off = files.round_trip(symbol, arrays, states, inputs,
      { keep = keep(name .. "_" .. opset), opset = opset })
    assert.is_true(off < BOUND, ("opset %d: off by %g"):format(opset, off))
  end
end

describe("networks as ONNX", function()
  it("of the scripts", function()
    check("mlp", networks.mlp{}, { data = { 2, 1, 28, 28 } })
    check("lenet", networks.lenet{}, { data = { 2, 1, 28, 28 } })
    check("resnet", networks.resnet{ depth = 20 }, { data = { 1, 3, 32, 32 } })
  end)

  it("with inputs whose shapes are not given are refused, labels aside", function()
    local net = ty.sym.BatchNorm{ V "data", use_global_stats = true, name = "bn" }
    net = ty.sym.SoftmaxOutput{ ty.sym.InstanceNorm{ net, name = "in" }, name = "softmax" }
    for _, shapes in ipairs{ {}, { softmax_label = { 2 } } } do
      local e = assert.raises("shape", ty.onnx.export_model, { net, {}, shapes, "none.onnx" })
      assert.equal("data", e.argument)
    end
  end)

  it("with loops over rows", function()
    local outs, states = contrib.foreach(function(d, s)
      local h = ty.sym.FullyConnected{ d, num_hidden = 4, name = "fc" } + s
      return h:tanh(), h
    end, V "d", V "s")
    check("foreach", ty.sym.Group{ outs, states }, { d = { 3, 2, 5 }, s = { 2, 4 } })
  end)

  it("with a softmax of three and more axes", function()
    for _, mode in ipairs{ "instance", "channel" } do
      check("softmax_activation_" .. mode, ty.sym.SoftmaxActivation{ V "data", mode = mode },
        { data = { 2, 3, 4, 5 } })
      check("softmax_activation_rows_" .. mode, ty.sym.SoftmaxActivation{ V "data", mode = mode },
        { data = { 2, 3, 4 } })
    end
  end)

  it("with images resized by factors that a float32 is below or above, and to one row", function()
    for _, corners in ipairs{ false, true } do
      for height = 1, 30 do
        for _, size in ipairs{ { 10, 7 }, { 9, 11 }, { 3, 6 }, { 1, 2 } } do
          check("resize_" .. height .. size[1] .. tostring(corners),
            contrib.BilinearResize2D{ V "data", height = height, width = 31 - height,
              align_corners = corners }, { data = { 1, 1, size[1], size[2] } }, { opset = 17 })
        end
      end
    end
  end)

  it("with a choice", function()
    local a, b = V "a", V "b"
    local y = contrib.cond(V "p", function() return a * 2 end, function() return a - b end)
    check("cond", y, { p = { 1 }, a = { 2, 3 }, b = { 2, 3 } })
  end)

  it("with a loop that has a condition", function()
    local outs, vars = contrib.while_loop(function(i) return i:lt(3) end, function(i, s)
      return ty.sym.broadcast_add{ s, i }, { i + 1, s * 2 }
    end, { V "i", V "s" }, 5)
    check("while", ty.sym.Group{ outs, vars[1], vars[2] }, { i = { 1 }, s = { 2, 2 } })
  end)

  for _, mode in ipairs{ "lstm", "gru", "rnn_tanh", "rnn_relu" } do
    it("with recurrent layers: " .. mode, function()
      local inputs = { V "x", V "w", V "h", mode == "lstm" and V "c" or nil }
      inputs.state_size, inputs.num_layers, inputs.mode = 4, 2, mode
      inputs.bidirectional, inputs.state_outputs, inputs.name = true, true, "rnn"
      local state = { 4, 2, 4 }
      check("rnn_" .. mode, ty.sym.RNN(inputs), { x = { 5, 2, 3 }, h = state,
        c = mode == "lstm" and state or nil })
    end)
  end

  it("with attention", function()
    local x = V "x"
    local scores = contrib.interleaved_matmul_selfatt_qk{ x, heads = 2 }
    local y = contrib.interleaved_matmul_selfatt_valatt{ x, ty.sym.softmax{ scores }, heads = 2 }
    check("selfatt", y, { x = { 4, 2, 18 } })
    local kv = V "kv"
    scores = contrib.interleaved_matmul_encdec_qk{ V "q", kv, heads = 2 }
    y = contrib.interleaved_matmul_encdec_valatt{ kv, ty.sym.softmax{ scores }, heads = 2 }
    check("encdec", y, { q = { 3, 2, 6 }, kv = { 5, 2, 12 } })
  end)

  -- Options of contrib.attention, with shapes of what it reads.
  local LAYOUTS = {
    { "plain", {}, { q = { 2, 3, 4, 4 }, k = { 2, 3, 5, 4 }, v = { 2, 3, 5, 6 } }, "NHTC" },
    { "groups", { heads = 4, kv_heads = 2 }, { q = { 2, 3, 16 }, k = { 2, 5, 8 },
      v = { 2, 5, 12 } }, "NTC" },
    { "time first", { heads = 2 }, { q = { 3, 2, 8 }, k = { 5, 2, 8 }, v = { 5, 2, 8 } }, "TNC" },
    { "keys with values", { heads = 4, kv_heads = 2, packed = "kv" }, { q = { 2, 3, 16 },
      kv = { 2, 5, 16 } }, "NTC" },
    { "all in one", { heads = 2, packed = "qkv" }, { qkv = { 4, 2, 24 } }, "TNC" },
  }
  local MASKS = {
    { "", {} }, { "causal", { causal = true } }, { "window", { window = 2 } },
    { "scale", { scale = 0.3 } }, { "bias", { use_bias = true } },
    { "mask", { use_mask = true } }, { "lengths", { use_valid_length = true } },
    { "offset", { use_offset = true, causal = true } },
    { "everything", { use_mask = true, use_bias = true, use_valid_length = true,
      use_offset = true, causal = true, window = 3 } },
  }

  -- Returns a node of contrib.attention: symbol, shapes and arrays of its inputs.
  local function attention(layout, mask)
    local shapes, arrays, inputs = {}, {}, { layout = layout[4] }
    for _, name in ipairs{ "q", "k", "v", "kv", "qkv" } do
      shapes[name] = layout[3][name]
      inputs[#inputs + 1] = shapes[name] and V(name) or nil
    end
    for key, v in pairs(layout[2]) do inputs[key] = v end
    for key, v in pairs(mask[2]) do inputs[key] = v end
    local first = shapes.q or shapes.qkv
    local time_first = layout[4] == "TNC"
    local batch, queries = first[time_first and 2 or 1], first[layout[4] == "NHTC" and 3
      or time_first and 1 or 2]
    local keys = shapes.qkv and queries or 5
    local function also(name, x)
      inputs[#inputs + 1] = V(name)
      shapes[name], arrays[name] = x.shape, x
    end
    if inputs.use_mask then
      local x = ty.nd.ones{ batch, 1, queries, keys }
      x["0, 0, 1"] = 0                                   -- a query that sees nothing
      x["1, 0, :, 0"] = 0
      also("mask", x)
    end
    if inputs.use_bias then
      also("bias", ty.nd.random.uniform{ -1, 1, shape = { 1, queries, keys } })
    end
    if inputs.use_valid_length then
      also("lengths", ty.nd.array{ keys, 2 })
    end
    if inputs.use_offset then
      also("first", ty.nd.array{ 1, 0 })
    end
    return contrib.attention(inputs), shapes, arrays
  end

  for _, layout in ipairs(LAYOUTS) do
    it("with attention of many kinds: " .. layout[1], function()
      for _, mask in ipairs(MASKS) do
        for _, opset in ipairs{ 17, 18, 23, 24 } do
          local symbol, shapes, arrays = attention(layout, mask)
          check(("attention_%s_%s_%d"):format(layout[1], mask[1], opset):gsub("%W", "_"), symbol,
            shapes, { arrays = arrays, opset = opset })
        end
      end
    end)
  end

  it("with positions as angles", function()
    for _, row in ipairs{
      { { layout = "NHTC" }, { 2, 3, 4, 6 } }, { { heads = 2 }, { 2, 4, 12 } },
      { { heads = 2, layout = "TNC", size = 4 }, { 4, 2, 12 } },
      { { heads = 2, interleaved = true, base = 100, scale = 0.5 }, { 2, 4, 12 } },
      { { heads = 3, interleaved = true, size = 2, use_offset = true }, { 2, 4, 12 } },
      { { layout = "NHTC", use_offset = true }, { 2, 3, 4, 6 } },
    } do
      local inputs, shapes, arrays = { V "x" }, { x = row[2] }, {}
      for key, v in pairs(row[1]) do inputs[key] = v end
      if inputs.use_offset then
        inputs[2], shapes.first, arrays.first = V "first", { 2 }, ty.nd.array{ 0, 5 }
      end
      check("rotary_" .. tostring(#row[2]) .. (row[1].layout or "") .. (row[1].size or "")
        .. (row[1].base or "") .. (inputs.use_offset and "_offset" or ""),
        contrib.rotary_embedding(inputs), shapes, { arrays = arrays })
    end
  end)

  it("with norms and gates of language models", function()
    for _, opset in ipairs{ 17, 18, 23 } do
      local y = contrib.RMSNorm{ V "x", V "g", eps = 1e-3 }
      check("rms_" .. opset, contrib.swiglu{ y, V "z" }, { x = { 2, 3, 4 }, z = { 2, 3, 4 } },
        { opset = opset })
      check("rms_inner_" .. opset, contrib.RMSNorm{ V "x", V "g", axis = 1 }, { x = { 2, 3, 4 } },
        { opset = opset })
    end
  end)

  it("with a loss over many classes", function()
    local y = contrib.linear_cross_entropy{ V "x", V "w", V "b", V "label", num_hidden = 7 }
    check("linear_cross_entropy", y, { x = { 4, 5 }, label = { 4 } },
      { arrays = { label = ty.nd.array{ 0, 3, 6, 1 } } })
  end)

  it("with detection", function()
    local scores = ty.nd.random.uniform{ 0, 1, shape = { 2, 3, 8 } }
    local anchors = ty.nd.random.uniform{ 0, 0.4, shape = { 1, 8, 4 } }
    local corners = ty.nd.concat{ anchors:slice_axis{ axis = 2, begin = 0, ["end"] = 2 },
      anchors:slice_axis{ axis = 2, begin = 2, ["end"] = 4 } + 0.5, dim = 2 }
    local y = contrib.MultiBoxDetection{ V "cls", V "loc", V "anchor", nms_threshold = 0.4,
      threshold = 0.2 }
    check("multibox", y, { cls = { 2, 3, 8 }, loc = { 2, 32 }, anchor = { 1, 8, 4 } },
      { arrays = { cls = scores, anchor = corners }, not_read = "as many rows as a run finds" })
  end)

  it("leaves axes open", function()
    local net = networks.lenet{}
    local exe = net:simple_bind{ ctx = ty.cpu(), data = { 2, 1, 28, 28 }, grad_req = "null" }
    local params = {}
    for name, x in pairs(exe.arg_dict) do
      params[name] = name ~= "data" and name ~= "softmax_label" and x or nil
    end
    folder.with(function(dir)
      ty.onnx.export_model{ net, params, { data = { 2, 1, 28, 28 } }, dir .. "/x.onnx",
        dynamic = { data = { 0 } } }
      local meta = ty.onnx.get_model_metadata(dir .. "/x.onnx")
      assert.same({ "data_0", 1, 28, 28 }, meta.input_tensor_data[1][2])
      local sym, args = ty.onnx.import_model{ dir .. "/x.onnx" }
      args.data = ty.nd.ones{ 5, 1, 28, 28 }
      assert.same({ 5, 10 }, files.run(sym, args)[1].shape)
    end)
  end)

  it("refuses what ONNX lacks with the node's name", function()
    local ok, e = pcall(ty.onnx.export_model, { ty.sym.erfinv{ V "x", name = "inverse" }, {},
      { x = { 2 } }, "/tmp/never.onnx" })
    assert.is_false(ok)
    assert.equal("unsupported", e.code)
    assert.equal("inverse", e.node)
  end)

  it("refuses outputs that its converters do not make", function()
    local leaky = ty.sym.LeakyReLU{ V "x", act_type = "rrelu", name = "leaky" }
    for _, net in ipairs{ leaky, leaky[2], leaky[2] * 2, leaky[1] + leaky[2] } do
      local e = assert.raises("unsupported", ty.onnx.export_model, net, {}, { x = { 2, 3 } },
        "/tmp/never.onnx")
      assert.equal("leaky", e.node)
    end
    check("rrelu", leaky[1], { x = { 2, 3 } })
  end)
end)

describe("recorded networks as ONNX", function()
  if not vectors.exists() then
    it("all", function() pending("the folder of recorded cases is missing: " .. vectors.root) end)
    return
  end
  local LARGE = { vgg11 = true, vgg11_bn = true, vgg16 = true, vgg16_bn = true, alexnet = true }
  for entry in lfs.dir(vectors.root .. "/networks") do
    local name = entry:match "^(.*)%-symbol%.json$"
    if name and not name:find "^memory" and name ~= "ssd_head" and not LARGE[name] then -- a target
      it(name, function()
        local record = vectors.json("networks/" .. name .. ".json")
        local symbol = vectors.symbol(vectors.json("networks/" .. name .. "-symbol.json"))
        local exe = symbol:simple_bind{ ctx = ty.cpu(), shapes = record.inputs, grad_req = "null" }
        local inputs = {}
        for _, argument in ipairs(record.arguments) do
          filler.fill(exe.arg_dict[argument.name], argument.name, argument.fill)
          inputs[argument.name] = record.inputs[argument.name] and true or nil
        end
        for _, state in ipairs(record.auxiliary_states) do
          filler.fill(exe.aux_dict[state.name], state.name, state.fill)
        end
        for _, opset in ipairs(OPSETS) do
          local off = files.round_trip(symbol, exe.arg_dict, exe.aux_dict, inputs,
            { keep = keep(name .. "_" .. opset), opset = opset })
          assert.is_true(off < BOUND, ("opset %d: off by %g"):format(opset, off))
        end
      end)
    end
  end
end)

describe("networks of the model zoo as ONNX", function()
  local SIZES = { ["squeezenet1.1"] = 224, ["mobilenet0.25"] = 64, ["mobilenetv2_0.25"] = 64,
    ["resnet18_v1 #slow"] = 64, ["resnet18_v2 #slow"] = 64, ["densenet121 #slow"] = 224,
    ["inceptionv3 #slow"] = 299, ["alexnet #slow"] = 224, ["vgg11_bn #slow"] = 64 }
  for name, size in pairs(SIZES) do
    it(name, function()
      local net = ty.gluon.model_zoo.vision.get_model(name:match "^%S+", { classes = 10 })
      check("zoo_" .. name:match "^%S+", net(V "data"), { data = { 1, 3, size, size } })
    end)
  end
end)

describe("the same files", function()
  it("are right for ONNX's checker and ONNX Runtime", function()
    if not python then
      return pending("no Python with onnx, onnxruntime and numpy")
    end
    local output = shell.run(("%s spec/support/onnx_check.py %s %g"):format(python, kept, 10
      * BOUND))
    os.execute("rm -r " .. kept)
    assert.matches("^%d+ checked\n$", output)
  end)
end)
