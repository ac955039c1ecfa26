-- Files that are damaged or of another kind: the error names the file and says what is wrong.

local folder = require "spec.support.folder"
local ty = require "tycho"

local read, write = folder.read, folder.write

local function trained(contexts)
  local net = ty.sym.FullyConnected{ data = ty.sym.Variable("data"), num_hidden = 2, name = "fc" }
  local m = ty.mod.Module{ symbol = ty.sym.SoftmaxOutput{ data = net, name = "softmax" },
    context = contexts, logger = { info = function() end, warning = function() end } }
  m:fit{ train_data = ty.io.NDArrayIter{ data = ty.nd.ones{ 4, 3 }, label = ty.nd.zeros(4),
    batch_size = 4 }, num_epoch = 1,
    kvstore = "device", optimizer_params = { learning_rate = 0.1, momentum = 0.9 } }
  return m
end

-- what is read from a file, by its kind: function of a path that writes a
-- good one, function that reads it
local KINDS = {
  ["the state of a training"] = function(m)
    return function(path) m:save_state(path) end, function(path) m:load_state(path) end
  end,
  ["states of an optimizer"] = function(m)
    return function(path)
      m:save_optimizer_states(path)
    end, function(path) m:load_optimizer_states(path) end
  end,
  ["states of a store's optimizer"] = function(_)
    local m = trained{ ty.cpu(0), ty.cpu(1) }
    assert.is_true(m._update_on_kvstore)
    return function(path)
      m:save_optimizer_states(path)
    end, function(path) m:load_optimizer_states(path) end
  end,
  ["parameters"] = function(m)
    return function(path) m:save_params(path) end, function(path) m:load_params(path) end
  end,
  ["a symbol"] = function(m)
    return function(path) m.symbol:save(path) end, ty.sym.load
  end,
  ["an image"] = function()
    return function(path)
      ty.image.imwrite(path .. ".png", ty.nd.ones({ 4, 4, 3 }, { dtype = "uint8" }))
      os.rename(path .. ".png", path)
    end, ty.image.imread
  end,
  ["records of images"] = function()
    return function(path)
      local file = ty.recordio.MXRecordIO(path, "w")
      for i = 1, 2 do
        file:write(ty.recordio.pack_img({ 0, i, i, 0 },
          ty.nd.ones({ 8, 8, 3 }, { dtype = "uint8" })))
      end
      file:close()
    end, function(path)
      for _ in ty.io.ImageRecordIter{ path_imgrec = path,
          data_shape = { 3, 8, 8 }, batch_size = 2 } do end
    end
  end,
}

describe("the error names the file that should be", function()
  for kind, make in pairs(KINDS) do
    it(kind, function()
      folder.with(function(path)
        local save, load = make(trained())
        save(path .. "/good")
        load(path .. "/good")
        write(path .. "/foreign", "a,b\n1,2\n3,4\n5,6\n")
        local bytes = read(path .. "/good")
        write(path .. "/short", bytes:sub(1, #bytes - 9))
        for _, name in ipairs{ "foreign", "short" } do
          local e = assert.raises("format", load, path .. "/" .. name)
          assert.truthy(tostring(e):find(path .. "/" .. name, 1, true), tostring(e))
          assert.are.equal(path .. "/" .. name, e.argument)
        end
        local e = assert.raises("io", load, path .. "/missing")
        assert.truthy(tostring(e):find(path .. "/missing", 1, true), tostring(e))
      end)
    end)
  end
end)

-- A folder can be opened and not be read.
describe("a file that fails while it is read", function()
  local READERS = {
    arrays = ty.nd.load, symbols = ty.sym.load, texts = ty.io.text, images = ty.image.imread,
    states = function(path) trained():load_state(path) end,
    tables = function(path)
      ty.io.CSVIter{ data_csv = path, data_shape = { 2 }, batch_size = 1 }
    end,
    indices = function(path)
      ty.recordio.MXRecordIO(path .. "/a.rec", "w"):close()
      ty.recordio.MXIndexedRecordIO(path, path .. "/a.rec", "r")
    end,
  }
  for name, read_it in pairs(READERS) do
    it("says so: " .. name, function()
      folder.with(function(path)
        local e = assert.raises("io", read_it, path)
        assert.truthy(tostring(e):find(path, 1, true), tostring(e))
      end)
    end)
  end
end)

describe("a file that cannot be written", function()
  it("leaves the old one as it was, and nothing beside it", function()
    folder.with(function(path)
      local m = trained()
      m:save_state(path .. "/state")
      local before = read(path .. "/state")
      assert.raises("io", m.save_state, m, path .. "/none/state")
      assert.raises("io", m.save_state, m, "/dev/full")
      assert.are.equal(before, read(path .. "/state"))
      local names = {}
      for name in require("lfs").dir(path) do
        names[#names + 1] = name
      end
      table.sort(names)
      assert.are.same({ ".", "..", "state" }, names)
    end)
  end)
end)
