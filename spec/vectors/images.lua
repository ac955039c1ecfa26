-- files/decode and files/images: pixels of image files in many encodings, damaged
-- files, batches of ImageRecordIter.

local arrays = require "spec.support.arrays"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local DECODE, IMAGES = "files/decode/", "files/images/"
local LIMIT = 2                                          -- seconds for a refusal

local function compute_mean(x)
  local p, n = arrays.numbers(x)
  local sum = 0
  for i = 0, n - 1 do
    sum = sum + p[i]
  end
  return sum / n
end

local function check_pixels(file, decoded)
  local x = ty.image.imread(vectors.root .. "/" .. DECODE .. file.file,
    { flag = file.as == "gray" and 0 or 1 })
  assert.equal(arrays.shape_text(file.shape), arrays.shape_text(x.shape))
  vectors.compare(file.file, x, decoded[file.file .. "/" .. file.as], 0, file.atol)
  local mean = compute_mean(x)
  assert.is_true(math.abs(mean - file.mean) <= file.mean_atol + 1e-5, "mean: " .. mean)
end

local function check_damaged(file)
  local start = os.clock()
  local ok, e = pcall(ty.image.imread, vectors.root .. "/" .. DECODE .. "corrupt/" .. file.file)
  assert.is_true(os.clock() - start < LIMIT, "it took too long")
  assert.is_true(not ok or file.must == "either", "must be refused")
  assert.is_true(ok or ty.is_error(e), "not an error object: " .. tostring(e))
  assert.same({ 2 }, ty.nd.array{ 2 }:totable(), "the engine must stay usable")
end

local function make_options(case)
  local options = { verbose = false }
  for key, v in pairs(case.parameters) do
    options[key] = key:find("^path_") and vectors.root .. "/" .. IMAGES .. v or v
  end
  return options
end

local function list_numbers(x, rows, all)
  local p, n = arrays.numbers(x)
  local list = {}
  for i = 0, n * rows / all - 1 do
    list[i + 1] = p[i]
  end
  return list
end

local function check_batch(case, i, want, batch, recorded)
  local name = ("%s, batch %d"):format(case.name, i - 1)
  local size = case.parameters.batch_size
  local rows = want.valid or size
  assert.is_truthy(batch, name .. " is missing")
  assert.equal(want.pad, batch.pad, name .. ": pad")
  assert.same(want.label, list_numbers(batch.label[1], rows, size), name .. ": labels")
  local data, sum = list_numbers(batch.data[1], rows, size), 0
  for _, v in ipairs(data) do
    sum = sum + v
  end
  assert.is_true(math.abs(sum - want.sum) <= (case.atol + 1e-4) * #data,
    ("%s: sum %g, not %g"):format(name, sum, want.sum))
  for k, v in ipairs(want.first) do
    assert.is_true(math.abs(data[k] - v) <= case.atol + 1e-6,
      ("%s: element %d is %g, not %g"):format(name, k - 1, data[k], v))
  end
  local whole = recorded[("%s/data/%d"):format(case.name, i - 1)]
  if whole and rows == size then
    vectors.compare(name, batch.data[1], whole, 0, case.atol)
  end
end

local function check_batches(case, recorded)
  local it = ty.io.ImageRecordIter(make_options(case))
  assert.equal(arrays.shape_text(case.provide_data[1][2]),
    arrays.shape_text(it.provide_data[1].shape))
  assert.equal(arrays.shape_text(case.provide_label[1][2]),
    arrays.shape_text(it.provide_label[1].shape))
  local epoch = 0
  for i, want in ipairs(case.batches) do
    if want.epoch > epoch then
      assert.is_nil(it:next(), case.name .. ": a batch too many")
      it:reset()
      epoch = want.epoch
    end
    check_batch(case, i, want, it:next(), recorded)
  end
  assert.is_nil(it:next(), case.name .. ": a batch too many")
  it:free()
end

-- Checks that ImageIter reads the same records: labels, and pixels of files that are exact.
local function check_records(name, file)
  local path = vectors.root .. "/" .. IMAGES .. name
  local r = ty.recordio.MXIndexedRecordIO(path .. ".idx", path .. ".rec", "r")
  assert.equal(file.records, #r.keys)
  for i, want in ipairs(file.decoded) do
    local header, x = ty.recordio.unpack_img(r:read_idx(r.keys[i]), want.shape[3] == 3 and 1 or 0)
    assert.equal(i - 1, header.id)
    assert.equal(arrays.shape_text(want.shape), arrays.shape_text(x.shape))
    if file.format == "png" then
      assert.equal(want.sha256, arrays.sha256(arrays.bytes(x)), name .. ", record " .. i - 1)
    else
      assert.is_true(math.abs(compute_mean(x) - want.mean) < 0.6, name .. ", record " .. i - 1)
    end
  end
  r:close()
end

return {
  needs = { "tycho.image", "tycho.io" },
  define = function()
    local decoded, batches
    for _, file in ipairs(vectors.json(DECODE .. "decode.json").files) do
      it(("decode %s as %s"):format(file.file, file.as), function()
        decoded = decoded or vectors.arrays(DECODE .. "decode.params")
        check_pixels(file, decoded)
      end)
    end
    for _, file in ipairs(vectors.json(DECODE .. "corrupt/corrupt.json").files) do
      it(("damaged: %s, %s"):format(file.file, file.why), function() check_damaged(file) end)
    end
    local images = vectors.json(IMAGES .. "images.json")
    for name, file in pairs(images.files) do
      it("records of " .. name, function() check_records(name, file) end)
    end
    for _, case in ipairs(images.cases) do
      it("ImageRecordIter " .. case.name, function()
        batches = batches or vectors.arrays(IMAGES .. "batches.params")
        check_batches(case, batches)
      end)
    end
    teardown(function() decoded, batches = nil, nil end)
  end,
}
