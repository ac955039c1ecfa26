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
    for _, name in ipairs{ "torch7_net", "own_net", "faces", "sentences", "voice", "read_text",
        "file_type", "speech_quality" } do
      local output = run(name .. ".lua --help")
      assert.truthy(output:find("Usage: " .. name .. ".lua", 1, true), output)
    end
  end)

  it("read no sound files but those of their rate", function()
    folder.with(function(dir)
      package.path = package.path .. ";scripts/lib/?.lua"
      local wav = require "wav"
      local function riff(rate, bits, data)
        local function little(n, bytes)
          local list = {}
          for i = 1, bytes do
            list[i] = string.char(math.floor(n / 256 ^ (i - 1)) % 256)
          end
          return table.concat(list)
        end
        folder.write(dir .. "/x.wav", "RIFF" .. little(36 + #data, 4) .. "WAVEfmt " .. little(16, 4)
          .. little(1, 2) .. little(1, 2) .. little(rate, 4) .. little(rate * 2, 4) .. little(2, 2)
          .. little(bits, 2) .. "LIST\3\0\0\0abc\0data" .. little(#data, 4) .. data)
        return dir .. "/x.wav"
      end
      assert.same({ 0.5, -1 }, wav.read(riff(16000, 16, "\0\64\0\128"), 16000))
      assert.same({}, wav.read(riff(16000, 16, ""), 16000))
      assert.has_error(function() wav.read(riff(8000, 16, "\0\0"), 16000) end)
      assert.has_error(function() wav.read(riff(16000, 8, "\0\0"), 16000) end)
      local path = riff(16000, 16, "\0\64\0\128")
      for cut = 0, 60 do
        local file = io.open(path, "rb"):read("*a")
        folder.write(dir .. "/cut.wav", file:sub(1, cut))
        pcall(wav.read, dir .. "/cut.wav", 16000)
      end
    end)
  end)

  it("those with weights to download name what is missing", function()
    for name, words in pairs{ faces = "--folder /none --file /none.jpg",
        sentences = "--folder /none", voice = "--folder /none --file /none.wav",
        read_text = "--folder /none --file /none.jpg", file_type = "--folder /none README.md",
        speech_quality = "--folder /none --file /none.wav" } do
      local output, status = shell.tycho(("scripts/models/%s.lua %s"):format(name, words))
      assert.truthy(status ~= 0 and output:find("/none", 1, true), output)
    end
  end)
end)
