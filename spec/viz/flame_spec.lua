-- The flame view: the tree of layers from sums of the profiler, and its drawing.

local flame = require "tycho.viz.flame"
local ty = require "tycho"
require "spec.helper"

local function row(name, node, total, kernel)
  return { kind = "span", category = "operator", name = name, node = node, kernel = kernel or "k",
    total = total, count = 1, min = total, max = total }
end

local ROWS = {
  row("Convolution", "stage1_unit1_conv1", 6e6), row("relu", "stage1_unit1_relu1", 1e6),
  row("Convolution", "stage2_unit1_conv1", 2e6, ""), row("FullyConnected", "fc1", 1e6),
  row("_backward_Convolution", "stage1_unit1_conv1_backward", 8e6),
  row("a+b", "_plus0 fc1", 2e6),
  { kind = "span", category = "api", name = "wait", node = "", kernel = "", total = 1e9 },
  { kind = "counter", category = "operator", name = "n", node = "", kernel = "", total = 1e9 },
}

-- Returns "name:ms{children}" of a box.
local function make_text(box)
  local parts = {}
  for i, child in ipairs(box.children) do
    parts[i] = make_text(child)
  end
  return ("%s:%g"):format(box.name, box.total / 1e6)
    .. (parts[1] and "{" .. table.concat(parts, " ") .. "}" or "")
end

describe("viz.flame", function()
  it("splits names of layers, joins what is alone, and sorts by time", function()
    local tree, depth = flame.tree(ROWS)
    assert.equal("all:20{forward:12{stage1_unit1:7{conv1:6{Convolution (k):6} relu1:1{relu (k):1}} "
      .. "_plus0:2{a+b (k):2} stage2_unit1_conv1:2{Convolution:2} fc1:1{FullyConnected (k):1}} "
      .. "backward:8{stage1_unit1_conv1:8{_backward_Convolution (k):8}}}", make_text(tree))
    assert.equal(5, depth)
  end)

  it("draws boxes as wide as their times", function()
    local svg = ty.viz.flame(ROWS, { title = "Layers", width = 1024 }):svg()
    local widths = {}
    for width in svg:gmatch('<rect[^>]- width="([%d.]+)"') do
      widths[#widths + 1] = tonumber(width)
    end
    table.sort(widths, function(a, b) return a > b end)
    assert.truthy(svg:find("Layers", 1, true))
    assert.truthy(svg:find("forward  12.0 ms  60.0 %", 1, true))
    local found = {}
    for _, width in ipairs(widths) do
      found[math.floor(width + 0.5)] = true
    end
    assert.truthy(found[999] and found[599] and found[399], table.concat(widths, " "))
    assert.shape({ 12 + 28 + 5 * 22 + 12, 1024, 3 },
      ty.viz.flame(ROWS, { title = "Layers", width = 1024 }):pixels())
  end)

  it("takes the profiler's sums", function()
    ty.profiler.set_config{ filename = os.tmpname(), aggregate_stats = true }
    ty.profiler.dumps{ reset = true }
    assert.raises("state", ty.viz.flame)
    ty.profiler.set_state("run")
    local exe = ty.sym.FullyConnected{ ty.sym.Variable "data", num_hidden = 2, name = "dense7" }
      :simple_bind{ ctx = ty.cpu(), data = { 4, 3 } }
    exe:forward()
    ty.waitall()
    ty.profiler.set_state("stop")
    assert.truthy(ty.viz.flame():svg():find("dense7", 1, true))
  end)

  it("refuses what are no sums", function()
    assert.equal("rows[1]", assert.raises("type", ty.viz.flame, { 3 }).argument)
    assert.raises("type", ty.viz.flame, { { kind = "span" } })
    assert.raises("name", ty.viz.flame, ROWS, { tittle = "x" })
  end)
end)
