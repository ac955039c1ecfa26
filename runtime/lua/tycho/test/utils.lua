--- Helpers for tests of operators and graphs: comparison with tolerances by element type, numeric
-- gradients, comparison of symbols with expected values, consistency across devices.
--
--     ty.test_utils.assert_almost_equal(x, {1, 2})
--     ty.test_utils.check_numeric_gradient{ty.sym.tanh(ty.sym.Variable("x")), {x = {0.3, -0.2}}}
--     ty.test_utils.check_gradient{function(x) return x:tanh() end, ty.nd.array{0.3, -0.2}}
--
-- Values are arrays or nested tables; tables count as float32. A failed comparison raises an error
-- string with the worst element's position (from 0) and both values. Random inputs come from
-- `math.random`, so `math.randomseed` makes them repeatable.
--
-- @module tycho.test_utils

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local attempt = require "tycho.core.attempt"
local defaults = require "tycho.test.defaults"
local Error = require "tycho.core.error"
local iterators = require "tycho.io.iterators"
local namespace = require "tycho.core.namespace"
local random = require "tycho.test.random"

local utils = {}

for _, part in ipairs{ defaults, require "tycho.test.compare", require "tycho.test.gradient",
    require "tycho.test.check", require "tycho.test.consistency",
    require "tycho.test.recorded" } do
  for name, value in pairs(part) do
    utils[name] = value
  end
end


-- Random things -----------------------------------------------------------------------------------

utils.rand_shape_2d, utils.rand_shape_3d, utils.rand_shape_nd =
  random.rand_shape_2d, random.rand_shape_3d, random.rand_shape_nd


local RAND = args.form("test_utils.rand_ndarray", {
  list = true, { "shape", "shape" }, "*", { "dtype", "dtype", "float32" }, { "ctx", "context?" },
  { "stype", "stype", "default" },
})

--- Returns an array of uniform random numbers from -1 to 1.
function utils.rand_ndarray(...)
  local a = RAND(...)
  return random.array(a.shape, random.uniform(-1, 1), a.dtype, a.ctx or defaults.default_context())
end


-- Others ------------------------------------------------------------------------------------------

--- Calls f(...) and raises an error unless the call raises an error object with the given code.
function utils.assert_exception(f, code, ...)
  local ok, e = pcall(f, ...)
  if ok then
    error(("no error was raised, expected one of code '%s'"):format(code), 2)
  elseif not Error.is_error(e) or e.code ~= code then
    error(("expected an error of code '%s', got: %s"):format(code, tostring(e)), 2)
  end
end


--- Returns a decorator: `retry(n)(f)` is a function that calls f up to n times until a call
-- succeeds.
function utils.retry(n)
  if type(n) ~= "number" or n < 1 then
    Error.raise{ code = "value", func = "test_utils.retry", argument = "n", expected = "at least 1",
      got = Error.kind(n),
      message = "bad 'n'" }
  end
  return function(f)
    return function(...)
      for _ = 1, n - 1 do
        local results = { attempt(f, ...) }
        if results[1] then
          return unpack(results, 2)
        end
      end
      return f(...)
    end
  end
end


local MNIST = args.form("test_utils.get_mnist_iterator", {
  { "batch_size", "integer" }, { "input_shape", "shape" }, { "num_parts", "integer", 1 },
  { "part_index", "integer", 0 },
  { "path", "path", "data" },
})

--- Returns iterators over the MNIST files of a folder.
-- @tparam table options batch_size, input_shape (a single size: flat images), num_parts, part_index
--   (from 0), path = "data"
-- @return training iterator (shuffled)
-- @return validation iterator
function utils.get_mnist_iterator(...)
  local a = MNIST(...)
  local function iterator(kind, shuffle)
    return iterators.MNISTIter{
      image = a.path .. "/" .. kind .. "-images-idx3-ubyte",
      label = a.path .. "/" .. kind .. "-labels-idx1-ubyte", input_shape = a.input_shape,
      batch_size = a.batch_size, shuffle = shuffle, flat = #a.input_shape == 1,
      num_parts = a.num_parts, part_index = a.part_index,
    }
  end
  return iterator("train", true), iterator("t10k", false)
end


return namespace.close(utils, "test_utils", "function")
