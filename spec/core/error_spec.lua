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
