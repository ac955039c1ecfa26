-- The scripts' charts: the picture is as wide as what is written in it.

package.path = "scripts/lib/?.lua;" .. package.path

require "tycho"
local chart = require "chart"

local function width_of(name)
  local text = chart.text{ curves = { { name = name, points = { { 0, 1 }, { 4, 3.25 } } } } }
  local last = text:match('class="value" x="([%d.]+)"')
  return tonumber(text:match('<svg [^>]-width="(%d+)"')), tonumber(last)
end

describe("a chart", function()
  it("has its usual width for short names", function()
    assert.equal(720, (width_of("valid")))
  end)

  it("grows with the label beside a curve", function()
    local name = ("perplexity "):rep(4)
    local width, begin = width_of(name)
    assert.is_true(width >= begin + 7 * #name, width .. " pixels")
  end)
end)
