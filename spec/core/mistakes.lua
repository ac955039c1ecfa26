-- Mistakes that people make, one a line: {name, function that makes it}. spec/core/mistakes.txt
-- holds what the engine answers.
local ty = require "tycho"

local V, nd, sym = ty.sym.Variable, ty.nd, ty.sym
local list = {}
local function mistake(name, f) list[#list + 1] = {name, f} end

local function fc(options)
  options = options or {}
  return sym.FullyConnected{data = options.data or V"data", num_hidden = options.n or 3,
    name = options.name or "fc"}
end
local function bound() return fc():simple_bind{ctx = ty.cpu(), data = {2, 4}} end
local function linear()
  local c = 2 * V"a" + V"b"
  return c:bind{ctx = ty.cpu(), args = {a = nd.array{1, 2}, b = nd.array{2, 3}},
    args_grad = {a = nd.zeros(2), b = nd.zeros(2)}}
end

-- symbols
mistake("unknown operator", function() return sym.Convolutoin end)
mistake("unknown parameter", function() sym.FullyConnected{data = V"x", num_hiden = 3} end)
mistake("missing parameter", function() sym.FullyConnected{data = V"x"} end)
mistake("parameter out of range", function() sym.FullyConnected{data = V"x", num_hidden = 0} end)
mistake("parameter of the wrong kind", function()
  sym.FullyConnected{data = V"x", num_hidden = "many"}
end)
mistake("unknown word", function() sym.Activation{data = V"x", act_type = "rleu"} end)
mistake("probability above 1", function() sym.Dropout{data = V"x", p = 1.5} end)
mistake("input twice", function() sym.FullyConnected{V"x", data = V"y", num_hidden = 3} end)
mistake("input that is no symbol", function() sym.FullyConnected{data = 3, num_hidden = 3} end)
mistake("symbol with several outputs as input", function()
  sym.relu{sym.split{V"x", num_outputs = 2}}
end)
mistake("variable without a name", function() V(3) end)
mistake("attribute that is no annotation", function() V("x", {mood = "happy"}) end)
mistake("attribute that is no text", function() ty.AttrScope{group = 4} end)
mistake("sparse variable", function() V("x", {stype = "csr"}) end)
mistake("array as input of a symbol", function() sym.FullyConnected(nd.ones(2), {num_hidden = 3}) end)
mistake("empty group", function() sym.Group{} end)
mistake("output that is not there", function() return fc()["fc_outptu"] end)
mistake("output number", function() return fc()[2] end)
mistake("composition with an unknown name", function() fc(){dtaa = V"y"} end)
mistake("comparison of symbols", function() return V"a" < V"b" end)
mistake("array method of a symbol", function() V"a":asscalar() end)
mistake("file of a symbol that is missing", function() sym.load("/nowhere/net.json") end)
mistake("text that is no symbol", function() sym.load_json("{\"nodes\": [") end)
mistake("unknown operator in a file", function()
  sym.load_json('{"nodes": [{"op": "Blur", "name": "b", "inputs": []}], "arg_nodes": [], "heads": \z
    [[0, 0, 0]]}')
end)

-- inference
mistake("shapes that do not fit", function() (V"a" + V"b"):infer_shape{a = {2, 3}, b = {3, 2}} end)
mistake("weight of another size", function()
  fc():infer_shape{data = {2, 4}, fc_weight = {3, 5}}
end)
mistake("unknown argument of infer_shape", function() fc():infer_shape{dtaa = {2, 4}} end)
mistake("shape of the wrong kind", function() fc():infer_shape{data = "2x4"} end)
mistake("names and places mixed", function() fc():infer_shape{{2, 4}, data = {2, 4}} end)
mistake("dtypes that do not fit", function()
  (V"a" + V"b"):infer_type{a = "float32", b = "int32"}
end)
mistake("reshape to another count", function()
  sym.Reshape{V"x", shape = {5, 5}}:simple_bind{ctx = ty.cpu(), x = {2, 3}}
end)
mistake("one of many shapes", function()
  local all, shapes = {}, {ctx = ty.cpu()}
  for i = 1, 30 do
    all[i], shapes["x" .. i] = V("x" .. i), {2}
  end
  shapes.x7 = {3}
  sym.add_n(unpack(all)):simple_bind(shapes)
end)
mistake("index that is far away", function()
  sym._split_v2{V"x", indices = {"-9223372036854775808", 1}, axis = 0,
    name = "cut"}:simple_bind{ctx = ty.cpu(), x = {4}}
end)
mistake("slice that is far away", function()
  sym.slice_axis{V"x", axis = 0, begin = -4, ["end"] = "9223372036854775807",
    name = "cut"}:simple_bind{ctx = ty.cpu(), x = {4}}
end)
mistake("diagonal that is far away", function()
  sym.diag{V"x", k = "9223372036854775807", name = "diag"}
end)
mistake("window without end", function()
  sym.im2col{V"x", kernel = {2, 2}, name = "unfold"}:infer_shape{x = {1, 1, 2 ^ 31, 2 ^ 31}}
end)
mistake("input that no machine holds", function()
  sym.im2col{V"x", kernel = {2, 2}, name = "unfold"}:infer_shape{x = {1, 1, 2 ^ 62, 2 ^ 62}}
end)
mistake("size that is None", function()
  sym.col2im{V"x", kernel = {3, 1}, output_size = "(None, 3)", name = "fold"}
end)
mistake("array that no machine holds", function()
  sym._eye{N = "4611686018427387904", dtype = "int8", k = 1,
    name = "eye"}:simple_bind{ctx = ty.cpu()}
end)
mistake("value that no machine holds", function()
  sym.sum{sym.broadcast_to{V"x", shape = {2 ^ 31, 2 ^ 31}, name = "wide"}}
    :simple_bind{ctx = ty.cpu(), x = {1, 1}, dry_run = true}
end)
mistake("axis out of range", function()
  sym.softmax{V"x", axis = 3, name = "soft"}:simple_bind{ctx = ty.cpu(), x = {2, 3}}
end)
mistake("Concat of unequal shapes", function()
  sym.Concat{V"a", V"b", name = "cat"}:infer_shape{a = {2, 3}, b = {3, 3}}
end)
mistake("kernel larger than the image", function()
  sym.Convolution{V"x", kernel = {5, 5}, num_filter = 2, name = "conv"}
    :infer_shape{x = {1, 1, 3, 3}}
end)
mistake("split that does not divide", function()
  sym.split{V"x", num_outputs = 4, name = "s"}:infer_shape{x = {2, 6}}
end)

-- bind
mistake("device that is no context", function() fc():bind("cpu", {}) end)
mistake("missing array", function() fc():bind(ty.cpu(), {data = nd.zeros{2, 4}}) end)
mistake("list of the wrong length", function() fc():bind(ty.cpu(), {nd.zeros{2, 4}}) end)
mistake("array on another device", function()
  sym.relu(V"x"):bind(ty.cpu(), {x = nd.zeros({2}, {ctx = ty.cpu(1)})})
end)
mistake("gradient of another shape", function()
  sym.relu(V"x"):bind{ctx = ty.cpu(), args = {x = nd.zeros{2}},
      args_grad = {x = nd.zeros{3}}}
end)
mistake("unknown gradient request", function()
  fc():simple_bind{ctx = ty.cpu(), data = {2, 4}, grad_req = "writ"}
end)
mistake("shape of an unknown argument", function()
  fc():simple_bind{ctx = ty.cpu(), dtaa = {2, 4}}
end)
mistake("shapes that are not enough", function() fc():simple_bind{ctx = ty.cpu()} end)
mistake("group without a device", function()
  local x
  ty.AttrScope{ctx_group = "dev9"}:with(function() x = sym.relu{V"x", name = "r"} end)
  x:simple_bind{ctx = ty.cpu(), x = {2}, group2ctx = {dev1 = ty.cpu(1)}}
end)
mistake("operator without gradient", function()
  sym.batch_take{V"x", V"i", name = "bt"}:bind{ctx = ty.cpu(),
    args = {x = nd.zeros{2, 3}, i = nd.zeros({2}, {dtype = "int32"})},
    args_grad = {x = nd.zeros{2, 3}}}
end)

-- executors
mistake("forward of an unknown name", function() linear():forward{zz = nd.array{1, 2}} end)
mistake("forward of another shape", function() linear():forward{a = nd.zeros(3)} end)
mistake("forward of no array", function() linear():forward{a = "x"} end)
mistake("backward before forward", function()
  local e = linear()
  e:backward(nd.ones(2))
end)
mistake("backward without head gradient", function()
  local e = linear()
  e:forward(true)
  e:backward()
end)
mistake("head gradient of another shape", function()
  local e = linear()
  e:forward(true)
  e:backward(nd.ones(3))
end)
mistake("parameters of an unknown name", function() linear():copy_params_from{q = nd.zeros(2)} end)
mistake("parameters of another shape", function() linear():copy_params_from{a = nd.zeros(3)} end)
mistake("reshape that changes a weight", function() bound():reshape{data = {2, 5}} end)
mistake("reshape to more rows", function() bound():reshape{data = {9, 4}} end)
mistake("monitor that is no function", function() linear():set_monitor_callback(3) end)
mistake("executor after its end", function()
  local e = linear()
  e:free()
  e:forward()
end)
mistake("run of a dry executor", function()
  fc():simple_bind{ctx = ty.cpu(), data = {2, 4}, dry_run = true}:forward()
end)
mistake("step below zero", function() linear():partial_forward(-1) end)

-- arrays
mistake("shape with a zero", function() nd.zeros{2, 0} end)
mistake("ragged table", function() nd.array{{1, 2}, {3}} end)
mistake("table with a word", function() nd.array{1, "two"} end)
mistake("unknown dtype", function() nd.zeros({2}, {dtype = "float31"}) end)
mistake("index out of range", function() return nd.zeros{2, 3}:get(2, 0) end)
mistake("row out of range", function() return nd.zeros{2, 3}[5] end)
mistake("unknown property", function() return nd.zeros{2}.shpae end)
mistake("read-only property", function() nd.zeros{2}.shape = {1} end)
mistake("scalar of several elements", function() nd.zeros{2}:asscalar() end)
mistake("shapes that do not broadcast", function() return nd.zeros{2, 3} + nd.zeros{2, 4} end)
mistake("data of another width", function()
  nd.FullyConnected(nd.ones{2, 5}, nd.ones{3, 4}, nd.ones{3}, {num_hidden = 3})
end)
mistake("pictures in bytes", function()
  nd.Convolution(nd.ones({1, 3, 8, 8}, {dtype = "uint8"}), nd.ones{4, 3, 3, 3}, nd.ones{4},
    {kernel = {3, 3}, num_filter = 4})
end)
mistake("copy to another shape", function() nd.zeros{2}:copyto(nd.zeros{3}) end)
mistake("index beyond the rows, at the read", function()
  nd.take{nd.ones{2, 2}, nd.array{7}, mode = "raise"}:totable()
end)
mistake("file that is missing", function() nd.load("/nowhere/x.params") end)
mistake("bytes that are no file of arrays", function()
  nd.load_frombuffer("hello, this is not a file of arrays")
end)
mistake("sparse arrays", function() return nd.sparse.csr_matrix end)
mistake("device that does not exist", function()
  nd.zeros({2}, {ctx = ty.gpu(0)}):wait_to_read()
end)
mistake("seed that is no whole number", function() ty.random.seed(1.5) end)
mistake("formula with a slip", function()
  ty.op.pointwise{name = "slip", args = {"a"}, formula = "a + * 2"}
end)
mistake("name of an operator that is taken", function()
  ty.op.pointwise{name = "relu", args = {"a"}, formula = "a"}
end)

return list
