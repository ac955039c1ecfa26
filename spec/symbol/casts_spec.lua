-- What files of symbols leave out of casts of mixed precision (symbol/json.lua).

local ty = require "tycho"

local V = ty.sym.Variable

local function cast(x, name) return ty.sym.amp_cast{ x, dtype = "float16", name = name } end

-- Returns the operators of a symbol, in the order of its file.
local function operators(s, options)
  local list = {}
  for op in s:tojson(options or {}):gmatch('"op": "([%w_]+)"') do
    list[#list + 1] = op ~= "null" and op or nil
  end
  return list
end

local function reloaded(s) return ty.sym.load_json(s:tojson()) end

local function types(s)
  local given = {}
  for _, name in ipairs(s:list_arguments()) do
    given[name] = "float32"
  end
  local _, outs = s:infer_type(given)
  return outs
end

describe("casts of mixed precision", function()
  it("inside a network are left out", function()
    local s = ty.sym.exp(cast(V("x")))
    assert.same({ "exp" }, operators(s))
    assert.same({ "amp_cast", "exp" }, operators(s, { remove_amp_cast = false }))
  end)

  it("that are outputs stay", function()
    local s = cast(ty.sym.exp(V("x")), "y")
    assert.same({ "exp", "amp_cast" }, operators(s))
    assert.same({ "y_output" }, reloaded(s):list_outputs())
    assert.same({ "float16" }, types(reloaded(s)))
  end)

  it("that are outputs stay where they are read, too, but not for the reader", function()
    local y = cast(ty.sym.exp(V("x")), "y")
    local s = ty.sym.Group{ y, ty.sym.sqrt(y) }
    assert.same({ "exp", "amp_cast", "sqrt" }, operators(s))
    assert.same({ "float16", "float32" }, types(reloaded(s)))
  end)

  it("in a chain that ends in an output: the last one stays", function()
    local inner = cast(V("x"), "inner")
    local s = ty.sym.amp_cast{ inner, dtype = "float32", name = "last" }
    assert.same({ "amp_cast" }, operators(s))
    assert.same({ "last_output" }, reloaded(s):list_outputs())
  end)

  it("of several outputs stay where one of them is an output", function()
    local both = ty.sym.amp_multicast{ V("a"), V("b"), num_outputs = 2, name = "m" }
    assert.same({ "amp_multicast" }, operators(both))
    assert.same(both:list_outputs(), reloaded(both):list_outputs())
    local s = ty.sym.Group{ both[2], ty.sym.exp(both[1]) }
    assert.same({ "amp_multicast", "exp" }, operators(s))
    assert.equal("m_output1", reloaded(s):list_outputs()[1])
    assert.same({ "b" }, { reloaded(s)[1]:list_arguments()[2] })
  end)

  it("that are outputs twice are one node", function()
    local y = cast(V("x"), "y")
    assert.same({ "amp_cast" }, operators(ty.sym.Group{ y, y }))
  end)

  it("leave the symbol itself as it was", function()
    local s = ty.sym.exp(cast(V("x")))
    s:tojson()
    assert.same({ "amp_cast", "exp" }, operators(s, { remove_amp_cast = false }))
  end)
end)
