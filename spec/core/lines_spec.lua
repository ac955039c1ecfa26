-- Lines of texts as any program writes them, and what reads them.

local files = require "tycho.core.files"
local folder = require "spec.support.folder"
local images = require "spec.support.images"
local ty = require "tycho"

local MARK = "\239\187\191"

local function in_file(bytes, f)
  folder.with(function(path)
    folder.write(path .. "/x", bytes)
    f(path .. "/x", path)
  end)
end

local function read_lines(bytes)
  local list
  in_file(bytes, function(path)
    list = {}
    for line in files.lines(path, "test") do
      list[#list + 1] = line
    end
  end)
  return list
end

describe("lines", function()
  it("end in line feeds, carriage returns or both", function()
    for bytes, want in pairs{ [""] = {}, ["\n"] = { "" }, ["a"] = { "a" },
      ["a\n\nb"] = { "a", "", "b" }, ["a\r\nb\r\n"] = { "a", "b" }, ["a\rb\r"] = { "a", "b" },
      ["a\rb"] = { "a", "b" }, ["a\rb\nc\r\nd"] = { "a", "b", "c", "d" },
      ["a\r\rb\n"] = { "a", "", "b" } } do
      assert.same(want, read_lines(bytes))
    end
  end)

  it("begin after a byte order mark of UTF-8, and are none of UTF-16", function()
    assert.same({ "a", MARK .. "b" }, read_lines(MARK .. "a\n" .. MARK .. "b"))
    for _, mark in ipairs{ "\255\254", "\254\255" } do
      local e = assert.raises("format", read_lines, mark .. "a\0")
      assert.is_truthy(tostring(e):find("save it as UTF-8", 1, true))
    end
  end)

  it("are those of sentences, lists of images and indices of records", function()
    images.make_folder()
    local names = { images.path("a.png"), images.path("b.png") }
    for i, name in ipairs(names) do
      images.write(("%s.png"):format(i == 1 and "a" or "b"), ty.image.imencode(
        images.constant(4, 4, 3, i), { img_fmt = ".png" }))
    end
    local record = ty.recordio.MXIndexedRecordIO(images.path("x.idx"), images.path("x.rec"), "w")
    for i = 0, 1 do
      record:write_idx(i, ty.recordio.pack_img(ty.recordio.IRHeader{ 0, i, i, 0 },
        images.constant(4, 4, 3, i), { img_fmt = ".png" }))
    end
    record:close()
    local at = folder.read(images.path("x.idx")):match("1\t(%d+)")
    for _, ending in ipairs{ "\n", "\r\n", "\r" } do
      for _, before in ipairs{ "", MARK, MARK .. " " .. ending } do
        images.write("text", before .. "one two" .. ending .. "two" .. ending)
        local corpus = ty.io.text(images.path("text"))
        assert.equal(2, corpus:len())
        assert.same({ "one", "two" }, corpus.words)
        images.write("x.lst", table.concat{ before, "7\t5\t", names[1], ending, "8\t6\t", names[2],
          ending, " ", ending })
        local labels = {}
        for batch in ty.image.ImageIter{ batch_size = 1, data_shape = { 3, 4, 4 },
            path_imglist = images.path("x.lst") } do
          labels[#labels + 1] = batch.label[1]:asscalar()
        end
        assert.same({ 5, 6 }, labels)
        images.write("labels.lst", table.concat{ before, "0\t3\ta", ending, ending, "1\t4\tb",
          ending })
        images.write("x.idx", table.concat{ before, "0\t0", ending, "1\t", at, ending })
        local it = ty.io.ImageRecordIter{ path_imgrec = images.path("x.rec"), batch_size = 2,
          data_shape = { 3, 4, 4 }, path_imgidx = images.path("x.idx"),
          path_imglist = images.path("labels.lst") }
        assert.same({ 3, 4 }, it:next().label[1]:totable())
        record = ty.recordio.MXIndexedRecordIO(images.path("x.idx"), images.path("x.rec"), "r")
        assert.same({ 0, 1 }, record.keys)
        record:close()
      end
    end
    images.write("bad.lst", "\n0\t1\ta\r\rx\n")
    local e = assert.raises("format", ty.image.ImageIter, { batch_size = 1,
      data_shape = { 3, 4, 4 }, path_imglist = images.path("bad.lst") })
    assert.is_truthy(tostring(e):find("line 4 is no number", 1, true), tostring(e))
    images.remove_folder()
  end)
end)
