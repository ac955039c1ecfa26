-- Error objects (runtime/lua/tycho/core/error.lua): nearness of names, places of calls.

local Error = require "tycho.core.error"
local ty = require "tycho"

describe("the nearest name", function()
  it("is one slip away: a letter missing, wrong, too many or out of place", function()
    for _, word in ipairs{ "sg", "sgx", "sgdd", "sdg", "SGD" } do
      assert.equal("sgd", Error.nearest(word, { "adam", "nag", "sgd", "signum" })[1])
    end
    assert.equal("shape", Error.nearest("shpae", { "size", "shape", "square" })[1])
  end)

  it("comes first, each once, as many as wanted", function()
    assert.same({ "ab", "ba", "xyz" }, (Error.nearest("ab", { "xyz", "ba", "ab", "ba" })))
    assert.same({ "ab" }, (Error.nearest("ab", { "xyz", "ab" }, 1)))
    assert.same({}, (Error.nearest("ab", {})))
  end)
end)

describe("a name that looks like none", function()
  local function suggestion_for(word, names)
    local _, e = pcall(Error.unknown, { argument = word, names = names })
    return e.message
  end

  it("is answered by the accepted ones alone", function()
    assert.equal("unknown name 'nesterov'", suggestion_for("nesterov", { "sym", "momentum", "wd" }))
    assert.equal("unknown name 'randn'", suggestion_for("randn", { "RNN", "pad" }))
    assert.equal("unknown name 'momentun'; did you mean 'momentum'?",
      suggestion_for("momentun", { "sym", "momentum", "wd" }))
    assert.equal("unknown name 'lr'; did you mean 'learning_rate'?",
      suggestion_for("lr", { "learning_rate", "wd" }))
  end)
end)

describe("the place of an error", function()
  local function try(f, ...)
    local ok, e = pcall(f, ...)
    return not ok and e
  end

  local function line_of(e)
    return tonumber(e.where:match("error_spec%.lua:(%d+)$"))
  end

  it("is the line that called, not the helper's that tried", function()
    local here = debug.getinfo(1, "l").currentline
    local by_function = try(ty.nd.zeros)
    local by_class = try(ty.io.NDArrayIter, {})
    assert.equal(here + 1, line_of(by_function))
    assert.equal(here + 2, line_of(by_class))
  end)
end)

describe("a size of 0", function()
  local function text_of(f, ...)
    local ok, e = pcall(f, ...)
    assert.is_false(ok)
    return tostring(e)
  end

  it("is unknown in a shape, a number in other lists", function()
    local net = ty.gluon.nn.Dense(2)
    net:initialize()
    net(ty.nd.ones{ 1, 3 })
    for text, f in pairs{
      ["got (0, 5)"] = function() ty.nd.ones{ 2, 3 }:reshape{ 0, 5 } end,
      ["got (0, -1, 4)"] = function() ty.nd.ones{ 2, 3 }:reshape{ 0, -1, 4 } end,
      ["got (0, 0, 0)"] = function() ty.gluon.nn.Conv2D(2, 3, { padding = { 0, 0, 0 } }) end,
      ["got (0, 1)"] = function() ty.gluon.nn.ReflectionPad2D{ padding = { 0, 1 } } end,
      ["got (0,)"] = function() ty.gluon.data.vision.transforms.RandomRotation({ 0 }) end,
      ["got (?, 4)"] = function() net.weight.shape = { 0, 4 } end,
    } do
      local got = text_of(f)
      assert.truthy(got:find(text, 1, true), got)
    end
  end)
end)

describe("a library that is not installed", function()
  it("is named, with what to install", function()
    local kept = package.loaded.cjson
    package.loaded.cjson, package.preload.cjson = nil, function()
      error("module 'cjson' not found")
    end
    local ok, e = pcall(ty.init.create, '["uniform", {"scale": 0.1}]')
    package.loaded.cjson, package.preload.cjson = kept, nil
    assert.is_false(ok)
    assert.equal("unsupported", e.code)
    assert.truthy(e.message:find("lua-cjson", 1, true))
  end)
end)
