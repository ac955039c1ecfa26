--- Files of PyTorch (`torch.save`): a zip archive with a pickle and a member for each storage, or
-- the older form, pickles and storages one after the other. For `ndarray/files.lua`;
-- `ty.pytorch.load` returns the tree of objects.
--
-- Tensors of any strides become arrays that are read on first use; different views of a
-- storage become separate arrays. Objects other than tensors, containers, numbers and texts become
-- descriptions (`ndarray/pickle.lua`).
--
-- @module tycho.ndarray.pytorch

jit.off(true, true)                                      -- not worth JIT-compiling: iterate.lua

local Error = require "tycho.core.error"
local file_arrays = require "tycho.ndarray.file_arrays"
local file_cursor = require "tycho.ndarray.file_cursor"
local class = require "tycho.ndarray.class"
local log = require "tycho.core.log"
local pickle = require "tycho.ndarray.pickle"
local values = require "tycho.core.values"
local zip = require "tycho.ndarray.zip"

local pytorch = {}

local null = values.null

-- The older form begins with the pickles of two numbers.
local MAGIC = "\108\252\156\70\249\32\106\168\80\25"
local FORM = 1001
local HEAD = 24                                          -- bytes of the first, at most
local MOST_DIMENSIONS = 16                               -- TY_MAXDIM
local BASE, TIMES = 64 * 2 ^ 20, 4                       -- a file may take BASE + TIMES * its bytes
-- depth and number of containers that are searched for arrays
local DEEPEST, MOST_VISITED = 64, 2 ^ 20

-- Elements by the class of a storage, or by dtype: their encoding in a file, and their bytes.
local ELEMENTS = {
  float = { "float32", 4 }, double = { "float64", 8 }, half = { "float16", 2 },
  bfloat16 = { "bfloat16", 2 }, long = { "int64", 8 }, int = { "int32", 4 },
  short = { "int16", 2 }, char = { "int8", 1 }, byte = { "uint8", 1 }, bool = { "bool", 1 },
  float8_e4m3fn = { "e4m3", 1 }, float8_e5m2 = { "e5m2", 1 }, uint16 = { "uint16", 2 },
  uint32 = { "uint32", 4 }, uint64 = { "uint64", 8 }, untyped = { "uint8", 1 },
}
for alias, name in pairs{ float32 = "float", float64 = "double", float16 = "half", int64 = "long",
    int32 = "int", int16 = "short", int8 = "char", uint8 = "byte" } do
  ELEMENTS[alias] = ELEMENTS[name]
end


local function fail(file, text, ...)
  Error.raise{ code = "format", func = file.func, argument = file.path,
    message = ("'%s': " .. text):format(file.path, ...) }
end


local function refuse(file, text, ...)
  Error.raise{ code = "unsupported", func = file.func, argument = file.path,
    message = ("'%s': " .. text):format(file.path, ...) }
end


-- Returns the row of ELEMENTS for "torch.FloatStorage", "torch.float8_e5m2" ...
local function find_elements(file, path)
  local name = path and path:match("([%w_]+)$") or "?"
  local row = ELEMENTS[name] or ELEMENTS[name:gsub("Storage$", ""):lower()]
  if not row then
    local quantized = name:find("^Q") or name:find("^q")
    refuse(file, quantized and "quantized tensors (%s) are not read: dequantize() them first"
      or "tensors of elements %s are not read", name)
  end
  return row
end


-- Tensors -----------------------------------------------------------------------------------------

local Loader = {}
Loader.__index = Loader

-- A storage: its bytes, the encoding of its elements, its place in the file (`part`; nil if it has
-- no elements). Code in a pickle cannot make one.
local Storage = {}

local function new_storage(elements, n, part)
  return setmetatable({ elements = elements, bytes = n * elements[2], part = part }, Storage)
end


local function is_count(v)
  return type(v) == "number" and v >= 0 and v == math.floor(v) and v <= 2 ^ 53
end


-- Returns a tuple of counts.
local function check_counts(file, list, what)
  if not pickle.is_list(list) or #list > MOST_DIMENSIONS then
    fail(file, "the %s of a tensor is %s", what, Error.kind(list))
  end
  for i = 1, #list do
    if not is_count(list[i]) then
      fail(file, "the %s of a tensor has %s", what, Error.kind(list[i]))
    end
  end
  return list
end


-- Returns an array of a storage's elements; the same one for equal views.
function Loader:tensor(storage, offset, sizes, strides, elements)
  local file = self.file
  if type(storage) ~= "table" or getmetatable(storage) ~= Storage then
    fail(file, "the storage of a tensor is %s", Error.kind(storage))
  end
  sizes, strides = check_counts(file, sizes, "size"), check_counts(file, strides, "stride")
  if #sizes ~= #strides or not is_count(offset) then
    fail(file, "a tensor of %d sizes, %d strides and offset %s", #sizes, #strides,
      Error.kind(offset))
  end
  elements = elements or storage.elements
  local count, last = 1, offset
  for i, n in ipairs(sizes) do
    count, last = count * n, last + (n - 1) * strides[i]
  end
  if count == 0 or not storage.part then
    return null
  end
  if (last + 1) * elements[2] > storage.bytes then
    fail(file, "a tensor has elements %.0f to %.0f of a storage of %.0f bytes", offset, last,
      storage.bytes)
  end
  local dense = file_arrays.is_dense(sizes, strides)
  if not dense and count * 8 > BASE + TIMES * file.size then
    fail(file, "a tensor of %.0f elements over a storage of %.0f bytes", count, storage.bytes)
  end
  local key = table.concat({ elements[1], offset, table.concat(sizes, ","),
    table.concat(strides, ",") }, ":")
  local views = self.views[storage.part] or {}
  self.views[storage.part] = views
  views[key] = views[key] or storage.part.file:array{
    at = storage.part.at + offset * elements[2], dtype = elements[1], swapped = self.swapped,
    shape = #sizes > 0 and sizes or { 1 },
    strides = not dense and #sizes > 0 and strides or nil }
  return views[key]
end


-- Functions that pickles call ---------------------------------------------------------------------

local function return_first(arguments)
  return arguments[1]
end


local function make_dictionary(arguments)
  local t = pickle.dictionary()
  local list = arguments[1]
  if list ~= nil and pickle.keys(list) then
    return list
  end
  for _, pair in ipairs(pickle.is_list(list) and list or {}) do
    if pickle.is_list(pair) and pair[1] ~= nil and pair[1] == pair[1] and pair[2] ~= nil then
      pickle.set(t, pair[1], pair[2])
    end
  end
  return t
end


local function make_list(arguments)
  local list = arguments[1]
  return pickle.is_list(list) and list or {}
end


-- Returns the bytes that protocol 2 writes as UTF-8 text: each character up to 255 is one byte.
local function decode_latin1(arguments)
  local s = type(arguments[1]) == "string" and arguments[1] or ""
  return (s:gsub("([\194\195])([\128-\191])", function(a, b)
    return string.char((a:byte() - 192) * 64 + b:byte() - 128)
  end))
end


-- Returns the functions of a loader, by path.
local function make_functions(loader)
  local file = loader.file
  local known = {
    ["torch._utils._rebuild_tensor"] = function(a)
      return loader:tensor(a[1], a[2], a[3], a[4])
    end,
    ["torch._utils._rebuild_tensor_v3"] = function(a)
      return loader:tensor(a[1], a[2], a[3], a[4], find_elements(file, pickle.path(a[7])))
    end,
    ["torch._utils._rebuild_qtensor"] = function()
      refuse(file, "quantized tensors are not read: dequantize() them first")
    end,
    ["torch._utils._rebuild_sparse_tensor"] = function()
      refuse(file, "sparse tensors are not read: to_dense() them first")
    end,
    ["torch._utils._rebuild_nested_tensor"] = function()
      refuse(file, "nested tensors are not read")
    end,
  }
  known["torch._utils._rebuild_tensor_v2"] = known["torch._utils._rebuild_tensor"]
  for _, name in ipairs{ "torch._utils._rebuild_parameter", "torch.nn.parameter.Parameter",
      "torch._utils._rebuild_parameter_with_state" } do
    known[name] = return_first
  end
  -- f(*arguments) of a class that wraps a tensor
  known["torch._tensor._rebuild_from_type_v2"] = function(a, machine)
    local f = known[pickle.path(a[1]) or ""]
    if f and pickle.is_list(a[3]) then
      return f(a[3], machine)
    end
    local object = pickle.describe(pickle.path(a[2]) or "object")
    object.args = a
    return object
  end
  for _, name in ipairs{ "collections.OrderedDict", "builtins.dict", "__builtin__.dict",
      "collections.Counter" } do
    known[name] = make_dictionary
  end
  known["collections.defaultdict"] = function() return pickle.dictionary() end
  for _, name in ipairs{ "torch.Size", "builtins.list", "builtins.set", "builtins.frozenset",
      "builtins.tuple", "__builtin__.list", "__builtin__.set", "__builtin__.tuple",
      "__builtin__.frozenset", "collections.deque" } do
    known[name] = make_list
  end
  known["_codecs.encode"] = decode_latin1
  known["builtins.bytes"] = function(a) return type(a[1]) == "string" and a[1] or "" end
  known["builtins.bytearray"] = known["builtins.bytes"]
  return known
end


-- Returns the path of the class in ("module", class, file, source), the form of a class in old
-- files, else nil; the source is ignored.
local function named_class(id)
  return pickle.is_list(id) and id[1] == "module" and pickle.path(id[2]) and id[2] or nil
end


-- Returns the element type, the key and the number of elements of ("storage", class, key, location,
-- number of elements[, view]). Fails for anything else.
local function storage_id(file, id)
  if not pickle.is_list(id) or id[1] ~= "storage" or type(id[3]) ~= "string"
      or not is_count(id[5]) then
    fail(file, "it refers to what is no storage")
  end
  return find_elements(file, pickle.path(id[2])), id[3], id[5]
end


function Loader:read(cursor, persistent)
  return pickle.read(cursor, { functions = make_functions(self), persistent = persistent
    and function(id)
      return named_class(id) or persistent(id)
    end })
end


local function new_loader(file)
  return setmetatable({ file = file, views = {}, swapped = false }, Loader)
end


-- Archives ----------------------------------------------------------------------------------------

local function by_name(members)
  local index = {}
  for _, m in ipairs(members) do
    index[m.name] = m
  end
  return index
end


-- Returns the folder in an archive that has the pickle; nil for archives of other programs.
local function find_folder(members)
  for _, m in ipairs(members) do
    local folder = m.name:match("^(.-/?)data%.pkl$")
    if folder then
      return folder
    end
  end
end


local function load_archive(file, members)
  local folder, index = find_folder(members), by_name(members)
  if not folder then
    fail(file, "this is an archive without the file data.pkl: torch.save has not completed it, or \z
      another program has written it")
  end
  if index[folder .. "constants.pkl"] then
    refuse(file, "it is a TorchScript archive, which holds code; in Python, "
      .. "torch.save(torch.jit.load(path).state_dict(), other) writes its arrays")
  end
  local loader = new_loader(file)
  local order = index[folder .. "byteorder"]
  loader.swapped = order ~= nil and zip.contents(file, order) == "big"
  local parts = {}

  local function find_part(key)
    local m = index[folder .. "data/" .. key]
    if not m then
      fail(file, "the storage '%s' is missing", key)
    end
    if not parts[key] then
      local from, at = zip.part(file, m)
      parts[key] = { file = from, at = at, bytes = m.size }
    end
    return parts[key]
  end

  local function persistent(id)
    local elements, key, n = storage_id(file, id)
    local part = n > 0 and find_part(key) or nil
    if part and n * elements[2] > part.bytes then
      fail(file, "the storage '%s' has %.0f bytes instead of %.0f", key, part.bytes,
        n * elements[2])
    end
    return new_storage(elements, n, part)
  end

  local from, at = zip.part(file, index[folder .. "data.pkl"])
  local size = index[folder .. "data.pkl"].size
  return loader:read(file_cursor.new(from, at, at + size), persistent)
end


-- The older form ----------------------------------------------------------------------------------

local function is_older(head)
  return head:byte(1) == 128 and head:find(MAGIC, 1, true) ~= nil
end


-- Returns the places of the storages. The file has a list of keys, then the number of elements and
-- the elements of each storage.
local function storage_parts(loader, cursor, seen)
  local file = loader.file
  local keys = loader:read(cursor)
  local parts = {}
  if not pickle.is_list(keys) then
    fail(file, "the list of storages is %s", Error.kind(keys))
  end
  for _, key in ipairs(keys) do
    local elements = seen[key]
    if not elements then
      fail(file, "the storage %s is not used", Error.kind(key))
    end
    local n = cursor:i64()
    if n < 0 or n * elements[2] > cursor:left() then
      fail(file, "a storage of %.0f elements, %.0f bytes are left", n, cursor:left())
    end
    parts[key] = { file = file, at = cursor.at, bytes = n * elements[2] }
    cursor.at = cursor.at + n * elements[2]
  end
  return parts
end


-- Reads a file of the older format. The object is before the list of storages, so it is read twice:
-- first to find its end and the storages that it names.
local function load_older(file)
  local loader = new_loader(file)
  local cursor = file_cursor.new(file)
  local magic, form = loader:read(cursor), loader:read(cursor)
  if not pickle.is_described(magic) or magic.bytes ~= MAGIC or form ~= FORM then
    fail(file, "it is no file of torch.save")
  end
  local system = loader:read(cursor)
  loader.swapped = pickle.keys(system) ~= nil and system.little_endian == false
  local start, seen = cursor.at, {}
  loader:read(cursor, function(id)
    local elements, key = storage_id(file, id)
    seen[key] = seen[key] or elements
    return new_storage(elements, 0)
  end)
  local parts = storage_parts(loader, cursor, seen)
  return loader:read(file_cursor.new(file, start), function(id)
    local elements, key, n = storage_id(file, id)
    local part, from = parts[key], 0
    if not part then
      fail(file, "the storage '%s' is missing", key)
    end
    -- a storage that is a view of another: (key, first element, number of elements)
    local view = id[6]
    if pickle.is_list(view) and is_count(view[2]) and is_count(view[3]) then
      from, n = view[2] * elements[2], view[3]
    end
    if from + n * elements[2] > part.bytes then
      fail(file, "the storage '%s' has %.0f bytes instead of %.0f", key, part.bytes,
        from + n * elements[2])
    end
    return new_storage(elements, n, n > 0 and (from == 0 and part
      or { file = file, at = part.at + from, bytes = n * elements[2] }) or nil)
  end)
end


-- Names of arrays ---------------------------------------------------------------------------------

local function key_text(key)
  return type(key) == "number" and ("%.14g"):format(key) or type(key) == "string" and key or nil
end


-- Warns of an array that cannot be read: one of NumPy, or a tensor of another kind, such as one
-- without memory.
local function warn_of_array(file, v, name)
  local kind = v.class_name
  if kind:find "^numpy%..*_reconstruct$" or kind:find "^torch%._utils%._rebuild" then
    log:warning(("%s: '%s': '%s' is left out; it is described by %s, not by a tensor's storage")
      :format(file.func, file.path, name, kind))
  end
end


-- Visits the arrays in an object, depth first: f(array, name) for each array, f(null, name) for one
-- without elements and for None.
local function each_array(file, root, f)
  local visited, inside = 0, {}
  local function visit(v, name, depth)
    visited = visited + 1
    if class.is_array(v) or v == null then
      return f(v, name)
    elseif type(v) ~= "table" or inside[v] then
      return
    elseif depth > DEEPEST or visited > MOST_VISITED then
      fail(file, "containers are more than %d deep or hold more than %d things", DEEPEST,
        MOST_VISITED)
    end
    inside[v] = true
    local function enter(inner, key)
      local text = key_text(key)
      if text then
        visit(inner, name == "" and text or name .. "." .. text, depth + 1)
      end
    end
    if pickle.is_described(v) then
      warn_of_array(file, v, name)
      -- a module that was saved as a whole
      local state = v.state ~= nil and pickle.keys(v.state) and v.state or {}
      for _, group in ipairs{ "_parameters", "_buffers", "_modules" } do
        local part = state[group]
        for _, key in ipairs(part ~= nil and pickle.keys(part) or {}) do
          enter(part[key], key)
        end
      end
      if v.entries then
        visit(v.entries, name, depth + 1)
      end
    elseif pickle.keys(v) then
      for _, key in ipairs(pickle.keys(v)) do
        enter(v[key], key)
      end
    else
      for i, inner in ipairs(v) do
        enter(inner, i - 1)
      end
    end
    inside[v] = nil
  end
  visit(root, "", 0)
end


-- Public functions --------------------------------------------------------------------------------

--- Returns the object in a file.
-- @tparam table file as `file_arrays.open` gives
function pytorch.object(file)
  local head = file:read(0, math.min(HEAD, file.size))
  if is_older(head) then
    return load_older(file)
  elseif not zip.is_mine(head) then
    fail(file, "this is no file of torch.save")
  end
  return load_archive(file, zip.members(file))
end


--- Returns the arrays in a file, by names joined with points.
-- @tparam table file as `file_arrays.open` gives
-- @treturn {{string,NDArray},...} in file order; `ty.null` without elements
-- @treturn bool true: the file has names
function pytorch.load(file)
  local list = {}
  each_array(file, pytorch.object(file), function(x, name)
    list[#list + 1] = { name ~= "" and name or "0", x }
  end)
  return list, true
end


--- Returns whether a file with these first bytes may be one of PyTorch.
-- @string head first bytes
-- @tparam table file
function pytorch.is_mine(head, file)
  if is_older(head) then
    return true
  end
  return zip.is_mine(head) and find_folder(zip.members(file)) ~= nil
end


return pytorch
