-- Images for specs: a folder of them, pictures, comparisons.

local nd = require("tycho").nd

local images = {}

local folder

--- Makes the folder; call it in setup().
function images.make_folder()
  folder = os.tmpname()
  os.remove(folder)
  assert(os.execute("mkdir " .. folder) == 0)
end

function images.remove_folder() os.execute("rm -r " .. folder) end

--- Returns the path of a file in the folder; without a name that of the folder.
function images.path(name) return name and folder .. "/" .. name or folder end

function images.write(name, text)
  local file = assert(io.open(images.path(name), "wb"))
  file:write(text)
  file:close()
  return images.path(name)
end

--- Returns a smooth picture with all brightness levels.
function images.picture(h, w, c, seed)
  local rows = {}
  for y = 1, h do
    rows[y] = {}
    for x = 1, w do
      rows[y][x] = {}
      for k = 1, c do
        rows[y][x][k] = math.floor(127.5 + 127 * math.sin((seed or 0) + y / (3 + k) + x * k / 7))
      end
    end
  end
  return nd.array(rows, { dtype = "uint8" })
end

function images.constant(h, w, c, v) return nd.full({ h, w, c }, v, { dtype = "uint8" }) end

--- Returns the largest difference of two images.
function images.largest(x, y)
  return (x:astype("float32") - y:astype("float32")):abs():max():asscalar()
end

function images.same(x, y)
  assert(table.concat(x.shape, " ") == table.concat(y.shape, " "))
  assert(images.largest(x, y) == 0)
end

--- Asserts that an iterator refuses each value of an option, given in addition to the other
-- options, before it looks for a file.
-- @tparam function iterator
-- @tparam table given options that all calls have
-- @tparam table values lists by option
function images.check_ranges(iterator, given, values)
  for name, list in pairs(values) do
    for _, value in ipairs(list) do
      local options = { data_shape = { 3, 8, 8 }, batch_size = 1 }
      for k, v in pairs(given) do
        options[k] = v
      end
      options[name] = value
      local ok, e = pcall(iterator, options)
      assert(not ok and (e.code == "value" or e.code == "shape"), name .. ": " .. tostring(e))
    end
  end
end

return images
