-- scripts/models: examples that run networks of others. Those whose weights are downloaded only say
-- what they need.

local folder = require "spec.support.folder"
local shell = require "spec.support.shell"

local function run(words)
  local output, status = shell.tycho("scripts/models/" .. words .. " 2>/dev/null")
  assert.equal(0, status, output)
  return output
end

describe("scripts/models:", function()
  it("torch7_net trains a network of Torch7", function()
    local output = run("torch7_net.lua --quick")
    assert.truthy(output:find("cudnn.SpatialConvolution  nInputPlane 1, nOutputPlane 4", 1, true),
      output)
    local before = tonumber(output:match("before: accuracy (%S+)"))
    local after = tonumber(output:match("\naccuracy (%S+)"))
    assert.is_true(before < 0.3 and after > 0.8, output)
  end)

  it("torch7_net runs another file", function()
    local output = run("torch7_net.lua --file scripts/models/lenet.t7 --shape 2,1,16,16")
    assert.truthy(output:find("<NDArray 2x10 @cpu(0)>", 1, true), output)
  end)

  it("own_net hands its network on", function()
    folder.with(function(dir)
      local output = run("own_net.lua --quick --folder " .. dir)
      assert.truthy(output:find("operators  7: 3 FullyConnected", 1, true), output)
      assert.truthy(output:find("digits.safetensors: 6 arrays", 1, true), output)
      assert.is_true(tonumber(output:match("(%d+) of 10 digits right")) >= 8, output)
      local by_name, status = shell.tycho("--script models/own_net --quick --folder " .. dir)
      assert.equal(0, status, by_name)
    end)
  end)

  it("all explain themselves", function()
    for _, name in ipairs{ "torch7_net", "own_net", "faces", "sentences", "voice" } do
      local output = run(name .. ".lua --help")
      assert.truthy(output:find("Usage: " .. name .. ".lua", 1, true), output)
    end
  end)

  it("those with weights to download name what is missing", function()
    for name, words in pairs{ faces = "--folder /none --file /none.jpg",
        sentences = "--folder /none", voice = "--folder /none --file /none.wav" } do
      local output, status = shell.tycho(("scripts/models/%s.lua %s"):format(name, words))
      assert.truthy(status ~= 0 and output:find("/none", 1, true), output)
    end
  end)
end)
