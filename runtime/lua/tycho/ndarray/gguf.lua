--- GGUF files (llama.cpp), versions 2 and 3. For `ndarray/files.lua`.
--
-- Layout, little-endian: "GGUF", the version, the numbers of tensors and of metadata, the metadata
-- (key, type, value), then for each tensor its name, sizes (the fastest first), type and offset;
-- the elements begin at a multiple of `general.alignment` (32) bytes. Blocks of quantized elements
-- become float32 when an array is first used.
--
-- @module tycho.ndarray.gguf

local Error = require "tycho.core.error"
local file_cursor = require "tycho.ndarray.file_cursor"
local named = require "tycho.core.dict"
local tables = require "tycho.core.tables"

local gguf = {}

local MAGIC = "GGUF"
local ALIGN = 32                                         -- bytes, by default
local BASE, TIMES = 64 * 2 ^ 20, 4                       -- a file may take BASE + TIMES * its bytes
local ENTRY_COST = 400                                   -- bytes of a tensor or a metadata entry
local TEXT_COST = 64                                     -- bytes of a text in a list
local LONG_LIST = 1024                                   -- numbers in a list; longer ones: arrays
local DEEPEST = 8                                        -- depth of nested lists
local MOST_DIMENSIONS = 8

-- Types of tensors: the encoding for `file:array`, bytes and elements of a unit.
local TYPES = {
  [0] = { "float32", 4, 1 }, [1] = { "float16", 2, 1 }, [2] = { "Q4_0", 18, 32 },
  [3] = { "Q4_1", 20, 32 }, [6] = { "Q5_0", 22, 32 }, [7] = { "Q5_1", 24, 32 },
  [8] = { "Q8_0", 34, 32 }, [12] = { "Q4_K", 144, 256 }, [13] = { "Q5_K", 176, 256 },
  [14] = { "Q6_K", 210, 256 }, [24] = { "int8", 1, 1 }, [25] = { "int16", 2, 1 },
  [26] = { "int32", 4, 1 }, [27] = { "int64", 8, 1 }, [28] = { "float64", 8, 1 },
  [30] = { "bfloat16", 2, 1 },
}

-- Names of types that are not read, for errors.
local OTHERS = {
  [9] = "Q8_1", [10] = "Q2_K", [11] = "Q3_K", [15] = "Q8_K", [16] = "IQ2_XXS", [17] = "IQ2_XS",
  [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",
  [23] = "IQ4_XS", [29] = "IQ1_M", [34] = "TQ1_0", [35] = "TQ2_0", [39] = "MXFP4",
}

-- Types of metadata: the C type of a number, its bytes.
local TEXT, LIST = 8, 9
local NUMBERS = {
  [0] = { "uint8", 1, function(c) return c:u8() end },
  [1] = { "int8", 1, function(c) return c:word(1).i8 end },
  [2] = { "uint16", 2, function(c) return c:u16() end },
  [3] = { "int16", 2, function(c) return c:word(2).i16 end },
  [4] = { "uint32", 4, function(c) return c:u32() end },
  [5] = { "int32", 4, function(c) return c:i32() end },
  [6] = { "float32", 4, function(c) return c:f32() end },
  [7] = { "bool", 1, function(c) return c:u8() ~= 0 end },
  [10] = { "uint64", 8, function(c) return c:u64() end },
  [11] = { "int64", 8, function(c) return c:i64() end },
  [12] = { "float64", 8, function(c) return c:f64() end },
}


-- Raises E(format) for a number of items that the remaining bytes of the file cannot hold.
local function pay(cursor, n, cost, least)
  cursor.cost = (cursor.cost or 0) + n * cost
  if n > cursor:left() / least or cursor.cost > BASE + TIMES * cursor.file.size then
    cursor:fail("%.0f things are announced, %.0f bytes are left", n, cursor:left())
  end
end


local function read_text(cursor)
  return cursor:take(cursor:u64())
end


local read_value

-- Reads a list of metadata. A long list of numbers becomes an array, which is read on first use.
local function read_list(cursor, depth)
  local kind, n = cursor:u32(), cursor:u64()
  local number, list = NUMBERS[kind], {}
  if depth > DEEPEST then
    cursor:fail("lists are more than %d deep", DEEPEST)
  elseif number and n > LONG_LIST then
    if n > cursor:left() / number[2] then
      cursor:fail("a list of %.0f numbers, %.0f bytes are left", n, cursor:left())
    end
    local at = cursor.at
    cursor.at = at + n * number[2]
    return cursor.file:array{ at = at, shape = { n }, dtype = number[1] }
  end
  pay(cursor, n, TEXT_COST, number and number[2] or 8)
  for i = 1, n do
    list[i] = read_value(cursor, kind, depth + 1)
  end
  return list
end


function read_value(cursor, kind, depth)
  if kind == TEXT then
    return read_text(cursor)
  elseif kind == LIST then
    return read_list(cursor, depth)
  elseif not NUMBERS[kind] then
    cursor:fail("there is no type %d of metadata", kind)
  end
  return NUMBERS[kind][3](cursor)
end


local function read_metadata(cursor, n)
  local metadata = named{}
  pay(cursor, n, ENTRY_COST, 13)
  for _ = 1, n do
    local key = read_text(cursor)
    metadata[key] = read_value(cursor, cursor:u32(), 0)
  end
  return metadata
end


local function read_tensor(cursor)
  local t = { name = read_text(cursor), shape = {} }
  local n = cursor:u32()
  if n > MOST_DIMENSIONS then
    cursor:fail("the tensor '%s' has %.0f dimensions", t.name, n)
  end
  for i = n, 1, -1 do
    t.shape[i] = cursor:u64()
    if t.shape[i] < 1 or t.shape[i] > 2 ^ 48 then
      cursor:fail("the tensor '%s' has a size of %.0f", t.name, t.shape[i])
    end
  end
  local kind = cursor:u32()
  t.offset, t.type = cursor:u64(), TYPES[kind]
  if not t.type then
    Error.raise{ code = "unsupported", func = cursor.file.func, argument = t.name,
      message = ("'%s': the tensor '%s' is of type %s, which is not read (F32, F16, BF16, Q4_0, \z
        Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K and integers are)"):format(cursor.file.path,
        t.name, OTHERS[kind] or ("%.0f"):format(kind)) }
  end
  if n == 0 then
    t.shape[1] = 1
  end
  return t
end


local function read_header(file)
  local cursor = file_cursor.new(file)
  cursor:take(#MAGIC)
  local version = cursor:u32()
  if version ~= 2 and version ~= 3 then
    cursor:fail(version % 65536 == 0 and "it is big-endian, which is not read"
      or "version %.0f of GGUF is not read (2 and 3 are)", version)
  end
  local tensors, entries = cursor:u64(), cursor:u64()
  local metadata = read_metadata(cursor, entries)
  pay(cursor, tensors, ENTRY_COST, 24)
  local list = {}
  for i = 1, tensors do
    list[i] = read_tensor(cursor)
  end
  local align = metadata["general.alignment"] or ALIGN
  if type(align) ~= "number" or align < 1 or align % 1 ~= 0 or align > 2 ^ 20 then
    cursor:fail("the alignment is %s", tostring(align))
  end
  return list, metadata, math.ceil(cursor.at / align) * align
end


--- Reads arrays.
-- @tparam table file as `file_arrays.open` gives
-- @treturn {{string,NDArray},...} in the order of the header
-- @treturn bool true: the file has names
-- @treturn table the metadata by key; lists of more than 1,024 numbers are arrays
function gguf.load(file)
  local tensors, metadata, start = read_header(file)
  local list = {}
  for i, t in ipairs(tensors) do
    local name, unit, elements = unpack(t.type)
    if t.shape[#t.shape] % elements ~= 0 then
      Error.raise{ code = "format", func = file.func, argument = file.path,
        message = ("'%s': rows of %.0f elements of the tensor '%s' are no blocks of %d (%s)")
          :format(file.path, t.shape[#t.shape], t.name, elements, name) }
    end
    file:check_range(start + t.offset, tables.product(t.shape) / elements * unit)
    list[i] = { t.name, file:array{ at = start + t.offset, shape = t.shape, dtype = name } }
  end
  return list, true, metadata
end


--- Returns the element types of the tensors in the file: name -> "Q4_K", "float16" ...
function gguf.types(file)
  local types = {}
  for _, t in ipairs((read_header(file))) do
    types[t.name] = t.type[1]
  end
  return types
end


--- Returns whether a file with these first bytes is GGUF.
function gguf.is_mine(head)
  return head:sub(1, #MAGIC) == MAGIC
end


return gguf
