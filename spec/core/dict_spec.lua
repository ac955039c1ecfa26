-- Tables by name that users get show what they hold (runtime/lua/tycho/core/dict.lua).

local ty = require "tycho"
require "spec.helper"

describe("a table by name", function()
  local net = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "fc" }
  local exe = net:simple_bind{ ctx = ty.cpu(), data = { 3, 4 } }
  local device = tostring(exe.outputs[1].context)

  it("is printed with its names and arrays in a few words", function()
    assert.equal(("{data = float32 3x4 @D, fc_bias = float32 2 @D, fc_weight = float32 2x4 @D}")
      :gsub("D", device), tostring(exe.arg_dict))
    assert.equal("{fc_output = float32 3x2 @" .. device .. "}", tostring(exe.output_dict))
    assert.equal("{}", tostring(exe.aux_dict))
  end)

  it("is what modules, files and attributes give", function()
    local mod = ty.mod.Module{ symbol = net, label_names = {} }
    mod:bind{ data_shapes = { { "data", { 3, 4 } } }, for_training = false }
    mod:init_params()
    assert.equal("{fc_bias = float32 2 @cpu(0), fc_weight = float32 2x4 @cpu(0)}",
      tostring((mod:get_params())))
    local path = os.tmpname()
    ty.nd.save(path, { b = ty.nd.ones(1), a = ty.nd.ones{ 2, 3 } })
    local loaded = ty.nd.load(path)
    os.remove(path)
    assert.equal(("{a = float32 2x3 @D, b = float32 1 @D}"):gsub("D", tostring(loaded.a.context)),
      tostring(loaded))
    assert.equal("{fc = {num_hidden = 2}, fc_bias = {num_hidden = 2}, \z
      fc_weight = {num_hidden = 2}}",
      tostring(net:attr_dict()))
    assert.truthy(tostring(exe:memory()):find("planned = %d+"))
  end)

  it("is a plain one in all else", function()
    local names = {}
    for name in pairs(exe.arg_dict) do
      names[#names + 1] = name
    end
    table.sort(names)
    assert.same({ "data", "fc_bias", "fc_weight" }, names)
    assert.is_nil(exe.arg_dict.other)
    exe:copy_params_from(exe.arg_dict)
  end)
end)
