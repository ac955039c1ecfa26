--- Numbers of an array as texts of one width with aligned points (not for users).
--
-- A float is written with the fewest digits that distinguish it from other numbers of its type, at
-- most `precision` of them after the point. If one number is very large or very small, all are
-- written with exponents.
--
-- @module tycho.ndarray.number_text

local abs, max, min = math.abs, math.max, math.min

local number_text = {}

-- Bits of the fraction; the exponent of two of the smallest number above 0.
local FLOATS = {
  float32 = { bits = 23, least = -149 }, float64 = { bits = 52, least = -1074 },
  float16 = { bits = 10, least = -24 }, bfloat16 = { bits = 7, least = -133 },
}

local LARGE, SMALL, RATIO = 1e8, 1e-4, 1000              -- numbers beyond these need exponents


-- One float ---------------------------------------------------------------------------------------

-- Returns the digits ("314159") and the exponent of ten (0 for 3.14159) of a finite number: the
-- fewest that read back as it.
local function find_digits(v, float)
  v = abs(v)
  local fraction, exponent = math.frexp(v)
  local step = max(exponent - 1 - float.bits, float.least)
  local above = 2 ^ (step - 1)                           -- half way to the next number
  local below = fraction == 0.5 and step > float.least and above / 2 or above
  for n = 0, 16 do
    local text = ("%%.%de"):format(n):format(v)
    local off = tonumber(text) - v
    if off == 0 or off > 0 and off < above or off < 0 and -off < below or n == 16 then
      local first, rest, power = text:match("^(%d)%.?(%d*)e(.*)$")
      return ((first .. rest):gsub("(.)0+$", "%1")), tonumber(power)
    end
  end
end


local function finite(v)
  return v - v == 0
end


local function special_text(v)
  return v ~= v and "nan" or v > 0 and "inf" or "-inf"
end


-- Returns a number without exponent, split at the point.
local function split_plain(v, float, precision)
  local digits, power = find_digits(v, float)
  local decimals = min(max(#digits - 1 - power, 0), precision)
  local whole, part = (("%%.%df"):format(decimals)):format(v):match("^([^.]*)%.?(.*)$")
  return whole, (part:gsub("0+$", ""))
end


-- Returns a number with exponent: its first digit with the sign, the digits after the point, the
-- exponent.
local function split_power(v, float, precision)
  local digits, power = find_digits(v, float)
  if #digits - 1 > precision then
    local text = (("%%.%de"):format(precision)):format(abs(v))
    digits, power = text:match("^[^e]*"):gsub("%.", ""):gsub("(.)0+$", "%1"), text:match("e(.*)$")
  end
  local sign = (v < 0 or 1 / v < 0) and "-" or ""
  return sign .. digits:sub(1, 1), digits:sub(2), ("%+03d"):format(power)
end


-- Floats of one array -----------------------------------------------------------------------------

-- Returns whether exponents are needed.
local function wants_powers(values, options)
  local least, most = math.huge, 0
  for _, v in ipairs(values) do
    if finite(v) and v ~= 0 then
      least, most = min(least, abs(v)), max(most, abs(v))
    end
  end
  return most >= LARGE or most > 0 and not options.suppress
    and (least < SMALL or most / least > RATIO)
end


-- Returns the widths of the three parts of all finite numbers.
local function measure_widths(values, split, float, precision)
  local widths = { 0, 0, 0 }
  for _, v in ipairs(values) do
    local parts = finite(v) and { split(v, float, precision) } or {}
    for i, part in ipairs(parts) do
      widths[i] = max(widths[i], #part)
    end
  end
  return widths
end


local function pad(text, width)
  return (" "):rep(width - #text) .. text
end


local function float_writer(values, float, options)
  local powers = wants_powers(values, options)
  local split = powers and split_power or split_plain
  local widths = measure_widths(values, split, float, options.precision)
  local width = widths[1] + widths[2] + 1 + (powers and widths[3] + 1 or 0)
  for _, v in ipairs(values) do
    width = max(width, finite(v) and 0 or #special_text(v))
  end
  return function(v)
    if not finite(v) then
      return pad(special_text(v), width)
    end
    local whole, part, power = split(v, float, options.precision)
    local filler = ((powers and "0" or " ")):rep(widths[2] - #part)
    if powers then
      local zeros = ("0"):rep(widths[3] - #power)
      filler = filler .. "e" .. power:sub(1, 1) .. zeros .. power:sub(2)
    end
    return pad(whole .. "." .. part .. filler, width)
  end
end


-- Others ------------------------------------------------------------------------------------------

local function integer_text(v)
  return type(v) == "cdata" and tostring(v):match("^-?%d+") or ("%d"):format(tonumber(v))
end


local function bool_text(v)
  return v ~= 0 and "true" or "false"
end


local function even_writer(values, text_of)
  local width = 0
  for _, v in ipairs(values) do
    width = max(width, #text_of(v))
  end
  return function(v)
    return pad(text_of(v), width)
  end
end


--- Returns a function that writes one of the numbers, aligned with the others.
-- @tparam {number,...} values all numbers that will be written; 64-bit integers as cdata
-- @string dtype
-- @tparam table options precision, suppress: see `nd.set_printoptions`
-- @treturn function(v) -> text; all of one width
function number_text.writer(values, dtype, options)
  if FLOATS[dtype] then
    return float_writer(values, FLOATS[dtype], options)
  end
  return even_writer(values, dtype == "bool" and bool_text or integer_text)
end


return number_text
