-- What functions of tycho.h say of arguments that a program in C may get wrong: one that is missing
-- among others that are there, numbers out of their range, devices and arrays that do not fit.

local ffi = require "ffi"
local folder = require "spec.support.folder"
local native = require "tycho.core.ffi"

local C = native.C

local function desc(dtype, device, ...)
  local d = ffi.new("ty_desc", { dtype = dtype, device = device, ndim = select("#", ...) })
  for i = 1, math.min(d.ndim, C.TY_MAXDIM) do
    d.dim[i - 1] = (select(i, ...))
  end
  return d
end

local function made(d)
  local out = ffi.new("ty_tensor *[1]")
  native.check(C.ty_tensor_new(d, out), "new")
  return ffi.gc(out[0], C.ty_tensor_free)
end

-- Checks cases: a function's name after `ty_`, its arguments, the text of its failure.
local function check(cases)
  for i, case in ipairs(cases) do
    local code = C["ty_" .. case[1]](unpack(case, 2, #case - 1))
    local what = ("%d: ty_%s"):format(i, case[1])
    assert.is_true(code > 0, what)
    assert.equal(case[#case], ffi.string(C.ty_error()), what)
  end
end

local none = ffi.cast("void *", 0)
local tensor = ffi.new("ty_tensor *[1]")
local int, long, real = ffi.new("int[1]"), ffi.new("int64_t[2]"), ffi.new("double[1]")
local bytes, text = ffi.new("char[64]"), ffi.new("const char *[1]")
local size = ffi.new("size_t[1]")

describe("the C interface refuses", function()
  local vector = desc(C.TY_F32, C.TY_CPU, 6)
  local x

  before_each(function() x = made(vector) end)

  it("descriptors of no array", function()
    local shape = "a tensor cannot have shape %s: every dimension must be known and positive"
    local large = 2 ^ 31
    local huge = "a tensor of shape (2147483648, 2147483648, 2147483648) is too large"
    check{
      { "tensor_new", desc(9, C.TY_CPU, 2), tensor, "a tensor cannot have dtype 9" },
      { "tensor_new", desc(C.TY_NODTYPE, C.TY_CPU, 2), tensor, "a tensor cannot have dtype -1" },
      { "tensor_new", desc(C.TY_F32, C.TY_CPU), tensor, shape:format("(?)") },
      { "tensor_new", desc(C.TY_F32, C.TY_CPU, 2, 0), tensor, shape:format("(2, ?)") },
      { "tensor_new", desc(C.TY_F32, C.TY_CPU, unpack({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1 }, 1, 17)), tensor, "a tensor has at most 16 dimensions, not 17" },
      { "tensor_new", desc(C.TY_F32, C.TY_CPU, large, large, large), tensor, huge },
      { "tensor_blank", desc(C.TY_F64, C.TY_CPU, large, large, large), tensor, int, huge },
      { "tensor_wrap", desc(C.TY_U8, C.TY_CPU, large, large, large), bytes, tensor, huge },
      { "tensor_view", x, desc(C.TY_U8, C.TY_CPU, large, large, large), 0, tensor, huge },
    }
  end)

  it("devices that there cannot be", function()
    local function unknown(device)
      return ("there is no device number %d"):format(device)
    end
    for _, device in ipairs{ -2, 64, 255, 600, 768, 2 ^ 31 - 1 } do
      check{
        { "tensor_new", desc(C.TY_F32, device, 2), tensor, unknown(device) },
        { "tensor_blank", desc(C.TY_F32, device, 2), tensor, int, unknown(device) },
        { "tensor_wrap", desc(C.TY_F32, device, 2), bytes, tensor, unknown(device) },
        { "rng", device, 0, ffi.cast("uint64_t *", long), ffi.cast("uint64_t *", long),
          unknown(device) },
        { "rng_unit", device, real, unknown(device) },
        { "seed", device, 1, unknown(device) },
        { "wait", device, unknown(device) },
        { "device_memory", device, long, long, long, unknown(device) },
        { "device_work", device, long, long, unknown(device) },
      }
    end
    assert.equal(0, C.ty_devices(-1))
    assert.equal(0, C.ty_devices(C.TY_PINNED + 256))
  end)

  it("texts that name no device", function()
    local form = "bad device '%s': expected for instance cpu(0)"
    for name, want in pairs{ ["xpu(0)"] = "bad device 'xpu(0)': expected cpu(i), gpu(i) or \z
      cpu_pinned(i)", ["cpu("] = form, ["cpu()"] = form, ["cpu(0"] = form, ["cpu(x)"] = form,
      ["cpu0"] = form, ["gpu(0))"] = form, ["cpu_pinned(0) "] = form, ["cpu(-1)"] =
      "bad device 'cpu(-1)': ids are 0 to 63", ["cpu(64)"] =
      "bad device 'cpu(64)': ids are 0 to 63" } do
      local attrs = native.attrs({ "ctx", "shape" }, { ctx = name, shape = "(2,)" })
      check{ { "call", "_zeros", attrs, 2, none, 0, tensor, 1, want:format(name) } }
    end
    for name, number in pairs{ cpu = 0, ["cpu(3)"] = 3, ["cpu_pinned(1)"] = C.TY_PINNED + 1 } do
      local attrs = native.attrs({ "ctx", "shape" }, { ctx = name, shape = "(2,)" })
      tensor[0] = nil
      assert.equal(0, C.ty_call("_zeros", attrs, 2, nil, 0, tensor, 1))
      local d = ffi.new("ty_desc")
      assert.equal(0, C.ty_tensor_desc(tensor[0], d))
      assert.equal(number, d.device)
      C.ty_tensor_free(tensor[0])
      tensor[0] = nil
    end
  end)

  it("a missing argument beside others", function()
    local u64 = ffi.cast("uint64_t *", long)
    check{
      { "tensor_new", vector, none,
        "ty_tensor_new: the descriptor or the result's place is missing" },
      { "tensor_blank", vector, none, int,
        "ty_tensor_blank: the descriptor or a result's place is missing" },
      { "tensor_blank", vector, tensor, none,
        "ty_tensor_blank: the descriptor or a result's place is missing" },
      { "tensor_wrap", vector, none, tensor,
        "ty_tensor_wrap: the descriptor, the data or the result's place is missing" },
      { "tensor_wrap", vector, bytes, none,
        "ty_tensor_wrap: the descriptor, the data or the result's place is missing" },
      { "tensor_view", x, none, 0, tensor,
        "ty_tensor_view: the tensor, the descriptor or the result's place is missing" },
      { "tensor_view", x, vector, 0, none,
        "ty_tensor_view: the tensor, the descriptor or the result's place is missing" },
      { "tensor_desc", x, none, "ty_tensor_desc: the tensor or the result's place is missing" },
      { "tensor_data", x, none, "ty_tensor_data: the tensor or the result's place is missing" },
      { "tensor_write", x, none, 24, "ty_tensor_write: the tensor or the source is missing" },
      { "tensor_read", x, none, 24, "ty_tensor_read: the tensor or the destination is missing" },
      { "tensor_copy", x, none, "ty_tensor_copy: a tensor is missing" },
      { "rng", 0, 0, none, u64, "ty_rng: seed or counter is missing" },
      { "rng", 0, 0, u64, none, "ty_rng: seed or counter is missing" },
      { "rng_unit", 0, none, "ty_rng_unit: out is missing" },
      { "device_work", 0, none, long, "ty_device_work: a result is missing" },
      { "device_work", 0, long, none, "ty_device_work: a result is missing" },
      { "device_memory", 0, none, long, long, "ty_device_memory: a result is missing" },
      { "device_memory", 0, long, none, long, "ty_device_memory: a result is missing" },
      { "device_memory", 0, long, long, none, "ty_device_memory: a result is missing" },
      { "image_decode", none, 1, -1, 0, tensor,
        "ty_image_decode: the bytes or the result's place are missing" },
      { "image_decode", bytes, 1, -1, 0, none,
        "ty_image_decode: the bytes or the result's place are missing" },
      { "image_encode", x, none, 0, tensor, "image_encode: null argument" },
      { "image_encode", x, "png", 0, none, "image_encode: null argument" },
      { "iter_new", "csv", none, 0, none, "iter_new: null argument" },
      { "record_open", "x", none, none, "record_open: null argument" },
      { "record_open", "x", "r", none, "record_open: null argument" },
      { "file_write", none, none, none, 0, "ty_file_write: the path or the bytes are missing" },
      { "file_write", "x", none, none, 1, "ty_file_write: the path or the bytes are missing" },
      { "params_load", "x", none, int,
        "ty_params_load: the path or the result's place is missing" },
      { "params_parse", none, 1, none, int,
        "ty_params_parse: the bytes or the result's place is missing" },
      { "params_parse", bytes, 1, none, int,
        "ty_params_parse: the bytes or the result's place is missing" },
      { "params_save", "x", none, 0, "ty_params_save: the path or the arrays are missing" },
      { "profile_add", C.TY_PROFILE_SPAN, none, "x", 0, 0, "profile: bad event" },
      { "profile_add", C.TY_PROFILE_SPAN, "x", none, 0, 0, "profile: bad event" },
      { "comm_open", "threads", 2, none,
        "ty_comm_open: the kind or out is missing" },
    }
    assert.equal(0, C.ty_tensor_same(x, nil))
    assert.equal(1, C.ty_tensor_same(x, x))
    assert.equal(-1, C.ty_live(nil))
    assert.equal(-1, C.ty_live("pigeon"))
  end)

  it("what a profiler does not know", function()
    local bits = "profile: %d; expected bits of TY_PROFILE_ALL, or -1 to ask"
    local last = 0
    while C.ty_profile_sums(last, ffi.new("ty_profile_sum")) == 0 do
      last = last + 1
    end
    check{
      { "profile", -2, int, bits:format(-2) },
      { "profile", 16, int, bits:format(16) },
      { "profile_file", none, 0, "profile: no file name" },
      { "profile_file", "", 0, "profile: no file name" },
      { "profile_file", "x", -1, "profile: no file name" },
      { "profile_add", -1, "x", "y", 0, 0, "profile: bad event" },
      { "profile_add", 4, "x", "y", 0, 0, "profile: bad event" },
      { "profile_sums", -1, ffi.new("ty_profile_sum"), "profile: label -1 of " .. last },
      { "profile_sums", last, ffi.new("ty_profile_sum"), ("profile: label %d of %d"):format(last,
        last) },
    }
    assert.equal(0, C.ty_profile(-1, nil))
  end)

  it("places and sizes that do not fit an array", function()
    local outside = "a view of %d bytes at byte %d does not fit into a tensor of 24 bytes"
    local other = desc(C.TY_F32, C.TY_CPU, 2, 3)
    check{
      { "tensor_view", x, vector, -4, tensor, outside:format(24, -4) },
      { "tensor_view", x, vector, 4, tensor, outside:format(24, 4) },
      { "tensor_view", x, vector, 28, tensor, outside:format(24, 28) },
      { "tensor_view", x, desc(C.TY_F32, C.TY_CPU, 2), 2, tensor,
        "a view at byte 2 is not aligned to an element of float32" },
      { "tensor_wrap", vector, bytes + 1, tensor,
        "wrapped memory must be aligned to an element of float32" },
      { "tensor_wrap", desc(C.TY_F32, C.TY_GPU + 1, 2), bytes, tensor,
        "memory can be wrapped on a CPU only, not on gpu(1)" },
      { "tensor_write", x, bytes, 20,
        "write of 20 bytes: a float32 tensor of shape (6,) has 24" },
      { "tensor_read", made(other), bytes, 28,
        "read of 28 bytes: a float32 tensor of shape (2, 3) has 24" },
      { "tensor_copy", x, made(other), "copy into shape (6,) from shape (2, 3)" },
    }
  end)

  it("images that cannot be written", function()
    local function image(dtype, ...)
      return made(desc(dtype, C.TY_CPU, ...))
    end
    local channels = "an image is (height, width, 1, 3 or 4 channels), not "
    local grey, clear = image(C.TY_U8, 2, 2), image(C.TY_U8, 2, 2, 4)
    check{
      { "image_decode", none, 0, -1, 0, tensor, "the image file is empty" },
      { "image_encode", grey, "gif", 0, tensor, "the format is 'gif', neither 'jpeg' nor 'png'" },
      { "image_encode", x, "png", 0, tensor, "an image is made of uint8, not float32" },
      { "image_encode", image(C.TY_U8, 2), "png", 0, tensor, channels .. "(2,)" },
      { "image_encode", image(C.TY_U8, 2, 2, 2), "png", 0, tensor, channels .. "(2, 2, 2)" },
      { "image_encode", image(C.TY_U8, 1, 2, 2, 3), "png", 0, tensor, channels .. "(1, 2, 2, 3)" },
      { "image_encode", clear, "jpeg", 9, tensor,
        "JPEG has no transparency: 1 or 3 channels, not 4" },
      { "image_encode", image(C.TY_U8, 65501, 1), "jpeg", 9, tensor,
        "JPEG has at most 65500 pixels per side" },
      { "image_encode", image(C.TY_U8, 1, 65501), "jpeg", 9, tensor,
        "JPEG has at most 65500 pixels per side" },
      { "image_encode", grey, "jpeg", -1, tensor, "the quality is -1, expected 0 to 100" },
      { "image_encode", grey, "jpeg", 101, tensor, "the quality is 101, expected 0 to 100" },
      { "image_encode", grey, "png", 10, tensor, "the quality is 10, expected 0 to 9" },
    }
    for _, format in ipairs{ "png", "jpeg" } do
      assert.equal(0, C.ty_image_encode(grey, format, 9, tensor))
      C.ty_tensor_free(tensor[0])
    end
  end)

  it("arrays that a bag does not hold", function()
    local bag = ffi.new("ty_bag *[1]")
    assert.equal(0, C.ty_bag_new(bag))
    check{
      { "bag_get", bag[0], "x", tensor, "there is no array named 'x'" },
      { "bag_at", bag[0], 0, text, tensor, "array 0 of a bag of 0" },
    }
    assert.equal(0, C.ty_bag_put(bag[0], "x", x))
    check{
      { "bag_put", bag[0], none, x, "ty_bag_put: the bag, the name or the tensor is missing" },
      { "bag_put", bag[0], "x", none, "ty_bag_put: the bag, the name or the tensor is missing" },
      { "bag_get", bag[0], none, tensor,
        "ty_bag_get: the bag, the name or the result's place is missing" },
      { "bag_get", bag[0], "x", none,
        "ty_bag_get: the bag, the name or the result's place is missing" },
      { "bag_get", bag[0], "y", tensor, "there is no array named 'y'" },
      { "bag_at", bag[0], -1, text, tensor, "array -1 of a bag of 1" },
      { "bag_at", bag[0], 1, text, tensor, "array 1 of a bag of 1" },
      { "params_load", "/dev/null", bag, int,
        "cannot read '/dev/null': it is not a regular file" },
    }
    C.ty_bag_free(bag[0])
  end)

  it("to use a file of records against its mode", function()
    folder.with(function(path)
      local record, data = ffi.new("ty_record *[1]"), ffi.new("const char *[1]")
      path = path .. "/x"
      check{ { "record_open", path, "a", record, "the mode is 'a', neither 'r' nor 'w'" },
        { "record_open", path, "r", record,
          ("cannot open '%s': No such file or directory"):format(path) } }
      assert.equal(0, C.ty_record_open(path, "w", record))
      local writing = ("'%s' is open for writing"):format(path)
      check{
        { "record_read", record[0], data, size, writing },
        { "record_read", record[0], none, size, "record_read: null argument" },
        { "record_read", record[0], data, none, "record_read: null argument" },
        { "record_seek", record[0], 0, writing },
        { "record_tell", record[0], none, "record_tell: null argument" },
        { "record_write", record[0], none, 1, "record_write: null argument" },
        { "record_write", record[0], bytes, 2 ^ 29,
          "a record has 536870912 bytes, 536870911 at most" },
      }
      assert.equal(0, C.ty_record_write(record[0], nil, 0))
      assert.equal(0, C.ty_record_close(record[0]))
      assert.equal(0, C.ty_record_open(path, "r", record))
      check{
        { "record_write", record[0], bytes, 1, ("'%s' is open for reading"):format(path) },
        { "record_seek", record[0], -1, "the offset is -1" },
      }
      assert.equal(0, C.ty_record_read(record[0], data, size))
      assert.equal(0, tonumber(size[0]))
      assert.is_true(data[0] ~= nil)
      assert.equal(0, C.ty_record_close(record[0]))
    end)
  end)

  it("a batch before there is one, and a third array of it", function()
    folder.with(function(path)
      folder.write(path .. "/rows", "1\n")
      local it = ffi.new("ty_iter *[1]")
      local options = { data_csv = path .. "/rows", data_shape = "(1,)" }
      assert.equal(0, C.ty_iter_new("csv", native.attrs({ "data_csv", "data_shape" }, options), 2,
        it))
      local third = "an iterator has array 0 (data) and 1 (label), not %d"
      check{
        { "iter_data", it[0], 0, tensor, "there is no batch; call next first" },
        { "iter_data", it[0], -1, tensor, third:format(-1) },
        { "iter_data", it[0], 2, tensor, third:format(2) },
        { "iter_data", it[0], 0, none, "iter_data: null argument" },
        { "iter_next", it[0], 0, none, "iter_next: null argument" },
        { "iter_pad", it[0], none, "iter_pad: null argument" },
      }
      assert.equal(0, C.ty_iter_next(it[0], -1, int))
      assert.equal(1, int[0])
      C.ty_iter_free(it[0])
    end)
  end)

  it("deflated bytes that are cut off, damaged, or of another length", function()
    local stored = "\1\4\0\251\255abcd"                    -- one block, stored as it is
    local out = ffi.new("char[8]")
    local damaged, other = "the compressed bytes are damaged",
      "the compressed bytes have another length"
    assert.equal(0, C.ty_inflate(stored, #stored, out, 4))
    assert.equal("abcd", ffi.string(out, 4))
    check{
      { "inflate", stored, #stored - 1, out, 4, damaged },
      { "inflate", stored, 0, out, 4, damaged },
      { "inflate", "\7", 1, out, 4, damaged },
      { "inflate", stored, #stored, out, 3, damaged },
      { "inflate", stored, #stored, out, 0, damaged },
      { "inflate", stored, #stored, out, 5, other },
      { "inflate", stored .. "x", #stored + 1, out, 4, other },
    }
  end)
end)
