-- Tables, drawings and memory plans (runtime/lua/tycho/viz/*.lua).

local layout = require "tycho.viz.layout"
local svg = require "tycho.viz.svg"
local ty = require "tycho"

local V = ty.sym.Variable

local function mlp()
  return ty.name.NameManager():with(function()
    local net = ty.sym.FullyConnected{ V("data"), num_hidden = 8, name = "fc1" }
    net = ty.sym.Activation{ net, act_type = "relu", name = "relu1" }
    net = ty.sym.FullyConnected{ net, num_hidden = 3, name = "fc2" }
    return ty.sym.SoftmaxOutput{ net, name = "softmax" }
  end)
end

-- Returns a block with a way round it, so that an edge passes layers.
local function residual()
  local x = V("data")
  local y = ty.sym.Convolution{ x, num_filter = 4, kernel = { 3, 3 }, pad = { 1, 1 }, name = "c1" }
  y = ty.sym.Convolution{ ty.sym.relu{ y, name = "r" }, num_filter = 4, kernel = { 3, 3 },
    pad = { 1, 1 }, name = "c2" }
  return ty.sym.elemwise_add{ x, y, name = "sum" }
end

-- Runs f with what it prints thrown away.
local function quietly(f, ...)
  local before, void = io.output(), assert(io.open("/dev/null", "w"))
  io.output(void)
  local ok, result = pcall(f, ...)
  io.output(before)
  void:close()
  return ok and result or error(result, 0)
end

-- Asserts that the tags balance, attributes are quoted, and no number is NaN.
local function check_xml(text)
  local open = {}
  for close, name, rest in text:gmatch("<(/?)(%a+)([^<>]*)>") do
    if close == "/" then
      assert.equal(table.remove(open), name)
    elseif rest:sub(-1) ~= "/" then
      open[#open + 1] = name
    end
    assert.equal("", (rest:gsub('%s+[%w:-]+="[^"]*"', ""):gsub("/$", "")))
  end
  assert.same({}, open)
  assert.is_nil(text:find("nan", 1, true) or text:find("inf", 1, true))
  assert.is_nil(text:gsub("&%a+;", ""):find("&", 1, true))
end

local function temporary(ending)
  local name = os.tmpname()
  os.remove(name)
  return name .. ending
end

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  os.remove(path)
  return text
end

describe("print_summary", function()
  it("prints what it returns", function()
    local path = temporary(".txt")
    local before, file = io.output(), assert(io.open(path, "w"))
    io.output(file)
    local text = ty.viz.print_summary(mlp(), { shape = { data = { 2, 5 } } })
    io.output(before)
    file:close()
    assert.equal(text, read(path))
    assert.truthy(text:find("fc1(FullyConnected)", 1, true))
    assert.truthy(text:find("\nTotal params: 75\n", 1, true))          -- 5 x 8 + 8 + 8 x 3 + 3
  end)

  it("keeps to the columns asked for", function()
    local text = quietly(ty.viz.print_summary, mlp(), { shape = { data = { 2, 5 } },
      line_length = 40, positions = { 10, 20, 30, 40 } })
    for line in text:gmatch("[^\n]+") do
      assert.truthy(#line == 40 or line:find("^Total"))
    end
    assert.truthy(text:find("\nfc1(FullyC", 1, true))
  end)

  it("closes the table when the last node is a variable", function()
    local text = quietly(ty.viz.print_summary, ty.sym.Group{ mlp(), V("z") },
      { shape = { data = { 2, 5 }, z = { 3 } } })
    assert.truthy(text:find("\n" .. ("="):rep(120) .. "\nTotal", 1, true))
  end)

  local function total(net, shape)
    return tonumber(quietly(ty.viz.print_summary, net, { shape = shape })
      :match("\nTotal params: (%d+)\n"))
  end

  -- Returns the number of elements of an executor's arguments, without the inputs.
  local function size(net, shape, inputs)
    local exe, count = net:simple_bind{ ctx = ty.cpu(), grad_req = "null", shapes = shape }, 0
    for name, x in pairs(exe.arg_dict) do
      count = count + (inputs[name] and 0 or x.size)
    end
    return count
  end

  it("counts all parameters from their shapes", function()
    local data = V("data")
    local function fc(x, options)
      options[1] = x
      return ty.sym.FullyConnected(options)
    end
    for _, case in ipairs{
      { fc(data, { num_hidden = 10, flatten = false, name = "f" }), { 2, 6, 9 }, 100 },
      { fc(data, { num_hidden = 10, flatten = true, name = "f" }), { 2, 3, 3 }, 100 },
      { fc(data, { num_hidden = 10, no_bias = true, name = "f" }), { 2, 10 }, 100 },
      { ty.sym.LayerNorm{ data, name = "ln" }, { 2, 5, 7 }, 14 },
      { ty.sym.InstanceNorm{ data, name = "in" }, { 2, 5, 7 }, 10 },
      { ty.sym.BatchNorm{ data, name = "bn" }, { 2, 5, 7 }, 10 },
      { ty.sym.Embedding{ data, input_dim = 11, output_dim = 3, name = "e" }, { 2, 5 }, 33 },
      { ty.sym.Deconvolution{ data, kernel = { 3, 3 }, num_filter = 4, name = "d" }, { 1, 2, 5, 5 },
        72 },
      { ty.sym.Convolution{ data, kernel = { 3, 3 }, num_filter = 4, num_group = 2, name = "c" },
        { 1, 4, 5, 5 }, 76 },
      { ty.sym.LeakyReLU{ data, act_type = "prelu", name = "p" }, { 2, 6 }, 6 },
      { ty.sym.broadcast_add(data, V("pos", { shape = { 1, 5, 7 } })), { 2, 5, 7 }, 35 },
      { ty.sym.broadcast_mul(V("scale", { shape = { 1, 5 } }), data), { 2, 5 }, 5 },
      { data + V("mask"), { 2, 5 }, 0 },
      { ty.sym.LinearRegressionOutput{ fc(data, { num_hidden = 1, name = "f" }), V("target") },
        { 2, 5 }, 6 },
      { ty.sym.RNN{ data, V("parameters"), V("s"), state_size = 3, num_layers = 1,
        mode = "rnn_tanh", name = "r" }, { 4, 2, 5 }, 30 },
    } do
      assert.are.equal(case[3], total(case[1], { data = case[2] }))
    end
  end)

  it("counts shared weights once, and not what is no parameter", function()
    local data, w = V("data"), V("w_weight")
    local a = ty.sym.FullyConnected{ data, w, num_hidden = 4, no_bias = true, name = "a" }
    local b = ty.sym.FullyConnected{ a, w, num_hidden = 4, no_bias = true, name = "b" }
    assert.are.equal(16, total(b, { data = { 2, 4 } }))
    assert.are.equal(16, total(b, { data = { 2, 4 }, w_weight = { 4, 4 } }))
    assert.are.equal(16, total(ty.sym.FullyConnected{ data, ty.sym.abs{ w }, num_hidden = 4,
      no_bias = true, name = "c" }, { data = { 2, 4 } }))
    local cell = ty.rnn.LSTMCell(3, { prefix = "l_" })
    local states = { V("h"), V("c") }
    local out = cell:unroll(2, { inputs = data, layout = "NTC", merge_outputs = true,
      begin_state = states })
    assert.are.equal(12 * (4 + 3 + 2),
      total(out, { data = { 2, 2, 4 }, h = { 2, 3 }, c = { 2, 3 } }))
  end)

  it("counts a transformer", function()
    local T, C, W, H = 6, 8, 20, 2
    local x = ty.sym.Embedding{ V("data"), input_dim = W, output_dim = C, name = "tok" }
    x = ty.sym.broadcast_add(x, V("pos", { shape = { 1, T, C } }))
    local h = ty.sym.LayerNorm{ x, name = "ln1" }
    local q = ty.sym.FullyConnected{ h, num_hidden = 3 * C, flatten = false, name = "qkv" }
    q = ty.sym.SliceChannel{ q, num_outputs = 3, axis = 2, name = "split" }
    local scores = ty.sym.softmax{ ty.sym.batch_dot{ q[1], q[2], transpose_b = true } / H }
    h = ty.sym.FullyConnected{ ty.sym.batch_dot{ scores, q[3] }, num_hidden = C, flatten = false,
      name = "proj" }
    x = x + h
    h = ty.sym.FullyConnected{ ty.sym.LayerNorm{ x, name = "ln2" }, num_hidden = 4 * C,
      flatten = false, name = "up" }
    h = ty.sym.FullyConnected{ ty.sym.Activation{ h, act_type = "relu" }, num_hidden = C,
      flatten = false, name = "down" }
    h = ty.sym.FullyConnected{ x + h, num_hidden = W, flatten = false, no_bias = true,
      name = "head" }
    local net = ty.sym.SoftmaxOutput{ ty.sym.Reshape{ h, shape = { -1, W } },
      ty.sym.Reshape{ V("softmax_label"), shape = { -1 } }, name = "softmax" }
    local shape = { data = { 2, T }, softmax_label = { 2, T } }
    local inputs = { data = true, softmax_label = true }
    assert.are.equal(size(net, shape, inputs), total(net, shape))
  end)

  it("needs shapes unless the variables say theirs", function()
    local e = assert.raises("shape", ty.viz.print_summary, mlp())
    assert.truthy(tostring(e):find("shape = {data", 1, true))
    local net = ty.sym.FullyConnected{ V("data", { shape = { 2, 5 } }), num_hidden = 3,
      name = "f" }
    assert.are.equal(18, total(net))
  end)

  it("names what does not follow from the shapes", function()
    local e = assert.raises("shape", ty.viz.print_summary, mlp(),
      { shape = { softmax_label = { 2 } } })
    assert.truthy(tostring(e):find("incomplete", 1, true))
    assert.raises("name", ty.viz.print_summary, mlp(), { shape = { date = { 2, 5 } } })
    assert.raises("type", ty.viz.print_summary, 3)
    assert.raises("value", ty.viz.print_summary, mlp(), { positions = { 0.5, 0.4, 0.8, 1 } })
    assert.raises("value", ty.viz.print_summary, mlp(), { line_length = 0 })
  end)
end)

describe("plot_network", function()
  it("escapes names in DOT and SVG", function()
    local net = ty.sym.relu{ V('a"<b>&\\'), name = "x\ny" }
    local g = ty.viz.plot_network(net, { title = 'say "hi" & <bye>' })
    assert.truthy(g.source:find('digraph "say \\"hi\\" & <bye>" {', 1, true))
    assert.truthy(g.source:find('"a\\"<b>&\\\\"', 1, true))
    check_xml(g:svg())
    assert.truthy(g:svg():find("say &quot;hi&quot; &amp; &lt;bye&gt;", 1, true))
  end)

  it("says what flows", function()
    local g = ty.viz.plot_network(mlp(),
      { shape = { data = { 2, 5 } }, dtype = { data = "float64" } })
    assert.truthy(g.source:find('"fc1" -> "data" [label="5 float64"', 1, true))
    assert.truthy(g:svg():find(">8 float64<", 1, true))
  end)

  it("draws parameters when asked to", function()
    local shown, hidden = ty.viz.plot_network(mlp(), { hide_weights = false }),
      ty.viz.plot_network(mlp())
    assert.truthy(shown:svg():find(">fc1_weight<", 1, true))
    assert.is_nil(hidden:svg():find("fc1_weight", 1, true))
    check_xml(shown:svg())
  end)

  it("draws nodes of one name apart, and warns once", function()
    local twice = ty.sym.FullyConnected{
      ty.sym.FullyConnected{ V("data"), num_hidden = 4, name = "fc" }, num_hidden = 4, name = "fc" }
    local warnings, sink = {}, ty.log.sink
    ty.log.sink = function(level, text) warnings[#warnings + 1] = level .. " " .. text end
    local g = ty.viz.plot_network(twice)
    ty.log.sink = sink
    assert.equal(1, #warnings)
    assert.truthy(warnings[1]:find("^warning.*'fc'"))
    assert.equal(3, select(2, g:svg():gsub("<rect[^>]*><title>", "")))
  end)

  it("writes files by their endings", function()
    local g = ty.viz.plot_network(mlp())
    for ending, text in pairs{ [".svg"] = g:svg(), [".dot"] = g.source, [".gv"] = g.source } do
      local path = temporary(ending)
      assert.equal(path, g:save(path))
      assert.equal(text, read(path))
    end
    local bare = temporary("")
    assert.equal(bare .. ".svg", g:save(bare))
    assert.equal(g:svg(), read(bare .. ".svg"))
    local e = assert.raises("value", g.save, g, "net.pdf")
    assert.truthy(tostring(e):find(".dot", 1, true))
    assert.raises("io", g.save, g, "/nonexistent/net.svg")
    assert.raises("type", g.save, g, 3)
  end)

  it("refuses what it cannot do", function()
    assert.raises("type", ty.viz.plot_network, 3)
    assert.raises("value", ty.viz.plot_network, mlp(), { save_format = "pdf" })
    assert.raises("shape", ty.viz.plot_network, mlp(), { shape = { softmax_label = { 2 } } })
    assert.raises("name", ty.viz.plot_network, mlp(), { hide_weight = true })
  end)

  it("draws a lone variable and a group", function()
    check_xml(ty.viz.plot_network(V("x")):svg())
    check_xml(ty.viz.plot_network(ty.sym.Group{ V("x"), mlp() }):svg())
  end)
end)

describe("layout", function()
  -- Returns random graphs whose edges lead from smaller to larger numbers.
  local function random_graph(boxes, edges, seed)
    math.randomseed(seed)
    local g = { widths = {}, height = 40, edges = {} }
    for i = 1, boxes do
      g.widths[i] = math.random(40, 160)
    end
    for i = 1, edges do
      local a, b = math.random(boxes), math.random(boxes)
      if a ~= b then
        g.edges[#g.edges + 1] = { math.min(a, b), math.max(a, b) }
      end
    end
    return g
  end

  it("never lets boxes overlap, and edges lead downwards", function()
    for seed = 1, 20 do
      local g = random_graph(3 * seed, 5 * seed, seed)
      local plan = layout.plan(g)
      for i = 1, #g.widths do
        assert.truthy(plan.x[i] - g.widths[i] / 2 > -1e-6
          and plan.x[i] + g.widths[i] / 2 < plan.width + 1e-6)
        for k = 1, i - 1 do
          assert.truthy(plan.y[i] ~= plan.y[k]
            or math.abs(plan.x[i] - plan.x[k]) >= (g.widths[i] + g.widths[k]) / 2 + 20)
        end
      end
      for k, edge in ipairs(g.edges) do
        local last = 0
        for _, point in ipairs(plan.routes[k]) do
          assert.truthy(point[2] >= last)
          last = point[2]
        end
        assert.equal(plan.y[edge[2]] - 20, last)
        assert.near(plan.x[edge[1]], plan.routes[k][1][1], g.widths[edge[1]] / 2)
      end
    end
  end)

  it("keeps a chain straight and a long edge upright", function()
    local plan = layout.plan{ widths = { 90, 60, 120, 90 }, height = 40,
      edges = { { 1, 2 }, { 2, 3 }, { 3, 4 }, { 1, 4 } } }
    local route = plan.routes[4]
    for k = 3, #route - 1 do
      assert.near(route[2][1], route[k][1])
    end
    plan = layout.plan{ widths = { 90, 60, 120 }, height = 40, edges = { { 1, 2 }, { 2, 3 } } }
    assert.near(plan.x[1], plan.x[2])
    assert.near(plan.x[1], plan.x[3])
  end)

  it("removes crossings that need not be", function()
    local plan = layout.plan{ widths = { 50, 50, 50, 50 }, height = 40,
      edges = { { 1, 4 }, { 2, 3 } } }
    assert.truthy((plan.x[1] - plan.x[2]) * (plan.x[4] - plan.x[3]) > 0)
  end)

  it("takes a graph of hundreds of boxes", function()
    local g = random_graph(400, 500, 7)
    local plan = layout.plan(g)
    for i = 1, 400 do
      assert.truthy(plan.x[i] >= 0 and plan.x[i] <= plan.width)
    end
  end)
end)

describe("plot_memory", function()
  local function bound()
    local last = ty.sym.Convolution{ residual() * 2, num_filter = 4,
      kernel = { 1, 1 }, name = "last" }
    return last:simple_bind{ ctx = ty.cpu(), data = { 2, 4, 16, 16 } }
  end

  local function boxes(text)
    return select(2,
      text:gsub("<title>[^<]-: [^<]- MiB %(%d+ bytes%) at offset %d+, instructions", ""))
  end

  it("shows every value once", function()
    local exe = residual():simple_bind{ ctx = ty.cpu(), data = { 2, 4, 16, 16 } }
    local count = 0
    for _, v in ipairs(exe:memory().values) do
      count = count + (not v.alias_of and v.bytes > 0 and 1 or 0)
    end
    local text = ty.viz.plot_memory(exe, { title = "a & b" }):svg()
    check_xml(text)
    assert.truthy(count > 3)
    assert.equal(count, boxes(text))
    assert.truthy(text:find("a &amp; b", 1, true) and text:find("kept for backward", 1, true))
    assert.truthy(text:find(">backward<", 1, true))
  end)

  it("knows no backward where there is none, and works before anything is allocated", function()
    local exe = residual():simple_bind{ ctx = ty.cpu(), data = { 2, 4, 16, 16 },
      grad_req = "null", dry_run = true }
    local text = ty.viz.plot_memory(exe):svg()
    check_xml(text)
    assert.is_nil(text:find("backward", 1, true))
  end)

  it("has a panel for each device", function()
    local function on(group, f)
      return ty.AttrScope{ ctx_group = group }:with(f)
    end
    local there = on("there", function() return ty.sym.exp{ V("a") * 2 } end)
    local here = on("here", function()
      return ty.sym.FullyConnected{ there, num_hidden = 3 } + 1
    end)
    local exe = here:simple_bind{ ctx = ty.cpu(0), a = { 4, 5 },
      group2ctx = { there = ty.cpu(1), here = ty.cpu(0) } }
    local text = ty.viz.plot_memory(exe):svg()
    check_xml(text)
    assert.truthy(text:find("cpu(0), MiB", 1, true) and text:find("cpu(1), MiB", 1, true))
  end)

  it("says so when nothing is planned", function()
    local text =
      ty.viz.plot_memory(V("a"):bind{ ctx = ty.cpu(), args = { a = ty.nd.ones(2) } }):svg()
    assert.truthy(text:find("nothing is planned", 1, true))
    check_xml(text)
  end)

  it("is written to a file", function()
    local picture, path = ty.viz.plot_memory(bound()), temporary(".svg")
    assert.equal(path, picture:save(path))
    assert.equal(picture:svg(), read(path))
  end)

  it("refuses what is no executor", function()
    local e = assert.raises("type", ty.viz.plot_memory, mlp())
    assert.truthy(tostring(e):find("an Executor", 1, true))
    assert.raises("value", ty.viz.plot_memory, bound(), { width = 10 })
  end)

  it("counts scratch among the values", function()
    local exe = bound()
    local top, memory = 0, exe:memory()
    for _, v in ipairs(memory.values) do
      top = math.max(top, v.offset + v.bytes)
      assert.truthy(v.first <= v.last)
    end
    assert.equal(memory.planned, top)
    assert.equal(memory.planned, memory.devices[tostring(ty.cpu())])
  end)
end)

describe("svg", function()
  it("writes numbers short", function()
    assert.equal("12", svg.number(12.04))
    assert.equal("12.1", svg.number(12.06))
    assert.equal("0", svg.number(-0.01))
  end)
end)
