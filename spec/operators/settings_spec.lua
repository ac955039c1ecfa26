-- Each line of two tables of operators gives the same values, and gradients, whatever the settings
-- choose: kernels of an older processor, products by a library, watched numbers, recomputed nodes.

local shell = require "spec.support.shell"

local SCRIPT = [[
for _, operator in ipairs(require "spec.torture.operators") do
  io.write("=", operator.name, "\n", operator.run(), "\n")
end
]]

local SETTINGS = { "TYCHO_CPU=baseline", "TYCHO_DISABLE=gemm,dnnl",
  "TYCHO_SYNC=1 TYCHO_CHECK_NUMERICS=1", "TYCHO_MIRROR=1" }
local LEAST = 300                        -- operators

-- {name, values as text} of each operator
local function values(setting)
  local output, status
  shell.with_file(SCRIPT, function(path)
    output, status = shell.run(("%s %s %s"):format(setting, shell.program, path))
  end)
  assert.equal(0, status, output)
  local list = {}
  for name, text in output:gmatch("=([^\n]*)\n([^=]*)") do
    list[#list + 1] = { name, text }
  end
  assert.is_true(#list > LEAST, output)
  return list
end

local function difference(got, want)
  local words = want:gmatch("%S+")
  for word in got:gmatch("%S+") do
    local other = words() or "nothing"
    local a, b = tonumber(word), tonumber(other)
    local near = a and b and math.abs(a - b) <= 1e-5 * (1 + math.abs(b))
    if word ~= other and not near then return word .. " and not " .. other end
  end
  return words()
end

describe("operators give the same values with", function()
  local want

  for _, setting in ipairs(SETTINGS) do
    it(setting, function()
      want = want or values("")
      local wrong = {}
      for i, pair in ipairs(values(setting)) do
        assert.equal(want[i][1], pair[1])
        local what = difference(pair[2], want[i][2])
        if what then wrong[#wrong + 1] = pair[1] .. ": " .. what end
      end
      assert.same({}, wrong)
    end)
  end
end)
