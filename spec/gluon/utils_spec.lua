-- Tools of training loops.

local ty = require "tycho"

local nd, utils = ty.nd, ty.gluon.utils


describe("split_data", function()
  it("slices along an axis", function()
    local x = nd.arange(12):reshape{ 4, 3 }
    local parts = utils.split_data(x, 2)
    assert.near({ { 6, 7, 8 }, { 9, 10, 11 } }, parts[2])
    parts = utils.split_data(x, 3, { batch_axis = 1 })
    assert.near({ { 1 }, { 4 }, { 7 }, { 10 } }, parts[2])
    parts = utils.split_data(x, 3, { even_split = false })
    assert.same({ 2, 1, 1 }, { parts[1].shape[1], parts[2].shape[1], parts[3].shape[1] })
    assert.equal(x, utils.split_data(x, 1)[1])
    assert.shape({ 4, 1 }, utils.split_data(x, 3, { batch_axis = -1 })[1])
  end)

  it("refuses slices that are uneven, or too many", function()
    local x = nd.ones{ 4, 3 }
    assert.raises("value", utils.split_data, x, 3)
    assert.raises("value", utils.split_data, x, 5, { even_split = false })
    assert.raises("value", utils.split_data, x, 2, { batch_axis = 2 })
    assert.raises("value", utils.split_data, x, 0)
    assert.raises("type", utils.split_data, 3, 2)
  end)
end)


describe("split_and_load", function()
  it("puts each slice on its device", function()
    local parts = utils.split_and_load({ { 1 }, { 2 } }, { ty.cpu(1), ty.cpu(2) })
    assert.equal(ty.cpu(2), parts[2].context)
    assert.near({ { 2 } }, parts[2])
    assert.equal(1, #utils.split_and_load(nd.ones{ 3 }, ty.cpu(1)))
    assert.raises("type", utils.split_and_load, nd.ones{ 3 }, {})
    assert.raises("type", utils.split_and_load, nd.ones{ 3 }, { "cpu" })
  end)
end)


describe("clip_global_norm", function()
  it("scales in place down to the norm", function()
    local a, b = nd.array{ 3, 0 }, nd.array{ 4 }
    assert.near(5, utils.clip_global_norm({ a, b }, 10))
    assert.near({ 3, 0 }, a)
    assert.near(5, utils.clip_global_norm({ a, b }, 1))
    assert.near({ 0.6, 0 }, a, 1e-6)
    assert.near({ 0.8 }, b, 1e-6)
    local norm = utils.clip_global_norm({ a, b }, 1, { check_isfinite = false })
    assert.near({ 1 }, norm, 1e-6)
  end)

  it("warns of NaN and infinity", function()
    local log, lines = require "tycho.core.log", {}
    local warning = log.warning
    rawset(log, "warning", function(_, text) lines[#lines + 1] = text end)
    utils.clip_global_norm({ nd.array{ 1 / 0 } }, 1)
    utils.clip_global_norm({ nd.array{ 0 / 0 } }, 1)
    rawset(log, "warning", warning)
    assert.equal(2, #lines)
  end)

  it("needs arrays", function()
    assert.raises("value", utils.clip_global_norm, {}, 1)
    assert.raises("type", utils.clip_global_norm, { 3 }, 1)
  end)
end)


describe("files", function()
  it("are known by their SHA-1", function()
    local path = os.tmpname()
    local f = io.open(path, "wb")
    f:write("abc")
    f:close()
    assert.is_true(utils.check_sha1(path, "A9993E364706816ABA3E25717850C26C9CD0D89D"))
    assert.is_false(utils.check_sha1(path, ("0"):rep(40)))
    utils.replace_file(path, path .. ".moved")
    assert.is_true(utils.check_sha1(path .. ".moved", "a9993e364706816aba3e25717850c26c9cd0d89d"))
    os.remove(path .. ".moved")
    assert.raises("io", utils.check_sha1, path, ("0"):rep(40))
    assert.raises("io", utils.replace_file, path, path .. ".x")
  end)

  it("of any length have the right hash", function()
    local sha1 = require "tycho.core.sha1"
    assert.equal("da39a3ee5e6b4b0d3255bfef95601890afd80709", sha1(""))
    assert.equal("84983e441c3bd26ebaae4aa1f95129e5e54670f1",
      sha1("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))
    assert.equal("34aa973cd4c4daa4f61eeb2bdbad27316534016f", sha1(("a"):rep(1000000)))
  end)

  it("are not fetched", function()
    assert.raises("unsupported", utils.download, "http://localhost/x")
    assert.raises("name", function() return utils.no_such_tool end)
  end)
end)
