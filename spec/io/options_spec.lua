-- What the readers of files say of options that they cannot take, one at a time: straight to the
-- core, since the front end refuses most of them before.

local folder = require "spec.support.folder"
local interface = require "spec.support.interface"
local native = require "tycho.core.ffi"

local C = native.C

local UNREADABLE = "/proc/self/mem"                      -- opens, and cannot be read from its start

-- Returns the text of the failure, nil if the iterator was made.
local function refusal(kind, options)
  local it, text = interface.iterator(kind, options)
  if it then
    C.ty_iter_free(it)
  end
  return text
end

local function merged(options, more)
  local all = {}
  for _, list in ipairs{ options, more } do
    for key, value in pairs(list) do
      all[key] = value
    end
  end
  return all
end

local function integer(key, least)
  return { key, "x", ("'%s' is 'x', not an integer of at least %s"):format(key, least) }
end

local function real(key)
  return { key, "inf", ("'%s' is 'inf', not a finite number"):format(key) }
end

local function truth(key)
  return { key, "maybe", ("'%s' is 'maybe', neither True nor False"):format(key) }
end

local function shape(key, value)
  return { key, value or "none", ("'%s' is '%s', not a shape"):format(key, value or "none") }
end

local function bad(key, value, expected, named)
  return { key, value, ("bad '%s': expected %s"):format(named or key, expected) }
end

local MANY = ("1,"):rep(16)
local DTYPES = "unknown dtype 'float': expected float32, float64, float16, bfloat16, uint8, int8, \z
  int32, int64 or bool"

local PARTS = { integer("num_parts", 1), integer("part_index", 0), { "part_index", "1",
  "part_index is 1, but there are 1 parts" } }
local IMAGES = { shape("data_shape"), { "dtype", "float", DTYPES },
  { "label_width", "1048577", "label_width is 1048577, at most 1048576 are possible" },
  integer("seed", "-9223372036854775808"), integer("seed_aug", "-9223372036854775808"),
  integer("resize", -1), { "resize", "-2", "'resize' is '-2', not an integer of at least -1" },
  bad("resize", "0", "-1 or a size above 0"), bad("resize", "1048577", "at most 1048576"),
  bad("inter_method", "5", "0 to 4, 9 or 10"), bad("data_shape", "(3,8)", "channels, height, width"),
  bad("data_shape", "(2,8,8)", "1, 3 or 4 channels, height, width"),
  bad("data_shape", "(3,1048577,1048576)", "at most 268435456 pixels"),
  bad("std_b", "0", "not 0", "std_r, std_g, std_b or std_a"), truth("shuffle"),
  integer("preprocess_threads", 1), integer("first_epoch", 0),
  { "path_imgrec", "/nowhere", "cannot open '/nowhere': No such file or directory" },
  { "path_imgidx", "/nowhere", "cannot open '/nowhere': No such file or directory" },
  { "path_imglist", "/nowhere", "cannot open '/nowhere': No such file or directory" },
  { "mean_img", "/nowhere", "cannot open '/nowhere': No such file or directory" } }

local AREA = "above 0 and at most max_random_area"
local SCALE = "above 0 and at most max_random_scale"
local RATIO = "0 to below 1, unless min_aspect_ratio is given"

local CASES = {
  csv = { shape("data_shape"), shape("data_shape", ""), shape("data_shape", "(0,)"),
    shape("data_shape", "(2147483648,)"), shape("data_shape", MANY), shape("label_shape"),
    integer("batch_size", 1), { "batch_size", "3 4",
      "'batch_size' is '3 4', not an integer of at least 1" },
    { "batch_size", "9223372036854775808",
      "'batch_size' is '9223372036854775808', not an integer of at least 1" },
    { "batch_size", "2147483648", "batch_size or prefetch_buffer is too large" },
    { "prefetch_buffer", "4097", "batch_size or prefetch_buffer is too large" },
    integer("prefetch_buffer", 1), integer("skip_samples", 0), truth("round_batch"),
    truth("header"), { "data_csv", "/nowhere", "cannot open '/nowhere': No such file or directory" },
    { "label_csv", "/nowhere", "cannot open '/nowhere': No such file or directory" },
    { "data_csv", UNREADABLE, "cannot read '/proc/self/mem': Input/output error" } },
  libsvm = { shape("data_shape"), { "label_libsvm", "/nowhere",
    "cannot open '/nowhere': No such file or directory" } },
  raw = { shape("shape"), { "dtype", "float", DTYPES }, integer("label_bytes", 0),
    { "label_bytes", "1048577", "label_bytes is 1048577" },
    { "path", "/nowhere", "cannot open '/nowhere': No such file or directory" } },
  mnist = { truth("flat"), truth("shuffle"), integer("seed", "-9223372036854775808"),
    { "image", "/nowhere", "cannot open '/nowhere': No such file or directory" },
    { "label", "/nowhere", "cannot open '/nowhere': No such file or directory" } },
  image_record = { { "dtype", "int32", "dtype is int32, expected float32, int8 or uint8" },
    integer("label_width", 1), truth("rand_crop"), truth("rand_mirror"),
    real("std_a"), real("max_shear_ratio"), integer("max_rotate_angle", 0),
    bad("pad", "1048577", "at most 1048576"), bad("inter_method", "11", "0 to 4, 9 or 10"),
    bad("min_crop_size", "4", "at most max_crop_size"),
    bad("max_crop_size", "4", "a size above 0, as max_crop_size is given", "min_crop_size"),
    bad("data_shape", "(3,8,268435457)", "at most 268435456 pixels"),
    bad("min_img_size", "1048577", "at most 1048576"),
    bad("min_random_scale", "0", SCALE), bad("max_random_scale", "0.5", SCALE, "min_random_scale"),
    bad("max_random_scale", "1001", SCALE, "min_random_scale"),
    bad("min_random_area", "0", AREA), bad("max_random_area", "0.5", AREA, "min_random_area"),
    bad("max_random_area", "1001", AREA, "min_random_area"),
    bad("max_aspect_ratio", "-1", RATIO), bad("max_aspect_ratio", "1001", RATIO),
    bad("max_aspect_ratio", "1", RATIO),
    bad("min_aspect_ratio", "0", "above 0 and at most max_aspect_ratio"),
    bad("min_aspect_ratio", "0.5", "above 0 and at most max_aspect_ratio") },
  image_det_record = { { "dtype", "int8", "dtype is int8, expected float32 or uint8" },
    integer("label_width", -1), integer("label_pad_width", -1),
    real("label_pad_value"), { "label_pad_width", "1048577",
      "an image has 1048577 labels, at most 1048576 are possible" },
    real("std_a"), integer("max_random_hue", 0), bad("inter_method", "11", "0 to 4, 9 or 10"),
    bad("crop_emit_mode", "both", "center or overlap"),
    bad("resize_mode", "stretch", "force, shrink or fit"),
    bad("data_shape", "(3,8,1048577)", "at most 268435456 pixels"),
    bad("rand_mirror_prob", "-0.5", "0 to 1", "..._prob"),
    bad("rand_crop_prob", "1.5", "0 to 1", "..._prob"),
    bad("max_pad_scale", "0.5", "1 to 100"), bad("max_pad_scale", "101", "1 to 100"),
    bad("num_crop_sampler", "33", "at most 32"),
    bad("max_crop_trials", "-1", "0 to 100000"), bad("max_crop_trials", "100001", "0 to 100000"),
    bad("max_crop_trials", "many", "one number, or one for each of num_crop_sampler"),
    bad("max_crop_trials", "[1, 2]", "one number, or one for each of num_crop_sampler"),
    bad("min_crop_scales", "x", "one number, or one for each of num_crop_sampler"),
    bad("min_crop_scales", "-1", "0 to 1, at most max_crop_scales"),
    bad("min_crop_scales", "2", "0 to 1, at most max_crop_scales"),
    bad("max_crop_scales", "(0)", "0 to 1, at most max_crop_scales", "min_crop_scales"),
    bad("max_crop_scales", "2", "0 to 1, at most max_crop_scales", "min_crop_scales"),
    bad("min_crop_aspect_ratios", "0", "above 0, at most max_crop_aspect_ratios"),
    bad("min_crop_aspect_ratios", "2", "above 0, at most max_crop_aspect_ratios") },
}

-- Returns an idx file of so many dimensions, all of them 1.
local function idx(ndim)
  return "\0\0\8" .. string.char(ndim) .. ("\0\0\0\1"):rep(ndim) .. "\7"
end

local function write_files(path)
  folder.write(path .. "/rows", "1,2\n3,4\n")
  folder.write(path .. "/pairs", "1 0:2\n3 1:4\n")
  folder.write(path .. "/images", idx(3))
  folder.write(path .. "/labels", idx(1))
  folder.write(path .. "/none", "")
  return {
    csv = { data_csv = path .. "/rows", data_shape = "(2,)" },
    libsvm = { data_libsvm = path .. "/pairs", data_shape = "(2,)" },
    raw = { path = path .. "/rows", shape = "(2,)" },
    mnist = { image = path .. "/images", label = path .. "/labels" },
    image_record = { path_imgrec = path .. "/none", data_shape = "(3,8,8)" },
    image_det_record = { path_imgrec = path .. "/none", data_shape = "(3,8,8)" },
  }
end

describe("a reader of files", function()
  it("names an option that it cannot take", function()
    folder.with(function(path)
      for kind, good in pairs(write_files(path)) do
        assert.is_nil(refusal(kind, good), kind)
        local lists = { CASES[kind], kind ~= "raw" and PARTS or {},
          kind:find("image_") and IMAGES or {} }
        for _, list in ipairs(lists) do
          for _, case in ipairs(list) do
            local key, value, want = unpack(case)
            if kind == "image_det_record" and value == "(3,8)" then
              want = "bad 'data_shape': expected 1, 3 or 4 channels, height, width"
            end
            assert.equal(want, refusal(kind, merged(good, { [key] = value })),
              ("%s: %s = %s"):format(kind, key, value))
          end
        end
      end
    end)
  end)

  it("is one of those that there are", function()
    assert.equal("there is no iterator called 'cvs'", refusal("cvs", {}))
    assert.equal("'data_shape' is 'missing', not a shape", refusal("csv", {}))
  end)

  it("takes no sample so large that a batch of it has more bytes than can be counted", function()
    folder.with(function(path)
      folder.write(path .. "/bytes", ("x"):rep(1000))
      local most = "(2147483647,2147483647,2147483647)"
      for _, case in ipairs{ { most, "float32", "1" }, { "(4,2147483647)", "uint8", "2147483647" },
        { most, "uint8", "2147483647" } } do
        assert.equal(("a batch of %s samples is too large"):format(case[3]), refusal("raw", {
          path = path .. "/bytes", shape = case[1], dtype = case[2], batch_size = case[3],
          prefetch_buffer = "1" }))
      end
    end)
  end)

  it("reads a truth as Lua and the old files write it", function()
    folder.with(function(path)
      local good = write_files(path)
      for _, value in ipairs{ "True", "true", "1", "False", "false", "0" } do
        assert.is_nil(refusal("mnist", merged(good.mnist, { flat = value })), value)
      end
    end)
  end)
end)
