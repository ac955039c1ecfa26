-- The prompt without a terminal: lines in, text out.

local Session = require "tycho.prompt"
local complete = require "tycho.prompt.complete"

local written

local function session()
  written = {}
  return Session.new{ write = function(...)
    for i = 1, select("#", ...) do
      written[#written + 1] = tostring((select(i, ...)))
    end
  end }
end

-- Feeds lines to a new session; returns all it wrote.
local function feed(...)
  local s = session()
  for i = 1, select("#", ...) do
    s:feed((select(i, ...)))
  end
  return table.concat(written), s
end

describe("prompt", function()
  it("prints what an expression gives, once", function()
    local output, s = feed("n = 0", "function f() n = n + 1 return n, nil, 'a' end", "f()")
    assert.equal('1\nnil\n"a"\n', output)
    assert.equal(1, s.env.n)
    assert.is_nil(rawget(_G, "n"))
  end)

  it("takes a leading = and a muting ;", function()
    assert.equal("2\n", (feed("= 1 + 1", "3;")))
  end)

  it("runs a text once even when it fails", function()
    local output, s = feed("n = 0", "n = n + 1; error('stop')")
    assert.equal(1, s.env.n)
    assert.is_truthy(output:match("stop"))
  end)

  it("continues unfinished statements and gives up at a blank line", function()
    assert.equal("1\n2\n", (feed("for i = 1, 2 do", "  _G.tostring(i)", "  end", "1", "{", "2}", ";"):gsub("{2}\n", "2\n")))
    local output = feed("x = 1 y", "")
    assert.is_truthy(output:match("expected near"))
  end)

  it("keeps the last results", function()
    assert.equal("5\n7\n7\n5\n", (feed("5", "7", "_", "_3")))
    local output = feed("5", ":forget", "_")
    assert.equal("5\nnil\n", output)
  end)

  it("reports errors where they are and goes on", function()
    local output = feed("local function f() error('deep') end f()", "1")
    assert.is_truthy(output:match("^prompt:1: deep\n"))
    assert.is_truthy(output:match("1\n$"))
  end)

  it("shows tables in order and to a depth", function()
    assert.equal('{1, 2, ["a b"] = {{{...}}}, b = true}\n', (feed("{1, 2, b = true, ['a b'] = {{{{1}}}}}")))
  end)

  it("shows locals of the last error", function()
    local output = feed("function g() local secret = 41; error('x') end", "g()", ":locals 1")
    assert.is_truthy(output:match("secret = 41"))
  end)

  it("lists its variables", function()
    assert.is_truthy((feed("apple = 3", ":who")):match("apple%s+3"))
  end)

  it("knows no other commands", function()
    assert.is_truthy((feed(":nonsense")):match("unknown command"))
  end)

  it("completes names along a path", function()
    local _, s = feed("fruit = {apple = 1, apricot = 2, pear = 3}")
    local n, list = complete(s.env, "x = fruit.ap")
    assert.equal(2, n)
    assert.same({ "apple", "apricot" }, list)
    assert.same({ "fruit" }, select(2, complete(s.env, "fru")))
    assert.same({}, select(2, complete(s.env, "nothing.at.all")))
  end)

  it("completes operators and their options", function()
    local ty, s = require "tycho", session()
    local _ = ty.sym
    assert.is_truthy(table.concat(select(2, complete(s.env, "ty.sym.FullyC")), " "):find("FullyConnected", 1, true))
    assert.is_truthy(table.concat(select(2, complete(s.env, "ty.sym.FullyConnected{data = x, num_h")), " "):find("num_hidden", 1, true))
  end)
end)
