--- Files of arrays: `ty.nd.save`, `ty.nd.load`, `ty.nd.load_frombuffer`.
--
-- They are written in the reference's format, unless the name ends in `.npy`, `.npz` (NumPy's) or
-- `.safetensors`; the format of a file that is read follows from its first bytes. A dictionary is
-- written sorted by name, a list of `{name, array}` in its order, a list or one array without names
-- (in `.npz` and `.safetensors` with the names `arr_0`, `arr_1` ...). Writing is atomic and waits
-- for the arrays. Sparse records load as dense arrays, integers of types that arrays do not have as
-- wider ones: int16 and uint16 as int32, uint32 and uint64 as int64. Arrays without elements are
-- skipped in files with names and an error in others.
--
-- @module tycho.ndarray.files

local ffi = require "ffi"
local native = require "tycho.core.ffi"
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local context = require "tycho.core.context"
local counted_from_1 = require "tycho.core.list"
local named_table = require "tycho.core.dict"
local Error = require "tycho.core.error"
local values = require "tycho.core.values"

local C, check, text = native.C, native.check, native.text
local is_array = class.is_array

local io_of = {}


local function fail_member(key, v)
  Error.raise{ code = "type", func = "nd.save", argument = tostring(key), expected = "an NDArray",
    got = Error.kind(v), message = ("member '%s' is no NDArray"):format(tostring(key)) }
end


-- Returns data to save as ordered {name, array} pairs, and whether the names are the user's.
local function members(data)
  if is_array(data) then
    return { { "0", data } }, false
  elseif not values.is_plain(data) then
    Error.raise{ code = "type", func = "nd.save", argument = "data",
      expected = "an NDArray, a list or a dictionary of them",
      got = Error.kind(data), message = "bad 'data'" }
  end
  local list = {}
  if #data > 0 and not values.is_list(data) then
    Error.raise{ code = "type", func = "nd.save", argument = "data",
      expected = "an NDArray, a list or a dictionary of them",
      got = "a list with gaps, or with names beside it", message = "bad 'data'" }
  elseif #data > 0 and not values.is_plain(data[1]) then
    for i, x in ipairs(data) do
      list[i] = { ("%d"):format(i - 1), x }
    end
    return list, false
  end
  local dict, names = args.pairs_of(data)
  if not dict then
    Error.raise{ code = "type", func = "nd.save", argument = "data",
      expected = "pairs {name, NDArray}", got = "another list", message = "bad 'data'" }
  end
  for i, name in ipairs(names) do
    if type(name) ~= "string" then
      Error.raise{ code = "type", func = "nd.save", argument = tostring(name), expected = "names",
        got = Error.kind(name),
        message = "arrays are named by text" }
    end
    list[i] = { name, dict[name] }
  end
  return list, #names > 0
end


--- Returns names and arrays as a native bag.
-- @tparam table list of {name, array}
-- @string func for errors
function io_of.named_arrays(list, func)
  local out = ffi.new("ty_bag *[1]")
  check(C.ty_bag_new(out), func)
  local bag = native.own(out[0], C.ty_bag_free)
  for _, pair in ipairs(list) do
    if not is_array(pair[2]) then
      fail_member(pair[1], pair[2])
    end
    check(C.ty_bag_put(bag, pair[1], pair[2]._h), func)
  end
  return bag
end


-- Loads the module of a format on first use: few programs need one, and the collector visits all
-- loaded code.
local function npy() return require "tycho.ndarray.npy" end
local function safetensors() return require "tycho.ndarray.safetensors" end
local function pytorch() return require "tycho.ndarray.pytorch" end
local function gguf() return require "tycho.ndarray.gguf" end
local function sharded() return require "tycho.ndarray.sharded" end
local function file_arrays() return require "tycho.ndarray.file_arrays" end

local WRITERS = {
  npy = function(...) return npy().save(...) end,
  npz = function(...) return npy().save_npz(...) end,
  safetensors = function(...) return safetensors().save(...) end,
}

-- Writes arrays in another format, whose writer takes arrays on the host, each with a name.
local function write_other(writer, path, list, named)
  local pairs_of = {}
  for i, pair in ipairs(list) do
    if not is_array(pair[2]) then
      fail_member(pair[1], pair[2])
    end
    pairs_of[i] = { named and pair[1] or "arr_" .. pair[1], pair[2]:as_in_context(context.cpu()) }
  end
  writer(path, pairs_of, "nd.save")
end


local function write(path, data, flags)
  local list, named = members(data)
  local writer = WRITERS[(path:match("%.(%w+)$") or ""):lower()]
  if writer then
    return write_other(writer, path, list, named)
  end
  check(C.ty_params_save(path, io_of.named_arrays(list, "nd.save"),
    flags + (named and C.TY_PARAMS_NAMED or 0)), "nd.save", { argument = path })
end


local SAVE = args.form("nd.save", { { "fname", "path" }, { "data", "any" } })

--- Writes arrays to a file.
-- @string fname path; its ending chooses the format
-- @param data NDArray, list, dictionary, or list of `{name, NDArray}`
function io_of.save(...)
  local a = SAVE(...)
  write(a.fname, a.data, 0)
end


--- Writes arrays as `save` does, with a checksum in a word that the reference leaves 0 and ignores;
-- for checkpoints (not for users).
function io_of.save_checked(path, data)
  write(path, data, C.TY_PARAMS_CHECKED)
end


--- Returns the arrays of a bag: a list of names and one of arrays (`ty.null` for null arrays).
function io_of.unpacked(bag)
  local name, tensor = ffi.new("const char *[1]"), ffi.new("ty_tensor *[1]")
  local names, arrays, i = {}, {}, 0
  while C.ty_bag_at(bag, i, name, tensor) == 0 do
    i = i + 1
    names[i] = text(name[0])
    arrays[i] = tensor[0] ~= nil and class.borrow(tensor[0]) or values.null
  end
  return names, arrays
end


-- Returns the results of load: a dictionary and names, or a list.
local function contents(bag, named)
  local names, arrays = io_of.unpacked(bag)
  if not named then
    return counted_from_1(arrays)
  end
  local dict = named_table{}
  for i, name in ipairs(names) do
    dict[name] = values.value(arrays[i])
  end
  return dict, counted_from_1(names)
end


local function loaded(code, out, named, func, argument)
  check(code, func, argument and { argument = argument })
  return contents(native.own(out[0], C.ty_bag_free), named[0] ~= 0)
end


local LIST_HEAD = "\x12\x01\0\0\0\0\0\0"             -- begins a file in the reference's format
local HEAD = 24                          -- bytes that tell formats apart

-- Other formats, in the order in which they are tried. `is_mine(head, file)`: whether a
-- file has this format; `load(file)`: the arrays as {name, array}, `ty.null` for one without
-- elements; whether the file has names; its metadata.
local FORMATS = {
  { name = "sharded", is_mine = function(head, file)
    return sharded().is_mine(head, file.path)
  end, load = function(file)
    return sharded().load(file, function(path)
      return io_of.read_other(file_arrays().open(path, file.func))
    end)
  end },
}
for _, row in ipairs{ { "pytorch", pytorch }, { "npy", npy }, { "gguf", gguf },
    { "safetensors", safetensors } } do
  FORMATS[#FORMATS + 1] = { name = row[1],
    is_mine = function(...) return row[2]().is_mine(...) end,
    load = function(...) return row[2]().load(...) end }
end


--- Returns the arrays of a file of another format (not for users).
-- @tparam table file as `file_arrays.open` gives
-- @treturn {{string,NDArray},...} nil if the format is unknown
-- @treturn bool whether the file has names
-- @treturn table the file's metadata by key; nil for most formats
-- @treturn string the format's name
function io_of.read_other(file)
  local head = file:read(0, math.min(HEAD, file.size))
  if head:sub(1, #LIST_HEAD) == LIST_HEAD then
    return nil
  end
  for _, format in ipairs(FORMATS) do
    if format.is_mine(head, file) then
      local list, named, metadata = format.load(file)
      return list, named, metadata, format.name
    end
  end
end


-- Returns the results of load for another format; nothing if the file has none of them.
local function other_contents(file)
  local list, named, metadata = io_of.read_other(file)
  if not list then
    return nil
  end
  local dict, names = {}, {}
  for i, pair in ipairs(list) do
    if pair[2] ~= values.null then
      names[#names + 1], dict[named and pair[1] or i] = pair[1], pair[2]
    end
  end
  if named then
    return named_table(dict), counted_from_1(names), metadata
  end
  return counted_from_1(dict)
end


local LOAD = args.form("nd.load", { { "fname", "path" } })

--- Reads a file of arrays. It may be in the reference's format, NumPy's, safetensors, PyTorch's,
-- GGUF, or the index of several files. Arrays of the last four take memory when they are first
-- used, and keep the file open until then.
-- @string fname path; a missing file is E(io), a damaged or unknown one E(format), which names the
--   format of other programs' files
-- @treturn table dictionary, or a list if the file has no names: `ty.nd.load("x.npy")[1]`
-- @treturn {string,...} names in file order, for a dictionary
-- @treturn table metadata, for GGUF and safetensors
function io_of.load(...)
  local a = LOAD(...)
  local dict, names, metadata = other_contents(file_arrays().open(a.fname, "nd.load"))
  if dict then
    return dict, names, metadata
  end
  local out, named = ffi.new("ty_bag *[1]"), ffi.new("int[1]")
  return loaded(C.ty_params_load(a.fname, out, named), out, named, "nd.load", a.fname)
end


local BUFFER = args.form("nd.load_frombuffer", { { "buf", "text" } })

--- Returns arrays as `load` does, from the bytes of a file.
-- @string buf
function io_of.load_frombuffer(...)
  local a = BUFFER(...)
  local dict, names, metadata
  if a.buf:sub(1, #LIST_HEAD) ~= LIST_HEAD then
    dict, names, metadata = other_contents(
      file_arrays().copy(a.buf, #a.buf, "the buffer", "nd.load_frombuffer"))
  end
  if dict then
    return dict, names, metadata
  end
  local out, named = ffi.new("ty_bag *[1]"), ffi.new("int[1]")
  return loaded(C.ty_params_parse(a.buf, #a.buf, out, named), out, named, "nd.load_frombuffer")
end


return io_of
