--- Functions for training loops: `ty.gluon.utils`.
--
-- @module tycho.gluon.utils

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local Error = require "tycho.core.error"
local files = require "tycho.core.files"
local log = require "tycho.core.log"
local modes = require "tycho.autograd.modes"
require "tycho.gluon.devices"
local namespace = require "tycho.core.namespace"
local nd = require "tycho.ndarray"
local ParameterDict = require "tycho.gluon.parameter_dict"
local recording = require "tycho.ndarray.recording"

local utils = {}


-- Splitting ---------------------------------------------------------------------------------------

-- Returns n slices of an array. even: whether a size that n does not divide is E(value).
local function split_array(x, n, axis, even, func)
  local ndim = #x._shape
  axis = axis < 0 and axis + ndim or axis
  if axis < 0 or axis >= ndim then
    Error.raise{ code = "value", func = func, argument = "batch_axis",
      expected = ("0 to %d"):format(ndim - 1), got = axis, message = "bad 'batch_axis'" }
  end
  local size = x._shape[axis + 1]
  if size < n then
    Error.raise{ code = "value", func = func, argument = "num_slice", expected = "at most " .. size,
      got = n, message = ("%d rows cannot make %d slices"):format(size, n) }
  elseif even and size % n ~= 0 then
    Error.raise{ code = "value", func = func, argument = "num_slice", got = n,
      expected = "a divisor of " .. size, message = ("%d rows cannot be split evenly in %d; \z
        even_split = false gives the first slices a row more"):format(size, n) }
  end
  local list, first = {}, 0
  for i = 1, n do
    local rows = math.floor(size / n) + (i <= size % n and 1 or 0)
    list[i] = n == 1 and x or x:slice_axis{ axis = axis, begin = first, end_ = first + rows }
    first = first + rows
  end
  return list
end


local SPLIT = args.form("utils.split_data", { { "data", "array" }, { "num_slice", "positive" },
  { "batch_axis", "integer", 0 }, { "even_split", "boolean", true } })

--- Returns slices of an array along an axis. A size below num_slice is E(`value`).
-- @tparam NDArray data
-- @int num_slice number of slices, at least 1
-- @tparam[opt] table options batch_axis = 0 (from 0; negative from the end), even_split = true: a
--   size that num_slice does not divide is E(`value`); false: the first slices are one row longer
-- @treturn {NDArray,...} num_slice slices
function utils.split_data(...)
  local a = SPLIT(...)
  return split_array(a.data, a.num_slice, a.batch_axis, a.even_split, "utils.split_data")
end


local LOAD = args.form("utils.split_and_load", { { "data", "any" }, { "ctx_list", "contexts" },
  { "batch_axis", "integer", 0 }, { "even_split", "boolean", true } })

--- Returns slices of an array along an axis, one on each device.
-- @param data an NDArray, or a nested table of numbers (float32)
-- @tparam {Context,...} ctx_list devices
-- @tparam[opt] table options batch_axis = 0, even_split = true, as for `split_data`
-- @treturn {NDArray,...} a slice for each device, in their order
function utils.split_and_load(...)
  local a, func = LOAD(...), "utils.split_and_load"
  local x = nd._as_array(a.data, "float32", func)
  local list = split_array(x, #a.ctx_list, a.batch_axis, a.even_split, func)
  for i, c in ipairs(a.ctx_list) do
    list[i] = list[i]:as_in_context(c)
  end
  return list
end


-- Gradients ---------------------------------------------------------------------------------------

local CLIP = args.form("utils.clip_global_norm", { { "arrays", "list" }, { "max_norm", "number" },
  { "check_isfinite", "boolean", true } })

-- Returns the sum of squares of all arrays, on the first one's device.
local function sum_of_squares(arrays)
  local total
  for _, x in ipairs(arrays) do
    local y = x:astype("float32")
    local s = (y * y):sum():as_in_context(arrays[1].context)
    total = total and total + s or s
  end
  return total
end


-- Scales arrays to a norm of at most max_norm; returns the norm before, as an array unless `check`
-- is set.
local function clip_arrays(arrays, max_norm, check)
  local norm = sum_of_squares(arrays):sqrt()
  local factor = nd.minimum(max_norm / (norm + 1e-8), 1)
  local value = check and norm:asscalar() or nil
  if check and value - value ~= 0 then
    log:warning(("utils.clip_global_norm: the norm is %s: the arrays hold NaN or infinity, and \z
      clipping does not help"):format(tostring(value)))
  end
  for _, x in ipairs(arrays) do
    x:mul_(factor:as_in_context(x.context):astype(x.dtype))
  end
  return value or norm
end


--- Scales arrays in place so that their joint norm, the square root of the sum of all squares, is
-- at most max_norm.
-- @tparam {NDArray,...} arrays at least one; they may be on several devices
-- @number max_norm
-- @tparam[opt] table options check_isfinite = true: waits for the norm, and warns if it is NaN or
--   infinite
-- @treturn number the norm before; with check_isfinite = false an NDArray of shape (1), without
--   waiting
function utils.clip_global_norm(...)
  local a = CLIP(...)
  local list = a.arrays
  if #list == 0 then
    Error.raise{ code = "value", func = "utils.clip_global_norm", argument = "arrays",
      expected = "at least one array", got = "none", message = "bad 'arrays'" }
  end
  for _, x in ipairs(list) do
    if not class.is_array(x) then
      Error.raise{ code = "type", func = "utils.clip_global_norm", argument = "arrays",
        expected = "a list of NDArrays", got = Error.kind(x), message = "bad 'arrays'" }
    end
  end
  return modes.run(false, recording.training, clip_arrays, list, a.max_norm, a.check_isfinite)
end


-- Modules -----------------------------------------------------------------------------------------

local SHARE = args.form("utils.share_parameters", { { "params", ParameterDict },
  { "module", "any" }, { "ignore_extra", "boolean", false } })

--- Makes parameters use the arrays of a Module's parameters with the same names, without copies: an
-- update of one is an update of the other. The values are the Module's. Arrays of another shape or
-- dtype are E(`shape`) and E(`dtype`).
-- @tparam ParameterDict params such as `net:collect_params()`
-- @tparam Module module bound, with parameters; else E(`state`)
-- @tparam[opt] table options ignore_extra = false: parameters that the Module lacks are E(`name`);
--   true: they are not changed
function utils.share_parameters(...)
  local a, func = SHARE(...), "utils.share_parameters"
  local module = a.module
  if type(module) ~= "table" or not rawget(module, "_arg_store") then
    Error.raise{ code = "type", func = func, argument = "module", expected = "a Module",
      got = Error.kind(module), message = "bad 'module'" }
  elseif not (module.binded and module.params_initialized) then
    Error.raise{ code = "state", func = func, argument = "module",
      message = "the module has no parameters yet: bind it, and call init_params or set_params" }
  end
  local arrays, chosen = module._arg_store:lend(), {}
  for name, list in pairs(module._aux_store:lend()) do
    arrays[name] = list
  end
  for name, p in a.params:items() do
    if arrays[name] then
      chosen[#chosen + 1] = { p, arrays[name] }
    elseif not a.ignore_extra then
      Error.unknown{ func = func, argument = name, what = "parameter of the module",
        among = arrays }
    end
  end
  for _, entry in ipairs(chosen) do
    entry[1]:_adopt(entry[2], func)
  end
end


-- Files -------------------------------------------------------------------------------------------

local SHA1 = args.form("utils.check_sha1", { { "filename", "path" }, { "sha1_hash", "text" } })

--- Returns whether the SHA-1 hash of a file is the given one. A file that cannot be read is
-- E(`io`).
-- @string filename
-- @string sha1_hash 40 hexadecimal digits
-- @treturn bool
function utils.check_sha1(...)
  local a = SHA1(...)
  return require("tycho.core.sha1")(files.read(a.filename, "utils.check_sha1"))
    == a.sha1_hash:lower()
end


local REPLACE = args.form("utils.replace_file", { { "src", "text" }, { "dst", "text" } })

--- Renames a file; an existing file at the new path is replaced. A failure is E(`io`).
-- @string src path
-- @string dst new path, on the same file system
function utils.replace_file(...)
  local a = REPLACE(...)
  local ok, why = os.rename(a.src, a.dst)
  if not ok then
    Error.raise{ code = "io", func = "utils.replace_file", argument = a.src, message = why }
  end
end


--- Raises E(`unsupported`): Tycho does not access the network.
function utils.download()
  Error.raise{ code = "unsupported", func = "utils.download",
    message = "Tycho does not access the network; fetch the file with curl or wget, and give its \z
      path" }
end


return namespace.close(utils, "utils", "function")
