--- Axes of charts: conversion of values to pixels, and ticks.
--
--     local y = scale.linear(0.13, 0.97, 260, 58, 6)     -- values, pixels, at most 6 parts
--     y.at(0.5)                                          -- the pixel of a value
--     for i, value in ipairs(y.ticks) do print(value, y.texts[i]) end
--
-- @module tycho.viz.scale

local scale = {}

local NEAR = 1e-9


-- Returns the smallest of 1, 2, 5 times a power of ten that divides a range into at most n parts.
local function nice_step(range, n, whole)
  local power = 10 ^ math.floor(math.log10(range / n))
  for _, factor in ipairs{ 1, 2, 5, 10 } do
    local step = factor * power
    if range / step <= n * (1 + NEAR) and not (whole and step < 1) then
      return step
    end
  end
  return math.max(1, 10 * power)
end


--- Returns a number as text, with enough digits to distinguish numbers `step` apart.
function scale.text(value, step)
  if math.abs(value) >= 1e6 or (value ~= 0 and step < 1e-5) then
    local digits = math.max(1, math.ceil(math.log10(math.abs(value) / step) + 1))
    return (("%%.%dg"):format(math.min(digits, 6)):format(value):gsub("e([+-])0?", "e%1")
      :gsub("e%+", "e"))
  end
  local decimals = math.max(0, math.ceil(-math.log10(step) - NEAR))
  return (("%%.%df"):format(decimals):format(value):gsub("^%-(0%.?0*)$", "%1"))
end


local function make_ticks(low, high, step)
  local ticks, texts = {}, {}
  for i = math.ceil(low / step - NEAR), math.floor(high / step + NEAR) do
    ticks[#ticks + 1] = i * step
    texts[#texts + 1] = scale.text(i * step, step)
  end
  return ticks, texts
end


--- Returns an axis with a linear scale.
-- @number low
-- @number high
-- @number from pixel of the lowest value
-- @number to pixel of the highest
-- @number parts most intervals between ticks
-- @tparam[opt] table options whole (ticks are whole numbers), fixed (the axis ends at low and high,
--   not at ticks)
-- @treturn table `at(value)`, ticks, texts, step
function scale.linear(low, high, from, to, parts, options)
  local whole, fixed = options and options.whole, options and options.fixed
  if high - low <= NEAR * math.max(math.abs(low), math.abs(high), 1e-300) then
    local margin = whole and 1 or math.max(math.abs(high) * 0.1, 1e-3)
    low, high = low - (whole and 0 or margin), high + margin
  end
  local step = nice_step(high - low, parts, whole)
  if not fixed then
    low, high = math.floor(low / step + NEAR) * step, math.ceil(high / step - NEAR) * step
  end
  local ticks, texts = make_ticks(low, high, step)
  return { ticks = ticks, texts = texts, step = step, low = low, high = high, at = function(value)
    return from + (value - low) / (high - low) * (to - from)
  end }
end


local STEPS = { { 1 }, { 1, 2, 5 }, { 1, 2, 3, 4, 5, 6, 7, 8, 9 } }

-- Returns ticks at powers of ten and their texts; few powers get ticks in between, of many powers
-- some are left out.
local function log_ticks(low, high, parts)
  local first, last = math.floor(low + NEAR), math.ceil(high - NEAR)
  local every = math.max(1, math.ceil((last - first) / parts))
  local within = high - low > 2 and STEPS[1] or high - low > 0.7 and STEPS[2] or STEPS[3]
  local ticks, texts = {}, {}
  for power = first, last, every do
    for _, factor in ipairs(within) do
      local exponent = power + math.log10(factor)
      if exponent >= low - NEAR and exponent <= high + NEAR then
        ticks[#ticks + 1] = factor * 10 ^ power
        texts[#texts + 1] = ("%g"):format(factor * 10 ^ power)
      end
    end
  end
  return ticks, texts
end


--- Returns an axis of positive values with a logarithmic scale; arguments as for `linear`.
function scale.log(low, high, from, to, parts, options)
  low, high = math.log10(low), math.log10(high)
  if high - low < NEAR then
    low, high = low - 0.5, high + 0.5
  end
  if not (options and options.fixed) and high - low > 1 then
    low, high = math.floor(low + NEAR), math.ceil(high - NEAR)
  end
  local ticks, texts = log_ticks(low, high, parts)
  return { ticks = ticks, texts = texts, low = 10 ^ low, high = 10 ^ high, at = function(value)
    return from + (math.log10(value) - low) / (high - low) * (to - from)
  end }
end


return scale
