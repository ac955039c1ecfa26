--- Text of arrays in NumPy's form: rows in brackets, aligned numbers, long lines wrapped, large
-- arrays shortened to the entries at both ends of their axes; then `<NDArray 2x3 @cpu(0)>`.
--
-- The rows of a column that is longer than both ends are written next to each other.
-- Only the values that are shown are read. Reading waits.
--
-- @module tycho.ndarray.print

local pairs = require("tycho.core.iterate").pairs
local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local number_text = require "tycho.ndarray.number_text"
local transfer = require "tycho.ndarray.transfer"

local NDArray, BYTES = class.NDArray, class.BYTES

local print_of = {}

local DOTS = "..."


-- Options -----------------------------------------------------------------------------------------

local options = { precision = 8, threshold = 1000, edgeitems = 3, linewidth = 75, suppress = false }


local function count(v)
  local ok = type(v) == "number" and v >= 0 and (v == math.floor(v) or v == math.huge)
  return ok, v, "a whole number of at least 0", type(v) == "number" and "value" or "type"
end


local SET = args.form("nd.set_printoptions", {
  { "precision", count, false }, { "threshold", count, false }, { "edgeitems", count, false },
  { "linewidth", count, false }, { "suppress", "boolean?" },
})

--- Sets the options of arrays as text; options that are not given keep their values.
-- @tparam table options precision = 8 (digits after the point, at most), threshold = 1000 (larger
--   arrays are shortened; `math.huge`: none), edgeitems = 3 (of a shortened axis, at either end),
--   linewidth = 75 (characters), suppress = false (no exponents for small numbers)
function print_of.set_printoptions(...)
  local a = SET(...)
  for name in pairs(options) do
    if a[name] or name == "suppress" and a[name] ~= nil then
      options[name] = a[name]
    end
  end
  options.precision = math.min(options.precision, 16)
end


--- Returns a table with the current options.
-- @treturn table see `set_printoptions`
function print_of.get_printoptions()
  local copy = {}
  for name, value in pairs(options) do
    copy[name] = value
  end
  return copy
end


-- Values that are shown ---------------------------------------------------------------------------

local INT64 = args.DTYPES.int64

-- Adds elements from..from + n - 1 (from 0) of flattened x to a row and to the list of all.
local function add_values(x, from, n, row, all)
  local p = transfer.read(class.view(x, { n }, from * BYTES[x._dtype], "tostring"), "tostring")
  for i = 0, n - 1 do
    local v = x._dtype == INT64 and p[i] or tonumber(p[i])
    row[#row + 1], all[#all + 1] = v, v
  end
end


local function collect_row(x, from, n, edge, all)
  local row = {}
  if n <= 2 * edge then
    add_values(x, from, n, row, all)
    return row
  end
  if edge > 0 then
    add_values(x, from, edge, row, all)
  end
  row[#row + 1] = DOTS
  if edge > 0 then
    add_values(x, from + n - edge, edge, row, all)
  end
  return row
end


-- Returns the values in lists nested like the array, and in one flat list. An axis longer than
-- twice `edge` has DOTS for the entries in the middle.
local function collect(x, depth, from, size, edge, all)
  local n = x._shape[depth]
  if depth == #x._shape then
    return collect_row(x, from, n, edge, all)
  end
  local list, inner = {}, size / n
  for i = 0, n - 1 do
    if n > 2 * edge and i == edge then
      list[#list + 1] = DOTS
    end
    if n <= 2 * edge or i < edge or i >= n - edge then
      list[#list + 1] = collect(x, depth + 1, from + i * inner, inner, edge, all)
    end
  end
  return list
end


-- Layout ------------------------------------------------------------------------------------------

-- Returns words in lines of at most `width` characters; lines after the first begin with `indent`.
local function wrapped(words, indent, width)
  local lines, line = {}, indent
  for i, word in ipairs(words) do
    if #line > #indent and #line + #word > width then
      lines[#lines + 1] = line:gsub(" +$", "")
      line = indent
    end
    line = line .. word .. (i < #words and " " or "")
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n"):sub(#indent + 1)
end


local function is_column(list)
  return #list > 2 * options.edgeitems and type(list[1]) == "table" and #list[1] == 1
    and type(list[1][1]) ~= "table"
end


local function word_of(entry, write)
  if entry == DOTS then
    return DOTS
  end
  return type(entry) == "table" and "[" .. write(entry[1]) .. "]" or write(entry)
end


-- Returns the text of a nested list with `axes` axes, inside `depth` open brackets.
local function nested_text(list, axes, depth, write)
  local indent = (" "):rep(depth)
  local parts = {}
  if axes == 1 or axes == 2 and is_column(list) then
    for i, entry in ipairs(list) do
      parts[i] = word_of(entry, write)
    end
    return "[" .. wrapped(parts, indent, options.linewidth - depth) .. "]"
  end
  for i, part in ipairs(list) do
    parts[i] = part == DOTS and part or nested_text(part, axes - 1, depth + 1, write)
  end
  return "[" .. table.concat(parts, ("\n"):rep(axes - 1) .. indent) .. "]"
end


local function values_text(x, edge)
  local all = {}
  local list = collect(x, 1, 0, x._size, edge, all)
  local write = number_text.writer(all, args.DTYPE_NAMES[x._dtype], options)
  return nested_text(list, #x._shape, 1, write)
end


local function edge_of(x)
  return x._size > options.threshold and options.edgeitems or math.huge
end


--- Returns the values and `<NDArray 2x3 @cpu(0)>`.
function NDArray.__tostring(x)
  if not rawget(x, "_h") then
    return rawget(x, "_shape") and "<NDArray " .. table.concat(x._shape, "x") .. " without memory>"
      or "<NDArray freed>"
  end
  return ("\n%s\n<NDArray %s @%s>"):format(values_text(x, edge_of(x)),
    table.concat(x._shape, "x"), tostring(x.context))
end


-- Returns the number of rows of the text if axes show at most `most` entries; a column takes few.
local function rows_shown(x, most)
  local n, shape = 1, x._shape
  for axis = 1, #shape - 1 do
    local beside = axis == #shape - 1 and shape[#shape] == 1 and shape[axis] > 2 * options.edgeitems
    n = n * (beside and 1 or math.min(shape[axis], most))
  end
  return n
end


--- Returns the array as text for the prompt; the dtype follows the shape unless it is float32.
-- @tparam NDArray x
-- @int rows the approximate limit of rows
function NDArray.text(x, rows)
  local edge = edge_of(x)
  if rows_shown(x, 2 * edge) > rows then
    edge = math.min(edge, options.edgeitems)
  end
  while edge > 1 and rows_shown(x, 2 * edge) > rows do
    edge = edge - 1
  end
  local dtype = args.DTYPE_NAMES[x._dtype]
  return ("%s\n<NDArray %s%s @%s>"):format(values_text(x, edge), table.concat(x._shape, "x"),
    dtype ~= "float32" and " " .. dtype or "", tostring(x.context))
end


--- Returns an array's type, shape and device as text, "float32 2x3 @cpu(0)", without reading it.
function NDArray.summary(x)
  return ("%s %s @%s"):format(args.DTYPE_NAMES[x._dtype],
    table.concat(x._shape, "x"), tostring(x.context))
end


return print_of
