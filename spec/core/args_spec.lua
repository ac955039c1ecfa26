-- Call forms (runtime/lua/tycho/core/args.lua): the rules R1 to R4 and what is refused.

local args = require "tycho.core.args"
local values = require "tycho.core.values"
local ty = require "tycho"

describe("a form", function()
  local form = args.form("nd.full", {
    { "shape", "shape" }, { "val", "number" }, { "dtype", "dtype", "float32" }, "*",
    { "end", "integer?" }, { "mode", { "clip", "wrap" }, "clip" },
  })

  it("reads options, their array part in order", function()
    local a = form{ { 2, 3 }, 1, dtype = "int32" }
    assert.same({ 2, 3 }, a.shape)
    assert.equal("int32", a.dtype)
    assert.equal(1, form{ shape = 4, val = 1 }.val)
  end)

  it("reads positions with options last", function()
    local a = form({ 2, 3 }, 1, { end_ = 7, mode = "wrap" })
    assert.same({ 2, 3 }, a.shape)
    assert.equal(7, a["end"])
    assert.equal("wrap", a.mode)
  end)

  it("fills in defaults and leaves options out", function()
    local a = form(3, 1)
    assert.equal("float32", a.dtype)
    assert.is_nil(a["end"])
    assert.is_nil(form{ 3, 1, ["end"] = values.null }["end"])
  end)

  it("takes nil at the end for absent", function()
    assert.equal(1, form(3, 1, nil, nil, nil).val)
    assert.equal("int8", form({ 3, 1, dtype = "int8" }, nil).dtype)
    assert.equal(7, form(3, 1, { end_ = 7 }, nil)["end"])
    assert.raises("value", form, nil)
  end)

  it("hands out fresh shapes", function()
    local shape = { 2, 3 }
    assert.are_not.equal(shape, form{ shape, 1 }.shape)
  end)

  for what, case in pairs{
    ["an unknown keyword"] = { "name", { 3, 1, vall = 2 } },
    ["a keyword given twice"] = { "name", { 3, 1, shape = 2 } },
    ["a missing parameter"] = { "value", { 3 } },
    ["a wrong kind"] = { "type", { 3, "x" } },
    ["another dtype"] = { "dtype", { 3, 1, dtype = "float33" } },
    ["another word"] = { "value", { 3, 1, mode = "clap" } },
    ["too many positions"] = { "type", { 3, 1, "int8", 4 } },
    ["a negative size"] = { "type", { { -1 }, 1 } },
  } do
    it("refuses " .. what, function() assert.raises(case[1], form, case[2]) end)
  end

  it("tells who gives too many what goes by position and what by name", function()
    local e = assert.raises("type", form, { 2, 3 }, 1, "int32", 4)
    assert.truthy(e.message:find("(shape, val, dtype), got 4; by name: end, mode", 1, true),
      e.message)
  end)

  it("names the nearest keyword first", function()
    local _, e = pcall(form, { 3, 1, dtyp = "int8" })
    assert.equal("dtype", e.candidates[1])
    assert.equal("dtyp", e.argument)
    assert.equal("nd.full", e.func)
    assert.truthy(e.where:find("args_spec.lua:", 1, true))
  end)
end)

describe("members", function()
  it("may stand in a row where they are all there is by position", function()
    local form = args.form("sym.Group",
      { list = true, { "symbols", "list" }, "*", { "k", "any?" } })
    assert.same({ 1, 2 }, form(1, 2).symbols)
    assert.same({ symbols = { 1, 2 }, k = 3 }, form(1, 2, { k = 3 }))
    assert.same({ 1 }, form{ 1 }.symbols)
    assert.raises("type", form, 1)
  end)
end)

describe("sizes", function()
  it("may be numbers in a row", function()
    local form = args.form("nd.zeros",
      { list = true, { "shape", "shape" }, "*", { "dtype", "dtype", "float32" } })
    assert.same({ 2, 3 }, form(2, 3).shape)
    assert.same({ shape = { 2, 3, 4 }, dtype = "int32" }, form(2, 3, 4, { dtype = "int32" }))
    assert.same({ 2 }, form(2, { dtype = "int32" }).shape)
    assert.raises("type", form, 2, "int32")
    assert.raises("type", form, 2, 3, "int32")
  end)
end)

describe("paths", function()
  it("have no zero byte, at which the system would cut them", function()
    local save = args.form("spec.save", { { "fname", "path" } })
    assert.equal("a b/ü.params", save("a b/ü.params").fname)
    assert.raises("value", save, "other.params\0.txt")
    assert.raises("type", save, 3)
  end)

  it("are refused by what reads and writes files", function()
    local path = "/nowhere/x\0.params"
    for _, f in ipairs{ ty.nd.load, ty.sym.load, ty.onnx.import_model, ty.torch7.load,
        ty.pytorch.load } do
      assert.raises("value", f, path)
    end
    assert.raises("value", ty.nd.save, path, ty.nd.ones(1))
  end)
end)


describe("a last table whose place takes tables", function()
  local form = args.form("io.Iter", {
    { "data", "any" }, { "label", "any?" }, { "batch_size", "integer", 1 },
    { "end", "integer?" },
  })

  it("is the options where its names all are some that were not given yet", function()
    assert.same({ data = 3, batch_size = 7 }, form(3, { batch_size = 7 }))
    local a = form(3, { label = 4, end_ = 5 })
    assert.same({ 4, 5, 1 }, { a.label, a["end"], a.batch_size })
  end)

  it("stands for the parameter of its place where tables belong there", function()
    local bind = args.form("f",
      { { "k", "integer" }, { "args", "dict" }, { "grad_req", "text?" } })
    assert.same({ grad_req = "add" }, bind(1, { grad_req = "add" }).args)
    local a = ty.sym.Variable("a")
    assert.raises("name", a.bind, a, ty.cpu(), { args_grad = { a = ty.nd.ones(1) } })
  end)

  it("stands for the parameter of its place otherwise", function()
    for _, t in ipairs{ { label = 4 }, { data = 4, batch_size = 1 }, { x = 1, batch_size = 2 },
        { 1, 2 }, {} } do
      assert.equal(t, form(3, t).label)
    end
  end)
end)

describe("a form with a list first", function()
  local form = args.form("nd.zeros",
    { list = true, { "shape", "shape" }, { "dtype", "dtype", "float32" } })

  it("takes the whole array part", function()
    assert.same({ 2, 3 }, form{ 2, 3, dtype = "int8" }.shape)
    assert.same({ 2, 3 }, form({ 2, 3 }, "int8").shape)
    assert.same({ 2, 3 }, form({ 2, 3 }, { dtype = "int8" }).shape)
  end)

  it("takes sizes that are in a table of their own as the first argument", function()
    assert.same({ shape = { 2, 3 }, dtype = "float32" }, form{ { 2, 3 } })
    assert.same({ shape = { 2, 3 }, dtype = "int8" }, form{ { 2, 3 }, "int8" })
    assert.same({ shape = { 2, 3 }, dtype = "int8" }, form{ { 2, 3 }, dtype = "int8" })
    assert.raises("name", form, { { 2, 3 }, shape = { 2 } })
    local lists = args.form("f", { list = true, { "arrays", "list" } })
    assert.same({ { 2, 3 } }, lists{ { 2, 3 } }.arrays)
  end)
end)

describe("a form with a dictionary first", function()
  local form = args.form("Executor:backward",
    { list = true, dict = true, { "out_grads", "any?" }, { "is_train", "boolean", true } })

  it("tells options from the dictionary", function()
    assert.equal(false, form{ is_train = false }.is_train)
    assert.equal(5, form{ softmax_output = 5 }.out_grads.softmax_output)
    assert.same({ 1, 2 }, form{ 1, 2 }.out_grads)
    assert.is_nil(form().out_grads)
  end)
end)

describe("a form with free names", function()
  local form = args.form("Executor:forward", { rest = "arrays", { "is_train", "boolean", false } })

  it("collects them", function()
    local a = form(true, { data = 1 })
    assert.equal(true, a.is_train)
    assert.equal(1, a.arrays.data)
    assert.is_nil(next(form().arrays))
  end)
end)

describe("pairs", function()
  it("keep their order, dictionaries are sorted", function()
    local dict, keys = args.pairs_of{ { "b", 1 }, { "a", 2 } }
    assert.same({ "b", "a" }, keys)
    assert.equal(2, dict.a)
    assert.same({ "a", "b" }, select(2, args.pairs_of{ b = 1, a = 2 }))
    assert.is_nil(args.pairs_of{ 1, 2 })
    assert.is_nil(args.pairs_of{ { "b", 1 }, a = 2 })
    assert.is_nil(args.pairs_of{ { "b", 1 }, [3] = { "a", 2 } })
  end)

  it("names known types, in all of the library", function()
    for _, name in ipairs{ "mod", "optimizer", "io", "init", "gluon", "image", "metric", "nd",
        "sym", "kv", "autograd" } do
      assert(ty[name])
    end
    for _, each in pairs(args.forms) do
      assert.is_table(each.params)                       -- compiles the form
    end
  end)
end)
