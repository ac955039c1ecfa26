--- Arrays as text: at most 6 values along each axis, columns aligned, then `<NDArray 2x3 @cpu(0)>`.
--
-- Only the values that are shown are read. Reading waits.
--
-- @module tycho.ndarray.print

local args = require "tycho.core.args"
local class = require "tycho.ndarray.class"
local transfer = require "tycho.ndarray.transfer"

local NDArray, BYTES = class.NDArray, class.BYTES

local MOST = 6                                   -- longer axes show half of this at either end

local FLOATS = { float32 = 7, float64 = 8, float16 = 4, bfloat16 = 3 }   -- digits shown


local function plain_text(v)
  if v ~= v then
    return "nan"
  elseif v == 1 / 0 or v == -1 / 0 then
    return v > 0 and "inf" or "-inf"
  end
end


local function number_text(v, digits)
  local text = plain_text(v)
  if text then
    return text
  elseif not digits then
    return ("%d"):format(v)
  end
  text = ("%." .. digits .. "g"):format(v)
  return text:find("[.e]") and text or text .. "."
end


-- Elements from..from + n - 1 of flattened x as texts, added to the row.
local function add_texts(texts, x, from, n, digits)
  local p = transfer.read(class.view(x, { n }, from * BYTES[x._dtype], "tostring"), "tostring")
  for i = 0, n - 1 do
    texts[#texts + 1] = number_text(tonumber(p[i]), digits)
  end
end


local function row_texts(x, from, n, digits)
  local texts, ends = {}, MOST / 2
  if n <= MOST then
    add_texts(texts, x, from, n, digits)
  else
    add_texts(texts, x, from, ends, digits)
    texts[#texts + 1] = "..."
    add_texts(texts, x, from + n - ends, ends, digits)
  end
  return texts
end


-- Rows of texts in nested lists, as the array is nested; "..." for what is left out.
-- `most` is that of the outer axes.
local function collect(x, depth, from, size, digits, rows, most)
  local n = x._shape[depth]
  if depth == #x._shape then
    local texts = row_texts(x, from, n, digits)
    rows[#rows + 1] = texts
    return texts
  end
  local list, inner = {}, size / n
  for i = 0, n - 1 do
    if n > most and i == most / 2 then
      list[#list + 1] = "..."
    elseif n <= most or i < most / 2 or i >= n - most / 2 then
      list[#list + 1] = collect(x, depth + 1, from + i * inner, inner, digits, rows, most)
    end
  end
  return list
end


local function widest(rows)
  local width = 0
  for _, row in ipairs(rows) do
    for _, text in ipairs(row) do
      width = math.max(width, #text)
    end
  end
  return width
end


local function join(list, depth, ndim, width)
  local parts = {}
  for i, part in ipairs(list) do
    if depth == ndim then
      parts[i] = (" "):rep(width - #part) .. part
    else
      parts[i] = part == "..." and part or join(part, depth + 1, ndim, width)
    end
  end
  local gap = depth == ndim and " " or ("\n"):rep(math.min(2, ndim - depth)) .. (" "):rep(depth)
  return "[" .. table.concat(parts, gap) .. "]"
end


local function values_text(x, most)
  local rows = {}
  local list = collect(x, 1, 0, x._size, FLOATS[args.DTYPE_NAMES[x._dtype]], rows, most)
  return join(list, 1, #x._shape, widest(rows))
end


--- The values and `<NDArray 2x3 @cpu(0)>`.
function NDArray.__tostring(x)
  if not rawget(x, "_h") then
    return rawget(x, "_shape") and "<NDArray " .. table.concat(x._shape, "x") .. " without memory>"
      or "<NDArray freed>"
  end
  return ("\n%s\n<NDArray %s @%s>"):format(values_text(x, MOST),
    table.concat(x._shape, "x"), tostring(x.context))
end


-- How many rows are written when the outer axes show at most so many entries.
local function rows_shown(x, most)
  local n = 1
  for axis = 1, #x._shape - 1 do
    n = n * math.min(x._shape[axis], most)
  end
  return n
end


--- The array in at most about so many rows, for the prompt; the dtype stands with
-- the shape unless it is float32.
-- @tparam NDArray x
-- @int rows
function NDArray.text(x, rows)
  local most = MOST
  while most > 2 and rows_shown(x, most) > rows do
    most = most - 2
  end
  local dtype = args.DTYPE_NAMES[x._dtype]
  return ("%s\n<NDArray %s%s @%s>"):format(values_text(x, most), table.concat(x._shape, "x"),
    dtype ~= "float32" and " " .. dtype or "", tostring(x.context))
end


--- "float32 2x3 @cpu(0)": an array in a few words, without reading it.
function NDArray.summary(x)
  return ("%s %s @%s"):format(args.DTYPE_NAMES[x._dtype],
    table.concat(x._shape, "x"), tostring(x.context))
end
