-- files/symbols: graphs of older versions load, are upgraded byte for byte and compute the recorded
-- outputs; damaged ones must be refused.

local arrays = require "spec.support.arrays"
local steps = require "spec.support.steps"
local ty = require "tycho"
local vectors = require "spec.support.vectors"

local FOLDER = "files/symbols/"

local function check_outputs(recorded, file, symbol, values)
  local args, aux = {}, {}
  for _, name in ipairs(symbol:list_arguments()) do
    args[name] = values["arg:" .. name]
  end
  for _, name in ipairs(symbol:list_auxiliary_states()) do
    aux[name] = values["aux:" .. name]
  end
  local exe = symbol:bind{ ctx = ty.cpu(), args = args, aux_states = aux, grad_req = "null" }
  for i, out in ipairs(exe:forward(false)) do
    local want = file.outputs[i]
    assert.equal(arrays.shape_text(want.shape), arrays.shape_text(out.shape))
    local difference = arrays.difference(out:reshape{ -1 }, want.values,
      recorded.atol, recorded.rtol)
    assert.is_nil(difference, ("output %d: %s"):format(i - 1, tostring(difference)))
  end
end

local function check_file(recorded, file, values)
  local symbol = ty.sym.load(vectors.root .. "/" .. FOLDER .. file.file)
  local world = { rtol = 0, atol = 0 }
  for _, what in ipairs{ "list_arguments", "list_auxiliary_states", "list_outputs", "attr_dict" } do
    steps.same(symbol[what](symbol), file[what], world, what)
  end
  assert.equal(vectors.read(FOLDER .. file.upgraded), symbol:tojson())
  check_outputs(recorded, file, symbol, values)
end

local function check_damaged(file)
  local ok, e = pcall(ty.sym.load, vectors.root .. "/" .. FOLDER .. "corrupt/" .. file.file)
  assert.is_false(ok and file.must == "refuse", "must be refused")
  assert.is_true(ok or ty.is_error(e), "not an error object: " .. tostring(e))
end

return {
  needs = { "tycho.symbol" },
  define = function()
    if not vectors.wanted("symbol_files") then
      return
    end
    local recorded, values = vectors.json(FOLDER .. "symbols.json"), nil
    for _, file in ipairs(recorded.files) do
      it(file.file .. " " .. file.note, function()
        local unknown = vectors.unknown_operator(vectors.json(FOLDER .. file.file))
        if unknown then
          pending(("operator %s is not registered"):format(unknown))
        end
        values = values or vectors.arrays(FOLDER .. "values.params")
        check_file(recorded, file, values)
      end)
    end
    for _, file in ipairs(vectors.json(FOLDER .. "corrupt/corrupt.json").files) do
      it("damaged " .. file.file .. " " .. file.why, function() check_damaged(file) end)
    end
  end,
}
