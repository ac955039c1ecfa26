-- The machine that reads pickles: it makes values and descriptions, and runs nothing.

local files = require "tycho.ndarray.file_arrays"
local file_cursor = require "tycho.ndarray.file_cursor"
local p = require "spec.support.pytorch"
local pickle = require "tycho.ndarray.pickle"
local ty = require "tycho"

local function read(bytes, options)
  local file = files.copy(bytes, #bytes, "a pickle", "spec")
  return pickle.read(file_cursor.new(file), options or {})
end

local function refused(bytes, text, options)
  local e = assert.raises("format", read, bytes, options)
  assert.truthy(e.message:find(text, 1, true), e.message)
end

describe("a pickle", function()
  it("has numbers, texts, truth and None", function()
    local rows = {
      ["J\254\255\255\255."] = -2, ["K\255."] = 255, ["M\1\2."] = 513, ["I-7\n."] = -7,
      ["I01\n."] = true, ["I00\n."] = false, ["L12345678901L\n."] = 12345678901, ["F0.5\n."] = 0.5,
      ["\136."] = true, ["\137."] = false, ["N."] = ty.null,
      ["\138\0."] = 0, ["\138\2\0\255."] = -256, ["\139\1\0\0\0\5."] = 5,
      ["X\2\0\0\0ab."] = "ab", ["U\1x."] = "x", ["T\1\0\0\0x."] = "x",
      ["S'a\\'\\n\\x41'\n."] = "a'\nA",
      ["Vxy\n."] = "xy", ["\140\1z."] = "z", ["\141\1\0\0\0\0\0\0\0z."] = "z",
      ["C\2\0\1."] = "\0\1",
      ["B\1\0\0\0b."] = "b", ["\150\1\0\0\0\0\0\0\0b."] = "b",
      ["G\63\240\0\0\0\0\0\0."] = 1,
    }
    for bytes, want in pairs(rows) do
      assert.equal(want, read(bytes), bytes)
    end
    local nan = read("G\255\255\255\255\255\255\255\255.")
    assert.is_true(nan ~= nan)
    local inf = read("F-inf\n.")
    assert.equal(-math.huge, inf)
  end)

  it("has integers of any length, the large ones as descriptions", function()
    local v = read("\138\9\0\0\0\0\0\0\0\0\1.")
    assert.is_true(pickle.is_described(v))
    assert.equal("int", v.class_name)
    assert.equal("\0\0\0\0\0\0\0\0\1", v.bytes)
    assert.equal(2 ^ 53, read("\138\7\0\0\0\0\0\0\32."))
  end)

  it("has lists, tuples, sets and dictionaries", function()
    assert.same({ 1, 2 }, read("](K\1K\2e."))
    assert.same({ 1 }, read("]K\1a."))
    assert.same({ 1, 2 }, read("(K\1K\2l."))
    assert.same({ 1, 2 }, read("(K\1K\2t."))
    assert.same({}, read(")."))
    assert.same({ 1 }, read("K\1\133."))
    assert.same({ 1, 2 }, read("K\1K\2\134."))
    assert.same({ 1, 2, 3 }, read("K\1K\2K\3\135."))
    assert.same({ 1 }, read("\143(K\1\144."))
    assert.same({ 1 }, read("(K\1\145."))
    local dict = read("}(X\1\0\0\0bK\1X\1\0\0\0aK\2u.")
    assert.same({ "b", "a" }, pickle.keys(dict))
    assert.equal(2, dict.a)
    assert.equal(7, read("(K\1K\7d.")[1])
    assert.equal(7, read("}K\1K\7s.")[1])
  end)

  it("has a memo: the same object again, cycles", function()
    local t = read("]q\0(h\0K\1e.")
    assert.equal(t, t[1])
    assert.equal(1, t[2])
    local pair = read("]\148\75\1a2\134.")
    assert.equal(pair[1], pair[2])
    assert.equal("x", read("(X\1\0\0\0xp3\n0g3\nt.")[1])
    assert.equal("x", read("(X\1\0\0\0xr\7\0\0\0000j\7\0\0\0t.")[1])
  end)

  it("describes objects and calls nothing", function()
    local mark = os.tmpname()
    os.remove(mark)
    local v = read(p.pickle(p.call(p.global("os", "system"), p.text("touch " .. mark))))
    assert.equal("os.system", v.class_name)
    assert.same({ "touch " .. mark }, v.args)
    assert.equal("<os.system>", tostring(v))
    assert.is_nil(io.open(mark))
    v = read("cm\nC\n)\129}X\1\0\0\0aK\5sb.")
    assert.equal("m.C", v.class_name)
    assert.equal(5, v.state.a)
    v = read("\140\1m\140\1C\147)}\146](K\1e0(K\2e.")
    assert.same({ 2 }, v.items)
    v = read("(im\nC\nX\1\0\0\0aK\1s.")
    assert.equal(1, v.entries.a)
    v = read("(cm\nC\nK\3o.")
    assert.same({ 3 }, v.args)
    assert.equal("io.popen", pickle.path(read("cio\npopen\n.")))
  end)

  it("has functions that the caller gives", function()
    local functions = { ["m.f"] = function(a) return a[1] * 2 end }
    assert.equal(6, read("cm\nf\nK\3\133R.", { functions = functions }))
    assert.equal("id 4", read("K\4Q.", { persistent = function(id) return "id " .. id end }))
    assert.equal("id x", read("Px\n.", { persistent = function(id) return "id " .. id end }))
  end)

  it("may be followed by others", function()
    local bytes = "K\1.K\2."
    local cursor = file_cursor.new(files.copy(bytes, #bytes, "pickles", "spec"))
    assert.equal(1, pickle.read(cursor, {}))
    assert.equal(2, pickle.read(cursor, {}))
    assert.equal(0, cursor:left())
  end)

  local damaged = {
    { "", "ends inside" }, { "K", "ends inside" }, { "K\1", "ends inside" },
    { ".", "nothing is on the stack" }, { "(.", "nothing is on the stack" },
    { "0.", "nothing is on the stack" },
    { "t.", "there is no mark" }, { "h\0.", "nothing is in place 0" }, { "gx\n.", "in place nil" },
    { "\130\1.", "no instruction 130" }, { "\151.", "no instruction 151" },
    { "\128\6.", "protocol 6" }, { "K\1K\2a.", "what is no list" },
    { "K\1K\2K\3s.", "no dictionary" },
    { "}(K\1u.", "a key without a value" }, { "}NNs0}Fnan\nK\1s.", "is NaN" },
    { "X\255\255\255\255ab.", "are announced" }, { "\149\0\0\1\0\0\0\0\0K\1.", "a frame of" },
    { "S'abc\n.", "without quotes" }, { "Fabc\n.", "is no number" }, { "K\1K\2R.", "no tuple" },
    { "K\1K\2\147.", "is no text" }, { "K\1Q.", "refers to what is not there" },
    { "cos\nsystem\nK\1a.", "what is no list" }, { "NK\1a.", "what is no list" },
    { "]p-1\n.", "a place of the memo" },
  }
  for _, row in ipairs(damaged) do
    it("that is damaged is refused: " .. row[1]:gsub("[^%g ]", "?"), function()
      refused(row[1], row[2])
    end)
  end

  it("does not take more memory than it is allowed", function()
    refused(("]"):rep(10 ^ 6), "more memory")
    refused("K\1" .. ("2"):rep(6 * 10 ^ 6), "more memory")
    local many = {}
    for i = 1, 2 * 10 ^ 6 do
      many[i] = "\148"
    end
    refused("]" .. table.concat(many), "more memory")
  end)
end)
