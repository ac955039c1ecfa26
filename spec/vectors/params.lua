-- files/params: array files of all versions and element types; damaged ones must be refused,
-- quickly, with the engine usable afterwards.

local arrays = require "spec.support.arrays"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local FOLDER = "files/params/"
local LIMIT = 2                                          -- seconds for a refusal

local function check_array(name, got, want)
  assert.is_truthy(got, name .. ": not there")
  assert.equal(want.dtype, got.dtype, name .. ": dtype")
  assert.equal(arrays.shape_text(want.shape), arrays.shape_text(got.shape), name .. ": shape")
  assert.equal(want.sha256, arrays.sha256(arrays.bytes(got)), name .. ": bytes")
end

-- Returns whether an array has no elements, or is null: such arrays are left out, by name, since
-- the engine has none.
local function is_empty(x)
  for _, d in ipairs(x.shape or {}) do
    if d == 0 then return true end
  end
  return x.null
end

-- Returns the expected arrays by name; of two with one name the later one counts.
local function expected(file)
  local want = {}
  for i, x in ipairs(file.arrays or {}) do
    want[x.name or i] = x
  end
  return want
end

local function check_refused(path, pieces)
  local start = os.clock()
  local ok, e = pcall(ty.nd.load, path)
  assert.is_false(ok, "must be refused")
  assert.is_true(ty.is_error(e), "not an error object: " .. tostring(e))
  assert.is_true(os.clock() - start < LIMIT, "the refusal took too long")
  for _, piece in ipairs(pieces or {}) do
    assert.is_truthy(tostring(e):find(piece, 1, true),
      ("the error does not say '%s': %s"):format(piece, tostring(e)))
  end
  assert.same({ 2 }, ty.nd.array{ 2 }:totable(), "the engine must stay usable")
end

local function check_file(file)
  local path = vectors.root .. "/" .. FOLDER .. file.file
  if file.refuse then
    check_refused(path)
    return
  end
  local ok, loaded = pcall(ty.nd.load, path)
  if not ok and file.sparse then
    assert.is_true(ty.is_error(loaded), tostring(loaded))
    assert.is_truthy(tostring(loaded):find("sparse") or tostring(loaded):find("csr"),
      tostring(loaded))
    return
  end
  assert.is_true(ok, tostring(loaded))
  local want, n = expected(file), 0
  for key, x in pairs(want) do
    if not is_empty(x) then
      check_array(tostring(key), loaded[key], x)
    end
  end
  for key in pairs(loaded) do
    assert.is_truthy(want[key], "not recorded: " .. tostring(key))
    n = n + 1
  end
  assert.is_true(n <= #(file.arrays or {}))
end

local function check_checkpoint(file)
  local loaded = ty.nd.load(vectors.root .. "/" .. FOLDER .. file.file)
  for kind, list in pairs{ arg = file.arguments, aux = file.auxiliary } do
    for _, name in ipairs(list) do
      assert.is_truthy(loaded[kind .. ":" .. name], kind .. ":" .. name .. ": not there")
    end
  end
end

local function check_damaged(file)
  local path = vectors.root .. "/" .. FOLDER .. "corrupt/" .. file.file
  if file.must == "refuse" then
    check_refused(path)
    return
  end
  local ok, e = pcall(ty.nd.load, path)
  assert.is_true(ok or ty.is_error(e), tostring(e))
end

return {
  needs = { "tycho.ndarray" },
  define = function()
    if not vectors.wanted("params") then
      return
    end
    for _, file in ipairs(vectors.json(FOLDER .. "params.json").files) do
      it(file.file .. " " .. (file.note or ""), function()
        check_file(file)
        if file.arguments then
          check_checkpoint(file)
        end
      end)
    end
    for _, file in ipairs(vectors.json(FOLDER .. "corrupt/corrupt.json").files) do
      it("damaged " .. file.file .. " " .. file.why, function() check_damaged(file) end)
    end
  end,
}
